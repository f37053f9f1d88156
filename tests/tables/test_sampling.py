"""Rows to learn from: the same of a frame and of a file, each as likely as any other, and nothing lost in reading."""

import numpy as np
import pytest

import wherefrom as wf
from wherefrom.tables import sampling
from wherefrom.tables.frames import table_of
from wherefrom.tables.raw import Format
from wherefrom.tables.reading import read
from wherefrom.tables.sampling import read_sampled, sampled

TEXT = "a,code,b,id,t,gap\n" + "".join(
    f"{k / 4},{k:03d},{k},{2**60 + k},w{k % 5},{'' if k % 3 else k}\n" for k in range(200)
)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 7)
    (tmp_path / "data.csv").write_text(TEXT)
    return tmp_path / "data.csv"


def cells(table):
    return {name: column.as_text().cells() for name, column in table.columns.items()}


@pytest.mark.parametrize("most", [20, 50, 199, 200, 1000])
def test_a_file_in_chunks_gives_the_rows_of_the_table(path, most):
    whole = sampled(read(path), most, 3)
    quick = read_sampled(path, None, most, 3)
    assert len(quick) == min(most, 200)
    np.testing.assert_array_equal(quick.rows, whole.rows)
    assert quick.notes == whole.notes
    kinds = {name: column.numbers is not None for name, column in quick.columns.items()}
    assert kinds == {"a": True, "code": False, "b": True, "id": False, "t": False, "gap": True}
    expected = cells(whole)
    for name, every in cells(quick).items():
        if kinds[name]:
            assert [float(cell or "nan") for cell in every] == pytest.approx(
                [float(cell or "nan") for cell in expected[name]], nan_ok=True, abs=0
            )
        else:
            assert every == expected[name]


def test_columns_that_are_named_stay_text(path):
    table = read_sampled(path, None, 50, 0, {"a", "b"})
    assert table.columns["a"].numbers is None
    assert cells(table) == cells(sampled(read(path), 50, 0))


def test_rows_that_are_left_out_are_told(path):
    assert read_sampled(path, None, 200, 0).notes == ()
    note = "learns from 50 rows, drawn at random of 200: most_rows=200 takes all"
    assert read_sampled(path, None, 50, 0).notes == (note,)


def test_a_decimal_comma_depends_on_all_rows(tmp_path):
    rows = [f"{k},5;{k}" for k in range(40)]
    (tmp_path / "data.csv").write_text("a;b\n" + "\n".join(rows))
    table = read_sampled(tmp_path / "data.csv", None, 25, 0)
    assert (len(table), table.decimal) == (25, ",")
    asked = read_sampled(tmp_path / "data.csv", Format(decimal=","), 25, 0)
    np.testing.assert_array_equal(asked.rows, table.rows)
    assert asked.columns["a"].numbers.tolist() == [row - 1.5 for row in asked.rows.tolist()]


def test_parquet_gives_the_same_rows(path, tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": np.arange(200) / 4, "t": ["x", "y"] * 100}).write_parquet(tmp_path / "data.parquet")
    table = read_sampled(tmp_path / "data.parquet", None, 30, 1)
    np.testing.assert_array_equal(table.rows, sampled(read(tmp_path / "data.parquet"), 30, 1).rows)
    np.testing.assert_array_equal(table.columns["a"].numbers, (table.rows - 1) / 4)


def test_cells_that_hold_any_character_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 2)
    path = tmp_path / "data.csv"
    path.write_text('a,b\n"x\x1fy",1\n"two\nlines",2\n,3\n"",4\nlast,x\n')
    table = read_sampled(path, None, 100, 0)
    assert cells(table) == cells(read(path))
    assert table.columns["a"].levels == ("x\x1fy", "two\nlines", "last")
    assert table.columns["b"].numbers is None  # of its last cell


def test_every_row_is_as_likely_as_another():
    chosen = np.zeros(200)
    table = table_of({"a": np.arange(200)})
    for seed in range(300):
        chosen[sampled(table, 40, seed).rows] += 1
    deviation = np.sqrt(300 * 0.2 * 0.8)
    assert np.abs(chosen - 60).max() < 4.5 * deviation
    assert 0.8 < chosen.var() / deviation**2 < 1.25


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_and_a_frame_are_learnt_alike(tmp_path):
    random = np.random.default_rng(0)
    a, luck = random.normal(size=(2, 300)).round(3)
    table = {"a": a, "ward": random.choice(["A", "B"], 300), "y": (a + luck).round(3)}
    lines = [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["a,ward,y", *lines]))
    settings = {"draws": 2, "epochs": 4, "samples": 8, "noise": "fit", "most_rows": 200}
    frame, file = wf.fit(table, "y", **settings), wf.fit(tmp_path / "data.csv", "y", **settings)
    assert any("learns from 200 rows, drawn at random of 300" in note for note in frame.notes)
    new = {"a": [0.5, -1.0], "ward": ["A", "B"]}
    np.testing.assert_array_equal(frame.predict(new)["mean"], file.predict(new)["mean"])
    assert frame.about["rows"]["all"] == 200
    with pytest.raises(ValueError, match=r"most_rows= is at least 20, not 3"):
        wf.fit(table, "y", most_rows=3)
