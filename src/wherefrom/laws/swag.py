"""SWAG (Maddox et al., 2019): the Gaussian with the moments of the trajectory.

From the snapshots theta_1, ..., theta_n, with their mean m and variances s^2, and the last K of them as deviations d_k:

    theta ~ N(m,  1/2 diag(s^2) + 1/2 sum_k d_k d_k^T / c),      d_k = theta_k - m,      c = K (n - 1) / n

c is K - 1 when all snapshots are kept, and in between it is the divisor that makes the variance of a sample equal, in
expectation, to the variance of the snapshots, whatever the rank and however few there were.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from wherefrom.laws.law import Gaussian, Law


@dataclass(frozen=True)
class SWAG:
    """Summarise the trajectory by a Gaussian; `rank` deviations are kept (0: the diagonal alone).

    >>> SWAG(rank=20)
    SWAG(rank=20)
    """

    rank: int = 20

    def __post_init__(self) -> None:
        if self.rank < 0 or int(self.rank) != self.rank:
            raise ValueError(f"rank must be a whole number, at least 0; it is {self.rank}")

    @property
    def fewest(self) -> int:
        return 2

    def collector(self, theta: Tensor, iterations: int) -> SWAGMoments:
        return SWAGMoments(theta, min(self.rank, iterations))


class SWAGMoments:
    """Running moments of many trajectories, in (2 + rank) numbers for each parameter."""

    def __init__(self, theta: Tensor, rank: int) -> None:
        members, size = theta.shape
        self.count = 0
        self.mean = torch.zeros_like(theta)
        self.squares = torch.zeros_like(theta)  # sum of squared deviations from the running mean (Welford)
        self.recent = theta.new_zeros(members, rank, size)

    def collect(self, theta: Tensor) -> None:
        if rank := self.recent.shape[1]:
            self.recent[:, self.count % rank] = theta
        self.count += 1
        change = theta - self.mean
        self.mean.add_(change, alpha=1 / self.count)
        self.squares.addcmul_(change, theta - self.mean)

    def laws(self) -> list[Law]:
        variance = self.squares.div_(self.count - 1)
        kept = min(self.recent.shape[1], self.count)
        if not kept:
            return [Gaussian(m, v, r[:0]) for m, v, r in zip(self.mean, variance, self.recent, strict=True)]
        # In place: no second copy of the deviations, which are most of the memory.
        divisor = kept * (self.count - 1) / self.count
        factor = self.recent.sub_(self.mean.unsqueeze(1)).div_((2 * divisor) ** 0.5)
        half = variance.div_(2)
        return [Gaussian(m, v, d) for m, v, d in zip(self.mean, half, factor, strict=True)]
