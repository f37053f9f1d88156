"""Predictions -> a CSV or Parquet file, by its ending, or standard output; or rows of JSON.

Answers in CSV have four significant digits unless more are asked for; Parquet and JSON have all. What is infinite or no
number is an empty cell. Columns of the user's own are written as they were read.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.files import atomic
from wherefrom.tables.raw import NUMBER
from wherefrom.tables.reading import PARQUET
from wherefrom.tables.wording import option

DIGITS = 4  # significant ones, of answers
MOST_DIGITS = 17  # tell any two numbers apart
Columns = Mapping[str, Sequence[Any]]
_CSV = ("", ".csv", ".txt")
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


def write(columns: Columns, out: Path | None, digits: int = DIGITS) -> None:
    """Write a table whole, or not at all; None is standard output."""
    if out is not None and out.suffix.lower() in PARQUET:
        frame = _polars().DataFrame({name: list(map(finite, values)) for name, values in columns.items()})
        with atomic.writing(out) as temporary:
            frame.write_parquet(temporary)
        return
    rows = zip(*([_written(value, digits) for value in values] for values in columns.values()), strict=True)
    if out is None or str(out) == "-":
        csv.writer(sys.stdout, lineterminator="\n").writerows([tuple(map(harmless, columns)), *rows])
    else:
        atomic.write_csv(out, map(harmless, columns), rows)


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError("Parquet files need polars: pip install 'wherefrom[table]'") from None
    return polars


def _written(value: Any, digits: int) -> Any:
    if isinstance(value, np.floating):
        return decimal(float(value), digits)
    if isinstance(value, float):  # of the user's own
        return value if math.isfinite(value) else ""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return harmless(value) if isinstance(value, str) else value


def decimal(value: float, digits: int = DIGITS) -> str:
    """Return a number with so many significant digits, and all before the point; nothing if it is not finite.

    >>> decimal(1234567.8), decimal(0.0123456), decimal(2.0), decimal(float("inf"))
    ('1234568', '0.01235', '2', '')
    """
    if not math.isfinite(value):
        return ""
    if not value or not 1e-4 <= abs(value) < 1e15:
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
