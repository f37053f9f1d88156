"""The safetensors format, checked: a header of JSON, then the numbers. Nothing is allocated before the header is sound.

    8 bytes: length of the header | {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...} | numbers

Numbers lie one after another, without gaps, up to the end of the file. `__metadata__` maps text to text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.files.documents import parsed

_ALIGNED = 8  # bytes
_MOST_HEADER = 100_000_000  # bytes, as in other readers
_MOST_AXES = 64
_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
}
_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, of) for name, of in _NAMES.items() if hasattr(torch, of)}
_BY_DTYPE = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Spot:
    """Position of the numbers of one tensor, counted from the end of the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """The header of a file: its metadata, its tensors, and its length in bytes."""

    metadata: dict[str, str]
    spots: dict[str, Spot]
    length: int


def encoded(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file: the header first, then each tensor. The same tensors give the same bytes.

    >>> from safetensors.torch import load
    >>> load(b"".join(encoded({"a": torch.arange(3)})))
    {'a': tensor([0, 1, 2])}
    """
    document: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that each is aligned
    start = 0
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in _BY_DTYPE:
            raise ValueError(f"{name} holds {tensor.dtype}, which a file cannot hold")
        end = start + tensor.numel() * tensor.element_size()
        document[name] = {"dtype": _BY_DTYPE[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    header = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % _ALIGNED)
    yield len(header).to_bytes(8, "little") + header
    for name in order:
        yield memoryview(_bytes(tensors[name]))  # type: ignore[arg-type]


def _bytes(tensor: Tensor) -> np.ndarray[Any, Any]:
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    flat = flat if flat.stride() == (1,) else flat.clone(memory_format=torch.contiguous_format)
    numbers: np.ndarray[Any, Any] = flat.view(torch.uint8).numpy()
    return numbers


def header_length(first: bytes, size: int) -> int:
    """Return the length of the header, with its first 8 bytes, of a file of that size."""
    if len(first) < 8 or size < 8:
        raise ValueError("it is too short to be a safetensors file")
    length = int.from_bytes(first[:8], "little")
    if length > min(size - 8, _MOST_HEADER):
        raise ValueError(f"its header would have {length} bytes, more than there are")
    return 8 + length


def decoded_header(header: bytes, size: int) -> Header:
    """Return the header of a file of that size, checked: every tensor lies within it, and nothing else does.

    header: the first `header_length` bytes.
    """
    document = parsed(header[8:].rstrip(b" "))
    metadata = document.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata is not text")
    spots = {name: _spot(name, each) for name, each in document.items()}
    end = 0
    for name, spot in sorted(spots.items(), key=lambda item: (item[1].start, item[1].end)):
        if spot.start != end:
            raise ValueError(f"the numbers of {name} do not follow those before them")
        end = spot.end
    if end != size - len(header):
        raise ValueError(f"it should have {len(header) + end} bytes, and has {size}")
    return Header(metadata, spots, len(header))


def _spot(name: str, entry: Any) -> Spot:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} is not described as a tensor")
    dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise ValueError(f"{name} has the unknown dtype {str(entry['dtype'])[:40]!r}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not (_are_counts(shape) and len(shape) <= _MOST_AXES and _are_counts(offsets) and len(offsets) == 2):
        raise ValueError(f"{name} has no sound shape and offsets")
    start, end = offsets
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has the shape {shape}, but {end - start} bytes")
    return Spot(dtype, tuple(shape), start, end)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**62 for value in values)


def decoded(spot: Spot, numbers: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor that lies in the bytes given, which are its own.

    numbers: bytes, writable.  # (end - start,)
    """
    if not numbers.size:
        return torch.empty(spot.shape, dtype=spot.dtype)
    if numbers.ctypes.data % spot.dtype.itemsize:
        numbers = numbers.copy()
    if spot.dtype == torch.bool and numbers.max() > 1:
        raise ValueError("it holds truth values other than 0 and 1")
    return torch.from_numpy(numbers).view(spot.dtype).reshape(spot.shape)
