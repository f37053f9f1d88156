"""A column of x that is added to outputs as a logarithm, with a coefficient of one, and that the network does not see.

    outputs  =  f(x without the column)  +  log(column)

For counts it is the exposure: how long, or how many, each row was observed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Offset:
    """The number of the column, and the outputs that its logarithm is added to."""

    column: int
    outputs: tuple[int, ...]

    def check(self, x: Tensor, names: Sequence[str]) -> None:
        """Raise unless the column is above zero.  # (rows, columns)"""
        wrong = torch.nonzero(~(x[:, self.column] > 0)).flatten()
        if len(wrong):
            row, name = int(wrong[0]), repr(names[self.column]) if names else self.column
            value = float(x[row, self.column])
            raise ValueError(f"the exposure, column {name} of x, must be above zero; it is {value:g} in row {row}")

    def around(self, factory: Callable[[], nn.Module], outputs: int) -> Callable[[], nn.Module]:
        """Return a factory of networks that add the logarithm."""
        return lambda: WithOffset(factory(), self, outputs)


class Hidden(nn.Module):
    """Zeros in place of one column."""

    def __init__(self, column: int) -> None:
        super().__init__()
        self.column = column

    def forward(self, x: Tensor) -> Tensor:
        column = self.column
        return torch.cat([x[:, :column], torch.zeros_like(x[:, column : column + 1]), x[:, column + 1 :]], 1)


class LogColumn(nn.Module):
    """The logarithm of one column for some of the outputs, and zeros for the others."""

    def __init__(self, offset: Offset, outputs: int) -> None:
        super().__init__()
        self.column, self.added = offset.column, [output in offset.outputs for output in range(outputs)]

    def forward(self, x: Tensor) -> Tensor:  # (rows, columns) -> (rows, outputs)
        one = x[:, self.column : self.column + 1]
        logs = torch.where(one > 0, one, 1.0).log()  # rows that are made up to build a network may hold anything
        return torch.cat([logs if is_added else torch.zeros_like(logs) for is_added in self.added], 1)


class WithOffset(nn.Module):
    """A network that adds the logarithm of a column to its outputs; the network inside sees zeros there."""

    def __init__(self, inner: nn.Module, offset: Offset, outputs: int) -> None:
        super().__init__()
        self.inner, self.hidden, self.log = inner, Hidden(offset.column), LogColumn(offset, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.hidden(x)) + self.log(x)


def column_number(column: str | int, names: Sequence[str], columns: int, what: str) -> int:
    """Return the number of a column, by its name or its number."""
    if isinstance(column, str):
        if column not in names:
            there = f"; there are {', '.join(map(repr, names))}" if names else ": x is an array, so give the number"
            raise ValueError(f"{what} is {column!r}, and x has no such column{there}")
        return list(names).index(column)
    if not -columns <= column < columns:
        raise ValueError(f"{what} is column {column}, but x has {columns} columns")
    return column % columns
