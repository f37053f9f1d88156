"""Which units a training step drops.

At low rates, asking every unit would cost more than the training step itself. So for a rate p below SPARSE, a Poisson
number of cells with mean n * -ln(1 - p) is drawn, and that many cells, with replacement, are set to zero: a cell
survives with probability exp(ln(1 - p)) = 1 - p, independently of all others, so the mask is exactly ordinary
dropout's, for about n p random numbers instead of n. From SPARSE on every unit is asked, two with each 64-bit number.

The numbers are addressed by (stream, step, index) as `streams` has it, so a step's mask can be computed alone, by any
engine. Masks of members on a GPU are computed there (`device_streams`), with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.training import device_streams, streams
from wherefrom.training.planning import InBlocks
from wherefrom.training.probing import Site

SPARSE = 0.1
_PLANNED_CELLS = 2**18
_PLANNED_STEPS = 2**12
_PLANNED_ON_DEVICE = 2**22  # cells: 32 MB of random numbers


class TrainingMasks:
    """The masks of one dropout site for a group of members, step after step, computed where the members train."""

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
        # With one cell more than there are, where padding is dropped.
        self.scale = torch.tensor([*(1.0 / (1.0 - rate) for rate in rates), 0.0], device=device, dtype=dtype)
        self.flat = torch.empty(len(rates) * self.cells + 1, device=device, dtype=dtype)
        shape = (*site.shape, batch_size) if site.unit_by_unit else (batch_size, *site.shape)
        memory = self.flat[:-1].view(len(rates), *shape)
        memory.copy_(self.scale[:-1].reshape(-1, *(1 for _ in shape)))
        self.mask = memory.movedim(-1, 1) if site.unit_by_unit else memory  # (members, batch, *site shape)

        dense = np.flatnonzero([rate >= SPARSE for rate in rates])
        sparse = np.flatnonzero([rate < SPARSE for rate in rates])
        self.dropped = torch.empty(0, dtype=torch.int64, device=device)
        self.cells_of = self._planned_cells(sparse, keys, rates) if len(sparse) else None
        self.units_of = self._planned_units(dense, keys, rates) if len(dense) else None
        self.dense = torch.from_numpy(dense).to(device)
        self.dense_scale = self.scale[self.dense].reshape(-1, *(1 for _ in shape))

    def drop(self, step: int) -> Tensor:
        """The mask of a step.  # (members, batch, *site shape)"""
        if self.cells_of is not None:
            self.dropped = self.cells_of(step)
            self.flat.index_fill_(0, self.dropped, 0.0)
        if self.units_of is not None:
            kept = self.units_of(step).reshape(-1, *self.mask.shape[1:]) * self.dense_scale
            if self.cells_of is None:
                self.mask.copy_(kept)
            else:
                self.mask.index_copy_(0, self.dense, kept)
        return self.mask

    def restore(self) -> None:
        """Undo the last drop of cells; masks of which every cell is asked are written anew in any case."""
        if self.cells_of is not None:
            self.flat.index_copy_(0, self.dropped, self.scale[self.dropped // self.cells])

    def _planned_cells(
        self, sparse: NDArray[np.int64], keys: NDArray[np.uint64], rates: Sequence[float]
    ) -> Callable[[int], Tensor]:
        """Return the positions that each step drops, in the memory of the mask, for members with low rates."""
        keys, means = keys[sparse], [self.cells * -math.log1p(-rates[k]) for k in sparse]
        distinct = {mean: poisson_cumulative(mean) for mean in means}
        cumulative = [distinct[mean] for mean in means]
        if not device_streams.is_used(self.device):

            def plan(first: int, steps: int) -> Sequence[Tensor]:
                dropped = dropped_cells(keys, cumulative, self.cells, first, steps)
                each = (np.divmod(some, self.cells) for some in dropped)
                return [torch.from_numpy(self._position(sparse[k], cell)).to(self.device) for k, cell in each]

            most = min(max(1, int(_PLANNED_CELLS / max(sum(means), 1.0))), _PLANNED_STEPS)
            return InBlocks(plan, most)

        their_keys = device_streams.as_keys(keys, self.device)
        tables = device_streams.tables_of_counts(cumulative, self.device)
        members = torch.from_numpy(sparse).to(self.device)[:, None]

        def plan_there(first: int, steps: int) -> Sequence[Tensor]:
            cell, counts = device_streams.dropped_cells(their_keys, tables, self.cells, first, steps)
            return torch.where(counts, self._position(members, cell), len(self.flat) - 1).flatten(1).unbind()

        return InBlocks(plan_there, min(max(1, _PLANNED_ON_DEVICE // tables.numel()), _PLANNED_STEPS))

    def _planned_units(
        self, dense: NDArray[np.int64], keys: NDArray[np.uint64], rates: Sequence[float]
    ) -> Callable[[int], Tensor]:
        """Return the cells that survive each step, for members with high rates.  # (dense members, rows, units)"""
        keys, limits = keys[dense], thresholds(np.array(rates)[dense])
        shape = self.batch_size, self.site.cells
        if not device_streams.is_used(self.device):
            return lambda step: torch.from_numpy(surviving(keys, limits, *shape, step)).to(self.device)
        their_keys, their_limits = (device_streams.as_keys(each, self.device) for each in (keys, limits))
        most = min(max(1, _PLANNED_ON_DEVICE // (len(dense) * self.cells)), _PLANNED_STEPS)
        return InBlocks(
            lambda first, steps: device_streams.surviving(their_keys, their_limits, *shape, first, steps).unbind(), most
        )

    def _position(self, member: Any, cell: Any) -> Any:
        """Return where cells, unit * batch + row, lie in the memory of the mask; of arrays or tensors."""
        if not self.site.unit_by_unit:  # all units of a row lie together
            cell = cell % self.batch_size * self.site.cells + cell // self.batch_size
        return member * self.cells + cell


def dropped_cells(
    keys: NDArray[np.uint64], cumulative: Sequence[NDArray[np.float64]], cells: int, first_step: int, steps: int
) -> list[NDArray[np.int64]]:
    """Cells that are dropped in each step: member * cells + cell, where cell = unit * batch + row."""
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
