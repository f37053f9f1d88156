"""Rows unlike those of training: how far outside each is, by which column, and how much its answer should forget.

A row's distance is the largest of three. A distance of 1 is the edge: beyond it, the row is outside.

    one column      low <= x <= high is the range of training, R = high - low. The edge is a margin beyond the range,
                    on each side: `times` the tail's unit, at least R / 20 and at most 0.9 R. Inside, the distance is
                    |x - median| / |edge - median|; outside, 1 + (x - edge) / R, so that x = high + k R is about k + 1.
    a combination   the Mahalanobis distance of the row over its edge, each quantity clipped to its range, and to 6
                    spreads from its median (of the first 200 quantities: the time grows with the cube of their number);
                    of a row with gaps, that of its known quantities, the least that any completion has
    levels          1.5 for a level that training never saw (in columns of text where that is a surprise), and 0.5 more
                    for each further one

The unit of a tail is the mean excess of its largest rows over the next one: of an exponential tail it is the scale, so
the chance to exceed the largest of n rows by c units is exp(-c) / (n + 1).

`times`, and the edge of combinations, are calibrated on the training rows: each fold is measured by what is learnt from
the others. Of n rows, the ceil((1 - rate) (n + 1))-th smallest score is the edge, so that a further row of the same
kind lies beyond it with a chance of `rate` at most: 1 in 400 for columns, and 1 in 400 for combinations. If n is too
small for that, the edge is the largest score and log(1 / (rate (n + 1))) units of its tail beyond. Levels add at most
1 in 100. So fewer than 2 in 100 rows like those of training are outside.

The weight of what is known without columns rises from 0 at the edge to 1: w = 1 - exp(-2 (distance - 1)^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wherefrom.files.codec import stored
from wherefrom.tables.cells import rows_by_pattern
from wherefrom.tables.columns import Encoded, Quantity, TableEncoder, written_date
from wherefrom.tables.dates import Date
from wherefrom.tables.raw import Integers, Numbers

RATE = 0.0025  # of rows like those of training beyond the edge of columns, and as many beyond that of combinations
UNSEEN, FURTHER_UNSEEN = 1.5, 0.5  # distance of a level that training never saw, and of each further one
_SHRINKAGE = 0.1  # towards columns that do not depend on each other
_CLIPPED = 6.0  # spreads, so that neither a few rows nor a single column make a combination
_LEAST_MARGIN, _MOST_MARGIN = 0.05, 0.9  # in ranges
_LARGEST_SHARE, _MOST_LARGEST = 0.05, 50  # of the rows that make up a tail
_MOST_FOLDS, _FEWEST_FOLDS, _ROWS_OF_FOLDS = 20, 5, 100_000
_SLACK = 1.05  # of the edge of combinations: where they repeat, many rows have the same score
_LEAST_EDGE = 3.0  # of combinations, in spreads
_STEEPNESS = 2.0  # of the weight
_MOST_TOGETHER = 200  # quantities that are looked at as a combination: the time grows with their cube
_MOST_REASONS, _MOST_COMBINED = 3, 3


def weight(distance: Numbers) -> Numbers:
    """Weight of what is known without columns, from 0 inside to 1.

    >>> weight(np.array([0.5, 1.0, 1.5, 2.0, 4.0])).round(3).tolist()
    [0.0, 0.0, 0.393, 0.865, 1.0]
    """
    return np.asarray(-np.expm1(-_STEEPNESS * np.square(np.maximum(distance - 1, 0))))


@dataclass(frozen=True, eq=False)
class _Range:
    """The range of each quantity, and the unit of its two tails."""

    low: Numbers  # (quantities,), and so are all others
    high: Numbers
    median: Numbers
    size: Numbers  # of the range; where it is empty, of the value
    unit: Numbers  # (2, quantities), below and above

    @classmethod
    def of(cls, raw: Numbers) -> _Range:
        """Learn from rows; nan is missing.  # (rows, quantities)"""
        count = raw.shape[1]
        low, high, median, units = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros((2, count))
        for column in range(count):
            values = np.sort(raw[~np.isnan(raw[:, column]), column])
            if not len(values):
                continue
            low[column], high[column], median[column] = values[0], values[-1], np.median(values)
            units[:, column] = _tail(-values[::-1]), _tail(values)
        size = high - low
        size = np.where(size > 0, size, np.maximum(np.maximum(np.abs(high), np.abs(low)), 1.0))
        return cls(low, high, median, size, np.maximum(units, _LEAST_MARGIN * size))

    def excess(self, raw: Numbers) -> Numbers:
        """Distance beyond the range, below and above; 0 inside, and where it is missing.  # (2, rows, quantities)"""
        values = np.where(np.isnan(raw), self.median, raw)
        return np.maximum(np.stack([self.low - values, values - self.high]), 0.0)

    def scores(self, raw: Numbers) -> Numbers:
        """Excess of the worst column, in units of its tail.  # (rows,)"""
        return np.asarray((self.excess(raw) / self.unit[:, None]).max(axis=(0, 2)))


