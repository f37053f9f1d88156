"""Averages, sums and maxima over windows and over dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wherefrom.predictive.one_shot.moments import Moments, rearranged, weighted
from wherefrom.predictive.one_shot.rules import rule
from wherefrom.predictive.one_shot.scalars import relu


def _pool_rule(kind: type[nn.Module], functions: Sequence[Any], pool: Callable[..., Moments], *names: str) -> None:
    """A module type and its functions, whose settings have the given names on both."""
    rule(kind)(lambda layer, x: pool(x, **{name: getattr(layer, name) for name in names}))
    rule(*functions)(pool)


def _average(x: Moments, pool: Callable[[Tensor], Tensor], count: Tensor | float) -> Moments:
    """An average of independent entries has their average variance, divided by how many they are."""
    return weighted(x, pool, lambda values: pool(values) / count)


def _average_pool(
    x: Moments,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dimensions: int,
) -> Moments:
    if dimensions == 1:  # the only one that cannot count its windows
        lift = lambda v: (1, v[0] if isinstance(v, (tuple, list)) else v)  # noqa: E731
        flat = rearranged(x, lambda values: values.unsqueeze(-2))
        where = (lift(kernel_size), lift(stride or kernel_size), (0, lift(padding)[1]))
        pooled = _average_pool(flat, *where, ceil_mode, count_include_pad, dimensions=2)
        return rearranged(pooled, lambda values: values.squeeze(-2))
    pool = F.avg_pool2d if dimensions == 2 else F.avg_pool3d
    window = partial(pool, kernel_size=kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode)
    ones = torch.ones_like(x.mean[:1])
    mean = partial(window, count_include_pad=count_include_pad, divisor_override=divisor_override)
    weight = mean(ones) / window(ones, divisor_override=1)  # of each entry of a window
    return weighted(x, mean, lambda values: mean(values) * weight)


_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_pool_rule(nn.AvgPool1d, [F.avg_pool1d], partial(_average_pool, dimensions=1), *_AVERAGE)
_pool_rule(nn.AvgPool2d, [F.avg_pool2d], partial(_average_pool, dimensions=2), *_AVERAGE, "divisor_override")
_pool_rule(nn.AvgPool3d, [F.avg_pool3d], partial(_average_pool, dimensions=3), *_AVERAGE, "divisor_override")


def _adaptive(x: Moments, output_size: Any, *, dimensions: int) -> Moments:
    pool: Any = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[dimensions]
    before = x.mean.shape[-dimensions:]
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * dimensions
    after = [own if out is None else out for out, own in zip(wanted, before, strict=True)]
    count = x.mean.new_ones(())
    for place, (inputs, outputs) in enumerate(zip(before, after, strict=True)):
        lengths = [-(-(i + 1) * inputs // outputs) - i * inputs // outputs for i in range(outputs)]
        shape = [1] * dimensions
        shape[place] = outputs
        count = count * x.mean.new_tensor(lengths).reshape(shape)
    return _average(x, lambda values: pool(values, tuple(after)), count)


_pool_rule(nn.AdaptiveAvgPool1d, [F.adaptive_avg_pool1d], partial(_adaptive, dimensions=1), "output_size")
_pool_rule(nn.AdaptiveAvgPool2d, [F.adaptive_avg_pool2d], partial(_adaptive, dimensions=2), "output_size")
_pool_rule(nn.AdaptiveAvgPool3d, [F.adaptive_avg_pool3d], partial(_adaptive, dimensions=3), "output_size")


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
    gap = relu(small - large, (small_total + large_total - 2 * shared).clamp_min(0.0))
    total = (large_total + gap.variance + 2 * gap.slope * (shared - large_total)).clamp_min(0.0)
    if small_factors is None or large_factors is None:
        return Moments(large + gap.mean, total)
    moved = large_factors + gap.slope * (small_factors - large_factors)
    return Moments(large + gap.mean, (total - moved.square().sum(0)).clamp_min(0.0), moved)


def _max_pool(
    x: Moments,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    dimensions: int,
) -> Moments:
    """The maximum over each window, entry by entry, as of Gaussians; its deviation can be 10 to 20% too small."""
    if return_indices:
        raise ValueError("max pooling that returns indices has no one-shot rule")
    if x.covariance is not None:
        raise ValueError('max pooling is not followed with covariance="full"')
    if ceil_mode:
        raise ValueError("max pooling with ceil_mode has no one-shot rule")
    each = [
        (value,) * dimensions if isinstance(value, int) else tuple(value)
        for value in (kernel_size, stride if stride is not None else kernel_size, padding, dilation)
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


_MAXIMUM = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_pool_rule(nn.MaxPool1d, [F.max_pool1d, torch.max_pool1d], partial(_max_pool, dimensions=1), *_MAXIMUM)
_pool_rule(nn.MaxPool2d, [F.max_pool2d, torch.max_pool2d], partial(_max_pool, dimensions=2), *_MAXIMUM)
_pool_rule(nn.MaxPool3d, [F.max_pool3d, torch.max_pool3d], partial(_max_pool, dimensions=3), *_MAXIMUM)
