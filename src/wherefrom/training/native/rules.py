"""The optimisers' steps on one member: torch.optim's formulas, with the member's settings."""

from __future__ import annotations

import math

import numpy as np

from wherefrom.training.native.codes import (
    ADAMW,
    ALPHA,
    BETA1,
    BETA2,
    CLIP_RADIUS,
    EPS,
    HESS_INIT,
    IVON,
    LANGEVIN,
    LR,
    MOMENTUM,
    NESTEROV,
    NOISE_BELOW,
    PRECONDITIONED,
    SGD,
    TEMPERATURE,
    WEIGHT_DECAY,
)
from wherefrom.training.native.jit import inlined, jit, merged
from wherefrom.training.native.numbers import normal_pair

_f = np.float32
ONE = _f(1)


@merged
def step(kind, theta, gradient, first, second, powers, settings, lr, noise, mean, away):
    """Take one step in place. `powers` holds beta1^t and beta2^t, and moves on.

    noise: of a rule that draws: the stream, the step, the position of each weight in theta, and the rows of a table.
    mean, away: of a rule that shakes: theta before, and how far it was moved.
    """
    if kind == SGD:
        _sgd(theta, gradient, first, settings, lr)
    elif kind == LANGEVIN:
        powers[0] *= settings[ALPHA]
        _langevin(theta, gradient, first, second, powers, settings, lr, noise)
    elif kind == IVON:
        powers[0] *= settings[BETA1]
        _ivon(theta, gradient, first, second, powers, settings, lr, noise, mean, away)
    else:
        powers[0] *= settings[BETA1]
        powers[1] *= settings[BETA2]
        _adam(kind == ADAMW, theta, gradient, first, second, powers, settings, lr)


@jit
def shorten(gradient, largest):
    """Scale a gradient that is longer than it may be: torch.nn.utils.clip_grad_norm_."""
    total = 0.0
    for i in range(len(gradient)):
        total += np.float64(gradient[i]) * np.float64(gradient[i])
    factor = largest / (math.sqrt(total) + 1e-6)
    if not factor >= 1:  # nor where it is no number
        scale = _f(factor)
        for i in range(len(gradient)):
            gradient[i] *= scale


@jit
def _sgd(theta, gradient, velocity, settings, lr):
    """v <- momentum v + g;  theta <- theta - lr v,  with Nesterov: theta - lr (g + momentum v)"""
    rate, decay, momentum = _f(lr), _f(settings[WEIGHT_DECAY]), _f(settings[MOMENTUM])
    if momentum == 0:
        for i in range(len(theta)):
            theta[i] -= rate * (gradient[i] + decay * theta[i])
        return
    ahead = momentum if settings[NESTEROV] > 0 else _f(0)
    of_g = ONE if settings[NESTEROV] > 0 else _f(0)
    of_v = ONE - of_g + ahead  # v alone, or g + momentum v
    for i in range(len(theta)):
        g = gradient[i] + decay * theta[i]
        v = momentum * velocity[i] + g
        velocity[i] = v
        theta[i] -= rate * (of_g * g + of_v * v)


@jit
def _adam(decoupled, theta, gradient, first, second, powers, settings, lr):
    """m, v <- running means of g and g^2;  theta <- theta - lr m^ / (sqrt(v^) + eps)

    Weight decay is a part of g, or, decoupled (AdamW), theta <- (1 - lr decay) theta before the step.
    """
    beta1, beta2, decay = _f(settings[BETA1]), _f(settings[BETA2]), _f(settings[WEIGHT_DECAY])
    eps = _f(max(settings[EPS], 1e-30))  # the padding's gradients are zero, and 0 / 0 must not be
    new1, new2 = _f(1 - settings[BETA1]), _f(1 - settings[BETA2])
    rate = _f(lr / (1 - powers[0]))
    unbias = _f(1 / math.sqrt(1 - powers[1]))
    inside = _f(0) if decoupled else decay
    kept = ONE - _f(lr) * decay if decoupled else ONE
    for i in range(len(theta)):
        g = gradient[i] + inside * theta[i]
        m = beta1 * first[i] + new1 * g
        v = beta2 * second[i] + new2 * g * g
        first[i] = m
        second[i] = v
        theta[i] = kept * theta[i] - rate * m / (math.sqrt(v) * unbias + eps)


