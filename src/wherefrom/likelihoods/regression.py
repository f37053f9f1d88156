"""Regression: y is a quantity, or several; the predictive distribution is a mixture of Gaussians or of points.

Every answer of the network is kept with its member and sample, in standardised units; moments are taken in double
precision and returned in the user's units. Each answer m_k stands for N(m_k, noise_k), or for the bare point m_k where
the likelihood has no noise. A one-shot prediction has one answer for each member, which stands for a whole Gaussian of
answers: its spread adds to the noise. Two readings of the mixture are offered everywhere: the Gaussian with its mean
and variance (`"gaussian"`, the paper's), and the mixture itself (`"mixture"`).

A posterior that was calibrated says so here: its variance is the calibrated one (`stretched`). If it was calibrated by
its shape, a third reading is the default: the distribution of this shape with the mixture's mean and variance
(`"shape"`). If it was calibrated by conformal prediction, `interval` and `coverage` speak of the conformal interval,
which ends so many deviations below and above the mean, unless a reading is asked for by name. Quantiles, densities and
scores stay those of the distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.likelihood import MemberScores, Moments, TableWishes
from wherefrom.likelihoods.quantities import (
    OfNumbers,
    Quantities,
    check_noise,
    checked_level,
    checked_probability,
    fitted_noise,
    noise_of_table,
)
from wherefrom.predictive import background, gaussians
from wherefrom.predictive.background import Blend
from wherefrom.predictive.calibration import By
from wherefrom.predictive.conformal import AnyConformal, unit
from wherefrom.predictive.fit import Reading
from wherefrom.predictive.gaussians import STANDARD
from wherefrom.predictive.mixture import WHOLE_ROWS, Mixture
from wherefrom.predictive.row_scores import always_the_same
from wherefrom.predictive.searching import lowest
from wherefrom.predictive.shape import Shape
from wherefrom.training.data import Scaler, Schema, column_moments
from wherefrom.training.losses import MOST_LOG_VARIANCE, GaussianNLL, Loss, SquaredError
from wherefrom.training.workers import one_core

Noise = float | Literal["fit", "predicted"] | None
IntervalReading = Reading | Literal["conformal"]

_FAR = 30.0  # standard deviations, from where on a Gaussian's tail is taken as exponential
_BISECTIONS = 60
_NEARLY_LEAST = 0.05  # standard deviations above the least value


@stored("Regression")
@dataclass(frozen=True)
class Regression(OfNumbers):
    """A real-valued y, one column or several.

    `noise` is the standard deviation of y around the network's answer, in y's own units:
    `None` (the paper's: squared error, all doubt comes from theta), a number, `"fit"` (one value for each output,
    estimated on `held_out` of the rows, which no member trains on), or `"predicted"` (the network has two outputs for
    each column of y, its mean and the logarithm of its variance, and learns both).

    `least` is the least that y can be, such as 0 for a length of stay: means, quantiles and intervals end there. What
    is cut off holds no truth, so that coverage is never lower; densities and scores are those of the whole.

    >>> Regression(noise=0.5).outputs(targets=2), Regression(noise="predicted").outputs(targets=2)
    (2, 4)
    """

    task: ClassVar[str] = "regression"
    target: ClassVar[str] = "quantities"
    without_hidden: ClassVar[str] = "linear regression"
    table_options: ClassVar[tuple[str, ...]] = ("noise", "least")
    calibrations: ClassVar[tuple[By, ...]] = ("variance", "shape", "conformal")
    calibrates_tables: ClassVar[tuple[By, ...]] = ("variance", "shape", "conformal")
    noise: Noise = None
    held_out: float = 0.1
    least: float | None = None

    def __post_init__(self) -> None:
        if self.least is not None and not math.isfinite(self.least):
            raise ValueError(f"least is a number, or None, not {self.least}")
        check_noise("noise", self.noise, self.held_out, may_be_none=True)
        if not isinstance(self.noise, str | None) and not self.noise > 0:
            raise ValueError(f"noise is a standard deviation and must be positive, not {self.noise}")

    # ------------------------------------------------------------------ training

    def check_targets(self, y: Tensor) -> None:
        if self.least is not None and len(y) and float(y.min()) < self.least:
            raise ValueError(f"y is said to be at least {self.least:g}, but is as low as {float(y.min()):g}")

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return column_moments(y, weights)

    def loss_for(self, scaler: Scaler) -> Loss:
        return GaussianNLL() if self.noise == "predicted" else SquaredError()

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above that of one answer for all rows, which is 1 where y is standardised."""
        return 3.0 if is_standardised and self.noise != "predicted" else math.inf

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        """Predicted variances are bounded: networks that saw y as it was may be beyond."""
        if not is_trained or self.noise != "predicted":
            return None
        if not float(outputs.chunk(2, dim=-1)[1].abs().max()) > MOST_LOG_VARIANCE:
            return None
        return (
            f"{model} predicts log variances beyond ±{MOST_LOG_VARIANCE:.1f}, which are cut there: train on a y of "
            "about unit variance, and say how it was scaled (scaler=...)"
        )

    # ------------------------------------------------------------------ prediction

    @property
    def has_density(self) -> bool:
        return self.noise is not None

    @property
    def noise_kind(self) -> str:
        return "none" if self.noise is None else self.noise if isinstance(self.noise, str) else "given"

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the answers, their variance and their noise. A predicted variance is log-normal where outputs vary.

        It is bounded as in training, between a millionth and a million of y's own variance.
        """
        if self.noise != "predicted":
            return Moments(outputs, spread, None)
        mean, log_variance = outputs.chunk(2, dim=-1)
        log_variance = log_variance.double()
        if spread is not None:
            spread, log_spread = spread.chunk(2, dim=-1)
            log_variance = log_variance + 0.5 * log_spread.double()
        return Moments(mean, spread, log_variance.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE).exp())

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor | None:
        if self.noise == "fit":
            return fitted_noise("noise", fitted)
        if isinstance(self.noise, str | None):
            return moments.noise
        return (self.noise / scaler.y_std).square()

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> Prediction:
        moments = self.moments(outputs.answers, outputs.spread)
        noise = self.noise_of(moments, scaler, fitted)
        within = outputs.within_changed(lambda part: part[..., : schema.targets])
        mixture = replace(outputs, answers=moments.answers, spread=moments.spread, noise=noise, within=within)
        return Prediction(mixture, scaler.y_mean, scaler.y_std, schema.y_is_flat, schema.y_names, least=self.least)

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        """Variance of each output, in units of y's own.  # (outputs,)"""
        answers = outputs.answers.double()
        squares = (answers.flatten(0, 1) - scaler.y(y, torch.float64)).square()
        each = None if outputs.weights is None else outputs.weights.repeat_interleave(answers.shape[1])
        with one_core():
            return most_likely_noise(squares, each, weights)

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return the scores, with the variance that the outputs say, or else the mean square of the errors."""
        answers, _, noise = self.moments(outputs.double(), None)
        error = scaler.y_std * (scaler.y(y, torch.float64) - answers)  # (members, rows, outputs)
        if noise is None:
            variance = error.square().mean(1, keepdim=True).expand_as(error)
        else:
            variance = scaler.y_std.square() * noise
        variance = variance.clamp_min(torch.finfo(torch.float64).tiny)
        nll = -gaussians.log_density(error, torch.zeros_like(error), variance)
        std = variance.sqrt()
        return MemberScores(nll.sum(-1), gaussians.crps(error, std).mean(-1), error / std)

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        return background.of_quantities(scaler.y(y, torch.float64))

    def to_search(self, leaves_noise: bool) -> Regression:
        predicts = self.noise == "predicted" and not leaves_noise
        return replace(self, noise="predicted" if predicts else None)

    @property
    def by_row(self) -> Regression | None:
        return replace(self, noise="predicted")

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Regression:
        return cls(noise_of_table(wishes, none=None), wishes.held_out, wishes.least)


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Quantities):
    """The predictive distribution at some rows.

    `mean`, `variance` and `std` have y's shape: (rows,) where y was one-dimensional, else (rows, outputs).
    """

    mixture: Mixture  # of standardised answers
    location: Tensor  # (outputs,): the user's unit is location + scale * standardised
    scale: Tensor
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: AnyConformal | None = None  # how far intervals reach, where the posterior was calibrated so
    least: float | None = None  # that y can be: the mean, quantiles and intervals end there
    blend: Blend | None = None
    shape: Shape | None = None  # of the distribution around its mean, where the posterior was calibrated so

    # ------------------------------------------------------------------ intervals

    @one_core()
    def quantile(self, probability: float, reading: Reading | None = None) -> Tensor:
        """The value below which y falls with this probability.

        Left out, the reading is the shape's where there is one, else the Gaussian; so it is everywhere. Where the
        mixture is one of points, between two of them: as torch.quantile has it, each as wide as its weight.
        """
        probability = checked_probability(probability)
        shape, is_mixture = self._read_by(reading)
        if is_mixture:
            return self._in_units(self._mixture_quantile(probability))
        z = STANDARD.icdf(torch.tensor(probability, dtype=torch.float64))
        mean, variance = self._moments
        return self._in_units(mean + (z if shape is None else shape.quantile(probability)) * variance.sqrt())

    @property
    def median(self) -> Tensor:
        """The median by the shape, or else of the mixture; that of the Gaussian is its mean."""
        return self.quantile(0.5, "mixture" if self.shape is None else "shape")

    def interval(self, level: float = 0.95, reading: IntervalReading | None = None) -> tuple[Tensor, Tensor]:
        """The interval that holds y with this probability: its lower and upper ends.

        `reading` says which one: the central interval of the Gaussian with this mean and variance ("gaussian"), that of
        the distribution that is shaped like left-out rows ("shape"), that of the mixture ("mixture"), or "conformal":
        as many standard deviations below and above the mean as the rows say that the posterior was calibrated on, for
        each side by itself if there are enough of them (199 for 95%), else as many for both. Left out, it is the
        conformal one where there is one, else as for quantiles. Where a background is mixed in, it is the networks'
        interval with its ends moved outwards.
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
    def cdf(self, y: Any, reading: Reading | None = None) -> Tensor:
        """The probability of a value no larger than y, row by row. Over many rows it is uniform, if all is well."""
        z, (shape, is_mixture) = self._standardised(y), self._read_by(reading)
        if is_mixture:
            return self._shape(self._mixture_cdf(z))
        mean, variance = self._moments
        if shape is None:
            return self._shape(gaussians.probability_below(mean - z, variance))
        return self._shape(shape.cdf((z - mean) / unit(variance)))

    # ------------------------------------------------------------------ scores

    @one_core()
    def log_density(self, y: Any, reading: Reading | None = None) -> Tensor:
        """Log density of each output by itself.  # (rows, outputs)"""
        z, (shape, is_mixture) = self._standardised(y), self._read_by(reading)
        log_density = self._mixture_log_density(z) if is_mixture else self._log_density_around(z, shape)
        return log_density - self.scale.log()

    def nll(self, y: Any, reading: Reading | None = None, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (outputs are added up); `by_row` gives each row's."""
        each = -self.log_density(y, reading).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, reading: Reading | None = None, by_row: bool = False) -> Any:
        """Continuous ranked probability score in y's units, the mean over rows and outputs."""
        z, (shape, is_mixture) = self._standardised(y), self._read_by(reading)
        score = self._mixture_crps(z) if is_mixture else self._crps_around(z, shape)
        each = (self.scale * score).mean(-1)
        return each if by_row else float(each.mean())

    def coverage(self, y: Any, level: float = 0.95, reading: IntervalReading | None = None) -> float:
        """The fraction of y that lies within the `interval` of this level and reading."""
        reading = self._interval_reading(reading)
        is_plain = self.least is None and self.blend is None
        if self.mixture.is_dense and reading == "mixture" and is_plain:  # without searching for the ends
            tail = (1 - checked_level(level)) / 2
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
        z, members = self._standardised(y), len(self.answers)
        densities = torch.empty(members, *z.shape, dtype=torch.float64)
        for rows, answers, variance in self.mixture.by_member():
            if not self.mixture.is_dense:
                variance = answers.var(1, correction=0, keepdim=True)
                answers = answers.mean(1, keepdim=True)
            if points := int((variance <= 0).flatten(1).any(1).sum()):
                raise ValueError(
                    f"{points} of {members} members have no variance of their own at some rows, where a "
                    "density does not exist: marginalise t or F within them, take more samples, or give the "
                    "likelihood a noise"
                )
            each = gaussians.log_density(z[rows], answers, variance)
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
        conformal = None if self.conformal is None else self.conformal.of_output(j)
        mixture, location, scale = self.mixture.of_output(j), self.location[one], self.scale[one]
        return replace(
            self,
            mixture=mixture,
            location=location,
            scale=scale,
            is_flat=True,
            y_names=(),
            conformal=conformal,
            shape=None if self.shape is None else self.shape.of_output(j),
            blend=None if self.blend is None else self.blend.of_output(j),
        )

    def of_rows(self, rows: Any) -> Prediction:
        conformal = None if self.conformal is None else self.conformal.of_rows(rows)
        blend = None if self.blend is None else self.blend.of_rows(rows)
        shape = None if self.shape is None else self.shape.of_rows(rows)
        return replace(self, mixture=self.mixture.of_rows(rows), conformal=conformal, blend=blend, shape=shape)

    @one_core()
    def stretched(self, factor: Tensor) -> Prediction:
        """Multiply the variance of each output by a factor: everything moves away from the mean by its root.

        The mean stays, and so do the shares of the sources. A background that is mixed in stays as it is.  # (outputs,)
        """
        return replace(self, mixture=self.mixture.stretched(factor))

    def shaped(self, shape: Shape) -> Prediction:
        """Give the distribution of each output another shape around its mean."""
        return replace(self, shape=shape)

    def _interval_reading(self, reading: IntervalReading | None) -> IntervalReading:
        if reading is None and self.conformal is None:
            return "gaussian" if self.shape is None else "shape"
        if reading is None:
            return "conformal"
        if reading != "conformal":
            self._read_by(reading)  # checks it
        return reading

    def _read_by(self, reading: str | None) -> tuple[Shape | None, bool]:
        """Return the shape to read the distribution by, None for a Gaussian, and whether to read the mixture."""
        if reading not in (None, "gaussian", "shape", "mixture"):
            raise ValueError(f'reading must be "gaussian", "shape" or "mixture", not {reading!r}')
        if reading == "shape" and self.shape is None:
            raise ValueError('there is no shape: predict by posterior.calibrated("shape", (x, y))')
        return self.shape if reading in (None, "shape") else None, reading == "mixture"

    # ------------------------------------------------------------------ in standardised units

    def _log_density_around(self, z: Tensor, shape: Shape | None) -> Tensor:
        """Log density of the Gaussian, or of the shape, with this mean and variance."""
        mean, variance = self._moments
        if empty := int((variance <= 0).any(-1).sum()):
            raise ValueError(
                f"the predictive variance is zero at {empty} of {len(self)} rows, where a density does not exist: "
                "marginalise a variable, take more samples, or give the likelihood a noise"
            )
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
            densities[rows] = self.mixture.mixed_logs(gaussians.log_density(z[rows], answers, variance))
        if self.blend is None:
            return densities
        points, around = self.blend.components(self.mixture.mean, self.mixture.variance)
        logs = gaussians.log_density(z, points, around)
        return self.blend.mixed_logs(densities, torch.logsumexp(logs, 0) - math.log(len(logs)))

    def _mixture_cdf(self, z: Tensor) -> Tensor:
        below = torch.empty_like(z)
        for rows, answers, variance in self.mixture.components():
            below[rows] = self.mixture.mixed(gaussians.probability_below(answers - z[rows], variance))
        if self.blend is None:
            return below
        points, around = self.blend.components(self.mixture.mean, self.mixture.variance)
        return self.blend.mixed(below, gaussians.probability_below(points - z, around).mean(0))

    def _mixture_quantile(self, probability: float) -> Tensor:
        quantiles, mixture = torch.empty_like(self.mixture.mean), self.mixture
        for rows, answers, variance in mixture.components():
            quantiles[rows] = gaussians.quantile(
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

    def _crps_around(self, z: Tensor, shape: Shape | None) -> Tensor:
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


def most_likely_noise(squares: Tensor, weights: Tensor | None = None, of_rows: Tensor | None = None) -> Tensor:
    """The variance s that maximises sum_rows v log sum_k w_k N(y; answer_k, s), for each output.

    `squares` are the squared distances of y from every answer; without weights, all answers weigh the same, and so do
    all rows.
    # (answers, rows, outputs), (answers,), (rows,) -> (outputs,)
    """
    if weights is not None:
        squares, weights = squares[weights > 0], weights[weights > 0]
        weights = None if bool((weights == weights[0]).all()) else weights / weights.sum()
    log_weights = None if weights is None else weights.log()[:, None, None]

    share = squares.new_full((squares.shape[1],), 1.0) if of_rows is None else of_rows.to(squares)
    share = share / share.sum()

    def cost(log_noise: Tensor) -> Tensor:  # (outputs,) -> (outputs,)
        logs = -0.5 * squares / log_noise.exp()
        return 0.5 * log_noise - share @ torch.logsumexp(logs if log_weights is None else logs + log_weights, 0)

    of_answers = torch.tensordot(squares, share, ([1], [0]))  # (answers, outputs)
    mean = of_answers.mean(0) if weights is None else torch.tensordot(weights, of_answers, 1)
    spread = mean.log()
    grid = torch.linspace(-12, 1, 40, dtype=torch.float64)[:, None] + spread
    return lowest(cost, grid).exp()
