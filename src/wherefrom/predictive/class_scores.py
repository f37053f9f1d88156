"""Scores of class probabilities: proper scores, calibration, and whether doubt finds what is wrong or strange.

Probabilities are a table of rows by classes, p_rc; y holds the number of each row's class, from 0. All is worked out in
double precision. With the top label c_r = argmax_c p_rc (of equals, the first) and its confidence q_r = p_r,c_r:

    nll_r       = -log p_r,y_r
    brier_r     = sum_c (p_rc - [y_r = c])^2                         from 0 to 2: all classes count, undivided
    entropy_r   = -sum_c p_rc log p_rc                               in nats
    ECE         = sum_b (n_b / n) |accuracy_b - confidence_b|        over bins of rows that are about as confident
    AUROC       = P(score outside > score inside) + P(equal) / 2
    risk(k / n) = the mean error of the k rows that are most confident

Where scores are equal, nothing depends on the order of the rows: equal ones share a bin or a threshold, and a risk that
takes only some of them is the mean over all orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.table import Table
from wherefrom.training.workers import one_core

_SUM_TOLERANCE = 1e-3  # what half precision, or three printed digits, leave
_ROUNDING = 1e-9

# ---------------------------------------------------------------------- row by row


@one_core()
def nll(probabilities: Any, y: Any) -> Tensor:
    """Negative log-likelihood of each row's class, in nats; infinite where its probability is zero.  # (rows,)

    >>> nll([[0.5, 0.5], [0.0, 1.0]], [0, 1])
    tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    probabilities, y = _labelled(probabilities, y)
    return 0 - probabilities.gather(1, y[:, None]).squeeze(1).log()  # and not minus zero where it is certain


@one_core()
def ranked_probability(probabilities: Tensor, numbers: Tensor) -> Tensor:
    """Ranked probability score of ordered classes: sum over k of (P(y <= k) - [truth <= k])^2.  # (rows,)"""
    below = probabilities.double().cumsum(1)[:, :-1]
    is_reached = numbers.unsqueeze(1) <= torch.arange(below.shape[1])
    return (below - is_reached.double()).square().sum(1)


def brier(probabilities: Any, y: Any) -> Tensor:
    """Squared distance of the probabilities to the truth, added up over all classes: 0 at best, 2 at worst.  # (rows,)

    Of two classes it is twice the score that looks at one of them, such as scikit-learn's for binary labels.

    >>> brier([[0.5, 0.5], [0.0, 1.0]], [0, 0])
    tensor([0.5000, 2.0000], dtype=torch.float64)
    """
    probabilities, y = _labelled(probabilities, y)
    truth = torch.zeros_like(probabilities).scatter(1, y[:, None], 1.0)
    return (probabilities - truth).square().sum(1)


@one_core()
def correct(probabilities: Any, y: Any) -> Tensor:
    """True where the most probable class is the right one; of equals, the first is taken.  # (rows,)

    >>> correct([[0.7, 0.3], [0.6, 0.4]], [0, 1])
    tensor([ True, False])
    """
    probabilities, y = _labelled(probabilities, y)
    return probabilities.argmax(1) == y


def accuracy(probabilities: Any, y: Any) -> float:
    """The share of rows whose most probable class is the right one.

    >>> accuracy([[0.7, 0.3], [0.6, 0.4]], [0, 1])
    0.5
    """
    return float(correct(probabilities, y).double().mean())


