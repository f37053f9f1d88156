"""What is said about y at new rows: a mixture, its moments, and how it scores.

Every answer of the network is kept with its member and sample, in standardised units; moments are taken in double
precision and returned in the user's units. Each answer m_k stands for N(m_k, noise_k), or for the bare point m_k where
the likelihood has no noise. A one-shot prediction has one answer for each member, which stands for a whole Gaussian of
answers: its spread adds to the noise. Two readings of the mixture are offered everywhere: the Gaussian with its mean
and variance (`"gaussian"`, the paper's), and the mixture itself (`"mixture"`).

Members may weigh differently, p(y | x) = sum_m w_m p_m(y | x), and a member's samples share its weight evenly. To weigh
a member twice as much is to have it twice; to weigh it nothing is to leave it out.

A posterior that was calibrated says so here: its variance is the calibrated one (`stretched`), and if it was calibrated
by conformal prediction, `interval` and `coverage` speak of the conformal interval, which ends so many deviations below
and above the mean, unless a reading is asked for by name. Quantiles, densities and scores stay those of the
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.distributions import Normal

from wherefrom.predictive.components import CrossedAxis, Within
from wherefrom.predictive.mixture import Members, described, member_weights
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.row_scores import gaussian_crps
from wherefrom.predictive.sources import Sources, sources
from wherefrom.training.data import as_targets, column_names
from wherefrom.training.workers import one_core

if TYPE_CHECKING:
    from wherefrom.calibration import Conformal

Reading = Literal["gaussian", "mixture"]
IntervalReading = Literal["gaussian", "mixture", "conformal"]
_STANDARD = Normal(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predictive distribution at some rows.

    `mean`, `variance` and `std` have y's shape: (rows,) where y was one-dimensional, else (rows, outputs).
    """

    answers: Tensor  # (members, samples, rows, outputs), standardised
    noise: Tensor | None  # variances, standardised, broadcastable to answers
    location: Tensor  # (outputs,): the user's unit is location + scale * standardised
    scale: Tensor
    is_flat: bool
    plan: Plan
    axes: tuple[CrossedAxis, ...]  # members stand in the order of their product
    missing: str | None  # why members are missing from the product, if any are
    y_names: tuple[str, ...] = ()
    spread: Tensor | None = None  # of a one-shot prediction: the variance of each answer, as answers' shape
    within: Callable[[], Within] | None = None  # and where that comes from, worked out when it is asked for
    covariance: str | None = None  # and how theta's covariance was followed
    weights: Tensor | None = None  # (members,), adding up to 1; left out, they are the axes' own, else equal
    conformal: Conformal | None = None  # how far intervals reach, where the posterior was calibrated so
    least: float | None = None  # that y can be: the mean, quantiles and intervals end there

    def __post_init__(self) -> None:
        weights = member_weights(self.weights, self.axes, len(self.answers), self.missing)
        object.__setattr__(self, "weights", weights)

    def __len__(self) -> int:
        return self.answers.shape[2]

    def __repr__(self) -> str:
        return described(self, self._members, "output", "intervals")

    @property
    def method(self) -> str:
        """How it came about: "monte_carlo" or "one_shot"."""
        return "monte_carlo" if self.spread is None else "one_shot"

    # ------------------------------------------------------------------ moments

    @cached_property
    @one_core()
    def samples(self) -> Tensor:
        """Every answer in y's units, whatever its member weighs; of a one-shot prediction, its means.

        # (members, samples, rows[, outputs])
        """
        return self._shape(self.location + self.scale * self.answers.double())

    @property
    def mean(self) -> Tensor:
        return self._in_units(self._mean)

    @property
    def variance(self) -> Tensor:
        """The members' mean noise and spread plus the variance of all answers (with divisor K, as in the paper).

        Members' weights count in both.
        """
        return self._shape(self.scale.square() * self._variance)

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def noise_variance(self) -> Tensor:
        """The part of the variance that is noise in y, which no training would remove."""
        return self._shape(self.scale.square() * self._noise)

    # ------------------------------------------------------------------ intervals

    @one_core()
    def quantile(self, probability: float, reading: Reading = "gaussian") -> Tensor:
        """The value below which y falls with this probability.

        Where the mixture is one of points, between two of them: as torch.quantile has it, each as wide as its weight.
        """
        if not 0 < probability < 1:
            raise ValueError(f"a probability lies between 0 and 1; {probability} does not")
        if _is_mixture(reading):
            standardised = self._mixture_quantile(probability)
        else:
            z = float(_STANDARD.icdf(torch.tensor(probability, dtype=torch.float64)))
            standardised = self._mean + z * self._variance.sqrt()
        return self._in_units(standardised)

    def interval(self, level: float = 0.95, reading: IntervalReading | None = None) -> tuple[Tensor, Tensor]:
        """The interval that holds y with this probability: its lower and upper ends.

        `reading` says which one: the central interval of the Gaussian with this mean and variance ("gaussian"), that of
        the mixture ("mixture"), or "conformal": as many standard deviations below and above the mean as the rows say
        that the posterior was calibrated on, for each side by itself if there are enough of them (199 for 95%), else
        as many for both. Left out, it is the conformal one where there is one, else the Gaussian.
        """
        tail, reading = (1 - _checked(level)) / 2, self._interval_reading(reading)
        if reading == "conformal":
            low, high = (self._in_units(self._mean + reach * self._unit) for reach in self._reach(level))
            return low, high
        return self.quantile(tail, reading), self.quantile(1 - tail, reading)

    @one_core()
    def cdf(self, y: Any, reading: Reading = "gaussian") -> Tensor:
        """The probability of a value no larger than y, row by row. Over many rows it is uniform, if all is well."""
        z = (self._matrix(y) - self.location) / self.scale
        if not _is_mixture(reading):
            return self._shape(_probability_below(self._mean - z, self._variance))
        below = torch.empty_like(self._mean)
        for rows, answers, noise in self._row_blocks():
            below[rows] = self._mixed(_probability_below(answers - z[rows], noise))
        return self._shape(below)

    # ------------------------------------------------------------------ scores

    def rmse(self, y: Any) -> float:
        """Root mean squared error of the mean."""
        return float((self.mean - self._y(y)).square().mean().sqrt())

    @one_core()
    def log_density(self, y: Any, reading: Reading = "gaussian") -> Tensor:
        """Of each output by itself.  # (rows, outputs)"""
        z = (self._matrix(y) - self.location) / self.scale
        log_density = self._mixture_log_density(z) if _is_mixture(reading) else self._gaussian_log_density(z)
        return log_density - self.scale.log()

    def nll(self, y: Any, reading: Reading = "gaussian", by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (outputs are added up); `by_row` gives each row's."""
        each = -self.log_density(y, reading).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, reading: Reading = "gaussian", by_row: bool = False) -> Any:
        """Continuous ranked probability score in y's units, the mean over rows and outputs."""
        z = (self._matrix(y) - self.location) / self.scale
        score = self._mixture_crps(z) if _is_mixture(reading) else self._gaussian_crps(z)
        each = (self.scale * score).mean(-1)
        return each if by_row else float(each.mean())

    def coverage(self, y: Any, level: float = 0.95, reading: IntervalReading | None = None) -> float:
        """The fraction of y that lies within the `interval` of this level and reading."""
        reading = self._interval_reading(reading)
        if self._is_dense and reading == "mixture" and self.least is None:  # without searching for the ends
            tail = (1 - _checked(level)) / 2
            below = self.cdf(y, reading)
            return float(((below >= tail) & (below <= 1 - tail)).double().mean())
        low, high = self.interval(level, reading)
        y = self._y(y)
        return float(((y >= low) & (y <= high)).double().mean())

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log density that each member by itself gives y: what `stacking` and `greedy` choose weights by.

        With noise, or by one-shot, a member is the mixture of its own answers, as in `nll(y, "mixture")`; without, the
        Gaussian with their mean and variance, as in `nll(y)`. Outputs are added up, or kept apart: the mixture of
        several outputs is scored one by one, so weights that are to lower `nll(y, "mixture")` are chosen with
        `by_output=True`, each output as a row of its own.  # (members, rows[, outputs])
        """
        z = (self._matrix(y) - self.location) / self.scale
        found = torch.empty(len(self.answers), *self._mean.shape, dtype=torch.float64)
        for rows, answers, variance in Members(self.answers, self.noise, self.spread, None).components():
            if not self._is_dense:
                variance = answers.var(1, correction=0, keepdim=True)
                answers = answers.mean(1, keepdim=True)
            if points := int((variance <= 0).flatten(1).any(1).sum()):
                raise ValueError(
                    f"{points} of {len(self.answers)} members have no variance of their own at some rows, where a "
                    "density does not exist: marginalise t or F within them, take more samples, or give the "
                    "likelihood a noise"
                )
            found[:, rows] = torch.logsumexp(_log_density(z[rows], answers, variance), 1) - math.log(answers.shape[1])
        found -= self.scale.log()
        return found if by_output else found.sum(-1)

    @one_core()
    def sources(self) -> Sources:
        """Where the variance comes from, row by row and overall."""
        return sources(self)

    # ------------------------------------------------------------------ calibration

    @one_core()
    def deviation(self, y: Any) -> Tensor:
        """How far y lies above the mean, in predictive standard deviations.  # (rows, outputs)

        Where there is no variance at all, in standard deviations that y had in training.
        """
        z = (self._matrix(y) - self.location) / self.scale
        return (z - self._mean) / self._unit

    @one_core()
    def stretched(self, factor: Tensor) -> Prediction:
        """The same with so many times the variance, of each output: everything moves away from the mean by its root.

        The mean stays, and so do the shares of the sources.  # (outputs,)
        """
        within = self.within
        return replace(
            self,
            answers=self._mean + factor.sqrt() * (self.answers.double() - self._mean),
            noise=None if self.noise is None else self.noise * factor,
            spread=None if self.spread is None else self.spread * factor,
            within=None if within is None else lambda: {name: part * factor for name, part in within().items()},
        )

    @property
    def _unit(self) -> Tensor:
        """What conformal intervals are measured in: the standard deviation, standardised; 1 where it is zero."""
        return torch.where(self._variance > 0, self._variance.sqrt(), 1.0)

    def _interval_reading(self, reading: IntervalReading | None) -> IntervalReading:
        if reading is None:
            return "gaussian" if self.conformal is None else "conformal"
        if reading != "conformal":
            _is_mixture(reading)  # checks it
        return reading

    def _reach(self, level: float) -> tuple[Tensor, Tensor]:
        if self.conformal is None:
            raise ValueError('there is no conformal interval: predict by posterior.calibrated("conformal", (x, y))')
        return self.conformal.reach(level)

    # ------------------------------------------------------------------ in standardised units

    @cached_property
    def _members(self) -> Members:
        everyone = Members(self.answers, self.noise, self.spread, None)
        return everyone if self.weights is None else everyone.weighing(self.weights)

    @cached_property
    def _component_weights(self) -> Tensor | None:
        """Of every answer of every member, where they are not all the same."""
        weights, samples = self._members.weights, self.answers.shape[1]
        return None if weights is None else weights.repeat_interleave(samples) / samples

    @cached_property
    @one_core()
    def _mean(self) -> Tensor:  # (rows, outputs)
        return self._members.average(self._members.answers.double())

    @property
    def _is_dense(self) -> bool:
        """Whether the mixture has a density, and is not one of points."""
        return self.noise is not None or self.spread is not None

    @cached_property
    @one_core()
    def _noise(self) -> Tensor:
        if (given := self._members.noise) is None:
            return torch.zeros_like(self._mean)
        noise = given.double()
        return (self._members.average(noise) if noise.ndim == 4 else noise).expand_as(self._mean)

    @cached_property
    @one_core()
    def _variance(self) -> Tensor:
        own = self._members.spread
        spread = 0.0 if own is None else self._members.average(own.double())
        return self._members.variance(self._mean) + spread + self._noise

    def _gaussian_log_density(self, z: Tensor) -> Tensor:
        if empty := int((self._variance <= 0).any(-1).sum()):
            raise ValueError(
                f"the predictive variance is zero at {empty} of {len(self)} rows, where a density does not exist: "
                "marginalise a variable, take more samples, or give the likelihood a noise"
            )
        return _log_density(z, self._mean, self._variance)

    def _mixture_log_density(self, z: Tensor) -> Tensor:
        if not self._is_dense:
            raise ValueError(
                "a mixture of points has no density: give the likelihood a noise, or read the mixture as a Gaussian"
            )
        parts, weights = torch.empty_like(self._mean), self._component_weights
        for rows, answers, noise in self._row_blocks():
            components = _log_density(z[rows], answers, noise)
            if weights is None:
                parts[rows] = torch.logsumexp(components, 0) - math.log(len(answers))
            else:
                parts[rows] = torch.logsumexp(components + weights.log()[:, None, None], 0)
        return parts

    def _mixture_quantile(self, probability: float) -> Tensor:
        result = torch.empty_like(self._mean)
        for rows, answers, noise in self._row_blocks():
            if not self._is_dense:
                result[rows] = _quantile_of_points(answers, self._component_weights, probability)
                continue
            reach = 10 * noise.amax(0).sqrt()
            low, high = answers.amin(0) - reach, answers.amax(0) + reach
            for _ in range(60):  # bisection: to the last bit of a double
                middle = (low + high) / 2
                below = self._mixed(_STANDARD.cdf((middle - answers) / noise.sqrt())) < probability
                low, high = torch.where(below, middle, low), torch.where(below, high, middle)
            result[rows] = (low + high) / 2
        return result

    def _gaussian_crps(self, z: Tensor) -> Tensor:
        """Where the variance is zero, |z - mean|."""
        std, gap = self._variance.sqrt(), z - self._mean
        return torch.where(std > 0, gaussian_crps(gap, std.clamp_min(torch.finfo(std.dtype).tiny)), gap.abs())

    def _mixture_crps(self, z: Tensor) -> Tensor:
        """E|X - z| - E|X - X'| / 2, over all pairs of components; of points by sorting, of Gaussians pair by pair."""
        result, weights = torch.empty_like(self._mean), self._component_weights
        for rows, answers, noise in self._row_blocks():
            to_truth = self._mixed(_mean_distance(answers - z[rows], noise))
            apart = _points_apart(answers, weights) if not self._is_dense else _gaussians_apart(answers, noise, weights)
            result[rows] = to_truth - 0.5 * apart
        return result

    def _row_blocks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Components of a few rows at a time: answers and their variances.  # (components, rows, outputs)"""
        for rows, answers, noise in self._members.components():
            yield rows, answers.flatten(0, 1), noise.flatten(0, 1)

    def _mixed(self, values: Tensor) -> Tensor:
        """The mean over components, by their weights.  # (components, rows, outputs) -> (rows, outputs)"""
        weights = self._component_weights
        return values.mean(0) if weights is None else torch.tensordot(weights, values, 1)

    # ------------------------------------------------------------------ shapes

    def _in_units(self, standardised: Tensor) -> Tensor:
        """A place that y can be at, in its units."""
        values = self.location + self.scale * standardised
        return self._shape(values if self.least is None else values.clamp_min(self.least))

    def _shape(self, values: Tensor) -> Tensor:
        return values.squeeze(-1) if self.is_flat else values

    def _matrix(self, y: Any) -> Tensor:
        """y as (rows, outputs), checked against this prediction."""
        names = column_names(y)
        if names and self.y_names and names != self.y_names:
            raise ValueError(f"y has the columns {list(names)}, but the model was trained on {list(self.y_names)}")
        y = as_targets(y)
        matrix = y if y.ndim == 2 else y.unsqueeze(1)
        if matrix.shape != self._mean.shape:
            raise ValueError(
                f"y has shape {tuple(y.shape)}, but the prediction is for {len(self)} rows "
                f"and {self._mean.shape[1]} output{'s' if self._mean.shape[1] > 1 else ''}"
            )
        return matrix

    def _y(self, y: Any) -> Tensor:
        return self._shape(self._matrix(y))


