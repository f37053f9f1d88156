"""Variance components, estimated without bias from answers that share some of their draws.

An answer of the network is a function of its draws, f(theta0, h, order; t, F). Between members, theta0, h and order are
crossed; within a member, t and F are sampled. By the law of total variance

    Var f  =  Var_members( E[f | member] )  +  E_members( Var[f | member] )
              theta0, h, order, and their       t, F, and their interaction,
              interactions                      as they act within a member

and each half splits by Hoeffding's decomposition: V_u is the variance that the variables u cause together, beyond what
fewer of them cause. It is estimated without bias from products of answers that share the draws in v and differ in all
others,

    A_v = E[f f' | same draws of v, others independent],      V_u = sum over v in u of (-1)^(|u| - |v|) A_v,

where for a variable that was drawn at random "independent" means different draws, and for one whose values were all
gone through it means any two, by their probabilities p_i p_j. A member's mean over K samples carries their variance / K
along; it is taken out. A variable whose draws all see the same samples (`shares_samples`) does not average them out.

All this holds where the members' weights are those of independent draws: products of the probabilities of finite
variables, and equal over the draws of random ones. Weights that were chosen otherwise (by stacking, say) tie the
variables to each other. What each of them causes is then not defined, and all that lies between members is one
component, named like variables that are drawn jointly: "theta0+h". The members are its population.

How far off components may be is said by mean squares (mean_squares.py). Of other statistics, as `advise` needs them,
and where nothing between members was drawn at random, standard errors are jackknifed. Leaving out each draw of a
variable in turn gives the variance J_i of all that differs between its draws, by itself or together with others. Of
several crossed variables, what they cause together is in the J of each; leaving out a draw of each of them at once, and
taking out what the single ones do, gives that part alone. So

    J  =  sum over i of J_i  -  sum over pairs of J_ij  +  sum over triples of J_ijk  -  ...

counts everything once. It is taken as no smaller than the largest J_i, which few draws can bring about. Where no
variable between members was drawn at random, groups of samples are left out instead.

A one-shot prediction knows each member's mean and the variances within it, instead of samples.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from wherefrom.predictive.mixture import Mixture

ENTROPY, OVERLAP, NOISE = "entropy", "overlap", "noise"
UNEXPLAINED = (NOISE, OVERLAP)  # of the data: no choice of training causes them
SAMPLE_GROUPS = 10
_CERTAIN = torch.ones(1, dtype=torch.float64)
Components = dict[str, Tensor]  # name -> (rows, outputs)
Within = dict[str, Tensor]  # name -> (members, rows, outputs): known variances within members
Replicates = dict[tuple[str, ...], Components]  # without one draw of each: these axes' draws are leading dimensions


@dataclass(frozen=True)
class CrossedAxis:
    """One crossed dimension of the members: its name, how many draws, and whether those are all there are.

    If they are, they may have probabilities; else all count the same.
    """

    name: str
    draws: int
    is_finite: bool
    weights: tuple[float, ...] | None = None  # adding up to 1; None: equal
    shares_samples: bool = False  # the samples of theta and of masks are the same for all of its draws

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        if not self.is_finite:
            raise ValueError(f"the draws of {self.name} are random, and count the same: they have no weights")
        if len(self.weights) != self.draws:
            raise ValueError(f"{self.name} has {self.draws} draws, but {len(self.weights)} weights")
        if min(self.weights) < 0 or abs(math.fsum(self.weights) - 1) > 1e-9:
            raise ValueError(f"the weights of {self.name} are not negative and add up to 1, unlike {self.weights}")

    @property
    def distribution(self) -> Tensor:
        """The probability of each draw."""
        equal = (1 / self.draws,) * self.draws
        return torch.tensor(self.weights or equal, dtype=torch.float64)

    def keeping(self, draws: Sequence[int]) -> CrossedAxis:
        """Only these draws of it."""
        weights = self.weights and tuple(self.weights[draw] for draw in draws)
        return replace(self, draws=len(draws), weights=weights)

    @property
    def coincidence(self) -> float:
        """The probability that two independent draws have the same samples."""
        if self.shares_samples:
            return 1.0
        return 1 / self.draws if self.weights is None else math.fsum(weight**2 for weight in self.weights)


def weights_of(axes: Sequence[CrossedAxis]) -> Tensor | None:
    """Weight of each member of the crossed design, by its axes: None where all count the same.  # (members,)"""
    if all(axis.weights is None for axis in axes):
        return None
    return functools.reduce(lambda grid, axis: torch.outer(grid, axis.distribution).flatten(), axes, _CERTAIN)


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of the members of a crossed design: the mean of each, and the variances within it."""

    means: Tensor  # (*members, rows, outputs), and so are all others
    within: Components  # of t, F and their interaction
    carried: dict[str, float]  # how much of these the means carry along; nothing where they are exact
    axes: tuple[CrossedAxis, ...]
    noise: Tensor | None = None
    entropies: Tensor | None = None  # of answers about classes, the mean of each member's; they have one output
    folds: Callable[[], list[Answers]] = list  # the same without each of some groups of samples, where there are any
    groups: int = 0  # of samples of each member, from which `within` was estimated; 0 where it is exact

    @classmethod
    def of(cls, mixture: Mixture, entropies: Tensor | None = None) -> Answers:
        """Arrange a mixture's answers by its axes; entropies, (members, samples, rows, 1), are kept as well."""
        plan, axes = mixture.plan, axes_of(mixture)
        shape, members = [axis.draws for axis in axes], len(axes)
        live = {
            i: [draw for draw, weight in enumerate(axis.weights) if weight]
            for i, axis in enumerate(axes)
            if axis.weights is not None
        }

        def arranged(each: Tensor) -> Tensor:
            """Arrange by axes, without draws that weigh nothing.  # (members, ...) -> (*members, ...)"""
            each = each.double().unflatten(0, shape) if shape else each.double().squeeze(0)
            for i, draws in live.items():
                each = each.index_select(i, torch.tensor(draws))
            return each

        # The paper's M, where F is the family of networks.
        masks = "M" if any("F" in axis.name.split("+") for axis in axes) else "F"
        sampled = tuple(name for name, varied in (("t", plan.vary_theta), (masks, plan.vary_mask)) if varied)
        block = (-1, 2, 2) if plan.in_blocks else (-1, 1, 1)
        answers = arranged(mixture.answers).unflatten(members, block)  # (*members, groups, t, F, rows, outputs)
        by_answer = None if entropies is None else arranged(entropies).unflatten(members, block)
        noise = None
        if mixture.noise is not None:
            noise = arranged(mixture.noise.double().expand_as(mixture.answers).mean(1))
        exact = None
        if mixture.within is not None:
            exact = {name: arranged(part) for name, part in mixture.within().items()}
        for i, draws in live.items():
            axes = (*axes[:i], axes[i].keeping(draws), *axes[i + 1 :])

        def by_samples(kept: Tensor) -> Answers:
            """Return the answers of these groups of samples."""
            values = answers.index_select(members, kept) if len(kept) < all_groups else answers
            within, carried = (exact, {}) if exact is not None else _within(values, sampled, members)
            each = (members, members + 1, members + 2)
            mine = None if by_answer is None else by_answer.index_select(members, kept).mean(each)
            groups = 0 if exact is not None or not sampled else len(kept)
            return cls(values.mean(each), within, carried, axes, noise, mine, groups=groups)

        all_groups = answers.shape[members]
        count = min(SAMPLE_GROUPS, all_groups)
        number = torch.arange(all_groups) * count // all_groups
        is_enough = bool(sampled) and exact is None and all_groups - -(-all_groups // count) >= 2

        def folds() -> list[Answers]:
            return [by_samples(torch.nonzero(number != fold).flatten()) for fold in range(count)]

        data = by_samples(torch.arange(all_groups))
        return replace(data, folds=folds) if is_enough else data

    def without(self, left_out: Mapping[int, int]) -> Answers:
        """Return the answers without one draw of some axes: number of the axis -> draw."""
        axes = list(self.axes)
        kept = {i: [k for k in range(axes[i].draws) if k != draw] for i, draw in left_out.items()}
        for i, draws in kept.items():
            axes[i] = axes[i].keeping(draws)

        def smaller(each: Tensor) -> Tensor:
            for i, draws in kept.items():
                each = each.index_select(i, torch.tensor(draws))
            return each

        return Answers(
            smaller(self.means),
            {name: smaller(part) for name, part in self.within.items()},
            self.carried,
            tuple(axes),
            None if self.noise is None else smaller(self.noise),
            None if self.entropies is None else smaller(self.entropies),
        )

    def components(self) -> Components:
        """Return every component, row by row."""
        within = {name: self._mean(part) for name, part in self.within.items()}
        carried = torch.zeros((), dtype=torch.float64)
        for name, share in self.carried.items():
            carried = carried + share * (self.within if _is_weighted(self.axes) else within)[name]
        between = hoeffding(self.means, self.axes, carried) if self.axes else {}
        noise = {} if self.noise is None else {NOISE: self._mean(self.noise)}
        return between | within | noise

    def doubt(self, missing: Tensor | None = None) -> Components:
        """The entropy of all answers' mean, and the mean of their own, row by row; nothing where there are none.

        `missing` is the entropy that the mean of few draws lacks, (rows, 1).
        """
        if self.entropies is None:
            return {}
        whole = torch.special.entr(self._mean(self.means)).sum(-1, keepdim=True)
        whole = whole if missing is None else whole + missing
        return {ENTROPY: whole, OVERLAP: self._mean(self.entropies)}

    def _mean(self, values: Tensor) -> Tensor:
        """Mean over all members.  # (*members, rows, outputs) -> (rows, outputs)"""
        return mean_over(values, range(len(self.axes)), self.axes)

    def replicated(self, statistic: Callable[[Answers], Components]) -> Replicates:
        """Return a statistic without each draw in turn, and without each combination of draws of several axes.

        Members carry their samples' noise with them, so samples are left out only where no member can be.
        """
        random = [i for i, axis in enumerate(self.axes) if not axis.is_finite and axis.draws >= 3]
        replicates: Replicates = {}
        for chosen in (each for size in range(len(random)) for each in itertools.combinations(random, size + 1)):
            draws = [self.axes[i].draws for i in chosen]
            each = [
                statistic(self.without(dict(zip(chosen, left_out, strict=True))))
                for left_out in itertools.product(*map(range, draws))
            ]
            replicates[tuple(self.axes[i].name for i in chosen)] = _stacked(each, draws)
        if not random and (folds := self.folds()):
            replicates["samples",] = _stacked([statistic(each) for each in folds], [len(folds)])
        return replicates

    def unknowable_errors(self, parts: Components, replicates: Replicates) -> list[str]:
        """Two draws of a random variable, or too few samples, give a variance, but not how far off it may be."""
        few = any(not axis.is_finite and axis.draws < 3 for axis in self.axes)
        unknown = few or (not replicates and bool(self.carried))
        return [name for name in parts if unknown and name != NOISE]


def _within(values: Tensor, sampled: tuple[str, ...], members: int) -> tuple[Components, dict[str, float]]:
    """t, F and their interaction within each member, and how much of them the mean of its samples carries along."""
    if not sampled:
        return {}, {}
    groups = values.shape[members]
    if len(sampled) == 1:
        if groups < 2:
            raise ValueError("one sample a member shows no variance: predict with more samples")
        each = values.mean((members + 1, members + 2))
        return {sampled[0]: each.var(members, correction=1)}, {sampled[0]: 1 / groups}
    axes = tuple(CrossedAxis(name, 2, False) for name in sampled)
    blocks = values.movedim((members + 1, members + 2), (0, 1))  # (2, 2, *members, groups, rows, outputs)
    split = hoeffding(blocks, axes, torch.zeros((), dtype=torch.float64))
    # Of the mean of a block of four, two thetas crossed with two masks.
    carried = {name: (0.5 if name in sampled else 0.25) / groups for name in split}
    return {name: part.mean(members) for name, part in split.items()}, carried


def _stacked(each: list[Components], draws: Sequence[int]) -> Components:
    return {name: torch.stack([parts[name] for parts in each]).unflatten(0, draws) for name in each[0]}


def axes_of(mixture: Mixture) -> tuple[CrossedAxis, ...]:
    """The crossed axes, with the probabilities that the members' weights give them; else one axis, of all members."""
    weights, axes = mixture.weights, mixture.axes
    if weights is None:
        if mixture.missing:
            raise ValueError(
                f"the sources need every member of the crossed design, but {mixture.missing}. Take a part that is "
                "whole, as posterior.select(theta0=[0, 1, 2])"
            )
        return axes
    shape = [axis.draws for axis in axes]
    if not mixture.missing and len(weights) == math.prod(shape):
        grid = weights.reshape(shape)
        marginals = [grid.movedim(i, 0).reshape(axes[i].draws, -1).sum(1) for i in range(len(shape))]
        weighted = tuple(
            replace(axis, weights=tuple(marginal.tolist()) if axis.is_finite and not _is_equal(marginal) else None)
            for axis, marginal in zip(axes, marginals, strict=True)
        )
        product = weights_of(weighted)
        if _is_equal(weights) if product is None else torch.allclose(product, weights, rtol=1e-9, atol=1e-12):
            return weighted
    name = "+".join(axis.name for axis in axes) or "members"
    return (CrossedAxis(name, len(weights), True, tuple(weights.tolist())),)


def _is_equal(weights: Tensor) -> bool:
    return torch.allclose(weights, weights.mean(), rtol=1e-9, atol=1e-12)


def _is_weighted(axes: Sequence[CrossedAxis]) -> bool:
    return any(axis.weights is not None for axis in axes)


def mean_over(values: Tensor, places: Sequence[int], axes: Sequence[CrossedAxis]) -> Tensor:
    """The mean over some of the leading dimensions, by the probabilities of their draws."""
    equal = tuple(i for i in places if axes[i].weights is None)
    if len(equal) == len(places):
        return values.mean(equal) if equal else values
    values = values.mean(equal, keepdim=True) if equal else values
    for i in places:
        if i not in equal:
            values = torch.tensordot(axes[i].distribution, values.movedim(i, 0), 1).unsqueeze(i)
    return values.squeeze(tuple(places))


def hoeffding(values: Tensor, axes: tuple[CrossedAxis, ...], sampling_variance: Tensor) -> Components:
    """Unbiased variance components of a crossed array, whose leading dimensions are the axes.

    `sampling_variance` is what each cell carries from being an average of samples: its mean over all cells where they
    count the same, else cell by cell.
    """
    places = range(len(axes))
    subsets = [u for size in range(len(axes) + 1) for u in itertools.combinations(places, size)]
    same = {u: _mean_square(values, u, axes, sampling_variance) for u in subsets}
    products = {v: _independent_elsewhere(v, same, axes) for v in subsets}
    return {
        " x ".join(axes[i].name for i in u): sum(
            ((-1) ** (len(u) - len(v)) * products[v] for v in subsets if set(v) <= set(u)),
            start=torch.zeros((), dtype=values.dtype),
        )
        for u in subsets
        if u
    }


def _mean_square(
    values: Tensor, kept: tuple[int, ...], axes: tuple[CrossedAxis, ...], sampling_variance: Tensor
) -> Tensor:
    """The mean of f f' over pairs that share the kept axes and are any pair in the others."""
    averaged = tuple(i for i in range(len(axes)) if i not in kept)
    square = mean_over(values, averaged, axes).square()
    square = mean_over(square, range(len(kept)), [axes[i] for i in kept])
    return square - _carried(sampling_variance, averaged, axes)


def _carried(sampling_variance: Tensor, averaged: tuple[int, ...], axes: tuple[CrossedAxis, ...]) -> Tensor:
    """Sampling variance in the squares of averages over some of the axes, in the mean over the others."""
    if not (sampling_variance.ndim and _is_weighted(axes)):
        return sampling_variance * math.prod(axes[i].coincidence for i in averaged)
    for i, axis in enumerate(axes):  # each in its turn is the first dimension
        weights = axis.distribution
        is_averaged = i in averaged and not axis.shares_samples
        sampling_variance = torch.tensordot(weights.square() if is_averaged else weights, sampling_variance, 1)
    return sampling_variance


def _independent_elsewhere(
    v: tuple[int, ...], same: dict[tuple[int, ...], Tensor], axes: tuple[CrossedAxis, ...]
) -> Tensor:
    """A_v: from "any pair" to "different draws" on each random axis outside v, (n any - same) / (n - 1)."""
    random = [i for i in range(len(axes)) if i not in v and not axes[i].is_finite]
    total = torch.zeros((), dtype=torch.float64)
    for size in range(len(random) + 1):
        for equal in itertools.combinations(random, size):
            weight = 1.0
            for i in random:
                draws = axes[i].draws
                weight *= -1 / (draws - 1) if i in equal else draws / (draws - 1)
            total = total + weight * same[tuple(sorted({*v, *equal}))]
    return total


def jackknife(replicates: Replicates) -> Components:
    """Variances of what was replicated: all that could have been drawn otherwise, each counted once."""
    each = jackknifed(replicates)
    return {
        name: torch.maximum(
            sum(((-1) ** (len(axes) + 1) * parts[name] for axes, parts in each.items()), start=torch.zeros(())),
            torch.stack([parts[name] for axes, parts in each.items() if len(axes) == 1]).amax(0),
        )
        for name in next(iter(each.values()), {})
    }


def jackknifed(replicates: Replicates) -> dict[tuple[str, ...], Components]:
    """The variance J of each axis, and of each combination of axes what their draws cause together."""
    variances = {}
    for axes, parts in replicates.items():
        variances[axes] = dict(parts)
        for name, part in parts.items():
            dimensions, scale = range(len(axes)), 1.0
            for dimension in dimensions:
                part = part - part.mean(dimension, keepdim=True)
                scale *= (part.shape[dimension] - 1) / part.shape[dimension]
            variances[axes][name] = scale * part.square().sum(tuple(dimensions))
    return variances
