"""A plain MLP forward and backward, for one member and one batch.

    level 0          a_0 = x, with a column of ones
    hidden level l   z_l = a_{l-1} W_l + b_l,          a_l = f_l(z_l)
    last level L     outputs = f_L(a_{L-1} W_L^T + b_L)

f_l is any sequence of activations and dropout. All of them act on single numbers, so their slopes multiply: s_l = f_l'.

    delta_L = dloss/doutputs * s_L,     delta_l = (delta_{l+1} W_{l+1}^T) * s_l
    dloss/dW_l = a_{l-1}^T delta_l,     dloss/db_l = sum over rows of delta_l

In memory a hidden level has a row for each row of the batch, and its W_l a row for each unit below and, last, a row for
b_l; rows are padded with zeros to whole vectors, and nothing ever moves a zero of the padding. At level 0 the column of
ones makes b_1's gradient one more row of W_1's. The last level is the other way round, a row for each output, and so is
W_L: few outputs would waste most of a vector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wherefrom.training.native.codes import DROPOUT
from wherefrom.training.native.functions import apply
from wherefrom.training.native.jit import inlined, jit, merged
from wherefrom.training.native.matrices import (
    NO_LOWEST,
    NOT_GATED,
    ONE,
    ZERO,
    gated_sums,
    outer_products,
    plain_product,
    product,
    products_with_row,
    rows_of,
    same_number,
    same_row,
    scale_rows,
    transpose,
    transposed,
)
from wherefrom.training.native.numbers import cell, number, poisson

# How the slopes of a level are known: all one; scale where a > 0 and else zero (a ReLU and what dropout left); kept.
SLOPE_ONE, SLOPE_SIGN, SLOPE_KEPT = range(3)
_FEW_CELLS = 8  # that are dropped one by one
_LOWER, _UPPER = np.uint64(0xFFFFFFFF), np.uint64(32)


class Net(NamedTuple):
    """A network's shape. Levels count from 0 (the inputs) to the last (the outputs)."""

    width: Any  # units of each level
    padded: Any  # numbers from one row to the next; at the last level, from one output to the next
    weights: Any  # where a level's W begins in theta (level 0 has none)
    bias: Any  # where its b begins
    has_bias: Any
    values: Any  # where its activations begin in the work space
    turned: Any  # where its transposed W does, if it needs one
    slope: Any  # SLOPE_...
    first: Any  # its first operation; the next level's first is one beyond its last
    kind: Any  # of every operation
    parameter: Any
    site: Any  # of every dropout, which of the sites it is


class Masks(NamedTuple):
    """Dropout of one member: at each site its stream, the scale of what survives, and what decides who does."""

    keys: Any
    scale: Any
    threshold: Any  # where every cell is asked; 0 where a Poisson number of cells is dropped
    table: Any  # which of the tables
    cumulative: Any  # all tables, one after another
    start: Any  # where each begins


class Space(NamedTuple):
    """Work space of one thread."""

    values: Any  # activations of all levels
    slopes: Any
    delta: Any  # of the level in hand, and of the next
    other: Any
    turned: Any  # transposed weights
    gradient: Any  # like theta
    mean: Any  # like theta, before it was shaken
    away: Any  # how far it was
    zeros: Any  # a row of zeros
    ones: Any  # a single one
    order: Any  # the epoch's rows
    tagged: Any  # for sorting
    spare: Any
    counts: Any
    places: Any  # of some cells that are dropped
    y: Any  # the batch's targets
    w: Any  # and weights
    offset: Any  # and what is added to their outputs


@merged
def forward(net, theta, masks, space, rows, batch_size, step):
    """All activations and slopes of a batch whose inputs stand at level 0."""
    last = len(net.width) - 1
    for level in range(last + 1):
        if level == last:
            _outputs(net, theta, space, rows)
        elif level > 0:
            _hidden(net, level, theta, masks, space, rows)
        if net.first[level + 1] > net.first[level]:
            _operations(net, level, masks, space, rows, batch_size, step)
        if level == 0 and last > 1 and net.first[1] > 0:
            for r in range(rows):  # operations on the inputs leave the ones as they are
                space.values[r * net.padded[0] + net.width[0]] = ONE


