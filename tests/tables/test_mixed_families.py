"""Boosted trees and a Gaussian process beside the networks of a table: they join where left-out rows call for them."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch

import wherefrom as wf
from apart import alone
from wherefrom.tables import families


def steps(count: int) -> dict[str, np.ndarray]:
    """A table that trees are made for: y is a sum of steps."""
    random = np.random.default_rng(0)
    x = {name: random.normal(size=count) for name in "abcd"}
    y = 3.0 * (x["a"] > 0.3) - 2.0 * (x["b"] > -0.5) * (x["c"] > 0) + 0.2 * random.normal(size=count)
    return x | {"y": y}


@pytest.fixture(scope="module")
def stepped() -> wf.Model:
    return fitted(steps(240))


def fitted(table: dict[str, np.ndarray], **how) -> wf.Model:
    with warnings.catch_warnings():  # of neighbours that are better, and of intervals by few rows
        warnings.simplefilter("ignore")
        return wf.fit(table, "y", seed=1, workers=1, **how)


@pytest.mark.slow
def test_trees_join_where_they_are_better(stepped):
    weights = {family["name"]: family["weight"] for family in stepped.about["families"]}
    assert weights["trees"] > 0.5
    assert sum(weights.values()) == pytest.approx(1)
    names = stepped.posterior.design.families.factories
    assert list(names) == [name for name, weight in weights.items() if weight > 0]
    new = steps(1240)
    new = {name: values[240:] for name, values in new.items()}
    alone = fitted(steps(240), families="network")
    assert alone.posterior.design.families is None
    ours, theirs = (np.asarray(model.look(new).predicted.by_row["crps"]) for model in (stepped, alone))
    gain = theirs - ours
    assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))


@pytest.mark.slow
def test_the_kind_of_model_is_a_source_and_goes_into_files(stepped, tmp_path):
    new = {name: values[:30] for name, values in steps(240).items() if name != "y"}
    predictions = stepped.predict(new)
    assert "share_architecture" in stepped.sources(new).rows
    assert "kind of model" in str(stepped.sources(new))
    assert re.match(r"Model\(y: regression, \d+% network \+ \d+% trees", repr(stepped))
    stepped.save(tmp_path / "run")
    again = wf.load(tmp_path / "run").predict(new)
    np.testing.assert_array_equal(again["mean"], predictions["mean"])
    np.testing.assert_array_equal(again["upper"], predictions["upper"])
    alone(exec, f"import wherefrom; wherefrom.load({str(tmp_path / 'run')!r})", {})  # nothing has trained there
    page = tmp_path / "report.html"
    stepped.report(page)
    assert "Kinds of model" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_far_rows_stay_as_unsure_with_trees(stepped):
    rows = {name: np.full(4, 0.5) for name in "abcd"} | {"a": np.array([0.5, 10.0, 100.0, 10_000.0])}
    predictions = stepped.predict(rows)
    widths = np.asarray(predictions["upper"]) - np.asarray(predictions["lower"])
    assert (np.diff(widths) >= -1e-9).all()
    assert widths[-1] > 2 * widths[0]


@pytest.mark.slow
def test_a_process_joins_on_a_smooth_table():
    random = np.random.default_rng(0)
    a, b = random.uniform(-2, 2, size=(2, 150))
    model = fitted({"a": a, "b": b, "y": np.sin(2 * a) * b + 0.01 * random.normal(size=150)})
    weights = {family["name"]: family["weight"] for family in model.about["families"]}
    assert weights["process"] > 0.3


def test_whoever_says_how_to_train_networks_means_networks():
    table = steps(60)
    assert fitted(table, epochs=5).about["families"] == []
    asked = fitted(table, epochs=5, draws=2, families="trees")
    assert [family["name"] for family in asked.about["families"]] == ["network", "trees"]
    with pytest.raises(ValueError, match=r"families= is auto, or some of network, trees, process.*not 'forest'"):
        fitted(table, families="network,forest")


@pytest.mark.slow
def test_trees_that_are_far_behind_in_a_first_fit_are_not_fitted_to_all_folds():
    random = np.random.default_rng(3)
    x = {name: random.normal(size=200) for name in "abcdef"}
    model = fitted(x | {"y": sum(x.values()) + 0.05 * random.normal(size=200)}, families="network,trees")
    assert model.about["families"] == []


def test_networks_that_are_far_worse_add_little_to_the_variance():
    networks, others = (
        families._Judged(torch.zeros(9), torch.full((9,), crps), None, None, torch.zeros(9), None)
        for crps in (0.5, 0.1)
    )
    assert families._least_weight(networks, [others]) == pytest.approx(families._LEAST_WEIGHT / 25)
    assert families._least_weight(others, [networks]) == families._LEAST_WEIGHT  # never more, where they are better
