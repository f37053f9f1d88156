"""Families that fit themselves: their theta comes from their own algorithm, not from gradient steps.

    theta  =  A(D),        A: boosting (trees.py), conditioning of a Gaussian process (gaussian_process.py)

Such a family is a model factory with a method `fit`, which minimises the same loss on the same rows as the networks do.
So it can stand beside networks in `Families`, or be the model of a `Training`. It has no theta0, no batch order and no
epochs: members that differ in these alone are the same, and are fitted once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from wherefrom.training.cohort import Cohort, Examples, Trained, Trainee, parts
from wherefrom.training.resumable import NOT_KEPT, Keeping
from wherefrom.training.streamed import in_memory

_ROWS_AT_ONCE = 1024


class FittingEngine:
    """Fits the members of a cohort, once for each table of rows."""

    name = "fitted"

    def __init__(self, cohort: Cohort, device: torch.device) -> None:
        assert cohort.fit is not None
        self.cohort, self.fit, self.device = cohort, cohort.fit, device
        if cohort.augment is not None:
            raise ValueError(f"{cohort.fit!r} fits itself, to rows as they are: leave augment out")
        self.locks = [threading.Lock() for _ in cohort.tables]
        self.done: dict[tuple[int, str], tuple[Tensor, list[float], float]] = {}

    def groups(self, threads: int) -> list[range]:
        """Return as many groups as there are threads."""
        count = len(self.cohort.members)
        return parts(count, min(count, threads))

    def train(
        self, members: Sequence[Trainee], epoch_done: Callable[[int], None], keeping: Keeping = NOT_KEPT
    ) -> list[Trained]:
        """Fit the members, in main memory; nothing is kept on the way, since it takes no longer than a few epochs."""
        trained = []
        for member in members:
            theta, losses, seconds = self._fitted(member)
            epoch_done(self.cohort.epochs)
            diverged = None if bool(torch.isfinite(theta).all()) else 0
            trained.append(Trained(theta.to(self.device), None, losses, diverged, seconds, self.name))
        return trained

    def _fitted(self, member: Trainee) -> tuple[Tensor, list[float], float]:
        """Return theta, its losses as if by epochs, and the seconds that it took the first that asks."""
        key = member.table, repr(self.cohort.loss_of(member))
        with self.locks[member.table]:
            if key in self.done:
                theta, losses, _ = self.done[key]
                return theta, losses, 0.0
            began = time.thread_time()
            network, table = self.cohort.network, self.cohort.tables[member.table]
            rows = _in_memory(table)
            with torch.no_grad():
                before = self._loss(member.theta0, rows, member)
                tensors = self.fit.fit(rows.x, rows.y, rows.weights, self.cohort.loss_of(member), network.outputs)
                theta = network.layout.flatten({name: tensor.to(member.theta0) for name, tensor in tensors.items()})
                after = self._loss(theta, rows, member)
            losses = [*[before] * (self.cohort.epochs > 1), *[after] * max(1, self.cohort.epochs - 1)]  # as of epochs
            self.done[key] = theta, losses, time.thread_time() - began
            return self.done[key]

    def _loss(self, theta: Tensor, rows: Examples, member: Trainee) -> float:
        network, total = self.cohort.network.private("fitting").to(torch.device("cpu")), 0.0
        views, loss = network.layout.views(theta), self.cohort.loss_of(member)
        for start in range(0, len(rows.y), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            outputs, weights = network.call(views, rows.x[some], (), False), rows.weights
            weights = None if weights is None else weights[some]
            total += len(outputs) * float(loss(outputs, rows.y[some], weights))
        return total / len(rows.y)


def _in_memory(rows: Examples) -> Examples:
    everything = torch.arange(len(rows.y))
    x = rows.x if isinstance(rows.x, Tensor) else in_memory(rows.x[everything])
    return Examples(x, rows.y, rows.weights)


def check_whole(name: str, value: Any, most: int | None = None) -> None:
    """Raise unless a setting is a whole number from 1 on."""
    if not isinstance(value, Integral) or not 1 <= int(value) <= (most or int(value)):
        up_to = "on" if most is None else f"to {most}"
        raise ValueError(f"{name} must be a whole number from 1 {up_to}, not {value!r}")
