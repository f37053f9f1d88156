"""A likelihood of one's own: what follows from its distribution, against scipy."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

import wherefrom as wf
from wherefrom.files.codec import stored
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.training.data import Scaler, Schema


@stored("TestedLaplace")
@dataclass(frozen=True)
class Laplace(wf.OwnLikelihood):
    def distribution(self, location, log_width):
        return torch.distributions.Laplace(location, log_width.exp(), validate_args=False)


def predicted(outputs: np.ndarray) -> wf.OwnPrediction:
    """Outputs (members, rows, 2), y's unit is 10 + 2 z."""
    axes = (CrossedAxis("theta0", len(outputs), False),)
    mixture = Mixture(torch.as_tensor(outputs)[:, None], Plan(1, vary_theta=False, vary_mask=False), axes)
    schema = Schema((2,), (), True, 1, (), True, "")
    one = torch.ones(1, dtype=torch.float64)
    return Laplace().predictive(mixture, schema, Scaler(0 * one, one, 10 * one, 2 * one), None)


OUTPUTS = np.array([[[0.0, 0.3], [1.0, -0.5]], [[0.4, 0.0], [-1.0, 0.2]]])


def test_the_mixture_is_scipys():
    prediction, y = predicted(OUTPUTS), np.array([9.0, 13.0])
    for row in range(2):
        each = [stats.laplace(10 + 2 * OUTPUTS[m, row, 0], 2 * np.exp(OUTPUTS[m, row, 1])) for m in range(2)]
        mean = np.mean([d.mean() for d in each])
        assert float(prediction.mean[row]) == pytest.approx(mean, abs=1e-10)
        variance = np.mean([d.var() + d.mean() ** 2 for d in each]) - mean**2
        assert float(prediction.variance[row]) == pytest.approx(variance, abs=1e-10)
        density = np.mean([d.pdf(y[row]) for d in each])
        assert float(prediction.nll(y, by_row=True)[row]) == pytest.approx(-np.log(density), abs=1e-10)
        assert float(prediction.cdf(y)[row]) == pytest.approx(np.mean([d.cdf(y[row]) for d in each]), abs=1e-10)
        for p in (0.001, 0.3, 0.5, 0.99):
            value = float(prediction.quantile(p)[row])
            assert np.mean([d.cdf(value) for d in each]) == pytest.approx(p, abs=1e-10)


def test_intervals_lie_between_quantiles_or_are_conformal():
    prediction, y = predicted(OUTPUTS), np.array([9.0, 13.0])
    low, high = prediction.interval(0.9)
    torch.testing.assert_close(low, prediction.quantile(0.05))
    torch.testing.assert_close(high, prediction.quantile(0.95))
    assert prediction.coverage(y, 0.9) == np.mean((y >= low.numpy()) & (y <= high.numpy()))
    with pytest.raises(ValueError, match="there is no conformal interval"):
        prediction.interval(0.9, "conformal")
    with pytest.raises(ValueError, match='reading must be "mixture" or "conformal"'):
        prediction.coverage(y, 0.9, "gaussian")


def test_the_crps_is_that_of_a_laplace_distribution():
    prediction = predicted(OUTPUTS[:1])
    width = 2 * np.exp(OUTPUTS[0, :, 1])
    y = np.array([9.0, 15.0])
    away = np.abs(y - (10 + 2 * OUTPUTS[0, :, 0])) / width
    expected = width * (away + np.exp(-away) - 0.75)
    np.testing.assert_allclose(prediction.crps(y, by_row=True), expected, rtol=1e-3)


def test_samples_have_its_quantiles():
    prediction = predicted(OUTPUTS)
    drawn = prediction.sample(20_000, seed=1)
    below = (drawn <= prediction.quantile(0.3)).double().mean(0)
    np.testing.assert_allclose(below, 0.3, atol=4 * np.sqrt(0.21 / 20_000))
    assert torch.equal(drawn, prediction.sample(20_000, seed=1))


def test_several_columns_are_parted():
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 2))
    y = np.stack([x[:, 0], 5 - x[:, 1]], 1) + 0.2 * random.laplace(size=(120, 2))
    how = wf.Training(wf.MLP([10]), wf.Algorithm("adam", lr=0.01, batch_size=40), 10, Laplace())
    prediction = wf.marginalise(how, (x, y), [wf.InitialCondition(2)]).predict(x)
    parts = [prediction.of_output(j) for j in range(2)]
    torch.testing.assert_close(parts[1].quantile(0.3), prediction.quantile(0.3)[:, 1])
    torch.testing.assert_close(
        parts[0].nll(y[:, 0], by_row=True) + parts[1].nll(y[:, 1], by_row=True), prediction.nll(y, by_row=True)
    )
    with pytest.raises(ValueError, match="with one of your own"):
        Laplace.of_table(None)
