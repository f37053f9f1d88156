"""Negative binomials, with the Poisson as their limit: probabilities, distances, and tables of mixtures of them.

A negative binomial has a mean and a dispersion a, and the variance mean + a mean^2; a = 0 is the Poisson distribution.
All of it holds for any mean and dispersion, in double precision; nothing cancels where a is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wherefrom.predictive.incomplete_beta import fraction
from wherefrom.training.negative_binomial import LEAST_DISPERSION, TINY, log_probability

_NEAR_POISSON = 3e-6  # a dispersion times mean up to which the distribution function is expanded around the Poisson's
COUNTS = 1024  # of a table that are taken one by one
_TAIL = 32.0  # minus the logarithm of the probability beyond a table, 1e-14
_PANEL, _NODES = 3.0, 8  # standard deviations, and nodes of Gauss and Legendre for them
_HALF_NODES = 32  # of the integral for one negative binomial, on each side
NUMBERS_AT_ONCE = 2**16


# ---------------------------------------------------------------------- the negative binomial


def probability_below(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """P(Y <= count), which is I_x(r, count + 1) with x = r / (r + mean); continued to counts that are not whole.

    Close to the Poisson distribution it is Q(count + 1, mean), the incomplete gamma function, and the next term in a.
    """
    count, mean, a = torch.broadcast_tensors(count, mean.clamp_min(TINY), a)
    below = torch.zeros(count.shape, dtype=torch.float64)
    is_poisson = a * mean < _NEAR_POISSON
    for chosen, cdf in ((is_poisson, _near_poisson), (~is_poisson, _incomplete_beta)):
        if bool((chosen := chosen & (count >= 0)).any()):
            below[chosen] = cdf(count[chosen], mean[chosen], a[chosen])
    return below


def _near_poisson(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    probability = log_probability(count, mean, torch.zeros_like(a)).exp()
    below = torch.special.gammaincc(count + 1, mean) + 0.5 * a * mean * (mean - count) * probability
    return below.clamp(0.0, 1.0)


def _incomplete_beta(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """I_x(r, count + 1) by Lentz's continued fraction, on the side where it converges fast.  # flat"""
    r, b = 1 / a, count + 1
    x, rest = r / (r + mean), mean / (r + mean)
    swap = x > (r + 1) / (r + b + 2)
    first, second = torch.where(swap, b, r), torch.where(swap, r, b)
    front = log_probability(count, mean, a).exp() * (count + r) * rest / first
    value = (front * fraction(first, second, torch.where(swap, rest, x))).clamp(0.0, 1.0)
    return torch.where(swap, 1 - value, value)


# ---------------------------------------------------------------------- distances


