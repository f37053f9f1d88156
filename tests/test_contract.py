"""What holds for every subset of the variables, of quantities and of classes: it runs, its labels are right, the order
in which they are named does not matter, and a further variable leaves the others' draws as they are."""

import itertools

import numpy as np
import pytest
import torch
from torch.distributions import Uniform

import wherefrom as wf
from conftest import mlp, training

VARIABLES = {
    "theta0": lambda: wf.InitialCondition(2),
    "h": lambda: wf.Hyperparameters(2, lr=Uniform(0.005, 0.02)),
    "t": lambda: wf.Iterations(wf.SWAG(3)),
    "F": lambda: wf.Dropout(),
}
SUBSETS = [subset for size in range(5) for subset in itertools.combinations(VARIABLES, size)]
NEW = np.random.default_rng(5).normal(size=(6, 4))


TRAININGS = {
    "regression": training(epochs=6),
    "classification": training(mlp(outputs=3), epochs=6, likelihood=wf.Classification()),
}


def fit(kind, data, over):
    return wf.marginalise(TRAININGS[kind], data, over, seed=4, progress=False)


@pytest.fixture(scope="module", params=list(TRAININGS))
def trained(request):
    """Every subset's posterior, by its names."""
    random = np.random.default_rng(7)
    x = random.normal(size=(60, 4))
    y = 3.0 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * random.normal(size=60)
    if request.param == "classification":
        y = np.array(["low", "middle", "high"])[np.digitize(y, [-1.5, 1.0])]
    posteriors = {names: fit(request.param, (x, y), [VARIABLES[name]() for name in names]) for names in SUBSETS}
    return posteriors | {"data": (x, y), "kind": request.param}


@pytest.mark.parametrize("method", ["monte_carlo", "one_shot"])
@pytest.mark.parametrize("names", SUBSETS, ids="+".join)
def test_it_predicts_and_tells_its_sources(trained, names, method):
    posterior = trained[names]
    drawn = [name for name in names if name in ("theta0", "h")]
    assert len(posterior) == 2 ** len(drawn)
    assert posterior.design.names == tuple(sorted(names, key=["theta0", "h", "t", "F"].index))
    labels = [component.run.labels for component in posterior.mixture]
    assert labels == [dict(zip(drawn, draws, strict=True)) for draws in itertools.product(*[range(2)] * len(drawn))]
    prediction = posterior.predict(NEW, 40, method=method)
    assert prediction.mean.shape == ((6,) if trained["kind"] == "regression" else (6, 3))
    assert (prediction.std > 0).all() == bool(names)
    if trained["kind"] == "classification":
        torch.testing.assert_close(prediction.probabilities.sum(1), torch.ones(6, dtype=torch.float64))
        assert set(prediction.predicted) <= {"low", "middle", "high"}
        assert (prediction.mutual_information > 0).all() == bool(names)
    sources = prediction.sources()
    assert {part for name in sources.names for part in name.split(" x ")} == set(names)
    if names:
        assert torch.allclose(sum(sources.values()), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("names", [subset for subset in SUBSETS if len(subset) > 1], ids="+".join)
def test_the_order_of_the_variables_does_not_matter(trained, names):
    over = [VARIABLES[name]() for name in reversed(names)]
    other = fit(trained["kind"], trained["data"], over)
    assert torch.equal(other.predict(NEW, 8).answers, trained[names].predict(NEW, 8).answers)


@pytest.mark.parametrize("names", [subset for subset in SUBSETS if len(subset) < 4], ids="+".join)
def test_a_further_variable_leaves_the_others_draws_as_they_are(trained, names):
    own = trained[names]
    for further in set(VARIABLES) - set(names):
        larger = trained[tuple(name for name in VARIABLES if name in {*names, further})]
        part = larger.marginalising(*names)
        for mine, theirs in zip(own.mixture, part.mixture, strict=True):
            assert mine.run.labels == theirs.run.labels
            assert mine.run.slots == theirs.run.slots
            if further == "h":  # its first draw is not the setting that stood there before
                continue
            assert mine.algorithm.settings == theirs.algorithm.settings
            # With others beside it in a cohort, a member may differ in its last bits.
            assert torch.allclose(mine.trained.last, theirs.trained.last, rtol=1e-3, atol=1e-5)
