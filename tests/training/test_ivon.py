"""IVON: the nearest Gaussian with independent weights, the law that it is, and the published package."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from conftest import training
from wherefrom.laws import Gaussian
from wherefrom.training.cohort import Examples
from wherefrom.training.noise import normals

ROWS = 30
DATA = np.random.default_rng(5)
X = DATA.normal(size=(ROWS, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
Y = X @ [1.0, -0.5] + 0.3 * DATA.normal(size=ROWS) + 0.2
HOW = {"lr": 0.05, "hess_init": 0.5, "beta2": 0.999, "temperature": 0.18, "weight_decay": 0.1}


def line() -> nn.Module:
    return nn.Linear(2, 1)


@pytest.mark.slow
def test_it_learns_the_nearest_gaussian_of_a_linear_model():
    """The posterior's mean, and one over the diagonal of its precision: the mean over 20 members, within 5 errors."""
    setup = wf.Training(line, wf.Algorithm("ivon", batch_size=ROWS, **HOW), 9000, standardise=False)
    over = [wf.Jointly(wf.InitialCondition(), wf.BatchOrder(), draws=20), wf.Iterations(wf.Variational())]
    laws = wf.marginalise(setup, (X, Y), over, dtype=torch.float64).laws()
    design = torch.from_numpy(np.c_[X, np.ones(ROWS)])
    curvature = 2 * design.T @ design / ROWS + HOW["weight_decay"] * torch.eye(3).double()
    mode = torch.linalg.solve(curvature, 2 * design.T @ torch.from_numpy(Y) / ROWS)
    precision = curvature.diagonal() * ROWS / HOW["temperature"]
    means, found = torch.stack([law.mean for law in laws]), torch.stack([1 / law.variance for law in laws])
    for values, expected in ((means, mode), (found, precision)):
        assert ((values.mean(0) - expected).abs() <= 5 * values.std(0) / math.sqrt(20)).all()
    assert float((found.std(0) / precision).max()) < 0.2, "too noisy to tell anything"


def test_its_variance_is_the_law(problem):
    algorithm = wf.Algorithm("ivon", lr=0.05, batch_size=30, temperature=0.1)
    setup = training(lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1)))
    setup = wf.Training(setup.model, algorithm, 5)
    posterior = wf.marginalise(setup, problem, [wf.InitialCondition(2), *wf.recipes.variational()])
    layout = posterior.networks[""].layout
    for law, member in zip(posterior.laws(), posterior.mixture, strict=True):
        assert isinstance(law, Gaussian)
        assert torch.equal(law.mean, member.trained.last[: layout.varying_size].cpu())
        assert float(law.variance[layout.trained_size :].max()) == 0.0
        start = 0.1 / (90 * (1.0 + 1e-4))
        assert ((law.variance[: layout.trained_size] / start - 1).abs() < 0.1).all()  # it has hardly moved yet
    assert posterior.predict(problem[0], samples=10).sources().names == ("theta0", "t")


def test_both_engines_learn_the_same_law(problem):
    algorithm = wf.Algorithm("ivon", lr=0.05, batch_size=30, temperature=0.1, beta2=0.9)
    setup, over = wf.Training(wf.MLP([5]), algorithm, 8), [wf.InitialCondition(2), *wf.recipes.variational()]
    torchs, natives = (wf.marginalise(setup, problem, over, engine=name).laws() for name in ("torch", "native"))
    start = 0.1 / (90 * (1.0 + 1e-4))
    for one, other in zip(torchs, natives, strict=True):
        assert float((one.variance / start - 1).abs().max()) > 0.5, "nothing was learnt, so nothing is tested"
        torch.testing.assert_close(other.mean, one.mean, rtol=0, atol=1e-5)
        torch.testing.assert_close(other.variance, one.variance, rtol=1e-4, atol=0)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_law_goes_on_after_an_interruption(problem, tmp_path, engine):
    algorithm = wf.Algorithm("ivon", lr=0.05, batch_size=30, temperature=0.1, beta2=0.99)
    setup, over = wf.Training(wf.MLP([5]), algorithm, 8), [wf.InitialCondition(2), *wf.recipes.variational()]
    expected, left = wf.marginalise(setup, problem, over, engine=engine), [9]

    class Interrupted(Exception):
        pass

    def report(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            raise Interrupted

    with pytest.raises(Interrupted):
        wf.marginalise(setup, problem, over, checkpoints=tmp_path, progress=report, workers=1, engine=engine)
    resumed = wf.marginalise(setup, problem, over, checkpoints=tmp_path, workers=1, engine=engine)
    for one, other in zip(resumed.laws(), expected.laws(), strict=True):
        assert torch.equal(one.mean, other.mean)
        assert torch.equal(one.variance, other.variance)


def test_bad_settings_are_refused():
    for name in ("temperature", "hess_init"):
        with pytest.raises(ValueError, match="must be above zero"):
            wf.Algorithm("ivon", lr=0.1, batch_size=10, **{name: 0.0})


@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_steps_are_those_of_the_published_package(radius, monkeypatch):
    """Runs where ivon-opt is installed: 200 steps of a small network on the same rows, with the same normal numbers."""
    package = pytest.importorskip("ivon")

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))

    examples = Examples(torch.from_numpy(X), torch.from_numpy(Y)[:, None])
    algorithm = wf.Algorithm("ivon", batch_size=ROWS, clip_radius=radius, **HOW)
    cohort = oracle.cohort_of(model, examples, algorithm, 1, 200)
    (member,), (ours,) = cohort.members, oracle.train(cohort, "torch")
    network = model().double()
    network.load_state_dict(cohort.network.layout.views(member.theta0))
    theirs = package.IVON(
        network.parameters(),
        lr=HOW["lr"],
        ess=ROWS / HOW["temperature"],
        hess_init=HOW["hess_init"],
        beta2=HOW["beta2"],
        weight_decay=HOW["weight_decay"],
        clip_radius=radius or math.inf,
    )
    key = np.array([oracle.streams.key(member.order, "noise")], dtype=np.uint64)
    drawn = iter([torch.from_numpy(normals(key, step, len(member.theta0))[0]) for step in range(200)])
    monkeypatch.setattr(torch, "randn", lambda *_, **__: next(drawn))
    for _ in range(200):
        with theirs.sampled_params(train=True):
            theirs.zero_grad()
            ((network(examples.x) - examples.y) ** 2).mean().backward()
        theirs.step()
    expected = torch.cat([p.detach().flatten() for p in network.parameters()])
    assert (expected - member.theta0).abs().max() > 0.05, "nothing was learnt, so nothing is tested"
    torch.testing.assert_close(ours.last, expected, rtol=1e-8, atol=1e-9)
