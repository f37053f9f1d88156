"""Algorithms that sample: their noise, the law that chains come to, and the package posteriors."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from wherefrom.training.cohort import Collection, Examples
from wherefrom.training.noise import Noise, normals

ROWS = 30
DATA = np.random.default_rng(5)
X = DATA.normal(size=(ROWS, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
Y = X @ [1.0, -0.5] + 0.3 * DATA.normal(size=ROWS) + 0.2
KEYS = np.array([3, 2**63 + 5], dtype=np.uint64)


# ---------------------------------------------------------------------- the noise


def test_numbers_are_normal_and_independent():
    """Moments, tails and correlations of 200,000 numbers, within five standard errors."""
    z = np.stack([normals(KEYS, step, 1001) for step in range(100)])  # (steps, streams, weights)
    flat, count = z.reshape(-1), z.size
    for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96)}.items():
        assert abs((flat**power).mean() - mean) < 5 * math.sqrt(variance / count)
    for limit in (1.0, 2.0, 3.0):
        beyond = math.erfc(limit / math.sqrt(2))
        assert abs((abs(flat) > limit).mean() - beyond) < 5 * math.sqrt(beyond / count)
    neighbours = [z[:, 0] * z[:, 1], z[1:] * z[:-1], z[..., 1:] * z[..., :-1], z[..., :500] * z[..., 501:]]
    for products in neighbours:  # streams, steps, weights, and the two numbers of a pair
        assert abs(products.mean()) < 5 / math.sqrt(products.size)


def test_a_number_depends_on_its_stream_and_step_alone():
    noise = Noise(KEYS.tolist(), torch.zeros(2, 7, dtype=torch.float64))
    assert np.array_equal(noise(4)[1].numpy(), normals(KEYS[1:], 4, 7)[0])
    assert not np.array_equal(noise(4)[0].numpy(), noise(5)[0].numpy())


# ---------------------------------------------------------------------- the law


def line() -> nn.Module:
    return nn.Linear(2, 1)


def chains(name: str, members: int, epochs: int, **settings):
    """Independent chains over a linear model, with all rows in each step; their last iterates, in double precision."""
    examples = Examples(torch.from_numpy(X), torch.from_numpy(Y)[:, None])
    algorithm = wf.Algorithm(name, batch_size=ROWS, **settings)
    cohort = oracle.cohort_of(line, examples, algorithm, members, epochs)
    return torch.stack([member.last for member in oracle.train(cohort, "torch")]).cpu()


def posterior(temperature: float, decay: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mode and curvature of the mean loss with its decay: exp(-rows (theta - mode) A (theta - mode) / 2 T)."""
    design = torch.from_numpy(np.c_[X, np.ones(ROWS)])
    curvature = 2 * design.T @ design / ROWS + decay * torch.eye(3).double()
    return torch.linalg.solve(curvature, 2 * design.T @ torch.from_numpy(Y) / ROWS), curvature


