"""A table as it is written: columns of cells, which nothing has interpreted yet, and the number of each row.

A column of text is kept as its different values and a code for each row, so that a value is interpreted once, not once
a row. Files (`reading`) and frames (`frames`) become such tables.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Whatever their case. "none" is not among them: it is an answer in many a table, and a class in some.
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "null", "?", "-", ".")
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)

LIMIT = re.compile(r"(<=?|>=?|≤|≥)\s*(.+)")

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """The format of a file. What is None is detected."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()  # further words for a missing value

    def __post_init__(self) -> None:
        separator = self.separator if self.separator is None else SEPARATORS.get(self.separator, self.separator)
        if separator is not None and len(separator) != 1:
            raise ValueError(f"the separator is one character, or {', '.join(SEPARATORS)}, not {separator!r}")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"the decimal sign is . or , and not {self.decimal!r}")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                raise ValueError(f"there is no encoding {self.encoding!r}; try utf-8, cp1252 or utf-16") from None
        object.__setattr__(self, "separator", separator)

    def is_missing(self, cell: str) -> bool:
        return cell.casefold() in _MISSING or cell in self.missing


_MISSING = frozenset(word.casefold() for word in MISSING)


@dataclass(frozen=True, eq=False)
class Column:
    """One column. Text has a code for each row (-1 where it is missing), of a typed file there are numbers instead."""

    name: str
    codes: NDArray[np.int32]
    levels: tuple[str, ...]
    numbers: Numbers | None = None  # nan where missing; dates as days since 1970
    is_date: bool = False

    def __len__(self) -> int:
        return len(self.codes if self.numbers is None else self.numbers)

    @property
    def missing(self) -> NDArray[np.bool_]:
        return self.codes < 0 if self.numbers is None else np.isnan(self.numbers)

    def take(self, rows: Any) -> Column:
        if self.numbers is None:
            return replace(self, codes=self.codes[rows])
        return replace(self, numbers=self.numbers[rows])

    def as_text(self) -> Column:
        """Return numbers as text, whole ones without a point."""
        if self.numbers is None:
            return self
        values, codes = np.unique(self.numbers[~self.missing], return_inverse=True)
        every = np.full(len(self), -1, dtype=np.int32)
        every[~self.missing] = codes
        return Column(self.name, every, tuple(_written(value) for value in values.tolist()))

    def cells(self) -> list[str]:
        """Text of every row, empty where it is missing."""
        text = self.as_text()
        return ["" if code < 0 else text.levels[code] for code in text.codes.tolist()]

    def plain(self) -> list[Any]:
        """Value of every row as the file has it: numbers of a typed file stay numbers, None where they are missing."""
        if self.numbers is None or self.is_date:
            return self.cells()
        is_whole = bool((self.numbers[~self.missing] % 1 == 0).all())
        return [None if value != value else int(value) if is_whole else value for value in self.numbers.tolist()]

    def counts(self) -> Integers:
        """Number of rows with each level."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    def first_row_of(self, level: int) -> int:
        return int(np.flatnonzero(self.codes == level)[0])


@dataclass(frozen=True, eq=False)
class RawTable:
    """The content of a file, column by column."""

    source: str
    columns: dict[str, Column]
    rows: Integers  # each row's number in the file; the header of a CSV file is row 1
    decimal: str = "."
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Any) -> RawTable:
        taken = {name: column.take(rows) for name, column in self.columns.items()}
        return replace(self, columns=taken, rows=self.rows[rows])

    def column(self, name: str) -> Column:
        if name not in self.columns:
            raise ValueError(f"{self.source} has no column {name!r}{nearest(name, self.columns)}")
        return self.columns[name]


def nearest(name: str, names: Any) -> str:
    """The name that was probably meant, or all names if there are few, as an end of a sentence."""
    if meant := likely(name, names):
        return f"; did you mean {meant!r}?"
    several = list(map(str, names))
    return f"; it has {', '.join(several[:20])}{', ...' * (len(several) > 20)}"


def likely(name: str, names: Any) -> str | None:
    """The name that was probably meant.

    >>> likely("age", ["Age ", "height"]), likely("weight", ["x", "y"])
    ('Age ', None)
    """
    from difflib import get_close_matches

    lower = {str(one).casefold(): str(one) for one in names}
    close = get_close_matches(name.casefold(), list(lower), 1)
    return lower[close[0]] if close else None


class Coder:
    """One column as it is read: a new number for a new level, -1 for a missing value."""

    def __init__(self, how: Format) -> None:
        self.how, self.codes = how, array("i")
        self.levels: list[str] = []
        self.known: dict[str | None, int] = {None: -1}  # cells as they are written

    def add(self, cell: str | None) -> None:
        code = self.known.get(cell)
        self.codes.append(self._new(cell) if code is None else code)

    def _new(self, cell: Any) -> int:
        level = cell.strip()
        if self.how.is_missing(level):
            code = -1
        elif level in self.known:
            code = self.known[level]
        else:
            code = self.known[level] = len(self.levels)
            self.levels.append(level)
        self.known[cell] = code
        return code

    def column(self, name: str) -> Column:
        return Column(name, np.array(self.codes, dtype=np.int32), tuple(self.levels))


def as_numbers(levels: Sequence[str], decimal: str) -> Numbers:
    """Return each level as a number, nan where it is none; with a decimal comma, one with a point is none."""
    values = np.full(len(levels), np.nan)
    other = "." if decimal == "," else ","
    for index, level in enumerate(levels):
        if other in level:
            continue
        cell = level.replace(decimal, ".")
        if NUMBER.fullmatch(cell):
            values[index] = float(cell)
    return values


def as_limits(levels: Sequence[str], decimal: str) -> tuple[Numbers, Numbers]:
    """Return the interval that each level says that a number lies in, nan where it says none.

    >>> low, high = as_limits(["<0.6", ">= 200", "3"], ".")
    >>> low.tolist(), high.tolist()
    ([-inf, 200.0, nan], [0.6, inf, nan])
    """
    written = [LIMIT.fullmatch(level) for level in levels]
    ends = as_numbers(["" if limit is None else limit[2] for limit in written], decimal)
    ends = np.where(np.isfinite(ends), ends, np.nan)
    is_below = np.array([limit is not None and limit[1] in "<=≤" for limit in written], dtype=bool)
    low = np.where(is_below & ~np.isnan(ends), -np.inf, ends)
    high = np.where(~is_below & ~np.isnan(ends), np.inf, ends)
    return low, high


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def typed(name: str, values: Numbers, how: Format, is_date: bool = False) -> Column:
    """Return a column of numbers, or of days since 1970, without those that are words for missing."""
    for word in how.missing:
        if NUMBER.fullmatch(word):
            values = np.where(values == float(word), np.nan, values)
    return Column(name, np.empty(0, dtype=np.int32), (), values.astype(np.float64), is_date)
