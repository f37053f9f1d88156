"""The rows that a model learns from: all of a table, or some at random if there are too many.

A file is read in chunks, and only the rows that are drawn are kept, so that its length does not matter. Which rows are
drawn depends on the seed and on their places in the table alone: a frame and a file of the same rows give the same.

Columns of plain numbers are kept as numbers, 8 bytes a row instead of some 60 of text. Columns whose text matters stay
text: those that are named, and those with leading zeros or whole numbers that are too long for a floating-point number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wherefrom.tables.raw import EXACT, Coder, Column, Format, Integers, Numbers, RawTable, Written
from wherefrom.tables.reading import CHUNK, PARQUET, chunks, decimal_of, read
from wherefrom.tables.wording import option
from wherefrom.training import streams

MOST_ROWS = 1_000_000
_SLACK = 1.25  # of the rows that are wanted, until some of those that were kept are dropped
_APART = "\x1f"
_LEADING_ZERO = re.compile(rf"(^|{_APART})\s*[+-]?0\d")


def sampled(table: RawTable, most: int, seed: int) -> RawTable:
    """Return some rows of a table at random, in their order; all, if there are not more."""
    if len(table) <= most:
        return table
    kept = np.sort(np.argsort(_keys(0, len(table), seed), kind="stable")[:most])
    return with_note(table.take(kept), len(table))


def read_sampled(path: str | Path, how: Format | None, most: int, seed: int, as_text: Collection[str] = ()) -> RawTable:
    """Read some rows of a file at random, in their order; all, if there are not more.

    as_text: columns whose text matters (default: none).
    """
    return read_counted(path, how, most, seed, as_text)[0]


def read_counted(
    path: str | Path, how: Format | None, most: int, seed: int, as_text: Collection[str] = ()
) -> tuple[RawTable, int]:
    """Read what `read_sampled` reads, and return it with the number of all rows."""
    how = how or Format()
    is_open = how.decimal is None and Path(path).suffix.lower() not in PARQUET
    if is_open and (str(path) == "-" or decimal_of(path, how) is None):
        whole = read(path, how)  # the decimal sign depends on all rows
        return sampled(whole, most, seed), len(whole)
    kept = _Kept(most, seed)
    for table in chunks(path, how, CHUNK):
        kept.add(table)
    return kept.table(how, as_text), kept.count


def chosen_rows(count: int, most: int, seed: int) -> Callable[[int, int], NDArray[np.bool_]]:
    """Return (first, rows) -> which of these rows of a table are drawn.  # (rows,)"""
    if count <= most:
        return lambda first, rows: np.ones(rows, dtype=bool)
    limit = np.partition(_keys(0, count, seed), most - 1)[most - 1]
    return lambda first, rows: _keys(first, rows, seed) <= limit


def with_note(table: RawTable, count: int) -> RawTable:
    """Add the note that only some rows are learnt from."""
    words = f"learns from {len(table):,} rows, drawn at random of {count:,}: {option('most_rows', count)} takes all"
    return replace(table, notes=(*table.notes, words))


def _keys(first: int, count: int, seed: int) -> NDArray[np.uint64]:
    """Return the random number of each row; the least are drawn."""
    key = np.full(count, streams.key(seed, "tables", "learnt from"), dtype=np.uint64)
    return streams.numbers(key, np.arange(first, first + count, dtype=np.uint64))


