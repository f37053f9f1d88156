"""Every combination and every ensemble size from the members' answers, without asking a network again.

The score of k members is the mean over the ensembles of k that can be made of all of them; its band reaches from the
10th to the 90th percentile of these ensembles, and is closed where all members are used, as there is only one.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wherefrom.predictive import class_scores
from wherefrom.reproduce.cifar10.presets import COMBINATIONS, Combination
from wherefrom.reproduce.cifar10.shift import CORRUPTIONS, SEVERITIES
from wherefrom.reproduce.cifar10.study import TEST, Answers, Exam
from wherefrom.training import streams
from wherefrom.training.workers import one_core

BAND = (0.1, 0.9)
_MOST_ENSEMBLES = 300  # of one size, all of them up to ten members; more are drawn at random


class Score(NamedTuple):
    """One number of the study."""

    images: str  # "test", "noise 1", ..., "fashion"
    combination: str
    members: int
    metric: str
    value: float
    low: float  # of its band; the value itself for a single ensemble
    high: float


class Difference(NamedTuple):
    """How much better or worse than theta0 alone on the same images, with its standard error over images."""

    value: float
    error: float


@one_core()
def scores(answers: Mapping[Combination, Answers], exam: Exam, seed: int = 0) -> list[Score]:
    """All scores: by ensemble size on the test images, and of all members on the others."""
    found = []
    for names in COMBINATIONS:
        label, own = "+".join(names), answers[names]
        test = own.of(exam.parts[TEST])
        for size in range(1, len(test.probabilities) + 1):
            each = [
                _labelled(test.probabilities[chosen].mean(0), exam.labels[TEST])
                for chosen in ensembles(len(test.probabilities), size, seed)
            ]
            for metric in each[0]:
                values = np.array([one[metric] for one in each])
                low, high = np.quantile(values, BAND)
                found.append(Score(TEST, label, size, metric, float(values.mean()), float(low), float(high)))
        for part in exam.parts:
            if part != TEST:
                found += [
                    Score(part, label, len(own.probabilities), metric, value, value, value)
                    for metric, value in _shifted(own, exam, part)
                ]
    return found


def ensembles(members: int, size: int, seed: int = 0) -> list[list[int]]:
    """The ensembles of one size: all of them, or many at random where there are too many.

    >>> ensembles(3, 2)
    [[0, 1], [0, 2], [1, 2]]
    """
    if math.comb(members, size) <= _MOST_ENSEMBLES:
        return [list(chosen) for chosen in itertools.combinations(range(members), size)]
    random = streams.generator(seed, "ensembles", members, size)
    return [sorted(random.choice(members, size, replace=False).tolist()) for _ in range(_MOST_ENSEMBLES)]


def difference(answers: Mapping[Combination, Answers], exam: Exam, names: Combination) -> Difference:
    """The NLL of all members on the test images, less that of theta0 alone, image by image."""
    y = exam.labels[TEST]
    mine, plain = (
        class_scores.nll(answers[one].of(exam.parts[TEST]).probabilities.mean(0), y) for one in (names, ("theta0",))
    )
    apart = mine - plain
    return Difference(float(apart.mean()), float(apart.std() / math.sqrt(len(apart))))


def _labelled(probabilities: Tensor, y: Tensor) -> dict[str, float]:
    return {
        "nll": float(class_scores.nll(probabilities, y).mean()),
        "accuracy": class_scores.accuracy(probabilities, y),
        "brier": float(class_scores.brier(probabilities, y).mean()),
        "ece": class_scores.reliability(probabilities, y).ece,
    }


def _shifted(answers: Answers, exam: Exam, part: str) -> Iterator[tuple[str, float]]:
    """How good the answers are where there is a right one, and whether doubt tells these images from CIFAR's own."""
    inside, outside = answers.of(exam.parts[TEST]), answers.of(exam.parts[part])
    if part in exam.labels:
        yield from _labelled(outside.probabilities.mean(0), exam.labels[part]).items()
    for metric, doubt in (("auroc", _entropy), ("auroc by disagreement", _disagreement)):
        yield metric, class_scores.auroc(doubt(inside), doubt(outside))
    yield "entropy", float(_entropy(outside).mean())


def _entropy(answers: Answers) -> Tensor:
    return class_scores.entropy(answers.probabilities.mean(0))


def _disagreement(answers: Answers) -> Tensor:
    """The mutual information: what the entropy of the mixture has beyond that of its parts.

    Where there is nothing to disagree, rounding must not decide.
    """
    beyond = _entropy(answers) - answers.entropies.mean(0)
    return torch.where(beyond > 1e-9, beyond, 0.0)


# ---------------------------------------------------------------------- looking them up, and a file of them


class Scores:
    """Scores by their names."""

    def __init__(self, found: Sequence[Score]) -> None:
        self.all = list(found)
        self._known = {(one.images, one.combination, one.members, one.metric): one for one in found}
        self.members = max(one.members for one in found)
        images = list(dict.fromkeys(one.images for one in found))
        spoiled = {f"{name} {severity}" for name in CORRUPTIONS for severity in SEVERITIES}
        self.others = [name for name in images if name != TEST and name not in spoiled]

    def get(self, names: Combination, metric: str, images: str = TEST, members: int | None = None) -> Score:
        return self._known[images, "+".join(names), members or self.members, metric]

    def at_severity(self, names: Combination, metric: str, severity: int) -> float:
        """The mean over the four corruptions; severity 0 is the clean images, which nothing tells from themselves."""
        if severity == 0:
            return 0.5 if metric.startswith("auroc") else self.get(names, metric).value
        return float(np.mean([self.get(names, metric, f"{name} {severity}").value for name in CORRUPTIONS]))

    def write(self, path: Path) -> None:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(Score._fields)
        table.writerows((*one[:4], *(f"{number:.8g}" for number in one[4:])) for one in self.all)
        path.write_text(text.getvalue(), encoding="utf-8")
