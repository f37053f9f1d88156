"""A cohort: members that share a network's structure, an optimiser and a batch size, and so train as one program.

`Cohort` says what is to be trained, `Trained` what came of it. Whatever trains cohorts stands between the two, and may
be replaced without anybody noticing: results depend on the members' own streams alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from wherefrom.laws import Law, TrajectoryLaw
from wherefrom.training.network import Network


@dataclass(frozen=True, eq=False)
class Member:
    """One training to be done: everything in which members of a cohort can differ."""

    theta0: Tensor  # (size,)
    settings: dict[str, float]  # lr, weight_decay, ...
    order: int  # the stream of its batch order
    masks: int  # the stream of its dropout masks
    table: int  # which of the cohort's tables holds its rows


@dataclass(frozen=True, eq=False)
class Collection:
    """Which iterations of a trajectory make its law: every so many steps, from one step on (counted from 1)."""

    law: TrajectoryLaw
    first: int
    every: int
    last: int

    def includes(self, step: int) -> bool:
        return self.first <= step <= self.last and (step - self.first) % self.every == 0

    @property
    def iterations(self) -> int:
        return (self.last - self.first) // self.every + 1


@dataclass(frozen=True, eq=False)
class Cohort:
    """Members to be trained together, on tables of equally many rows (one for each fold)."""

    network: Network
    optimiser: str
    batch_size: int
    epochs: int
    loss: Callable[[Tensor, Tensor], Tensor]  # (members, rows, outputs), (members, rows, targets) -> (members,)
    members: tuple[Member, ...]
    tables: tuple[tuple[Tensor, Tensor], ...]  # standardised x and y
    collection: Collection | None

    @property
    def rows(self) -> int:
        return len(self.tables[0][1])

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows // self.batch_size)


@dataclass(frozen=True, eq=False)
class Trained:
    """What one member's training left behind."""

    last: Tensor  # (size,), the last iterate
    law: Law | None  # of the collected iterations
    losses: list[float]  # mean training loss of each epoch
    diverged: int | None  # the epoch in which its loss stopped being a number
    seconds: float  # processor time, its share of the group's
