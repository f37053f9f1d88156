"""The moments of ReLU and LeakyReLU in one loop over memory, compiled by numba."""

from __future__ import annotations

import numpy as np

from wherefrom.training.native.functions import ONE, TWO, ZERO, normal
from wherefrom.training.native.jit import entry, inlined

BLOCK = 1024  # entries that are done with while the fastest cache holds them

_TINY = np.float32(np.finfo(np.float32).tiny)
_SATURATED = np.float32(12.0)


@inlined
def _relu(mean, variance):
    """Mean, variance and slope of `scalars.relu`."""
    std = np.sqrt(variance)
    a = mean / (_TINY if std < _TINY else std)
    a = _SATURATED if a > _SATURATED else a  # so that what is not a number stays none
    a = -_SATURATED if a < -_SATURATED else a
    above, density = normal(a)
    u = a * above + density
    share = above + u * (a - u)
    share = ZERO if share < ZERO else share
    share = ONE if share > ONE else share
    return mean * above + std * density, variance * share, above


@inlined
def _leaky_relu(mean, variance, below):
    """Mean, variance and slope of `scalars.leaky_relu`, with slope `below` below zero."""
    rest = ONE - below
    value, spread, slope = _relu(mean, variance)
    return (
        below * mean + rest * value,
        below * below * variance + rest * rest * spread + TWO * below * rest * slope * variance,
        below + rest * slope,
    )


@entry
def push(mean, variance, factors, below, new_mean, new_variance, new_factors, shared, slopes):
    """Push the tensors of several members; shared and slopes are for a block of entries.  # (members, [rank,] size)"""
    members, rank, size = factors.shape
    for member in range(members):
        for first in range(0, size, len(shared)):
            count = min(len(shared), size - first)
            for i in range(count):
                shared[i] = ZERO
            for r in range(rank):
                factor = factors[member, r, first : first + count]
                for i in range(count):
                    shared[i] += factor[i] * factor[i]
            own_mean, own_variance = mean[member, first : first + count], variance[member, first : first + count]
            to_mean, to_variance = new_mean[member, first : first + count], new_variance[member, first : first + count]
            for i in range(count):
                value, spread, slope = _leaky_relu(own_mean[i], own_variance[i] + shared[i], below)
                spread -= shared[i] * slope * slope
                to_mean[i], to_variance[i], slopes[i] = value, ZERO if spread < ZERO else spread, slope
            for r in range(rank):
                factor = factors[member, r, first : first + count]
                to_factor = new_factors[member, r, first : first + count]
                for i in range(count):
                    to_factor[i] = slopes[i] * factor[i]
