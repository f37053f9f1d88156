"""A table as it is written: columns of cells, which nothing has interpreted yet, and the number of each row.

A column of text becomes its different values and a code for each row, so that a value is interpreted once, not once a
row. Columns of a file that is read in chunks stay as they are written until then: most are plain numbers. Files
(`reading`) and frames (`frames`) become such tables.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Whatever their case. "none" is not among them: it is an answer in many a table, and a class in some.
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "null", "?", "-", ".")
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)

LIMIT = re.compile(r"(<=?|>=?|≤|≥)\s*(.+)")

EXACT = 2**53  # whole numbers up to here are what they were as floating-point numbers

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """The format of a file. What is None is detected."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()  # further words for a missing value
    most_unpacked: int | None = None  # bytes that a compressed file may unpack to; None: as `unpacking` says

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
_DIGITS = b"0123456789+-eE\n"  # and the decimal sign: the characters of plain numbers
_LETTERS_OF_MISSING = "".join(map(str.swapcase, MISSING)).encode() + "".join(MISSING).encode()


@dataclass(frozen=True, eq=False)
class Coded:
    """Cells of text as a code for each row, -1 where it is missing, and the levels."""

    codes: NDArray[np.int32]
    levels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Written:
    """Cells as a file has them, which nothing has looked at yet."""

    cells: Sequence[str]
    how: Format

    def coded(self) -> Coded:
        coder = Coder(self.how)
        coder.extend(self.cells)
        return coder.coded()

    def plain_numbers(self, decimal: str) -> Numbers | None:
        """Return the number of each row, nan where it is missing; None if some cells need to be looked at."""
        if any(map(NUMBER.fullmatch, self.how.missing)):
            return None
        text = "\n".join(self.cells)
        if not text.isascii() or text.count("\n") != len(self.cells) - 1:
            return None
        others = text.encode("ascii").translate(None, _DIGITS + decimal.encode())
        if others.strip(_LETTERS_OF_MISSING):
            return None
        numbers = text.replace(decimal, ".").split("\n")
        try:
            if others or "\n\n" in f"\n{text}\n":
                is_missing = map(self.how.is_missing, self.cells)
                return np.array([nan if gap else float(cell) for gap, cell in zip(is_missing, numbers, strict=True)])
            return np.array([*map(float, numbers)])
        except ValueError:
            return None


@dataclass(frozen=True, eq=False)
class Column:
    """One column: text, as it is written or coded, or the numbers of a typed file."""

    name: str
    text: Coded | Written | None
    numbers: Numbers | None = None  # nan where missing; dates as days since 1970
    is_date: bool = False
    _plain: dict[str, Numbers | None] = field(default_factory=dict, repr=False)  # by the decimal sign

    @cached_property
    def _coded(self) -> Coded:
        if isinstance(self.text, Written):
            return self.text.coded()
        return self.text or Coded(np.empty(0, dtype=np.int32), ())

    @property
    def codes(self) -> NDArray[np.int32]:
        """Code of each row of text, -1 where it is missing."""
        return self._coded.codes

    @property
    def levels(self) -> tuple[str, ...]:
        """Different values of text, in the order of their codes."""
        return self._coded.levels

    def plain_numbers(self, decimal: str) -> Numbers | None:
        """Return the number of each row of text, nan where it is missing; None unless this is quick to know."""
        if not isinstance(self.text, Written):
            return None
        if decimal not in self._plain:
            self._plain[decimal] = self.text.plain_numbers(decimal)
        return self._plain[decimal]

    def __len__(self) -> int:
        if self.numbers is not None:
            return len(self.numbers)
        return len(self.text.cells if isinstance(self.text, Written) else self.codes)

    @property
    def missing(self) -> NDArray[np.bool_]:
        return self.codes < 0 if self.numbers is None else np.isnan(self.numbers)

    def take(self, rows: Any) -> Column:
        if self.numbers is None:
            return Column(self.name, Coded(self.codes[rows], self.levels))
        return Column(self.name, None, self.numbers[rows], self.is_date)

    def as_text(self) -> Column:
        """Return numbers as text, whole ones without a point."""
        if self.numbers is None:
            return self
        values, codes = np.unique(self.numbers[~self.missing], return_inverse=True)
        every = np.full(len(self), -1, dtype=np.int32)
        every[~self.missing] = codes
        return Column(self.name, Coded(every, tuple(_written(value) for value in values.tolist())))

    def cells(self) -> list[str]:
        """Text of every row, empty where it is missing."""
        text = self.as_text()
        return ["" if code < 0 else text.levels[code] for code in text.codes.tolist()]

    def plain(self) -> list[Any]:
        """Value of every row as the file has it: numbers of a typed file stay numbers, None where they are missing."""
        if self.numbers is None or self.is_date:
            return self.cells()
        return [None if value != value else _plain(value) for value in self.numbers.tolist()]

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
        self.code_of: dict[str | None, int] = {None: -1}  # cells as they are written

    def extend(self, cells: Iterable[str | None]) -> None:
        """Add cells at the end of the column."""
        cells = cells if isinstance(cells, Sequence) else list(cells)
        code_of, levels = self.code_of, self.levels
        new = [cell for cell in dict.fromkeys(cells) if cell is not None and cell not in code_of]
        for cell, level in zip(new, map(str.strip, new), strict=True):
            code = code_of.get(level)
            if code is None:
                code = -1 if self.how.is_missing(level) else len(levels)
                code_of[level] = code
                if code >= 0:
                    levels.append(level)
            code_of[cell] = code
        self.codes.extend(map(code_of.__getitem__, cells))

    def coded(self) -> Coded:
        return Coded(np.array(self.codes, dtype=np.int32), tuple(self.levels))


