"""Whether trajectories had settled when their laws began: the law's mean against the last iterate, on other rows.

A trajectory that wanders around a solution is better summarised by its mean than by its last iterate. One that is still
on its way there has its mean behind it: the law is then centred on networks that have learnt less.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherefrom.laws import Law, delta
from wherefrom.posterior.groups import Group, assembled, groups, inputs, refreshing
from wherefrom.posterior.held_out import not_trained_on
from wherefrom.posterior.members_of import of_draw
from wherefrom.predictive import monte_carlo
from wherefrom.training.data import Rows

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

_MOST_ROWS = 2000  # evenly spaced, which tell enough
_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class Settled:
    """The training loss of every member on rows that it was not trained on, at two points of its trajectory."""

    last: Tensor  # (members,), at the last iterate
    mean: Tensor  # (members,), at the mean of its law
    error: float  # of the mean difference, over rows
    rows: int

    @property
    def excess(self) -> float:
        """The loss by which the mean is worse than the last iterate, on average over members."""
        return float((self.mean - self.last).mean())

    @property
    def is_settled(self) -> bool:
        """True unless the mean is clearly worse."""
        return not self.excess > _STANDARD_ERRORS * self.error

    @property
    def by_member(self) -> list[tuple[float, float]]:
        """The loss of each member at the last iterate and at the mean."""
        return list(zip(self.last.tolist(), self.mean.tolist(), strict=True))

    def __str__(self) -> str:
        return (
            f"the mean of the trajectory is worse than its last iterate on {self.rows:,} rows that were not trained on "
            f"(loss {float(self.mean.mean()):.4g} against {float(self.last.mean()):.4g}, worse by {self.excess:.2g} ± "
            f"{self.error:.1g}): the networks were still improving while iterations were collected"
        )


def on_held_out(posterior: Posterior, data: Any) -> Settled | None:
    """Compare them on the given or held-out rows, and warn if the mean is worse; None where there are no such rows."""
    if data is None and posterior.held_out is None:
        return None
    settled = compared(posterior, not_trained_on(posterior, data, "members((x, y))"))
    if settled is not None and not settled.is_settled:
        warnings.warn(f"{settled}. Start later, as wf.Iterations(..., start=0.75), or train longer", stacklevel=3)
    return settled


def compared(posterior: Posterior, rows: Rows) -> Settled | None:
    """Compare the two points of every member on these rows; None where no trajectory left a law."""
    if posterior.design.iterations is None or all(not law.is_random for law in posterior.laws()):
        return None
    if rows.left_out_by is not None:
        return _by_draw(posterior, rows)
    chosen = torch.arange(0, len(rows), -(-len(rows) // _MOST_ROWS))
    x, y = inputs(posterior, rows.x[chosen]), posterior.scaler.y(rows.y[chosen], posterior.dtype)
    means = [law.mean for law in posterior.laws()]
    iterates = [member.trained.last for member in posterior.mixture]
    at_mean = _losses(posterior, means, x, y, is_iterate=False)
    at_last = _losses(posterior, iterates, x, y, is_iterate=True)
    apart = (at_mean - at_last).mean(0)  # (rows,)
    error = float(apart.std()) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
    return Settled(at_last.mean(1), at_mean.mean(1), error, len(apart))


def _by_draw(posterior: Posterior, rows: Rows) -> Settled | None:
    """Compare the members of each draw of D on the rows that it left out."""
    assert rows.left_out_by is not None
    last, mean = torch.empty(len(posterior)), torch.empty(len(posterior))
    errors, counts = [], []
    for draw in rows.left_out_by.unique().tolist():
        unseen = replace(rows.take(rows.left_out_by == draw), left_out_by=None)
        if (one := compared(of_draw(posterior, draw), unseen)) is None:
            return None
        numbers = [number for number, member in enumerate(posterior.mixture) if member.run.slots["D"] == draw]
        last[numbers], mean[numbers] = one.last.to(last), one.mean.to(mean)
        errors.append(one.error * one.rows)
        counts.append(one.rows)
    return Settled(last, mean, math.hypot(*errors) / sum(counts), sum(counts))


def _losses(posterior: Posterior, thetas: list[Tensor], x: Tensor, y: Tensor, is_iterate: bool) -> Tensor:
    """The loss of each member's network at one theta, row by row.  # (members, rows)"""

    def law(number: int, group: Group) -> Law:
        return delta(thetas[number][: group.network.layout.varying_size])

    plan = monte_carlo.Plan.of(1, vary_theta=False, vary_mask=False)
    outputs = {}
    for group in groups(posterior):
        points = zip(group.numbers, group.thetas, strict=True)
        fixed = [
            replace(theta, law=law(number, group), mean_of=None if is_iterate else theta.law)
            for number, theta in points
        ]
        refresh = None if is_iterate else refreshing(posterior, group)  # an iterate has its own statistics
        outputs[group] = monte_carlo.outputs(group.network, fixed, plan, group.seen(x), posterior.seed, refresh)
    answers = assembled(outputs)[:, 0].double()  # (members, rows, outputs)
    loss = posterior.training.likelihood.loss_for(posterior.scaler)
    return loss(answers.unsqueeze(-2), y.double().unsqueeze(-2))
