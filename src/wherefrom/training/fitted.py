"""Families that fit themselves: their theta comes from an algorithm of their own, not from gradient steps.

    theta  =  A(D),        A: boosting (trees.py), conditioning of a Gaussian process (gaussian_process.py)

Such a family is a model factory with a method `fit`, which minimises the same loss on the same rows as the networks do.
So it can stand beside networks in `Families`, or be the model of a `Training`. It has no theta0, no batch order and no
epochs: members that differ in these alone are the same, and are fitted once.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.training.cohort import Cohort, Examples, Trained, Trainee, parts
from wherefrom.training.resumable import NOT_KEPT, Keeping


class FittingEngine:
    """Fits the members of a cohort, once for each table of rows."""

    name = "fitted"

    def __init__(self, cohort: Cohort, device: torch.device) -> None:
        assert cohort.fit is not None
        self.cohort, self.fit, self.device = cohort, cohort.fit, device
        self.locks: dict[Any, threading.Lock] = defaultdict(threading.Lock)
        self.done: dict[Any, tuple[Tensor, list[float], float]] = {}

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
        key = member.table, self.cohort.loss_of(member)
        with self.locks[key]:
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
        network = self.cohort.network.private("fitting").to(torch.device("cpu"))
        outputs = network.call(network.layout.views(theta), rows.x, (), False)
        return float(self.cohort.loss_of(member)(outputs, rows.y, rows.weights))


def _in_memory(rows: Examples) -> Examples:
    x = rows.x if isinstance(rows.x, Tensor) else rows.x[torch.from_numpy(np.arange(len(rows.y)))]
    return Examples(x, rows.y, rows.weights)