def as_numbers(levels: Sequence[str], decimal: str) -> Numbers:
    """Return each level as a number, nan where it is none; with a decimal comma, one with a point is none.

    >>> as_numbers(["1.5", "-2e3", "x"], ".").tolist(), as_numbers(["1,5", "1.5"], ",").tolist()
    ([1.5, -2000.0, nan], [1.5, nan])
    """
    if (plain := _as_plain_numbers(levels, decimal)) is not None:
        return plain
    values = np.full(len(levels), np.nan)
    other = "." if decimal == "," else ","
    for index, level in enumerate(levels):
        if other in level:
            continue
        cell = level.replace(decimal, ".")
        if NUMBER.fullmatch(cell):
            values[index] = float(cell)
    return values


def _as_plain_numbers(levels: Sequence[str], decimal: str) -> Numbers | None:
    """Return the levels as numbers if all of them are, and are written by ASCII digits; None if any may not be.

    Among texts of these characters, float() takes what `NUMBER` matches, and nothing else.
    """
    text = "\n".join(levels)
    if not text.isascii() or text.count("\n") != len(levels) - 1:
        return None
    if text.encode("ascii").translate(None, _DIGITS + decimal.encode()):
        return None
    try:
        return np.array([*map(float, text.replace(decimal, ".").split("\n"))])
    except ValueError:
        return None


def as_limits(levels: Sequence[str], decimal: str) -> tuple[Numbers, Numbers]:
    """Return the interval that each level says that a number lies in, nan where it says none.

    >>> low, high = as_limits(["<0.6", ">= 200", "3"], ".")
    >>> low.tolist(), high.tolist()
    ([-inf, 200.0, nan], [0.6, inf, nan])
    """
    text = "".join(levels)
    if not any(sign in text for sign in "<>≤≥"):
        return np.full(len(levels), np.nan), np.full(len(levels), np.nan)
    written = [LIMIT.fullmatch(level) for level in levels]
    ends = as_numbers(["" if limit is None else limit[2] for limit in written], decimal)
    ends = np.where(np.isfinite(ends), ends, np.nan)
    is_below = np.array([limit is not None and limit[1] in "<=≤" for limit in written], dtype=bool)
    low = np.where(is_below & ~np.isnan(ends), -np.inf, ends)
    high = np.where(~is_below & ~np.isnan(ends), np.inf, ends)
    return low, high


def _plain(value: float) -> int | float:
    return int(value) if value.is_integer() and abs(value) < EXACT else value


def _written(value: float) -> str:
    return repr(_plain(value))


def typed(name: str, values: Numbers, how: Format, is_date: bool = False) -> Column:
    """Return a column of numbers, or of days since 1970, without those that are words for missing."""
    for word in how.missing:
        if NUMBER.fullmatch(word):
            values = np.where(values == float(word), np.nan, values)
    return Column(name, None, values.astype(np.float64), is_date)
