"""Predictions: moments, intervals and scores against torch.distributions and numerical integration."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

import made_predictions
import wherefrom as wf
from conftest import mlp, training
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.monte_carlo import Plan

ROWS = 5


def prediction(answers, noise=None, location=0.0, scale=1.0) -> Prediction:
    """A prediction from answers of shape (members, samples, rows) for a single output."""
    answers = torch.as_tensor(answers, dtype=torch.float64)[..., None]
    noise = None if noise is None else torch.as_tensor(noise, dtype=torch.float64)
    noise = noise[..., None] if noise is not None and noise.ndim == 3 else noise
    unit = [torch.tensor([float(v)], dtype=torch.float64) for v in (location, scale)]
    plan = Plan(answers.shape[1], vary_theta=answers.shape[1] > 1, vary_mask=False)
    return made_predictions.quantity(answers, noise, *unit, True, plan, (), None)


@pytest.fixture
def mixture() -> tuple[Prediction, MixtureSameFamily, torch.Tensor]:
    """The same mixture of Gaussians twice: ours in standardised units, and torch's in the user's."""
    generator = torch.Generator().manual_seed(0)
    answers = torch.randn(3, 4, ROWS, generator=generator, dtype=torch.float64)
    noise = 0.1 + torch.rand(3, 4, ROWS, generator=generator, dtype=torch.float64)
    location, scale = 20.0, 3.0
    components = Normal((location + scale * answers).flatten(0, 1).T, (scale * noise.sqrt()).flatten(0, 1).T)
    reference = MixtureSameFamily(Categorical(torch.ones(ROWS, 12, dtype=torch.float64)), components)
    y = location + scale * torch.randn(ROWS, generator=generator, dtype=torch.float64)
    return prediction(answers, noise, location, scale), reference, y


def test_two_members_far_apart_are_not_averaged_away():
    """N(-10, 0.1) and N(10, 0.1): the mixture's standard deviation is 10, not 0.1."""
    both = prediction([[[-10.0]], [[10.0]]], noise=[0.1**2])
    assert float(both.mean[0]) == 0.0
    assert float(both.std[0]) == pytest.approx(math.sqrt(100 + 0.01))


def test_moments_are_the_mixtures(mixture):
    ours, reference, _ = mixture
    torch.testing.assert_close(ours.mean, reference.mean)
    torch.testing.assert_close(ours.variance, reference.variance)


@pytest.mark.parametrize("reading", ["gaussian", "mixture"])
def test_samples_have_the_moments_and_are_uniform_under_the_cdf(mixture, reading):
    ours, reference, _ = mixture
    drawn = ours.sample(2000, seed=1, reading=reading)
    assert drawn.shape == (2000, ROWS)
    errors = (reference.variance / 2000).sqrt()  # of independent draws; these lie in 2,000 parts, and are closer
    assert bool(((drawn.mean(0) - reference.mean).abs() < errors).all())
    torch.testing.assert_close(drawn.var(0), reference.variance, rtol=0.05, atol=0.0)
    uniform = torch.stack([ours.cdf(each, reading) for each in drawn[:, :]]).sort(0).values
    middle = ((torch.arange(2000) + 0.5) / 2000).unsqueeze(1)
    assert float((uniform - middle).abs().max()) < 1 / 2000  # one in each part
    correlation = torch.corrcoef(drawn.T) - torch.eye(ROWS)
    assert float(correlation.abs().max()) < 4 / math.sqrt(2000)
    assert torch.equal(drawn, ours.sample(2000, seed=1, reading=reading))


def test_mixture_nll(mixture):
    ours, reference, y = mixture
    torch.testing.assert_close(ours.nll(y, "mixture", by_row=True), -reference.log_prob(y))
    assert ours.nll(y, "mixture") == pytest.approx(-float(reference.log_prob(y).mean()))


def test_gaussian_nll(mixture):
    ours, reference, y = mixture
    matched = Normal(reference.mean, reference.stddev)
    torch.testing.assert_close(ours.nll(y, by_row=True), -matched.log_prob(y))


@pytest.mark.parametrize("probability", [0.01, 0.3, 0.5, 0.975])
def test_quantiles_invert_the_distribution(mixture, probability):
    ours, reference, _ = mixture
    torch.testing.assert_close(
        reference.cdf(ours.quantile(probability, "mixture")), torch.full((ROWS,), probability, dtype=torch.float64)
    )
    matched = Normal(reference.mean, reference.stddev)
    torch.testing.assert_close(
        matched.cdf(ours.quantile(probability)), torch.full((ROWS,), probability, dtype=torch.float64)
    )


def crps_by_integration(cdf, y: torch.Tensor, low: float, high: float) -> torch.Tensor:
    grid = torch.linspace(low, high, 400_001, dtype=torch.float64)
    return (cdf(grid[:, None]) - (grid[:, None] >= y).double()).square().sum(0) * (grid[1] - grid[0])


