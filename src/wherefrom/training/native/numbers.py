"""The named streams of `training.streams` inside the kernel: the same numbers, orders and masks, to the last bit."""

from __future__ import annotations

import math

import numpy as np

from wherefrom.training import streams
from wherefrom.training.native.jit import inlined, jit

_u = np.uint64
_GOLDEN, _MIX_1, _MIX_2 = streams.GOLDEN, streams.MIX_1, streams.MIX_2
_UNIT = 2.0**-53
_FEW, _COUNTED = 8, 256  # entries of a table that are compared one by one, and in vectors


@inlined
def number(key, major, minor):
    """The minor-th number of a stream at a step or an epoch (major); `streams.numbers` at `streams.address`."""
    z = key + ((_u(major) << _u(32)) + _u(minor)) * _GOLDEN
    z = (z ^ (z >> _u(30))) * _MIX_1
    z = (z ^ (z >> _u(27))) * _MIX_2
    return z ^ (z >> _u(31))


@jit
def permutation(order, tagged, spare, counts, key, epoch, digit_bits):
    """`streams.permutations` for one stream: rows sorted by their tagged numbers.

    Two passes of radix sort on the leading digits bring all but a few numbers into place, since they are uniform; one
    pass of insertion does the rest.
    """
    size = len(order)
    digits = 1 << digit_bits
    low_shift, high_shift = _u(64 - 2 * digit_bits), _u(64 - digit_bits)
    digit_mask = _u(digits - 1)
    bits = 1
    while (1 << bits) < size:
        bits += 1
    tag_mask = _u((1 << bits) - 1)
    low, high = counts[:digits], counts[digits : 2 * digits]
    low[:] = 0
    high[:] = 0
    for i in range(size):
        tagged[i] = (number(key, epoch, i) & ~tag_mask) | _u(i)
    for i in range(size):
        n = tagged[i]
        low[(n >> low_shift) & digit_mask] += 1
        high[n >> high_shift] += 1
    before_low, before_high = 0, 0
    for digit in range(digits):
        here_low, here_high = low[digit], high[digit]
        low[digit], high[digit] = before_low, before_high
        before_low += here_low
        before_high += here_high
    for i in range(size):
        n = tagged[i]
        digit = (n >> low_shift) & digit_mask
        spare[low[digit]] = n
        low[digit] += 1
    for i in range(size):
        n = spare[i]
        digit = n >> high_shift
        tagged[high[digit]] = n
        high[digit] += 1
    for i in range(1, size):
        n = tagged[i]
        k = i
        while k > 0 and tagged[k - 1] > n:
            tagged[k] = tagged[k - 1]
            k -= 1
        tagged[k] = n
    for i in range(size):
        order[i] = np.int64(tagged[i] & tag_mask)


@jit
def with_replacement(order, key, epoch):
    """`cohort.orders` with replacement, for one stream: each row anew, its number scaled down."""
    rows = _u(len(order))
    for i in range(len(order)):
        n = number(key, epoch, i)
        scaled = (n >> _u(32)) * rows + (((n & _u(0xFFFFFFFF)) * rows) >> _u(32))
        order[i] = np.int64(scaled >> _u(32))


@inlined
def digit_bits(size):
    """Digits long enough that few numbers share both, and few enough that counting them costs little."""
    bits = 1
    while (1 << bits) < size:
        bits += 1
    return min((3 * bits + 3) // 4, 11)


@jit
def poisson(cumulative, key, step):
    """Return the number of cells that a step drops: the first entry of the table beyond a uniform number."""
    uniform = np.float64(number(key, step, 0) >> _u(11)) * _UNIT
    below, beyond = 0, len(cumulative)
    if cumulative[_FEW] > uniform:
        while cumulative[below] <= uniform:
            below += 1
        return below
    while beyond - below > _COUNTED:
        middle = (below + beyond) // 2
        if cumulative[middle] <= uniform:
            below = middle + 1
        else:
            beyond = middle
    some = cumulative[below:beyond]
    for i in range(len(some)):  # comparing all takes less time than more halving, whose branches cannot be predicted
        below += some[i] <= uniform
    return below


@inlined
def normal_pair(key, step, index):
    """Two normal numbers of a step, for the index-th weight of either half; `noise.normals`."""
    n = number(key, step, index)
    radius = math.sqrt(-2 * math.log((np.float64(n & _u(0xFFFFFFFF)) + 0.5) * 2.0**-32))
    angle = np.float64(n >> _u(32)) * (2.0**-32 * 2 * math.pi)
    return radius * math.cos(angle), radius * math.sin(angle)


@inlined
def cell(key, step, index, cells):
    """The index-th cell that a step drops: unit * batch size + row."""
    return np.int64(((number(key, step, index + 1) >> _u(32)) * _u(cells)) >> _u(32))
