"""Every combination and every ensemble size from the members' answers, without asking a network again.

The score of k members is the mean over the ensembles of k that can be made of all of them; its band reaches from the
10th to the 90th percentile of these ensembles, and is closed where all members are used, as there is only one. It has
two standard errors: over images (as if other ones had been tested on), and over members (as if others had been
trained), by the jackknife.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.files import atomic
from wherefrom.predictive import class_scores
from wherefrom.reproduce.cifar10.presets import COMBINATIONS, PLAIN, Combination
from wherefrom.reproduce.cifar10.shift import CORRUPTIONS, SEVERITIES
from wherefrom.reproduce.cifar10.study import TEST, Answers, Exam
from wherefrom.training import streams
from wherefrom.training.workers import one_core

BAND = (0.1, 0.9)
_MOST_ENSEMBLES = 300  # of one size, all of them up to ten members; more are drawn at random
_Array = NDArray[np.float64]


class Score(NamedTuple):
    """One number of the study."""

    images: str  # "test", "noise 1", ..., "fashion"
    combination: str
    members: int
    metric: str
    value: float
    low: float  # of its band; the value itself for a single ensemble
    high: float
    image_error: float = math.nan  # standard error over images
    member_error: float = math.nan  # standard error over members


class Difference(NamedTuple):
    """A score less that of theta0 alone on the same images and members, with two standard errors of the difference."""

    combination: str
    members: int
    metric: str
    value: float
    image_error: float
    member_error: float

    def __str__(self) -> str:
        return f"{self.value:+.4f} ± {self.image_error:.4f} ± {self.member_error:.4f}"


@one_core()
def scored(answers: Mapping[Combination, Answers], exam: Exam, seed: int = 0) -> Scores:
    """All scores: by ensemble size on the test images, and of all members on the others."""
    y, found, differences = exam.labels[TEST], [], []
    plain: dict[tuple[int, str], Sized] = {}
    for names in (PLAIN, *(other for other in COMBINATIONS if other != PLAIN)):
        label, own = "+".join(names), answers[names]
        for size, by_metric in _by_size(own.of(exam.parts[TEST]).probabilities, y, seed).items():
            for metric, sized in by_metric.items():
                found.append(sized.score(label, size, metric))
                if names == PLAIN:
                    plain[size, metric] = sized
                differences.append(sized.less(plain[size, metric], label, size, metric))
        for part in exam.parts:
            if part != TEST:
                found += [
                    Score(part, label, len(own.probabilities), metric, value, value, value)
                    for metric, value in _shifted(own, exam, part)
                ]
    return Scores(found, differences)


def ensembles(members: int, size: int, seed: int = 0) -> list[list[int]]:
    """The ensembles of one size: all of them, or many at random where there are too many.

    >>> ensembles(3, 2)
    [[0, 1], [0, 2], [1, 2]]
    """
    if math.comb(members, size) <= _MOST_ENSEMBLES:
        return [list(chosen) for chosen in itertools.combinations(range(members), size)]
    random = streams.generator(seed, "ensembles", members, size)
    return [sorted(random.choice(members, size, replace=False).tolist()) for _ in range(_MOST_ENSEMBLES)]


@dataclass(frozen=True, eq=False)
class Sized:
    """One metric of all ensembles of one size."""

    values: _Array  # (ensembles,)
    by_image: _Array | None  # (images,), the mean over ensembles, where the metric is a mean over images
    without: _Array  # (members,), the mean over the ensembles that lack this member

    def score(self, combination: str, size: int, metric: str) -> Score:
        low, high = np.quantile(self.values, BAND)
        errors = _image_error(self.by_image), jackknife_error(self.without)
        return Score(TEST, combination, size, metric, float(self.values.mean()), float(low), float(high), *errors)

    def less(self, other: Sized, combination: str, size: int, metric: str) -> Difference:
        by_image = None if self.by_image is None or other.by_image is None else self.by_image - other.by_image
        return Difference(
            combination,
            size,
            metric,
            float(self.values.mean() - other.values.mean()),
            _image_error(by_image),
            jackknife_error(self.without - other.without),
        )


def jackknife_error(without: _Array) -> float:
    """The standard error of a statistic of independent members, from its values without each of them.

    >>> round(jackknife_error(np.array([2.5, 2.0, 1.5])), 4)  # of the mean of 1, 2, 3: sd / sqrt(3)
    0.5774
    """
    count = len(without)
    return float(np.sqrt((count - 1) / count * np.sum((without - without.mean()) ** 2)))


def _image_error(by_image: _Array | None) -> float:
    return math.nan if by_image is None else float(by_image.std(ddof=1) / math.sqrt(len(by_image)))


def _by_size(probabilities: Tensor, y: Tensor, seed: int) -> dict[int, dict[str, Sized]]:
    """Score the ensembles of every size by every metric.  # (members, images, classes)"""
    members = len(probabilities)
    found: dict[int, dict[str, Sized]] = {}
    smaller: dict[str, _Array] = {}
    for size in range(1, members + 1):
        chosen = ensembles(members, size, seed)
        totals: dict[str, Tensor] = {}
        values: dict[str, list[float]] = {}
        for some in chosen:
            together = probabilities[some].mean(0)
            for metric, row_scores in _rows(together, y).items():
                totals[metric] = totals.get(metric, 0.0) + row_scores
                values.setdefault(metric, []).append(float(row_scores.mean()))
            values.setdefault("ece", []).append(class_scores.reliability(together, y).ece)
        is_in = np.array([[member in some for member in range(members)] for some in chosen])  # (ensembles, members)
        found[size] = {}
        for metric, each in values.items():
            own = np.array(each)
            if size < members:  # of the largest ensemble, those that lack a member are one smaller
                smaller[metric] = np.array([own[~is_in[:, member]].mean() for member in range(members)])
            by_image = (totals[metric] / len(chosen)).numpy() if metric in totals else None
            found[size][metric] = Sized(own, by_image, smaller.get(metric, np.full(members, math.nan)))
    return found


