"""Intervals of few members hold another draw of the network as often as they say, and noise leaves them as they are."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import made_predictions
import wherefrom as wf
from conftest import training
from wherefrom.predictive import few_members
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.student import StudentT

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from few_members import LIKELIHOODS, coverage

ONE = torch.ones(1, dtype=torch.float64)
ROWS = 4000


def ensemble(draws, noise=0.0, samples=1, seed=0, axes=None, **others):
    """Members of crossed designs, one at each row, and another draw of each with noise: (prediction, y)."""
    generator = np.random.default_rng(seed)

    def drawn(shape, count):
        values = np.zeros((*shape, count, ROWS))
        for i, n in enumerate(shape):
            values = values + generator.normal(size=[n if k == i else 1 for k in range(len(shape))] + [1, ROWS])
        values = values + (generator.normal(size=(*shape, 1, ROWS)) if len(shape) > 1 else 0)
        return values + (generator.normal(size=(*shape, count, ROWS)) if samples > 1 else 0)

    y = drawn((1,) * len(draws), 1).reshape(-1) + math.sqrt(noise) * generator.normal(size=ROWS)
    answers = torch.from_numpy(drawn(draws, samples).reshape(-1, samples, ROWS, 1))
    axes = tuple(CrossedAxis("ab"[i], n, False) for i, n in enumerate(draws)) if axes is None else axes
    plan = Plan(samples, samples > 1, False)
    prediction = made_predictions.quantity(
        answers, noise * ONE if noise else None, 0 * ONE, ONE, True, plan, axes, None, **others
    )
    return prediction, y


@pytest.mark.parametrize(("members", "by_paper"), [(2, 0.54), (3, 0.70), (5, 0.82), (10, 0.89)])
def test_intervals_of_few_members_hold(members, by_paper):
    """Exactly, where there is no noise; the paper's hold much less. Four binomial standard errors."""
    prediction, y = ensemble((members,))
    for level in (0.5, 0.95):
        assert abs(prediction.coverage(y, level) - level) < 4 * math.sqrt(level * (1 - level) / ROWS)
    assert abs(prediction.coverage(y, 0.95, "paper") - by_paper) < 0.01 + 4 * math.sqrt(0.25 / ROWS)
    assert prediction.reading == "few_members"


@pytest.mark.parametrize(("draws", "noise", "samples"), [((5,), 1, 1), ((3,), 10, 1), ((3,), 0, 20), ((3, 3), 0, 1)])
def test_intervals_hold_about_with_noise_samples_and_crossed_variables(draws, noise, samples):
    prediction, y = ensemble(draws, noise, samples)
    assert abs(prediction.coverage(y) - 0.95) < 0.02 + 4 * math.sqrt(0.05 * 0.95 / ROWS)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize(("members", "allowed"), [(2, 0.03), (5, 0.01)])
def test_intervals_of_every_likelihood_hold_where_members_are_most_of_the_doubt(name, members, allowed):
    """Levels are counted in whole, so that theirs hold more; the paper's hold much less. Four standard errors."""
    rows, share = 2000, 0.9
    error = 4 * math.sqrt(0.05 * 0.95 / rows)
    now = coverage(name, members, share, rows, None)
    assert 0.95 - allowed - error < now < 0.95 + (0.02 if name == "Ordinal" else 0.01) + error
    assert coverage(name, members, share, rows, "paper") < now - 0.03


def test_the_variance_around_the_mean_is_that_of_independent_members():
    prediction, _ = ensemble((4,), noise=0.5)
    few = few_members.of_mixture(prediction.mixture)
    variance = prediction.samples[:, 0].var(0)
    torch.testing.assert_close(few.variance[:, 0], variance * (1 + 1 / 4) + 0.5)
    torch.testing.assert_close(few.between[:, 0], variance * (1 + 1 / 4))
    torch.testing.assert_close(few.degrees, torch.full_like(few.degrees, 3.0))
    torch.testing.assert_close(prediction.unbiased_variance, variance + 0.5)
    within, between = 0.5, 1.25 * variance.numpy()
    z, t = stats.norm.ppf(0.975), stats.t.ppf(0.975, 3)
    square = z**2 * within + between * (z**2 * within + t**2 * between) / (within + between)
    np.testing.assert_allclose(prediction.interval()[1], prediction.mean.numpy() + np.sqrt(square), rtol=1e-9)


@pytest.mark.parametrize("shape", [None, StudentT(4 * ONE)])
def test_probabilities_are_those_of_the_quantiles(shape):
    prediction = replace(ensemble((3,), noise=0.5)[0], shape=shape).of_rows(slice(0, 200))
    for probability in (0.001, 0.3, 0.8, 0.9999):
        found = prediction.cdf(prediction.quantile(probability))
        np.testing.assert_allclose(found, probability, rtol=1e-7 if shape is None else 1e-4)


def test_quantiles_of_each_row_are_those_of_one_for_all():
    few = few_members.of_mixture(ensemble((3,), noise=0.5)[0].mixture.of_rows(slice(0, 200)))
    for probability in (0.01, 0.5, 0.9):
        each = few.reach(torch.full_like(few.within, probability))
        torch.testing.assert_close(each, few.reach(probability), rtol=1e-9, atol=1e-9)


