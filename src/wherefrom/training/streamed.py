"""Rows of a map-style Dataset that stay in it until they are wanted.

A Dataset that gives the same item whenever it is asked, and fits into memory, is read once. One that draws at random
(its own transforms), or is too large, is streamed: `Streamed` stands where a tensor of inputs would, can be indexed
like one, and is read batch by batch, for each member on its own stream. Transforms draw from the global generators
of torch, numpy and Python, which start from the address (the member's stream, the step) while items are fetched.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from wherefrom.training import streams
from wherefrom.training.joined import JoinedInputs, inputs_of, is_several, names_of

_MOST_BYTES = 2**30  # of inputs that are read into memory
_ASKED, _TIMES = 8, 3  # items that are asked for, and how often, to see whether they stay the same
_READ_TOGETHER = 256


class Streamed:
    """Some rows of a Dataset, in the place of a tensor of them."""

    def __init__(self, dataset: Any, index: Tensor, row: Tensor, rest: list[Any], is_random: bool) -> None:
        """`row` shows the shape and the type of all of them; `rest` gets the items' targets as they are known.

        is_random: whether items draw at random.
        """
        self.dataset, self.index, self.rest, self.is_random = dataset, index, rest, is_random
        self.shape, self.dtype = torch.Size((len(index), *row.shape)), row.dtype

    def __len__(self) -> int:
        return len(self.index)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def __getitem__(self, index: Any) -> Streamed:
        """Some of the rows, by a slice or by their numbers; nothing is read."""
        index = index if isinstance(index, slice) else torch.as_tensor(index)
        return self._with(self.index[index], self.dtype)

    def read(self, stream: int = 0, step: int = 0) -> Tensor:
        """All of the rows, as they are drawn on a stream at a step.  # (rows, ...)"""
        if not len(self):
            return torch.empty(self.shape, dtype=self.dtype)
        with _generators(stream, "items", step):
            items = _fetched(self.dataset, self.index.tolist())
        for number, item in zip(self.index.tolist(), items, strict=True):
            if not all(map(_alike, item[1:], self.rest[number])):
                raise ValueError(
                    f"the Dataset's item {number} does not always have the same target, {self.rest[number][0]!r} and "
                    f"then {item[1]!r}: inputs may be drawn at random, but not their targets"
                )
        return torch.stack([_as_row(item) for item in items]).to(self.dtype)

    def to(self, place: torch.device | torch.dtype) -> Any:
        """Return them in another precision, still to be read; or on a device, which reads them."""
        return self._with(self.index, place) if isinstance(place, torch.dtype) else self.read().to(place)

    def numpy(self) -> Iterator[NDArray[Any]]:
        """Row by row."""
        return (
            row for start in range(0, len(self), _READ_TOGETHER) for row in self[start:][:_READ_TOGETHER].read().numpy()
        )

    def fingerprint(self) -> bytes:
        """Return bytes that identify the rows: some of them, as one stream draws them."""
        told = repr((tuple(self.shape), self.dtype)).encode()
        return told + self[:: -(-len(self) // _ASKED)].read().numpy().tobytes()

    def _with(self, index: Tensor, dtype: torch.dtype) -> Streamed:
        row = torch.empty(self.shape[1:], dtype=dtype, device="meta")
        return Streamed(self.dataset, index, row, self.rest, self.is_random)


def in_memory(x: Any) -> Any:
    """The rows themselves, if they are still to be read."""
    return x.read() if isinstance(x, Streamed) else x


def as_numbers(x: Tensor) -> Tensor:
    """Return x as numbers: bytes in images are pixels, from 0 to 1 as in torchvision's ToTensor.

    Other whole numbers stay: they are taken as indices (for embeddings).
    """
    if x.dtype == torch.uint8 and x.ndim == 4:
        return x.float() / 255
    return x.double() if x.dtype == torch.bool else x


def of_dataset(dataset: Any) -> tuple[Tensor | Streamed, Any, Any, JoinedInputs | None]:
    """The inputs, the targets and, if there are any, the weights of a map-style Dataset of (x, y) or (x, y, weight).

    Where x is a tuple or a dictionary of inputs, they stand side by side, as the last result says.
    """
    count = _length(dataset)
    first = _first_item(dataset, 0)
    if not isinstance(first, tuple | list) or len(first) not in (2, 3):
        raise ValueError(f"the items of a Dataset must be (x, y) or (x, y, weight); the first one is {_kind(first)}")
    row, others = _as_row(first), list[Any]()
    if (is_random := _draws_at_random(dataset, count)) or count * row.nbytes > _MOST_BYTES:
        x: Tensor | Streamed = (streamed := Streamed(dataset, torch.arange(count), row, others, is_random))
        others += [other for some in _passed(streamed) for other in some]
    else:
        with _generators(0, "items", 0):
            items = _fetched(dataset, list(range(count)))
        x, others = _stacked(items, row), [item[1:] for item in items]
    y, *weights = (_targets([other[k] for other in others]) for k in range(len(first) - 1))
    return x, y, weights[0] if weights else None, _several_in(first)[1]


def inputs_of_dataset(dataset: Any) -> tuple[Tensor, JoinedInputs | None]:
    """The inputs alone, whether its items are (x, y) or x, in memory; where they are random, one draw of them."""
    with _generators(0, "items", 0):
        items = _fetched(dataset, list(range(_length(dataset))))
    return _stacked(items, _as_row(items[0])), _several_in(items[0])[1]


def _passed(x: Streamed) -> Iterator[list[Any]]:
    """All of the items but their inputs, which pass by once and are checked."""
    for start in range(0, len(x), _READ_TOGETHER):
        rows = list(range(start, min(start + _READ_TOGETHER, len(x))))
        with _generators(0, "items", start):
            items = _fetched(x.dataset, rows)
        for number, item in zip(rows, items, strict=True):
            row = _as_row(item)
            if row.shape != x.shape[1:] or row.dtype != x.dtype:
                raise ValueError(_unequal(number, row, x.shape[1:], x.dtype))
            if row.is_floating_point() and not bool(torch.isfinite(row).all()):
                raise ValueError(f"x has missing or infinite values in row {number}")
        yield [item[1:] for item in items]


def _length(dataset: Any) -> int:
    if not hasattr(dataset, "__len__") or type(dataset).__getitem__ is Dataset.__getitem__:
        raise TypeError(
            f"{type(dataset).__name__} can only be iterated over, and members each have their own order: give a "
            "map-style Dataset, with __len__ and __getitem__"
        )
    if not len(dataset):
        raise ValueError("the data has no rows")
    return len(dataset)


def _draws_at_random(dataset: Any, count: int) -> bool:
    """Return True if items draw from the global generators, even seldom; they may draw from no others."""
    asked = range(0, count, -(-count // _ASKED))
    first = [_as_row(_first_item(dataset, 0, number)) for number in asked]
    for _ in range(_TIMES - 1):
        if not _same([_as_row(_first_item(dataset, 0, number)) for number in asked], first):
            raise ValueError(
                "the Dataset draws at random from its own generator, so that no training could be repeated: let "
                "it draw from the global generator of torch, numpy or Python"
            )
    with _generators(0, "asked") as moved:
        _fetched(dataset, list(asked))
        return moved()


def _same(rows: list[Tensor], others: list[Tensor]) -> bool:
    return all(a.shape == b.shape and a.dtype == b.dtype and _equal(a, b) for a, b in zip(rows, others, strict=True))


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(), b.nan_to_num()) if a.is_floating_point() else torch.equal(a, b)


def _first_item(dataset: Any, time: int, number: int = 0) -> Any:
    with _generators(time, "asked", number):
        return _fetched(dataset, [number])[0]


def _fetched(dataset: Any, numbers: list[int]) -> list[Any]:
    several = getattr(dataset, "__getitems__", None)
    return list(several(numbers)) if several is not None else [dataset[number] for number in numbers]


def _as_row(item: Any) -> Tensor:
    """An item's inputs, as they are computed with."""
    tensors, joined = _several_in(item)
    if joined is not None:
        return joined.joined(tensors).squeeze(0)
    return as_numbers(_as_rows(_inputs_in(item))).squeeze(0)


def _inputs_in(item: Any) -> Any:
    return item[0] if isinstance(item, tuple | list) else item


def _several_in(item: Any) -> tuple[list[Tensor], JoinedInputs | None]:
    """Return an item's several inputs, as one row each, and how they stand side by side; None if it has one."""
    x = _inputs_in(item)
    if not is_several(x, dimensions=1):
        return [], None
    rows = [_as_rows(part) for part in inputs_of(x).values()]
    tensors = [row if row.dtype == torch.bool else as_numbers(row) for row in rows]
    return tensors, JoinedInputs.of(names_of(x), tensors, [()] * len(tensors))


def _as_rows(x: Any) -> Tensor:
    """Return one row of numbers.  # (1, ...)"""
    try:
        return (x.detach().cpu() if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))).unsqueeze(0)
    except TypeError as error:
        raise ValueError(f"the Dataset's inputs are {_kind(x)}, not numbers: {error}") from None


def _stacked(items: list[Any], first: Tensor) -> Tensor:
    rows = [_as_row(item) for item in items]
    for number, row in enumerate(rows):
        if row.shape != first.shape or row.dtype != first.dtype:
            raise ValueError(_unequal(number, row, first.shape, first.dtype))
    return torch.stack(rows)


def _unequal(number: int, row: Tensor, shape: torch.Size, dtype: torch.dtype) -> str:
    own, usual = (f"{tuple(s)} of {str(t).removeprefix('torch.')}" for s, t in ((row.shape, row.dtype), (shape, dtype)))
    return f"the Dataset's items are not alike: the first has inputs {usual}, number {number} has {own}"


def _targets(found: list[Any]) -> Any:
    return np.array(found) if isinstance(found[0], str) else torch.stack([torch.as_tensor(y) for y in found])


def _kind(thing: Any) -> str:
    return f"a {type(thing).__name__}" + (f" of {len(thing)}" if isinstance(thing, tuple | list) else "")


def _alike(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, str) else torch.equal(torch.as_tensor(a), torch.as_tensor(b))


@contextmanager
def _generators(seed: int, *name: str | int) -> Iterator[Callable[[], bool]]:
    """Torch's, numpy's and Python's global generators on a named stream; afterwards, as if nothing had been drawn.

    What is given tells whether anything has been drawn so far.
    """
    with streams.torch_seeded(seed, *name):
        python, legacy, start = random.getstate(), np.random.get_state(), streams.key(seed, *name)  # noqa: NPY002
        random.seed(start)
        np.random.seed(start & 0xFFFFFFFF)  # noqa: NPY002 - what transforms draw from
        before = _states()
        try:
            yield lambda: _states() != before
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def _states() -> tuple[Any, ...]:
    """Return the states of the three generators."""
    legacy: Any = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), legacy[1].tobytes(), legacy[2], random.getstate()
