"""Values that are missing are random: draw them from training rows that agree with what is known of the row.

Such a training row is a *donor*: it gives all values that are missing, so that they go together. How near a donor is
depends on what is missing. With z the normal scores of the columns (text: its levels in the order of the first
principal component), M the missing columns and O those that are known,

    distance^2  =  |B' (z_O - z'_O)|^2  +  1/4 sum over c in O of e_c (z_c - z'_c)^2,

where B' z_O is the conditional mean of z_M if all were Gaussian (predictive mean matching), and e_c says how much
column c alone tells about M: the sum over j in M of the share of the variance of z_j between groups by z_c (the
correlation ratio), which sees what correlations do not. Text of another level counts as 2 = E (z - z')^2.

The donor at rank r has the weight exp(-r / decay). The decay is chosen for each table: values of some training rows are
hidden, and drawn from the others, and their CRPS decides (a likelihood does not exist where values repeat). Donors that
lacked the value themselves come last. So do donors beyond a limit ("<0.6") of the row; if there are no others, the
value is drawn from those of training within the limit, and else evenly between it and 0, or a standard deviation away.

Draws depend on the row's values and on the seed alone: a row has the same draws alone and among others. They are a
systematic sample of the donors, sorted by what they give and weighted: of one gap, evenly spaced quantiles. So they
stand for the whole distribution, a variable with finitely many values: of Gaussian columns, the mean of 20 draws is as
good as that of 170 independent ones for one gap, of 80 for two, and of 50 for three.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.predictive.components import CrossedAxis
from wherefrom.tables.cells import Cells, rows_by_pattern
from wherefrom.tables.raw import Integers, Numbers
from wherefrom.training import streams

DRAWS = 20
GAPS = CrossedAxis("gaps", DRAWS, is_finite=True, shares_samples=True)

_MOST_DONORS = 5000
_MOST_MADE_UP = 1000  # donors of a run that is not to hold data
_DECAYS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_REACH = 5  # decays, beyond which a donor weighs nothing
_HIDDEN_ROWS = 300  # to choose the decay by
_SWEEPS = 2  # to complete the donors themselves
_BINS = 8
_MOST_COLUMNS = 64  # that a distance looks at
_ROWS_AT_ONCE = 128
_GRID = 1e-8  # distances that differ by less are equal, and the draw decides
_LAST = 1e5  # is farther than any distance
_SHARED_BY = 5  # rows have a value that is nobody's own


@stored("Donors")
@dataclass(frozen=True, eq=False)
class Donors:
    """Training rows from which missing values are drawn.

    values: complete.
    is_measured: False where a value was itself missing, and drawn.
    levels: as in `Cells`.
    """

    values: Numbers  # (donors, columns)
    is_measured: NDArray[np.bool_]  # (donors, columns)
    levels: tuple[int, ...]
    decay: float
    seed: int

    @classmethod
    def of(cls, cells: Cells, seed: int, is_measured: NDArray[np.bool_] | None = None) -> Donors:
        """Learn from training rows, whose own gaps are drawn.

        is_measured: where cells that are complete were measured (default: where they are not missing).
        """
        is_measured = ~cells.gaps if is_measured is None else is_measured
        rows = donor_rows(len(cells), seed)
        cells = cells.take(rows)
        donors = cls(_filled_at_random(cells, seed), is_measured[rows], cells.levels, _DECAYS[2], seed)
        if cells.gaps.any():
            for _ in range(_SWEEPS):
                values = donors.draws(cells, 1, leaving_out=np.arange(len(cells)))[:, 0]
                donors = replace(donors, values=values)
        return replace(donors, decay=donors._best_decay())

    def draws(self, cells: Cells, count: int = DRAWS, number: int = 0, leaving_out: Integers | None = None) -> Numbers:
        """Complete each row `count` times.  # (rows, count, columns)

        number: another number gives other draws.
        leaving_out: the donor that is the row itself, -1 where there is none (default: none).
        """
        complete = np.repeat(cells.values[:, None, :], count, axis=1)
        z = self._normal_scores(cells.values)
        for rows in rows_by_pattern(cells.gaps):
            some = cells.take(rows)
            keys = _keys(some, self.seed, number)
            itself = None if leaving_out is None else leaving_out[rows]
            nearest = self._nearest(some, z[rows], keys, min(len(self.values), round(_REACH * self.decay)), itself)
            missing = np.flatnonzero(some.gaps[0])
            weights = np.exp(-np.arange(nearest.shape[1]) / self.decay)
            order = self._along(missing)[nearest].argsort(axis=1, kind="stable")
            below = np.cumsum((weights / weights.sum())[order], axis=1)
            start = streams.unit(streams.numbers(keys, np.zeros_like(keys)))[:, None]
            place = (below[:, None, :] < ((np.arange(count) + start) / count)[:, :, None]).sum(axis=2)
            place = np.take_along_axis(order, np.minimum(place, nearest.shape[1] - 1), axis=1)
            chosen = np.take_along_axis(nearest, place, axis=1)
            drawn = self.values[chosen[:, :, None], missing]
            complete[rows[:, None, None], np.arange(count)[:, None], missing] = self._within_limits(
                drawn, some, missing, keys
            )
        return complete

    def _along(self, missing: Integers) -> Numbers:
        """Return where each donor stands along the direction in which the missing columns vary most.  # (donors,)"""
        _, directions = np.linalg.eigh(self._correlation[np.ix_(missing, missing)])
        return np.asarray(self._z[:, missing] @ directions[:, -1])

    def made_up(self) -> Donors:
        """Return donors that are nobody: rows drawn from a Gaussian copula with the columns' distributions.

        A value that fewer than 5 rows share is drawn between two neighbours.
        """
        random = streams.generator(self.seed, "gaps", "made up")
        count = min(_MOST_MADE_UP, len(self.values))
        factor = np.linalg.cholesky(self._correlation)
        uniform = _probability(random.normal(size=(count, len(factor))) @ factor.T)
        columns = []
        for column, order, part in zip(self.values.T, self._orders, uniform.T, strict=True):
            ranked = column if order is None else order[column.astype(np.int64)].astype(np.float64)
            values = _quantiles(ranked, part, 1 if order is not None else _SHARED_BY)
            columns.append(values if order is None else np.argsort(order)[values.astype(np.int64)].astype(np.float64))
        values = np.stack(columns, axis=1)
        return replace(self, values=values, is_measured=np.ones_like(values, dtype=bool))

    # ------------------------------------------------------------------ what was learnt

    @cached_property
    def _orders(self) -> tuple[Integers | None, ...]:
        """Rank of each level of text by the first principal component of the quantities; None for a quantity."""
        quantities = [index for index, levels in enumerate(self.levels) if not levels]
        first = np.arange(len(self.values), dtype=np.float64)
        if quantities:
            scores = np.stack([_scores(self.values[:, index]) for index in quantities], axis=1)
            _, _, directions = np.linalg.svd(scores, full_matrices=False)
            direction = directions[0]
            first = scores @ (direction * np.sign(direction[np.abs(direction).argmax()]))
        orders: list[Integers | None] = []
        for column, levels in zip(self.values.T, self.levels, strict=True):
            codes = column.astype(np.int64) if levels else np.empty(0, np.int64)
            mean = np.bincount(codes, first[: len(codes)], levels) / np.maximum(np.bincount(codes, minlength=levels), 1)
            orders.append(np.argsort(np.argsort(mean, kind="stable")) if levels else None)
        return tuple(orders)

    @cached_property
    def _z(self) -> Numbers:
        return self._normal_scores(self.values)

    def _normal_scores(self, values: Numbers) -> Numbers:
        """Return each value's normal score among the donors; 0 for a level that they do not have, nan for a gap."""
        scores = np.full_like(values, np.nan)
        for index, order in enumerate(self._orders):
            column, donors = values[:, index], self.values[:, index]
            there = ~np.isnan(column)
            if order is not None:
                donors = order[donors.astype(np.int64)].astype(np.float64)
                codes = column[there].astype(np.int64)
                ranks = np.where(codes >= 0, order[codes], np.median(donors)).astype(np.float64)
            else:
                ranks = column[there]
            scores[there, index] = _scores(donors, ranks)
        return scores

    @cached_property
    def _correlation(self) -> Numbers:
        """Correlations of the normal scores, drawn towards 0 where rows are few."""
        columns = self._z.shape[1]
        z = self._z - self._z.mean(axis=0)
        deviation = z.std(axis=0)
        z = z / np.where(deviation > 0, deviation, 1.0)
        ridge = min(0.5, 1e-3 + 0.1 * columns / len(z))
        return np.asarray((1 - ridge) * (z.T @ z) / len(z) * (1 - np.eye(columns)) + np.eye(columns))

    @cached_property
    def _told(self) -> Numbers:
        """Share of each column's variance that each other column explains by itself.  # (columns, columns)"""
        z, count = self._z, len(self._z)
        shares = np.zeros((z.shape[1], z.shape[1]))
        whole = np.maximum(z.var(axis=0) * count, 1e-12)
        for index, column in enumerate(z.T):
            groups = self.values[:, index].astype(np.int64) if self.levels[index] else _groups(column)
            sizes = np.bincount(groups)
            sums = np.stack([np.bincount(groups, other) for other in z.T])  # (columns, groups)
            between = (sums**2 / np.maximum(sizes, 1)).sum(axis=1) - count * z.mean(axis=0) ** 2
            left = (1 - between / whole) * (count - 1) / max(1, count - int((sizes > 0).sum()))
            shares[:, index] = np.clip(1 - left, 0.0, 1.0)
        np.fill_diagonal(shares, 0.0)
        return shares

    # ------------------------------------------------------------------ the nearest donors

    def _nearest(
        self, cells: Cells, z: Numbers, keys: NDArray[np.uint64], count: int, itself: Integers | None
    ) -> Integers:
        """Return the nearest donors of rows that lack the same columns, the nearest first.  # (rows, count)"""
        missing = np.flatnonzero(cells.gaps[0])
        parts = []
        for start in range(0, len(cells), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            some = cells.take(part)
            distance = self._distance(some, z[part], missing)
            distance += _LAST * (~self.is_measured[:, missing]).sum(axis=1)
            for column in missing[np.isfinite(some.low[:, missing]).any(0) | np.isfinite(some.high[:, missing]).any(0)]:
                donors, low, high = self.values[:, column], some.low[:, column, None], some.high[:, column, None]
                distance += _LAST * ((donors < low) | (donors > high))
            if itself is not None:
                own = np.flatnonzero(itself[part] >= 0)
                distance[own, itself[part][own]] = np.inf
            counters = np.arange(1, 1 + len(self.values), dtype=np.uint64)
            distance = np.rint(distance / _GRID) + streams.unit(streams.numbers(keys[part, None], counters))
            some_nearest = np.argpartition(distance, min(count, len(self.values) - 1), axis=1)[:, :count]
            order = np.take_along_axis(distance, some_nearest, axis=1).argsort(axis=1)
            parts.append(np.take_along_axis(some_nearest, order, axis=1))
        return np.concatenate(parts)

    def _distance(self, cells: Cells, z: Numbers, missing: Integers) -> Numbers:
        """Squared distance of rows to all donors.  # (rows, donors)"""
        told = self._told[missing].sum(axis=0) + 1e-3
        told[missing] = 0.0
        seen = np.argsort(-told, kind="stable")[: min(_MOST_COLUMNS, len(told) - len(missing))]
        if not len(seen):
            return np.zeros((len(cells), len(self.values)))
        towards = np.linalg.solve(self._correlation[np.ix_(seen, seen)], self._correlation[np.ix_(seen, missing)])
        levels = np.array(self.levels)
        quantities, texts = seen[levels[seen] == 0], seen[levels[seen] > 0]

        def mapped(scores: Numbers) -> Numbers:
            return np.concatenate(
                [scores[:, seen] @ towards, 0.5 * np.sqrt(told[quantities]) * scores[:, quantities]], 1
            )

        here, there = mapped(z), mapped(self._z)
        distance = (here**2).sum(1)[:, None] + (there**2).sum(1) - 2 * here @ there.T
        for column in texts:
            distance += 0.5 * told[column] * (cells.values[:, column, None] != self.values[:, column])
        return np.asarray(np.maximum(distance, 0.0))

    def _within_limits(self, drawn: Numbers, cells: Cells, missing: Integers, keys: NDArray[np.uint64]) -> Numbers:
        """Replace draws that lie beyond the row's limits.  # (rows, draws, missing columns)"""
        for place, column in enumerate(missing.tolist()):
            low, high = cells.low[:, column], cells.high[:, column]
            values, is_measured = self.values[:, column], self.is_measured[:, column]
            beyond = (drawn[:, :, place] < low[:, None]) | (drawn[:, :, place] > high[:, None])
            for row in np.flatnonzero(beyond.any(axis=1)).tolist():
                random = np.random.Generator(np.random.PCG64([int(keys[row]), column]))
                inside = values[is_measured & (values >= low[row]) & (values <= high[row])]
                count = int(beyond[row].sum())
                if len(inside):
                    drawn[row, beyond[row], place] = random.choice(inside, count)
                    continue
                width = float(values[is_measured].std()) if is_measured.any() else 0.0
                floor = low[row] if np.isfinite(low[row]) else high[row] - width
                ceiling = high[row] if np.isfinite(high[row]) else low[row] + width
                drawn[row, beyond[row], place] = random.uniform(floor, ceiling, count)
        return drawn

    # ------------------------------------------------------------------ the decay

    def _best_decay(self) -> float:
        """Choose how fast weights fall, by the CRPS of values that were hidden."""
        random = streams.generator(self.seed, "gaps", "hidden")
        rows, columns = len(self.values), self.values.shape[1]
        hidden = random.permutation(rows)[: min(_HIDDEN_ROWS, rows // 4)]
        if not len(hidden):
            return self.decay
        others = np.setdiff1d(np.arange(rows), hidden)
        donors = replace(self, values=self.values[others], is_measured=self.is_measured[others])
        scores = {decay: [0.0] for decay in _DECAYS if _REACH * decay <= len(others)} or {_DECAYS[0]: [0.0]}
        for column in range(columns):
            some = hidden[column::columns] if columns <= len(hidden) else hidden[column : column + 1]
            some = some[self.is_measured[some, column]]
            is_half = np.arange(len(some)) % 4 == 3  # half of the values are hidden in every fourth row, else one
            for half, rows_here in ((0.0, some[~is_half]), (0.5, some[is_half])):
                if not len(rows_here):
                    continue
                mask = (random.random(columns) < half) | (np.arange(columns) == column)
                cells = Cells.unlimited(np.where(mask, np.nan, self.values[rows_here]), self.levels)
                most = min(len(others), round(_REACH * max(scores)))
                z = donors._normal_scores(cells.values)
                nearest = donors._nearest(cells, z, _keys(cells, self.seed, 0), most, None)
                for decay, each in scores.items():
                    each += donors._scored(nearest, decay, column, self.values[rows_here, column]).tolist()
        return min(scores, key=lambda decay: float(np.mean(scores[decay])))

    def _scored(self, nearest: Integers, decay: float, column: int, truth: Numbers) -> Numbers:
        """CRPS of hidden values, in units of the column's standard deviation; of text, half the Brier score."""
        weights = np.exp(-np.arange(nearest.shape[1]) / decay)
        weights /= weights.sum()
        values = self.values[nearest, column]
        if self.levels[column]:
            squares = np.stack([((values == level) * weights).sum(1) ** 2 for level in range(self.levels[column])])
            return 0.5 * (1 - 2 * ((values == truth[:, None]) * weights).sum(1) + squares.sum(0))
        order = values.argsort(axis=1)
        below = np.cumsum(weights[order], axis=1)[:, :-1]
        apart = (below * (1 - below) * np.diff(np.take_along_axis(values, order, axis=1), axis=1)).sum(1)
        return ((np.abs(values - truth[:, None]) * weights).sum(1) - apart) / max(self.values[:, column].std(), 1e-12)


def samples_of_a_draw(samples: int) -> int:
    """Return how many samples of a network each draw gets: a quarter, since 20 draws multiply them, but at least 16.

    >>> samples_of_a_draw(100), samples_of_a_draw(32), samples_of_a_draw(8)
    (24, 16, 8)
    """
    return min(samples, max(16, samples // 16 * 4))


# ---------------------------------------------------------------------- what to measure next


def explained(answers: Numbers, drawn: Numbers, gaps: NDArray[np.bool_], levels: tuple[int, ...]) -> Numbers:
    """Return the share of the variance between draws that each missing column would remove if it were measured.

    Var(E[y | x_c]) / Var(y) over the draws; 1 for a row's only gap. Of several, y is fitted to a quantity by a parabola
    of it, to text by its two most frequent levels, and what 20 draws explain by chance is taken out (adjusted R^2).

    answers: (rows, draws, outputs), drawn: (rows, draws, columns), gaps: (rows, columns); returns (rows, columns).
    """
    shares = np.where(gaps, 1.0, 0.0)
    several = np.flatnonzero(gaps.sum(axis=1) > 1)
    y = answers[several] - answers[several].mean(axis=1, keepdims=True)
    whole = (y**2).sum(axis=(1, 2))
    for column, count in enumerate(levels):
        rows = gaps[several, column]
        regressors = (
            _levels(drawn[several[rows], :, column], count) if count else _powers(drawn[several[rows], :, column])
        )
        here, left = y[rows], float(answers.shape[1] - 1)
        fitted, used = np.zeros(len(here)), np.zeros(len(here))
        for each in regressors:  # (rows, draws), orthogonal
            length = (each**2).sum(axis=1)
            is_there = length > 1e-9
            unit = each / np.sqrt(np.where(is_there, length, 1.0))[:, None] * is_there[:, None]
            fitted += (np.einsum("rd,rdo->ro", unit, here) ** 2).sum(axis=1)
            used += is_there
        total = whole[rows]
        unexplained = 1 - np.divide(fitted, total, out=np.zeros_like(fitted), where=total > 0)
        shares[several[rows], column] = np.clip(1 - unexplained * left / (left - used), 0.0, 1.0) * (used > 0)
    return shares


def _powers(values: Numbers) -> list[Numbers]:
    """Return a column and its square over the draws, orthogonal to each other and to 1."""
    deviation = values.std(axis=1, keepdims=True)
    first = (values - values.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    return [first, _orthogonal(first**2, first)]


def _levels(codes: Numbers, count: int) -> list[Numbers]:
    """Return the indicators of the two most frequent levels over the draws, orthogonal to each other and to 1."""
    counts = np.stack([(codes == level).sum(axis=1) for level in range(count)], axis=1)
    order = np.argsort(-counts, axis=1, kind="stable")
    first = (codes == order[:, :1]) * 1.0
    first = first - first.mean(axis=1, keepdims=True)
    second = (codes == order[:, 1:2]) * 1.0 if count > 1 else np.zeros_like(first)
    return [first, _orthogonal(second, first)]


def _orthogonal(values: Numbers, to: Numbers) -> Numbers:
    values = values - values.mean(axis=1, keepdims=True)
    length = (to**2).sum(axis=1, keepdims=True)
    return np.asarray(values - to * (values * to).sum(axis=1, keepdims=True) / np.where(length > 0, length, 1.0))


# ---------------------------------------------------------------------- parts


def donor_rows(count: int, seed: int) -> Integers:
    """Choose the training rows that are donors: all, or 5,000 at random."""
    return np.sort(streams.generator(seed, "gaps", "donors").permutation(count)[:_MOST_DONORS])


def _keys(cells: Cells, seed: int, number: int) -> NDArray[np.uint64]:
    """Return a random stream for each row, by what it holds."""
    start = hashlib.blake2b(f"{seed}\x1fgaps\x1f{number}".encode(), digest_size=8)
    content = np.concatenate([np.where(cells.gaps, np.nan, cells.values) + 0.0, cells.low, cells.high], axis=1)

    def key(row: Any) -> int:
        mine = start.copy()
        mine.update(row.tobytes())
        return int.from_bytes(mine.digest(), "little")

    return np.array([key(row) for row in content], dtype=np.uint64)


def _filled_at_random(cells: Cells, seed: int) -> Numbers:
    """Fill gaps with values of the same column, in no relation to the row."""
    random, values = streams.generator(seed, "gaps", "fill"), cells.values.copy()
    for column in values.T:
        missing = np.isnan(column)
        column[missing] = random.choice(column[~missing], int(missing.sum())) if not missing.all() else 0.0
    return values


def _scores(donors: Numbers, values: Numbers | None = None) -> Numbers:
    """Normal scores of values by their ranks among the donors, equal ones by their middle."""
    ordered = np.sort(donors)
    values = donors if values is None else values
    rank = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    margin = 0.5 / len(ordered)
    return torch.special.ndtri(torch.from_numpy(np.clip(rank / len(ordered), margin, 1 - margin))).numpy()


def _probability(scores: Numbers) -> Numbers:
    return torch.special.ndtr(torch.from_numpy(scores)).numpy()


def _quantiles(values: Numbers, probabilities: Numbers, shared_by: int) -> Numbers:
    """Return quantiles: values that so many rows share, and points between neighbours in place of others.

    >>> _quantiles(np.array([0.0, 0.0, 0.0, 2.0, 6.0]), np.array([0.3, 0.75, 0.95]), 3).round(9).tolist()
    [0.0, 3.0, 5.4]
    """
    different, counts = np.unique(values, return_counts=True)
    below = np.cumsum(counts) / len(values)
    place = np.minimum(np.searchsorted(below, probabilities), len(different) - 1)
    middle = below - counts / (2 * len(values))
    between = np.interp(middle[0] + probabilities * (middle[-1] - middle[0]), middle, different)
    return np.where(counts[place] >= shared_by, different[place], between)


def _groups(column: Numbers) -> Integers:
    """Number of each row's group: its value if there are few, else its quantile."""
    values = np.unique(column)
    if len(values) <= _BINS:
        return np.searchsorted(values, column)
    return np.searchsorted(np.quantile(column, np.arange(1, _BINS) / _BINS), column, side="right")
