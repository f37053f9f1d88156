"""What a report says of one prediction: its scores, how well it is calibrated, every row, and whose doubt it is.

A view is of one output. A prediction of several quantities has one for each; one of classes has a single view. All
values are plain: numbers, words, lists and dictionaries of them; what is not known is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods.classification import ClassPrediction
from wherefrom.likelihoods.regression import Prediction
from wherefrom.predictive import row_scores
from wherefrom.predictive.class_scores import correct
from wherefrom.report import scores
from wherefrom.report.words import meaning, told_apart, verdict

LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
_PIT_BINS = 10
_CURVE_POINTS = 100
_MOST_SOURCES = 8  # of which every row is shown; smaller ones are added up
_MOST_CLASSES = 20  # of which a table of mistakes is shown
_SUMMED = "others"
_PARTS, _LEAST_IN_A_PART = 5, 10  # groups of rows whose calibration is looked at by itself, and their rows


@dataclass(frozen=True, eq=False)
class Scored:
    """One output's prediction and truth."""

    prediction: Any  # Prediction of one output, or ClassPrediction
    truth: Any  # (rows,): a tensor, or labels
    name: str

    @property
    def is_classes(self) -> bool:
        return isinstance(self.prediction, ClassPrediction)

    @cached_property
    def numbers(self) -> Tensor:
        """Of the classes: which of them each row is.  # (rows,)"""
        return torch.tensor([self.prediction.classes.index(label) for label in self.truth])

    @cached_property
    def held(self) -> Tensor:
        """Whether the 95% interval holds the truth.  # (rows,)"""
        return holds(self.prediction, self.truth, 0.95)

    def scores(self) -> dict[str, dict[str, Any]]:
        """Whatever is defined here, and how sure it is."""
        found = (
            scores.of_classes(self.prediction, self.truth, self.numbers)
            if self.is_classes
            else scores.of_quantity(self.prediction, self.truth, self.held)
        )
        sure = {
            name: {"error": score.error, "interval": score.interval and list(score.interval)}
            for name, score in found.items()
        }
        return {"scores": {name: score.value for name, score in found.items()}, "errors": sure}

    def baseline(self) -> dict[str, Any]:
        """The scores of no model at all, and whether this one is better."""
        if self.is_classes:
            known = row_scores.always_the_shares(self.numbers, len(self.prediction.classes))
            return {"scores": known, "gain": scores.gain_of_classes(self.prediction, self.truth, self.numbers)}
        return {
            "scores": row_scores.always_the_same(self.truth),
            "gain": scores.gain_of_quantity(self.prediction, self.truth),
        }

    def nll_by_row(self) -> Tensor | None:
        try:
            found: Tensor = self.prediction.nll(self.truth, by_row=True)
        except ValueError:
            return None
        return found

    def doubt(self) -> Tensor:
        """What rows are put in order by: the standard deviation, or the entropy.  # (rows,)"""
        found: Tensor = self.prediction.entropy if self.is_classes else self.prediction.std
        return found


def split(prediction: Any, truth: Any, names: Sequence[str]) -> list[Scored]:
    """One for each output."""
    if isinstance(prediction, ClassPrediction):
        return [Scored(prediction, truth, names[0])]
    truth = torch.as_tensor(truth, dtype=torch.float64)
    if truth.ndim == 1 or truth.shape[1] == 1:
        return [Scored(prediction if prediction.is_flat else _output(prediction, 0), truth.flatten(), names[0])]
    return [Scored(_output(prediction, j), truth[:, j], name) for j, name in enumerate(names)]


def _output(prediction: Prediction, j: int) -> Prediction:
    """One of several outputs as a prediction of its own."""
    one = slice(j, j + 1)
    changes: dict[str, Any] = {
        "mixture": prediction.mixture.of_output(j),
        "location": prediction.location[one],
        "scale": prediction.scale[one],
        "y_names": (),
        "is_flat": True,
    }
    if (conformal := prediction.conformal) is not None:
        changes["conformal"] = replace(conformal, scores=conformal.scores[:, one])
    return replace(prediction, **changes)


def interval(prediction: Prediction, level: float) -> tuple[Tensor, Tensor]:
    """The interval of this level; where too few rows were calibrated on for a conformal one, the Gaussian one."""
    try:
        return prediction.interval(level)
    except ValueError:
        return prediction.interval(level, "gaussian")


def holds(prediction: Prediction, y: Tensor, level: float) -> Tensor:
    """Whether the truth lies within it.  # (rows,)"""
    low, high = interval(prediction, level)
    return (y >= low) & (y <= high)


def coverage(prediction: Prediction, y: Tensor, level: float) -> float:
    return float(holds(prediction, y, level).double().mean())


