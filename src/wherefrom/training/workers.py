"""Where cohorts run: groups of members on as many threads as there are cores.

Each thread runs its torch operations on one core. Letting every operation use all cores instead (OpenMP) collapses
as soon as another program wants one of them; threads that share nothing lose only the other program's share.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

from wherefrom.training.checkpoints import Checkpoints, Keeper
from wherefrom.training.cohort import Cohort, Trained
from wherefrom.training.engines import Choice, engines_for

Item = TypeVar("Item")
Result = TypeVar("Result")


def train_cohorts(
    cohorts: list[Cohort],
    device: torch.device,
    workers: int | None,
    report: Callable[[int], None],
    engine: Choice = "auto",
    announce: Callable[[str], None] = lambda _: None,
    checkpoints: Checkpoints | None = None,
) -> list[list[Trained]]:
    """Train every member of every cohort; `report` hears of members' epochs done, `announce` of what takes time."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; it is {workers}")
    threads = workers or (available_cores() if device.type == "cpu" else 1)
    with one_core():
        engines = engines_for(cohorts, device, engine, announce)
    tasks = [(place, own) for place, engine in enumerate(engines) for own in engine.groups(threads)]
    trainers = [
        engine if checkpoints is None else Keeper(checkpoints, cohort, engine, device)
        for cohort, engine in zip(cohorts, engines, strict=True)
    ]
    stopped = threading.Event()

    def report_or_stop(done: int) -> None:
        if stopped.is_set():
            raise InterruptedError("another group's training failed, or was interrupted")
        report(done)

    def train(task: tuple[int, range]) -> list[Trained]:
        place, own = task
        return trainers[place].train(cohorts[place].members[own.start : own.stop], report_or_stop)

    trained: list[list[Trained]] = [[] for _ in cohorts]
    for (place, _), results in zip(tasks, on_threads(train, tasks, threads, stopped), strict=True):
        trained[place] += results
    return trained


def on_threads(
    task: Callable[[Item], Result], items: Sequence[Item], threads: int, stopped: threading.Event | None = None
) -> list[Result]:
    """The task for every item, on so many threads of one core each; an error stops what has not begun.

    Tasks that take long can look at `stopped` to end early.
    """
    with one_core():
        if threads == 1 or len(items) == 1:
            return [task(item) for item in items]
        with ThreadPoolExecutor(min(threads, len(items)), "wherefrom", _prepare_thread) as pool:
            futures = [pool.submit(task, item) for item in items]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()  # raises what went wrong
                return [future.result() for future in futures]
            except BaseException:
                if stopped:
                    stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def available(device: str | torch.device) -> torch.device:
    """The device, if it is there."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {str(device)!r} is not there to be used: {error}") from None


def available_cores() -> int:
    """The cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _prepare_thread() -> None:
    """A new thread has torch's own idea of parallelism and of tiny numbers until it is told otherwise."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


@contextmanager
def one_core() -> Iterator[None]:
    """Torch's own parallelism off for as long as it lasts, and numbers below 1e-38 taken for zero.

    The optimiser's averages of a unit that is dead for good decay to such numbers, on which processors are slow: whole
    trainings took twice as long. It decorates functions too: on a busy machine, torch's own threads wait for each other
    in loops, and what takes a tenth of a second on one core took three on two.
    """
    threads, flushes = torch.get_num_threads(), bool(torch.tensor(2.0**-126) * 0.5 == 0)
    _prepare_thread()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushes)
