"""Tables in chunks: the same rows, answers and notes as at once, whatever the size of a chunk."""

import csv
import gzip
import io
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import wherefrom as wf
from made_table import made, without, write
from wherefrom.cli import app
from wherefrom.tables import streaming
from wherefrom.tables.columns import rows_of
from wherefrom.tables.looking import How
from wherefrom.tables.raw import Format, Written, as_limits, as_numbers
from wherefrom.tables.reading import chunks, read
from wherefrom.tables.streaming import Sample, Spaced, Top, Totals, looked_at
from wherefrom.tables.telling import RowNote, together
from wherefrom.tables.writing import decimal, decimals, writing

# ------------------------------------------------------------------ reading

ODD = {
    "plain": "a,b\n1,2\n3,4\n5,6\n",
    "quotes": 'a,b\n"1","x, y"\n2,"two\nlines"\n3,"say ""no"""\n',
    "blank lines": "\n\na,b\n1,x\n\n2,y\n   \n3,z\n\n",
    "spaces": "a, b\n 1 , x \n2,  y\n3,\t\n",
    "words for missing": "a,b\nNA,1\n?,2\n<NA>,nan\n-,.\n1.5,null\n",
    "missing numbers": "a,b\n1,\n,2\n3,\n4,-999\n",
    "leading zeros": "a,b\n007,1\n012,2\n100,3\n",
    "limits": "a,b\n<0.6,1\n0.8,2\n>= 200,3\n≤5,4\n",
    "odd numbers": "a,b\n1_000,1e5\ninfinity,+.5\n1e999,-1.\n٣,0x10\n",
    "windows": "a,b\r\n1,x\r\n2,y\r\n",
    "old mac": "a,b\r1,x\r2,y\r",
    "one column": "name\nann\n\nbob\n",
    "unicode": "größe,b\n1,é\n2,\u2028x\n3,\xa0y\n",
    "nothing but missing": "a,b\n,\nNA,\n",
}


def cells(table):
    return {name: column.as_text().cells() for name, column in table.columns.items()}


@pytest.mark.parametrize("rows", [1, 2, 1000])
@pytest.mark.parametrize("name", ODD)
def test_chunks_are_the_whole_table(tmp_path, name, rows):
    path = tmp_path / "data.csv"
    path.write_bytes(ODD[name].encode())
    how = Format(missing=("-999",))
    whole, parts = read(path, how), list(chunks(path, how, rows))
    assert all(len(part) == rows for part in parts[:-1]) or "lines" in name or name == "one column"
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), whole.rows)
    for column, every in cells(whole).items():
        assert [cell for part in parts for cell in cells(part)[column]] == every


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("decimal_sign", [".", ","])
def test_plain_numbers_are_those_that_are_read_one_by_one(tmp_path, name, decimal_sign):
    text = ODD[name] if decimal_sign == "." else ODD[name].replace(",", ";").replace(".", ",")
    (tmp_path / "data.csv").write_text(text, encoding="utf-8", newline="")
    separator = "," if decimal_sign == "." else ";"
    for how in (Format(separator), Format(separator, missing=("-999", "NO"))):
        table = next(chunks(tmp_path / "data.csv", how))
        for column in table.columns.values():
            quick = column.plain_numbers(decimal_sign)
            assert isinstance(column.text, Written)
            slow = np.full(len(column), np.nan)
            slow[column.codes >= 0] = as_numbers(column.levels, decimal_sign)[column.codes[column.codes >= 0]]
            if quick is not None:
                np.testing.assert_array_equal(quick, slow)
                assert not np.isnan(slow[column.codes >= 0]).any()  # nothing but numbers is quick
                assert np.isnan(as_limits(column.levels, decimal_sign)[0]).all()


