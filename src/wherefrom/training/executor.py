"""Units, which hold all that a training takes, and executors, which train them.

A cohort is cut into units, one for each group of members that train together. A unit can be pickled, and trained in any
process: it describes its members and holds their rows, but no engine and no lock; whoever trains it makes an engine.
Results do not depend on who trained them, nor in which company.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from wherefrom.training.checkpoints import Checkpoints, Keeper
from wherefrom.training.cohort import Cohort, Engine, Trained
from wherefrom.training.engines import Choice, engine_for
from wherefrom.training.workers import on_threads, one_core

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


class Trainer:
    """Trains members of one cohort in this process, by an engine that is made when it is first needed."""

    def __init__(
        self, cohort: Cohort, choice: Choice, device: torch.device, checkpoints: Checkpoints | None = None
    ) -> None:
        self.cohort, self.choice, self.device, self.checkpoints = cohort, choice, device, checkpoints
        self._engine: Engine | None = None
        self._trains: Engine | Keeper | None = None
        self._lock = threading.Lock()

    def engine(self, announce: Callable[[str], None] = lambda _: None) -> Engine:
        """Return the engine, the same for all threads; `announce` hears of what takes time."""
        with self._lock:
            if self._engine is None:
                with one_core():
                    self._engine = engine_for(self.cohort, self.device, self.choice, announce)
                self._trains = self._engine
                if self.checkpoints is not None:
                    self._trains = Keeper(self.checkpoints, self.cohort, self._engine, self.device)
            return self._engine

    def train(self, members: range, report: Report) -> list[Trained]:
        """Train some of the cohort's members together."""
        self.engine()
        assert self._trains is not None
        return self._trains.train(self.cohort.members[members.start : members.stop], report)


@dataclass(frozen=True, eq=False)
class Unit:
    """Members of one cohort that train together. Pickled, it takes along its members and their rows alone."""

    trainer: Trainer
    members: range

    def train(self, report: Report) -> list[Trained]:
        """Train the members here, and return what they left."""
        return self.trainer.train(self.members, report)

    def __reduce__(self) -> tuple[Any, ...]:
        whole = self.trainer
        engine = whole.engine().name  # as it was chosen here
        return _unit, (whole.cohort.part(self.members), engine, whole.device, whole.checkpoints)


def _unit(cohort: Cohort, engine: Choice, device: torch.device, checkpoints: Checkpoints | None) -> Unit:
    return Unit(Trainer(cohort, engine, device, checkpoints), range(len(cohort.members)))


@dataclass(frozen=True)
class Threads:
    """Threads of this process, each on a core of its own."""

    width: int

    def map(self, units: Sequence[Unit], report: Report) -> list[list[Trained]]:
        """Train the units; an error in one of them, or an interruption, stops the others between two epochs."""
        stopped = threading.Event()

        def report_or_stop(done: int) -> None:
            if stopped.is_set():
                raise InterruptedError("another group's training failed, or was interrupted")
            report(done)

        return on_threads(lambda unit: unit.train(report_or_stop), units, self.width, stopped)
