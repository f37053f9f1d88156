"""Ordered levels, as a report shows them: as classes, and with the score that knows their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods.views.classes import Classes
from wherefrom.predictive.class_scores import ranked_probability
from wherefrom.predictive.panels import Output, ScoreTerm, percent
from wherefrom.predictive.row_scores import Score

_RPS = ScoreTerm(
    "Error in levels (RPS)",
    "Ranked probability score: squared errors of the probabilities of being at or below each level, added up. A miss "
    "by two levels costs more than one by one level. 0 is perfect; lower is better.",
    "RPS",
)
_TWO = 2  # levels: none is off by more than one


def outputs(prediction: Any, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
    return [Levels(prediction, truth, names[0])]


class Levels(Classes):
    """A prediction of ordered levels, and the true ones."""

    words = replace(
        Classes.words,
        scores={**Classes.words.scores, "rps": _RPS},
        no_model="always predicting the level frequencies",
    )

    def scores(self) -> dict[str, Score]:
        return Classes.scores(self) | {"rps": Score.mean(self.prediction.rps(self.truth, by_row=True))}

    def baseline(self) -> dict[str, Any]:
        baseline, numbers = Classes.baseline(self), self._numbers
        shares = torch.bincount(numbers, minlength=len(self.prediction.classes)).double() / len(numbers)
        same = float(ranked_probability(shares.expand(len(numbers), -1), numbers).mean())
        return baseline | {"scores": baseline["scores"] | {"rps": same}}

    def shown(self, listed: Tensor, before: Classes | None) -> dict[str, Any]:
        shown = Classes.shown(self, listed, before)
        rows = shown["rows"] | {"detail": [*shown["rows"]["detail"], "interval"]}
        return shown | {"table": ["rps", *shown["table"]], "rows": rows}

    def _headline(self) -> dict[str, Any]:
        headline = Classes._headline(self)
        is_near = (self._guesses - self._numbers).abs() <= 1
        near = f", and {percent(float(is_near.double().mean()))} are off by one level at most"
        right = f"of the answers{f' for {self.name}' * (self.name != 'y')} are right"
        right += near * (len(self.prediction.classes) > _TWO)
        first = f"{right}; always predicting the most frequent level would be right in "
        return headline | {"say": [first, *headline["say"][1:]]}

    def _points(self, listed: Tensor) -> dict[str, list[Any]]:
        columns, _ = self.prediction.of_rows(listed).columns(0.95)
        ends = zip(columns["lower"].tolist(), columns["upper"].tolist(), strict=True)
        intervals = [f"{low}" if low == high else f"{low} to {high}" for low, high in ends]
        return Classes._points(self, listed) | {"interval": intervals}

    def _fields(self) -> dict[str, Any]:
        return Classes._fields(self) | {"interval": {"name": "95% interval", "as": "text"}}
