"""Few members: the mean of a predictive distribution is off then, and its variance is too small, and a guess.

The paper's variance, with divisor K, is short of that of all members that could be drawn by Var(mean), the variance of
the mean over members and samples; and y, or another draw of the network, differs from this mean by as much again:

    E (y - mean)^2  =  paper's variance  +  2 Var(mean)

For m independent members without noise that is V (1 + 1 / m), with V the variance with divisor m - 1, and (y - mean)
divided by its root is Student's t with m - 1 degrees of freedom. In general it is a sum of mean squares S with factors
c (mean_squares.py), of what varies within members, and of noise. By Welch and Satterthwaite its degrees of freedom are

    nu  =  whole^2  /  sum of (c S)^2 / d

where what varies within members, and noise, are taken as known. Where these are the larger part nu is large, and
Student's t is the Gaussian. Weights that were set member by member, and values of finite variables, are no draws: they
add nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wherefrom.predictive.components import CrossedAxis, axes_of
from wherefrom.predictive.mean_squares import MeanSquares
from wherefrom.predictive.mixture import Mixture

_MOST_DEGREES = 1e12


class Few(NamedTuple):
    """The variance of y around the mean, for want of members, and its degrees of freedom.  # (rows, outputs) each"""

    variance: Tensor
    degrees: Tensor


def axes_for_few(mixture: Mixture) -> tuple[CrossedAxis, ...]:
    """The axes of the members; where some are missing from the crossed design, they count as independent draws."""
    if mixture.weights is None and mixture.missing:
        return (CrossedAxis("members", len(mixture.answers), False),)
    return tuple(axis for axis in axes_of(mixture) if axis.draws > 1)


def of_mixture(mixture: Mixture) -> Few:
    """The variance around the mean of a mixture, and its degrees of freedom."""
    axes = axes_for_few(mixture)
    return of_means(_arranged(mixture, axes), axes, mixture.variance)


def of_means(means: Tensor, axes: tuple[CrossedAxis, ...], variance: Tensor) -> Few:
    """The same from the members' means and the paper's variance.  # (*members, rows, outputs), (rows, outputs)"""
    if all(axis.is_finite for axis in axes):
        return Few(variance, torch.full_like(variance, _MOST_DEGREES))
    squares = MeanSquares.of(means, axes, by_draws=True)
    of_mean = squares.of_mean
    whole = variance + 2 * squares.variance_of_mean()
    doubt = torch.zeros_like(variance)
    for subset, square in squares.squares.items():
        drawn = [axes[i].draws for i in subset if not axes[i].is_finite]
        factor = math.prod(1 - 1 / draws for draws in drawn) + 2 * of_mean.get(subset, 0.0)
        doubt = doubt + (factor * square).square() / squares.degrees[subset]
    least = torch.finfo(torch.float64).tiny
    degrees = torch.where(doubt > 0, whole.square() / doubt.clamp_min(least), _MOST_DEGREES)
    return Few(whole, degrees.clamp(1.0, _MOST_DEGREES))


def variance_of_mean(mixture: Mixture) -> Tensor:
    """Variance of the mean over answers, for want of draws and samples.  # (rows, outputs)"""
    members, axes = len(mixture.answers), axes_for_few(mixture)
    if any(not axis.is_finite for axis in axes):
        return MeanSquares.of(_arranged(mixture, axes), axes, by_draws=True).variance_of_mean()
    samples = mixture.answers.shape[1]
    if samples < 2:
        return torch.zeros_like(mixture.mean)
    each = mixture.answers.double().var(1, correction=1) / samples
    weights = torch.full((members,), 1 / members) if mixture.weights is None else mixture.weights
    return torch.tensordot(weights.double().square(), each, 1)


def _arranged(mixture: Mixture, axes: tuple[CrossedAxis, ...]) -> Tensor:
    """The members' means, by their axes.  # (*members, rows, outputs)"""
    means = mixture.answers.double().mean(1)
    return means.unflatten(0, [axis.draws for axis in axes]) if axes else means.squeeze(0)