def _tail(values: Numbers) -> float:
    """Mean excess of the largest values over the next one, of sorted values."""
    largest = min(_MOST_LARGEST, math.ceil(_LARGEST_SHARE * len(values)), len(values) - 1)
    return float(np.mean(values[-largest:]) - values[-largest - 1]) if largest > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Cloud:
    """The location of all rows: medians, spreads, and the precision of what is standardised by them."""

    centre: Numbers
    spread: Numbers
    precision: Numbers  # (quantities, quantities)

    @classmethod
    def of(cls, values: Numbers) -> _Cloud:
        centre = np.median(values, axis=0)
        low, high = np.quantile(values, [0.25, 0.75], axis=0)
        spread, rare = (high - low) / 1.349, values.std(axis=0)
        spread = np.where(spread > 0.1 * rare, spread, np.where(rare > 0, rare, 1.0))
        cloud = cls(centre, spread, np.eye(len(centre)))
        z = cloud._standardised(values)
        covariance = (z.T @ z) / len(z)
        # A column that hardly ever varies would be a combination by itself.
        covariance += np.diag(np.maximum(1 - np.diag(covariance), 0.0))
        diagonal = np.diag(np.diag(covariance))
        precision = np.linalg.inv((1 - _SHRINKAGE) * covariance + _SHRINKAGE * diagonal)
        return replace(cloud, precision=precision.astype(np.float64))

    def parts(self, values: Numbers) -> Numbers:
        """Part of each quantity in the squared distance of each row; nan is missing.  # (rows, quantities)"""
        z = self._completed(self._standardised(values))
        return np.asarray(z * (z @ self.precision))

    def _completed(self, z: Numbers) -> Numbers:
        """Put the values that make the distance least in place of missing ones: z_M = -P_MM^-1 P_MO z_O."""
        for rows in rows_by_pattern(np.isnan(z)):
            missing = np.isnan(z[rows[0]])
            towards = np.linalg.solve(
                self.precision[np.ix_(missing, missing)], self.precision[np.ix_(missing, ~missing)]
            )
            z[np.ix_(rows, missing)] = -z[np.ix_(rows, ~missing)] @ towards.T
        return z

    def _standardised(self, values: Numbers) -> Numbers:
        return np.clip((values - self.centre) / self.spread, -_CLIPPED, _CLIPPED)

    def scores(self, values: Numbers) -> Numbers:
        """Mahalanobis distance.  # (rows,)"""
        return np.sqrt(np.maximum(self.parts(values).sum(axis=1), 0.0))


