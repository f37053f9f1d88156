"""Where the predictive variance comes from: its components, as shares of the whole, with standard errors and intervals.

The components are those of components.py, and how far off they may be is said by mean_squares.py. Estimates without
bias can fall below zero; a share cannot. Shares take negative components as zero and divide by the sum of the others.

Of classes, all doubt is the entropy of the mean answer. What answers have by themselves, on average, is overlap; the
rest is the mutual information, which is split as its second-order form is, a variance again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from wherefrom import plots
from wherefrom.predictive.background import OUTSIDE, Added
from wherefrom.predictive.components import (
    ENTROPY,
    NOISE,
    OVERLAP,
    SAMPLE_GROUPS,
    UNEXPLAINED,
    Answers,
    Components,
    jackknife,
)
from wherefrom.predictive.few_members import variance_of_mean
from wherefrom.predictive.mean_squares import Chances, MeanSquares, Subset, error_of_mean, interval_of, names_of
from wherefrom.predictive.mixture import Mixture
from wherefrom.showing import Library, card, frame_of
from wherefrom.table import Table

Of = Literal["share", "model_share", "variance"]
_ONE_SIGMA = math.erf(math.sqrt(0.5))
_DRAWS, _DRAWS_OF_ROWS = 4000, 1000  # of mean squares, for an interval
_ROWS_AT_ONCE = 512
_ROUNDING = 1e-13  # of a mean over many members and samples, relative to it


@dataclass(frozen=True)
class Overall:
    """One source over all rows: its variance in y's units squared with its standard error, and its share.

    The error of a share is half the width of its 68% interval.

    `model_share` is its share among the model's own sources: all but the noise (of classes, but the overlap), which has
    none. These add up to 1 by themselves.
    """

    variance: float
    variance_error: float
    share: float
    share_error: float
    model_share: float = math.nan
    model_share_error: float = math.nan


class Sources(Mapping[str, Tensor]):
    """Shares of the variance by source, for each row: `sources["t"]` has y's shape, and all shares add up to 1.

    `overall["t"]` is about all rows together; `variance` and `standard_error` hold the unbiased components themselves,
    in y's units squared, before anything is taken as zero. `unit` says what they are parts of: "variance" is that of y;
    others are on another scale, such as "variance of log y" or "entropy in nats". `interval` and `row_interval` give
    confidence intervals.
    Names of interactions are joined by " x ". For classes, the variance of their probabilities is split, added up, so
    that a row has one number; or the doubt in nats, which `variance` then holds.
    """

    def __init__(
        self,
        by_row: _Estimate,
        over_rows: _Estimate,
        scale: Tensor,
        is_flat: bool = True,
        unit: str = "variance",
        with_overlap: bool = True,
    ) -> None:
        self._by_row, self._over_rows, self._scale, self._is_flat = by_row, over_rows, scale, is_flat
        self.unit, self._left_out = unit, () if with_overlap else (OVERLAP,)
        rows = self._shown(by_row.values)
        self.variance = self._shaped(rows, scale)
        self.standard_error = self._shaped(self._shown(by_row.standard_errors), scale)
        self._shares = self._shaped(_shares(rows), torch.ones_like(scale))
        self._overall = self._over_all_rows()

    def _shown(self, parts: Components) -> Components:
        return {name: part for name, part in parts.items() if name not in self._left_out}

    def _shaped(self, parts: Components, unit: Tensor) -> Components:
        return {name: (part * unit).squeeze(-1) if self._is_flat else part * unit for name, part in parts.items()}

    def _over_all_rows(self) -> list[dict[str, Overall]]:
        values = self._shown(self._over_rows.values)
        errors = self._over_rows.standard_errors
        both = [_shares(values), _shares(_of_the_model(values))]
        share_errors = []
        names: tuple[Of, Of] = ("share", "model_share")
        for of, shares in zip(names, both, strict=True):
            if any(name in values for name in self._over_rows.unknown):  # each is a share of a whole with these in it
                share_errors.append({name: torch.full_like(part, math.nan) for name, part in shares.items()})
            else:
                ends = self._interval(self._over_rows, _ONE_SIGMA, of, _DRAWS)
                share_errors.append({name: (high - low) / 2 for name, (low, high) in ends.items()})

        def of_output(name: str, j: int) -> Overall:
            unit = float(self._scale[j])
            shares = [
                float(part[name][0, j]) if name in part else math.nan
                for pair in zip(both, share_errors, strict=True)
                for part in pair
            ]
            return Overall(float(values[name][0, j]) * unit, float(errors[name][0, j]) * unit, *shares)

        return [{name: of_output(name, j) for name in values} for j in range(len(self._scale))]

    def _interval(self, estimate: _Estimate, level: float, of: Of, draws: int) -> dict[str, tuple[Tensor, Tensor]]:
        drawn = self._shown(estimate.redrawn(Chances(draws)))
        if of == "variance":
            drawn = {name: part.clamp_min(0) * self._scale for name, part in drawn.items()}
        else:
            drawn = _redrawn_shares(drawn if of == "share" else _of_the_model(drawn))
        return {name: interval_of(part, level) for name, part in drawn.items()}

    def interval(self, level: float = 0.95, of: Of = "share", output: int = 0) -> dict[str, tuple[float, float]]:
        """Confidence intervals over all rows, by source: (low, high).

        level: how often the interval holds the truth, over repetitions of all draws (default: 0.95).
        of: "share", "model_share" (among the model's own sources) or "variance" (in y's units squared, or nats).
        output: which one, if there are several.

        They take the draws' effects as Gaussian, and hold for two draws on; docs/sources.md has measured coverages.
        """
        ends = self._interval(self._over_rows, _checked(level, of), of, _DRAWS)
        return {name: (float(low[0, output]), float(high[0, output])) for name, (low, high) in ends.items()}

    def row_interval(self, level: float = 0.95, of: Of = "share") -> dict[str, tuple[Tensor, Tensor]]:
        """Confidence intervals row by row, by source: (low, high), each of y's shape.

        level, of: as for `interval`.
        """
        _checked(level, of)
        rows = max((len(part) for part in self._by_row.parts.values()), default=0)
        some = [slice(start, start + _ROWS_AT_ONCE) for start in range(0, rows, _ROWS_AT_ONCE)]
        each = [self._interval(self._by_row.of_rows(one), level, of, _DRAWS_OF_ROWS) for one in some]

        def joined(name: str, side: int) -> Tensor:
            ends = torch.cat([part[name][side] for part in each])
            return ends.squeeze(-1) if self._is_flat else ends

        return {name: (joined(name, 0), joined(name, 1)) for name in (each[0] if each else {})}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._shares:
            raise KeyError(f"there is no source {name!r}; there are {', '.join(self._shares) or 'none'}")
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
            raise ValueError(f"there are {len(self._overall)} outputs, each in its own unit: use overall_of(output)")
        return self._overall[0]

    def overall_of(self, output: int) -> dict[str, Overall]:
        """All rows together, for one of several outputs.

        output: number of the output, from 0.
        """
        return self._overall[output]

    def table(self, output: int = 0, level: float | None = None) -> Table:
        """All rows together, as a table.

        output: which one, if there are several (default: the first).
        level: show confidence intervals of this level instead of ± (default: ±).
        """
        if level is not None:
            by_share, by_variance = self.interval(level, "share", output), self.interval(level, "variance", output)
            bounds = [
                (name, part.share, *by_share[name], part.variance, *by_variance[name])
                for name, part in self._overall[output].items()
            ]
            return Table(("source", "share", "from", "to", self.unit, f"{self.unit} from", "to"), bounds)
        rows = [
            (name, part.share, part.share_error, part.variance, part.variance_error)
            for name, part in self._overall[output].items()
        ]
        return Table(("source", "share", "± share", self.unit, f"± {self.unit}"), rows)

    def columns(self) -> dict[str, Any]:
        """Each row's shares by the name of the source; of several outputs, with the number of the output behind it."""
        columns: dict[str, Any] = {}
        for name, share in self._shares.items():
            many = [name] if share.ndim == 1 else [f"{name}_{output}" for output in range(share.shape[1])]
            columns |= dict(zip(many, share.reshape(len(share), -1).T.numpy(), strict=True))
        return columns

    def to_frame(self, library: Library | None = None) -> Any:
        """Return each row's shares as a frame, a column for each source.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        return frame_of(self.columns(), library)

    def plot(self, by: Literal["row", "source"] = "row", *, output: int = 0, ax: Any = None) -> Any:
        """Draw where the doubt comes from with matplotlib, and return the axes.

        by: "row", what each row's doubt is made of, rows in order of their doubt; or "source", the shares over all rows
            with their standard errors (default: "row").
        output: which one, if there are several (default: the first).
        ax: matplotlib's axes to draw on (default: a new figure).
        """
        if by == "source":
            overall = self.overall_of(output)
            shares = {name: part.share for name, part in overall.items()}
            return plots.bars(
                shares, {name: part.share_error for name, part in overall.items()}, "share of all doubt", ax
            )
        if by != "row":
            raise ValueError(f'by must be "row" or "source", not {by!r}')
        parts = {name: part if part.ndim == 1 else part[:, output] for name, part in self.variance.items()}
        return plots.stacked(parts, f"{self.unit} by source", ax)

    def _repr_html_(self) -> str:
        if not self._shares:
            return card(str(self))
        tables = []
        for output, overall in enumerate(self._overall):
            label = f"<div>output {output}</div>" * (len(self._overall) > 1)
            tables.append(label + self.table(output).html([part.share for part in overall.values()]))
        return card("Where the doubt comes from", *tables)

    def __str__(self) -> str:
        if not self._shares:
            return "nothing is random here: no variable is marginalised, and the likelihood has no noise"
        if len(self._overall) == 1:
            return str(self.table())
        count = len(self._overall)
        return "\n\n".join(f"output {j} of {count}\n{self.table(j)}" for j in range(count))

    __repr__ = __str__


def sources(
    mixture: Mixture,
    scale: Tensor | None = None,
    is_flat: bool = True,
    *,
    together: Tensor | None = None,
    entropies: Tensor | None = None,
    with_overlap: bool = True,
    is_plug_in: bool = False,
    unit: str = "variance",
    added: Added | None = None,
) -> Sources:
    """Split a mixture's variance by the variables that were marginalised.

    scale: takes the answers to y's units, (outputs,); default: 1.
    is_flat: drop the dimension of a single output.
    together: weights, (rows, outputs), by which the outputs' variances are added up, and are one; default: kept apart.
    entropies: of all answers, (members, samples, rows, 1): split the entropy of their mean, in proportion to variances.
    with_overlap: give the answers' own entropy a line; without it, the mutual information alone is split.
    is_plug_in: take the entropy of the mean of these answers, as the paper does, and not of all that could be drawn.
    unit: what `variance` is called.
    added: a background, which is a source by itself; the others are lowered by its factor.
    """
    data = Answers.of(mixture, entropies)
    ones = torch.ones(1 if together is not None else mixture.outputs, dtype=torch.float64)
    spread = ones if scale is None else scale.square()
    missing = None if entropies is None or is_plug_in else missing_entropy(mixture)
    by_row = _estimated(data, together, added, missing, over_rows=False)
    overall = _estimated(data, together, added, missing, over_rows=True)
    return Sources(by_row, overall, spread, is_flat, unit, with_overlap)


# ---------------------------------------------------------------------- estimates, and how far they may be off


@dataclass(frozen=True, eq=False)
class _Estimate:
    """Components, row by row or over all rows, with what is needed to say how far off they may be."""

    parts: Components  # (rows, outputs); of classes also the entropy, and overlap
    places: Mapping[str, Subset]  # the axes of the components between members
    squares: MeanSquares | None  # None where nothing between members was drawn at random
    errors: Components  # standard errors of the others
    carried: Mapping[str, Mapping[str, float]]  # component -> how much of the variances within it was relieved of
    degrees: float  # of freedom of these standard errors
    unknown: tuple[str, ...]  # components of too few draws to tell a standard error

    def of_rows(self, rows: slice) -> _Estimate:
        def some(parts: Components) -> Components:
            return {name: part[rows] if len(part) > 1 else part for name, part in parts.items()}

        squares = self.squares
        if squares is not None:
            squares = replace(squares, squares={key: value[rows] for key, value in squares.squares.items()})
        return replace(self, parts=some(self.parts), squares=squares, errors=some(self.errors))

    @property
    def values(self) -> Components:
        """The components; of classes, in nats."""
        return _of_the_whole(self.parts)

    @property
    def standard_errors(self) -> Components:
        """Standard errors of `values`, row by row; not a number where they cannot be told."""
        times, errors = _nats_by_variance(self.parts), {}
        for name, part in self.values.items():
            square = self.errors.get(name, torch.zeros_like(part)).square()
            if self.squares is not None and name in self.places:
                square = self.squares.variance_of(self.places[name], self.parts[name])
                for within, factor in self.carried.get(name, {}).items():
                    square = square + (factor * self.errors[within]).square()
            factor_of_unit = 1.0 if name in (OVERLAP, OUTSIDE) else times
            error = square.sqrt() * factor_of_unit
            errors[name] = torch.full_like(part, math.nan) if name in self.unknown else error.expand_as(part)
        return errors

    def redrawn(self, chances: Chances) -> Components:
        """`values` as they might as well have been.  # (draws, rows, outputs)"""
        drawn: Components = {}
        for name, part in self.parts.items():
            if name in self.errors:
                student = chances.student(name, self.degrees)
                drawn[name] = (part + self.errors[name] * student).clamp_min(0)
            elif name in self.places and self.squares is not None:
                drawn[name] = self.squares.redrawn(self.places[name], part, chances)
            elif name != ENTROPY:
                drawn[name] = part.expand(chances.count, *part.shape)
        for name, carried in self.carried.items():
            for within, factor in carried.items():
                drawn[name] = drawn[name] - factor * (drawn[within] - self.parts[within])
        times = _nats_by_variance(self.parts)
        return {name: part if name in (OVERLAP, OUTSIDE) else part * times for name, part in drawn.items()}


