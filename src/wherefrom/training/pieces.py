"""Numbers in pieces: beside its standardised value, a column says how far it is through each of some intervals.

    piece_k(x)  =  clip((x - b_k) / (b_k+1 - b_k), 0, 1) - 1/2,        b_0 < ... < b_K quantiles of the training rows

A linear layer of these inputs is a function of x that bends at the quantiles: networks fit steps and kinks of single
columns, as trees do, without having to learn where they are (Gorishniy et al. 2022, piecewise linear encoding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.files.codec import stored

Numbers = NDArray[np.float64]


@stored("Pieces")
@dataclass(frozen=True)
class Pieces:
    """Standardise the columns of a table, and give networks some of them in pieces as well.

    columns: numbers of the columns (default None: all of them).
    count: pieces of each column (default 8).

    >>> from wherefrom.training.mlp import MLP
    >>> from wherefrom.posterior.point import Algorithm, Training
    >>> Training(MLP(50), Algorithm("adam", lr=0.01, batch_size=32), epochs=20, standardise=Pieces()).standardise
    Pieces(columns=None, count=8)
    """

    columns: tuple[int, ...] | None = None
    count: int = 8

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"count is a number of pieces, from 2 on, not {self.count}")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns names a column twice: {self.columns}")

    def knots(self, x: Tensor, weights: Tensor | None = None) -> Knots:
        """Return the ends of the pieces by the training rows, and how much each counts.  # (rows, columns), (rows,)"""
        columns = tuple(range(x.shape[1])) if self.columns is None else self.columns
        if unknown := [column for column in columns if not 0 <= column < x.shape[1]]:
            raise ValueError(f"there are pieces of column {unknown[0]}, but x has {x.shape[1]} columns")
        counts = None if weights is None else weights.numpy()
        ends = [_ends(x[:, column].double().numpy(), self.count, counts) for column in columns]
        return Knots(columns, torch.from_numpy(np.array(ends).reshape(len(columns), self.count + 1)))


@stored("Knots")
@dataclass(frozen=True, eq=False)
class Knots:
    """The ends of the pieces of some columns."""

    columns: tuple[int, ...]
    ends: Tensor  # (columns, pieces + 1), in the units of x

    @property
    def inputs(self) -> int:
        """The number of inputs of a network."""
        return len(self.columns) * (self.ends.shape[1] - 1)

    def __call__(self, x: Tensor) -> Tensor:
        """Return all pieces of all columns.  # (rows, columns) in double precision -> (rows, inputs)"""
        low, width = self.ends[:, :-1], self.ends.diff(dim=1)
        share = (x[:, list(self.columns), None] - low) / torch.where(width > 0, width, 1.0)
        return torch.where(width > 0, share.clamp(0, 1) - 0.5, 0.0).flatten(1)


def _ends(values: Numbers, pieces: int, weights: Numbers | None = None) -> Sequence[float]:
    """Return quantiles, where no value counts as more rows than a piece has: a frequent one takes one piece at most.

    >>> [float(round(end, 2)) for end in _ends(np.array([0.0] * 6 + [1.0, 2.0, 3.0, 4.0]), pieces=2)]
    [0.0, 2.0, 4.0]
    """
    distinct, numbers = np.unique(values, return_inverse=True)
    if len(distinct) == 1:
        return [float(distinct[0])] * (pieces + 1)
    counts = np.bincount(numbers, weights)
    rows = np.cumsum(np.minimum(counts, counts.sum() / pieces))
    return np.interp(np.linspace(rows[0], rows[-1], pieces + 1), rows, distinct).tolist()
