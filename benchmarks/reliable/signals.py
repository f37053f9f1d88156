"""Signals at random moments of a training: what is kept, and whether it ends in the same bits."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import wherefrom as wf
from wherefrom.training import checkpoints, interruption

EPOCHS, MEMBERS = 60, 4


class Outcome(NamedTuple):
    """The result of one interruption."""

    reported: int  # epochs of members, before the signal
    kept: int
    is_same: bool  # to the last bit, after the same call again
    fault: str | None  # in what else is promised


def long_training() -> tuple[wf.Training, tuple[np.ndarray, np.ndarray]]:
    """Some training that takes a moment, and its rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=10)
    return wf.Training(wf.MLP(8), algorithm, epochs=EPOCHS), (x, x[:, 0] + 0.1 * rng.normal(size=200))


def trained(folder: Path | None, progress: Any, how: dict[str, Any]) -> list[tuple[torch.Tensor, ...]]:
    """Results of the members."""
    over = [wf.InitialCondition(MEMBERS), wf.Iterations(wf.SWAG(rank=2))]
    posterior = wf.marginalise(*long_training(), over, checkpoints=folder, progress=progress, **how)
    return [(member.trained.last, *member.trained.law.tensors().values()) for member in posterior.mixture]


def epochs_in_files(folder: Path) -> int:
    """Number of epochs of members that the folder holds."""
    files = [checkpoints._File.of(path) for path in folder.glob("*.safetensors")]
    return sum(EPOCHS if file.is_finished else file.epochs[member] for file in files for member in file.members)


def at_many_moments(folder: Path, number: int, how: dict[str, Any], moments: int) -> list[Outcome]:
    """Interrupt a training by a real signal at so many moments, and take it up again. For a process of its own."""
    rng, expected = random.Random(1), trained(None, False, how)
    return [
        interrupted(folder / str(moment), number, how, rng.randrange(1, EPOCHS * MEMBERS // 2), rng.random(), expected)
        for moment in range(moments)
    ]


def interrupted(
    where: Path, number: int, how: dict[str, Any], at: int, late: float, expected: Sequence[Any]
) -> Outcome:
    """Send a signal after so many epochs and a little later, and make the same call again."""
    reported, due, sent = [0], threading.Event(), threading.Event()

    def count(done: int) -> None:
        reported[0] += done
        if reported[0] >= at:
            due.set()
        if reported[0] > EPOCHS * MEMBERS * 3 // 4:  # too fast for the sender: the end waits for it
            sent.wait()

    def send() -> None:
        due.wait()
        threading.Event().wait(0.002 * late)  # into the middle of an epoch
        os.kill(os.getpid(), number)
        sent.set()

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    sender = threading.Thread(target=send)
    sender.start()
    fault = _fault(lambda: trained(where, count, how))
    sender.join()
    if (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) != before or interruption.is_requested():
        fault = "the handlers of signals were not restored"
    if left := [path.name for path in where.iterdir() if path.suffix != ".safetensors"]:
        fault = f"it left {left}"
    kept = epochs_in_files(where)
    pairs = zip(trained(where, False, how), expected, strict=True)
    is_same = all(torch.equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))
    return Outcome(reported[0], kept, is_same, fault)


def _fault(train: Callable[[], Any]) -> str | None:
    try:
        train()
    except KeyboardInterrupt as error:
        return None if "make the same call again" in str(error) else f"it said {error}"
    return "it was not interrupted"
