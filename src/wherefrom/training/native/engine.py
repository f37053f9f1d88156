"""Cohorts of plain MLPs, trained by the kernel: members in, trained members out, in blocks of epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from wherefrom.laws import Filters, Iterates
from wherefrom.training import streams, torch_engine
from wherefrom.training.cohort import Cohort, Examples, Trained, Trainee, parts
from wherefrom.training.finishing import finished
from wherefrom.training.native import compiling, kernel, packing
from wherefrom.training.native.codes import IVON, LOSSES, OPTIMISERS, WITHOUT
from wherefrom.training.native.kernel import Kept, State, Task
from wherefrom.training.native.plain import PlainMLP
from wherefrom.training.probing import is_stack
from wherefrom.training.resumable import NOT_KEPT, Keeping, Resumable
from wherefrom.training.rules import Group, learned_variances

_CALL_SECONDS = 0.2  # of epochs in one call of the kernel: progress is shown, and interruptions are heard, in between
_GROUPS_FOR_EACH_THREAD = 4  # so that a thread whose core is taken away leaves work to the others
_GROUP_NUMBERS = 2**24  # held for one group while it trains: 64 MB
_REHEARSED: set[tuple] = set()  # networks of torch's own layers, with a loss and a number of rows, in this process


class RehearsalError(RuntimeError):
    """The kernel's gradient is not torch's."""


class NativeEngine:
    """Trains a cohort that `native.examine` has found a plain MLP in."""

    name = "native"

    def __init__(self, cohort: Cohort, mlp: PlainMLP, announce: Callable[[str], None]) -> None:
        self.cohort, self.mlp = cohort, mlp
        self.packing = packing.Packing.of(mlp, cohort.network.layout, cohort.batch_size)
        packing.check(cohort, mlp)
        self.tables = self.packing.tables(cohort, mlp.offset)
        self.targets = int(cohort.tables[0].y.shape[1])
        self.task = Task(
            OPTIMISERS[str(cohort.optimiser)],
            LOSSES[type(cohort.loss)],
            packing.numbers(cohort.loss),
            cohort.batch_size,
            cohort.steps_per_epoch,
            self.targets,
            self.packing.positions.numpy(),
        )
        compiling.ready(kernel.train, self._arguments(cohort.members[:1], self._kept(None)), announce)

    def groups(self, threads: int) -> list[range]:
        """More groups than threads, and none that needs much memory beside what training leaves."""
        count = len(self.cohort.members)
        busy = threads * _GROUPS_FOR_EACH_THREAD if threads > 1 else 1
        kept = self._kept(self._collector(1))
        kept_numbers = 2 * (2 * len(kept.mean) + kept.points.shape[1] + 4 * len(kept.last))  # of each weight
        largest = max(1, _GROUP_NUMBERS // ((3 + kept_numbers) * self.packing.size))
        return parts(count, min(count, max(busy, -(-count // largest))))

    def train(
        self, members: Sequence[Trainee], epoch_done: Callable[[int], None], keeping: Keeping = NOT_KEPT
    ) -> list[Trained]:
        """Train some of the cohort's members, one after another; `epoch_done` hears of epochs."""
        began, cohort, count = time.thread_time(), self.cohort, len(members)
        collector = self._collector(count)
        net, task, tables, draws, state, kept, space, *_ = self._arguments(members, self._kept(collector))
        training = Resumable({name: torch.from_numpy(rows) for name, rows in state._asdict().items()}, None, collector)
        epochs = keeping.begin(training)
        steps, block = cohort.steps_per_epoch, 1
        for k, member in enumerate(members):
            epoch, task = epochs[k], task._replace(numbers=packing.numbers(cohort.loss_of(member)))
            epoch_done(epoch)
            while epoch < cohort.epochs and state.diverged[k] < 0:
                block = min(block, cohort.epochs - epoch)
                factors = cohort.factors(member, epoch * steps, block * steps) if member.schedule else np.zeros(0)
                before = time.perf_counter()
                kernel.train(net, task, tables, draws._replace(factors=factors), state, kept, space, k, epoch, block)
                took = time.perf_counter() - before
                epoch += block
                epochs[k] = epoch
                keeping.reached()
                epoch_done(block)
                block = max(1, min(4 * block, int(block * _CALL_SECONDS / max(took, 1e-6))))
            epoch_done(cohort.epochs - epoch)

        last = self.packing.unpack(torch.from_numpy(state.theta))
        watched = None if collector is None else collector.filled(self.packing.positions)
        return finished(cohort, members, last, state.losses, watched, began, self.name, self._variances(members, state))

    def _variances(self, members: Sequence[Trainee], state: State) -> torch.Tensor | None:
        """Return the variance of every weight that the algorithm has learned, if it learns any."""
        if self.task.optimiser != IVON:
            return None
        group = Group(self.packing.unpack(torch.from_numpy(state.second)), [member.settings for member in members])
        count = group.column(self.cohort.rows / group["temperature"])
        return learned_variances(group.theta, group.column(group["weight_decay"]), count)

    def rehearse(self) -> None:
        """Raise if the kernel's gradient of one member differs from torch's.

        It covers what tests on other machines cannot: this processor, this compiler, this model. The weights are moved
        a little first, so that a head of zeros hides nothing, and torch's own rounding is the measure. A stack of
        torch's own layers is rehearsed once in a process, since searches train the same one many times.
        """
        is_known = is_stack(self.cohort.network.skeleton(training=True))
        for rows in self.cohort.batch_sizes:
            short = self._one_step(rows)
            key = (self.mlp, self.targets, rows, type(short.loss), short.tables[0].weights is None)
            if is_known and key in _REHEARSED:
                continue
            (member,) = short.members
            ours = NativeEngine(short, self.mlp, lambda _: None).train(short.members, lambda _: None)[0]
            single = torch_engine.gradient(short, torch.float32)
            try:
                double = torch_engine.gradient(short, torch.float64)
            except RuntimeError:  # a model that casts its inputs to single precision
                double = single
            ours_gradient = (member.theta0 - ours.last).double()  # by gradient descent with a rate of one
            allowed = 1e-3 * double.norm() + 20 * (single - double).norm() + 1e-6 * member.theta0.norm()
            if single.isfinite().all() and not (ours_gradient - double).norm() <= allowed:
                away = float((ours_gradient - double).norm() / double.norm())
                raise RehearsalError(
                    f"its gradient is {away:.1%} away from torch's. Either the model is no plain MLP although it looks "
                    "like one, or this is a defect: please report it"
                )
            if is_known:
                _REHEARSED.add(key)

    def _one_step(self, rows: int) -> Cohort:
        """Return a cohort of one step of the first member on its first rows, from weights near its own."""
        cohort, member = self.cohort, self.cohort.members[0]
        x, y, weights = cohort.tables[member.table]
        some = Examples(x[:rows], y[:rows], None if weights is None else weights[:rows])
        generator = streams.torch_generator(0, "rehearsal")
        noise = torch.randn(member.theta0.shape, generator=generator, dtype=member.theta0.dtype)
        settings = WITHOUT | {"lr": 1.0}
        moved = member.theta0 + 0.05 * noise
        return replace(
            cohort,
            optimiser="sgd",
            batch_size=rows,
            epochs=1,
            loss=cohort.loss_of(member),
            members=(replace(member, loss=None, theta0=moved, settings=settings, table=0, schedule=None),),
            tables=(some,),
            collection=None,
        )

    def _arguments(self, members: Sequence[Trainee], kept: Kept) -> tuple:
        """Return the kernel's arguments, for no epochs yet."""
        cohort, shape = self.cohort, self.packing
        draws, state = packing.draws(cohort, members), shape.state(members, cohort.epochs)
        space = shape.space(cohort.rows, cohort.batch_size, self.targets)
        return shape.net, self.task, self.tables, draws, state, kept, space, 0, 0, 0

    def _collector(self, members: int) -> Iterates | Filters | None:
        collection = self.cohort.collection
        if collection is None:
            return None
        theta = torch.zeros(members, self.packing.size, dtype=torch.float32)
        collector = collection.collector(theta)
        assert collector is None or isinstance(collector, Iterates | Filters)
        return collector

    def _kept(self, collector: Iterates | Filters | None) -> Kept:
        """Return the collector's tensors, for the kernel to fill."""
        collection = self.cohort.collection
        if collector is None or collection is None:
            return packing.NOTHING_KEPT
        steps = np.array(collection.steps, dtype=np.int64)
        if isinstance(collector, Filters):
            return packing.NOTHING_KEPT._replace(
                steps=steps,
                points_of=np.full(len(steps), -1),
                gains=np.array(collector.gains(len(steps)), dtype=np.float32),
                last=collector.last.numpy(),
                deviation=collector.deviation.numpy(),
                drift=collector.drift.numpy(),
                variance=collector.variance.numpy(),
            )
        return Kept(
            steps,
            collector.mean.numpy(),
            collector.squares.numpy(),
            collector.points.numpy(),
            np.array(collector.points_of, dtype=np.int64),
            *packing.NO_FILTERS,
        )