def _estimated(
    data: Answers, together: Tensor | None, added: Added | None, missing: Tensor | None, over_rows: bool
) -> _Estimate:
    kept = None if added is None else added.kept

    def gathered(values: Tensor) -> Tensor:
        """Add up what is linear in the answers' variances, by output.  # (..., rows, outputs)"""
        values = values if together is None else (values * together).sum(-1, keepdim=True)
        return lowered(values)

    def lowered(values: Tensor) -> Tensor:
        values = values if kept is None else values * kept
        return values.mean(-2, keepdim=True) if over_rows else values

    def split(answers: Answers) -> Components:
        parts = {name: gathered(part) for name, part in answers.components().items()}
        parts |= {name: lowered(part) for name, part in answers.doubt(missing).items()}
        if added is not None:
            parts[OUTSIDE] = added.amount.mean(-2, keepdim=True) if over_rows else added.amount
        return parts

    parts, random = split(data), [i for i, axis in enumerate(data.axes) if not axis.is_finite]
    few = any(data.axes[i].draws < 3 for i in random)
    if not random:
        replicates = data.replicated(split)
        variances = jackknife(replicates)
        errors = {name: each.sqrt() for name, each in variances.items() if name not in (ENTROPY, OUTSIDE)}
        unknown = tuple(name for name in parts if name != NOISE) if not replicates and data.carried else ()
        return _Estimate(parts, {}, None, _beyond_rounding(errors, parts), {}, SAMPLE_GROUPS - 1, unknown)

    weights = together if kept is None else kept if together is None else together * kept
    squares = MeanSquares.of(data.means, data.axes, weights, together is not None, over_rows)
    members = math.prod(axis.draws for axis in data.axes)
    means = {name: gathered(part) for name, part in data.within.items()}
    means |= {} if data.noise is None else {NOISE: gathered(data.noise)}
    means |= {} if data.entropies is None else {OVERLAP: lowered(data.entropies)}
    errors = {name: error_of_mean(each, data.axes) for name, each in means.items()}
    if data.groups > 1 and not over_rows:  # that their number alone brings about
        for name in data.within:
            least = parts[name].clamp_min(0) * math.sqrt(2 / (members * (data.groups - 1)))
            errors[name] = torch.maximum(errors[name], least)
    places = names_of(data.axes)
    unknown = tuple(name for name in parts if few and name != NOISE)
    degrees = math.prod(data.axes[i].draws for i in random) - 1
    return _Estimate(parts, places, squares, _beyond_rounding(errors, parts), _carried(data), degrees, unknown)


