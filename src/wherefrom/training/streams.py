"""Random streams by name: every random choice depends on its name, never on when or where it is made.

A stream is a 64-bit key, the hash of (seed, variable, draw, purpose). Its numbers are addressed by a counter,
so any of them can be computed alone, in any order, for many streams at once, by any engine:

    number(key, counter) = mix(key + counter * golden)            (splitmix64)

Member 7 of a cohort therefore sees the same batches, the same dropout masks and the same initial weights when
it is trained alone, beside a hundred others, on another worker, or a year later.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

_global_generator = threading.RLock()  # one at a time, so that threads do not draw from each other's streams

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def key(seed: int, *name: str | int) -> int:
    """The 64-bit key of a named stream.

    >>> key(0, "theta0", 3) == key(0, "theta0", 3), key(0, "theta0", 3) == key(0, "theta0", 4)
    (True, False)
    """
    text = "\x1f".join(map(str, (seed, *name))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def numbers(keys: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Uniform 64-bit numbers at the given counters (keys and counters broadcast)."""
    z = keys + counters * GOLDEN
    scratch = z >> np.uint64(30)
    z ^= scratch
    z *= MIX_1
    np.right_shift(z, np.uint64(27), out=scratch)
    z ^= scratch
    z *= MIX_2
    np.right_shift(z, np.uint64(31), out=scratch)
    z ^= scratch
    return z


def unit(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """64-bit numbers as uniform numbers in [0, 1)."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def address(major: int | NDArray[np.int64], minor: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The counter of the minor-th number at a step or an epoch (major): 32 bits for each."""
    return (np.asarray(major, dtype=np.uint64) << np.uint64(32)) + minor


def permutations(keys: NDArray[np.uint64], epoch: int, size: int) -> NDArray[np.int64]:
    """One permutation of range(size) for each stream: the rows sorted by their random numbers.  # (keys, size)

    Each row's index stands in the low bits of its own number, so one sort of plain integers does it; at least
    40 bits are left to decide the order for up to 16 million rows.
    """
    low_bits = np.uint64((1 << max(size - 1, 1).bit_length()) - 1)
    rows = np.arange(size, dtype=np.uint64)
    tagged = numbers(keys[:, None], address(epoch, rows)[None, :])
    tagged &= ~low_bits
    tagged |= rows
    tagged.sort(axis=1)
    tagged &= low_bits
    return tagged.view(np.int64)


def generator(seed: int, *name: str | int) -> np.random.Generator:
    """A numpy generator for a named stream, where whole arrays of normals or choices are wanted."""
    return np.random.Generator(np.random.PCG64(key(seed, *name)))


def torch_generator(seed: int, *name: str | int) -> torch.Generator:
    """Return torch's generator of a stream, which is faster for many normals."""
    return torch.Generator().manual_seed(key(seed, *name) >> 1)


@contextmanager
def torch_seeded(seed: int, *name: str | int) -> Iterator[None]:
    """Run code that draws from torch's global generators (initialisers, distributions) on a named stream."""
    with _global_generator:
        generators = global_generators()
        states = [generator.get_state() for generator in generators]
        try:
            seed_all(key(seed, *name) >> 1)  # they take a signed 64-bit number
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


def global_generators() -> list[torch.Generator]:
    """Return the generators from which torch draws where none is given: the CPU's, and those of devices in use."""
    accelerator = torch.accelerator.current_accelerator()
    module = None if accelerator is None else torch.get_device_module(accelerator)
    if module is None or not getattr(module, "is_initialized", lambda: True)():
        return [torch.default_generator]
    if accelerator is not None and accelerator.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    return [torch.default_generator, *module.default_generators]


def seed_all(seed: int) -> None:
    """Set the seed of all global generators; under `torch_seeded` alone, which brings them back to where they were."""
    for generator in global_generators():
        generator.manual_seed(seed)
