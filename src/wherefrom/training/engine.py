"""Training by torch: a group of members as one tensor program, A_h applied to all of them at once.

    theta   (members, size)          one row a member: parameters, then buffers
    batch   (members, rows, ...)     every member its own rows, in its own order

The members' losses are summed and differentiated together: since no member's loss holds another's parameters, each
gets exactly the gradient that it would get alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.training import program, streams
from wherefrom.training.cohort import Cohort, Member, Trained
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.optimisers import OPTIMISERS

Step = Callable[[Tensor, Tensor, Tensor, list[Tensor]], tuple[Tensor, Tensor, Tensor]]
Steps = dict[int, Step]


def record_steps(cohort: Cohort, members: int, device: torch.device) -> Steps:
    """The training steps of a group of this size, by the number of rows: the last batch of an epoch may be short."""
    members = _with_twin(cohort, members)
    short = cohort.rows % cohort.batch_size
    sizes = {min(cohort.batch_size, cohort.rows), short or cohort.batch_size}
    return {rows: program.record(_step(cohort), _example(cohort, members, rows, device)) for rows in sizes}


def train(
    cohort: Cohort,
    members: Sequence[Member],
    steps: Steps,
    device: torch.device,
    epoch_done: Callable[[int], None],
) -> list[Trained]:
    """Train some of a cohort's members together, with the steps prepared for so many of them."""
    if _with_twin(cohort, len(members)) > len(members):
        return train(cohort, [members[0], members[0]], steps, device, lambda _: epoch_done(1))[:1]
    began = time.thread_time()
    network, layout, count = cohort.network, cohort.network.layout, len(members)
    theta = torch.stack([member.theta0 for member in members]).to(device)
    weights = theta[:, : layout.trained_size]
    optimiser = OPTIMISERS[cohort.optimiser]
    state = {name: torch.zeros_like(weights) for name in optimiser.buffers}
    settings = {
        name: torch.tensor([[member.settings[name]] for member in members], dtype=theta.dtype, device=device)
        for name in ("lr", *optimiser.defaults)
    }
    batches = Batches(cohort, members, device)
    masks = [
        TrainingMasks(site, _site_keys(members, i), cohort.batch_size, device, theta.dtype)
        for i, site in enumerate(network.sites)
    ]
    collection = cohort.collection
    collector = collection.law.collector(theta, collection.iterations) if collection else None
    losses = np.full((count, cohort.epochs), math.nan)

    done = 0
    for epoch in range(cohort.epochs):
        batches.shuffle(epoch)
        for mask in masks:
            mask.plan(done, cohort.steps_per_epoch)
        total = torch.zeros(count, dtype=theta.dtype, device=device)
        for index in range(cohort.steps_per_epoch):
            x, y = batches.get(index)
            rows = y.shape[1]
            given = [mask.drop(index)[:, :rows] for mask in masks]
            loss, gradient, buffers = steps[rows](theta, x, y, given)
            for mask in masks:
                mask.restore(index)
            done += 1
            optimiser.step(weights, gradient, state, settings, done)
            theta[:, layout.trained_size :] = buffers
            total += loss * rows
            if collection and collector and collection.includes(done):
                collector.collect(theta)
        losses[:, epoch] = (total / cohort.rows).cpu().numpy()
        epoch_done(count)
        if not np.isfinite(losses[:, epoch]).any():  # nobody is left to train
            for _ in range(epoch + 1, cohort.epochs):
                epoch_done(count)
            break
    ended = torch.isfinite(theta).all(1).tolist()
    diverged = [_first_bad_epoch(losses[i], ended[i]) for i in range(count)]
    finished = collector is not None and None in diverged
    laws = collector.laws() if collector is not None and finished else [None] * count
    seconds = (time.thread_time() - began) / count
    return [
        Trained(theta[i], laws[i] if diverged[i] is None else None, losses[i].tolist(), diverged[i], seconds)
        for i in range(count)
    ]


def _with_twin(cohort: Cohort, members: int) -> int:
    """A lone member trains beside a twin of itself: torch multiplies a batch of one by another routine, and the last
    bit would differ from that of the same member among others. Networks that always train alone need none."""
    return 2 if members == 1 and cohort.network.largest_group(cohort.batch_size) > 1 else members


def _first_bad_epoch(losses: np.ndarray, ended_well: bool) -> int | None:
    bad = np.flatnonzero(~np.isfinite(losses))
    return int(bad[0]) if len(bad) else None if ended_well else len(losses) - 1


