"""Quantiles: y is one quantity, and the network says some of its quantiles, without a distribution behind them.

Training minimises the pinball loss of each level p,  max(p (y - q), (p - 1) (y - q)). The outputs of a network are f
and z_1, ..., z_{n-1}: the middle quantile is f, and each quantile is u log(1 + exp(z)) above the one before it, so that
they cannot cross (u is their distance in a standard normal distribution over log 2: outputs of zero are its quantiles).
The prediction is the mean of the networks' quantiles at each level, which cannot cross either; how far the networks
differ is its variance, and the sources split that.

There is no density, and so no NLL. With weights w_i, the part of (0, 1) that is nearer to p_i than to another level,

    CRPS  =  2 sum_i w_i pinball_i

which is the CRPS itself in the limit of many levels. Conformal calibration is that of Romano, Patterson and Candès
(2019, "Conformalized quantile regression"): of n rows that were not trained on, s_i = max(low_i - y_i, y_i - high_i)
says how much an interval falls short, and both ends of all intervals move outwards by the ceil((n + 1) level)-th
smallest s. If rows are exchangeable, they hold the truth with a probability of at least the level; with folds (CV+), at
least 2 level - 1 - sqrt(2 / n), and about the level in practice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.likelihood import Columns, MemberScores, Moments, TableWishes
from wherefrom.likelihoods.quantities import (
    TIE_BREAK,
    OfNumbers,
    Quantities,
    checked_level,
    checked_probability,
    share_within,
)
from wherefrom.likelihoods.views import quantiles as views
from wherefrom.predictive import pictures
from wherefrom.predictive.background import Added, Background, Blend
from wherefrom.predictive.calibration import By, or_nan
from wherefrom.predictive.conformal import AnyConformal, ConformalScores
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.panels import Output
from wherefrom.predictive.sources import Sources, sources
from wherefrom.training.data import Scaler, Schema, as_targets, column_moments
from wherefrom.training.losses import Loss, Pinball, ordered_quantiles
from wherefrom.training.workers import one_core

_OF_TABLES = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
_SAME = 1e-9  # levels that differ by less
_NO_DENSITY = "quantiles are no distribution: there is no density, and no NLL. Use pinball(y) or crps(y)"


@stored("Quantiles")
@dataclass(frozen=True)
class Quantiles(OfNumbers):
    """Quantiles of one quantity: the network predicts them at the given levels; no distribution is assumed.

    levels: probabilities between 0 and 1; they are sorted. An interval of 90% needs the levels 0.05 and 0.95 (default:
        0.05, 0.5 and 0.95).

    >>> Quantiles([0.05, 0.5, 0.95]).outputs(targets=1)
    3
    """

    task: ClassVar[str] = "quantiles"
    target: ClassVar[str] = "quantiles"
    without_hidden: ClassVar[str] = "linear quantile regression"
    table_options: ClassVar[tuple[str, ...]] = ()
    calibrations: ClassVar[tuple[By, ...]] = ("conformal",)
    calibrates_tables: ClassVar[tuple[By, ...]] = ("conformal",)
    has_density: ClassVar[bool] = False
    noise_kind: ClassVar[str] = "none"
    held_out: ClassVar[float] = 0.0  # type: ignore[misc]
    head: ClassVar[Head] = "none"  # quantiles are no linear function of outputs
    by_row: ClassVar[None] = None
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)

    def __post_init__(self) -> None:
        if isinstance(self.levels, str) or not hasattr(self.levels, "__iter__"):
            raise TypeError(f"levels are numbers between 0 and 1, as [0.05, 0.5, 0.95], not {self.levels!r}")
        levels = tuple(sorted(float(level) for level in self.levels))
        if not levels or not all(0 < level < 1 for level in levels) or min(np.diff(levels), default=1.0) < _SAME:
            raise ValueError(f"levels lie between 0 and 1, each named once, as [0.05, 0.5, 0.95], unlike {self.levels}")
        object.__setattr__(self, "levels", levels)

    # ------------------------------------------------------------------ training

    def check_targets(self, y: Tensor) -> None:
        if y.shape[1] > 1:
            raise ValueError(f"y has {y.shape[1]} columns; quantiles are of one: give each its own in wf.Several(...)")

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return column_moments(y, weights)

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have: one for each level."""
        return len(self.levels)

    @property
    def gap_units(self) -> tuple[float, ...]:
        """Distances of the quantiles where the outputs are zero, over log 2."""
        normal = torch.special.ndtri(torch.tensor(self.levels, dtype=torch.float64))
        return tuple((normal.diff() / math.log(2)).tolist())

    def loss_for(self, scaler: Scaler) -> Loss:
        return Pinball(self.levels, self.gap_units)

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        return 3.0 if is_standardised else math.inf

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        return None

    # ------------------------------------------------------------------ prediction

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the quantiles."""
        return Moments(self._ordered(outputs), spread, None)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> None:
        return None

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> QuantilePrediction:
        with one_core():
            mixture = replace(outputs, answers=self._ordered(outputs.answers))
        each = torch.ones(len(self.levels), dtype=torch.float64)
        return QuantilePrediction(mixture, self.levels, scaler.y_mean * each, scaler.y_std * each, schema.y_names)

    def _ordered(self, outputs: Tensor) -> Tensor:
        outputs = outputs.double()
        return ordered_quantiles(outputs, outputs.new_tensor(self.gap_units))

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        raise ValueError(f"{self} has no noise to fit")

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        """Quantiles of y over all rows; each varies as y does: two points, one deviation away."""
        standardised = scaler.y(y, torch.float64)[:, 0]
        quantiles = standardised.quantile(torch.tensor(self.levels, dtype=torch.float64))
        std = standardised.std(correction=0).clamp_min(1e-12)
        return torch.stack([quantiles - std, quantiles + std]), torch.zeros(len(self.levels), dtype=torch.float64)

    # ------------------------------------------------------------------ choosing how to train

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return the CRPS of each network; where there is no density, it takes the place of the NLL."""
        error = y.double() - (scaler.y_mean + scaler.y_std * self._ordered(outputs))
        each = 2 * _pinball(error, self.levels) @ _weights(self.levels)
        return MemberScores(each, each)

    def to_search(self, leaves_noise: bool) -> Quantiles:
        return self

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Quantiles:
        return cls(_OF_TABLES)


