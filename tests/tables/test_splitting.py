"""Groups and copies: rows that belong together are on one side of every split."""

import numpy as np
import pandas as pd
import pytest

import wherefrom as wf
from wherefrom.tables.frames import table_of
from wherefrom.tables.options import Request
from wherefrom.tables.splitting import joined, kept_together, likely_groups, split

QUICK = {"draws": 2, "epochs": 6, "samples": 8}


@pytest.fixture(scope="module")
def visits() -> pd.DataFrame:
    """120 patients with one to five visits each; the stay is mostly the patient's own."""
    random = np.random.default_rng(0)
    patient = np.repeat(np.arange(120), random.integers(1, 6, size=120))
    own = random.normal(size=120)
    age = random.uniform(20, 90, size=120)
    return pd.DataFrame(
        {
            "patient_id": [f"P{number:03d}" for number in patient],
            "age": age[patient],
            "pressure": random.normal(120, 10, size=len(patient)),
            "stay": 10 + own[patient] * 3 + random.normal(size=len(patient)) * 0.1,
        }
    )


def sides(model: wf.Model, frame: pd.DataFrame) -> tuple[set, set]:
    """The patients of the rows that were held out in any way, and of those trained on."""
    networks = model.posterior
    aside = {tuple(row) for row in np.round(model.held_out.x, 6).tolist()}
    aside |= {tuple(row) for row in np.round(networks.held_out.x.numpy(), 6).tolist()}
    encoded = np.round(model.encoder.encode(table_of(frame)).values, 6)
    is_aside = np.array([tuple(row) in aside for row in encoded.tolist()])
    return set(frame["patient_id"][is_aside]), set(frame["patient_id"][~is_aside])


@pytest.mark.slow
def test_a_patients_rows_are_on_one_side(visits, tmp_path):
    with pytest.warns(UserWarning, match="120 groups by 'patient_id', of up to 5 rows: all rows of one are trained on"):
        model = wf.fit(visits, "stay", group="patient_id", noise="fit", **QUICK)
    held_out, trained = sides(model, visits)
    assert held_out
    assert not held_out & trained
    assert "patient_id" not in model.encoder.names
    model.save(tmp_path / "run")
    predictions = wf.load(tmp_path / "run").predict(visits.head(3))  # the group may be there, and says nothing
    assert len(predictions) == 3
    assert len(model.predict(visits.drop(columns="patient_id").head(3))) == 3


@pytest.mark.slow
def test_a_column_that_looks_like_groups_is_proposed(visits):
    with pytest.warns(UserWarning, match="'patient_id' looks like an identifier, .*use group='patient_id'"):
        wf.fit(visits, "stay", **QUICK)


def test_what_looks_like_groups():
    table = table_of(
        {
            "patient_id": np.repeat(np.arange(20), 3),
            "row_id": np.arange(60),
            "ward": np.repeat(np.arange(20), 3),
            "site_id": np.repeat([1, 2], 30),
        }
    )
    assert likely_groups(table, list(table.columns)) == ["patient_id"]


def test_groups_and_copies_are_joined():
    random = np.random.default_rng(1)
    one, other = random.integers(0, 40, size=200), random.integers(0, 120, size=200)
    found = joined(one, other)
    for each in (one, other):
        for number in np.unique(each):
            assert len(set(found[each == number])) == 1
    apart = joined(np.arange(5), np.arange(5))
    assert apart.tolist() == [0, 1, 2, 3, 4]


def test_the_same_inputs_with_another_outcome_stay_together():
    random = np.random.default_rng(2)
    x = random.normal(size=300)
    frame = {"x": np.concatenate([x, x[:50]]), "y": random.normal(size=350)}
    notes: list[str] = []
    copies = kept_together(table_of(frame), ["x"], Request("y"), notes)
    assert notes == ["50 rows have the inputs of another, and are kept together with it"]
    rows = split(frame["y"], 0.3, 0, copies)
    assert not set(copies[rows.train]) & {*copies[rows.test], *copies[rows.calibrate]}


def test_rows_that_repeat_by_their_nature_are_not_copies():
    levels = np.random.default_rng(3).integers(0, 6, size=(1000, 3))
    frame = {name: levels[:, k] for k, name in enumerate("abc")} | {"y": np.arange(1000.0)}
    notes: list[str] = []
    assert kept_together(table_of(frame), list("abc"), Request("y"), notes) is None
    assert "of 1,000 rows differ in their inputs" in notes[0]


def test_few_groups_are_refused():
    frame = {"site": np.repeat(["A", "B"], 50), "x": np.arange(100.0), "y": np.arange(100.0)}
    with pytest.raises(ValueError, match="has 2 different 'site': groups are held out whole, and it takes at least 10"):
        wf.fit(frame, "y", group="site")
    with pytest.raises(ValueError, match="has no column 'patient'"):
        wf.fit(frame, "y", group="patient")


def test_rows_without_a_group_are_on_their_own():
    frame = {"id": [*np.repeat(np.arange(12.0), 2), np.nan, np.nan], "x": np.arange(26.0), "y": np.arange(26.0)}
    groups = kept_together(table_of(frame), ["x"], Request("y", group="id"), [])
    assert len(np.unique(groups)) == 14
