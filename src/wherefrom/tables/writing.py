"""Predictions -> a CSV or Parquet file, by its ending, or standard output; or rows of JSON.

Answers in CSV have four significant digits unless more are asked for; Parquet and JSON have all. What is infinite or no
number is an empty cell. Columns of the user's own are written as they were read.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.files import atomic
from wherefrom.tables.raw import NUMBER
from wherefrom.tables.reading import PARQUET
from wherefrom.tables.wording import option

DIGITS = 4  # significant ones, of answers
MOST_DIGITS = 17  # tell any two numbers apart
Columns = Mapping[str, Sequence[Any]]
_CSV = ("", ".csv", ".txt")
_MOST_WHOLE = 1e15  # beyond, numbers have an exponent
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a cell begins that a spreadsheet runs


def check_writable(out: Path | None) -> None:
    """Raise, before anything is computed, if a table cannot be written there."""
    if out is None or str(out) == "-":
        return
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder: give --out a file, as {out / 'predictions.csv'}")
    if not out.parent.exists():
        raise FileNotFoundError(f"there is no folder {out.parent} to write {out.name} into")
    if out.suffix.lower() in PARQUET:
        _polars()
    elif out.suffix.lower() not in _CSV:
        raise ValueError(
            f"--out {out}: its ending says neither CSV nor Parquet; call it {out.with_suffix('.csv').name}"
        )


@contextmanager
def writing(out: Path | None, digits: int = DIGITS) -> Iterator[Callable[[Columns], None]]:
    """Yield a function that adds rows to a table, which is written whole, or not at all; None is standard output.

    Rows go to a temporary file as they come. A column that earlier rows do not have is 0 there: a share of the doubt
    that nothing caused.
    """
    if out is not None and out.suffix.lower() in PARQUET:
        with atomic.writing(out) as temporary:
            parts = temporary.with_name(f"{temporary.name}.parts")
            parts.mkdir()
            try:
                yield _ParquetParts(parts).add
                _join_parquet(parts, temporary)
            finally:
                shutil.rmtree(parts, ignore_errors=True)
        return
    if out is not None and str(out) != "-":
        with atomic.writing(out) as temporary:
            yield _CsvRows(temporary, digits).add
        return
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "rows.csv"
        yield _CsvRows(temporary, digits).add
        with temporary.open(newline="", encoding="utf-8") as file:
            shutil.copyfileobj(file, sys.stdout)


@dataclass(eq=False)
class _CsvRows:
    """A CSV file that grows by chunks of rows."""

    path: Path
    digits: int
    header: list[str] = field(default_factory=list)

    def add(self, columns: Columns) -> None:
        if not set(columns) <= set(self.header):
            self._widen(_merged(self.header, list(columns)))
        rows = len(next(iter(columns.values())))
        cells = [texts(columns[name], self.digits) if name in columns else ["0"] * rows for name in self.header]
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(zip(*cells, strict=True))

    def _widen(self, header: list[str]) -> None:
        """Write the header and, with 0 in new columns, the rows that are there."""
        wider = self.path.with_name(f"{self.path.name}.wider")
        try:
            with wider.open("w", newline="", encoding="utf-8") as file:
                table = csv.writer(file, lineterminator="\n")
                table.writerow(map(harmless, header))
                if self.header:
                    index_of = {name: index for index, name in enumerate(self.header)}
                    source = [index_of.get(name) for name in header]
                    with self.path.open(newline="", encoding="utf-8") as earlier:
                        rows = csv.reader(earlier)
                        next(rows)
                        table.writerows(["0" if index is None else row[index] for index in source] for row in rows)
            os.replace(wider, self.path)
        finally:
            wider.unlink(missing_ok=True)
        self.header = header


def _merged(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the names of both, in the order of the longer.

    >>> _merged(["id", "mean", "why"], ["id", "mean", "share_gaps", "why"])
    ['id', 'mean', 'share_gaps', 'why']
    """
    longer, shorter = (others, names) if len(others) >= len(names) else (names, others)
    return [*longer, *(name for name in shorter if name not in longer)]


@dataclass(eq=False)
class _ParquetParts:
    """Files of Parquet in a folder, one for each chunk of rows."""

    folder: Path
    count: int = 0

    def add(self, columns: Columns) -> None:
        polars = _polars()
        polars.DataFrame({name: _series(each) for name, each in columns.items()}).write_parquet(
            self.folder / f"{self.count:09}.parquet"
        )
        self.count += 1


