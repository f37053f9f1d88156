"""Student's t against scipy, and mixtures of t's against quadrature."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from wherefrom.predictive import incomplete_beta, student
from wherefrom.predictive.student import StudentT

DF = [2.1, 3.0, 4.5, 30.0, 200.0]
T = np.array([-1e4, -40.0, -3.0, -0.2, -1e-5, 0.0, 1e-3, 0.7, 2.5, 1e3])


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def scipys(df: float, mean: float = 0.0, variance: float = 1.0):
    return stats.t(df, mean, math.sqrt(variance * (df - 2) / df))


def test_the_incomplete_beta_function_is_scipys():
    a, b, x = (
        each.ravel() for each in np.meshgrid([0.5, 1.05, 3.0, 100.0], [0.5, 2.0, 40.0], [0.0, 1e-9, 0.2, 0.9, 1.0])
    )
    found = incomplete_beta.regularised(*map(tensor, (a, b, x, 1 - x)))
    torch.testing.assert_close(found, tensor(special.betainc(a, b, x)), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("df", DF)
def test_density_distribution_function_and_quantiles_are_scipys(df):
    shape, t, expected = StudentT(tensor([df])), tensor(T)[:, None], scipys(df)
    torch.testing.assert_close(shape.log_density(t), tensor(expected.logpdf(T))[:, None], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(shape.cdf(t), tensor(expected.cdf(T))[:, None], rtol=1e-10, atol=1e-15)
    for probability in (1e-6, 0.025, 0.3, 0.5, 0.9, 0.999):
        assert float(shape.quantile(probability)) == pytest.approx(expected.ppf(probability), rel=1e-10, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("df", DF)
def test_crps_is_the_integral_of_the_squared_difference(df):
    expected, shape = scipys(df), StudentT(tensor([df]))
    for y in (-2.0, 0.0, 0.4, 5.0):

        def square(u: float, y=y) -> float:
            t = math.sinh(u)
            left = expected.cdf(t) if t < y else expected.sf(t)
            return left**2 * math.cosh(u)

        middle = math.asinh(y)
        cuts = [middle - 25, middle - 10, middle - 3, middle, middle + 3, middle + 10, middle + 25]
        parts = [integrate.quad(square, a, b, epsabs=1e-13, limit=200)[0] for a, b in itertools.pairwise(cuts)]
        total = math.fsum(parts)
        assert float(shape.crps(tensor([[y]]))) == pytest.approx(total, abs=1e-9)


@pytest.mark.slow
def test_two_draws_of_a_mixture_are_as_far_apart_as_by_quadrature():
    """And those of one t as its closed form has it."""
    means, variances, weights = [-3.0, 0.0, 0.3], [0.02, 1.0, 4.0], [0.2, 0.5, 0.3]
    for df in (2.1, 5.0):
        kernel = student.Kernel(tensor([df]))
        m, v, w = tensor(means)[:, None, None], tensor(variances)[:, None, None], tensor(weights)
        parts = [scipys(df, *each) for each in zip(means, variances, strict=True)]

        def f(t: float, parts=parts) -> float:
            return sum(weight * part.cdf(t) for weight, part in zip(weights, parts, strict=True))

        def g(t: float, parts=parts) -> float:
            return sum(weight * part.sf(t) for weight, part in zip(weights, parts, strict=True))

        def inner(u: float, f=f, g=g) -> float:
            return f(math.sinh(u)) * g(math.sinh(u)) * math.cosh(u)

        cuts = [-25, -12, -5, -2.2, *np.linspace(-2, 2, 41), 5, 12, 25]
        expected = math.fsum(integrate.quad(inner, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(cuts))
        mean = (w[:, None, None] * m).sum(0)
        spread = (w[:, None, None] * (v + (m - mean).square())).sum(0).sqrt()

        def below(z, kernel=kernel, m=m, v=v, w=w):
            return torch.tensordot(w, kernel.probability_below(m - z, v), 1)

        def above(z, kernel=kernel, m=m, v=v, w=w):
            return torch.tensordot(w, kernel.probability_below(z - m, v), 1)

        narrowest = v.amin(0).sqrt()
        found = student.half_apart(below, above, mean, spread, kernel.width(narrowest))
        assert float(found) == pytest.approx(expected, abs=1e-8)
        at = kernel.quantile(m, v, w, 0.1)
        assert float(below(at)) == pytest.approx(0.1, abs=1e-10)
        nothing = torch.zeros(1, 1, dtype=torch.float64)
        shape = StudentT(tensor([df]))
        one = student.half_apart(shape.cdf, lambda z, shape=shape: shape.cdf(-z), nothing, nothing + 1, nothing + 0.2)
        closed = student.mean_distance(nothing, nothing + 1, shape.df) - shape.crps(nothing)
        assert float(one) == pytest.approx(float(closed), abs=1e-8)


@pytest.mark.parametrize("df", [2.5, 5.0, 12.0])
def test_scale_and_degrees_of_freedom_are_the_most_likely(df):
    """They are scipy's own fit of the same draws."""
    drawn = stats.t(df, 0.0, 0.7).rvs(3000, random_state=1)
    square, nu = student.most_likely(tensor(drawn).square()[None, :, None])
    expected_nu, _, expected_scale = stats.t.fit(drawn, floc=0.0)
    assert float(nu) == pytest.approx(expected_nu, rel=2e-2)
    assert math.sqrt(float(square)) == pytest.approx(expected_scale, rel=2e-3)
    ours = stats.t(float(nu), 0, math.sqrt(float(square))).logpdf(drawn).mean()
    assert ours >= stats.t(expected_nu, 0, expected_scale).logpdf(drawn).mean() - 1e-6


def test_gaussian_rows_have_many_degrees_of_freedom():
    drawn = np.random.default_rng(0).normal(size=4000)
    _, nu = student.most_likely(tensor(drawn).square()[None, :, None])
    assert float(nu) > 25


def test_weights_count_as_copies_do():
    away = tensor(stats.t(3).rvs(60, random_state=0)).square()[None, :, None]
    weights = tensor(np.arange(60) % 3)
    copies = away[:, torch.arange(60).repeat_interleave(weights.long())]
    for one, other in zip(student.most_likely(away, None, weights), student.most_likely(copies), strict=True):
        torch.testing.assert_close(one, other)
