"""The numbers of `streams`, of batch orders and of dropout, computed on a device: equal bits, and nothing is copied.

Devices have no unsigned 64-bit numbers in torch. Sums and products of signed ones wrap around to the same bits; only
shifts to the right and comparisons need care. Keys, steps and results stay on the device, so the host never waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.training import streams

_LOWER = 0xFFFFFFFF  # the lower 32 bits


def is_used(device: torch.device) -> bool:
    """Return True if random numbers are computed there; MPS shares its memory with the CPU, which computes for it."""
    return device.type not in ("cpu", "mps")


def as_keys(keys: NDArray[np.uint64], device: torch.device) -> Tensor:
    """Return unsigned numbers (keys, thresholds) on the device, as signed ones with the same bits."""
    return torch.from_numpy(keys.astype(np.uint64).view(np.int64)).to(device)


def numbers(keys: Tensor, counters: Tensor) -> Tensor:
    """Return `streams.numbers`: uniform 64-bit numbers at the given counters (keys and counters broadcast)."""
    z = keys + counters * _signed(streams.GOLDEN)
    z = (z ^ _shifted(z, 30)) * _signed(streams.MIX_1)
    z = (z ^ _shifted(z, 27)) * _signed(streams.MIX_2)
    return z ^ _shifted(z, 31)


def orders(keys: Tensor, replacement: NDArray[np.bool_], epoch: int, rows: int) -> Tensor:
    """Return `cohort.orders`: the rows of an epoch, shuffled or drawn with replacement.  # (keys, rows)"""
    counters = torch.arange(rows, device=keys.device) + (epoch << 32)
    z = numbers(keys[:, None], counters[None, :])
    if replacement.all():
        return _drawn(z, rows)
    if not replacement.any():
        return _permutations(z, rows)
    both = _drawn(z, rows), _permutations(z, rows)
    return torch.stack([both[0 if drawn else 1][k] for k, drawn in enumerate(replacement)])


def _permutations(z: Tensor, rows: int) -> Tensor:
    """Sort the rows by their numbers, whose low bits hold the row's index."""
    low = (1 << max(rows - 1, 1).bit_length()) - 1
    tagged = (z & ~low) | torch.arange(rows, device=z.device)
    return (tagged ^ -(1 << 63)).sort(dim=1).values & low  # with the sign flipped, sorted as unsigned numbers are


def _drawn(z: Tensor, rows: int) -> Tensor:
    """Scale 64-bit numbers down to range(rows)."""
    return _shifted(_shifted(z, 32) * rows + _shifted((z & _LOWER) * rows, 32), 32)


def surviving(keys: Tensor, thresholds: Tensor, rows: int, units: int, first_step: int, steps: int) -> Tensor:
    """Return `dropout.surviving` for some steps.  # (steps, members, rows, units)"""
    half = -(-units // 2)
    step = torch.arange(first_step, first_step + steps, device=keys.device) << 32
    counter = step[:, None] + torch.arange(1, rows * half + 1, device=keys.device)
    z = numbers(keys[None, :, None], counter[:, None, :]).unflatten(2, (rows, half))
    return torch.cat([z & _LOWER, _shifted(z, 32)], dim=3)[..., :units] >= thresholds[:, None, None]


def halves(keys: Tensor, step: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper 32 bits of the first numbers of a step.  # (keys, count) each"""
    z = numbers(keys[:, None], (step << 32) + torch.arange(count, device=keys.device))
    return z & _LOWER, _shifted(z, 32)


def tables_of_counts(cumulative: Sequence[NDArray[np.float64]], device: torch.device) -> Tensor:
    """Return tables of Poisson probabilities as whole numbers, which 53 random bits are compared with.

    # (members, the longest table)
    """
    longest = max(map(len, cumulative))
    whole = np.full((len(cumulative), longest), np.iinfo(np.int64).max)  # which no number reaches
    for row, table in zip(whole, cumulative, strict=True):
        row[: len(table)] = np.ceil(table * 2.0**53)
    return torch.from_numpy(whole).to(device)


def dropped_cells(keys: Tensor, tables: Tensor, cells: int, first_step: int, steps: int) -> tuple[Tensor, Tensor]:
    """Return the cells of `dropout.dropped_cells`, equally many for each member and step, and which of them count.

    The number of dropped cells is random, and the host does not read it: cells beyond that number do not count.
    # (steps, members, longest table) each
    """
    step = torch.arange(first_step, first_step + steps, device=keys.device) << 32
    first = _shifted(numbers(keys[:, None], step[None, :]), 11)  # (members, steps)
    count = torch.searchsorted(tables, first, right=True).t()
    index = torch.arange(1, tables.shape[1] + 1, device=keys.device)
    z = numbers(keys[None, :, None], step[:, None, None] + index)
    return _shifted(_shifted(z, 32) * cells, 32), index <= count.unsqueeze(2)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """Shift to the right as unsigned numbers are: torch carries the sign along."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: np.uint64) -> int:
    return int(number.view(np.int64))
