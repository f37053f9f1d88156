"""The way trainings are computed, as one value: device, precision, engine, workers, checkpoints, executor."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from inspect import getattr_static
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

import torch

from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.cohort import Cohort, Trained
from wherefrom.training.continuing import Continuing
from wherefrom.training.data_parallel import check_can_be_shared
from wherefrom.training.engines import Choice
from wherefrom.training.executor import Executor, Report, Threads, Trainer, Unit
from wherefrom.training.executors.processes import Processes
from wherefrom.training.interruption import heard
from wherefrom.training.memory import Need, as_bytes, cut, most_together
from wherefrom.training.precision import check_autocast, check_dtype
from wherefrom.training.progress import Show
from wherefrom.training.workers import available, available_cores


@dataclass(frozen=True)
class Compute:
    """Settings of where and how to compute, for `marginalise`, `extend`, the estimators and the command.

    device: "cpu", "cuda", "cuda:1", ... (default "cpu"), or several, such as ["cuda:0", "cuda:1"]: members are divided
        between processes, one for each device; predictions are made on the first.
    dtype: torch.float32 (default) or torch.float64. On CUDA, torch computes float32 convolutions in TF32, with 11 of 24
        bits, by default, and products of matrices on request; see docs/devices.md.
    engine: "torch" (any network, any device), "native" (plain MLPs on a CPU, several times as fast; needs numba), or
        "auto" (default: native if it can and one training is worth a compilation), or "fastest" (native whenever it
        can, for many short trainings).
    workers: number of threads (default: all cores on a CPU, otherwise one).
    autocast: torch.bfloat16 multiplies with half the bits while training, which some devices do faster; weights and
        steps keep their precision (default None).
    checkpoints: a folder, or `wf.Checkpoints`, to which the state of training is saved about once a minute; after an
        interruption, the same call continues (default None).
    progress: whether to show a progress bar (default: on a terminal), or a function that is called with the number of
        finished epochs.
    executor: what trains the networks, such as `wf.executors.Processes(8)` or `wf.executors.Ray(address)`; see
        docs/extending.md for your own (default: threads of this process).
    memory_limit: approximate memory for training and prediction, in bytes or as text such as "8 GB"; groups of members
        are made smaller to keep it (default None: no limit).

    >>> Compute(engine="torch").but(workers=2, device=None).workers
    2
    """

    device: str | torch.device | Sequence[str | torch.device] = "cpu"
    dtype: torch.dtype = torch.float32
    engine: Choice = "auto"
    workers: int | None = None
    autocast: torch.dtype | None = None
    checkpoints: str | Path | Checkpoints | Continuing | None = None
    progress: Show = None
    executor: Executor | None = None
    memory_limit: int | str | None = None

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, not {self.dtype}")
        check_autocast(self.autocast)
        if self.engine not in get_args(Choice):
            raise ValueError(f"engine must be one of {', '.join(map(repr, get_args(Choice)))}, not {self.engine!r}")
        if self.workers is not None and (not isinstance(self.workers, Integral) or self.workers < 1):
            raise ValueError(f"workers must be at least 1, a whole number; it is {self.workers!r}")
        Checkpoints.of(self.checkpoints)  # raises unless it is a folder
        if self.memory_limit is not None:
            as_bytes(self.memory_limit)  # raises unless it is a size
        if self.executor is not None:
            _check_executor(self.executor)
        if not isinstance(self.device, str | torch.device):
            _check_devices(self.device, self.executor)
            object.__setattr__(self, "device", tuple(self.device))

    @staticmethod
    def of(given: Compute | None) -> Compute:
        """Return what was given as `compute`, or the defaults."""
        if given is not None and not isinstance(given, Compute):
            raise TypeError(f"compute must be wf.Compute(...), such as wf.Compute(workers=2), not {given!r}")
        return given or Compute()

    def but(self, **changes: Any) -> Compute:
        """Return a copy with these fields changed; None leaves a field as it is.

        changes: fields by name, with their new values.
        """
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    @property
    def devices(self) -> tuple[str | torch.device, ...]:
        """The devices that train, as they were given."""
        return (self.device,) if isinstance(self.device, str | torch.device) else tuple(self.device)

    @property
    def torch_device(self) -> torch.device:
        """The device that predicts, if it is there: the first, where several train."""
        return available(self.devices[0])

    def train(
        self, cohorts: Sequence[Cohort], report: Report, done: Callable[[int, int, Trained], None] | None = None
    ) -> list[list[Trained]]:
        """Train every member of every cohort; `report` hears of members' epochs done.

        done: hears once of every member, as soon as it is finished: the numbers of its cohort and of itself there.
        """
        tell = _OnceEach(done)
        device, checkpoints = self.torch_device, Checkpoints.of(self.checkpoints)
        check_dtype(self.dtype, device)
        check_autocast(self.autocast, device)
        executor = self.executor or self._own_executor(device)
        processes = getattr(executor, "processes_per_member", 1)
        engine = self.engine if processes == 1 else self._shared_engine(cohorts)
        trainers = [Trainer(cohort, engine, device, checkpoints) for cohort in cohorts]
        with self._interruptible():
            groups = [trainer.engine(self.announce).groups(executor.width) for trainer in trainers]
            if processes > 1:
                groups = [cut(of_cohort, 1) for of_cohort in groups]
            elif getattr(executor, "has_device_each", False):
                groups = [cut(each, -(-sum(map(len, each)) // executor.width)) for each in groups]
            executor, groups = self._within_memory(executor, cohorts, groups)
            units = [
                Unit(trainer, group, partial(tell, cohort))
                for cohort, (trainer, of_cohort) in enumerate(zip(trainers, groups, strict=True))
                for group in of_cohort
            ]
            results = list(executor.map(units, report))
        _check_results(executor, results, units)
        for unit, members in zip(units, results, strict=True):
            unit.finished(members)  # of executors that have not done so
        trained = iter([_on(device, members) for members in results])
        return [[member for _ in of_cohort for member in next(trained)] for of_cohort in groups]

    def _own_executor(self, device: torch.device) -> Executor:
        """Return threads of this process, or processes if there are several devices."""
        if len(self.devices) > 1:
            return _processes(tuple(str(available(each)) for each in self.devices))
        return Threads(self.workers or (available_cores() if device.type == "cpu" else 1))

    def _within_memory(
        self, executor: Executor, cohorts: Sequence[Cohort], groups: list[list[range]]
    ) -> tuple[Executor, list[list[range]]]:
        """Return smaller groups, on fewer threads, where more would not fit."""
        if self.memory_limit is None:
            return executor, groups
        needs = [Need.of(cohort) for cohort in cohorts]
        most, at_once = most_together(needs, as_bytes(self.memory_limit), executor.width)
        if at_once < executor.width and isinstance(executor, Threads):
            executor = Threads(at_once)
        elif at_once < executor.width:
            raise ValueError(
                f"memory_limit leaves room for {at_once} members at once, but {executor!r} trains {executor.width}: "
                "give it fewer workers, or raise memory_limit"
            )
        return executor, [cut(of_cohort, each) for of_cohort, each in zip(groups, most, strict=True)]

    def _shared_engine(self, cohorts: Sequence[Cohort]) -> Choice:
        """Return the engine that trains one member by several processes, and raise if a cohort cannot be trained so."""
        if self.engine == "native":
            raise ValueError('the native engine trains a member by one process: use engine="torch", or "auto"')
        for cohort in cohorts:
            check_can_be_shared(cohort)
        return "torch"

    def _interruptible(self) -> AbstractContextManager[None]:
        """Let signals stop trainings between two epochs, where these are kept; elsewhere they stop at once."""
        checkpoints = Checkpoints.of(self.checkpoints)
        if not isinstance(checkpoints, Checkpoints):
            return nullcontext()
        return heard(
            lambda: (
                f"training was interrupted: the last finished epoch of every member is in {checkpoints.folder}; make "
                "the same call again to continue"
            ),
            self.announce,
        )

    @property
    def executes_here(self) -> bool:
        """True if trainings see the files of this machine."""
        return self.executor is None or bool(getattr(self.executor, "is_here", False))

    @property
    def without_company(self) -> Compute:
        """A copy without what belongs to one call alone: its files, its progress, and its executor."""
        return replace(self, checkpoints=None, progress=None, executor=None)

    @property
    def with_numbers(self) -> Compute:
        """A copy whose devices have the numbers that they have now, as "cuda:0" for "cuda"."""
        devices = tuple(map(available, self.devices))
        return replace(self, device=devices if len(devices) > 1 else devices[0])

    @property
    def as_text(self) -> Compute:
        """A copy whose devices are text, which can be read where they are not there."""
        names = tuple(map(str, self.devices))
        return replace(self, device=names if len(names) > 1 else names[0])

    def announce(self, message: str) -> None:
        """Tell whoever waits why, unless nothing is to be shown."""
        if self.progress is not False:
            print(f"wherefrom: {message}", file=sys.stderr, flush=True)


@cache
def _processes(devices: tuple[str, ...]) -> Processes:
    """Return a process for each device; they stay until the program ends, for trainings to come."""
    return Processes(devices=devices)


def _on(device: torch.device, members: list[Trained]) -> list[Trained]:
    """Return members that may have been trained elsewhere, with their weights on a device."""
    return [replace(member, last=member.last.to(device)) for member in members]


class _OnceEach:
    """Tells of every finished member once, whoever calls how often, one after the other."""

    def __init__(self, done: Callable[[int, int, Trained], None] | None) -> None:
        self.done, self.reported, self.lock = done, set[tuple[int, int]](), threading.Lock()

    def __call__(self, cohort: int, members: range, trained: list[Trained]) -> None:
        if self.done is None:
            return
        with self.lock:
            for number, one in zip(members, trained, strict=True):
                if (cohort, number) not in self.reported:
                    self.done(cohort, number, one)
                    self.reported.add((cohort, number))


def _check_devices(devices: Any, executor: Executor | None) -> None:
    """Raise unless several devices are given so that each can have a process."""
    names = [str(device) for device in devices]
    if not names or len(set(names)) < len(names) or any(name.startswith("cpu") for name in names):
        raise ValueError(f'device must be one device, or several GPUs, each once, as ["cuda:0", "cuda:1"], not {names}')
    if executor is not None and len(names) > 1:
        raise ValueError(
            f"device={names} has a process for each device, so leave executor out; on a cluster, give device="
            f'"{names[0].partition(":")[0]}" and wf.executors.Ray(..., gpus=1)'
        )


def _check_executor(executor: Any) -> None:
    """Raise unless an executor has a `width` and a `map`."""
    # A width that is computed may be that of a cluster, which is not asked before something is trained.
    width, rule = getattr_static(executor, "width", None), "an executor has a `width`, at least 1, and a method `map`"
    if isinstance(executor, type) or not callable(getattr(executor, "map", None)):
        raise TypeError(f"{rule} (see docs/extending.md): {executor!r} has no `map` to call")
    if not isinstance(width, property) and (not isinstance(width, Integral) or width < 1):
        raise TypeError(f"{rule} (see docs/extending.md): the width of {executor!r} is {width!r}")


def _check_results(executor: Executor, results: Sequence[Any], units: Sequence[Unit]) -> None:
    """Raise unless an executor has returned what every member of every unit left."""
    rule = "map must return a list for each unit, of what `unit.train` returned"
    if len(results) != len(units):
        raise RuntimeError(f"{rule}: {executor!r} returned {len(results)} for {len(units)} units")
    for number, (members, unit) in enumerate(zip(results, units, strict=True)):
        if not isinstance(members, Sequence) or len(members) != len(unit.members):
            count = len(members) if isinstance(members, Sequence) else type(members).__name__
            raise RuntimeError(
                f"{rule}: unit {number} has {len(unit.members)} members, but {executor!r} returned {count}"
            )
