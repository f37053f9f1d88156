"""A cluster of machines, by Ray (https://ray.io): units of training are its tasks.

What the units of a cohort share, above all their rows, is put into Ray's object store once, and read from there without
a copy. Each unit is a task: if a node is lost, its tasks run again on another one, and nodes that join take part. Every
node compiles the native kernel once. Ray is imported when it is first needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from wherefrom.training import interruption
from wherefrom.training.cohort import Trained
from wherefrom.training.executor import Plan, Report, Tally, Trainer, Unit, plans_of
from wherefrom.training.parcels import Parcel, packed
from wherefrom.training.workers import one_core

_POLL_SECONDS = 0.2  # between two looks at progress, and at whether somebody has interrupted
_REPORT_SECONDS = 0.2  # between two reports of a task
_STOPPING_SECONDS = 600  # that interrupted tasks may take to the end of their epoch


@dataclass(frozen=True)
class Ray:
    """The nodes of a Ray cluster. Needs `wherefrom[ray]`, on every node.

    address: of the cluster, such as "10.0.0.1:6379" or "ray://10.0.0.1:10001"; "auto" is the one that runs on this
        machine (default None: the one that `RAY_ADDRESS` names, or a new one on this machine).
    workers: how many units to train at once (default None: as many as the cluster has cores when training begins, or
        GPUs, if units take any). More nodes than that are used when they join. Results are the same to the last bit for
        the same number.
    cpus, gpus: what one unit takes (default 1 and 0). With gpus=1, `device="cuda"` means the GPU of each unit.
    retries: how often a unit is trained again after its node or its data was lost (default 3).

    With `checkpoints=`, the folder must be one that all nodes see. `store=` needs none: this process writes it.

    >>> Ray("10.0.0.1:6379", workers=16).width
    16
    """

    address: str | None = None
    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = 3

    @property
    def width(self) -> int:
        """The number of units that are trained at once."""
        return self.workers or _room(self._connected(), self.cpus, self.gpus)

    @property
    def has_device_each(self) -> bool:
        """True if units train on GPUs of their own, so that all members are divided between them."""
        return self.gpus > 0

    def map(self, units: Sequence[Unit], report: Report) -> list[list[Trained]]:
        """Train the units; an error in one of them, or an interruption, stops the others."""
        plans, plan_of = plans_of(units)
        if self.gpus == 0 and any(plan.device.type != "cpu" for plan in plans):
            raise ValueError("this trains on a GPU, of which tasks have none: give wf.executors.Ray(..., gpus=1)")
        return _Work(self, self._connected(), units, plans, plan_of, Tally(units, report)).done()

    def _connected(self) -> Any:
        """Return Ray, connected; the connection stays until the end of the program."""
        try:
            import ray
        except ImportError:
            raise ImportError("wf.executors.Ray needs Ray: pip install 'wherefrom[ray]'") from None
        if not ray.is_initialized():
            os.environ.setdefault(
                "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
            )  # what Ray will do by default, and warns of
            try:
                ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
            except (ConnectionError, TimeoutError, RuntimeError) as error:
                raise ConnectionError(
                    f"no Ray cluster answers at {self.address or 'this machine'}: {error}. Start one by "
                    "'ray start --head', or check the address"
                ) from error
        return ray


def _room(ray: Any, cpus: float, gpus: float) -> int:
    """Return how many units the cluster has room for now."""
    there = ray.cluster_resources()
    room = [int(there.get(name, 0) // each) for name, each in (("CPU", cpus), ("GPU", gpus)) if each]
    return max(1, min(room, default=1))


class _Work:
    """The units of one call, and the tasks that train them."""

    def __init__(
        self, how: Ray, ray: Any, units: Sequence[Unit], plans: list[Plan], plan_of: Sequence[int], tally: Tally
    ) -> None:
        self.how, self.ray, self.units, self.plan_of, self.tally = how, ray, units, plan_of, tally
        self.parcels = {secrets.token_hex(8): packed(plan, ray.cloudpickle.CloudPickler) for plan in plans}
        self.can_keep = any(plan.checkpoints is not None for plan in plans)
        self.shared = [self._put(name) for name in self.parcels]
        self.progress = ray.remote(num_cpus=0)(_Progress).remote()
        # What is raised by the training itself is not tried again; what the cluster loses is.
        options = dict(num_cpus=how.cpus, num_gpus=how.gpus, max_retries=how.retries, retry_exceptions=False)
        self.task = ray.remote(**options)(_train)
        self.waiting = deque(range(len(units)))
        self.left = [how.retries] * len(units)  # how often each may be tried again by us
        self.running: dict[Any, int] = {}  # reference -> unit
        self.results: dict[int, list[Trained]] = {}

    def done(self) -> list[list[Trained]]:
        try:
            while len(self.results) < len(self.units):
                interruption.stop_if_requested()
                self._submit()
                ready, _ = self.ray.wait(list(self.running), timeout=_POLL_SECONDS)
                for reference in ready:
                    self._collect(reference, self.running.pop(reference))
                self._report()
            return [self.results[number] for number in range(len(self.units))]
        except BaseException:
            self._stop()
            raise
        finally:
            with contextlib.suppress(Exception):
                self.ray.kill(self.progress)

    def _put(self, name: str) -> Any:
        """Put a plan into the object store, under a name by which processes know that they have it."""
        parcel = self.parcels[name]
        return self.ray.put((name, parcel.rest, np.asarray(parcel.numbers), parcel.ends))

    def _submit(self) -> None:
        """Keep enough tasks waiting for all nodes, and no more: their first weights are in the object store."""
        enough = 2 * max(self.how.workers or 0, _room(self.ray, self.how.cpus, self.how.gpus))
        while self.waiting and len(self.running) < enough:
            unit = self.waiting.popleft()
            number = self.plan_of[unit]
            members = packed(self.units[unit].members, self.ray.cloudpickle.CloudPickler)
            reference = self.task.remote(
                self.shared[number],
                (members.rest, np.asarray(members.numbers), members.ends),
                unit,
                self.progress,
                self.can_keep,
            )
            self.running[reference] = unit

    def _collect(self, reference: Any, unit: int) -> None:
        errors = self.ray.exceptions
        try:
            trained = self.ray.get(reference).opened()
        except errors.RayTaskError as error:  # of the training itself, or of data that it did not get
            cause = error.cause if isinstance(error.cause, BaseException) else error.as_instanceof_cause()
            if not isinstance(cause, errors.RayError):
                raise cause from None
            self._again(unit, cause)
        except errors.TaskCancelledError:
            raise
        except errors.RayError as error:  # the cluster's: a node or an object is lost
            self._again(unit, error)
        else:
            self.results[unit] = trained
            self.units[unit].finished(trained)
            self.tally.finished(unit)

    def _again(self, unit: int, error: BaseException) -> None:
        """Train a unit once more, from data that is put anew."""
        if not self.left[unit]:
            raise RuntimeError(
                f"the cluster lost a unit of {len(self.units[unit].members)} members {self.how.retries + 1} times: "
                f"{' '.join(str(error).split())}"
            ) from error
        self.left[unit] -= 1
        number = self.plan_of[unit]
        self.shared[number] = self._put(list(self.parcels)[number])
        self.waiting.append(unit)

    def _report(self) -> None:
        with contextlib.suppress(self.ray.exceptions.RayError):  # progress is not worth an error
            for unit, epochs in self.ray.get(self.progress.read.remote(), timeout=_POLL_SECONDS).items():
                self.tally.reached(unit, epochs)

    def _stop(self) -> None:
        """End all tasks: between two epochs where these are kept, else at once."""
        for reference in self.running:
            with contextlib.suppress(Exception):
                self.ray.cancel(reference, force=not self.can_keep)
        if self.can_keep:
            self.ray.wait(list(self.running), num_returns=len(self.running) or 1, timeout=_STOPPING_SECONDS)


# ---------------------------------------------------------------------- on the nodes


class _Progress:
    """Epochs that each unit has done."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}

    def reached(self, unit: int, epochs: int) -> None:
        self.epochs[unit] = epochs

    def read(self) -> dict[int, int]:
        changed, self.epochs = self.epochs, {}
        return changed


