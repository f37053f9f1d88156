"""Normal random numbers of the algorithm itself, for every member, step and weight.

Two of them come from one 64-bit number of the member's stream (Box and Muller, 1958), with its lower and upper halves
as uniform numbers u and v: sqrt(-2 log u) cos(2 pi v) for the first half of the weights, and the same with sin for the
others. So any of them can be computed alone, by any engine, as masks and orders are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.training import device_streams, streams

_HALF_STEP, _UNIT = 0.5, 2.0**-32  # u is never zero


class Noise:
    """Normal numbers for a group of members, computed where they train.

    keys: of the members' streams.
    like: (members, weights), the tensor whose shape, precision and device they have.
    """

    def __init__(self, keys: Sequence[int], like: Tensor) -> None:
        self.size, self.dtype, self.device = like.shape[1], like.dtype, like.device
        self.keys = np.array(keys, dtype=np.uint64)
        self.is_there = device_streams.is_used(like.device)
        self.keys_there = device_streams.as_keys(self.keys, like.device) if self.is_there else None

    def __call__(self, step: int) -> Tensor:
        """Return the numbers of a step, counted from 0.  # (members, weights)"""
        if self.keys_there is None:
            return torch.from_numpy(normals(self.keys, step, self.size)).to(self.dtype).to(self.device)
        lower, upper = device_streams.halves(self.keys_there, step, -(-self.size // 2))
        precision = torch.float64 if self.dtype == torch.float64 else torch.float32
        radius = torch.sqrt(-2 * torch.log((lower.to(precision) + _HALF_STEP) * _UNIT))
        angle = upper.to(precision) * (_UNIT * 2 * math.pi)
        both = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
        return both[:, : self.size].to(self.dtype)


def normals(keys: NDArray[np.uint64], step: int, size: int) -> NDArray[np.float64]:
    """Return the normal numbers of a step, for each stream.  # (keys, size)"""
    half = -(-size // 2)
    numbers = streams.numbers(keys[:, None], streams.address(step, np.arange(half, dtype=np.uint64))[None, :])
    lower, upper = (part.astype(np.float64) for part in (numbers & np.uint64(0xFFFFFFFF), numbers >> np.uint64(32)))
    radius = np.sqrt(-2 * np.log((lower + _HALF_STEP) * _UNIT))
    angle = upper * (_UNIT * 2 * math.pi)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :size]
