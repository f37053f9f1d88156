"""Frames as tables: what a column becomes does not depend on who holds it."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from wherefrom.tables.frames import like, table_of
from wherefrom.tables.raw import Format
from wherefrom.tables.reading import read

DAYS = [datetime.date(2024, 1, 1), datetime.date(2024, 2, 29), None]
CELLS = {
    "age": [40.5, None, 61.0],
    "visits": [3, 4, 5],
    "ward": ["A", None, " B "],
    "smokes": [True, False, None],
    "seen": DAYS,
}


def frames() -> dict:
    nullable = pd.DataFrame(
        {
            "age": pd.array([40.5, None, 61.0], dtype="Float64"),
            "visits": pd.array([3, 4, 5], dtype="Int64"),
            "ward": pd.Categorical(["A", None, " B "]),
            "smokes": pd.array([True, False, None], dtype="boolean"),
            "seen": pd.to_datetime(DAYS),
        },
        index=["x", "y", "z"],
    )
    return {
        "polars": pl.DataFrame(CELLS),
        "lazy polars": pl.LazyFrame(CELLS),
        "pandas": pd.DataFrame(CELLS),
        "pandas, nullable": nullable,
        "arrays": {name: np.array(values, dtype=object) for name, values in CELLS.items()},
        "lists": CELLS,
    }


@pytest.mark.parametrize("kind", frames())
def test_every_kind_of_frame_is_the_same_table(kind):
    table = table_of(frames()[kind])
    assert list(table.columns) == list(CELLS)
    np.testing.assert_array_equal(table.columns["age"].numbers, [40.5, np.nan, 61])
    np.testing.assert_array_equal(table.columns["visits"].numbers, [3, 4, 5])
    assert table.columns["ward"].cells() == ["A", "", "B"]
    assert table.columns["smokes"].cells() == ["true", "false", ""]
    assert table.columns["seen"].is_date
    np.testing.assert_array_equal(table.columns["seen"].numbers, [19723, 19782, np.nan])
    assert table.rows.tolist() == [0, 1, 2]


def test_a_frame_is_the_table_of_its_parquet_file(tmp_path):
    pl.DataFrame(CELLS).write_parquet(tmp_path / "cells.parquet")
    file, frame = read(tmp_path / "cells.parquet"), table_of(CELLS)
    for name, column in frame.columns.items():
        assert file.columns[name].cells() == column.cells()
    assert file.rows.tolist() == [1, 2, 3]


def test_times_of_a_zone_are_universal():
    there = pd.Series(pd.to_datetime(["2024-01-01 00:30"])).dt.tz_localize("Europe/Zurich")
    assert table_of(pd.DataFrame({"when": there})).columns["when"].numbers[0] == pytest.approx(19723 - 0.5 / 24)


def test_words_for_missing():
    table = table_of({"x": [1.0, -9.0], "w": ["?", "gone"]}, Format(missing=("-9", "gone")))
    np.testing.assert_array_equal(table.columns["x"].numbers, [1, np.nan])
    assert table.columns["w"].cells() == ["", ""]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({}, "has no rows"),
        ({"x": []}, "has no rows"),
        ({"x": [1, 2], "y": [1]}, "columns of 1 and 2 rows"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "several columns named 'x'"),
        ({"x": [[1], [2, 3]]}, "holds list: turn it into numbers or text"),
        (pl.DataFrame({"x": [[1], [2]]}), "holds List"),
    ],
)
def test_what_is_no_table(frame, words):
    with pytest.raises(ValueError, match=words):
        table_of(frame)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="pandas or polars DataFrame, or a dictionary of columns, not ndarray"):
        table_of(np.zeros((3, 2)))


def test_answers_come_back_in_kind():
    answers = {"mean": np.array([1.0, 2.0, 3.0]), "why": ["", "far", ""]}
    pandas = like(frames()["pandas, nullable"], answers)
    assert isinstance(pandas, pd.DataFrame)
    assert pandas.index.tolist() == ["x", "y", "z"]
    assert pandas["why"].tolist() == answers["why"]
    assert like(frames()["polars"], answers)["mean"].to_list() == [1, 2, 3]
    assert like(CELLS, answers)["why"] == answers["why"]
