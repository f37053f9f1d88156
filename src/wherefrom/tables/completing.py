"""Rows with gaps -> complete ones: many draws of each to predict with, one draw of each to train on.

A network is to learn p(y | x), so a missing value of a training row is drawn given its target as well as the other
columns: drawn without it, x would seem to say less about y than it does. A row to predict has no target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.tables.cells import Cells
from wherefrom.tables.columns import Encoded, TableEncoder
from wherefrom.tables.gaps import DRAWS, Donors, donor_rows
from wherefrom.tables.raw import Integers, Numbers
from wherefrom.tables.target import Target
from wherefrom.training import streams

_MOST_DRAWN = 500  # columns; of more, a missing value is the median: the time to draw them grows with their square


@dataclass(frozen=True, eq=False)
class Completion:
    """The rules of the columns, and the training rows that give missing values."""

    encoder: TableEncoder
    donors: Donors

    @property
    def names(self) -> tuple[str, ...]:
        """Columns whose missing values are drawn."""
        return tuple(rule.name for rule in self.encoder.drawn)

    def drawn(self, x: Encoded, draws: int = DRAWS, leaving_out: Integers | None = None) -> tuple[Encoded, Numbers]:
        """Complete each row many times: rows * draws rows, and the values of their columns.

        leaving_out: the donor that is the row itself, -1 where there is none (default: none).
        # (rows * draws, features), (rows, draws, columns)
        """
        assert x.cells is not None
        cells = self.donors.draws(x.cells, draws, leaving_out=leaving_out)
        return self.encoder.completed(x, cells), cells

    def once(self, x: Encoded, leaving_out: Integers | None = None) -> Encoded:
        """Complete each row once."""
        return x if x.cells is None else self.drawn(x, 1, leaving_out)[0]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows, and donors that know the target."""

    encoder: TableEncoder
    x: Encoded
    cells: Cells  # and the target as the last column, or several of them
    donors: Donors
    itself: Integers  # the donor that a row is, or -1
    classes: int  # of the target, 0 for a quantity

    @classmethod
    def of(cls, encoder: TableEncoder, x: Encoded, y: Numbers, classes: int, seed: int) -> TrainingRows | None:
        """Learn from training rows; None if there is nothing to draw.

        y: a quantity, several of them, or the numbers of classes.
        classes: how many there are, 0 for a quantity.
        """
        if x.cells is None:
            return None
        itself = np.full(len(x), -1)
        chosen = donor_rows(len(x), seed)
        itself[chosen] = np.arange(len(chosen))
        cells = x.cells.beside(y, classes)
        return cls(encoder, x, cells, Donors.of(cells, seed), itself, classes)

    def completed(self, times: int) -> tuple[Encoded, ...]:
        """Complete each row several times, given its target; no time has the lower or the higher values."""
        drawn = self._drawn(times)  # (rows, times, columns), evenly spaced over what a row may lack
        order = streams.generator(self.donors.seed, "gaps", "versions").random(drawn.shape[:2]).argsort(axis=1)
        drawn = np.take_along_axis(drawn, order[:, :, None], axis=1)
        return tuple(self.encoder.completed(self.x, drawn[:, k : k + 1]) for k in range(times))

    def like_these(self, x: Encoded, y: Numbers) -> Encoded:
        """Complete other training rows once, given their targets.

        y: as for `of`.
        """
        if x.cells is None or not len(x):
            return x
        drawn = self.donors.draws(x.cells.beside(y, self.classes), 1)
        return self.encoder.completed(x, drawn[:, :, : len(x.cells.levels)])

    def completion(self) -> Completion:
        """Return what completes rows whose target is not known."""
        assert self.x.cells is not None
        complete = Cells.unlimited(self._drawn(1)[:, 0], self.x.cells.levels)
        return Completion(self.encoder, Donors.of(complete, self.donors.seed, ~self.x.cells.gaps))

    def _drawn(self, times: int) -> Numbers:
        assert self.x.cells is not None
        return self.donors.draws(self.cells, times, leaving_out=self.itself)[:, :, : len(self.x.cells.levels)]


@dataclass(frozen=True, eq=False)
class Filled:
    """Training rows without gaps, as the networks take them.

    Where folds judge the rows, `x` is drawn without the target, by rows other than itself, and judges; `versions` are
    drawn with it, one for each fold, and train: the missing values become part of D.
    """

    x: Encoded
    versions: tuple[Encoded, ...]
    completion: Completion | None  # of rows to predict; None if no column can be drawn
    itself: Integers | None  # the donor that each row is, or -1
    given_targets: TrainingRows | None = None  # what completes training rows, if some of these have gaps

    @classmethod
    def of(cls, encoder: TableEncoder, x: Encoded, y: NDArray[Any], target: Target, seed: int, folds: int) -> Filled:
        """Learn to draw missing values, and draw those of the training rows.

        folds: how many judge the rows; 0 if others do.
        """
        if x.cells is None or len(encoder.drawn) > _MOST_DRAWN:
            return cls(x, (), None, None)
        if not x.has_gaps.any():
            return cls(x, (), Completion(encoder, Donors.of(x.cells, seed)), None)
        rows = TrainingRows.of(encoder, x, target.numbers(y), len(target.classes), seed)
        assert rows is not None
        completion = rows.completion()
        if not folds:
            return cls(rows.completed(1)[0], (), completion, rows.itself, rows)
        return cls(completion.once(x, rows.itself), rows.completed(folds), completion, rows.itself)
