"""Rules for layers that move, split or join entries, or leave them as they are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from wherefrom.predictive.one_shot.layers.arithmetic import as_moments
from wherefrom.predictive.one_shot.moments import Moments, rearranged
from wherefrom.predictive.one_shot.rules import rule

_TENSOR: Any = torch.Tensor  # whose properties are descriptors


def _shape_rule(*functions: Any) -> None:
    """Functions of one tensor that move its entries about, whatever their settings."""

    def register(function: Any) -> None:
        rule(function)(lambda x, *args, **kwargs: rearranged(x, lambda values: function(values, *args, **kwargs)))

    for function in functions:
        register(function)


_shape_rule(torch.flatten, torch.Tensor.flatten, torch.squeeze, torch.Tensor.squeeze, torch.unsqueeze)
_shape_rule(torch.Tensor.unsqueeze, torch.permute, torch.Tensor.permute, torch.transpose, torch.Tensor.transpose)
_shape_rule(torch.reshape, torch.Tensor.reshape, torch.unflatten, torch.Tensor.unflatten)
_shape_rule(F.pad, torch.Tensor.expand, torch.Tensor.t, torch.t, torch.swapaxes, torch.Tensor.swapaxes, torch.movedim)
_shape_rule(torch.Tensor.movedim, torch.Tensor.repeat, torch.select, _TENSOR.T.__get__, _TENSOR.mT.__get__)
_shape_rule(torch.Tensor.select, torch.narrow, torch.Tensor.narrow, torch.flip, torch.Tensor.flip, torch.broadcast_to)


def _constant_rule(*functions: Any) -> None:
    """Functions that look at a tensor's shape and type alone."""

    def register(function: Any) -> None:
        rule(function)(lambda x, *args, **kwargs: Moments(function(x.mean, *args, **kwargs)))

    for function in functions:
        register(function)


_constant_rule(torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full, torch.zeros_like, torch.ones_like)


@rule(torch.Tensor.view)
def _view(x: Moments, *shape: Any) -> Moments:
    """Reshape; moments may lie otherwise in memory than the network's own numbers."""
    return rearranged(x, lambda values: values.reshape(*shape))


@rule(nn.Identity)
def _identity(layer: Any, x: Moments) -> Moments:
    return x


@rule(torch.Tensor.contiguous, torch.Tensor.clone, torch.Tensor.detach, torch.clone, torch.detach)
def _same(x: Moments, *_: Any, **__: Any) -> Moments:
    return x


@rule(torch.Tensor.to)
def _to(x: Moments, *args: Any, **kwargs: Any) -> Moments:
    """Change the type of numbers; uncertain ones cannot become indices."""
    if not x.is_certain and not x.mean.to(*args, **kwargs).is_floating_point():
        raise ValueError("numbers that are uncertain cannot be made whole ones")
    return rearranged(x, lambda values: values.to(*args, **kwargs))


@rule(operator.getitem)
def _item(x: Any, index: Any) -> Any:
    """Take an item of a tensor, or of the pieces that it was split into."""
    index = tuple(map(_certain, index)) if isinstance(index, tuple) else _certain(index)
    return rearranged(x, lambda values: values[index]) if isinstance(x, Moments) else x[index]


@rule(torch.gather, torch.Tensor.gather)
def _gathered(x: Any, dim: int, index: Any) -> Moments:
    """Take entries by their numbers."""
    index = _certain(index)
    return rearranged(x if isinstance(x, Moments) else Moments(x), lambda values: values.gather(dim, index))


def _certain(x: Any) -> Any:
    """Return the numbers themselves; raise if they are uncertain."""
    if not isinstance(x, Moments):
        return x
    if not x.is_certain:
        raise ValueError("it takes numbers that are certain, and these vary")
    return x.mean


def _certain_rule(*functions: Any) -> None:
    """Functions that are followed for certain numbers alone, as the words of a text and their positions are."""

    def register(function: Any) -> None:
        rule(function)(lambda *args, **kwargs: Moments(function(*map(_certain, args), **kwargs)))

    for function in functions:
        register(function)


_certain_rule(torch.ne, torch.Tensor.ne, torch.eq, torch.Tensor.eq, torch.Tensor.int, torch.Tensor.long)
_certain_rule(torch.cumsum, torch.Tensor.cumsum, torch.Tensor.type_as, torch.Tensor.cos, torch.Tensor.sin)


@rule(nn.Flatten)
def _flatten(layer: Any, x: Moments) -> Moments:
    return rearranged(x, lambda values: values.flatten(layer.start_dim, layer.end_dim))


@rule(nn.Unflatten)
def _unflatten(layer: Any, x: Moments) -> Moments:
    return rearranged(x, lambda values: values.unflatten(layer.dim, layer.unflattened_size))


def _split_rule(*functions: Any) -> None:
    """Functions of one tensor that give several parts of it."""

    def register(function: Any) -> None:
        rule(function)(lambda x, *args, **kwargs: _pieces(x, lambda values: function(values, *args, **kwargs)))

    for function in functions:
        register(function)


_split_rule(torch.chunk, torch.Tensor.chunk, torch.split, torch.Tensor.split, torch.unbind, torch.Tensor.unbind)


def _pieces(x: Moments, how: Callable[[Tensor], Sequence[Tensor]]) -> list[Moments]:
    def piece(k: int) -> Moments:
        return rearranged(x, lambda values: how(values)[k])

    return [piece(k) for k in range(len(how(x.mean)))]


def _joined(tensors: Sequence[Any], dim: int = 0, *, join: Callable[..., Tensor]) -> Moments:
    like = next(part for part in tensors if isinstance(part, Moments))
    parts = [as_moments(part, like) for part in tensors]
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


rule(torch.cat, torch.concat)(partial(_joined, join=torch.cat))
rule(torch.stack)(partial(_joined, join=torch.stack))