_trainers: dict[str, Trainer] = {}  # of the last plan that this process has seen, so that its rows are packed once


def _train(shared: tuple[Any, ...], members: tuple[Any, ...], unit: int, progress: Any, can_keep: bool) -> Parcel:
    """Train the members of a unit, as a task."""
    trainees = Parcel(*members).opened()
    name, *plan = shared
    with one_core():
        if name not in _trainers:
            _trainers.clear()
            opened = Parcel(*plan).opened()
            _trainers[name] = opened.trainer(trainees, _of_this_task(opened.device))
        trainer = _trainers[name]
        reporter = _Reporter(progress, unit)
        heard = interruption.heard(lambda: "the task was cancelled", lambda _: None)
        with heard if can_keep else contextlib.nullcontext():
            trained = trainer.train(trainees, reporter)
    return packed([replace(one, last=one.last.cpu()) for one in trained])


def _of_this_task(device: torch.device) -> torch.device:
    """Return the device of a plan as a task sees it: Ray shows each task its own GPUs alone, numbered from 0."""
    return device if device.type == "cpu" else torch.device(device.type, 0)


class _Reporter:
    """Tells how many epochs are done, not too often, and waits for no answer."""

    def __init__(self, progress: Any, unit: int) -> None:
        self.progress, self.unit, self.epochs, self.last = progress, unit, 0, 0.0

    def __call__(self, done: int) -> None:
        self.epochs += done
        if time.monotonic() - self.last >= _REPORT_SECONDS:
            self.last = time.monotonic()
            self.progress.reached.remote(self.unit, self.epochs)
