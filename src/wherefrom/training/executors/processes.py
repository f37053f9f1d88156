"""Processes of this machine, for what Python's global lock holds back.

    parent  -> worker     what tasks share (once: rows, members, in shared memory), members to train, calls, "stop"
    worker  -> parent     epochs done, what the members left, what a call returned, or an error

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection, reduction
from multiprocessing.connection import Connection
from typing import Any, cast

import torch

from wherefrom.training import interruption
from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.cohort import Trained
from wherefrom.training.executor import Call, Plan, Report, Tally, Trainer, Unit, plans_of
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
        """True if processes train on their own devices, so that all members are divided between them."""
        return len(self.devices) > 1

    def close(self) -> None:
        """End the processes; the next training starts new ones."""
        _end(self._workers)

    def map(self, units: Sequence[Unit], report: Report) -> list[list[Trained]]:
        """Train the units; an error in one of them, or an interruption, stops the others between two epochs."""
        plans, plan_of = plans_of(units)
        can_keep = any(isinstance(plan.checkpoints, Checkpoints) for plan in plans)
        tally = Tally(units, report)

        def message(number: int) -> tuple[Any, ...]:
            return "train", number, plan_of[number], _parcel(units[number].members)

        def described(number: int) -> str:
            return f"trained {len(units[number].members)} members"

        with _in_shared_memory("plans", _parcel(plans)) as shared:
            work = _Work(len(units), message, [shared], self.retries, described, self.devices, units, tally)
            try:
                return work.done_by(self._workers, min(self.width, len(units)))
            except BaseException:
                if can_keep:
                    work.stop(self._workers)
                _end(self._workers)
                raise

    @contextmanager
    def calling(self, common: Sequence[Any], parts: Sequence[Any]) -> Iterator[_Calls]:
        """Let `run` of what this returns have a function called by the processes; see `executor.Calls`."""
        with _in_shared_memory("members", _parcel((list(common), list(parts)))) as shared:
            try:
                yield _Calls(self, shared)
            finally:
                for worker in self._workers:
                    worker.forget()


class _Calls:
    """Calls of functions by processes that have been sent what the calls share."""

    def __init__(self, executor: Processes, shared: _Shared) -> None:
        self.executor, self.shared = executor, shared

    def run(self, function: Callable[..., Any], given: Any, calls: Sequence[Call]) -> list[Any]:
        """Return what the function returns for every call; an error in one of them ends all processes."""
        executor = self.executor

        def message(number: int) -> tuple[Any, ...]:
            return "call", number, function, _parcel(calls[number])

        with _in_shared_memory("given", _parcel(given)) as rows:
            tasks = len(calls), message, [self.shared, rows], executor.retries, lambda _: "predicted"
            work = _Work(*tasks, executor.devices)
            try:
                return work.done_by(executor._workers, min(executor.width, len(calls)))
            except BaseException:
                _end(executor._workers)
                raise


@dataclass(frozen=True, eq=False)
class _Shared:
    """A parcel whose numbers are in a file without a name; workers know it as plans, members or what is given."""

    name: str
    rest: bytes
    ends: tuple[tuple[int, int], ...]
    descriptor: int
    size: int


@contextmanager
def _in_shared_memory(name: str, parcel: Parcel) -> Iterator[_Shared]:
    numbers, rest, ends = memoryview(cast(Any, parcel.numbers)), parcel.rest, parcel.ends
    del parcel  # so that its numbers are in memory once
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
        size = len(numbers)
        del numbers
        yield _Shared(name, rest, ends, file.fileno(), size)


def _parcel(thing: Any) -> Parcel:
    try:
        return packed(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"this cannot be sent to another process: {error}. Define its network, loss and augmentation at the top "
            "level of a module, or leave the executor out"
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
        self.has: dict[str, _Shared] = {}  # what it has been sent, by name
        self.is_ready = False

    def send(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # it has died, which its end will tell
            self.connection.send_bytes(pickle.dumps(message))

    def send_shared(self, shared: _Shared) -> None:
        if self.has.get(shared.name) is shared:
            return
        self.has[shared.name] = shared
        self.send("shared", shared.name, shared.rest, shared.ends, shared.size)
        with contextlib.suppress(OSError):
            reduction.send_handle(self.connection, shared.descriptor, self.process.pid)

    def forget(self) -> None:
        """Let it free the memory of what it has been sent."""
        self.has.clear()
        self.send("forget", None)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def _end(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()


class _Work:
    """The tasks of one call.

    message: what is sent to a worker for the task of a number.
    shared: what workers must have for it.
    described: what a worker does for it, for errors.
    units, tally: of trainings, to be told of what is done.
    """

    def __init__(
        self,
        count: int,
        message: Callable[[int], tuple[Any, ...]],
        shared: Sequence[_Shared],
        retries: int,
        described: Callable[[int], str],
        devices: Sequence[str],
        units: Sequence[Unit] = (),
        tally: Tally | None = None,
    ) -> None:
        self.count, self.message, self.shared, self.described = count, message, shared, described
        self.devices, self.units, self.tally = devices, units, tally
        self.left = [retries] * count  # how often each may be tried again
        self.waiting = deque(range(count))
        self.results: dict[int, Any] = {}

    def done_by(self, workers: list[_Worker], width: int) -> list[Any]:
        while len(workers) < width:
            taken = {worker.device for worker in workers}
            workers.append(_Worker(next((device for device in self.devices if device not in taken), None)))
        for worker in workers:
            self._give(worker)
        while len(self.results) < self.count:
            interruption.stop_if_requested()
            for worker in self._that_speak(workers):
                self._hear(worker, workers)
        return [self.results[number] for number in range(self.count)]

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
            for each in self.shared:
                worker.send_shared(each)
            worker.send(*self.message(worker.unit))

    def _hear(self, worker: _Worker, workers: list[_Worker]) -> None:
        try:
            kind, *what = pickle.loads(worker.connection.recv_bytes())
        except (EOFError, OSError):
            self._replace(worker, workers)
            return
        worker.is_ready = True
        if kind == "epochs" and self.tally is not None:
            self.tally.reached(*what)
        elif kind == "done":
            number, result = what
            self.results[number] = result
            if self.units:
                self.units[number].finished(result)
            self._give(worker)
            if self.tally is not None:
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
                f"a process died (exit code {worker.process.exitcode if code is None else code}) while it "
                f"{self.described(unit)}, and so did the one before it. If memory is short, take fewer workers"
            )
        self.left[unit] -= 1
        self.waiting.appendleft(unit)
        workers.append(_Worker(worker.device))
        self._give(workers[-1])


# ---------------------------------------------------------------------- in the worker


def _work(parent: Connection, device: str | None) -> None:
    """Train and call what the parent sends, until it closes the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal and some schedulers tell all processes; the parent says
        signal.signal(number, signal.SIG_IGN)
    parent.send_bytes(pickle.dumps(("ready",)))
    messages: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(parent, messages), daemon=True).start()
    trainers: dict[int, Trainer] = {}  # by the number of their plan
    shared: dict[str, Any] = {}
    with one_core():
        while (message := messages.get()) is not None:
            kind, number, *what = message
            try:
                if kind == "forget":
                    trainers.clear()
                    shared.clear()
                    continue
                if kind == "shared":
                    trainers.clear()
                    shared[number] = what[0].opened()
                    continue
                if kind == "train":
                    where = torch.device(device) if device else None
                    answer = _trained(parent, number, shared, trainers, where, *what)
                else:
                    answer = _called(shared, *what)
                text = pickle.dumps(("done", number, answer), protocol=5)
            except BaseException as error:
                text = _pickled_error(error)
            with contextlib.suppress(OSError):  # nobody is there to hear it
                parent.send_bytes(text)


def _trained(
    parent: Connection,
    unit: int,
    shared: dict[str, Any],
    trainers: dict[int, Trainer],
    device: torch.device | None,
    plan: int,
    members: Parcel,
) -> list[Trained]:
    trainees = members.opened()
    if plan not in trainers:
        plans: list[Plan] = shared["plans"]
        trainers[plan] = plans[plan].trainer(trainees, device)
    trained = trainers[plan].train(trainees, _Reporter(parent, unit))
    return [replace(one, last=one.last.cpu()) for one in trained]


def _called(shared: dict[str, Any], function: Callable[..., Any], call: Parcel) -> Any:
    common, parts = shared["members"]
    i, j, detail = call.opened()
    return function(common[i], parts[j], shared["given"], detail)


def _listen(parent: Connection, messages: queue.SimpleQueue) -> None:
    try:
        while True:
            kind, *what = pickle.loads(parent.recv_bytes())
            if kind == "stop":
                interruption.request()
            elif kind == "shared":
                name, rest, ends, size = what
                descriptor = reduction.recv_handle(parent)
                memory: Any = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
                os.close(descriptor)
                messages.put(("shared", name, Parcel(rest, memoryview(memory), ends)))
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
