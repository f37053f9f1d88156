"""Several inputs side by side in one row of numbers, and networks that take them apart again.

    x = {"image": (rows, 3, 32, 32), "age": (rows,), "words": (rows, 20)}   ->   (rows, 3072 + 1 + 20)

All else then deals with one table: batches, folds, draws of the rows, digests, files. Whole numbers are exact in single
precision up to 2**24, and larger ones are refused.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wherefrom.files.codec import stored

_MOST_WHOLE = 2**24  # up to which single precision has all whole numbers


def is_several(x: Any, dimensions: int = 2) -> bool:
    """Return True if x holds several inputs: a dictionary, or a tuple of arrays.

    dimensions: that at least one array of a tuple has; a tuple of arrays with fewer is a table, row by row (default 2).
    """
    if isinstance(x, Mapping):
        return True
    return isinstance(x, tuple) and any(len(getattr(part, "shape", ())) >= dimensions for part in x)


def inputs_of(x: Any) -> dict[str, Any]:
    """Return several inputs by what they are called in messages; those with names in the order of these."""
    named = [(name, x[name]) for name in names_of(x)] if isinstance(x, Mapping) else enumerate(x)
    return {f"x[{name!r}]": part for name, part in named}


def names_of(x: Any) -> tuple[str, ...]:
    """Return the names of several inputs, in their order; none for those of a tuple."""
    if not isinstance(x, Mapping):
        return ()
    if wrong := [name for name in x if not isinstance(name, str)]:
        raise ValueError(f"inputs are called by names, as x={{'image': ..., 'age': ...}}, not by {wrong[0]!r}")
    return tuple(sorted(x))


@stored("JoinedInputs")
@dataclass(frozen=True)
class JoinedInputs:
    """The inputs in a row of numbers, in their order."""

    names: tuple[str, ...]  # none for inputs that were given as a tuple
    shapes: tuple[tuple[int, ...], ...]  # of one row of each
    dtypes: tuple[torch.dtype | None, ...]  # of whole numbers and truth values; None for real numbers
    columns: tuple[tuple[str, ...], ...]  # of frames; none for arrays

    @classmethod
    def of(cls, names: tuple[str, ...], tensors: Sequence[Tensor], columns: Sequence[tuple[str, ...]]) -> JoinedInputs:
        """Describe inputs.  # each (rows, ...)"""
        return cls(
            names,
            tuple(tuple(tensor.shape[1:]) for tensor in tensors),
            tuple(None if tensor.is_floating_point() else tensor.dtype for tensor in tensors),
            tuple(columns),
        )

    @property
    def called(self) -> list[str]:
        """Return the name of each input in messages."""
        return [f"x[{name!r}]" for name in self.names or range(len(self.shapes))]

    @property
    def widths(self) -> list[int]:
        """Return the count of numbers that a row of each has."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def width(self) -> int:
        return sum(self.widths)

    @property
    def is_whole(self) -> Tensor:
        """True for numbers that are whole, or truth values.  # (width,)"""
        return torch.tensor(self._each([dtype is not None for dtype in self.dtypes]))

    def joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the inputs side by side, in single precision unless one of them is in double.  # (rows, width)"""
        rows = [len(tensor) for tensor in tensors]
        for called, count in zip(self.called, rows, strict=True):
            if count != rows[0]:
                raise ValueError(f"{self.called[0]} has {rows[0]} rows but {called} has {count}")
        for called, tensor in zip(self.called, tensors, strict=True):
            if tensor.is_floating_point() or not tensor.numel():
                continue
            if (largest := int(tensor.long().abs().max())) > _MOST_WHOLE:
                raise ValueError(
                    f"{called} holds whole numbers as large as {largest:,}, and among several inputs they are exact up "
                    f"to {_MOST_WHOLE:,} only: number the categories from 0 on, or give it as floats"
                )
        dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
        return torch.cat([tensor.reshape(len(tensor), -1).to(dtype) for tensor in tensors], dim=1)

    def standardised(self, standardise: bool | dict[str, bool] | tuple[bool, ...]) -> Tensor:
        """True for numbers that are standardised: of tables, or of the inputs for which it is said.  # (width,)"""
        if isinstance(standardise, bool):
            is_table = [len(shape) < 2 and dtype is None for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
            return torch.tensor(self._each([standardise and each for each in is_table]))
        inputs = list(self.names or range(len(self.shapes)))
        said = standardise if isinstance(standardise, dict) else dict(enumerate(standardise))
        if sorted(map(str, said)) != sorted(map(str, inputs)):
            raise ValueError(f"standardise speaks of the inputs {list(said)}, but x has {inputs}")
        each = [bool(said[name]) for name in inputs]  # type: ignore[index]
        for called, is_said, dtype in zip(self.called, each, self.dtypes, strict=True):
            if is_said and dtype is not None:
                raise ValueError(f"{called} holds whole numbers, which are indices: they cannot be standardised")
        return torch.tensor(self._each(each))

    def check_inputs(self, x: Any) -> None:
        """Raise unless x holds the inputs of training, by name or by number."""
        if not is_several(x, dimensions=0):
            wanted = f"a dictionary of {', '.join(map(repr, self.names))}" if self.names else "a tuple"
            raise ValueError(f"the model was trained on {len(self.shapes)} inputs: give x as {wanted}")
        if len(x) != len(self.shapes) or names_of(x) != self.names:
            raise ValueError(f"x has other inputs than in training: then {self.called}, now {list(inputs_of(x))}")

    def check(self, other: JoinedInputs | None) -> None:
        """Raise if inputs look unlike those of training."""
        if other is None or other.called != self.called:
            now = "one" if other is None else other.called
            raise ValueError(f"x has other inputs than in training: then {self.called}, now {now}")
        for k, called in enumerate(self.called):
            if other.shapes[k] != self.shapes[k]:
                raise ValueError(
                    f"a row of {called} has shape {other.shapes[k]}, but the model was trained on rows of "
                    f"{self.shapes[k]}"
                )
            if self.dtypes[k] is not None and other.dtypes[k] is None:
                raise ValueError(f"the model was trained on whole numbers in {called}, which now holds real ones")
            if self.columns[k] and other.columns[k] and self.columns[k] != other.columns[k]:
                raise ValueError(
                    f"{called} has other columns, or another order, than in training: use {list(self.columns[k])}"
                )

    def made_up(self, numbers: Tensor) -> Tensor:
        """Return rows with zeros in place of numbers that are whole.  # (rows, width)"""
        return torch.where(self.is_whole, 0.0, numbers)

    def separated(self, rows: Tensor) -> list[Tensor]:
        """Take the inputs apart again, each with its type.  # (rows, width) -> each (rows, ...)"""
        parts, start = [], 0
        for shape, dtype, width in zip(self.shapes, self.dtypes, self.widths, strict=True):
            part = rows[:, start : start + width] if shape else rows[:, start]
            part = part.unflatten(1, shape) if len(shape) > 1 else part
            parts.append(part if dtype is None else part.to(dtype))
            start += width
        return parts

    def around(self, factory: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        """Return a factory of networks that take rows of numbers, of networks that take several inputs."""
        return lambda: Separated(factory(), self)

    def _each(self, values: Sequence[bool]) -> list[bool]:
        """Repeat what holds for each input for all of its numbers."""
        return [value for value, width in zip(values, self.widths, strict=True) for _ in range(width)]


class Separated(nn.Module):
    """A network of several inputs that takes them side by side.

    Its forward gets each as an argument, by name if they have names; or all as one, if it takes a single argument.
    """

    def __init__(self, inner: nn.Module, inputs: JoinedInputs) -> None:
        super().__init__()
        self.inner, self.inputs = inner, inputs
        self.takes_each = _takes_each(inner, inputs)

    def forward(self, rows: Tensor) -> Any:
        parts = self.inputs.separated(rows)
        if not self.inputs.names:
            return self.inner(*parts) if self.takes_each else self.inner(tuple(parts))
        named = dict(zip(self.inputs.names, parts, strict=True))
        return self.inner(**named) if self.takes_each else self.inner(named)


def _takes_each(module: nn.Module, inputs: JoinedInputs) -> bool:
    """Return True if a forward takes the inputs one by one."""
    signature = inspect.signature(module.forward)
    try:
        signature.bind(**dict.fromkeys(inputs.names)) if inputs.names else signature.bind(*inputs.shapes)
    except TypeError:
        return False
    return True


def check_same(trained_on: JoinedInputs | None, inputs: JoinedInputs | None) -> None:
    """Raise if there are other inputs than those that were trained on; None stands for a single one."""
    if trained_on is not None:
        trained_on.check(inputs)
    elif inputs is not None:
        raise ValueError(f"the model was trained on one input, but x holds {len(inputs.shapes)}")


def count(x: Any) -> int:
    """Return the number of rows of several inputs."""
    return len(next(iter(inputs_of(x).values())))


def some_of(x: Any, rows: slice) -> Any:
    """Return some rows of several inputs."""

    def taken(part: Any) -> Any:
        return part.iloc[rows] if hasattr(part, "iloc") else part[rows]

    return {name: taken(part) for name, part in x.items()} if isinstance(x, Mapping) else tuple(map(taken, x))
