"""Iterates for a law, of a trajectory whose length is not known beforehand.

An engine tells a law how many iterates it will see; a loop of the user's own does not. Where a law is made of moments
and iterates, the moments are gathered and those iterates kept that it may still ask for (`may_ask_for` has a rule for
each law); at the end the law is told the number, and makes of them what it makes of an engine's. A law that
follows the trajectory in its own way, as TRADI does, has to be told how many iterates to expect.
"""

from __future__ import annotations

import copy
from functools import singledispatch
from typing import Any, Protocol

import torch
from torch import Tensor

from wherefrom.laws import SWAG, Iterates, Law, Snapshots, TrajectoryLaw

State = dict[str, Any]  # tensors and plain numbers, by name


class Watch(Protocol):
    """Gathers one trajectory, of any length."""

    count: int

    def collect(self, theta: Tensor) -> None: ...  # (size,)

    def law(self) -> Law: ...  # of the iterates so far, changing nothing: there can be more

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


def watch(how: TrajectoryLaw, theta: Tensor, expected: int | None) -> Watch:
    """Return what gathers iterates that are like theta, as the law needs it."""
    if hasattr(how, "finish"):
        raise ValueError(f"{how} needs the rows and the loss to finish, which a recorder does not see: use marginalise")
    if may_ask_for.dispatch(type(how)) is not may_ask_for.dispatch(object):
        return Running(how, theta)
    if expected is None:
        raise ValueError(f"{how} has to know how many updates there will be, about: Recorder({how}, expected=1000)")
    return Following(how, theta, expected)


@singledispatch
def may_ask_for(law: Any, number: int, count: int) -> bool:
    """True if the iterate of that number, of `count` so far, may be one that the law asks for in the end."""
    raise TypeError(f"there is no rule for {law}")


@may_ask_for.register
def _(law: SWAG, number: int, count: int) -> bool:
    return not law.diagonal_only and number >= count - law.rank


@may_ask_for.register
def _(law: Snapshots, number: int, count: int) -> bool:
    """All at first, then every second, every fourth, ...: at least `keep` of them, at most twice as many; and the last.

    Evenly spread ones can be taken from them whenever it ends. Before there are 2 `keep` iterates they are the same as
    if the number had been known; later, each is off by at most half the distance between two.
    """
    stride = 1
    while count // stride >= 2 * law.keep:
        stride *= 2
    return (number + 1) % stride == 0 or number == count - 1


