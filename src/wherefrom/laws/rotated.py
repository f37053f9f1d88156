"""A Gaussian whose covariance is diagonal in rotated coordinates, tensor by tensor.

A weight W (rows, columns), with its bias b as one more column if it has one, is

    [W, b] = mean + Q (scale * z) R^T,        z ~ N(0, 1),

so that its covariance is (Q x R) diag(scale^2) (Q x R)^T with Kronecker's product of two small rotations, never formed.
One row is the case of a covariance that is kept whole; what no block speaks of is independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from wherefrom.files.codec import stored


@dataclass(frozen=True)
class Block:
    """A matrix within theta: its first entry, the first entry of its bias (or -1), its rows and its columns."""

    start: int
    bias: int
    rows: int
    columns: int

    @property
    def width(self) -> int:
        """Columns with the bias."""
        return self.columns + (self.bias >= 0)

    @property
    def rotation_size(self) -> int:
        return self.rows**2 + self.width**2

    def matrix(self, theta: Tensor) -> Tensor:
        """Return the block of each theta.  # (..., size) -> (..., rows, width)"""
        weight = theta[..., self.start : self.start + self.rows * self.columns]
        weight = weight.unflatten(-1, (self.rows, self.columns))
        if self.bias < 0:
            return weight
        return torch.cat([weight, theta[..., self.bias : self.bias + self.rows].unsqueeze(-1)], dim=-1)

    def write(self, matrix: Tensor, theta: Tensor) -> None:
        """Write a block into each theta.  # (..., rows, width), (..., size)"""
        theta[..., self.start : self.start + self.rows * self.columns] = matrix[..., : self.columns].flatten(-2)
        if self.bias >= 0:
            theta[..., self.bias : self.bias + self.rows] = matrix[..., -1]


@stored("Rotated")
@dataclass(frozen=True, eq=False)
class Rotated:
    """N(mean, covariance), where the covariance is diagonal after rotations of blocks of theta."""

    mean: Tensor  # (size,)
    scale: Tensor  # (size,), standard deviations in rotated coordinates; zero where nothing varies
    rotations: Tensor  # (numbers,), Q and then R of each block, row by row
    blocks: Tensor  # (blocks, 4), whole numbers: the fields of each `Block`

    @property
    def variance(self) -> Tensor:
        result = self.scale.square()
        for block, left, right in self._rotations():
            block.write(left.square() @ block.matrix(self.scale).square() @ right.square().T, result)
        return result

    @property
    def is_random(self) -> bool:
        return True

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        z = torch.randn(count, len(self.mean), generator=generator, dtype=self.mean.dtype).to(self.mean.device)
        z *= self.scale
        for block, left, right in self._rotations():
            block.write(left @ block.matrix(z) @ right.T, z)
        return z.add_(self.mean)

    def image(self, jacobian: Tensor) -> Tensor:
        """Return the covariance of jacobian @ theta.  # (..., outputs, size) -> (..., outputs, outputs)"""
        turned = self.turned(jacobian).mul_(self.scale)
        return turned @ turned.mT

    def turned(self, values: Tensor) -> Tensor:
        """Return values of theta, or derivatives by it, in rotated coordinates.  # (..., size)"""
        result = values.clone()
        for block, left, right in self._rotations():
            block.write(left.T @ block.matrix(values) @ right, result)
        return result

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "scale": self.scale, "rotations": self.rotations, "blocks": self.blocks}

    def to(self, device: torch.device) -> Rotated:
        return Rotated(*(tensor.to(device) for tensor in self.tensors().values()))

    def is_over(self, size: int) -> bool:
        """Return True if its tensors fit together, and have this number of weights."""
        if self.blocks.ndim != 2 or self.blocks.shape[1] != 4 or self.rotations.ndim != 1:
            return False
        each = [Block(*numbers) for numbers in self.blocks.tolist()]
        ends = [max(b.start + b.rows * b.columns, b.bias + b.rows if b.bias >= 0 else 0) for b in each]
        starts = [min(b.start, b.rows - 1, b.columns - 1) for b in each]
        return (
            self.mean.shape == self.scale.shape == (size,)
            and all(end <= size for end in ends)
            and all(start >= 0 for start in starts)
            and len(self.rotations) == sum(block.rotation_size for block in each)
        )

    def _rotations(self) -> Iterator[tuple[Block, Tensor, Tensor]]:
        first = 0
        for numbers in self.blocks.tolist():
            block = Block(*numbers)
            left, right = self.rotations[first : first + block.rotation_size].split([block.rows**2, block.width**2])
            first += block.rotation_size
            yield block, left.unflatten(0, (block.rows, -1)), right.unflatten(0, (block.width, -1))
