"""The training of one member for some epochs, all of it inside one compiled function.

The result depends on the member's stream, rows, weights and settings alone: neither on its neighbours, nor on how the
epochs are divided into calls.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from wherefrom.training.native.codes import CLIP, IVON, LR
from wherefrom.training.native.jit import LANES, entry, jit, merged
from wherefrom.training.native.layers import Masks, backward, forward
from wherefrom.training.native.losses import loss
from wherefrom.training.native.matrices import copy
from wherefrom.training.native.numbers import digit_bits, permutation, with_replacement
from wherefrom.training.native.rules import shake, shorten, step


class Tables(NamedTuple):
    """The rows of all tables, one table after another."""

    x: Any  # (rows, padded inputs): the inputs, a one, zeros
    y: Any  # (rows, targets)
    w: Any  # (rows,), or (0,) where all are one
    offset: Any  # (rows,) that is added to all outputs, or (0,)
    rows: int  # of each table


class Task(NamedTuple):
    """Settings that all members share."""

    optimiser: int
    loss: int
    numbers: Any  # of the loss
    batch_size: int
    steps: int  # of an epoch
    targets: int
    positions: Any  # of each weight in theta


class Draws(NamedTuple):
    """Each member's table, order, masks and settings."""

    table: Any  # (members,)
    order: Any  # (members,) streams
    replacement: Any  # (members,): whether batches are drawn with replacement
    noise: Any  # (members,) streams of the algorithm's own numbers
    settings: Any  # (members, settings)
    factors: Any  # (steps of this call,) of the learning rate; (0,) where it is constant
    mask_keys: Any  # (members, sites)
    mask_scale: Any
    mask_threshold: Any
    mask_table: Any
    cumulative: Any
    start: Any


class State(NamedTuple):
    """The arrays that training moves."""

    theta: Any  # (members, size)
    first: Any
    second: Any
    powers: Any  # (members, 2)
    losses: Any  # (members, epochs)
    diverged: Any  # (members,): the epoch, or -1


class Kept(NamedTuple):
    """The iterates that make a law."""

    steps: Any  # ascending, counted from 1
    mean: Any  # (members, size), or (0, 0) where no moments are wanted
    squares: Any
    points: Any  # (members, kept, size)
    points_of: Any  # the number of the point that each collected iterate is kept as, or -1
    gains: Any  # (iterates, 3) of the filters of TRADI, or (0, 3)
    last: Any  # (members, size), or (0, 0) without filters
    deviation: Any
    drift: Any
    variance: Any


@entry
def train(net, task, tables, draws, state, kept, space, member, first_epoch, epochs):
    """Train one member for some epochs, or fewer if it diverges."""
    steps = task.steps
    rows_per_epoch = min(tables.rows, steps * task.batch_size)  # fewer than all where the last batch is left out
    next_kept = np.searchsorted(kept.steps, first_epoch * steps + 1)
    last = len(net.width) - 1
    width, stride = net.width[last], net.padded[last]
    outputs = space.values[net.values[last] : net.values[last] + width * stride]
    theta, settings = state.theta[member], draws.settings[member]
    masks = Masks(
        draws.mask_keys[member],
        draws.mask_scale[member],
        draws.mask_threshold[member],
        draws.mask_table[member],
        draws.cumulative,
        draws.start,
    )
    for epoch in range(first_epoch, first_epoch + epochs):
        if draws.replacement[member]:
            with_replacement(space.order, draws.order[member], epoch)
        else:
            permutation(
                space.order,
                space.tagged,
                space.spare,
                space.counts,
                draws.order[member],
                epoch,
                digit_bits(tables.rows),
            )
        total = 0.0
        for index in range(steps):
            start = index * task.batch_size
            rows = min(task.batch_size, tables.rows - start)
            done = epoch * steps + index
            noise = (draws.noise[member], done, task.positions, tables.rows)
            gather(net, task, tables, draws.table[member] * tables.rows, space, start, rows)
            if task.optimiser == IVON:
                shake(theta, space.mean, space.away, state.second[member], settings, noise)
            forward(net, theta, masks, space, rows, task.batch_size, done)
            if len(tables.offset) > 0:
                add(outputs, space.offset, rows, width, stride)
            total += rows * loss(task.loss, task.numbers, outputs, space.y, space.w, space.delta, rows, width, stride)
            backward(net, theta, masks, space, rows)
            if settings[CLIP] < math.inf:
                shorten(space.gradient, settings[CLIP])
            lr = settings[LR]
            if len(draws.factors) > 0:
                lr *= draws.factors[done - first_epoch * steps]
            step(
                task.optimiser,
                theta,
                space.gradient,
                state.first[member],
                state.second[member],
                state.powers[member],
                settings,
                lr,
                noise,
                space.mean,
                space.away,
            )
            if next_kept < len(kept.steps) and kept.steps[next_kept] == done + 1:
                collect(kept, member, theta, next_kept)
                next_kept += 1
        state.losses[member, epoch] = total / rows_per_epoch
        if not math.isfinite(total):
            state.diverged[member] = epoch
            break


