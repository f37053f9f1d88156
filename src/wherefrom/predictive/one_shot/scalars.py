"""Moments of a function of one Gaussian variable: X ~ N(mu, s^2) -> E f(X), Var f(X), and the slope E f'(X).

The slope is what the function does to anything that moves X a little: Cov(f(X), Z) = E f'(X) Cov(X, Z) for jointly
Gaussian X and Z. All of them are safe at s = 0 and at |mu| / s of any size, in single precision. For pairs of jointly
Gaussian variables there is the covariance of f(X) and f(Y).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[[Tensor], Tensor]

_SATURATED = 12.0  # standard deviations beyond which a kink is not felt, in double precision too
_POINTS, _REACH = 33, 6.0  # of the trapezoidal rule


class Pushed(NamedTuple):
    """Moments of a function of a Gaussian variable."""

    mean: Tensor
    variance: Tensor
    slope: Tensor


Scalar = Callable[[Tensor, Tensor], Pushed]  # (mean, variance) -> pushed
Pair = Callable[[Tensor, Tensor, Tensor], Tensor]  # (mean, variance, covariance of pairs) -> covariance of pairs


def relu(mean: Tensor, variance: Tensor) -> Pushed:
    """Moments by a = mu / s and u = a P + p:  s u,  s^2 (P + u (a - u)),  P    (P and p: the normal cdf and pdf)

    The variance is written so that nothing large is taken from anything large.
    """
    std, a = _standardised(mean, variance)
    above = torch.special.ndtr(a)
    density = torch.exp(-0.5 * a * a) * (2 * math.pi) ** -0.5
    u = torch.addcmul(density, a, above)
    share = torch.addcmul(above, u, a - u).clamp(0.0, 1.0)
    return Pushed(torch.addcmul(mean * above, std, density), variance * share, above)


def leaky_relu(mean: Tensor, variance: Tensor, negative_slope: float = 0.01) -> Pushed:
    """negative_slope x + (1 - negative_slope) relu(x), and Cov(x, relu(x)) = s^2 P"""
    part = relu(mean, variance)
    rest = 1 - negative_slope
    return Pushed(
        negative_slope * mean + rest * part.mean,
        negative_slope**2 * variance + rest**2 * part.variance + 2 * negative_slope * rest * part.slope * variance,
        negative_slope + rest * part.slope,
    )


def elu(mean: Tensor, variance: Tensor, alpha: float = 1.0, scale: float = 1.0) -> Pushed:
    """scale * (x above zero, alpha (exp(x) - 1) below), by E[exp(k x); x < 0] = exp(k mu + k^2 s^2 / 2) P(-a - k s)"""
    given = mean.dtype
    mean, variance = mean.double(), variance.double()
    std = variance.sqrt()
    a = mean / std.clamp_min(torch.finfo(torch.float64).tiny)

    def tail(k: int) -> Tensor:
        return torch.exp(k * mean + 0.5 * k * k * variance + _log_ndtr(-a - k * std))

    part = relu(mean, variance)
    below, once, twice = torch.special.ndtr(-a), tail(1), tail(2)
    first = part.mean + alpha * (once - below)
    second = part.variance + part.mean.square() + alpha**2 * (twice - 2 * once + below)
    spread = (second - first.square()).clamp_min(0.0)
    # Far from the kink the two halves of that difference are large and nearly equal: there it is a single branch.
    certain = torch.where(mean > 0, 1.0, (alpha * torch.exp(mean.clamp_max(0.0))).square()) * variance
    spread = torch.where(variance < 1e-8 * mean.square().clamp_min(1e-12), certain, spread)
    slope = part.slope + alpha * once
    return Pushed((scale * first).to(given), (scale**2 * spread).to(given), (scale * slope).to(given))


def clamp(mean: Tensor, variance: Tensor, low: float | None = None, high: float | None = None) -> Pushed:
    """low + r - q with r = relu(x - low), q = relu(x - high), and r q = q^2 + (high - low) q, so that

    Var = Var r - Var q - 2 E q (high - E clamp),    slope = P(low < x < high)

    Where the mean is nearer to the upper bound, it is the mirror image of one that is nearer to the lower.
    """
    if low is None and high is None:
        return Pushed(mean, variance, torch.ones_like(mean))
    if low is None or high is None:
        sign, bound = (1.0, low) if high is None else (-1.0, high)
        assert bound is not None
        part = relu(sign * (mean - bound), variance)
        return Pushed(bound + sign * part.mean, part.variance, part.slope)
    mirrored = mean > (low + high) / 2
    near = torch.where(mirrored, low + high - mean, mean)
    above_low, above_high = relu(near - low, variance), relu(near - high, variance)
    centre = low + above_low.mean - above_high.mean
    spread = above_low.variance - above_high.variance - 2 * above_high.mean * (high - centre)
    slope = above_low.slope - above_high.slope
    return Pushed(torch.where(mirrored, low + high - centre, centre), spread.clamp_min(0.0), slope)


def hard_sigmoid(mean: Tensor, variance: Tensor) -> Pushed:
    """clamp(x, -3, 3) / 6 + 1/2"""
    part = clamp(mean, variance, -3.0, 3.0)
    return Pushed(part.mean / 6 + 0.5, part.variance / 36, part.slope / 6)


def hard_swish(mean: Tensor, variance: Tensor) -> Pushed:
    """(x^2 + 3 x) / 6 between -3 and 3 and x above, by E[x^k; x > c] = M_k(c):

    M_0 = P(a),    M_1 = mu P(a) + s p(a),    M_{k+1} = mu M_k + k s^2 M_{k-1} + s c^k p(a)        with a = (mu - c) / s
    """
    given = mean.dtype
    mean, variance = mean.double(), variance.double()
    std = variance.sqrt()

    def partial_moments(c: float) -> list[Tensor]:
        a = _standardised(mean - c, variance)[1]
        density = std * torch.exp(-0.5 * a * a) * (2 * math.pi) ** -0.5
        found = [torch.special.ndtr(a)]
        for k in range(4):
            before = k * variance * found[k - 1] if k else 0.0
            found.append(mean * found[k] + before + c**k * density)
        return found

    above = partial_moments(3.0)
    between = [low - high for low, high in zip(partial_moments(-3.0), above, strict=True)]
    first = (between[2] + 3 * between[1]) / 6 + above[1]
    second = (between[4] + 6 * between[3] + 9 * between[2]) / 36 + above[2]
    slope = (2 * between[1] + 3 * between[0]) / 6 + above[0]
    spread = (second - first.square()).clamp_min(0.0)
    # Where s is small, the difference of two large numbers is one of rounding: the function is a line there.
    spread = torch.where(variance < 1e-8 * (1 + mean.square()), slope.square() * variance, spread)
    return Pushed(first.to(given), spread.to(given), slope.to(given))


def smooth(function: Function, mean: Tensor, variance: Tensor) -> Pushed:
    """Any function that is smooth on the scale of s / 3, by the trapezoidal rule on 33 points of mu ± 6 s.

    For sigmoid, tanh, softplus, SiLU and GELU the errors of mean and standard deviation, in standard deviations of the
    result, are below 1e-2 where s <= 1, 3e-3 at s = 3, and 6e-2 at s = 10, where they are steps to a Gaussian so wide.
    """
    std = variance.sqrt()
    centre = function(mean)
    first = second = product = torch.zeros_like(mean)
    for point, weight in _trapezoid():
        step = function(mean + std * point) - centre  # from the centre: nothing cancels where s is small
        first, second = first + weight * step, second + weight * step * step
        product = product + weight * point * step
    # Where s is too small to divide by, so small a step on either side of the mean tells the slope.
    tiny = std <= 1e-3 * (1 + mean.abs())
    reach = torch.where(tiny, 1e-3 * (1 + mean.abs()), std)
    near = (function(mean + reach) - function(mean - reach)) / (2 * reach)
    slope = torch.where(tiny, near, product / reach)
    spread = torch.where(tiny, near.square() * variance, (second - first.square()).clamp_min(0.0))
    return Pushed(centre + first, spread, slope)


sigmoid: Scalar = partial(smooth, torch.sigmoid)
tanh: Scalar = partial(smooth, torch.tanh)
silu: Scalar = partial(smooth, F.silu)


def gelu(mean: Tensor, variance: Tensor, approximate: str = "none") -> Pushed:
    return smooth(partial(F.gelu, approximate=approximate), mean, variance)


def softplus(mean: Tensor, variance: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Pushed:
    return smooth(partial(F.softplus, beta=beta, threshold=threshold), mean, variance)


# ---------------------------------------------------------------------- pairs


def relu_pair(mean: Tensor, variance: Tensor, covariance: Tensor) -> Tensor:
    """Cov(relu X, relu Y), exact: its derivative by the covariance c is P(X > 0, Y > 0), which gives

        c P(a) P(b)  +  s_X s_Y  integral from 0 to asin(rho) of (rho - sin u) phi(a, b; sin u) du

    with phi(a, b; r) = exp(-(a^2 - 2 a b r + b^2) / (2 (1 - r^2))) / (2 pi); the integrand is smooth, and eight points
    of Gauss and Legendre are enough.  # (rows, n), (rows, n), (rows, n, n) -> (rows, n, n)
    """
    std, a = _standardised(mean, variance)
    scale, a, b = _outer(std), a.unsqueeze(-1), a.unsqueeze(-2)
    rho = (covariance / scale.clamp_min(torch.finfo(mean.dtype).tiny)).clamp(-1.0, 1.0)
    reach = torch.asin(rho)
    integral = torch.zeros_like(rho)
    for point, weight in zip(*_legendre(), strict=True):
        sine, cosine2 = torch.sin(reach * point), torch.cos(reach * point).square().clamp_min(1e-12)
        integral = integral + weight * (rho - sine) * torch.exp(-0.5 * (a * a + b * b - 2 * a * b * sine) / cosine2)
    both = torch.special.ndtr(a) * torch.special.ndtr(b)
    return covariance * both + scale * reach * integral / (2 * math.pi)


def leaky_relu_pair(mean: Tensor, variance: Tensor, covariance: Tensor, negative_slope: float = 0.01) -> Tensor:
    above = torch.special.ndtr(_standardised(mean, variance)[1])
    rest = 1 - negative_slope
    crossed = covariance * (above.unsqueeze(-1) + above.unsqueeze(-2))
    whole = rest**2 * relu_pair(mean, variance, covariance)
    return negative_slope**2 * covariance + negative_slope * rest * crossed + whole


def smooth_pair(function: Function, mean: Tensor, variance: Tensor, covariance: Tensor) -> Tensor:
    """Mehler's series, sum_k rho^k h_k(X) h_k(Y), to the fourth order, by the same quadrature as `smooth`.

    h_k is f's coefficient by the k-th normalised Hermite polynomial; what is left out is of the order rho^5.
    """
    std = variance.sqrt()
    coefficients = [torch.zeros_like(mean) for _ in range(4)]
    centre = function(mean)
    for z, weight in _trapezoid():
        step = weight * (function(mean + std * z) - centre)
        polynomials = (z, (z**2 - 1) / 2**0.5, (z**3 - 3 * z) / 6**0.5, (z**4 - 6 * z**2 + 3) / 24**0.5)
        coefficients = [h + step * he for h, he in zip(coefficients, polynomials, strict=True)]
    rho = (covariance / _outer(std).clamp_min(torch.finfo(mean.dtype).tiny)).clamp(-1.0, 1.0)
    return sum((rho**k * _outer(h) for k, h in enumerate(coefficients, 1)), start=torch.zeros_like(rho))


def _outer(x: Tensor) -> Tensor:
    return x.unsqueeze(-1) * x.unsqueeze(-2)


def _legendre() -> tuple[list[float], list[float]]:
    points, weights = np.polynomial.legendre.leggauss(8)
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()


def _trapezoid() -> list[tuple[float, float]]:
    z = np.linspace(-_REACH, _REACH, _POINTS)
    weights = np.exp(-0.5 * z * z)
    return list(zip(z.tolist(), (weights / weights.sum()).tolist(), strict=True))


def _standardised(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """s, and mu / s within the range where a kink at zero can be felt at all."""
    std = variance.sqrt()
    smallest = torch.finfo(mean.dtype).tiny
    return std, (mean / std.clamp_min(smallest)).clamp(-_SATURATED, _SATURATED)


def _log_ndtr(x: Tensor) -> Tensor:
    """The logarithm of the normal cdf; torch's own does not batch under vmap."""
    z = x.abs() * 0.5**0.5
    tail = torch.log(0.5 * torch.special.erfcx(z)) - z * z
    return torch.where(x < 0, tail, torch.log1p(-torch.exp(tail)))
