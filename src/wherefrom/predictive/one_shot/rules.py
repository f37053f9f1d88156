"""One rule for each kind of layer or function: Moments in, Moments out. Others can be registered from outside.

    @one_shot.rule(nn.Mish)
    def mish(layer, x):
        return one_shot.elementwise(x, F.mish)

A rule of a module type gets the layer and its inputs; the layer's parameters are Moments, its other attributes
(stride, eps, ...) are what they are. A rule of a function gets the function's own arguments, some of them Moments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.predictive.one_shot.scalars import Function, Pair, Scalar, smooth, smooth_pair

Rule = Callable[..., Any]
Registered = TypeVar("Registered", bound=Rule)

RULES: dict[Any, Rule] = {}

# Python's operators as torch sees them: methods of a tensor, with the arguments in order or the other way round.
_METHODS = {
    operator.add: Tensor.add,
    operator.iadd: Tensor.add_,
    operator.sub: Tensor.sub,
    operator.isub: Tensor.sub_,
    operator.mul: Tensor.mul,
    operator.imul: Tensor.mul_,
    operator.truediv: Tensor.div,
    operator.itruediv: Tensor.div_,
    operator.matmul: Tensor.matmul,
    operator.pow: Tensor.pow,
    operator.mod: Tensor.remainder,
    operator.neg: Tensor.neg,
    operator.getitem: Tensor.__getitem__,
}
_REVERSED = {
    operator.sub: Tensor.__rsub__,
    operator.truediv: Tensor.__rdiv__,
    operator.matmul: Tensor.__rmatmul__,
    operator.pow: Tensor.__rpow__,
}


def rule(*kinds: Any) -> Callable[[Registered], Registered]:
    """Register a rule for module types, functions, or methods of a tensor (`torch.Tensor.view`).

    kinds: the types, functions and methods that the rule is for.
    """
    if not kinds:
        raise TypeError("name the module types or functions that the rule is for, as @rule(nn.Softplus)")

    def register(function: Registered) -> Registered:
        for kind in kinds:
            RULES[kind] = function
            if kind in _METHODS:
                RULES[_METHODS[kind]] = function
            if kind in _REVERSED:
                RULES[_REVERSED[kind]] = lambda x, other: function(other, x)
        return function

    return register


def rule_for(module: nn.Module) -> Rule | None:
    """The rule of a module's type, or of the nearest of its parents that has one and is not overridden by it."""
    for kind in type(module).__mro__:
        if kind in RULES:
            return RULES[kind] if type(module).forward is getattr(kind, "forward", None) else None
    return None


def elementwise(x: Moments, function: Function, *, scalar: Scalar | None = None, pair: Pair | None = None) -> Moments:
    """Return the moments of a function of each entry.

    x: moments of the inputs.
    function: the function.
    scalar: its moments for a Gaussian input, as a formula (default None: by quadrature).
    pair: covariance of two of its outputs, as a formula (default None: by quadrature).
    """
    if x.is_certain:
        return Moments(function(x.mean))
    total = x.total_variance
    pushed = (scalar or partial(smooth, function))(x.mean, total)
    if x.factors is None and x.covariance is None:
        return Moments(pushed.mean, pushed.variance)
    factors, rest = None, pushed.variance
    if x.factors is not None and x.shared_variance is not None:
        factors = x.factors * pushed.slope
        rest = (rest - x.shared_variance * pushed.slope.square()).clamp_min(0.0)
    if x.covariance is None:
        return Moments(pushed.mean, rest, factors)
    between = (pair or partial(smooth_pair, function))(x.mean, total, x.covariance + _shared(x.factors))
    return Moments(pushed.mean, rest, factors, with_diagonal(between - _shared(factors), rest))


def _shared(factors: Tensor | None) -> Tensor | float:
    """The covariance between units that the factors make.  # (rank, rows, units) -> (rows, units, units)"""
    return 0.0 if factors is None else torch.einsum("rni,rnj->nij", factors, factors)


def with_diagonal(matrix: Tensor, diagonal: Tensor) -> Tensor:
    """The matrix with another diagonal."""
    return matrix + torch.diag_embed(diagonal - matrix.diagonal(dim1=-2, dim2=-1))
