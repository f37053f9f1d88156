"""Ordered levels, as a report shows them: as classes, and with the score that knows their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods.views.classes import Classes
from wherefrom.predictive.class_scores import ranked_probability
from wherefrom.predictive.panels import Output, ScoreTerm
from wherefrom.predictive.row_scores import Score

_RPS = ScoreTerm(
    "Error in levels (RPS)",
    "Ranked probability score: squared errors of the probabilities of being at or below each level, added up. A miss "
    "by two levels costs more than one by one level. 0 is perfect; lower is better.",
    "RPS",
)


def outputs(prediction: Any, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
    return [Levels(prediction, truth, names[0])]


class Levels(Classes):
    """A prediction of ordered levels, and the true ones."""

    words = replace(
        Classes.words,
        scores={**Classes.words.scores, "rps": _RPS},
        no_model="always answering with the level frequencies",
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
        return shown | {"table": ["rps", *shown["table"]]}
