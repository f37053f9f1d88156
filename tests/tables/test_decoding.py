"""Rows of a table as they were written: limits, rare and new levels, truth values, dates and missing cells."""

import warnings

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.report.columns import UNUSUAL, of_numbers
from wherefrom.tables.decoding import OTHER, raw_columns

ROWS = 80


def table() -> dict[str, list[str]]:
    random = np.random.default_rng(0)
    crp = [f"{value:.3g}" for value in np.exp(random.normal(size=ROWS))]
    crp[3], crp[4], crp[5] = "<0.6", ">200", ""
    ward = [f"ward {'AB'[k % 2]}" for k in range(ROWS)]
    ward[7] = "ward Z"  # too rare to be a level
    day = [f"{1 + k % 28:02d}.{1 + k % 12:02d}.2024" for k in range(ROWS)]
    day[8] = ""
    smokes = ["true" if k % 3 else "false" for k in range(ROWS)]
    y = random.normal(size=ROWS)
    sex = ["f" if k % 5 else "m" for k in range(ROWS)]
    return {"crp": crp, "ward": ward, "day": day, "smokes": smokes, "sex": sex, "y": [f"{each:.4g}" for each in y]}


@pytest.fixture(scope="module")
def model() -> wf.Model:
    with warnings.catch_warnings():  # of few rows, and of neighbours that are better
        warnings.simplefilter("ignore")
        return wf.fit(table(), "y", draws=2, epochs=4, samples=4, noise="fit", families="network", workers=1)


def test_kept_rows_are_decoded(model):
    cells, columns = table(), {each.name: each for each in raw_columns(model.labelled(), is_new=False)}
    assert list(columns) == ["crp", "ward", "day", "smokes", "sex"]
    assert columns["crp"].cells[3:6] == ["≤ 0.6", "≥ 200", ""]
    others = [k for k in range(ROWS) if k not in (3, 4, 5)]
    shown = [float(columns["crp"].cells[k]) for k in others]
    assert shown == pytest.approx([float(cells["crp"][k]) for k in others], rel=1e-5)
    assert columns["ward"].cells[6:9] == ["ward A", OTHER, "ward A"]
    assert [value >= 1 for value in columns["ward"].unusual[6:9]] == [False, True, False]
    assert columns["day"].cells[7:10] == ["2024-08-08", "", "2024-10-10"]
    assert columns["smokes"].cells[:3] == ["no", "yes", "yes"]
    assert columns["smokes"].usual == "yes 66%, no 34%"


def test_new_rows_are_decoded_and_compared(model):
    rows = {name: values[10:30] for name, values in table().items()}
    rows["ward"][0] = "ward Q"  # one more rare one
    rows["sex"][0] = "x"  # never seen, where no level is rare
    rows["crp"][1] = "5000"  # far beyond the training rows
    columns = {each.name: each for each in raw_columns(model.labelled(rows), is_new=True)}
    assert columns["ward"].cells[0] == OTHER
    assert columns["sex"].cells[:2] == ["x", "f"]
    assert columns["sex"].unusual[0] > 1
    assert columns["crp"].cells[1] == "5000"
    assert columns["crp"].unusual[1] > 1
    assert columns["crp"].beyond == pytest.approx(1 / 20)
    assert columns["ward"].trained.startswith("ward A 50%, ward B 49%")
    assert columns["day"].moved is not None


def test_tables_and_arrays_mark_the_same_numbers(model):
    """One rule decides which cells are unusual, and the glossary of the report says it."""
    rows = {name: values[10:30] for name, values in table().items()}
    rows["crp"] = [f"{value:.3g}" for value in np.linspace(0.01, 12, 20)]
    by_table = next(each for each in raw_columns(model.labelled(rows), is_new=True) if each.name == "crp")
    trained = [float(cell) for cell in table()["crp"] if cell and cell[0] not in "<>"]
    by_array = of_numbers("crp", torch.tensor([float(cell) for cell in rows["crp"]]), torch.tensor(trained))
    marked = [value >= 1 for value in by_table.unusual]
    assert marked == [value >= 1 for value in by_array.unusual]
    assert 0 < sum(marked) < len(marked)
    low, median, high = np.quantile(trained, [0.25, 0.5, 0.75])
    expected = np.abs(np.linspace(0.01, 12, 20) - median) / (3 * (high - low) / 1.349)
    assert by_array.unusual == pytest.approx(expected, rel=0.02)  # cells have three digits
    assert "3 or more spreads away from the median" in UNUSUAL
