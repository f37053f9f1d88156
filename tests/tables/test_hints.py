"""Columns that may be taken for something else are pointed out, in the words of the door that was used."""

import pytest

from made_table import write
from wherefrom.tables.hints import hints
from wherefrom.tables.reading import read
from wherefrom.tables.wording import speaking


def hinted(tmp_path, name, cells, kinds=None):
    table = read(write(tmp_path / "data.csv", {name: list(map(str, cells)), "n": list(map(str, range(len(cells))))}))
    return hints(table, list(table.columns), kinds or {})


def test_leading_zeros_are_codes(tmp_path):
    (line,) = hinted(tmp_path, "ward", ["007", "123"] * 10)
    assert "leading zeros (007)" in line
    assert line.endswith("use number=['ward']")
    assert not hinted(tmp_path, "ward", ["007", "123"] * 10, {"ward": "number"})
    assert not hinted(tmp_path, "ward", ["7", "123"] * 10)


@pytest.mark.parametrize(("name", "is_told"), [("zip", True), ("icd10", True), ("decode", False), ("weight", False)])
def test_numbers_that_are_named_like_a_code(tmp_path, name, is_told):
    with speaking("command"):
        found = hinted(tmp_path, name, range(1000, 1020))
    assert [line.endswith(f"use --text {name}") for line in found] == [True] * is_told
    assert not hinted(tmp_path, name, [0.5 + k for k in range(20)])


def test_two_numbers_in_a_cell(tmp_path):
    cells = [f"{110 + k}/{70 + k}" for k in range(20)]
    (line,) = hinted(tmp_path, "pressure", [*cells, "unclear"])
    assert "column 'pressure' holds two numbers in a cell (110/70)" in line
    assert not hinted(tmp_path, "pressure", [*cells, *["unclear"] * 20])
    assert not hinted(tmp_path, "when", [f"{k:02d}/01/2020" for k in range(1, 21)])