@one_core()
def entropy(probabilities: Any) -> Tensor:
    """Entropy of the probabilities in nats: from 0 (sure of one class) to log(classes).  # (..., classes) -> (...)

    >>> entropy([[0.5, 0.5], [0.0, 1.0]])
    tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    return torch.special.entr(_probabilities(probabilities)).sum(-1).clamp_min(0)


# ---------------------------------------------------------------------- calibration


@dataclass(frozen=True, eq=False)
class Reliability:
    """Accuracy next to confidence, by bins of confidence. A bin without rows says nan."""

    lower: Tensor  # (bins,): of the bin, or of what is in it where bins hold equal counts
    upper: Tensor
    count: Tensor
    confidence: Tensor  # the mean over the bin's rows
    accuracy: Tensor

    def __len__(self) -> int:
        return len(self.count)

    def __repr__(self) -> str:
        rows, bins = int(self.count.sum()), len(self)
        return f"Reliability({rows} row{'s' * (rows != 1)} in {bins} bin{'s' * (bins != 1)}, ece {self.ece:.4f})"

    @property
    def gap(self) -> Tensor:
        """Accuracy less confidence: below zero where the rows were too sure.  # (bins,)"""
        return self.accuracy - self.confidence

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean gap, whatever its sign, over rows.

        Chance alone keeps it above zero: a bin of n rows that are calibrated is off by some 0.8 sqrt(q (1 - q) / n).
        """
        return float((self.count * self.gap.abs().nan_to_num(0.0)).sum() / self.count.sum())

    @property
    def mce(self) -> float:
        """Maximum calibration error: the largest gap of any bin, however few rows it has."""
        return float(self.gap.abs().nan_to_num(0.0).max())

    def table(self) -> Table:
        parts = (self.lower, self.upper, self.count, self.confidence, self.accuracy, self.gap)
        columns = ("from", "to", "rows", "confidence", "accuracy", "gap")
        return Table(columns, list(zip(*(part.tolist() for part in parts), strict=True)))


@one_core()
def reliability(probabilities: Any, y: Any, bins: int = 15, adaptive: bool = False) -> Reliability:
    """Confidence in the most probable class against how often it is right (Guo et al. 2017).

    Bins are of equal width, and hold lower < confidence <= upper (0 is in the first); `adaptive` ones hold equally many
    rows, except that equal confidences stay together: there are fewer of them where rows are few.

    >>> print(reliability([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.45, 0.55]], [0, 0, 1, 0], bins=4).table())
      from      to  rows  confidence  accuracy      gap
    0.0000  0.2500     0           -         -        -
    0.2500  0.5000     0           -         -        -
    0.5000  0.7500     2      0.6250    0.0000  -0.6250
    0.7500  1.0000     2      0.8500    1.0000   0.1500
    """
    probabilities, y = _labelled(probabilities, y)
    confidence, label = probabilities.max(1)
    return _binned(confidence, label == y, bins, adaptive)


@one_core()
def classwise_ece(probabilities: Any, y: Any, bins: int = 15, adaptive: bool = False) -> float:
    """The calibration error of every class's probability, not only the largest: the mean over classes.

    Each class is binned by its own probability, against how often it is the right one (Kull et al. 2019; `adaptive`:
    Nixon et al. 2019).

    >>> classwise_ece([[0.75, 0.25]] * 4, [0, 0, 0, 1])
    0.0
    """
    probabilities, y = _labelled(probabilities, y)
    columns = probabilities.T.contiguous()
    return math.fsum(_binned(column, y == c, bins, adaptive).ece for c, column in enumerate(columns)) / len(columns)


def _binned(confidence: Tensor, is_right: Tensor, bins: int, adaptive: bool) -> Reliability:
    if int(bins) != bins or bins < 1:
        raise ValueError(f"bins must be a whole number, at least 1; it is {bins}")
    bins = int(bins)
    steps = torch.arange(1, bins + 1, dtype=torch.float64)
    if adaptive:  # the largest confidence of each bin
        places = (steps * len(confidence) / bins - _ROUNDING).ceil().long() - 1
        uppers = confidence.sort().values[places].unique()
    else:
        uppers = steps / bins
    place = torch.bucketize(confidence, uppers[:-1])  # uppers[i - 1] < confidence <= uppers[i]

    def total(values: Tensor) -> Tensor:
        return torch.zeros(len(uppers), dtype=torch.float64).index_add(0, place, values.double())

    count = total(torch.ones_like(confidence))
    lowers = (steps - 1) / bins
    if adaptive:
        lowers = torch.full_like(uppers, math.inf).scatter_reduce(0, place, confidence, "amin")
    return Reliability(lowers, uppers, count.long(), total(confidence) / count, total(is_right) / count)


# ---------------------------------------------------------------------- rows from elsewhere


@one_core()
def auroc(inside_scores: Any, outside_scores: Any) -> float:
    """The probability that a row from elsewhere has a larger score than a row like those of training; ties count half.

    A score says how strange a row is: entropy, mutual information, one less the confidence.

    >>> auroc([0.1, 0.2, 0.3], [0.3, 0.9])
    0.9166666666666666
    """
    inside, outside = _scores(inside_scores, "inside").sort().values, _scores(outside_scores, "outside")
    below = torch.searchsorted(inside, outside) + torch.searchsorted(inside, outside, right=True)
    return float(below.double().mean()) / (2 * len(inside))


@one_core()
def aupr(inside_scores: Any, outside_scores: Any) -> float:
    """Average precision of finding the rows from elsewhere by their large scores; equal scores share a threshold.

        sum over thresholds of (recall_i - recall_(i-1)) precision_i

    It depends on how many rows there are of each kind: scores that know nothing have the share of outside rows.

    >>> aupr([0.1, 0.2, 0.3], [0.3, 0.9])
    0.8333333333333333
    """
    inside, outside = _found(inside_scores, outside_scores)
    precision = outside / (inside + outside)
    gained = outside.diff(prepend=torch.zeros(1, dtype=torch.float64)) / outside[-1]
    return float(gained @ precision)


@one_core()
def fpr_at_95(inside_scores: Any, outside_scores: Any) -> float:
    """The share of inside rows that are taken for strange, when the threshold finds 95% of those from elsewhere.

    Where inside rows are the ones to be found, as in some of the literature: `fpr_at_95(-outside, -inside)`.

    >>> fpr_at_95([0.1, 0.2, 0.3, 0.4], [0.3, 0.9])
    0.5
    """
    inside, outside = _found(inside_scores, outside_scores)
    enough = outside >= 0.95 * outside[-1] - _ROUNDING
    return float(inside[enough][0] / inside[-1])


def _found(inside_scores: Any, outside_scores: Any) -> tuple[Tensor, Tensor]:
    """Count the rows of each kind that every threshold finds, from the largest score down.  # (thresholds,)"""
    inside, outside = _scores(inside_scores, "inside"), _scores(outside_scores, "outside")
    thresholds, place = torch.cat([inside, outside]).unique(return_inverse=True)
    kinds = [torch.bincount(own, minlength=len(thresholds)) for own in (place[: len(inside)], place[len(inside) :])]
    counts = [kind.flip(0).cumsum(0).double() for kind in kinds]
    return counts[0], counts[1]