def assert_moments(samples: torch.Tensor, mean: torch.Tensor, covariance: torch.Tensor, count: float) -> None:
    """Compare every mean and covariance with those of a Gaussian, within five standard errors of so many samples."""
    assert ((samples.mean(0) - mean).abs() <= 5 * (covariance.diagonal() / count).sqrt()).all()
    variances = torch.outer(covariance.diagonal(), covariance.diagonal()) + covariance.square()
    assert ((torch.cov(samples.T) - covariance).abs() <= 5 * (variances / count).sqrt()).all()


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [None, 0.8])
def test_chains_come_to_the_posterior_of_a_linear_model(momentum):
    """800 independent chains. With all rows in a step they are autoregressions, whose law is known for any lr."""
    temperature, decay, lr = 0.18, 0.1, 0.05
    mode, curvature = posterior(temperature, decay)
    settings = {} if momentum is None else {"momentum": momentum}
    name, common = "sgld" if momentum is None else "sghmc", {"lr": lr, "temperature": temperature}
    samples = chains(name, 800, 200, weight_decay=decay, **common, **settings)
    exact = torch.linalg.inv(curvature) * temperature / ROWS
    # theta' = theta + v',  v' = m v - lr A (theta - mode) + noise; its covariance solves C = F C F^T + Q.
    kept, one = momentum or 0.0, torch.eye(3).double()
    move = torch.cat([torch.cat([one - lr * curvature, kept * one], 1), torch.cat([-lr * curvature, kept * one], 1)])
    shaken = 2 * (1 - kept) * lr * temperature / ROWS * torch.cat([torch.cat([one, one], 1), torch.cat([one, one], 1)])
    lifted = torch.eye(36).double() - torch.kron(move, move)
    stationary = torch.linalg.solve(lifted, shaken.flatten()).reshape(6, 6)[:3, :3]
    assert_moments(samples, mode, stationary, 800)
    torch.testing.assert_close(stationary, exact, rtol=0.15, atol=0.05 * float(exact.abs().max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [("sgld", {"lr": 0.02}), ("sghmc", {"lr": 0.01}), ("sgld", {"lr": 0.005, "preconditioned": True, "alpha": 0.999})],
    ids=["sgld", "sghmc", "preconditioned"],
)
def test_snapshots_of_one_chain_are_samples_of_the_posterior(name, settings):
    """Of each weight: mean and variance, within five standard errors of as many samples as are independent."""
    temperature = 0.18
    mode, curvature = posterior(temperature, 0.0)
    exact = torch.linalg.inv(curvature) * temperature / ROWS
    training = wf.Training(
        line, wf.Algorithm(name, batch_size=ROWS, temperature=temperature, **settings), 12_000, standardise=False
    )
    law = wf.Iterations(wf.Snapshots(2000), start=0.2)
    (points,) = wf.marginalise(training, (X, Y), [law], dtype=torch.float64).laws()
    for k in range(3):
        series = (points.points[:, k] - mode[k]) / exact[k, k].sqrt()
        count = independent(series.numpy())
        assert count > 50, "too few to tell anything"
        assert abs(float(series.mean())) < 5 / math.sqrt(count)
        bias = 0.1  # of order lr, and of the preconditioner's derivative
        assert abs(float(series.square().mean()) - 1) < bias + 5 * math.sqrt(2 / independent(series.numpy() ** 2))


def independent(series: np.ndarray) -> float:
    """The number of independent samples: n / (1 + 2 sum of autocorrelations), up to the first pair below zero."""
    centred = series - series.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * len(series))) ** 2
    correlation = np.fft.irfft(spectrum)[: len(series)] / (spectrum.sum() and (centred**2).sum())
    pairs = correlation[: len(series) // 2 * 2].reshape(-1, 2).sum(1)
    below = np.flatnonzero(pairs < 0)
    total = 2 * pairs[: below[0] if len(below) else len(pairs)].sum() - 1
    return min(len(series), len(series) / total)


@pytest.mark.parametrize("engine", ["torch", "native"], indirect=True)
def test_there_is_no_noise_while_a_cycle_explores(engine, problem):
    """Until the learning rate falls below its share, a chain is the trajectory that it is without any noise."""

    def trained(**settings):
        cycles = wf.schedules.Cyclical(cycles=2)
        algorithm = wf.Algorithm("sghmc", lr=0.05, batch_size=30, schedule=cycles, **settings)
        over = [wf.Iterations(wf.Snapshots(40), start=0.0)]
        posterior = wf.marginalise(wf.Training(wf.MLP([5]), algorithm, 40), problem, over)
        return posterior.laws()[0].points

    quiet, noisy = trained(temperature=0.0), trained(noise_below=0.5)
    assert torch.equal(noisy[:10], quiet[:10])  # the middle of a cycle of 20 epochs, where the cosine crosses zero
    assert not torch.allclose(noisy[11], quiet[11])


def test_cycles_and_initial_conditions_are_sources(problem):
    algorithm = wf.Algorithm("sghmc", lr=0.05, batch_size=30, temperature=0.1, schedule=wf.schedules.Cyclical(4))
    training = wf.Training(wf.MLP([5]), algorithm, 40)
    over = [*wf.recipes.deep_ensemble(3), *wf.recipes.cyclical_sg_mcmc(cycles=4, each=3)]
    posterior = wf.marginalise(training, problem, over)
    assert [len(law.points) for law in posterior.laws()] == [12] * 3
    assert posterior.predict(problem[0]).sources().names == ("theta0+order", "t")


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="momentum of sghmc must lie in"):
        wf.Algorithm("sghmc", lr=0.1, batch_size=10, momentum=1.0)
    with pytest.raises(ValueError, match="temperature must not be negative"):
        wf.Algorithm("sgld", lr=0.1, batch_size=10, temperature=-1.0)
    with pytest.raises(ValueError, match="preconditioned must be True or False"):
        wf.Algorithm("sgld", lr=0.1, batch_size=10, preconditioned=2)
    with pytest.raises(ValueError, match="sgld has no setting 'momentum'"):
        wf.Algorithm("sgld", lr=0.1, batch_size=10, momentum=0.9)


