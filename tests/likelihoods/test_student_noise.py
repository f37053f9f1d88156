"""Regression with Student's t: scale and tails fitted together, read as one t or as many, true to its own truth."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import wherefrom as wf
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.background import Background
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.student import StudentT

OVER = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))]
ANSWERS = np.array([[[0.2, -1.0], [0.5, 0.3]], [[-0.1, 0.8], [0.0, 1.1]]])  # members, samples, rows
Y = np.array([1.3, -4.0])
DF, NOISE = 3.5, 0.6


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    axes = (CrossedAxis("theta0", 2, False),)
    mixture = Mixture(
        tensor(ANSWERS).unsqueeze(-1), Plan(2, vary_theta=True, vary_mask=False), axes, noise=tensor([NOISE])
    )
    return Prediction(mixture, tensor([2.0]), tensor([1.5]), shape=StudentT(tensor([DF])))


def known(mean, variance):
    return stats.t(DF, mean, np.sqrt(variance * (DF - 2) / DF))


def test_the_shape_is_the_t_with_the_mixtures_moments(prediction):
    flat = ANSWERS.reshape(4, 2)
    expected = known(2 + 1.5 * flat.mean(0), 1.5**2 * (flat.var(0) + NOISE))
    close = dict(rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(prediction.mean, tensor(expected.mean()), **close)
    torch.testing.assert_close(prediction.variance, tensor(expected.var()), **close)
    torch.testing.assert_close(prediction.log_density(Y)[:, 0], tensor(expected.logpdf(Y)), **close)
    torch.testing.assert_close(prediction.cdf(Y, "shape"), tensor(expected.cdf(Y)), **close)
    assert prediction.reading == "few_members"
    for found, end in zip(prediction.interval(0.9, "shape"), expected.interval(0.9), strict=True):
        torch.testing.assert_close(found, tensor(end), **close)


def test_the_mixture_is_of_ts(prediction):
    parts = [known(2 + 1.5 * each, 1.5**2 * NOISE) for each in ANSWERS.reshape(4, 2)]
    close = dict(rtol=1e-10, atol=1e-12)
    density = tensor(np.log(np.mean([part.pdf(Y) for part in parts], 0)))
    torch.testing.assert_close(prediction.log_density(Y, "mixture")[:, 0], density, **close)
    below = tensor(np.mean([part.cdf(Y) for part in parts], 0))
    torch.testing.assert_close(prediction.cdf(Y, "mixture"), below, **close)
    at = prediction.quantile(0.05, "mixture")
    torch.testing.assert_close(prediction.cdf(at, "mixture"), torch.full_like(at, 0.05), rtol=0, atol=1e-10)
    by_member = [np.log(np.mean([parts[2 * k + j].pdf(Y) for j in range(2)], 0)) for k in range(2)]
    torch.testing.assert_close(prediction.member_log_densities(Y), tensor(np.array(by_member)), **close)


def test_crps_of_the_mixture_is_that_of_its_draws(prediction):
    random = np.random.default_rng(0)
    chosen = random.integers(4, size=(2, 400_000))
    scale = 1.5 * math.sqrt(NOISE * (DF - 2) / DF)
    for row in range(2):
        drawn = 2 + 1.5 * ANSWERS.reshape(4, 2)[chosen[0], row] + scale * random.standard_t(DF, size=400_000)
        half = len(drawn) // 2
        each = np.abs(drawn[:half] - Y[row]) - 0.5 * np.abs(drawn[:half] - drawn[half:])
        error = each.std() / math.sqrt(half)
        assert float(prediction.crps(Y, "mixture", by_row=True)[row]) == pytest.approx(each.mean(), abs=4 * error)


def test_with_a_background_the_crps_is_still_a_distributions(prediction):
    """Its derivative by y is 2 F(y) - 1, as a difference quotient of the score shows."""
    points = torch.linspace(-2, 2, 50, dtype=torch.float64)[None, :, None]
    background = Background(points, tensor([[0.1]]), tensor([1.0]))
    outside = prediction.blended(background.at([0.4, 0.4]))
    step = 1e-4
    up, down = (outside.crps(Y + side * step, "mixture", by_row=True) for side in (1, -1))
    slope = (up - down) / (2 * step)
    torch.testing.assert_close(slope, 2 * outside.cdf(Y, "mixture") - 1, rtol=0, atol=1e-6)
    assert bool((outside.crps(Y, "mixture", by_row=True) > 0).all())


@pytest.fixture(scope="module")
def heavy():
    random = np.random.default_rng(4)
    x = random.normal(size=(4000, 3))
    scale = 0.4 * np.exp(0.4 * x[:, 2])
    noise = random.standard_t(3, size=4000)
    return x, x[:, 0] - 0.5 * x[:, 1] + 0.5 * noise, x[:, 0] - 0.5 * x[:, 1] + scale * noise


def posterior(likelihood, x, y) -> wf.Posterior:
    how = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.005, batch_size=50), 15, likelihood)
    return wf.marginalise(how, (x, y), OVER)


def test_scale_and_degrees_of_freedom_are_found(heavy):
    x, y, _ = heavy
    made = posterior(wf.Regression("fit", 0.3, tails="student"), x[:1500], y[:1500])
    square, df = made.fitted_noise[:, 0]
    assert 2.2 < float(df) < 4.5  # 3, by 450 rows
    assert math.sqrt(float(square)) * float(made.scaler.y_std) == pytest.approx(0.5, rel=0.12)
    prediction, truth = made.predict(x[1500:], samples=20), y[1500:]
    assert stats.kstest(prediction.cdf(truth).numpy(), "uniform").pvalue > 0.01
    assert 0.93 < prediction.coverage(truth) < 0.97
    gaussian = posterior(wf.Regression("fit", 0.3), x[:1500], y[:1500]).predict(x[1500:], samples=20)
    assert prediction.nll(truth) < gaussian.nll(truth) - 0.05


def test_a_predicted_scale_has_its_own_tails(heavy):
    x, _, y = heavy
    made = posterior(wf.Regression("predicted", 0.2, tails="student"), x[:1500], y[:1500])
    prediction, truth = made.predict(x[1500:], samples=20), y[1500:]
    best = -stats.t(3, 0, 0.4 * np.exp(0.4 * x[1500:, 2])).logpdf(truth - x[1500:, 0] + 0.5 * x[1500:, 1]).mean()
    assert prediction.nll(truth) < best + 0.06
    assert stats.kstest(prediction.cdf(truth).numpy(), "uniform").pvalue > 0.001


def test_a_number_is_the_standard_deviation_and_df_may_be_known(heavy):
    x, y, _ = heavy
    std = 0.5 * math.sqrt(3)
    by_number = posterior(wf.Regression(std, 0.3, tails="student"), x[:1000], y[:1000])
    assert 2.3 < float(by_number.fitted_noise[1, 0]) < 4.5
    torch.testing.assert_close(by_number.predict(x[:5], samples=5).noise_variance, torch.full((5,), std**2).double())
    fixed = posterior(wf.Regression(std, tails="student", df=3.0), x[:1000], y[:1000])
    assert fixed.fitted_noise is None
    assert float(fixed.predict(x[:5], samples=5).shape.df) == 3.0
    all_given = posterior(wf.Regression("fit", 0.3, tails="student", df=3.0), x[:1000], y[:1000])
    assert float(all_given.fitted_noise[1, 0]) == 3.0


def test_what_it_is_given_is_checked():
    with pytest.raises(ValueError, match='tails must be "gaussian" or "student"'):
        wf.Regression(tails="cauchy")
    with pytest.raises(ValueError, match=r"from 2\.1 to 200"):
        wf.Regression(tails="student", df=2.0)
    with pytest.raises(ValueError, match='degrees of freedom of tails="student"'):
        wf.Regression(df=4.0)


def test_without_noise_it_only_trains_by_it(heavy):
    x, y, _ = heavy
    made = posterior(wf.Regression(tails="student"), x[:300], y[:300])
    assert made.predict(x[:5], samples=5).shape is None
    assert not made.training.likelihood.fits_noise
