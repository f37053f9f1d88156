"""The background: the distribution of y over all training rows. It takes over where a row is outside.

    p(y | row)  =  (1 - w) p_networks(y | row)  +  w p_training(y),        w from 0 (inside) to 1, row by row

    mean  =  (1 - w) m_n + w m_b
    Var   =  (1 - w) V_n + w V_b + w (1 - w) (m_n - m_b)^2

The first term of the variance splits by the networks' sources; the others are the source `outside`. Of classes, the
same holds for the entropy: H = (1 - w) H_n + the rest, which is never negative, because the entropy is concave.

Doubt never falls as w rises. Var is concave in w, so it rises everywhere if it still rises at w = 1, which is

    V_b  >=  V_n + (m_n - m_b)^2

Where this does not hold, the background is stretched away from its mean until it does: the networks' answer then fits
into it. The entropy of (1 - w) p + w q is concave as well, and rises at w = 1 if H(q) >= -sum_c p_c log q_c. Where it
does not, q is flattened: q^tau, normalised, with the largest tau in [0, 1] for which it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive import gaussians

OUTSIDE = "outside"  # the source
_POINTS = 50
_KERNEL = 0.05  # of the variance of y, around each point
_TURNS = 40  # of a bisection
_TINY = torch.finfo(torch.float64).tiny


@stored("Background")
@dataclass(frozen=True, eq=False)
class Background:
    """Distributions of y, standardised: of all training rows, then of some groups of them by name.

    Each is a mixture of equally likely points with the same variance; of classes, it is one point, their shares.
    """

    points: Tensor  # (distributions, points, outputs)
    noise: Tensor  # (distributions, outputs): the variance of y around each point
    stretch: Tensor  # (outputs,): the least factor of all variances
    groups: tuple[str, ...] = ()  # whose distributions follow the first

    @property
    def mean(self) -> Tensor:
        """Mean of each distribution.  # (distributions, outputs)"""
        return self.points.mean(1)

    @property
    def variance(self) -> Tensor:
        """Variance of each distribution, not stretched.  # (distributions, outputs)"""
        return self.points.var(1, correction=0) + self.noise

    def quantile(self, probability: float) -> Tensor:
        """Quantile of each distribution of numbers, not stretched.  # (distributions, outputs)"""
        points = self.points.transpose(0, 1)
        return gaussians.quantile(points, self.noise.expand_as(points), None, probability)

    def at(self, weight: Any, groups: Iterable[str] | None = None) -> Blend:
        """Return the background of rows, with its weight in each; `groups` names the group of each row."""
        weight = torch.as_tensor(weight, dtype=torch.float64)
        number_of = {name: number for number, name in enumerate(self.groups, 1)}
        number = [0] * len(weight) if groups is None else [number_of.get(name, 0) for name in groups]
        return Blend(self, weight.unsqueeze(1), torch.tensor(number, dtype=torch.long))


class Added(NamedTuple):
    """The part of the doubt that the background adds, and the factor of all that the networks cause."""

    kept: Tensor  # (rows, 1)
    amount: Tensor  # (rows, outputs)


