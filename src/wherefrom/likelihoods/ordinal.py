"""Ordered classes: y is one of K levels, such as mild < moderate < severe; a cumulative logit model.

A network has K - 1 outputs: a location f, and z_1, ..., z_{K-2}. With s the logistic function,

    P(y > k)  =  s(f - c_k),        c_k - c_{k-1} = log(1 + exp(z_k)),        c = 0 in the middle

so that the cutpoints c_k are in order whatever the outputs are. Location and distances both depend on x: with one
location for all and distances that do not, it would be the proportional-odds model, which is what the last layer's
biases alone make of it. A network whose last K - 2 outputs are free parameters is that model (docs/ordinal.md, which
says what was measured). Every answer is a distribution over levels, and the prediction is their mixture, as of classes;
the order adds cumulative probabilities, quantiles, intervals of levels and the ranked probability score

    RPS  =  sum over k < K of (P(y <= k) - [truth <= k])^2
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.classification import ClassPrediction
from wherefrom.likelihoods.labels import OfLabels, checked_labels, ends_in_probabilities
from wherefrom.likelihoods.likelihood import Columns, MemberScores, Summary, TableWishes
from wherefrom.likelihoods.quantities import checked_level, checked_probability
from wherefrom.likelihoods.views import levels as views
from wherefrom.predictive import few_members
from wherefrom.predictive.calibration import By
from wherefrom.predictive.class_scores import ranked_probability
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.panels import Output
from wherefrom.predictive.row_scores import Score
from wherefrom.training.data import Scaler, Schema, as_classes, column_names
from wherefrom.training.losses import Loss, OrdinalNLL, log_level_probabilities
from wherefrom.training.objective import Encoded, Label
from wherefrom.training.workers import one_core

IntervalReading = Literal["few_members", "mixture", "paper", "conformal"]

_LOGISTIC_VARIANCE = math.pi**2 / 3
_ROUNDING = 1e-12  # of cumulative probabilities


@stored("Ordinal")
@dataclass(frozen=True)
class Ordinal(OfLabels):
    """The likelihood of a y that is one of several ordered levels; the network has one output less than levels.

    levels: the labels from the lowest to the highest, or their number if y holds 0, 1, ... (default: those of an
        ordered pandas Categorical, or numbers in their order). y may lack some of them. Text has no order: name its
        levels.

    >>> Ordinal(levels=["low", "medium", "high"]).outputs(targets=3)
    2
    """

    task: ClassVar[str] = "ordinal"
    target: ClassVar[str] = "ordered classes"
    without_hidden: ClassVar[str] = "ordinal logistic regression"
    table_options: ClassVar[tuple[str, ...]] = ("classes", "levels")
    calibrations: ClassVar[tuple[By, ...]] = ("temperature", "conformal")
    calibrates_tables: ClassVar[tuple[By, ...]] = ("temperature",)
    head: ClassVar[Head] = "none"  # cutpoints are no linear function of outputs
    levels: int | tuple[Label, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", checked_labels(self.levels, "levels"))

    @property
    def named_classes(self) -> tuple[Label, ...]:
        return tuple(range(self.levels)) if isinstance(self.levels, int) else self.levels or ()

    # ------------------------------------------------------------------ training

    def encode(self, y: Any, classes: tuple[Label, ...] = ()) -> Encoded:
        numbers, labels = as_classes(y, classes or self.levels or _own_order(y))
        if not (classes or self.levels or _own_order(y)) and isinstance(labels[0], str):
            few = ", ".join(map(repr, labels[:5])) + ", ..." * (len(labels) > 5)
            raise ValueError(
                f"y holds text, which has no order: name its levels from the lowest to the highest, "
                f"wf.Ordinal(levels=[...]) with {few} in their order"
            )
        return Encoded(numbers.unsqueeze(1), True, len(labels), column_names(y), labels)

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have for this number of levels."""
        return targets - 1

    def loss_for(self, scaler: Scaler) -> Loss:
        return OrdinalNLL()

    def check_network(self, model: str, outputs: int, targets: int) -> None:
        if outputs != targets - 1:
            raise ValueError(
                f"{model} has {outputs} output{'s' * (outputs > 1)}, but {targets} levels take {targets - 1}: a "
                "location, and a distance for each level but the first and the last. If y lacks some levels, name "
                "them: wf.Ordinal(levels=...)"
            )

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        if outputs.shape[1] == 1 or (ending := ends_in_probabilities(outputs, last_functions)) is None:
            return None
        what, why = ending
        return f"{model} seems to end in {what}: {why}. They are taken as logits: leave it out of the model"

    # ------------------------------------------------------------------ prediction

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> OrdinalPrediction:
        with one_core():
            logs = log_level_probabilities(outputs.answers)
        return OrdinalPrediction(replace(outputs, answers=logs), schema.classes)

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        logs, numbers = log_level_probabilities(outputs.double()), y.flatten().long()
        nll = -logs.gather(-1, numbers.expand(len(logs), -1).unsqueeze(-1)).squeeze(-1)
        return MemberScores(nll, torch.stack([ranked_probability(each.exp(), numbers) for each in logs]))

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Ordinal:
        return cls(wishes.classes or None)


def _own_order(y: Any) -> tuple[Label, ...] | None:
    """Return the levels of an ordered Categorical, or of an Enum; None if y says no order."""
    dtype = getattr(y, "dtype", None)
    is_ordered = getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum"
    return tuple(dtype.categories.to_list()) if is_ordered else None  # type: ignore[union-attr]


