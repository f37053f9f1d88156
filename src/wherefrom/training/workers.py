"""Where cohorts run: groups of members on as many threads as there are cores.

Each thread runs its torch operations on one core. Letting every operation use all cores instead (OpenMP) collapses
as soon as another program wants one of them; threads that share nothing lose only the other program's share.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from wherefrom.training import engine
from wherefrom.training.cohort import Cohort, Trained

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Group:
    """Members of a cohort that one thread trains together, by their places."""

    cohort: int
    members: range


def train_cohorts(
    cohorts: list[Cohort], device: torch.device, workers: int | None, report: Callable[[int], None]
) -> list[list[Trained]]:
    """Train every member of every cohort; `report` hears of members' epochs done."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; it is {workers}")
    threads = workers or (available_cores() if device.type == "cpu" else 1)
    groups = [group for i, cohort in enumerate(cohorts) for group in _groups(i, cohort, threads)]

    def train(group: Group) -> list[Trained]:
        cohort, own = cohorts[group.cohort], group.members
        return engine.train(cohort, cohort.members[own.start : own.stop], device, report)

    trained: list[list[Trained]] = [[] for _ in cohorts]
    for group, results in zip(groups, on_threads(train, groups, threads), strict=True):
        trained[group.cohort] += results
    return trained


def _groups(index: int, cohort: Cohort, threads: int) -> Iterator[Group]:
    """Even groups, small enough for the processor's cache; where there are several, enough to keep all threads busy.

    A group that fits the cache is not worth dividing: its operations are short, and issuing them is what takes time.
    """
    count = len(cohort.members)
    largest = cohort.network.largest_group(cohort.batch_size)
    parts = -(-count // largest)
    if parts > 1:
        parts = min(-(-parts // threads) * threads, count)
    bounds = [count * part // parts for part in range(parts + 1)]
    return (Group(index, range(a, b)) for a, b in itertools.pairwise(bounds))


def on_threads(task: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """The task for every item, on so many threads of one core each; an error stops what has not begun."""
    with one_core():
        if threads == 1 or len(items) == 1:
            return [task(item) for item in items]
        # A new thread has torch's own idea of parallelism until it is told otherwise.
        with ThreadPoolExecutor(min(threads, len(items)), "wherefrom", torch.set_num_threads, (1,)) as pool:
            futures = [pool.submit(task, item) for item in items]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()  # raises what went wrong
                return [future.result() for future in futures]
            except BaseException:
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


@contextmanager
def one_core() -> Iterator[None]:
    """Torch's own parallelism off for as long as it lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