@stored("Surroundings")
@dataclass(frozen=True, eq=False)
class Surroundings:
    """The region of the training rows."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    places: tuple[int, ...]  # of the quantities among the features
    low: Numbers  # (quantities,), as they are written in the table, and so are those up to `margin`
    high: Numbers
    median: Numbers
    size: Numbers
    margin: Numbers  # (2, quantities): how far beyond the range the edge is, below and above
    centre: Numbers  # (quantities, 200 at most) as the networks take them, and so are the others
    spread: Numbers
    precision: Numbers  # (quantities, quantities)
    edge: float  # of the Mahalanobis distance; infinite for a single column, which makes no combination

    @classmethod
    def of(cls, encoder: TableEncoder, training: Encoded, copies: Integers | None = None) -> Surroundings:
        """Learn from the training rows; the edges are calibrated on them, each fold by the others.

        `copies` has the same number for rows that belong together, and are in one fold.
        """
        rules = [rule for rule in encoder.rules if isinstance(rule, Quantity | Date)]
        names, kinds = tuple(rule.name for rule in rules), tuple(rule.kind for rule in rules)
        places = tuple(encoder.quantities())
        if not places:
            none = np.empty(0)
            return cls((), (), (), none, none, none, none, np.empty((2, 0)), none, none, np.empty((0, 0)), 1.0)
        raw, values = training.raw, training.values[:, places[:_MOST_TOGETHER]]
        seen = _with_gaps(values, raw)
        reach, cloud = _Range.of(raw), _Cloud.of(values)
        single, joint = np.zeros(len(raw)), np.zeros(len(raw))
        fold = _folds(np.arange(len(raw)) if copies is None else np.unique(copies, return_inverse=True)[1])
        for one in range(int(fold.max()) + 1) if fold.any() else ():  # one group has no others to be measured by
            here = fold == one
            single[here] = _Range.of(raw[~here]).scores(raw[here])
            joint[here] = _Cloud.of(values[~here]).scores(seen[here])
        margin = np.clip(_edge(single) * reach.unit, _LEAST_MARGIN * reach.size, _MOST_MARGIN * reach.size)
        return cls(
            names,
            kinds,
            places,
            reach.low,
            reach.high,
            reach.median,
            reach.size,
            margin,
            cloud.centre,
            cloud.spread,
            cloud.precision,
            max(_SLACK * _edge(joint), _LEAST_EDGE) if len(places) > 1 else math.inf,
        )

    def check(self, encoder: TableEncoder) -> None:
        """Raise unless it fits the quantities of an encoder, and has one number for each."""
        rules = [rule for rule in encoder.rules if isinstance(rule, Quantity | Date)]
        names, kinds = [rule.name for rule in rules], [rule.kind for rule in rules]
        if (list(self.names), list(self.kinds), list(self.places)) != (names, kinds, list(encoder.quantities())):
            raise ValueError(
                f"the region of the training rows is of {', '.join(self.names)}, not of {', '.join(names)}"
            )
        count, together = len(names), min(len(names), _MOST_TOGETHER)
        shapes = dict.fromkeys(("low", "high", "median", "size"), (count,)) | {"margin": (2, count)}
        shapes |= {"centre": (together,), "spread": (together,), "precision": (together, together)}
        if wrong := [name for name, shape in shapes.items() if getattr(self, name).shape != shape]:
            raise ValueError(f"{wrong[0]} of the region of the training rows is not of {count} columns")

    def look(self, encoded: Encoded) -> tuple[Numbers, list[str]]:
        """Return each row's distance (above 1 it is outside), and the reason."""
        distance = np.zeros(len(encoded))
        reasons: dict[int, list[str]] = {}  # of the few rows that have any
        for row, column, level in encoded.never_seen:
            distance[row] = UNSEEN if distance[row] < UNSEEN else distance[row] + FURTHER_UNSEEN
            reasons.setdefault(row, []).append(f"{column}={level} was never seen")
        if self.places:
            cloud = _Cloud(self.centre, self.spread, self.precision)
            columns = self._columns(encoded.raw)
            values = _with_gaps(encoded.values[:, self.places[: len(self.centre)]], encoded.raw)
            joint = cloud.scores(values) / self.edge
            distance = np.maximum(distance, np.maximum(columns.max(axis=1), joint))
            far = np.flatnonzero(columns.max(axis=1) > 1)
            for row in far.tolist():
                worst = [k for k in np.argsort(-columns[row], kind="stable").tolist() if columns[row, k] > 1]
                reasons.setdefault(row, []).extend(self._far(k, encoded.raw[row, k]) for k in worst)
            odd = np.array([row for row in np.flatnonzero(joint > 1).tolist() if row not in reasons], dtype=int)
            for row, parts in zip(odd.tolist(), cloud.parts(values[odd]), strict=True):
                reasons[row] = [self._odd(parts, encoded.raw[row])]
        why = [""] * len(encoded)
        for row, words in reasons.items():
            why[row] = "; ".join(words[:_MOST_REASONS])
        return distance, why

    def _columns(self, raw: Numbers) -> Numbers:
        """Distance of each quantity by itself.  # (rows, quantities)"""
        values = np.where(np.isnan(raw), self.median, raw)
        below, above = self.low - self.margin[0], self.high + self.margin[1]
        side = np.where(values < self.median, self.median - below, above - self.median)
        inside = np.abs(values - self.median) / side
        beyond = np.maximum(below - values, values - above) / self.size
        return np.where(beyond > 0, 1 + beyond, inside)

    def _far(self, column: int, value: float) -> str:
        low, high = (self._written(column, end) for end in (self.low[column], self.high[column]))
        return f"{self.names[column]} {self._written(column, value)} (training {low} to {high})"

    def _odd(self, parts: Numbers, raw: Numbers) -> str:
        """Name the columns that make up most of the distance; those that are missing say nothing."""
        order = [k for k in np.argsort(-parts, kind="stable").tolist() if not math.isnan(raw[k])][:_MOST_COMBINED]
        whole = parts.sum()
        named = [k for number, k in enumerate(order) if number < 2 or parts[k] > 0.1 * whole]
        each = ", ".join(f"{self.names[k]} {self._written(k, raw[k])}" for k in named)
        return f"an unusual combination: {each}"

    def _written(self, column: int, value: float) -> str:
        return written_date(value) if self.kinds[column] == "date" else short(float(value))


def short(value: float) -> str:
    """A number with four significant digits.

    >>> short(126.0), short(4.6), short(20512.7), short(0.000012345), short(1e30)
    ('126', '4.6', '20510', '1.234e-05', '1e+30')
    """
    near = float(f"{value:.4g}")
    return np.format_float_positional(near, trim="-") if 1e-4 <= abs(near) < 1e12 or not near else f"{near:.4g}"


def _with_gaps(values: Numbers, raw: Numbers) -> Numbers:
    """Return the quantities with nan where they are missing in the table."""
    return np.where(np.isnan(raw[:, : values.shape[1]]), np.nan, values)


def _folds(group: Integers) -> Integers:
    """Return the fold of each row by its group: few folds of many rows, since they are learnt from one by one."""
    count = max(_FEWEST_FOLDS, min(_MOST_FOLDS, _ROWS_OF_FOLDS // len(group)))
    return np.asarray(group % min(int(group.max()) + 1, count))


def _edge(scores: Numbers) -> float:
    """Return the score that a further row exceeds with a chance of about RATE at most."""
    ordered, rows = np.sort(scores), len(scores)
    rank = math.ceil((1 - RATE) * (rows + 1))
    if rank <= rows:
        return float(ordered[rank - 1])
    return float(ordered[-1]) + _tail(ordered) * math.log(1 / (RATE * (rows + 1)))
