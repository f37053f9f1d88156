"""Variables -> labelled runs. Variables side by side are crossed; `Jointly` draws several at once.

A run is one training: the draw that it takes of each slot (F, theta0, h, ...). Slots that no variable redraws stay at
draw 0. Streams are named by these draws alone, so a run does not know which design it belongs to: the same run appears
in a larger design, in another order of variables, or after more draws, with the same result. (Only D differs: without
a variable for it, the rows are those that were given, and with one its first draw is a draw of them.)

A variable is whatever is `Drawn`, the user's own as well as the library's. It may have its own slot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wherefrom.files.codec import is_stored, stored
from wherefrom.files.stand_in import own_class
from wherefrom.training.schedules import NOT_STORED
from wherefrom.variables.algorithm import Algorithms
from wherefrom.variables.data import Folds
from wherefrom.variables.drawn import Drawn, check_draws
from wherefrom.variables.family import Dropout, Families
from wherefrom.variables.finite import shares
from wherefrom.variables.iterations import Iterations

SLOTS = ("F", "theta0", "gamma", "h", "order", "D")  # drawn before training, in the order in which we speak of them

_TAKEN = ("t", "M", "noise", "overlap", "entropy", "samples", "members", "others")  # names of what is not drawn
_LIKELY_CAUSES = ("h", "gamma", "theta0")  # of a training that diverges, the likeliest first
_REDRAWN = 2**20  # is added to the number of a draw that is redrawn
_HOMES = {"init": "theta0", "share": "D", "leaves_out": "D"}  # choices that are read by the draws of one slot


@dataclass(frozen=True, init=False)
class Jointly:
    """Draw several variables together: draw k takes the k-th value of each. They have one share of the doubt.

    variables: the variables, without their own draws.
    draws: how many values of all of them.

    >>> from wherefrom.variables import BatchOrder, InitialCondition
    >>> Jointly(InitialCondition(), BatchOrder(), draws=5).name
    'theta0+order'
    """

    variables: tuple[Drawn, ...]
    draws: int

    def __init__(self, *variables: Drawn, draws: int) -> None:
        if len(variables) < 2:
            raise ValueError("Jointly needs at least two variables")
        for variable in variables:
            if not isinstance(variable, Drawn):
                raise TypeError(
                    f"{type(variable).__name__} is not drawn before training, so it cannot be drawn jointly; "
                    "put it beside Jointly in `over`"
                )
            _check(variable)
            own = variable.drawn_jointly().draws
            if own is not None and own != draws:
                raise ValueError(f"{variable} asks for {own} draws but Jointly for {draws}: leave the inner number out")
        if int(draws) != draws or draws < 2:
            raise ValueError(f"Jointly(draws={draws}): one draw holds no doubt; give at least 2")
        if len({v.slot for v in variables}) < len(variables):
            raise ValueError("Jointly holds the same variable twice")
        ordered = sorted((v.drawn_jointly() for v in variables), key=_rank)
        object.__setattr__(self, "variables", tuple(ordered))
        object.__setattr__(self, "draws", int(draws))

    @property
    def name(self) -> str:
        return _name(self.variables)

    def __repr__(self) -> str:
        return f"Jointly({', '.join(map(repr, self.variables))}, draws={self.draws})"


_VARIABLES = own_class("variables", keeps=("slot", "is_finite", "weights"))


@stored("Axis", code={"variables": _VARIABLES}, make=lambda **given: _axis(**given))
@dataclass(frozen=True)
class Axis:
    """One dimension of the crossed design: a variable, or several drawn jointly."""

    name: str  # "theta0", "theta0+order", ...
    variables: tuple[Drawn, ...]
    draws: int
    redrawn: tuple[tuple[int, int], ...] = ()  # draws that were replaced, with the numbers of those that replace them

    def number(self, draw: int) -> int:
        """Return the number of a draw in its random stream, which is another one if it was redrawn."""
        return dict(self.redrawn).get(draw, draw)

    @property
    def is_finite(self) -> bool:
        return all(variable.is_finite for variable in self.variables)

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The probabilities of its draws, where they are all there are and not equally likely."""
        return self.variables[0].weights if self.is_finite else None


