"""Processes of this machine, for what Python's global lock holds back.

    parent  -> worker     plans (once for all units: rows in shared memory), members to train, "stop"
    worker  -> parent     epochs done, what the members left, or an error

Rows are in a file without a name that is mapped into the memory of all processes, so nothing is left behind, however
they end. A worker whose parent has gone stops between two epochs.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection, reduction
from multiprocessing.connection import Connection
from typing import Any, cast

import torch

from wherefrom.training import interruption
from wherefrom.training.cohort import Trained
from wherefrom.training.executor import Plan, Report, Tally, Trainer, Unit, plans_of
from wherefrom.training.parcels import Parcel, packed
from wherefrom.training.workers import available_cores, one_core

_SHARED = "/dev/shm"  # memory that looks like a folder, where there is one
_POLL_SECONDS = 0.1  # between two looks at whether somebody has interrupted
_REPORT_SECONDS = 0.05  # between two reports of a worker


class Processes:
    """Processes of this machine, each on one core.

    workers: how many (default None: one for each device, or else for each core).
    retries: how often members are trained again if their process dies, by another one (default 1).
    devices: such as ["cuda:0", "cuda:1"], one for each process (default: all train where the call says).

    They are started when they are first needed, which takes some seconds, and stay until `close` or the end of the
    program. A script must call from under `if __name__ == "__main__":`, and networks, losses and augmentations must be
    defined in modules, not inside functions.

    >>> Processes(2).width
    2
    """

    is_here = True  # they see the files of this machine

    def __init__(self, workers: int | None = None, retries: int = 1, devices: Sequence[str] = ()) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1; it is {workers}")
        if devices and workers not in (None, len(devices)):
            raise ValueError(f"each of the {len(devices)} devices has one process: leave workers={workers} out")
        self.width, self.retries, self.devices = workers or len(devices) or available_cores(), retries, tuple(devices)
        self._workers: list[_Worker] = []
        weakref.finalize(self, _end, self._workers)

    def __repr__(self) -> str:
        return f"Processes({self.width})"

    @property
    def has_device_each(self) -> bool:
        """True if processes train on devices of their own, so that all members are divided between them."""
        return len(self.devices) > 1

    def close(self) -> None:
        """End the processes; the next training starts new ones."""
        _end(self._workers)

    def map(self, units: Sequence[Unit], report: Report) -> list[list[Trained]]:
        """Train the units; an error in one of them, or an interruption, stops the others between two epochs."""
        plans, plan_of = plans_of(units)
        can_keep = any(plan.checkpoints is not None for plan in plans)
        with _in_shared_memory(_parcel(plans)) as shared:
            work = _Work(units, plan_of, shared, Tally(units, report), self.retries, self.devices)
            try:
                return work.done_by(self._workers, min(self.width, len(units)))
            except BaseException:
                if can_keep:
                    work.stop(self._workers)
                _end(self._workers)
                raise


@dataclass(frozen=True)
class _Shared:
    """A parcel whose numbers are in a file without a name."""

    rest: bytes
    ends: tuple[tuple[int, int], ...]
    descriptor: int
    size: int


@contextmanager
def _in_shared_memory(parcel: Parcel) -> Iterator[_Shared]:
    numbers = memoryview(cast(Any, parcel.numbers))
    with contextlib.ExitStack() as files:
        for folder in (_SHARED, None):
            try:
                file = files.enter_context(tempfile.TemporaryFile(dir=folder))
                file.write(numbers)
                file.flush()
                break
            except OSError:  # no such folder, or no room there
                if folder is None:
                    raise
        yield _Shared(parcel.rest, parcel.ends, file.fileno(), len(numbers))


def _parcel(thing: Any) -> Parcel:
    try:
        return packed(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"this training cannot be sent to another process: {error}. Define its network, loss and augmentation at "
            "the top level of a module, or leave the executor out"
        ) from error


class _Worker:
    """A process, and the unit that it trains now."""

    def __init__(self, device: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.device = device  # on which it trains, where that is not the plan's
        self.process = context.Process(target=_work, args=(theirs, device), name="wherefrom", daemon=True)
        self.process.start()
        theirs.close()
        self.unit: int | None = None
        self.plans: int | None = None  # which file of plans it has
        self.is_ready = False

    def send(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # it has died, which its end will tell
            self.connection.send_bytes(pickle.dumps(message))

    def send_plans(self, shared: _Shared) -> None:
        self.send("plans", shared.rest, shared.ends, shared.size)
        with contextlib.suppress(OSError):
            reduction.send_handle(self.connection, shared.descriptor, self.process.pid)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def _end(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()


class _Work:
    """The units of one call."""

    def __init__(
        self,
        units: Sequence[Unit],
        plan_of: Sequence[int],
        shared: _Shared,
        tally: Tally,
        retries: int,
        devices: Sequence[str],
    ) -> None:
        self.units, self.plan_of, self.shared, self.tally, self.devices = units, plan_of, shared, tally, devices
        self.left = [retries] * len(units)  # how often each may be tried again
        self.waiting = deque(range(len(units)))
        self.results: dict[int, list[Trained]] = {}

    def done_by(self, workers: list[_Worker], width: int) -> list[list[Trained]]:
        while len(workers) < width:
            taken = {worker.device for worker in workers}
            workers.append(_Worker(next((device for device in self.devices if device not in taken), None)))
        for worker in workers:
            worker.send_plans(self.shared)
            self._give(worker)
        while len(self.results) < len(self.units):
            interruption.stop_if_requested()
            for worker in self._that_speak(workers):
                self._hear(worker, workers)
        return [self.results[number] for number in range(len(self.units))]

    def stop(self, workers: list[_Worker]) -> None:
        """Wait until all workers have written down their last finished epoch."""
        self.waiting.clear()
        for worker in workers:
            worker.send("stop")
        while busy := [worker for worker in workers if worker.unit is not None]:
            for worker in self._that_speak(busy):
                with contextlib.suppress(BaseException):  # what ended the call is raised, not what follows from it
                    self._hear(worker, workers)
                if not worker.process.is_alive() and not worker.connection.poll():
                    worker.unit = None

    def _that_speak(self, workers: Sequence[_Worker]) -> list[_Worker]:
        ends = {worker.connection: worker for worker in workers}
        ready = connection.wait(list(ends), timeout=_POLL_SECONDS)
        return [ends[each] for each in ready if isinstance(each, Connection)]

    def _give(self, worker: _Worker) -> None:
        worker.unit = self.waiting.popleft() if self.waiting else None
        if worker.unit is not None:
            members = _parcel(self.units[worker.unit].members)
            worker.send("train", worker.unit, self.plan_of[worker.unit], members)

    def _hear(self, worker: _Worker, workers: list[_Worker]) -> None:
        try:
            kind, *what = pickle.loads(worker.connection.recv_bytes())
        except (EOFError, OSError):
            self._replace(worker, workers)
            return
        worker.is_ready = True
        if kind == "epochs":
            self.tally.reached(*what)
        elif kind == "done":
            number, trained = what
            self.results[number] = trained
            self.units[number].finished(trained)
            self._give(worker)
            self.tally.finished(number)
        elif kind == "failed":
            worker.unit = None
            raise what[0]

    def _replace(self, worker: _Worker, workers: list[_Worker]) -> None:
        """Let another process do what one has left undone by dying."""
        unit, code = worker.unit, worker.process.exitcode
        workers.remove(worker)
        worker.end()
        if not worker.is_ready:
            raise RuntimeError(
                "a process of wf.executors.Processes could not start: in a script, call wherefrom from under "
                'if __name__ == "__main__":'
            )
        if unit is None:
            return
        if not self.left[unit]:
            raise RuntimeError(
                f"a process died (exit code {worker.process.exitcode if code is None else code}) while it trained "
                f"{len(self.units[unit].members)} members, and so did the one before it. If memory is short, take "
                "fewer workers"
            )
        self.left[unit] -= 1
        self.waiting.appendleft(unit)
        workers.append(_Worker(worker.device))
        workers[-1].send_plans(self.shared)
        self._give(workers[-1])


# ---------------------------------------------------------------------- in the worker


def _work(parent: Connection, device: str | None) -> None:
    """Train what the parent sends, until it closes the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal and some schedulers tell all processes; the parent says
        signal.signal(number, signal.SIG_IGN)
    parent.send_bytes(pickle.dumps(("ready",)))
    messages: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(parent, messages), daemon=True).start()
    plans: list[Plan] = []
    trainers: dict[int, Trainer] = {}
    with one_core():
        while (message := messages.get()) is not None:
            kind, *what = message
            if kind == "plans":
                trainers.clear()
                plans = what[0].opened()
                continue
            unit, number, parcel = what
            try:
                members = parcel.opened()
                if number not in trainers:
                    trainers[number] = plans[number].trainer(members, torch.device(device) if device else None)
                trained = trainers[number].train(members, _Reporter(parent, unit))
                answer = "done", unit, [replace(one, last=one.last.cpu()) for one in trained]
                text = pickle.dumps(answer, protocol=5)
            except BaseException as error:
                text = _pickled_error(error)
            with contextlib.suppress(OSError):  # nobody is there to hear it
                parent.send_bytes(text)


