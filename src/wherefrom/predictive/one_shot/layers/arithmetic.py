"""Sums, differences, products and quotients, broadcast."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from wherefrom.predictive.one_shot.moments import Moments, added, scaled
from wherefrom.predictive.one_shot.rules import elementwise, rule, with_diagonal
from wherefrom.training.offset import Hidden, LogColumn


def as_moments(value: Any, like: Moments) -> Moments:
    if isinstance(value, Moments):
        return value
    found = torch.as_tensor(value, device=like.mean.device)
    return Moments(found.to(torch.result_type(like.mean, found)))


def _spread(x: Moments, shape: torch.Size) -> Moments:
    """Broadcast to a shape."""
    # Of shapes with fewer dimensions, rows are not to be taken for units, though there may be as many.
    if x.mean.ndim == len(shape) and x.mean.shape == shape:
        return x
    if x.covariance is not None:
        raise ValueError('covariance="full" follows the units of a layer, and this copies them')
    missing = len(shape) - x.mean.ndim
    factors = None
    if x.factors is not None:
        factors = x.factors.reshape(len(x.factors), *[1] * missing, *x.mean.shape).expand(-1, *shape)
    variance = None if x.variance is None else x.variance.expand(shape)
    return Moments(x.mean.expand(shape), variance, factors)


def _both(a: Any, b: Any) -> tuple[Moments, Moments]:
    like = a if isinstance(a, Moments) else b
    a, b = as_moments(a, like), as_moments(b, like)
    shape = torch.broadcast_shapes(a.mean.shape, b.mean.shape)
    return _spread(a, shape), _spread(b, shape)


@rule(operator.add, operator.iadd, torch.add)
def add(a: Any, b: Any, *, alpha: float = 1.0) -> Moments:
    """Add independent rests, and the same shared factors."""
    a, b = _both(a, b)
    if alpha != 1:
        b = scaled(b, alpha)
    covariance = added(_full(a, b), _full(b, a))
    return Moments(a.mean + b.mean, added(a.variance, b.variance), added(a.factors, b.factors), covariance)


def _full(x: Moments, other: Moments) -> Tensor | None:
    """The covariance of one of two terms, where either of them has one."""
    if x.covariance is not None or other.covariance is None or x.variance is None:
        return x.covariance
    return torch.diag_embed(x.variance)


@rule(operator.sub, operator.isub, torch.sub)
def subtract(a: Any, b: Any, *, alpha: float = 1.0) -> Moments:
    a, b = _both(a, b)
    return add(a, scaled(b, -alpha))


@rule(operator.neg, torch.neg)
def _negative(x: Moments) -> Moments:
    return scaled(x, -1.0)


@rule(operator.mul, operator.imul, torch.mul)
def multiply(a: Any, b: Any) -> Moments:
    """Entry by entry, of independent rests; with shared factors, products of two of them count in full."""
    if a is b:
        return elementwise(a, torch.square)
    a, b = _both(a, b)
    for x, other in ((a, b), (b, a)):
        if other.is_certain:
            return scaled(x, other.mean)
    mean = a.mean * b.mean
    rest = added(
        None if a.variance is None else a.variance * b.second_moment,
        None if b.variance is None else b.variance * steady(a),
    )
    factors = added(
        None if a.factors is None else a.factors * b.mean, None if b.factors is None else b.factors * a.mean
    )
    if a.factors is not None and b.factors is not None:
        together = (a.factors * b.factors).sum(0)
        mean = mean + together
        rest = added(rest, a.factors.square().sum(0) * b.factors.square().sum(0) + together.square())
    if a.covariance is None and b.covariance is None:
        return Moments(mean, rest, factors)
    assert rest is not None
    mixed = added(
        *(
            x.covariance * other.mean.unsqueeze(-1) * other.mean.unsqueeze(-2)
            for x, other in ((a, b), (b, a))
            if x.covariance is not None
        )
    )
    assert mixed is not None
    return Moments(mean, rest, factors, with_diagonal(mixed, rest))


@rule(operator.pow, torch.pow, Tensor.__pow__)
def power(x: Any, exponent: Any) -> Moments:
    """Raise each entry to a whole power, by quadrature, which is exact for small ones."""
    if not isinstance(x, Moments) or not isinstance(exponent, int | float) or exponent != int(exponent) or exponent < 1:
        raise ValueError("powers have a one-shot rule for exponents that are whole numbers above zero")
    return elementwise(x, lambda values: values.pow(exponent))


def steady(x: Moments) -> Tensor:
    """The second moment of what is not the rest."""
    return x.mean.square() if x.shared_variance is None else x.mean.square() + x.shared_variance


@rule(Hidden)
def _hidden(layer: Any, x: Moments) -> Moments:
    return scaled(x, layer.forward(torch.ones_like(x.mean)))


@rule(LogColumn)
def _log_column(layer: Any, x: Moments) -> Moments:
    if not x.is_certain:
        raise ValueError("noise of the inputs is not followed through an exposure: leave x_std out")
    return Moments(layer.forward(x.mean))


@rule(operator.truediv, operator.itruediv, torch.div)
def divide(a: Any, b: Any) -> Moments:
    a, b = _both(a, b)
    if not b.is_certain:
        raise ValueError("a division by something uncertain has no moments")
    return scaled(a, 1 / b.mean)
