"""Posteriors of several models of the same rows -> one posterior, in which F is which of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wherefrom.posterior.fitting import Fitted, fitted_anew
from wherefrom.posterior.member import Member
from wherefrom.variables import Axis, Families

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior


def joined(parts: Mapping[str, Posterior], weights: Sequence[float]) -> Posterior:
    """Make each posterior a family of one posterior; noise is fitted anew, and nothing is calibrated.

    parts: by the family's name. The first one has every variable that another has. Where a family has no draws of a
        variable, as trees have none of theta0, its members stand for all of them.
    weights: of the families, in the order of `parts`.
    """
    first = next(iter(parts.values()))
    families = Families({name: part.training.model for name, part in parts.items()}, weights)
    design = replace(first.design, axes=(Axis("F", (families,), len(parts)), *first.design.axes))
    members = {(name, *member.run.labels.items()): member for name, part in parts.items() for member in part.mixture}
    mixture = []
    for run in design.runs(first.seed):
        name = run.choices["family"]
        member = members.get((name, *((axis.name, run.labels[axis.name]) for axis in parts[name].design.axes)))
        if member is None:
            raise ValueError(f"{name} has no member for {run}: {parts[name].origin.missing}")
        mixture.append(Member(run, member.algorithm, member.trained))
    networks = {name: part.networks[""] for name, part in parts.items()}
    return fitted_anew(replace(first, design=design, networks=networks, mixture=tuple(mixture), fitted=Fitted()))
