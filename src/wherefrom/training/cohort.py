"""A cohort: members that share a network's structure, an optimiser and a batch size, and so train as one program.

`Cohort` says what is to be trained, `Trained` what was left, and an `Engine` stands between the two. Results depend on
the members' own streams alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import own_class
from wherefrom.laws import Collector, Law, TrajectoryLaw
from wherefrom.training import schedules, streams
from wherefrom.training.losses import Loss
from wherefrom.training.network import Network
from wherefrom.training.resumable import Keeping
from wherefrom.training.schedules import Schedule
from wherefrom.training.torch_classes import TorchOptimiser

Augmentation = Callable[[Tensor, torch.Generator], Tensor]  # (rows, ...) -> (rows, ...), at random


@runtime_checkable
class Sized(Protocol):
    """A model factory that takes x's and y's sizes from the data."""

    def sized(self, inputs: int, outputs: int) -> Callable[[], nn.Module]:
        """Return the factory for these numbers of columns and outputs."""
        ...

    def size(self, inputs: int, outputs: int) -> int:
        """Return how many numbers that model has."""
        ...


@runtime_checkable
class FitsItself(Sized, Protocol):
    """A model factory whose models are fitted by their own algorithm, not by gradient steps. See fitted.py."""

    def fit(self, x: Tensor, y: Tensor, weights: Tensor | None, loss: Loss, outputs: int) -> Mapping[str, Tensor]:
        """Return the tensors of a model, by name, that make the loss of these rows small."""
        ...


class SharedRows:
    """Rows of a table by their numbers, gathered when they are needed: all draws of a table share its memory."""

    def __init__(self, whole: Tensor, rows: Tensor) -> None:
        self.whole, self.rows = whole, rows
        self.shape, self.dtype, self.ndim = torch.Size([len(rows), *whole.shape[1:]]), whole.dtype, whole.ndim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: Any) -> Tensor:
        return self.whole[self.rows[some]]


class Examples(NamedTuple):
    """Standardised rows to train on; weights have a mean of about one."""

    x: Any  # (rows, ...), a tensor, or what gathers its rows (`SharedRows`) or reads them (`Streamed`)
    y: Tensor  # (rows, targets), or (rows, 1) class numbers
    weights: Tensor | None = None  # (rows,)


@dataclass(frozen=True, eq=False)
class Trainee:
    """One training to be done: everything in which members of a cohort can differ."""

    theta0: Tensor  # (size,)
    settings: dict[str, float]  # lr, weight_decay, ...; clip only where it clips
    order: int  # the stream of its batch order
    masks: int  # the stream of its dropout masks
    table: int  # which of the cohort's tables holds its rows
    rates: tuple[float, ...] | None = None  # dropout at each site, where not the network's own
    schedule: Schedule | None = None  # of its learning rate, where that is not constant
    augmentation: int = 0  # the stream of what is done to its batches
    loss: Loss | None = None  # where it is not the cohort's
    replacement: bool = False  # whether its batches are drawn anew each time; else an epoch visits each row once


@dataclass(frozen=True, eq=False)
class Collection:
    """The iterations of a trajectory that make its law: any set of steps, counted from 1."""

    law: TrajectoryLaw
    steps: range | tuple[int, ...]  # ascending

    def includes(self, step: int) -> bool:
        index = bisect_left(self.steps, step)
        return index < len(self.steps) and self.steps[index] == step

    @property
    def iterations(self) -> int:
        return len(self.steps)

    def collector(self, theta: Tensor) -> Collector | None:
        """Return what watches members that start from theta; None where the law is made by its `finish` alone."""
        collector = self.law.collector(theta, len(self.steps))
        if collector is None and not hasattr(self.law, "finish"):
            raise TypeError(f"{self.law} has neither a collector nor a method finish(member): it cannot make a law")
        return collector


@dataclass(frozen=True, eq=False)
class Cohort:
    """Members to be trained together, on tables of equally many rows (one for each fold)."""

    network: Network
    optimiser: str | TorchOptimiser
    batch_size: int
    epochs: int
    loss: Loss
    members: tuple[Trainee, ...]
    tables: tuple[Examples, ...]
    collection: Collection | None
    augment: Augmentation | None = None
    autocast: torch.dtype | None = None  # in which the forward pass multiplies, where that is not theta's own
    drop_last: bool = False  # whether an epoch leaves out its last batch if that is short
    fit: FitsItself | None = None  # of a family that fits itself, and takes no steps

    @property
    def rows(self) -> int:
        return len(self.tables[0][1])

    @property
    def rows_per_epoch(self) -> int:
        return self.rows - self.rows % self.batch_size if self.drop_last else self.rows

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows_per_epoch // self.batch_size)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The rows of a batch, and of the last one of an epoch if that is short."""
        short = self.rows_per_epoch % self.batch_size
        return (self.batch_size, short) if short else (self.batch_size,)

    def part(self, which: range) -> Cohort:
        """Some of its members, with their tables alone."""
        members = self.members[which.start : which.stop]
        numbers = sorted({member.table for member in members})
        renumbered = tuple(replace(member, table=numbers.index(member.table)) for member in members)
        return replace(self, members=renumbered, tables=tuple(self.tables[number] for number in numbers))

    def loss_of(self, member: Trainee) -> Loss:
        return self.loss if member.loss is None else member.loss

    def rates(self, member: Trainee) -> tuple[float, ...]:
        """A member's dropout rate at every site."""
        return tuple(site.rate for site in self.network.sites) if member.rates is None else member.rates

    def factors(self, member: Trainee, first_step: int, steps: int) -> NDArray[np.float64]:
        """Factors of a member's learning rate at some steps, counted from 0."""
        if member.schedule is None:
            return np.ones(steps)
        progress = np.arange(first_step, first_step + steps) / (self.epochs * self.steps_per_epoch)
        return schedules.factors(member.schedule, progress)


