"""Moments of a random tensor inside a network: its mean, and how it varies.

    x = mean  +  sum_r z_r factors_r  +  rest,        z ~ N(0, 1) shared by the whole network,    Var rest = variance

The factors carry what is common to many entries: SWAG's low-rank deviations move the weights of all layers together.
The rest is taken as independent from entry to entry (the paper's assumed density), or, with a covariance, as correlated
between the units of a layer. A tensor without any of them is certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import vmap

Map = Callable[[Tensor], Tensor]

MOST_UNITS = 512  # of a layer whose covariance is followed in full


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of a tensor: its mean, shared factors, and the variance that is left (the rest).

    mean: the mean.  # (rows, ...)
    variance: variance of the rest, of the mean's shape (default None: there is none).
    factors: shared factors (default None).  # (rank, rows, ...)
    covariance: covariance of the rest between units; its diagonal is the variance (default None: independent).
    """

    mean: Tensor  # (rows, ...)
    variance: Tensor | None = None  # of the rest, as the mean's shape
    factors: Tensor | None = None  # (rank, rows, ...)
    covariance: Tensor | None = None  # of the rest, (rows, units, units); its diagonal is the variance

    @property
    def is_certain(self) -> bool:
        return self.variance is None and self.factors is None

    @cached_property
    def shared_variance(self) -> Tensor | None:
        """Variance of the factors together."""
        return None if self.factors is None else self.factors.square().sum(0)

    @cached_property
    def total_variance(self) -> Tensor:
        """Variance of the rest and of the factors together."""
        total = added(self.variance, self.shared_variance)
        return torch.zeros_like(self.mean) if total is None else total

    @cached_property
    def second_moment(self) -> Tensor:
        return self.mean.square() + self.total_variance


def added(*terms: Tensor | None) -> Tensor | None:
    """The sum of those that are there."""
    there = [term for term in terms if term is not None]
    return sum(there[1:], start=there[0]) if there else None


def rearranged(x: Moments, how: Map) -> Moments:
    """Entries moved, chosen or copied, row by row: reshaping, padding, slicing."""
    return weighted(x, how, how)


def weighted(x: Moments, how: Map, squared: Map) -> Moments:
    """A linear map with fixed weights; `squared` is the same map with its weights squared, for the variance."""
    return Moments(
        how(x.mean),
        None if x.variance is None else squared(x.variance),
        None if x.factors is None else vmap(how)(x.factors),
        _same_units(x, how),
    )


def _same_units(x: Moments, how: Map) -> Tensor | None:
    """A covariance between units only outlives what leaves the units where they are."""
    if x.covariance is None:
        return None
    if how(x.mean).shape != x.mean.shape:
        raise ValueError('covariance="full" follows the units of a layer, and this reshapes them')
    return x.covariance


def scaled(x: Moments, factor: Tensor | float) -> Moments:
    """Times a constant, broadcast."""
    square = factor * factor
    covariance = None
    if x.covariance is not None:
        wide = torch.as_tensor(factor, dtype=x.mean.dtype, device=x.mean.device).expand_as(x.mean)
        covariance = x.covariance * wide.unsqueeze(-1) * wide.unsqueeze(-2)
    return Moments(
        x.mean * factor,
        None if x.variance is None else x.variance * square,
        None if x.factors is None else x.factors * factor,
        covariance,
    )
