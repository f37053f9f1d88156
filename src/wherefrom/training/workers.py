"""Threads: one for each core.

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

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_threads(
    task: Callable[[Item], Result], items: Sequence[Item], threads: int, stopped: threading.Event | None = None
) -> list[Result]:
    """Run the task for every item, on threads of one core each; an error stops what has not begun.

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
    """Return the device, if it can be used."""
    check_default_device()
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {str(device)!r} is not there to be used: {error}") from None


def check_default_device() -> None:
    """Raise if torch makes tensors elsewhere than in main memory: rows, scalers and answers are there."""
    default = torch.empty(0).device
    if default.type != "cpu":
        raise ValueError(
            f"torch's default device is {default}, where this library cannot work: call "
            f'torch.set_default_device("cpu"), and give device="{default}" to train and predict there'
        )


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