def _beyond_rounding(errors: Components, parts: Components) -> Components:
    """Return the errors, and zero for those that are rounding alone: of a noise that is the same for all members."""
    return {name: torch.where(error <= _ROUNDING * parts[name].abs(), 0.0, error) for name, error in errors.items()}


def _carried(data: Answers) -> dict[str, dict[str, float]]:
    """Factors of the variances within members that the components between them were relieved of."""
    factors = {}
    random = {i for i, axis in enumerate(data.axes) if not axis.is_finite and not axis.shares_samples}
    for name, places in names_of(data.axes).items():
        if {i for i in places if not data.axes[i].is_finite} != random:
            continue
        share = 1.0
        for i, axis in enumerate(data.axes):
            if axis.is_finite:
                share *= 1 - axis.coincidence if i in places else axis.coincidence
        factors[name] = {within: share * factor for within, factor in data.carried.items()}
    return factors


def missing_entropy(mixture: Mixture) -> Tensor:
    """Entropy that the mean of all answers that could be drawn has beyond that of those at hand.  # (rows, 1)

    To second order: sum over classes of Var(mean p) / (2 mean p).
    """
    mean = mixture.mean.clamp_min(torch.finfo(torch.float64).tiny)
    return (variance_of_mean(mixture) / (2 * mean)).sum(-1, keepdim=True)