def _rows(probabilities: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The metrics that are means over images, image by image."""
    correct = class_scores.correct(probabilities, y).double()
    return {
        "nll": class_scores.nll(probabilities, y),
        "accuracy": correct,
        "brier": class_scores.brier(probabilities, y),
        "over-confidence": probabilities.max(1).values - correct,
    }


def _labelled(probabilities: Tensor, y: Tensor) -> dict[str, float]:
    means = {metric: float(each.mean()) for metric, each in _rows(probabilities, y).items()}
    return means | {"ece": class_scores.reliability(probabilities, y).ece}


def _shifted(answers: Answers, exam: Exam, part: str) -> Iterator[tuple[str, float]]:
    """Yield scores of the answers where one is right, and how well doubt tells these images from CIFAR's own."""
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
    """Scores and differences by their names."""

    def __init__(self, scores: Sequence[Score], differences: Sequence[Difference]) -> None:
        self.all = list(scores)
        self._scores = {(one.images, one.combination, one.members, one.metric): one for one in scores}
        self._differences = {(one.combination, one.members, one.metric): one for one in differences}
        self.members = max(one.members for one in scores)
        images = list(dict.fromkeys(one.images for one in scores))
        spoiled = {f"{name} {severity}" for name in CORRUPTIONS for severity in SEVERITIES}
        self.others = [name for name in images if name != TEST and name not in spoiled]

    def get(self, names: Combination, metric: str, images: str = TEST, members: int | None = None) -> Score:
        return self._scores[images, "+".join(names), members or self.members, metric]

    def difference(self, names: Combination, metric: str, members: int | None = None) -> Difference:
        """Difference from theta0 alone, with as many members."""
        return self._differences["+".join(names), members or self.members, metric]

    def at_severity(self, names: Combination, metric: str, severity: int) -> float:
        """The mean over the four corruptions; severity 0 is the clean images, which nothing tells from themselves."""
        if severity == 0:
            return 0.5 if metric.startswith("auroc") else self.get(names, metric).value
        return float(np.mean([self.get(names, metric, f"{name} {severity}").value for name in CORRUPTIONS]))


def write(path: Path, by_regime: Mapping[str, Scores]) -> None:
    """All scores as a CSV file; a cell is empty where a standard error does not apply."""
    rows = (
        (regime, *one[:4], *("" if math.isnan(number) else f"{number:.8g}" for number in one[4:]))
        for regime, scores in by_regime.items()
        for one in scores.all
    )
    atomic.write_csv(path, ("regime", *Score._fields), rows)
