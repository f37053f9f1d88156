"""SWAG from later on, out of a training that has ended: compared with a training that collected so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import training
from wherefrom.laws import TRADI
from wherefrom.posterior.parts import of_last_iterates


@pytest.mark.parametrize("over", [[wf.InitialCondition(2)], [wf.Folds(3)]], ids=["theta0", "folds"])
@pytest.mark.parametrize("rank", [6, 20])
def test_it_is_what_a_training_that_collects_later_leaves(problem, over, rank):
    short = training(epochs=20)
    whole = wf.marginalise(short, problem, [*over, wf.Iterations(wf.SWAG(rank))])
    later = of_last_iterates(whole, 4)
    again = wf.marginalise(short, problem, [*over, wf.Iterations(wf.SWAG(rank), steps=[0.85, 0.9, 0.95, 1.0])])
    assert later.design.iterations.steps == pytest.approx(again.design.iterations.steps)
    for one, other in zip(later.mixture, again.mixture, strict=True):
        torch.testing.assert_close(one.trained.law.mean, other.trained.law.mean, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(one.trained.law.variance, other.trained.law.variance, atol=1e-7, rtol=1e-3)
    x, _ = problem
    spread = [each.predict(x, samples=200).std.mean() for each in (later, again)]
    assert float(spread[0]) == pytest.approx(float(spread[1]), rel=0.1)


def test_other_laws_and_iterates_that_are_gone_have_none(problem):
    for iterations in (wf.Iterations(TRADI()), wf.Iterations(wf.Snapshots(4)), wf.Iterations(wf.SWAG(3))):
        posterior = wf.marginalise(training(epochs=12), problem, [iterations])
        assert of_last_iterates(posterior, 5) is None
    assert of_last_iterates(wf.marginalise(training(), problem, [wf.InitialCondition(2)]), 2) is None


def test_a_table_is_told_from_when_swag_collects():
    """With little noise, all of the later half is far too wide."""
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, size=(200, 2))
    table = {"a": x[:, 0], "b": x[:, 1], "y": np.sin(2 * x[:, 0]) + x[:, 1] + 0.02 * random.normal(size=200)}
    with warnings.catch_warnings():  # about how good it is after so short a training
        warnings.simplefilter("ignore", UserWarning)
        model = wf.fit(table, "y", draws=2, epochs=40, samples=20)
    ways = {way["name"]: way for way in model.about["ways"]}
    assert list(ways) == ["t as trained", "t from the last 10 iterates", "t from the last 5 iterates", "t left out"]
    best = min(ways.values(), key=lambda way: way["loss"])
    assert best["behind"] == 0
    is_in = "t" in model.posterior.design.names
    assert is_in == (best["name"] != "t left out")
    assert ways["t as trained"]["shares"]["t"] > ways["t from the last 5 iterates"]["shares"]["t"]
    assert ways["t left out"]["shares"].get("t", 0.0) == 0.0