def _step(cohort: Cohort) -> Step:
    """(theta, x, y, masks) -> each member's loss, its gradient, and its buffers after the step."""
    network = cohort.network.private()  # calling a module sets and unsets its parameters: not what threads can share
    layout = network.layout
    trained, sizes = layout.trained, layout.sizes

    def step(theta: Tensor, x: Tensor, y: Tensor, masks: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        tensors = layout.views(theta)
        names = list(tensors)
        weights = [tensors[name].detach().requires_grad_() for name in names[:trained]]
        moving = {name: tensors[name].clone() for name in names[trained:]}
        with torch.enable_grad():
            outputs = network.call_many(dict(zip(names, weights, strict=False)) | moving, x, masks, True)
            loss = cohort.loss(outputs, y)
            gradients = torch.autograd.grad(loss.sum(), weights, materialize_grads=True)
        flat = [g.reshape(len(x), size) for g, size in zip(gradients, sizes, strict=False)]
        buffers = [b.reshape(len(x), -1) for b in moving.values()] or [theta[:, :0]]
        return loss.detach(), torch.cat(flat, dim=1), torch.cat(buffers, dim=1)

    return step


def _example(cohort: Cohort, members: int, rows: int, device: torch.device) -> tuple[Any, ...]:
    """Tensors of the right shapes to record a step with."""
    x, y = cohort.tables[0]
    dtype = cohort.members[0].theta0.dtype
    theta = torch.stack([cohort.members[0].theta0] * members).to(device)
    masks = [
        TrainingMasks(site, np.zeros(members, dtype=np.uint64), cohort.batch_size, device, dtype).mask[:, :rows]
        for site in cohort.network.sites
    ]
    width, targets = x[0].numel(), y.shape[1]
    packed = torch.zeros(members * rows, width + targets, dtype=y.dtype, device=device)
    batch_x, batch_y = packed.split([width, targets], dim=1)
    batch_x = batch_x.to(x.dtype)
    shape = (members, rows)
    return theta, batch_x.unflatten(0, shape).unflatten(-1, x.shape[1:]), batch_y.unflatten(0, shape), masks


def _site_keys(members: Sequence[Member], site: int) -> np.ndarray:
    return np.array([streams.key(member.masks, "site", site) for member in members], dtype=np.uint64)


class Batches:
    """The rows of each step for a group of members: x and y side by side, gathered with one indexed copy."""

    def __init__(self, cohort: Cohort, members: Sequence[Member], device: torch.device) -> None:
        self.size, self.rows, self.members = cohort.batch_size, cohort.rows, len(members)
        tables = sorted({member.table for member in members})
        x = torch.cat([cohort.tables[t][0] for t in tables]).to(device)
        y = torch.cat([cohort.tables[t][1] for t in tables]).to(device)
        self.x_shape, self.width = x.shape[1:], x.shape[1:].numel()
        self.packed = torch.cat([x.flatten(1), y], dim=1) if x.dtype == y.dtype else None
        self.x, self.y = x, y
        # Members with the same stream share their order, so each is computed once.
        keys = [member.order for member in members]
        self.keys = np.array(sorted(set(keys)), dtype=np.uint64)
        places = {key: place for place, key in enumerate(self.keys.tolist())}
        self.place = np.array([places[key] for key in keys])
        offsets = [tables.index(member.table) * self.rows for member in members]
        self.offset = torch.tensor(offsets, device=device).unsqueeze(1)
        self.order = torch.empty(0)

    def shuffle(self, epoch: int) -> None:
        order = streams.permutations(self.keys, epoch, self.rows)[self.place]
        self.order = torch.from_numpy(order).to(self.offset.device) + self.offset  # (members, rows)

    def get(self, index: int) -> tuple[Tensor, Tensor]:
        """The index-th batch of the epoch.  # (members, rows, ...), (members, rows, targets)"""
        chosen = self.order[:, index * self.size : (index + 1) * self.size]
        rows, flat = chosen.shape[1], chosen.reshape(-1)
        if self.packed is None:
            x, y = self.x.index_select(0, flat), self.y.index_select(0, flat)
        else:
            x, y = self.packed.index_select(0, flat).split([self.width, self.y.shape[1]], dim=1)
        return x.unflatten(0, (self.members, rows)).unflatten(-1, self.x_shape), y.unflatten(0, (self.members, rows))