def _nats_by_variance(parts: Components) -> Tensor:
    """The factor that takes components of a variance to those of an entropy; 1 where it is the variance that is split.

    Negative ones count as zero in their sum, which is to be the mutual information.
    """
    if ENTROPY not in parts:
        return torch.ones((), dtype=torch.float64)
    entropy = parts[ENTROPY]
    varied = (part.clamp_min(0) for name, part in parts.items() if name not in (ENTROPY, OVERLAP, OUTSIDE))
    total = sum(varied, start=torch.zeros_like(entropy))
    apart = (entropy - parts[OVERLAP]).clamp_min(0)
    return torch.where(total > 0, apart / total.clamp_min(torch.finfo(torch.float64).tiny), 0.0)


def _of_the_whole(parts: Components) -> Components:
    """Scale components of an entropy so that they are the mutual information; what is left is the overlap.

    Where nothing varies, all of it is overlap.
    """
    if ENTROPY not in parts:
        return parts
    times = _nats_by_variance(parts)
    varied = {name: part * times for name, part in parts.items() if name not in (ENTROPY, OVERLAP, OUTSIDE)}
    apart = sum((part.clamp_min(0) for part in varied.values()), start=torch.zeros_like(parts[ENTROPY]))
    beside = {OUTSIDE: parts[OUTSIDE]} if OUTSIDE in parts else {}
    return varied | {OVERLAP: parts[ENTROPY] - apart} | beside


def _of_the_model(parts: Components) -> Components:
    return {name: part for name, part in parts.items() if name not in UNEXPLAINED}


def _shares(parts: Components) -> Components:
    """Negative components count as zero; where there is nothing at all, every share is zero, or all is overlap."""
    positive = {name: part.clamp_min(0) for name, part in parts.items()}
    whole = torch.stack(list(positive.values())).sum(0) if positive else torch.ones(1, 1)
    return {name: torch.where(whole > 0, part / whole, float(name == OVERLAP)) for name, part in positive.items()}


def _redrawn_shares(parts: Components) -> Components:
    """Shares of a whole that negative components lower: were they taken as zero, it would be too large on average."""
    if not parts:
        return {}
    whole = torch.stack(list(parts.values())).sum(0)
    shares = {}
    for name, part in parts.items():
        positive = part.clamp_min(0)
        largest = torch.maximum(whole, positive)
        shares[name] = torch.where(largest > 0, positive / largest, float(name == OVERLAP))
    return shares


def _checked(level: float, of: str) -> float:
    if of not in get_args(Of):
        raise ValueError(f"intervals are of {', '.join(map(repr, get_args(Of)))}, not of {of!r}")
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, such as 0.95; {level} does not")
    return level
