"""The labels of members that were trained elsewhere -> crossed axes and runs, as if they had been drawn here.

A label names the draws that a member is of: {"theta0": 3, "h": 0}. Every draw of each has to be combined with every
draw of the others, since only then can the variance be split between them; what was not crossed has one label together.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast

from wherefrom.variables import Axis, Families, Run
from wherefrom.variables.design import SLOTS
from wherefrom.variables.drawn import Drawn
from wherefrom.variables.family import Factory
from wherefrom.variables.given import Given

_TAKEN = {
    "t": "t is sampled within each member: give recorders that have a law, wf.Recorder(wf.SWAG())",
    "noise": "noise is a part of the likelihood: wf.Regression(noise=...)",
}


@dataclass(frozen=True)
class Labelled:
    """The axes of members, and each member's run, in the order in which the axes are crossed."""

    axes: tuple[Axis, ...]
    runs: tuple[Run, ...]
    places: tuple[int, ...]  # of the runs among the members as they were given
    families: dict[str, Factory] | None  # those that there are members of

    @classmethod
    def of(
        cls,
        labels: Sequence[Mapping[str, Any]] | None,
        count: int,
        finite: Collection[str] = (),
        families: Mapping[str, Factory] | None = None,
    ) -> Labelled:
        """`finite` names the labels whose draws are all the values there are; `families` are those of the label F."""
        labels = [{"theta0": k} for k in range(count)] if labels is None else list(labels)
        if len(labels) != count:
            raise ValueError(f"there are {count} members, but {len(labels)} labels: give one for each")
        names = _checked_names(labels, finite)
        chosen = None if families is None else _of_members(families, [label["F"] for label in labels])
        draws = [
            {new: _draw(label[old], new, k, chosen) for new, old in names.items()} for k, label in enumerate(labels)
        ]
        values = {name: sorted({own[name] for own in draws}) for name in names}
        _check_crossed(draws, values)
        order = sorted(range(count), key=lambda k: tuple(draws[k].values()))
        axes = tuple(
            Axis(name, _variables(name, len(own), names[name] in finite, chosen), len(own))
            for name, own in values.items()
            if len(own) > 1
        )
        runs = []
        for k in order:
            slots = {slot: draw for name, draw in draws[k].items() for slot in name.split("+")}
            family = {"family": list(chosen)[draws[k]["F"]]} if chosen and len(chosen) > 1 else {}
            own = {axis.name: draws[k][axis.name] for axis in axes}
            runs.append(Run(own, dict.fromkeys(SLOTS, 0) | slots, family))
        return cls(axes, tuple(runs), tuple(order), chosen)


def _checked_names(labels: Sequence[Mapping[str, Any]], finite: Collection[str]) -> dict[str, str]:
    """The names in labels, in the order in which we speak of variables, with joint ones ordered within -> as given."""
    for k, label in enumerate(labels):
        if not isinstance(label, Mapping):
            raise TypeError(f'a label is a dictionary such as {{"theta0": 0}}; that of member {k} is {label!r}')
        if set(label) != set(labels[0]):
            raise ValueError(
                f"all members need the same labels: member 0 has {list(labels[0])}, member {k} {list(label)}"
            )
    parts = [part for name in labels[0] for part in str(name).split("+")]
    for part in parts:
        if part in _TAKEN:
            raise ValueError(f"{part!r} cannot be a label: {_TAKEN[part]}")
        if not part or " x " in part or parts.count(part) > 1:
            raise ValueError(f"labels are names of variables, each of them once, unlike {list(labels[0])}")
    for name in finite:
        if name not in labels[0]:
            raise ValueError(f"finite names {name!r}, but the labels are {list(labels[0])}")

    def rank(part: str) -> tuple[int, int]:
        return SLOTS.index(part) if part in SLOTS else len(SLOTS), parts.index(part)

    named = {tuple(sorted(str(name).split("+"), key=rank)): str(name) for name in labels[0]}
    return {"+".join(own): given for own, given in sorted(named.items(), key=lambda item: rank(item[0][0]))}


def _of_members(families: Mapping[str, Factory], labels: Sequence[Any]) -> dict[str, Factory]:
    """Return the families that have members, in their order."""
    for member, label in enumerate(labels):
        if label not in families:
            raise ValueError(f"member {member} is of the family {label!r}, but the models are {', '.join(families)}")
    return {name: factory for name, factory in families.items() if name in labels}


def _draw(value: Any, name: str, member: int, families: Mapping[str, Factory] | None) -> int:
    """The number of a draw."""
    if name == "F" and families is not None:
        return list(families).index(value)
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 0:
        raise ValueError(f"{name} of member {member} is {value!r}: draws are known by whole numbers, 0, 1, 2, ...")
    return int(value)


def _check_crossed(draws: Sequence[Mapping[str, int]], values: Mapping[str, Sequence[int]]) -> None:
    held: dict[tuple[int, ...], int] = {}
    for k, own in enumerate(draws):
        if (place := tuple(own.values())) in held:
            what = ", ".join(f"{name} {draw}" for name, draw in own.items()) or "nothing"
            raise ValueError(f"members {held[place]} and {k} have the same label, {what}")
        held[place] = k
    for place in itertools.product(*values.values()):
        if place not in held:
            missing = ", ".join(f"{name} {draw}" for name, draw in zip(values, place, strict=True))
            joint = "+".join(values)
            raise ValueError(
                f"the labels are not crossed: there is no member with {missing}. The variance can be split between "
                f"{' and '.join(values)} only if every draw of one comes with every draw of the others. If they were "
                f'drawn together, they have one share: label the members {{"{joint}": 0}}, {{"{joint}": 1}}, ...'
            )


def _variables(name: str, draws: int, finite: bool, families: Mapping[str, Factory] | None) -> tuple[Drawn, ...]:
    if name == "F" and families is not None:
        return (Families(families),)
    # Their slots are their own, not their class's.
    return tuple(cast(Drawn, Given(slot, draws, finite)) for slot in name.split("+"))