def test_most_columns_of_numbers_are_quick():
    for text in (["1", "2.5", "-3e4"], ["1", "", "2"], ["1", "NA", "nan", "?"]):
        assert Written(text, Format()).plain_numbers(".") is not None
    for text in (["1", "x"], ["1_0"], ["inf"], ["1 "], ["-"], ["1\n2"]):
        assert Written(text, Format()).plain_numbers(".") is None
    assert Written(["1", "-999"], Format(missing=("-999",))).plain_numbers(".") is None


def test_random_cells_are_read_alike_by_both_ways(tmp_path):
    random = np.random.default_rng(0)
    alphabet = list("0123456789+-.eE<>, NAna_\xa0")
    for _ in range(300):
        words = ["".join(random.choice(alphabet, random.integers(0, 6))) for _ in range(5)]
        for sign in ".,":
            quick = Written(words, Format()).plain_numbers(sign)
            coded = Written(words, Format()).coded()
            values = [np.nan if code < 0 else as_numbers([coded.levels[code]], sign)[0] for code in coded.codes]
            if quick is not None:
                np.testing.assert_array_equal(quick, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n" + "1,2\n" * 7 + "3\n", "row 9, has 1 value, but the header names 2 columns"),
        ("a,b\n" + "1,2\n" * 7 + "1,2,3\n", "row 9, has 3 values"),
        ("a,b\n", "has a header, but no rows"),
        ("a,b\n\n \n", "has a header, but no rows"),
        ("", "is empty"),
        ("a,b\n1,2\n3,4\n" + '"' + "x" * 200_000, "is a quote left open"),
    ],
)
def test_faults_are_told_by_their_row_in_any_chunk(tmp_path, text, message):
    path = tmp_path / "data.csv"
    path.write_text(text)
    for rows in (2, 5, 100):
        with pytest.raises(ValueError, match=message):
            list(chunks(path, None, rows))


def test_the_encoding_is_known_before_the_first_row(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(("a,b\n" + "1,x\n" * 400_000).encode() + "2,café\n".encode("cp1252"))
    first = next(chunks(path, None, 10))
    assert "(row 400002)" in first.notes[0]  # beyond the first block of bytes
    for encoding in ("utf-16", "utf-16-le", "utf-8-sig", "cp1252"):
        path.write_bytes("größe,b\n1,é\n".encode(encoding))
        asked = Format(encoding="utf-16" if encoding == "utf-16-le" else encoding)
        assert cells(next(chunks(path, asked))) == {"größe": ["1"], "b": ["é"]}


def test_standard_input_is_read_in_chunks(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x\n2,y\n")))
    assert [table.rows.tolist() for table in chunks("-", None, 1)] == [[2], [3]]


def test_parquet_is_read_in_chunks(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.setattr("wherefrom.tables.reading._PARQUET_ROWS", 6)
    path = tmp_path / "data.parquet"
    frame = polars.DataFrame({"n": list(range(20)), "x": [k / 2 for k in range(20)], "t": list("abcde" * 4)})
    frame.write_parquet(path, row_group_size=7)
    whole, parts = read(path), list(chunks(path, None, 3))
    assert [len(part) for part in parts] == [3] * 6 + [2]
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), whole.rows)
    for name, every in cells(whole).items():
        assert [cell for part in parts for cell in cells(part)[name]] == every


def test_long_whole_numbers_stay_what_they_are(tmp_path):
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    long = [2**53 + 1, 2**62 - 1]
    polars.DataFrame({"id": long}).write_parquet(tmp_path / "data.parquet")
    from wherefrom.tables.frames import table_of

    tables = [read(tmp_path / "data.parquet"), table_of(pandas.DataFrame({"id": long})), table_of({"id": long})]
    tables.append(table_of({"id": np.array(long)}))
    for table in tables:
        assert table.columns["id"].plain() == [str(number) for number in long]


# ------------------------------------------------------------------ compressed files


def test_compressed_files_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("wherefrom.tables.unpacking._FREE", 100_000)
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 100_000))
    assert path.stat().st_size < 2000
    for reading in (lambda how: read(path, how), lambda how: list(chunks(path, how))):
        with pytest.raises(ValueError, match=r"unpacks to more than .* KB, from .*: if you trust it, unpack it first"):
            reading(Format())
        assert reading(Format(most_unpacked=10**6))
    result = CliRunner().invoke(app, ["fit", str(path), "--target", "a", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "--most-unpacked 50GB" in result.stderr
    path.write_bytes(gzip.compress(np.random.default_rng(0).bytes(300_000).hex().encode()))
    with pytest.raises(ValueError, match=r"cannot be read as CSV|no rows"):  # large, but not for its size
        read(path)


@pytest.mark.parametrize("cut", [5, 30])
def test_a_broken_compressed_file_is_told(tmp_path, cut):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + np.random.default_rng(0).bytes(500).hex().encode())[:-cut])
    with pytest.raises(ValueError, match=r"data.csv.gz cannot be unpacked .*: copy it again"):
        read(path)


