"""A file -> its columns, cell by cell as they are written, and the number of each row as the file has it.

CSV is read by Python's own reader, so that any fault is told by its row; Parquet needs polars. Nothing is interpreted
here but what belongs to the file: its encoding, its separator, its decimal sign, and which cells are missing. A column
of text is kept as its different values and a code for each row, so that a value is interpreted once, not once a row.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Whatever their case. "none" is not among them: it is an answer in many a table, and a class in some.
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "null", "?", "-", ".")
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
PARQUET = (".parquet", ".pq")

_SNIFFED_ROWS = 50
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")

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
            note = f"{source} is not in UTF-8 (row {row}): read as Windows-1252; if letters look wrong, say --encoding"
        encoding = "cp1252"
    else:
        note = ""
    try:
        return content.decode(encoding), (note,) if note else ()
    except (UnicodeDecodeError, UnicodeError) as error:
        row = content.count(b"\n", 0, getattr(error, "start", 0)) + 1
        tried = "neither in UTF-8 nor in Windows-1252" if note else f"not in {encoding}"
        raise ValueError(f"{source}, row {row}, is {tried}: name its encoding, as --encoding utf-16") from None


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
    if all(_NUMBER.fullmatch(name) for name in names):
        raise ValueError(f"{source}, row {row}, should name the columns, but holds numbers: add a header")
    names = [name or f"column {number}" for number, name in enumerate(names, start=1)]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"{source} has several columns named {', '.join(map(repr, doubled))}: rename all but one")
    return names


def _cells(
    records: Iterator[tuple[int, list[str]]], names: Sequence[str], source: str, how: Format, separator: str
) -> tuple[list[_Coder], list[int]]:
    """The columns, and the rows' numbers; lines without anything are passed over."""
    coders = [_Coder(how) for _ in names]
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


class _Coder:
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
            f"{where} may be {level.replace(',', '.')} or {level.replace(',', '')}: say --decimal , if the comma is "
            "the decimal sign; if it parts thousands, write the numbers without it"
        )
    note = f"{where} has a decimal comma, and so all numbers are read; if that is wrong, say --decimal ."
    return replace(table, decimal=",", notes=(*table.notes, note))


def _levels_like(table: RawTable, pattern: re.Pattern[str]) -> Iterator[tuple[Column, str]]:
    return ((column, level) for column in table.columns.values() for level in column.levels if pattern.fullmatch(level))


def as_numbers(levels: Sequence[str], decimal: str) -> Numbers:
    """Return each level as a number, nan where it is none; with a decimal comma, one with a point is none."""
    values = np.full(len(levels), np.nan)
    other = "." if decimal == "," else ","
    for index, level in enumerate(levels):
        if other in level:
            continue
        cell = level.replace(decimal, ".")
        if _NUMBER.fullmatch(cell):
            values[index] = float(cell)
    return values


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


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
    if not len(frame) or not frame.columns:
        raise ValueError(f"{path} has no rows")
    columns = {name: _typed(name, frame[name], str(path), how) for name in frame.columns}
    return RawTable(str(path), columns, np.arange(1, len(frame) + 1))


def _typed(name: str, series: Any, source: str, how: Format) -> Column:
    import polars

    kind: Literal["number", "date"] | None = None
    if series.dtype.is_numeric():
        kind, values = "number", series.cast(polars.Float64)
    elif series.dtype == polars.Boolean:
        series = series.cast(polars.String)
    elif series.dtype in (polars.Date, polars.Datetime):
        kind, values = "date", series.cast(polars.Datetime("us")).dt.timestamp("us").cast(polars.Float64) / 86_400e6
    elif series.dtype in (polars.Categorical, polars.Enum):
        series = series.cast(polars.String)
    elif series.dtype == polars.Null:
        kind, values = "number", series.cast(polars.Float64)
    elif series.dtype != polars.String:
        raise ValueError(f"{source}, column {name!r}, holds {series.dtype}: turn it into numbers or text, or drop it")
    if kind:
        numbers = values.fill_null(float("nan")).to_numpy().astype(np.float64)
        for word in how.missing:
            if _NUMBER.fullmatch(word):
                numbers = np.where(numbers == float(word), np.nan, numbers)
        return Column(name, np.empty(0, dtype=np.int32), (), numbers, kind == "date")
    coder = _Coder(how)
    for cell in series.to_list():
        coder.add(cell)
    return coder.column(name)
