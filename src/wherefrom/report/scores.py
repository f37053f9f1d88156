"""How good a prediction is, how sure that is by so many rows, and whether it is better than no model.

Every score has its standard error over rows. With the influence I_r of each row on a score of n rows, it is the
standard deviation of I over rows, divided by sqrt(n):

    means (NLL, CRPS, Brier, accuracy, coverage)    I_r = s_r
    RMSE = sqrt(A), A the mean of e_r^2             I_r = e_r^2 / (2 RMSE)
    R2   = 1 - A / B, B the mean of (y_r - mean)^2  I_r = (A (y_r - mean)^2 / B - e_r^2) / B
    ECE  = sum_b |sum_(r in b) (right_r - q_r)| / n I_r = sign_b (right_r - q_r)
    AUC                                             how often r is ranked rightly (DeLong et al. 1988)

Shares near 0 and 1 have Wilson's interval of 95% instead: all of 4 rows is no certainty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from wherefrom.predictive.class_prediction import ClassPrediction
from wherefrom.predictive.class_scores import brier, correct

Z = 1.959963984540054
_FEW_OF_A_KIND = 10  # rows that hit, or that miss, below which a share has an interval instead of an error
_STRANGE = 0.05  # the chance that any group of a calibrated run is called off
_NEGLIGIBLE = 0.02


@dataclass(frozen=True)
class Score:
    """A value, its standard error, and where that would mislead, an interval of 95%."""

    value: float | None
    error: float | None = None
    interval: tuple[float, float] | None = None

    @classmethod
    def mean(cls, by_row: Tensor) -> Score:
        return cls(_known(float(by_row.mean())), influenced(by_row))

    @classmethod
    def share(cls, hits: Tensor) -> Score:
        """Of the rows, how many hit.

        >>> Score.share(torch.ones(4)).interval
        (0.51..., 1.0)
        """
        hits = hits.double()
        part, count = float(hits.mean()), len(hits)
        few = min(float(hits.sum()), count - float(hits.sum())) < _FEW_OF_A_KIND
        return cls(part, math.sqrt(part * (1 - part) / count), wilson(part, count) if few else None)


def influenced(by_row: Tensor) -> float | None:
    """The standard error of a mean of such rows."""
    return _known(float(by_row.double().std()) / math.sqrt(len(by_row))) if len(by_row) > 1 else None


def wilson(part: float, count: int) -> tuple[float, float]:
    """The interval of 95% for a share of so many rows.

    >>> wilson(0.95, 100)
    (0.88..., 0.97...)
    """
    square = Z * Z / count
    middle, reach = part + square / 2, Z * math.sqrt(part * (1 - part) / count + square / (4 * count))
    return max(0.0, (middle - reach) / (1 + square)), min(1.0, (middle + reach) / (1 + square))


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


# ---------------------------------------------------------------------- quantities


def of_quantity(prediction: Any, y: Tensor, held: Tensor) -> dict[str, Score]:
    """`held` says of each row whether the 95% interval holds the truth."""
    squares, around = (prediction.mean - y).square(), (y - y.mean()).square()
    rmse, whole, left = float(squares.mean().sqrt()), float(around.mean()), float(squares.mean())
    explained = Score(None)
    if whole > 0:
        explained = Score(1 - left / whole, influenced((left * around / whole - squares) / whole))
    return {
        "nll": _defined(prediction, y),
        "rmse": Score(rmse, influenced(squares / (2 * rmse)) if rmse > 0 else None),
        "crps": Score.mean(prediction.crps(y, by_row=True)),
        "coverage": Score.share(held),
        "r2": explained,
    }


def without_model(y: Tensor) -> dict[str, float | None]:
    """Always answering with the mean and the standard deviation of these rows."""
    std = float(y.std(correction=0))
    if not std > 0:
        return {"rmse": 0.0}
    z, normal = (y - y.mean()) / std, Normal(0.0, 1.0)
    crps = std * (z * (2 * normal.cdf(z) - 1) + 2 * normal.log_prob(z).exp() - 1 / math.sqrt(math.pi))
    return {
        "nll": 0.5 * (1 + math.log(2 * math.pi)) + math.log(std),
        "rmse": std,
        "crps": float(crps.mean()),
        "r2": 0.0,
    }


# ---------------------------------------------------------------------- classes


def of_classes(prediction: ClassPrediction, y: Any, numbers: Tensor) -> dict[str, Score]:
    return {
        "nll": _defined(prediction, y),
        "accuracy": Score.share(correct(prediction.probabilities, numbers)),
        "auc": auc(prediction.probabilities, numbers),
        "brier": Score.mean(prediction.brier(y, by_row=True)),
        "ece": _ece(prediction, y, numbers),
    }


def always_the_frequencies(numbers: Tensor, classes: int) -> dict[str, float | None]:
    """Always answering with the class frequencies of these rows."""
    part = torch.bincount(numbers, minlength=classes).double() / len(numbers)
    return {
        "nll": float(torch.special.entr(part).sum()),
        "accuracy": float(part.max()),
        "auc": 0.5,
        "brier": float(1 - part.square().sum()),
    }


def auc(probabilities: Tensor, numbers: Tensor) -> Score:
    """How often a row of a class is given a larger probability of it than a row of none: of two classes, of the second;
    of more, the mean over those that are here."""
    classes = probabilities.shape[1]
    found, influence, fewest = [], torch.zeros(len(numbers), dtype=torch.float64), len(numbers)
    for k in [1] if classes == 2 else range(classes):
        own = numbers == k
        if not 0 < int(own.sum()) < len(numbers):
            continue
        ranked = _ranked(probabilities[:, k].double(), own)
        found.append(float(ranked[own].mean()))
        for kind in (own, ~own):
            count = int(kind.sum())
            fewest = min(fewest, count)
            influence[kind] += (ranked[kind] - found[-1]) / count * math.sqrt(count / max(1, count - 1))
    if not found:
        return Score(None)
    value, error = math.fsum(found) / len(found), float(influence.square().sum().sqrt()) / len(found)
    return Score(value, error, wilson(value, fewest) if fewest < 2 or not error else None)


def _ranked(scores: Tensor, own: Tensor) -> Tensor:
    """Of each row, how many of the other kind it is on the right side of; equal ones count half."""
    found = torch.empty_like(scores)
    for kind, side in ((own, 1), (~own, -1)):
        others, these = (side * scores[~kind]).sort().values, side * scores[kind]
        below = torch.searchsorted(others, these) + torch.searchsorted(others, these, right=True)
        found[kind] = below.double() / (2 * len(others))
    return found


def _ece(prediction: ClassPrediction, y: Any, numbers: Tensor) -> Score:
    bins = prediction.reliability(y)
    place = torch.bucketize(prediction.confidence, bins.upper[:-1])
    gap = correct(prediction.probabilities, numbers).double() - prediction.confidence
    return Score(bins.ece, influenced(bins.gap.nan_to_num(0.0).sign()[place] * gap))


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
    mean, error = float(apart.mean()), influenced(apart)
    word = "unknown"
    if error is not None and math.isfinite(mean):
        word = "better" if mean > Z * error else "worse" if mean < -Z * error else "unknown"
    return {"mean": _known(mean), "error": error, "word": word}


def gain_of_quantity(prediction: Any, y: Tensor) -> dict[str, Any]:
    return gain((prediction.mean - y).square(), (y - y.mean()).square())


def gain_of_classes(prediction: ClassPrediction, y: Any, numbers: Tensor) -> dict[str, Any]:
    """By the NLL; by the Brier score where a class had a probability of zero, and came."""
    part = torch.bincount(numbers, minlength=prediction.probabilities.shape[1]).double() / len(numbers)
    own = prediction.nll(y, by_row=True)
    if bool(own.isfinite().all()):
        return gain(own, -part.log()[numbers])
    return gain(prediction.brier(y, by_row=True), brier(part.expand(len(numbers), -1), numbers))


def _defined(prediction: Any, y: Any) -> Score:
    """A density, for one, is not defined where the variance is zero."""
    try:
        by_row: Tensor = prediction.nll(y, by_row=True)
    except ValueError:
        return Score(None)
    return Score.mean(by_row)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