def distance(truth: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """E |Y - truth| of negative binomials.  # broadcast"""
    last = truth - 1
    at_last = torch.where(truth > 0, log_probability(last.clamp_min(0.0), mean, a).exp(), 0.0)
    short = (truth - mean) * probability_below(last, mean, a) + mean * at_last * (1 + a * last)  # E max(truth - Y, 0)
    return mean - truth + 2 * short


def spacing(mean: Tensor, a: Tensor) -> Tensor:
    """E |Y - Y'| / 2 of two counts from one negative binomial, by its characteristic function phi.

    With u = tan(t / 2) it is the integral of (1 - |phi(t)|^2) / (2 pi u^2) over u > 0, where |phi(t)|^2 is
    (1 + 4 a v u^2 / (1 + u^2))^(-1/a) and v the variance; the trapezoidal rule converges exponentially.
    """
    variance = (mean + a * mean.square()).clamp_min(TINY)
    a = a.clamp_min(LEAST_DISPERSION)
    centre, total = 1 / (1 + 2 * variance.sqrt()), torch.zeros_like(variance)
    for k in range(-_HALF_NODES, _HALF_NODES + 1):
        w = 3.3 * k / _HALF_NODES  # log u = log centre + 2 sinh w
        u = centre * math.exp(2 * math.sinh(w))
        exponent = torch.log1p(4 * a * variance * u.square() / (1 + u.square())) / a
        total -= 2 * math.cosh(w) * torch.expm1(-exponent) / u
    return total * (3.3 / _HALF_NODES) / (2 * math.pi)


# ---------------------------------------------------------------------- mixtures


def reach(means: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Counts below and above which no component has more than exp(-_TAIL), by Chernoff's bound.

    # (components, cells) -> (cells,) each
    """
    r = 1 / a.amax(0).clamp_min(LEAST_DISPERSION)
    least, most = means.amin(0).clamp_min(TINY), means.amax(0).clamp_min(TINY)

    def is_far(count: Tensor, mean: Tensor) -> Tensor:
        entropy = torch.xlogy(count, count / mean) - (count + r) * torch.log1p((count - mean) / (mean + r))
        return entropy > _TAIL

    low, high = torch.zeros_like(least), most + 1
    while bool((near := ~is_far(high, most)).any()):
        high = torch.where(near, 2 * high, high)
    first, last = (low, least), (most, high)
    for _ in range(60):
        middle = (first[0] + first[1]) / 2, (last[0] + last[1]) / 2
        far = is_far(middle[0], least), is_far(middle[1], most)
        first = torch.where(far[0], middle[0], first[0]), torch.where(far[0], first[1], middle[0])
        last = torch.where(far[1], last[0], middle[1]), torch.where(far[1], middle[1], last[1])
    return first[0].floor(), last[1].ceil()


@dataclass(frozen=True, eq=False)
class Table:
    """The distribution function of mixtures: at all counts that matter or, if they are many, at the nodes of panels.

    Panels are of equal width in v = 2 / sqrt(a) asinh(sqrt(a k)), where dk / dv = sqrt(k + a k^2): in v, a negative
    binomial of dispersion a or more has a standard deviation of at least about 1, whatever its mean is.
    """

    counts: Tensor  # (points, cells), ascending; nodes are not whole
    below: Tensor  # (points, cells): P(Y <= count)
    spacing: Tensor  # (cells,): E |Y - Y'| / 2, the sum over counts of P(Y <= k) P(Y > k)

    @classmethod
    def of(
        cls,
        means: Tensor,
        a: Tensor,
        first: Tensor,
        last: Tensor,
        mixed: Callable[[Tensor], Tensor],
        at_zero: Tensor | float = 0.0,
    ) -> Table:
        """Return the table of components (components, cells); `mixed` averages over them.

        at_zero: probability of a zero beside those of the components.  # (cells,)
        """
        points = int((last - first).max()) + 1
        singles = min(points, COUNTS)
        counts = first + torch.arange(singles, dtype=torch.float64).unsqueeze(1)
        below = (_summed(means, a, counts, mixed) + at_zero).clamp_max(1.0)
        before = first * at_zero * (1 - at_zero)  # the counts below the first one
        product = below * (1 - below)
        if points <= COUNTS:
            return cls(counts, below, product.sum(0) + before)
        # Euler and Maclaurin: a sum from `start` on is an integral from 1/2 before it, and a term of the slope there.
        start, slope = counts[-1], product[-1] - product[-2]
        root = a.amin(0).clamp(1e-9, 0.3).sqrt()  # a longer step misses the tail, which falls as exp(-k / (a mean))
        left, right = (2 / root * torch.asinh(root * end.sqrt()) for end in (start - 0.5, torch.maximum(start, last)))
        panels = int(((right - left) / _PANEL).ceil().max())
        nodes, shares = _panels(panels)
        nodes = (root / 2 * (left + (right - left) * nodes)).sinh().square() / root.square()
        at_once = max(1, NUMBERS_AT_ONCE // means.numel())
        means, a = means.unsqueeze(1), a.unsqueeze(1)
        there = torch.cat([mixed(probability_below(some, means, a)) + at_zero for some in nodes.split(at_once)])
        widths = shares * (right - left) * (nodes + (root * nodes).square()).sqrt()
        spacing = before + product[:-1].sum(0) + slope / 24 + (widths * there * (1 - there)).sum(0)
        return cls(torch.cat([counts[:-1], nodes]), torch.cat([below[:-1], there]), spacing)


def _panels(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss and Legendre on equal panels of [0, 1].  # (count * nodes, 1) each"""
    x, weights = (torch.from_numpy(each) for each in np.polynomial.legendre.leggauss(_NODES))
    nodes = (torch.arange(count, dtype=torch.float64).unsqueeze(1) + (x + 1) / 2) / count
    return nodes.reshape(-1, 1), (weights / (2 * count)).repeat(count).unsqueeze(1)


def _summed(means: Tensor, a: Tensor, counts: Tensor, mixed: Callable[[Tensor], Tensor]) -> Tensor:
    """P(Y <= k) at consecutive counts, by P(k + 1) / P(k) = (rate + slope k) / (k + 1).  # (counts, cells)"""
    slope = a * means / (1 + a * means)
    rate = means / (1 + a * means)
    current = log_probability(counts[0], means, a).exp()
    probability, factor = torch.empty_like(counts), torch.empty_like(current)
    for k, count in enumerate(counts):
        if k % 64 == 0 and bool(((current < 1e-290) & (means > count)).any()):  # too small to grow
            current = log_probability(count, means, a).exp()
        probability[k] = mixed(current)
        torch.addcmul(rate, slope, count, out=factor)
        current.mul_(factor).mul_(1 / (count + 1))
    return probability.cumsum(0).clamp_max(1.0)


def quantile(
    table: Table, probability: float, means: Tensor, a: Tensor, mixed: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """The least count with P(Y <= count) >= probability: from the table, then by bisection where it has gaps.

    `mixed` averages over components at some of the cells.

    # (components, cells) -> (cells,)
    """
    counts, below, probability = table.counts, table.below, min(probability, 1 - 1e-13)
    reached = (below < probability).sum(0, keepdim=True)  # (1, cells)
    before = counts[0] - 1 if probability > 1e-12 else torch.full_like(counts[0], -1.0)
    low = torch.where(reached > 0, counts.gather(0, (reached - 1).clamp_min(0)).floor(), before)[0]
    high = torch.where(reached < len(counts), counts.gather(0, reached.clamp_max(len(counts) - 1)).ceil(), math.inf)[0]
    while len(open_cells := torch.nonzero(high - low > 1).flatten()):
        some_low, some_high = low[open_cells], high[open_cells]
        middle = torch.where(some_high.isinf(), 2 * some_low + 1, ((some_low + some_high) / 2).floor())
        some_a = a[:, open_cells]
        is_below = mixed(probability_below(middle, means[:, open_cells], some_a), open_cells) < probability
        low[open_cells], high[open_cells] = (
            torch.where(is_below, middle, some_low),
            torch.where(is_below, some_high, middle),
        )
    return high
