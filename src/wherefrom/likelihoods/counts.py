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
from wherefrom.likelihoods.likelihood import Moments, TableWishes
from wherefrom.likelihoods.quantities import (
    OfNumbers,
    Quantities,
    check_noise,
    checked_level,
    checked_probability,
    fitted_noise,
    noise_of_table,
)
from wherefrom.predictive.calibration import By, Conformal
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.searching import lowest
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.losses import Loss
from wherefrom.training.workers import one_core

Dispersion = float | Literal["fit", "predicted"]

_MOST_LOG = 20.0  # of a mean relative to the training rows', and of a dispersion
_POISSON = 1e-9  # a smaller dispersion is none
_GRID_POINTS = 1024  # of a distribution function; more counts are taken in equal steps
_NUMBERS_AT_ONCE, _MOST_KEPT = 2**20, 2**23
_TINY = torch.finfo(torch.float64).tiny
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
    """(y + r) log(mu + r) - y f with r = 1 / a, all of them multiples of the training rows' mean"""

    r: Numbers

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean, r = _bounded(outputs), _numbers(self.r, outputs)
        return _mean((y + r) * (log_mean.exp() + r).log() - y * log_mean, weights)


@dataclass(frozen=True)
class PredictedDispersionNLL:
    """The whole negative log-likelihood, where the outputs are f and then log a; `scale` is the training rows' mean"""

    scale: Numbers

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean, log_dispersion = (_bounded(each) for each in outputs.chunk(2, dim=-1))
        scale = _numbers(self.scale, outputs)
        r, count, mean = (-log_dispersion).exp(), (scale * y).round(), scale * log_mean.exp()
        kept = torch.lgamma(count + r) - torch.lgamma(r) - torch.lgamma(count + 1)
        return _mean((count + r) * (mean + r).log() - r * r.log() - count * mean.log() - kept, weights)


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
        if isinstance(self.dispersion, str) or self.dispersion < _POISSON:
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
        """The mean of y in units of the training rows' mean; log-normal where outputs vary."""
        log_mean = outputs.chunk(2, dim=-1)[0] if self.dispersion == "predicted" else outputs
        log_mean = log_mean.double().clamp(-_MOST_LOG, _MOST_LOG)
        if spread is None:
            return Moments(log_mean.exp(), None, None)
        log_spread = spread.chunk(2, dim=-1)[0] if self.dispersion == "predicted" else spread
        log_spread = log_spread.double()
        mean = (log_mean + 0.5 * log_spread).exp()
        return Moments(mean, mean.square() * torch.expm1(log_spread), None)

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> CountPrediction:
        answers, spread, _ = self.moments(outputs.answers, outputs.spread)
        dispersion = self._dispersion(outputs, fitted)
        within = outputs.within
        if outputs.spread is not None and spread is not None:
            log_spread = outputs.spread.double()[..., : schema.targets]
            factor = torch.where(log_spread > 0, spread / log_spread.clamp_min(_TINY), 0.0).mean(1)
            within = outputs.within_changed(lambda part: part[..., : schema.targets] * factor)
        noise = answers / scaler.y_std + dispersion * answers.square()
        mixture = replace(outputs, answers=answers, spread=spread, noise=noise, within=within)
        return CountPrediction(mixture, dispersion, scaler.y_std, schema.y_is_flat, schema.y_names)

    def _dispersion(self, outputs: Mixture, fitted: Tensor | None) -> Tensor:
        """Dispersion of every answer, or of all.  # broadcastable to (members, samples, rows, columns)"""
        if self.dispersion == "predicted":
            logs = outputs.answers.chunk(2, dim=-1)[1].double()
            if outputs.spread is not None:  # the mean of a log-normal variable
                logs = logs + 0.5 * outputs.spread.chunk(2, dim=-1)[1].double()
            return logs.clamp(-_MOST_LOG, _MOST_LOG).exp()
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

    # ------------------------------------------------------------------ choosing how to train

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> tuple[Tensor, Tensor]:
        """Return the scores, with the dispersion that each network says, or that suits it best."""
        scores = []
        for each in outputs:
            mixture = Mixture(each[None, None], _ONE_SAMPLE, ())
            fitted = self.fit_noise(mixture, y, scaler, None) if self.dispersion != "predicted" else None
            chosen = self if fitted is None else replace(self, dispersion="fit")
            plain = Schema((), (), True, y.shape[1], (), False, "")
            prediction = chosen.predictive(mixture, plain, scaler, fitted)
            scores.append((prediction.nll(y, by_row=True), prediction.crps(y, by_row=True)))
        nll, crps = (torch.stack(part) for part in zip(*scores, strict=True))
        return nll, crps

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


