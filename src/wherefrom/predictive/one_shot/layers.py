"""The rules that come with the library: closed forms where there are any, and what is approximate says so.

Throughout, what is not carried by shared factors is independent from entry to entry. That is exact for the first layer
of a network with independent weights, and for the masks of dropout; after a layer, its units share their inputs, and
after a convolution, its positions share their weights: `covariance="full"` follows the former, factors the main part of
both.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from wherefrom.predictive.one_shot import compiled, scalars
from wherefrom.predictive.one_shot.moments import Moments, added, rearranged, scaled, weighted
from wherefrom.predictive.one_shot.rules import elementwise, rule, with_diagonal

Product = Callable[[Tensor, Tensor], Tensor]

_MOST_QUADRATIC = 2**13  # numbers a row that products of two shared factors may take in a linear layer

# ---------------------------------------------------------------------- weights times inputs


def bilinear(x: Moments, weight: Moments, bias: Moments | None, product: Product) -> Moments:
    """sum_i w_i x_i + b for independent rests of w, x and b, and shared factors D_r of w and t_r of x.

    mean      w x + sum_r D_r t_r + b
    factors   w t_r + D_r x + d_r
    rest      Var w E[x^2] + Var x (w^2 + sum_r D_r^2) + Var b
              + Var(sum_rs (z_r z_s) D_r t_s) = sum_rs (D_r t_s)^2 + (D_r t_s)(D_s t_r), where it is small to compute
    """
    mean = product(x.mean, weight.mean)
    factors = added(
        None if x.factors is None else vmap(lambda t: product(t, weight.mean))(x.factors),
        None if weight.factors is None else vmap(lambda d: product(x.mean, d))(weight.factors),
    )
    if x.factors is not None and weight.factors is not None:
        mean = mean + vmap(product)(x.factors, weight.factors).sum(0)
    variance = None
    if weight.variance is not None:
        variance = product(x.mean.square() if x.is_certain else x.second_moment, weight.variance)
    if x.variance is not None:
        variance = added(variance, product(x.variance, _steady(weight)))
    result = Moments(mean, added(variance, _quadratic(x, weight, product)), factors)
    return result if bias is None else add(result, bias)


def _steady(x: Moments) -> Tensor:
    """The second moment of what is not the rest."""
    return x.mean.square() if x.shared_variance is None else x.mean.square() + x.shared_variance


def _quadratic(x: Moments, weight: Moments, product: Product) -> Tensor | None:
    """What products of two shared factors add to the variance; only where a layer has few outputs."""
    if x.factors is None or weight.factors is None or product is not F.linear:
        return None
    rank, outputs = len(weight.factors), weight.mean.shape[0]
    if rank * rank * outputs > _MOST_QUADRATIC:
        return None
    crossed = torch.einsum("soi,r...i->sr...o", weight.factors, x.factors)
    return crossed.square().sum((0, 1)) + (crossed * crossed.transpose(0, 1)).sum((0, 1))


def linear(x: Moments, weight: Moments, bias: Moments | None = None) -> Moments:
    result = bilinear(x, weight, bias, F.linear)
    return result if x.covariance is None else _with_covariance(result, x, weight)


def _with_covariance(result: Moments, x: Moments, weight: Moments) -> Moments:
    """W C W^T + sum_r D_r C D_r^T between units; what belongs to single weights is on the diagonal already."""
    assert x.covariance is not None
    assert result.variance is not None
    between = weight.mean @ x.covariance @ weight.mean.T
    if weight.factors is not None:
        between = between + torch.einsum("roi,nij,rpj->nop", weight.factors, x.covariance, weight.factors)
    alone = torch.zeros_like(result.variance) if x.variance is None else x.variance
    counted = F.linear(alone, _steady(weight))
    variance = result.variance - counted + between.diagonal(dim1=-2, dim2=-1)
    return replace(result, variance=variance, covariance=with_diagonal(between, variance))


@rule(nn.Linear)
def _linear_layer(layer: Any, x: Moments) -> Moments:
    return linear(x, layer.weight, layer.bias)


rule(F.linear)(linear)


def _per_channel(x: Moments | None, dimensions: int) -> Moments | None:
    return None if x is None else rearranged(x, lambda values: values.reshape(-1, *[1] * dimensions))


def _convolution_rules(
    kind: type[nn.Module], function: Callable[..., Tensor], transposed: type[nn.Module], back: Callable[..., Tensor]
) -> None:
    """A convolution of so many dimensions and its transpose, as layers and as functions."""
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
    return rearranged(layer.weight, lambda weight: F.embedding(index.mean, weight))


@rule(F.embedding)
def _embedding_function(index: Moments, weight: Moments, *_: Any, **__: Any) -> Moments:
    return rearranged(weight, lambda values: F.embedding(index.mean, values))


# ---------------------------------------------------------------------- activations


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


_RELUS = [F.relu, torch.relu, F.relu_, torch.relu_, torch.Tensor.relu]
_activation(nn.ReLU, _RELUS, torch.relu, scalars.relu, pair=scalars.relu_pair, fused=compiled.leaky_relu)
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


@rule(nn.SELU)
def _selu_layer(layer: Any, x: Moments) -> Moments:
    return elementwise(x, F.selu, scalar=_selu_moments)


@rule(F.selu, torch.selu)
def _selu(x: Moments, inplace: bool = False) -> Moments:
    return elementwise(x, F.selu, scalar=_selu_moments)


@rule(nn.Identity)
def _identity(layer: Any, x: Moments) -> Moments:
    return x


@rule(torch.Tensor.contiguous, torch.Tensor.clone, torch.Tensor.detach, torch.clone, torch.detach)
def _same(x: Moments, *_: Any, **__: Any) -> Moments:
    return x


# ---------------------------------------------------------------------- normalisation


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
    """With the running statistics, as in prediction: a scale and a shift of each channel."""
    if running_mean is None or running_var is None:
        raise ValueError("batch normalisation without running statistics has no one-shot rule")
    scale = (running_var.mean + eps).rsqrt()
    shift = -running_mean.mean * scale
    shape = (1, -1, *[1] * (x.mean.ndim - 2))
    centred = add(scaled(x, scale.reshape(shape)), Moments(shift.reshape(shape)))
    return _affine(centred, weight, bias, shape)


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


# ---------------------------------------------------------------------- pooling


def _average(x: Moments, pool: Callable[[Tensor], Tensor], count: Tensor | float) -> Moments:
    """An average of independent entries has their average variance, divided by how many they are."""
    return weighted(x, pool, lambda values: pool(values) / count)


def _average_pool(
    x: Moments,
    dimensions: int,
    size: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    include: bool,
    divisor: int | None = None,
) -> Moments:
    if dimensions == 1:  # the only one that cannot count its windows
        lift = lambda v: (1, v[0] if isinstance(v, (tuple, list)) else v)  # noqa: E731
        flat = rearranged(x, lambda values: values.unsqueeze(-2))
        padded = (0, lift(padding)[1])
        pooled = _average_pool(flat, 2, lift(size), lift(stride or size), padded, ceil, include)
        return rearranged(pooled, lambda values: values.squeeze(-2))
    pool = F.avg_pool2d if dimensions == 2 else F.avg_pool3d
    window = partial(pool, kernel_size=size, stride=stride, padding=padding, ceil_mode=ceil)
    ones = torch.ones_like(x.mean[:1])
    mean = partial(window, count_include_pad=include, divisor_override=divisor)
    weight = mean(ones) / window(ones, divisor_override=1)  # of each entry of a window
    return weighted(x, mean, lambda values: mean(values) * weight)


def _pool_rule(kind: type[nn.Module], function: Any, dimensions: int) -> None:
    @rule(kind)
    def by_layer(layer: Any, x: Moments) -> Moments:
        override = getattr(layer, "divisor_override", None)
        return _average_pool(
            x,
            dimensions,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.ceil_mode,
            layer.count_include_pad,
            override,
        )

    @rule(function)
    def by_function(
        x: Moments,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Moments:
        return _average_pool(
            x, dimensions, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )


_pool_rule(nn.AvgPool1d, F.avg_pool1d, 1)
_pool_rule(nn.AvgPool2d, F.avg_pool2d, 2)
_pool_rule(nn.AvgPool3d, F.avg_pool3d, 3)


def _adaptive(x: Moments, size: Any, dimensions: int) -> Moments:
    pool: Any = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[dimensions]
    before = x.mean.shape[-dimensions:]
    wanted = size if isinstance(size, (tuple, list)) else (size,) * dimensions
    after = [own if out is None else out for out, own in zip(wanted, before, strict=True)]
    count = x.mean.new_ones(())
    for place, (inputs, outputs) in enumerate(zip(before, after, strict=True)):
        lengths = [-(-(i + 1) * inputs // outputs) - i * inputs // outputs for i in range(outputs)]
        shape = [1] * dimensions
        shape[place] = outputs
        count = count * x.mean.new_tensor(lengths).reshape(shape)
    return _average(x, lambda values: pool(values, tuple(after)), count)


def _adaptive_rule(kind: type[nn.Module], function: Any, dimensions: int) -> None:
    rule(kind)(lambda layer, x: _adaptive(x, layer.output_size, dimensions))
    rule(function)(lambda x, output_size: _adaptive(x, output_size, dimensions))


_adaptive_rule(nn.AdaptiveAvgPool1d, F.adaptive_avg_pool1d, 1)
_adaptive_rule(nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d, 2)
_adaptive_rule(nn.AdaptiveAvgPool3d, F.adaptive_avg_pool3d, 3)


@rule(torch.mean, torch.Tensor.mean)
def _mean(x: Moments, dim: Any = None, keepdim: bool = False) -> Moments:
    over = _dimensions(x, dim)
    return _average(x, lambda values: values.mean(over, keepdim), math.prod(x.mean.shape[d] for d in over))


@rule(torch.sum, torch.Tensor.sum)
def _sum(x: Moments, dim: Any = None, keepdim: bool = False) -> Moments:
    over = _dimensions(x, dim)
    return rearranged(x, lambda values: values.sum(over, keepdim))


def _dimensions(x: Moments, dim: Any) -> tuple[int, ...]:
    if dim is None:
        raise ValueError("a sum over all entries mixes rows; name the dimensions")
    return tuple(d % x.mean.ndim - x.mean.ndim for d in ([dim] if isinstance(dim, int) else dim))


def maximum(one: Moments, other: Moments) -> Moments:
    """Clark's moments: max(X, Y) = Y + relu(X - Y), around whichever mean is larger.

    mean  mu_Y + E relu(D),    var  Var Y + Var relu(D) + 2 P (Cov(X, Y) - Var Y),    factors  t_Y + P (t_X - t_Y)
    """
    if one.is_certain and other.is_certain:
        return Moments(torch.maximum(one.mean, other.mean))
    ahead = one.mean >= other.mean

    def ordered(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:  # the smaller mean's, the larger mean's
        return torch.where(ahead, b, a), torch.where(ahead, a, b)

    small, large = ordered(one.mean, other.mean)
    small_total, large_total = ordered(one.total_variance, other.total_variance)
    shared: Tensor | float = 0.0
    small_factors = large_factors = None
    if one.factors is not None or other.factors is not None:
        zero = torch.zeros_like(one.factors if one.factors is not None else other.factors)  # type: ignore[arg-type]
        factors = [zero if part.factors is None else part.factors for part in (one, other)]
        small_factors, large_factors = ordered(factors[0], factors[1])
        shared = (small_factors * large_factors).sum(0)
    gap = scalars.relu(small - large, (small_total + large_total - 2 * shared).clamp_min(0.0))
    total = (large_total + gap.variance + 2 * gap.slope * (shared - large_total)).clamp_min(0.0)
    if small_factors is None or large_factors is None:
        return Moments(large + gap.mean, total)
    moved = large_factors + gap.slope * (small_factors - large_factors)
    return Moments(large + gap.mean, (total - moved.square().sum(0)).clamp_min(0.0), moved)


def _max_pool(x: Moments, dimensions: int, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Moments:
    """The maximum over each window, entry by entry, as of Gaussians; its deviation can be 10 to 20% too small."""
    if ceil:
        raise ValueError("max pooling with ceil_mode has no one-shot rule")
    each = [
        (value,) * dimensions if isinstance(value, int) else tuple(value)
        for value in (size, stride if stride is not None else size, padding, dilation)
    ]
    sizes, strides, paddings, dilations = each
    lowest = torch.finfo(x.mean.dtype).min / 4
    around = [p for padding in reversed(paddings) for p in (padding, padding)]
    wide = Moments(
        F.pad(x.mean, around, value=lowest),
        None if x.variance is None else F.pad(x.variance, around),
        None if x.factors is None else F.pad(x.factors, around),
    )
    lengths = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.mean.shape[-dimensions:], paddings, dilations, sizes, strides, strict=True)
    ]

    def entry(offsets: tuple[int, ...]) -> Moments:
        places: tuple[Any, ...] = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offsets, dilations, lengths, strides, strict=True)
        )
        return rearranged(wide, lambda values: values[(..., *places)])

    entries = [entry(offsets) for offsets in itertools.product(*map(range, sizes))]
    while len(entries) > 1:  # as in a tournament: fewer rounds, and less of the error of each
        pairs = itertools.zip_longest(entries[::2], entries[1::2])
        entries = [a if b is None else maximum(a, b) for a, b in pairs]
    return entries[0]


def _max_pool_rule(kind: type[nn.Module], functions: Sequence[Any], dimensions: int) -> None:
    @rule(kind)
    def by_layer(layer: Any, x: Moments) -> Moments:
        if layer.return_indices:
            raise ValueError("max pooling that returns indices has no one-shot rule")
        return _max_pool(x, dimensions, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)

    @rule(*functions)
    def by_function(
        x: Moments,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Moments:
        return _max_pool(x, dimensions, kernel_size, stride, padding, dilation, ceil_mode)


_max_pool_rule(nn.MaxPool1d, [F.max_pool1d, torch.max_pool1d], 1)
_max_pool_rule(nn.MaxPool2d, [F.max_pool2d, torch.max_pool2d], 2)
_max_pool_rule(nn.MaxPool3d, [F.max_pool3d, torch.max_pool3d], 3)


# ---------------------------------------------------------------------- arithmetic


def _as_moments(value: Any, like: Moments) -> Moments:
    if isinstance(value, Moments):
        return value
    return Moments(torch.as_tensor(value, dtype=like.mean.dtype, device=like.mean.device))


def _spread(x: Moments, shape: torch.Size) -> Moments:
    """Broadcast to a shape."""
    if x.mean.shape == shape:
        return x
    missing = len(shape) - x.mean.ndim
    factors = None
    if x.factors is not None:
        factors = x.factors.reshape(len(x.factors), *[1] * missing, *x.mean.shape).expand(-1, *shape)
    variance = None if x.variance is None else x.variance.expand(shape)
    return Moments(x.mean.expand(shape), variance, factors, x.covariance)


def _both(a: Any, b: Any) -> tuple[Moments, Moments]:
    like = a if isinstance(a, Moments) else b
    a, b = _as_moments(a, like), _as_moments(b, like)
    shape = torch.broadcast_shapes(a.mean.shape, b.mean.shape)
    return _spread(a, shape), _spread(b, shape)


@rule(operator.add, operator.iadd, torch.add, torch.Tensor.add, torch.Tensor.add_)
def add(a: Any, b: Any, *, alpha: float = 1.0) -> Moments:
    """Of independent rests, and of the same shared factors."""
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


@rule(operator.sub, operator.isub, torch.sub, torch.Tensor.sub)
def subtract(a: Any, b: Any, *, alpha: float = 1.0) -> Moments:
    a, b = _both(a, b)
    return add(a, scaled(b, -alpha))


@rule(operator.neg, torch.neg, torch.Tensor.neg)
def _negative(x: Moments) -> Moments:
    return scaled(x, -1.0)


@rule(operator.mul, operator.imul, torch.mul, torch.Tensor.mul)
def multiply(a: Any, b: Any) -> Moments:
    """Entry by entry, of independent rests; with shared factors, products of two of them count in full."""
    a, b = _both(a, b)
    for x, other in ((a, b), (b, a)):
        if other.is_certain:
            return scaled(x, other.mean)
    mean = a.mean * b.mean
    rest = added(
        None if a.variance is None else a.variance * b.second_moment,
        None if b.variance is None else b.variance * _steady(a),
    )
    factors = added(
        None if a.factors is None else a.factors * b.mean, None if b.factors is None else b.factors * a.mean
    )
    if a.factors is not None and b.factors is not None:
        together = (a.factors * b.factors).sum(0)
        mean = mean + together
        rest = added(rest, _shared_product(a, b) + together.square())
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


def _shared_product(a: Moments, b: Moments) -> Tensor:
    assert a.shared_variance is not None
    assert b.shared_variance is not None
    return a.shared_variance * b.shared_variance


@rule(operator.truediv, torch.div, torch.Tensor.div)
def divide(a: Any, b: Any) -> Moments:
    if isinstance(b, Moments) and not b.is_certain:
        raise ValueError("a division by something uncertain has no moments")
    return scaled(a, 1 / (b.mean if isinstance(b, Moments) else b))


# ---------------------------------------------------------------------- shapes


def _shape_rule(*functions: Any) -> None:
    """Functions of one tensor that move its entries about, whatever their settings."""

    def register(function: Any) -> None:
        rule(function)(lambda x, *args, **kwargs: rearranged(x, lambda values: function(values, *args, **kwargs)))

    for function in functions:
        register(function)


_shape_rule(torch.flatten, torch.Tensor.flatten, torch.squeeze, torch.Tensor.squeeze, torch.unsqueeze)
_shape_rule(torch.Tensor.unsqueeze, torch.permute, torch.Tensor.permute, torch.transpose, torch.Tensor.transpose)
_shape_rule(torch.reshape, torch.Tensor.reshape, torch.Tensor.view, torch.unflatten, torch.Tensor.unflatten)
_shape_rule(F.pad)


@rule(operator.getitem)
def _item(x: Any, index: Any) -> Any:
    """Of a tensor, or of the pieces that it was split into."""
    return rearranged(x, lambda values: values[index]) if isinstance(x, Moments) else x[index]


@rule(nn.Flatten)
def _flatten(layer: Any, x: Moments) -> Moments:
    return rearranged(x, lambda values: values.flatten(layer.start_dim, layer.end_dim))


@rule(nn.Unflatten)
def _unflatten(layer: Any, x: Moments) -> Moments:
    return rearranged(x, lambda values: values.unflatten(layer.dim, layer.unflattened_size))


@rule(torch.chunk, torch.Tensor.chunk)
def _chunk(x: Moments, chunks: int, dim: int = 0) -> list[Moments]:
    return _pieces(x, lambda values: values.chunk(chunks, dim))


@rule(torch.split, torch.Tensor.split)
def _split(x: Moments, size: Any, dim: int = 0) -> list[Moments]:
    return _pieces(x, lambda values: values.split(size, dim))


def _pieces(x: Moments, how: Callable[[Tensor], Sequence[Tensor]]) -> list[Moments]:
    def piece(k: int) -> Moments:
        return rearranged(x, lambda values: how(values)[k])

    return [piece(k) for k in range(len(how(x.mean)))]


@rule(torch.cat, torch.concat)
def _concatenate(tensors: Sequence[Any], dim: int = 0) -> Moments:
    return _joined(tensors, dim, torch.cat)


@rule(torch.stack)
def _stack(tensors: Sequence[Any], dim: int = 0) -> Moments:
    return _joined(tensors, dim, torch.stack)


def _joined(tensors: Sequence[Any], dim: int, join: Callable[..., Tensor]) -> Moments:
    like = next(part for part in tensors if isinstance(part, Moments))
    parts = [_as_moments(part, like) for part in tensors]
    if any(part.covariance is not None for part in parts):
        raise ValueError('covariance="full" follows the units of one layer, not of several joined')
    variance = factors = None
    if any(part.variance is not None for part in parts):
        variance = join([torch.zeros_like(p.mean) if p.variance is None else p.variance for p in parts], dim)
    ranks = [len(part.factors) for part in parts if part.factors is not None]
    if ranks:
        zeros = [part.mean.new_zeros(ranks[0], *part.mean.shape) for part in parts]
        each = [z if part.factors is None else part.factors for part, z in zip(parts, zeros, strict=True)]
        factors = vmap(lambda *pieces: join(pieces, dim))(*each)
    return Moments(join([part.mean for part in parts], dim), variance, factors)
