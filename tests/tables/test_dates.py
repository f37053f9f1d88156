"""Dates become what they tell: trend, season, weekday and time of day, by their span and resolution."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from reloaded import reloaded
from wherefrom.tables.dates import YEAR, Date

NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def days(first, count, step=1.0):
    """Days since 1970."""
    start = (datetime.fromisoformat(first).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    return start / 86_400 + step * np.arange(count)


def first_of_months(count):
    return np.array([np.datetime64("2015-01", "M") + k for k in range(count)]).astype("datetime64[D]").astype(float)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        (days("2020-01-01", 10), "trend"),
        (days("2020-01-01", 25), "trend weekday"),
        (days("2020-01-01", 360), "trend weekday"),
        (days("2020-01-01", 800), "trend season weekday"),
        (days("2020-01-06", 150, step=7), "trend season"),  # always a Monday
        (first_of_months(60), "trend season"),
        (first_of_months(60)[::12], "trend"),  # years
        (days("2020-01-01", 24 * 5, step=1 / 24), "trend time"),
        (days("2020-01-01", 24 * 900, step=1 / 24), "trend season weekday time"),
    ],
)
def test_span_and_resolution_decide(values, parts):
    assert " ".join(Date.of("when", values, "").parts).replace(" of day", "") == parts


def test_features_are_those_of_the_calendar():
    """Against Python's own calendar, hour by hour."""
    values = days("2019-12-20", 40_000, step=0.25)
    rule = Date.of("when", values, "")
    block = dict(zip(rule.features, rule.encoded(values).T, strict=True))
    np.testing.assert_array_equal(block["when"], values)
    for row in range(0, len(values), 777):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=values[row])
        weekday = [block[f"when ({name})"][row] for name in NAMES]
        assert weekday == [float(day == moment.weekday()) for day in range(7)]
        part = (moment - datetime(moment.year, 1, 1, tzinfo=UTC)) / timedelta(days=YEAR)
        assert block["when (season, sine)"][row] == pytest.approx(np.sin(2 * np.pi * part), abs=1e-9)
        assert block["when (season, cosine)"][row] == pytest.approx(np.cos(2 * np.pi * part), abs=1e-9)
        assert block["when (time of day, sine)"][row] == pytest.approx(np.sin(np.pi * moment.hour / 12), abs=1e-6)


def test_a_missing_date_is_marked_and_has_no_season():
    values = days("2018-01-01", 1000)
    values[3] = np.nan
    rule = Date.of("when", values, "iso")
    row = rule.encoded(values)[3]
    assert rule.features[-1] == "when (missing)"
    np.testing.assert_array_equal(row, [rule.median, *[0.0] * 9, 1.0])
    assert reloaded(rule) == rule


def test_dates_before_1970_have_their_weekday():
    rule = Date("when", 0.0, False, has_weekday=True)
    monday, noon = days("1969-12-29", 1), days("1969-12-29", 1) + 0.5
    for value in (monday, noon):
        assert rule.encoded(value)[0].tolist() == [value[0], 1, 0, 0, 0, 0, 0, 0]