class _Kept:
    """Rows with the least random numbers of all that were added."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.seed, self.count, self.kept = most, seed, 0, 0
        self.parts: list[tuple[NDArray[np.uint64], Integers, list[_Cells]]] = []
        self.first: RawTable | None = None
        self.limit = np.uint64(2**64 - 1)

    def add(self, table: RawTable) -> None:
        keys = _keys(self.count, len(table), self.seed)
        self.first = self.first or replace(table, columns={name: _empty(each) for name, each in table.columns.items()})
        self.count += len(table)
        chosen = np.flatnonzero(keys <= self.limit)
        cells = [_Cells.of(column, table.decimal, chosen) for column in table.columns.values()]
        self.parts.append((keys[chosen], table.rows[chosen], cells))
        self.kept += len(chosen)
        if self.kept > _SLACK * self.most:
            self._cut()

    def _cut(self) -> None:
        if self.kept <= self.most:
            return
        keys = np.concatenate([each for each, _, _ in self.parts])
        self.limit = np.partition(keys, self.most - 1)[self.most - 1]
        parts, self.parts = self.parts, []
        for each, rows, cells in parts:
            chosen = np.flatnonzero(each <= self.limit)
            if len(chosen):
                self.parts.append((each[chosen], rows[chosen], [some.take(chosen) for some in cells]))
        self.kept = sum(len(rows) for _, rows, _ in self.parts)

    def table(self, how: Format, as_text: Collection[str]) -> RawTable:
        self._cut()
        assert self.first is not None
        columns = {}
        for index, (name, column) in enumerate(self.first.columns.items()):
            each = [cells[index] for _, _, cells in self.parts]
            columns[name] = _column(name, each, how, column.is_date, name in as_text)
        rows = np.concatenate([each for _, each, _ in self.parts])
        table = replace(self.first, columns=columns, rows=rows)
        return table if self.count == len(table) else with_note(table, self.count)


def _empty(column: Column) -> Column:
    return Column(column.name, None, np.empty(0), column.is_date)


class _Cells:
    """Some cells of a column: numbers where all are plain numbers, and the text as one string if it is text."""

    def __init__(self, text: str | Sequence[str] | None, numbers: Numbers | None) -> None:
        self.text, self.numbers = text, numbers

    @classmethod
    def of(cls, column: Column, decimal: str, chosen: Integers) -> _Cells:
        if column.numbers is not None:
            return cls(None, column.numbers[chosen])
        numbers = column.plain_numbers(decimal)
        cells = column.text.cells if isinstance(column.text, Written) else column.cells()
        whole = len(chosen) == len(cells)
        some = cells if whole else [cells[index] for index in chosen.tolist()]
        return cls(_packed(some), None if numbers is None else numbers if whole else numbers[chosen])

    def take(self, chosen: Integers) -> _Cells:
        numbers = None if self.numbers is None else self.numbers[chosen]
        if self.text is None:
            return _Cells(None, numbers)
        cells = self.cells()
        return _Cells(_packed([cells[index] for index in chosen.tolist()]), numbers)

    def cells(self) -> Sequence[str]:
        assert self.text is not None
        return self.text.split(_APART) if isinstance(self.text, str) else self.text


def _packed(cells: Sequence[str]) -> str | Sequence[str]:
    """Return cells as one text, which takes a tenth of the memory; themselves, if that cannot be undone."""
    text = _APART.join(cells)
    return text if cells and text.count(_APART) == len(cells) - 1 else cells


def _column(name: str, parts: Sequence[_Cells], how: Format, is_date: bool, is_text: bool) -> Column:
    """Join the parts of a column: as numbers if that loses nothing, else as text."""
    if all(part.text is None for part in parts):
        return Column(name, None, np.concatenate([_some(part.numbers) for part in parts]), is_date)
    if not is_text and all(part.numbers is not None and not _has_leading_zero(part) for part in parts):
        numbers = np.concatenate([_some(part.numbers) for part in parts])
        if not (np.abs(numbers) > EXACT).any():
            return Column(name, None, numbers)
    coder = Coder(how)
    for part in parts:
        coder.extend(part.cells() if part.text is not None else Column(name, None, part.numbers).cells())
    return Column(name, coder.coded())


def _has_leading_zero(part: _Cells) -> bool:
    text = part.text if isinstance(part.text, str) else _APART.join(part.cells())
    return _LEADING_ZERO.search(text) is not None


def _some(numbers: Numbers | None) -> Numbers:
    assert numbers is not None
    return numbers
