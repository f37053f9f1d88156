"""How trainings are computed, as one value: it is checked once, and changes nothing of what they are."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import oracle
import wherefrom as wf
from conftest import training
from wherefrom.training.executor import Threads


def trained(posterior: wf.Posterior) -> list:
    return [component.trained for component in posterior.mixture]


def test_one_value_is_the_same_as_its_fields_one_by_one(problem):
    how = wf.Compute(dtype=torch.float64, engine="torch", workers=2, progress=False)
    whole = wf.marginalise(training(), problem, [wf.InitialCondition(2)], compute=how)
    each = wf.marginalise(
        training(), problem, [wf.InitialCondition(2)], dtype=torch.float64, engine="torch", workers=2, progress=False
    )
    oracle.assert_same_members(trained(whole), trained(each))
    assert whole.dtype == torch.float64
    named = wf.marginalise(training(), problem, [wf.InitialCondition(2)], compute=how, dtype=torch.float32)
    assert named.dtype == torch.float32  # what is said by name counts


def test_more_draws_are_computed_as_the_others(problem):
    few = wf.marginalise(training(), problem, [wf.InitialCondition(2)], compute=wf.Compute(dtype=torch.float64))
    more = few.extend(theta0=1, compute=wf.Compute(workers=1, progress=False))
    assert (more.dtype, len(more)) == (torch.float64, 3)
    assert trained(more)[2].last.dtype == torch.float64


def test_folds_are_a_list(problem):
    folds = [np.arange(60), np.arange(30, 90)]
    together = wf.marginalise(training(), problem, [wf.InitialCondition(2)], folds=folds)
    older = wf.marginalise_folds(training(), problem, folds, [wf.InitialCondition(2)])
    for one, other in zip(together, older, strict=True):
        oracle.assert_same_members(trained(one), trained(other))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"dtype": torch.float16}, "float32 or torch.float64"),
        ({"autocast": torch.float16}, "torch.bfloat16"),
        ({"engine": "jax"}, "'auto', 'fastest', 'torch', 'native'"),
        ({"workers": 0}, "at least 1"),
        ({"workers": 2.5}, "whole number"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_written(wrong, words):
    with pytest.raises(ValueError, match=words):
        wf.Compute(**wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"checkpoints": 3}, "checkpoints must be a folder"),
        ({"executor": ThreadPoolExecutor(1)}, "an executor has a `width`.*ThreadPoolExecutor.* is None"),
        ({"executor": 2}, "2 has no `map`"),
        ({"executor": Threads}, "has no `map`"),
    ],
)
def test_what_is_of_another_kind_is_said_when_it_is_written(wrong, words):
    with pytest.raises(TypeError, match=words):
        wf.Compute(**wrong)


def test_compute_is_no_dictionary(problem):
    with pytest.raises(TypeError, match=r"compute must be wf\.Compute\(\.\.\.\).*not \{'workers': 1\}"):
        wf.marginalise(training(), problem, [], compute={"workers": 1})
    with pytest.raises(TypeError, match=r"compute must be wf\.Compute\(\.\.\.\)"):
        wf.marginalise(training(), problem, [wf.InitialCondition(2)]).extend(theta0=1, compute={"workers": 1})


def test_groups_stay_together(problem):
    x, y = problem
    patients = np.arange(90) // 3
    found = wf.marginalise(
        training(likelihood=wf.Regression("fit", 0.2)), (x, y), [wf.InitialCondition(2)], groups=patients
    )
    parts = [{float(v) for v in rows.y.flatten()} for rows in (found.rows, found.held_out)]
    sides = [{int(patients[row]) for row in range(90) if float(y[row]) in part} for part in parts]
    assert not sides[0] & sides[1]
    assert len(found.held_out) == 18


def test_rows_that_are_held_out_elsewhere(problem):
    x, y = problem
    found = wf.marginalise(
        training(likelihood=wf.Regression("fit")), (x[:70], y[:70]), [wf.InitialCondition(2)], held_out=(x[70:], y[70:])
    )
    assert (len(found.rows), len(found.held_out)) == (70, 20)
    by_hand = wf.marginalise(training(), (x[:70], y[:70]), [wf.InitialCondition(2)])
    oracle.assert_same_members(trained(found), trained(by_hand))
    residuals = (found.held_out.y - by_hand.predict(x[70:]).samples.mean((0, 1))[:, None]) / found.scaler.y_std
    assert float(found.fitted_noise) == pytest.approx(float(residuals.square().mean()), rel=0.5)
