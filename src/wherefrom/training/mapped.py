"""Columns of numbers in a file without a name, for more rows than fit into memory several times over.

They are written a few rows at a time, and then read as a tensor whose memory is the file: the system reads pages when
they are needed, and may drop them. The file has no name, so it goes with the process, however that ends.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_pages: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()  # by where their numbers begin


class MappedColumns:
    """Rows that are being written, each of a fixed number of values, in double precision by default.

    >>> columns = MappedColumns(2)
    >>> columns.add(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> columns.add(np.array([[5.0, 6.0]]))
    >>> columns.tensor().tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """

    def __init__(self, width: int, dtype: torch.dtype = torch.float64) -> None:
        self.width, self.rows = width, 0
        self.dtype: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # if rows are never asked for, because one of them is at fault

    def add(self, values: NDArray[Any]) -> None:
        """Write further rows.  # (rows, width)"""
        if values.ndim != 2 or values.shape[1] != self.width:
            raise ValueError(f"rows have the shape {values.shape}, and must have {self.width} columns")
        np.ascontiguousarray(values, dtype=self.dtype).tofile(self._file)
        self.rows += len(values)

    def tensor(self) -> Tensor:
        """Return all rows as a tensor, after the last one was added.  # (rows, width)"""
        with self._file as file:
            file.flush()
            if not self.rows:
                return torch.from_numpy(np.empty((0, self.width), self.dtype))
            # Private, so that numpy takes it for memory that may be written to. Nobody does.
            pages = mmap.mmap(file.fileno(), self.dtype.itemsize * self.rows * self.width, access=mmap.ACCESS_COPY)
        numbers = torch.from_numpy(np.frombuffer(pages, dtype=self.dtype).reshape(self.rows, self.width))
        _pages[numbers.data_ptr()] = pages
        return numbers


def release(rows: Tensor) -> None:
    """Let the system drop the pages of a tensor of `MappedColumns`, which are read again when needed.

    Other tensors are left alone.
    """
    pages = _pages.get(rows.data_ptr()) if isinstance(rows, Tensor) and rows.device.type == "cpu" else None
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
