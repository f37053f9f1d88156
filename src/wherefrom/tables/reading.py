"""A file -> its columns, cell by cell as they are written, and the number of each row as the file has it.

CSV is read by Python's own reader, so that any fault is told by its row; Parquet needs polars. Nothing is interpreted
here but what belongs to the file: its encoding, its separator, its decimal sign, and which cells are missing.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from wherefrom.tables.frames import table_of
from wherefrom.tables.raw import NUMBER, SEPARATORS, Coder, Column, Format, RawTable
from wherefrom.tables.wording import option

PARQUET = (".parquet", ".pq")

_SNIFFED_ROWS = 50
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


def read(path: str | Path, how: Format | None = None) -> RawTable:
    """A CSV file (also .csv.gz, or - for standard input) or a Parquet file."""
    how, source = how or Format(), "standard input" if str(path) == "-" else str(path)
    path = Path(path)
    if source != "standard input":
        if path.is_dir():
            raise IsADirectoryError(f"{source} is a folder: name a CSV or Parquet file")
        if not path.exists():
            raise FileNotFoundError(f"there is no file {source}")
    if path.suffix.lower() in PARQUET:
        return _read_parquet(path, how)
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise ValueError(f"{source} is a spreadsheet: save it as CSV first")
    content = sys.stdin.buffer.read() if source == "standard input" else path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if content[:4] == b"PAR1":
        raise ValueError(f"{source} is a Parquet file: give it the ending .parquet")
    text, encoding_note = _decoded(content, how.encoding, source)
    return _read_csv(text, source, how, encoding_note)


# ------------------------------------------------------------------ CSV


def _decoded(content: bytes, encoding: str | None, source: str) -> tuple[str, tuple[str, ...]]:
    """UTF-8 unless a mark at the beginning, or the file's owner, says otherwise; else Windows' own, and told."""
    if encoding is None:
        encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        try:
            return content.decode(encoding), ()
        except UnicodeDecodeError as error:
            row = content.count(b"\n", 0, error.start) + 1
            note = f"{source} is not in UTF-8 (row {row}): read as Windows-1252; if letters look wrong, "
            note += f"name it: {option('encoding')}"
        encoding = "cp1252"
    else:
        note = ""
    try:
        return content.decode(encoding), (note,) if note else ()
    except (UnicodeDecodeError, UnicodeError) as error:
        row = content.count(b"\n", 0, getattr(error, "start", 0)) + 1
        tried = "neither in UTF-8 nor in Windows-1252" if note else f"not in {encoding}"
        raise ValueError(
            f"{source}, row {row}, is {tried}: name its encoding, as {option('encoding', 'utf-16')}"
        ) from None


def _records(text: str, separator: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)


def _separator(text: str) -> str:
    """The one that splits the first rows into the same number of cells, the more the better."""
    head = "\n".join(text[:200_000].splitlines()[: _SNIFFED_ROWS + 1])

    def score(separator: str) -> tuple[float, int]:
        try:
            widths = [len(record) for record in _records(head, separator) if record]
        except csv.Error:
            return 0.0, 0
        if not widths or widths[0] < 2:
            return 0.0, 0
        return widths.count(widths[0]) / len(widths), widths[0]

    best = max(SEPARATORS.values(), key=score)
    return best if score(best) > (0.0, 0) else ","


def _read_csv(text: str, source: str, how: Format, notes: tuple[str, ...]) -> RawTable:
    if not text.strip():
        raise ValueError(f"{source} is empty: it needs a header with the names of the columns, and rows")
    separator = how.separator or _separator(text)
    records = enumerate(_records(text, separator), start=1)
    try:
        header_row, header = next((number, record) for number, record in records if any(map(str.strip, record)))
        names = _names(header, source, header_row)
        coders, rows = _cells(records, names, source, how, separator)
    except csv.Error as error:
        raise ValueError(f"{source} cannot be read as CSV: {error}; is a quote left open?") from None
    if not rows:
        raise ValueError(f"{source} has a header, but no rows")
    columns = {name: coder.column(name) for name, coder in zip(names, coders, strict=True)}
    table = RawTable(source, columns, np.array(rows), how.decimal or ".", notes)
    return table if how.decimal or separator == "," else _with_decimal(table)


def _names(header: Sequence[str], source: str, row: int) -> list[str]:
    names = [name.strip() for name in header]
    if all(NUMBER.fullmatch(name) for name in names):
        raise ValueError(f"{source}, row {row}, should name the columns, but holds numbers: add a header")
    names = [name or f"column {number}" for number, name in enumerate(names, start=1)]
    if doubled := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"{source} has several columns named {', '.join(map(repr, doubled))}: rename all but one")
    return names


def _cells(
    records: Iterator[tuple[int, list[str]]], names: Sequence[str], source: str, how: Format, separator: str
) -> tuple[list[Coder], list[int]]:
    """The columns, and the rows' numbers; lines without anything are passed over."""
    coders = [Coder(how) for _ in names]
    rows: list[int] = []
    width = len(names)
    for number, record in records:
        if len(record) != width:
            if not any(map(str.strip, record)):
                continue
            raise ValueError(
                f"{source}, row {number}, has {len(record)} value{'s' * (len(record) != 1)}, but the header names "
                f"{width} columns: is a quote missing, or the separator not {separator!r}?"
            )
        rows.append(number)
        for coder, cell in zip(coders, record, strict=True):
            coder.add(cell)
    return coders, rows


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


def _read_parquet(path: Path, how: Format) -> RawTable:
    try:
        import polars
    except ImportError:
        raise ImportError("Parquet files need polars: pip install 'wherefrom[table]'") from None
    try:
        frame = polars.read_parquet(path)
    except (polars.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    table = table_of(frame, how, str(path))
    return replace(table, rows=table.rows + 1)