@merged
def _hidden(net, level, theta, masks, space, rows):
    """z_l = a_{l-1} W_l + b_l, and the ReLU at once where one follows"""
    lowest, scale = NO_LOWEST, ONE
    if net.slope[level] == SLOPE_SIGN:
        lowest, scale = ZERO, sign_scale(net, level, masks)
    product(
        rows_of(space.values, net.values[level - 1], net.padded[level - 1]),
        rows_of(theta, net.weights[level], net.padded[level]),
        same_row(theta, net.bias[level]),
        rows_of(space.values, net.values[level], net.padded[level]),
        rows,
        net.width[level - 1],
        net.padded[level],
        lowest,
        scale,
        NOT_GATED,
        same_row(theta, 0),
    )


@jit
def sign_scale(net, level, masks):
    """Dropout's scale after a ReLU, or one."""
    for operation in range(net.first[level], net.first[level + 1]):
        if net.kind[operation] == DROPOUT:
            return masks.scale[net.site[operation]]
    return ONE


@merged
def _outputs(net, theta, space, rows):
    """a_{L-1} W_L^T + b_L, output by output"""
    last = len(net.width) - 1
    below = net.padded[last - 1]
    for q in range(net.width[last]):
        products_with_row(
            rows_of(space.values, net.values[last - 1], below),
            rows,
            theta,
            net.weights[last] + q * below,
            below,
            space.values,
            net.values[last] + q * net.padded[last],
            theta[net.bias[last] + q],
        )


@inlined
def _numbers(net, level, rows):
    """Return the number of activations of a level."""
    return (net.width[level] if level == len(net.width) - 1 else rows) * net.padded[level]


@merged
def _operations(net, level, masks, space, rows, batch_size, step):
    """f_l on all activations of a level; keep its slopes where the activations do not tell them."""
    start, count = net.values[level], _numbers(net, level, rows)
    values = space.values[start : start + count]
    slopes = space.slopes[start : start + count]
    by_sign = net.slope[level] == SLOPE_SIGN  # the product has done the ReLU and the scale
    is_last = level == len(net.width) - 1
    stride, width = net.padded[level], net.width[level]
    first, end = net.first[level], net.first[level + 1]
    for operation in range(first, end):
        if net.kind[operation] != DROPOUT:
            scale = ONE
            if operation + 1 < end and net.kind[operation + 1] == DROPOUT:  # its scale comes at no cost
                scale = masks.scale[net.site[operation + 1]]
            if not by_sign:
                _activate(
                    net.kind[operation], net.parameter[operation], scale, values, slopes, space, operation > first
                )
            continue
        site = net.site[operation]
        if not by_sign and (operation == first or net.kind[operation - 1] == DROPOUT):
            scale = masks.scale[site]
            for i in range(count):
                values[i] *= scale
                slopes[i] = scale if operation == first else scale * slopes[i]
        key, threshold = masks.keys[site], masks.threshold[site]
        table = masks.cumulative[masks.start[masks.table[site]] : masks.start[masks.table[site] + 1]]
        _drop(
            values,
            values if by_sign else slopes,
            key,
            step,
            threshold,
            table,
            width,
            rows,
            batch_size,
            stride,
            is_last,
            space.places,
        )


@jit
def _activate(kind, parameter, scale, values, slopes, space, follows):
    """Apply an activation; where it follows other operations of its level, the slopes multiply."""
    before = space.other[: len(slopes)]  # which only the backward pass needs
    if follows:
        for i in range(len(slopes)):
            before[i] = slopes[i]
    apply(kind, parameter, scale, values, slopes)
    if follows:
        for i in range(len(slopes)):
            slopes[i] *= before[i]


@jit
def _drop(values, slopes, key, step, threshold, cumulative, units, rows, batch_size, stride, is_last, places):
    """Zero the cells that a step drops, as `training.dropout` has it: some, or asking all. Both may be one array."""
    if threshold == 0:
        _drop_some(values, slopes, key, step, cumulative, units, rows, batch_size, stride, is_last, places)
    else:
        _ask_all(values, key, step, threshold, units, rows, stride, is_last)
        if slopes is not values:
            _ask_all(slopes, key, step, threshold, units, rows, stride, is_last)


@inlined
def _place(row, unit, stride, is_last):
    return unit * stride + row if is_last else row * stride + unit


@jit
def _drop_some(values, slopes, key, step, cumulative, units, rows, batch_size, stride, is_last, places):
    """A Poisson number of cells, for low rates"""
    count = poisson(cumulative, key, step)
    if count < _FEW_CELLS:
        for index in range(count):
            number_of_cell = np.uint32(cell(key, step, index, units * batch_size))  # short divisions take half the time
            unit = number_of_cell // np.uint32(batch_size)
            row = number_of_cell - unit * np.uint32(batch_size)
            if row < rows:  # those beyond a short batch are not there to be dropped
                dropped = _place(np.int64(row), np.int64(unit), stride, is_last)
                values[dropped] = ZERO
                slopes[dropped] = ZERO
    else:
        _drop_many(values, slopes, key, step, count, units, rows, batch_size, stride, is_last, places)


