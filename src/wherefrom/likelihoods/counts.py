"""Counts: y is 0, 1, 2, ...; the predictive distribution is a mixture of negative binomials.

A network says the logarithm of the mean, relative to the mean s of the training rows: mu = s exp(f). Each answer stands
for the negative binomial with this mean and a dispersion a,

    P(y)  =  Gamma(y + r) / (y! Gamma(r))  (r / (r + mu))^r  (mu / (r + mu))^y,      r = 1 / a,      Var y = mu + a mu^2

whose limit for a = 0 is the Poisson distribution. The variance of y splits as that of every mixture: what the answers
differ by comes from the choices of training, and the mean of mu + a mu^2 is noise. In one-shot prediction f is normal
with mean m and variance v, so that mu is log-normal; its spread adds to the dispersion, a' = a + (1 + a) (e^v - 1).

With zeros that are inflated, a further output z says how likely a row is to be zero whatever its mean is: with s the
logistic function, y is 0 with probability s(z), and a negative binomial else, so that E y = (1 - s(z)) mu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
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
from wherefrom.predictive import background, few_members, negative_binomials
from wherefrom.predictive.background import Blend
from wherefrom.predictive.calibration import By
from wherefrom.predictive.conformal import AnyConformal
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.searching import lowest
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.losses import MOST_LOG_MEAN, Loss, NegativeBinomialNLL, PoissonNLL
from wherefrom.training.negative_binomial import PredictedDispersionNLL, ZeroInflatedNLL, inflated_log_probability
from wherefrom.training.offset import Offset, column_number
from wherefrom.training.workers import one_core

Dispersion = float | Literal["fit", "predicted"]
CountReading = Literal["mixture", "paper"]

_MOST_KEPT = 2**23
_ROUNDING = 1e-9
_MOST_DISPERSION = 1e3  # of the background: its tail reaches some 30,000 times its mean
_MOST_RELATIVE = 1e6  # variance of a count, in squares of its mean
_MOST_MOVE = 20.0  # of an end from the mean, in logarithms
_MOST_NEVER = 1 - 1e-9  # probability of a zero beside those of the distribution
_ONE_SAMPLE = Plan(1, vary_theta=False, vary_mask=False)


# ---------------------------------------------------------------------- the likelihood


@stored("Counts")
@dataclass(frozen=True)
class Counts(OfNumbers):
    """The likelihood of counts (0, 1, 2, ...), one column or several: negative binomial, with the Poisson as its limit.

    dispersion: the a in Var y = mu + a mu^2. "fit" (default): one value for each column, estimated on `held_out` of the
        rows. "predicted": the network has two outputs for each column of y, and learns both. A number: 0 is Poisson.
    held_out: share of the rows on which the dispersion is fitted, and no member is trained (default 0.1).
    exposure: the column of x with the time, or the size, in which each row was counted: its name in a frame, or its
        number. The mean is proportional to it, mu = exposure exp(f), and it is no input of the network. It must be
        above zero. New rows need it as well: the prediction is the count in that exposure (default: none).
    zeros: "inflated" if some rows are zero whatever the mean is (people who do not fish catch nothing): the network has
        one more output for each column of y, the logit of that (default: None).

    >>> Counts().outputs(targets=1), Counts("predicted").outputs(targets=1), Counts(zeros="inflated").outputs(targets=1)
    (1, 2, 2)
    """

    task: ClassVar[str] = "counts"
    target: ClassVar[str] = "counts"
    without_hidden: ClassVar[str] = "log-linear regression"
    table_options: ClassVar[tuple[str, ...]] = ("noise", "exposure")
    calibrations: ClassVar[tuple[By, ...]] = ("conformal",)
    calibrates_tables: ClassVar[tuple[By, ...]] = ("conformal",)
    has_density: ClassVar[bool] = True
    has_atoms: ClassVar[bool] = True
    dispersion: Dispersion = "fit"
    held_out: float = 0.1
    exposure: str | int | None = None
    zeros: Literal["inflated"] | None = None

    def __post_init__(self) -> None:
        if self.zeros not in (None, "inflated"):
            raise ValueError(f'zeros is None or "inflated", not {self.zeros!r}')
        if self.zeros is not None:  # a product of two functions of outputs has no moments of theirs
            object.__setattr__(self, "head", "none")
        if isinstance(self.exposure, bool) or not isinstance(self.exposure, str | int | None):
            given = type(self.exposure).__name__
            raise TypeError(f"exposure is a column of x, by its name or its number, and not its values ({given})")
        check_noise("dispersion", self.dispersion, self.held_out)
        if not isinstance(self.dispersion, str) and not 0 <= self.dispersion < math.inf:
            raise ValueError(f"dispersion must not be negative, and finite, unlike {self.dispersion}")

    # ------------------------------------------------------------------ training

    def can_be(self, y: Tensor) -> Tensor:
        return (y >= 0) & (y == y.round())

    def check_targets(self, y: Tensor) -> None:
        checked_counts(y)

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return 0 and the mean: counts are multiples of their mean."""
        mean = y.mean(0) if weights is None else (weights[:, None] * y).sum(0) / weights.sum()
        return torch.zeros_like(mean), torch.where(mean > 0, mean, 1.0)

    def offset(self, x_names: tuple[str, ...], columns: int, targets: int) -> Offset | None:
        if self.exposure is None:
            return None
        return Offset(column_number(self.exposure, x_names, columns, "exposure"), tuple(range(targets)))

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have for this number of columns of y."""
        return (1 + (self.dispersion == "predicted") + (self.zeros is not None)) * targets

    def loss_for(self, scaler: Scaler) -> Loss:
        if self.zeros is not None:
            columns = 0 if self.dispersion == "predicted" else len(scaler.y_std)
            dispersion = 0.0 if isinstance(self.dispersion, str) else self.dispersion
            return ZeroInflatedNLL(tuple(scaler.y_std.tolist()), (dispersion,) * columns)
        if self.dispersion == "predicted":
            return PredictedDispersionNLL(tuple(scaler.y_std.tolist()))
        if isinstance(self.dispersion, str) or self.dispersion < negative_binomials.LEAST_DISPERSION:
            return PoissonNLL()
        return NegativeBinomialNLL(tuple((1 / (self.dispersion * scaler.y_std)).tolist()))

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above 1, the Poisson's loss of the mean of all rows."""
        is_poisson = self.dispersion in ("fit", 0.0) and self.zeros is None
        return 3.0 if is_standardised and is_poisson else math.inf

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        if bool((outputs.abs() <= MOST_LOG_MEAN).all()):
            return None
        return (
            f"{model} gives outputs beyond ±{MOST_LOG_MEAN:g}, which are cut there: they are the logarithms of a mean, "
            "relative to that of the training rows"
        )

    # ------------------------------------------------------------------ prediction

    @property
    def noise_kind(self) -> str:
        return self.dispersion if isinstance(self.dispersion, str) else "given"

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the mean of y in units of the training rows' mean, and the dispersion where outputs say it.

        Both are log-normal where outputs vary. Where zeros are inflated, the mean is that of all rows.
        """
        if self.zeros is not None:
            mean, dispersion, never = self._inflated(outputs)
            return Moments((1 - never) * mean, None, dispersion)
        middle = outputs.double() if spread is None else outputs.double() + 0.5 * spread.double()
        middle = middle.clamp(-MOST_LOG_MEAN, MOST_LOG_MEAN).exp()
        mean, dispersion = middle.chunk(2, dim=-1) if self.dispersion == "predicted" else (middle, None)
        if spread is None:
            return Moments(mean, None, dispersion)
        log_spread = spread.double()[..., : mean.shape[-1]]
        return Moments(mean, mean.square() * torch.expm1(log_spread), dispersion)

    def _inflated(self, outputs: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return means and dispersions of rows that are counted, and the probability of not being one of them."""
        parts = outputs.double().chunk(self.outputs(1), dim=-1)
        mean, *dispersion = (part.clamp(-MOST_LOG_MEAN, MOST_LOG_MEAN).exp() for part in parts[:-1])
        return mean, dispersion[0] if dispersion else None, torch.sigmoid(parts[-1]).clamp_max(_MOST_NEVER)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor:
        """Return the mean of mu + a mu^2, in units of the squared mean of the training rows."""
        answers, spread, _ = moments
        square = answers.square() if spread is None else answers.square() + spread
        return answers / scaler.y_std + self._dispersion(moments, fitted) * square

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> CountPrediction:
        moments = self.moments(outputs.answers, outputs.spread)
        answers, spread, _ = moments
        dispersion = self._dispersion(moments, fitted)
        if self.zeros is not None:
            mean, _, never = self._inflated(outputs.answers)
            noise = (1 - never) * (mean / scaler.y_std + (dispersion + never) * mean.square())
            mixture = replace(outputs, answers=answers, noise=noise)
            return CountPrediction(mixture, dispersion, scaler.y_std, schema.y_is_flat, schema.y_names, never=never)
        within = outputs.within
        if outputs.spread is not None and spread is not None:
            log_spread = outputs.spread.double()[..., : schema.targets]
            factor = torch.where(log_spread > 0, spread / log_spread.clamp_min(negative_binomials.TINY), 0.0).mean(1)
            within = outputs.within_changed(lambda part: part[..., : schema.targets] * factor)
        noise = self.noise_of(moments, scaler, fitted)
        mixture = replace(outputs, answers=answers, spread=spread, noise=noise, within=within)
        return CountPrediction(mixture, dispersion, scaler.y_std, schema.y_is_flat, schema.y_names)

    def _dispersion(self, moments: Moments, fitted: Tensor | None) -> Tensor:
        """Dispersion of every answer, or of all.  # broadcastable to (..., rows, columns)"""
        if moments.noise is not None:
            return moments.noise
        if self.dispersion == "fit":
            return fitted_noise("dispersion", fitted)
        return torch.tensor([float(self.dispersion)], dtype=torch.float64)

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        """Dispersion of each column under which the mixture makes these rows most likely.  # (columns,)"""
        mixture = replace(outputs, answers=self.moments(outputs.answers, None).answers)
        never = None if self.zeros is None else self._inflated(outputs.answers)[2]
        share = torch.ones(len(y), dtype=torch.float64) if weights is None else weights.double()

        def density(dispersion: Tensor) -> Tensor:
            return CountPrediction(mixture, dispersion, scaler.y_std, is_flat=False, never=never).log_density(y)

        with one_core():
            return _most_likely_dispersion(density, share / share.sum(), y.shape[1])

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        return background.of_counts(scaler.y(y, torch.float64), scaler.y_std.double())

    # ------------------------------------------------------------------ choosing how to train

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return the scores, with the dispersion that each network says, or that suits it best."""
        means, a, never = (
            self._inflated(outputs) if self.zeros is not None else (*self.moments(outputs, None)[::2], None)
        )
        y, means = y.double(), scaler.y_std * means  # (members, rows, columns)
        with one_core():
            a = _suiting_dispersion(means, y, never) if a is None else a
            nll = -_log_probability(y, means, a, never).sum(-1)
            crps = _distance(y, means, a, never) - _spacing(means, a, never)
            return MemberScores(nll, crps.mean(-1))

    def to_search(self, leaves_noise: bool) -> Counts:
        predicts = self.dispersion == "predicted" and not leaves_noise
        return self if predicts else replace(self, dispersion=0.0)

    @property
    def by_row(self) -> Counts:
        return replace(self, dispersion="predicted")

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Counts:
        return cls(noise_of_table(wishes, none=0.0), wishes.held_out, wishes.exposure)


def _log_probability(y: Tensor, means: Tensor, a: Tensor, never: Tensor | None) -> Tensor:
    """Log probability of counts; `never` is the probability of a zero beside those of the distribution, if any."""
    if never is None:
        return negative_binomials.log_probability(y, means, a)
    return inflated_log_probability(y, means, a, torch.logit(never, negative_binomials.TINY))


def _distance(y: Tensor, means: Tensor, a: Tensor, never: Tensor | None) -> Tensor:
    """E |Y - y|."""
    distance = negative_binomials.distance(y, means, a)
    return distance if never is None else (1 - never) * distance + never * y


def _spacing(means: Tensor, a: Tensor, never: Tensor | None) -> Tensor:
    """E |Y - Y'| / 2 of two counts."""
    spacing = negative_binomials.spacing(means, a)
    return spacing if never is None else (1 - never).square() * spacing + never * (1 - never) * means


