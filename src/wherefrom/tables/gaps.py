"""Values that are missing are random: draw them from training rows that agree with what is known of the row.

Such a training row is a *donor*: it gives all values that are missing, so that they go together. How near a donor is
depends on what is missing. With z the normal scores of the columns (text: its levels in the order of the first
principal component), M the missing columns and O those that are known,

    distance^2  =  |B' (z_O - z'_O)|^2  +  1/4 sum over c in O of e_c (z_c - z'_c)^2,

where B' z_O is the conditional mean of z_M if all were Gaussian (predictive mean matching), and e_c says how much
column c alone tells about M: the sum over j in M of the share of the variance of z_j between groups by z_c (the
correlation ratio), which sees what correlations do not. Text of another level counts as 2 = E (z - z')^2.

The donor at rank r has the weight exp(-r / decay). What it gives is its value, or its value adjusted to the row by a
regression (`adjusting`). The decay and the adjustment are chosen for each column: values of some training rows are
hidden, and drawn from the others, and their CRPS decides (a likelihood does not exist where values repeat). Of more
than 12 columns, those with most gaps have a rule, and the others the one that is best on average. One more rule, chosen
alike, is for rows that lack several columns. Quantities whose values repeat are drawn from these values.

Donors that lacked the value themselves come last. So do donors beyond a limit ("<0.6") of the row; if there are no
others, the value is drawn from those of training within the limit, and else evenly between it and 0, or a standard
deviation away.

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
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive.components import CrossedAxis
from wherefrom.tables.adjusting import ADJUSTMENTS, Adjustment, adjusted_near, donors_near, slopes
from wherefrom.tables.cells import Cells, rows_by_pattern
from wherefrom.tables.hiding import brier, clearly_best, crps
from wherefrom.tables.made_up import made_up_rows, nearest_of, repeated
from wherefrom.tables.raw import Integers, Numbers
from wherefrom.training import streams

DRAWS = 20
GAPS = CrossedAxis("gaps", DRAWS, is_finite=True, shares_samples=True)

_ANSWERS_TO_A_DRAW = 32  # of all networks, at least: more than 500 for all draws of a row
_MOST_DONORS = 2500
_MOST_MADE_UP = 1000  # donors of a run that is not to hold data
_DECAYS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_REACH = 5  # decays, beyond which a donor weighs nothing
_HIDDEN_ROWS, _HIDDEN_VALUES, _FEWEST_HIDDEN = 300, 2000, 8  # to choose rules by
_HIDDEN_PATTERNS = 12  # of several columns
_MOST_RULED = 12  # columns that have their own rule
_SWEEPS = 2  # to complete the donors themselves
_BINS = 8
_MOST_COLUMNS = 64  # that a distance looks at
_ROWS_AT_ONCE = 128
_GRID = 1e-8  # distances that differ by less are equal, and the draw decides
_LAST = 1e5  # is farther than any distance


@stored("DrawingRule")
@dataclass(frozen=True)
class Rule:
    """A rule that weights donors and adjusts their values."""

    decay: float
    adjustment: Adjustment

    @property
    def reach(self) -> int:
        """Number of donors that weigh anything."""
        return round(_REACH * self.decay)

    def weights(self, donors: int) -> Numbers:
        """Return the weights of the nearest donors, the nearest first."""
        weights = np.exp(-np.arange(min(donors, self.reach)) / self.decay)
        return np.asarray(weights / weights.sum())


_FIRST_RULE = Rule(8.0, "none")  # until rules are chosen


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
    rules: tuple[Rule, ...]  # of rows that lack one column, by column; none until the first gap asks for them
    together: Rule  # of rows that lack several
    seed: int

    @classmethod
    def of(cls, cells: Cells, seed: int, is_measured: NDArray[np.bool_] | None = None) -> Donors:
        """Learn from training rows, whose own gaps are drawn.

        is_measured: where cells that are complete were measured (default: where they are not missing).
        """
        is_measured = ~cells.gaps if is_measured is None else is_measured
        chosen = donor_rows(len(cells), seed)
        cells, is_measured = cells.take(chosen), is_measured[chosen]
        donors = cls(_filled_at_random(cells, seed), is_measured, cells.levels, (), _FIRST_RULE, seed)
        if cells.gaps.any():
            donors = replace(donors, rules=(_FIRST_RULE,) * len(cells.levels))
            for _ in range(_SWEEPS):
                values = donors.draws(cells, 1, leaving_out=np.arange(len(cells)))[:, 0]
                donors = replace(donors, values=values)
        return replace(donors, rules=())

    def draws(self, cells: Cells, count: int = DRAWS, leaving_out: Integers | None = None) -> Numbers:
        """Complete each row `count` times.  # (rows, count, columns)

        leaving_out: the donor that is the row itself, -1 where there is none (default: none).
        """
        complete = np.repeat(cells.values[:, None, :], count, axis=1)
        if not cells.gaps.any():
            return complete
        rules, together = self.with_rules.rules, self.with_rules.together
        for pattern in rows_by_pattern(cells.gaps):
            missing = np.flatnonzero(cells.gaps[pattern[0]])
            for rows in np.split(pattern, range(_ROWS_AT_ONCE, len(pattern), _ROWS_AT_ONCE)):
                some, itself = cells.take(rows), None if leaving_out is None else leaving_out[rows]
                keys = _keys(some, self.seed)
                rule = rules[missing[0]] if len(missing) == 1 else together
                nearest = self._nearest(some, keys, missing, self._count(rule, missing), itself)
                weights = rule.weights(nearest.shape[1])
                given = self._given(some, nearest, missing, rule.adjustment)[:, : len(weights)]
                start = streams.unit(streams.numbers(keys, np.zeros_like(keys)))
                drawn = _systematic(given, self._along(given, missing), weights, start, count)
                complete[rows[:, None, None], np.arange(count)[:, None], missing] = self._within_limits(
                    drawn, some, missing, keys
                )
        return complete

    def _along(self, given: Numbers, missing: Integers) -> Numbers:
        """Return where values stand along the direction in which the missing columns vary most.

        # (rows, donors, missing) -> (rows, donors)
        """
        _, directions = np.linalg.eigh(self._correlation[np.ix_(missing, missing)])
        units = np.empty_like(given)
        for place, column in enumerate(missing.tolist()):
            values, order = given[:, :, place], self._orders[column]
            if order is None:
                units[:, :, place] = values / self._scale[column]
            else:
                scores = _scores(self._ordered[column], order.astype(np.float64))
                units[:, :, place] = scores[values.astype(np.int64)]
        return np.asarray(units @ directions[:, -1])

    def _count(self, rule: Rule, missing: Integers) -> int:
        """Return how many donors a rule looks at."""
        near = donors_near(len(self._known(missing))) if rule.adjustment == "near" else 0
        return min(len(self.values), max(rule.reach, near))

    def _given(self, cells: Cells, nearest: Integers, missing: Integers, adjustment: Adjustment) -> Numbers:
        """Return what the nearest donors give to rows that lack the same columns.

        Quantities are adjusted to the row, within the range of all donors, and to values that there are if they repeat.
        A donor's value stays as it is where the adjusted one is beyond a limit of the row.
        # (rows, donors, missing)
        """
        given = self.values[nearest[:, :, None], missing]
        is_quantity = np.array(self.levels)[missing] == 0
        if adjustment == "none" or not is_quantity.any():
            return given
        known, missing, own = self._known(missing), missing[is_quantity], given[:, :, is_quantity]
        covariance, values, scale = self._covariance, self.values, self._scale
        x, row = (values[:, known] / scale[known])[nearest], cells.values[:, known] / scale[known]
        slope = slopes(covariance[np.ix_(known, known)], covariance[np.ix_(known, missing)])
        rest = own / scale[missing] - x @ slope
        if adjustment == "near":
            rest = adjusted_near(x, rest, row, donors_near(len(known)))
        moved = (row[:, None] @ slope + rest) * scale[missing]
        moved = np.clip(moved, values[:, missing].min(axis=0), values[:, missing].max(axis=0))
        for place, column in enumerate(missing.tolist()):
            if (values_there := self._repeated[column]) is not None:
                moved[:, :, place] = nearest_of(values_there, moved[:, :, place])
        is_beyond = (moved < cells.low[:, None, missing]) | (moved > cells.high[:, None, missing])
        given[:, :, is_quantity] = np.where(is_beyond, own, moved)
        return given

    def made_up(self) -> Donors:
        """Return donors that are nobody, each drawn from ten that are alike."""
        random = streams.generator(self.seed, "gaps", "made up")
        values = made_up_rows(self.values, self._z, self.levels, _MOST_MADE_UP, random)
        return replace(self.with_rules, values=values, is_measured=np.ones_like(values, dtype=bool))

    def check(self) -> None:
        """Raise unless the values are complete, and those of text are numbers of its levels."""
        shape, columns = self.values.shape, len(self.levels)
        if len(shape) != 2 or not len(self.values) or self.is_measured.shape != shape or shape[1] != columns:
            raise ValueError(f"values to draw from have the shape {shape}, for {columns} columns")
        if len(self.rules) not in (0, columns) or min(self.levels, default=0) < 0 or not np.isfinite(self.values).all():
            raise ValueError("values to draw from are not complete, or lack a rule")
        for column, levels in zip(self.values.T, self.levels, strict=True):
            if levels and not (column.min() >= 0 and column.max() < levels and (column == np.floor(column)).all()):
                raise ValueError(f"values to draw from are not among the {levels} levels of a column")

    # ------------------------------------------------------------------ what was learnt

    @cached_property
    def _orders(self) -> tuple[Integers | None, ...]:
        """Rank of each level of text by the first principal component of the quantities; None for a quantity."""
        quantities = [index for index, levels in enumerate(self.levels) if not levels]
        first = np.arange(len(self.values), dtype=np.float64)
        if quantities:
            columns = (self.values[:, index] for index in quantities)
            scores = np.stack([_scores(np.sort(column), column) for column in columns], axis=1)
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
        return self._normal_scores(self.values, np.arange(len(self.levels)))

    @cached_property
    def _ordered(self) -> tuple[Numbers, ...]:
        """Values of each column in ascending order; of text, the ranks of its levels."""
        columns = zip(self.values.T, self._orders, strict=True)
        return tuple(
            np.sort(column if order is None else order[column.astype(np.int64)].astype(np.float64))
            for column, order in columns
        )

    def _normal_scores(self, values: Numbers, columns: Integers) -> Numbers:
        """Return the normal scores of some columns among the donors; 0 for a level that they do not have, nan for gaps.

        # (rows, all columns) -> (rows, columns)
        """
        scores = np.full((len(values), len(columns)), np.nan)
        for position, index in enumerate(columns.tolist()):
            column, donors, order = values[:, index], self._ordered[index], self._orders[index]
            there = ~np.isnan(column)
            ranks = column[there]
            if order is not None:
                codes = ranks.astype(np.int64)
                ranks = np.where(codes >= 0, order[codes], np.median(donors)).astype(np.float64)
            scores[there, position] = _scores(donors, ranks)
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
    def _scale(self) -> Numbers:
        """Standard deviation of each quantity, 1 for text and for what is always the same.  # (columns,)"""
        deviation = self.values.std(axis=0)
        return np.where((deviation > 0) & (np.array(self.levels) == 0), deviation, 1.0)

    @cached_property
    def _repeated(self) -> tuple[Numbers | None, ...]:
        """Values of each column whose values repeat; None for others."""
        return tuple(repeated(column) for column in self.values.T)

    @cached_property
    def _covariance(self) -> Numbers:
        """Covariance of the columns, in units of `_scale`; it is looked at for quantities only."""
        values = (self.values - self.values.mean(axis=0)) / self._scale
        return np.asarray(values.T @ values / len(values))

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
        self, cells: Cells, keys: NDArray[np.uint64], missing: Integers, count: int, itself: Integers | None
    ) -> Integers:
        """Return the nearest donors of rows that lack the same columns, the nearest first.  # (rows, count)"""
        distance = self._distance(cells, missing)
        distance += _LAST * (~self.is_measured[:, missing]).sum(axis=1)
        for column in missing[np.isfinite(cells.low[:, missing]).any(0) | np.isfinite(cells.high[:, missing]).any(0)]:
            donors, low, high = self.values[:, column], cells.low[:, column, None], cells.high[:, column, None]
            distance += _LAST * ((donors < low) | (donors > high))
        if itself is not None:
            is_donor = np.flatnonzero(itself >= 0)
            distance[is_donor, itself[is_donor]] = np.inf
        counters = np.arange(1, 1 + len(self.values), dtype=np.uint64)
        distance = np.rint(distance / _GRID) + streams.unit(streams.numbers(keys[:, None], counters))
        nearest = np.argpartition(distance, min(count, len(self.values) - 1), axis=1)[:, :count]
        order = np.take_along_axis(distance, nearest, axis=1).argsort(axis=1)
        return np.take_along_axis(nearest, order, axis=1)

    def _seen(self, missing: Integers) -> tuple[Integers, Numbers]:
        """Return the known columns that tell most about the missing ones, and how much each column tells."""
        told = self._told[missing].sum(axis=0) + 1e-3
        told[missing] = 0.0
        return np.argsort(-told, kind="stable")[: min(_MOST_COLUMNS, len(told) - len(missing))], told

    def _known(self, missing: Integers) -> Integers:
        """Return the quantities among the columns that are looked at."""
        seen, _ = self._seen(missing)
        return seen[np.array(self.levels)[seen] == 0]

    def _distance(self, cells: Cells, missing: Integers) -> Numbers:
        """Squared distance of rows to all donors.  # (rows, donors)"""
        seen, told = self._seen(missing)
        if not len(seen):
            return np.zeros((len(cells), len(self.values)))
        towards = np.linalg.solve(self._correlation[np.ix_(seen, seen)], self._correlation[np.ix_(seen, missing)])
        levels = np.array(self.levels)
        quantities, texts = seen[levels[seen] == 0], seen[levels[seen] > 0]

        is_quantity = levels[seen] == 0

        def mapped(scores: Numbers) -> Numbers:
            return np.concatenate([scores @ towards, 0.5 * np.sqrt(told[quantities]) * scores[:, is_quantity]], 1)

        here, there = mapped(self._normal_scores(cells.values, seen)), mapped(self._z[:, seen])
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

    # ------------------------------------------------------------------ the rules

    @cached_property
    def with_rules(self) -> Donors:
        """These donors, with rules for how values are drawn: chosen by the scores of values that were hidden."""
        if self.rules:
            return self
        rows, columns = len(self.values), len(self.levels)
        random = streams.generator(self.seed, "gaps", "hidden")
        hidden = random.permutation(rows)[: min(_HIDDEN_ROWS, rows // 4)]
        others = np.setdiff1d(np.arange(rows), hidden)
        donors = replace(self, values=self.values[others], is_measured=self.is_measured[others])
        decays = [decay for decay in _DECAYS if _REACH * decay <= len(others)] or [_DECAYS[0]]
        rules = [Rule(decay, adjustment) for adjustment in ADJUSTMENTS for decay in decays]

        def scored(missing: Integers, some: Integers) -> Numbers:
            """Score all rules by rows in which these columns were measured, and are hidden.  # (rules, rows)"""
            some = some[self.is_measured[np.ix_(some, missing)].all(axis=1)]
            return donors._scored(self.values[some], missing, rules)

        lacking = (~self.is_measured).sum(axis=0)
        ruled = np.sort(np.argsort(-lacking, kind="stable")[:_MOST_RULED])
        each = min(len(hidden), max(_FEWEST_HIDDEN, _HIDDEN_VALUES // max(columns, 1)))
        scores = [np.empty((len(rules), 0))] * columns
        for column in ruled.tolist():
            scores[column] = scored(np.array([column]), np.roll(hidden, -column * each)[:each])
        means = [score.mean(axis=1) for score in scores if score.size]
        if not means:
            return replace(self, rules=(_FIRST_RULE,) * columns)
        usual = int(np.mean(means, axis=0).argmin())
        best = tuple(rules[clearly_best(score, usual)] for score in scores)
        of_several = []
        for some in np.array_split(hidden, _HIDDEN_PATTERNS) if columns > 1 else ():
            size = random.integers(2, max(2, columns // 2), endpoint=True)
            of_several.append(scored(random.permutation(columns)[:size], some))
        together = np.concatenate([np.empty((len(rules), 0)), *of_several], axis=1)
        return replace(self, rules=best, together=rules[clearly_best(together, usual)])

    def _scored(self, truth: Numbers, missing: Integers, rules: list[Rule]) -> Numbers:
        """Score rules by rows whose missing columns are hidden: the mean over these columns, in their units.

        # (rows, columns) -> (rules, rows)
        """
        values = truth.copy()
        values[:, missing] = np.nan
        cells = Cells.unlimited(values, self.levels)
        count = max(self._count(rule, missing) for rule in rules)
        nearest = self._nearest(cells, _keys(cells, self.seed), missing, count, None)
        scores = np.zeros((len(rules), len(truth)))
        for adjustment in ADJUSTMENTS:
            given = self._given(cells, nearest, missing, adjustment)
            for number, rule in enumerate(rules):
                if rule.adjustment == adjustment:
                    weights = rule.weights(nearest.shape[1])
                    for place, column in enumerate(missing.tolist()):
                        score = brier if self.levels[column] else crps
                        drawn = given[:, : len(weights), place]
                        scores[number] += score(drawn, weights, truth[:, column]) / self._scale[column]
        return scores / len(missing)


def _systematic(given: Numbers, along: Numbers, weights: Numbers, start: Numbers, count: int) -> Numbers:
    """Draw evenly spaced quantiles of weighted values that are sorted along a direction.

    # (rows, donors, columns), (rows, donors), (donors,), (rows,) -> (rows, count, columns)
    """
    order = along.argsort(axis=1, kind="stable")
    below = np.cumsum(weights[order], axis=1)
    place = (below[:, None, :] < ((np.arange(count) + start[:, None]) / count)[:, :, None]).sum(axis=2)
    place = np.take_along_axis(order, np.minimum(place, given.shape[1] - 1), axis=1)
    return np.take_along_axis(given, place[:, :, None], axis=1)


def samples_of_a_draw(samples: int, networks: int) -> int:
    """Return how many samples of a network each draw gets: a quarter of those of a row without gaps, or fewer.

    Of many networks, four samples of each are enough: 32 answers of all networks to each of 20 draws are 640.

    samples: of a row without gaps.
    networks: that answer a row.

    >>> samples_of_a_draw(100, 25), samples_of_a_draw(20, 25), samples_of_a_draw(20, 5), samples_of_a_draw(8, 1)
    (24, 4, 8, 8)
    """
    fewest = -(-_ANSWERS_TO_A_DRAW // (4 * networks)) * 4
    return min(samples, max(4, fewest, samples // 16 * 4))


def networks_of_a_row(networks: int, left_out_by: Tensor | None) -> int:
    """Return how many networks answer a row: all, or those of the fold that left it out."""
    return networks if left_out_by is None else max(1, networks // (int(left_out_by.max()) + 1))


# ---------------------------------------------------------------------- parts


def donor_rows(count: int, seed: int) -> Integers:
    """Choose the training rows that are donors: all, or 2,500 at random."""
    return np.sort(streams.generator(seed, "gaps", "donors").permutation(count)[:_MOST_DONORS])


def _keys(cells: Cells, seed: int) -> NDArray[np.uint64]:
    """Return a random stream for each row, by what it holds."""
    start = hashlib.blake2b(f"{seed}\x1fgaps".encode(), digest_size=8)
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


def _scores(ordered: Numbers, values: Numbers) -> Numbers:
    """Normal scores of values by their ranks among the donors, which are sorted; equal ones by their middle."""
    rank = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    margin = 0.5 / len(ordered)
    return torch.special.ndtri(torch.from_numpy(np.clip(rank / len(ordered), margin, 1 - margin))).numpy()


def _groups(column: Numbers) -> Integers:
    """Number of each row's group: its value if there are few, else its quantile."""
    values = np.unique(column)
    if len(values) <= _BINS:
        return np.searchsorted(values, column)
    return np.searchsorted(np.quantile(column, np.arange(1, _BINS) / _BINS), column, side="right")
