"""Units, which hold all that a training takes, and executors, which train them.

A cohort is cut into units, one for each group of members that train together. A unit can be pickled, and trained in any
process: it describes its members and holds their rows, but no engine and no lock; whoever trains it makes an engine.
Results do not depend on who trained them, nor in which company.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch

from wherefrom.training.checkpoints import Checkpoints, Keeper
from wherefrom.training.cohort import Cohort, Engine, Trained, Trainee
from wherefrom.training.continuing import Continuer, Continuing
from wherefrom.training.data_parallel import Share
from wherefrom.training.engines import Choice, engine_for
from wherefrom.training.workers import on_threads, one_core

Done = Callable[[range, list[Trained]], None]  # hears of the members of a cohort that are finished
Report = Callable[[int], None]  # hears of members' epochs done; what it raises ends a training


class Executor(Protocol):
    """Has units of training done, here or elsewhere."""

    @property
    def width(self) -> int:
        """The number of units that it trains at once."""
        ...

    def map(self, units: Sequence[Unit], report: Report) -> list[list[Trained]]:
        """Train every unit, and return what the members of each left, in the units' order."""
        ...


Call = tuple[int, int, Any]  # numbers of what it has in common with others and of its part, and its details


class Calls(Protocol):
    """Has one function called by other processes, which have been sent what is common, and the parts, once."""

    def run(self, function: Callable[..., Any], given: Any, calls: Sequence[Call]) -> list[Any]:
        """Return `function(common[i], parts[j], given, detail)` for every call (i, j, detail), in their order."""
        ...


class Caller(Protocol):
    """An executor that also predicts."""

    def calling(self, common: Sequence[Any], parts: Sequence[Any]) -> AbstractContextManager[Calls]:
        """Send what calls share to other processes, for as long as the context lasts."""
        ...


@dataclass(frozen=True, eq=False)
class Plan:
    """All that the units of one cohort share: its rows, its network and its settings, but no member."""

    cohort: Cohort  # without members
    engine: Choice
    device: torch.device
    checkpoints: Checkpoints | Continuing | None

    def trainer(
        self, members: Sequence[Trainee], device: torch.device | None = None, share: Share | None = None
    ) -> Trainer:
        """Return a trainer, whose engine is rehearsed by the first of the members.

        device: to train on (default None: the plan's).
        share: the part of this process, where several train one member (default None: it trains alone).
        """
        device = self.device if device is None else device
        network = copy.copy(self.cohort.network).to(device)
        cohort = replace(self.cohort, network=network, members=tuple(members))
        return Trainer(cohort, self.engine, device, self.checkpoints, share)


class Trainer:
    """Trains members of one cohort in this process, by an engine that is made when it is first needed."""

    def __init__(
        self,
        cohort: Cohort,
        choice: Choice,
        device: torch.device,
        checkpoints: Checkpoints | Continuing | None = None,
        share: Share | None = None,
    ) -> None:
        self.cohort, self.choice, self.device, self.checkpoints = cohort, choice, device, checkpoints
        self.share = share
        self._engine: Engine | None = None
        self._trains: Engine | Keeper | Continuer | None = None
        self._lock = threading.Lock()

    def engine(self, announce: Callable[[str], None] = lambda _: None) -> Engine:
        """Return the engine, the same for all threads; `announce` hears of what takes time."""
        with self._lock:
            if self._engine is None:
                with one_core():
                    self._engine = engine_for(self.cohort, self.device, self.choice, announce, self.share)
                self._trains = self._engine
                if isinstance(self.checkpoints, Continuing):
                    self._trains = Continuer(self.checkpoints, self.cohort, self._engine)
                elif self.checkpoints is not None:
                    writes = self.share is None or self.share.is_first
                    self._trains = Keeper(self.checkpoints, self.cohort, self._engine, self.device, writes=writes)
            return self._engine

    def train(self, members: Sequence[Trainee], report: Report) -> list[Trained]:
        """Train some of the cohort's members together."""
        self.engine()
        assert self._trains is not None
        return self._trains.train(members, report)

    def plan(self) -> Plan:
        """Return what all units share, with the engine that was chosen here."""
        chosen = cast(Choice, self.engine().name)
        network = copy.copy(self.cohort.network).to(torch.device("cpu"))  # it may go to another device
        return Plan(replace(self.cohort, network=network, members=()), chosen, self.device, self.checkpoints)


@dataclass(frozen=True, eq=False)
class Unit:
    """Members of one cohort that train together. Pickled, it takes along its members and their rows alone."""

    trainer: Trainer
    numbers: range  # of its members in the cohort
    done: Done | None = None  # hears, in this process, of what the members left

    @property
    def members(self) -> tuple[Trainee, ...]:
        return self.trainer.cohort.members[self.numbers.start : self.numbers.stop]

    @property
    def epochs(self) -> int:
        """The epochs of all its members together: the sum of what a report hears."""
        return self.trainer.cohort.epochs * len(self.numbers)

    def train(self, report: Report) -> list[Trained]:
        """Train the members here, and return what they left."""
        trained = self.trainer.train(self.members, report)
        self.finished(trained)
        return trained

    def finished(self, trained: list[Trained]) -> None:
        """Tell what the members left. Executors that train elsewhere call it when that is here."""
        if self.done is not None:
            self.done(self.numbers, trained)

    def __reduce__(self) -> tuple[Any, ...]:
        whole = self.trainer
        plan = whole.plan()
        return _unit, (replace(plan, cohort=replace(plan.cohort, members=whole.cohort.members).part(self.numbers)),)


def _unit(plan: Plan) -> Unit:
    return Unit(plan.trainer(plan.cohort.members), range(len(plan.cohort.members)))


class Tally:
    """Epochs of every unit that were reported, where units report from elsewhere and may be trained a second time."""

    def __init__(self, units: Sequence[Unit], report: Report) -> None:
        self.epochs, self.report = [unit.epochs for unit in units], report
        self.done = [0] * len(units)

    def reached(self, unit: int, epochs: int) -> None:
        """Report how many epochs a unit has done in all."""
        if epochs > self.done[unit]:
            more, self.done[unit] = epochs - self.done[unit], epochs
            self.report(more)

    def finished(self, unit: int) -> None:
        self.reached(unit, self.epochs[unit])


def plans_of(units: Sequence[Unit]) -> tuple[list[Plan], list[int]]:
    """Return the plans of some units, one for each cohort, and the number of each unit's plan."""
    trainers = list({id(unit.trainer): unit.trainer for unit in units}.values())
    numbers = {id(trainer): number for number, trainer in enumerate(trainers)}
    return [trainer.plan() for trainer in trainers], [numbers[id(unit.trainer)] for unit in units]


@dataclass(frozen=True)
class Threads:
    """Threads of this process, each on its own core."""

    width: int

    def map(self, units: Sequence[Unit], report: Report) -> list[list[Trained]]:
        """Train the units; an error in one of them, or an interruption, stops the others between two epochs."""
        stopped = threading.Event()

        def report_or_stop(done: int) -> None:
            if stopped.is_set():
                raise InterruptedError("another group's training failed, or was interrupted")
            report(done)

        return on_threads(lambda unit: unit.train(report_or_stop), units, self.width, stopped)
