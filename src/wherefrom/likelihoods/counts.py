"""Counts: y is 0, 1, 2, ...; the predictive distribution is a mixture of negative binomials.

A network says the logarithm of the mean, relative to the mean s of the training rows: mu = s exp(f). Each answer stands
for the negative binomial with this mean and a dispersion a,

    P(y)  =  Gamma(y + r) / (y! Gamma(r))  (r / (r + mu))^r  (mu / (r + mu))^y,      r = 1 / a,      Var y = mu + a mu^2

whose limit for a = 0 is the Poisson distribution. The variance of y splits as that of every mixture: what the answers
differ by comes from the choices of training, and the mean of mu + a mu^2 is noise. In one-shot prediction f is normal
with mean m and variance v, so that mu is log-normal; its spread adds to the dispersion, a' = a + (1 + a) (e^v - 1).
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
from wherefrom.predictive import background, negative_binomials
from wherefrom.predictive.background import Blend
from wherefrom.predictive.calibration import By
from wherefrom.predictive.conformal import AnyConformal
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.searching import lowest
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.losses import Loss
from wherefrom.training.workers import one_core

Dispersion = float | Literal["fit", "predicted"]

_MOST_LOG = 20.0  # of a mean relative to the training rows', and of a dispersion
_MOST_KEPT = 2**23
_ROUNDING = 1e-9
_ONE_SAMPLE = Plan(1, vary_theta=False, vary_mask=False)


# ---------------------------------------------------------------------- losses


def _bounded(logs: Tensor) -> Tensor:
    """Clamp to what exp can take; the gradient passes, so that an output can come back."""
    return logs + (logs.clamp(-_MOST_LOG, _MOST_LOG) - logs).detach()


Numbers = tuple[float, ...] | Tensor  # one for each column; (members, 1, columns) where members differ


def _numbers(given: Numbers, like: Tensor) -> Tensor:
    return given if isinstance(given, Tensor) else like.new_tensor(given)


def _mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    return (losses if weights is None else losses * weights.unsqueeze(-1)).mean((-2, -1))


@dataclass(frozen=True)
class PoissonNLL:
    """mu - y f with mu = exp(f), where y is a multiple of the training rows' mean"""

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean = _bounded(outputs)
        return _mean(log_mean.exp() - y * log_mean, weights)


@dataclass(frozen=True)
class NegativeBinomialNLL:
    """(y + r) log(1 + mu / r) - y f with r = 1 / a, all of them multiples of the training rows' mean"""

    r: Numbers

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean, r = _bounded(outputs), _numbers(self.r, outputs)
        return _mean((y + r) * torch.log1p(log_mean.exp() / r) - y * log_mean, weights)


@dataclass(frozen=True)
class PredictedDispersionNLL:
    """The whole negative log-likelihood, where the outputs are f and then log a; `scale` is the training rows' mean"""

    scale: Numbers

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean, log_dispersion = (_bounded(each) for each in outputs.chunk(2, dim=-1))
        scale = _numbers(self.scale, outputs)
        r, count, mean = (-log_dispersion).exp(), (scale * y).round(), scale * log_mean.exp()
        kept = negative_binomials.log_rising(count, r) - torch.lgamma(count + 1)
        return _mean((count + r) * torch.log1p(mean / r) - count * (scale.log() + log_mean) - kept, weights)


# ---------------------------------------------------------------------- the likelihood


