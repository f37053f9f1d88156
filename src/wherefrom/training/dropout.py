"""Which units a training step drops, at a cost that falls with the rate.

Ordinary dropout asks every unit. Here, for rate p, a Poisson number of cells with mean n * -ln(1 - p) is drawn and that
many cells, with replacement, are set to zero: a cell survives with probability exp(ln(1 - p)) = 1 - p, independently of
all others, so the mask is exactly ordinary dropout's, for about n p random numbers instead of n.

The numbers are addressed by (stream, step, index) as `streams` has it, so a step's mask can be computed alone.
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

_PLANNED_CELLS = 2**18
_PLANNED_STEPS = 2**12


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
        self.site, self.keys, self.device, self.batch_size = site, keys, device, batch_size
        self.cells = batch_size * site.cells  # of a full batch; a short one uses the first of its rows
        means = [self.cells * -math.log1p(-rate) for rate in rates]
        distinct = {mean: poisson_cumulative(mean) for mean in means}
        self.cumulative = [distinct[mean] for mean in means]
        self.scale = torch.tensor([1.0 / (1.0 - rate) for rate in rates], device=device, dtype=dtype)
        shape = (*site.shape, batch_size) if site.unit_by_unit else (batch_size, *site.shape)
        self.memory = self.scale.reshape(-1, *(1 for _ in shape)).expand(-1, *shape).clone()
        self.mask = self.memory.movedim(-1, 1) if site.unit_by_unit else self.memory  # (members, batch, *site shape)
        # Steps that are planned at a time: about so many cells, and where hardly any are dropped, so many steps.
        self.block = min(max(1, int(_PLANNED_CELLS / max(sum(means), 1.0))), _PLANNED_STEPS)
        self.planned: dict[int, Tensor] = {}
        self.dropped = torch.empty(0)

    def drop(self, step: int) -> Tensor:
        """The mask of a step.  # (members, batch, *site shape)"""
        if step not in self.planned:
            cells = dropped_cells(self.keys, self.cumulative, self.cells, step, self.block)
            self.planned = {step + k: self._positions(some) for k, some in enumerate(cells)}
        self.dropped = self.planned.pop(step)
        self.memory.view(-1).index_fill_(0, self.dropped, 0.0)
        return self.mask

    def restore(self) -> None:
        """Undo the last drop."""
        scale = self.scale[self.dropped // self.cells]
        self.memory.view(-1).index_copy_(0, self.dropped, scale)

    def _positions(self, cells: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(cells if self.site.unit_by_unit else self._row_by_row(cells)).to(self.device)

    def _row_by_row(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of cells in memory where all units of a row lie together."""
        members_and_units, row = np.divmod(cells, self.batch_size)
        member, unit = np.divmod(members_and_units, self.site.cells)
        return (member * self.batch_size + row) * self.site.cells + unit


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
