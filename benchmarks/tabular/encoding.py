"""Frames -> matrices, as a careful user prepares them for models that take numbers only.

    numbers    median for gaps, a column that marks gaps, standardised
    text       a column of 0 and 1 for each level of 1% of the rows and 5 rows (30 levels at most), and one for others
    dates      days, month, weekday and hour, as numbers

`as_levels` keeps text as text, for models that take categories.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_FEWEST_ROWS, _LEAST_SHARE, _MOST_LEVELS = 5, 0.01, 30


def dates_as_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace every column of dates by its day, month, weekday and hour."""
    columns = {}
    for name, values in frame.items():
        if not pd.api.types.is_datetime64_any_dtype(values):
            columns[name] = values
            continue
        days = (values - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        columns |= {
            f"{name} day": days,
            f"{name} month": values.dt.month.astype(float),
            f"{name} weekday": values.dt.weekday.astype(float),
            f"{name} hour": values.dt.hour.astype(float),
        }
    return pd.DataFrame(columns)


def text_columns(frame: pd.DataFrame) -> list[str]:
    """The names of the columns that are neither numbers nor dates."""
    return [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]


def as_levels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with dates as numbers, and gaps in text as a level."""
    frame = dates_as_numbers(frame)
    return frame.assign(**{name: frame[name].fillna("missing").astype(str) for name in text_columns(frame)})


@dataclass(frozen=True, eq=False)
class Matrix:
    """How the columns of a training frame become numbers."""

    fill: dict[str, float]  # the median of each column of numbers
    gaps: tuple[str, ...]  # columns with gaps in training
    levels: dict[str, tuple[str, ...]]
    mean: Numbers
    std: Numbers

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Matrix:
        """Learn the encoding from the training frame."""
        frame = dates_as_numbers(frame)
        text = text_columns(frame)
        numbers = [name for name in frame if name not in text]
        fill = {name: float(median) if np.isfinite(median := frame[name].median()) else 0.0 for name in numbers}
        gaps = tuple(name for name in numbers if frame[name].isna().any())
        levels = {}
        for name in text:
            counts = frame[name].value_counts()
            common = counts[counts >= max(_FEWEST_ROWS, _LEAST_SHARE * len(frame))]
            levels[name] = tuple(common.index[:_MOST_LEVELS])
        raw = cls(fill, gaps, levels, np.zeros(1), np.ones(1))._columns(frame)
        std = raw.std(0)
        return cls(fill, gaps, levels, raw.mean(0), np.where(std > 0, std, 1.0))

    def __call__(self, frame: pd.DataFrame) -> Numbers:
        return (self._columns(dates_as_numbers(frame)) - self.mean) / self.std

    def _columns(self, frame: pd.DataFrame) -> Numbers:
        columns = [frame[name].astype(float).fillna(value) for name, value in self.fill.items()]
        columns += [frame[name].isna() for name in self.gaps]
        for name, levels in self.levels.items():
            columns += [frame[name] == level for level in levels]
            columns.append(~frame[name].isin(levels))
        return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
