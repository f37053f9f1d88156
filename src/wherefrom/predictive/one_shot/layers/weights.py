"""Weights times inputs: linear layers, convolutions, embeddings."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from wherefrom.predictive.one_shot.layers.arithmetic import add, as_moments, steady
from wherefrom.predictive.one_shot.moments import MOST_UNITS, Moments, added, rearranged
from wherefrom.predictive.one_shot.rules import rule, with_diagonal

Product = Callable[[Tensor, Tensor], Tensor]

_MOST_QUADRATIC = 64  # rank times outputs of a linear layer where products of two shared factors are counted


def bilinear(x: Moments, weight: Moments, bias: Moments | None, product: Product) -> Moments:
    """sum_i w_i x_i + b for independent rests of w, x and b, and shared factors D_r of w and t_r of x.

    mean      w x + sum_r D_r t_r + b
    factors   w t_r + D_r x + d_r
    rest      Var w E[x^2] + Var x (w^2 + sum_r D_r^2) + Var b
              + Var(sum_rs z_r z_s D_r t_s) = sum_rs (D_r t_s + D_s t_r)^2 / 2, where there are few outputs
    """
    mean = product(x.mean, weight.mean)
    factors = added(
        None if x.factors is None else vmap(lambda t: product(t, weight.mean))(x.factors),
        None if weight.factors is None else vmap(lambda d: product(x.mean, d))(weight.factors),
    )
    crossed = _crossed(x, weight, product)
    if crossed is not None:
        mean = mean + crossed.diagonal(dim1=0, dim2=-2).sum(-1)
    elif x.factors is not None and weight.factors is not None:
        mean = mean + vmap(product)(x.factors, weight.factors).sum(0)
    variance = None
    if weight.variance is not None:
        variance = product(x.mean.square() if x.is_certain else x.second_moment, weight.variance)
    if x.variance is not None:
        variance = added(variance, product(x.variance, steady(weight)))
    quadratic = None if crossed is None else (crossed + crossed.transpose(0, -2)).square().sum((0, -2)) / 2
    result = Moments(mean, added(variance, quadratic), factors)
    return result if bias is None else add(result, bias)


def _crossed(x: Moments, weight: Moments, product: Product) -> Tensor | None:
    """Products D_s t_r of two shared factors, only where a layer has few outputs.  # (r, rows, ..., s, outputs)"""
    if x.factors is None or weight.factors is None or product is not F.linear:
        return None
    rank, outputs = len(weight.factors), weight.mean.shape[0]
    if rank * outputs > _MOST_QUADRATIC:
        return None
    # A product with few rows is faster than one with few columns.
    flat = weight.factors.flatten(0, 1) @ x.factors.flatten(0, -2).t()  # (s * outputs, r * ...)
    return flat.t().unflatten(0, x.factors.shape[:-1]).unflatten(-1, (rank, outputs))


def linear(x: Moments, weight: Any, bias: Moments | None = None) -> Moments:
    weight = as_moments(weight, x)
    result = bilinear(x, weight, bias, F.linear)
    return result if x.covariance is None else _with_covariance(result, x, weight)


def _with_covariance(result: Moments, x: Moments, weight: Moments) -> Moments:
    """W C W^T + sum_r D_r C D_r^T between units; what belongs to single weights is on the diagonal already."""
    if weight.mean.shape[0] > MOST_UNITS:
        raise ValueError(f'covariance="full" is for layers of up to {MOST_UNITS} units; use "low_rank"')
    assert x.covariance is not None
    assert x.variance is not None
    assert result.variance is not None
    between = weight.mean @ x.covariance @ weight.mean.T
    if weight.factors is not None:
        between = between + torch.einsum("roi,nij,rpj->nop", weight.factors, x.covariance, weight.factors)
    counted = F.linear(x.variance, steady(weight))
    variance = result.variance - counted + between.diagonal(dim1=-2, dim2=-1)
    return replace(result, variance=variance, covariance=with_diagonal(between, variance))


@rule(nn.Linear)
def _linear_layer(layer: Any, x: Moments) -> Moments:
    return linear(x, layer.weight, layer.bias)