class Running:
    """The moments of the iterates so far, if the law has any use for them, and some iterates by their numbers."""

    def __init__(self, how: TrajectoryLaw, theta: Tensor) -> None:
        self.how, self.count = how, 0
        asked = self._asked(theta[:0], how.fewest)
        self.mean = theta.new_zeros(len(asked.mean), len(theta))
        self.squares = torch.zeros_like(self.mean)  # sums of squared deviations from the running mean (Welford)
        # The first iterate, where those that are kept are rounded: as in `Iterates`, they are differences from it.
        self.reference = theta.new_zeros(len(asked.reference), len(theta))
        self.precision = asked.points.dtype
        self.kept: dict[int, Tensor] = {}  # each (size,)

    def collect(self, theta: Tensor) -> None:
        self.count += 1
        self.kept = {number: kept for number, kept in self.kept.items() if may_ask_for(self.how, number, self.count)}
        if may_ask_for(self.how, self.count - 1, self.count):
            self.kept[self.count - 1] = self._rounded(theta) if len(self.reference) else theta.clone()
        if len(self.mean):
            change = theta - self.mean
            self.mean.add_(change, alpha=1 / self.count)
            self.squares.addcmul_(change, theta - self.mean)

    def _rounded(self, theta: Tensor) -> Tensor:
        if self.count == 1:
            self.reference.copy_(theta)
        return (theta - self.reference[0]).to(self.precision)

    def law(self) -> Law:
        asked = self._asked(self.mean[0] if len(self.mean) else self.kept[self.count - 1], self.count)
        asked.count = self.count
        asked.mean.copy_(self.mean)
        asked.squares.copy_(self.squares)
        asked.reference.copy_(self.reference)
        for point, number in {point: number for number, point in enumerate(asked.points_of) if point >= 0}.items():
            nearest = min(self.kept, key=lambda kept: abs(kept - number))
            asked.points[0, point] = self.kept[nearest]
        return asked.laws()[0]

    def state(self) -> State:
        kept = {f"kept.{number}": theta for number, theta in self.kept.items()}
        moments = {"mean": self.mean, "squares": self.squares, "reference": self.reference}
        return {"count": self.count, **moments, **kept}

    def restore(self, state: State) -> None:
        checked_like({"count": self.count}, state)
        moments = {name: getattr(self, name) for name in ("mean", "squares", "reference")}
        for name, tensor in checked_like(moments, state).items():
            setattr(self, name, tensor)
        self.count = state["count"]
        kept = {int(name.removeprefix("kept.")): name for name in state if name.startswith("kept.")}
        for number in kept:
            if not 0 <= number < self.count or not may_ask_for(self.how, number, self.count):
                raise ValueError(f"it keeps iterate {number}, which {self.how} does not need of {self.count}")
        last = self.count - 1
        if last >= 0 and last not in kept and may_ask_for(self.how, last, self.count):
            raise ValueError(f"it lacks the last of {self.count} iterates")
        precision = self.precision if len(self.reference) else self.mean.dtype
        like = self.mean.new_zeros(self.mean.shape[1], dtype=precision)
        whole = checked_like(dict.fromkeys(kept.values(), like), state)
        self.kept = {number: whole[name] for number, name in kept.items()}

    def _asked(self, theta: Tensor, count: int) -> Iterates:
        """Return what the law asks for of the iterates, with room for it."""
        asked = self.how.collector(theta.unsqueeze(0), count)
        assert isinstance(asked, Iterates)
        return asked


class Following:
    """The law's own way of following a trajectory of about the expected length."""

    def __init__(self, how: TrajectoryLaw, theta: Tensor, expected: int) -> None:
        self.how, self.expected, self.count = how, expected, 0
        collector = how.collector(theta.unsqueeze(0), expected)
        assert collector is not None  # only a law that finishes has none
        self.collector: Any = collector
        if isinstance(self.collector, Iterates):
            raise TypeError(
                f"{how} asks for iterates by their numbers: say by wherefrom.own_loop.running.may_ask_for.register "
                "which ones to keep while the last number is not known"
            )

    def collect(self, theta: Tensor) -> None:
        self.count += 1
        self.collector.collect(theta.unsqueeze(0))

    def law(self) -> Law:
        law: Law = copy.deepcopy(self.collector).laws()[0]
        return law

    def state(self) -> State:
        return {"count": self.count} | {f"own.{name}": getattr(self.collector, name) for name in self.collector.state}

    def restore(self, state: State) -> None:
        fresh = {f"own.{name}": getattr(self.collector, name) for name in self.collector.state}
        values = checked_like({"count": self.count, **fresh}, state)
        self.count = values["count"]
        for name in self.collector.state:
            setattr(self.collector, name, values[f"own.{name}"])


def checked_like(fresh: State, state: State) -> State:
    """Return the values of a state that have these names; raise unless each has the type and shape of a fresh one."""
    if not isinstance(state, dict):
        raise ValueError(f"what was gathered is {type(state).__name__}, not a list of values by name")
    for name, example in fresh.items():
        if name not in state:
            raise ValueError(f"{name} is missing from what was gathered")
        if (expected := _form(example)) != (actual := _form(state[name])):
            raise ValueError(f"{name} of what was gathered is {actual}, and must be {expected}")
    return {name: state[name] for name in fresh}


def _form(value: Any) -> Any:
    """Return the type of a value, and the shape and type of its numbers if it is a tensor."""
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype)[6:]} and shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_form, value))})"
    return type(value).__name__
