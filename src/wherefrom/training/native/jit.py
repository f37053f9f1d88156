"""Options for compiling the kernel: rounding may be rearranged, but infinities and NaN mean what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba

# A debug mode: every index is checked, and what is written in vectors is replaced by plain loops so that its are, too.
CHECKED = os.environ.get("WHEREFROM_NATIVE_CHECKED", "") not in ("", "0")

_OPTIONS = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": CHECKED,
    # Not "nnan" and "ninf": a training that diverges must be seen to diverge.
    "fastmath": {"contract", "reassoc", "nsz", "arcp", "afn"},
    # The kernel allocates nothing, so it need not count references to its arrays, which would take half of its time.
    "_nrt": False,
}
_ONLY_FROM_COMPILED_CODE = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # saves a third of compiling

_FEATURES = llvmlite.binding.get_host_cpu_features()
LANES = 16 if _FEATURES.get("avx512f") else 8 if _FEATURES.get("avx") else 4  # floats in one vector register
REGISTERS = 16 if "sse2" in _FEATURES and not _FEATURES.get("avx512f") else 32

PADDING = 16  # floats: a whole number of vectors on every processor, and a cache line


def padded(count: int) -> int:
    """The next whole number of vectors."""
    return -(-count // PADDING) * PADDING


def jit(function: Callable[..., Any]) -> Any:
    """A function of the kernel, called from others."""
    return numba.njit(**_OPTIONS, **_ONLY_FROM_COMPILED_CODE)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a few operations of a hot loop into their caller."""
    return numba.njit(**_OPTIONS, **_ONLY_FROM_COMPILED_CODE, forceinline=True)(function)


def as_written(function: Callable[..., Any]) -> Any:
    """Compile a function with its sums and products in the order in which they stand."""
    options = _OPTIONS | {"fastmath": {"contract", "nsz"}}
    return numba.njit(**options, **_ONLY_FROM_COMPILED_CODE, forceinline=True)(function)


def merged(function: Callable[..., Any]) -> Any:
    """Compile a function that has one caller there, and not by itself."""
    return numba.njit(**_OPTIONS, **_ONLY_FROM_COMPILED_CODE, inline="always")(function)


def entry(function: Callable[..., Any]) -> Any:
    """The kernel itself, called from Python without the GIL."""
    return numba.njit(**_OPTIONS)(function)
