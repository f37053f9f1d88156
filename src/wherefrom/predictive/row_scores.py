"""Scores of rows, their standard errors, and what they would be without a model.

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

import torch
from torch import Tensor

from wherefrom.predictive import gaussians
from wherefrom.predictive.class_scores import correct, reliability

Z = 1.959963984540054
_FEW_OF_A_KIND = 10  # rows that hit, or that miss, below which a share has an interval instead of an error


@dataclass(frozen=True)
class Score:
    """A value, its standard error, and where that would mislead, an interval of 95%."""

    value: float | None
    error: float | None = None
    interval: tuple[float, float] | None = None

    @classmethod
    def mean(cls, by_row: Tensor) -> Score:
        return cls(finite_or_none(float(by_row.mean())), standard_error(by_row))

    @classmethod
    def share(cls, hits: Tensor) -> Score:
        """Share of the rows that hit.

        >>> Score.share(torch.ones(4)).interval
        (0.51..., 1.0)
        """
        hits = hits.double()
        part, count = float(hits.mean()), len(hits)
        few = min(float(hits.sum()), count - float(hits.sum())) < _FEW_OF_A_KIND
        return cls(part, math.sqrt(part * (1 - part) / count), wilson(part, count) if few else None)


def standard_error(by_row: Tensor) -> float | None:
    """The standard error of a mean of such rows."""
    return finite_or_none(float(by_row.double().std()) / math.sqrt(len(by_row))) if len(by_row) > 1 else None


def wilson(part: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval for a share of rows.

    >>> wilson(0.95, 100)
    (0.88..., 0.97...)
    """
    square = Z * Z / count
    middle, reach = part + square / 2, Z * math.sqrt(part * (1 - part) / count + square / (4 * count))
    return max(0.0, (middle - reach) / (1 + square)), min(1.0, (middle + reach) / (1 + square))


# ---------------------------------------------------------------------- quantities


def of_quantities(y: Tensor, mean: Tensor, covered: Tensor, crps: Tensor, nll: Tensor | None) -> dict[str, Score]:
    """Score by each row's truth, mean, whether its interval holds the truth, CRPS and, where it has a density, NLL."""
    squares, around = (mean - y).square(), (y - y.mean()).square()
    rmse, whole, left = float(squares.mean().sqrt()), float(around.mean()), float(squares.mean())
    explained = Score(None)
    if whole > 0:
        explained = Score(1 - left / whole, standard_error((left * around / whole - squares) / whole))
    return {
        "nll": Score(None) if nll is None else Score.mean(nll),
        "rmse": Score(rmse, standard_error(squares / (2 * rmse)) if rmse > 0 else None),
        "crps": Score.mean(crps),
        "coverage": Score.share(covered),
        "r2": explained,
    }


def avoidable_coverage(y: Tensor, low: Tensor, high: Tensor, level: float) -> float:
    """Coverage of intervals, less what single values of y force upon them beyond their level.  # (rows,) each

    An interval of counts cannot end within a count, nor below 0, and so holds more than it says. A side is too wide
    only if less than (1 - level) / 2 of the truth lies at its end or beyond: without this end it would hold enough.
    Where no single value has a probability this is the coverage.

    >>> counts = torch.tensor([0.0] * 60 + [1.0] * 30 + [2.0] * 9 + [3.0])  # which [0, 2] holds as well as can be
    >>> none = torch.zeros(100)
    >>> [round(avoidable_coverage(counts, none, none + end, 0.95), 3) for end in (1, 2, 3, 4)]
    [0.9, 0.95, 0.965, 0.975]
    """
    held = float(((y >= low) & (y <= high)).double().mean())
    tail = (1 - level) / 2
    spare = sum(max(0.0, tail - float(beyond.double().mean())) for beyond in (y <= low, y >= high))
    return held if held <= level else min(held, level + spare)


def always_the_same(y: Tensor) -> dict[str, float]:
    """Answering every row with the mean and the standard deviation of all."""
    std = float(y.std(correction=0))
    if not std > 0:
        return {"rmse": 0.0}
    crps = gaussians.crps(y - y.mean(), torch.tensor(std))
    return {
        "nll": 0.5 * (1 + math.log(2 * math.pi)) + math.log(std),
        "rmse": std,
        "crps": float(crps.mean()),
        "r2": 0.0,
    }


# ---------------------------------------------------------------------- classes


def of_classes(probabilities: Tensor, numbers: Tensor, nll: Tensor, brier: Tensor) -> dict[str, Score]:
    """Score by each row's probabilities, the number of its class, NLL and Brier score."""
    return {
        "nll": Score.mean(nll),
        "accuracy": Score.share(correct(probabilities, numbers)),
        "auc": auc(probabilities, numbers),
        "brier": Score.mean(brier),
        "ece": _ece(probabilities, numbers),
    }


def always_the_shares(numbers: Tensor, classes: int) -> dict[str, float]:
    """Answering every row with the classes' shares among all."""
    part = torch.bincount(numbers, minlength=classes).double() / len(numbers)
    return {
        "nll": float(torch.special.entr(part).sum()),
        "accuracy": float(part.max()),
        "auc": 0.5,
        "brier": float(1 - part.square().sum()),
    }


def auc(probabilities: Tensor, numbers: Tensor) -> Score:
    """Area under the ROC curve: how often a row of a class is given a larger probability of it than another row.

    Of two classes it is that of the second; of more, the mean over those that are here.
    """
    classes = probabilities.shape[1]
    areas, influence, fewest = [], torch.zeros(len(numbers), dtype=torch.float64), len(numbers)
    for k in [1] if classes == 2 else range(classes):
        is_class = numbers == k
        if not 0 < int(is_class.sum()) < len(numbers):
            continue
        ranked = _ranked(probabilities[:, k].double(), is_class)
        areas.append(float(ranked[is_class].mean()))
        for kind in (is_class, ~is_class):
            count = int(kind.sum())
            fewest = min(fewest, count)
            influence[kind] += (ranked[kind] - areas[-1]) / count * math.sqrt(count / max(1, count - 1))
    if not areas:
        return Score(None)
    value, error = math.fsum(areas) / len(areas), float(influence.square().sum().sqrt()) / len(areas)
    return Score(value, error, wilson(value, fewest) if fewest < 2 or not error else None)


def _ranked(scores: Tensor, is_class: Tensor) -> Tensor:
    """Number of rows of the other kind that each row is on the right side of; equal ones count half."""
    ranks = torch.empty_like(scores)
    for kind, side in ((is_class, 1), (~is_class, -1)):
        others, these = (side * scores[~kind]).sort().values, side * scores[kind]
        below = torch.searchsorted(others, these) + torch.searchsorted(others, these, right=True)
        ranks[kind] = below.double() / (2 * len(others))
    return ranks


def _ece(probabilities: Tensor, numbers: Tensor) -> Score:
    bins, confidence = reliability(probabilities, numbers), probabilities.amax(1)
    bin_index = torch.bucketize(confidence, bins.upper[:-1])
    gap = correct(probabilities, numbers).double() - confidence
    return Score(bins.ece, standard_error(bins.gap.nan_to_num(0.0).sign()[bin_index] * gap))


def finite_or_none(value: float) -> float | None:
    """Return the value; None if it is infinite or not a number."""
    return value if math.isfinite(value) else None
