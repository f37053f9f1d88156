"""Of a report: a prediction's scores, whether its groups are calibrated, and whether it is better than no model."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods.classification import ClassPrediction
from wherefrom.predictive import row_scores
from wherefrom.predictive.class_scores import brier
from wherefrom.predictive.row_scores import Score, Z, known, standard_error

_STRANGE = 0.05  # the chance that any group of a calibrated run is called off
_NEGLIGIBLE = 0.02


def of_quantity(prediction: Any, y: Tensor, held: Tensor) -> dict[str, Score]:
    """`held` says of each row whether the 95% interval holds the truth."""
    try:
        nll = prediction.nll(y, by_row=True)
    except ValueError:  # without a variance there is no density
        nll = None
    return row_scores.of_quantities(y, prediction.mean, held, prediction.crps(y, by_row=True), nll)


def of_classes(prediction: ClassPrediction, y: Any, numbers: Tensor) -> dict[str, Score]:
    nll, squares = prediction.nll(y, by_row=True), prediction.brier(y, by_row=True)
    return row_scores.of_classes(prediction.probabilities, numbers, nll, squares)


def chance(hits: int, count: int, expected: float) -> float:
    """How probable so many hits or fewer, or as many or more, whichever is rarer, twice, are by chance alone.

    >>> round(chance(9, 10, 0.5), 4), chance(5, 10, 0.5)
    (0.0215, 1.0)
    """
    if not 0 < expected < 1:
        return 1.0 if hits == round(expected * count) else 0.0
    k = torch.arange(count + 1, dtype=torch.float64)
    total = torch.tensor(float(count), dtype=torch.float64)
    ways = torch.lgamma(total + 1) - torch.lgamma(k + 1) - torch.lgamma(total - k + 1)
    each = (ways + k * math.log(expected) + (count - k) * math.log1p(-expected)).exp()
    return min(1.0, 2 * min(float(each[: hits + 1].sum()), float(each[hits:].sum())))


def group_word(hits: int, count: int, expected: float, groups: int) -> str:
    """Whether one of so many groups is off: by more than two percent, and more than chance, all groups considered."""
    observed = hits / count
    if abs(observed - expected) <= _NEGLIGIBLE or chance(hits, count, expected) >= _STRANGE / groups:
        return "about right"
    return "too sure" if observed < expected else "too careful"


def ece_by_chance(prediction: ClassPrediction, y: Any) -> float:
    """The calibration error that is to be expected of a calibrated run."""
    bins = prediction.reliability(y)
    place, confidence = torch.bucketize(prediction.confidence, bins.upper[:-1]), prediction.confidence
    variance = torch.zeros(len(bins), dtype=torch.float64).index_add(0, place, confidence * (1 - confidence))
    return float(variance.sqrt().sum()) * math.sqrt(2 / math.pi) / len(confidence)


# ---------------------------------------------------------------------- better than no model?


def gain(own: Tensor, without: Tensor) -> dict[str, Any]:
    """How much lower the loss of a row is than without a model, and whether that is more than chance."""
    apart = (without - own).double()
    mean, error = float(apart.mean()), standard_error(apart)
    word = "unknown"
    if error is not None and math.isfinite(mean):
        word = "better" if mean > Z * error else "worse" if mean < -Z * error else "unknown"
    return {"mean": known(mean), "error": error, "word": word}


def gain_of_quantity(prediction: Any, y: Tensor) -> dict[str, Any]:
    return gain((prediction.mean - y).square(), (y - y.mean()).square())


def gain_of_classes(prediction: ClassPrediction, y: Any, numbers: Tensor) -> dict[str, Any]:
    """By the NLL; by the Brier score where a class had a probability of zero, and came."""
    part = torch.bincount(numbers, minlength=prediction.probabilities.shape[1]).double() / len(numbers)
    own = prediction.nll(y, by_row=True)
    if bool(own.isfinite().all()):
        return gain(own, -part.log()[numbers])
    return gain(prediction.brier(y, by_row=True), brier(part.expand(len(numbers), -1), numbers))
