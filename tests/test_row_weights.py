"""Data with row weights: a weight of two is a row given twice, a weight of nothing a row left out."""

import numpy as np
import pandas as pd
import pytest
import torch

import wherefrom as wf
from conftest import mlp, training
from wherefrom.training.data import Scaler, as_rows

FULL = wf.Algorithm("adam", lr=0.02, batch_size=1000)
WEIGHTS = np.random.default_rng(1).integers(0, 4, size=90)


def means(posterior, x):
    return posterior.predict(x, samples=5).mean


@pytest.fixture
def repeated(problem):
    x, y = problem
    return x.repeat(WEIGHTS, axis=0), y.repeat(WEIGHTS)


def test_moments_are_those_of_repeated_rows(problem, repeated):
    weighted = Scaler.of(as_rows((*problem, WEIGHTS), wf.Regression()), True, wf.Regression())
    for found, expected in zip(
        weighted, Scaler.of(as_rows(repeated, wf.Regression()), True, wf.Regression()), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_training_is_that_on_repeated_rows(problem, repeated):
    """In full batches, where each step sees the same rows; without dropout, whose masks are of rows."""
    plain, x = training(mlp(rate=0.0), algorithm=FULL, epochs=30), problem[0]
    over = wf.recipes.multi_swag(2, rank=3)
    weighted = wf.marginalise(plain, (*problem, WEIGHTS), over, dtype=torch.float64)
    expected = wf.marginalise(plain, repeated, over, dtype=torch.float64)
    torch.testing.assert_close(means(weighted, x), means(expected, x), rtol=1e-8, atol=1e-8)
    ignored = wf.marginalise(plain, problem, over, dtype=torch.float64)
    assert not torch.allclose(means(ignored, x), means(expected, x), rtol=1e-3)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_both_engines_take_them(problem, engine):
    pytest.importorskip("numba")
    found = wf.marginalise(training(), (*problem, WEIGHTS), wf.recipes.deep_ensemble(2), engine=engine)
    other = wf.marginalise(training(), (*problem, WEIGHTS), wf.recipes.deep_ensemble(2), engine="torch")
    torch.testing.assert_close(means(found, problem[0]), means(other, problem[0]), rtol=1e-3, atol=1e-3)
    assert found.engines == (engine,)


def test_a_row_of_no_weight_is_left_out(problem):
    x, y = problem
    kept = WEIGHTS > 0
    fitted = training(likelihood=wf.Regression(noise="fit"))
    zero = wf.marginalise(fitted, (x, y, kept), wf.recipes.deep_ensemble(2))
    left_out = wf.marginalise(fitted, (x[kept], y[kept], np.ones(kept.sum())), wf.recipes.deep_ensemble(2))
    assert torch.equal(means(zero, x), means(left_out, x))
    assert torch.equal(zero.fitted_noise, left_out.fitted_noise)
    assert zero.schema.digest == left_out.schema.digest


def test_only_their_proportions_count(problem):
    one = wf.marginalise(training(), (*problem, WEIGHTS), [])
    other = wf.marginalise(training(), (*problem, 1024 * WEIGHTS), [])
    assert torch.equal(means(one, problem[0]), means(other, problem[0]))
    equal = wf.marginalise(training(), (*problem, np.full(90, 3.0)), [])
    plain = wf.marginalise(training(), problem, [])
    torch.testing.assert_close(means(equal, problem[0]), means(plain, problem[0]), rtol=1e-4, atol=1e-4)


def test_folds_take_them_along(problem):
    fold = np.arange(0, 90, 2)
    _, found = wf.marginalise_folds(training(), (*problem, WEIGHTS), [slice(0, 45), fold], [wf.Resample(2)])
    alone = wf.marginalise(training(), (problem[0][fold], problem[1][fold], WEIGHTS[fold]), [wf.Resample(2)], seed=1)
    assert torch.equal(means(found, problem[0]), means(alone, problem[0]))


def test_resampled_rows_keep_them(problem):
    x, y = problem
    weights = np.where(x[:, 1] > 0, 1.0, 1e-6)
    misled = np.where(x[:, 1] > 0, y, 100.0)  # what weighs next to nothing says something else
    prediction = wf.marginalise(training(epochs=60), (x, misled, weights), [wf.Resample(2)]).predict(x[x[:, 1] > 0])
    assert prediction.rmse(y[x[:, 1] > 0]) < 1.5


@pytest.mark.parametrize("class_weights", [None, "balanced", {"a": 1, "b": 2, "c": 3}])
def test_classes_weigh_as_if_rows_were_repeated(class_weights):
    random = np.random.default_rng(0)
    x, y, weights = random.normal(size=(40, 2)), random.choice(["a", "b", "c"], 40), random.integers(1, 4, size=40)
    likelihood = wf.Classification(class_weights=class_weights)
    found = likelihood.row_weights(as_rows((x, y, weights), likelihood))
    many = likelihood.row_weights(as_rows((x.repeat(weights, 0), y.repeat(weights)), likelihood))
    many = torch.ones(weights.sum(), dtype=torch.float64) if many is None else many
    added = torch.zeros(40, dtype=torch.float64).index_add(
        0, torch.arange(40).repeat_interleave(torch.tensor(weights)), many
    )
    torch.testing.assert_close(found / found.sum(), added / added.sum())
    assert float(found.mean()) == pytest.approx(1)


def test_a_posterior_knows_its_weights(problem, tmp_path):
    posterior = wf.marginalise(training(), (*problem, WEIGHTS), wf.recipes.deep_ensemble(2))
    posterior.save(tmp_path)
    again = wf.load(tmp_path, model=training().model)
    with pytest.raises(ValueError, match="not the data"):
        again.with_data(problem)
    grown, at_once = (p.extend(d, theta0=1) for p, d in ((again, (*problem, WEIGHTS)), (posterior, None)))
    assert torch.equal(means(grown, problem[0]), means(at_once, problem[0]))


BAD = [
    (WEIGHTS[:-1], "one number for each of the 90 rows, not shape"),
    (np.ones((90, 1)), "one number for each of the 90 rows"),
    (np.where(np.arange(90) == 7, -1.0, 1.0), "row 7 is -1"),
    (np.where(np.arange(90) == 7, np.nan, 1.0), "weights has 1 missing or infinite value, the first in row 7"),
    (np.zeros(90), "all weights are zero"),
    (np.full(90, "heavy"), "not numbers"),
]


@pytest.mark.parametrize(("weights", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_weights_are_named(problem, weights, message):
    with pytest.raises(ValueError, match=message):
        wf.marginalise(training(), (*problem, weights), [])


def test_a_fold_needs_rows_that_count(problem):
    with pytest.raises(ValueError, match="all rows weigh nothing"):
        wf.marginalise_folds(training(), (*problem, np.arange(90) > 50), [slice(0, 50)], [])


def test_they_may_be_a_column_of_a_frame(problem):
    frame = pd.DataFrame(problem[0]).assign(y=problem[1], w=WEIGHTS)
    found = wf.marginalise(training(), (frame[[0, 1, 2, 3]], frame["y"], frame["w"]), [])
    plain = wf.marginalise(training(), (*problem, WEIGHTS), [])
    assert torch.equal(means(found, problem[0]), means(plain, problem[0]))
