"""Digests: a short name for the content of tensors and values."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def digest(*parts: Any) -> str:
    """Return 32 hexadecimal digits that differ where a part differs: tensors by their bytes, others as text.

    >>> digest("a", torch.zeros(2)) == digest("a", torch.zeros(2)), digest("a", "b") == digest("ab")
    (True, False)
    """
    result = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Tensor):
            result.update(f"{tuple(part.shape)} {part.dtype} ".encode())
            part = part.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data
        result.update(part if isinstance(part, bytes | memoryview) else f"{part}\x1f".encode())
    return result.hexdigest()


def row_hashes(*parts: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a 64-bit number for each row of some arrays, side by side, that rows with the same bytes share.  # (rows,)

    >>> one, two, three = row_hashes(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])).tolist()
    >>> one == three, one == two
    (True, False)
    """
    result = np.zeros(len(parts[0]), dtype=np.uint64)
    for part in parts:
        for column in part.reshape(len(part), int(np.prod(part.shape[1:]))).T:
            # Each number is mixed with those before it, as in a chain (the finaliser of SplitMix64).
            result += np.ascontiguousarray(column).view(f"u{part.itemsize}").astype(np.uint64)
            result += np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                result ^= result >> np.uint64(shift)
                result *= np.uint64(factor)
            result ^= result >> np.uint64(31)
    return result
