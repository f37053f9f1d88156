"""The prediction of positive quantities: a mixture of log-normals, with a probability of zero where y may be 0.

Three readings are offered, as of `Prediction`: the log-normal whose logarithm has the mixture's mean and variance
(`"gaussian"`, by default), one whose logarithm is shaped as left-out rows are (`"shape"`, where the posterior was
calibrated so), and the mixture itself (`"mixture"`). One distribution gives mean, variance, quantiles, intervals,
densities and scores. Where values of a row are drawn, its mean and variance are those over the draws, each of them a
log-normal. Where a background is mixed in, all of them have it; only the variance is larger than that of the
distribution where the networks' answer is so odd that it would not fit in. Intervals of a posterior that was not
calibrated are those of log y with what few members lack (`"few_members"`, few_members.py).

The mean of a log-normal grows as exp(variance / 2). So that no odd row drives it, log y is taken within 6 standard
deviations of its mean over the training rows, its standard deviation as 3 times theirs at most, and mean and variance
are those of a y that ends at 6 of them above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from wherefrom.likelihoods.quantities import (
    TIE_BREAK,
    Calibrated,
    Quantities,
    checked_level,
    checked_probability,
    checked_variance,
)
from wherefrom.likelihoods.regression_prediction import IntervalReading, Prediction
from wherefrom.likelihoods.views import positive as view
from wherefrom.predictive import few_members, gaussians
from wherefrom.predictive.background import Added, Background, Blend
from wherefrom.predictive.conformal import AnyConformal, ConformalScores
from wherefrom.predictive.few_members import Few
from wherefrom.predictive.fit import Reading
from wherefrom.predictive.log_normals import LogNormals
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.panels import Output
from wherefrom.predictive.shape import Shape
from wherefrom.predictive.sources import Sources, sources
from wherefrom.training.workers import one_core

Of = Literal["log y", "y > 0"]

FARTHEST, WIDEST = 6.0, 3.0  # standard deviations of log y over the training rows: of an answer, and of its doubt
_MOST_STRETCH = 4.0  # of the variance of the training rows, for rows outside
_NEARLY_ALL = 0.99  # of the rows


@dataclass(frozen=True, eq=False, repr=False)
class PositivePrediction(Quantities):
    """The predictive distribution of positive quantities at some rows.

    `mean`, `variance` and `std` have y's shape: (rows,) where y was one-dimensional, else (rows, columns).
    """

    noun: ClassVar[str] = "column"
    doubt_of: ClassVar[str] = "log {name}"
    noise_of: ClassVar[str] = "Positive"
    mixture: Mixture  # of log y, standardised, where y is above zero
    location: Tensor  # (columns,): log y is location + scale * standardised
    scale: Tensor
    presence: Mixture | None = None  # of probabilities that y is above zero, where it may be 0
    reach: tuple[float, float] = (FARTHEST, WIDEST)  # of log y around its location, and of its deviation, in scales
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: AnyConformal | None = None
    blend: Blend | None = None  # in y's units
    shape: Shape | None = None
    is_stretched: bool = False  # the variance of log y was calibrated

    @property
    def logs(self) -> Prediction:
        """The prediction of log y, for a y above zero; without a background."""
        return Prediction(
            self.mixture, self.location, self.scale, self.is_flat, shape=self.shape, is_stretched=self.is_stretched
        )

    # ------------------------------------------------------------------ moments

    @cached_property
    @one_core()
    def samples(self) -> Tensor:
        """Answers in y's units, whatever their members weigh: medians of y, where it is above zero.

        # (members, samples, rows[, columns])
        """
        return self._shape((self.location + self.scale * self.answers.double()).exp())

    @property
    def mean(self) -> Tensor:
        return self._shape(self._moments[0])

    @property
    def variance(self) -> Tensor:
        return self._shape(self._moments[1])

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of y, in its units.  # (rows, columns) each"""
        mean, variance = self._moments_over_draws
        return (mean, variance) if self.blend is None else self.blend.moments(mean, variance)

    @property
    def _moments_over_draws(self) -> tuple[Tensor, Tensor]:
        """Mean and variance without a background: those over the values that are drawn for a row, if any are.

        One log-normal for all draws would have a tail that no draw has, and its mean is at the mercy of that tail.
        """
        of_inputs = next((axis.name for axis in self.mixture.axes if axis.shares_samples), None)
        if of_inputs is None:
            return self._networks.mean, self._networks.variance
        each = [one._networks for one in self._along(of_inputs)]
        means = torch.stack([one.mean for one in each])
        return means.mean(0), torch.stack([one.variance for one in each]).mean(0) + means.var(0, correction=0)

    def _along(self, axis: str) -> list[PositivePrediction]:
        """The prediction by the members of each draw of an axis."""
        logs = self.mixture.along(axis)
        if self.presence is None:
            return [replace(self, mixture=each) for each in logs]
        both = zip(logs, self.presence.along(axis), strict=True)
        return [replace(self, mixture=each, presence=there) for each, there in both]

    @property
    def unbiased_variance(self) -> Tensor:
        raise ValueError(
            "members are few on the scale of log y: prediction.logs.unbiased_variance is the variance of log y"
        )

    @property
    def noise_variance(self) -> Tensor:
        """The part of the variance that is noise in y: as large a share as it has in the variance of log y."""
        share = self.mixture.mean_noise / self.mixture.variance.clamp_min(torch.finfo(torch.float64).tiny)
        return self.variance * self._shape(share if self.blend is None else (1 - self.blend.weight) * share)

    @property
    def zero_probability(self) -> Tensor:
        """The probability that y is 0."""
        zero = self._distribution.zero
        return self._shape(torch.zeros_like(self.mixture.mean) if zero is None else zero)

    @property
    def doubt_variance(self) -> Tensor:
        """The variance of log y, which the sources are shares of."""
        variance = self.scale.square() * self.mixture.variance
        added = self._added
        return self._shape(variance if added is None else added.kept * variance + self.scale.square() * added.amount)

    @property
    def row_doubt(self) -> Tensor:
        by_choices = self.mixture.variance_of_answers + self.mixture.mean_spread
        return self._shape(self.scale * (by_choices.sqrt() + TIE_BREAK * self.mixture.variance.sqrt()))

    @one_core()
    def sources(self, of: Of = "log y") -> Sources:
        """The sources of the variance of log y, row by row and overall, for a y above zero.

        Where y may be 0, `of="y > 0"` splits the variance of whether it is: p (1 - p).

        of: "log y" (default), or "y > 0": whether y is above 0.
        """
        if of == "log y":
            unit = "variance of log y" + ", y > 0" * (self.presence is not None)
            return sources(self.mixture, self.scale, self.is_flat, added=self._added, unit=unit)
        if of != "y > 0":
            raise ValueError(f'sources are of "log y" or of "y > 0", not of {of!r}')
        if self.presence is None:
            raise ValueError("y is never 0 here, so nothing is to be split: wf.Positive(zeros=True) lets it be")
        added = None
        if self.blend is not None:
            there = (self.blend.background.points > 0).double().mean(1)[self.blend.number]
            mine = self.presence.mean, self.presence.variance
            added = self.blend.added_by(*mine, there, there * (1 - there))
        return sources(self.presence, None, self.is_flat, added=added, unit="variance of y > 0")

    @property
    def _added(self) -> Added | None:
        """The variance that the training rows' own distribution adds to that of log y, standardised."""
        if self.blend is None:
            return None
        theirs = self._background
        share = theirs.weights / theirs.weights.sum(0)
        mean = (share * theirs.means).sum(0)
        variance = (share * (theirs.variances + (theirs.means - mean).square())).sum(0)
        standard = (mean - self.location) / self.scale, variance / self.scale.square()
        return self.blend.added_by(self.mixture.mean, self.mixture.variance, *standard)

    # ------------------------------------------------------------------ the distribution

    @one_core()
    def quantile(self, probability: float, reading: Reading | None = None) -> Tensor:
        """The value below which y falls with this probability.

        probability: a number between 0 and 1.
        reading: "gaussian" (the log-normal), "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        """
        probability, quantiles = checked_probability(probability), torch.empty_like(self.mixture.mean)
        for rows, each in self._by_rows(reading):
            quantiles[rows] = each.quantile(probability)
        return self._shape(quantiles)

    @property
    def reading(self) -> IntervalReading:
        """The reading of `interval` where none is asked for: "conformal", "shape", "gaussian" or "few_members"."""
        return self._interval_reading(None)

    def _interval_reading(self, reading: IntervalReading | None) -> IntervalReading:
        if reading is not None:
            return reading
        if self.conformal is not None:
            return "conformal"
        return self.logs.reading

    def interval(self, level: float = 0.95, reading: IntervalReading | None = None) -> tuple[Tensor, Tensor]:
        """Return the lower and upper ends of the interval that contains y with this probability; none is negative.

        level: the probability (default 0.95).
        reading: as for quantiles; or "few_members", which allows for the small number of members; or "conformal", as
            many standard deviations of log y below and above its mean as the calibration rows needed. Default:
            "conformal" if the posterior was calibrated so, "few_members" if nothing was calibrated;
            `prediction.reading` says which.

        If 0 is at least as likely as the lower tail, the interval begins at 0, and all that it misses is above. The
        conformal interval is then that of the level which the calibration rows needed. If a background is mixed in, the
        ends of the networks' interval move outwards.
        """
        reading = self._interval_reading(reading)
        level = checked_level(level)
        if reading == "conformal" and self.presence is not None:
            low, high = map(self._shape, self._by_needed_levels(level))
        elif reading == "conformal":
            ends = (end.clamp(-self._farthest, self._farthest) for end in self._conformal_ends(level))
            low, high = (self._shape((self.location + self.scale * end).exp()) for end in ends)
        elif reading == "few_members":
            low, high = map(self._shape, self._networks.tails(level, self._quantile_by_few))
        else:
            parts = [each.interval(level) for _, each in replace(self, blend=None)._by_rows(reading)]
            low, high = (self._shape(torch.cat(side)) for side in zip(*parts, strict=True))
        return self._outward(level, low, high)

    def _quantile_by_few(self, probability: Tensor) -> Tensor:
        """Quantile of a y above zero, with what few members lack.  # (rows, columns), of the probability and of y"""
        ends = self.mixture.mean + few_members.of_mixture(self.mixture).reach(probability)
        return (self.location + self.scale * ends.clamp(-self._farthest, self._farthest)).exp()

    @property
    def _farthest(self) -> float:
        """Return how far an end may be from the mean of log y over the training rows, in its standard deviations."""
        return self.reach[0] + 2 * self.reach[1]

    def _by_needed_levels(self, level: float) -> tuple[Tensor, Tensor]:
        """Ends of the interval of the level that rows would have needed.  # (rows, columns) each"""

        def along(axis: str) -> list[LogNormals]:
            return [each._networks for each in self._along(axis)]

        return self._checked_conformal.nested(self._networks, along, self.mixture, level)

    @one_core()
    def cdf(self, y: Any, reading: Reading | None = None) -> Tensor:
        """The probability of a value no larger than y, row by row. Over many rows it is uniform, if all is well.

        y: one value for each row.
        reading: "gaussian" (the log-normal), "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        """
        y = self._matrix(y)
        below = torch.empty_like(y)
        for rows, each in self._by_rows(reading):
            below[rows] = each.cdf(y[rows])
        return self._shape(below)

    @one_core()
    def log_density(self, y: Any, reading: Reading | None = None) -> Tensor:
        """Log density of each column by itself, in y's units; of a 0, the log of its probability.  # (rows, columns)

        y: one value for each row.
        reading: "gaussian" (the log-normal), "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        """
        y = self._positive(y)
        if reading != "mixture" and self.blend is None:
            checked_variance(self.mixture.variance)
        elif reading == "mixture" and not self.mixture.is_dense:
            raise ValueError("a mixture of points has no density: give the likelihood a noise, or read it otherwise")
        densities = torch.empty_like(y)
        for rows, each in self._by_rows(reading):
            densities[rows] = each.log_density(y[rows])
        return densities

    def sample(self, count: int, seed: int = 0, reading: Reading | None = None) -> Tensor:
        """Draw `count` values for every row.  # (count, rows[, columns])

        count: samples of each row.
        seed: seed of the samples (default 0).
        reading: "gaussian" (the log-normal), "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        """
        generator = torch.Generator().manual_seed(seed)
        drawn = [each.sample(count, generator) for _, each in self._by_rows(reading)]
        return self._shape(torch.cat(drawn, 1))

    # ------------------------------------------------------------------ scores

    def nll(self, y: Any, reading: Reading | None = None, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (columns are added up); `by_row` gives each row's.

        y: the true values of these rows.
        reading: "gaussian" (the log-normal), "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = -self.log_density(y, reading).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, reading: Reading | None = None, by_row: bool = False) -> Any:
        """Continuous ranked probability score in y's units, the mean over rows and columns.

        y: the true values of these rows.
        reading: "gaussian" (the log-normal), "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        by_row: return one value for each row, instead of their mean (default False).
        """
        y = self._positive(y)
        scores = torch.empty_like(y)
        for rows, each in self._by_rows(reading):
            scores[rows] = each.crps(y[rows])
        row = scores.mean(-1)
        return row if by_row else float(row.mean())

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log density that each member by itself gives y, in its units.  # (members, rows[, columns])"""
        y = self._positive(y)
        is_zero = y == 0
        logs = torch.where(is_zero, 1.0, y).log()
        densities = self.logs.member_log_densities(self._shape(logs), by_output=True) - logs
        if self.presence is not None:
            densities = torch.empty_like(densities)
            for rows, answers, variance in self.mixture.by_member():
                checked_variance(variance.flatten(0, 1))
                p, z = self.presence.answers[:, :, rows].double(), (logs[rows] - self.location) / self.scale
                there = torch.logsumexp(gaussians.log_density(z, answers, variance) + p.log(), 1) - self.scale.log()
                each = torch.where(is_zero[rows], (1 - p).sum(1).log(), there - logs[rows])
                densities[:, rows] = each - math.log(answers.shape[1])
        return densities if by_output else densities.sum(-1)

    # ------------------------------------------------------------------ rows outside

    def needed_stretch(self, background: Background, level: float) -> Tensor:
        """Factor of the background's variance that makes it, relative to its mean, as large as in 99% of these rows.

        # (columns,)
        """
        relative = self._moments[1] / self._moments[0].square()
        theirs = background.variance[0] / background.mean[0].square()
        return (relative.quantile(_NEARLY_ALL, dim=0) / theirs).clamp_min(1.0)

    def _background_ends(self, level: float) -> tuple[Tensor, Tensor]:
        tail = (1 - level) / 2
        return self._shape(self._background.quantile(tail)), self._shape(self._background.quantile(1 - tail))

    # ------------------------------------------------------------------ reports and tables

    def columns(self, level: float) -> tuple[dict[str, Any], list[str]]:
        columns, notes = self._columns(level)
        return columns | ({} if self.presence is None else {"zero": self.zero_probability.numpy()}), notes

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        return view.outputs(self, truth, names, noise, unit)

    @property
    def read_as(self) -> str:
        """The shape that the distribution is read by, in words."""
        if self.shape is None:
            return "a log-normal whose logarithm has its mean and variance"
        return f"{self.shape.words}, of the logarithm, with its mean and variance"

    @classmethod
    def baselines(cls, y: Tensor) -> dict[str, float]:
        scores = {name: float(each.mean()) for name, each in cls.same_for_all(y).items()}
        return scores | {"rmse": float(y.double().std(correction=0)), "r2": 0.0}

    @staticmethod
    def same_for_all(y: Tensor) -> dict[str, Tensor]:
        """Scores of each row by one log-normal for all, with zeros; nothing if all that is above zero is the same."""
        rows = y.double().flatten().unsqueeze(1)
        there = rows > 0
        share = there.double().mean()
        logs = rows[there].log()
        variance = logs.var(correction=0) if len(logs) > 1 else torch.zeros((), dtype=torch.float64)
        if not float(variance) > 0:
            return {}
        one = torch.ones(1, *rows.shape, dtype=torch.float64)
        zero = None if bool(there.all()) else (1 - share) * one[0]
        same = LogNormals(logs.mean() * one, variance * one, share * one, zero)
        return {"nll": -same.log_density(rows)[:, 0], "crps": same.crps(rows)[:, 0]}

    # ------------------------------------------------------------------ calibration

    def to_calibrate(self, y: Any) -> Calibrated:
        """The prediction of log y, and log y, of the rows whose y is above zero."""
        y = self._positive(y)
        logs, rows = self._shape(torch.where(y > 0, y, 1.0).log()), None
        if bool((y == 0).any()):
            rows = torch.nonzero((y > 0).all(-1)).flatten()
            return Calibrated(self.of_rows(rows).logs, logs[rows], rows, y[rows].log().sum(-1))
        return Calibrated(self.logs, logs, None, y.log().sum(-1))

    def conformal_scores(self, y: Any) -> ConformalScores:
        if self.presence is None:
            return self._conformal_scores(y)
        needed = torch.maximum(*self._networks.needed(self._positive(y))).clamp_min(0)
        return ConformalScores(needed, is_signed=False, what="intervals", all_there_is="infinite intervals")

    @property
    def conformal_is_signed(self) -> bool:  # type: ignore[override]
        return self.presence is None

    def linear_moments(self, y: Any) -> tuple[Tensor, Tensor, Tensor] | None:
        if self.presence is not None:
            return None
        scale = self.scale
        return self.location + scale * self.mixture.mean, scale.square() * self.mixture.variance, self._matrix(y).log()

    @one_core()
    def stretched(self, factor: Tensor) -> PositivePrediction:
        """Multiply the variance of log y by a factor, for each column.  # (columns,)"""
        return replace(self, mixture=self.mixture.stretched(factor), is_stretched=True)

    def shaped(self, shape: Shape) -> PositivePrediction:
        """Give the distribution of log y another shape around its mean."""
        return replace(self, shape=shape)

    def of_output(self, j: int) -> PositivePrediction:
        """One of several columns, alone."""
        presence = None if self.presence is None else self.presence.of_output(j)
        shape = None if self.shape is None else self.shape.of_output(j)
        one = slice(j, j + 1)
        return self._of_output(j, presence=presence, shape=shape, location=self.location[one], scale=self.scale[one])

    def of_rows(self, rows: Any) -> PositivePrediction:
        presence = None if self.presence is None else self.presence.of_rows(rows)
        shape = None if self.shape is None else self.shape.of_rows(rows)
        return self._of_rows(rows, presence=presence, shape=shape)

    # ------------------------------------------------------------------ units

    def exported(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of y, of those of log y, standardised.  # (rows, columns)"""
        if self.presence is not None:
            raise ValueError("a file gives a mean and a variance, and has no place for the probability that y is 0")
        one = self._shaped(mean, variance, self.shape, torch.ones(1, 1, dtype=torch.float64))
        return self._shape(one.mean), self._shape(one.variance)

    def exported_quantiles(self, probabilities: Sequence[float]) -> Callable[[Tensor, Tensor, Few], Tensor]:
        by_gaussian = NormalDist().inv_cdf
        reaches = [by_gaussian(each) if self.shape is None else self.shape.quantile(each) for each in probabilities]

        def quantiles(mean: Tensor, variance: Tensor, few: Few) -> Tensor:
            # `exported` clamps the mean as well, and torch's exporter loses the bounds of what is clamped twice.
            opposite, variance = self._within_reach(-mean, variance)
            logs = (self.location + self.scale * (reach * variance.sqrt() - opposite) for reach in reaches)
            return torch.stack([self._shape(each.exp()) for each in logs], -1)

        return quantiles

    @property
    def quantile_reading(self) -> Reading:
        """The reading of `quantile` where none is asked for."""
        return "gaussian" if self.shape is None else "shape"

    @property
    def unit(self) -> Tensor:
        """The standard deviation of y over the training rows, if it were log-normal.  # (columns,)"""
        variance = self.scale.square()
        return (self.location + variance / 2).exp() * variance.expm1().sqrt()

    def _standardised(self, y: Any) -> Tensor:
        return (self._positive(y).log() - self.location) / self.scale

    def _positive(self, y: Any) -> Tensor:
        """y as (rows, columns), checked to be positive, or 0 where it may be."""
        return checked_positive(self._matrix(y), self.presence is not None)

    # ------------------------------------------------------------------ components

    def _made(self, means: Tensor, variances: Tensor, weights: Tensor, zero: Tensor | None = None) -> LogNormals:
        """Log-normals of components in standardised units."""
        logs, most = self.location + self.scale * means, self.location + self.reach[0] * self.scale
        return LogNormals(logs, self.scale.square() * variances, weights, zero, most)

    def _within_reach(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of log y, standardised, no farther and no wider than any odd row may be."""
        farthest, widest = self.reach
        return mean.double().clamp(-farthest, farthest), variance.double().clamp_max(widest**2)

    @cached_property
    def _networks(self) -> LogNormals:
        """The distribution as it is read by default, without a background."""
        return self._around()

    @cached_property
    def _distribution(self) -> LogNormals:
        """The distribution as it is read by default."""
        return self._with_background(self._networks, slice(None))

    def _around(self, shape: Shape | Literal["own"] | None = "own") -> LogNormals:
        """The distribution with the mean and variance of log y, and this shape."""
        shape = self.shape if shape == "own" else shape
        if self.presence is None:
            return self._shaped(self.mixture.mean, self.mixture.variance, shape, torch.ones(1, 1).double())
        there = self.presence.mean
        return self._shaped(self.mixture.mean, self.mixture.variance, shape, there, 1 - there)

    def _shaped(
        self, mean: Tensor, variance: Tensor, shape: Shape | None, there: Tensor, zero: Tensor | None = None
    ) -> LogNormals:
        """The distribution whose log y has this mean, variance and shape; `there` is how likely y is above zero."""
        mean, variance = self._within_reach(mean, variance)
        if shape is None:
            return self._made(mean.unsqueeze(0), variance.unsqueeze(0), there.unsqueeze(0), zero)
        means, variances, weights = shape.by_row
        return self._made(mean + means * variance.sqrt(), variances * variance, weights * there, zero)

    def _by_rows(self, reading: str | None) -> Iterator[tuple[slice, LogNormals]]:
        """The distribution by a reading, a few rows at a time."""
        if reading in ("few_members", "conformal"):
            raise ValueError(
                f'reading="{reading}" is for intervals of positive quantities; quantiles, probabilities, densities and '
                'scores are "gaussian", "shape" or "mixture"'
            )
        _, is_mixture = self.logs.read_by(reading)
        shape = self.shape if reading in (None, "shape") else None
        if not is_mixture:
            networks = self._networks if shape is self.shape else self._around(shape)
            yield slice(None), self._with_background(networks, slice(None))
            return
        weights = self.mixture.component_weights
        for rows, answers, variance in self.mixture.components():
            even = torch.full((len(answers),), 1 / len(answers), dtype=torch.float64)
            share, zero = (even if weights is None else weights)[:, None, None], None
            if self.presence is not None:
                ((_, there, _),) = self.presence.of_rows(rows).components()
                share, zero = share * there, 1 - (share * there).sum(0)
            each = self._made(*self._within_reach(answers, variance), share, zero)
            yield rows, self._with_background(each, rows)

    def _with_background(self, networks: LogNormals, rows: slice) -> LogNormals:
        if self.blend is None:
            return networks
        theirs, weight = self._background.of_rows(rows), self.blend.weight[rows]
        zero = None
        if networks.zero is not None or theirs.zero is not None:
            none = torch.zeros_like(networks.means[0])
            zeros = (none if part.zero is None else part.zero for part in (networks, theirs))
            zero = self.blend.of_rows(rows).mixed(*zeros)
        shape = networks.means.shape[1:]
        weights = [(1 - weight) * networks.weights, weight * theirs.weights]

        def joined(*parts: Tensor) -> Tensor:
            return torch.cat([part.expand(-1, *shape) for part in parts])

        means, variances = joined(networks.means, theirs.means), joined(networks.variances, theirs.variances)
        return LogNormals(means, variances, joined(*weights), zero, networks.most)

    @cached_property
    def _background(self) -> LogNormals:
        """Log-normals around the background's points, which are their means.

        The relative variance of each makes up what the variance between points lacks. It does so up to four times the
        variance of the training rows: to fit an odd answer of the networks in, means as they are, medians would fall.
        """
        assert self.blend is not None
        points = self.blend.background.points[self.blend.number].transpose(0, 1)  # (points, rows, columns)
        of_rows = self.blend.background.variance[self.blend.number]
        most = torch.maximum(self.blend.background.stretch, torch.tensor(_MOST_STRETCH)) * of_rows
        wanted = torch.minimum(self.blend.variance(self._networks.mean, self._networks.variance), most)
        lacking = (wanted - points.var(0, correction=0)).clamp_min(0)
        spread = torch.log1p(lacking / points.square().mean(0))
        is_zero = points == 0
        logs = torch.where(is_zero, 1.0, points).log() - spread / 2
        weights = (~is_zero).double() / len(points)
        zero = 1 - weights.sum(0) if bool(is_zero.any()) else None
        return LogNormals(logs, spread.expand_as(logs), weights, zero)


def checked_positive(matrix: Tensor, zeros: bool) -> Tensor:
    """Return the matrix, if it holds numbers above zero, or zeros where these may be.  # (rows, columns)"""
    wrong = torch.nonzero(matrix < 0 if zeros else matrix <= 0)
    if len(wrong):
        row, column = wrong[0].tolist()
        value = float(matrix[row, column])
        instead = "wf.Positive(zeros=True) lets y be 0" if value == 0 else "wf.Regression() takes any number"
        what = "positive or 0" if zeros else "positive"
        raise ValueError(f"y is {value:g} in row {row}, which is not {what}: {instead}")
    return matrix
