"""Scores of predicted times against times that may be censored, and what is known of these without a model.

    Kaplan and Meier    S(t) = product over event times u <= t of 1 - (events at u) / (rows at risk just before u)
    concordance         of all pairs in which one row is known to have had the event first, how many are predicted in
                        this order; equal predictions count half (Harrell). Uno's weighs a pair by 1 / G(t_i)^2.
    Brier score at t    mean of  S_i(t)^2 [t_i <= t, event] / G(t_i)  +  (1 - S_i(t))^2 [t_i > t] / G(t)
    its integral        over t by the trapezoidal rule, divided by the length of the range (Graf et al. 1999)
    D-calibration       u_i = F_i(t_i) is uniform if the predicted distributions F_i are right. Of a censored row it is
                        known to lie above F_i(t_i): it counts evenly in all bins there (Haider et al. 2020).

G is the probability of not being censored, by Kaplan and Meier with events and censorings swapped; where both happen at
the same time, events come first. Rows that entered late are at risk from their entry on.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.predictive.row_scores import Score
from wherefrom.table import Table

Numbers = NDArray[np.float64]
FEWEST_EVENTS = 10  # below, concordance and the Brier score say little
_MOST_ROWS = 20_000  # whose pairs are counted; if there are more, this many at random
_PAIRS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Steps:
    """A curve that is 1 before the first of its times and falls there, by Kaplan and Meier."""

    times: Numbers
    survival: Numbers  # from each time on

    def at(self, times: Numbers, *, before: bool = False) -> Numbers:
        """Return the curve at times, or just before them."""
        step = np.searchsorted(self.times, times, side="left" if before else "right")
        return np.concatenate([[1.0], self.survival])[step]

    def quantile(self, probability: Numbers) -> Numbers:
        """Return the first time by which this share has had the event; infinite where the curve does not get there."""
        step = np.searchsorted(-self.survival, probability - 1 - 1e-12)
        return np.concatenate([self.times, [np.inf]])[step]


def kaplan_meier(
    time: Numbers, event: NDArray[np.bool_], entry: Numbers | None = None, weights: Numbers | None = None
) -> Steps:
    """Return the curve of all rows.

    >>> steps = kaplan_meier(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    >>> steps.times.tolist(), steps.survival.round(3).tolist()
    ([1.0, 2.0, 3.0], [0.75, 0.5, 0.0])
    """
    share = np.ones(len(time)) if weights is None else weights
    times = np.unique(time[event])
    deaths = np.bincount(np.searchsorted(times, time[event]), share[event], minlength=len(times))
    at_risk = _weight_from(time, share, times)
    if entry is not None:
        at_risk = at_risk - _weight_from(entry, share, times)
    return Steps(times, np.cumprod(1 - deaths / np.maximum(at_risk, deaths), dtype=np.float64))


def censoring(time: Numbers, event: NDArray[np.bool_], entry: Numbers | None = None) -> Steps:
    """Return G, the probability of not being censored up to and including a time; events come before censorings."""
    times = np.unique(time[~event])
    censored = np.bincount(np.searchsorted(times, time[~event]), minlength=len(times)).astype(float)
    ones = np.ones(len(time))
    step, has_both = np.searchsorted(times, time[event]), np.isin(time[event], times)
    at_risk = _weight_from(time, ones, times) - np.bincount(step[has_both], minlength=len(times))
    if entry is not None:
        at_risk = at_risk - _weight_from(entry, ones, times)
    return Steps(times, np.cumprod(1 - censored / np.maximum(at_risk, censored), dtype=np.float64))


def _weight_from(values: Numbers, share: Numbers, times: Numbers) -> Numbers:
    """Return the weight of the rows whose value is at least each time."""
    order = np.argsort(values, kind="stable")
    above = np.concatenate([np.cumsum(share[order][::-1])[::-1], [0.0]])
    return above[np.searchsorted(values[order], times)]


# ---------------------------------------------------------------------- concordance


def concordance(
    time: Numbers,
    event: NDArray[np.bool_],
    predicted: Numbers,
    entry: Numbers | None = None,
    pair_weights: Numbers | None = None,
    until: float = math.inf,
) -> Score:
    """Return the share of comparable pairs that are predicted in their order, with its standard error.

    A pair is comparable if the row with the shorter time had the event, while the other was under observation; of two
    equal times, if one had the event and the other was censored. `predicted` are times: longer is later. `pair_weights`
    are of the rows that had the event first. Of more than 20,000 rows, 20,000 are taken at random.

    >>> concordance(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]), np.array([1.0, 3.0, 2.0])).value
    0.666...
    """
    if len(time) > _MOST_ROWS:
        some = np.sort(np.random.default_rng(0).permutation(len(time))[:_MOST_ROWS])
        time, event, predicted = time[some], event[some], predicted[some]
        entry, pair_weights = (None if each is None else each[some] for each in (entry, pair_weights))
    rows = len(time)
    first = np.flatnonzero(event & (time < until))
    right, all_pairs = np.zeros(rows), np.zeros(rows)  # of the pairs that each row is in
    for some in np.array_split(first, max(1, math.ceil(len(first) * rows / _PAIRS_AT_ONCE))):
        mine = time[some, None]
        pairs = ((time > mine) | ((time == mine) & ~event)).astype(np.float64)
        if entry is not None:
            pairs *= entry < mine
        if pair_weights is not None:
            pairs *= pair_weights[some, None]
        later = predicted - predicted[some, None]
        good = pairs * np.where(later == 0, 0.5, later > 0)
        for total, each in ((right, good), (all_pairs, pairs)):
            total[some] += each.sum(1)
            total += each.sum(0)
    count = all_pairs.sum() / 2
    if not count > 0:
        return Score(None)
    value = right.sum() / 2 / count
    error = math.sqrt(float(np.square(right - value * all_pairs).sum())) / float(count)
    return Score(float(value), error if rows > 2 else None)


# ---------------------------------------------------------------------- Brier


@dataclass(frozen=True, eq=False)
class Brier:
    """The Brier score at times, row by row."""

    times: Numbers
    by_row: Numbers  # (rows, times)

    @property
    def integrated(self) -> Numbers:
        """The integral over times, divided by their range; of one time, the score there.  # (rows,)"""
        if len(self.times) == 1:
            return self.by_row[:, 0]
        whole = np.trapezoid(self.by_row, self.times, axis=1) / (self.times[-1] - self.times[0])
        return np.asarray(whole, dtype=np.float64)


