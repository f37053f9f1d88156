"""Files as people have them: separators, decimal signs, encodings, gaps, and faults that are told by their row."""

import gzip

import numpy as np
import pytest

from wherefrom.tables.raw import Format, as_numbers
from wherefrom.tables.reading import read


def csv(tmp_path, text, name="data.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def cells(table, name):
    column = table.columns[name].as_text()
    return [None if code < 0 else column.levels[code] for code in column.codes.tolist()]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_found(tmp_path, separator):
    text = f'a{separator}b b\n1{separator}x y\n2{separator}"p{separator}q"\n'
    table = read(csv(tmp_path, text))
    assert list(table.columns) == ["a", "b b"]
    assert cells(table, "b b") == ["x y", f"p{separator}q"]
    assert table.rows.tolist() == [2, 3]


def test_a_single_column_has_no_separator(tmp_path):
    assert cells(read(csv(tmp_path, "name\nann\nbob\n")), "name") == ["ann", "bob"]


def test_decimal_commas_are_found(tmp_path):
    table = read(csv(tmp_path, "a;b\n1,5;2\n-0,25;3\n"))
    assert table.decimal == ","
    assert as_numbers(table.columns["a"].levels, ",").tolist() == [1.5, -0.25]
    assert read(csv(tmp_path, "a;b\n1.5;x,5\n")).decimal == "."
    assert read(csv(tmp_path, "a;b\n1,234;2\n"), Format(decimal=".")).decimal == "."


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_are_found(tmp_path, encoding):
    table = read(csv(tmp_path, "größe,b\n1,é\n", encoding=encoding))
    assert list(table.columns) == ["größe", "b"]
    assert cells(table, "b") == ["é"]
    assert not table.notes


def test_windows_is_told_and_others_are_named(tmp_path):
    table = read(csv(tmp_path, "a,b\n1,x\n2,café\n", encoding="cp1252"))
    assert cells(table, "b") == ["x", "café"]
    assert "row 3" in table.notes[0]
    assert "pandas.read_csv(..., encoding=...)" in table.notes[0]
    hopeless = tmp_path / "hopeless.csv"
    hopeless.write_bytes(b"a,b\n1,\x81\xff\n")
    with pytest.raises(
        ValueError, match=r"hopeless.csv, row 2, is neither in UTF-8 nor in Windows-1252.*encoding='utf-16'"
    ):
        read(hopeless)
    assert cells(read(hopeless, Format(encoding="latin-1")), "b") == ["\x81ÿ"]
    with pytest.raises(ValueError, match=r"there is no encoding 'klingon'"):
        Format(encoding="klingon")


def test_missing_values_are_words_for_it_in_any_case(tmp_path):
    table = read(csv(tmp_path, "a,b\n1,NA\n , nan\nNULL,none\n?,unknown\n-,x\n"), Format(missing=("unknown",)))
    assert cells(table, "a") == ["1", None, None, None, None]
    assert cells(table, "b") == [None, None, "none", None, "x"]  # none is an answer


def test_rows_are_counted_as_a_spreadsheet_counts_them(tmp_path):
    table = read(csv(tmp_path, 'a,b\n1,"two\nlines"\n\n3,x\n'))
    assert table.rows.tolist() == [2, 4]
    assert cells(table, "b") == ["two\nlines", "x"]


def test_zipped_files_and_windows_line_ends(tmp_path):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\r\n1,2\r\n"))
    assert cells(read(path), "b") == ["2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "data.csv is empty"),
        ("\n\n", "data.csv is empty"),
        ("a,b\n", "has a header, but no rows"),
        ("1,2\n3,4\n", "row 1, should name the columns, but holds numbers: add a header"),
        ("a,b,a\n1,2,3\n", "several columns named 'a': rename all but one"),
        ("a,b\n1,2\n3\n", "row 3, has 1 value, but the header names 2 columns"),
        ("a,b\n1,2,3\n", "row 2, has 3 values, but the header names 2 columns"),
    ],
)
def test_faults_are_told_in_words(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(csv(tmp_path, text))


def test_files_that_are_no_tables(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file"):
        read(tmp_path / "nothing.csv")
    with pytest.raises(IsADirectoryError, match=r"is a folder"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"is a spreadsheet: save it as CSV"):
        read(csv(tmp_path, "x", "data.xlsx"))
    with pytest.raises(ValueError, match=r"cannot be read as Parquet"):
        read(csv(tmp_path, "a,b\n1,2\n", "data.parquet"))
    with pytest.raises(ValueError, match=r"give it the ending .parquet"):
        read(csv(tmp_path, "PAR1....", "data.csv"))


def test_a_column_without_a_name_is_called_by_its_place(tmp_path):
    assert list(read(csv(tmp_path, ",b\n0,x\n1,y\n")).columns) == ["column 1", "b"]


def test_a_column_that_is_not_there_is_answered_by_the_nearest(tmp_path):
    table = read(csv(tmp_path, "Price,b\n1,2\n"))
    with pytest.raises(ValueError, match=r"no column 'price'; did you mean 'Price'"):
        table.column("price")
    with pytest.raises(ValueError, match=r"no column 'zzz'; it has Price, b"):
        table.column("zzz")


def test_parquet_is_the_same_table(tmp_path):
    polars = pytest.importorskip("polars")
    from datetime import date

    path = tmp_path / "data.parquet"
    polars.DataFrame(
        {
            "n": [1, None, 3],
            "x": [0.5, float("nan"), -1.0],
            "t": ["a", "NA", " b "],
            "ok": [True, None, False],
            "day": [date(1970, 1, 2), None, date(1969, 12, 31)],
        }
    ).write_parquet(path)
    table = read(path)
    assert cells(table, "n") == ["1", None, "3"]
    assert cells(table, "x") == ["0.5", None, "-1"] or cells(table, "x") == ["0.5", None, "-1.0"]
    assert cells(table, "t") == ["a", None, "b"]
    assert cells(table, "ok") == ["true", None, "false"]
    assert table.columns["day"].is_date
    np.testing.assert_array_equal(table.columns["day"].numbers, [1.0, np.nan, -1.0])
    polars.DataFrame({"a": [[1], [2]]}).write_parquet(path)
    with pytest.raises(ValueError, match=r"column 'a', holds List"):
        read(path)


def test_taking_rows_takes_their_numbers(tmp_path):
    table = read(csv(tmp_path, "a,b\n1,x\n2,y\n3,x\n")).take(np.array([2, 0]))
    assert table.rows.tolist() == [4, 2]
    assert cells(table, "a") == ["3", "1"]


def test_commas_that_may_part_thousands_are_refused(tmp_path):
    path = csv(tmp_path, "a\tb\n921\tx\n1,234\ty\n")
    with pytest.raises(
        ValueError, match=r"column 'a', row 3: '1,234' may be 1.234 or 1234: use pandas.read_csv\(..., decimal=','\)"
    ):
        read(path)
    assert as_numbers(read(path, Format(decimal=",")).columns["a"].levels, ",").tolist() == [921, 1.234]
    assert np.isnan(as_numbers(read(path, Format(decimal=".")).columns["a"].levels, ".")[1])
    assert read(csv(tmp_path, "a;b\n1,234;2\n0,125;3\n")).decimal == ","  # no thousands begin with 0


def test_a_decimal_comma_is_told_and_points_are_no_numbers_then(tmp_path):
    table = read(csv(tmp_path, "a;b\n1;2\n2,5;3\n"))
    assert "column 'a', row 3: '2,5' has a decimal comma" in table.notes[0]
    assert np.isnan(as_numbers(["1.234", "1.234,5", "2,5"], ",")).tolist() == [True, True, False]
    assert read(csv(tmp_path, "a;b\n1;2\n2,5;3\n"), Format(decimal=",")).notes == ()
