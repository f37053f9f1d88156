"""Weighted mixtures: a member that weighs k times as much is one that is there k times, in everything that is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import made_predictions
from made_predictions import changed
from wherefrom.likelihoods.regression import most_likely_noise
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive import mixture as module
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.weights import stacking

ROWS, MEMBERS, SAMPLES, OUTPUTS = 7, 4, 5, 2
TIMES = (3, 1, 0, 2)
KINDS = ("points", "noise", "noise of each", "noise of each, one for all members", "one-shot", "one-shot with noise")
READINGS = ("gaussian", "mixture")


def predicted(kind: str, seed: int = 0, outputs: int = OUTPUTS, members: int = MEMBERS) -> Prediction:
    generator = torch.Generator().manual_seed(seed)
    samples = 1 if kind.startswith("one-shot") else SAMPLES

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    answers = (normal(members, 1, 1, outputs) + normal(members, samples, ROWS, outputs)).float()
    noise = {
        "noise": 0.1 + torch.rand(outputs, generator=generator, dtype=torch.float64),
        "noise of each": 0.1 + normal(members, samples, ROWS, outputs).square(),
        "noise of each, one for all members": 0.1 + normal(1, samples, ROWS, outputs).square(),
        "one-shot with noise": 0.1 + normal(members, 1, ROWS, outputs).square(),
    }.get(kind)
    spread = 0.05 + normal(members, 1, ROWS, outputs).square() if kind.startswith("one-shot") else None
    return made_predictions.quantity(
        answers,
        noise,
        torch.tensor([20.0, -3.0])[:outputs].double(),
        torch.tensor([3.0, 0.5])[:outputs].double(),
        outputs == 1,
        Plan(samples, vary_theta=samples > 1, vary_mask=False),
        (CrossedAxis("theta0", members, False),),
        None,
        spread=spread,
        covariance=None if spread is None else "diagonal",
    )


def taking(of: Prediction, members: list[int]) -> Prediction:
    """The same prediction with these of its members, each as often as it is named."""

    def own(values):
        return values[members] if values is not None and values.ndim == 4 and len(values) > 1 else values

    axes = (CrossedAxis("theta0", len(members), False),)
    return changed(
        of, answers=own(of.answers), noise=own(of.mixture.noise), spread=own(of.mixture.spread), axes=axes, weights=None
    )


def weighing(of: Prediction, *weights: float) -> Prediction:
    return changed(of, weights=torch.tensor(weights, dtype=torch.float64) / math.fsum(weights))


def truth(seed: int = 1, outputs: int = OUTPUTS) -> torch.Tensor:
    y = torch.randn(ROWS, outputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (torch.tensor([20.0, -3.0]) + 2 * torch.tensor([3.0, 0.5]) * y)[:, :outputs]


def everything(said: Prediction, y: torch.Tensor, quantiles: bool = True) -> dict[str, torch.Tensor]:
    """All that a prediction can say; the quantiles of points apart, which are not of the distribution alone."""
    found = {name: getattr(said, name) for name in ("mean", "variance", "std", "noise_variance")}
    found["rmse"] = said.rmse(y)
    for reading in READINGS:
        of_points = reading == "mixture" and said.mixture.noise is None and said.mixture.spread is None
        for level in (0.3, 0.9):
            if quantiles or not of_points:
                found[f"{reading} interval {level}"] = torch.stack(said.interval(level, reading))
                found[f"{reading} coverage {level}"] = said.coverage(y, level, reading)
        found[f"{reading} cdf"] = said.cdf(y, reading)
        found[f"{reading} crps"] = said.crps(y, reading)
        found[f"{reading} crps by row"] = said.crps(y, reading, by_row=True)
        if not of_points:
            found[f"{reading} nll"] = said.nll(y, reading)
            found[f"{reading} nll by row"] = said.nll(y, reading, by_row=True)
    return {name: torch.as_tensor(value, dtype=torch.float64) for name, value in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_equal_weights_change_nothing_at_all(kind):
    plain = predicted(kind)
    weighted = weighing(plain, *[1.0] * MEMBERS)
    assert weighted.weights is not None
    assert repr(weighted) == repr(plain)
    expected = everything(plain, truth())
    for name, found in everything(weighted, truth()).items():
        assert torch.equal(found, expected[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_weigh_nothing_are_left_out(kind):
    """Whatever they answer, and to the last bit."""
    plain = predicted(kind)
    spoilt = changed(plain, answers=plain.answers.index_fill(0, torch.tensor([0, 2]), math.nan))
    for weights in ((0, 1, 0, 1), (0, 3, 0, 1)):
        kept = [weight for weight in weights if weight]
        expected = everything(weighing(taking(plain, [1, 3]), *kept), truth())
        for name, found in everything(weighing(spoilt, *weights), truth()).items():
            assert torch.equal(found, expected[name]), name
    only = weighing(spoilt, 0, 0, 0, 1)
    alone = everything(taking(plain, [3]), truth())
    assert all(torch.equal(found, alone[name]) for name, found in everything(only, truth()).items())


@pytest.mark.parametrize("outputs", [1, OUTPUTS])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_multiples_are_repetitions(kind, outputs):
    plain = predicted(kind, outputs=outputs)
    y = truth(outputs=outputs)
    y = y[:, 0] if outputs == 1 else y
    repeated = taking(plain, [member for member, times in enumerate(TIMES) for _ in range(times)])
    expected = everything(repeated, y, quantiles=False)
    found = everything(weighing(plain, *TIMES), y, quantiles=False)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_rows_change_nothing(kind, monkeypatch):
    weighted = weighing(predicted(kind), 5, 2, 0, 1)
    whole = everything(weighted, truth())
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 3 * MEMBERS * SAMPLES)
    for name, found in everything(changed(weighted), truth()).items():
        torch.testing.assert_close(found, whole[name], rtol=1e-12, atol=1e-12, msg=name)


def test_quantiles_of_weighted_points_average_the_inverse_distribution_function():
    """Over a window as wide as a point would be were all equal; by brute force, on a fine grid of probabilities."""
    weighted = weighing(predicted("points"), *TIMES)
    points = taking(weighted, [0, 1, 3]).answers.double().flatten(0, 1).numpy()
    weights = np.repeat(np.array([3, 1, 2]) / 6, SAMPLES) / SAMPLES
    count, fine = len(points), 200_000
    for probability in (0.03, 0.25, 0.5, 0.9):
        low = probability * (1 - 1 / count)
        u = low + (np.arange(fine) + 0.5) / fine / count
        for row in range(ROWS):
            for output in range(OUTPUTS):
                order = np.argsort(points[:, row, output])
                place = np.searchsorted(np.cumsum(weights[order]), u)
                expected = points[order, row, output][np.minimum(place, count - 1)].mean()
                found = weighted.quantile(probability, "mixture")[row, output]
                expected = weighted.location[output] + weighted.scale[output] * expected
                assert float(found) == pytest.approx(float(expected), abs=1e-4)


def test_quantiles_of_weighted_points_lie_where_repeated_ones_do():
    """Not exactly: those of (a, b) and of (a, a, b, b) differ too. With many points, the difference is small."""
    answers = torch.randn(4, 400, 3, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    axes = (CrossedAxis("theta0", 4, False),)
    plain = made_predictions.quantity(answers, None, 0 * one, one, True, Plan(400, True, False), axes, None)
    repeated = taking(plain, [0, 0, 0, 1, 3, 3])
    for probability in (0.025, 0.4, 0.8, 0.975):
        found = weighing(plain, *TIMES).quantile(probability, "mixture")
        # Within the neighbours of the order statistic: a few of 1,200 points.
        low, high = (repeated.quantile(probability + step, "mixture") for step in (-0.003, 0.003))
        assert bool(((found >= low) & (found <= high)).all())


def test_the_empirical_distribution_agrees_with_its_quantiles():
    weighted = weighing(predicted("points"), 0.05, 0.6, 0.25, 0.1)
    for probability in (0.2, 0.5, 0.8):
        below = weighted.cdf(weighted.quantile(probability, "mixture"), "mixture")
        assert bool(((below - probability).abs() <= 0.6 / SAMPLES + 1 / (MEMBERS * SAMPLES)).all())


def test_weights_are_those_of_the_axes_where_none_are_given():
    plain = predicted("noise")
    axes = (CrossedAxis("theta0", 2, False), CrossedAxis("h", 2, True, (0.9, 0.1)))
    crossed = changed(plain, axes=axes)
    assert crossed.weights.tolist() == pytest.approx([0.45, 0.05, 0.45, 0.05])
    torch.testing.assert_close(crossed.mean, weighing(plain, 9, 1, 9, 1).mean)
    assert changed(plain, axes=(CrossedAxis("h", 4, True),)).weights is None
    given = changed(crossed, weights=torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64))
    assert given.weights.tolist() == [0.4, 0.3, 0.2, 0.1]
    with pytest.raises(ValueError, match=r"there are 3 members, but weights of \(4,\) \(these diverged: h 1\)"):
        changed(taking(plain, [0, 1, 2]), axes=axes, missing="these diverged: h 1")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.5], r"there are 4 members, but weights of \(2,\)"),
        ([0.5, 0.5, 0.5, -0.5], "not negative"),
        ([0.5, 0.5, 0.5, 0.5], "add up to 1"),
        ([0.5, math.nan, 0.25, 0.25], "not negative"),
    ],
)
def test_wrong_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        changed(predicted("noise"), weights=torch.tensor(weights))


def test_it_says_that_it_is_weighted():
    said = repr(weighing(predicted("noise"), 3, 1, 0, 2))
    assert said == "Prediction(7 rows, 2 outputs, 4 weighted members x 5 samples)"
    assert "4 weighted members, one-shot" in repr(weighing(predicted("one-shot"), 1, 1, 0, 0))


def test_samples_are_all_answers_whatever_they_weigh():
    plain = predicted("points")
    assert torch.equal(weighing(plain, 1, 0, 0, 5).samples, plain.samples)


# ---------------------------------------------------------------------- noise that is fitted to a weighted mixture


def test_the_most_likely_noise_of_repeated_rows_is_that_of_weighted_ones():
    squares = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64).square()
    weights = torch.tensor([1, 3, 0, 2, 1])
    expected = most_likely_noise(squares.repeat_interleave(weights, 1))
    torch.testing.assert_close(most_likely_noise(squares, None, weights.double()), expected, rtol=1e-6, atol=0)


def test_the_most_likely_noise_of_repeated_answers_is_that_of_weighted_ones():
    generator = torch.Generator().manual_seed(3)
    answers, y = (torch.randn(count, 30, 2, generator=generator, dtype=torch.float64) for count in (4, 1))
    squares = (answers - y).square()
    repeated = squares[[0, 0, 0, 1, 3, 3]]
    weights = torch.tensor([3.0, 1.0, 0.0, 2.0], dtype=torch.float64)
    expected = most_likely_noise(repeated)
    torch.testing.assert_close(most_likely_noise(squares, weights / 6), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(most_likely_noise(squares, 5 * weights), expected, rtol=1e-6, atol=0)
    assert not torch.allclose(most_likely_noise(squares), expected, rtol=0.01)
    spoilt = squares.index_fill(0, torch.tensor([2]), math.nan)
    assert torch.equal(most_likely_noise(spoilt, weights / 6), most_likely_noise(squares, weights / 6))
    assert torch.equal(most_likely_noise(squares, torch.full((4,), 0.25).double()), most_likely_noise(squares))


def test_the_most_likely_noise_of_a_weighted_mixture_is_the_best_of_a_fine_grid():
    generator = torch.Generator().manual_seed(4)
    answers, y = (torch.randn(count, 30, 1, generator=generator, dtype=torch.float64) for count in (7, 1))
    squares, weights = (answers - y).square(), torch.rand(7, generator=generator, dtype=torch.float64)
    grid = torch.logspace(-4, 1, 4000, dtype=torch.float64)
    logs = -0.5 * (squares[..., 0] / grid[:, None, None] + grid.log()[:, None, None])  # (grid, answers, rows)
    likelihood = torch.logsumexp(logs + weights.log()[:, None], 1).sum(1)
    assert float(most_likely_noise(squares, weights)) == pytest.approx(float(grid[likelihood.argmax()]), rel=0.01)


# ---------------------------------------------------------------------- members by themselves


@pytest.mark.parametrize("kind", KINDS)
def test_log_densities_of_members_are_their_own_nll(kind):
    plain = predicted(kind)
    reading = "gaussian" if kind == "points" else "mixture"
    found = weighing(plain, 1, 0, 2, 3).member_log_densities(truth())  # whatever they weigh
    assert found.shape == (MEMBERS, ROWS)
    for member in range(MEMBERS):
        alone = taking(plain, [member])
        torch.testing.assert_close(-found[member], alone.nll(truth(), reading, by_row=True), rtol=1e-12, atol=1e-12)
        assert -float(found[member].mean()) == pytest.approx(alone.nll(truth(), reading))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_log_densities_of_members_make_up_the_mixtures(kind):
    """Output by output, as the mixture is scored."""
    weighted = weighing(predicted(kind), 1, 2, 0, 5)
    each = weighted.member_log_densities(truth(), by_output=True)
    assert each.shape == (MEMBERS, ROWS, OUTPUTS)
    torch.testing.assert_close(each.sum(-1), weighted.member_log_densities(truth()))
    mixed = torch.logsumexp(each + weighted.weights.log()[:, None, None], 0).sum(-1)
    torch.testing.assert_close(-mixed, weighted.nll(truth(), "mixture", by_row=True))


def test_log_densities_of_members_in_blocks_of_rows(monkeypatch):
    whole = predicted("noise of each").member_log_densities(truth())
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 2 * MEMBERS * SAMPLES)
    torch.testing.assert_close(predicted("noise of each").member_log_densities(truth()), whole)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_stacked_members_score_better_than_equal_ones_and_than_each(kind):
    plain = predicted(kind)
    each = plain.member_log_densities(truth(), by_output=True).flatten(1)
    stacked = changed(plain, weights=stacking(each)).nll(truth(), "mixture")
    assert stacked <= plain.nll(truth(), "mixture") + 1e-7
    for member in range(MEMBERS):
        assert stacked <= taking(plain, [member]).nll(truth(), "mixture") + 1e-7


def test_a_point_has_no_density():
    one_sample = changed(predicted("points"), answers=predicted("points").answers[:, :1])
    with pytest.raises(ValueError, match=r"4 of 4 members have no variance .* give the likelihood a noise"):
        one_sample.member_log_densities(truth())
    stuck = predicted("points")
    stuck.answers[2, :, 3] = 0.5
    with pytest.raises(ValueError, match="1 of 4 members have no variance at some rows"):
        stuck.member_log_densities(truth())
    sure = predicted("one-shot")
    sure = changed(sure, spread=torch.zeros_like(sure.mixture.spread))
    with pytest.raises(ValueError, match="4 of 4 members have no variance"):
        sure.member_log_densities(truth())
    with pytest.raises(ValueError, match="y has shape"):
        predicted("noise").member_log_densities([1.0, 2.0])
