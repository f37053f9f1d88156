"""Row weights of a table, and the order of its rows."""

import numpy as np
import pytest

import wherefrom as wf
from wherefrom.tables.frames import table_of
from wherefrom.tables.options import Request
from wherefrom.tables.splitting import fixed_order, kept_together
from wherefrom.tables.weighing import drawn_by_weight, weighted, with_classes

QUICK = {"draws": 2, "epochs": 8, "samples": 8, "noise": "fit"}


def test_whole_weights_repeat_rows_and_others_are_kept():
    table, weights = weighted(table_of({"x": [1.0, 2.0, 3.0], "w": [2, 0, 1]}), "w")
    assert table.columns["x"].numbers.tolist() == [1, 1, 3]
    assert weights is None
    table, weights = weighted(table_of({"x": [1.0, 2.0, 3.0], "w": [0.5, 0, 1]}), "w")
    assert table.columns["x"].numbers.tolist() == [1, 3]
    assert weights.tolist() == [0.5, 1]
    table, weights = weighted(table_of({"x": [1.0, 2.0], "w": [1, 1000]}), "w")
    assert (len(table), weights.tolist()) == (2, [1, 1000])
    assert weighted(table, None) == (table, None)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, np.nan], "column 'w', has no weight in 1 row"),
        ([1.0, -2.0], "column 'w', row 1: weights must not be negative; it is -2"),
        ([0.0, 0.0], "all weights are zero"),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        weighted(table_of({"x": [1.0, 2.0], "w": weights}), "w")


def test_balanced_classes_weigh_the_same():
    y = np.array(["a", "a", "a", "b"], dtype=object)
    weights = with_classes(np.array([1.0, 2.0, 1.0, 5.0]), y, ("a", "b"), "balanced")
    assert weights[:3].sum() == pytest.approx(weights[3])
    assert with_classes(None, y, ("a", "b"), {"b": 3}).tolist() == [1, 1, 1, 3]
    assert with_classes(None, y, ("a", "b"), None) is None


def test_rows_are_drawn_in_proportion_to_their_weights():
    random = np.random.default_rng(0)
    weights, rows = random.exponential(size=2000), random.permutation(2000)[:1000]
    counts = np.bincount(drawn_by_weight(rows, weights), minlength=2000)
    expected = np.zeros(2000)
    expected[rows] = 1000 * weights[rows] / weights[rows].sum()
    assert np.abs(counts - expected).max() < 1  # none is drawn a time more, or less, than it should be
    assert drawn_by_weight(rows, np.ones(2000)).tolist() == rows.tolist()


@pytest.mark.slow
def test_a_weight_of_two_is_the_row_twice():
    random = np.random.default_rng(0)
    x = random.normal(size=90)
    cells = {"x": x, "y": x + random.normal(size=90)}
    times = random.integers(0, 3, size=90)
    with pytest.warns(UserWarning, match="kept together"):
        one = wf.fit(cells | {"times": times}, "y", weight="times", **QUICK)
    repeated = {name: column.repeat(times)[::-1] for name, column in cells.items()}
    with pytest.warns(UserWarning, match="kept together"):
        other = wf.fit(repeated, "y", **QUICK)
    np.testing.assert_array_equal(one.predict(cells)["mean"], other.predict(cells)["mean"])
    assert one.scores == other.scores
    assert "times" not in one.encoder.names
    assert list(one.predict(cells | {"times": times})) == list(one.predict(cells))  # and nothing is noted


@pytest.mark.slow
def test_rows_of_little_weight_say_little():
    """Half of the rows are nonsense, and weigh next to nothing: in the pilot, the noise, and the calibration."""
    random = np.random.default_rng(1)
    x = random.normal(size=200)
    is_good = random.random(200) < 0.5
    y = np.where(is_good, 2 * x + 0.3 * random.normal(size=200), random.normal(30, 10, size=200))
    cells = {"x": x, "y": y, "w": np.where(is_good, 0.7, 1e-6)}
    one = wf.fit(cells, "y", weight="w", draws=2, samples=8, calibrate="variance")
    good = one.predict({"x": x[is_good]})
    assert np.sqrt(np.mean((good["mean"] - 2 * x[is_good]) ** 2)) < 0.3
    assert 0.2 < np.median(good["std"]) < 0.6


def test_the_order_is_one_of_the_rows_themselves():
    random = np.random.default_rng(0)
    values = np.where(random.random((50, 3)) < 0.1, np.nan, random.normal(size=(50, 3)).round(1))
    for y in (random.normal(size=50), random.choice(["a", "b"], size=50).astype(object), random.normal(size=(50, 2))):
        weights, shuffled = random.random(50), random.permutation(50)
        order = fixed_order(values, y, weights)
        other = fixed_order(values[shuffled], y[shuffled], weights[shuffled])
        np.testing.assert_array_equal(values[order], values[shuffled][other])
        np.testing.assert_array_equal(y[order], y[shuffled][other])
    assert fixed_order(np.array([[0.0], [-0.0]]), np.zeros(2), None).tolist() == [0, 1]


@pytest.mark.slow
def test_how_a_table_is_sorted_does_not_matter():
    random = np.random.default_rng(0)
    cells = {"x": random.normal(size=80), "ward": random.choice(["a", "b"], size=80)}
    cells["y"] = cells["x"] + (cells["ward"] == "a") + random.normal(size=80)
    order = np.argsort(cells["y"])
    one, other = (wf.fit({k: v[rows] for k, v in cells.items()}, "y", **QUICK) for rows in (np.arange(80), order))
    np.testing.assert_array_equal(one.predict(cells)["mean"], other.predict(cells)["mean"])
    assert one.held_out.rows.tolist() == other.held_out.rows.tolist() == list(range(80))  # as the user has them


def test_whole_copies_stay_together_in_small_tables():
    random = np.random.default_rng(0)
    x = random.normal(size=30).repeat(2)
    copies = kept_together(table_of({"x": x, "y": x}), ["x"], Request("y"), [])
    assert np.array_equal(copies[::2], copies[1::2])
    assert len(np.unique(copies)) == 30
    assert kept_together(table_of({"x": x, "y": random.normal(size=60)}), ["x"], Request("y"), []) is None
    assert kept_together(table_of({"x": x.repeat(10), "y": x.repeat(10)}), ["x"], Request("y"), []) is None
