"""The way trainings are computed, as one value: device, precision, engine, workers, checkpoints, executor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

import torch

from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.cohort import Cohort, Trained
from wherefrom.training.engines import Choice
from wherefrom.training.executor import Executor, Report, Threads, Trainer, Unit
from wherefrom.training.progress import Show
from wherefrom.training.workers import available, available_cores


@dataclass(frozen=True)
class Compute:
    """The way trainings are computed, for `marginalise`, `extend`, the estimators and the command alike.

    device: "cpu", "cuda", "cuda:1", ... (default "cpu").
    dtype: torch.float32 (default) or torch.float64.
    engine: "torch" (any network, any device), "native" (plain MLPs on a CPU, several times as fast; needs numba), or
        "auto" (default: native where it can be and one training is worth a compilation), or "fastest" (native wherever
        it can be, for many short trainings).
    workers: how many threads (default: all cores on a CPU, else one).
    autocast: torch.bfloat16 multiplies in half the bits while training, for devices that are faster so; weights and
        steps stay as they are (default None).
    checkpoints: a folder, or `wf.Checkpoints`, in which every training is written down about once a minute, so that
        the same call goes on where it was interrupted (default None).
    progress: True or False shows a bar or not (default: on a terminal); a function is called with the epochs done.
    executor: who does the trainings: anything with a `map` of units of training, see docs/extending.md (default:
        threads of this process).

    >>> Compute(engine="torch").but(workers=2, device=None).workers
    2
    """

    device: str | torch.device = "cpu"
    dtype: torch.dtype = torch.float32
    engine: Choice = "auto"
    workers: int | None = None
    autocast: torch.dtype | None = None
    checkpoints: str | Path | Checkpoints | None = None
    progress: Show = None
    executor: Executor | None = None

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, not {self.dtype}")
        if self.autocast not in (None, torch.bfloat16):
            raise ValueError(
                f"autocast must be None or torch.bfloat16, whose range is that of float32, not {self.autocast}"
            )
        if self.engine not in get_args(Choice):
            raise ValueError(f"engine must be one of {', '.join(map(repr, get_args(Choice)))}, not {self.engine!r}")
        if self.workers is not None and (not isinstance(self.workers, Integral) or self.workers < 1):
            raise ValueError(f"workers must be at least 1, a whole number; it is {self.workers!r}")
        Checkpoints.of(self.checkpoints)  # raises unless it is a folder
        if self.executor is not None:
            _check_executor(self.executor)

    @staticmethod
    def of(given: Compute | None) -> Compute:
        """Return what was given as `compute`, or the defaults."""
        if given is not None and not isinstance(given, Compute):
            raise TypeError(f"compute must be wf.Compute(...), such as wf.Compute(workers=2), not {given!r}")
        return given or Compute()

    def but(self, **changes: Any) -> Compute:
        """Return a copy with these fields changed; None leaves a field as it is."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    @property
    def torch_device(self) -> torch.device:
        """The device, if it is there."""
        return available(self.device)

    def train(self, cohorts: Sequence[Cohort], report: Report) -> list[list[Trained]]:
        """Train every member of every cohort; `report` hears of members' epochs done."""
        device, checkpoints = self.torch_device, Checkpoints.of(self.checkpoints)
        executor = self.executor or Threads(self.workers or (available_cores() if device.type == "cpu" else 1))
        trainers = [Trainer(cohort, self.engine, device, checkpoints) for cohort in cohorts]
        groups = [trainer.engine(self.announce).groups(executor.width) for trainer in trainers]
        units = [
            Unit(trainer, group) for trainer, of_cohort in zip(trainers, groups, strict=True) for group in of_cohort
        ]
        results = list(executor.map(units, report))
        _check_results(executor, results, units)
        trained = iter(results)
        return [[member for _ in of_cohort for member in next(trained)] for of_cohort in groups]

    @property
    def without_company(self) -> Compute:
        """A copy without what belongs to one call alone: its files, its progress, and its executor."""
        return replace(self, checkpoints=None, progress=None, executor=None)

    def announce(self, message: str) -> None:
        """Tell whoever waits why, unless nothing is to be shown."""
        if self.progress is not False:
            print(f"wherefrom: {message}", file=sys.stderr, flush=True)


def _check_executor(executor: Any) -> None:
    """Raise unless an executor has a `width` and a `map`."""
    width, rule = getattr(executor, "width", None), "an executor has a `width`, at least 1, and a method `map`"
    if isinstance(executor, type) or not callable(getattr(executor, "map", None)):
        raise TypeError(f"{rule} (see docs/extending.md): {executor!r} has no `map` to call")
    if not isinstance(width, Integral) or width < 1:
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
