"""The known values of each row: one number for each column, and limits where the number is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.tables.raw import Integers, Numbers


@stored("Cells")
@dataclass(frozen=True, eq=False)
class Cells:
    """Rows by column. A quantity is a number, in the units that the networks take; text is the code of its level.

    values: nan where a value is not known.
    low, high: the interval in which such a value lies; infinite where nothing is known.
    levels: number of levels of each column of text, 0 for a quantity.
    """

    values: Numbers  # (rows, columns), and so are low and high
    low: Numbers
    high: Numbers
    levels: tuple[int, ...]

    @classmethod
    def unlimited(cls, values: Numbers, levels: tuple[int, ...]) -> Cells:
        """Cells without limits.

        >>> Cells.unlimited(np.array([[1.0, np.nan]]), (0, 3)).gaps.tolist()
        [[False, True]]
        """
        return cls(values, np.full_like(values, -np.inf), np.full_like(values, np.inf), levels)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def gaps(self) -> NDArray[np.bool_]:
        """True where a value is not known.  # (rows, columns)"""
        return np.isnan(self.values)

    def take(self, rows: Any) -> Cells:
        return Cells(self.values[rows], self.low[rows], self.high[rows], self.levels)

    @classmethod
    def joined(cls, parts: Sequence[Cells]) -> Cells:
        """Return the rows of several."""
        values, low, high = (
            np.concatenate(each) for each in zip(*((part.values, part.low, part.high) for part in parts), strict=True)
        )
        return cls(values, low, high, parts[0].levels)

    def beside(self, values: Numbers, levels: int) -> Cells:
        """Add one more column, or several, of values that are all known.  # (rows,) or (rows, columns)"""
        matrix = values.reshape(len(values), -1)
        more = Cells.unlimited(matrix, (levels,) * matrix.shape[1])
        return Cells(
            np.concatenate([self.values, more.values], axis=1),
            np.concatenate([self.low, more.low], axis=1),
            np.concatenate([self.high, more.high], axis=1),
            (*self.levels, *more.levels),
        )


def rows_by_pattern(gaps: NDArray[np.bool_]) -> Iterator[Integers]:
    """Return the rows that lack the same columns, for each set of columns that rows lack."""
    rows = np.flatnonzero(gaps.any(axis=1))
    if not len(rows):
        return
    _, pattern = np.unique(np.packbits(gaps[rows], axis=1), axis=0, return_inverse=True)
    pattern = pattern.reshape(-1)
    order = np.argsort(pattern, kind="stable")
    yield from np.split(rows[order], np.flatnonzero(np.diff(pattern[order])) + 1)
