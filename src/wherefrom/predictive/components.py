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
along; it is taken out.

All this holds where the members' weights are those of independent draws: products of the probabilities of finite
variables, and equal over the draws of random ones. Weights that were chosen otherwise (by stacking, say) tie the
variables to each other. What each of them causes is then not defined, and all that lies between members is one
component, named like variables that are drawn jointly: "theta0+h". The members are its population.

Standard errors are jackknifed, draw by draw of every random variable, or over groups of samples where no variable
between members was drawn at random; with several such variables they err on the large side.

A one-shot prediction knows each member's mean and the variances within it, instead of samples.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from wherefrom.predictive.class_prediction import ClassPrediction
    from wherefrom.predictive.prediction import Prediction

ENTROPY, OVERLAP = "entropy", "overlap"
_SAMPLE_GROUPS = 10
_CERTAIN = torch.ones(1, dtype=torch.float64)
Components = dict[str, Tensor]  # name -> (rows, outputs)
Within = dict[str, Tensor]  # name -> (members, rows, outputs): known variances within members
Replicates = list[tuple[str, float, Components]]  # without each draw: of what, its weight in the jackknife, the rest's


@dataclass(frozen=True)
class CrossedAxis:
    """One crossed dimension of the members: its name, how many draws, and whether those are all there are.

    If they are, they may have probabilities; else all count the same.
    """

    name: str
    draws: int
    is_finite: bool
    weights: tuple[float, ...] | None = None  # adding up to 1; None: equal

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

    @property
    def coincidence(self) -> float:
        """The probability that two independent draws are the same."""
        return 1 / self.draws if self.weights is None else math.fsum(weight**2 for weight in self.weights)


