"""Moments of functions of one Gaussian variable, and of pairs, against fine quadrature in double precision."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from wherefrom.predictive.one_shot import scalars

CLOSED = {
    "relu": (torch.relu, scalars.relu),
    "leaky_relu": (partial(F.leaky_relu, negative_slope=0.2), partial(scalars.leaky_relu, negative_slope=0.2)),
    "elu": (partial(F.elu, alpha=1.3), partial(scalars.elu, alpha=1.3)),
    "clamp": (partial(torch.clamp, min=-0.5, max=2.0), partial(scalars.clamp, low=-0.5, high=2.0)),
    "clamp above": (partial(torch.clamp, max=1.5), partial(scalars.clamp, high=1.5)),
    "hard sigmoid": (F.hardsigmoid, scalars.hard_sigmoid),
    "hard swish": (F.hardswish, scalars.hard_swish),
    "selu": (F.selu, partial(scalars.elu, alpha=1.6732632423543772, scale=1.0507009873554805)),
}
SMOOTH = {
    "sigmoid": (torch.sigmoid, scalars.sigmoid),
    "tanh": (torch.tanh, scalars.tanh),
    "silu": (F.silu, scalars.silu),
    "gelu": (F.gelu, scalars.gelu),
    "gelu tanh": (partial(F.gelu, approximate="tanh"), partial(scalars.gelu, approximate="tanh")),
    "softplus": (partial(F.softplus, beta=2.0), partial(scalars.softplus, beta=2.0)),
}
ALL = CLOSED | SMOOTH
MEANS = torch.tensor([-6.0, -2.5, -0.7, 0.0, 0.4, 1.0, 3.0, 8.0], dtype=torch.float64)


def reference(function, mean, std):
    """E f, Var f and E f' on 40,001 points of nine standard deviations; a kink costs about 1e-8."""
    z = torch.linspace(-9, 9, 40_001, dtype=torch.float64)
    weight = torch.exp(-0.5 * z * z)
    weight = weight / weight.sum()
    values = function(mean[:, None] + std * z)
    first = (weight * values).sum(1)
    variance = (weight * (values - first[:, None]).square()).sum(1)
    return first, variance, (weight * z * values).sum(1) / std


@pytest.mark.parametrize("std", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name, std):
    function, scalar = CLOSED[name]
    pushed = scalar(MEANS, torch.full_like(MEANS, std**2))
    mean, variance, slope = reference(function, MEANS, std)
    torch.testing.assert_close(pushed.mean, mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(pushed.variance, variance, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(pushed.slope, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("std", "error"), [(0.01, 1e-4), (0.3, 2e-3), (1.0, 1e-2), (3.0, 3e-3), (10.0, 0.06)])
@pytest.mark.parametrize("name", SMOOTH)
def test_quadrature_is_as_good_as_it_says(name, std, error):
    """In standard deviations of the result, as the docstring has it (softplus at beta = 2 is twice as sharp)."""
    function, scalar = SMOOTH[name]
    wide = std * 2 if name == "softplus" else std
    if wide > 10:
        return
    pushed = scalar(MEANS, torch.full_like(MEANS, std**2))
    mean, variance, _ = reference(function, MEANS, std)
    limit = max(error, 3e-3 if wide > 3 else 0.0)
    assert float(((pushed.mean - mean).abs() / variance.sqrt()).max()) < limit
    assert float((pushed.variance.sqrt() / variance.sqrt() - 1).abs().max()) < limit


@pytest.mark.parametrize("name", ALL)
def test_numbers_are_safe_in_single_precision(name):
    """At s = 0 and at |mu| / s up to a million there is no NaN, and the answer is that of the function itself."""
    function, scalar = ALL[name]
    mean = torch.tensor([-1e6, -1e3, -1.0, 0.0, 1.0, 1e3, 1e6])
    certain = scalar(mean, torch.zeros_like(mean))
    torch.testing.assert_close(certain.mean, function(mean))
    assert torch.count_nonzero(certain.variance) == 0
    assert torch.isfinite(certain.slope).all()
    nearly = scalar(mean, torch.full_like(mean, 1e-12))
    slope = (function(mean.double() + 1e-6) - function(mean.double() - 1e-6)) / 2e-6
    for part in nearly:
        assert torch.isfinite(part).all()
    away = mean != 0  # from the kink
    torch.testing.assert_close(nearly.variance[away].double(), 1e-12 * slope[away] ** 2, rtol=2e-2, atol=1e-16)
    wide = scalar(mean, torch.full_like(mean, 1e8))
    assert all(torch.isfinite(part).all() for part in wide)
    assert (wide.variance >= 0).all()


def pairs():
    generator = np.random.default_rng(0)
    for rho in (-0.999, -0.6, 0.0, 0.3, 0.9, 0.99999):
        mean, std = generator.normal(size=2), np.exp(generator.normal(size=2) * 0.5)
        yield mean, std, rho


@pytest.mark.parametrize(("mean", "std", "rho"), list(pairs()))
@pytest.mark.parametrize(
    ("function", "pair", "error"),
    [
        (torch.relu, scalars.relu_pair, 2e-5),
        (partial(F.leaky_relu, negative_slope=0.2), partial(scalars.leaky_relu_pair, negative_slope=0.2), 2e-5),
        (torch.tanh, partial(scalars.smooth_pair, torch.tanh), 0.03),
        (F.silu, partial(scalars.smooth_pair, F.silu), 0.03),
    ],
)
def test_pairs_against_two_dimensional_quadrature(mean, std, rho, function, pair, error):
    z = torch.linspace(-8, 8, 1601, dtype=torch.float64)
    weight = torch.exp(-0.5 * z * z)
    weight = weight / weight.sum()
    first = function(mean[0] + std[0] * z)[:, None]
    second = function(mean[1] + std[1] * (rho * z[:, None] + math.sqrt(1 - rho**2) * z[None, :]))
    both = weight[:, None] * weight[None, :]
    expected = float((both * first * second).sum() - (both * first).sum() * (both * second).sum())
    scale = std[0] * std[1]
    covariance = torch.tensor([[std[0] ** 2, rho * scale], [rho * scale, std[1] ** 2]])
    found = pair(torch.tensor(mean)[None], torch.tensor(std**2)[None], covariance[None])
    assert float(found[0, 0, 1]) == pytest.approx(expected, abs=error * scale)
    assert float(found[0, 1, 0]) == pytest.approx(float(found[0, 0, 1]))
