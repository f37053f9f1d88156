"""Mean squares of a crossed design: how far off the variance components are, and what the mean is off by.

Over draws of the random variables r, averaged over those of the others, and for the values of finite variables f, the
mean square S_rf has d = product of (n_i - 1) over r degrees of freedom. The components of components.py are sums and
differences of these (the textbook's analysis of variance),

    E S_rf  =  sum over s that hold r of  V_sf / product of n_i over s without r
    V_rf    =  sum over s that hold r of  (-1)^(|s| - |r|)  S_sf / product of n_i over s without r   -   samples' part

and mean squares of Gaussian effects are independent, with S d / E S a chi-square of d degrees of freedom. From this
come all statements about errors:

    Var V_u      =  sum of (coefficient of S)^2  2 S^2 / (d + 2), without bias
    intervals    the quantiles of V_u with every S replaced by S d / chi-square (Weerahandi's generalised intervals);
                 those of any function of components, such as a share, in the same way
    Var mean     =  sum over r of  (-1)^(|r| + 1)  S_r / product of n_i over r

A mean over rows has more degrees of freedom than a row: as many times as there are rows that vary independently. So
has a sum over outputs, or over the values of finite variables. With the Gram matrix G of the draws' deviations over all
that is added up, and their covariance C, the degrees of freedom are

    d / rho,      rho = tr C^2 / (tr C)^2,      both unbiased by tr G^2 and (tr G)^2

where rho is between 1 (all vary as one) and 1 / their number. It is taken 1 + 2 / d times as large, as simulations ask
for; two draws cannot tell it, and it is 1.

The variance within members, noise and overlap are means over members: their errors are those of a mean. What finite
variables cause by themselves is not random; its estimate is, by the random variables' part in it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wherefrom.predictive.components import CrossedAxis, mean_over

Subset = tuple[int, ...]  # numbers of axes
_MOST_PRODUCTS = 2**30  # of a Gram matrix; with more, some of the rows are taken
_STRATA = 64
_MANY_DEGREES = 50


@dataclass(frozen=True, eq=False)
class MeanSquares:
    """Mean squares of every set of axes with a random one in it, and their degrees of freedom."""

    axes: tuple[CrossedAxis, ...]
    squares: dict[Subset, Tensor]  # (rows, outputs)
    degrees: dict[Subset, Tensor]  # the same, or what can be broadcast to it

    @classmethod
    def of(
        cls,
        values: Tensor,
        axes: tuple[CrossedAxis, ...],
        weights: Tensor | None = None,
        is_sum: bool = False,
        over_rows: bool = False,
        by_draws: bool = False,
    ) -> MeanSquares:
        """Mean squares of answers, whose leading dimensions are the axes.

        values: (*members, rows, outputs).
        weights: of each output's square, (rows or 1, outputs or 1); default: 1.
        is_sum: add up over outputs, which are one then.
        over_rows: take the mean over rows.
        by_draws: count draws alone as degrees of freedom, so that a row's do not depend on the others.
        """
        squares, degrees = {}, {}
        for subset, effect in _effects(values, axes):
            random = [i for i in subset if not axes[i].is_finite]
            if not random:
                continue
            least = math.prod(axes[i].draws - 1 for i in random)
            square = mean_over(effect.square(), range(len(subset)), [axes[i] for i in subset])
            square = square * math.prod(axes[i].draws / (axes[i].draws - 1) for i in random)
            square = square if weights is None else square * weights
            square = square.sum(-1, keepdim=True) if is_sum else square
            squares[subset] = square.mean(0, keepdim=True) if over_rows else square
            degrees[subset] = torch.full((1, 1), float(least), dtype=torch.float64)
            if not by_draws:
                along = [axes[i] for i in subset]
                degrees[subset] = least / _together(effect, along, weights, is_sum, over_rows, least)
        return cls(axes, squares, degrees)

    @functools.cached_property
    def _random(self) -> Subset:
        return tuple(i for i, axis in enumerate(self.axes) if not axis.is_finite)

    def coefficients(self, component: Subset) -> dict[Subset, float]:
        """Return the factor of each mean square in a component."""
        finite = [i for i in component if self.axes[i].is_finite]
        drawn = {i for i in component if not self.axes[i].is_finite}
        others = [i for i in self._random if i not in drawn]
        return {
            tuple(sorted({*drawn, *more, *finite})): (-1) ** size / math.prod(self.axes[i].draws for i in more)
            for size in range(len(others) + 1)
            for more in itertools.combinations(others, size)
            if drawn or more
        }

    @property
    def of_mean(self) -> dict[Subset, float]:
        """Return the factor of each mean square in the variance of the mean."""
        return {
            subset: (-1) ** (size + 1) / math.prod(self.axes[i].draws for i in subset)
            for size in range(1, len(self._random) + 1)
            for subset in itertools.combinations(self._random, size)
        }

    def variance_of_mean(self) -> Tensor:
        """Variance of the mean over members, without bias but for being no less than zero.  # (rows, outputs)"""
        terms = [factor * self.squares[subset] for subset, factor in self.of_mean.items()]
        return torch.stack(terms).sum(0).clamp_min(0)

    def variance_of(self, component: Subset, estimate: Tensor) -> Tensor:
        """Variance of an estimated component, without bias, but for the samples' part.  # (rows, outputs)"""
        variance = torch.zeros_like(estimate)
        for subset, factor in self.coefficients(component).items():
            variance = variance + (factor * self.squares[subset]).square() * 2 / (self.degrees[subset] + 2)
        return variance + self._of_fixed(component, estimate)

    def _of_fixed(self, component: Subset, estimate: Tensor) -> Tensor:
        """Variance of the square of a fixed effect that is seen with errors: 4 V T + 2 T^2, T by independent part."""
        if any(i in self._random for i in component):
            return torch.zeros_like(estimate)
        each = {subset: -factor * self.squares[subset] for subset, factor in self.coefficients(component).items()}
        error = sum(each.values(), start=torch.zeros_like(estimate)).clamp_min(0)
        parts = [
            self.degrees[subset] / math.prod(self.axes[i].draws - 1 for i in subset if i in self._random)
            for subset in each
        ]
        independent = functools.reduce(torch.minimum, parts, torch.tensor(math.inf, dtype=torch.float64))
        return (4 * estimate.clamp_min(0) * error + 2 * error.square()) / independent

    def redrawn(self, component: Subset, estimate: Tensor, chances: Chances) -> Tensor:
        """Return the component with every mean square redrawn.  # (draws, rows, outputs)"""
        values = estimate.unsqueeze(0).expand(chances.count, *estimate.shape)
        for subset, factor in self.coefficients(component).items():
            values = values + factor * self.squares[subset] * (chances.of(subset, self.degrees[subset]) - 1)
        fixed = self._of_fixed(component, estimate)
        return values + fixed.sqrt() * chances.normal(component) if bool((fixed > 0).any()) else values


