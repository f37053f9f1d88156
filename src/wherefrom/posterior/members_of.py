"""Some of a posterior's members, under a design that has fewer axes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from wherefrom.variables import Design, Families, Run

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior


def of_draw(posterior: Posterior, draw: int) -> Posterior:
    """Take the members of one draw of D, with the noise and the calibration of all."""
    axis = posterior.design.axis("D")
    others = tuple(each for each in posterior.design.axes if each is not axis)
    return replace(
        some_of(posterior, {axis.name: {draw}}, replace(posterior.design, axes=others)), fitted=posterior.fitted
    )


def some_of(posterior: Posterior, draws: dict[str, set[int]], design: Design) -> Posterior:
    """Take the members with these draws, under a design that has fewer axes."""
    names = [axis.name for axis in design.axes]
    is_chosen = [
        all(member.run.labels[axis] in numbers for axis, numbers in draws.items()) for member in posterior.mixture
    ]
    chosen = tuple(
        replace(member, run=replace(member.run, labels={name: member.run.labels[name] for name in names}))
        for member in compress(posterior.mixture, is_chosen)
    )
    if not chosen:
        lost = posterior.origin.missing or "its members weigh nothing"
        raise ValueError(f"no member is left of that part; {lost}")
    origin = posterior.origin
    if len(chosen) == design.size:
        origin = replace(origin, diverged=(), damaged=())
    weights = posterior.origin.weights
    if weights is not None:
        kept = list(compress(weights, is_chosen))
        weights = tuple(weight / math.fsum(kept) for weight in kept)
    is_part = posterior.origin.is_part or bool(draws) or design.dropout != posterior.design.dropout
    origin = replace(origin, is_part=is_part, weights=weights)
    fitted = replace(posterior.fitted, noise=None)
    part = replace(posterior, design=design, mixture=chosen, origin=origin, fitted=fitted)
    if posterior.design.families and not design.families:
        part = _as_one_family(part, posterior.design.families)
    return part


def _as_one_family(part: Posterior, families: Families) -> Posterior:
    """Make the only family that is left the model itself."""
    (family,) = {member.family for member in part.mixture}

    def nameless(run: Run) -> Run:
        return replace(run, choices={name: value for name, value in run.choices.items() if name != "family"})

    return replace(
        part,
        training=replace(part.training, model=families.factories[family]),
        networks={"": part.networks[family]},
        mixture=tuple(replace(member, run=nameless(member.run)) for member in part.mixture),
    )
