"""Laws: one contract for all, and SWAG's moments against the snapshots' own."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from trajectories import MEMBERS, SIZE, collect, walk
from wherefrom.laws import SWAG, TRADI, Gaussian, Points, Rotated, Snapshots, delta, needs_statistics
from wherefrom.training.resumable import Resumable

LAWS = {
    "delta": lambda: [delta(walk(1)[0, k]) for k in range(MEMBERS)],
    "snapshots": lambda: collect(Snapshots(keep=6), walk(20)),
    "swag": lambda: collect(SWAG(rank=4), walk(20)),
    "swag diagonal": lambda: collect(SWAG(diagonal_only=True), walk(20)),
    "swag full": lambda: collect(SWAG(rank=20), walk(20)),
    "swag in half the bits": lambda: collect(SWAG(rank=4, deviations="bfloat16"), walk(20)),
    "tradi": lambda: collect(TRADI(), walk(20)),
    "rotated": lambda: [rotated(seed) for seed in range(MEMBERS)],
}


def rotated(seed: int) -> Rotated:
    """A law of 9 weights: a matrix of 2 x 3 with a bias, and one weight alone, in rotated coordinates."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(2, 9, generator=generator, dtype=torch.float64)
    turns = [torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0].flatten() for n in (2, 4)]
    return Rotated(numbers[0], numbers[1].exp(), torch.cat(turns), torch.tensor([[1, 7, 2, 3]]))


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_its_image_is_the_covariance_of_samples(make):
    """Every covariance of three sums of the weights, of 40,000 samples, within five standard errors."""
    for law in make():
        jacobian = torch.randn(3, len(law.mean), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        moved = (law.sample(40_000, torch.Generator().manual_seed(1)).double() - law.mean) @ jacobian.T
        products = moved.unsqueeze(-1) * moved.unsqueeze(-2)
        error = products.std(0) / 200
        assert ((products.mean(0) - law.image(jacobian.to(law.mean.dtype))).abs() <= 5 * error + 1e-9).all()


def test_a_rotated_law_is_a_matrix_of_independent_numbers_turned_on_both_sides():
    law = rotated(0)
    left, right = law.rotations[:4].reshape(2, 2), law.rotations[4:].reshape(4, 4)
    place = [1, 2, 3, 7, 4, 5, 6, 8]  # row by row, the bias last
    turn = torch.kron(left, right)
    dense = torch.zeros(9, 9, dtype=torch.float64)
    dense[0, 0] = law.scale[0] ** 2
    dense[np.ix_(place, place)] = turn @ torch.diag(law.scale[place].square()) @ turn.T
    torch.testing.assert_close(law.image(torch.eye(9, dtype=torch.float64)), dense)
    torch.testing.assert_close(law.variance, dense.diagonal())
    assert law.is_over(9)
    outside, before = torch.tensor([[1, 8, 2, 3]]), torch.tensor([[-1, 7, 2, 3]])
    broken = [(8, {}), (9, {"blocks": outside}), (9, {"blocks": before}), (9, {"rotations": law.rotations[1:]})]
    for size, change in broken:
        assert not replace(law, **change).is_over(size)


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_samples_have_the_laws_moments(make):
    """Mean and variance of 40,000 samples, within five standard errors in every coordinate."""
    for law in make():
        count = 40_000
        samples = law.sample(count, torch.Generator().manual_seed(1)).double()
        error = (law.variance / count).sqrt()
        assert ((samples.mean(0) - law.mean).abs() <= 5 * error + 1e-12).all()
        fourth = (samples - law.mean).pow(4).mean(0) - law.variance.square()
        assert ((samples.var(0) - law.variance).abs() <= 5 * (fourth.clamp_min(0) / count).sqrt() + 1e-12).all()


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_a_law_can_be_rebuilt_from_its_tensors(make):
    for law in make():
        again = type(law)(**law.tensors())
        a, b = (one.sample(3, torch.Generator().manual_seed(2)) for one in (law, again))
        assert torch.equal(a, b)
        assert law.is_random == (float(law.variance.max()) > 0)


SUMMARIES = {
    "snapshots": Snapshots(keep=6),
    "swag": SWAG(rank=4),
    "swag diagonal": SWAG(diagonal_only=True),
    "swag in half the bits": SWAG(rank=4, deviations="bfloat16"),
    "tradi": TRADI(),
}


@pytest.mark.parametrize("law", SUMMARIES.values(), ids=SUMMARIES)
@pytest.mark.parametrize("seen", [0, 1, 7, 18])
def test_the_state_that_a_collector_names_is_all_of_it(law, seen: int):
    """Taken over by another collector, member by member and in another order, it comes to the same laws."""
    snapshots, order = walk(20), [2, 0, 1]
    theta = snapshots[0]
    first, second = law.collector(theta.clone(), 20), law.collector(theta[order].clone(), 20)
    for one in snapshots[:seen]:
        first.collect(one)
    before, after = Resumable({"theta": theta}, None, first), Resumable({"theta": theta[order].clone()}, None, second)
    for k, member in enumerate(order):
        state = before.state(member)
        after.restore(k, {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in state.items()}, seen)
    for one in snapshots[seen:]:
        second.collect(one[order])
    expected = collect(law, snapshots)
    for k, found in enumerate(second.laws()):
        assert all(torch.equal(value, expected[order[k]].tensors()[name]) for name, value in found.tensors().items())


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_only_points_of_a_trajectory_carry_statistics(make):
    for law in make():
        assert needs_statistics(law) == isinstance(law, Gaussian | Rotated)


def test_full_rank_swag_is_the_snapshots_covariance():
    """With all snapshots kept: half the diagonal and half the covariance, dense, to rounding."""
    snapshots = walk(12)
    for k, law in enumerate(collect(SWAG(rank=12), snapshots)):
        covariance = torch.cov(snapshots[:, k].T)
        dense = torch.diag(law.diagonal) + law.factor.T @ law.factor
        torch.testing.assert_close(dense, covariance / 2 + torch.diag(covariance.diagonal()) / 2)
        torch.testing.assert_close(law.variance, covariance.diagonal())


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("rank", [0, 6, 30])
def test_samples_have_the_covariance_of_a_known_process(rank: int, stationary: bool):
    """An autoregression or a random walk; mean and every covariance of the samples, within five standard errors."""
    noise, count = walk(30), 40_000
    snapshots = [noise[0]]
    for shock in noise[1:]:
        snapshots.append(0.6 * snapshots[-1] + 0.8 * shock if stationary else snapshots[-1] + shock)
    snapshots = torch.stack(snapshots)
    law = collect(SWAG(rank), snapshots)[0]
    own = snapshots[:, 0]
    variance, deviations = torch.diag(own.var(0)), own[30 - rank :] - own.mean(0)
    expected = (variance + deviations.T @ deviations / (rank * 29 / 30)) / 2 if rank else variance
    samples = law.sample(count, torch.Generator().manual_seed(1))
    assert ((samples.mean(0) - own.mean(0)).abs() <= 5 * (expected.diagonal() / count).sqrt()).all()
    variances = torch.outer(expected.diagonal(), expected.diagonal()) + expected.square()  # of a Gaussian's covariances
    assert ((torch.cov(samples.T) - expected).abs() <= 5 * (variances / count).sqrt()).all()


@pytest.mark.parametrize("rank", [0, 5, 40])
def test_variance_along_a_random_walk(rank: int):
    """It is (n + 1) / 6 times that of a step where all snapshots count alike; the last ones lie further away."""
    count, size = 40, 20_000
    steps = torch.randn(count, 1, size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = collect(SWAG(rank), steps.cumsum(0))[0].variance
    step = torch.arange(1.0, count + 1, dtype=torch.float64)
    centre = torch.eye(count, dtype=torch.float64) - 1 / count
    squares = (centre @ torch.minimum(step[:, None], step) @ centre).diagonal()  # of the deviations, expected
    expected = squares.sum() / (count - 1)
    assert float(expected) == pytest.approx((count + 1) / 6)
    if rank:
        expected = (expected + squares[count - rank :].mean() * count / (count - 1)) / 2
    assert abs(float(found.mean() - expected)) < 4 * float(found.std()) / size**0.5


def test_the_diagonal_only_has_the_full_variance():
    snapshots = walk(12)
    for k, law in enumerate(collect(SWAG(diagonal_only=True), snapshots)):
        torch.testing.assert_close(law.diagonal, snapshots[:, k].var(0))
        assert law.factor.shape == (0, SIZE)


@pytest.mark.parametrize(("count", "rank"), [(12, 20), (12, 12), (12, 5), (200, 20), (2, 20), (40, 0)])
def test_sample_variance_equals_snapshot_variance_on_average(count: int, rank: int):
    """The ratio that neighbours get as 1.79. Averaged over many walks, within four standard errors of 1."""
    ratios = []
    for seed in range(60):
        snapshots = torch.randn(
            count, MEMBERS, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        laws = collect(SWAG(rank), snapshots)
        ratios += [float(law.variance.mean()) for law in laws]  # the walk's variance is 1
    ratios = np.array(ratios)
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / len(ratios) ** 0.5


def test_the_mean_does_not_count_the_start_twice():
    """At learning rate 0 every snapshot is the weights themselves, and so is the mean; nothing varies."""
    still = walk(1).expand(12, -1, -1)
    for k, law in enumerate(collect(SWAG(rank=5), still)):
        assert torch.equal(law.mean, still[0, k])
        assert float(law.variance.max()) == 0.0


def test_variance_survives_large_weights_in_single_precision():
    """E[theta^2] - E[theta]^2 would lose everything here; running deviations do not."""
    snapshots = (1000 + 0.001 * walk(50)).float()
    law = collect(SWAG(rank=0), snapshots)[0]
    torch.testing.assert_close(law.variance, snapshots[:, 0].double().var(0).float(), rtol=0.02, atol=0)


def test_one_z_moves_all_tensors_together():
    """Low-rank noise is shared: coordinates of a rank-one law are perfectly correlated."""
    direction = torch.tensor([1.0, 2.0, -3.0])
    law = Gaussian(torch.zeros(3), torch.zeros(3), direction[None])
    samples = law.sample(50, torch.Generator().manual_seed(0))
    torch.testing.assert_close(samples / direction, samples[:, :1].expand(-1, 3))


def test_rank_is_no_larger_than_the_snapshots():
    assert collect(SWAG(rank=20), walk(5))[0].factor.shape == (5, SIZE)


@pytest.mark.parametrize(("count", "keep", "expected"), [(10, 5, [1, 3, 5, 7, 9]), (3, 20, [0, 1, 2]), (7, 2, [3, 6])])
def test_snapshots_are_evenly_spread_and_end_at_the_last(count, keep, expected):
    snapshots = walk(count)
    law = collect(Snapshots(keep), snapshots)[0]
    assert isinstance(law, Points)
    assert torch.equal(law.points, snapshots[expected, 0])


REFUSED = [
    lambda: SWAG(rank=-1),
    lambda: SWAG(rank=1.5),
    lambda: SWAG(rank=5, diagonal_only=True),
    lambda: SWAG(deviations="float16"),
    lambda: Snapshots(keep=1),
    lambda: TRADI(memory=0),
    lambda: TRADI(memory=1.5),
    lambda: TRADI(memory=float("nan")),
]


@pytest.mark.parametrize("bad", REFUSED)
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        bad()


def test_a_trajectory_says_what_every_stop_would_have_left():
    points = torch.arange(10.0).unsqueeze(1)
    law = Points(points)
    assert torch.equal(law.stops(averages=False), points)
    assert law.stops(averages=True).flatten().tolist()[:4] == [0.0, 1.0, 1.5, 2.5]
