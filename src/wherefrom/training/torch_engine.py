"""Training by torch: a group of members as one tensor program, A_h applied to all of them at once.

    theta   (members, size)          one row a member: parameters, then buffers
    batch   (members, rows, ...)     every member its own rows, in its own order

The members' losses are summed and differentiated together: since no member's loss holds another's parameters, each
gets the gradient that it would get alone, up to rounding: torch multiplies groups of other sizes by other routines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.devices import can_pin, fits, free_bytes, sent
from wherefrom.training import device_streams, graphs, program, streams
from wherefrom.training.augmentation import augmented, drawn_ahead, draws_first, not_finite, seen
from wherefrom.training.cohort import Cohort, SharedRows, Trained, Trainee, orders, parts
from wherefrom.training.data_parallel import Share, shared_step
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.finishing import finished
from wherefrom.training.losses import together
from wherefrom.training.memory import Need, most_on_device
from wherefrom.training.network import channels_last
from wherefrom.training.optimisers import OPTIMISERS, clipping
from wherefrom.training.planning import InBlocks
from wherefrom.training.precision import tolerance
from wherefrom.training.program import Program
from wherefrom.training.resumable import NOT_KEPT, Keeping, Resumable
from wherefrom.training.rules import Group, Rule
from wherefrom.training.streamed import Streamed
from wherefrom.training.torch_classes import OneByOne, TorchOptimiser

Step = Callable[[Tensor, Tensor, Tensor, list[Tensor], list[Tensor], Tensor], tuple[Tensor, Tensor]]

_COPIED_NUMBERS = 2**22  # in all draws of a table, 16 MB in single precision: more are not copied
_PLANNED_STEPS = 256  # for which the optimiser's numbers, and those of augmentations, are computed at a time
_NEVER = 2**62  # a step that no training reaches


class TorchEngine:
    """Trains a cohort of any network on any device."""

    name = "torch"

    def __init__(self, cohort: Cohort, device: torch.device, share: Share | None = None) -> None:
        self.cohort, self.device, self.share = cohort, device, share

    def groups(self, threads: int) -> list[range]:
        """Even groups, small enough for the processor's cache; if there are several, enough to keep all threads busy.

        A group that fits the cache is not worth dividing: its operations are short, and issuing them takes the time. On
        a device, groups are as large as its free memory allows.
        """
        count = len(self.cohort.members)
        number = -(-count // self._most_together())
        return parts(count, min(-(-number // threads) * threads, count) if number > 1 else 1)

    def _most_together(self) -> int:
        """Return how many members to train as one group."""
        network, batch_size = self.cohort.network, self.cohort.batch_size
        free = free_bytes(self.device)
        if free is None or network.trains_alone(batch_size):
            return network.largest_group(batch_size)
        return most_on_device(Need.of(self.cohort), free)

    @graphs.running()
    def train(
        self, members: Sequence[Trainee], epoch_done: Callable[[int], None], keeping: Keeping = NOT_KEPT
    ) -> list[Trained]:
        """Train some of the cohort's members together; `epoch_done` hears of every epoch, with how many trained."""
        cohort, device = self.cohort, self.device
        began = time.thread_time()
        network, layout, count = cohort.network, cohort.network.layout, len(members)
        theta = torch.stack([member.theta0 for member in members]).to(device)
        weights, varying = theta[:, : layout.trained_size], theta[:, : layout.varying_size]
        keys = [streams.key(member.order, "noise") for member in members]
        group = Group(weights, [member.settings for member in members], keys, cohort.rows)
        rule, clip = _rule(cohort, members, group), clipping(group)
        shake: Callable[..., None] | None = getattr(rule, "shake", None)
        batches = Batches(cohort, members, device)
        masks = [
            TrainingMasks(
                site,
                [cohort.rates(member)[i] for member in members],
                _site_keys(members, i),
                cohort.batch_size,
                device,
                theta.dtype,
            )
            for i, site in enumerate(network.sites)
        ]
        step, record = _step(cohort, members, theta), program.record
        if self.share is not None:  # what goes from process to process is no operation on memory alone
            step, record = shared_step(cohort, members[0], theta, self.share), program.called
        steps: dict[int, graphs.Step] = {}  # by the number of rows: the last batch of an epoch may be short
        collection = cohort.collection
        collector = collection.collector(varying) if collection else None
        losses = np.full((count, cohort.epochs), math.nan)
        gradient, total = torch.empty_like(weights), torch.zeros(count, dtype=theta.dtype, device=device)

        def advancing(program: Program, rows: int) -> graphs.Step:
            """Return what takes a step of all members, on memory that stays the same."""

            def advance(planned: Sequence[Any]) -> None:
                if shake is not None:
                    shake(*planned)
                loss, buffers = program()
                if clip is not None:
                    clip(gradient)
                rule.step(gradient, *planned)
                varying[:, layout.trained_size :] = buffers
                total.add_(loss * rows)

            if self.share is not None or isinstance(
                rule, OneByOne
            ):  # it goes to other processes, or its step is Python
                return advance
            state = [theta, total, *(each for name in rule.state if isinstance(each := getattr(rule, name), Tensor))]
            times = (cohort.epochs - first) * (1 if rows < cohort.batch_size else cohort.rows // cohort.batch_size)
            return graphs.captured(advance, device, times, state, tolerance(device, cohort.autocast or theta.dtype))

        training = Resumable({"theta": theta, "losses": torch.from_numpy(losses)}, rule, collector)
        first = keeping.begin(training)[0]
        if self.share is not None:
            self.share.check_same(first, device)
        done = first * cohort.steps_per_epoch
        for _ in range(first):
            epoch_done(count)
        plans = _plans(cohort, members, rule, done)
        for epoch in range(first, cohort.epochs):
            batches.shuffle(epoch)
            total.zero_()
            for index in range(cohort.steps_per_epoch):
                keeping.between_steps()
                x, y, *row_weights = batches.get(index)
                rows = y.shape[1]
                for mask in masks:
                    mask.drop(done)
                if rows not in steps:
                    short = [mask.mask[:, :rows] for mask in masks]
                    flipped = x.flip(1), y.flip(1), [w.flip(1) for w in row_weights]
                    recorded = record(
                        step,
                        (theta, x, y, row_weights, short, gradient),
                        (theta, *flipped, short, gradient),
                        cohort.autocast,
                    )
                    steps[rows] = advancing(recorded, rows)
                steps[rows](next(plans))
                for mask in masks:
                    mask.restore()
                done += 1
                if collection and collector and collection.includes(done):
                    collector.collect(varying)
            losses[:, epoch] = (total / cohort.rows_per_epoch).cpu().numpy()  # the host waits for the device here
            batches.check()
            training.epochs[:] = [epoch + 1] * count
            keeping.reached()
            epoch_done(count)
            if not np.isfinite(losses[:, epoch]).any():  # nobody is left to train
                for _ in range(epoch + 1, cohort.epochs):
                    epoch_done(count)
                break
        variances = rule.variances() if hasattr(rule, "variances") else None
        return finished(cohort, members, theta, losses, collector, began, self.name, variances)


def _rule(cohort: Cohort, members: Sequence[Trainee], group: Group) -> Rule:
    if isinstance(cohort.optimiser, TorchOptimiser):
        orders = [member.order for member in members]
        return OneByOne(cohort.optimiser, cohort.network.layout, group.theta, group.settings, orders)
    return OPTIMISERS[cohort.optimiser].rule(group)


def _plans(cohort: Cohort, members: Sequence[Trainee], rule: Rule, done: int) -> Iterator[Sequence[Any]]:
    """Yield the arguments of each of the rule's steps after some, by the members' schedules of the learning rate."""
    lr = np.array([[member.settings["lr"]] for member in members], dtype=np.float64)
    total = cohort.epochs * cohort.steps_per_epoch
    for first in range(done, total, _PLANNED_STEPS):
        steps = min(_PLANNED_STEPS, total - first)
        factors = np.stack([cohort.factors(member, first, steps) for member in members])
        yield from rule.plan(lr * factors, np.arange(first + 1, first + steps + 1, dtype=np.float64))


def _step(cohort: Cohort, members: Sequence[Trainee], like: Tensor) -> Step:
    """Return (theta, x, y, row weights, masks, gradient) -> each member's loss, and its buffers after the step.

    The gradient is written into the memory that is given for it.
    """
    network = cohort.network.private("training")
    layout = network.layout
    trained, sizes = layout.trained, layout.sizes
    loss_of = together([cohort.loss_of(member) for member in members], like)

    def step(
        theta: Tensor, x: Tensor, y: Tensor, row_weights: list[Tensor], masks: list[Tensor], gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        tensors = layout.views(theta[0] if len(theta) == 1 else theta)  # one alone needs no vmap: any forward will do
        names = list(tensors)
        weights = [tensors[name].detach().requires_grad_() for name in names[:trained]]
        moving = {name: tensors[name].clone() for name in names[trained : trained + layout.moving]}
        with torch.enable_grad():
            tensors = tensors | dict(zip(names, weights, strict=False)) | moving
            with torch.autocast(theta.device.type, cohort.autocast, cohort.autocast is not None, cache_enabled=False):
                if len(theta) == 1:
                    outputs = network.call(tensors, x[0], [mask[0] for mask in masks], True).unsqueeze(0)
                else:
                    outputs = network.call_many(tensors, x, masks, True)
                loss = loss_of(outputs.to(theta.dtype), y, row_weights[0].squeeze(-1) if row_weights else None)
            gradients = torch.autograd.grad(loss.sum(), weights, materialize_grads=True)
        torch.cat([g.reshape(len(x), size) for g, size in zip(gradients, sizes, strict=False)], dim=1, out=gradient)
        buffers = [b.reshape(len(x), -1) for b in moving.values()] or [theta[:, :0]]
        return loss.detach(), torch.cat(buffers, dim=1)

    return step


def gradient(cohort: Cohort, dtype: torch.dtype) -> Tensor:
    """Return the first member's gradient on all of its rows, with the masks of the first step, in double precision."""
    member = cohort.members[0]
    examples = cohort.tables[member.table]
    order = orders(np.array([member.order], dtype=np.uint64), np.array([member.replacement]), 0, cohort.rows)[0]
    x, y, *weights = (part[torch.from_numpy(order)].to(dtype).unsqueeze(0) for part in examples if part is not None)
    masks = [
        TrainingMasks(site, [rate], _site_keys([member], i), cohort.batch_size, torch.device("cpu"), dtype).drop(0)
        for i, (site, rate) in enumerate(zip(cohort.network.sites, cohort.rates(member), strict=True))
    ]
    theta = member.theta0.to(dtype).unsqueeze(0)
    slopes = theta.new_empty(1, cohort.network.layout.trained_size)
    _step(cohort, [member], theta)(theta, x, y, [w.unsqueeze(-1) for w in weights], masks, slopes)
    return slopes[0].double()


def _site_keys(members: Sequence[Trainee], site: int) -> np.ndarray:
    return np.array([streams.key(member.masks, "site", site) for member in members], dtype=np.uint64)


class Batches:
    """The rows of each step for a group of members, gathered or read, and augmented, into memory that stays the same.

    A table's inputs, targets and weights stand side by side and are gathered as one. Rows, orders and the numbers that
    augmentations draw are on the device, if the rows fit there: then a step copies nothing. Other rows are gathered in
    pinned main memory, and sent while the device still computes the step before.
    """

    def __init__(self, cohort: Cohort, members: Sequence[Trainee], device: torch.device) -> None:
        self.size, self.rows, self.members, self.augment = cohort.batch_size, cohort.rows, members, cohort.augment
        self.rows_per_epoch, self.steps_per_epoch = cohort.rows_per_epoch, cohort.steps_per_epoch
        self.epoch, self.device = 0, device
        self.channels_last = len(members) == 1 and cohort.network.convolves
        tables = sorted({member.table for member in members})
        used = [cohort.tables[t] for t in tables]
        self.table = [tables.index(member.table) for member in members]
        self.streamed: list[Any] = [t.x for t in used if isinstance(t.x, Streamed)]
        inputs, numbers_in_inputs = _shared([t.x for t in used])
        columns = [] if self.streamed else [inputs]
        columns.append(_joined([t.y for t in used]))
        if any(t.weights is not None for t in used):
            ones = columns[-1].new_ones(self.rows)
            columns.append(torch.cat([ones if t.weights is None else t.weights for t in used]).unsqueeze(1))
        self.shapes = [column.shape[1:] for column in columns]
        is_flat = columns[0].ndim == 2 and len({column.dtype for column in columns}) == 1
        together = is_flat and numbers_in_inputs is None
        flat = [column.flatten(1) for column in columns]
        flat = [torch.cat(flat, dim=1)] if together else flat  # side by side if they can be
        fit = not self.streamed and fits(sum(column.nbytes for column in flat), device)
        self.home = device if fit else torch.device("cpu")  # where rows and orders are
        self.columns = [column.to(self.home) for column in flat]
        self.shared = None if numbers_in_inputs is None else numbers_in_inputs[self.table].to(self.home)  # by member
        self.memory: dict[int, list[Tensor]] = {}  # what is gathered, by the number of rows
        self.seen: dict[int, Tensor] = {}  # what is made of the inputs, where that is something else
        # Members with the same stream share their order, so each is computed once.
        keys = [(member.order, member.replacement) for member in members]
        numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
        self.order_of = _orders(
            np.array([order for order, _ in numbers], dtype=np.uint64),
            np.array([replacement for _, replacement in numbers]),
            self.rows,
            self.home,
        )
        self.number = torch.tensor([numbers[key] for key in keys], device=self.home)  # of each member's order
        self.offset = torch.tensor([table * self.rows for table in self.table], device=self.home).unsqueeze(1)
        self.order = self.shared_order = torch.empty(0)
        self.drawn: InBlocks[dict[int, Any]] | None = None  # what augmentations draw, by their streams
        if self.augment is not None and device_streams.is_used(device) and draws_first(self.augment):
            row_shape = self.streamed[0].shape[1:] if self.streamed else self.shapes[0]
            self.drawn = InBlocks(partial(self._draw_ahead, row_shape), _PLANNED_STEPS)
        self.first_bad = torch.full((), _NEVER, device=device)  # step of which an augmentation is not finite

    def shuffle(self, epoch: int) -> None:
        chosen = self.order_of(epoch).index_select(0, self.number)  # (members, rows)
        self.epoch, self.order = epoch, chosen + self.offset
        if self.shared is not None:
            self.shared_order = self.shared.gather(1, chosen)

    def get(self, index: int) -> list[Tensor]:
        """Return the index-th batch of the epoch: x, y and, if rows have them, weights.  # each (members, rows, ...)"""
        chosen = self.order[:, index * self.size : (index + 1) * self.size]
        rows, flat = chosen.shape[1], chosen.reshape(-1)
        if rows not in self.memory:
            self.memory[rows] = [c.new_empty(len(flat), c.shape[1], device=self.device) for c in self.columns]
        orders = [flat] * len(self.columns)
        if self.shared is not None:
            orders[0] = self.shared_order[:, index * self.size : (index + 1) * self.size].reshape(-1)
        for columns, order, memory in zip(self.columns, orders, self.memory[rows], strict=True):
            if columns.device == memory.device:
                torch.index_select(columns, 0, order, out=memory)
            else:
                pinned = torch.empty_like(memory, device=columns.device, pin_memory=can_pin(self.device))
                memory.copy_(torch.index_select(columns, 0, order, out=pinned), non_blocking=True)
        widths = [shape.numel() for shape in self.shapes]
        parts = self.memory[rows] if len(self.columns) > 1 else self.memory[rows][0].split(widths, dim=1)
        batch = [
            part.unflatten(0, (len(self.members), rows)).unflatten(-1, shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]
        step = self.epoch * self.steps_per_epoch + index
        if self.streamed:
            return [self._seen(self._read(chosen - self.offset, step), rows, step), *batch]
        if self.augment is not None or self.channels_last:
            batch[0] = self._seen(lambda k: batch[0][k], rows, step)
        return batch

    def check(self) -> None:
        """Raise if an augmentation on a device has made numbers that are not finite; the host waits for the answer."""
        if self.augment is not None and self.device.type != "cpu" and (bad := int(self.first_bad)) != _NEVER:
            raise not_finite(self.augment, bad)

    def _read(self, chosen: Tensor, step: int) -> Callable[[int], Tensor]:
        return lambda k: self.streamed[self.table[k]][chosen[k]].read(self.members[k].augmentation, step)

    def _seen(self, given: Callable[[int], Tensor], rows: int, step: int) -> Tensor:
        """Return the inputs as the members see them: augmented, and in the order of memory that suits the network.

        For members that share rows, order and augmentation they are made once.
        """
        made: dict[tuple[Any, ...], Tensor] = {}
        for k, member in enumerate(self.members):
            key = (member.table, member.order, member.replacement, member.augmentation)
            if key not in made:
                x = given(k)
                x = x if x.device == self.device else sent(x, self.device)
                made[key] = x if self.augment is None else self._augmented(x, member.augmentation, step)
            if rows not in self.seen:
                memory = made[key].new_empty(len(self.members), *made[key].shape)
                self.seen[rows] = channels_last(memory) if self.channels_last else memory
            self.seen[rows][k].copy_(made[key])
        return self.seen[rows]

    def _augmented(self, x: Tensor, stream: int, step: int) -> Tensor:
        """Return a batch as a member sees it; on a device, whether it is finite is asked at the end of the epoch."""
        assert self.augment is not None
        if self.device.type == "cpu":
            return augmented(self.augment, x, stream, step)
        result = seen(self.augment, x, stream, step, None if self.drawn is None else self.drawn(step)[stream])
        bad = torch.where(torch.isfinite(result).all(), _NEVER, step)
        torch.minimum(self.first_bad, bad, out=self.first_bad)
        return result

    def _draw_ahead(self, row_shape: torch.Size, first: int, steps: int) -> list[dict[int, Any]]:
        """Return what augmentations draw at some steps, by their streams."""
        streams = sorted({member.augmentation for member in self.members})
        batches = []
        for step in range(first, first + steps):
            start = step % self.steps_per_epoch * self.size
            shape = torch.Size([min(self.size, self.rows_per_epoch - start), *row_shape])
            batches += [(stream, step, shape) for stream in streams]
        drawn = iter(drawn_ahead(self.augment, batches, self.device))
        return [{stream: next(drawn) for stream in streams} for _ in range(steps)]


def _orders(keys: np.ndarray, replacement: np.ndarray, rows: int, device: torch.device) -> Callable[[int], Tensor]:
    """Return the order of the rows in an epoch, for each stream, computed on the device.  # (keys, rows)"""
    if not device_streams.is_used(device):
        return lambda epoch: torch.from_numpy(orders(keys, replacement, epoch, rows)).to(device)
    there = device_streams.as_keys(keys, device)
    return lambda epoch: device_streams.orders(there, replacement, epoch, rows)


def _shared(inputs: list[Any]) -> tuple[Any, Tensor | None]:
    """Return the inputs of all tables, and the numbers of each table's rows in them where tables share rows.

    Small ones are copied: inputs and targets that are side by side are gathered faster.  # (tables, rows)
    """
    if not any(isinstance(x, SharedRows) for x in inputs):
        return (None if isinstance(inputs[0], Streamed) else _joined(inputs)), None
    if sum(x.shape.numel() for x in inputs) <= _COPIED_NUMBERS:
        return _joined([x[:] for x in inputs]), None
    wholes = {id(whole): whole for x in inputs for whole in [x.whole if isinstance(x, SharedRows) else x]}
    first = dict(zip(wholes, np.cumsum([0, *map(len, wholes.values())]).tolist(), strict=False))
    numbers = [
        x.rows + first[id(x.whole)] if isinstance(x, SharedRows) else torch.arange(len(x)) + first[id(x)]
        for x in inputs
    ]
    return _joined(list(wholes.values())), torch.stack(numbers)


def _joined(tables: list[Tensor]) -> Tensor:
    return tables[0] if len(tables) == 1 else torch.cat(tables)
