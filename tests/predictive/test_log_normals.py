"""Mixtures of log-normals against scipy, quadrature and draws."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from wherefrom.predictive.log_normals import LogNormals

M, S, W = np.array([0.3, -1.0, 1.2]), np.array([0.4, 0.9, 0.2]), np.array([0.5, 0.2, 0.3])
Y = np.array([0.05, 0.8, 2.0, 7.0])


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def mixture(zero: float = 0.0, rows: int = len(Y), most: float = math.inf) -> LogNormals:
    means, variances, weights = (tensor(each)[:, None, None].repeat(1, rows, 1) for each in (M, S**2, (1 - zero) * W))
    none = torch.full((rows, 1), zero, dtype=torch.float64)
    return LogNormals(means, variances, weights, none if zero else None, most)


def each_one(function: str, *at):
    return np.array([getattr(stats.lognorm(s, scale=np.exp(m)), function)(*at) for m, s in zip(M, S, strict=True)])


@pytest.mark.parametrize("zero", [0.0, 0.3])
def test_moments_density_and_distribution_function_are_scipys(zero):
    found, share = mixture(zero), (1 - zero) * W
    mean = share @ each_one("mean")
    second = share @ (each_one("var") + each_one("mean") ** 2)
    close = dict(rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.mean, tensor(mean).expand(len(Y), 1), **close)
    torch.testing.assert_close(found.variance, tensor(second - mean**2).expand(len(Y), 1), **close)
    y = tensor(Y)[:, None]
    torch.testing.assert_close(found.log_density(y), tensor(np.log(share @ each_one("pdf", Y)))[:, None], **close)
    torch.testing.assert_close(found.cdf(y), tensor(zero + share @ each_one("cdf", Y))[:, None], **close)
    nothing = torch.zeros_like(y)
    assert float(found.cdf(nothing)[0]) == zero
    assert float(found.cdf(nothing - 1)[0]) == 0
    assert float(found.log_density(nothing)[0]) == (math.log(zero) if zero else -math.inf)


@pytest.mark.parametrize("zero", [0.0, 0.3])
@pytest.mark.parametrize("probability", [0.02, 0.29, 0.31, 0.5, 0.975])
def test_quantiles_invert_the_distribution_function(probability, zero):
    found = mixture(zero)
    at = found.quantile(probability)
    if probability <= zero:
        assert not at.any()
    else:
        torch.testing.assert_close(found.cdf(at), torch.full_like(at, probability), rtol=0, atol=1e-10)


def test_the_quantile_of_one_is_closed():
    one = LogNormals(tensor([[[0.5]]]), tensor([[[0.49]]]), torch.ones(1, 1, 1).double())
    expected = stats.lognorm(0.7, scale=math.exp(0.5)).ppf(0.9)
    assert float(one.quantile(0.9)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("zero", [0.0, 0.02, 0.3, 0.7])
def test_intervals_hold_those_of_lower_levels_and_what_they_say(zero):
    found = mixture(zero)
    before = found.quantile(0.5), found.quantile(0.5)
    for level in np.linspace(0.02, 0.999, 60):
        low, high = found.interval(level)
        assert bool((low <= before[0] + 1e-12).all() and (high >= before[1] - 1e-12).all())
        held = found.cdf(high) - torch.where(low > 0, found.cdf(low), 0.0)  # and 0 itself where it begins there
        assert float(held.min()) > level - 1e-9
        if zero <= (1 - level) / 2 or 1 - level <= zero <= level:  # or else one end stays, until the other is at 0
            assert float(held.max()) < level + 1e-9
        before = low, high


@pytest.mark.parametrize("zero", [0.0, 0.02, 0.3, 0.7])
def test_the_level_that_is_needed_is_the_lowest_whose_interval_holds_y(zero):
    found, levels = mixture(zero), np.linspace(0.0005, 0.9995, 1000)
    values = tensor([0.0 if zero else 0.3, 0.05, 2.0, 4.5])
    needed = torch.maximum(*found.needed(values[:, None]))[:, 0]
    ends = torch.stack([torch.cat(found.interval(level), 1) for level in levels])  # (levels, rows, 2)
    held = (ends[..., 0] <= values) & (values <= ends[..., 1])
    lowest = tensor(levels)[held.double().argmax(0)]
    torch.testing.assert_close(lowest, needed.clamp_min(levels[0]), rtol=0, atol=1.01e-3)


@pytest.mark.slow
@pytest.mark.parametrize("zero", [0.0, 0.3])
def test_crps_is_the_integral_of_the_squared_difference(zero):
    """Which the quadrature has to 1e-10, cut where F is a step."""
    share = (1 - zero) * W
    logs = np.append([-40.0, -25.0], np.linspace(-18, 9, 55))

    def square(log_t: float, y: float) -> float:
        t = math.exp(log_t)
        return (zero + share @ each_one("cdf", t) - (t >= y)) ** 2 * t

    for y in (0.0, *Y):
        edges = np.sort(np.append(logs, math.log(y) if y else -20.0))
        parts = [integrate.quad(square, a, b, (y,), epsabs=1e-13)[0] for a, b in itertools.pairwise(edges)]
        assert float(mixture(zero, rows=1).crps(tensor([[y]]))) == pytest.approx(math.fsum(parts), abs=1e-8)


def test_points_are_log_normals_without_variance():
    points = LogNormals(tensor([0.0, 1.0])[:, None, None], torch.zeros(2, 1, 1).double(), torch.full((2, 1, 1), 0.5))
    a, b = 1.0, math.e
    assert float(points.mean) == pytest.approx((a + b) / 2)
    assert float(points.variance) == pytest.approx((b - a) ** 2 / 4)
    assert float(points.crps(tensor([[2.0]]))) == pytest.approx((1 + b - 2) / 2 - (b - a) / 4)


@pytest.mark.parametrize("most", [0.5, 2.0])
def test_moments_end_at_the_most(most):
    """They are those of min(y, c)."""
    found = mixture(rows=1, most=most)

    def moment(power: int) -> float:
        total = 0.0
        for m, s, w in zip(M, S, W, strict=True):
            normal = stats.norm(m, s)
            inner = integrate.quad(lambda z, n=normal: math.exp(power * z) * n.pdf(z), m - 12 * s, most, epsabs=1e-13)[
                0
            ]
            total += w * (inner + math.exp(power * most) * normal.sf(most))
        return total

    assert float(found.mean) == pytest.approx(moment(1), rel=1e-9)
    assert float(found.variance) == pytest.approx(moment(2) - moment(1) ** 2, rel=1e-8)


def test_draws_are_of_the_distribution():
    drawn = mixture(0.3, rows=1).sample(200_000, torch.Generator().manual_seed(0)).flatten()
    assert float((drawn == 0).double().mean()) == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 200_000))
    there = drawn[drawn > 0].numpy()
    assert stats.kstest(there, lambda y: W @ each_one("cdf", y)).pvalue > 0.01