def _pinball(error: Tensor, levels: Sequence[float]) -> Tensor:
    """Pinball loss of y - q at each level.  # (..., levels)"""
    p = torch.tensor(levels, dtype=torch.float64)
    return torch.maximum(p * error, (p - 1) * error)


def _weights(levels: Sequence[float]) -> Tensor:
    """The part of (0, 1) that is nearer to each level than to another."""
    middles = [(low + high) / 2 for low, high in pairwise(levels)]
    return torch.tensor([0.0, *middles, 1.0], dtype=torch.float64).diff()


@dataclass(frozen=True, eq=False, repr=False)
class QuantilePrediction(Quantities):
    """Quantiles of y at some rows, at the `levels` that were trained.

    `quantiles` has a column for each level; `variance` and `std` say how far the networks differ in each.
    """

    picture_kinds: ClassVar[dict[str, pictures.Picture]] = {
        "intervals": pictures.intervals,
        "sources": pictures.sources,
    }
    noun: ClassVar[str] = "quantile"
    is_joint: ClassVar[bool] = True
    conformal_is_signed: ClassVar[bool] = False
    mixture: Mixture  # of standardised quantiles
    levels: tuple[float, ...]
    location: Tensor  # (levels,), all the same
    scale: Tensor
    y_names: tuple[str, ...] = ()
    is_flat: bool = False
    conformal: AnyConformal | None = None
    blend: Blend | None = None

    # ------------------------------------------------------------------ quantiles

    @property
    def quantiles(self) -> Tensor:
        """The quantile of each trained level, the mean over all answers.  # (rows, levels)"""
        return self.mean

    @one_core()
    def quantile(self, probability: float) -> Tensor:
        """The value below which y falls with this probability; linear between two trained levels.  # (rows,)

        probability: a number between 0 and 1.
        """
        p, levels = checked_probability(probability), self.levels
        if not levels[0] - _SAME <= p <= levels[-1] + _SAME:
            raise ValueError(
                f"quantiles were trained from {levels[0]:g} to {levels[-1]:g}, and are not known beyond: "
                f"train wf.Quantiles([..., {p:g}, ...])"
            )
        quantiles = self.quantiles
        above = next((i for i, level in enumerate(levels) if level >= p - _SAME), len(levels) - 1)
        if abs(levels[above] - p) <= _SAME:
            return quantiles[:, above]
        share = (p - levels[above - 1]) / (levels[above] - levels[above - 1])
        return (1 - share) * quantiles[:, above - 1] + share * quantiles[:, above]

    @one_core()
    def cdf(self, y: Any) -> Tensor:
        """The probability of a value no larger than y; linear between two trained quantiles, as `quantile` is.

        Below the first quantile it is the first level, and the probability is no larger; above the last quantile it is
        the last level, and the probability is no smaller.  # (rows,)

        y: one value for each row.
        """
        column, quantiles = self._column(y), self.quantiles
        levels = torch.tensor(self.levels, dtype=torch.float64)
        above = (quantiles <= column).sum(1, keepdim=True)  # number of the first quantile above y
        low, high = (above - 1).clamp_min(0), above.clamp_max(len(levels) - 1)
        start, end = quantiles.gather(1, low), quantiles.gather(1, high)
        share = torch.where(end > start, (column - start) / (end - start), 0.0)
        return torch.lerp(levels[low], levels[high], share)[:, 0]

    @property
    def pairs(self) -> dict[float, tuple[int, int]]:
        """The intervals whose two quantiles are there: their levels, and where the quantiles stand."""
        columns = {round(level, 9): column for column, level in enumerate(self.levels)}
        mirrored = {column: columns.get(round(1 - level, 9)) for level, column in columns.items()}
        return {
            round(self.levels[high] - self.levels[low], 9): (low, high)
            for low, high in mirrored.items()
            if high is not None and low < high
        }

    def interval(self, level: float = 0.9, reading: str | None = None) -> tuple[Tensor, Tensor]:
        """The interval between two trained quantiles, as 0.05 and 0.95 for a level of 0.9.  # (rows,) each

        `reading` is "quantiles", or "conformal": their ends moved as rows say that were not trained on. Left out, it
        is the conformal one where the posterior was calibrated so.

        level: level of the interval (default 0.9).
        reading: "quantiles" or "conformal" (default None: conformal if the posterior was calibrated so).
        """
        number, (low, high) = self._pair(level)
        reading = reading or ("quantiles" if self.conformal is None else "conformal")
        if reading not in ("quantiles", "conformal"):
            raise ValueError(f'reading must be "quantiles" or "conformal", not {reading!r}')
        networks = replace(self, blend=None).quantiles
        ends = networks[:, low], networks[:, high]
        if reading == "conformal":
            if self.conformal is None:
                raise ValueError('there is no conformal interval: predict by posterior.calibrated("conformal", (x, y))')
            moved = self.conformal.widened(self.mixture, level, number, (low, high))
            ends = self._value(moved[0], low), self._value(moved[1], high)
        if self.blend is not None:  # the background moves ends outwards, and never inwards
            weight, others = self.blend.weight[:, 0], self.location + self.scale * self.blend.mean
            ends = (
                ends[0] - weight * (ends[0] - others[:, low]).clamp_min(0),
                ends[1] + weight * (others[:, high] - ends[1]).clamp_min(0),
            )
        return ends

    def _value(self, standardised: Tensor, column: int) -> Tensor:
        return self.location[column] + self.scale[column] * standardised

    def _pair(self, level: float) -> tuple[int, tuple[int, int]]:
        """Return the number of an interval among all, and where its quantiles stand."""
        level = checked_level(level)
        for number, (trained, columns) in enumerate(self.pairs.items()):
            if abs(trained - level) < _SAME:
                return number, columns
        tail = (1 - level) / 2
        there = ", ".join(f"{trained:g}" for trained in self.pairs) or "none"
        raise ValueError(
            f"an interval of {level:g} lies between the quantiles {tail:g} and {1 - tail:g}, which were not trained: "
            f"there are intervals of {there}"
        )

    def uncalibrated_interval(self, level: float) -> tuple[Tensor, Tensor]:
        return self.interval(level, "quantiles")

    # ------------------------------------------------------------------ scores

    def pinball(self, y: Any, by_level: bool = False) -> Any:
        """Pinball loss of the quantiles: the mean over rows and levels, or that of each level.

        y: the true values of these rows.
        by_level: return one value for each level (default False: their mean).
        """
        each = _pinball(self._column(y) - self.quantiles, self.levels)
        return each.mean(0) if by_level else float(each.mean())

    def crps(self, y: Any, by_row: bool = False) -> Any:
        """CRPS by the trained levels: twice their pinball losses, each by the part of (0, 1) that is nearest to it.

        y: the true values of these rows.
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = 2 * _pinball(self._column(y) - self.quantiles, self.levels) @ _weights(self.levels)
        return each if by_row else float(each.mean())

    def coverage(self, y: Any, level: float = 0.9, reading: str | None = None) -> float:
        """The fraction of y that lies within the `interval` of this level.

        y: the true values of these rows.
        level: level of the interval (default 0.9).
        reading: "quantiles" or "conformal" (default None: conformal if the posterior was calibrated so).
        """
        return share_within(self._column(y)[:, 0], *self.interval(level, reading))

    def below(self, y: Any) -> Tensor:
        """The fraction of y at or below each quantile, which should be its level.  # (levels,)

        y: the true values of these rows.
        """
        return (self._column(y) <= self.quantiles).double().mean(0)

    def rmse(self, y: Any) -> float:
        """Root mean squared error of the quantile that is nearest to the median.

        y: the true values of these rows.
        """
        return float((self.central - self._column(y)[:, 0]).square().mean().sqrt())

    def nll(self, y: Any, *, by_row: bool = False) -> Any:
        raise ValueError(_NO_DENSITY)

    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        raise ValueError(_NO_DENSITY)

    def sample(self, count: int, seed: int = 0) -> Tensor:
        raise ValueError(
            "quantiles are no distribution: beyond the first and the last level there is nothing to draw from. Use "
            "quantile(p) between them"
        )

    # ------------------------------------------------------------------ sources

    @one_core()
    def sources(self, by_level: bool = True) -> Sources:
        """Split the variance of each quantile over the choices of training; added up over levels if not `by_level`.

        by_level: split the variance of each level (default True); otherwise their sum.
        """
        if by_level:
            return sources(self.mixture, self.scale, is_flat=False, added=self._added, unit="variance of quantiles")
        weights, added = self.scale.square().expand(len(self), -1), self._added
        if added is not None:
            added = Added(added.kept, (weights * added.amount).sum(1, keepdim=True))
        return sources(self.mixture, together=weights, added=added, unit="variance of quantiles")

    def all_sources(self) -> Sources:
        return self.sources(by_level=False)

    # ------------------------------------------------------------------ reports and tables

    @property
    def central(self) -> Tensor:
        """The quantile that is nearest to the median.  # (rows,)"""
        return self.quantiles[:, self._central]

    @property
    def _central(self) -> int:
        return min(range(len(self.levels)), key=lambda column: abs(self.levels[column] - 0.5))

    @property
    def row_doubt(self) -> Tensor:
        width = self.quantiles[:, -1] - self.quantiles[:, 0]
        return self.variance.mean(1).sqrt() + TIE_BREAK * width

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        return views.outputs(self, truth, names, noise, unit)

    def columns(self, level: float) -> tuple[Columns, list[str]]:
        columns: Columns = {
            f"q {trained:g}": values.numpy() for trained, values in zip(self.levels, self.quantiles.T, strict=True)
        }
        notes, asked = [], level
        if self.pairs and level not in self.pairs:
            asked = max(self.pairs)
            notes = [f"an interval of {level:.0%} was not trained; that of {asked:.0%} is written"]
        if self.pairs:
            low, high, more = self._interval_there_is(asked)
            columns |= {"lower": low.numpy(), "upper": high.numpy()}
            notes += more
        return columns | {"std": self.std[:, self._central].numpy()}, notes

    def row_scores(self, columns: Columns, truth: Any) -> Columns:
        y = self._column(truth)[:, 0].numpy()
        scores = {"truth": y, "mean": self.central.numpy(), "crps": self.crps(truth, by_row=True).numpy()}
        low, high = (columns.get(name, np.full(len(y), np.nan)) for name in ("lower", "upper"))
        return scores | {"covered": (y >= low) & (y <= high), "width": np.nan_to_num(high - low)}

    def row_losses(self, y: Any) -> Columns:
        return {"crps": self.crps(y, by_row=True).numpy(), "mae": self.row_errors(y)[0].numpy()}

    def row_errors(self, y: Any) -> tuple[Tensor, Tensor]:
        width = self.quantiles[:, -1] - self.quantiles[:, 0]
        return (self._column(y)[:, 0] - self.central).abs(), width

    def scores_by_level(self, y: Any, levels: Sequence[float]) -> dict[str, float]:
        scores = {"CRPS": self.crps(y), "pinball loss": self.pinball(y)}
        for level in self.pairs:
            scores[f"coverage of {level:.0%}"] = or_nan(self.coverage, y, level)
            scores[f"width of {level:.0%}, in deviations of y"] = or_nan(self._width, level)
        return scores

    def _width(self, level: float) -> float:
        low, high = self.interval(level)
        return float(((high - low) / self.scale[0]).mean())

    @staticmethod
    def baselines(y: Tensor) -> dict[str, float]:
        """Scores of the distribution of all rows."""
        ordered = y.double().flatten().sort().values
        places = 2 * torch.arange(1, len(ordered) + 1, dtype=torch.float64) - len(ordered) - 1
        crps = float((places * ordered).sum() / len(ordered) ** 2)  # E |Y - Y'| / 2
        return {"crps": crps, "rmse": float(y.std(correction=0)), "r2": 0.0}

    # ------------------------------------------------------------------ calibration and rows outside

    @property
    def conformal_columns(self) -> int:
        return len(self.pairs)

    def conformal_scores(self, y: Any) -> ConformalScores:
        if not self.pairs:
            raise ValueError("an interval takes two quantiles, as 0.05 and 0.95: no two of those trained make one")
        z = (self._column(y) - self.location) / self.scale  # (rows, levels), all the same
        mean = self.mixture.mean
        scores = [
            torch.maximum(mean[:, low] - z[:, low], z[:, high] - mean[:, high]) for low, high in self.pairs.values()
        ]
        return ConformalScores(torch.stack(scores, 1), False, "intervals", "infinite intervals")

    def needed_stretch(self, background: Background, level: float) -> Tensor:
        return torch.ones(len(self.levels), dtype=torch.float64)

    # ------------------------------------------------------------------ parts

    def of_rows(self, rows: Any) -> QuantilePrediction:
        conformal = None if self.conformal is None else self.conformal.of_rows(rows)
        blend = None if self.blend is None else self.blend.of_rows(rows)
        return replace(self, mixture=self.mixture.of_rows(rows), conformal=conformal, blend=blend)

    def _column(self, y: Any) -> Tensor:
        """y as (rows, 1), checked against this prediction."""
        values = as_targets(y)
        column = values.unsqueeze(1) if values.ndim == 1 else values
        if column.shape != (len(self), 1):
            raise ValueError(f"y has shape {tuple(values.shape)}, but the prediction is for {len(self)} rows")
        return column
