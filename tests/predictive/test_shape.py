"""The shape of predictive distributions: its arithmetic by quadrature and scipy, its fit by samples of known laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import wherefrom as wf
from wherefrom.predictive.fit import Fit
from wherefrom.predictive.shape import Shape, fitted_shape, shape_gains

SKEWED = Shape(
    torch.tensor([[[0.7, 0.5], [0.3, 0.5]]]).double(),
    torch.tensor([[[-0.3, -0.8], [0.7, 0.8]]]).double(),
    torch.tensor([[[0.2, 0.36], [1.9667, 0.36]]]).double(),
    (0.1, 0.1),
    (0.01, 0.01),
    Fit(100),
)


def density(s, output):
    weights, means, variances = (
        part[0, :, output].numpy() for part in (SKEWED.weights, SKEWED.means, SKEWED.variances)
    )
    return sum(w * stats.norm.pdf(s, m, math.sqrt(v)) for w, m, v in zip(weights, means, variances, strict=True))


def deviations(values) -> torch.Tensor:
    values = np.asarray(values)
    return torch.from_numpy((values - values.mean()) / values.std())[:, None]


def fit(s: torch.Tensor) -> Shape:
    return fitted_shape(s, torch.full((len(s), 1), 1 / len(s), dtype=torch.float64), Fit(len(s)))


@pytest.mark.parametrize("output", [0, 1])
def test_densities_probabilities_and_quantiles_are_those_of_the_mixture(output):
    for s in (-2.0, 0.1, 3.0):
        at = torch.full((1, 2), s).double()
        assert float(SKEWED.log_density(at)[0, output]) == pytest.approx(math.log(density(s, output)))
        below = integrate.quad(density, -12, s, args=(output,))[0]
        assert float(SKEWED.cdf(at)[0, output]) == pytest.approx(below, abs=1e-7)
    for probability in (0.025, 0.5, 0.9):
        quantile = SKEWED.quantile(probability)
        assert float(SKEWED.cdf(quantile)[0, output]) == pytest.approx(probability)


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("s", [-1.5, 0.0, 2.5])
def test_crps_is_the_area_between_the_distribution_and_the_truth(output, s):
    def square(z):
        return (float(SKEWED.cdf(torch.full((1, 2), z).double())[0, output]) - (z >= s)) ** 2

    area = integrate.quad(square, -15, s, limit=200)[0] + integrate.quad(square, s, 15, limit=200)[0]
    assert float(SKEWED.crps(torch.full((1, 2), s).double())[0, output]) == pytest.approx(area, abs=1e-6)


def test_a_shape_has_mean_0_and_variance_1_and_is_near_the_truth():
    random = np.random.default_rng(3)
    shape = fit(deviations(random.exponential(size=2000)))
    assert float((shape.weights * shape.means).sum()) == pytest.approx(0, abs=1e-9)
    assert float((shape.weights * (shape.means.square() + shape.variances)).sum()) == pytest.approx(1, abs=1e-9)
    new = torch.from_numpy(random.exponential(size=20_000) - 1)[:, None]
    nll = -shape.log_density(new)
    truth, gaussian = 1.0, 0.5 * math.log(2 * math.pi) + 0.5  # the entropy of y, and what a Gaussian has
    assert truth < float(nll.mean()) < truth + 0.25 * (gaussian - truth)
    assert shape.is_clear
    assert shape.gain[0] == pytest.approx(gaussian - float(nll.mean()), abs=0.08)


def test_gaussian_rows_are_left_alone():
    random = np.random.default_rng(4)
    clear = [fit(deviations(random.normal(size=rows))).is_clear for rows in (60, 200, 500, 1000, 3000)]
    assert not any(clear)
    assert not fit(deviations(random.exponential(size=30))).is_clear  # too few to tell


def test_gains_of_rows_are_by_shapes_of_other_rows():
    """One row far out gains nothing from a component of its own."""
    random = np.random.default_rng(5)
    s = deviations(random.standard_t(3, size=600))
    gains = shape_gains(s)
    assert gains.shape == (600,)
    shape = fit(s)
    assert float(gains.mean()) == pytest.approx(shape.gain[0])
    within = shape.log_density(s) - torch.distributions.Normal(0.0, 1.0).log_prob(s)
    assert float(gains.mean()) < float(within.mean())


def test_copies_of_a_row_are_no_further_rows():
    """Their own copies would make any narrow component seem good."""
    random = np.random.default_rng(8)
    for _ in range(4):
        s = random.normal(size=60)
        assert not fit(torch.from_numpy(np.repeat(s, 10))[:, None]).is_clear
    few = fit(torch.from_numpy(np.repeat(random.exponential(size=40), 10))[:, None])
    assert not few.is_clear
    assert "another shape needs 50 rows" in str(few)


def test_rows_that_folds_left_out_are_judged_without_their_fold():
    random = np.random.default_rng(9)
    s, folds = deviations(random.exponential(size=300)), torch.arange(300) % 3
    shape = fitted_shape(s, torch.full((300, 1), 1 / 300, dtype=torch.float64), Fit(300), folds)
    assert len(shape.weights) == 4
    left_out = shape.of_left_out(folds)
    gains = left_out.log_density(s) - torch.distributions.Normal(0.0, 1.0).log_prob(s)
    assert float(gains.mean()) == pytest.approx(shape.gain[0])
    assert float((shape.log_density(s) - left_out.log_density(s)).mean()) > 0
    some = left_out.of_rows(slice(0, 6))
    torch.testing.assert_close(some.log_density(s[:6]), left_out.log_density(s)[:6])
    torch.testing.assert_close(some.cdf(some.quantile(0.3)), torch.full((6, 1), 0.3).double())
    alone = fitted_shape(s[folds != 1], torch.full((200, 1), 1 / 200, dtype=torch.float64), Fit(200), folds[folds != 1])
    if alone.weights.shape[1] == shape.weights.shape[1]:
        torch.testing.assert_close(
            alone.quantile(0.9)[0], shape.of_left_out(torch.ones(1, dtype=torch.long)).quantile(0.9)[0]
        )


def test_weights_count_as_repetitions():
    random = np.random.default_rng(6)
    s = random.exponential(size=400) - 1
    twice = np.r_[s, s[:100]]
    weights = torch.from_numpy(np.r_[np.full(100, 2.0), np.ones(300)])[:, None]
    weighted = fitted_shape(torch.from_numpy(s)[:, None], weights / weights.sum(), Fit(400))
    repeated = fit(torch.from_numpy(twice)[:, None])
    at = torch.linspace(-0.9, 3, 9).double()[:, None]
    torch.testing.assert_close(weighted.cdf(at), repeated.cdf(at), atol=0.06, rtol=0)


@pytest.fixture(scope="module")
def skewed():
    """A posterior of y = x + skewed noise, and rows that it was not trained on."""
    random = np.random.default_rng(7)
    x = random.normal(size=(1200, 2))
    y = np.c_[x[:, 0] + random.exponential(size=1200), x[:, 1] + 0.5 * random.normal(size=1200)]
    training = wf.Training(
        wf.MLP(8), wf.Algorithm("adam", lr=0.02, batch_size=100), epochs=15, likelihood=wf.Regression("fit", 0.2)
    )
    posterior = wf.marginalise(training, (x[:700], y[:700]), [wf.InitialCondition(3)], engine="torch")
    return posterior, (x[700:], y[700:])


def test_a_calibrated_posterior_keeps_its_moments_and_sources(skewed):
    posterior, (x, y) = skewed
    shaped = posterior.calibrated("shape", (x[:400], y[:400]))
    before, after = posterior.predict(x[400:]), shaped.predict(x[400:])
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.variance, after.variance)
    shares = [each.sources().overall_of(0)["theta0"].share for each in (before, after)]
    assert shares[0] == shares[1]
    assert after.nll(y[400:]) < before.nll(y[400:]) - 0.1
    assert after.crps(y[400:]) < before.crps(y[400:])
    assert after.nll(y[400:], "gaussian") == pytest.approx(before.nll(y[400:]))
    first, second = after.of_output(0), after.of_output(1)
    assert float((first.interval(0.9)[1] - first.mean).mean()) > float((first.mean - first.interval(0.9)[0]).mean())
    assert bool((first.median < first.mean).all())
    assert second.nll(y[400:, 1]) == pytest.approx(before.of_output(1).nll(y[400:, 1]), abs=0.03)
    assert 0.85 < after.coverage(y[400:], 0.9) < 0.95
    with pytest.raises(ValueError, match="there is no shape"):
        before.nll(y[400:], "shape")


def test_a_shape_is_saved_with_the_posterior(skewed, tmp_path):
    posterior, (x, y) = skewed
    shaped = posterior.calibrated("shape", (x, y))
    shaped.save(tmp_path / "run")
    again = wf.load(tmp_path / "run")
    assert again.predict(x).nll(y) == shaped.predict(x).nll(y)
    assert str(again.calibration[0]) == str(shaped.calibration[0])
    assert "shape of" in str(shaped.calibration[0])


def test_conformal_intervals_come_after_a_shape(skewed):
    posterior, (x, y) = skewed
    both = posterior.calibrated("shape", (x, y)).calibrated("conformal", (x, y))
    assert both.predict(x).coverage(y, 0.9) == pytest.approx(0.9, abs=0.01)
    with pytest.raises(ValueError, match="calibrate by shape first"):
        posterior.calibrated("conformal", (x, y)).calibrated("shape", (x, y))
