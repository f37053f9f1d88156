"""Where the predictive variance comes from: an estimate of variance components.

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
gone through it means any two. A member's mean over K samples carries their variance / K along; it is taken out.

Estimates without bias can fall below zero; a share cannot. Shares take negative components as zero and divide by the
sum of the others. Standard errors are jackknifed, draw by draw of every random variable, or over groups of samples
where no variable between members was drawn at random; with several such variables they err on the large side.

A one-shot prediction knows each member's mean and the variances within it, instead of samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wherefrom.table import Table

if TYPE_CHECKING:
    from wherefrom.predictive.prediction import Prediction

_SAMPLE_GROUPS = 10
Components = dict[str, Tensor]  # name -> (rows, outputs)
Within = dict[str, Tensor]  # name -> (members, rows, outputs): known variances within members


@dataclass(frozen=True)
class CrossedAxis:
    """One crossed dimension of the members: its name, how many draws, and whether those are all there are."""

    name: str
    draws: int
    is_finite: bool


@dataclass(frozen=True)
class Overall:
    """One source over all rows: its variance in y's units squared, its share, and their standard errors."""

    variance: float
    variance_error: float
    share: float
    share_error: float


class Sources(Mapping[str, Tensor]):
    """Each source's share of the variance, row by row: `sources["t"]` has y's shape, and all of them add up to 1.

    `overall["t"]` speaks of all rows together; `variance` and `standard_error` hold the unbiased components themselves,
    in y's units squared, before anything is taken as zero. Names of interactions are joined by " x ".
    """

    def __init__(
        self,
        variance: Components,
        standard_error: Components,
        shares: Components,
        overall: list[dict[str, Overall]],
    ) -> None:
        self.variance, self.standard_error = variance, standard_error
        self._shares, self._overall = shares, overall

    def __getitem__(self, name: str) -> Tensor:
        return self._shares[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shares)

    def __len__(self) -> int:
        return len(self._shares)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._shares)

    @property
    def overall(self) -> dict[str, Overall]:
        """All rows together, for a single output."""
        if len(self._overall) > 1:
            raise ValueError(f"there are {len(self._overall)} outputs, in units of their own: use overall_of(output)")
        return self._overall[0]

    def overall_of(self, output: int) -> dict[str, Overall]:
        """All rows together, for one of several outputs."""
        return self._overall[output]

    def table(self, output: int = 0) -> Table:
        """All rows together, as a table."""
        rows = [
            (name, part.share, part.share_error, part.variance, part.variance_error)
            for name, part in self._overall[output].items()
        ]
        return Table(("source", "share", "± share", "variance", "± variance"), rows)

    def __str__(self) -> str:
        if not self._shares:
            return "nothing is random here: no variable is marginalised, and the likelihood has no noise"
        if len(self._overall) == 1:
            return str(self.table())
        count = len(self._overall)
        return "\n\n".join(f"output {j} of {count}\n{self.table(j)}" for j in range(count))

    __repr__ = __str__


def sources(prediction: Prediction) -> Sources:
    """Split a prediction's variance by the variables that were marginalised."""
    if prediction.missing:
        raise ValueError(f"the sources need every member of the crossed design, but {prediction.missing}")
    data = _Answers.of(prediction)
    rows = data.components()
    spread = prediction.scale.square()

    replicates = list(data.leave_one_out())
    row_error = _jackknife(rows, replicates)
    shares = _shares(rows)
    overall = {name: part.mean(0, keepdim=True) for name, part in rows.items()}
    overall_replicates = [
        (axis, weight, {name: part.mean(0, keepdim=True) for name, part in parts.items()})
        for axis, weight, parts in replicates
    ]
    variance_error = _jackknife(overall, overall_replicates)
    overall_shares = _shares(overall)
    share_error = _jackknife(overall_shares, [(a, w, _shares(p)) for a, w, p in overall_replicates])
    for name in data.unknowable_errors(overall, len(replicates)):
        variance_error[name], share_error[name] = (torch.full_like(overall[name], math.nan) for _ in range(2))
        row_error[name] = torch.full_like(rows[name], math.nan)

    def shaped(parts: Components, unit: Tensor | float) -> Components:
        return {name: (part * unit).squeeze(-1) if prediction.is_flat else part * unit for name, part in parts.items()}

    by_output = [
        {
            name: Overall(
                float(overall[name][0, j] * spread[j]),
                float(variance_error[name][0, j] * spread[j]),
                float(overall_shares[name][0, j]),
                float(share_error[name][0, j]),
            )
            for name in overall
        }
        for j in range(len(spread))
    ]
    return Sources(shaped(rows, spread), shaped(row_error, spread), shaped(shares, 1.0), by_output)