def _series(values: Sequence[Any]) -> Any:
    polars = _polars()
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return polars.Series(np.where(np.isfinite(values), values, np.nan)).fill_nan(None)
    return polars.Series(list(map(finite, values)), strict=False)


def _join_parquet(folder: Path, out: Path) -> None:
    """Write the rows of all parts into one file, some at a time."""
    polars = _polars()
    parts = [polars.scan_parquet(path) for path in sorted(folder.iterdir())]
    schemas = [part.collect_schema() for part in parts]
    names: list[str] = []
    for schema in schemas:
        names = _merged(names, list(schema))
    types = {
        name: polars.concat(
            [polars.Series(name, [], dtype=each[name]).to_frame() for each in schemas if name in each],
            how="vertical_relaxed",
        ).dtypes[0]
        for name in names
    }
    same = [
        part.select(
            polars.col(name).cast(types[name]) if name in schema else polars.lit(0, types[name]).alias(name)
            for name in names
        )
        for part, schema in zip(parts, schemas, strict=True)
    ]
    polars.concat(same).sink_parquet(out)


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError("Parquet files need polars: pip install 'wherefrom[table]'") from None
    return polars


def texts(values: Sequence[Any], digits: int) -> list[str]:
    """Return the cells of a column as CSV has them: answers with some significant digits.

    >>> texts(np.array([0.0123456, np.inf, 20512.7]), 4), texts(np.array([True]), 4), texts(["=1+1", None, 2.5], 4)
    (['0.01235', '', '20513'], ['true'], ["'=1+1", '', '2.5'])
    """
    if not isinstance(values, np.ndarray):
        if all(type(value) is str for value in values):
            return [harmless(value) if value[:1] in _FORMULA else value for value in values]
        return [_written(value, digits) for value in values]
    if values.dtype == bool:
        return np.where(values, "true", "false").tolist()
    if values.dtype.kind == "f":
        return decimals(values, digits)
    return [_written(value, digits) for value in values.tolist()]


def _written(value: Any, digits: int) -> str:
    if isinstance(value, np.floating):
        return decimal(float(value), digits)
    if isinstance(value, float):  # of the user's own
        return repr(value) if math.isfinite(value) else ""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return "" if value is None else harmless(str(value))


def decimals(values: NDArray[np.floating[Any]], digits: int) -> list[str]:
    """Return `decimal` of each number, much faster: all of them are formatted at once.

    >>> decimals(np.array([1234567.8, 0.0123456, 2.0, np.inf]), 4)
    ['1234568', '0.01235', '2', '']
    """
    size = np.abs(values)
    is_long = (size >= 10.0**digits - 0.5) & (size < _MOST_WHOLE)  # all digits before the point are written
    is_finite = np.isfinite(values)
    cells = ((f"%.{digits}g\n" * len(values)) % tuple(np.where(is_finite, values, 0.0).tolist())).split("\n")[:-1]
    for index in np.flatnonzero(is_long | ~is_finite).tolist():
        cells[index] = f"{values[index]:.0f}" if is_finite[index] else ""
    return cells


def decimal(value: float, digits: int = DIGITS) -> str:
    """Return a number with some significant digits, and all before the point; nothing if it is not finite.

    >>> decimal(1234567.8), decimal(0.0123456), decimal(2.0), decimal(float("inf"))
    ('1234568', '0.01235', '2', '')
    """
    if not math.isfinite(value):
        return ""
    if not value or not 1e-4 <= abs(value) < _MOST_WHOLE:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def check_digits(digits: int) -> int:
    """Return the number of digits, if it is one."""
    if not 1 <= digits <= MOST_DIGITS:
        raise ValueError(f"{option('digits')} is a number of significant digits, from 1 to {MOST_DIGITS}, not {digits}")
    return digits


def harmless(text: str) -> str:
    """Return text that no spreadsheet takes for a formula; numbers are left as they are.

    >>> harmless("=SUM(A1:A9)"), harmless("-3.5"), harmless("ward A")
    ("'=SUM(A1:A9)", '-3.5', 'ward A')
    """
    return f"'{text}" if text.startswith(_FORMULA) and not NUMBER.fullmatch(text) else text


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def as_json(columns: Columns) -> list[dict[str, Any]]:
    """Return a dictionary for each row."""
    return [dict(zip(columns, map(finite, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def finite(value: Any) -> Any:
    """Return a value for readers of JSON, with null for what is infinite or no number."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    value = _plain(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
