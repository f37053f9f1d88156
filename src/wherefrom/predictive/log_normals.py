"""Mixtures of log-normals, with a probability of zero: y = exp(N(m, v)), or 0.

    P(y = 0) = z,        p(y)  =  sum over k of  w_k N(log y; m_k, v_k) / y  for y > 0,        sum of w = 1 - z

All of it has a closed form but the quantile, which takes that of the Gaussians of log y. With Phi the normal
distribution function, s the root of v, and M = exp(m + v / 2) the mean of a log-normal:

    E |Y - y|   =  y (2 Phi(u) - 1) + M (1 - 2 Phi(u - s)),                        u = (log y - m) / s
    E |Y - Y'|  =  M (2 Phi((m - m' + v) / S) - 1) + M' (2 Phi((m' - m + v') / S) - 1),      S^2 = v + v'

The mean of a log-normal is at the mercy of its far tail, which no data has seen. Mean and variance are therefore those
of min(y, c), where `most` is log c. With d = (log c - m) / s, E min(Y, c)^n = exp(n m + n^2 v / 2) Phi(d - n s) +
c^n Phi(-d).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wherefrom.predictive import gaussians

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False)
class LogNormals:
    """A distribution for each row and column."""

    means: Tensor  # (components, rows, columns), of log y
    variances: Tensor  # the same
    weights: Tensor  # (components, rows or 1, columns or 1), which add up to 1 - zero
    zero: Tensor | None = None  # (rows, columns), the probability of 0
    most: Tensor | float = math.inf  # (columns,), the log y above which y counts as if it ended there, in moments

    def of_rows(self, rows: Any) -> LogNormals:
        weights = self.weights if self.weights.shape[1] == 1 else self.weights[:, rows]
        zero = None if self.zero is None else self.zero[rows]
        return replace(self, means=self.means[:, rows], variances=self.variances[:, rows], weights=weights, zero=zero)

    # ------------------------------------------------------------------ moments

    @cached_property
    def mean(self) -> Tensor:  # (rows, columns)
        return self._mixed(self._moment(1))

    @cached_property
    def variance(self) -> Tensor:  # (rows, columns)
        """Variance of y, as that within components and that between them, so that nothing cancels where it is small."""
        first = self._moment(1)
        mean = self._mixed(first)
        within = (self._moment(2) - first.square()).clamp_min(0)
        around = self._mixed(within + (first - mean).square())
        return around if self.zero is None else around + self.zero * mean.square()

    def _moment(self, power: int) -> Tensor:
        """E min(Y, c)^power of each component."""
        std = self.variances.clamp_min(_TINY).sqrt()
        most = torch.as_tensor(self.most, dtype=torch.float64)
        room = (most - self.means) / std
        below = power * self.means + 0.5 * power**2 * self.variances + torch.special.log_ndtr(room - power * std)
        beyond = torch.where(most < math.inf, power * most + torch.special.log_ndtr(-room), -math.inf)
        return below.exp() + beyond.exp()

    # ------------------------------------------------------------------ the distribution

    def log_density(self, y: Tensor) -> Tensor:
        """Log density at y; at 0, the logarithm of its probability.  # (rows, columns)"""
        is_zero = y == 0
        logs = torch.where(is_zero, 1.0, y).log()
        variances = self.variances.clamp_min(_TINY)
        each = gaussians.log_density(logs, self.means, variances) + self.weights.log()
        at_zero = torch.full_like(logs, -math.inf) if self.zero is None else self.zero.log()
        return torch.where(is_zero, at_zero, torch.logsumexp(each, 0) - logs)

    def cdf(self, y: Tensor) -> Tensor:
        """Probability of a value no larger than y.  # (rows, columns)"""
        logs = torch.where(y > 0, y, 1.0).log()
        below = self._mixed(gaussians.probability_below(self.means - logs, self.variances))
        below = torch.where(y > 0, below, 0.0)
        return below if self.zero is None else torch.where(y >= 0, below + self.zero, 0.0)

    def quantile(self, probability: float | Tensor) -> Tensor:
        """Value that is not exceeded with this probability, of all rows or of each.  # (rows, columns)"""
        return self._quantile(probability, self._above_zero)

    def _quantile(self, probability: float | Tensor, above_zero: Callable[[Tensor], Tensor]) -> Tensor:
        """Return quantiles, given those that y has where it is above zero."""
        asked = torch.as_tensor(probability, dtype=torch.float64).expand_as(self.means[0])
        if self.zero is None:
            return above_zero(asked)
        wanted = ((asked - self.zero) / self.weights.sum(0)).clamp(1e-12, 1 - 1e-12)
        return torch.where(self.zero >= asked, 0.0, above_zero(wanted))

    def _above_zero(self, probability: Tensor) -> Tensor:
        if len(self.means) == 1:
            logs = self.means[0] + torch.special.ndtri(probability) * self.variances[0].sqrt()
        else:
            weights = (self.weights / self.weights.sum(0)).expand_as(self.means)
            logs = gaussians.quantile(self.means, self.variances.clamp_min(_TINY), weights, probability)
        return logs.exp()

    def interval(self, level: float | Tensor) -> tuple[Tensor, Tensor]:
        """Ends of the interval that holds y with this probability, of all rows or of each.  # (rows, columns) each

        It misses as much below as above, a / 2 of a = 1 - level each. Where 0 is as likely as that, it begins at 0, and
        may miss a above. It misses no more than the probability of 0 then: an interval of a higher level holds it.
        """
        return self.tails(level, self._above_zero)

    def tails(self, level: float | Tensor, above_zero: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return the interval with other quantiles of y where it is above zero."""
        missed = 1 - torch.as_tensor(level, dtype=torch.float64)
        above = missed / 2
        if self.zero is not None:
            above = torch.maximum(above, torch.minimum(missed, self.zero))
        return self._quantile(missed / 2, above_zero), self._quantile(1 - above, above_zero)

    def needed(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Levels from which on the interval reaches down to y, and up to y.  # (rows, columns) each"""
        below = self.cdf(y)
        above = torch.where(y > 0, 1 - below, 1.0)
        one_sided = torch.zeros_like(above, dtype=torch.bool) if self.zero is None else above < self.zero
        return 1 - 2 * below, 1 - torch.where(one_sided, above, 2 * above)

    # ------------------------------------------------------------------ scores

    def crps(self, y: Tensor) -> Tensor:
        """E |Y - y| - E |Y - Y'| / 2.  # (rows, columns)"""
        mean = (self.means + self.variances / 2).exp()
        std = self.variances.clamp_min(_TINY).sqrt()
        u = (torch.where(y > 0, y, 1.0).log() - self.means) / std
        ndtr = torch.special.ndtr
        away = y * (2 * ndtr(u) - 1) + mean * (1 - 2 * ndtr(u - std))
        to_truth = self._mixed(torch.where(y > 0, away, mean - y))
        weights = self.weights.expand_as(mean)
        apart = gaussians.apart(_distance, (self.means, self.variances, mean), weights)
        if self.zero is not None:
            to_truth = to_truth + self.zero * y.abs()
            apart = apart + 2 * self.zero * self._mixed(mean)
        return to_truth - 0.5 * apart

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count` values for every row and column.  # (count, rows, columns)"""
        shape = self.means.shape
        weights = self.weights.expand(shape).movedim(0, -1)
        if self.zero is not None:
            weights = torch.cat([weights, self.zero.unsqueeze(-1)], -1)
        drawn = torch.multinomial(weights.flatten(0, 1), count, True, generator=generator)  # (cells, count)
        chosen = drawn.T.reshape(count, *shape[1:])
        component = chosen.clamp_max(shape[0] - 1)
        noise = torch.randn(chosen.shape, dtype=torch.float64, generator=generator)
        logs = self.means.gather(0, component) + self.variances.expand(shape).gather(0, component).sqrt() * noise
        return torch.where(chosen < shape[0], logs.exp(), 0.0)

    def _mixed(self, values: Tensor) -> Tensor:
        """The sum over components by weight.  # (components, rows, columns) -> (rows, columns)"""
        return (self.weights * values).sum(0)


def _distance(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> Tensor:
    """E |Y - Y'| of two log-normals, each given by the mean and the variance of its logarithm, and its mean."""
    (m, v, mean), (m_other, v_other, mean_other) = one, other
    both = (v + v_other).clamp_min(_TINY).sqrt()
    ndtr = torch.special.ndtr
    return mean * (2 * ndtr((m - m_other + v) / both) - 1) + mean_other * (2 * ndtr((m_other - m + v_other) / both) - 1)
