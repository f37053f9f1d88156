"""Arithmetic of Gaussian components N(mean, variance), where a variance of zero is a point.

All is standardised, in double precision. Components stand first: (components, rows, outputs); without weights, all of
them count the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Normal

_MOST_STEPS, _ROUNDING, _NEARLY = 100, 1e-15, 1e-8
Components = tuple[Tensor, ...]
STANDARD = Normal(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))


def probability_below(gap: Tensor, variance: Tensor) -> Tensor:
    """P(gap + N(0, variance) <= 0)"""
    std = variance.sqrt()
    w = torch.where(std > 0, -gap / std, 0.0)
    return torch.where(std > 0, STANDARD.cdf(w), (gap <= 0).double())


def mean_distance(gap: Tensor, variance: Tensor) -> Tensor:
    """E|gap + N(0, variance)|"""
    std = variance.sqrt()
    w = torch.where(std > 0, gap / std, 0.0)
    folded = 2 * std * STANDARD.log_prob(w).exp() + gap * (2 * STANDARD.cdf(w) - 1)
    return torch.where(std > 0, folded, gap.abs())


def log_density(z: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log N(z; mean, variance)"""
    return -0.5 * ((z - mean).square() / variance + variance.log() + math.log(2 * math.pi))


def quantile_of_points(points: Tensor, weights: Tensor | None, probability: float) -> Tensor:
    """Mean of K points' inverse distribution function over [p (1 - 1/K), p (1 - 1/K) + 1/K].

    For equal weights that is linear interpolation between neighbours.  # (components, rows, outputs) -> (rows, outputs)
    """
    if weights is None:
        return torch.quantile(points, probability, dim=0)
    points, order = points.sort(0)
    edges = weights[order].cumsum(0)
    low = probability * (1 - 1 / len(points))
    upper = edges.clamp(low, low + 1 / len(points))
    parts = upper.diff(dim=0, prepend=torch.full_like(upper[:1], low))
    return (parts * points).sum(0) / parts.sum(0)


def points_apart(points: Tensor, weights: Tensor | None) -> Tensor:
    """E|X - X'| of two independent draws from points, by sorting.  # (components, rows, outputs) -> (rows, outputs)"""
    if weights is None:
        count = len(points)
        rank = torch.arange(1, count + 1, dtype=torch.float64)
        return 2 * ((2 * rank - count - 1).view(-1, 1, 1) * points.sort(0).values).sum(0) / count**2
    points, order = points.sort(0)
    sorted_weights = weights[order]
    return 2 * (sorted_weights * (2 * sorted_weights.cumsum(0) - sorted_weights - 1) * points).sum(0)


def gaussians_apart(means: Tensor, variances: Tensor, weights: Tensor | None) -> Tensor:
    """E|X - X'| of two independent draws from Gaussians, pair by pair.  # (components, rows, outputs) -> the latter"""

    def distance(one: Components, other: Components) -> Tensor:
        return mean_distance(one[0] - other[0], one[1] + other[1])

    return apart(distance, (means, variances), weights)


def apart(distance: Callable[[Components, Components], Tensor], parts: Components, weights: Tensor | None) -> Tensor:
    """E|X - X'| of two independent draws from a mixture, pair by pair, by the mean distance of two components.

    parts: what each component is, as tensors whose first dimension goes over components.
    weights: of all rows alike, or (components, rows, outputs).
    """

    def pairs(shift: int, distance: Tensor) -> Tensor:
        if weights is None:
            return distance.sum(0)
        both = weights * weights.roll(shift, 0)
        return torch.tensordot(both, distance, 1) if both.ndim == 1 else (both * distance).sum(0)

    count = len(parts[0])
    total = torch.zeros_like(parts[0][0])
    for shift in range(1, count // 2 + 1):  # every pair once, those half way round twice
        far = pairs(shift, distance(parts, tuple(part.roll(shift, 0) for part in parts)))
        total += far * (1 if 2 * shift == count else 2)
    total = total + pairs(0, distance(parts, parts))
    return total / count**2 if weights is None else total


def crps(error: Tensor, std: Tensor) -> Tensor:
    """CRPS of N(0, std^2) at `error`, per row (Gneiting and Raftery 2007).

    std (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)),  z = error / std
    """
    z = error / std
    return std * (z * (2 * STANDARD.cdf(z) - 1) + 2 * STANDARD.log_prob(z).exp() - 1 / math.sqrt(math.pi))


def quantile(
    answers: Tensor, variance: Tensor, weights: Tensor | None, probability: float | Tensor, is_dense: bool = True
) -> Tensor:
    """The value below which the mixture falls with this probability, by Newton's method within a bracket.

    A step that leaves the bracket, or is not half of the one before, is a bisection instead. A row stops by itself when
    its next step would be lost in rounding (it is about the square of the last): its value does not depend on others.
    Weights are those of all rows alike, or (components, rows, outputs), and the probability may be (rows, outputs).

    # (components, rows, outputs), the same -> (rows, outputs)
    """
    if not is_dense:
        return quantile_of_points(answers, weights, float(probability))

    def mixed(values: Tensor) -> Tensor:
        if weights is None:
            return values.mean(0)
        return torch.tensordot(weights, values, 1) if weights.ndim == 1 else (weights * values).sum(0)

    std = variance.sqrt()
    precision, reach = 1 / std, 10 * std.amax(0)
    low, high = answers.amin(0) - reach, answers.amax(0) + reach
    mean = mixed(answers)
    spread = mixed((answers - mean).square() + variance).sqrt()
    z = mean + STANDARD.icdf(torch.as_tensor(probability, dtype=torch.float64)) * spread
    z = torch.maximum(torch.minimum(z, high), low)
    step, is_done = high - low, torch.zeros_like(z, dtype=torch.bool)
    for _ in range(_MOST_STEPS):
        w = (z - answers) * precision
        excess = 0.5 * (1 + mixed(torch.erf(w * math.sqrt(0.5)))) - probability
        density = mixed(w.square_().mul_(-0.5).exp_().mul_(precision)) / math.sqrt(2 * math.pi)
        low, high = torch.where(excess < 0, z, low), torch.where(excess < 0, high, z)
        newton = torch.where(excess == 0, z, z - excess / density)
        is_last = (newton - z).abs() <= _NEARLY * spread
        is_good = (newton > low) & (newton < high) & ((newton - z).abs() < 0.5 * step)
        new = torch.where(is_last | is_good, newton, (low + high) / 2)
        step = (new - z).abs()
        z = torch.where(is_done, z, new)
        is_done |= is_last | (step <= _ROUNDING * (z.abs() + spread))
        if bool(is_done.all()):
            break
    return z
