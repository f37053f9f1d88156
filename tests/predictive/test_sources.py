"""The sources on synthetic answers whose components are known: unbiased for few draws, and their errors honest."""

import itertools
import math

import numpy as np
import pytest
import torch

import made_predictions
import wherefrom as wf
from conftest import training
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.components import CrossedAxis, hoeffding, jackknife, jackknifed
from wherefrom.predictive.monte_carlo import Plan

# The truth: f = a_i + b_j + c_ij + t + u + v(t, u), with these variances.
TRUTH = {"theta0": 4.0, "h": 2.0, "theta0 x h": 1.0, "t": 3.0, "F": 1.5, "t x F": 0.5}


def synthetic(
    generator: np.random.Generator, draws: tuple[int, int], samples: int, rows: int = 1, truth=TRUTH
) -> Prediction:
    """Answers of two crossed variables with t and F within, in blocks of four."""
    n, m = draws
    blocks = samples // 4

    def normal(name: str, *shape: int) -> np.ndarray:
        return np.sqrt(truth[name]) * generator.normal(size=(*shape, rows))

    t = normal("t", n, m, blocks, 2, 1)
    mask = normal("F", n, m, blocks, 1, 2)
    answers = (
        normal("theta0", n, 1, 1, 1, 1)
        + normal("h", 1, m, 1, 1, 1)
        + normal("theta0 x h", n, m, 1, 1, 1)
        + t
        + mask
        + normal("t x F", n, m, blocks, 2, 2)
    )
    values = torch.from_numpy(answers.reshape(n * m, samples, rows, 1))
    axes = (CrossedAxis("theta0", n, False), CrossedAxis("h", m, False))
    one = torch.ones(1, dtype=torch.float64)
    return made_predictions.quantity(values, None, 0 * one, one, True, Plan(samples, True, True), axes, None)


@pytest.mark.parametrize(("draws", "samples"), [((3, 3), 8), ((5, 4), 12), ((2, 2), 4)])
def test_components_are_unbiased_for_few_draws(draws, samples):
    """The mean over 6,000 independent rows, each a design of its own, lies within four standard errors of the truth."""
    found = synthetic(np.random.default_rng(0), draws, samples, rows=6000).sources().variance
    for name, values in found.items():
        error = values.std() / len(values) ** 0.5
        assert abs(values.mean() - TRUTH[name]) < 4 * error, name


def test_large_designs_recover_the_truth_within_their_own_errors():
    found = synthetic(np.random.default_rng(1), (40, 30), 40).sources().overall
    for name, truth in TRUTH.items():
        assert abs(found[name].variance - truth) < 3 * found[name].variance_error, name
        assert abs(found[name].share - truth / 12) < 4 * found[name].share_error, name


@pytest.mark.parametrize("draws", [(20, 16), (12, 10, 8)])
def test_the_jackknife_counts_once_what_crossed_variables_cause_together(draws):
    """Of the mean of a crossed array, whose variance is sum_u V_u / prod_i n_i, in 600 arrays."""
    generator, places, repeats = np.random.default_rng(9), range(len(draws)), 600
    subsets = [u for size in places for u in itertools.combinations(places, size + 1)]
    parts = {u: math.prod(draws[i] for i in u) / 3 ** len(u) for u in subsets}  # those of fewer cause more of it
    values = sum(
        np.sqrt(part) * generator.normal(size=[*(n if i in u else 1 for i, n in enumerate(draws)), repeats])
        for u, part in parts.items()
    )

    def mean_without(left_out: dict[int, int]) -> np.ndarray:
        kept = values
        for place, draw in left_out.items():
            kept = np.delete(kept, draw, place)
        return kept.mean(tuple(places))

    replicates = {}
    for u in subsets:
        each = [mean_without(dict(zip(u, k, strict=True))) for k in itertools.product(*(range(draws[i]) for i in u))]
        stacked = torch.from_numpy(np.reshape(each, (*(draws[i] for i in u), repeats)))
        replicates[tuple("abc"[i] for i in u)] = {"mean": stacked.unsqueeze(-1)}
    truth = sum(part / math.prod(draws[i] for i in u) for u, part in parts.items())
    found = jackknife(replicates)["mean"].flatten().numpy()
    error = found.std() / math.sqrt(repeats)
    assert abs(found.mean() - truth) < 4 * error
    assert values.mean(tuple(places)).var(ddof=1) == pytest.approx(truth, rel=4 * math.sqrt(2 / repeats))
    # Where everything that differs between the draws of each is added up, what they cause together counts twice.
    added = sum(part["mean"] for u, part in jackknifed(replicates).items() if len(u) == 1).mean()
    assert float(added) > truth + 10 * error