def weights_of(axes: Sequence[CrossedAxis]) -> Tensor | None:
    """What each member of the crossed design weighs, by its axes: None where all count the same.  # (members,)"""
    if all(axis.weights is None for axis in axes):
        return None
    return functools.reduce(lambda grid, axis: torch.outer(grid, axis.distribution).flatten(), axes, _CERTAIN)


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers by the crossed axes of the members and, within each, by independent groups of samples."""

    values: Tensor  # (*members, groups, t, F, rows, outputs); t and F are 2 in blocks, else 1
    noise: Tensor | None  # (*members, rows, outputs)
    axes: tuple[CrossedAxis, ...]
    sampled: tuple[str, ...]  # "t", "F", both or none
    known: Components | None = None  # variances within members, (*members, rows, outputs), if they are not estimated
    entropies: Tensor | None = None  # of each answer about classes, as values but with one output

    @classmethod
    def of(cls, prediction: Prediction | ClassPrediction, entropies: Tensor | None = None) -> Answers:
        plan, axes = prediction.plan, axes_of(prediction)
        shape = [axis.draws for axis in axes]
        block = (-1, 2, 2) if plan.in_blocks else (-1, 1, 1)

        def arranged(each: Tensor) -> Tensor:
            each = each.double().unflatten(1, block).unflatten(0, shape or [1])
            return each if shape else each.squeeze(0)

        # The paper's M, where F is the family of networks.
        masks = "M" if any("F" in axis.name.split("+") for axis in axes) else "F"
        sampled = tuple(name for name, varied in (("t", plan.vary_theta), (masks, plan.vary_mask)) if varied)
        noise = None
        if prediction.noise is not None:
            noise = prediction.noise.double().expand_as(prediction.answers).mean(1).unflatten(0, shape or [1])
            noise = noise if shape else noise.squeeze(0)
        known = None
        if prediction.within is not None:
            known = {name: part.double().unflatten(0, shape or [1]) for name, part in prediction.within().items()}
            known = known if shape else {name: part.squeeze(0) for name, part in known.items()}
        own = None if entropies is None else arranged(entropies)
        data = cls(arranged(prediction.answers), noise, axes, sampled, known, own)
        for place, axis in enumerate(axes):
            if axis.weights is not None and not all(axis.weights):
                data = data.keeping(place, [draw for draw, weight in enumerate(axis.weights) if weight])
        return data

    def keeping(self, place: int, draws: list[int]) -> Answers:
        """Only these draws of one axis."""
        index, axis = torch.tensor(draws), self.axes[place]
        weights = axis.weights and tuple(axis.weights[draw] for draw in draws)
        smaller = replace(axis, draws=len(draws), weights=weights)
        return Answers(
            self.values.index_select(place, index),
            None if self.noise is None else self.noise.index_select(place, index),
            (*self.axes[:place], smaller, *self.axes[place + 1 :]),
            self.sampled,
            self.known and {name: part.index_select(place, index) for name, part in self.known.items()},
            None if self.entropies is None else self.entropies.index_select(place, index),
        )

    @property
    def groups(self) -> int:
        return self.values.shape[len(self.axes)]

    def components(self) -> Components:
        """Every component, row by row."""
        members = len(self.axes)
        group_means = self.values.mean((members + 1, members + 2))  # (*members, groups, rows, outputs)
        of_members = self._within(group_means)
        within = {name: _mean_over(part, range(members), self.axes) for name, part in of_members.items()}
        carried = torch.zeros((), dtype=torch.float64)
        if self.known is None:  # else members' means are exact
            for name, part in (of_members if _is_weighted(self.axes) else within).items():
                # Of the mean of a block of four, two thetas crossed with two masks; of a single sample it is all of it.
                share = 1.0 if len(self.sampled) == 1 else 0.25 if name not in self.sampled else 0.5
                carried = carried + share * part / self.groups
        between = hoeffding(group_means.mean(members), self.axes, carried) if members else {}
        noise = {} if self.noise is None else {"noise": _mean_over(self.noise, range(members), self.axes)}
        return between | within | noise

    def _within(self, group_means: Tensor) -> Components:
        """t, F and their interaction within each member.  # (*members, rows, outputs)"""
        members = len(self.axes)
        if self.known is not None:
            return self.known
        if not self.sampled:
            return {}
        if len(self.sampled) == 1:
            if self.groups < 2:
                raise ValueError("one sample a member shows no variance: predict with more samples")
            return {self.sampled[0]: group_means.var(members, correction=1)}
        axes = tuple(CrossedAxis(name, 2, False) for name in self.sampled)
        blocks = self.values.movedim((members + 1, members + 2), (0, 1))  # (2, 2, *members, groups, rows, outputs)
        split = hoeffding(blocks, axes, torch.zeros((), dtype=torch.float64))
        return {name: part.mean(members) for name, part in split.items()}

    def doubt(self) -> Components:
        """The entropy of all answers' mean, and the mean of their own, row by row; nothing where there are none."""
        if self.entropies is None:
            return {}
        whole = torch.special.entr(self._mean(self.values)).sum(-1, keepdim=True)
        return {ENTROPY: whole, OVERLAP: self._mean(self.entropies)}

    def _mean(self, values: Tensor) -> Tensor:
        """Over all members and their samples.  # (rows, outputs)"""
        members = len(self.axes)
        return _mean_over(values.mean((members, members + 1, members + 2)), range(members), self.axes)

    def leave_one_out(self) -> Iterator[tuple[str, float, Answers]]:
        """All without each draw in turn: (what was left out of, its jackknife weight, the others).

        Members carry their samples' noise with them, so samples are left out only where no member can be.
        """
        random = [(place, axis) for place, axis in enumerate(self.axes) if not axis.is_finite and axis.draws >= 3]
        for place, axis in random:
            for draw in range(axis.draws):
                without = self.keeping(place, [d for d in range(axis.draws) if d != draw])
                yield axis.name, (axis.draws - 1) / axis.draws, without
        folds = min(_SAMPLE_GROUPS, self.groups)
        if random or not self.sampled or self.known is not None or self.groups - -(-self.groups // folds) < 2:
            return
        number = torch.arange(self.groups) * folds // self.groups
        for fold in range(folds):
            kept, place = torch.nonzero(number != fold).flatten(), len(self.axes)
            own = None if self.entropies is None else self.entropies.index_select(place, kept)
            yield (
                "samples",
                (folds - 1) / folds,
                replace(self, values=self.values.index_select(place, kept), entropies=own),
            )

    def unknowable_errors(self, parts: Components, replicates: int) -> list[str]:
        """Two draws of a random variable, or too few samples, give a variance, but not how far off it may be."""
        few = any(not axis.is_finite and axis.draws < 3 for axis in self.axes)
        unknown = few or (not replicates and bool(self.sampled) and self.known is None)
        return [name for name in parts if unknown and name != "noise"]


def axes_of(prediction: Prediction | ClassPrediction) -> tuple[CrossedAxis, ...]:
    """The crossed axes, with the probabilities that the members' weights give them; else one axis, of all members."""
    weights, axes = prediction.weights, prediction.axes
    if weights is None:
        if prediction.missing:
            raise ValueError(f"the sources need every member of the crossed design, but {prediction.missing}")
        return axes
    shape = [axis.draws for axis in axes]
    if not prediction.missing and len(weights) == math.prod(shape):
        grid = weights.reshape(shape)
        marginals = [grid.movedim(place, 0).reshape(axes[place].draws, -1).sum(1) for place in range(len(shape))]
        found = tuple(
            replace(axis, weights=tuple(own.tolist()) if axis.is_finite and not _is_equal(own) else None)
            for axis, own in zip(axes, marginals, strict=True)
        )
        product = weights_of(found)
        if _is_equal(weights) if product is None else torch.allclose(product, weights, rtol=1e-9, atol=1e-12):
            return found
    name = "+".join(axis.name for axis in axes) or "members"
    return (CrossedAxis(name, len(weights), True, tuple(weights.tolist())),)


def _is_equal(weights: Tensor) -> bool:
    return torch.allclose(weights, weights.mean(), rtol=1e-9, atol=1e-12)


def _is_weighted(axes: Sequence[CrossedAxis]) -> bool:
    return any(axis.weights is not None for axis in axes)


def _mean_over(values: Tensor, places: Sequence[int], axes: Sequence[CrossedAxis]) -> Tensor:
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
    square = _mean_over(values, averaged, axes).square()
    square = _mean_over(square, range(len(kept)), [axes[i] for i in kept])
    return square - _carried(sampling_variance, averaged, axes)


def _carried(sampling_variance: Tensor, averaged: tuple[int, ...], axes: tuple[CrossedAxis, ...]) -> Tensor:
    """What the squares of averages over some of the axes carry, in the mean over the others."""
    if not (sampling_variance.ndim and _is_weighted(axes)):
        return sampling_variance * math.prod(axes[i].coincidence for i in averaged)
    for i, axis in enumerate(axes):  # each in its turn is the first dimension
        weights = axis.distribution
        sampling_variance = torch.tensordot(weights.square() if i in averaged else weights, sampling_variance, 1)
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


def jackknife(parts: Components, replicates: Replicates) -> Components:
    """Standard errors: the jackknife variances of all the things that could have been drawn otherwise, added up."""
    errors = {name: torch.zeros_like(part) for name, part in parts.items()}
    for what in dict.fromkeys(axis for axis, _, _ in replicates):
        group = [(weight, p) for axis, weight, p in replicates if axis == what]
        for name in parts:
            stack = torch.stack([p[name] for _, p in group])
            errors[name] = errors[name] + group[0][0] * (stack - stack.mean(0)).square().sum(0)
    return {name: error.sqrt() for name, error in errors.items()}
