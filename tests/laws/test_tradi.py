"""TRADI: against a Kalman filter written out, least squares and known drifts, and as part of a posterior."""

import math

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import training
from trajectories import MEMBERS, SIZE, collect, walk
from wherefrom.laws import SWAG, TRADI, Gaussian, Snapshots


def discount(memory: float, count: int) -> float:
    return math.exp(-1 / max(10, memory * count))


def kalman(seen: np.ndarray, discount: float) -> tuple[float, float]:
    """Mean and variance of one weight by textbook filters in double precision: predict, gain, correct.

    The state (mean, drift) has a covariance P, in units of the weight's variance, and so has the variance itself, in
    units of its observations'. Two iterates determine a line, the older one known less well by the discount.
    """
    moves, looks = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0])
    state, P = np.array([seen[1], seen[1] - seen[0]]), np.array([[1.0, 1.0], [1.0, 1.0 + 1 / discount]])
    variance, Q = 0.0, math.inf
    for theta in seen[2:]:
        state, P = moves @ state, moves @ P @ moves.T
        P += (1 / discount - 1) * P  # the state's noise
        innovation, spread = theta - looks @ state, looks @ P @ looks + 1.0  # 1: the observation's noise
        gain = P @ looks / spread
        state, P = state + gain * innovation, P - np.outer(gain, looks) @ P
        Q += (1 / discount - 1) * Q
        gain = 1.0 if math.isinf(Q) else Q / (Q + 1)
        variance, Q = variance + gain * (innovation**2 / spread - variance), 1.0 if math.isinf(Q) else (1 - gain) * Q
    return float(state[0]), variance


@pytest.mark.parametrize(("memory", "count"), [(0.25, 200), (0.25, 12), (1.0, 60), (0.05, 400), (0.25, 3)])
def test_it_is_a_kalman_filter(memory: float, count: int):
    snapshots = walk(count, drift=0.3)
    for k, law in enumerate(collect(TRADI(memory), snapshots)):
        oracle = [kalman(snapshots[:, k, i].numpy(), discount(memory, count)) for i in range(SIZE)]
        mean, variance = torch.tensor(oracle, dtype=torch.float64).T
        torch.testing.assert_close(law.mean, mean, rtol=1e-9, atol=0)
        torch.testing.assert_close(law.variance, variance, rtol=1e-7, atol=0)
        assert law.factor.shape == (0, SIZE)


def line(count: int, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the iterates and the hat matrix of a weighted line through them."""
    weights = discount ** np.arange(count - 1, -1, -1.0)
    x = np.stack([np.ones(count), np.arange(count)], axis=1)
    return weights, x @ np.linalg.solve(x.T @ (weights[:, None] * x), x.T * weights)


def test_it_is_a_line_fitted_with_fading_weights():
    count = 120
    snapshots = walk(count, drift=-0.2)
    weights, hat = line(count, discount(0.25, count))
    for k, law in enumerate(collect(TRADI(), snapshots)):
        own = snapshots[:, k].numpy()
        fitted = hat @ own
        np.testing.assert_allclose(law.mean, fitted[-1], rtol=1e-9)
        squares = weights @ (own - fitted) ** 2
        np.testing.assert_allclose(law.variance, squares / weights[2:].sum(), rtol=1e-9)


def test_it_follows_a_drift_and_finds_the_noise():
    """Mean within its standard error, and the noise's variance, for 20,000 weights, each with a drift of its own."""
    count, size = 400, 20_000
    generator = torch.Generator().manual_seed(5)
    drift, noise = torch.randn(size, generator=generator).double(), torch.rand(size, generator=generator).double() + 0.1
    shocks = noise * torch.randn(count, size, generator=generator).double()
    truth = drift * torch.arange(count)[:, None]
    law = collect(TRADI(), (truth + shocks).unsqueeze(1))[0]
    weights, hat = line(count, discount(0.25, count))
    error = float(np.sqrt((hat[-1] ** 2).sum()))  # of the mean, for a noise of one
    scores = (law.mean - truth[-1]) / (error * noise)
    assert abs(float(scores.mean())) < 4 / size**0.5
    assert abs(float(scores.square().mean()) - 1) < 4 * (2 / size) ** 0.5
    # A filter whose mean may bend allows for a little more than this line takes up of the noise.
    expected = float((weights @ (np.eye(count) - hat) ** 2).sum() / weights[2:].sum())
    assert abs(expected - 1) < 0.01
    ratios = law.variance / noise.square()
    assert abs(float(ratios.mean()) - expected) < 4 * float(ratios.std()) / size**0.5


def test_where_nothing_drifts_it_agrees_with_swag():
    snapshots = torch.randn(4000, 1, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tracked, swag = (collect(law, snapshots)[0] for law in (TRADI(), SWAG(diagonal_only=True)))
    ratio = tracked.variance / swag.variance
    assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / 500**0.5
    assert float(ratio.std()) < 0.05


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**13])
def test_rescaled_weights_have_a_rescaled_law(scale: float):
    """To the last bit, for powers of two: no number in the filter has a unit."""
    snapshots = walk(50).float()
    scales = torch.tensor([1.0, scale]).repeat(SIZE)[:SIZE]  # some weights, and not their neighbours
    for law, scaled in zip(collect(TRADI(), snapshots), collect(TRADI(), snapshots * scales), strict=True):
        assert torch.equal(law.mean * scales, scaled.mean)
        assert torch.equal(law.variance * scales**2, scaled.variance)