@dataclass(frozen=True, eq=False, repr=False)
class OrdinalPrediction(ClassPrediction):
    """The predictive distribution over ordered levels at some rows.

    It has all that a `ClassPrediction` has, with `classes` from the lowest level to the highest, and what their order
    adds.
    """

    noun: ClassVar[str] = "level"

    @property
    def levels(self) -> tuple[Label, ...]:
        return self.classes

    @property
    def cumulative(self) -> Tensor:
        """Probability of each level or a lower one; the last is 1.  # (rows, levels)"""
        below = self.probabilities.cumsum(1)
        return torch.cat([below[:, :-1].clamp_max(1.0), torch.ones_like(below[:, :1])], 1)

    def cdf(self, y: Any) -> Tensor:
        """Probability of a level no higher than y.  # (rows,)

        y: one value for each row.
        """
        return self.cumulative.gather(1, self._numbers(y).unsqueeze(1)).squeeze(1)

    def quantile(self, probability: float) -> np.ndarray:
        """The lowest level that is not exceeded with this probability.  # (rows,), labels

        probability: a number between 0 and 1.
        """
        reached = self.cumulative >= checked_probability(probability) - _ROUNDING
        return self._labelled(reached.int().argmax(1))

    @property
    def median(self) -> np.ndarray:
        """The middle level: neither a lower nor a higher one has more than half of the probability."""
        return self.quantile(0.5)

    @property
    def reading(self) -> IntervalReading:
        """The reading of `interval` where none is asked for: "few_members", "mixture" or "conformal"."""
        if self.conformal is not None:
            return "conformal"
        return "mixture" if self.is_tempered or self.blend is not None else "few_members"

    def interval(self, level: float = 0.95, reading: IntervalReading | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest level of an interval that holds the right one with this probability.

        level: the probability (default: 0.95).
        reading: "mixture" (or "paper"), between two quantiles; "few_members", the same with what few members lack
            (few_members.py); or "conformal", from the lowest to the highest level of the conformal set, which holds the
            right one at least as often. Default: the conformal one where the posterior was calibrated so, else
            "few_members" where nothing was calibrated and no background is mixed in; `prediction.reading` says which.
        """
        tail, reading = (1 - checked_level(level)) / 2, reading or self.reading
        if reading in ("mixture", "paper"):
            return self.quantile(tail), self.quantile(1 - tail)
        if reading == "few_members":
            return self._quantile_by_few(tail), self._quantile_by_few(1 - tail)
        if reading != "conformal":
            raise ValueError(f'reading must be "few_members", "mixture", "paper" or "conformal", not {reading!r}')
        sets = self.sets(level)
        none = ~sets.any(1)
        sets[none, self.probabilities.argmax(1)[none]] = True
        last = sets.shape[1] - 1 - sets.flip(1).int().argmax(1)
        return self._labelled(sets.int().argmax(1)), self._labelled(last)

    def _quantile_by_few(self, probability: float) -> np.ndarray:
        """The lowest level that is not exceeded with this probability, with what few members lack.  # (rows,), labels

        A level is not exceeded if a logistic variable is below the logit of its cumulative probability, which varies.
        """
        below = self.mixture.answers.double().cumsum(-1)[..., :-1].clamp(_ROUNDING, 1 - _ROUNDING)
        noise = torch.full((1,), _LOGISTIC_VARIANCE, dtype=torch.float64)
        logits = replace(self.mixture, answers=below.logit(), noise=noise, spread=None, within=None)
        few, logistic = few_members.of_mixture(logits), math.log(probability / (1 - probability))
        gaussian = NormalDist().inv_cdf(probability)
        noise_reach = (logistic**2 + gaussian**2 * (few.within - noise).clamp_min(0)).sqrt()
        reached = logits.mean >= few.reach(probability, noise_reach=noise_reach)
        last = torch.ones(len(self), 1, dtype=torch.bool)
        return self._labelled(torch.cat([reached, last], 1).int().argmax(1))

    def rps(self, y: Any, by_row: bool = False) -> Any:
        """Ranked probability score: squared errors of the cumulative probabilities, added up; lower is better.

        A miss by two levels costs more than one by one level. The mean over rows, or each row's.

        y: the true values of these rows.
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = ranked_probability(self.probabilities, self._numbers(y))
        return each if by_row else float(each.mean())

    crps = rps  # the same, where levels are 0, 1, 2, ...

    # ------------------------------------------------------------------ reports and tables

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        return views.outputs(self, truth, names, noise, unit)

    def columns(self, level: float) -> tuple[Columns, list[str]]:
        columns, notes = ClassPrediction.columns(self, level)
        central = replace(self, conformal=None) if notes else self  # too few rows to be conformal
        low, high = central.interval(level)
        first = {"predicted": columns.pop("predicted"), "median": self.median, "lower": low, "upper": high}
        return first | columns, notes

    def row_losses(self, y: Any) -> Columns:
        return ClassPrediction.row_losses(self, y) | {"rps": self.rps(y, by_row=True).numpy()}

    def scores_by_level(self, y: Any, levels: Sequence[float]) -> dict[str, float]:
        scores = ClassPrediction.scores_by_level(self, y, levels)
        return {"NLL": scores.pop("NLL"), "RPS": self.rps(y)} | scores

    @staticmethod
    def summary(rows: Mapping[str, Tensor], event: int | None = None) -> Summary:
        whole = ClassPrediction.summary(rows, event)
        numbers, count = rows["class"], rows["probabilities"].shape[1]
        shares = torch.bincount(numbers, minlength=count).double() / len(numbers)
        baseline = float(ranked_probability(shares.expand(len(numbers), -1), numbers).mean())
        scores = whole.scores | {"rps": Score.mean(rows["rps"])}
        return whole._replace(scores=scores, baselines=whole.baselines | {"rps": baseline})

    def _labelled(self, numbers: Tensor) -> np.ndarray:
        return np.array(self.classes)[numbers.numpy()]