def checked_counts(matrix: Tensor) -> Tensor:
    """Return the matrix, if it holds counts.  # (rows, columns)"""
    wrong = torch.nonzero((matrix < 0) | (matrix != matrix.round()))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise ValueError(
            f"y is {float(matrix[row, column]):g} in row {row}, which is no count: counts are 0, 1, 2, ... For a "
            "quantity use wf.Regression()"
        )
    return matrix


def _most_likely_dispersion(
    density: Callable[[Tensor], Tensor], share: Tensor, columns: int, sections: int = 25
) -> Tensor:
    """Dispersion a with the largest mean log density; 0, the Poisson's, if nothing is better.  # (columns,)"""
    grid = torch.linspace(-10.0, 4.0, 29, dtype=torch.float64).unsqueeze(1).expand(-1, columns)
    logs = lowest(lambda log_a: -(share @ density(log_a.exp())), grid, sections)
    poisson = share @ density(torch.zeros(columns, dtype=torch.float64))
    return torch.where(share @ density(logs.exp()) > poisson, logs.exp(), 0.0)


def _suiting_dispersion(means: Tensor, y: Tensor, never: Tensor | None) -> Tensor:
    """Dispersion that suits each network best, to 0.4%.  # (members, rows, columns) -> (members, 1, columns)"""
    members, rows, columns = means.shape
    flat, counts = means.transpose(0, 1).flatten(1), y.repeat(1, members)
    zeros = None if never is None else never.transpose(0, 1).flatten(1)
    share = torch.full((rows,), 1 / rows, dtype=torch.float64)

    def density(a: Tensor) -> Tensor:
        return _log_probability(counts, flat, a, zeros)

    return _most_likely_dispersion(density, share, members * columns, sections=12).reshape(members, 1, columns)


