"""What each member weighs in the mixture: what the design says, or what was set."""

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
    """Of every member, adding up to one: its own, or the product of what its draws weigh."""
    if posterior.own_weights is not None:
        return posterior.own_weights
    each = {axis.name: _of_draws(posterior, axis) for axis in posterior.design.axes if axis.weights is not None}
    found = [
        math.prod(weights[component.run.labels[name]] for name, weights in each.items())
        for component in posterior.mixture
    ]
    total = math.fsum(found)
    return tuple(weight / total for weight in found)


def is_weighted(posterior: Posterior) -> bool:
    return posterior.own_weights is not None or any(axis.weights is not None for axis in posterior.design.axes)


def explicit_weights(posterior: Posterior) -> Tensor | None:
    """Weights that the axes do not tell: those that were set, or what is left of theirs without some members."""
    is_needed = posterior.own_weights is not None or (is_weighted(posterior) and bool(posterior.diverged))
    return torch.tensor(weights(posterior), dtype=torch.float64) if is_needed else None


def crossed_axes(posterior: Posterior) -> tuple[CrossedAxis, ...]:
    """As predictions know them: with the weights of their draws, unless those of the members are explicit."""

    def crossed(axis: Axis) -> CrossedAxis:
        is_told = axis.weights is not None and explicit_weights(posterior) is None
        own = tuple(_of_draws(posterior, axis).values()) if is_told else None
        return CrossedAxis(axis.name, axis.draws, axis.is_finite, own)

    return tuple(map(crossed, posterior.design.axes))


def _of_draws(posterior: Posterior, axis: Axis) -> dict[int, float]:
    """The probability of each draw of an axis, among those that are there."""
    own = {number: 1.0 if axis.weights is None else axis.weights[number] for number in posterior.draws(axis.name)}
    total = math.fsum(own.values())
    return {number: weight / total for number, weight in own.items()}


def turns(posterior: Posterior, n: int) -> list[int]:
    """Whose turn each of n samples is: the member's that is furthest behind its weight."""
    if not is_weighted(posterior):
        return [k % len(posterior) for k in range(n)]
    own, given = np.array(weights(posterior)), np.zeros(len(posterior))
    found = []
    for k in range(n):
        found.append(int(np.argmax(own * (k + 1) - given)))
        given[found[-1]] += 1
    return found
