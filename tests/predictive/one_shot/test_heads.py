"""Softmax heads against many samples: probabilities that add up, with and without shared factors."""

import pytest
import torch
from torch import nn

import oracle
from wherefrom.predictive.one_shot import Moments


def sampled(x, function, samples=20_000):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(samples, *x.mean.shape, generator=generator, dtype=torch.float64)
    logits = x.mean + x.variance.sqrt() * z
    if x.factors is not None:
        shared = torch.randn(samples, len(x.factors), generator=generator, dtype=torch.float64)
        logits = logits + torch.einsum("sr,r...->s...", shared, x.factors)
    return function(logits)


def logits(classes, scale, rank=0):
    generator = torch.Generator().manual_seed(classes)
    mean = 2 * torch.randn(12, classes, generator=generator, dtype=torch.float64)
    variance = (scale * (0.5 + torch.rand(12, classes, generator=generator, dtype=torch.float64))) ** 2
    factors = scale * torch.randn(rank, 12, classes, generator=generator, dtype=torch.float64) / 2 if rank else None
    return Moments(mean, variance, factors)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("classes", "scale", "error"),
    [(2, 1, 0.004), (2, 6, 0.01), (3, 3, 0.01), (10, 1, 0.004), (10, 3, 0.015), (70, 1, 0.01)],
)
def test_probabilities(classes, scale, error, rank):
    """Also of logits that vary strongly, within what the docstring states and the samples' own error."""
    x, samples = logits(classes, scale, rank), 20_000
    found = oracle.pushed(nn.Softmax(dim=1), x, {}, [])
    many = sampled(x, lambda values: torch.softmax(values, -1), samples)
    torch.testing.assert_close(found.mean.sum(1), torch.ones(len(x.mean), dtype=torch.float64))
    assert (found.mean > 0).all()
    noise = many.std(0) / samples**0.5
    assert float(((found.mean - many.mean(0)).abs() - 4 * noise).max()) < error
    relative = (found.total_variance.mean(1) / many.var(0).mean(1)).sqrt() - 1  # classes together
    assert float(relative.abs().max()) < 0.03 + 2 * error


def test_shared_factors_of_probabilities_are_their_covariances_with_what_is_shared():
    """Cov(p, z_r) = E[p z_r], by samples."""
    x, samples = logits(4, 1.0, 2), 40_000
    found = oracle.pushed(nn.Softmax(dim=1), x, {}, [])
    generator = torch.Generator().manual_seed(7)
    own = torch.randn(samples, *x.mean.shape, generator=generator, dtype=torch.float64)
    z = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    p = torch.softmax(x.mean + x.variance.sqrt() * own + torch.einsum("sr,r...->s...", z, x.factors), -1)
    products = torch.einsum("s...,sr->rs...", p - p.mean(0), z)
    error = products.std(1) / samples**0.5
    assert ((found.factors - products.mean(1)).abs() <= 5 * error + 0.01).all()


def test_log_probabilities():
    x = logits(5, 0.5, 2)
    found = oracle.pushed(nn.LogSoftmax(dim=1), x, {}, [])
    many = sampled(x, lambda values: torch.log_softmax(values, -1))
    assert float(((found.mean - many.mean(0)) / many.std(0)).abs().max()) < 0.1
    assert float((found.total_variance.sqrt() / many.std(0) - 1).abs().median()) < 0.05


def test_certain_logits_and_other_dimensions():
    x = Moments(torch.randn(4, 3, 2))
    torch.testing.assert_close(oracle.pushed(nn.Softmax(dim=1), x, {}, []).mean, torch.softmax(x.mean, 1))
    spread = Moments(x.mean, torch.rand(4, 3, 2))
    found = oracle.pushed(nn.Softmax(dim=1), spread, {}, [])
    torch.testing.assert_close(found.mean.sum(1), torch.ones(4, 2))
    assert found.variance.shape == (4, 3, 2)


def test_a_common_shift_of_all_logits_changes_nothing():
    """Shared factors that move all classes alike leave the probabilities where they are."""
    mean = torch.tensor([[1.0, -0.5, 2.0]], dtype=torch.float64)
    x = Moments(mean, torch.zeros_like(mean), 5 * torch.ones(1, 1, 3, dtype=torch.float64))
    found = oracle.pushed(nn.Softmax(dim=1), x, {}, [])
    torch.testing.assert_close(found.mean, torch.softmax(mean, 1), rtol=1e-4, atol=1e-6)
    assert float(found.total_variance.max()) < 1e-12
