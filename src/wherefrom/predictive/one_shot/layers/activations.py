"""Functions of each entry by itself, with the moments of scalars.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wherefrom.predictive.one_shot.compiled as compiled
import wherefrom.predictive.one_shot.scalars as scalars
from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.predictive.one_shot.rules import elementwise, rule


def _activation(
    kind: type[nn.Module],
    functions: Sequence[Any],
    plain: Callable[..., Tensor],
    scalar: Callable[..., Any],
    *names: str,
    pair: Callable[..., Any] | None = None,
    fused: Callable[..., Moments] | None = None,
) -> None:
    """A module type and its functions, whose settings have the given names on both."""

    def pushed(x: Moments, settings: dict[str, Any]) -> Moments:
        if fused is not None and compiled.covers(x):
            return fused(x, **settings)
        exact = None if pair is None else partial(pair, **settings)
        return elementwise(x, partial(plain, **settings), scalar=partial(scalar, **settings), pair=exact)

    def by_layer(layer: Any, x: Moments) -> Moments:
        return pushed(x, {name: getattr(layer, name) for name in names})

    def by_function(x: Moments, *args: Any, inplace: bool = False, **kwargs: Any) -> Moments:
        return pushed(x, dict(zip(names, args, strict=False)) | kwargs)

    rule(kind)(by_layer)
    rule(*functions)(by_function)


_RELUS = [F.relu, torch.relu, F.relu_, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_]
_activation(nn.ReLU, _RELUS, torch.relu, scalars.relu, pair=scalars.relu_pair, fused=compiled.relu)
_activation(
    nn.LeakyReLU,
    [F.leaky_relu],
    F.leaky_relu,
    scalars.leaky_relu,
    "negative_slope",
    pair=scalars.leaky_relu_pair,
    fused=compiled.leaky_relu,
)
_activation(nn.ELU, [F.elu], F.elu, scalars.elu, "alpha")
_activation(nn.Sigmoid, [F.sigmoid, torch.sigmoid, torch.Tensor.sigmoid], torch.sigmoid, scalars.sigmoid)
_activation(nn.Tanh, [F.tanh, torch.tanh, torch.Tensor.tanh], torch.tanh, scalars.tanh)
_activation(nn.SiLU, [F.silu], F.silu, scalars.silu)
_activation(nn.GELU, [F.gelu], F.gelu, scalars.gelu, "approximate")
_activation(nn.Softplus, [F.softplus], F.softplus, scalars.softplus, "beta", "threshold")

_selu_moments = partial(scalars.elu, alpha=1.6732632423543772, scale=1.0507009873554805)
_activation(nn.SELU, [F.selu, torch.selu], F.selu, _selu_moments)


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    return x if low is None and high is None else torch.clamp(x, low, high)


def _clamped(x: Moments, low: Any = None, high: Any = None) -> Moments:
    if isinstance(low, Tensor | Moments) or isinstance(high, Tensor | Moments):
        raise ValueError("clamp has a one-shot rule for bounds that are numbers, not tensors")
    return elementwise(x, partial(_clamp, low=low, high=high), scalar=partial(scalars.clamp, low=low, high=high))


@rule(torch.clamp, torch.clip, Tensor.clamp, Tensor.clip, torch.clamp_, Tensor.clamp_, Tensor.clip_)
def _clamp_function(x: Moments, min: Any = None, max: Any = None) -> Moments:
    return _clamped(x, min, max)


@rule(torch.clamp_min, Tensor.clamp_min, Tensor.clamp_min_)
def _clamp_min(x: Moments, min: Any) -> Moments:
    return _clamped(x, min)


@rule(torch.clamp_max, Tensor.clamp_max, Tensor.clamp_max_)
def _clamp_max(x: Moments, max: Any) -> Moments:
    return _clamped(x, None, max)


@rule(nn.Hardtanh)  # and ReLU6, which is one
def _hard_tanh_layer(layer: Any, x: Moments) -> Moments:
    return _clamped(x, layer.min_val, layer.max_val)


@rule(F.hardtanh)
def _hard_tanh(x: Moments, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Moments:
    return _clamped(x, min_val, max_val)


@rule(F.relu6)
def _relu6(x: Moments, inplace: bool = False) -> Moments:
    return _clamped(x, 0.0, 6.0)


_activation(nn.Hardsigmoid, [F.hardsigmoid], F.hardsigmoid, scalars.hard_sigmoid)
_activation(nn.Hardswish, [F.hardswish], F.hardswish, scalars.hard_swish)
