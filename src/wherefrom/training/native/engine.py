"""Cohorts of plain MLPs, trained by the kernel: members in, trained members out, in blocks of epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from wherefrom.laws import Iterates, Law
from wherefrom.losses import CrossEntropy, GaussianNLL, SquaredError
from wherefrom.training import torch_engine
from wherefrom.training.cohort import Cohort, Examples, Member, Trained, first_bad_epoch, parts
from wherefrom.training.native import compiling, kernel, losses, packing, rules
from wherefrom.training.native.kernel import Kept, Task
from wherefrom.training.native.plain import recognise

_BLOCK_SECONDS = 0.2  # of epochs in one call of the kernel: progress is shown, and interruptions are heard, in between
_GROUPS_FOR_EACH_THREAD = 4  # so that a thread whose core is taken away leaves work to the others
_GROUP_NUMBERS = 2**24  # held for one group while it trains: 64 MB

_OPTIMISERS = {"sgd": rules.SGD, "adam": rules.ADAM, "adamw": rules.ADAMW}
_LOSSES = {
    SquaredError: losses.SQUARED_ERROR,
    GaussianNLL: losses.GAUSSIAN,
    CrossEntropy: losses.CROSS_ENTROPY,
}


class RehearsalError(RuntimeError):
    """The kernel's gradient is not torch's."""


class NativeEngine:
    """Trains a cohort of which `native.obstacle` has nothing to say."""

    name = "native"

    def __init__(self, cohort: Cohort, announce: Callable[[str], None]) -> None:
        self.cohort = cohort
        mlp = recognise(cohort.network, cohort.tables[0].x)
        self.packing = packing.Packing.of(mlp, cohort.network.layout, cohort.batch_size)
        self.tables = self.packing.tables(cohort)
        self.targets = int(cohort.tables[0].y.shape[1])
        if isinstance(cohort.loss, CrossEntropy):
            classes = int(self.tables.y.max()) + 1
            if self.tables.y.min() < 0 or classes > mlp.widths[-1]:
                raise ValueError(f"y names classes up to {classes - 1}, but the model has {mlp.widths[-1]} outputs")
        self.task = Task(
            _OPTIMISERS[cohort.optimiser],
            _LOSSES[type(cohort.loss)],
            np.float32(getattr(cohort.loss, "label_smoothing", 0.0)),
            cohort.batch_size,
            self.targets,
        )
        compiling.ready(self._arguments(cohort.members[:1], self._kept(None)), announce)

    def groups(self, threads: int) -> list[range]:
        """More groups than threads, and none that needs much memory beside what training leaves."""
        count = len(self.cohort.members)
        busy = threads * _GROUPS_FOR_EACH_THREAD if threads > 1 else 1
        collector = self._collector(1)
        kept = 0 if collector is None else len(collector.mean) * 2 + collector.points.shape[1]
        largest = max(1, _GROUP_NUMBERS // ((3 + kept) * self.packing.size))
        return parts(count, min(count, max(busy, -(-count // largest))))

    def train(self, members: Sequence[Member], epoch_done: Callable[[int], None]) -> list[Trained]:
        """Train some of the cohort's members; `epoch_done` hears of members' epochs."""
        began, cohort, count = time.thread_time(), self.cohort, len(members)
        collector = self._collector(count)
        net, task, tables, draws, state, kept, space, _, _ = self._arguments(members, self._kept(collector))
        steps = cohort.steps_per_epoch
        has_schedule = any(member.schedule for member in members)
        epoch, block = 0, 1
        while epoch < cohort.epochs and (state.diverged < 0).any():
            block = min(block, cohort.epochs - epoch)
            if has_schedule:
                factors = [cohort.factors(member, epoch * steps, block * steps) for member in members]
                draws = draws._replace(factors=np.stack(factors))
            before = time.perf_counter()
            kernel.train(net, task, tables, draws, state, kept, space, epoch, block)
            took = time.perf_counter() - before
            epoch_done(block * count)
            epoch += block
            block = max(1, min(4 * block, int(block * _BLOCK_SECONDS / max(took, 1e-6))))
        epoch_done((cohort.epochs - epoch) * count)

        last = self.packing.unpack(torch.from_numpy(state.theta))
        ended = torch.isfinite(last).all(1).tolist()
        diverged = [first_bad_epoch(state.losses[i], ended[i]) for i in range(count)]
        laws: Sequence[Law | None] = [None] * count
        if collector is not None and None in diverged:
            collector.count = len(collector.places)
            collector.reorder(self.packing.place)
            laws = collector.laws()
        seconds = (time.thread_time() - began) / count
        return [
            Trained(
                last[i],
                laws[i] if diverged[i] is None else None,
                state.losses[i].tolist(),
                diverged[i],
                seconds,
                self.name,
            )
            for i in range(count)
        ]

    def rehearse(self) -> None:
        """One step of plain gradient descent on one batch, beside torch's: an error instead of a wrong figure.

        It covers what tests on other machines cannot: this processor, this compiler, this model.
        """
        cohort, member = self.cohort, self.cohort.members[0]
        examples = cohort.tables[member.table]
        few = cohort.batch_size
        weights = None if examples.weights is None else examples.weights[:few]
        own = Examples(examples.x[:few], examples.y[:few], weights)
        settings = dict.fromkeys(rules.SETTINGS, 0.0) | {"lr": 1.0}
        short = replace(
            cohort,
            optimiser="sgd",
            epochs=1,
            members=(replace(member, settings=settings, table=0, schedule=None),),
            tables=(own,),
            collection=None,
        )
        ours = NativeEngine(short, lambda _: None).train(short.members, lambda _: None)[0]
        theirs = torch_engine.TorchEngine(short, torch.device("cpu")).train(short.members, lambda _: None)[0]
        difference, gradient = (ours.last - theirs.last).norm(), (theirs.last - member.theta0).norm()
        if not torch.isfinite(gradient):
            return
        if not difference <= 1e-3 * gradient + 1e-5 * member.theta0.norm():
            raise RehearsalError(
                f"the native engine's first gradient is {float(difference / gradient):.1%} away from torch's for this "
                "model on this machine, which is a defect: please report it, and use engine='torch'"
            )

    def _arguments(self, members: Sequence[Member], kept: Kept) -> tuple:
        """What the kernel takes, for no epochs yet."""
        cohort, shape = self.cohort, self.packing
        draws, state = packing.draws(cohort, members), shape.state(members, cohort.epochs)
        space = shape.space(cohort.rows, cohort.batch_size, self.targets)
        return shape.net, self.task, self.tables, draws, state, kept, space, 0, 0

    def _collector(self, members: int) -> Iterates | None:
        collection = self.cohort.collection
        if collection is None:
            return None
        collector = collection.law.collector(torch.zeros(members, self.packing.size), collection.iterations)
        assert isinstance(collector, Iterates)
        return collector

    def _kept(self, collector: Iterates | None) -> Kept:
        """The collector's tensors, for the kernel to fill."""
        collection = self.cohort.collection
        if collector is None or collection is None:
            return packing.NOTHING_KEPT
        return Kept(
            collection.first,
            collection.every,
            collection.last,
            collector.mean.numpy(),
            collector.squares.numpy(),
            collector.points.numpy(),
            np.array(collector.places, dtype=np.int64),
        )