@dataclass(frozen=True, eq=False)
class _Answers:
    """Answers by the crossed axes of the members and, within each, by independent groups of samples."""

    values: Tensor  # (*members, groups, t, F, rows, outputs); t and F are 2 in blocks, else 1
    noise: Tensor | None  # (*members, rows, outputs)
    axes: tuple[CrossedAxis, ...]
    sampled: tuple[str, ...]  # "t", "F", both or none
    known: Components | None = None  # variances within members, (*members, rows, outputs), if they are not estimated

    @classmethod
    def of(cls, prediction: Prediction) -> _Answers:
        plan = prediction.plan
        shape = [axis.draws for axis in prediction.axes]
        block = (-1, 2, 2) if plan.in_blocks else (-1, 1, 1)
        values = prediction.answers.double().unflatten(1, block).unflatten(0, shape or [1])
        values = values if shape else values.squeeze(0)
        sampled = tuple(name for name, varied in (("t", plan.vary_theta), ("F", plan.vary_mask)) if varied)
        noise = None
        if prediction.noise is not None:
            noise = prediction.noise.double().expand_as(prediction.answers).mean(1).unflatten(0, shape or [1])
            noise = noise if shape else noise.squeeze(0)
        known = None
        if prediction.within is not None:
            known = {name: part.double().unflatten(0, shape or [1]) for name, part in prediction.within().items()}
            known = known if shape else {name: part.squeeze(0) for name, part in known.items()}
        return cls(values, noise, prediction.axes, sampled, known)

    @property
    def groups(self) -> int:
        return self.values.shape[len(self.axes)]

    def components(self) -> Components:
        """Every component, row by row."""
        members = len(self.axes)
        group_means = self.values.mean((members + 1, members + 2))  # (*members, groups, rows, outputs)
        within = self._within(group_means)
        # Of the mean of a block of four, two thetas crossed with two masks; of a single sample it is the variance.
        shares = {"t": 0.5, "F": 0.5, "t x F": 0.25} if len(self.sampled) == 2 else {}
        zero = torch.zeros((), dtype=torch.float64)
        carried = sum((shares.get(name, 1.0) * part for name, part in within.items()), start=zero) / self.groups
        if self.known is not None:
            carried = zero  # members' means are exact
        between = hoeffding(group_means.mean(members), self.axes, carried) if members else {}
        noise = {} if self.noise is None else {"noise": _mean_over(self.noise, members)}
        return between | within | noise

    def _within(self, group_means: Tensor) -> Components:
        """t, F and their interaction, the mean over members."""
        members = len(self.axes)
        if self.known is not None:
            return {name: _mean_over(part, members) for name, part in self.known.items()}
        if not self.sampled:
            return {}
        if len(self.sampled) == 1:
            if self.groups < 2:
                raise ValueError("one sample a member shows no variance: predict with more samples")
            variance = group_means.var(members, correction=1)
            return {self.sampled[0]: _mean_over(variance, members)}
        axes = (CrossedAxis("t", 2, False), CrossedAxis("F", 2, False))
        blocks = self.values.movedim((members + 1, members + 2), (0, 1))  # (2, 2, *members, groups, rows, outputs)
        split = hoeffding(blocks, axes, torch.zeros((), dtype=torch.float64))
        return {name: part.flatten(0, members).mean(0) for name, part in split.items()}

    def leave_one_out(self) -> Iterator[tuple[str, float, Components]]:
        """The components without each draw in turn: (what was left out of, its jackknife weight, components).

        Members carry their samples' noise with them, so samples are left out only where no member can be.
        """
        random = [(place, axis) for place, axis in enumerate(self.axes) if not axis.is_finite and axis.draws >= 3]
        for place, axis in random:
            smaller = CrossedAxis(axis.name, axis.draws - 1, False)
            axes = (*self.axes[:place], smaller, *self.axes[place + 1 :])
            for draw in range(axis.draws):
                kept = [d for d in range(axis.draws) if d != draw]
                index = torch.tensor(kept)
                values = self.values.index_select(place, index)
                noise = None if self.noise is None else self.noise.index_select(place, index)
                known = self.known and {name: part.index_select(place, index) for name, part in self.known.items()}
                without = _Answers(values, noise, axes, self.sampled, known)
                yield axis.name, (axis.draws - 1) / axis.draws, without.components()
        folds = min(_SAMPLE_GROUPS, self.groups)
        if random or not self.sampled or self.known is not None or self.groups - -(-self.groups // folds) < 2:
            return
        number = torch.arange(self.groups) * folds // self.groups
        for fold in range(folds):
            values = self.values.index_select(len(self.axes), torch.nonzero(number != fold).flatten())
            yield (
                "samples",
                (folds - 1) / folds,
                _Answers(values, self.noise, self.axes, self.sampled).components(),
            )

    def unknowable_errors(self, parts: Components, replicates: int) -> list[str]:
        """Two draws of a random variable, or too few samples, give a variance, but not how far off it may be."""
        few = any(not axis.is_finite and axis.draws < 3 for axis in self.axes)
        unknown = few or (not replicates and bool(self.sampled) and self.known is None)
        return [name for name in parts if unknown and name != "noise"]


def _mean_over(values: Tensor, leading: int) -> Tensor:
    """The mean over so many leading dimensions."""
    return values.mean(tuple(range(leading))) if leading else values


def hoeffding(values: Tensor, axes: tuple[CrossedAxis, ...], sampling_variance: Tensor) -> Components:
    """Unbiased variance components of a crossed array, whose leading dimensions are the axes.

    `sampling_variance` is the mean variance that each cell carries from being an average of samples.
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
    means = values.mean(averaged) if averaged else values
    square = means.square()
    square = square.mean(tuple(range(len(kept)))) if kept else square
    return square - sampling_variance / math.prod(axes[i].draws for i in averaged)


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


def _shares(parts: Components) -> Components:
    """Negative components count as zero; where nothing varies at all, every share is zero."""
    positive = {name: part.clamp_min(0) for name, part in parts.items()}
    whole = torch.stack(list(positive.values())).sum(0) if positive else torch.ones(1, 1)
    return {name: torch.where(whole > 0, part / whole, 0.0) for name, part in positive.items()}


def _jackknife(parts: Components, replicates: list[tuple[str, float, Components]]) -> Components:
    """Standard errors: the jackknife variances of all the things that could have been drawn otherwise, added up."""
    errors = {name: torch.zeros_like(part) for name, part in parts.items()}
    for what in dict.fromkeys(axis for axis, _, _ in replicates):
        group = [(weight, p) for axis, weight, p in replicates if axis == what]
        for name in parts:
            stack = torch.stack([p[name] for _, p in group])
            errors[name] = errors[name] + group[0][0] * (stack - stack.mean(0)).square().sum(0)
    return {name: error.sqrt() for name, error in errors.items()}