# ---------------------------------------------------------------------- the package posteriors


@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_steps_are_those_of_the_package_posteriors(name, monkeypatch):
    """Runs where posteriors is installed: each of 50 steps, all rows in it, with the same normal numbers.

    Its step h and friction a are, in ours, lr = h^2 and a momentum of 1 - h a. Theta moves by the new momentum here, as
    in Chen et al.'s experiments, and by the one before there: so its momentum is compared, from where ours stood.
    """
    package = pytest.importorskip("posteriors")
    temperature, decay, lr, momentum, steps = 0.18, 0.1, 0.02, 0.9, 50
    settings = {"momentum": momentum} if name == "sghmc" else {}
    algorithm = wf.Algorithm(name, lr=lr, batch_size=ROWS, temperature=temperature, weight_decay=decay, **settings)
    examples = Examples(torch.from_numpy(X), torch.from_numpy(Y)[:, None])
    collection = Collection(wf.Snapshots(steps), range(1, steps + 1))
    cohort = oracle.cohort_of(line, examples, algorithm, 1, steps, collection=collection)
    (ours,), (member,) = oracle.train(cohort, "torch"), cohort.members
    path = torch.cat([member.theta0[None], ours.law.points])

    def log_posterior(params, batch):
        weight, bias = params["0"], params["1"]
        loss = ((batch[0] @ weight + bias - batch[1]) ** 2).mean()
        return -loss - decay / 2 * (weight.square().sum() + bias.square().sum()), torch.empty(0)

    def parts(theta):
        return {"0": theta[:2].clone(), "1": theta[2:].clone()}

    key = np.array([oracle.streams.key(member.order, "noise")], dtype=np.uint64)
    drawn = iter([part for step in range(steps) for part in np.split(normals(key, step, 3)[0], [2])])
    monkeypatch.setattr(torch, "randn_like", lambda like, **_: torch.from_numpy(next(drawn)).reshape(like.shape))
    h = math.sqrt(lr)
    how = {"lr": lr} if name == "sgld" else {"lr": h, "alpha": (1 - momentum) / h}
    transform = getattr(package.sgmcmc, name).build(log_posterior, temperature=temperature / ROWS, **how)
    for k in range(steps):
        momenta = parts((path[k] - path[k - 1]) / h if k else torch.zeros(3).double())
        state = transform.init(parts(path[k]), **({} if name == "sgld" else {"momenta": momenta}))
        state, _ = transform.update(state, (torch.from_numpy(X), torch.from_numpy(Y)), inplace=False)
        theirs = torch.cat(list((state.params if name == "sgld" else state.momenta).values()))
        torch.testing.assert_close(path[k + 1], theirs if name == "sgld" else path[k] + h * theirs)
