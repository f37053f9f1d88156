"""The columns that the predictions rest on: how much worse they get when one column is shuffled among the rows.

With the loss l(x_i, y_i) of row i, and row i given column c of row j,

    h(i, j)     =  l(x_i with c of j, y_i) - l(x_i, y_i)
    importance  =  mean of h(i, p(i)) over rows i and some permutations p

Each row is answered by networks that did not see it, so that what they merely remember does not count. All features of
a column move together: the levels of a text, the parts of a date, the mark of a missing value.

A row takes part twice, as the one that is answered, A_i = mean over p of h(i, p(i)), and as the one that gives its
value, B_i = mean over p of h(q(i), i) with q the inverse of p. With h(i, j) = mean + a_i + b_j + c_ij, n rows and R
permutations, n times the variance of the importance is Var(a + b) + Var(c) / R. What rows show is

    Var(A + B)  =  Var(a + b)  +  (Var(b) + Var(c)) / R  +  (Var(a) + Var(c)) / R

whose last two terms are the variances of h over p, for given i and for given j, over R. The larger of them is taken
out; what is left is too large by at most Var(a) / R or Var(b) / R. The spread of A alone would be far too small: of a
linear model that rests on one column, half of the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wherefrom import plots
from wherefrom.showing import Library, card, frame_of
from wherefrom.table import Table
from wherefrom.tables.labelled import Labelled
from wherefrom.tables.raw import Integers, Numbers
from wherefrom.tables.scores import NAMES
from wherefrom.training import streams

MOST_ROWS = 1000
REPEATS = 3
_SAMPLES = 8  # of each network: increases are differences of the same networks, and need no more
_NUMBERS = 2_000_000  # answers at a time

Losses = Callable[[Numbers, int], Mapping[str, Numbers]]  # of rows, repeated, by name: (times * rows,) each


@dataclass(frozen=True)
class Increase:
    """The mean increase of a loss, and its standard error."""

    mean: float
    error: float

    @property
    def is_clear(self) -> bool:
        """True if it is above 0 by more than two standard errors."""
        return self.mean > 2 * self.error


@dataclass(frozen=True)
class Importance:
    """The importance of each column: how much worse predictions get without it, the largest first.

    columns: column -> name of a score ("nll", and "mae" or "brier") -> its increase. The mean absolute error is in the
        units of the target.
    rows: how many were asked.
    repeats: permutations of each column.
    """

    columns: Mapping[str, Mapping[str, Increase]]
    rows: int
    repeats: int

    def __getitem__(self, column: str) -> Mapping[str, Increase]:
        return self.columns[column]

    @property
    def main_score(self) -> str:
        """The score by which columns are in order: the NLL, where there is a density."""
        return next(iter(next(iter(self.columns.values()))))

    def table(self) -> Table:
        """Return a line for each column, for people."""
        scores = list(next(iter(self.columns.values())))
        header = [part for score in scores for part in (f"{NAMES[score]} rises by", "±" + " " * scores.index(score))]
        lines = [
            (column, *(part for score in scores for part in (each[score].mean, each[score].error)))
            for column, each in self.columns.items()
        ]
        return Table(("column", *header), lines)

    def to_frame(self, library: Library | None = None) -> Any:
        """Return a frame with a row for each column.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        lines = [
            {key: value for score, one in each.items() for key, value in _named(score, one).items()}
            for each in self.columns.values()
        ]
        numbers = {key: [line[key] for line in lines] for key in lines[0]} if lines else {}
        return frame_of({"column": list(self.columns)} | numbers, library)

    def plot(self, score: str | None = None, *, ax: Any = None) -> Any:
        """Draw how much worse predictions get without each column, with standard errors, and return the axes.

        score: "nll", "mae" or "brier" (default: that by which columns are in order).
        ax: matplotlib's axes to draw on (default: a new figure).
        """
        score = self.main_score if score is None else score
        if score not in (offered := list(next(iter(self.columns.values())))):
            raise ValueError(f"score must be {' or '.join(map(repr, offered))}, not {score!r}")
        means = {column: each[score].mean for column, each in self.columns.items()}
        errors = {column: each[score].error for column, each in self.columns.items()}
        return plots.bars(means, errors, f"{NAMES[score]} rises by, if the column is shuffled", ax, "one colour")

    def _repr_html_(self) -> str:
        return card(f"Which columns matter, by {self.rows:,} rows", self.table().html())

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__