# ---------------------------------------------------------------------- views


def view(scored: Scored, listed: Tensor, has_families: bool) -> dict[str, Any]:
    """All of one output but its combinations and its advice; rows are shown where they are listed."""
    own = _of_classes(scored, listed) if scored.is_classes else _of_quantity(scored, listed)
    return {
        "name": scored.name,
        **scored.scores(),
        "baseline": scored.baseline(),
        "sources": _sources(scored, listed, has_families),
        **own,
    }


def _of_quantity(scored: Scored, listed: Tensor) -> dict[str, Any]:
    prediction, y = scored.prediction, scored.truth
    low, high = interval(prediction, 0.95)
    held, count = float(scored.held.double().mean()), len(prediction)
    error = math.sqrt(0.95 * 0.05 / count)
    return {
        "verdict": {
            "kind": "interval",
            "observed": held,
            "expected": 0.95,
            "error": error,
            "word": verdict(held, 0.95, error),
        },
        "typical": {"std": _median(prediction.std), "width": _median(high - low)},
        "points": {
            "truth": short(y[listed]),
            "mean": short(prediction.mean[listed]),
            "std": short(prediction.std[listed]),
            "low": short(low[listed]),
            "high": short(high[listed]),
        },
        "calibration": {
            "levels": list(LEVELS),
            "observed": short(coverage(prediction, y, level) for level in LEVELS),
            "error": short(math.sqrt(level * (1 - level) / count) for level in LEVELS),
        },
        "pit": torch.histc(prediction.cdf(y).double(), _PIT_BINS, 0.0, 1.0).long().tolist(),
        "groups": _by_prediction(prediction.mean, scored.held),
    }


def _of_classes(scored: Scored, listed: Tensor) -> dict[str, Any]:
    prediction: ClassPrediction = scored.prediction
    labels = list(map(str, prediction.classes))
    numbers = scored.numbers
    right = correct(prediction.probabilities, numbers)
    confidence, count = prediction.confidence, len(prediction)
    accuracy, expected = float(right.double().mean()), float(confidence.mean())
    error = math.sqrt(float((confidence * (1 - confidence)).sum())) / count
    guesses = prediction.probabilities.argmax(1)
    of_truth = prediction.probabilities.gather(1, numbers[:, None]).squeeze(1)
    return {
        "verdict": {
            "kind": "confidence",
            "observed": accuracy,
            "expected": expected,
            "error": error,
            "word": verdict(accuracy, expected, max(error, 1e-9)),
        },
        "classes": labels,
        "typical": {
            "entropy": float(prediction.entropy.mean()),
            "overlap": float(prediction.expected_entropy.mean()),
            "disagreement": float(prediction.mutual_information.mean()),
        },
        "points": {
            "truth": numbers[listed].tolist(),
            "guess": guesses[listed].tolist(),
            "confidence": short(confidence[listed]),
            "of_truth": short(of_truth[listed]),
            "entropy": short(prediction.entropy[listed]),
            "overlap": short(prediction.expected_entropy[listed]),
            "disagreement": short(prediction.mutual_information[listed]),
        },
        "reliability": _reliability(prediction, scored.truth),
        "confidence": {
            "right": torch.histc(confidence[right], 10, 0.0, 1.0).long().tolist(),
            "wrong": torch.histc(confidence[~right], 10, 0.0, 1.0).long().tolist(),
        },
        "risk": _risk(prediction, scored.truth),
        "mistakes": _mistakes(numbers, guesses, len(labels)),
        "groups": _by_answer(labels, guesses, right, confidence),
    }


def _reliability(prediction: ClassPrediction, y: Any) -> dict[str, Any]:
    found = prediction.reliability(y, bins=10)
    kept = found.count > 0
    confidence, count = found.confidence[kept], found.count[kept]
    return {
        "confidence": short(confidence),
        "accuracy": short(found.accuracy[kept]),
        "count": count.tolist(),
        "error": short((confidence * (1 - confidence) / count).sqrt()),
        "ece": prediction.ece(y),
        "by_chance": scores.ece_by_chance(prediction, y),
    }


def _risk(prediction: ClassPrediction, y: Any) -> dict[str, Any]:
    found = prediction.risk_coverage(y)
    some = thinned(len(found), _CURVE_POINTS)
    return {"coverage": short(found.coverage[some]), "risk": short(found.risk[some]), "best": short(found.best[some])}


def _mistakes(truth: Tensor, guesses: Tensor, classes: int) -> list[list[int]] | None:
    """How often each class, by rows, is taken for each, by columns."""
    if classes > _MOST_CLASSES:
        return None
    return torch.bincount(truth * classes + guesses, minlength=classes**2).view(classes, classes).tolist()


