"""Where the predictive variance comes from: its components, as shares of the whole, with their standard errors.

The components are those of components.py. Estimates without bias can fall below zero; a share cannot. Shares take
negative components as zero and divide by the sum of the others.

Of classes, all doubt is the entropy of the mean answer. What answers have by themselves, on average, is overlap; the
rest is the mutual information, which is split as its second-order form is, a variance again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from wherefrom.predictive.background import OUTSIDE, Added
from wherefrom.predictive.components import ENTROPY, OVERLAP, UNEXPLAINED, Answers, Components, jackknife
from wherefrom.predictive.mixture import Mixture
from wherefrom.table import Table


@dataclass(frozen=True)
class Overall:
    """One source over all rows: its variance in y's units squared, its share, and their standard errors.

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
    """Shares of the variance by source, row by row: `sources["t"]` has y's shape, and all of them add up to 1.

    `overall["t"]` speaks of all rows together; `variance` and `standard_error` hold the unbiased components themselves,
    in y's units squared, before anything is taken as zero. Names of interactions are joined by " x ". Of classes, it is
    the variance of their probabilities that is split, added up, and a row has one number; or doubt in nats, which is
    then what `variance` holds.
    """

    def __init__(
        self,
        variance: Components,
        standard_error: Components,
        shares: Components,
        overall: list[dict[str, Overall]],
        unit: str = "variance",
    ) -> None:
        self.variance, self.standard_error = variance, standard_error
        self._shares, self._overall, self._unit = shares, overall, unit

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
        return Table(("source", "share", "± share", self._unit, f"± {self._unit}"), rows)

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
    unit: str = "variance",
    added: Added | None = None,
) -> Sources:
    """Split a mixture's variance by the variables that were marginalised.

    `scale`, (outputs,), takes the answers to y's units; `is_flat` drops the dimension of a single output. With
    `together`, (rows, outputs), the outputs' variances are added up by these weights, and are one. With the
    `entropies` of all answers, (members, samples, rows, 1), it is the entropy of their mean that is split, and those
    variances say how. What a background has `added` is a source by itself, and the others are lowered by its factor.
    """
    data = Answers.of(mixture, entropies)
    ones = torch.ones(1 if together is not None else mixture.outputs, dtype=torch.float64)
    spread = ones if scale is None else scale.square()

    def split(answers: Answers) -> Components:
        parts = answers.components()
        if together is not None:
            parts = {name: (part * together).sum(-1, keepdim=True) for name, part in parts.items()}
        parts |= answers.doubt()
        if added is None:
            return parts
        return {name: added.kept * part for name, part in parts.items()} | {OUTSIDE: added.amount}

    def over_rows(parts: Components) -> Components:
        return {name: part.mean(-2, keepdim=True) for name, part in parts.items()}

    each, replicates = split(data), data.replicated(split)

    def told(said: Callable[[Components], Components]) -> tuple[Components, Components]:
        """Return a statistic, and its standard error."""
        found = said(each)
        squares = jackknife({axes: said(parts) for axes, parts in replicates.items()})
        return found, {
            name: squares[name].sqrt() if squares else torch.zeros_like(part) for name, part in found.items()
        }

    rows, row_error = told(_of_the_whole)
    overall, variance_error = told(lambda parts: _of_the_whole(over_rows(parts)))
    overall_shares, share_error = told(lambda parts: _shares(_of_the_whole(over_rows(parts))))
    model_shares, model_share_error = told(lambda parts: _shares(_of_the_model(_of_the_whole(over_rows(parts)))))
    shares = _shares(rows)
    unknown = data.unknowable_errors(overall, replicates)
    for name in unknown:
        variance_error[name] = torch.full_like(overall[name], math.nan)
        row_error[name] = torch.full_like(rows[name], math.nan)
    if unknown:  # every share is one of a whole that they are parts of
        share_error = {name: torch.full_like(part, math.nan) for name, part in overall.items()}
        model_share_error = {name: torch.full_like(part, math.nan) for name, part in model_shares.items()}

    def shaped(parts: Components, unit: Tensor | float) -> Components:
        return {name: (part * unit).squeeze(-1) if is_flat else part * unit for name, part in parts.items()}

    by_output = [
        {
            name: Overall(
                float(overall[name][0, j] * spread[j]),
                float(variance_error[name][0, j] * spread[j]),
                float(overall_shares[name][0, j]),
                float(share_error[name][0, j]),
                *(float(part[name][0, j]) if name in part else math.nan for part in (model_shares, model_share_error)),
            )
            for name in overall
        }
        for j in range(len(spread))
    ]
    return Sources(shaped(rows, spread), shaped(row_error, spread), shaped(shares, 1.0), by_output, unit)


def _of_the_whole(parts: Components) -> Components:
    """Scale components of an entropy so that they are the mutual information; what is left is the overlap.

    Negative ones count as zero in that, and stay to be seen. Where nothing varies, all of it is overlap.
    """
    if ENTROPY not in parts:
        return parts
    varied = {name: part for name, part in parts.items() if name not in (ENTROPY, OVERLAP, OUTSIDE)}
    entropy = parts[ENTROPY]
    found = sum((part.clamp_min(0) for part in varied.values()), start=torch.zeros_like(entropy))
    apart = torch.where(found > 0, (entropy - parts[OVERLAP]).clamp_min(0), 0.0)
    times = apart / found.clamp_min(torch.finfo(torch.float64).tiny)
    beside = {OUTSIDE: parts[OUTSIDE]} if OUTSIDE in parts else {}
    return {name: part * times for name, part in varied.items()} | {OVERLAP: entropy - apart} | beside


def _of_the_model(parts: Components) -> Components:
    return {name: part for name, part in parts.items() if name not in UNEXPLAINED}


def _shares(parts: Components) -> Components:
    """Negative components count as zero; where there is nothing at all, every share is zero, or all is overlap."""
    positive = {name: part.clamp_min(0) for name, part in parts.items()}
    whole = torch.stack(list(positive.values())).sum(0) if positive else torch.ones(1, 1)
    return {name: torch.where(whole > 0, part / whole, float(name == OVERLAP)) for name, part in positive.items()}