# ---------------------------------------------------------------------- the prediction


@dataclass(frozen=True, eq=False)
class _Cells:
    """Components of some cells (a row's column each): those of networks, then those of the background."""

    means: Tensor  # (components, cells)
    a: Tensor  # the dispersions
    networks_mixed: Callable[[Tensor], Tensor]
    networks: int | None = None  # how many; None where all are
    weight: Tensor | None = None  # (cells,), of the background
    never: Tensor | None = None  # (components of networks, cells): probabilities of a zero beside

    def at(self, cells: Tensor) -> _Cells:
        weight = None if self.weight is None else self.weight[cells]
        never = None if self.never is None else self.never[:, cells]
        return replace(self, means=self.means[:, cells], a=self.a[:, cells], weight=weight, never=never)

    def mixed(self, values: Tensor) -> Tensor:
        """The mean over components, without zeros beside.  # (components, ..., cells) -> (..., cells)"""
        networks = values[: self.networks]
        if self.never is not None:
            networks = networks * (1 - self.never.reshape(len(self.never), *[1] * (values.ndim - 2), -1))
        networks = self.networks_mixed(networks)
        if self.weight is None:
            return networks
        return (1 - self.weight) * networks + self.weight * values[self.networks :].mean(0)

    @property
    def at_zero(self) -> Tensor:
        """Probability of a zero beside those of the components.  # (cells,)"""
        if self.never is None:
            return torch.zeros(self.means.shape[1], dtype=torch.float64)
        never = self.networks_mixed(self.never)
        return never if self.weight is None else (1 - self.weight) * never

    def mixed_at(self, values: Tensor, cells: Tensor) -> Tensor:
        """The mean over components at some of the cells, of a distribution function."""
        some = self.at(cells)
        return some.mixed(values) + some.at_zero