def _named(score: str, increase: Increase) -> dict[str, float]:
    return {score: increase.mean, f"{score}_error": increase.error}


def importance(labelled: Labelled, repeats: int = REPEATS) -> Importance:
    """Shuffle each column of rows whose truth is known, 1,000 of them at most."""
    if repeats < 1:
        raise ValueError(f"repeats is at least 1, not {repeats}")
    rows = labelled.at_most(MOST_ROWS, "importance")
    if len(rows) < 2:
        raise ValueError("one row has nothing to be shuffled with: give more rows")
    values = rows.rows.x.double().numpy()
    truth = rows.truth

    def losses(at: Numbers, times: int) -> Mapping[str, Numbers]:
        again = truth * times if isinstance(truth, list) else np.concatenate([truth] * times)
        return rows.answered_at(at, times, _SAMPLES).row_losses(again)

    slices = {name: part for name, part in rows.model.encoder.feature_slices.items() if part.stop > part.start}
    generator = streams.generator(rows.model.posterior.seed, "tables", "shuffled")
    orders = [generator.permutation(len(values)) for _ in range(repeats)]
    at_once = max(1, _NUMBERS // (len(values) * len(rows.model.posterior) * _SAMPLES))
    return Importance(shuffled(losses, values, slices, orders, at_once), len(values), repeats)


def shuffled(
    losses: Losses, values: Numbers, slices: Mapping[str, slice], orders: list[Integers], at_once: int = 1
) -> dict[str, dict[str, Increase]]:
    """Return the increase of every loss if columns are permuted, those with the largest increase of the first first.

    losses: of rows that are repeated one after the other, with other values.
    values: (rows, features).
    slices: the features of each column.
    orders: permutations of the rows.
    at_once: how many of them are answered together.

    >>> values = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> off = lambda at, times: {"nll": np.abs(at[:, 0] - np.tile([1.0, 2.0, 3.0], times))}
    >>> increase = shuffled(off, values, {"a": slice(0, 1), "b": slice(1, 2)}, [np.array([1, 2, 0])])
    >>> {name: round(each["nll"].mean, 3) for name, each in increase.items()}
    {'a': 1.333, 'b': 0.0}
    """
    whole = losses(values, 1)
    columns = {}
    for name, part in slices.items():
        rises: dict[str, list[Numbers]] = {score: [] for score in whole}
        for start in range(0, len(orders), at_once):
            some = orders[start : start + at_once]
            moved = np.tile(values, (len(some), 1))
            moved[:, part] = np.concatenate([values[order, part] for order in some])
            for score, each in losses(moved, len(some)).items():
                rises[score] += list(np.reshape(each, (len(some), -1)) - whole[score])
        columns[name] = {score: _increase(np.stack(each), orders) for score, each in rises.items() if each}
    first = next(iter(whole))
    return dict(sorted(columns.items(), key=lambda item: -item[1][first].mean))


def _increase(rises: Numbers, orders: list[Integers]) -> Increase:
    """Return the mean, and its standard error by the formula above.  # (permutations, rows)"""
    given = np.stack([rise[np.argsort(order)] for rise, order in zip(rises, orders, strict=True)])
    repeats, rows = rises.shape
    shown = float((rises.mean(0) + given.mean(0)).var(ddof=1))
    chance = max(float(each.var(0, ddof=1).mean()) for each in (rises, given)) if repeats > 1 else 0.0
    return Increase(float(rises.mean()), math.sqrt(max(shown - chance / repeats, shown / 2) / rows))