@stored("Run", code={"choices": NOT_STORED})
@dataclass(frozen=True)
class Run:
    """One training of the design."""

    labels: dict[str, int]  # axis -> draw
    slots: dict[str, int]  # slot -> draw, 0 where nothing redraws it
    choices: dict[str, Any]  # what the draws change: family, lr, batch_size, init, ...

    @property
    def name(self) -> tuple[str | int, ...]:
        """The run's own name in streams: the slots that are not at draw 0."""
        return tuple(part for slot in self.slots if self.slots[slot] for part in (slot, self.slots[slot]))

    def __str__(self) -> str:
        return ", ".join(f"{axis} {draw}" for axis, draw in self.labels.items()) or "the only member"


@stored("Design")
@dataclass(frozen=True)
class Design:
    """A marginalisation: crossed axes of trainings, and what is sampled within each of them."""

    axes: tuple[Axis, ...]
    iterations: Iterations | None
    dropout: Dropout | None

    @classmethod
    def of(cls, over: Sequence[Any]) -> Design:
        axes: list[Axis] = []
        sampled: dict[str, Any] = {}
        if not isinstance(over, list | tuple):
            raise TypeError(f"`over` is a list of variables{_hint(over) or f': over=[{over!r}]'}")
        # A recipe is a list itself, and may stand among variables.
        for variable in itertools.chain.from_iterable(v if isinstance(v, list | tuple) else [v] for v in over):
            if isinstance(variable, Iterations | Dropout):
                if variable.slot in sampled:
                    raise ValueError(f"{variable.slot} is marginalised twice in `over`")
                sampled[variable.slot] = variable
            elif isinstance(variable, Jointly):
                axes.append(Axis(variable.name, variable.variables, variable.draws))
            elif isinstance(variable, Drawn):
                _check(variable)
                if variable.draws is None:
                    raise ValueError(f"{type(variable).__name__}: say how many draws to train")
                axes.append(Axis(_name((variable,)), (variable,), variable.draws))
            else:
                raise TypeError(f"`over` holds {variable!r}, which is not a variable of training{_hint(variable)}")
        slots = [variable.slot for axis in axes for variable in axis.variables]
        if doubled := {slot for slot in slots if slots.count(slot) > 1}:
            raise ValueError(f"{', '.join(sorted(doubled))} is marginalised twice in `over`")
        if "h" in slots and any(_draws_settings(v) for a in axes for v in a.variables):
            raise ValueError("these Algorithms draw their own settings: put the Hyperparameters into them")
        axes.sort(key=lambda axis: _rank(axis.variables[0]))
        return cls(tuple(axes), sampled.get("t"), sampled.get("F"))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its variables, joint ones as one."""
        return (*(axis.name for axis in self.axes), *self.sampled)

    @property
    def sampled(self) -> tuple[str, ...]:
        """The names of what is drawn at prediction, within each member."""
        there = {"t": self.iterations, self.of_masks: self.dropout}
        return tuple(name for name, variable in there.items() if variable)

    @property
    def of_masks(self) -> str:
        """The name of dropout: F, or the paper's M where F is the family."""
        return "M" if any("F" in axis.name.split("+") for axis in self.axes) else "F"

    @property
    def families(self) -> Families | None:
        return next((v for axis in self.axes for v in axis.variables if isinstance(v, Families)), None)

    @property
    def algorithms(self) -> Algorithms | None:
        return next((v for axis in self.axes for v in axis.variables if isinstance(v, Algorithms)), None)

    @property
    def parts(self) -> int:
        """The number of parts that the rows are cut into, each left out by one draw; 0 where none is."""
        return next((axis.draws for axis in self.axes for v in axis.variables if isinstance(v, Folds)), 0)

    @property
    def size(self) -> int:
        """The number of trainings."""
        return math.prod(axis.draws for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """The axis of that name, or the joint one that holds it."""
        for axis in self.axes:
            if name == axis.name or name in axis.name.split("+"):
                return axis
        raise ValueError(f"this posterior does not marginalise {name!r}; it has {', '.join(self.names) or 'nothing'}")

    def runs(self, seed: int) -> list[Run]:
        return [self._run(seed, draws) for draws in itertools.product(*(range(a.draws) for a in self.axes))]

    def _run(self, seed: int, draws: tuple[int, ...]) -> Run:
        slots = dict.fromkeys(SLOTS, 0)
        choices: dict[str, Any] = {}
        for axis, draw in zip(self.axes, draws, strict=True):
            for variable in axis.variables:
                number = axis.number(draw)
                slots[variable.slot] = number
                choices |= self._chosen(variable, seed, number, choices)
        return Run(dict(zip((a.name for a in self.axes), draws, strict=True)), slots, choices)

    def _chosen(self, variable: Drawn, seed: int, draw: int, others: Mapping[str, Any]) -> dict[str, Any]:
        """Return the choices of a draw; raise if another has made them, or no training would read them."""
        chosen, who = variable.choices(seed, draw), type(variable).__name__
        if not isinstance(chosen, Mapping):
            raise TypeError(f'{who}.choices returns a dictionary, such as {{"lr": 0.01}}, not {chosen!r}')
        for name in chosen:
            if name in others:
                raise ValueError(f"{name} is chosen by {who} and by another variable: let one of them choose it")
            if _HOMES.get(name, variable.slot) != variable.slot:
                raise ValueError(f"{who} redraws {variable.slot}, but {name} belongs to the slot {_HOMES[name]}")
            if name == "family" and self.families is None:
                raise ValueError(f"{who} chooses a family, but models are known beforehand: give them to wf.Families")
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in chosen.items()}

    def extended(self, name: str, more: int) -> Design:
        """Return the design with more draws of one axis."""
        grown = self.axis(name)
        if not all(variable.can_grow for variable in grown.variables):
            raise ValueError(f"{grown.name} already goes through all of its points; there are no more to draw")
        if int(more) != more or more < 1:
            raise ValueError(f"{name}={more}: give the number of further draws, at least 1")
        axes = tuple(replace(a, draws=a.draws + int(more)) if a is grown else a for a in self.axes)
        return replace(self, axes=axes)

    @property
    def redrawable(self) -> Axis | None:
        """The axis to redraw where trainings diverge: settings before first weights before all else; None if none is.

        What goes through all of its points cannot be redrawn.
        """
        can_grow = [axis for axis in self.axes if all(variable.can_grow for variable in axis.variables)]
        by_slot = {variable.slot: axis for axis in reversed(can_grow) for variable in axis.variables}
        likely = [by_slot[slot] for slot in _LIKELY_CAUSES if slot in by_slot]
        return next(iter([*likely, *can_grow]), None)

    def redrawn(self, name: str, draws: Iterable[int]) -> Design:
        """Return the design with other values for some draws of an axis, from the same random stream.

        They have numbers that no further draw will ever have.
        """
        changed = self.axis(name)
        numbers = dict(changed.redrawn) | {draw: changed.number(draw) + _REDRAWN for draw in draws}
        axes = tuple(replace(a, redrawn=tuple(sorted(numbers.items()))) if a is changed else a for a in self.axes)
        return replace(self, axes=axes)