def _listen(parent: Connection, messages: queue.SimpleQueue) -> None:
    try:
        while True:
            kind, *what = pickle.loads(parent.recv_bytes())
            if kind == "stop":
                interruption.request()
            elif kind == "plans":
                rest, ends, size = what
                descriptor = reduction.recv_handle(parent)
                memory: Any = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
                os.close(descriptor)
                messages.put(("plans", Parcel(rest, memoryview(memory), ends)))
            else:
                messages.put((kind, *what))
    except (EOFError, OSError):  # the parent has gone
        interruption.request()
        messages.put(None)


class _Reporter:
    """Tells the parent how many epochs are done, not too often."""

    def __init__(self, parent: Connection, unit: int) -> None:
        self.parent, self.unit, self.epochs, self.last = parent, unit, 0, 0.0

    def __call__(self, done: int) -> None:
        interruption.stop_if_requested()
        self.epochs += done
        if time.monotonic() - self.last >= _REPORT_SECONDS:
            self.last = time.monotonic()
            with contextlib.suppress(OSError):  # the parent has gone, which the listener hears
                self.parent.send_bytes(pickle.dumps(("epochs", self.unit, self.epochs)))


def _pickled_error(error: BaseException) -> bytes:
    try:
        text = pickle.dumps(("failed", error))
        pickle.loads(text)  # some can be pickled, but not be read again
        return text
    except Exception:
        return pickle.dumps(("failed", RuntimeError(f"{type(error).__name__}: {error}")))
