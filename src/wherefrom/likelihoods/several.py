"""Several targets of different kinds at once: one network, and a likelihood for each target, which factorise.

    p(y | x, theta)  =  product over targets t of  p_t(y_t | x, theta)

The outputs that the likelihoods need stand side by side, quantities first; the loss is the sum of their losses, so each
target counts by its own log-likelihood. Given theta, targets are independent: what they share is what the networks
learn from all of them, and that members who err in one err in another. Each target's prediction is that of its own
likelihood, with everything it has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.likelihood import Cells, Columns, MemberScores, Moments, Summary, TableWishes
from wherefrom.likelihoods.target import Target
from wherefrom.predictive.advice import Subject
from wherefrom.predictive.background import Background, Blend
from wherefrom.predictive.calibration import By
from wherefrom.predictive.conformal import AnyConformal, ConformalScores
from wherefrom.predictive.lacking import Lacking
from wherefrom.predictive.mixture import HoldsMixture, Mixture
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.panels import Output
from wherefrom.predictive.sources import Sources, sources
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.losses import Loss, together
from wherefrom.training.objective import Encoded, Label
from wherefrom.training.offset import Offset
from wherefrom.training.workers import one_core

_NO_TABLE = "tables learn one target at a time: use wf.marginalise with wf.Several(...)"
_EACH_HAS = "every target has a distribution by itself: ask for one by its name, as prediction[name]"


@dataclass(frozen=True)
class JointLoss:
    """The sum of the losses of several targets, each on its outputs and its column of y."""

    losses: tuple[Any, ...]
    ends: tuple[int | None, ...]  # of each target's outputs; None is the last of all

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        starts = (0, *self.ends[:-1])
        each = [
            loss(outputs[..., start:end], y[..., column : column + 1], weights)
            for column, (loss, start, end) in enumerate(zip(self.losses, starts, self.ends, strict=True))
        ]
        return torch.stack(each).sum(0)

    def of_members(self, others: Sequence[JointLoss], like: Tensor) -> JointLoss:
        """Return one loss for members that train together, each with its own numbers."""
        each = zip(*(other.losses for other in others), strict=True)
        return replace(self, losses=tuple(together(losses, like) for losses in each))


@stored("Several", arguments=lambda several: dict(several.parts))
@dataclass(frozen=True, init=False)
class Several(Target):
    """Several targets of different kinds, each with its name and its likelihood; y is a frame or a dictionary.

    Each target is one column. For at most one target, the classes may be taken from y; name those of the others, such
    as `died=wf.Classification(classes=2)`.

    parts: name of a target -> its likelihood.

    >>> from wherefrom.likelihoods import Classification, Counts
    >>> Several(visits=Counts("predicted"), died=Classification()).outputs(targets=1 + 2)
    4
    """

    task: ClassVar[str] = "several"
    target: ClassVar[str] = "several targets"
    without_hidden: ClassVar[str] = "linear model"
    cells: ClassVar[Cells] = "numbers"
    table_options: ClassVar[tuple[str, ...]] = ()
    calibrations: ClassVar[tuple[By, ...]] = ("conformal",)
    calibrates_tables: ClassVar[tuple[By, ...]] = ()
    head: ClassVar[Head] = "none"
    named_classes: ClassVar[tuple[Label, ...]] = ()
    by_row: ClassVar[None] = None
    has_atoms: ClassVar[bool] = True
    parts: Mapping[str, Any]

    def __init__(self, **parts: Any) -> None:
        if len(parts) < 2:
            raise ValueError("name at least two targets, as wf.Several(stay=wf.Regression(), died=wf.Classification())")
        for name, part in parts.items():
            if isinstance(part, type | Several) or not hasattr(part, "predictive"):
                raise TypeError(f"{name} must have a likelihood, as wf.Regression(), not {part!r}")
            if getattr(part, "is_student", False) and part.fits_noise:
                raise ValueError(
                    f"{name} has fitted tails, which wf.Several does not hold: give df and noise, or leave tails out"
                )
            if getattr(part, "class_weights", None) is not None:
                raise ValueError(f"{name} has class_weights, but the weight of a row is the same for all targets")
        unnamed = [name for name, part in parts.items() if part.cells == "labels" and not part.named_classes]
        if len(unnamed) > 1:
            raise ValueError(
                f"name the classes of {' or '.join(unnamed)}, or both, as {unnamed[0]}=wf.Classification(classes=2): "
                "those of one target alone can be found in y"
            )
        order = sorted(parts, key=lambda name: (parts[name].cells == "labels", name in unnamed))
        object.__setattr__(self, "parts", {name: parts[name] for name in order})

    def __hash__(self) -> int:
        return hash(tuple(self.parts.items()))

    @property
    def learns_logs(self) -> tuple[bool, ...]:
        return tuple(part.learns_logs for part in self.parts.values())

    def can_be(self, y: Tensor) -> Tensor:
        each = [part.can_be(y[:, k : k + 1]) for k, part in enumerate(self.parts.values())]
        return torch.cat(each, 1)

    @property
    def fits_noise(self) -> bool:
        return any(part.fits_noise for part in self.parts.values())

    @property
    def held_out(self) -> float:
        return max(part.held_out for part in self.parts.values())

    @property
    def noise_kind(self) -> str:
        return "fit" if self.fits_noise else "none"

    @property
    def has_density(self) -> bool:
        return all(part.has_density for part in self.parts.values())

    # ------------------------------------------------------------------ training

    def encode(self, y: Any, classes: tuple[Label, ...] = ()) -> Encoded:
        columns = self._columns(y)
        labels_of = self._labels(classes) if classes else dict.fromkeys(self.parts, ())
        each = {}
        for name, part in self.parts.items():
            try:
                each[name] = part.encode(columns[name], labels_of[name])
            except ValueError as error:
                raise ValueError(f"target {name!r}: {error}") from error
        for name, encoded in each.items():
            if encoded.y.shape[1] != 1:
                raise ValueError(f"{name} has {encoded.y.shape[1]} columns; each target of wf.Several is one")
        if len({len(encoded.y) for encoded in each.values()}) > 1:
            rows = ", ".join(f"{name} has {len(encoded.y)}" for name, encoded in each.items())
            raise ValueError(f"the targets have different numbers of rows: {rows}")
        labels = tuple(
            json.dumps(encoded.classes) for name, encoded in each.items() if self.parts[name].cells == "labels"
        )
        matrix = torch.cat([encoded.y for encoded in each.values()], 1)
        return Encoded(matrix, False, sum(encoded.targets for encoded in each.values()), tuple(each), labels)

    def _columns(self, y: Any) -> dict[str, Any]:
        """Return each target's column of a frame or a dictionary."""
        names = list(y) if isinstance(y, Mapping) else getattr(y, "columns", None)
        if names is None:
            raise TypeError(
                f"y is a frame or a dictionary with the columns {', '.join(self.parts)}, not {type(y).__name__}"
            )
        if missing := [name for name in self.parts if name not in list(names)]:
            raise ValueError(f"y has no column {missing[0]!r}; it has {', '.join(map(repr, names))}")
        return {name: y[name] for name in self.parts}

    def _labels(self, classes: tuple[Label, ...]) -> dict[str, tuple[Label, ...]]:
        """Return the labels of each target; none, where it holds numbers."""
        each = iter(classes)
        return {
            name: tuple(json.loads(str(next(each)))) if part.cells == "labels" else ()
            for name, part in self.parts.items()
        }

    def _targets(self, targets: int) -> dict[str, int]:
        """Return how many things each target speaks of; classes that are not named are what is left."""
        counts = {name: len(part.named_classes) or 1 for name, part in self.parts.items()}
        for name, part in self.parts.items():
            if part.cells == "labels" and not part.named_classes:
                counts[name] = targets - sum(count for other, count in counts.items() if other != name)
        return counts

    def slices(self, targets: int) -> dict[str, slice]:
        """Return the slice of outputs of each target."""
        counts = self._targets(targets)
        ends = list(accumulate(part.outputs(counts[name]) for name, part in self.parts.items()))
        return {name: slice(start, end) for name, start, end in zip(self.parts, [0, *ends], ends, strict=False)}

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have for all targets."""
        return max(each.stop for each in self.slices(targets).values())

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        each = [part.units(y[:, k : k + 1], weights) for k, part in enumerate(self.parts.values())]
        return torch.cat([location for location, _ in each]), torch.cat([scale for _, scale in each])

    def offset(self, x_names: tuple[str, ...], columns: int, targets: int) -> Offset | None:
        counts, slices = self._targets(targets), self.slices(targets)
        each = {name: part.offset(x_names, columns, counts[name]) for name, part in self.parts.items()}
        offsets = {name: offset for name, offset in each.items() if offset is not None}
        if len({offset.column for offset in offsets.values()}) > 1:
            raise ValueError(f"{' and '.join(offsets)} have different exposures: there can be one for all of them")
        if not offsets:
            return None
        outputs = [slices[name].start + output for name, offset in offsets.items() for output in offset.outputs]
        return Offset(next(iter(offsets.values())).column, tuple(outputs))

    def scaler_of(self, scaler: Scaler, name: str) -> Scaler:
        """The units of one target alone."""
        column = list(self.parts).index(name)
        one = slice(column, column + 1)
        return scaler._replace(y_mean=scaler.y_mean[one], y_std=scaler.y_std[one], logs=self.learns_logs[column])

    def loss_for(self, scaler: Scaler) -> Loss:
        losses = tuple(part.loss_for(self.scaler_of(scaler, name)) for name, part in self.parts.items())
        fixed = self.slices(0).values()  # the last one alone may have outputs that are not known yet
        return JointLoss(losses, (*[each.stop for each in fixed][:-1], None))

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        counts = self._targets(targets)
        return math.fsum(part.hopeless_loss(counts[name], is_standardised) for name, part in self.parts.items())

    def check_network(self, model: str, outputs: int, targets: int) -> None:
        if outputs != (needed := self.outputs(targets)):
            slices = self.slices(targets)
            each = ", ".join(f"{part.stop - part.start} for {name}" for name, part in slices.items())
            raise ValueError(f"{model} has {outputs} outputs, but the targets need {needed}: {each}")

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        return None

    # ------------------------------------------------------------------ prediction

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        return Moments(outputs, spread, None)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> None:
        return None

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> SeveralPrediction:
        return SeveralPrediction(outputs, self, schema, scaler, fitted)

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        """The noise of each target that fits one; nan for the others.  # (targets,)"""
        slices = self.slices(self._targets_from(outputs.outputs))
        fitted = [
            part.fit_noise(
                _answers(outputs, slices[name]), y[:, k : k + 1], self.scaler_of(scaler, name), weights
            ).flatten()
            if part.fits_noise
            else torch.full((1,), math.nan, dtype=torch.float64)
            for k, (name, part) in enumerate(self.parts.items())
        ]
        return torch.cat(fitted)

    def _targets_from(self, outputs: int) -> int:
        """Return the number of outputs of all predictions together, by that of the network."""
        targets = sum(self._targets(0).values())
        return next(
            count for count in range(max(0, targets), outputs + len(self.parts) + 2) if self._fits(count, outputs)
        )

    def _fits(self, targets: int, outputs: int) -> bool:
        return min(self._targets(targets).values()) > 0 and self.outputs(targets) == outputs

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        raise ValueError(_NO_TABLE)

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        slices = self.slices(self._targets_from(outputs.shape[-1]))
        each = [
            part.member_scores(outputs[..., slices[name]], y[:, k : k + 1], self.scaler_of(scaler, name))
            for k, (name, part) in enumerate(self.parts.items())
        ]
        return MemberScores(sum(one.nll for one in each), sum(one.crps for one in each))

    def to_search(self, leaves_noise: bool) -> Several:
        return Several(**{name: part.to_search(leaves_noise) for name, part in self.parts.items()})

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Several:
        raise ValueError(_NO_TABLE)

    def __repr__(self) -> str:
        return f"Several({', '.join(f'{name}={part}' for name, part in self.parts.items())})"


