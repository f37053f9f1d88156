"""Parcels: objects that travel to other processes, with the numbers of large tensors apart from the rest.

The rest is pickled; the numbers are plain memory, which all processes of a machine can share. Parcels live as long as a
training does: they go from one process to another that it has started, never into a file.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LARGE = 2**14  # bytes of a tensor that is sent apart
_ALIGNMENT = 64  # bytes: a cache line, and what the widest vector instructions ask for


@dataclass(frozen=True, eq=False)
class Parcel:
    """An object, pickled, and the numbers of its tensors one after another."""

    rest: bytes
    numbers: NDArray[np.uint8] | memoryview
    ends: tuple[tuple[int, int], ...]  # where each tensor's numbers begin and end

    def opened(self) -> Any:
        """Return the object. Its tensors share memory with the parcel: they are to be read, not written to."""
        numbers = memoryview(cast(Any, self.numbers)).toreadonly()
        with warnings.catch_warnings():  # of tensors that cannot be written to
            warnings.simplefilter("ignore", UserWarning)
            return pickle.loads(self.rest, buffers=[numbers[a:b] for a, b in self.ends])


def packed(thing: Any, pickler: type[Any] = pickle.Pickler) -> Parcel:
    """Return an object as a parcel.

    >>> parcel = packed({"x": torch.arange(10_000), "name": "rows"})
    >>> len(parcel.rest) < 1000, parcel.opened()["x"].sum().item()
    (True, 49995000)
    """
    buffers: list[Any] = []
    file = io.BytesIO()
    _apart(pickler)(file, protocol=5, buffer_callback=buffers.append).dump(thing)
    raw = [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers]
    starts = np.cumsum([0, *(-(-len(each) // _ALIGNMENT) * _ALIGNMENT for each in raw)])
    numbers = np.empty(int(starts[-1]), dtype=np.uint8)
    ends = []
    for start, each in zip(starts.tolist(), raw, strict=False):
        numbers[start : start + len(each)] = each
        ends.append((start, start + len(each)))
    return Parcel(file.getvalue(), numbers, tuple(ends))


def _apart(pickler: type[Any]) -> type[Any]:
    """Return a pickler that sends large tensors apart."""

    class Apart(pickler):
        def reducer_override(self, thing: Any) -> Any:
            if type(thing) is Tensor and _can_be_apart(thing):
                return torch.from_numpy, (thing.detach().contiguous().numpy(),)
            rest = getattr(super(), "reducer_override", None)
            return NotImplemented if rest is None else rest(thing)

    return Apart


def _can_be_apart(tensor: Tensor) -> bool:
    is_plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.requires_grad
    return is_plain and tensor.dtype != torch.bfloat16 and tensor.numel() * tensor.element_size() >= _LARGE
