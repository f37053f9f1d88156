"""The prediction of quantities: a mixture of Gaussians, of Student's t's, or of points, in several readings.

Every answer of the network is kept with its member and sample, in standardised units; moments are taken in double
precision and returned in the user's units. Each answer m_k stands for N(m_k, noise_k), or for the bare point m_k where
the likelihood has no noise. A one-shot prediction has one answer for each member, which stands for a whole Gaussian of
answers: its spread adds to the noise. Two readings of the mixture are offered everywhere: the Gaussian with its mean
and variance (`"gaussian"`, the paper's), and the mixture itself (`"mixture"`).

A posterior that was calibrated says so here: its variance is the calibrated one (`stretched`). If it was calibrated by
its shape, a third reading is the default: the distribution of this shape with the mixture's mean and variance
(`"shape"`). If it was calibrated by conformal prediction, `interval` and `coverage` speak of the conformal interval,
which ends some standard deviations below and above the mean, unless a reading is asked for by name. Quantiles,
densities and scores stay those of the distribution.

With `tails="student"` every answer stands for Student's t with its noise as variance (the spread of one-shot's answers
among it), and the default reading is the t with the mixture's mean and variance: its shape is there from the start.

Without any calibration, quantiles, intervals and `cdf` take into account how few members there are (`"few_members"`,
few_members.py). NLL and CRPS stay those of the Gaussian, or of Student's t; `"paper"` is another name for the Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from wherefrom.likelihoods.quantities import (
    Quantities,
    checked_level,
    checked_probability,
    checked_variance,
    share_within,
)
from wherefrom.predictive import few_members, gaussians, student
from wherefrom.predictive.background import Blend
from wherefrom.predictive.conformal import AnyConformal, unit
from wherefrom.predictive.few_members import Few
from wherefrom.predictive.fit import Reading
from wherefrom.predictive.mixture import WHOLE_ROWS, Mixture
from wherefrom.predictive.row_scores import always_the_same
from wherefrom.predictive.shape import AnyShape, Shape
from wherefrom.predictive.student import StudentT
from wherefrom.training.workers import one_core

PointReading = Reading | Literal["few_members"]  # of quantiles and probabilities
IntervalReading = PointReading | Literal["conformal"]

_FAR = 30.0  # standard deviations, from where on a Gaussian's tail is taken as exponential
_BISECTIONS = 60
_LEAST_PROBABILITY = 1e-12
_NEARLY_LEAST = 0.05  # standard deviations above the least value


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Quantities):
    """The predictive distribution at some rows.

    `mean`, `variance` and `std` have y's shape: (rows,) where y was one-dimensional, else (rows, outputs).
    """

    noise_of: ClassVar[str] = "Regression"
    mixture: Mixture  # of standardised answers
    location: Tensor  # (outputs,): the user's unit is location + scale * standardised
    scale: Tensor
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: AnyConformal | None = None  # how far intervals reach, where the posterior was calibrated so
    least: float | None = None  # that y can be: the mean, quantiles and intervals end there
    blend: Blend | None = None
    shape: AnyShape | None = None  # of the distribution around its mean: calibrated, or Student's t
    is_stretched: bool = False  # its variance was calibrated, as that of a Gaussian

    @property
    def reads_as_gaussian(self) -> bool:
        return not isinstance(self.shape, StudentT)

    # ------------------------------------------------------------------ intervals

    @property
    def reading(self) -> IntervalReading:
        """The reading of `interval` where none is asked for: "conformal", "shape", "gaussian" or "few_members"."""
        return self._interval_reading(None)

    @property
    def quantile_reading(self) -> PointReading:
        """The reading of `quantile` where none is asked for: "shape", "gaussian" or "few_members"."""
        return self._point_reading(None)

    @one_core()
    def quantile(self, probability: float, reading: PointReading | None = None) -> Tensor:
        """The value below which y falls with this probability.

        probability: between 0 and 1.
        reading: "few_members", with what few members lack (few_members.py); "paper" or "gaussian", the Gaussian with
            this mean and variance; "shape", or "mixture". Default: "shape" where the shape was calibrated, "gaussian"
            (of Student's t "shape") where the variance was, else "few_members".

        Where the mixture is one of points, its quantile is between two of them: as torch.quantile has it, each as wide
        as its weight.
        """
        return self._quantiles([checked_probability(probability)], self._point_reading(reading))[0]

    def _quantiles(self, probabilities: Sequence[float], reading: PointReading) -> list[Tensor]:
        if reading == "mixture":
            return [self._in_units(self._mixture_quantile(each)) for each in probabilities]
        mean, variance = self._moments
        few = self._few if reading == "few_members" else Few(variance, variance, variance)
        return [self._in_units(each) for each in self._quantiles_by(reading, probabilities)(mean, variance, few)]

    def _quantiles_by(
        self, reading: PointReading, probabilities: Sequence[float]
    ) -> Callable[[Tensor, Tensor, Few], list[Tensor]]:
        """The function that returns quantiles, standardised, from mean, variance and few members: tensors alone."""
        shape = self._noise_shape if reading == "few_members" else self.read_by(reading)[0]
        reaches: Sequence[Any] = [NormalDist().inv_cdf(each) for each in probabilities]
        if shape is not None:
            reaches = shape.quantiles(probabilities)
        if reading == "few_members":
            student.quantiles(probabilities, torch.ones(1))  # prepare them, so that none is searched for later
            return lambda mean, _, few: [
                mean + reach for reach in few.reaches(probabilities, [reach * few.within.sqrt() for reach in reaches])
            ]
        return lambda mean, variance, _: [mean + reach * variance.sqrt() for reach in reaches]

    def exported_quantiles(self, probabilities: Sequence[float]) -> Callable[[Tensor, Tensor, Few], Tensor]:
        each = self._quantiles_by(self._point_reading(None), probabilities)
        return lambda *moments: torch.stack([self._in_units(one) for one in each(*moments)], -1)

    @cached_property
    def _few(self) -> Few:
        """Variance of y around the mean for want of members, by its parts, standardised."""
        few = few_members.of_mixture(self.mixture)
        if self.blend is None:
            return few
        between = (1 - self.blend.weight) * few.between
        whole = self.blend.moments(self.mixture.mean, few.variance)[1]
        return Few((whole - between).clamp_min(0.0), between, few.degrees)

    @property
    def median(self) -> Tensor:
        """The median by the shape, or else of the mixture; that of the Gaussian is its mean."""
        return self.quantile(0.5, "mixture" if self.shape is None else "shape")

    def interval(self, level: float = 0.95, reading: IntervalReading | None = None) -> tuple[Tensor, Tensor]:
        """Return the lower and upper ends of the interval that contains y with this probability.

        level: the probability (default 0.95).
        reading: which distribution the interval is of. "few_members": allows for the small number of members. "paper"
            or "gaussian": the Gaussian with this mean and variance. "shape": the distribution that is shaped like
            left-out rows. "mixture": the mixture of all answers. "conformal": as many standard deviations below and
            above the mean as the calibration rows needed, for each side by itself if there are enough of them (199 for
            95%). Default: "conformal" if the posterior was calibrated so, else as for quantiles; `prediction.reading`
            says which.

        If a background is mixed in, the ends of the networks' interval move outwards.
        """
        tail, reading = (1 - checked_level(level)) / 2, self._interval_reading(reading)
        if reading == "conformal":
            low, high = map(self._in_units, self._conformal_ends(level))
        else:
            networks = replace(self, blend=None)
            low, high = networks.quantile(tail, reading), networks.quantile(1 - tail, reading)
        return self._outward(level, self._at_least(low), torch.maximum(high, self._above_least(level)))

    def _at_least(self, low: Tensor) -> Tensor:
        """Lower ends that are all but at the least that y can be, at it: many rows may have that very value."""
        if self.least is None:
            return low
        near = self.least + _NEARLY_LEAST * self._shape(self.scale * unit(self.mixture.variance))
        return torch.where(low <= near, self.least, low)

    def _above_least(self, level: float) -> Tensor:
        """An upper end for rows whose mean is below the least that y can be; -inf for others.  # (rows[, outputs])

        It is that of the Gaussian without what is below: mean - std Phi^-1((1 - level) Phi(-z)), where z is how many
        standard deviations the least value is above the mean; far out, its tail is exponential.
        """
        if self.least is None:
            return self._shape(torch.full_like(self.mixture.mean, -math.inf))
        mean, std = self.mixture.mean, unit(self.mixture.variance)
        z = ((self.least - self.location) / self.scale - mean) / std
        near = z.clamp(0, _FAR)
        above = 0.5 * torch.special.erfc(near / math.sqrt(2))  # Phi(-z), to the last digits
        beyond = -torch.special.ndtri((1 - level) * above) - near
        beyond = torch.where(z > _FAR, -math.log(1 - level) / z.clamp_min(1.0), beyond)
        return self._shape(torch.where(z > 0, self.least + self.scale * std * beyond, -math.inf))

    @one_core()
    def sample(self, count: int, seed: int = 0, reading: PointReading | None = None) -> Tensor:
        """Draw `count` values for every row, one from each of `count` parts of the distribution of equal probability.

        Rows are drawn independently of each other. `reading` is as for quantiles.  # (count, rows[, outputs])

        count: samples of each row.
        seed: seed of the samples (default 0).
        reading: which distribution, as for `quantile` (default None: `self.quantile_reading`).
        """
        generator = torch.Generator().manual_seed(seed)
        within = torch.rand(count, dtype=torch.float64, generator=generator)
        probabilities = (torch.arange(count) + within).clamp_min(_LEAST_PROBABILITY) / count
        drawn = torch.stack(self._quantiles(probabilities.tolist(), self._point_reading(reading)))
        return drawn.gather(0, torch.rand(drawn.shape, generator=generator).argsort(0))

    @one_core()
    def cdf(self, y: Any, reading: PointReading | None = None) -> Tensor:
        """The probability of a value no larger than y, row by row. Over many rows it is uniform, if all is well.

        `reading` is as for quantiles.

        y: one value for each row.
        reading: which distribution, as for `quantile` (default None: `self.quantile_reading`).
        """
        z, reading = self._standardised(y), self._point_reading(reading)
        if reading == "few_members":
            return self._shape(self._few.below(z - self._moments[0], self._own_quantile))
        shape, is_mixture = self.read_by(reading)
        if is_mixture:
            return self._shape(self._mixture_cdf(z))
        mean, variance = self._moments
        if shape is None:
            return self._shape(gaussians.probability_below(mean - z, variance))
        return self._shape(shape.cdf((z - mean) / unit(variance)))

    # ------------------------------------------------------------------ scores

    @one_core()
    def log_density(self, y: Any, reading: Reading | None = None) -> Tensor:
        """Log density of each output by itself.  # (rows, outputs)

        y: one value for each row.
        reading: "paper" or "gaussian", "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        """
        z, (shape, is_mixture) = self._standardised(y), self.read_by(reading)
        log_density = self._mixture_log_density(z) if is_mixture else self._log_density_around(z, shape)
        return log_density - self.scale.log()

    def nll(self, y: Any, reading: Reading | None = None, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (outputs are added up); `by_row` gives each row's.

        y: the true values of these rows.
        reading: "paper" or "gaussian", "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = -self.log_density(y, reading).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, reading: Reading | None = None, by_row: bool = False) -> Any:
        """Continuous ranked probability score in y's units, the mean over rows and outputs.

        y: the true values of these rows.
        reading: "paper" or "gaussian", "shape", or "mixture" (default None: "shape" if calibrated so, otherwise
            "gaussian").
        by_row: return one value for each row, instead of their mean (default False).
        """
        z, (shape, is_mixture) = self._standardised(y), self.read_by(reading)
        score = self._crps_around(z, shape)
        if is_mixture:
            score = self._mixture_crps(z) if self._kernel is gaussians else self._student_crps(z)
        each = (self.scale * score).mean(-1)
        return each if by_row else float(each.mean())

    def coverage(self, y: Any, level: float = 0.95, reading: IntervalReading | None = None) -> float:
        """The fraction of y that lies within the `interval` of this level and reading.

        y: the true values of these rows.
        level: level of the interval (default 0.95).
        reading: which interval, as for `interval` (default None: `self.reading`).
        """
        reading = self._interval_reading(reading)
        is_plain = self.least is None and self.blend is None
        if self.mixture.is_dense and reading == "mixture" and is_plain:  # without searching for the ends
            tail = (1 - checked_level(level)) / 2
            below = self.cdf(y, reading)
            return float(((below >= tail) & (below <= 1 - tail)).double().mean())
        return share_within(self._y(y), *self.interval(level, reading))

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log density that each member by itself gives y: what `stacking` and `greedy` choose weights by.

        With noise, or by one-shot, a member is the mixture of its own answers, as in `nll(y, "mixture")`; without, the
        Gaussian with their mean and variance, as in `nll(y)`. Outputs are added up, or kept apart: the mixture of
        several outputs is scored one by one, so weights that are to lower `nll(y, "mixture")` are chosen with
        `by_output=True`, each output as a separate row.  # (members, rows[, outputs])
        """
        z, members = self._standardised(y), len(self.answers)
        densities = torch.empty(members, *z.shape, dtype=torch.float64)
        for rows, answers, variance in self.mixture.by_member():
            if not self.mixture.is_dense:
                variance = answers.var(1, correction=0, keepdim=True)
                answers = answers.mean(1, keepdim=True)
            if points := int((variance <= 0).flatten(1).any(1).sum()):
                raise ValueError(
                    f"{points} of {members} members have no variance at some rows, where a "
                    "density does not exist: marginalise t or F within them, take more samples, or give the "
                    "likelihood a noise"
                )
            each = self._kernel.log_density(z[rows], answers, variance)
            densities[:, rows] = torch.logsumexp(each, 1) - math.log(answers.shape[1])
        densities -= self.scale.log()
        return densities if by_output else densities.sum(-1)

    # ------------------------------------------------------------------ parts, and calibration

    @staticmethod
    def baselines(y: Tensor) -> dict[str, float]:
        return always_the_same(y)

    def of_output(self, j: int) -> Prediction:
        """One of several outputs, alone."""
        one = slice(j, j + 1)
        shape = None if self.shape is None else self.shape.of_output(j)
        return self._of_output(j, location=self.location[one], scale=self.scale[one], shape=shape)

    def of_rows(self, rows: Any) -> Prediction:
        return self._of_rows(rows, shape=None if self.shape is None else self.shape.of_rows(rows))

    @one_core()
    def stretched(self, factor: Tensor) -> Prediction:
        """Multiply the variance of each output by a factor: everything moves away from the mean by its root.

        The mean stays, and so do the shares of the sources. A background that is mixed in stays as it is.  # (outputs,)
        """
        return replace(self, mixture=self.mixture.stretched(factor), is_stretched=True)

    def shaped(self, shape: Shape) -> Prediction:
        """Give the distribution of each output another shape around its mean."""
        return replace(self, shape=shape)

    def _interval_reading(self, reading: IntervalReading | None) -> IntervalReading:
        if reading == "conformal" or (reading is None and self.conformal is not None):
            return "conformal"
        return self._point_reading(reading)

    def _point_reading(self, reading: PointReading | None) -> PointReading:
        """The reading of quantiles and probabilities, checked."""
        if reading is None:
            is_calibrated = self.is_stretched or self.shape is not self._noise_shape
            return "few_members" if not is_calibrated else "gaussian" if self.shape is None else "shape"
        if reading != "few_members":
            self.read_by(reading)  # checks it
        return reading

    def read_by(self, reading: str | None) -> tuple[AnyShape | None, bool]:
        """Return the shape to read the distribution by, None for a Gaussian, and whether to read the mixture."""
        if reading == "few_members":
            raise ValueError(
                'reading="few_members" is for quantiles, intervals and probabilities; densities and CRPS are '
                '"gaussian", "shape" or "mixture"'
            )
        if reading not in (None, "gaussian", "paper", "shape", "mixture"):
            raise ValueError(
                f'reading must be "few_members", "paper", "gaussian", "shape" or "mixture", not {reading!r}'
            )
        if reading == "shape" and self.shape is None:
            raise ValueError('there is no shape: predict by posterior.calibrated("shape", (x, y))')
        return self.shape if reading in (None, "shape") else None, reading == "mixture"

    # ------------------------------------------------------------------ in standardised units

    @property
    def _noise_shape(self) -> StudentT | None:
        """The shape of the noise itself; None for a Gaussian."""
        return self.shape if isinstance(self.shape, StudentT) else None

    @property
    def _own_quantile(self) -> Callable[[Tensor], Tensor] | None:
        """Return the noise's quantile with the probability of one of N(0, 1); None for a Gaussian."""
        if self._noise_shape is None:
            return None
        std, like_gaussian = self._few.within.sqrt(), self._noise_shape.like_gaussian
        return lambda z: std * like_gaussian(z)

    @property
    def _kernel(self) -> Any:
        """The arithmetic of the mixture's components: of Gaussians, or of t's."""
        is_student = isinstance(self.shape, StudentT) and self.mixture.is_dense
        return student.Kernel(self.shape.df) if is_student else gaussians  # type: ignore[union-attr]

    def _log_density_around(self, z: Tensor, shape: AnyShape | None) -> Tensor:
        """Log density of the Gaussian, or of the shape, with this mean and variance."""
        mean, variance = self._moments
        checked_variance(variance)
        if shape is None:
            return gaussians.log_density(z, mean, variance)
        return shape.log_density((z - mean) / variance.sqrt()) - 0.5 * variance.log()

    def _mixture_log_density(self, z: Tensor) -> Tensor:
        if not self.mixture.is_dense:
            raise ValueError(
                "a mixture of points has no density: give the likelihood a noise, or read the mixture as a Gaussian"
            )
        densities = torch.empty_like(z)
        for rows, answers, variance in self.mixture.components():
            densities[rows] = self.mixture.mixed_logs(self._kernel.log_density(z[rows], answers, variance))
        if self.blend is None:
            return densities
        points, around = self.blend.components(self.mixture.mean, self.mixture.variance)
        logs = gaussians.log_density(z, points, around)
        return self.blend.mixed_logs(densities, torch.logsumexp(logs, 0) - math.log(len(logs)))

    def _mixture_cdf(self, z: Tensor, side: int = 1) -> Tensor:
        """Probability below z; above it where `side` is -1, as the components are symmetrical."""
        below = torch.empty_like(z)
        for rows, answers, variance in self.mixture.components():
            below[rows] = self.mixture.mixed(self._kernel.probability_below(side * (answers - z[rows]), variance))
        if self.blend is None:
            return below
        points, around = self.blend.components(self.mixture.mean, self.mixture.variance)
        return self.blend.mixed(below, gaussians.probability_below(side * (points - z), around).mean(0))

    def _mixture_above(self, z: Tensor) -> Tensor:
        return self._mixture_cdf(z, side=-1)

    def _mixture_quantile(self, probability: float) -> Tensor:
        quantiles, mixture = torch.empty_like(self.mixture.mean), self.mixture
        for rows, answers, variance in mixture.components():
            quantiles[rows] = self._kernel.quantile(
                answers, variance, mixture.component_weights, probability, mixture.is_dense
            )
        outside = torch.empty(0) if self.blend is None else torch.nonzero(self.blend.weight[:, 0]).flatten()
        if len(outside):
            outside = torch.cat([outside, outside[-1:].expand(-len(outside) % WHOLE_ROWS)])
            quantiles[outside] = self.of_rows(outside)._blended_quantile(probability, quantiles[outside])
        return quantiles

    def _blended_quantile(self, probability: float, networks: Tensor) -> Tensor:
        """Return the quantile of rows that are outside: it lies between the networks' and that of the background."""
        assert self.blend is not None
        other = self.blend.quantile(probability, self.mixture.mean, self.mixture.variance)
        low, high = torch.minimum(networks, other), torch.maximum(networks, other)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            is_low = self._mixture_cdf(middle) < probability
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        return (low + high) / 2

    def _crps_around(self, z: Tensor, shape: AnyShape | None) -> Tensor:
        """CRPS of the Gaussian, or of the shape; where the variance is zero, |z - mean|."""
        mean, variance = self._moments
        std, gap = variance.sqrt(), z - mean
        least = std.clamp_min(torch.finfo(std.dtype).tiny)
        score = gaussians.crps(gap, least) if shape is None else least * shape.crps(gap / least)
        return torch.where(std > 0, score, gap.abs())

    def _mixture_crps(self, z: Tensor) -> Tensor:
        """E|X - z| - E|X - X'| / 2, over all pairs of components; of points by sorting, of Gaussians pair by pair."""
        scores, weights = torch.empty_like(z), self.mixture.component_weights
        for rows, answers, variance in self.mixture.components():
            to_truth = self.mixture.mixed(gaussians.mean_distance(answers - z[rows], variance))
            if self.mixture.is_dense:
                apart = gaussians.gaussians_apart(answers, variance, weights)
            else:
                apart = gaussians.points_apart(answers, weights)
            scores[rows] = to_truth - 0.5 * apart
            if self.blend is not None:
                scores[rows] = self._blended_crps(rows, z[rows], answers, variance, to_truth, apart)
        return scores

    def _student_crps(self, z: Tensor) -> Tensor:
        """E|X - z| less the integral of F (1 - F)."""
        to_truth, narrowest, kernel = torch.empty_like(z), torch.empty_like(z), self._kernel
        for rows, answers, variance in self.mixture.components():
            to_truth[rows] = self.mixture.mixed(kernel.mean_distance(answers - z[rows], variance))
            narrowest[rows] = variance.amin(0).sqrt()
        if self.blend is not None:
            points, around = self.blend.components(self.mixture.mean, self.mixture.variance)
            to_truth = self.blend.mixed(to_truth, gaussians.mean_distance(points - z, around).mean(0))
        mean, variance = self._moments
        std, width = variance.sqrt(), kernel.width(narrowest)
        return to_truth - student.half_apart(self._mixture_cdf, self._mixture_above, mean, std, width)

    def _blended_crps(
        self, rows: slice, z: Tensor, answers: Tensor, variance: Tensor, to_truth: Tensor, apart: Tensor
    ) -> Tensor:
        """CRPS of a few rows with the background; pairs are of two networks, of two of its points, or of one each."""
        assert self.blend is not None
        blend, weight = self.blend.of_rows(rows), self.blend.weight[rows]
        points, around = blend.components(self.mixture.mean[rows], self.mixture.variance[rows])
        across = torch.stack(
            [self.mixture.mixed(gaussians.mean_distance(answers - point, variance + around)) for point in points]
        ).mean(0)
        among = gaussians.gaussians_apart(points, around.expand_as(points), None)
        pairs = (1 - weight).square() * apart + 2 * weight * (1 - weight) * across + weight.square() * among
        return blend.mixed(to_truth, gaussians.mean_distance(points - z, around).mean(0)) - 0.5 * pairs