def _is_mixture(reading: str) -> bool:
    if reading not in ("gaussian", "mixture"):
        raise ValueError(f'reading must be "gaussian" or "mixture", not {reading!r}')
    return reading == "mixture"


def _checked(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, such as 0.95; {level} does not")
    return level


def _probability_below(gap: Tensor, variance: Tensor) -> Tensor:
    """P(gap + N(0, variance) <= 0)"""
    std = variance.sqrt()
    w = torch.where(std > 0, -gap / std, 0.0)
    return torch.where(std > 0, _STANDARD.cdf(w), (gap <= 0).double())


def _mean_distance(gap: Tensor, variance: Tensor) -> Tensor:
    """E|gap + N(0, variance)|"""
    std = variance.sqrt()
    w = torch.where(std > 0, gap / std, 0.0)
    folded = 2 * std * _STANDARD.log_prob(w).exp() + gap * (2 * _STANDARD.cdf(w) - 1)
    return torch.where(std > 0, folded, gap.abs())


def _log_density(z: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log N(z; mean, variance)"""
    return -0.5 * ((z - mean).square() / variance + variance.log() + math.log(2 * math.pi))


def _quantile_of_points(points: Tensor, weights: Tensor | None, probability: float) -> Tensor:
    """Of K points, the mean of the inverse distribution function over [p (1 - 1/K), p (1 - 1/K) + 1/K].

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


def _points_apart(points: Tensor, weights: Tensor | None) -> Tensor:
    """E|X - X'| of two independent draws from points, by sorting.  # (components, rows, outputs) -> (rows, outputs)"""
    if weights is None:
        count = len(points)
        rank = torch.arange(1, count + 1, dtype=torch.float64)
        return 2 * ((2 * rank - count - 1).view(-1, 1, 1) * points.sort(0).values).sum(0) / count**2
    points, order = points.sort(0)
    own = weights[order]
    return 2 * (own * (2 * own.cumsum(0) - own - 1) * points).sum(0)


def _gaussians_apart(means: Tensor, variances: Tensor, weights: Tensor | None) -> Tensor:
    """E|X - X'| of two independent draws from Gaussians, pair by pair.  # (components, rows, outputs) -> the latter"""

    def pairs(shift: int, distance: Tensor) -> Tensor:
        if weights is None:
            return distance.sum(0)
        return torch.tensordot(weights * weights.roll(shift), distance, 1)

    count = len(means)
    apart = torch.zeros_like(means[0])
    for shift in range(1, count // 2 + 1):  # every pair once, those half way round twice
        gap = means - means.roll(shift, 0)
        distance = pairs(shift, _mean_distance(gap, variances + variances.roll(shift, 0)))
        apart += distance * (1 if 2 * shift == count else 2)
    apart = apart + pairs(0, _mean_distance(torch.zeros_like(means), 2 * variances))
    return apart / count**2 if weights is None else apart