@pytest.mark.slow
def test_crps_against_numerical_integration(mixture):
    ours, reference, y = mixture
    matched = Normal(reference.mean, reference.stddev)
    for reading, law in (("mixture", reference), ("gaussian", matched)):
        expected = crps_by_integration(law.cdf, y, -20.0, 60.0)
        torch.testing.assert_close(ours.crps(y, reading, by_row=True), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_mixture_crps_counts_every_pair(count):
    """Against all pairs written out, for odd and even numbers of components."""
    generator = torch.Generator().manual_seed(count)
    answers = torch.randn(1, count, ROWS, generator=generator, dtype=torch.float64)
    noise = 0.1 + torch.rand(1, count, ROWS, generator=generator, dtype=torch.float64)
    y = torch.randn(ROWS, generator=generator, dtype=torch.float64)

    def distance(gap, variance):
        normal = Normal(torch.zeros_like(gap), torch.ones_like(gap))
        w = gap / variance.sqrt()
        return 2 * variance.sqrt() * normal.log_prob(w).exp() + gap * (2 * normal.cdf(w) - 1)

    a, v = answers[0], noise[0]
    expected = distance(a - y, v).mean(0) - 0.5 * distance(a[:, None] - a, v[:, None] + v).mean((0, 1))
    torch.testing.assert_close(prediction(answers, noise).crps(y, "mixture", by_row=True), expected)


def test_crps_of_points_is_the_empirical_one():
    answers = torch.randn(2, 5, ROWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.zeros(ROWS)
    flat = answers.flatten(0, 1)
    expected = flat.abs().mean(0) - 0.5 * (flat[:, None] - flat[None]).abs().mean((0, 1))
    torch.testing.assert_close(prediction(answers).crps(y, "mixture", by_row=True), expected)


def test_crps_of_a_single_point_is_the_absolute_error():
    assert prediction([[[3.0]]]).crps([1.0]) == pytest.approx(2.0)


def test_quantile_of_points_is_the_empirical_one():
    answers = np.random.default_rng(0).normal(size=(2, 50, ROWS))
    torch.testing.assert_close(
        prediction(answers).quantile(0.2, "mixture"),
        torch.from_numpy(np.quantile(answers.reshape(100, ROWS), 0.2, axis=0)),
    )


def test_cdf(mixture):
    ours, reference, y = mixture
    torch.testing.assert_close(ours.cdf(y, "mixture"), reference.cdf(y))
    torch.testing.assert_close(ours.cdf(y), Normal(reference.mean, reference.stddev).cdf(y))
    points = prediction([[[1.0], [2.0], [4.0]]])
    assert points.cdf([2.0], "mixture").tolist() == pytest.approx([2 / 3])
    assert prediction([[[1.0]]]).cdf([1.0]).tolist() == [1.0]
    assert prediction([[[1.0]]]).cdf([0.9]).tolist() == [0.0]


@pytest.mark.parametrize("reading", ["gaussian", "mixture"])
def test_coverage_counts_what_lies_in_the_interval(mixture, reading):
    ours, reference, _ = mixture
    torch.manual_seed(2)
    for level in (0.3, 0.7):
        low, high = ours.interval(level, reading)
        for y in reference.sample((20,)):
            inside = ((y >= low) & (y <= high)).double().mean()
            assert ours.coverage(y, level, reading) == pytest.approx(float(inside))
    with pytest.raises(ValueError, match="between 0 and 1"):
        ours.coverage(reference.mean, 95, reading)


def test_coverage_of_the_right_gaussian(mixture):
    generator = np.random.default_rng(3)
    answers = generator.normal(size=(1, 1000, 1)) + np.zeros(4000)
    y = generator.normal(size=4000)
    error = math.sqrt(0.9 * 0.1 / 4000) + 0.02  # of the count, and of 1,000 samples' variance
    assert prediction(answers).coverage(y, 0.9) == pytest.approx(0.9, abs=3 * error)


def test_rmse():
    assert prediction([[[0.0, 0.0]]]).rmse([3.0, 4.0]) == pytest.approx(math.sqrt(12.5))


def test_zero_variance_has_no_density():
    certain = prediction([[[1.0, 2.0]]])
    with pytest.raises(ValueError, match="variance is zero at 2 of 2 rows"):
        certain.nll([1.0, 2.0])
    with pytest.raises(ValueError, match="no density"):
        certain.nll([1.0, 2.0], "mixture")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.interval(95), "a level lies between 0 and 1"),
        (lambda p: p.quantile(0.0), "a probability lies between"),
        (
            lambda p: p.nll([0.0] * 5, reading="mixtrue"),
            'reading must be "few_members", "paper", "gaussian", "shape" or "mixture"',
        ),
        (lambda p: p.rmse([1.0]), r"y has shape \(1,\), but the prediction is for 5 rows and 1 output"),
        (lambda p: p.nll([1.0, 2.0, 3.0, 4.0, math.nan]), "y has 1 missing"),
    ],
)
def test_bad_questions_are_refused(mixture, call, message):
    with pytest.raises(ValueError, match=message):
        call(mixture[0])


