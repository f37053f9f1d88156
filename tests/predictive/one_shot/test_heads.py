"""Softmax heads against many samples: probabilities that add up, with and without shared factors."""

import pytest
import torch
from torch import nn

import oracle
from wherefrom.predictive.one_shot import Moments


def sampled(x, function, samples=40_000):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(samples, *x.mean.shape, generator=generator, dtype=torch.float64)
    logits = x.mean + x.variance.sqrt() * z
    if x.factors is not None:
        shared = torch.randn(samples, len(x.factors), generator=generator, dtype=torch.float64)
        logits = logits + torch.einsum("sr,r...->s...", shared, x.factors)
    return function(logits)


def logits(classes, scale, rank=0):
    generator = torch.Generator().manual_seed(classes)
    mean = 2 * torch.randn(30, classes, generator=generator, dtype=torch.float64)
    variance = (scale * (0.5 + torch.rand(30, classes, generator=generator, dtype=torch.float64))) ** 2
    factors = scale * torch.randn(rank, 30, classes, generator=generator, dtype=torch.float64) / 2 if rank else None
    return Moments(mean, variance, factors)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("classes", "scale", "error", "deviation"), [(2, 1, 0.01, 0.02), (3, 0.3, 0.01, 0.02), (10, 1, 0.05, 0.08)]
)
def test_probabilities(classes, scale, error, deviation, rank):
    x = logits(classes, scale, rank)
    found = oracle.pushed(nn.Softmax(dim=1), x, {}, [])
    many = sampled(x, lambda values: torch.softmax(values, -1))
    torch.testing.assert_close(found.mean.sum(1), torch.ones(30, dtype=torch.float64))
    assert (found.mean > 0).all()
    assert float((found.mean - many.mean(0)).abs().max()) < error * (2 if rank else 1)
    relative = found.total_variance.sqrt() / many.std(0) - 1
    assert float(relative.abs().median()) < deviation * (2 if rank else 1)


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