def brier(time: Numbers, event: NDArray[np.bool_], survival: Numbers, times: Numbers, uncensored: Steps) -> Brier:
    """Return the scores of predicted survival probabilities.  # survival: (rows, times)"""
    at_time, at_end = np.asarray(uncensored.at(times)), np.asarray(uncensored.at(time))
    if not (at_time > 0).all():
        last = times[np.flatnonzero(at_time > 0)[-1]] if (at_time > 0).any() else 0.0
        raise ValueError(f"no row is under observation after {last:g}, so that no score is known there: end there")
    had = (time[:, None] <= times) & event[:, None]
    weights = np.where(had, 1 / np.where(at_end > 0, at_end, 1.0)[:, None], 0.0)
    still = time[:, None] > times
    return Brier(times, weights * survival**2 + still / at_time * (1 - survival) ** 2)


# ---------------------------------------------------------------------- calibration


@dataclass(frozen=True, eq=False)
class DCalibration:
    """Numbers of rows in equally wide bins of the probability that was predicted for their time."""

    counts: Tensor  # (bins,)

    @property
    def expected(self) -> float:
        """Number of rows of each bin, if the predictions are right."""
        return float(self.counts.sum()) / len(self.counts)

    @property
    def statistic(self) -> float:
        """Pearson's chi-square."""
        return float((self.counts - self.expected).square().sum() / self.expected)

    @property
    def p_value(self) -> float:
        """Probability of a statistic as large if the predictions are right; with censored rows, it is larger."""
        half = torch.tensor((len(self.counts) - 1) / 2, dtype=torch.float64)
        return float(torch.special.gammaincc(half, torch.tensor(self.statistic / 2, dtype=torch.float64)))

    def table(self) -> Table:
        bins = len(self.counts)
        return Table(
            ("from", "to", "rows", "expected"),
            [(k / bins, (k + 1) / bins, float(count), self.expected) for k, count in enumerate(self.counts)],
        )

    def __str__(self) -> str:
        return f"{self.table()}\np = {self.p_value:.3g}"

    __repr__ = __str__


def share_between(least: Tensor, most: Tensor, low: float, high: float) -> Tensor:
    """Share of each row's range that lies between two probabilities; a range without width is in or out.

    # (rows,), (rows,) -> (rows,)
    """
    width = most - least
    inside = (most.clamp_max(high) - least.clamp_min(low)).clamp_min(0.0)
    is_last = high >= 1
    at_point = (least >= low) & ((least <= high) if is_last else (least < high))
    return torch.where(width > 0, inside / width.clamp_min(torch.finfo(width.dtype).tiny), at_point.double())


def d_calibration(least: Tensor, most: Tensor, bins: int) -> DCalibration:
    """Count ranges of probabilities by bins."""
    edges = [k / bins for k in range(bins + 1)]
    counts = [share_between(least, most, low, high).sum() for low, high in itertools.pairwise(edges)]
    return DCalibration(torch.stack(counts))
