"""Rows that are held out: a posterior knows its data again, however they were cut, and is not judged by what it saw."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import training

PATIENTS = np.arange(90) // 3
ELSEWHERE = np.random.default_rng(5)
OTHERS = ELSEWHERE.normal(size=(20, 4)), ELSEWHERE.normal(size=20)
CUTS = [{}, {"held_out": 0.3}, {"groups": PATIENTS}, {"held_out": 0.3, "groups": PATIENTS}, {"held_out": OTHERS}]


def posterior(problem, draws: int = 2, **cut) -> wf.Posterior:
    point = training(likelihood=wf.Regression(noise="fit"))
    return wf.marginalise(point, problem, [wf.InitialCondition(draws)], progress=False, **cut)


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: "+".join(cut) or "as the likelihood says")
def test_the_same_data_is_cut_the_same_way_after_loading(problem, tmp_path, cut):
    few = posterior(problem, **cut)
    few.save(tmp_path)
    again = wf.load(tmp_path, training().model, data=problem)
    assert torch.equal(again.rows.x, few.rows.x)
    if "held_out" not in cut or isinstance(cut["held_out"], float):
        assert torch.equal(again.held_out.y, few.held_out.y)
        more, asked = again.extend(theta0=1, progress=False), posterior(problem, 3, **cut)
        torch.testing.assert_close(more.mixture[2].trained.last, asked.mixture[2].trained.last, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(more.fitted_noise, asked.fitted_noise, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="not the data that the posterior was trained on"):
        again.with_data((problem[0] + 1, problem[1]))
    with pytest.raises(ValueError, match="not the data that the posterior was trained on"):
        again.with_data((problem[0][:10], problem[1][:10]))


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: "+".join(cut) or "as the likelihood says")
def test_nothing_is_fitted_on_what_was_trained_on(problem, tmp_path, cut):
    here = posterior(problem, **cut)
    here.save(tmp_path)
    for each in (here, wf.load(tmp_path, training().model)):
        with pytest.raises(ValueError, match="the rows that the members were trained on"):
            each.calibrated("variance", problem)
        if cut.get("held_out") is OTHERS:
            with pytest.raises(ValueError, match="the rows that the members were trained on"):
                each.fit_noise(problem)
        else:  # of all its data, those that were held out are taken
            torch.testing.assert_close(each.fit_noise(problem).fitted_noise, here.fitted_noise)


def test_rows_to_hold_out_are_not_those_to_train_on(problem):
    with pytest.raises(ValueError, match="the rows that the members were trained on"):
        posterior(problem, held_out=problem)
    some = tuple(np.concatenate([new, old[:10]]) for new, old in zip(OTHERS, problem, strict=True))
    with pytest.warns(UserWarning, match="33% of these rows were trained on") as caught:
        posterior(problem, held_out=some)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1, True])
def test_a_fraction_is_one(problem, share):
    with pytest.raises(ValueError, match="held_out is a fraction of the rows, between 0 and 1, or rows"):
        posterior(problem, held_out=share)


@pytest.mark.parametrize("folds", [None, [np.arange(60)]])
def test_every_row_has_a_group(problem, folds):
    with pytest.raises(ValueError, match="groups must have one entry for each of the 90 rows"):
        posterior(problem, groups=np.arange(100), folds=folds)
