"""A file -> its columns, cell by cell as they are written, and the number of each row as the file has it.

CSV is read by Python's own reader, so that any fault is told by its row; Parquet needs polars. Nothing is interpreted
here but what belongs to the file: its encoding, its separator, its decimal sign, and which cells are missing.

`read` returns a whole file as one table. `chunks` returns it as a sequence of tables, in memory that does not grow with
the file: of the same rows, with the same row numbers. What is decided about a whole file is decided before the first
row: its encoding by a pass over all bytes, its separator by the first rows. Its decimal sign is that of the run.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wherefrom.tables.frames import table_of
from wherefrom.tables.raw import NUMBER, SEPARATORS, Coded, Coder, Column, Format, RawTable, Written
from wherefrom.tables.unpacking import limit_of, opened, refuse
from wherefrom.tables.wording import option

PARQUET = (".parquet", ".pq")
CHUNK = 20_000  # rows

_SNIFFED_ROWS, _SNIFFED_TEXT = 50, 200_000
_BLOCK = 1 << 20
_PARQUET_ROWS = 200_000  # at once: files are stored in groups of rows, and a part of one costs as much as the whole
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


def read(path: str | Path, how: Format | None = None) -> RawTable:
    """A CSV file (also .csv.gz, or - for standard input) or a Parquet file."""
    how, path, source = how or Format(), Path(path), _checked(path)
    if path.suffix.lower() in PARQUET:
        return next(_parquet(path, how, None))
    with _csv(path, source, how) as file:
        coders = [Coder(how) for _ in file.names]
        rows = []
        for numbers, cells in file.batches(CHUNK):
            rows.append(numbers)
            for coder, column in zip(coders, cells, strict=True):
                coder.extend(column)
        table = file.table([coder.coded() for coder in coders], np.concatenate(rows), how)
    return table if how.decimal or file.separator == "," else _with_decimal(table)


def chunks(path: str | Path, how: Format | None = None, rows: int = CHUNK) -> Iterator[RawTable]:
    """Yield a file as tables of `rows` rows each, the last one of fewer; arguments are those of `read`.

    The decimal sign is a point unless `how` says that it is a comma.
    """
    how, path, source = how or Format(), Path(path), _checked(path)
    if path.suffix.lower() in PARQUET:
        yield from _parquet(path, how, rows)
        return
    with _csv(path, source, how) as file:
        for numbers, cells in file.batches(rows):
            yield file.table([Written(column, how) for column in cells], numbers, how)


def decimal_of(path: str | Path, how: Format) -> str | None:
    """Return the decimal sign of a CSV file if its separator shows it: a point, if that is a comma; else None."""
    with _csv(Path(path), _checked(path), how) as file:
        return "." if file.separator == "," else None


def _checked(path: str | Path) -> str:
    """Return the name of a file that can be read; raise if it cannot."""
    if str(path) == "-":
        return "standard input"
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a CSV or Parquet file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise ValueError(f"{path} is a spreadsheet: save it as CSV first")
    return str(path)


# ------------------------------------------------------------------ CSV


@dataclass(frozen=True, eq=False)
class _Csv:
    """A CSV file that is open behind its header."""

    source: str
    separator: str
    names: list[str]
    header_row: int
    records: Iterator[list[str]]
    notes: tuple[str, ...]

    def batches(self, rows: int) -> Iterator[tuple[Any, list[tuple[str, ...]]]]:
        """Yield the numbers of some rows and, for each column, their cells; lines without anything are passed over."""
        width, first, is_empty = len(self.names), self.header_row + 1, True
        try:
            while records := list(islice(self.records, rows)):
                numbers = np.arange(first, first + len(records))
                first += len(records)
                if {*map(len, records)} != {width}:
                    there = [index for index, record in enumerate(records) if self._is_row(record, numbers[index])]
                    numbers, records = numbers[there], [records[index] for index in there]
                if records:
                    is_empty = False
                    yield numbers, list(zip(*records, strict=True))
        except csv.Error as error:
            raise ValueError(f"{self.source} cannot be read as CSV: {error}; is a quote left open?") from None
        if is_empty:
            raise ValueError(f"{self.source} has a header, but no rows")

    def _is_row(self, record: list[str], number: int) -> bool:
        """True for a row, False for an empty line; a row of another length is an error."""
        if len(record) == len(self.names):
            return True
        if not any(map(str.strip, record)):
            return False
        raise ValueError(
            f"{self.source}, row {number}, has {len(record)} value{'s' * (len(record) != 1)}, but the header names "
            f"{len(self.names)} columns: is a quote missing, or the separator not {self.separator!r}?"
        )

    def table(self, cells: Sequence[Coded | Written], rows: Any, how: Format) -> RawTable:
        columns = {name: Column(name, column) for name, column in zip(self.names, cells, strict=True)}
        return RawTable(self.source, columns, rows, how.decimal or ".", self.notes)


@contextmanager
def _csv(path: Path, source: str, how: Format) -> Iterator[_Csv]:
    """Yield a CSV file whose encoding, separator and columns are known."""
    with opened(path, source, how.most_unpacked) as file:
        if file.read(4) == b"PAR1":
            raise ValueError(f"{source} is a Parquet file: give it the ending .parquet")
        encoding, notes = _encoding(file, how.encoding, source)
        separator = how.separator
        if separator is None:
            with _text(file, encoding) as text:
                separator = _separator(text.read(_SNIFFED_TEXT))
        with _text(file, encoding) as text:
            records = _records(text, separator)
            try:
                numbered = enumerate(records, start=1)
                row, header = next(((number, each) for number, each in numbered if any(map(str.strip, each))), (0, []))
            except csv.Error as error:
                raise ValueError(f"{source} cannot be read as CSV: {error}; is a quote left open?") from None
            if not row:
                raise ValueError(f"{source} is empty: it needs a header with the names of the columns, and rows")
            yield _Csv(source, separator, _names(header, source, row), row, records, notes)


@contextmanager
def _text(file: BinaryIO, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Yield the text of a file from its beginning; the file stays open."""
    file.seek(0)
    text = io.TextIOWrapper(file, encoding, newline="")
    try:
        yield text
    finally:
        text.detach()