@jit
def _drop_many(values, slopes, key, step, count, units, rows, batch_size, stride, is_last, places):
    """Drop cells as above, with their positions computed first, in vectors, and then visited.

    There is no division in vectors. To multiply by 1 / batch_size is as exact: the half keeps (cell + 1/2) / batch_size
    farther away from whole numbers than double precision rounds.
    """
    share = 1.0 / batch_size
    for first in range(0, count, len(places)):
        some = places[: min(len(places), count - first)]
        for i in range(len(some)):
            number_of_cell = cell(key, step, first + i, units * batch_size)
            unit = np.int64((number_of_cell + 0.5) * share)
            row = number_of_cell - unit * batch_size
            some[i] = _place(row, unit, stride, is_last) if row < rows else -1
        for i in range(len(some)):
            if some[i] >= 0:
                values[some[i]] = ZERO
                slopes[some[i]] = ZERO


@jit
def _ask_all(values, key, step, threshold, units, rows, stride, is_last):
    """Every cell, for higher rates"""
    half = (units + 1) // 2
    for row in range(rows):
        first = 1 + row * half
        if not is_last:
            here = values[row * stride : row * stride + units]
            _ask_row(here[:half], here[half:], key, step, first, threshold)
        else:
            for unit in range(units):
                both = number(key, step, first + unit % half)
                if (both & _LOWER if unit < half else both >> _UPPER) < threshold:
                    values[_place(row, unit, stride, is_last)] = ZERO


@jit
def _ask_row(lower, upper, key, step, first, threshold):
    """Both halves of a row, by both halves of its numbers; in vectors."""
    for h in range(len(upper)):
        both = number(key, step, first + h)
        lower[h] = ZERO if (both & _LOWER) < threshold else lower[h]
        upper[h] = ZERO if (both >> _UPPER) < threshold else upper[h]
    if len(lower) > len(upper):
        h = len(upper)
        if (number(key, step, first + h) & _LOWER) < threshold:
            lower[h] = ZERO


@merged
def backward(net, theta, masks, space, rows):
    """The gradient of the loss, from dloss/doutputs in space.delta."""
    last = len(net.width) - 1
    delta, other = space.delta, space.other
    _times_slopes(net, last, space, delta, rows)
    _bias_of_last(net, space, delta, rows)
    if net.width[last] == 1 and last == 2 and net.slope[1] != SLOPE_ONE:  # as in most regressions
        if net.slope[1] == SLOPE_SIGN:
            _gradient_of_relus(net, theta, space, delta, rows, sign_scale(net, 1, masks))
        else:
            _gradient_of_one_hidden(net, theta, space, delta, rows)
        return
    # One output above ReLUs: delta_{L-1} and dloss/dW_L come in one pass over a_{L-1}.
    at_once = net.width[last] == 1 and last > 1 and net.slope[last - 1] == SLOPE_SIGN
    if not at_once:
        _weights_of_last(net, space, delta, rows)
    for level in range(last - 1, 0, -1):
        if at_once and level == last - 1:
            outer_products(
                delta,
                theta,
                net.weights[last],
                rows_of(space.values, net.values[level], net.padded[level]),
                rows_of(other, 0, net.padded[level]),
                space.gradient,
                net.weights[last],
                rows,
                net.padded[level],
                sign_scale(net, level, masks),
            )
        else:
            _delta_below(net, level, theta, masks, space, delta, other, rows)
        delta, other = other, delta
        _times_slopes(net, level, space, delta, rows)
        _gradient_of_hidden(net, level, space, delta, rows)


@merged
def _gradient_of_one_hidden(net, theta, space, delta, rows):
    """dloss/dW_1 = W_2 * (delta_2 x)^T s_1, below one output: delta_1 need not be written"""
    stride, x = net.padded[1], rows_of(space.values, net.values[0], net.padded[0])
    _weights_of_last(net, space, delta, rows)
    below = net.width[0] + (1 if net.has_bias[1] else 0)
    scale_rows(x, delta, rows, net.padded[0])
    gradient = rows_of(space.gradient, net.weights[1], stride)
    plain_product(
        transposed(x), rows_of(space.slopes, net.values[1], stride), gradient, space.zeros, below, rows, stride
    )
    head = theta[net.weights[2] : net.weights[2] + stride]
    for k in range(below):
        row = space.gradient[net.weights[1] + k * stride : net.weights[1] + (k + 1) * stride]
        for j in range(stride):
            row[j] *= head[j]