@pytest.mark.parametrize(("draws", "most"), [((8, 6), 1.3), ((5, 4), 1.45)])
def test_standard_errors_are_of_the_right_size(draws, most):
    """Over 2,000 designs, the jackknife's variance is the estimates' own; with few draws it errs on the large side.

    A spread of so many is known to 2%, and to 5% where the distribution has long tails.
    """
    found = synthetic(np.random.default_rng(2), draws, 20, rows=2000).sources()
    for name in TRUTH:
        ratio = float(found.standard_error[name].square().mean().sqrt() / found.variance[name].std())
        assert 0.85 < ratio < most, (name, ratio)


def test_intervals_cover():
    """Truth within two standard errors in at least 80% of designs (variances of few draws are skewed)."""
    found = synthetic(np.random.default_rng(3), (12, 12), 20, rows=500).sources()
    for name, truth in TRUTH.items():
        inside = (found.variance[name] - truth).abs() < 2 * found.standard_error[name]
        assert float(inside.double().mean()) > 0.8, name


def test_classical_analysis_of_variance_agrees():
    """One way, ten groups: (mean square between - mean square within) / n, the textbook's estimate."""
    generator = np.random.default_rng(4)
    answers = generator.normal(size=(10, 1)) + generator.normal(size=(10, 6))
    between = 6 * answers.mean(1).var(ddof=1)
    within = answers.var(axis=1, ddof=1).mean()
    values = torch.from_numpy(answers[:, :, None, None])
    one = torch.ones(1, dtype=torch.float64)
    axes = (CrossedAxis("theta0", 10, False),)
    sources = made_predictions.quantity(values, None, 0 * one, one, True, Plan(6, True, False), axes, None).sources()
    assert float(sources.variance["theta0"]) == pytest.approx((between - within) / 6)
    assert float(sources.variance["t"]) == pytest.approx(within)


def test_a_variable_that_was_gone_through_is_its_own_population():
    """All points of a finite variable: its variance has divisor n, its interaction with a random one is unbiased."""
    effect = torch.tensor([1.0, -1.0, 3.0], dtype=torch.float64)
    parts = hoeffding(effect[:, None], (CrossedAxis("h", 3, True),), torch.zeros(()))
    assert float(parts["h"]) == pytest.approx(float(effect.var(correction=0)))

    generator = np.random.default_rng(5)
    fixed = np.array([2.0, -2.0])
    estimates = []
    for _ in range(4000):
        random, crossed = generator.normal(size=(3, 1)), generator.normal(size=(3, 2))
        values = torch.from_numpy(fixed + random + crossed)[..., None]
        axes = (CrossedAxis("theta0", 3, False), CrossedAxis("h", 2, True))
        estimates.append([float(p) for p in hoeffding(values, axes, torch.zeros(())).values()])
    # c_ij averaged over the two points belongs to theta0 (1/2), the rest of it is the interaction (1/2).
    for values, truth in zip(np.array(estimates).T, (1.5, 4.0, 0.5), strict=True):
        assert abs(values.mean() - truth) < 4 * values.std() / len(values) ** 0.5


def test_shares_add_up_to_one_and_are_never_negative(problem):
    posterior = wf.marginalise(
        training(likelihood=wf.Regression(noise=0.3)),
        problem,
        [wf.InitialCondition(3), wf.BatchOrder(3), wf.Iterations(wf.SWAG(3)), wf.Dropout()],
    )
    sources = posterior.predict(problem[0], samples=8).sources()
    assert sources.names == ("theta0", "order", "theta0 x order", "t", "F", "t x F", "noise")
    shares = torch.stack([sources[name] for name in sources])
    assert (shares >= 0).all()
    torch.testing.assert_close(shares.sum(0), torch.ones(90, dtype=torch.float64))
    assert sum(part.share for part in sources.overall.values()) == pytest.approx(1)
    assert float(sources.variance["noise"][0]) == pytest.approx(0.09)


def test_joined_variables_have_one_share(problem):
    posterior = wf.marginalise(training(), problem, wf.recipes.multi_swag(3))
    assert posterior.predict(problem[0], samples=4).sources().names == ("theta0+order", "t")


def test_the_sum_is_close_to_the_predictive_variance(problem):
    """With many draws, the components add up to the variance that the prediction reports."""
    prediction = synthetic(np.random.default_rng(6), (30, 30), 40)
    total = sum(float(v) for v in prediction.sources().variance.values())
    assert total == pytest.approx(float(prediction.variance), rel=0.05)