def _encoding(file: BinaryIO, encoding: str | None, source: str) -> tuple[str, tuple[str, ...]]:
    """Return the encoding, and a note about it: UTF-8 unless a mark at the beginning, or the user, says otherwise.

    A file that is not in UTF-8 is taken to be in Windows-1252. All bytes are looked at before the first row is read.
    """
    file.seek(0)
    notes: tuple[str, ...] = ()
    has_mark = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if encoding is None:
        encoding = "utf-16" if has_mark else "utf-8-sig"
        row = _undecodable_row(file, encoding)
        if row is None:
            return encoding, ()
        note = f"{source} is not in UTF-8 (row {row}): read as Windows-1252; if letters look wrong, "
        notes, encoding = (f"{note}name it: {option('encoding')}",), "cp1252"
        tried = "neither in UTF-8 nor in Windows-1252"
    else:
        tried = f"not in {encoding}"
        if codecs.lookup(encoding).name == "utf-16" and not has_mark:
            encoding = f"utf-16-{'le' if sys.byteorder == 'little' else 'be'}"
    row = _undecodable_row(file, encoding)
    if row is not None:
        asked = option("encoding", "utf-16")
        raise ValueError(f"{source}, row {row}, is {tried}: name its encoding, as {asked}")
    return encoding, notes


def _undecodable_row(file: BinaryIO, encoding: str) -> int | None:
    """Return the first row that is not in this encoding, None if all are."""
    decoder, rows = codecs.getincrementaldecoder(encoding)(), 1
    file.seek(0)
    while True:
        block = file.read(_BLOCK)
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            return rows + error.object.count(b"\n", 0, error.start)
        except UnicodeError:
            return rows
        if not block:
            return None
        rows += block.count(b"\n")


def _records(text: Iterable[str], separator: str) -> Iterator[list[str]]:
    return csv.reader(text, delimiter=separator, skipinitialspace=True)


def _separator(text: str) -> str:
    """The one that splits the first rows into the same number of cells, the more the better."""
    head = text.splitlines()[: _SNIFFED_ROWS + 1]

    def score(separator: str) -> tuple[float, int]:
        try:
            widths = [len(record) for record in _records((f"{line}\n" for line in head), separator) if record]
        except csv.Error:
            return 0.0, 0
        if not widths or widths[0] < 2:
            return 0.0, 0
        return widths.count(widths[0]) / len(widths), widths[0]

    best = max(SEPARATORS.values(), key=score)
    return best if score(best) > (0.0, 0) else ","


def _names(header: Sequence[str], source: str, row: int) -> list[str]:
    names = [name.strip() for name in header]
    if all(NUMBER.fullmatch(name) for name in names):
        raise ValueError(f"{source}, row {row}, should name the columns, but holds numbers: add a header")
    names = [name or f"column {number}" for number, name in enumerate(names, start=1)]
    if doubled := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"{source} has several columns named {', '.join(map(repr, doubled))}: rename all but one")
    return names


def _with_decimal(table: RawTable) -> RawTable:
    """The sign is a comma if commas stand in numbers, and points never do; refused if they may part thousands."""
    if next(_levels_like(table, _POINT_NUMBER), None):
        return table
    commas = list(_levels_like(table, _COMMA_NUMBER))
    if not commas:
        return table
    sure = next(((column, level) for column, level in commas if not _THOUSANDS.fullmatch(level)), None)
    column, level = sure or commas[0]
    row = table.rows[column.first_row_of(column.levels.index(level))]
    where = f"{table.source}, column {column.name!r}, row {row}: {level!r}"
    if sure is None:
        raise ValueError(
            f"{where} may be {level.replace(',', '.')} or {level.replace(',', '')}: use {option('decimal', ',')} "
            "if the comma is the decimal sign; if it parts thousands, write the numbers without it"
        )
    note = f"{where} has a decimal comma, and so all numbers are read; if that is wrong, use {option('decimal', '.')}"
    return replace(table, decimal=",", notes=(*table.notes, note))


def _levels_like(table: RawTable, pattern: re.Pattern[str]) -> Iterator[tuple[Column, str]]:
    return ((column, level) for column in table.columns.values() for level in column.levels if pattern.fullmatch(level))


# ------------------------------------------------------------------ Parquet


def _parquet(path: Path, how: Format, rows: int | None) -> Iterator[RawTable]:
    """Yield a Parquet file in tables of `rows` rows; None: in one."""
    try:
        import polars
    except ImportError:
        raise ImportError("Parquet files need polars: pip install 'wherefrom[table]'") from None
    try:
        scanned = polars.scan_parquet(path)
        count, columns = scanned.select(polars.len()).collect().item(), len(scanned.collect_schema())
        size = path.stat().st_size
        if 8 * count * columns > limit_of(size, how.most_unpacked):
            refuse(str(path), limit_of(size, how.most_unpacked), size)
        at_once = count if rows is None else -(-_PARQUET_ROWS // rows) * rows
        for start in range(0, max(count, 1), max(at_once, 1)):
            frame = scanned.slice(start, at_once).collect()
            for first in range(0, max(len(frame), 1), rows or max(count, 1)):
                table = table_of(frame.slice(first, rows), how, str(path))
                yield replace(table, rows=table.rows + start + first + 1)
    except (polars.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
