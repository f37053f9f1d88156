"""Digests: a short name for the content of tensors and values."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
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
