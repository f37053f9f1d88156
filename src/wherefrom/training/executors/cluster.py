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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from wherefrom.training import data_parallel, interruption
from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.cohort import Trained
from wherefrom.training.data_parallel import PartnerLostError, Share
from wherefrom.training.executor import Call, Plan, Report, Tally, Trainer, Unit, plans_of
from wherefrom.training.parcels import Parcel, packed
from wherefrom.training.workers import one_core

_POLL_SECONDS = 0.2  # between two looks at progress, and at whether somebody has interrupted
_REPORT_SECONDS = 0.2  # between two reports of a task
_ENDING_SECONDS = 20  # that other processes of a member may take to end after one of them
_STOPPING_SECONDS = 600  # that interrupted tasks may take to the end of their epoch


@dataclass(frozen=True)
class Ray:
    """The nodes of a Ray cluster. Needs `wherefrom[ray]`, on every node.

    address: of the cluster, such as "10.0.0.1:6379" or "ray://10.0.0.1:10001"; "auto" is the one that runs on this
        machine (default None: the one that `RAY_ADDRESS` names, or a new one on this machine).
    workers: how many units to train at once (default None: as many as the cluster has cores when training begins, or
        GPUs, if processes take any). More nodes than that are used when they join. Results are the same to the last bit
        for the same number.
    cpus, gpus: what one process takes (default 1 and 0). With gpus=1, `device="cuda"` means the GPU of each process.
    retries: how often a unit is trained again after its node or its data was lost (default 3).
    processes_per_member: how many processes train one member, on one node or several (default 1). Each computes the
        gradient on its part of every batch, by torch's DistributedDataParallel. For large networks: every member is
        then a unit, trained by torch, and equal to that of one process up to rounding. Not with batch normalisation.

    With `checkpoints=`, the folder must be one that all nodes see. `store=` needs none: this process writes it.

    >>> Ray("10.0.0.1:6379", workers=16).width
    16
    """

    address: str | None = None
    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = 3
    processes_per_member: int = 1

    def __post_init__(self) -> None:
        if self.processes_per_member < 1:
            raise ValueError(f"processes_per_member must be at least 1; it is {self.processes_per_member}")

    @property
    def width(self) -> int:
        """The number of units that are trained at once."""
        return self.workers or self._room()

    @property
    def has_device_each(self) -> bool:
        """True if units train on their own GPUs, so that all members are divided between them."""
        return self.gpus > 0

    def _room(self) -> int:
        """Return how many units the cluster has room for now."""
        resources = self._connected().cluster_resources()
        needs = [(name, self.processes_per_member * each) for name, each in (("CPU", self.cpus), ("GPU", self.gpus))]
        return max(1, min((int(resources.get(name, 0) // each) for name, each in needs if each), default=1))

    def map(self, units: Sequence[Unit], report: Report) -> list[list[Trained]]:
        """Train the units; an error in one of them, or an interruption, stops the others."""
        plans, plan_of = plans_of(units)
        if self.gpus == 0 and any(plan.device.type != "cpu" for plan in plans):
            raise ValueError("this trains on a GPU, of which tasks have none: give wf.executors.Ray(..., gpus=1)")
        resources, processes = self._connected().cluster_resources(), self.processes_per_member
        for name, what, each in (("CPU", "cores", self.cpus), ("GPU", "GPUs", self.gpus)):
            if resources.get(name, 0) < processes * each:
                raise ValueError(
                    f"processes_per_member={processes} needs {processes * each:g} {what} at once, and the cluster has "
                    f"{resources.get(name, 0):g}: take fewer, or add nodes"
                )
        return _Work(self, self._connected(), units, plans, plan_of, Tally(units, report)).done()

    @contextmanager
    def calling(self, common: Sequence[Any], parts: Sequence[Any]) -> Iterator[_Calls]:
        """Let `run` of what this returns have a function called by tasks; see `executor.Calls`."""
        yield _Calls(self, self._connected(), common, parts)

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


@dataclass
class _Attempt:
    """The tasks that train one unit, and what is reserved for them where there are several."""

    unit: int
    tasks: list[Any]  # references; the first one returns the members
    reserved: Any = None  # placement group


class _Work:
    """The units of one call, and the tasks that train them."""

    def __init__(
        self, how: Ray, ray: Any, units: Sequence[Unit], plans: list[Plan], plan_of: Sequence[int], tally: Tally
    ) -> None:
        self.how, self.ray, self.units, self.plan_of, self.tally = how, ray, units, plan_of, tally
        self.parcels = {secrets.token_hex(8): packed(plan, ray.cloudpickle.CloudPickler) for plan in plans}
        self.can_keep = any(isinstance(plan.checkpoints, Checkpoints) for plan in plans)
        self.shared = [self._put(name) for name in self.parcels]
        self.progress = ray.remote(num_cpus=0)(_Progress).remote()
        # What is raised by the training itself is not tried again; what the cluster loses is.
        # Several processes of a member are of no use without one of them: we begin anew with all.
        retries = how.retries if how.processes_per_member == 1 else 0
        options = dict(num_cpus=how.cpus, num_gpus=how.gpus, max_retries=retries, retry_exceptions=False)
        self.task = ray.remote(**options)(_train)
        self.waiting = deque(range(len(units)))
        self.left = [how.retries] * len(units)  # how often each may be tried again by us
        self.running: dict[Any, _Attempt] = {}  # by each of its tasks
        self.results: dict[int, list[Trained]] = {}

    def done(self) -> list[list[Trained]]:
        try:
            while len(self.results) < len(self.units):
                interruption.stop_if_requested()
                self._submit()
                ready, _ = self.ray.wait(list(self.running), timeout=_POLL_SECONDS)
                for reference in ready:
                    if (attempt := self.running.pop(reference, None)) is not None:
                        self._collect(reference, attempt)
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
        enough = 2 * max(self.how.workers or 0, self.how._room()) * self.how.processes_per_member
        while self.waiting and len(self.running) < enough:
            unit = self.waiting.popleft()
            members = packed(self.units[unit].members, self.ray.cloudpickle.CloudPickler)
            parcel = members.rest, np.asarray(members.numbers), members.ends
            attempt = self._started(unit, parcel) if self.how.processes_per_member == 1 else self._joined(unit, parcel)
            self.running |= dict.fromkeys(attempt.tasks, attempt)

    def _started(self, unit: int, parcel: tuple[Any, ...]) -> _Attempt:
        """Start one task for a unit."""
        shared = self.shared[self.plan_of[unit]]
        return _Attempt(unit, [self.task.remote(shared, parcel, unit, self.progress, self.can_keep)])

    def _joined(self, unit: int, parcel: tuple[Any, ...]) -> _Attempt:
        """Start several tasks for one member, all of them or none at a time."""
        from ray.util import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        count, meeting = self.how.processes_per_member, secrets.token_hex(8)
        each = {name: float(amount) for name, amount in (("CPU", self.how.cpus), ("GPU", self.how.gpus)) if amount}
        reserved = placement_group([each] * count, strategy="PACK")
        stored, shared = self.ray.put(parcel), self.shared[self.plan_of[unit]]
        tasks = [
            self.task.options(
                scheduling_strategy=PlacementGroupSchedulingStrategy(reserved, placement_group_bundle_index=number)
            ).remote(shared, stored, unit, self.progress, self.can_keep, Share(number, count), meeting)
            for number in range(count)
        ]
        return _Attempt(unit, tasks, reserved)

    def _collect(self, reference: Any, attempt: _Attempt) -> None:
        returned, lost = _outcome(self.ray, reference)
        is_first = reference == attempt.tasks[0]
        if lost is None and not is_first:
            return  # the first one returns what all of them have trained
        others = [each for each in attempt.tasks if self.running.pop(each, None) is not None]
        if others:
            ended, _ = self.ray.wait(others, num_returns=len(others), timeout=_ENDING_SECONDS)
            if lost is not None:  # perhaps because another one has raised an error, which is raised here
                for each in ended:
                    _outcome(self.ray, each)
        self._release(attempt)
        if lost is not None:
            self._again(attempt.unit, lost)
            return
        trained = returned.opened()
        self.results[attempt.unit] = trained
        self.units[attempt.unit].finished(trained)
        self.tally.finished(attempt.unit)

    def _release(self, attempt: _Attempt) -> None:
        """Give back what was reserved for the tasks of an attempt, which ends those that still run."""
        if attempt.reserved is not None:
            from ray.util import remove_placement_group

            remove_placement_group(attempt.reserved)

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
        attempts = list({attempt.unit: attempt for attempt in self.running.values()}.values())
        first = [attempt.tasks[0] for attempt in attempts]  # which keep the epochs, and end the others of their member
        for reference in first:
            with contextlib.suppress(Exception):
                self.ray.cancel(reference, force=not self.can_keep)
        if self.can_keep and first:
            self.ray.wait(first, num_returns=len(first), timeout=_STOPPING_SECONDS)
        for attempt in attempts:
            with contextlib.suppress(Exception):
                self._release(attempt)


class _Calls:
    """Calls of functions by tasks; what they share is in the object store, each part by itself."""

    def __init__(self, how: Ray, ray: Any, common: Sequence[Any], parts: Sequence[Any]) -> None:
        self.how, self.ray, self.common, self.parts = how, ray, common, parts
        self.references: dict[tuple[str, int], Any] = {}
        self.task = ray.remote(num_cpus=how.cpus, max_retries=how.retries, retry_exceptions=False)(_call)

    def run(self, function: Callable[..., Any], given: Any, calls: Sequence[Call]) -> list[Any]:
        """Return what the function returns for every call; an error in one of them stops the others."""
        self._forget("given", 0)
        left = [self.how.retries] * len(calls)  # how often each may be tried again by us
        waiting, running, results = deque(range(len(calls))), dict[Any, int](), dict[int, Any]()
        try:
            while len(results) < len(calls):
                while waiting and len(running) < 2 * max(self.how.workers or 0, self.how._room()):
                    number = waiting.popleft()
                    i, j, detail = calls[number]
                    common, part = self._put("common", i, self.common[i]), self._put("part", j, self.parts[j])
                    rows = self._put("given", 0, given)
                    running[self.task.remote(function, common, part, rows, detail)] = number
                ready, _ = self.ray.wait(list(running), timeout=_POLL_SECONDS)
                for reference in ready:
                    number = running.pop(reference)
                    returned, lost = _outcome(self.ray, reference)
                    if lost is None:
                        results[number] = returned
                        continue
                    if not left[number]:
                        raise RuntimeError(
                            f"the cluster lost a call {self.how.retries + 1} times: {' '.join(str(lost).split())}"
                        ) from lost
                    left[number] -= 1
                    i, j, _ = calls[number]
                    for name, which in (("common", i), ("part", j), ("given", 0)):
                        self._forget(name, which)  # perhaps the data was lost: it is put anew
                    waiting.append(number)
        except BaseException:
            for reference in running:
                with contextlib.suppress(Exception):
                    self.ray.cancel(reference, force=True)
            raise
        return [results[number] for number in range(len(calls))]

    def _put(self, name: str, number: int, thing: Any) -> Any:
        """Put something into the object store, if it is not there, and return a reference."""
        if (name, number) not in self.references:
            parcel = packed(thing, self.ray.cloudpickle.CloudPickler)
            written = secrets.token_hex(8), parcel.rest, np.asarray(parcel.numbers), parcel.ends
            self.references[name, number] = self.ray.put(written)
        return self.references[name, number]

    def _forget(self, name: str, number: int) -> None:
        self.references.pop((name, number), None)


def _outcome(ray: Any, reference: Any) -> tuple[Any, BaseException | None]:
    """Return what a task returned, or how the cluster lost it, and raise what the task itself raised."""
    errors = ray.exceptions
    try:
        return ray.get(reference), None
    except errors.RayTaskError as error:  # of the task itself, or of data that it did not get
        cause = error.cause if isinstance(error.cause, BaseException) else error.as_instanceof_cause()
        if not isinstance(cause, errors.RayError | PartnerLostError):
            raise cause from None
        return None, cause
    except errors.TaskCancelledError:
        raise
    except errors.RayError as error:  # the cluster's: a node or an object is lost
        return None, error


# ---------------------------------------------------------------------- on the nodes


class _Progress:
    """Epochs that each unit has done, and where the processes of one member meet."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.addresses: dict[str, str] = {}

    def reached(self, unit: int, epochs: int) -> None:
        self.epochs[unit] = epochs

    def read(self) -> dict[int, int]:
        return self.epochs  # all of them: an answer may come too late to be heard

    def meet(self, meeting: str, address: str | None) -> str | None:
        """Return the address of a meeting, once its first process has given it."""
        if address is not None:
            self.addresses[meeting] = address
        return self.addresses.get(meeting)


_trainers: dict[str, Trainer] = {}  # of the last plan that this process has seen, so that its rows are packed once


def _train(
    shared: tuple[Any, ...],
    members: tuple[Any, ...],
    unit: int,
    progress: Any,
    can_keep: bool,
    share: Share | None = None,
    meeting: str = "",
) -> Parcel | None:
    """Train the members of a unit, as a task; alone, or with the other processes of a meeting."""
    trainees = Parcel(*members).opened()
    name, *plan = shared
    with one_core():
        if share is not None:
            return _train_share(Parcel(*plan).opened(), trainees, unit, progress, can_keep, share, meeting)
        if name not in _trainers:
            _trainers.clear()
            opened = Parcel(*plan).opened()
            _trainers[name] = opened.trainer(trainees, _of_this_task(opened.device))
        trainer = _trainers[name]
        with _hearing(can_keep):
            return _sent(trainer.train(trainees, _Reporter(progress, unit)))


def _train_share(
    plan: Plan, trainees: tuple[Any, ...], unit: int, progress: Any, can_keep: bool, share: Share, meeting: str
) -> Parcel | None:
    """Train a member together with other processes; the first one hears of interruptions, and returns the member."""
    from ray.util import get_node_ip_address

    device = _of_this_task(plan.device)
    trainer = plan.trainer(trainees, device, share)
    report = _Reporter(progress, unit) if share.is_first else _ignored
    with _hearing(can_keep and share.is_first):
        with data_parallel.joined(share, device, partial(_met, progress, meeting), get_node_ip_address()):
            trained = trainer.train(trainees, report)
            trained = [replace(one, seconds=share.total(one.seconds, device)) for one in trained]
        return _sent(trained) if share.is_first else None


def _hearing(can_keep: bool) -> AbstractContextManager[None]:
    """Let a cancelled task go on to the end of an epoch, where that is kept."""
    heard = interruption.heard(lambda: "the task was cancelled", lambda _: None)
    return heard if can_keep else contextlib.nullcontext()


def _sent(trained: Sequence[Trained]) -> Parcel:
    return packed([replace(one, last=one.last.cpu()) for one in trained])


def _of_this_task(device: torch.device) -> torch.device:
    """Return the device of a plan as a task sees it: Ray shows each task its own GPUs alone, numbered from 0."""
    return device if device.type == "cpu" else torch.device(device.type, 0)


def _met(progress: Any, meeting: str, address: str | None) -> str:
    """Return the address of the first process of a meeting; wait for it, if this is another one."""
    import ray

    end = time.monotonic() + _STOPPING_SECONDS
    while (first := ray.get(progress.meet.remote(meeting, address))) is None:
        if time.monotonic() > end:
            raise data_parallel.PartnerLostError("the first process of this member does not answer")
        time.sleep(_REPORT_SECONDS)
    return str(first)


def _ignored(_: int) -> None:
    pass


_common: dict[str, Any] = {}  # what the last calls of this process had in common, with what was recorded for it
_MOST_COMMON = 8


def _call(
    function: Callable[..., Any], common: tuple[Any, ...], part: tuple[Any, ...], given: tuple[Any, ...], detail: Any
) -> Any:
    """Call a function, as a task."""
    name, *parcel = common
    if name not in _common:
        while len(_common) >= _MOST_COMMON:
            _common.pop(next(iter(_common)))
        _common[name] = Parcel(*parcel).opened()
    return function(_common[name], Parcel(*part[1:]).opened(), Parcel(*given[1:]).opened(), detail)


class _Reporter:
    """Tells how many epochs are done, not too often, and waits for no answer."""

    def __init__(self, progress: Any, unit: int) -> None:
        self.progress, self.unit, self.epochs, self.last = progress, unit, 0, 0.0

    def __call__(self, done: int) -> None:
        self.epochs += done
        if time.monotonic() - self.last >= _REPORT_SECONDS:
            self.last = time.monotonic()
            self.progress.reached.remote(self.unit, self.epochs)