def test_members_that_are_gathered_have_one_mean_for_each_value_of_a_finite_variable():
    axes = (CrossedAxis("theta0", 3, False), CrossedAxis("h", 2, True))
    prediction, _ = ensemble((3, 2), samples=4, axes=axes)
    together = few_members.gathered(prediction.mixture)
    means = together.answers.mean(1).unflatten(0, (3, 2))
    expected = prediction.mixture.answers.mean(1).unflatten(0, (3, 2)).mean(0)
    torch.testing.assert_close(means, expected.expand_as(means))
    torch.testing.assert_close(together.answers.var(1), prediction.mixture.answers.var(1))


def test_the_unbiased_variance_is_that_of_many_members():
    """Of crossed variables with samples, on average over rows: the truth is 1 + 1 + 1 + 1."""
    prediction, _ = ensemble((3, 2), samples=4)
    for name, truth in (("unbiased_variance", 4.0), ("variance", None)):
        values = getattr(prediction, name)
        error = float(values.std()) / math.sqrt(ROWS)
        assert truth is None or abs(float(values.mean()) - truth) < 4 * error
    assert float(prediction.variance.mean()) < 3.2


def test_members_that_are_no_draws_have_the_papers_intervals():
    """Values that were all gone through, and members that were weighted one by one."""
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    for others in (
        {"axes": (CrossedAxis("h", 3, True),)},
        {"weights": weights},
    ):
        prediction, _ = ensemble((3,), **others)
        for ours, papers in zip(prediction.interval(), prediction.interval(reading="paper"), strict=True):
            torch.testing.assert_close(ours, papers)


def test_members_of_a_design_with_gaps_count_as_independent():
    prediction, _ = ensemble((3,))
    gaps = replace(prediction, mixture=replace(prediction.mixture, missing="member 4 diverged"))
    torch.testing.assert_close(gaps.interval()[0], prediction.interval()[0])


def test_a_single_network_has_a_gaussian():
    mixture = Mixture(torch.zeros(1, 1, 5, 1), Plan(1, False, False), (), noise=ONE)
    few = few_members.of_mixture(mixture)
    assert few.variance.tolist() == [[1.0]] * 5
    assert float(few.degrees.min()) > 1e9


def test_a_row_has_the_same_interval_in_any_company():
    axes = (CrossedAxis("theta0", 3, False), CrossedAxis("h", 2, True))
    prediction, _ = ensemble((3, 2), axes=axes)
    low = prediction.interval()[0]
    torch.testing.assert_close(prediction.of_rows(slice(7, 9)).interval()[0], low[7:9], rtol=1e-12, atol=1e-12)


def test_a_calibrated_prediction_keeps_its_reading(problem):
    x, y = problem
    noisy = training(likelihood=wf.Regression(noise=0.5))
    posterior = wf.marginalise(noisy, (x[:60], y[:60]), [wf.InitialCondition(3)])
    assert posterior.predict(x).reading == "few_members"
    scaled = posterior.calibrated("variance", (x[60:], y[60:])).predict(x)
    assert scaled.reading == "gaussian"
    torch.testing.assert_close(scaled.interval()[1], scaled.mean + 1.959963984540054 * scaled.std)
    conformal = posterior.calibrated("conformal", (x[60:], y[60:])).predict(x)
    assert conformal.reading == "conformal"
    reach = conformal.conformal.threshold(0.9)
    torch.testing.assert_close(conformal.interval(0.9)[1], conformal.mean + reach * conformal.std)


def test_densities_have_no_t():
    prediction, y = ensemble((3,), noise=1.0)
    with pytest.raises(ValueError, match='reading="few_members" is for quantiles, intervals and probabilities'):
        prediction.nll(y, "few_members")


def test_counts_have_wider_intervals_by_few_members():
    """Log means of 0.7 deviation, another draw of which makes the counts; with many members nothing changes."""
    generator = np.random.default_rng(3)
    logs = generator.normal(0, 0.7, size=(203, ROWS))
    y = generator.poisson(20 * np.exp(logs[0]))

    def prediction(members):
        answers = torch.from_numpy(np.exp(logs[1 : members + 1])).reshape(members, 1, ROWS, 1)
        axes = (CrossedAxis("theta0", members, False),)
        mixture = Mixture(answers, Plan(1, False, False), axes, noise=answers / 20)
        return wf.likelihoods.counts.CountPrediction(mixture, 0 * ONE, 20 * ONE)

    few, many = prediction(3), prediction(200)
    assert few.reading == "few_members"
    assert few.coverage(y, reading="paper") < 0.75
    assert 0.88 < few.coverage(y) < 0.97
    assert abs(many.coverage(y) - many.coverage(y, reading="paper")) < 0.01
    low, high = few.interval()
    inner = few.interval(reading="mixture")
    assert float((high - low).mean()) > 1.3 * float((inner[1] - inner[0]).mean())
    assert bool((low >= 0).all())
