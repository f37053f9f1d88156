"""A column of x that is added to outputs as a logarithm, with a coefficient of one, and that the network does not see.

    outputs  =  f(x without the column)  +  log(column)

For counts it is the exposure: how long, or how many, each row was observed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

MOST_EXPOSURE = 1e6  # in units of the usual one, or the least, as 1 / it: a log mean is cut at 20


@dataclass(frozen=True)
class Offset:
    """The number of the column, and the outputs that its logarithm is added to."""

    column: int
    outputs: tuple[int, ...]

    def check(self, x: Tensor, names: Sequence[str], unit: float | None = None) -> None:
        """Raise unless the column is above zero, and no row's value is far from all others.  # (rows, columns)

        unit: the geometric mean of the training rows (default: that of these rows).
        """
        values, name = x[:, self.column].double(), repr(names[self.column]) if names else self.column
        if len(wrong := torch.nonzero(~(values > 0)).flatten()):
            row = int(wrong[0])
            raise ValueError(
                f"the exposure, column {name} of x, must be above zero; it is {float(values[row]):g} in row {row}"
            )
        unit = geometric_mean(values) if unit is None else unit
        if len(wrong := too_far(values, unit)):
            row = int(wrong[0])
            raise ValueError(
                f"the exposure, column {name} of x, is {float(values[row]):g} in row {row}, {far_from(unit)}: correct "
                "it, or leave the row out"
            )

    def around(self, factory: Callable[[], nn.Module], outputs: int) -> Callable[[], nn.Module]:
        """Return a factory of networks that add the logarithm."""
        return lambda: WithOffset(factory(), self, outputs)


def geometric_mean(values: Tensor, weights: Tensor | None = None) -> float:
    """Return the geometric mean of exposures: one odd row hardly moves it.  # (rows,)"""
    logs = values.double().log()
    return float((logs.mean() if weights is None else (weights * logs).sum() / weights.sum()).exp())


def too_far(values: Tensor, unit: float) -> Tensor:
    """Return the numbers of rows whose mean could not be predicted for want of numbers to hold it."""
    return torch.nonzero((values / unit).log().abs() > math.log(MOST_EXPOSURE)).flatten()


def far_from(unit: float) -> str:
    """Return words for an exposure that is refused."""
    return f"more than a factor of {MOST_EXPOSURE:,.0f} away from the usual {unit:.3g}"


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