@stored("Counts")
@dataclass(frozen=True)
class Counts(OfNumbers):
    """A y of counts (0, 1, 2, ...), one column or several: negative binomial, with the Poisson as its limit.

    `dispersion` is a in Var y = mu + a mu^2: a number (0 is Poisson), `"fit"` (one value for each column, estimated on
    `held_out` of the rows, which no member trains on), or `"predicted"` (the network has two outputs for each column of
    y, and learns both).

    >>> Counts().outputs(targets=1), Counts("predicted").outputs(targets=1)
    (1, 2)
    """

    task: ClassVar[str] = "counts"
    target: ClassVar[str] = "counts"
    without_hidden: ClassVar[str] = "log-linear regression"
    table_options: ClassVar[tuple[str, ...]] = ("noise",)
    calibrations: ClassVar[tuple[By, ...]] = ("conformal",)
    calibrates_tables: ClassVar[tuple[By, ...]] = ("conformal",)
    has_density: ClassVar[bool] = True
    dispersion: Dispersion = "fit"
    held_out: float = 0.1

    def __post_init__(self) -> None:
        check_noise("dispersion", self.dispersion, self.held_out)
        if not isinstance(self.dispersion, str) and not 0 <= self.dispersion < math.inf:
            raise ValueError(f"dispersion must not be negative, and finite, unlike {self.dispersion}")

    # ------------------------------------------------------------------ training

    def check_targets(self, y: Tensor) -> None:
        checked_counts(y)

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return 0 and the mean: counts are multiples of their mean."""
        mean = y.mean(0) if weights is None else (weights[:, None] * y).sum(0) / weights.sum()
        return torch.zeros_like(mean), torch.where(mean > 0, mean, 1.0)

    def loss_for(self, scaler: Scaler) -> Loss:
        if self.dispersion == "predicted":
            return PredictedDispersionNLL(tuple(scaler.y_std.tolist()))
        if isinstance(self.dispersion, str) or self.dispersion < negative_binomials.LEAST_DISPERSION:
            return PoissonNLL()
        return NegativeBinomialNLL(tuple((1 / (self.dispersion * scaler.y_std)).tolist()))

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above 1, the Poisson's loss of the mean of all rows."""
        return 3.0 if is_standardised and self.dispersion in ("fit", 0.0) else math.inf

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        if bool((outputs.abs() <= _MOST_LOG).all()):
            return None
        return (
            f"{model} gives outputs beyond ±{_MOST_LOG:g}, which are cut there: they are the logarithms of a mean, "
            "relative to that of the training rows"
        )

    # ------------------------------------------------------------------ prediction

    @property
    def noise_kind(self) -> str:
        return self.dispersion if isinstance(self.dispersion, str) else "given"

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the mean of y in units of the training rows' mean, and the dispersion where outputs say it.

        Both are log-normal where outputs vary.
        """
        middle = outputs.double() if spread is None else outputs.double() + 0.5 * spread.double()
        middle = middle.clamp(-_MOST_LOG, _MOST_LOG).exp()
        mean, dispersion = middle.chunk(2, dim=-1) if self.dispersion == "predicted" else (middle, None)
        if spread is None:
            return Moments(mean, None, dispersion)
        log_spread = spread.double()[..., : mean.shape[-1]]
        return Moments(mean, mean.square() * torch.expm1(log_spread), dispersion)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor:
        """Return the mean of mu + a mu^2, in units of the squared mean of the training rows."""
        answers, spread, _ = moments
        square = answers.square() if spread is None else answers.square() + spread
        return answers / scaler.y_std + self._dispersion(moments, fitted) * square

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> CountPrediction:
        moments = self.moments(outputs.answers, outputs.spread)
        answers, spread, _ = moments
        dispersion = self._dispersion(moments, fitted)
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
        share = torch.ones(len(y), dtype=torch.float64) if weights is None else weights.double()

        def density(dispersion: Tensor) -> Tensor:
            return CountPrediction(mixture, dispersion, scaler.y_std, is_flat=False).log_density(y)

        with one_core():
            return _most_likely_dispersion(density, share / share.sum(), y.shape[1])

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        return background.of_counts(scaler.y(y, torch.float64), scaler.y_std.double())

    # ------------------------------------------------------------------ choosing how to train

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return the scores, with the dispersion that each network says, or that suits it best."""
        means, _, a = self.moments(outputs, None)
        y, means = y.double(), scaler.y_std * means  # (members, rows, columns)
        with one_core():
            a = _suiting_dispersion(means, y) if a is None else a
            nll = -negative_binomials.log_probability(y, means, a).sum(-1)
            crps = negative_binomials.distance(y, means, a) - negative_binomials.spacing(means, a)
            return MemberScores(nll, crps.mean(-1))

    def to_search(self, leaves_noise: bool) -> Counts:
        predicts = self.dispersion == "predicted" and not leaves_noise
        return self if predicts else replace(self, dispersion=0.0)

    @property
    def by_row(self) -> Counts:
        return replace(self, dispersion="predicted")

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Counts:
        return cls(noise_of_table(wishes, none=0.0), wishes.held_out)


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