@merged
def _gradient_of_relus(net, theta, space, delta, rows, scale):
    """One hidden level of ReLUs below one output: the whole gradient comes from one product.

        G = (delta_2 x)^T (1 where a_1 > 0, else 0)
        dloss/dW_1 = scale * G * W_2,     dloss/dW_2 = scale * sum over inputs of G * W_1       (x and W_1 with b_1)

    since a_1 = scale * (x W_1 + b_1) where it is not zero, whether a ReLU or dropout made it so.
    """
    stride = net.padded[1]
    x = rows_of(space.values, net.values[0], net.padded[0])
    scale_rows(x, delta, rows, net.padded[0])
    gated_sums(
        x,
        rows_of(space.values, net.values[1], stride),
        rows_of(theta, net.weights[1], stride),
        same_row(theta, net.weights[2]),
        rows_of(space.gradient, net.weights[1], stride),
        same_row(space.gradient, net.weights[2]),
        space.ones[0],
        scale,
        rows,
        net.width[0] + (1 if net.has_bias[1] else 0),
        stride,
    )


@merged
def _delta_below(net, level, theta, masks, space, delta, below, rows):
    """delta_{l+1} W_{l+1}^T, times s_l where the signs of a_l tell it"""
    last = len(net.width) - 1
    if level == last - 1:
        above = transposed(rows_of(delta, 0, net.padded[last]))
        weights = rows_of(theta, net.weights[last], net.padded[level])
    else:
        above = rows_of(delta, 0, net.padded[level + 1])
        weights = rows_of(space.turned, net.turned[level + 1], net.padded[level])
        transpose(
            rows_of(theta, net.weights[level + 1], net.padded[level + 1]),
            weights,
            net.width[level],
            net.padded[level + 1],
        )
    by_sign = net.slope[level] == SLOPE_SIGN
    product(
        above,
        weights,
        same_row(space.zeros, 0),
        rows_of(below, 0, net.padded[level]),
        rows,
        net.width[level + 1],
        net.padded[level],
        NO_LOWEST,
        sign_scale(net, level, masks) if by_sign else ONE,
        by_sign,
        rows_of(space.values, net.values[level], net.padded[level]),
    )


@merged
def _times_slopes(net, level, space, delta, rows):
    """delta * s_l, where slopes are kept"""
    if net.slope[level] == SLOPE_KEPT:
        start, count = net.values[level], _numbers(net, level, rows)
        slopes = space.slopes[start : start + count]
        for i in range(count):
            delta[i] *= slopes[i]


@merged
def _bias_of_last(net, space, delta, rows):
    """The sums of delta_L over the rows"""
    last = len(net.width) - 1
    if net.has_bias[last]:
        for q in range(net.width[last]):
            total = ZERO
            for r in range(q * net.padded[last], q * net.padded[last] + rows):
                total += delta[r]
            space.gradient[net.bias[last] + q] = total


@merged
def _weights_of_last(net, space, delta, rows):
    """delta_L^T a_{L-1}, and nothing for the padding of a_{L-1}, where f(0) need not be 0"""
    last = len(net.width) - 1
    below = net.padded[last - 1]
    plain_product(
        rows_of(delta, 0, net.padded[last]),
        rows_of(space.values, net.values[last - 1], below),
        rows_of(space.gradient, net.weights[last], below),
        space.zeros,
        net.width[last],
        rows,
        below,
    )
    for q in range(net.width[last]):
        first = net.weights[last] + q * below
        for j in range(first + net.width[last - 1], first + below):
            space.gradient[j] = ZERO


@merged
def _gradient_of_hidden(net, level, space, delta, rows):
    """a_{l-1}^T delta_l; on the inputs, the column of ones brings the bias along"""
    deltas = rows_of(delta, 0, net.padded[level])
    with_ones = level == 1 and net.has_bias[level]
    plain_product(
        transposed(rows_of(space.values, net.values[level - 1], net.padded[level - 1])),
        deltas,
        rows_of(space.gradient, net.weights[level], net.padded[level]),
        space.zeros,
        net.width[level - 1] + (1 if with_ones else 0),
        rows,
        net.padded[level],
    )
    if net.has_bias[level] and not with_ones:
        plain_product(
            same_number(space.ones),
            deltas,
            rows_of(space.gradient, net.bias[level], net.padded[level]),
            space.zeros,
            1,
            rows,
            net.padded[level],
        )