def _axis(name: str, variables: tuple[Drawn, ...], draws: int, redrawn: tuple[tuple[int, int], ...] = ()) -> Axis:
    """Return an axis from a file, in which variables are stored as they are outside of `Jointly`."""
    if len(variables) > 1:
        variables = tuple(v.drawn_jointly() if is_stored(type(v)) else v for v in variables)
    return Axis(name, variables, draws, redrawn)


def _check(variable: Drawn) -> None:
    """Raise where a variable of the user's own lacks something."""
    slot, who = getattr(variable, "slot", None), type(variable).__name__
    if not isinstance(slot, str) or not slot or "+" in slot or " x " in slot or slot in _TAKEN:
        raise ValueError(
            f"the slot of {who} is {slot!r}: it is one of {', '.join(SLOTS)}, or a new name, without '+' and "
            f"' x ' and none of {', '.join(_TAKEN)}"
        )
    if not hasattr(variable, "draws"):
        raise TypeError(f"{who} does not say how many draws there are: give it a field `draws: int | None = None`")
    check_draws(variable)
    if variable.is_finite and variable.draws is not None:
        shares(variable.weights, variable.draws)


def _rank(variable: Drawn) -> tuple[int, str]:
    """The library's slots in the order in which we speak of them, then the others by name."""
    return SLOTS.index(variable.slot) if variable.slot in SLOTS else len(SLOTS), variable.slot


def _name(variables: Sequence[Drawn]) -> str:
    """Return the name of an axis: the slots that are drawn, and the settings of algorithms that draw them."""
    parts = [part for v in variables for part in ((v.slot, "h") if _draws_settings(v) else (v.slot,))]
    return "+".join(parts)


def _draws_settings(variable: Drawn) -> bool:
    return isinstance(variable, Algorithms) and variable.draws_settings


def _hint(found: object) -> str:
    """Return what was probably meant."""
    if hasattr(found, "collector") and not isinstance(found, type):
        return f": a law stands in wf.Iterations({found!r})"
    if callable(found):
        return f": call it, as {getattr(found, '__name__', found)}(...)"
    return ""
