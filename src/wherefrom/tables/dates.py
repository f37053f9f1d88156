"""Dates -> numbers that carry what a date tells: trend, season, day of the week, time of day.

| part | feature | where |
|---|---|---|
| trend | days since 1970 | always |
| season | sine and cosine of the day of the year | the dates span more than a year, and fall into several months |
| weekday | 0 or 1 for each of seven | dates of single days, over three weeks or more |
| time of day | sine and cosine | the dates have times |

The training dates decide, never the target. The trend ends with the training dates. A missing date takes the median
trend, and 0 in all other features, until it is drawn (see `gaps`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wherefrom.files.codec import stored
from wherefrom.tables.raw import Numbers

YEAR = 365.2425
_FEWEST_DAYS = 21  # that dates must span to have weekdays
_FEWEST_DAYS_OF_MONTH = 10  # with fewer, dates stand for months or quarters, and their weekdays are chance
_FEWEST_MONTHS, _FEWEST_WEEKDAYS, _FEWEST_TIMES = 3, 3, 3  # different ones, so that there is something to learn
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_THURSDAY = 3  # the first of January 1970


@stored("Date")
@dataclass(frozen=True)
class Date:
    """A column of dates: which parts of them are features."""

    kind: ClassVar[str] = "date"
    name: str
    median: float  # of the training rows, in days since 1970
    marks_missing: bool
    has_season: bool = False
    has_weekday: bool = False
    has_time: bool = False
    date_format: str = ""
    low: float = -math.inf  # ends of the range in the training rows, beyond which the trend is not known
    high: float = math.inf

    @classmethod
    def of(cls, name: str, days: Numbers, date_format: str) -> Date:
        """Choose the parts by the training dates; nan is missing, and one at least is not."""
        there = days[~np.isnan(days)]
        span = float(there.max() - there.min())
        month, day_of_month = _calendar(there)
        is_daily = len(np.unique(day_of_month)) >= _FEWEST_DAYS_OF_MONTH
        return cls(
            name,
            float(np.median(there)),
            len(there) < len(days),
            has_season=span > YEAR and len(np.unique(month)) >= _FEWEST_MONTHS,
            has_weekday=span >= _FEWEST_DAYS and is_daily and len(np.unique(_weekday(there))) >= _FEWEST_WEEKDAYS,
            has_time=len(np.unique(np.round(there % 1, 6))) >= _FEWEST_TIMES,
            date_format=date_format,
            low=float(there.min()),
            high=float(there.max()),
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that are features."""
        has = {"season": self.has_season, "weekday": self.has_weekday, "time of day": self.has_time}
        return ("trend", *(part for part, is_there in has.items() if is_there))

    @property
    def features(self) -> tuple[str, ...]:
        names = [self.name]
        for part, is_there in (("season", self.has_season), ("time of day", self.has_time)):
            names += [f"{self.name} ({part}, {wave})" for wave in ("sine", "cosine") if is_there]
        names += [f"{self.name} ({day})" for day in _WEEKDAYS if self.has_weekday]
        return (*names, *([f"{self.name} (missing)"] if self.marks_missing else []))

    @property
    def described(self) -> str:
        """The name and the parts.

        >>> Date("admitted", 0.0, False, has_season=True).described
        'admitted (trend, season)'
        """
        return f"{self.name} ({', '.join(self.parts)})"

    def encoded(self, days: Numbers) -> Numbers:
        """Return the features of each date.  # (rows,) -> (rows, features)"""
        missing = np.isnan(days)
        days = np.where(missing, self.median, days)
        features = [np.clip(days, self.low, self.high)]
        if self.has_season:
            features += _waves(_day_of_year(days) / YEAR)
        if self.has_time:
            features += _waves(days % 1)
        if self.has_weekday:
            features += [(_weekday(days) == day).astype(np.float64) for day in range(len(_WEEKDAYS))]
        block = np.stack(features, axis=1)
        block[missing, 1:] = 0.0
        return np.column_stack([block, missing]) if self.marks_missing else block


def _waves(turns: Numbers) -> list[Numbers]:
    return [np.sin(2 * math.pi * turns), np.cos(2 * math.pi * turns)]


def _weekday(days: Numbers) -> Numbers:
    """Day of the week, 0 for Monday."""
    return np.asarray((np.floor(days) + _THURSDAY) % 7)


def _as_dates(days: Numbers) -> np.ndarray:
    return np.floor(days).astype(np.int64).astype("datetime64[D]")


def _day_of_year(days: Numbers) -> Numbers:
    """Days since the first of January, with the part of the day."""
    return days - _as_dates(days).astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)


def _calendar(days: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Month of the year and day of the month, from 0."""
    dates = _as_dates(days)
    months = dates.astype("datetime64[M]")
    return months.astype(np.int64) % 12, (dates - months.astype("datetime64[D]")).astype(np.int64)
