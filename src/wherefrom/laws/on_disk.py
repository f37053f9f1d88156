"""Tensors in files without a name: the system writes their pages out and drops them when memory is short."""

from __future__ import annotations

import math
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor


def zeros_on_disk(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros in a file of the folder for temporary files, which goes when the tensor does.

    Its size is reserved at once, so that a full disk is an error here, and not later.
    """
    count = math.prod(shape)
    if not count:
        return torch.zeros(shape, dtype=dtype)
    descriptor, name = tempfile.mkstemp(prefix="wherefrom-deviations-")
    try:
        _reserve(descriptor, count * dtype.itemsize, Path(name).parent)
        flat = torch.from_file(name, shared=True, size=count, dtype=dtype)
    finally:
        os.close(descriptor)
        with suppress(PermissionError):  # where an open file cannot be removed, it goes with the folder
            Path(name).unlink()
    return flat.view(shape)


def put_on_disk(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor in a file, as `zeros_on_disk` makes it."""
    copy = zeros_on_disk(tuple(tensor.shape), tensor.dtype)
    return copy.copy_(tensor)


def _reserve(descriptor: int, size: int, folder: Path) -> None:
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.truncate(descriptor, size)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{folder} has no room for {size / 1e9:.1f} GB of deviations ({error.strerror}): set TMPDIR to a folder "
            'on another disk, or leave deviations="disk" out',
        ) from error
