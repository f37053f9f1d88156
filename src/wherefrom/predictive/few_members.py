"""Few members: the mean of a predictive distribution is off then, and its variance is too small, and a guess.

The paper's variance, with divisor K, is short of that of all members that could be drawn by Var(mean), the variance of
the mean over members and samples; and y, or another draw of the network, differs from this mean by as much again:

    E (y - mean)^2  =  paper's variance  +  2 Var(mean)  =  W + B

B is what differs between members: a sum of mean squares S with factors c (mean_squares.py), V (1 + 1 / m) for m
independent members whose variance with divisor m - 1 is V. It is an estimate with d degrees of freedom (m - 1; of
crossed variables, by Satterthwaite, B^2 / sum of (c S)^2 / d). W is the rest, noise and what varies within members, and
is taken as known.

Without W, (y - mean) / sqrt(B) is Student's t with d degrees of freedom; without B, y - mean has the distribution of
the noise. In between, distances of quantiles from the mean are added in squares. With q, z and t the quantiles of the
noise (and of what varies within members), of N(0, 1) and of Student's t at one probability,

    (quantile of y - mean)^2  =  q^2  +  B (z^2 W + t^2 B) / (W + B)

For Gaussian noise, q^2 = z^2 W, this agrees with Welch (1947) to the first order in 1 / d, and both ends are exact.
Coverage is measured by benchmarks/few_members.py. A t with Satterthwaite's degrees of freedom for W + B agrees to that
order, too, but two members that happen to agree give it many degrees of freedom: it would cover 87% instead of 95%.

Weights that were set member by member, and values of finite variables, are no draws: they add nothing to B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from wherefrom.predictive import student
from wherefrom.predictive.components import CrossedAxis, axes_of
from wherefrom.predictive.mean_squares import MeanSquares
from wherefrom.predictive.mixture import Mixture

_MOST_DEGREES = 1e12
_LEAST_T, _MOST_T, _BISECTIONS = 1e-12, 1e18, 60
_TINY = torch.finfo(torch.float64).tiny


class Few(NamedTuple):
    """The variance of y around the mean, by its two parts.  # (rows, outputs) each"""

    within: Tensor  # W: noise, and what varies within members
    between: Tensor  # B: what differs between members, and what their mean is off by
    degrees: Tensor  # of freedom, of B

    @property
    def variance(self) -> Tensor:
        return self.within + self.between

    def reach(self, probability: float | Tensor, noise_reach: Tensor | None = None) -> Tensor:
        """Distance of a quantile of y from the centre; below the median it is negative.  # (rows, outputs)

        noise_reach: the distance of the quantile of the noise and of what varies within members (default: that of
            N(0, W)).
        """
        if isinstance(probability, Tensor):
            return self._reach(
                torch.special.ndtri(probability), student.quantile(probability, self.degrees), noise_reach
            )
        return self.reaches([probability], [noise_reach])[0]

    def reaches(self, probabilities: Sequence[float], noise_reaches: Sequence[Tensor | None]) -> list[Tensor]:
        """Distances of several quantiles, as `reach` returns them one by one.  # (rows, outputs) each"""
        z = torch.tensor([NormalDist().inv_cdf(each) for each in probabilities], dtype=torch.float64)
        t = student.quantiles(probabilities, self.degrees)
        return [self._reach(*each) for each in zip(z, t, noise_reaches, strict=True)]

    def _reach(self, z: Tensor, t: Tensor, noise_reach: Tensor | None) -> Tensor:
        noise_reach = z * self.within.sqrt() if noise_reach is None else noise_reach
        return torch.sign(z) * self._added(noise_reach, z, t).sqrt()

    def below(self, gap: Tensor, noise_reach: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Probability of a y no farther above the centre than `gap`, by bisection: `reach` turned round.

        noise_reach: the distance of the noise's quantile that has the probability of a quantile of N(0, 1) (default:
            that of N(0, W)).
        """
        low, high = torch.full_like(gap, math.log(_LEAST_T)), torch.full_like(gap, math.log(_MOST_T))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            t = middle.exp()
            z = -torch.special.ndtri(student.cdf(-t, self.degrees))
            is_low = self._added(z * self.within.sqrt() if noise_reach is None else noise_reach(z), z, t) < gap.square()
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        tail = student.cdf(-((low + high) / 2).exp(), self.degrees)
        below = torch.where(gap > 0, 1 - tail, tail)
        return torch.where(self.variance > 0, below, (gap >= 0).double())

    def _added(self, noise_reach: Tensor, z: Tensor, t: Tensor) -> Tensor:
        """The squared distance of a quantile of y from the centre."""
        share = self.between / self.variance.clamp_min(_TINY)
        return noise_reach.square() + self.between * ((1 - share) * z.square() + share * t.square())


def axes_for_few(mixture: Mixture) -> tuple[CrossedAxis, ...]:
    """The axes of the members; where some are missing from the crossed design, they count as independent draws."""
    if mixture.weights is None and mixture.missing:
        return (CrossedAxis("members", len(mixture.answers), False),)
    return tuple(axis for axis in axes_of(mixture) if axis.draws > 1)


def of_mixture(mixture: Mixture) -> Few:
    """The variance around the mean of a mixture, and its degrees of freedom."""
    axes = axes_for_few(mixture)
    return of_means(_arranged(mixture, axes), axes, mixture.variance)


def of_means(means: Tensor, axes: tuple[CrossedAxis, ...], variance: Tensor) -> Few:
    """Return it from the members' means and the paper's variance.  # (*members, rows, outputs), (rows, outputs)"""
    if all(axis.is_finite for axis in axes):
        return Few(variance, torch.zeros_like(variance), torch.full_like(variance, _MOST_DEGREES))
    squares = MeanSquares.of(means, axes, by_draws=True)
    of_mean = squares.of_mean
    papers, doubt = torch.zeros_like(variance), torch.zeros_like(variance)
    for subset, square in squares.squares.items():
        drawn = [axes[i].draws for i in subset if not axes[i].is_finite]
        papers_factor = math.prod(1 - 1 / draws for draws in drawn)
        papers = papers + papers_factor * square
        factor = papers_factor + 2 * of_mean.get(subset, 0.0)
        doubt = doubt + (factor * square).square() / squares.degrees[subset]
    between = papers + 2 * squares.variance_of_mean()
    degrees = torch.where(doubt > 0, between.square() / doubt.clamp_min(_TINY), _MOST_DEGREES)
    return Few((variance - papers).clamp_min(0.0), between, degrees.clamp(1.0, _MOST_DEGREES))