@jit
def _langevin(theta, gradient, velocity, square, powers, settings, lr, noise):
    """v <- momentum v - lr P g + sqrt(2 (1 - momentum) lr P T / rows) z;  theta <- theta + v

    P is 1, or 1 / (sqrt(v^) + eps) with the running mean v of g^2; see `training.rules.Langevin`.
    """
    key, done, positions, rows = noise
    heat = 2 * (1 - settings[MOMENTUM]) * lr * settings[TEMPERATURE] / rows
    if lr > settings[NOISE_BELOW] * settings[LR] * (1 + 1e-12):
        heat = 0.0
    numbers = _f(lr), _f(math.sqrt(heat)), _f(1 / (1 - powers[0]))
    half = (len(positions) + 1) // 2
    for i in range(half):
        z, other = 0.0, 0.0
        if heat > 0:
            z, other = normal_pair(key, done, i)
        _shake(theta, gradient, velocity, square, positions[i], _f(z), settings, numbers)
        if half + i < len(positions):
            _shake(theta, gradient, velocity, square, positions[half + i], _f(other), settings, numbers)


@inlined
def _shake(theta, gradient, velocity, square, i, z, settings, numbers):
    """Move one weight."""
    rate, scale, correction = numbers
    g = gradient[i] + _f(settings[WEIGHT_DECAY]) * theta[i]
    size = ONE
    if settings[PRECONDITIONED] > 0:
        square[i] = _f(settings[ALPHA]) * square[i] + _f(1 - settings[ALPHA]) * g * g
        size = ONE / (math.sqrt(square[i] * correction) + _f(settings[EPS]))
    v = _f(settings[MOMENTUM]) * velocity[i] + (scale * math.sqrt(size) * z - rate * size * g)
    velocity[i] = v
    theta[i] += v


@jit
def shake(theta, mean, away, curvature, settings, noise):
    """Move theta to where IVON takes its gradient: theta + e, with e ~ N(0, T / (rows (h + decay)))."""
    key, done, positions, rows = noise
    count, decay = _f(rows / settings[TEMPERATURE]), _f(settings[WEIGHT_DECAY])
    half = (len(positions) + 1) // 2
    for i in range(half):
        z, other = normal_pair(key, done, i)
        _move(theta, mean, away, curvature, positions[i], _f(z), count, decay)
        if half + i < len(positions):
            _move(theta, mean, away, curvature, positions[half + i], _f(other), count, decay)


@inlined
def _move(theta, mean, away, curvature, i, z, count, decay):
    """Move one weight."""
    mean[i] = theta[i]
    away[i] = z * math.sqrt(ONE / (count * (curvature[i] + decay)))
    theta[i] += away[i]


@jit
def _ivon(theta, gradient, first, curvature, powers, settings, lr, noise, mean, away):
    """m, h <- running means of g and e g / s^2;  theta <- theta - lr (h0 + decay) (m^ + decay theta) / (h + decay)

    From theta before it was shaken; see `training.rules.IVON`.
    """
    _, _, positions, rows = noise
    count, decay = _f(rows / settings[TEMPERATURE]), _f(settings[WEIGHT_DECAY])
    beta1, new1 = _f(settings[BETA1]), _f(1 - settings[BETA1])
    kept2, new2 = _f(settings[BETA2]), _f(1 - settings[BETA2])
    unbias = _f(1 / (1 - powers[0]))
    rate = _f(lr * (settings[HESS_INIT] + settings[WEIGHT_DECAY]))
    radius = _f(settings[CLIP_RADIUS]) if settings[CLIP_RADIUS] > 0 else _f(math.inf)
    for position in range(len(positions)):
        i = positions[position]
        h, g = curvature[i], gradient[i]
        m = beta1 * first[i] + new1 * g
        estimate = away[i] * g * (h + decay) * count
        h = kept2 * h + new2 * estimate + _f(0.5) * new2 * new2 * (h - estimate) * (h - estimate) / (h + decay)
        first[i] = m
        curvature[i] = h
        moved = (m * unbias + decay * mean[i]) / (h + decay)
        theta[i] = mean[i] - rate * min(max(moved, -radius), radius)
