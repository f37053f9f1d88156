"""Where errors are large, by column, in tables whose noise is known."""

import math
from functools import cache

import numpy as np
import pytest

import wherefrom as wf
from wherefrom.tables.columns import Categories, Quantity
from wherefrom.tables.dates import Date
from wherefrom.tables.model import Model
from wherefrom.tables.unexplained import contrast, groups_by

QUICK = {"draws": 2, "epochs": 30, "hidden": [20], "samples": 4}


def noisy(rows: int, seed: int = 0) -> dict:
    """Make a table whose noise is three times as large at the age of 70; x and ward have no part in it."""
    random = np.random.default_rng(seed)
    age = random.choice([30.0, 50.0, 70.0], size=rows)
    x, ward = random.normal(size=rows), random.choice(["A", "B", "C"], size=rows)
    return {"age": age, "x": x, "ward": ward, "y": x + np.where(age > 60, 3.0, 1.0) * random.normal(size=rows)}


@cache
def fitted(noise: str) -> Model:
    return wf.fit(noisy(900), "y", noise=noise, **QUICK)


def expected_ratio(model: Model) -> float:
    """The ratio of errors to expect: noise of 3 and of 1, and in both what the networks' mean is off by from x."""
    rows = model.labelled()
    x = rows.rows.x[:, model.encoder.feature_slices["x"].start]
    age = rows.rows.x[:, model.encoder.feature_slices["age"].start]
    off = (rows.answer(model.posterior).mean - x).square()
    old = age == 70
    return math.sqrt((9 + float(off[old].mean())) / (1 + float(off[~old].mean())))


@pytest.mark.parametrize("noise", ["fit", "predicted"])
def test_the_column_that_makes_noise_large_is_first(noise):
    found = fitted(noise).unexplained()
    assert next(iter(found.columns)) == "age"
    age = found["age"]
    assert age.larger == "= 70"
    assert age.is_clear
    assert age.ratio == pytest.approx(expected_ratio(fitted(noise)), abs=3 * age.error)
    for name in ("x", "ward"):
        assert abs(found[name].ratio - 1) < 3 * found[name].error
    assert found.is_predicted == (noise == "predicted")
    if noise == "fit":
        assert age.predicted == pytest.approx(1, abs=0.02)
    else:
        assert 2 < age.predicted < 4  # as far as 30 epochs take it


def test_a_ratio_is_as_often_below_1_as_above_if_nothing_differs():
    random = np.random.default_rng(0)
    ratios, errors = [], []
    for _ in range(300):
        group, error = random.integers(4, size=300), np.abs(random.normal(size=300))
        groups = {f"= {k}": group == k for k in range(4)}
        found = contrast(groups, error, np.ones(300), random.permutation(300) % 3 == 0)
        ratios.append(math.log(found.ratio))
        errors.append(found.error / found.ratio)
    assert np.mean(ratios) == pytest.approx(0, abs=3 * np.std(ratios) / math.sqrt(300))
    assert np.std(ratios) == pytest.approx(math.sqrt(np.mean(np.square(errors))), rel=0.15)


def test_groups_of_every_kind_of_column():
    ages = np.array([20.0, 30, 40, 50, 60, 70])
    number = Quantity("age", "number", 45.0, 20.0, False)
    groups = groups_by(number, ages[:, None], np.array([True, *[False] * 5]))
    assert {name: rows.sum() for name, rows in groups.items()} == {
        "below 43.33": 2,
        "43.33 to 56.67": 1,
        "above 56.67": 2,
        "missing": 1,
    }
    tail = Quantity("age", "number", 45.0, 20.0, False, is_drawn_in=True)
    again = groups_by(tail, tail.in_units(ages)[:, None], None)
    assert list(again) == ["below 36.67", "36.67 to 53.33", "above 53.33"]
    truth = Quantity("sick", "boolean", 0.0, 1.0, False)
    assert list(groups_by(truth, np.array([[0.0], [1.0]]), None)) == ["= no", "= yes"]
    assert list(groups_by(number, np.array([[1.0], [2.0]]), None)) == ["= 1", "= 2"]
    mostly = groups_by(number, np.array([[0.0]] * 8 + [[-1.0], [5.0], [6.0]]), None)
    assert list(mostly) == ["below 0", "= 0", "above 0"]
    days = Date("day", 0.0, False).encoded(np.array([0.0, 1, 2, 3, 4, 5, 6]))
    assert next(iter(groups_by(Date("day", 0.0, False), days, None))) == "below 1970-01-03"
    text = Categories("ward", ("A", "B"), (0.5, 0.4), True, False)
    levels = groups_by(text, np.eye(3)[[0, 1, 2, 0]], np.array([False, False, False, True]))
    assert {name: rows.tolist() for name, rows in levels.items()} == {
        "= A": [True, False, False, False],
        "= B": [False, True, False, False],
        "is another": [False, False, True, False],
        "missing": [False, False, False, True],
    }


def test_few_rows_have_no_groups_and_classes_their_log_loss():
    assert contrast({"= A": np.ones(20, bool)}, np.ones(20), np.ones(20), np.arange(20) < 5) is None
    random = np.random.default_rng(0)
    x, is_hard = random.normal(size=900), random.random(900) < 0.5
    label = np.where(np.where(is_hard, random.random(900) < 0.5, x > 0), "yes", "no")
    model = wf.fit({"x": x, "hard": is_hard, "label": label}, "label", **QUICK)
    hard = model.unexplained()["hard"]
    assert (hard.larger, hard.smaller, hard.is_clear) == ("= yes", "= no", True)
    assert hard.predicted > 1.5  # the networks know


def test_it_prints_as_a_table_and_is_a_frame():
    found = fitted("fit").unexplained()
    assert str(found).splitlines()[0].split("  ")[0] == "column"
    assert "errors are larger where" in str(found)
    frame = found.to_frame()
    assert list(frame.columns) == ["column", "larger", "smaller", "ratio", "error", "predicted"]
    assert len(found) == len(frame) == 3
