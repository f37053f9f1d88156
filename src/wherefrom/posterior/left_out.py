"""Rows that some members did not see: where the draws of D are folds, each leaves a part of the rows out.

The members of draw k were not trained on part k. So every row is predicted by members that have not seen it, and the
answers to all rows together, (members of one draw, samples, rows, outputs), are those of one mixture: by them the noise
is fitted, the calibration, the weights, and the scores, and no row has to be held out of training for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wherefrom.posterior.members_of import of_draw
from wherefrom.predictive.components import Within
from wherefrom.predictive.mixture import Mixture
from wherefrom.training.data import Rows

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior


def rows_to_judge_by(posterior: Posterior) -> Rows | None:
    """Return rows that were not trained on: held out of all draws, or left out by one; None if none are at hand."""
    fold = posterior.fold
    rows = fold.held_out
    if rows is None and fold.parts is not None and fold.rows is not None:
        rows = replace(fold.rows, left_out_by=fold.parts)
    if rows is None or rows.left_out_by is None:
        return rows
    if not posterior.design.parts:  # a part, that stands at one draw of D
        return replace(rows.take(rows.left_out_by == posterior.mixture[0].run.slots["D"]), left_out_by=None)
    draws = torch.tensor(posterior.draws("D"))
    return rows if len(draws) == int(rows.left_out_by.max()) + 1 else rows.take(torch.isin(rows.left_out_by, draws))


def judged_by(posterior: Posterior, some: Tensor) -> Posterior:
    """Let only some of the rows that were left out judge the members.  # numbers among all rows, ascending"""
    rows = posterior.held_out
    if rows is None or len(some) == len(rows):
        return posterior
    return replace(posterior, fold=replace(posterior.fold, held_out=rows.take(some)))


def outputs_left_out(
    posterior: Posterior, x: Tensor, left_out_by: Tensor, outputs: Callable[[Posterior, Tensor], Mixture]
) -> Mixture:
    """Return the outputs at every row of the members that did not see it; `outputs` gives those of a posterior at x."""
    some = {draw: torch.nonzero(left_out_by == draw).flatten() for draw in left_out_by.unique().tolist()}
    parts = [outputs(of_draw(posterior, draw), x[rows]) for draw, rows in some.items()]
    first = parts[0]
    for part in parts[1:]:
        if len(part.answers) != len(first.answers) or not _is_same(part.weights, first.weights):
            raise ValueError("rows are left out by draws of D that have other members: " + (part.missing or "weighted"))
    order = torch.cat(list(some.values())).argsort()

    def joined(values: list[Tensor]) -> Tensor:
        """Put what each draw has for its rows into the order of all.  # (members, samples, rows, outputs)"""
        return torch.cat(values, 2).index_select(2, order)

    def within() -> Within:
        each = [part.within() for part in parts if part.within is not None]
        return {name: torch.cat([one[name] for one in each], 1).index_select(1, order) for name in each[0]}

    return replace(
        first,
        answers=joined([part.answers for part in parts]),
        spread=None if first.spread is None else joined([part.spread for part in parts if part.spread is not None]),
        within=None if first.within is None else within,
    )


def _is_same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.allclose(one, other)