# ---------------------------------------------------------------------- groups


def _by_prediction(mean: Tensor, held: Tensor) -> list[dict[str, Any]]:
    """How often the 95% intervals hold the truth, by fifths of the predicted mean; equal ones stay together."""
    if len(mean) < _PARTS * _LEAST_IN_A_PART:
        return []
    edges = mean.double().quantile(torch.linspace(0, 1, _PARTS + 1, dtype=torch.float64)[1:-1])
    place = torch.bucketize(mean.double(), edges)
    groups = [place == part for part in place.unique().tolist()]
    ends = [told_apart(float(mean[own].min()), float(mean[own].max()), digits=3) for own in groups]
    return [
        {"name": " to ".join(own_ends)} | _group(held[own], 0.95, len(groups))
        for own, own_ends in zip(groups, ends, strict=True)
    ]


def _by_answer(labels: Sequence[str], guesses: Tensor, right: Tensor, confidence: Tensor) -> list[dict[str, Any]]:
    """How often answers are right, next to how sure they are, by the class that is answered."""
    present = [k for k in range(len(labels)) if int((guesses == k).sum()) >= _LEAST_IN_A_PART]
    if len(present) > _MOST_CLASSES:
        present = sorted(present, key=lambda k: -int((guesses == k).sum()))[:_MOST_CLASSES]
    return [
        {"name": labels[k]} | _group(right[guesses == k], float(confidence[guesses == k].mean()), len(present))
        for k in sorted(present)
    ]


def _group(hits: Tensor, expected: float, groups: int) -> dict[str, Any]:
    count, hit = len(hits), int(hits.sum())
    return {
        "count": count,
        "observed": hit / count,
        "expected": expected,
        "interval": list(row_scores.wilson(hit / count, count)),
        "word": scores.group_word(hit, count, expected, groups),
    }


# ---------------------------------------------------------------------- sources


def _sources(scored: Scored, listed: Tensor, has_families: bool) -> dict[str, Any]:
    """Every source's share of the doubt, overall and of the listed rows.

    Of a quantity it is the variance that is split. Of classes it is the entropy: what every answer has by itself is
    called overlap, and the mutual information, which is disagreement, is split by its sources.
    """
    prediction = scored.prediction
    try:
        found = prediction.sources(of="entropy") if scored.is_classes else prediction.sources()
    except ValueError as error:
        return {"overall": [], "shares": {}, "problem": str(error).split(":")[0]}
    overall = [
        {
            "name": name,
            "share": part.share,
            "share_error": number(part.share_error),
            "amount": part.variance,
            "amount_error": number(part.variance_error),
        }
        for name, part in found.overall.items()
    ]
    for part in overall:
        part["meaning"] = meaning(part["name"], has_families, scored.name)
    kept = _kept([(part["name"], part["share"]) for part in overall])
    by_row = {name: short(found[name][listed]) for name in kept}
    if len(kept) < len(overall):
        rest = torch.stack([part for name, part in found.items() if name not in kept]).sum(0)
        by_row[_SUMMED] = short(rest[listed])
    return {"overall": overall, "shares": by_row, "problem": None}


def _kept(parts: list[tuple[str, float]]) -> list[str]:
    """The names whose shares are shown row by row: all, or the largest, in the order in which they came."""
    if len(parts) <= _MOST_SOURCES:
        return [name for name, _ in parts]
    largest = sorted(parts, key=lambda part: -part[1])[: _MOST_SOURCES - 1]
    return [name for name, _ in parts if name in {kept for kept, _ in largest}]


# ---------------------------------------------------------------------- plain values


def thinned(count: int, most: int) -> Tensor:
    """So many places at most, evenly spaced, with the first and the last.

    >>> thinned(10, 4).tolist(), thinned(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most, dtype=torch.float64).round().long()


def number(value: float) -> float | None:
    """None for what is not a number."""
    return float(value) if math.isfinite(value) else None


def short(values: Iterable[float] | Tensor, digits: int = 5) -> list[float | int | None]:
    """Numbers with so many significant digits: for points of plots, not for scores.

    >>> short([1.23456789, 1e-9, float("nan"), 2.0])
    [1.2346, 1e-09, None, 2]
    """
    given = values.tolist() if isinstance(values, Tensor) else values
    found: list[float | int | None] = []
    for value in given:
        if not math.isfinite(value):
            found.append(None)
            continue
        rounded = float(f"{value:.{digits}g}")
        found.append(int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded)
    return found


def _median(values: Tensor) -> float:
    return float(values.double().median())
