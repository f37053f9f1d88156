"""Batch normalisation under sampled weights: the running statistics belong to theta, and so must follow it.

A sample of theta sees other activations than the trajectory did; with the trajectory's statistics its answers are
wrong. For every sample the statistics are therefore estimated anew on the training rows, as the average over batches
(torch.optim.swa_utils.update_bn), and cached for other rows, parts of the posterior and more samples. A law says by
`carries_statistics` that its samples have their own.
In training mode a layer moves its buffers by `buffer <- (1 - momentum) buffer + momentum statistic`; started from zero,
they show the statistic itself.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wherefrom.laws import Law
from wherefrom.training import streams
from wherefrom.training.augmentation import augmented
from wherefrom.training.cohort import Augmentation
from wherefrom.training.data import Scaler
from wherefrom.training.network import Network
from wherefrom.training.probing import Site
from wherefrom.training.streamed import Streamed

_FEWEST_ROWS = 512  # of a batch, if there are as many
_CALL_NUMBERS = 2**22  # activations of one call: 16 MB in single precision
_MOST_BYTES = 2**26  # of statistics that are remembered


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows that statistics are estimated on: those trained on, as a network sees them in training.

    They come shuffled, and augmented where training was, and units are dropped, in one and the same way for all
    samples.
    """

    x: Any  # anything with rows that can be asked for by a tensor of their numbers
    scaler: Scaler
    dtype: torch.dtype
    device: torch.device
    augment: Augmentation | None
    seed: int
    front: Network | None = None  # whose features the network takes in place of rows

    def batches(self, most: int) -> Iterator[Tensor]:
        """Yield all rows in even batches, none of which is a single row unless there is no other."""
        count, stream = len(self.x), streams.key(self.seed, "batch norm")
        order = torch.from_numpy(streams.permutations(np.array([stream], dtype=np.uint64), 0, count)[0])
        for number, chosen in enumerate(order.tensor_split(-(-count // max(2, most)))):
            rows = self.x[chosen]
            rows = rows.read(stream, number) if isinstance(rows, Streamed) else rows
            batch = self.scaler.x(rows, self.dtype).to(self.device)
            batch = batch if self.augment is None else augmented(self.augment, batch, stream, number)
            yield batch if self.front is None else self.front.features(batch).to(batch.device)


class Sampled(NamedTuple):
    """Origin of a theta: the mean of a law, one of its points, or its sample of a number and a seed."""

    law: Law
    seed: int | None = None  # None for the mean and for points
    number: int = -1  # -1 for the mean


Refresh = Callable[[Network, Tensor, Sequence[Sampled]], Tensor]
Key = tuple[int, int, int | None, int]  # numbers of the causes and of the law, seed, and number of the sample


class Statistics:
    """Cached statistics of samples, by what was sampled. The oldest are dropped when they take too much memory."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes, self.bytes = most_bytes, 0
        self._cached: OrderedDict[Key, Tensor] = OrderedDict()
        self._causes: list[tuple[Any, ...]] = []
        self._laws: dict[int, tuple[Any, int]] = {}  # by their address, for as long as they live
        self._law_count = 0
        self._lock = threading.Lock()

    def number(self, *causes: Any) -> int:
        """Return a number for these very objects, on which the statistics of a theta depend."""
        with self._lock:
            for number, others in enumerate(self._causes):
                if all(one is other for one, other in zip(others, causes, strict=True)):
                    return number
            self._causes.append(causes)
            return len(self._causes) - 1

    def key(self, causes: int, sampled: Sampled) -> Key:
        """Return the key of a theta, where the statistics depend on the causes of that number beside it."""
        law = sampled.law
        with self._lock:
            if id(law) not in self._laws:
                self._law_count += 1
                self._laws[id(law)] = self._reference(law), self._law_count
            return causes, self._laws[id(law)][1], sampled.seed, sampled.number

    def _reference(self, law: Law) -> Any:
        """Return what tells when a law has gone and its address may be another one's; the law, if nothing can."""
        address, laws = id(law), self._laws
        try:
            return weakref.ref(law, lambda _: laws.pop(address, None))
        except TypeError:
            return law

    def find(self, key: Key) -> Tensor | None:
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
            return self._cached.get(key)

    def keep(self, key: Key, statistics: Tensor) -> None:
        with self._lock:
            if key not in self._cached:
                self._cached[key] = statistics
                self.bytes += statistics.nbytes
            while self.bytes > self.most_bytes:
                self.bytes -= self._cached.popitem(last=False)[1].nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return Statistics, (self.most_bytes,)  # a copy begins anew


def refresh(
    network: Network, theta: Tensor, sampled: Sequence[Sampled], rows: TrainingRows, cache: Statistics, number: int
) -> Tensor:
    """Return samples with their running statistics estimated on the rows.  # (samples, size) -> (samples, size)

    `sampled` says of which laws they are, and `cache` has the statistics of earlier samples, under the number of all
    that they depend on beside theta.
    """
    keys = [cache.key(number, each) for each in sampled]
    by_key = {key: statistics for key in keys if (statistics := cache.find(key)) is not None}
    missing = {key: sample for key, sample in zip(keys, theta, strict=True) if key not in by_key}
    if missing:
        new = _estimated(network, list(missing.values()), rows)
        for key, statistics in zip(missing, new, strict=True):
            by_key[key] = statistics
            cache.keep(key, statistics)
    fresh = theta.clone(memory_format=torch.contiguous_format)
    views = network.layout.views(fresh)
    sizes = [views[name][0].numel() for name in network.momenta]
    together = torch.stack([by_key[key] for key in keys]).split(sizes, dim=1)
    for name, statistics in zip(network.momenta, together, strict=True):
        views[name].copy_(statistics.view_as(views[name]))
    return fresh


def moved_statistics(
    network: Network, centre: Tensor, law: Law, directions: Tensor, refresh: Refresh | None, first: int = 0
) -> Tensor:
    """Return directions of theta with what they do to running statistics: half of their difference between centre + d
    and centre - d, or nothing where statistics stay.  # (directions, size)

    first: number of the first theta under which its statistics are cached, beside the law's own (default: 0).
    """
    layout, trained = network.layout, network.layout.trained_size
    directions = torch.cat([directions[:, :trained], torch.zeros_like(directions[:, trained:])], dim=1)
    if refresh is None:
        return directions
    for k, direction in enumerate(directions):  # one at a time: theta may be large
        either = torch.stack([centre + direction, centre - direction])
        numbers = (first + 2 * k, first + 2 * k + 1)
        above, below = refresh(network, either, [Sampled(law, number=number) for number in numbers])
        moved, views = layout.views((above - below) / 2), layout.views(direction)
        for name in network.momenta:
            views[name].copy_(moved[name])
    return directions


def _estimated(network: Network, thetas: list[Tensor], rows: TrainingRows) -> list[Tensor]:
    """Return each sample's statistics side by side, in the order of `network.momenta`.

    One sample at a time: torch rounds differently in groups of different sizes, and who asks together is chance.
    """
    each = [network.layout.views(theta) for theta in thetas]
    totals = [{name: torch.zeros_like(tensors[name]) for name in network.momenta} for tensors in each]
    counted = 0
    generator = streams.torch_generator(rows.seed, "batch norm", "masks")
    for batch in rows.batches(max(_FEWEST_ROWS, _CALL_NUMBERS // max(1, network.numbers_per_row))):
        masks = [_mask(site, len(batch), generator).to(batch) for site in network.sites]
        for tensors, total in zip(each, totals, strict=True):
            moved = {name: torch.zeros_like(tensors[name]) for name in network.momenta}
            network.call(tensors | moved, batch, masks, True)
            for name, momentum in network.momenta.items():
                total[name] += moved[name] * (len(batch) / momentum)
        counted += len(batch)
    return [torch.cat([value.reshape(-1) / counted for value in total.values()]) for total in totals]


def _mask(site: Site, rows: int, generator: torch.Generator) -> Tensor:
    """Draw a mask of dropout, as in training.  # (rows, *site shape)"""
    shape = (1 if site.weight else rows, *site.shape)
    return (torch.rand(shape, generator=generator, dtype=torch.float64) >= site.rate) * site.scale
