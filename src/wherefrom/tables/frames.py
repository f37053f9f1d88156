"""Frames of pandas and polars -> columns as a file would have them; and columns of predictions -> a frame again.

Neither library is needed without a frame of it.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wherefrom.tables.raw import EXACT, Coder, Column, Format, Numbers, RawTable, typed

SOURCE = "the frame"
_DAY = 86_400e6  # microseconds


def table_of(frame: Any, how: Format | None = None, source: str = SOURCE) -> RawTable:
    """Return the columns of a pandas or polars frame, or of a dictionary of arrays; rows are counted from 0."""
    how = how or Format()
    kind, columns = _columns(frame)
    names = [name for name, _ in columns]
    if doubled := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"{source} has several columns named {', '.join(map(repr, doubled))}: rename all but one")
    read = _of_polars if kind == "polars" else _of_values
    table = {name: read(name, values, source, how) for name, values in columns}
    lengths = sorted({len(column) for column in table.values()})
    if lengths in ([], [0]):
        raise ValueError(f"{source} has no rows")
    if len(lengths) > 1:
        raise ValueError(f"{source} has columns of {' and '.join(map(str, lengths))} rows")
    return RawTable(source, table, np.arange(lengths[0]))


def like(frame: Any, columns: Mapping[str, Any]) -> Any:
    """Return columns as a frame of the same library, with the same index; for a dictionary or a file, a dictionary."""
    is_polars = _is_polars(frame)
    if not is_polars and not hasattr(frame, "iloc"):
        return dict(columns)
    values = {name: list(each) if isinstance(each, list | tuple) else each for name, each in columns.items()}
    return type(frame)(values) if is_polars else type(frame)(values, index=frame.index)


def _is_polars(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "polars"


def _columns(frame: Any) -> tuple[str, list[tuple[str, Any]]]:
    """Return the kind of the frame, and its columns by name."""
    if isinstance(frame, Mapping):
        return "arrays", [(str(name), values) for name, values in frame.items()]
    if _is_polars(frame):
        frame = frame.collect() if hasattr(frame, "collect") else frame
        return "polars", [(name, frame[name]) for name in frame.columns]
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):
        return "pandas", [(str(name), frame.iloc[:, k]) for k, name in enumerate(frame.columns)]
    raise TypeError(f"a table is a pandas or polars DataFrame, or a dictionary of columns, not {type(frame).__name__}")


def _of_polars(name: str, series: Any, source: str, how: Format) -> Column:
    import polars

    if series.dtype.is_integer() and not _are_exact(series.min(), series.max()):
        return _text(name, series.cast(polars.String).to_list(), how)
    if series.dtype.is_numeric() or series.dtype == polars.Null:
        return typed(name, series.cast(polars.Float64).fill_null(float("nan")).to_numpy(), how)
    if series.dtype in (polars.Date, polars.Datetime):
        days = series.cast(polars.Datetime("us")).dt.timestamp("us").cast(polars.Float64) / _DAY
        return typed(name, days.fill_null(float("nan")).to_numpy(), how, is_date=True)
    if series.dtype == polars.Object:
        return _of_values(name, series.to_list(), source, how)
    if series.dtype not in (polars.Boolean, polars.Categorical, polars.Enum, polars.String):
        raise ValueError(f"{source}, column {name!r}, holds {series.dtype}: turn it into numbers or text, or drop it")
    return _text(name, series.cast(polars.String).to_list(), how)


def _of_values(name: str, values: Any, source: str, how: Format) -> Column:
    """A column of pandas, numpy, or a list."""
    if not hasattr(values, "dtype"):
        return _of_objects(name, list(values), source, how)
    array, kind = values, getattr(values.dtype, "kind", "O")
    if kind == "M" or "datetime64" in str(array.dtype):
        return typed(name, _days(array), how, is_date=True)
    if kind in "iu" and len(array) and not _are_exact(array.min(), array.max()):
        return _text(name, [None if _is_missing(cell) else _word(cell) for cell in list(array)], how)
    if kind in "iuf" and hasattr(array, "to_numpy"):
        return typed(name, array.to_numpy(dtype=np.float64, na_value=np.nan), how)
    if kind in "iuf":
        return typed(name, np.asarray(array, dtype=np.float64), how)
    return _of_objects(name, list(array), source, how)


def _of_objects(name: str, cells: list[Any], source: str, how: Format) -> Column:
    """A column of any objects: all numbers, all dates, or text."""
    present = [cell for cell in cells if not _is_missing(cell)]
    whole = [cell for cell in present if isinstance(cell, numbers.Integral)]
    is_exact = not whole or _are_exact(min(whole), max(whole))
    if present and is_exact and all(_is_number(cell) for cell in present):
        return typed(name, np.array([np.nan if _is_missing(cell) else float(cell) for cell in cells]), how)
    if present and all(isinstance(cell, datetime.date) for cell in present):
        stamps = [np.datetime64("NaT") if _is_missing(cell) else np.datetime64(_naive(cell), "us") for cell in cells]
        return typed(name, _days(np.array(stamps, dtype="datetime64[us]")), how, is_date=True)
    if wrong := next((cell for cell in present if not isinstance(cell, str | bool | np.bool_ | numbers.Number)), None):
        raise ValueError(
            f"{source}, column {name!r}, holds {type(wrong).__name__}: turn it into numbers or text, or drop it"
        )
    return _text(name, [None if _is_missing(cell) else _word(cell) for cell in cells], how)


def _are_exact(low: Any, high: Any) -> bool:
    """True if whole numbers in this range are themselves as floating-point numbers; long identifiers are not."""
    return _is_missing(low) or (int(low) >= -EXACT and int(high) <= EXACT)


def _text(name: str, cells: Iterable[str | None], how: Format) -> Column:
    coder = Coder(how)
    coder.extend(cells)
    return Column(name, coder.coded())


def _days(stamps: Any) -> Numbers:
    """Days since 1970; of a zone, in universal time."""
    array = (
        stamps.to_numpy(dtype="datetime64[us]") if hasattr(stamps, "to_numpy") else np.asarray(stamps, "datetime64[us]")
    )
    days = array.astype(np.int64) / _DAY
    return np.where(np.isnat(array), np.nan, days)


def _naive(stamp: datetime.date) -> datetime.date:
    if isinstance(stamp, datetime.datetime) and stamp.tzinfo is not None:
        return stamp.astimezone(datetime.UTC).replace(tzinfo=None)
    return stamp


def _is_missing(cell: Any) -> bool:
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, numbers.Real | decimal.Decimal) and not isinstance(cell, bool | np.bool_)


def _word(cell: Any) -> str:
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    return str(cell)
