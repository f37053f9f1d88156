"""The members' weights in the mixture: as the design says, or as they were set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from wherefrom.predictive.components import CrossedAxis
from wherefrom.variables import Axis

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior


def weights(posterior: Posterior) -> tuple[float, ...]:
    """Return every member's weight, adding up to one: as set, or the product of its draws' weights."""
    if posterior.origin.weights is not None:
        return posterior.origin.weights
    each = {axis.name: _of_draws(posterior, axis) for axis in posterior.design.axes if axis.weights is not None}
    products = [
        math.prod(weights[member.run.labels[name]] for name, weights in each.items()) for member in posterior.mixture
    ]
    total = math.fsum(products)
    return tuple(weight / total for weight in products)


def is_weighted(posterior: Posterior) -> bool:
    return posterior.origin.weights is not None or any(axis.weights is not None for axis in posterior.design.axes)


def missing(posterior: Posterior) -> str | None:
    """Return which members are missing, and why; None if those that are left are a crossed design of their draws.

    Of a variable with one draw left, no variance can be known: it must not be taken for none.
    """
    counts = [len(posterior.draws(axis.name)) for axis in posterior.design.axes]
    is_crossed = len(posterior) == math.prod(counts) and min(counts, default=2) > 1
    return None if is_crossed else posterior.origin.missing


def explicit_weights(posterior: Posterior) -> Tensor | None:
    """Return weights that the axes do not have: those that were set, or what is left of theirs without some members."""
    is_needed = posterior.origin.weights is not None or (is_weighted(posterior) and bool(missing(posterior)))
    return torch.tensor(weights(posterior), dtype=torch.float64) if is_needed else None


def crossed_axes(posterior: Posterior) -> tuple[CrossedAxis, ...]:
    """Return the design's axes with the weights of their draws, unless those of the members are explicit."""

    def crossed(axis: Axis) -> CrossedAxis:
        has_weights = axis.weights is not None and explicit_weights(posterior) is None
        of_draws = tuple(_of_draws(posterior, axis).values()) if has_weights else None
        draws = axis.draws if missing(posterior) else len(posterior.draws(axis.name))
        return CrossedAxis(axis.name, draws, axis.is_finite, of_draws)

    return tuple(map(crossed, posterior.design.axes))


def _of_draws(posterior: Posterior, axis: Axis) -> dict[int, float]:
    """The probability of each draw of an axis, among those that are there."""
    given = {number: 1.0 if axis.weights is None else axis.weights[number] for number in posterior.draws(axis.name)}
    total = math.fsum(given.values())
    return {number: weight / total for number, weight in given.items()}


def turns(posterior: Posterior, n: int) -> list[int]:
    """Return the member whose turn each of n samples is: the one that is furthest behind its weight."""
    if not is_weighted(posterior):
        return [k % len(posterior) for k in range(n)]
    shares, taken = np.array(weights(posterior)), np.zeros(len(posterior))
    members = []
    for k in range(n):
        members.append(int(np.argmax(shares * (k + 1) - taken)))
        taken[members[-1]] += 1
    return members