def _suiting_dispersion(means: Tensor, y: Tensor) -> Tensor:
    """Dispersion that suits each network best, to 0.4%.  # (members, rows, columns) -> (members, 1, columns)"""
    members, rows, columns = means.shape
    flat, counts = means.transpose(0, 1).flatten(1), y.repeat(1, members)
    share = torch.full((rows,), 1 / rows, dtype=torch.float64)

    def density(a: Tensor) -> Tensor:
        return negative_binomials.log_probability(counts, flat, a)

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

    def at(self, cells: Tensor) -> _Cells:
        weight = None if self.weight is None else self.weight[cells]
        return replace(self, means=self.means[:, cells], a=self.a[:, cells], weight=weight)

    def mixed(self, values: Tensor) -> Tensor:
        """The mean over components.  # (components, ..., cells) -> (..., cells)"""
        networks = self.networks_mixed(values[: self.networks])
        if self.weight is None:
            return networks
        return (1 - self.weight) * networks + self.weight * values[self.networks :].mean(0)

    def mixed_at(self, values: Tensor, cells: Tensor) -> Tensor:
        """The mean over components at some of the cells."""
        return self.at(cells).mixed(values)


@dataclass(frozen=True, eq=False, repr=False)
class CountPrediction(Quantities):
    """The predictive distribution of counts at some rows.

    `mean`, `variance` and `std` have y's shape: (rows,) where y was one-dimensional, else (rows, columns). Quantiles
    and ends of intervals are counts.
    """

    noun: ClassVar[str] = "column"
    is_whole: ClassVar[bool] = True
    mixture: Mixture  # of means, in units of the training rows' mean
    dispersion: Tensor  # of every answer, or of all
    scale: Tensor  # (columns,), the training rows' mean
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: AnyConformal | None = None
    location: float = 0.0
    blend: Blend | None = None

    # ------------------------------------------------------------------ the distribution

    @one_core()
    def log_density(self, y: Any) -> Tensor:
        """The log probability of each column's count.  # (rows, columns)"""
        counts = self._counts(y)
        logs = self.mixture.mixed_logs(negative_binomials.log_probability(counts, *self._components()))
        if self.blend is None:
            return logs
        others = negative_binomials.log_probability(counts, *self._background(self.blend))
        return self.blend.mixed_logs(logs, torch.logsumexp(others, 0) - math.log(len(others)))

    @one_core()
    def cdf(self, y: Any) -> Tensor:
        """Probability of a count no larger than y."""
        counts = self._counts(y)
        below = self.mixture.mixed(negative_binomials.probability_below(counts, *self._components()))
        if self.blend is not None:
            others = negative_binomials.probability_below(counts, *self._background(self.blend))
            below = self.blend.mixed(below, others.mean(0))
        return self._shape(below)

    @one_core()
    def quantile(self, probability: float) -> Tensor:
        """The least count that is not exceeded with this probability."""
        probability = checked_probability(probability)
        components = self._cells()
        quantiles = torch.empty(components.means.shape[1], dtype=torch.float64)
        for cells, table in self._tables():
            some = components.at(cells)
            quantiles[cells] = negative_binomials.quantile(table, probability, some.means, some.a, some.mixed_at)
        return self._shape(quantiles.reshape(len(self), -1))

    @property
    def median(self) -> Tensor:
        return self.quantile(0.5)

    def interval(self, level: float = 0.95, reading: str | None = None) -> tuple[Tensor, Tensor]:
        """The interval of counts that holds y with this probability, both ends included.

        `reading` is "mixture" for that of the distribution, or "conformal"; left out, it is the conformal one where
        the posterior was calibrated so. Where a background is mixed in, it is the networks' interval with its ends
        moved outwards.
        """
        level = checked_level(level)
        reading = reading or ("mixture" if self.conformal is None else "conformal")
        if reading == "mixture":
            networks = replace(self, blend=None)
            low, high = networks.quantile((1 - level) / 2), networks.quantile((1 + level) / 2)
        elif reading == "conformal":
            low, high = (self.scale * end for end in self._conformal_ends(level))
            rounding = _ROUNDING * (1 + self.scale * self.mixture.mean)  # a count at the very end is held
            low, high = self._shape((low - rounding).ceil()), self._shape((high + rounding).floor())
            low, high = low.clamp_min(0), high.clamp_min(0)
        else:
            raise ValueError(f'reading must be "mixture" or "conformal", not {reading!r}')
        low, high = self._outward(level, low, high)
        return (low + _ROUNDING).floor(), (high - _ROUNDING).ceil().abs()  # which is 0, and not -0

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Draw so many counts for every row.  # (count, rows[, columns])"""
        generator = torch.Generator().manual_seed(seed)
        live = self.mixture.component_weights
        answers, a = self._components()
        weights = torch.ones(len(answers), dtype=torch.float64) if live is None else live
        chosen = torch.multinomial(weights, count * len(self), True, generator=generator).reshape(count, -1, 1)
        chosen = chosen.expand(-1, -1, answers.shape[2])
        mean, a = answers.gather(0, chosen), a.expand_as(answers).gather(0, chosen)
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

    def nll(self, y: Any, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (columns are added up); `by_row` gives each row's."""
        each = -self.log_density(y).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, by_row: bool = False) -> Any:
        """Continuous ranked probability score: the sum over counts k of (P(Y <= k) - [y <= k])^2, to about 1e-6 of it.

        It is E |Y - y| - E |Y - Y'| / 2, where Y and Y' are independent; the first has a closed form.
        """
        truth = self._counts(y)
        means, a = self._components()
        distance = self.mixture.mixed(negative_binomials.distance(truth, means, a))
        if self.blend is not None:
            others = negative_binomials.distance(truth, *self._background(self.blend)).mean(0)
            distance = self.blend.mixed(distance, others)
        if len(means) == 1 and self.blend is None:
            scores = distance - negative_binomials.spacing(means[0], a[0])
        else:
            spacing = torch.empty(truth.numel(), dtype=torch.float64)
            for cells, table in self._tables():
                spacing[cells] = table.spacing
            scores = distance - spacing.reshape(truth.shape)
        each = scores.mean(-1)
        return each if by_row else float(each.mean())

    def coverage(self, y: Any, level: float = 0.95, reading: str | None = None) -> float:
        """The fraction of y that lies within the `interval` of this level."""
        low, high = self.interval(level, reading)
        y = self._y(y)
        return float(((y >= low) & (y <= high)).double().mean())

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log probability that each member by itself gives y.  # (members, rows[, columns])"""
        members, samples = self.answers.shape[:2]
        means, a = self._components(all_members=True)
        means, a = means.unflatten(0, (members, samples)), a.expand_as(means).unflatten(0, (members, samples))
        logs = torch.logsumexp(negative_binomials.log_probability(self._counts(y), means, a), 1) - math.log(samples)
        return logs if by_output else logs.sum(-1)

    # ------------------------------------------------------------------ parts

    def of_output(self, j: int) -> CountPrediction:
        """One of several columns, alone."""
        one = slice(j, j + 1)
        conformal = None if self.conformal is None else self.conformal.of_output(j)
        dispersion = self.dispersion if self.dispersion.shape[-1] == 1 else self.dispersion[..., one]
        blend = None if self.blend is None else self.blend.of_output(j)
        return CountPrediction(self.mixture.of_output(j), dispersion, self.scale[one], conformal=conformal, blend=blend)

    def of_rows(self, rows: Any) -> CountPrediction:
        dispersion = self.dispersion[:, :, rows] if self.dispersion.ndim == 4 else self.dispersion
        conformal = None if self.conformal is None else self.conformal.of_rows(rows)
        blend = None if self.blend is None else self.blend.of_rows(rows)
        mixture = self.mixture.of_rows(rows)
        return replace(self, mixture=mixture, dispersion=dispersion, conformal=conformal, blend=blend)

    @staticmethod
    def baselines(y: Tensor) -> dict[str, float]:
        same = _same_for_all(y)
        return {"nll": same.nll(y), "crps": same.crps(y), "rmse": float(y.std(correction=0)), "r2": 0.0}

    # ------------------------------------------------------------------ inside

    def _components(self, all_members: bool = False) -> tuple[Tensor, Tensor]:
        """Means and dispersions of all answers, the spread of one-shot's among them.

        # (components, rows, columns) each; one dispersion instead of all components' where they share it
        """
        mixture = self.mixture
        answers = mixture.answers.double()
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
        return self.scale * points, a.unsqueeze(0)

    def _cells(self) -> _Cells:
        """All components of all cells, those of the background among them."""
        means, a = self._components()
        if self.blend is None:
            return _Cells(means.flatten(1), a.flatten(1), self.mixture.mixed)
        points, others = self._background(self.blend)
        return _Cells(
            torch.cat([means, points]).flatten(1),
            torch.cat([a.expand_as(means), others.expand_as(points)]).flatten(1),
            self.mixture.mixed,
            len(means),
            self.blend.weight.expand(-1, means.shape[2]).flatten(),
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
            yield cells, negative_binomials.Table.of(some.means, some.a, first[cells], last[cells], some.mixed)

    def _counts(self, y: Any) -> Tensor:
        """y as (rows, columns), checked to be counts."""
        return checked_counts(self._matrix(y))


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
