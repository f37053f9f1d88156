"""Losses of a batch and their gradients. Each returns the mean over rows, and writes dloss/doutputs into delta.

Outputs and delta have a row for each output, `stride` numbers apart; y has a row for each row. w_r is a row's weight,
one where there are none. A new loss is such a function, its number, and its row in `loss`.
"""

from __future__ import annotations

import math

import numpy as np

from wherefrom.training.losses import MOST_LOG_VARIANCE
from wherefrom.training.native.codes import GAUSSIAN, SQUARED_ERROR
from wherefrom.training.native.functions import exp
from wherefrom.training.native.jit import jit

_f = np.float32
HALF, ONE, TWO = _f(0.5), _f(1), _f(2)
MOST = _f(MOST_LOG_VARIANCE)


@jit
def loss(kind, smoothing, outputs, y, w, delta, rows, width, stride):
    if kind == SQUARED_ERROR:
        return _squared_error(outputs, y, w, delta, rows, width, stride)
    if kind == GAUSSIAN:
        return _gaussian(outputs, y, w, delta, rows, width, stride)
    return _cross_entropy(outputs, y, w, smoothing, delta, rows, width, stride)


@jit
def _squared_error(outputs, y, w, delta, rows, width, stride):
    """mean of w (f - y)^2;  gradient 2 w (f - y) / n"""
    share = ONE / _f(rows * width)
    total = 0.0
    for q in range(width):
        for r in range(rows):
            error = outputs[q * stride + r] - y[r * width + q]
            delta[q * stride + r] = TWO * share * w[r] * error
            total += w[r] * error * error
    return total / (rows * width)


@jit
def _gaussian(outputs, y, w, delta, rows, width, stride):
    """mean of w (v + (m - y)^2 e^-v) / 2 for means m and log variances v, which are bounded

    gradient w (m - y) e^-v / n to m,  w (1 - (m - y)^2 e^-v) / 2n to v
    """
    targets = width // 2
    share = ONE / _f(rows * targets)
    total = 0.0
    for q in range(targets):
        for r in range(rows):
            mean = q * stride + r
            log_variance = mean + targets * stride
            error = outputs[mean] - y[r * targets + q]
            v = min(max(outputs[log_variance], -MOST), MOST)
            precision = exp(-v)
            distance = error * error * precision
            delta[mean] = share * w[r] * error * precision
            delta[log_variance] = HALF * share * w[r] * (ONE - distance)
            total += HALF * w[r] * (v + distance)
    return total / (rows * targets)


@jit
def _cross_entropy(outputs, y, w, smoothing, delta, rows, width, stride):
    """mean of -w sum_c t_c ln p_c with p the softmax and t = (1 - s) [c = y] + s / classes;  gradient w (p - t) / n"""
    share = ONE / _f(rows)
    even = smoothing / _f(width)
    total = 0.0
    for r in range(rows):
        largest = outputs[r]
        for q in range(1, width):
            largest = max(largest, outputs[q * stride + r])
        mass, mean = _f(0), _f(0)
        for q in range(width):
            distance = outputs[q * stride + r] - largest
            p = exp(distance)
            delta[q * stride + r] = p
            mass += p
            mean += distance
        for q in range(width):
            delta[q * stride + r] = share * w[r] * (delta[q * stride + r] / mass - even)
        right = np.int64(y[r]) * stride + r
        delta[right] -= share * w[r] * (ONE - smoothing)
        own = outputs[right] - largest
        total += w[r] * (_f(math.log(mass)) - (ONE - smoothing) * own - even * mean)
    return total / rows
