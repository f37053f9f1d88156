"""Likelihoods and predictions of numbers, whatever their distribution is. Both classes are abstract.

`OfNumbers` is a likelihood without its fields, loss, noise and prediction. `Quantities` is a prediction without its
distribution: a prediction adds quantile, interval, cdf, log_density, nll, crps and member_log_densities.
Answers are standardised: y's unit is location + scale * answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from wherefrom.likelihoods.likelihood import Cells, Columns, Summary, TableWishes
from wherefrom.likelihoods.target import Target
from wherefrom.likelihoods.views import quantity
from wherefrom.predictive import pictures
from wherefrom.predictive.advice import Subject
from wherefrom.predictive.background import Added, Background, Blend
from wherefrom.predictive.calibration import By, or_nan
from wherefrom.predictive.conformal import AnyConformal, ConformalScores, unit
from wherefrom.predictive.few_members import Few, variance_of_mean
from wherefrom.predictive.mixture import HoldsMixture, Mixture
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.panels import Output
from wherefrom.predictive.row_scores import of_quantities
from wherefrom.predictive.sources import Sources, sources
from wherefrom.training.data import as_targets, column_names
from wherefrom.training.objective import Encoded, Label
from wherefrom.training.workers import one_core

_NEARLY_ALL = 0.99  # of the rows
TIE_BREAK = 1e-9  # of all doubt, by which rows are put in order where no choice causes any


class OfNumbers(Target, ABC):
    """A likelihood of one or several columns of numbers."""

    named_classes: ClassVar[tuple[Label, ...]] = ()
    learns_logs: ClassVar[bool] = False
    has_atoms: ClassVar[bool] = False
    cells: ClassVar[Cells] = "numbers"
    head: ClassVar[Head] = "identity"
    held_out: float

    @property
    @abstractmethod
    def noise_kind(self) -> str: ...

    @property
    def fits_noise(self) -> bool:
        return self.noise_kind == "fit"

    @abstractmethod
    def check_targets(self, y: Tensor) -> None:
        """Raise where y holds what it cannot be.  # (rows, columns)"""

    def encode(self, y: Any, classes: tuple[Label, ...] = ()) -> Encoded:
        values = as_targets(y)
        matrix = values if values.ndim == 2 else values.unsqueeze(1)
        self.check_targets(matrix)
        return Encoded(matrix, values.ndim == 1, matrix.shape[1], column_names(y))

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have for this number of columns of y."""
        return 2 * targets if self.noise_kind == "predicted" else targets

    def check_network(self, model: str, outputs: int, targets: int) -> None:
        if outputs != (needed := self.outputs(targets)):
            raise ValueError(
                f"{model} has {outputs} outputs, but {self} needs {needed} "
                f"for {targets} column{'s' * (targets > 1)} of y"
            )


def check_noise(name: str, noise: Any, held_out: float, may_be_none: bool = False) -> None:
    """Raise unless a noise is a number, "fit" or "predicted", and `held_out` a fraction."""
    none = "None, " * may_be_none
    if isinstance(noise, str):
        if noise not in ("fit", "predicted"):
            raise ValueError(f'{name} must be {none}a number, "fit" or "predicted", not {noise!r}')
    elif not (may_be_none and noise is None) and (isinstance(noise, bool) or not isinstance(noise, Real)):
        raise TypeError(f'{name} must be {none}one number, "fit" or "predicted", not {noise!r}')
    if not 0 < held_out < 1:
        raise ValueError(f"held_out is a fraction of the rows, between 0 and 1, not {held_out}")


def fitted_noise(name: str, fitted: Tensor | None) -> Tensor:
    """Return what was fitted, if anything was."""
    if fitted is None:
        raise ValueError(
            f"the {name} of these members is not fitted, and there are no held-out rows at hand: "
            "give rows that were not trained on to fit_noise((x, y))"
        )
    return fitted


def noise_of_table(wishes: TableWishes, none: float | None) -> Any:
    """Return the noise that a user of a table asks for; `none` is what no noise is called."""
    words = {"auto": "fit", "fit": "fit", "predicted": "predicted", "none": none}
    return words[wishes.noise] if wishes.noise in words else float(wishes.noise)


def checked_variance(variance: Tensor) -> Tensor:
    """Return the variance of each row, if none is zero.  # (rows, outputs)"""
    if empty := int((variance <= 0).any(-1).sum()):
        raise ValueError(
            f"the predictive variance is zero at {empty} of {len(variance)} rows, where a density does not exist: "
            "marginalise a variable, take more samples, or give the likelihood a noise"
        )
    return variance