def test_noise_as_a_number_is_a_standard_deviation_in_ys_units(problem):
    x, _ = problem
    plain = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(3)).predict(x)
    noisy = wf.marginalise(training(likelihood=wf.Regression(noise=0.7)), problem, wf.recipes.deep_ensemble(3)).predict(
        x
    )
    torch.testing.assert_close(noisy.variance, plain.variance + 0.49)
    torch.testing.assert_close(noisy.noise_variance, torch.full((90,), 0.49, dtype=torch.float64))


@pytest.mark.slow
def test_fitted_noise_finds_the_noise():
    """A linear problem whose noise is known: 0.5, within three standard errors of a variance from 400 rows."""
    from torch import nn

    generator = np.random.default_rng(5)
    x = generator.normal(size=(4000, 3))
    y = 100 + 40 * x[:, 0] + 20 * generator.normal(size=4000)
    posterior = wf.marginalise(
        training(lambda: nn.Linear(3, 1), likelihood=wf.Regression(noise="fit"), epochs=20),
        (x, y),
        wf.recipes.deep_ensemble(2),
    )
    assert len(posterior.held_out) == 400
    noise = float(posterior.predict(x[:1]).noise_variance.sqrt())
    assert noise == pytest.approx(20, rel=3 * math.sqrt(2 / 400) / 2)
    assert posterior.predict(x).coverage(y, 0.95) == pytest.approx(0.95, abs=0.02)


def test_predicted_noise_is_bounded():
    """A log variance of ±200 is none that y could have: the scores stay numbers, in both readings."""

    class Extreme(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return torch.cat([self.weight * x, 40 * x], dim=1)

    x = np.array([[-1.0], [0.0], [1.0]])
    model = wf.Training(
        Extreme, wf.Algorithm("sgd", lr=0.0, batch_size=3), 1, wf.Regression(noise="predicted"), standardise=False
    )
    said = wf.marginalise(model, (x, [0.0, 0.0, 0.0]), [], progress=False).predict(5 * x)
    expected = [0.5 * (math.log(2 * math.pi) + bounded) for bounded in (-math.log(1e6), 0, math.log(1e6))]
    for reading in ("gaussian", "mixture"):
        assert said.nll([0.0, 0.0, 0.0], reading, by_row=True).tolist() == pytest.approx(expected)


def test_predicted_noise_learns_where_it_is_loud():
    generator = np.random.default_rng(6)
    x = generator.uniform(-1, 1, size=(3000, 1))
    y = 10 * x[:, 0] + np.where(x[:, 0] > 0, 5.0, 1.0) * generator.normal(size=3000)
    noisy = training(
        mlp(1, 30, 2, rate=0.0),
        likelihood=wf.Regression(noise="predicted"),
        algorithm=wf.Algorithm("adam", lr=0.01, batch_size=100),
        epochs=40,
    )
    posterior = wf.marginalise(noisy, (x, y), wf.recipes.deep_ensemble(2))
    std = posterior.predict([[-0.5], [0.5]]).std
    assert float(std[0]) == pytest.approx(1.0, rel=0.25)
    assert float(std[1]) == pytest.approx(5.0, rel=0.25)
    assert posterior.predict(x).nll(y, "mixture") < posterior.predict(x).nll(y) + 0.05


def test_fitted_noise_is_fitted_again_for_every_part(problem):
    posterior = wf.marginalise(
        training(likelihood=wf.Regression(noise="fit", held_out=0.3)), problem, wf.recipes.multi_swag(3)
    )
    assert float(posterior.fitted_noise) != float(posterior.marginalising("t").fitted_noise)


def test_fit_noise_wants_all_outputs(problem):
    x, y = problem
    noisy = training(mlp(outputs=2), likelihood=wf.Regression(noise="fit", held_out=0.2))
    posterior = wf.marginalise(noisy, (x, np.c_[y, 2 * y]), wf.recipes.deep_ensemble(2))
    with pytest.raises(ValueError, match="y has 1 columns, but the model was trained on 2"):
        posterior.fit_noise((x, y))


def test_too_few_rows_to_hold_out(problem):
    x, y = problem
    with pytest.raises(ValueError, match="hold 1 of 8 rows out"):
        wf.marginalise(training(likelihood=wf.Regression(noise="fit")), (x[:8], y[:8]), [])