rule(F.linear)(linear)


@rule(operator.matmul, torch.matmul, torch.mm, torch.bmm, Tensor.mm, Tensor.bmm)
def matmul(a: Any, b: Any) -> Moments:
    """Multiply matrices: exactly by a constant, and of two uncertain ones as if their rests were independent."""
    a, b = _both_moments(a, b)
    if a.covariance is not None and b.mean.ndim == 2:
        return linear(a, rearranged(b, Tensor.t))
    if a.covariance is not None or b.covariance is not None:
        raise ValueError('covariance="full" follows the units of a layer, and this multiplies them otherwise')
    return bilinear(a, b, None, torch.matmul)


@rule(torch.einsum)
def einsum(equation: str, *operands: Any) -> Moments:
    """Sum over products of one or two tensors, as `matmul` does."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    if len(operands) == 1:
        return rearranged(operands[0], lambda values: torch.einsum(equation, values))
    if len(operands) > 2:
        raise ValueError("einsum has a one-shot rule for one or two tensors: multiply them two by two")
    a, b = _both_moments(*operands)
    if a.covariance is not None or b.covariance is not None:
        raise ValueError('einsum is not followed with covariance="full"')
    return bilinear(a, b, None, partial(torch.einsum, equation))


def _both_moments(a: Any, b: Any) -> tuple[Moments, Moments]:
    like = a if isinstance(a, Moments) else b
    return as_moments(a, like), as_moments(b, like)


def _per_channel(x: Moments | None, dimensions: int) -> Moments | None:
    return None if x is None else rearranged(x, lambda values: values.reshape(-1, *[1] * dimensions))


def _convolution_rules(
    kind: type[nn.Module], function: Callable[..., Tensor], transposed: type[nn.Module], back: Callable[..., Tensor]
) -> None:
    """A convolution with this number of dimensions, and its transpose, as layers and as functions."""
    dimensions = int(kind.__name__[-2])

    @rule(function)
    def convolve(x: Moments, weight: Moments, bias: Moments | None = None, *args: Any, **kwargs: Any) -> Moments:
        settings = dict(zip(("stride", "padding", "dilation", "groups"), args, strict=False)) | kwargs
        return bilinear(x, weight, _per_channel(bias, dimensions), partial(function, **settings))

    @rule(back)
    def transpose(x: Moments, weight: Moments, bias: Moments | None = None, *args: Any, **kwargs: Any) -> Moments:
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        settings = dict(zip(names, args, strict=False)) | kwargs
        return bilinear(x, weight, _per_channel(bias, dimensions), partial(back, **settings))

    @rule(kind)
    def layer_convolves(layer: Any, x: Moments) -> Moments:
        padding = layer.padding
        if layer.padding_mode != "zeros":
            mode, around, padding = layer.padding_mode, layer._reversed_padding_repeated_twice, 0
            x = rearranged(x, lambda values: F.pad(values, around, mode=mode))
        return convolve(x, layer.weight, layer.bias, layer.stride, padding, layer.dilation, layer.groups)

    @rule(transposed)
    def layer_transposes(layer: Any, x: Moments) -> Moments:
        where = (layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation)
        return transpose(x, layer.weight, layer.bias, *where)


_convolution_rules(nn.Conv1d, F.conv1d, nn.ConvTranspose1d, F.conv_transpose1d)
_convolution_rules(nn.Conv2d, F.conv2d, nn.ConvTranspose2d, F.conv_transpose2d)
_convolution_rules(nn.Conv3d, F.conv3d, nn.ConvTranspose3d, F.conv_transpose3d)


@rule(nn.Embedding)
def _embedding(layer: Any, index: Moments) -> Moments:
    if layer.max_norm is not None:
        raise ValueError("an embedding with max_norm has no one-shot rule")
    return rearranged(layer.weight, lambda weight: F.embedding(index.mean, weight))


@rule(F.embedding)
def _embedding_function(index: Moments, weight: Moments, *_: Any, **__: Any) -> Moments:
    return rearranged(weight, lambda values: F.embedding(index.mean, values))
