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

import numpy as np
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
_LEAST_DISPERSION = 1e-15  # which no count can tell from none
_NEAR_POISSON = 3e-6  # a dispersion times mean up to which the distribution function is expanded around the Poisson's
_COUNTS = 1024  # of a table that are taken one by one
_TAIL = 32.0  # minus the logarithm of the probability beyond a table, 1e-14
_PANEL, _NODES = 3.0, 8  # standard deviations, and nodes of Gauss and Legendre for them
_HALF_NODES = 32  # of the integral for one negative binomial, on each side
_NUMBERS_AT_ONCE, _MOST_KEPT = 2**16, 2**23
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
        kept = _log_rising(count, r) - torch.lgamma(count + 1)
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
        if isinstance(self.dispersion, str) or self.dispersion < _LEAST_DISPERSION:
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
            factor = torch.where(log_spread > 0, spread / log_spread.clamp_min(_TINY), 0.0).mean(1)
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

    # ------------------------------------------------------------------ choosing how to train

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> tuple[Tensor, Tensor]:
        """Return the scores, with the dispersion that each network says, or that suits it best."""
        means, _, a = self.moments(outputs, None)
        y, means = y.double(), scaler.y_std * means  # (members, rows, columns)
        with one_core():
            a = _suiting_dispersion(means, y) if a is None else a
            nll = -_log_probability(y, means, a).sum(-1)
            return nll, (_distance(y, means, a) - _spacing(means, a)).mean(-1)

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
        return _log_probability(counts, flat, a)

    return _most_likely_dispersion(density, share, members * columns, sections=12).reshape(members, 1, columns)


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
        means, a = (each.flatten(1) for each in self._components())
        quantiles = torch.empty(means.shape[1], dtype=torch.float64)
        for cells, table in self._tables():
            quantiles[cells] = _quantile(table, probability, means[:, cells], a[:, cells], self.mixture.mixed)
        return self._shape(quantiles.reshape(len(self), -1))

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
        mean, a = answers.gather(0, chosen), a.expand_as(answers).gather(0, chosen)
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
        distance = self.mixture.mixed(_distance(truth, means, a))
        if len(means) == 1:
            scores = distance - _spacing(means[0], a[0])
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
        """Means and dispersions of all answers, the spread of one-shot's among them.

        # (components, rows, columns) each; one dispersion instead of all components' where they share it
        """
        mixture = self.mixture
        answers = mixture.answers.double()
        a = self.dispersion.double()
        a = a.expand_as(answers) if a.ndim == 4 else a.expand(1, 1, *answers.shape[2:])
        if mixture.spread is not None:
            a = a + (1 + a) * mixture.spread.double() / answers.square().clamp_min(_TINY)
        if not all_members and mixture.weights is not None:
            live = torch.nonzero(mixture.weights > 0).flatten()
            answers, a = answers[live], a[live] if len(a) > 1 else a
        return self.scale * answers.flatten(0, 1), a.flatten(0, 1)

    def _tables(self) -> Iterable[tuple[Tensor, _Table]]:
        """The distribution function of a few cells (a row's column) at a time; kept if it is small."""
        is_small = len(self) * self.mixture.outputs * _COUNTS <= _MOST_KEPT
        return self._kept_tables if is_small else self._made_tables()

    @cached_property
    def _kept_tables(self) -> list[tuple[Tensor, _Table]]:
        return list(self._made_tables())

    def _made_tables(self) -> Iterator[tuple[Tensor, _Table]]:
        means, a = (each.flatten(1) for each in self._components())
        first, last = _reach(means, a)
        order = (last - first).argsort()  # those of a like width together
        for cells in order.split(max(1, _NUMBERS_AT_ONCE // len(means))):
            yield cells, _Table.of(means[:, cells], a[:, cells], first[cells], last[cells], self.mixture.mixed)

    def _counts(self, y: Any) -> Tensor:
        """y as (rows, columns), checked to be counts."""
        return checked_counts(self._matrix(y))


# ---------------------------------------------------------------------- the negative binomial


def _log_rising(count: Tensor, r: Tensor) -> Tensor:
    """log of Gamma(count + r) / (Gamma(r) r^count), by Stirling's series where r is large and the two would cancel."""
    small, large = r.clamp_max(8.0), r.clamp_min(8.0)
    direct = torch.lgamma(count + small) - torch.lgamma(small) - count * small.log()
    series = (count + large - 0.5) * torch.log1p(count / large) - count + _stirling(count + large) - _stirling(large)
    return torch.where(r < 8.0, direct, series)


def _stirling(z: Tensor) -> Tensor:
    """log Gamma(z) less (z - 1/2) log z - z + log(2 pi) / 2, to 1e-12 from z = 8 on."""
    square = z.square().reciprocal()
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / z


def _log_probability(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """log P(count) of negative binomials, broadcast."""
    mean, r = mean.clamp_min(_TINY), 1 / a.clamp_min(_LEAST_DISPERSION)
    kept = _log_rising(count, r) - torch.lgamma(count + 1)
    return kept + count * mean.log() - (count + r) * torch.log1p(mean / r)


def _probability_below(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """P(Y <= count), which is I_x(r, count + 1) with x = r / (r + mean); continued to counts that are not whole.

    Close to the Poisson distribution it is Q(count + 1, mean), the incomplete gamma function, and the next term in a.
    """
    count, mean, a = torch.broadcast_tensors(count, mean.clamp_min(_TINY), a)
    below = torch.zeros(count.shape, dtype=torch.float64)
    is_poisson = a * mean < _NEAR_POISSON
    for chosen, cdf in ((is_poisson, _near_poisson), (~is_poisson, _incomplete_beta)):
        if bool((chosen := chosen & (count >= 0)).any()):
            below[chosen] = cdf(count[chosen], mean[chosen], a[chosen])
    return below


def _near_poisson(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    probability = _log_probability(count, mean, torch.zeros_like(a)).exp()
    below = torch.special.gammaincc(count + 1, mean) + 0.5 * a * mean * (mean - count) * probability
    return below.clamp(0.0, 1.0)


def _incomplete_beta(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """I_x(r, count + 1) by Lentz's continued fraction, on the side where it converges fast.  # flat"""
    r, b = 1 / a, count + 1
    x, rest = r / (r + mean), mean / (r + mean)
    swap = x > (r + 1) / (r + b + 2)
    first, second = torch.where(swap, b, r), torch.where(swap, r, b)
    front = _log_probability(count, mean, a).exp() * (count + r) * rest / first
    value = (front * _fraction(first, second, torch.where(swap, rest, x))).clamp(0.0, 1.0)
    return torch.where(swap, 1 - value, value)


def _fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The continued fraction of I_x(a, b); what has converged is left out of further steps.  # flat"""
    value = torch.empty_like(x)
    left = torch.arange(len(x))
    c, d = torch.ones_like(x), 1 / _apart_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 5000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for step in (even, odd):
            d = 1 / _apart_from_zero(1 + step * d)
            c = _apart_from_zero(1 + step / c)
            fraction = fraction * (c * d)
        if m % 8 == 0:
            value[left] = fraction
            goes_on = torch.nonzero((fraction - before).abs() > 1e-14 * fraction.abs()).flatten()
            if not len(goes_on):
                break
            a, b, x, c, d, fraction, left = (each[goes_on] for each in (a, b, x, c, d, fraction, left))
    return value


def _apart_from_zero(values: Tensor) -> Tensor:
    return torch.where(values.abs() < 1e-300, 1e-300, values)


# ---------------------------------------------------------------------- distances


def _distance(truth: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """E |Y - truth| of negative binomials.  # broadcast"""
    last = truth - 1
    at_last = torch.where(truth > 0, _log_probability(last.clamp_min(0.0), mean, a).exp(), 0.0)
    short = (truth - mean) * _probability_below(last, mean, a) + mean * at_last * (1 + a * last)  # E max(truth - Y, 0)
    return mean - truth + 2 * short


def _spacing(mean: Tensor, a: Tensor) -> Tensor:
    """E |Y - Y'| / 2 of two counts from one negative binomial, by its characteristic function phi.

    With u = tan(t / 2) it is the integral of (1 - |phi(t)|^2) / (2 pi u^2) over u > 0, where |phi(t)|^2 is
    (1 + 4 a v u^2 / (1 + u^2))^(-1/a) and v the variance; the trapezoidal rule converges exponentially.
    """
    variance = (mean + a * mean.square()).clamp_min(_TINY)
    a = a.clamp_min(_LEAST_DISPERSION)
    centre, total = 1 / (1 + 2 * variance.sqrt()), torch.zeros_like(variance)
    for k in range(-_HALF_NODES, _HALF_NODES + 1):
        w = 3.3 * k / _HALF_NODES  # log u = log centre + 2 sinh w
        u = centre * math.exp(2 * math.sinh(w))
        exponent = torch.log1p(4 * a * variance * u.square() / (1 + u.square())) / a
        total -= 2 * math.cosh(w) * torch.expm1(-exponent) / u
    return total * (3.3 / _HALF_NODES) / (2 * math.pi)


# ---------------------------------------------------------------------- mixtures


def _reach(means: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Counts below and above which no component has more than exp(-_TAIL), by Chernoff's bound.

    # (components, cells) -> (cells,) each
    """
    r = 1 / a.amax(0).clamp_min(_LEAST_DISPERSION)
    least, most = means.amin(0).clamp_min(_TINY), means.amax(0).clamp_min(_TINY)

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
class _Table:
    """The distribution function of mixtures: at all counts that matter or, if they are many, at the nodes of panels.

    Panels are of equal width in v = 2 / sqrt(a) asinh(sqrt(a k)), where dk / dv = sqrt(k + a k^2): in v, a negative
    binomial of dispersion a or more has a standard deviation of at least about 1, whatever its mean is.
    """

    counts: Tensor  # (points, cells), ascending; nodes are not whole
    below: Tensor  # (points, cells): P(Y <= count)
    spacing: Tensor  # (cells,): E |Y - Y'| / 2, the sum over counts of P(Y <= k) P(Y > k)

    @classmethod
    def of(cls, means: Tensor, a: Tensor, first: Tensor, last: Tensor, mixed: Callable[[Tensor], Tensor]) -> _Table:
        """Return the table of components (components, cells); `mixed` averages over them."""
        points = int((last - first).max()) + 1
        singles = min(points, _COUNTS)
        counts = first + torch.arange(singles, dtype=torch.float64).unsqueeze(1)
        below = _summed(means, a, counts, mixed)
        product = below * (1 - below)
        if points <= _COUNTS:
            return cls(counts, below, product.sum(0))
        # Euler and Maclaurin: a sum from `start` on is an integral from 1/2 before it, and a term of the slope there.
        start, slope = counts[-1], product[-1] - product[-2]
        root = a.amin(0).clamp(1e-9, 0.3).sqrt()  # a longer step misses the tail, which falls as exp(-k / (a mean))
        left, right = (2 / root * torch.asinh(root * end.sqrt()) for end in (start - 0.5, torch.maximum(start, last)))
        panels = int(((right - left) / _PANEL).ceil().max())
        nodes, shares = _panels(panels)
        nodes = (root / 2 * (left + (right - left) * nodes)).sinh().square() / root.square()
        at_once = max(1, _NUMBERS_AT_ONCE // means.numel())
        means, a = means.unsqueeze(1), a.unsqueeze(1)
        there = torch.cat([mixed(_probability_below(some, means, a)) for some in nodes.split(at_once)])
        widths = shares * (right - left) * (nodes + (root * nodes).square()).sqrt()
        spacing = product[:-1].sum(0) + slope / 24 + (widths * there * (1 - there)).sum(0)
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
    current = _log_probability(counts[0], means, a).exp()
    probability, factor = torch.empty_like(counts), torch.empty_like(current)
    for k, count in enumerate(counts):
        if k % 64 == 0 and bool(((current < 1e-290) & (means > count)).any()):  # too small to grow
            current = _log_probability(count, means, a).exp()
        probability[k] = mixed(current)
        torch.addcmul(rate, slope, count, out=factor)
        current.mul_(factor).mul_(1 / (count + 1))
    return probability.cumsum(0).clamp_max(1.0)


def _quantile(table: _Table, probability: float, means: Tensor, a: Tensor, mixed: Callable[[Tensor], Tensor]) -> Tensor:
    """The least count with P(Y <= count) >= probability: from the table, then by bisection where it has gaps.

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
        is_below = mixed(_probability_below(middle, means[:, open_cells], some_a)) < probability
        low[open_cells], high[open_cells] = (
            torch.where(is_below, middle, some_low),
            torch.where(is_below, some_high, middle),
        )
    return high


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
