"""posterior.weighted: weights of members by rows that were not trained on, and what they do to all that follows."""

import math

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import training
from wherefrom.posterior.weighing import turns

NEW = np.random.default_rng(3).normal(size=(9, 4))


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(7)
    x = random.normal(size=(140, 4))
    y = 3.0 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * random.normal(size=140)
    return (x[:100], y[:100]), (x[100:], y[100:])


@pytest.fixture(scope="module")
def posterior(data):
    over = [wf.Hyperparameters(lr=[1e-5, 0.003, 0.03]), wf.InitialCondition(2)]
    return wf.marginalise(training(epochs=20, likelihood=wf.Regression(noise=0.5)), data[0], over, progress=False)


def log_score(found, rows):
    return -found.predict(rows[0]).nll(rows[1], "mixture")


def test_stacking_is_best_among_weights(posterior, data):
    stacked = posterior.weighted("stacking", data[1])
    best = log_score(stacked, data[1])
    random = np.random.default_rng(0)
    others = [posterior.weighted(random.dirichlet(np.ones(6))) for _ in range(20)]
    others += [posterior.weighted(np.eye(6)[k]) for k in range(6)]
    assert all(log_score(other, data[1]) <= best + 1e-7 for other in [posterior, *others])
    assert math.isclose(sum(stacked.weights), 1)
    assert all(c.algorithm.settings["lr"] > 1e-5 for c in stacked.mixture)  # those weigh nothing, and are left out


def test_greedy_takes_a_few(posterior, data):
    chosen = posterior.weighted("greedy", data[1], distinct=2)
    assert len(chosen) <= 2
    single = max(log_score(posterior.weighted(np.eye(6)[k]), data[1]) for k in range(6))
    assert log_score(chosen, data[1]) >= single


def test_weights_of_one_are_one_member(posterior):
    only = posterior.weighted([0, 0, 1, 0, 0, 0])
    alone = posterior.select(theta0=0, h=2)
    assert torch.allclose(only.predict(NEW).mean, alone.predict(NEW).mean)
    assert torch.allclose(only.one_shot(NEW).variance, alone.one_shot(NEW).variance)


def test_what_becomes_of_weights(posterior, tmp_path):
    weights = [0.1, 0.2, 0.3, 0.4, 0.0, 0.0]
    found = posterior.weighted(weights)
    assert np.allclose([row[3] for row in found.members().rows], weights[:4])
    part = found.select(theta0=1)
    kept = [w for c, w in zip(found.mixture, weights, strict=False) if c.run.labels["theta0"] == 1]
    assert np.allclose(part.weights, np.array(kept) / sum(kept))
    found.save(tmp_path)
    again = wf.load(tmp_path, model=training().model)
    assert again.weights == found.weights
    assert torch.equal(again.predict(NEW).mean, found.predict(NEW).mean)
    with pytest.raises(ValueError, match="extend the posterior first"):
        found.extend(theta0=1)
    own = turns(found, 10)
    assert [own.count(k) for k in range(4)] == [1, 2, 3, 4]
    assert repr(found) == "Posterior(4 weighted members, marginalises theta0, h)"
    assert len(found.sample(10)) == 10


def test_sources_of_weights_that_no_variable_tells(posterior, data):
    sources = posterior.weighted("stacking", data[1]).predict(NEW).sources()
    assert sources.names == ("theta0+h", "noise")


def test_noise_is_fitted_under_the_weights(data):
    over = [wf.Hyperparameters(lr=[1e-5, 0.03])]
    found = wf.marginalise(training(epochs=20, likelihood=wf.Regression(noise="fit")), data[0], over, progress=False)
    good = found.weighted([0, 1])
    assert torch.allclose(good.fitted_noise, found.select(h=1).fitted_noise, rtol=1e-4)
    assert good.fitted_noise < found.fitted_noise


def test_what_weights_cannot_be(posterior, data):
    with pytest.raises(ValueError, match="one weight for each of the 6 members"):
        posterior.weighted([1, 2])
    with pytest.raises(ValueError, match="none below zero"):
        posterior.weighted([1, 1, 1, 1, 1, -1])
    with pytest.raises(ValueError, match="needs rows that were not trained on"):
        posterior.weighted("stacking")
    with pytest.raises(ValueError, match="were trained on: give others"):
        posterior.weighted("stacking", data[0])
    with pytest.raises(ValueError, match="or a list of weights"):
        posterior.weighted("best", data[1])


@pytest.mark.slow
def test_hyper_deep_ensembles_search_choose_and_choose_again(data):
    base = training(epochs=12, likelihood=wf.Regression(noise=0.5))
    found = wf.recipes.hyper_deep_ensemble(
        base, *data, draws=5, chosen=2, inits=3, lr=[1e-5, 0.003, 0.03], dropout=[0.05, 0.2], progress=False
    )
    assert found.design.names == ("theta0+order", "h")
    assert 1 <= len(found) <= 2
    assert {c.algorithm.settings["lr"] for c in found.mixture} <= {0.003, 0.03}


@pytest.mark.slow
def test_the_file_mixes_by_weight(posterior, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    found = posterior.weighted([0.1, 0.2, 0.3, 0.4, 0.0, 0.0])
    found.export_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    mean, variance = session.run(None, {"x": NEW.astype(np.float32)})
    known = found.one_shot(NEW)
    assert np.allclose(mean, known.mean, rtol=1e-4)
    assert np.allclose(variance, known.variance, rtol=1e-4)


def test_weights_beside_those_of_variables(data):
    over = [wf.Families({"a": wf.MLP([4]), "b": wf.MLP([8])}, weights=[1, 3]), wf.InitialCondition(2)]
    found = wf.marginalise(training(epochs=4, likelihood=wf.Regression(noise="fit")), data[0], over, progress=False)
    some = found.weighted([0, 0, 2, 3])
    assert some.weights == (0.4, 0.6)
    assert torch.allclose(
        some.predict(NEW).mean,
        0.4 * found.select(F=1, theta0=0).predict(NEW).mean + 0.6 * found.select(F=1, theta0=1).predict(NEW).mean,
    )


def test_noise_is_not_that_of_other_weights(data, tmp_path):
    over = [wf.Hyperparameters(lr=[1e-5, 0.03])]
    found = wf.marginalise(training(epochs=8, likelihood=wf.Regression(noise="fit")), data[0], over, progress=False)
    found.save(tmp_path)
    with pytest.raises(ValueError, match="is not fitted"):
        wf.load(tmp_path, model=training().model).weighted([0, 1]).predict(NEW)


def test_parts_of_what_is_left(posterior):
    some = posterior.weighted([0, 1, 0, 0, 0, 1])  # theta0 0 with h 1, and theta0 1 with h 2
    assert len(some.marginalising()) == 1
    with pytest.raises(ValueError, match="its members weigh nothing"):
        some.select(theta0=0, h=2)
