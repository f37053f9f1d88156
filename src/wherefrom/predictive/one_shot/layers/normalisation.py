"""Batch, layer and group normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from wherefrom.predictive.one_shot.layers.arithmetic import add, multiply, subtract
from wherefrom.predictive.one_shot.moments import Moments, rearranged
from wherefrom.predictive.one_shot.rules import rule


@rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def _batch_norm_layer(layer: Any, x: Moments) -> Moments:
    return batch_norm(x, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps)


@rule(F.batch_norm)
def batch_norm(
    x: Moments,
    running_mean: Moments | None,
    running_var: Moments | None,
    weight: Moments | None = None,
    bias: Moments | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Moments:
    """Scale and shift each channel by the running statistics, as in prediction.

    Statistics move with the shared factors of theta, on which they are estimated anew; their scale to first order.
    """
    if running_mean is None or running_var is None:
        raise ValueError("batch normalisation without running statistics has no one-shot rule")
    shape = (1, -1, *[1] * (x.mean.ndim - 2))
    mean, variance = (rearranged(part, lambda values: values.reshape(shape)) for part in (running_mean, running_var))
    scale = (variance.mean + eps).rsqrt()
    slope = -0.5 * scale**3
    moved = Moments(scale, None, None if variance.factors is None else variance.factors * slope)
    return _affine(multiply(subtract(x, mean), moved), weight, bias, shape)


def _affine(x: Moments, weight: Moments | None, bias: Moments | None, shape: Sequence[int]) -> Moments:
    if weight is not None:
        x = multiply(x, rearranged(weight, lambda values: values.reshape(shape)))
    if bias is not None:
        x = add(x, rearranged(bias, lambda values: values.reshape(shape)))
    return x


@rule(nn.LayerNorm)
def _layer_norm_layer(layer: Any, x: Moments) -> Moments:
    return layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)


@rule(F.layer_norm)
def layer_norm(
    x: Moments, normalized_shape: Any, weight: Moments | None = None, bias: Moments | None = None, eps: float = 1e-5
) -> Moments:
    over = tuple(range(-len(normalized_shape), 0))
    return _affine(_normalised(x, over, eps), weight, bias, tuple(normalized_shape))


@rule(nn.GroupNorm)
def _group_norm_layer(layer: Any, x: Moments) -> Moments:
    return group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps)


@rule(F.group_norm)
def group_norm(
    x: Moments, num_groups: int, weight: Moments | None = None, bias: Moments | None = None, eps: float = 1e-5
) -> Moments:
    shape = x.mean.shape
    grouped = rearranged(x, lambda values: values.reshape(shape[0], num_groups, -1))
    normal = rearranged(_normalised(grouped, (-1,), eps), lambda values: values.reshape(shape))
    return _affine(normal, weight, bias, (1, -1, *[1] * (len(shape) - 2)))


def _normalised(x: Moments, over: tuple[int, ...], eps: float) -> Moments:
    """(x - its mean) / its deviation s over n entries, to first order around the means, with s^2 at its expectation:

    y_i = (x_i - m) / s,      dy_i = (dx_i - mean(dx) - y_i mean(y dx)) / s
    """
    count = math.prod(x.mean.shape[d] for d in over)

    def average(values: Tensor) -> Tensor:
        return values.mean(over, keepdim=True)

    centre = average(x.mean)
    total = x.total_variance
    square = average((x.mean - centre).square()) + average(total) * (1 - 1 / count)
    if x.factors is not None:  # entries that move together do not spread
        together = vmap(average)(x.factors).square().sum(0)
        square = square - (together - average(x.factors.square().sum(0)) / count)
    scale = (square.clamp_min(0.0) + eps).rsqrt()
    y = (x.mean - centre) * scale

    def moved(change: Tensor) -> Tensor:
        return (change - average(change) - y * average(y * change)) * scale

    variance = None
    if x.variance is not None:
        v = x.variance
        own = v * (1 - 2 / count - 2 * y.square() / count)
        others = (average(v) + 2 * y * average(y * v) + y.square() * average(y.square() * v)) / count
        variance = ((own + others) * scale.square()).clamp_min(0.0)
    if x.covariance is not None:
        raise ValueError('normalisation over units is not followed with covariance="full"')
    return Moments(y, variance, None if x.factors is None else vmap(moved)(x.factors))