def gathered(mixture: Mixture) -> Mixture:
    """The mixture whose members all have the same mean: noise, and what varies within members, are left."""
    axes = axes_for_few(mixture)
    drawn = [i for i, axis in enumerate(axes) if not axis.is_finite]
    if not drawn:
        return mixture
    means = _arranged(mixture, axes)
    apart = (means - means.mean(drawn, keepdim=True)).flatten(0, len(axes) - 1).unsqueeze(1)
    return replace(mixture, answers=mixture.answers.double() - apart)


def variance_of_mean(mixture: Mixture) -> Tensor:
    """Variance of the mean over answers, for want of draws and samples.  # (rows, outputs)"""
    members, axes = len(mixture.answers), axes_for_few(mixture)
    if any(not axis.is_finite for axis in axes):
        return MeanSquares.of(_arranged(mixture, axes), axes, by_draws=True).variance_of_mean()
    samples = mixture.answers.shape[1]
    if samples < 2:
        return torch.zeros_like(mixture.mean)
    each = mixture.answers.double().var(1, correction=1) / samples
    weights = torch.full((members,), 1 / members) if mixture.weights is None else mixture.weights
    return torch.tensordot(weights.double().square(), each, 1)


def _arranged(mixture: Mixture, axes: tuple[CrossedAxis, ...]) -> Tensor:
    """The members' means, by their axes.  # (*members, rows, outputs)"""
    means = mixture.answers.mean(1, dtype=torch.float64)  # no copy of all answers in double precision
    return means.unflatten(0, [axis.draws for axis in axes]) if axes else means.squeeze(0)