@merged
def gather(net, task, tables, offset, space, start, rows):
    """Copy the batch's rows into level 0, and their targets and weights."""
    stride, targets = net.padded[0], task.targets
    chosen = space.order[start : start + rows]
    if targets == 1 and stride == LANES:
        for r in range(rows):
            copy(space.values, net.values[0] + r * LANES, tables.x, (offset + chosen[r]) * LANES, 1)
            space.y[r] = tables.y[offset + chosen[r]]
    else:
        for r in range(rows):
            copy(space.values, net.values[0] + r * stride, tables.x, (offset + chosen[r]) * stride, stride // LANES)
            for q in range(targets):
                space.y[r * targets + q] = tables.y[(offset + chosen[r]) * targets + q]
    if len(tables.w) > 0:
        for r in range(rows):
            space.w[r] = tables.w[offset + chosen[r]]
    if len(tables.offset) > 0:
        for r in range(rows):
            space.offset[r] = tables.offset[offset + chosen[r]]


@jit
def add(outputs, offset, rows, width, stride):
    """Add a number of each row to all of its outputs, which no gradient depends on."""
    for q in range(width):
        for r in range(rows):
            outputs[q * stride + r] += offset[r]


@jit
def collect(kept, member, theta, index):
    """Add the index-th iterate to the running mean and squares (Welford), to the points, or to TRADI's filters."""
    if kept.points_of[index] >= 0:
        point = kept.points[member, kept.points_of[index]]
        for i in range(len(theta)):
            point[i] = theta[i]
    if kept.mean.shape[0] > 0:
        mean, squares = kept.mean[member], kept.squares[member]
        share = np.float32(1.0 / (index + 1))
        for i in range(len(theta)):
            change = theta[i] - mean[i]
            mean[i] += share * change
            squares[i] += change * (theta[i] - mean[i])
    if kept.last.shape[0] > 0:
        gain, drift_gain, new = kept.gains[index]
        filtered(
            theta,
            kept.last[member],
            kept.deviation[member],
            kept.drift[member],
            kept.variance[member],
            gain,
            drift_gain,
            new,
            index > 0,
        )


@jit
def filtered(theta, last, deviation, drift, variance, gain, drift_gain, new, has_last):
    """Move the filters of all weights by one iterate (see laws/tradi.py)."""
    one = np.float32(1.0)
    if has_last:
        for i in range(len(theta)):
            innovation = deviation[i] + (theta[i] - last[i]) - drift[i]
            drift[i] += drift_gain * innovation
            variance[i] = (one - new) * variance[i] + new * (one - gain) * innovation * innovation
            deviation[i] = (one - gain) * innovation
    for i in range(len(theta)):
        last[i] = theta[i]