def _effects(values: Tensor, axes: Sequence[CrossedAxis]) -> Iterator[tuple[Subset, Tensor]]:
    """Deviations along every set of axes, averaged over the others.  # (*draws of the set, rows, outputs)"""
    places = range(len(axes))
    means = {
        kept: mean_over(values, [i for i in places if i not in kept], axes)
        for size in range(len(axes) + 1)
        for kept in itertools.combinations(places, size)
    }
    for subset, mean in means.items():
        if not subset:
            continue
        effect = mean
        for dim, i in enumerate(subset):
            within = mean_over(effect.movedim(dim, 0), [0], [axes[i]])
            effect = effect - within.unsqueeze(dim)
        yield subset, effect


def _together(
    effect: Tensor, axes: Sequence[CrossedAxis], weights: Tensor | None, is_sum: bool, over_rows: bool, degrees: int
) -> Tensor:
    """rho: 1 where all that is added up varies as one, 1 / its number where independently.  # (1, outputs)

    That is values of finite variables, outputs, and rows; where rows are kept apart, it is one number for all of them.
    """
    random = [i for i, axis in enumerate(axes) if not axis.is_finite]
    draws = math.prod(axes[i].draws for i in random)
    rows, outputs = effect.shape[-2:]
    added = math.prod(axis.draws for axis in axes if axis.is_finite) * (outputs if is_sum else 1)
    if degrees < 2 or added * (rows if over_rows else 1) == 1:
        return torch.ones(1, 1 if is_sum else outputs, dtype=torch.float64)
    most = max(100, _MOST_PRODUCTS // (draws**2 * added))
    if rows > most:
        some = torch.linspace(0, rows - 1, most).long()
        effect = effect[..., some, :]
        weights = weights[some] if weights is not None and len(weights) == rows else weights
    effect = effect if weights is None else effect * weights.clamp_min(0).sqrt()
    for i, axis in enumerate(axes):
        if axis.is_finite:
            effect = effect * axis.distribution.sqrt().reshape([-1 if k == i else 1 for k in range(effect.ndim)])
    effect = effect.movedim(tuple(random), tuple(range(len(random)))).flatten(0, len(random) - 1)
    effect = effect.flatten(1, -3) if effect.ndim > 3 else effect.unsqueeze(1)  # (draws, levels, rows, outputs)
    effect = effect.movedim(3, 1).flatten(1, 2).unsqueeze(3) if is_sum else effect  # outputs count as levels
    if over_rows:
        effect = effect.flatten(1, 2).unsqueeze(2)  # and so do rows
    each = effect.permute(2, 3, 0, 1)  # (rows, outputs, draws, levels)
    # tr (X X')^2 = tr (X' X)^2: the smaller of the two, or memory would grow with the square of the draws.
    gram = each @ each.transpose(2, 3) if each.shape[2] <= each.shape[3] else each.transpose(2, 3) @ each
    squares, trace = gram.square().sum((2, 3)), gram.diagonal(dim1=2, dim2=3).sum(2)
    whole = ((degrees + 1) * trace.square() - 2 * squares).sum(0, keepdim=True)
    apart = (degrees * squares - trace.square()).sum(0, keepdim=True)
    rho = torch.where(whole > 0, apart / whole.clamp_min(torch.finfo(torch.float64).tiny), 1.0)
    # The draws that show a small mean square show a small rho as well: by this much, intervals would be too short.
    return (rho.clamp(1 / each.shape[3], 1.0) * (1 + 2 / degrees)).clamp_max(1.0)


class Chances:
    """Draws d / chi-square of d degrees of freedom, and others, the same for the same name: evenly spread quantiles."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count, self._seed = count, seed
        self._orders: dict[object, np.ndarray] = {}

    def _shuffled(self, name: object, values: np.ndarray) -> Tensor:
        """Evenly spaced values in an order that is the name's own.  # (draws, 1, 1)"""
        if name not in self._orders:
            self._orders[name] = np.random.default_rng([self._seed, len(self._orders)]).permutation(self.count)
        return torch.from_numpy(values[self._orders[name]]).reshape(-1, 1, 1)

    def of(self, name: object, degrees: Tensor) -> Tensor:
        """d / chi-square of d.  # (draws, 1, outputs)"""
        each = [self._shuffled(name, _inverse_chi_squares(float(d), self.count)) for d in degrees.flatten()]
        return torch.cat(each, -1)

    def normal(self, name: object) -> Tensor:
        return self._shuffled(("normal", name), _students(math.inf, self.count))

    def student(self, name: object, degrees: float) -> Tensor:
        """Student's t.  # (draws, 1, 1)"""
        return self._shuffled(("t", name), _students(degrees, self.count))


def _inverse_chi_squares(degrees: float, count: int) -> np.ndarray:
    """d / chi-square at evenly spaced probabilities, to about three digits."""
    probabilities = (np.arange(count) + 0.5) / count
    if degrees >= _MANY_DEGREES:  # Wilson and Hilferty
        share = 2 / (9 * degrees)
        z = torch.special.ndtri(torch.from_numpy(probabilities)).numpy()
        return (1 - share + z * math.sqrt(share)) ** -3.0
    highest = math.log(degrees + 10 * math.sqrt(2 * degrees) + 40)
    logs = np.linspace(-40.0 / min(degrees, 2.0), highest, 8000)
    half = torch.tensor(degrees / 2, dtype=torch.float64)
    below = torch.special.gammainc(half, torch.from_numpy(np.exp(logs) / 2)).numpy()
    return degrees / np.exp(np.interp(probabilities, below, logs))


@functools.lru_cache(maxsize=64)
def _students(degrees: float, count: int) -> np.ndarray:
    """Student's t at evenly spaced probabilities: the middle of each of many groups of ordered draws."""
    generator, size = np.random.default_rng(2), count * _STRATA
    values = generator.normal(size=size) if math.isinf(degrees) else generator.standard_t(degrees, size)
    values.sort()
    return values[_STRATA // 2 :: _STRATA].copy()


def error_of_mean(values: Tensor, axes: Sequence[CrossedAxis]) -> Tensor:
    """Standard error of a mean over members, no less than if they were independent.  # (rows, outputs)"""
    finite = [i for i, axis in enumerate(axes) if axis.is_finite]
    random = tuple(axis for axis in axes if not axis.is_finite)
    values = mean_over(values, finite, axes)
    members = math.prod(axis.draws for axis in random)
    independent = values.flatten(0, len(random) - 1).var(0, correction=1) / members
    return torch.maximum(MeanSquares.of(values, random).variance_of_mean(), independent).sqrt()


def names_of(axes: Sequence[CrossedAxis]) -> Mapping[str, Subset]:
    """Name of each component between members, and its axes."""
    places = range(len(axes))
    return {
        " x ".join(axes[i].name for i in subset): subset
        for size in range(1, len(axes) + 1)
        for subset in itertools.combinations(places, size)
    }


def interval_of(values: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Central interval of redrawn values.  # (draws, rows, outputs) -> (rows, outputs) each"""
    count = len(values)
    ordered = values.sort(0).values
    rank = (1 - level) / 2 * count - 0.5
    below = min(max(math.floor(rank), 0), count - 1)
    above = min(below + 1, count - 1)
    part = min(max(rank - below, 0.0), 1.0)
    low = ordered[below] * (1 - part) + ordered[above] * part
    high = ordered[count - 1 - below] * (1 - part) + ordered[count - 1 - above] * part
    return low, high
