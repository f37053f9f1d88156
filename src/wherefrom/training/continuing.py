"""Trainings that go on with more epochs: their states stay in memory, and end in the bits of one long training.

A training of 200 epochs begins with the same 100 epochs as one of 100, if its learning rate does not follow a schedule
over its whole length. So a search that trains for longer and longer pays for each epoch once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wherefrom.files.digests import digest
from wherefrom.training import identity
from wherefrom.training.cohort import Cohort, Collection, Engine, Trained, Trainee
from wherefrom.training.resumable import Resumable, State


class _Moment(NamedTuple):
    """One member at the end of a training."""

    epochs: int
    state: State
    collection: Collection | None
    points_of: tuple[int, ...]  # the number under which each iterate is kept, or -1


@dataclass(frozen=True, eq=False)
class Continuing:
    """The ends of trainings, each known by all that it depends on beside its length.

    It takes the place of `Checkpoints`. In another process it is empty, and trainings begin anew there.
    """

    moments: dict[str, _Moment] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return Continuing, ()


class Continuer:
    """Trains members of one cohort from where they were, and keeps where they are then."""

    def __init__(self, continuing: Continuing, cohort: Cohort, engine: Engine) -> None:
        self.moments, self.cohort, self.engine = continuing.moments, cohort, engine
        self.shared = identity.of_cohort(cohort, engine.name)
        self.tables: dict[int, str] = {}

    def train(self, members: Sequence[Trainee], report: Callable[[int], None]) -> list[Trained]:
        """Train members that all were as far, or begin anew with all of them."""
        if any(member.schedule is not None for member in members):
            return self.engine.train(members, report)
        keeping = _Keeping(self, [self._digest(member) for member in members])
        return self.engine.train(members, report, keeping)

    def _digest(self, member: Trainee) -> str:
        if member.table not in self.tables:
            self.tables[member.table] = identity.of_table(self.cohort.tables[member.table])
        described = identity.of_member(self.cohort, member)
        return digest(self.shared, self.tables[member.table], described, member.theta0)


class _Keeping:
    """The link between some members and their moments, while an engine trains them."""

    def __init__(self, continuer: Continuer, digests: list[str]) -> None:
        self.continuer, self.digests = continuer, digests
        self.training: Resumable | None = None

    def begin(self, training: Resumable) -> list[int]:
        self.training = training
        moments = [self.continuer.moments.get(each) for each in self.digests]
        epochs = {None if moment is None else moment.epochs for moment in moments}
        if len(epochs) == 1:
            states = [self._longer(k, moment) for k, moment in enumerate(moments) if moment is not None]
            if states and all(state is not None for state in states):
                for k, (moment, state) in enumerate(zip(moments, states, strict=True)):
                    assert moment is not None
                    assert state is not None
                    training.restore(k, state, moment.epochs)
        return training.epochs

    def _longer(self, member: int, moment: _Moment) -> State | None:
        """Return the state with the shapes of a longer training; None if it cannot be continued."""
        assert self.training is not None
        cohort = self.continuer.cohort
        points = _points(self.training.parts.get("collector"), moment, cohort.collection)
        if moment.epochs > cohort.epochs or points is None:
            return None
        state = moment.state | ({"collector.points": points} if "collector.points" in moment.state else {})
        longer = {name: tensor[member].clone() for name, tensor in self.training.rows.items()}
        for name, tensor in longer.items():
            if tensor.ndim and len(tensor) > len(state[name]):
                tensor[: len(state[name])] = state[name]
                state[name] = tensor
        return state

    def reached(self) -> None:
        """Keep the states at the end, before the engine makes laws of them."""
        training, cohort = self.training, self.continuer.cohort
        if training is not None and all(epochs == cohort.epochs for epochs in training.epochs):
            collector = training.parts.get("collector")
            for k, each in enumerate(self.digests):
                self.continuer.moments[each] = _Moment(
                    cohort.epochs, training.state(k), cohort.collection, getattr(collector, "points_of", ())
                )

    def between_steps(self) -> None:
        pass


def _points(collector: Any, moment: _Moment, collection: Collection | None) -> Tensor | None:
    """Return the points of a longer trajectory; None if some of them were not kept."""
    before = moment.collection
    if collection is None or before is None:
        return torch.zeros(0) if collection is before else None
    points = getattr(collector, "points", None)
    if points is None or tuple(collection.steps[: len(before.steps)]) != tuple(before.steps):
        return None
    longer = torch.zeros_like(points[0])
    for now, then in zip(collector.points_of, moment.points_of, strict=False):
        if now >= 0 and then < 0:
            return None
        if now >= 0:
            longer[now] = moment.state["collector.points"][then]
    return longer