def _most_likely_dispersion(density: Callable[[Tensor], Tensor], share: Tensor, columns: int) -> Tensor:
    """Dispersion a with the largest mean log density; 0, the Poisson's, if nothing is better.  # (columns,)"""
    grid = torch.linspace(-10.0, 4.0, 29, dtype=torch.float64).unsqueeze(1).expand(-1, columns)
    logs = lowest(lambda log_a: -(share @ density(log_a.exp())), grid)
    poisson = share @ density(torch.zeros(columns, dtype=torch.float64))
    return torch.where(share @ density(logs.exp()) > poisson, logs.exp(), 0.0)


# ---------------------------------------------------------------------- the prediction


@dataclass(frozen=True, eq=False, repr=False)
class CountPrediction(Quantities):
    """The predictive distribution of counts at some rows.

    `mean`, `variance` and `std` have y's shape: (rows,) where y was one-dimensional, else (rows, columns). Quantiles
    and ends of intervals are counts.
    """

    noun: ClassVar[str] = "column"
    uncalibrated_reading: ClassVar[str] = "mixture"
    mixture: Mixture  # of means, in units of the training rows' mean
    dispersion: Tensor  # of every answer, or of all
    scale: Tensor  # (columns,), the training rows' mean
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: Conformal | None = None
    location: float = 0.0

    # ------------------------------------------------------------------ the distribution

    @one_core()
    def log_density(self, y: Any) -> Tensor:
        """The log probability of each column's count.  # (rows, columns)"""
        return self.mixture.mixed_logs(_log_probability(self._counts(y), *self._components()))

    @one_core()
    def cdf(self, y: Any) -> Tensor:
        """Probability of a count no larger than y."""
        below = _probability_below(self._counts(y), *self._components())
        return self._shape(self.mixture.mixed(below))

    @one_core()
    def quantile(self, probability: float) -> Tensor:
        """The least count that is not exceeded with this probability."""
        probability = checked_probability(probability)
        quantiles = torch.empty(len(self), self.mixture.outputs, dtype=torch.float64)
        for rows, grid in self._grids():
            quantiles[rows] = grid.quantile(probability)
        return self._shape(quantiles)

    @property
    def median(self) -> Tensor:
        return self.quantile(0.5)

    def interval(self, level: float = 0.95, reading: str | None = None) -> tuple[Tensor, Tensor]:
        """The interval of counts that holds y with this probability, both ends included.

        `reading` is "mixture" for that of the distribution, or "conformal"; left out, it is the conformal one where
        the posterior was calibrated so.
        """
        level = checked_level(level)
        reading = reading or ("mixture" if self.conformal is None else "conformal")
        if reading == "mixture":
            return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)
        if reading != "conformal":
            raise ValueError(f'reading must be "mixture" or "conformal", not {reading!r}')
        low, high = (self.scale * (self.mixture.mean + reach * self._unit) for reach in self._reach(level))
        rounding = 1e-9 * (1 + self.scale * self.mixture.mean)  # a count at the very end is held
        return self._shape((low - rounding).ceil().clamp_min(0.0)), self._shape((high + rounding).floor().clamp_min(0))

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Draw so many counts for every row.  # (count, rows[, columns])"""
        generator = torch.Generator().manual_seed(seed)
        live = self.mixture.component_weights
        answers, a = self._components()
        weights = torch.ones(len(answers), dtype=torch.float64) if live is None else live
        chosen = torch.multinomial(weights, count * len(self), True, generator=generator).reshape(count, -1, 1)
        chosen = chosen.expand(-1, -1, answers.shape[2])
        mean, a = answers.gather(0, chosen), a.gather(0, chosen)
        shape = (1 / a.clamp_min(_POISSON)).clamp_max(1e9)
        rate = mean * torch._standard_gamma(shape, generator=generator) / shape
        return self._shape(torch.poisson(torch.where(a < _POISSON, mean, rate), generator=generator))

    # ------------------------------------------------------------------ scores

    def nll(self, y: Any, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (columns are added up); `by_row` gives each row's."""
        each = -self.log_density(y).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, by_row: bool = False) -> Any:
        """Continuous ranked probability score: the sum over counts k of (P(Y <= k) - [y <= k])^2."""
        truth = self._counts(y)
        scores = torch.empty_like(truth)
        for rows, grid in self._grids():
            scores[rows] = grid.crps(truth[rows])
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
        means, a = (each.unflatten(0, (members, samples)) for each in self._components(all_members=True))
        logs = torch.logsumexp(_log_probability(self._counts(y), means, a), 1) - math.log(samples)
        return logs if by_output else logs.sum(-1)

    # ------------------------------------------------------------------ parts

    def of_output(self, j: int) -> CountPrediction:
        """One of several columns, alone."""
        one = slice(j, j + 1)
        conformal = None if self.conformal is None else self.conformal.of_output(j)
        dispersion = self.dispersion if self.dispersion.shape[-1] == 1 else self.dispersion[..., one]
        return CountPrediction(self.mixture.of_output(j), dispersion, self.scale[one], conformal=conformal)

    def of_rows(self, rows: Any) -> CountPrediction:
        dispersion = self.dispersion[:, :, rows] if self.dispersion.ndim == 4 else self.dispersion
        return replace(self, mixture=self.mixture.of_rows(rows), dispersion=dispersion)

    @staticmethod
    def baselines(y: Tensor) -> dict[str, float]:
        same = _same_for_all(y)
        return {"nll": same.nll(y), "crps": same.crps(y), "rmse": float(y.std(correction=0)), "r2": 0.0}

    # ------------------------------------------------------------------ inside

    def _components(self, all_members: bool = False) -> tuple[Tensor, Tensor]:
        """Means and dispersions of all answers, the spread of one-shot's among them.  # (components, rows, columns)"""
        mixture = self.mixture
        answers = mixture.answers.double()
        a = self.dispersion.double().expand_as(answers)
        if mixture.spread is not None:
            a = a + (1 + a) * mixture.spread.double() / answers.square().clamp_min(_TINY)
        if not all_members and mixture.weights is not None:
            live = torch.nonzero(mixture.weights > 0).flatten()
            answers, a = answers[live], a[live]
        return self.scale * answers.flatten(0, 1), a.flatten(0, 1)

    def _grids(self) -> Iterable[tuple[slice, _Grid]]:
        """The distribution function of a few rows at a time, on a grid of counts; kept if it is small."""
        is_small = len(self) * self.mixture.outputs * _GRID_POINTS <= _MOST_KEPT
        return self._kept_grids if is_small else self._made_grids()

    @cached_property
    def _kept_grids(self) -> list[tuple[slice, _Grid]]:
        return list(self._made_grids())

    def _made_grids(self) -> Iterator[tuple[slice, _Grid]]:
        means, a = self._components()
        rows, columns = means.shape[1:]
        size = max(1, _NUMBERS_AT_ONCE // (len(means) * columns))
        for start in range(0, rows, size):
            some = slice(start, start + size)
            yield some, _Grid.of(means[:, some], a[:, some], self.mixture.mixed)

    def _counts(self, y: Any) -> Tensor:
        """y as (rows, columns), checked to be counts."""
        return checked_counts(self._matrix(y))


# ---------------------------------------------------------------------- the negative binomial


@dataclass(frozen=True, eq=False)
class _Grid:
    """The distribution function of a mixture at some counts: all that matter or, if they are many, evenly spaced."""

    first: Tensor  # (rows, columns), the least count
    step: Tensor  # (rows, columns), a whole number
    below: Tensor  # (points, rows, columns): P(Y <= first + k step + (step - 1))

    @classmethod
    def of(cls, means: Tensor, a: Tensor, mixed: Callable[[Tensor], Tensor]) -> _Grid:
        """Return the grid of components (components, rows, columns); `mixed` averages over them."""
        std = (means + a * means.square()).sqrt()
        first = (means - 9 * std).amin(0).floor().clamp_min(0.0)
        last = (means + (8 + 20 * a.sqrt()) * std).amax(0).ceil() + 10  # the tail falls as exp(-y / (a mean))
        step = ((last - first + 1) / _GRID_POINTS).ceil().clamp_min(1.0)
        points = int(((last - first + 1) / step).ceil().max())
        probability = torch.empty(points, *first.shape, dtype=torch.float64)
        r = 1 / a.clamp_min(_POISSON)
        rate = torch.where(a < _POISSON, means, means * r / (means + r))  # P(k + 1) / P(k) = rate (1 + k / r) / (k + 1)
        slope = torch.where(a < _POISSON, 0.0, means / (means + r))
        is_fine = bool((step == 1).all())
        current = _log_probability(first + (step - 1) / 2, means, a).exp()
        for k in range(points):
            # In the middle of a step, for all counts of it: what is in between is next to linear.
            probability[k] = step * mixed(current)
            if is_fine:
                count = first + k
                current = current * (rate + slope * count) / (count + 1)
            elif k + 1 < points:
                current = _log_probability(first + (k + 1) * step + (step - 1) / 2, means, a).exp()
        below = probability.cumsum(0)
        return cls(first, step, below / below[-1].clamp_min(_TINY))

    def quantile(self, probability: float) -> Tensor:
        """The least count that is not exceeded with this probability.  # (rows, columns)"""
        reached = (self.below < probability).sum(0).clamp_max(len(self.below) - 1)  # (rows, columns)
        upper = self.below.gather(0, reached.unsqueeze(0)).squeeze(0)
        lower = torch.where(reached > 0, self.below.gather(0, (reached - 1).clamp_min(0).unsqueeze(0)).squeeze(0), 0.0)
        part = ((probability - lower) / (upper - lower).clamp_min(_TINY)).clamp(0.0, 1.0)
        return self.first + reached * self.step + (part * self.step).ceil().clamp_min(1.0) - 1

    def crps(self, truth: Tensor) -> Tensor:
        """The sum over counts k of (P(Y <= k) - [truth <= k])^2.  # (rows, columns)"""
        points = torch.arange(len(self.below), dtype=torch.float64)[:, None, None]
        start = torch.cat([torch.zeros_like(self.below[:1]), self.below[:-1]])
        slope, first = (self.below - start) / self.step, self.first + self.step * points
        smaller = torch.minimum((truth - first).clamp_min(0.0), self.step)  # counts of each step below the truth

        def squares(level: Tensor, slope: Tensor, count: Tensor) -> Tensor:
            """The sum of (level + slope i)^2 over i = 1, ..., count."""
            linear = count * (count + 1) / 2
            return count * level.square() + 2 * level * slope * linear + slope.square() * linear * (2 * count + 1) / 3

        above = squares(start - 1, slope, self.step) - squares(start - 1, slope, smaller)
        inside = (squares(start, slope, smaller) + above).sum(0)
        outside = (self.first - truth).clamp_min(0.0) + (truth - first[-1] - self.step).clamp_min(0.0)
        return inside + outside


def _log_probability(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """log P(count) of negative binomials, broadcast."""
    mean = mean.clamp_min(_TINY)
    poisson = count * mean.log() - mean - torch.lgamma(count + 1)
    r = 1 / a.clamp_min(_POISSON)
    kept = torch.lgamma(count + r) - torch.lgamma(r) - torch.lgamma(count + 1)
    binomial = kept - r * torch.log1p(mean / r) + count * (mean.log() - (mean + r).log())
    return torch.where(a < _POISSON, poisson, binomial)


def _probability_below(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """P(Y <= count): the regularised incomplete beta function I_{r / (r + mean)}(r, count + 1), or gamma function."""
    count = count.floor()
    is_there = count >= 0
    count, mean = count.clamp_min(0.0), mean.clamp_min(_TINY)
    r = 1 / a.clamp_min(_POISSON)
    binomial = _incomplete_beta(r, count + 1, r / (r + mean), mean / (r + mean))
    poisson = torch.special.gammaincc((count + 1).expand_as(binomial), mean.expand_as(binomial))
    return torch.where(is_there, torch.where(a < _POISSON, poisson, binomial), 0.0)


def _incomplete_beta(a: Tensor, b: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    """I_x(a, b) by Lentz's continued fraction, on the side where it converges; `rest` is 1 - x, without rounding."""
    swap = x > (a + 1) / (a + b + 2)
    a, b = torch.where(swap, b, a), torch.where(swap, a, b)
    x, rest = torch.where(swap, rest, x), torch.where(swap, x, rest)
    front = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + a * x.log() + b * rest.log() - a.log()
    c, d = torch.ones_like(front), 1 / (1 - (a + b) * x / (a + 1)).where(front == front, torch.ones_like(front))
    fraction = d
    for m in range(1, 2000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = torch.ones_like(fraction)
        for step in (even, odd):
            d = 1 / _apart_from_zero(1 + step * d)
            c = _apart_from_zero(1 + step / c)
            change = change * c * d
        fraction = fraction * change
        if m % 8 == 0 and bool(((change - 1).abs() < 1e-13).all()):
            break
    value = (front.exp() * fraction).clamp(0.0, 1.0)
    return torch.where(swap, 1 - value, value)


def _apart_from_zero(values: Tensor) -> Tensor:
    return torch.where(values.abs() < 1e-300, 1e-300, values)


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