def test_two_draws_tell_no_standard_error():
    found = synthetic(np.random.default_rng(7), (2, 5), 8).sources()
    assert np.isnan(found.overall["theta0"].variance_error)
    assert " -" in str(found)


def test_too_few_samples_tell_no_standard_error(problem):
    posterior = wf.marginalise(training(), problem, [*wf.recipes.swag(rank=2), wf.Dropout()])
    assert np.isnan(posterior.predict(problem[0], samples=4).sources().overall["t"].share_error)
    assert posterior.predict(problem[0], samples=40).sources().overall["t"].share_error > 0


@pytest.mark.parametrize("is_finite", [False, True])
@pytest.mark.parametrize("noise", [0.3, 0.7, 0.123])
def test_one_noise_for_all_members_has_no_error(is_finite, noise):
    answers = torch.randn(3, 20, 30, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, axes = torch.ones(1, dtype=torch.float64), (CrossedAxis("h", 3, is_finite),)
    plan = Plan(20, vary_theta=True, vary_mask=False)
    sources = made_predictions.quantity(answers, noise * one, 0 * one, one, True, plan, axes, None).sources()
    assert sources.overall["noise"].variance_error == 0
    assert not sources.standard_error["noise"].any()


def test_predicted_noise_varies_between_members(problem):
    from conftest import mlp

    noisy = training(mlp(outputs=2), likelihood=wf.Regression(noise="predicted"))
    sources = wf.marginalise(noisy, problem, wf.recipes.deep_ensemble(4)).predict(problem[0]).sources()
    assert sources.overall["noise"].variance_error > 0


def test_nothing_random_has_no_sources(problem):
    sources = wf.marginalise(training(), problem, []).predict(problem[0]).sources()
    assert len(sources) == 0
    assert "nothing is random here" in str(sources)


def test_one_sample_shows_nothing_of_t(problem):
    posterior = wf.marginalise(training(), problem, wf.recipes.swag(rank=2))
    with pytest.raises(ValueError, match="more samples"):
        posterior.predict(problem[0], samples=1).sources()


def test_several_outputs_have_units_of_their_own(problem):
    from conftest import mlp

    x, y = problem
    posterior = wf.marginalise(training(mlp(outputs=2)), (x, np.c_[y, 100 * y]), wf.recipes.deep_ensemble(4))
    sources = posterior.predict(x).sources()
    with pytest.raises(ValueError, match="each in its own unit"):
        _ = sources.overall
    assert sources.overall_of(1)["theta0+order"].share == pytest.approx(1)
    assert "output 1 of 2" in str(sources)


def test_members_of_a_random_variable_as_a_part(problem):
    """A selection of members is a smaller design, with its own sources."""
    posterior = wf.marginalise(training(), problem, [wf.InitialCondition(4), wf.BatchOrder(3)])
    part = posterior.select(theta0=[0, 2, 3], order=1)
    assert part.predict(problem[0]).sources().names == ("theta0",)


def test_where_one_error_is_unknown_so_are_those_of_all_shares(problem):
    posterior = wf.marginalise(training(likelihood=wf.Regression(noise=1.0)), problem, [wf.InitialCondition(2)])
    overall = posterior.predict(problem[0]).sources().overall
    assert all(math.isnan(part.share_error) for part in overall.values())
    assert overall["noise"].variance_error == 0  # it was given


def test_the_models_own_sources_have_a_scale_of_their_own():
    """Without noise both shares are the same; with it, shares among the others stay, and so do their errors."""
    plain = synthetic(np.random.default_rng(3), (12, 8), 16, rows=40)
    one = torch.ones(1, dtype=torch.float64)
    noisy = made_predictions.quantity(
        plain.mixture.answers, 900 * one, 0 * one, one, True, plain.mixture.plan, plain.mixture.axes, None
    )
    without, found = plain.sources().overall, noisy.sources().overall
    for name in TRUTH:
        assert without[name].model_share == without[name].share
        assert found[name].model_share == pytest.approx(without[name].share)
        assert found[name].model_share_error == pytest.approx(without[name].share_error)
        assert found[name].share < 0.01
    assert math.isnan(found["noise"].model_share)
    assert sum(found[name].model_share for name in TRUTH) == pytest.approx(1)
    assert found["noise"].share > 0.98


def test_where_errors_of_shares_are_unknown_so_are_those_of_the_models_own():
    overall = synthetic(np.random.default_rng(3), (2, 2), 4).sources().overall
    assert all(math.isnan(part.share_error) and math.isnan(part.model_share_error) for part in overall.values())