@stored("Trained", code={"law": own_class("laws")})
@dataclass(frozen=True, eq=False)
class Trained:
    """One member after its training."""

    last: Tensor  # (size,), the last iterate
    law: Law | None  # of the collected iterations
    losses: list[float]  # mean training loss of each epoch
    diverged: int | None  # the epoch in which its loss stopped being a number
    seconds: float  # processor time, its share of the group's
    engine: str  # that trained it


class Engine(Protocol):
    """Trains one cohort, any of its members at a time. A member's result does not depend on the others."""

    name: str

    def groups(self, threads: int) -> list[range]: ...  # numbers of members that one thread trains together

    def train(
        self, members: Sequence[Trainee], epoch_done: Callable[[int], None], keeping: Keeping = ...
    ) -> list[Trained]: ...


def orders(keys: NDArray[np.uint64], replacement: NDArray[np.bool_], epoch: int, rows: int) -> NDArray[np.int64]:
    """The rows of an epoch, one order for each stream: all of them, shuffled, or as many drawn with replacement.

    A row drawn with replacement is the next 64-bit number of the stream, scaled down.  # (keys, rows)
    """
    if not replacement.any():
        return streams.permutations(keys, epoch, rows)
    counters = streams.address(epoch, np.arange(rows, dtype=np.uint64))
    numbers = streams.numbers(keys[replacement, None], counters[None, :])
    upper, lower = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    scaled = upper * np.uint64(rows) + ((lower * np.uint64(rows)) >> np.uint64(32))
    order = np.empty((len(keys), rows), dtype=np.int64)
    order[replacement] = (scaled >> np.uint64(32)).view(np.int64)
    order[~replacement] = streams.permutations(keys[~replacement], epoch, rows)
    return order


def parts(count: int, number: int) -> list[range]:
    """Even parts of range(count)."""
    return [range(a, b) for a, b in pairwise(count * part // number for part in range(number + 1))]