def test_parquet_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.setattr("wherefrom.tables.unpacking._FREE", 100_000)
    path = tmp_path / "data.parquet"
    polars.DataFrame({"a": np.zeros(1_000_000)}).write_parquet(path)
    with pytest.raises(ValueError, match="unpacks to more than"):
        next(chunks(path))
    assert len(next(chunks(path, Format(most_unpacked=10**8)))) == 20_000


# ------------------------------------------------------------------ writing


@pytest.mark.parametrize("digits", [1, 4, 9, 17])
def test_numbers_are_written_at_once_as_one_by_one(digits):
    random = np.random.default_rng(digits)
    values = 10 ** random.uniform(-12, 18, 5000) * random.choice([-1, 1], 5000)
    edges = [
        0.0,
        -0.0,
        9999.5,
        9999.49,
        999.95,
        1e15,
        1e-4,
        99995.0,
        np.inf,
        -np.inf,
        np.nan,
        *10.0 ** np.arange(-9, 18),
    ]
    values = np.concatenate([values, edges, random.integers(0, 10**6, 1000)])
    assert decimals(values, digits) == [decimal(value, digits) for value in values.tolist()]


def rows_in(path):
    if path.suffix == ".parquet":
        import polars

        return polars.read_parquet(path).to_dict(as_series=False)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return {name: list(each) for name, each in zip(header, zip(*rows, strict=True), strict=True)}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_that_come_later_are_zero_before(tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    with writing(out) as write:
        write({"id": ["a,b", "=1"], "mean": np.array([1.5, np.nan]), "n": [1, None], "why": ["", "x"]})
        write({"id": ["c"], "mean": np.array([2.5]), "share_gaps": np.array([0.25]), "n": [2.5], "why": ["y"]})
        write({"id": ["d"], "mean": np.array([3.5]), "n": [4], "why": [""]})
        assert not out.exists()
    if ending == "csv":
        expected = {"id": ["a,b", "'=1", "c", "d"], "mean": ["1.5", "", "2.5", "3.5"]}
        expected |= {"share_gaps": ["0", "0", "0.25", "0"], "n": ["1", "", "2.5", "4"], "why": ["", "x", "y", ""]}
    else:
        expected = {"id": ["a,b", "=1", "c", "d"], "mean": [1.5, None, 2.5, 3.5]}
        expected |= {"share_gaps": [0.0, 0.0, 0.25, 0.0], "n": [1.0, None, 2.5, 4.0], "why": ["", "x", "y", ""]}
    assert rows_in(out) == expected
    assert list(rows_in(out)) == list(expected)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_error_in_the_middle_leaves_the_old_file(tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    out.write_text("old")

    def broken():
        with writing(out) as write:
            write({"a": [1]})
            write({"a": [2], "b": [3]})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


# ------------------------------------------------------------------ what is said of all rows


def test_a_sample_is_all_rows_until_there_are_too_many():
    few, many = Sample(100), Sample(100)
    for start in range(0, 90, 9):
        few.add({"x": np.arange(start, start + 9)})
    assert few.values["x"].tolist() == list(range(90))
    for start in range(0, 5000, 50):
        many.add({"x": np.arange(start, start + 50), "nll": np.arange(50 if start else 3)})
    assert many.count == 5000
    assert len(many.values["x"]) == 100
    assert list(many.values) == ["x"]  # nll is not there for all
    assert not Sample(3).values


def test_every_row_is_as_likely_to_be_in_a_sample():
    means, deviation = [], 1000 / np.sqrt(12) * np.sqrt(1 / 100)
    for size in (7, 50, 1000):  # the sample does not depend on the chunks
        sample = Sample(100)
        for start in range(0, 1000, size):
            sample.add({"x": np.arange(start, min(1000, start + size))})
        means.append(sample.values["x"].mean())
    assert len(set(means)) == 1
    assert abs(means[0] - 499.5) < 4 * deviation


def test_the_top_is_that_of_all_rows():
    values = np.random.default_rng(0).integers(0, 30, 200).astype(float)
    values[[3, 70]] = np.nan
    top = Top(12)
    for start in range(0, 200, 17):
        some = values[start : start + 17]
        top.add(some, start, np.arange(start, start + len(some)) + 2, {"value": some})
    expected = np.argsort(-np.nan_to_num(values, nan=-1), kind="stable")[:12]
    assert [row["row"] for row in top.rows] == (expected + 2).tolist()
    assert [row["value"] for row in top.rows] == values[expected].tolist()


def test_notes_about_rows_are_added_up():
    notes = together(["once"], [RowNote.of("{rows} of {words}", 1, ["a"], 2), "once"])
    notes = together(notes, [RowNote.of("{rows} of {words}", 2000, ["b", "a", "c"], 2), "twice"])
    assert notes == ["once", "2,001 rows of 'a', 'b', ...", "twice"]
    assert rows_of(1) in RowNote.of("{rows}", 1)


# ------------------------------------------------------------------ predicting


@pytest.fixture(scope="module")
def model():
    table = made(400)
    return wf.fit(table, "y", draws=2, epochs=4, samples=8, held_out=0.3, drop=["customer"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    table = made(150, seed=5)
    for name in ("x6", "age", "income", "colour"):  # the first rows have no gaps, so that share_gaps comes later
        table[name][:60] = ["red" if name == "colour" else "1"] * 60
    table["region"][100] = "R99"
    write(folder / "rows.csv", table)
    write(folder / "none.csv", without(table, "y"))
    return folder


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # notes about the tables


@pytest.mark.slow
@pytest.mark.parametrize("rows", [7, 64])
def test_chunks_are_answered_as_at_once(model, files, rows):
    whole = model.look(files / "rows.csv", How(keep=("region",)))
    columns = whole.columns()
    totals, parts = Totals(), []
    how = How(keep=("region",))
    for looked in looked_at(model, chunks(files / "rows.csv", model.reading(), rows), how):
        parts.append(looked.columns())
        totals.add(looked, parts[-1])
    for name, every in columns.items():
        missing = [0.0] * rows
        joined = [value for part in parts for value in part.get(name, missing[: len(part["why"])])]
        assert joined == list(every), name  # to the last bit
    assert totals.rows == 150
    assert totals.outside == int(whole.outside.sum())
    assert sorted(totals.all_notes()) == sorted(whole.notes)
    assert totals.gaps().keys() == whole.gaps().keys()
    for name, gap in whole.gaps().items():
        assert totals.gaps()[name].rows == gap.rows
        assert totals.gaps()[name].measure_next == gap.measure_next
        assert totals.gaps()[name].expected_fall == pytest.approx(gap.expected_fall, rel=1e-12)
    for name, value in whole.predicted.scores.values.items():
        assert totals.scores()[name] == pytest.approx(value, rel=1e-12)
    for name, part in whole.overall().items():
        assert totals.overall()[name].share == pytest.approx(part.share, rel=1e-9, abs=1e-12)
    most = np.argsort(-whole.predicted.doubt, kind="stable")[:10]
    assert [row["row"] for row in totals.doubts.rows] == whole.table.rows[most].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_writes_a_file_in_chunks(model, files, tmp_path, monkeypatch, ending):
    pytest.importorskip("polars")
    whole = model.predict(files / "rows.csv")
    monkeypatch.setattr("wherefrom.tables.model.CHUNK", 40)
    monkeypatch.setattr(type(model).chunks_of, "__defaults__", (None, 40))
    out = tmp_path / f"out.{ending}"
    predicted = model.predict(files / "rows.csv", out=out, digits=17)
    assert (predicted.path, predicted.rows) == (out, 150)
    assert predicted.scores.rows == 150
    written = rows_in(out)
    assert list(written) == list(whole)
    assert [float(value) for value in written["mean"]] == whole["mean"].tolist()
    assert [float(value) for value in written["share_gaps"]] == whole["share_gaps"].tolist()
    with pytest.raises(ValueError, match="from 1 to 17, not 0"):
        model.predict(files / "rows.csv", out=out, digits=0)
    with pytest.raises(ValueError, match="at least one row, not 0"):
        next(model.predict_chunks(files / "rows.csv", rows=0))


@pytest.mark.slow
def test_scores_of_more_rows_are_those_of_a_sample(model, files, monkeypatch):
    monkeypatch.setattr(streaming, "MOST_SCORED", 50)
    totals = Totals()
    for looked in looked_at(model, chunks(files / "rows.csv", model.reading(), 30), How()):
        totals.add(looked, looked.columns())
    assert totals.scores().rows == 50
    assert totals.all_notes()[-1] == "scores are those of 50 rows, drawn at random of 150"


@pytest.mark.slow
def test_a_target_that_cannot_be_read_is_not_scored_at_all(model, files, tmp_path):
    text = (files / "rows.csv").read_text().splitlines()
    text[120] = text[120].rpartition(",")[0] + ",what"
    (tmp_path / "bad.csv").write_text("\n".join(text))
    totals = Totals()
    for looked in looked_at(model, chunks(tmp_path / "bad.csv", model.reading(), 30), How()):
        totals.add(looked, looked.columns())
    assert not totals.scores()
    assert any("row 121: 'what' is no number" in note for note in totals.all_notes())


@pytest.mark.slow
def test_a_bad_row_in_the_last_chunk_leaves_no_file(model, files, tmp_path, monkeypatch):
    text = (files / "rows.csv").read_text().splitlines()
    cells_of_row = text[140].split(",")
    cells_of_row[1] = "abc"
    text[140] = ",".join(cells_of_row)
    (tmp_path / "bad.csv").write_text("\n".join(text))
    monkeypatch.setattr(type(model).chunks_of, "__defaults__", (None, 40))
    with pytest.raises(ValueError, match=r"bad.csv, column 'x0', row 141: 'abc' is no number"):
        model.predict(tmp_path / "bad.csv", out=tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


def test_spaced_rows_do_not_depend_on_the_chunks(model, files):
    whole = model.look(files / "none.csv")
    for rows, most in ((7, 20), (64, 20), (64, 1000)):
        spaced_rows = Spaced(most)
        first = 0
        for looked in looked_at(model, chunks(files / "none.csv", model.reading(), rows), How()):
            spaced_rows.add(looked, first)
            first += len(looked.encoded)
        encoded, blend = spaced_rows._joined()
        step = 1 if most > 150 else 8
        np.testing.assert_array_equal(encoded.values, whole.encoded.values[::step])
        np.testing.assert_array_equal(blend.weight, whole.blend.weight[::step])
