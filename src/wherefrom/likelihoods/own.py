"""A likelihood of one's own: say the distribution of y that a network's outputs stand for, and all else follows.

    p(y | x, theta)  =  distribution(outputs)        any of torch.distributions, or a class with the same methods

The loss is -log p. The prediction is the mixture of the distributions of all answers: its mean and variance come from
theirs, quantiles by bisection of the distribution function, the CRPS by its integral. y and outputs are standardised.
"""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from wherefrom.likelihoods.likelihood import MemberScores, Moments, TableWishes
from wherefrom.likelihoods.quantities import OfNumbers, Quantities, checked_level, checked_probability
from wherefrom.predictive import background
from wherefrom.predictive.background import Blend
from wherefrom.predictive.calibration import By
from wherefrom.predictive.conformal import AnyConformal
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.row_scores import always_the_same
from wherefrom.training.data import Scaler, Schema, column_moments
from wherefrom.training.losses import Loss, mean_over_rows
from wherefrom.training.workers import one_core

_BISECTIONS = 60
_FAR, _POINTS = 12.0, 801  # standard deviations that the CRPS is integrated over, and points for them
_NO_TABLE = "tables learn the likelihoods of this library: use wf.marginalise with one of your own"


@dataclass(frozen=True)
class DistributionNLL:
    """-log p(y), where the outputs are the parameters of the distribution, one after another"""

    distribution: Callable[..., Any]
    parameters: int

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        return mean_over_rows(-self.distribution(*outputs.chunk(self.parameters, dim=-1)).log_prob(y), weights)


class OwnLikelihood(OfNumbers):
    """A likelihood of numbers by one method, `distribution`. Abstract.

    The network has an output for each of its parameters and each column of y. Where y cannot have any value,
    `check_targets` raises, and `units` says how y is scaled (by default, to a mean of 0 and a deviation of 1).
    """

    task: ClassVar[str] = "own"
    target: ClassVar[str] = "quantities"
    without_hidden: ClassVar[str] = "linear model"
    table_options: ClassVar[tuple[str, ...]] = ()
    calibrations: ClassVar[tuple[By, ...]] = ("conformal",)
    calibrates_tables: ClassVar[tuple[By, ...]] = ("conformal",)
    head: ClassVar[Head] = "none"
    has_density: ClassVar[bool] = True
    noise_kind: ClassVar[str] = "predicted"
    held_out: ClassVar[float] = 0.0  # type: ignore[misc]
    by_row: ClassVar[None] = None

    @abstractmethod
    def distribution(self, *parameters: Tensor) -> Any:
        """Return the distribution of a standardised y, of outputs (..., columns) for each parameter."""

    @property
    def parameters(self) -> int:
        """Number of parameters of the distribution."""
        return len(inspect.signature(self.distribution).parameters)

    # ------------------------------------------------------------------ training

    def check_targets(self, y: Tensor) -> None:
        return

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return column_moments(y, weights)

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have for this number of columns of y."""
        return self.parameters * targets

    def loss_for(self, scaler: Scaler) -> Loss:
        return DistributionNLL(self.distribution, self.parameters)

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        return math.inf

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        return None

    # ------------------------------------------------------------------ prediction

    def of_outputs(self, outputs: Tensor) -> Any:
        """The distributions that outputs stand for."""
        return self.distribution(*outputs.double().chunk(self.parameters, dim=-1))

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        distribution = self.of_outputs(outputs)
        return Moments(distribution.mean, spread, distribution.variance)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor | None:
        return moments.noise

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> OwnPrediction:
        answers, _, noise = self.moments(outputs.answers, None)
        mixture = replace(outputs, answers=answers, noise=noise)
        units = scaler.y_mean, scaler.y_std
        return OwnPrediction(mixture, self, outputs.answers, *units, schema.y_is_flat, schema.y_names)

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        raise ValueError(f"{self} has no noise to fit")

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        return background.of_quantities(scaler.y(y, torch.float64))

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return the NLL, and the absolute error of the mean in place of the CRPS."""
        z, distribution = scaler.y(y, torch.float64), self.of_outputs(outputs)
        nll = (scaler.y_std.log() - distribution.log_prob(z)).sum(-1)
        return MemberScores(nll, (scaler.y_std * (distribution.mean - z).abs()).mean(-1))

    def to_search(self, leaves_noise: bool) -> OwnLikelihood:
        return self

    @classmethod
    def of_table(cls, wishes: TableWishes) -> OwnLikelihood:
        raise ValueError(_NO_TABLE)


