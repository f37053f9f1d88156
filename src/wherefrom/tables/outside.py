"""Rows unlike those of training: which they are, how far away, and by which column.

A row is *outside* if one of its levels was never seen in training (in the columns where 99 in 100 rows have frequent
ones in all of them; among many rare levels, another is no surprise), or if its quantities lie farther away than those
of 199 in 200 rows like the training's. How far is measured twice, and the worse counts:

    one column     the largest |x_j - median_j| / reach_j, where the reach is how far training went on that side
    all together   the Mahalanobis distance, with spreads by quartiles, which sees combinations that do not go together

both in units of their own 99.5% quantile over the training rows. The reach is the distance from the median to the 99.9%
quantile above it, and to the 0.1% quantile below it (to the farthest row if there are fewer than 1000, or if those
quantiles are closer than one spread, as they are where a 0/1 column is rarely 1), but one spread at least. So a column
is judged by its own tail: an age of 140 is far off although, counted in spreads, a laboratory value often goes farther.

A distance of 1 is the edge: of n rows that had no
part in it, the ceil(0.995 (n + 1))-th smallest distance, so that a further row of the same kind lies beyond it with a
chance of 1 in 200 at most. They are the rows that were held out and, if those are too few, the training rows as well,
each measured by what is learnt from the others. It takes 199; of fewer, n, the chance is about 1 in n + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wherefrom.files.codec import stored
from wherefrom.tables.columns import Encoded, TableEncoder
from wherefrom.tables.raw import Numbers

EDGE = 0.995
_SHRINKAGE = 0.1  # towards columns that do not depend on each other
_CLIPPED = 6.0  # spreads, so that a few rows do not make the covariance
_ENOUGH = 199  # rows to tell the edge by
_REACHED = 0.001  # of the training rows lie beyond a column's reach, on each side
_MOST_FOLDS = 50  # of the training rows, each measured by the others


@stored("Surroundings")
@dataclass(frozen=True, eq=False)
class Surroundings:
    """The region of the training rows."""

    names: tuple[str, ...]
    places: tuple[int, ...]  # of the quantities among the features
    median: Numbers
    spread: Numbers
    reach: Numbers  # (2, quantities): how far training went from the median, below it and above it
    precision: Numbers  # (quantities, quantities)
    usual: tuple[float, float]  # the edge of one column, and of all together
    edge: float  # of the worse of the two

    @classmethod
    def of(cls, encoder: TableEncoder, training: Numbers, held_out: Numbers) -> Surroundings:
        """Learn from the training rows, and from the held-out ones where the edge is."""
        around = cls._learnt(encoder, training)
        if not around.places:
            return around
        distances = [around._distance(held_out)]
        if len(held_out) < _ENOUGH:
            fold = np.arange(len(training)) % min(_MOST_FOLDS, len(training))
            for one in range(int(fold.max()) + 1):
                others = cls._learnt(encoder, training[fold != one])
                distances.append(others._distance(training[fold == one]))
        return replace(around, edge=_edge(np.concatenate(distances)))

    @classmethod
    def _learnt(cls, encoder: TableEncoder, training: Numbers) -> Surroundings:
        """All but the edge."""
        places = encoder.quantities()
        names = tuple(encoder.features[index] for index in places)
        values = training[:, places]
        median = np.median(values, axis=0) if places else np.empty(0)
        low, high = np.quantile(values, [0.25, 0.75], axis=0) if places else (median, median)
        spread = (high - low) / 1.349
        rare = values.std(axis=0) if places else spread
        spread = np.where(spread > 0.1 * rare, spread, np.where(rare > 0, rare, 1.0))
        z = np.clip((values - median) / spread, -_CLIPPED, _CLIPPED)
        covariance = (z.T @ z) / max(1, len(z))
        diagonal = np.diag(np.maximum(np.diag(covariance), 1e-6))
        precision = np.linalg.inv((1 - _SHRINKAGE) * covariance + _SHRINKAGE * diagonal).astype(np.float64)
        reach = _reach(values - median, spread)
        around = cls(names, tuple(places), median, spread, reach, precision, (1.0, 1.0), 1.0)
        if not places:
            return around
        one, all_of_them = (max(float(np.quantile(each, EDGE)), 1e-9) for each in around._lengths(values - median))
        return replace(around, usual=(one, all_of_them))

    def _distance(self, values: Numbers) -> Numbers:
        """Distance of each row, without regard to the edge."""
        one, all_of_them = self._lengths(self._away(values))
        return np.asarray(np.maximum(one / self.usual[0], all_of_them / self.usual[1]))

    def look(self, encoded: Encoded) -> tuple[Numbers, list[str]]:
        """Return each row's distance (above 1 it is outside; infinite, if a level was never seen), and the reason."""
        distance, why = np.zeros(len(encoded)), [""] * len(encoded)
        if self.places:
            away = self._away(encoded.values)
            one, all_of_them = self._lengths(away)
            parts = np.stack([one / self.usual[0], all_of_them / self.usual[1]]) / self.edge
            distance = parts.max(axis=0)
            worst = self._reached(away).argmax(axis=1)
            for row in np.flatnonzero(distance > 1).tolist():
                is_one = parts[0, row] > 1  # and no combination is needed to explain it
                why[row] = f"{self.names[worst[row]]} is far off" if is_one else "an unusual combination"
        for row, column, level in encoded.never_seen:
            distance[row] = np.inf
            why[row] = f"{column}={level} was never seen"
        return distance, why

    def _away(self, values: Numbers) -> Numbers:
        return np.asarray(values[:, self.places] - self.median)

    def _reached(self, away: Numbers) -> Numbers:
        """Distance of each column from its median, in reaches of its side.  # (rows, quantities)"""
        return np.asarray(np.abs(away) / np.where(away < 0, self.reach[0], self.reach[1]))

    def _lengths(self, away: Numbers) -> tuple[Numbers, Numbers]:
        """Return the distance of the worst column, and of all together.  # (rows,)"""
        z = away / self.spread
        together = np.sqrt(np.einsum("ij,jk,ik->i", z, self.precision, z, optimize=True))
        return self._reached(away).max(axis=1), together


def _reach(away: Numbers, spread: Numbers) -> Numbers:
    """Largest distance of the rows below 0 and above it, but for the farthest 1 in 1000.  # (2, quantities)"""
    if not away.size:
        return np.stack([spread, spread])
    farthest = np.stack([-away.min(axis=0), away.max(axis=0)])
    if len(away) * _REACHED < 1:
        return np.maximum(farthest, spread)
    low, high = np.quantile(away, [_REACHED, 1 - _REACHED], axis=0)
    reach = np.stack([-low, high])
    return np.maximum(np.where(reach < spread, farthest, reach), spread)


def _edge(values: Numbers) -> float:
    """Return what a further value exceeds with a chance of 1 in 200 at most; the largest one if they are too few."""
    rank = min(len(values), math.ceil(EDGE * (len(values) + 1)))
    return max(float(np.sort(values)[rank - 1]), 1e-9)