def test_it_forgets():
    """Iterates of long ago, ten memories back, are gone: e^-10 is left of them."""
    snapshots = walk(1000)
    other = snapshots.clone()
    other[:300] += torch.linspace(3, 0, 300, dtype=torch.float64)[:, None, None]
    for a, b in zip(collect(TRADI(0.07), snapshots), collect(TRADI(0.07), other), strict=True):
        torch.testing.assert_close(a.mean, b.mean, rtol=1e-3, atol=0)
        torch.testing.assert_close(a.variance, b.variance, rtol=1e-2, atol=0)


def test_weights_that_stand_still_have_no_variance():
    still = walk(1).expand(12, -1, -1)
    for k, law in enumerate(collect(TRADI(), still)):
        assert torch.equal(law.mean, still[0, k])
        assert float(law.variance.max()) == 0.0


def test_a_long_way_in_single_precision():
    """Ten thousand iterates of weights around 1000 that scatter by 0.01 and drift: what double precision finds."""
    snapshots = (1000 + 0.002 * walk(10_000, drift=0.01)).float()
    for single, double in zip(collect(TRADI(), snapshots), collect(TRADI(), snapshots.double()), strict=True):
        assert single.mean.dtype == torch.float32
        torch.testing.assert_close(single.variance.double(), double.variance, rtol=1e-4, atol=0)
        assert ((single.mean - double.mean).abs() < 1e-4).all()  # the spacing of single precision at 1000 is 6e-5


def test_members_are_tracked_as_if_alone():
    snapshots = walk(40)
    for k, law in enumerate(collect(TRADI(), snapshots)):
        alone = collect(TRADI(), snapshots[:, k : k + 1])[0]
        assert torch.equal(law.mean, alone.mean)
        assert torch.equal(law.variance, alone.variance)


def test_memory_is_four_numbers_a_parameter():
    collector = TRADI().collector(walk(1)[0], 100)
    held = sum(t.numel() for t in vars(collector).values() if isinstance(t, torch.Tensor))
    assert held == 4 * MEMBERS * SIZE


def test_it_keeps_no_hold_of_what_training_moves():
    theta = walk(1)[0].clone()
    collector = TRADI().collector(theta, 3)
    for iterate in (theta, theta + 1, theta + 2):
        moving = iterate.clone()
        collector.collect(moving)
        moving.zero_()
    torch.testing.assert_close(collector.laws()[1].mean, theta[1] + 2)


def test_marginalise_tracks_every_step_of_the_second_half(problem):
    over = [wf.InitialCondition(2), wf.Iterations(TRADI())]
    found = wf.marginalise(training(), problem, over)
    every_step = wf.marginalise(
        training(), problem, [over[0], wf.Iterations(Snapshots(keep=10**6), start=0.5, every=1)], engine="torch"
    )
    for law, seen in zip(found.laws(), every_step.laws(), strict=True):
        assert isinstance(law, Gaussian)
        assert len(seen.points) == 3 * 4  # half of six epochs, four steps each
        oracle = collect(TRADI(), seen.points.unsqueeze(1))[0]
        torch.testing.assert_close(law.mean, oracle.mean)
        torch.testing.assert_close(law.variance, oracle.variance)


def test_samples_and_one_shot_agree(problem):
    x, y = problem
    found = wf.marginalise(training(epochs=20), problem, [wf.InitialCondition(2), wf.Iterations(TRADI())])
    sampled, moments = found.predict(x, samples=2000), found.one_shot(x)
    spread = np.asarray(sampled.std)
    assert (spread > 0).all()
    # Six standard errors of the mean of 4,000 samples; the variance holds one-shot's own approximations as well.
    assert (np.abs(np.asarray(sampled.mean) - np.asarray(moments.mean)) < 6 * spread / 4000**0.5).all()
    np.testing.assert_allclose(moments.std, spread, rtol=0.1)
    assert np.isfinite(sampled.nll(y)).all()


def test_a_saved_posterior_predicts_the_same(problem, tmp_path):
    x, _ = problem
    known = training()
    found = wf.marginalise(known, problem, [wf.InitialCondition(2), wf.Iterations(TRADI(memory=0.5), start=1)])
    found.save(tmp_path)
    again = wf.load(tmp_path, model=known.model)
    assert again.design.iterations == found.design.iterations
    assert torch.equal(again.predict(x, samples=10).answers, found.predict(x, samples=10).answers)
    assert torch.equal(again.one_shot(x).mean, found.one_shot(x).mean)