@dataclass(frozen=True, eq=False, repr=False)
class OwnPrediction(Quantities):
    """The prediction of an `OwnLikelihood` at some rows: a mixture of its distributions."""

    mixture: Mixture  # of their means, standardised
    likelihood: OwnLikelihood
    outputs: Tensor  # (members, samples, rows, parameters * columns)
    location: Tensor
    scale: Tensor
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: AnyConformal | None = None
    blend: Blend | None = None

    def _components(self, of: Callable[[Any], Tensor]) -> Tensor:
        """Something of the distributions of all answers that count.  # (components, rows, columns)"""
        live = slice(None) if self.weights is None else self.weights > 0
        return of(self.likelihood.of_outputs(self.outputs[live].flatten(0, 1)))

    @one_core()
    def cdf(self, y: Any) -> Tensor:
        """The probability of a value no larger than y.

        y: one value for each row.
        """
        return self._shape(self._below(self._standardised(y)))

    def _below(self, z: Tensor) -> Tensor:
        return self.mixture.mixed(self._components(lambda each: each.cdf(z)))

    @one_core()
    def quantile(self, probability: float) -> Tensor:
        """The value below which y falls with this probability, by bisection.

        probability: a number between 0 and 1.
        """
        p, mean = checked_probability(probability), self.mixture.mean
        reach = self.mixture.variance.sqrt()
        low, high = mean - reach, mean + reach
        for _ in range(_BISECTIONS):  # until both ends are beyond it
            is_above, is_below = self._below(low) > p, self._below(high) < p
            if not bool((is_above | is_below).any()):
                break
            reach = 2 * reach
            low, high = torch.where(is_above, mean - reach, low), torch.where(is_below, mean + reach, high)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            is_low = self._below(middle) < p
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        return self._in_units(high)

    @property
    def reading(self) -> str:
        """The reading of `interval` where none is asked for: "conformal" or "mixture"."""
        return "mixture" if self.conformal is None else "conformal"

    def interval(self, level: float = 0.95, reading: str | None = None) -> tuple[Tensor, Tensor]:
        """The interval that holds y with this probability.

        `reading` is "mixture", between two quantiles, or "conformal". Left out, it is the conformal one where the
        posterior was calibrated so.

        level: level of the interval (default 0.95).
        reading: "mixture" or "conformal" (default None: conformal if the posterior was calibrated so).
        """
        tail, reading = (1 - checked_level(level)) / 2, reading or self.reading
        if reading not in ("mixture", "conformal"):
            raise ValueError(f'reading must be "mixture" or "conformal", not {reading!r}')
        if reading == "conformal":
            low, high = self._conformal_ends(level)
            return self._in_units(low), self._in_units(high)
        return self.quantile(tail), self.quantile(1 - tail)

    @one_core()
    def log_density(self, y: Any) -> Tensor:
        """The log density of each column.  # (rows, columns)

        y: one value for each row.
        """
        z = self._standardised(y)
        return self.mixture.mixed_logs(self._components(lambda each: each.log_prob(z))) - self.scale.log()

    def nll(self, y: Any, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows (columns are added up); `by_row` gives each row's.

        y: the true values of these rows.
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = -self.log_density(y).sum(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, by_row: bool = False) -> Any:
        """CRPS, the integral of (P(Y <= t) - [y <= t])^2, over 12 deviations on each side.

        y: the true values of these rows.
        by_row: return one value for each row, instead of their mean (default False).
        """
        z, mean, std = self._standardised(y), self.mixture.mean, self.mixture.variance.sqrt()
        total = torch.zeros_like(z)
        below = torch.minimum(z, mean - _FAR * std), z, 0.0
        above = z, torch.maximum(z, mean + _FAR * std), 1.0
        for low, high, is_above in (below, above):
            step = (high - low) / (_POINTS - 1)
            for k in range(_POINTS):
                weight = 0.5 if k in (0, _POINTS - 1) else 1.0
                total += weight * step * (self._below(low + k * step) - is_above).square()
        each = (self.scale * total).mean(-1)
        return each if by_row else float(each.mean())

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log density that each member by itself gives y.  # (members, rows[, columns])"""
        logs = self.likelihood.of_outputs(self.outputs).log_prob(self._standardised(y)) - self.scale.log()
        logs = torch.logsumexp(logs, 1) - math.log(logs.shape[1])
        return logs if by_output else logs.sum(-1)

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Draw `count` values for every row: an answer, and then a value of its distribution.

        # (count, rows[, columns])

        count: samples of each row.
        seed: seed of the samples (default 0).
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            live = slice(None) if self.weights is None else self.weights > 0
            outputs, weights = self.outputs[live].flatten(0, 1), self.mixture.component_weights
            weights = torch.ones(len(outputs), dtype=torch.float64) if weights is None else weights
            chosen = torch.multinomial(weights, count * len(self), True).reshape(count, -1, 1)
            drawn = self.likelihood.of_outputs(outputs.gather(0, chosen.expand(-1, -1, outputs.shape[2]))).sample()
        return self._in_units(drawn)

    def blended(self, blend: Blend) -> OwnPrediction:
        raise ValueError(_NO_TABLE)

    def of_output(self, j: int) -> OwnPrediction:
        """One of several columns, alone."""
        one, columns = slice(j, j + 1), self.mixture.outputs
        conformal = None if self.conformal is None else self.conformal.of_output(j)
        outputs = self.outputs[..., j::columns]
        units = self.location[one], self.scale[one]
        return OwnPrediction(self.mixture.of_output(j), self.likelihood, outputs, *units, conformal=conformal)

    def of_rows(self, rows: Any) -> OwnPrediction:
        conformal = None if self.conformal is None else self.conformal.of_rows(rows)
        mixture, outputs = self.mixture.of_rows(rows), self.outputs[:, :, rows]
        return replace(self, mixture=mixture, outputs=outputs, conformal=conformal)

    @staticmethod
    def baselines(y: Tensor) -> dict[str, float]:
        return always_the_same(y)