@dataclass(frozen=True, eq=False)
class Blend:
    """The background of some rows, and its weight in each."""

    background: Background
    weight: Tensor  # (rows, 1)
    number: Tensor  # (rows,): which of the distributions

    def of_rows(self, rows: Any) -> Blend:
        return replace(self, weight=self.weight[rows], number=self.number[rows])

    @classmethod
    def joined(cls, parts: Sequence[Blend]) -> Blend:
        """Return the rows of several, which have the same background."""
        weight, number = torch.cat([part.weight for part in parts]), torch.cat([part.number for part in parts])
        return cls(parts[0].background, weight, number)

    def of_output(self, j: int) -> Blend:
        """One of several outputs alone."""
        one, all_outputs = slice(j, j + 1), self.background
        background = replace(
            all_outputs,
            points=all_outputs.points[..., one],
            noise=all_outputs.noise[..., one],
            stretch=all_outputs.stretch[one],
        )
        return replace(self, background=background)

    def mixed(self, networks: Tensor, background: Tensor) -> Tensor:
        """(1 - w) networks + w background.  # (rows, outputs)"""
        return (1 - self.weight) * networks + self.weight * background

    def mixed_logs(self, networks: Tensor, background: Tensor) -> Tensor:
        """Log of the mixture of exp(networks) and exp(background).  # (rows, outputs)"""
        return torch.logaddexp(networks + torch.log1p(-self.weight), background + self.weight.log())

    # ------------------------------------------------------------------ numbers

    @cached_property
    def mean(self) -> Tensor:
        """Mean of the background.  # (rows, outputs)"""
        return self.background.mean[self.number]

    def variance(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Variance of the background, stretched so that the networks' moments fit into it.  # (rows, outputs)"""
        least = self.background.stretch * self.background.variance[self.number]
        return torch.maximum(least, variance + (mean - self.mean).square())

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the mixture, from the networks' own.  # (rows, outputs) each"""
        between = self.weight * (1 - self.weight) * (mean - self.mean).square()
        return self.mixed(mean, self.mean), self.mixed(variance, self.variance(mean, variance)) + between

    def added(self, mean: Tensor, variance: Tensor) -> Added:
        """Return the variance that the background adds to the networks'."""
        return self.added_by(mean, variance, self.mean, self.variance(mean, variance))

    def added_by(self, mean: Tensor, variance: Tensor, other_mean: Tensor, other_variance: Tensor) -> Added:
        """Return the variance that another distribution adds to the networks', with the background's weight."""
        between = self.weight * (1 - self.weight) * (mean - other_mean).square()
        whole = self.mixed(variance, other_variance) + between
        return Added(1 - self.weight, whole - (1 - self.weight) * variance)

    def quantile(self, probability: float, mean: Tensor, variance: Tensor) -> Tensor:
        """Quantile of the stretched background.  # (rows, outputs)"""
        away = self.background.quantile(probability)[self.number] - self.mean
        return self.mean + self._stretched(mean, variance).sqrt() * away

    def components(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Equally likely Gaussians that make up the stretched background.

        # means (points, rows, outputs), variances (rows, outputs)
        """
        factor = self._stretched(mean, variance)
        away = self.background.points[self.number].transpose(0, 1) - self.mean
        return self.mean + factor.sqrt() * away, factor * self.background.noise[self.number]

    def _stretched(self, mean: Tensor, variance: Tensor) -> Tensor:
        return self.variance(mean, variance) / self.background.variance[self.number]

    # ------------------------------------------------------------------ classes

    def shares(self, probabilities: Tensor) -> Tensor:
        """Shares of the classes, flattened so that doubt rises from these probabilities on.  # (rows, classes)"""
        logs = self.mean.clamp_min(_TINY).log()
        aim = (probabilities * logs).sum(-1, keepdim=True)

        def flattened(tau: Tensor) -> Tensor:
            return torch.softmax(tau * logs, -1)

        def is_flat_enough(tau: Tensor) -> Tensor:
            return (flattened(tau) * logs).sum(-1, keepdim=True) <= aim

        low, high = torch.zeros_like(aim), torch.ones_like(aim)
        for _ in range(_TURNS):
            middle = (low + high) / 2
            enough = is_flat_enough(middle)
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        return flattened(torch.where(is_flat_enough(torch.ones_like(aim)), 1.0, low))


# ---------------------------------------------------------------------- distributions of training rows


def of_quantities(y: Tensor) -> tuple[Tensor, Tensor]:
    """Points and the variance around them, with the mean and the variance of y.  # (rows, outputs) -> both

    >>> points, noise = of_quantities(torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64))
    >>> points.mean(0), points.var(0, correction=0) + noise
    (tensor([2.], dtype=torch.float64), tensor([4.6667], dtype=torch.float64))
    """
    points = _quantiles(y)
    variance = y.var(0, correction=0).clamp_min(_TINY)
    away = points - points.mean(0)
    times = ((1 - _KERNEL) * variance / away.square().mean(0).clamp_min(_TINY)).sqrt()
    return y.mean(0) + times * away, _KERNEL * variance


def of_counts(y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Points, and around each the variance of a count, or more where y has more.  # (rows, columns) -> both

    Counts are multiples of `scale`, and so is what is returned.
    """
    points = _quantiles(y)
    points = points * (y.mean(0) / points.mean(0).clamp_min(_TINY))
    noise = y.mean(0) / scale
    return points, torch.maximum(noise, y.var(0, correction=0) - points.var(0, correction=0))


def of_positive(y: Tensor) -> tuple[Tensor, Tensor]:
    """Points, none below zero, and the variance that they lack; with the mean of y.  # (rows, columns) -> both

    >>> points, noise = of_positive(torch.tensor([[1.0], [2.0], [9.0]], dtype=torch.float64))
    >>> points.mean(0), bool(points.min() > 0)
    (tensor([4.], dtype=torch.float64), True)
    """
    points = _quantiles(y)
    points = points * (y.mean(0) / points.mean(0).clamp_min(_TINY))
    variance = y.var(0, correction=0).clamp_min(_TINY)
    return points, torch.maximum(_KERNEL * variance, variance - points.var(0, correction=0))


def of_classes(numbers: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Shares of the classes as one point, none of them zero, and no variance around it.

    >>> of_classes(torch.tensor([0, 0, 1, 0]), 2)[0]
    tensor([[0.7000, 0.3000]], dtype=torch.float64)
    """
    counts = torch.bincount(numbers.flatten().long(), minlength=classes).double()
    shares = (counts + 1 / classes) / (counts.sum() + 1)
    return shares.unsqueeze(0), torch.zeros(classes, dtype=torch.float64)


def _quantiles(y: Tensor) -> Tensor:
    """Quantiles in the middle of equal parts.  # (rows, outputs) -> (points, outputs)"""
    return torch.from_numpy(np.quantile(y.numpy(), (np.arange(_POINTS) + 0.5) / _POINTS, axis=0))
