"""Monte Carlo prediction against a loop over modules, and exact moments of dropout."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import mlp, training
from wherefrom.posterior.groups import groups
from wherefrom.predictive import monte_carlo
from wherefrom.predictive.monte_carlo import Plan

EVERYTHING = [*wf.recipes.multi_swag(3), wf.Dropout()]


def loaded(posterior: wf.Posterior, theta: torch.Tensor, model) -> nn.Module:
    module = model().eval()
    module.load_state_dict({n: t.clone() for n, t in posterior.network.layout.views(theta).items()}, strict=False)
    return module


def test_equals_loading_each_sample_into_the_module(problem):
    x, _ = problem
    posterior = wf.marginalise(training(), problem, wf.recipes.multi_swag(3))
    answers = posterior.predict(x, samples=6).answers
    standardised = posterior.scaler.x(torch.from_numpy(x), torch.float32)
    for m, member in enumerate(groups(posterior)[0].thetas):
        thetas = monte_carlo.Thetas(member, posterior.seed).get(np.arange(6))
        for s in range(6):
            expected = loaded(posterior, thetas[s], mlp())(standardised)
            torch.testing.assert_close(answers[m, s], expected.detach(), rtol=0, atol=1e-5)


def test_a_rows_prediction_does_not_depend_on_its_neighbours(problem):
    x, _ = problem
    posterior = wf.marginalise(training(), problem, EVERYTHING)
    together = posterior.predict(x, samples=8)
    alone = posterior.predict(x[17:18], samples=8)
    torch.testing.assert_close(together.samples[:, :, 17:18], alone.samples, rtol=1e-5, atol=1e-5)


def test_chunks_change_nothing(problem, monkeypatch):
    x, _ = problem
    posterior = wf.marginalise(training(), problem, EVERYTHING)
    whole = posterior.predict(x, samples=12).answers
    monkeypatch.setattr(monte_carlo, "_CALL_NUMBERS", 5000)
    monkeypatch.setattr(monte_carlo, "_MOST_ROWS", 7)
    torch.testing.assert_close(posterior.predict(x, samples=12).answers, whole, rtol=0, atol=1e-5)


def test_repeated_calls_agree_and_seeds_differ(problem):
    x, _ = problem
    posterior = wf.marginalise(training(), problem, EVERYTHING)
    first = posterior.predict(x, samples=4).answers
    assert torch.equal(first, posterior.predict(x, samples=4).answers)
    assert not torch.equal(first, posterior.predict(x, samples=4, seed=9).answers)
    assert torch.equal(first, posterior.predict(x, samples=8).answers[:, :4])


def test_dropout_has_its_exact_moments(problem):
    """Dropout before a linear layer: mean f, variance p / (1 - p) sum_i (w_i h_i)^2, within five standard errors."""
    x, _ = problem
    rate, samples = 0.3, 4000
    posterior = wf.marginalise(training(mlp(rate=rate), standardise=False), problem, [wf.Dropout()])
    module = loaded(posterior, posterior.mixture[0].trained.last, mlp(rate=rate))
    with torch.no_grad():
        hidden = torch.relu(module[0](torch.from_numpy(x).float())).double()
        weight = module[3].weight[0].double()
        mean = hidden @ weight + module[3].bias.double()
    variance = rate / (1 - rate) * (hidden * weight).square().sum(1)
    prediction = posterior.predict(x, samples=samples)
    assert ((prediction.mean - mean).abs() <= 5 * (variance / samples).sqrt() + 1e-5).all()
    fourth = (prediction.samples[0] - mean).pow(4).mean(0) - variance.square()
    assert ((prediction.variance - variance).abs() <= 5 * (fourth / samples).sqrt() + 1e-5).all()


def test_a_given_rate_overrides_the_models():
    posterior_rates = []
    for rate in (None, 0.4):
        posterior = wf.marginalise(training(), (np.eye(4), np.arange(4.0)), [wf.Dropout(rate)])
        posterior_rates.append(posterior.network.sites[0].rate)
    assert posterior_rates == [0.1, 0.4]


def test_blocks_cross_two_thetas_with_two_masks():
    plan = Plan.of(9, True, True)
    sample = np.arange(plan.samples)
    assert plan.samples == 12
    assert plan.theta(sample).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert plan.mask(sample).tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]


def test_what_does_not_vary_is_sampled_once(problem):
    posterior = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(3))
    assert posterior.predict(problem[0], samples=100).answers.shape == (3, 1, 90, 1)


def test_sample_gives_theta_as_tensors(problem):
    posterior = wf.marginalise(training(), problem, wf.recipes.multi_swag(3))
    drawn = posterior.sample(7)
    assert len(drawn) == 7
    assert drawn[0]["0.weight"].shape == (12, 4)
    many = torch.stack([d["3.bias"] for d in posterior.sample(900)])[:, 0].double()
    laws = posterior.laws()
    means = torch.stack([law.mean[-1] for law in laws]).double()
    variances = torch.stack([law.variance[-1] for law in laws]).double()
    spread = math.sqrt(float(variances.mean() + means.var(correction=0)))
    assert float(many.mean()) == pytest.approx(float(means.mean()), abs=4 * spread / 30)


def test_no_samples_is_refused(problem):
    posterior = wf.marginalise(training(), problem, [])
    with pytest.raises(ValueError, match="samples must be"):
        posterior.predict(problem[0], samples=0)
    with pytest.raises(ValueError, match="at least one"):
        posterior.sample(0)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.first(x))))


def test_batch_norm_follows_every_sample(problem, tmp_path):
    """Each sample's statistics are those that torch's update_bn finds for it; without them answers are wrong."""
    x, _ = problem
    lively = training(Normalised, algorithm=wf.Algorithm("sgd", lr=0.3, batch_size=25), epochs=10)
    posterior = wf.marginalise(lively, problem, wf.recipes.swag(rank=3))
    answers = posterior.predict(x, samples=3).answers[0]
    standardised = posterior.scaler.x(torch.from_numpy(x), torch.float32)
    thetas = monte_carlo.Thetas(groups(posterior)[0].thetas[0], posterior.seed).get(np.arange(3))
    for s in range(3):
        module = loaded(posterior, thetas[s], Normalised)
        stale = module(standardised).detach()
        torch.optim.swa_utils.update_bn([standardised], module)
        fresh = module.eval()(standardised).detach()
        torch.testing.assert_close(answers[s], fresh, rtol=0, atol=1e-4)
        assert (stale - fresh).abs().max() > 0.01
    posterior.save(tmp_path)
    with pytest.raises(ValueError, match="batch normalisation needs training rows"):
        wf.load(tmp_path, Normalised).predict(x)
    again = wf.load(tmp_path, Normalised, data=problem).predict(x, samples=3)
    assert torch.equal(again.answers[0], answers)
