"""Permutation importance, against closed forms: of y = 2 a + noise, the squared error rises by 2 * 4 Var(a)."""

import math
from functools import cache

import numpy as np
import pytest

import wherefrom as wf
from made_table import made
from wherefrom.tables.importance import Importance, shuffled
from wherefrom.tables.model import Model

COLUMNS = {name: slice(k, k + 1) for k, name in enumerate("abc")}


def linear(seed: int, rows: int = 150, repeats: int = 3) -> dict:
    """Shuffle the columns of rows whose mean is known to be 2 a + 0.3 b; c plays a part by mistake."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    y = x @ [2.0, 0.3, 0.0] + random.normal(size=rows)

    def squares(at, times):
        return {"square": (np.tile(y, times) - at @ [2.0, 0.3, 0.1]) ** 2}

    return shuffled(squares, x, COLUMNS, [random.permutation(rows) for _ in range(repeats)], at_once=2)


def test_squared_errors_of_a_linear_model_rise_as_the_closed_form_says():
    """With the slope s of a column and s' of the model, by 2 s s' Var(x): of c, which is a mistake, by nothing."""
    increases = [linear(seed) for seed in range(200)]
    for name, expected in (("a", 2 * 4.0), ("b", 2 * 0.09), ("c", 0.0)):
        means = np.array([each[name]["square"].mean for each in increases])
        errors = np.array([each[name]["square"].error for each in increases])
        assert means.mean() == pytest.approx(expected, abs=3 * means.std() / math.sqrt(len(means)))
        # A standard deviation of 200 values is off by 1 / sqrt(400) of itself, of heavy tails more.
        assert math.sqrt((errors**2).mean()) == pytest.approx(means.std(), rel=0.2)


def test_more_permutations_lower_the_error_and_one_has_one():
    one, many = (linear(0, repeats=count)["c"]["square"] for count in (1, 20))
    assert 0 < many.error < one.error


def test_permutations_that_are_answered_together_or_alone_are_the_same():
    x = np.random.default_rng(0).normal(size=(30, 2))
    orders = [np.random.default_rng(k).permutation(30) for k in range(5)]

    def losses(at, times):
        return {"nll": at[:, 0] ** 2 + at[:, 0] * np.tile(x[:, 1], times)}

    slices = {"both": slice(0, 2), "first": slice(0, 1)}
    assert shuffled(losses, x, slices, orders, 1) == shuffled(losses, x, slices, orders, 3)


# ---------------------------------------------------------------------- of a model


@cache
def fitted() -> Model:
    """y = 2 a + a level of its ward + noise of 1; b says nothing."""
    random = np.random.default_rng(1)
    a, b = random.normal(size=(2, 400))
    ward = random.choice(["north", "east", "west"], size=400)
    level = np.select([ward == "north", ward == "east"], [3.0, 0.0], -3.0)
    table = {"a": a, "b": b, "ward": ward, "y": 2 * a + level + random.normal(size=400)}
    return wf.fit(table, "y", draws=2, epochs=60, hidden=[20], noise="fit", samples=4)


def test_the_nll_rises_by_the_closed_form():
    """NLL = error^2 / (2 v), so shuffling a adds 2 * 4 Var(a) / (2 v), and the ward 2 * 6 / (2 v)."""
    found = fitted().importance()
    prediction = fitted().labelled().answer(fitted().posterior)
    variance = float(prediction.variance.mean())
    a = fitted().labelled().rows.x[:, fitted().encoder.feature_slices["a"].start]
    assert found["a"]["nll"].mean == pytest.approx(4 * float(a.var()) / variance, abs=3 * found["a"]["nll"].error)
    assert found["ward"]["nll"].mean == pytest.approx(6 / variance, abs=3 * found["ward"]["nll"].error)
    assert abs(found["b"]["nll"].mean) < 3 * found["b"]["nll"].error
    assert not found["b"]["nll"].is_clear
    assert list(found.columns)[2] == "b"  # the levels of the ward moved together
    assert {name for each in found.columns.values() for name in each} == {"nll", "mae"}
    assert found["a"]["mae"].is_clear


def test_the_seed_decides_and_rows_are_those_that_were_kept(tmp_path):
    model = fitted()
    assert model.importance() == model.importance()
    assert (model.importance().rows, model.importance(repeats=2).repeats) == (400, 2)
    model.save(tmp_path / "run")
    assert wf.load(tmp_path / "run").importance() == model.importance()
    model.save(tmp_path / "without", keeps_data=False)
    without = wf.load(tmp_path / "without")
    with pytest.raises(ValueError, match="kept no rows: name a table of rows with 'y' in it"):
        without.importance()
    random = np.random.default_rng(2)
    new = {"a": random.normal(size=60), "b": random.normal(size=60), "ward": ["north"] * 60}
    found = without.importance({**new, "y": 2 * new["a"] + 3})
    assert (found.rows, next(iter(found.columns))) == (60, "a")
    assert found["ward"]["nll"].mean == 0.0  # all rows have the same


@pytest.mark.parametrize(("repeats", "rows", "words"), [(0, 5, "repeats is at least 1"), (3, 1, "one row has nothing")])
def test_what_cannot_be_shuffled_is_refused(repeats, rows, words):
    table = {"a": [0.5] * rows, "b": [0.1] * rows, "ward": ["east"] * rows, "y": [1.0] * rows}
    with pytest.raises(ValueError, match=words):
        fitted().importance(table, repeats=repeats)


def test_it_prints_as_a_table_and_is_a_frame():
    found = fitted().importance()
    assert isinstance(found, Importance)
    lines = str(found).splitlines()
    assert lines[0].split() == ["column", "NLL", "rises", "by", "±", "mean", "error", "rises", "by", "±"]
    assert [line.split()[0] for line in lines[1:]] == list(found.columns)
    assert len({len(line) for line in lines[1:]}) == 1  # aligned
    frame = found.to_frame()
    assert list(frame.columns) == ["column", "nll", "nll_error", "mae", "mae_error"]
    assert frame["nll"].is_monotonic_decreasing


def test_classes_counts_gaps_and_dates():
    """Tables such as people have: classes have the Brier score beside the NLL; every column that is used is there."""
    model = wf.fit({name: cells[:300] for name, cells in made(300, classes=True).items()}, "kind", **QUICK)
    found = model.importance(repeats=1)
    assert {name for each in found.columns.values() for name in each} == {"nll", "brier"}
    assert set(found.columns) == set(model.encoder.names)
    random = np.random.default_rng(0)
    x = random.normal(size=300)
    counts = wf.fit({"x": x, "n": random.poisson(4 + x.clip(-3, 3))}, "n", task="counts", noise=0.1, **QUICK)
    assert counts.importance(repeats=1)["x"]["nll"].error > 0


QUICK = {"draws": 2, "epochs": 8, "samples": 4}
