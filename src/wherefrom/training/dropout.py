"""Which units a training step drops.

At low rates, asking every unit would cost more than the training step itself. So for a rate p below SPARSE, a Poisson
number of cells with mean n * -ln(1 - p) is drawn, and that many cells, with replacement, are set to zero: a cell
survives with probability exp(ln(1 - p)) = 1 - p, independently of all others, so the mask is exactly ordinary
dropout's, for about n p random numbers instead of n. From SPARSE on every unit is asked, two with each 64-bit number.

The numbers are addressed by (stream, step, index) as `streams` has it, so a step's mask can be computed alone, by any
engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.training import streams
from wherefrom.training.network import Site

SPARSE = 0.1
_PLANNED_CELLS = 2**18
_PLANNED_STEPS = 2**12
_FIRST_STEPS = 2**5


class TrainingMasks:
    """The masks of one dropout site for a group of members, step after step."""

    def __init__(
        self,
        site: Site,
        rates: Sequence[float],
        keys: NDArray[np.uint64],
        batch_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        batch_size = 1 if site.weight else batch_size
        self.site, self.device, self.batch_size = site, device, batch_size
        self.cells = batch_size * site.cells  # of a full batch; a short one uses the first of its rows
        self.scale = torch.tensor([1.0 / (1.0 - rate) for rate in rates], device=device, dtype=dtype)
        shape = (*site.shape, batch_size) if site.unit_by_unit else (batch_size, *site.shape)
        self.memory = self.scale.reshape(-1, *(1 for _ in shape)).expand(-1, *shape).clone()
        self.mask = self.memory.movedim(-1, 1) if site.unit_by_unit else self.memory  # (members, batch, *site shape)

        is_sparse = np.array([rate < SPARSE for rate in rates])
        self.dense = np.flatnonzero(~is_sparse)
        self.dense_keys = keys[self.dense]
        self.thresholds = thresholds(np.array(rates)[self.dense])
        self.sparse = np.flatnonzero(is_sparse)
        self.sparse_keys = keys[self.sparse]
        means = [self.cells * -math.log1p(-rate) for rate in rates if rate < SPARSE]
        distinct = {mean: poisson_cumulative(mean) for mean in means}
        self.cumulative = [distinct[mean] for mean in means]
        # Steps that are planned at a time: about so many cells, and where hardly any are dropped, so many steps. It
        # begins with fewer and doubles them, since a short training has no use for many.
        self.most = min(max(1, int(_PLANNED_CELLS / max(sum(means), 1.0))), _PLANNED_STEPS)
        self.block = min(_FIRST_STEPS, self.most)
        self.planned: dict[int, Tensor] = {}
        self.dropped = torch.empty(0, dtype=torch.int64, device=device)

    def drop(self, step: int) -> Tensor:
        """The mask of a step.  # (members, batch, *site shape)"""
        if len(self.sparse):
            if step not in self.planned:
                cells = dropped_cells(self.sparse_keys, self.cumulative, self.cells, step, self.block)
                self.planned = {step + k: self._positions(some) for k, some in enumerate(cells)}
                self.block = min(2 * self.block, self.most)
            self.dropped = self.planned.pop(step)
            self.memory.view(-1).index_fill_(0, self.dropped, 0.0)
        if len(self.dense):
            kept = surviving(self.dense_keys, self.thresholds, self.batch_size, self.site.cells, step)
            mask = torch.from_numpy(kept).to(self.device).reshape(-1, *self.mask.shape[1:])
            chosen = slice(None) if not len(self.sparse) else torch.from_numpy(self.dense).to(self.device)
            self.mask[chosen] = mask * self.scale[chosen].reshape(-1, *(1 for _ in self.mask.shape[1:]))
        return self.mask

    def restore(self) -> None:
        """Undo the last drop of cells; masks of which every cell is asked are written anew in any case."""
        scale = self.scale[self.dropped // self.cells]
        self.memory.view(-1).index_copy_(0, self.dropped, scale)

    def _positions(self, cells: NDArray[np.int64]) -> Tensor:
        member, cell = np.divmod(cells, self.cells)
        if not self.site.unit_by_unit:  # all units of a row lie together
            unit, row = np.divmod(cell, self.batch_size)
            cell = row * self.site.cells + unit
        return torch.from_numpy(self.sparse[member] * self.cells + cell).to(self.device)


def dropped_cells(
    keys: NDArray[np.uint64], cumulative: Sequence[NDArray[np.float64]], cells: int, first_step: int, steps: int
) -> list[NDArray[np.int64]]:
    """For each step, the cells that are dropped: member * cells + cell, where cell = unit * batch + row."""
    step = np.arange(first_step, first_step + steps, dtype=np.int64)
    zero = np.zeros((1, 1), dtype=np.uint64)
    first = streams.numbers(keys[None, :], streams.address(step[:, None], zero))  # (steps, members)
    counts = counts_dropped(cumulative, streams.unit(first))
    total = counts.sum(axis=1)
    ends = np.cumsum(counts.reshape(-1))
    index = np.arange(ends[-1]) - np.repeat(ends - counts.reshape(-1), counts.reshape(-1))
    members = np.tile(np.arange(len(keys)), steps)
    member = np.repeat(members, counts.reshape(-1))
    counter = streams.address(np.repeat(step, total), (index + 1).astype(np.uint64))
    high = streams.numbers(keys[member], counter) >> np.uint64(32)
    flat = ((high * np.uint64(cells)) >> np.uint64(32)).astype(np.int64) + member * cells
    return np.split(flat, np.cumsum(total)[:-1])


def surviving(
    keys: NDArray[np.uint64], thresholds: NDArray[np.uint64], rows: int, units: int, step: int
) -> NDArray[np.bool_]:
    """Which cells survive where every one is asked.  # (members, rows, units)

    The first half of a row's units are decided by the lower 32 bits of its numbers, the others by the upper ones.
    """
    half = -(-units // 2)
    counter = streams.address(step, np.arange(1, rows * half + 1, dtype=np.uint64))
    numbers = streams.numbers(keys[:, None], counter[None, :]).reshape(len(keys), rows, half)
    lower, upper = numbers & np.uint64(0xFFFFFFFF), numbers >> np.uint64(32)
    return np.concatenate([lower, upper], axis=2)[:, :, :units] >= thresholds[:, None, None]


def thresholds(rates: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Uniform 32-bit numbers below these drop their cells: the rates, to nine digits."""
    return np.round(rates * 2.0**32).astype(np.uint64)


def counts_dropped(cumulative: Sequence[NDArray[np.float64]], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Each member's Poisson numbers by its own table; members with the same one are looked up together."""
    counts = np.empty(uniform.shape, dtype=np.int64)  # (steps, members)
    for table in {id(table): table for table in cumulative}.values():
        own = [k for k, other in enumerate(cumulative) if other is table]
        counts[:, own] = np.searchsorted(table, uniform[:, own], side="right")
    return counts


def poisson_cumulative(mean: float) -> NDArray[np.float64]:
    """P(count <= 0), P(count <= 1), ... far enough that no 53-bit uniform number lies beyond the table."""
    largest = int(mean + 12 * math.sqrt(mean) + 40)
    count = np.arange(1, largest + 1)
    log_mean = math.log(mean) if mean > 0 else -math.inf
    log_probability = np.concatenate([[-mean], -mean + np.cumsum(log_mean - np.log(count))])
    return np.cumsum(np.exp(log_probability))