@dataclass(frozen=True, eq=False, repr=False)
class CountPrediction(Quantities):
    """The predictive distribution of counts at some rows.

    `mean`, `variance` and `std` have y's shape: (rows,) where y was one-dimensional, else (rows, columns). Quantiles
    and ends of intervals are counts.
    """

    noun: ClassVar[str] = "column"
    is_whole: ClassVar[bool] = True
    noise_of: ClassVar[str] = "Counts"
    widened_by: ClassVar[By] = "conformal"
    mixture: Mixture  # of means, in units of the training rows' mean
    dispersion: Tensor  # of every answer, or of all
    scale: Tensor  # (columns,), the training rows' mean
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: AnyConformal | None = None
    location: float = 0.0
    blend: Blend | None = None
    never: Tensor | None = None  # (members, samples, rows, columns): the probability of a zero beside, where inflated

    # ------------------------------------------------------------------ the distribution

    @one_core()
    def log_density(self, y: Any, reading: CountReading | None = None) -> Tensor:
        """The log probability of each column's count.  # (rows, columns)

        y: one value for each row.
        reading: "mixture", or "paper", which is the same (default None: "mixture").
        """
        _check_reading(reading)
        counts = self._counts(y)
        logs = self.mixture.mixed_logs(_log_probability(counts, *self._components(), self._never()))
        if self.blend is None:
            return logs
        others = negative_binomials.log_probability(counts, *self._background(self.blend))
        return self.blend.mixed_logs(logs, torch.logsumexp(others, 0) - math.log(len(others)))

    @one_core()
    def cdf(self, y: Any, reading: CountReading | None = None) -> Tensor:
        """Probability of a count no larger than y.

        y: one value for each row.
        reading: "mixture", or "paper", which is the same (default None: "mixture").
        """
        _check_reading(reading)
        counts = self._counts(y)
        below, never = negative_binomials.probability_below(counts, *self._components()), self._never()
        below = self.mixture.mixed(below if never is None else never + (1 - never) * below)
        if self.blend is not None:
            others = negative_binomials.probability_below(counts, *self._background(self.blend))
            below = self.blend.mixed(below, others.mean(0))
        return self._shape(below)

    @one_core()
    def quantile(self, probability: float, reading: CountReading | None = None) -> Tensor:
        """The least count that is not exceeded with this probability.

        `reading` is "mixture", or "paper" for the same, here and of probabilities and scores: counts have no other.

        probability: a number between 0 and 1.
        reading: "mixture", or "paper", which is the same (default None: "mixture").
        """
        _check_reading(reading)
        probability = checked_probability(probability)
        components = self._cells()
        quantiles = torch.empty(components.means.shape[1], dtype=torch.float64)
        for cells, table in self._tables():
            some = components.at(cells)
            of_components = negative_binomials.quantile(table, probability, some.means, some.a, some.mixed_at)
            quantiles[cells] = torch.where(some.at_zero >= probability, 0.0, of_components)
        return self._shape(quantiles.reshape(len(self), -1))

    @property
    def reading(self) -> str:
        """The reading of `interval` where none is asked for: "conformal" or "few_members"."""
        return "few_members" if self.conformal is None else "conformal"

    def interval(self, level: float = 0.95, reading: str | None = None) -> tuple[Tensor, Tensor]:
        """The interval of counts that holds y with this probability, both ends included.

        `reading` is "mixture" (or "paper") for that of the distribution, "few_members" for that with what few members
        lack, or "conformal". Left out, it is the conformal one where the posterior was calibrated so, else
        "few_members"; `prediction.reading` says which. Where a background is mixed in, it is the networks' interval
        with its ends moved outwards.

        level: level of the interval (default 0.95).
        reading: "few_members", "mixture", "paper" or "conformal" (default None: `self.reading`).
        """
        level = checked_level(level)
        reading = reading or self.reading
        if reading in ("mixture", "paper"):
            networks = replace(self, blend=None)
            low, high = networks.quantile((1 - level) / 2), networks.quantile((1 + level) / 2)
        elif reading == "few_members":
            low, high = self._interval_by_few(level)
        elif reading == "conformal":
            low, high = (self.scale * end for end in self._conformal_ends(level))
            rounding = _ROUNDING * (1 + self.scale * self.mixture.mean)  # a count at the very end is held
            low, high = self._shape((low - rounding).ceil()), self._shape((high + rounding).floor())
            low, high = low.clamp_min(0), high.clamp_min(0)
        else:
            raise ValueError(f'reading must be "few_members", "mixture", "paper" or "conformal", not {reading!r}')
        low, high = self._outward(level, low, high)
        return (low + _ROUNDING).floor(), (high - _ROUNDING).ceil().abs()  # which is 0, and not -0

    def _interval_by_few(self, level: float) -> tuple[Tensor, Tensor]:
        """Ends of the networks' interval with what few members lack, on the scale of log means (few_members.py)."""
        least = negative_binomials.TINY
        means, noise = self.mixture.answers.double().clamp_min(least), self.mixture.noise
        relative = None if noise is None else (noise / means.square()).clamp_max(_MOST_RELATIVE)
        logs = replace(self.mixture, answers=means.log(), noise=relative, spread=None, within=None)
        few, together = few_members.of_mixture(logs), few_members.gathered(logs)
        gathered = replace(self, mixture=replace(self.mixture, answers=together.answers.exp()), blend=None)
        centre = self._shape(self.scale * together.mean.exp())
        ends = []
        for probability in ((1 - level) / 2, (1 + level) / 2):
            end = gathered.quantile(probability)
            beyond = torch.maximum(end, centre) if probability > 0.5 else torch.minimum(end, centre)
            noise_reach = self._matrix_of((beyond.clamp_min(least) / centre.clamp_min(least)).log())
            moved = centre * self._shape(few.reach(probability, noise_reach=noise_reach).clamp_max(_MOST_MOVE).exp())
            ends.append((moved + (end - beyond)).round())
        low, high = ends
        return low.clamp_min(0), high

    def sample(self, count: int, seed: int = 0, reading: CountReading | None = None) -> Tensor:
        """Draw `count` counts for every row.  # (count, rows[, columns])

        count: samples of each row.
        seed: seed of the samples (default 0).
        reading: "mixture", or "paper", which is the same (default None: "mixture").
        """
        _check_reading(reading)
        generator = torch.Generator().manual_seed(seed)
        live = self.mixture.component_weights
        answers, a = self._components()
        weights = torch.ones(len(answers), dtype=torch.float64) if live is None else live
        chosen = torch.multinomial(weights, count * len(self), True, generator=generator).reshape(count, -1, 1)
        chosen = chosen.expand(-1, -1, answers.shape[2])
        mean, a = answers.gather(0, chosen), a.expand_as(answers).gather(0, chosen)
        if (never := self._never()) is not None:
            is_never = torch.rand(mean.shape, dtype=torch.float64, generator=generator) < never.gather(0, chosen)
            mean = torch.where(is_never, 0.0, mean)
        if self.blend is not None:
            points, others = self._background(self.blend)
            rows = count, len(self), 1
            which = torch.randint(len(points), rows, generator=generator).expand_as(mean)
            is_other = torch.rand(rows, dtype=torch.float64, generator=generator) < self.blend.weight
            mean = torch.where(is_other, points.gather(0, which), mean)
            a = torch.where(is_other, others.expand_as(points).gather(0, which), a)
        shape = 1 / a.clamp_min(1e-9)
        rate = mean * torch._standard_gamma(shape, generator=generator) / shape
        return self._shape(torch.poisson(torch.where(a < 1e-9, mean, rate), generator=generator))

    # ------------------------------------------------------------------ scores

    def nll(self, y: Any, reading: CountReading | None = None, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (columns are added up); `by_row` gives each row's.

        y: the true values of these rows.
        reading: "mixture", or "paper", which is the same (default None: "mixture").
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = -self.log_density(y, reading).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, reading: CountReading | None = None, by_row: bool = False) -> Any:
        """Continuous ranked probability score: the sum over counts k of (P(Y <= k) - [y <= k])^2, to about 1e-6 of it.

        It is E |Y - y| - E |Y - Y'| / 2, where Y and Y' are independent; the first has a closed form.

        y: the true values of these rows.
        reading: "mixture", or "paper", which is the same (default None: "mixture").
        by_row: return one value for each row, instead of their mean (default False).
        """
        _check_reading(reading)
        truth = self._counts(y)
        (means, a), never = self._components(), self._never()
        distance = self.mixture.mixed(_distance(truth, means, a, never))
        if self.blend is not None:
            others = negative_binomials.distance(truth, *self._background(self.blend)).mean(0)
            distance = self.blend.mixed(distance, others)
        if len(means) == 1 and self.blend is None:
            scores = distance - _spacing(means[0], a[0], None if never is None else never[0])
        else:
            spacing = torch.empty(truth.numel(), dtype=torch.float64)
            for cells, table in self._tables():
                spacing[cells] = table.spacing
            scores = distance - spacing.reshape(truth.shape)
        each = scores.mean(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log probability that each member by itself gives y.  # (members, rows[, columns])"""
        members, samples = self.answers.shape[:2]
        means, a = self._components(all_members=True)
        means, a = means.unflatten(0, (members, samples)), a.expand_as(means).unflatten(0, (members, samples))
        each = _log_probability(self._counts(y), means, a, self.never)
        logs = torch.logsumexp(each, 1) - math.log(samples)
        return logs if by_output else logs.sum(-1)

    # ------------------------------------------------------------------ parts

    def of_output(self, j: int) -> CountPrediction:
        """One of several columns, alone."""
        one = slice(j, j + 1)
        dispersion = self.dispersion if self.dispersion.shape[-1] == 1 else self.dispersion[..., one]
        never = None if self.never is None else self.never[..., one]
        return self._of_output(j, dispersion=dispersion, scale=self.scale[one], never=never)

    def of_rows(self, rows: Any) -> CountPrediction:
        dispersion = self.dispersion[:, :, rows] if self.dispersion.ndim == 4 else self.dispersion
        never = None if self.never is None else self.never[:, :, rows]
        return self._of_rows(rows, dispersion=dispersion, never=never)

    @staticmethod
    def baselines(y: Tensor) -> dict[str, float]:
        same = _same_for_all(y)
        return {"nll": same.nll(y), "crps": same.crps(y), "rmse": float(y.std(correction=0)), "r2": 0.0}

    # ------------------------------------------------------------------ inside

    def _never(self) -> Tensor | None:
        """The probability of a zero beside, of the components that count.  # (components, rows, columns)"""
        if self.never is None:
            return None
        live = slice(None) if self.mixture.weights is None else self.mixture.weights > 0
        return self.never[live].flatten(0, 1)

    def _components(self, all_members: bool = False) -> tuple[Tensor, Tensor]:
        """Means and dispersions of all answers, the spread of one-shot's among them.

        # (components, rows, columns) each; one dispersion instead of all components' where they share it
        """
        mixture = self.mixture
        answers = mixture.answers.double()
        if self.never is not None:
            answers = answers / (1 - self.never)  # of those rows that are counted
        a = self.dispersion.double()
        a = a.expand_as(answers) if a.ndim == 4 else a.expand(1, 1, *answers.shape[2:])
        if mixture.spread is not None:
            a = a + (1 + a) * mixture.spread.double() / answers.square().clamp_min(negative_binomials.TINY)
        if not all_members and mixture.weights is not None:
            live = torch.nonzero(mixture.weights > 0).flatten()
            answers, a = answers[live], a[live] if len(a) > 1 else a
        return self.scale * answers.flatten(0, 1), a.flatten(0, 1)

    def _background(self, blend: Blend) -> tuple[Tensor, Tensor]:
        """Means and dispersions of the background's points, each a negative binomial.

        The dispersion makes up what the variance between points, and a Poisson's around each, lack.
        # (points, rows, columns), (1, rows, columns)
        """
        points = blend.background.points[blend.number].transpose(0, 1)
        mean, between = points.mean(0), points.var(0, correction=0)
        rest = blend.variance(self.mixture.mean, self.mixture.variance) - between - mean / self.scale
        a = rest.clamp_min(0) / (mean.square() + between).clamp_min(negative_binomials.TINY)
        # Where it weighs nothing, its width would only make tables long: an exposure makes means of any size.
        a = torch.where(blend.weight > 0, a.clamp_max(_MOST_DISPERSION), 0.0)
        return self.scale * points, a.unsqueeze(0)

    def _cells(self) -> _Cells:
        """All components of all cells, those of the background among them."""
        (means, a), never = self._components(), self._never()
        never = None if never is None else never.flatten(1)
        if self.blend is None:
            return _Cells(means.flatten(1), a.flatten(1), self.mixture.mixed, never=never)
        points, others = self._background(self.blend)
        return _Cells(
            torch.cat([means, points]).flatten(1),
            torch.cat([a.expand_as(means), others.expand_as(points)]).flatten(1),
            self.mixture.mixed,
            len(means),
            self.blend.weight.expand(-1, means.shape[2]).flatten(),
            never,
        )

    def _tables(self) -> Iterable[tuple[Tensor, negative_binomials.Table]]:
        """The distribution function of a few cells (a row's column) at a time; kept if it is small."""
        is_small = len(self) * self.mixture.outputs * negative_binomials.COUNTS <= _MOST_KEPT
        return self._kept_tables if is_small else self._made_tables()

    @cached_property
    def _kept_tables(self) -> list[tuple[Tensor, negative_binomials.Table]]:
        return list(self._made_tables())

    def _made_tables(self) -> Iterator[tuple[Tensor, negative_binomials.Table]]:
        components = self._cells()
        first, last = negative_binomials.reach(components.means, components.a)
        order = (last - first).argsort()  # those of a like width together
        for cells in order.split(max(1, negative_binomials.NUMBERS_AT_ONCE // len(components.means))):
            some = components.at(cells)
            ends = first[cells], last[cells]
            yield cells, negative_binomials.Table.of(some.means, some.a, *ends, some.mixed, some.at_zero)

    def _counts(self, y: Any) -> Tensor:
        """y as (rows, columns), checked to be counts."""
        return checked_counts(self._matrix(y))


def _check_reading(reading: str | None) -> None:
    if reading not in (None, "mixture", "paper"):
        raise ValueError(
            f'counts are read as the mixture of their distributions, reading="mixture", not {reading!r}; '
            '"few_members" and "conformal" are for intervals'
        )


def _same_for_all(y: Tensor) -> CountPrediction:
    """The one negative binomial, with the mean of y, that makes all of it most likely."""
    rows, mean = y.flatten().unsqueeze(1), y.double().mean().clamp_min(1e-9)
    mixture = Mixture(torch.ones(1, 1, len(rows), 1, dtype=torch.float64), _ONE_SAMPLE, ())
    share = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)

    def made(dispersion: Tensor) -> CountPrediction:
        return CountPrediction(mixture, dispersion, mean.reshape(1))

    fitted = _most_likely_dispersion(lambda a: made(a).log_density(rows), share, 1)
    noise = 1 / mean + fitted
    return replace(made(fitted), mixture=replace(mixture, noise=noise))