# ---------------------------------------------------------------------- answering only when sure


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The mean error of the rows that are most confident, by how many of them are answered."""

    coverage: Tensor  # (rows,): 1 / rows, 2 / rows, ..., 1
    risk: Tensor  # (rows,)
    best: Tensor  # (rows,): the risk under an order that knows the errors

    def __len__(self) -> int:
        return len(self.risk)

    def __repr__(self) -> str:
        rows = f"{len(self)} row{'s' * (len(self) != 1)}"
        return f"RiskCoverage({rows}, area {self.area:.4f}, {self.excess_area:.4f} above the best)"

    @property
    def area(self) -> float:
        """The area under the curve (AURC): the mean risk over all numbers of rows."""
        return float(self.risk.mean())

    @property
    def excess_area(self) -> float:
        """Part of the area that is due to the order, not to the errors themselves: 0 if every error is less sure."""
        return self.area - float(self.best.mean())

    def risk_at(self, coverage: float) -> float:
        """The mean error of the most confident rows, as few as make up this share of all."""
        return float(self.risk[self._rows(coverage) - 1])

    def table(self, coverages: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)) -> Table:
        counts = [self._rows(coverage) for coverage in coverages]
        rows = [
            (float(coverage), count, float(self.risk[count - 1]), float(self.best[count - 1]))
            for coverage, count in zip(coverages, counts, strict=True)
        ]
        return Table(("coverage", "rows", "risk", "best"), rows)

    def _rows(self, coverage: float) -> int:
        if not 0 < coverage <= 1:
            raise ValueError(f"a coverage lies above 0 and is at most 1; {coverage} does not")
        return max(1, math.ceil(coverage * len(self) - _ROUNDING))


@one_core()
def risk_coverage(confidence: Any, errors: Any) -> RiskCoverage:
    """Measure what is gained by leaving the least confident rows unanswered (El-Yaniv and Wiener 2010).

    Errors are True and False, or any loss by row. Where only some of equally confident rows are answered, the risk is
    its mean over which of them.

    >>> found = risk_coverage([0.9, 0.8, 0.7, 0.6], [False, True, False, True])
    >>> found
    RiskCoverage(4 rows, area 0.3333, 0.1250 above the best)
    >>> found.risk_at(0.5)
    0.5
    """
    confidence, errors = _scores(confidence, "confidence"), _numbers(errors)
    if errors.shape != confidence.shape:
        raise ValueError(f"there are {len(confidence)} confidences, but errors of shape {tuple(errors.shape)}")
    if not bool(errors.isfinite().all()):
        raise ValueError("errors must be finite numbers; some are not")
    count = torch.arange(1, len(errors) + 1, dtype=torch.float64)
    _, group, sizes = (-confidence).unique(return_inverse=True, return_counts=True)
    means = torch.zeros(len(sizes), dtype=torch.float64).index_add(0, group, errors) / sizes
    expected = means.repeat_interleave(sizes)
    return RiskCoverage(count / len(errors), expected.cumsum(0) / count, errors.sort().values.cumsum(0) / count)


# ---------------------------------------------------------------------- what is given


def _numbers(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu().double()
    return torch.from_numpy(np.array(values, dtype=np.float64))  # a copy: whatever its strides, and read-only ones, too


def _probabilities(given: Any) -> Tensor:
    """Checked to be what they are called.  # (..., classes)"""
    probabilities = _numbers(given)
    if not probabilities.ndim or not probabilities.numel():
        raise ValueError(f"there are no probabilities here: their shape is {tuple(probabilities.shape)}")
    if not bool((probabilities >= 0).all()):
        raise ValueError("probabilities must not be negative, nor nan; some are")
    gap = (probabilities.sum(-1) - 1).abs()
    if wrong := int((gap > _SUM_TOLERANCE).sum()):
        raise ValueError(
            f"probabilities must add up to 1 over the classes; {wrong} of {gap.numel()} rows are off, by up to "
            f"{float(gap.max()):.3g}. Are they logits? Then take softmax(-1) first"
        )
    return probabilities


def _labelled(given: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Probabilities and the numbers of the classes, checked against each other.  # (rows, classes), (rows,)"""
    probabilities = _probabilities(given)
    if probabilities.ndim != 2:
        raise ValueError(f"probabilities are a table of rows by classes; their shape is {tuple(probabilities.shape)}")
    rows, classes = probabilities.shape
    labels = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if labels.shape != (rows,):
        raise ValueError(f"there are probabilities for {rows} rows, but y has shape {labels.shape}")
    if labels.dtype.kind not in "iub":
        raise ValueError(f"y must be the numbers of classes, as integers; its type is {labels.dtype}")
    y = torch.from_numpy(labels.astype(np.int64))
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise ValueError(f"y must be from 0 to {classes - 1}; it goes from {int(y.min())} to {int(y.max())}")
    return probabilities, y


def _scores(given: Any, name: str) -> Tensor:
    """One number a row, which has an order.  # (rows,)"""
    scores = _numbers(given)
    if scores.ndim != 1 or not scores.numel():
        raise ValueError(f"{name} must be one number for each row, of at least one; its shape is {tuple(scores.shape)}")
    if bool(scores.isnan().any()):
        raise ValueError(f"{name} must be numbers; some are nan")
    return scores
