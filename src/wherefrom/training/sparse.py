"""A linear model that uses few of its inputs: each weight is the product of two numbers.

    output  =  sum over j of  u_j v_j x_j  +  b

A weight decay of u and v, lambda (u^2 + v^2) / 2, is at least lambda |u v|, with equality where |u| = |v|: it acts on
the weights as the penalty of the lasso, and leaves most of them at zero (Hoff 2017). Early stopping acts the same way,
since a product of two small numbers grows slowly. Tables with more columns than rows need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wherefrom.files.codec import stored


@stored("SparseLinear")
@dataclass(frozen=True)
class SparseLinear:
    """A model factory of sparse linear models, which takes x's and y's sizes from the data.

    start: u at the beginning (default 0.1); v is drawn from a Gaussian with a tenth of that.

    >>> SparseLinear().sized(3, 1)()
    SparseProduct(inputs=3, outputs=1)
    """

    start: float = 0.1

    def sized(self, inputs: int, outputs: int) -> Callable[[], nn.Module]:
        """Return the factory for these numbers of columns and outputs."""
        return lambda: SparseProduct(inputs, outputs, self.start)

    def size(self, inputs: int, outputs: int) -> int:
        """Return how many weights that network has."""
        return outputs * (2 * inputs + 1)

    def __call__(self) -> nn.Module:
        raise ValueError(f"{self} takes its sizes from the data; on its own, use {self}.sized(inputs, outputs)()")


class SparseProduct(nn.Module):
    """The model itself."""

    def __init__(self, inputs: int, outputs: int, start: float) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.full((outputs, inputs), start))
        self.v = nn.Parameter(0.1 * start * torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.u * self.v, self.bias)

    def extra_repr(self) -> str:
        return f"inputs={self.u.shape[1]}, outputs={self.u.shape[0]}"