class Calibrated(NamedTuple):
    """A prediction and the truth on the scale on which variance and shape are calibrated."""

    prediction: Any
    y: Any
    rows: Tensor | None = None  # of the prediction's own, where not all are there
    shift: Tensor | None = None  # (rows,), what its NLL lacks to be that of y


class Quantities(HoldsMixture):
    """A predictive distribution over one or several columns of numbers."""

    doubt_of: ClassVar[str] = OfNumbers.doubt_of
    is_joint: ClassVar[bool] = False
    picture_kinds: ClassVar[dict[str, pictures.Picture]] = {
        "intervals": pictures.intervals,
        "calibration": pictures.calibration,
        "sources": pictures.sources,
    }
    conformal_is_signed: ClassVar[bool] = True
    is_whole: ClassVar[bool] = False  # whether y, and so its quantiles, are whole numbers
    noise_of: ClassVar[str] = ""  # the likelihood whose noise can be set, by its name
    widened_by: ClassVar[By] = "variance"  # the calibration that mends intervals
    mixture: Mixture
    scale: Tensor  # (outputs,)
    is_flat: bool
    y_names: tuple[str, ...]
    conformal: AnyConformal | None
    least: float | None = None  # that y can be
    blend: Blend | None  # with the distribution of y over the training rows, where rows are outside

    # A prediction's own.
    location: Any  # (outputs,)
    quantile: Any
    interval: Any
    log_density: Any
    nll: Any
    crps: Any
    baselines: Any  # the scores of one answer for all rows: y -> by name

    # ------------------------------------------------------------------ moments

    @cached_property
    @one_core()
    def samples(self) -> Tensor:
        """Answers in y's units, whatever their members weigh; of a one-shot prediction, its means.

        # (members, samples, rows[, outputs])
        """
        return self._shape(self.location + self.scale * self.answers.double())

    @property
    def mean(self) -> Tensor:
        return self._in_units(self._moments[0])

    @property
    def variance(self) -> Tensor:
        """The members' mean noise and spread plus the variance of all answers (with divisor K, as in the paper).

        Members' weights count in both.
        """
        return self._shape(self.scale.square() * self._moments[1])

    @property
    def unbiased_variance(self) -> Tensor:
        """The variance with all members and samples that could be drawn: `variance`, and that of the mean.

        `variance` divides by their number, as the paper does, and is too small with few of them.
        """
        missing = self.scale.square() * variance_of_mean(self.mixture)
        if self.blend is not None:
            missing = (1 - self.blend.weight) * missing
        return self.variance + self._shape(missing)

    @property
    def noise_variance(self) -> Tensor:
        """The part of the variance that is noise in y, which no training would remove."""
        noise = self.mixture.mean_noise
        return self._shape(self.scale.square() * (noise if self.blend is None else (1 - self.blend.weight) * noise))

    def rmse(self, y: Any) -> float:
        """Root mean squared error of the mean."""
        return float((self.mean - self._y(y)).square().mean().sqrt())

    @property
    def median(self) -> Tensor:
        half: Tensor = self.quantile(0.5)
        return half

    def coverage(self, y: Any, level: float = 0.95, reading: Any = None) -> float:
        """The fraction of y that lies within the `interval` of this level and reading."""
        return share_within(self._y(y), *self.interval(level, reading))

    @one_core()
    def sources(self) -> Sources:
        """The sources of the variance, row by row and overall."""
        return sources(self.mixture, self.scale, self.is_flat, added=self._added)

    # ------------------------------------------------------------------ rows outside

    def blended(self, blend: Blend) -> Self:
        """Mix the distribution of y over the training rows into that of each row, by its weight."""
        return replace(self, blend=blend)  # type: ignore[type-var]

    def needed_stretch(self, background: Background, level: float) -> Tensor:
        """Factor of the background's variance that makes it as wide as 99% of these rows.  # (outputs,)

        It compares standard deviations, and intervals of this level.
        """
        low, high, _ = self._interval_there_is(level)
        widths = self._matrix_of(high - low) / self.scale
        tail = (1 - level) / 2
        width = background.quantile(1 - tail)[0] - background.quantile(tail)[0]
        by_width = widths.quantile(_NEARLY_ALL, dim=0) / width
        by_variance = self.mixture.variance.quantile(_NEARLY_ALL, dim=0) / background.variance[0]
        return torch.maximum(by_width.square(), by_variance).clamp_min(1.0)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of y, standardised.  # (rows, outputs) each"""
        mean, variance = self.mixture.mean, self.mixture.variance
        return (mean, variance) if self.blend is None else self.blend.moments(mean, variance)

    @property
    def _added(self) -> Added | None:
        """The variance that the training rows' own distribution adds, standardised."""
        return None if self.blend is None else self.blend.added(self.mixture.mean, self.mixture.variance)

    def _outward(self, level: float, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Move the ends of the networks' interval towards those of the background, as far as it weighs; never inwards.

        # (rows[, outputs]) each
        """
        if self.blend is None:
            return low, high
        weight = self._shape(self.blend.weight.expand(-1, self.mixture.outputs))
        lowest, highest = self._background_ends(level)
        return low - weight * (low - lowest).clamp_min(0), high + weight * (highest - high).clamp_min(0)

    def _background_ends(self, level: float) -> tuple[Tensor, Tensor]:
        """The ends of the background's interval, in y's units.  # (rows[, outputs]) each"""
        assert self.blend is not None
        moments, tail = (self.mixture.mean, self.mixture.variance), (1 - level) / 2
        low, high = self.blend.quantile(tail, *moments), self.blend.quantile(1 - tail, *moments)
        return self._in_units(low), self._in_units(high)

    # ------------------------------------------------------------------ reports and tables

    @property
    def row_doubt(self) -> Tensor:
        by_choices = (self.variance - self.noise_variance).clamp_min(0.0).sqrt()
        return by_choices + TIE_BREAK * self.std

    def all_sources(self) -> Sources:
        return self.sources()

    @property
    def doubt_variance(self) -> Tensor:
        """The variance that the sources are shares of."""
        return self.variance

    @property
    def read_as(self) -> str:
        """The distribution that intervals and scores are of, in words."""
        shape = getattr(self, "shape", None)
        return f"{'a Gaussian' if shape is None else shape.words} with its mean and variance"

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        return quantity.outputs(self, truth, names, noise, unit)

    def uncalibrated_interval(self, level: float) -> tuple[Tensor, Tensor]:
        """Interval of the distribution itself."""
        low, high = replace(self, conformal=None).interval(level)  # type: ignore[type-var]
        return low, high

    def _interval_there_is(self, level: float) -> tuple[Tensor, Tensor, list[str]]:
        """Return the interval, or the distribution's own if too few rows were calibrated on for so high a level."""
        try:
            return *self.interval(level), []
        except ValueError as error:
            return *self.uncalibrated_interval(level), [f"{error}; the distribution's own interval is taken"]

    def columns(self, level: float) -> tuple[Columns, list[str]]:
        return self._columns(level)

    def _columns(self, level: float) -> tuple[Columns, list[str]]:
        """Return what is written of every quantity."""
        low, high, notes = self._interval_there_is(level)
        columns = {"mean": self.mean, "median": self.median, "std": self.std, "lower": low, "upper": high}
        return {name: self._written(name, values).numpy() for name, values in columns.items()}, notes

    def _written(self, name: str, values: Tensor) -> Tensor:
        """Return a column's values as they are written: those that are counts as whole numbers."""
        is_count = self.is_whole and name not in ("mean", "std") and bool(values.isfinite().all())
        return values.long() if is_count else values

    def row_scores(self, columns: Columns, truth: Any) -> Columns:
        truth = np.asarray(truth, dtype=np.float64)
        scores = {
            "truth": truth,
            "mean": columns["mean"],
            "covered": (truth >= columns["lower"]) & (truth <= columns["upper"]),
            "lower": columns["lower"].astype(np.float64),
            "upper": columns["upper"].astype(np.float64),
            "width": (columns["upper"] - columns["lower"]).astype(np.float64),
            "crps": self.crps(truth, by_row=True).numpy(),
        }
        return scores | self._row_nll(truth)

    def _row_nll(self, y: Any) -> Columns:
        """NLL of each row; nothing where some have no density."""
        return {"nll": self.nll(y, by_row=True).numpy()} if bool((self.std > 0).all()) else {}

    def row_losses(self, y: Any) -> Columns:
        error = self._matrix(y) - self._matrix_of(self.mean)
        return self._row_nll(y) | {"mae": error.abs().mean(-1).numpy()}

    def row_errors(self, y: Any) -> tuple[Tensor, Tensor]:
        return (self._y(y) - self.mean).abs(), self.noise_variance.sqrt()

    @classmethod
    def summary(cls, rows: Mapping[str, Tensor], event: int | None = None) -> Summary:
        scores = of_quantities(rows["truth"], rows["mean"], rows["covered"], rows["crps"], rows.get("nll"))
        sizes = {"mean width of the interval": float(rows["width"].mean())}
        return Summary(scores, cls.baselines(rows["truth"]), sizes, "interval")

    # ------------------------------------------------------------------ calibration

    def to_calibrate(self, y: Any) -> Calibrated:
        """The prediction and the truth on the scale on which variance and shape are calibrated."""
        return Calibrated(self, y)

    def linear_moments(self, y: Any) -> tuple[Tensor, Tensor, Tensor] | None:
        """Mean, variance and truth where the networks' answers are linear, to weigh families by; None: nowhere.

        # (rows, outputs) each
        """
        return self._matrix_of(self.mean), self._matrix_of(self.variance), self._matrix(y)

    @property
    def conformal_columns(self) -> int:
        return self.mixture.outputs

    def conformal_scores(self, y: Any) -> ConformalScores:
        return self._conformal_scores(y)

    def _conformal_scores(self, y: Any) -> ConformalScores:
        """Return deviations, as scores of intervals."""
        return ConformalScores(self.deviation(y), is_signed=True, what="intervals", all_there_is="infinite intervals")

    def advice_subject(self) -> Subject:
        return Subject(self.mixture)

    def scores_by_level(self, y: Any, levels: Sequence[float]) -> dict[str, float]:
        scores = {"NLL": or_nan(self.nll, y), "CRPS": self.crps(y)}
        for level in levels:
            scores[f"coverage of {level:.0%}"] = or_nan(self.coverage, y, level)
            scores[f"width of {level:.0%}, in deviations of y"] = or_nan(self._width, level)
        return scores

    def _width(self, level: float) -> float:
        low, high = self.interval(level)
        return float(((high - low) / self.unit).mean())

    @property
    def reads_as_gaussian(self) -> bool:
        """True if a factor of its variance has a closed form, that of a Gaussian."""
        return True

    def stretched_nll(self, y: Any, reading: Any) -> Callable[[Tensor], Tensor]:
        """Return the NLL of a distribution whose variance is stretched, by row, as a function of the log factor.

        It is that of p(mean + (y - mean) / s) / s.  # (outputs,) -> (rows, outputs)
        """
        mean = self.location + self.scale * self.mixture.mean
        gap, density = self._matrix(y) - mean, self.log_density

        def nll(log_factor: Tensor) -> Tensor:
            stretched: Tensor = log_factor / 2 - density(mean + gap * (-log_factor / 2).exp(), reading)
            return stretched

        return nll

    @one_core()
    def deviation(self, y: Any) -> Tensor:
        """Distance of y above the mean, in predictive standard deviations.  # (rows, outputs)

        Where there is no variance at all, in units of y's scale.
        """
        return (self._standardised(y) - self.mixture.mean) / unit(self.mixture.variance)

    def _conformal_ends(self, level: float) -> tuple[Tensor, Tensor]:
        """Return the ends of the conformal interval, standardised.  # (rows, outputs) each"""
        return self._checked_conformal.ends(self.mixture, level)

    @property
    def _checked_conformal(self) -> AnyConformal:
        if self.conformal is None:
            raise ValueError('there is no conformal interval: predict by posterior.calibrated("conformal", (x, y))')
        return self.conformal

    # ------------------------------------------------------------------ units and shapes

    def exported(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance in y's units, of standardised ones.  # (rows, outputs)"""
        return self._in_units(mean), self._shape(self.scale.square() * variance)

    def exported_quantiles(self, probabilities: Sequence[float]) -> Callable[[Tensor, Tensor, Few], Tensor]:
        raise ValueError(
            f"the quantiles of {type(self).__name__} are searched for, row by row, which a file cannot do: leave "
            "`quantiles` out, and use its mean and variance"
        )

    @property
    def unit(self) -> Tensor:
        """The size of y, to compare errors by.  # (outputs,)"""
        return self.scale

    def _in_units(self, standardised: Tensor) -> Tensor:
        """A value that y can have, in its units."""
        values = self.location + self.scale * standardised
        return self._shape(values if self.least is None else values.clamp_min(self.least))

    def _of_output(self, j: int, **others: Any) -> Any:
        """One of several outputs, alone, with those parts of it that others know."""
        conformal = None if self.conformal is None else self.conformal.of_output(j)
        blend = None if self.blend is None else self.blend.of_output(j)
        parts = {"mixture": self.mixture.of_output(j), "is_flat": True, "y_names": (), "conformal": conformal}
        return replace(self, **parts, blend=blend, **others)  # type: ignore[type-var]

    def _of_rows(self, rows: Any, **others: Any) -> Any:
        """Some of the rows, with those parts of them that others know."""
        conformal = None if self.conformal is None else self.conformal.of_rows(rows)
        blend = None if self.blend is None else self.blend.of_rows(rows)
        mixture = self.mixture.of_rows(rows)
        return replace(self, mixture=mixture, conformal=conformal, blend=blend, **others)  # type: ignore[type-var]

    def _shape(self, values: Tensor) -> Tensor:
        return values.squeeze(-1) if self.is_flat else values

    def _matrix(self, y: Any) -> Tensor:
        """y as (rows, outputs), checked against this prediction."""
        names = column_names(y)
        if names and self.y_names and names != self.y_names:
            raise ValueError(f"y has the columns {list(names)}, but the model was trained on {list(self.y_names)}")
        y = as_targets(y)
        matrix = y if y.ndim == 2 else y.unsqueeze(1)
        if matrix.shape != (len(self), self.mixture.outputs):
            raise ValueError(
                f"y has shape {tuple(y.shape)}, but the prediction is for {len(self)} rows "
                f"and {self.mixture.outputs} {self.noun}{'s' if self.mixture.outputs > 1 else ''}"
            )
        return matrix

    def _standardised(self, y: Any) -> Tensor:  # (rows, outputs)
        return (self._matrix(y) - self.location) / self.scale

    def _matrix_of(self, values: Tensor) -> Tensor:
        """Values of y's shape as (rows, outputs)."""
        return values.unsqueeze(-1) if self.is_flat else values

    def _y(self, y: Any) -> Tensor:
        return self._shape(self._matrix(y))


def share_within(y: Tensor, low: Tensor, high: Tensor) -> float:
    """Fraction of y between the ends of intervals, these among them."""
    return float(((y >= low) & (y <= high)).double().mean())


def checked_level(level: float) -> float:
    """The level, if it is one."""
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, such as 0.95; {level} does not")
    return level


def checked_probability(probability: float) -> float:
    """The probability, if it is one."""
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1; {probability} does not")
    return probability
