"""Results of all folds -> the scores of each contender on each table, and how they compare row by row.

A row is scored once in each repeat. Its scores are averaged over the repeats, and the difference between two contenders
is the mean of the rows' differences. Its standard error is over rows, or over groups where rows belong together:

    d = sum_g d_g / n,    se^2 = G / (G - 1) sum_g (d_g - n_g d)^2 / n^2

with d_g the sum over the n_g rows of group g. It leaves out that folds share their training rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Result = Mapping[str, Any]
QUANTITY_SCORES, CLASS_SCORES = ("nll", "crps"), ("nll", "brier")
FIFTHS = 5


@dataclass(frozen=True)
class Comparison:
    """A difference of mean scores, and its standard error: below 0, the first is better."""

    difference: float
    error: float

    @property
    def verdict(self) -> str:
        """ "first", "level" (within a standard error) or "behind"."""
        if self.difference <= 0:
            return "first"
        return "level" if self.difference <= self.error else "behind"


class Claimed(NamedTuple):
    """Difference of the NLL of the test rows to what a contender had stated, and that in standard errors."""

    gap: float
    z: float


@dataclass(frozen=True, eq=False)
class Record:
    """All results of a contender on a table.

    by_row: scores by name, averaged over the repeats; nan where a row was not tested.
    """

    by_row: dict[str, Numbers]
    parts: Sequence[Result]
    y: Numbers
    groups: NDArray[np.int64]

    def mean(self, score: str) -> float:
        """The mean over rows."""
        return float(np.nanmean(self.by_row[score]))

    def error(self, score: str) -> float:
        """The standard error of the mean over rows."""
        return _clustered(self.by_row[score], self.groups)[1]

    def against(self, other: Record, score: str) -> Comparison:
        """Compare with another contender on the same rows."""
        return Comparison(*_clustered(self.by_row[score] - other.by_row[score], self.groups))

    def seconds(self, step: str) -> float:
        """CPU seconds of "fit" or "predict", the mean over folds."""
        return float(np.mean([part[step] for part in self.parts]))

    def worst_fifth(self) -> float:
        """The least coverage among fifths of the rows by predicted mean, averaged over the repeats."""
        by_repeat = defaultdict(list)
        for part in self.parts:
            by_repeat[part["repeat"]].append(part["scores"])
        coverages = []
        for scores in by_repeat.values():
            mean, covered = (np.concatenate([part[name] for part in scores]) for name in ("mean", "covered"))
            fifths = np.array_split(covered[np.argsort(mean, kind="stable")], FIFTHS)
            coverages.append([float(fifth.mean()) for fifth in fifths])
        return float(np.mean(coverages, axis=0).min())

    def claims(self) -> list[Claimed]:
        """Compare the NLL that the contender stated of itself in each fold with that of the test rows."""
        claims = []
        for part in self.parts:
            if "claim" in part:
                nll = np.array(part["scores"]["nll"])
                stated, stated_error = part["claim"]
                _, error = _clustered(nll, self.groups[part["rows"]])
                gap = float(nll.mean()) - stated
                claims.append(Claimed(gap, gap / float(np.hypot(error, stated_error))))
        return claims

    def auc(self) -> float | None:
        """The mean over folds of the area under the ROC curve, of two classes."""
        if "second" not in self.parts[0]["scores"]:
            return None
        areas = [_auc(np.array(part["scores"]["second"]), self.y[part["rows"]] == 1) for part in self.parts]
        return float(np.nanmean(areas))


def record(results: Iterable[Result], y: Numbers, groups: NDArray[np.int64]) -> Record:
    """Put the results of one contender on one table together."""
    parts = sorted(results, key=lambda part: (part["repeat"], part["fold"]))
    names = [name for name in parts[0]["scores"] if name not in ("mean", "second")]
    sums, counts = {name: np.zeros(len(y)) for name in names}, np.zeros(len(y))
    for part in parts:
        counts[part["rows"]] += 1
        for name in names:
            sums[name][part["rows"]] += part["scores"][name]
    with np.errstate(invalid="ignore"):
        return Record({name: total / counts for name, total in sums.items()}, parts, y, groups)


def _clustered(values: Numbers, groups: NDArray[np.int64]) -> tuple[float, float]:
    there = ~np.isnan(values)
    values, groups = values[there], np.unique(groups[there], return_inverse=True)[1]
    mean = float(values.mean())
    sums = np.bincount(groups, values - mean)
    if len(sums) < 2:
        return mean, float("inf")
    return mean, float(np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(values))


def _auc(score: Numbers, is_second: NDArray[np.bool_]) -> float:
    """The share of pairs of rows, one of each class, that the score puts in order; ties count half."""
    if is_second.all() or not is_second.any():
        return float("nan")
    _, index, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[index]  # the middle rank of equal scores
    positives = int(is_second.sum())
    negatives = len(score) - positives
    return float((ranks[is_second].sum() - positives * (positives + 1) / 2) / (positives * negatives))