def _answers(outputs: Mixture, some: slice) -> Mixture:
    """Some of the outputs alone."""
    return replace(outputs, answers=outputs.answers[..., some])


@dataclass(frozen=True, eq=False, repr=False)
class SeveralPrediction(HoldsMixture):
    """Predictions of several targets at some rows; `prediction["stay"]` is the prediction of one target."""

    is_joint: ClassVar[bool] = True
    mixture: Mixture  # of the networks' outputs
    likelihood: Several
    schema: Schema
    scaler: Scaler
    fitted: Tensor | None
    conformal: AnyConformal | None = None
    median: ClassVar[Any] = Lacking(_EACH_HAS)
    quantile: ClassVar[Any] = Lacking(_EACH_HAS)
    cdf: ClassVar[Any] = Lacking(_EACH_HAS)
    interval: ClassVar[Any] = Lacking(_EACH_HAS)
    crps: ClassVar[Any] = Lacking(_EACH_HAS)
    sample: ClassVar[Any] = Lacking(_EACH_HAS)

    # ------------------------------------------------------------------ parts

    @property
    def names(self) -> tuple[str, ...]:
        """The targets."""
        return tuple(self.likelihood.parts)

    def __getitem__(self, name: str) -> Any:
        if name not in self.likelihood.parts:
            raise KeyError(f"there is no target {name!r}; there are {', '.join(self.names)}")
        return self._each[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    @cached_property
    def _each(self) -> dict[str, Any]:
        """The prediction of each target, calibrated as this one is."""
        slices, labels = self.likelihood.slices(self.schema.targets), self.likelihood._labels(self.schema.classes)
        predictions, first = {}, 0
        for k, (name, part) in enumerate(self.likelihood.parts.items()):
            schema = replace(
                self.schema, targets=len(labels[name]) or 1, y_names=(name,), y_is_flat=True, classes=labels[name]
            )
            fitted = self.fitted[k : k + 1] if part.fits_noise and self.fitted is not None else None
            scaler = self.likelihood.scaler_of(self.scaler, name)
            one = part.predictive(_answers(self.mixture, slices[name]), schema, scaler, fitted)
            if self.conformal is not None:
                scores = self.conformal.scores[:, first : first + one.conformal_columns]
                one = replace(one, conformal=replace(self.conformal, scores=scores, is_signed=one.conformal_is_signed))
                first += one.conformal_columns
            predictions[name] = one
        return predictions

    def _truths(self, y: Any) -> dict[str, Any]:
        """Return the truth of each target: from a frame or a dictionary, or from the numbers that `encode` gives."""
        if not isinstance(y, Tensor):
            return self.likelihood._columns(y)
        labels = self.likelihood._labels(self.schema.classes)
        return {
            name: [labels[name][int(number)] for number in column] if labels[name] else column
            for name, column in zip(self.names, y.unbind(1), strict=True)
        }

    # ------------------------------------------------------------------ all targets together

    @property
    def mean(self) -> Tensor:
        """Means of the targets' predictions, side by side.  # (rows, ...)"""
        return torch.cat([_matrix(self[name].mean) for name in self], 1)

    @property
    def variance(self) -> Tensor:
        return torch.cat([_matrix(self[name].variance) for name in self], 1)

    @property
    def row_doubt(self) -> Tensor:
        """The doubt of each target relative to its mean over rows, added up.  # (rows,)"""
        each = [_matrix(self[name].row_doubt).sum(1) for name in self]
        return torch.stack([one / one.mean().clamp_min(torch.finfo(torch.float64).tiny) for one in each]).sum(0)

    def nll(self, y: Any, by_row: bool = False) -> Any:
        """Negative log-likelihood of all targets: the sum of theirs, the mean over rows, or each row's.

        y: the true values of these rows.
        by_row: return one value for each row, instead of their mean (default False).
        """
        truths = self._truths(y)
        each = torch.stack([self[name].nll(truths[name], by_row=True) for name in self]).sum(0)
        return each if by_row else float(each.mean())

    def coverage(self, y: Any, level: float = 0.95) -> float:
        """The fraction of all targets' values that lie within their intervals, or sets, of this level.

        y: the true values of these rows.
        level: level of the intervals and sets (default 0.95).
        """
        truths = self._truths(y)
        return math.fsum(self[name].coverage(truths[name], level) for name in self) / len(self.names)

    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log density that each member by itself gives all targets.  # (members, rows[, targets])"""
        truths = self._truths(y)
        each = torch.stack([self[name].member_log_densities(truths[name]) for name in self], -1)
        return each if by_output else each.sum(-1)

    @one_core()
    def sources(self, target: str | None = None) -> Any:
        """The sources of one target's doubt; of all targets, by name.

        target: name of the target (default None: all of them).
        """
        return {name: self[name].sources() for name in self} if target is None else self[target].sources()

    @one_core()
    def all_sources(self) -> Sources:
        """Split the variance of the networks' outputs, added up, by its sources; noise is in each target's own."""
        ones = torch.ones(len(self), self.mixture.outputs, dtype=torch.float64)
        return sources(self.mixture, together=ones, unit="variance of outputs")

    def of_rows(self, rows: Any) -> SeveralPrediction:
        conformal = None if self.conformal is None else self.conformal.of_rows(rows)
        return replace(self, mixture=self.mixture.of_rows(rows), conformal=conformal)

    # ------------------------------------------------------------------ calibration

    def conformal_scores(self, y: Any) -> ConformalScores:
        truths = self._truths(y)
        each = [self[name].conformal_scores(truths[name]).scores for name in self]
        return ConformalScores(torch.cat(each, 1), True, "intervals and sets of each target", "infinite intervals")

    def advice_subject(self) -> Subject:
        return Subject(self.mixture)

    def scores_by_level(self, y: Any, levels: Sequence[float]) -> dict[str, float]:
        truths = self._truths(y)
        scores = {"NLL": self.nll(y)} if self.likelihood.has_density else {}
        for name in self:
            of_target = self[name].scores_by_level(truths[name], levels)
            scores |= {f"{name}: {score}": value for score, value in of_target.items()}
        return scores

    # ------------------------------------------------------------------ reports and tables

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        truths = self._truths(truth)
        return [
            view
            for name, part in self.likelihood.parts.items()
            for view in self[name].views(truths[name], [name], part.noise_kind, unit)
        ]

    def columns(self, level: float) -> tuple[Columns, list[str]]:
        columns: Columns = {}
        notes: list[str] = []
        for name in self:
            of_target, more = self[name].columns(level)
            columns |= {f"{name} {column}": values for column, values in of_target.items()}
            notes += [f"{name}: {note}" for note in more]
        return columns, notes

    def row_losses(self, y: Any) -> Columns:
        truths = self._truths(y)
        losses = {
            f"{name} {loss}": values for name in self for loss, values in self[name].row_losses(truths[name]).items()
        }
        return ({"nll": self.nll(y, by_row=True).numpy()} if self.likelihood.has_density else {}) | losses

    def row_errors(self, y: Any) -> tuple[Tensor, Tensor]:
        truths = self._truths(y)
        each = [self[name].row_errors(truths[name]) for name in self]
        return torch.stack([error for error, _ in each], 1), torch.stack([usual for _, usual in each], 1)

    def row_scores(self, columns: Columns, truth: Any) -> Columns:
        raise ValueError(_NO_TABLE)

    @staticmethod
    def summary(rows: Mapping[str, Tensor], event: int | None = None) -> Summary:
        raise ValueError(_NO_TABLE)

    def blended(self, blend: Blend) -> SeveralPrediction:
        raise ValueError(_NO_TABLE)

    def needed_stretch(self, background: Background, level: float) -> Tensor:
        raise ValueError(_NO_TABLE)

    def exported(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        raise ValueError("several targets have no common mean and variance: export one likelihood at a time")

    def exported_quantiles(self, probabilities: Sequence[float]) -> Any:
        raise ValueError("several targets have no common quantiles: export one likelihood at a time")

    @property
    def unit(self) -> Tensor:
        return torch.cat([self[name].unit for name in self])


def _matrix(values: Tensor) -> Tensor:
    return values.unsqueeze(1) if values.ndim == 1 else values
