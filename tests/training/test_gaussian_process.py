"""The mean of a Gaussian process: scikit-learn's, and the marginal likelihood by finite differences, as oracles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern

import wherefrom as wf
from wherefrom.training import gaussian_process as gp
from wherefrom.training.losses import CrossEntropy, GaussianNLL, SquaredError


def rows(count: int = 80) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.2 * random.normal(size=count)
    return torch.from_numpy(x), torch.from_numpy(y)[:, None]


def model(how: wf.GaussianProcess, tensors, outputs: int) -> torch.nn.Module:
    module = how.sized(3, outputs)().double()
    module.load_state_dict(tensors)
    return module.requires_grad_(False)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_mean_is_that_of_scikit_learn_with_the_same_kernel(is_weighted):
    """It is exact with no more rows than centres; a row's weight divides its noise."""
    x, y = rows()
    weights = torch.linspace(0.5, 1.5, len(y), dtype=torch.float64) if is_weighted else None
    shares = torch.ones(len(y), dtype=torch.float64) if weights is None else weights
    how = wf.GaussianProcess(centres=100)
    middle = (shares[:, None] * y).sum() / shares.sum()
    prior = gp._Prior.of(gp._likeliest(x, y - middle, shares), 3)
    kernel = ConstantKernel(prior.variance) * Matern((1 / prior.scale).numpy(), nu=2.5)
    kernel += ConstantKernel(prior.slopes) * DotProduct(1e-12)
    oracle = GaussianProcessRegressor(kernel, alpha=(prior.noise / shares).numpy(), optimizer=None)
    new = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = oracle.fit(x.numpy(), (y - middle).numpy()).predict(new.numpy()).reshape(-1, 1) + float(middle)
    answers = model(how, how.fit(x, y, weights, SquaredError(), 1), 1)(new).numpy()
    np.testing.assert_allclose(answers, expected, atol=1e-5)


def test_without_noise_single_precision_is_enough_for_all_but_the_sums():
    """Kernels around 200 rows have weights of some 1,000,000 there, and their sum is about 1."""
    x = rows(200)[0].float()
    y = 0.1 * (x[:, :1] * x[:, 1:2] + x[:, 2:].square())
    how = wf.GaussianProcess(centres=200)
    tensors = how.fit(x, y, None, SquaredError(), 1)
    assert float(tensors["weights"].abs().max()) > 100_000
    new = 0.5 * torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    in_double, in_single = model(how, tensors, 1), model(how, tensors, 1).float()
    answers = in_single(new)
    assert float((answers - in_double(new.double())).abs().max()) < 1e-5
    truth = 0.1 * (new[:, :1] * new[:, 1:2] + new[:, 2:].square())
    assert float((answers - truth).square().mean().sqrt()) < 0.001


def test_fewer_centres_than_rows_come_near():
    x, y = rows(300)
    new = 0.5 * torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact, near = (
        model(how, how.fit(x, y, None, SquaredError(), 1), 1)(new)
        for how in (wf.GaussianProcess(300), wf.GaussianProcess(150))
    )
    assert float((exact - near).square().mean().sqrt()) < 0.05  # of y's deviation, which is about 1.2


def test_the_prior_is_where_the_marginal_likelihood_is_flat(monkeypatch):
    """After many steps, no length nor variance that is changed by 1% makes the rows more likely by much."""
    monkeypatch.setattr(gp, "_STEPS", 600)
    x, y = rows()
    shares = torch.ones(len(y), dtype=torch.float64)
    prior = gp._Prior.of(gp._likeliest(x, y, shares), 3)

    def log_posterior(scale, variance, slopes, noise) -> float:
        process = gp._Prior(scale, variance, slopes, noise)
        covariance = process.covariance(x, x) + noise * torch.eye(len(y), dtype=torch.float64)
        likely = torch.distributions.MultivariateNormal(torch.zeros(len(y)).double(), covariance).log_prob(y[:, 0])
        usual = 0.5 * np.log(3) + np.log(2)
        return float(likely - 0.5 * ((-scale.log() - usual) / gp._WIDTH_OF_LENGTHS).square().sum())

    best = log_posterior(prior.scale, prior.variance, prior.slopes, prior.noise)
    for times in (0.99, 1.01):
        for k in range(3):
            changed = prior.scale.clone()
            changed[k] *= times
            assert log_posterior(changed, prior.variance, prior.slopes, prior.noise) < best + 1e-3
        assert log_posterior(prior.scale, times * prior.variance, prior.slopes, prior.noise) < best + 1e-3
        assert log_posterior(prior.scale, prior.variance, times * prior.slopes, prior.noise) < best + 1e-3
        assert log_posterior(prior.scale, prior.variance, prior.slopes, times * prior.noise) < best + 1e-3


def test_a_variance_for_each_row_is_the_noise():
    x, y = rows()
    how = wf.GaussianProcess()
    answers = model(how, how.fit(x, y, None, GaussianNLL(), 2), 2)(x)
    assert float(answers[:, 1].max() - answers[:, 1].min()) == 0
    assert float(answers[0, 1].exp()) == pytest.approx(0.04, rel=0.5)  # 80 rows: its standard error is a sixth


def test_classes_are_refused():
    x, y = rows()
    with pytest.raises(ValueError, match=r"for quantities.*CrossEntropy"):
        wf.GaussianProcess().fit(x, y, None, CrossEntropy(), 2)
    with pytest.raises(ValueError, match="centres"):
        wf.GaussianProcess(0)
