"""The law that a trajectory leaves over theta: p(theta | D, theta0, h), for one member.

There are two: equally likely points, and a Gaussian with a diagonal and a low-rank part. Whatever summarises a
trajectory (SWAG, TRADI, snapshots, the last iterate) ends in one of them, so that nothing later asks how it was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from wherefrom.files.codec import stored

_COLUMNS = 2**16  # of a factor that are converted at a time


class Law(Protocol):
    """A distribution over theta that can be sampled, summarised and stored."""

    @property
    def mean(self) -> Tensor: ...  # (size,)

    @property
    def variance(self) -> Tensor: ...  # (size,), the diagonal of the covariance

    @property
    def is_random(self) -> bool: ...

    def sample(self, count: int, generator: torch.Generator) -> Tensor: ...  # (count, size)

    def tensors(self) -> dict[str, Tensor]: ...


class Collector(Protocol):
    """Watches the trajectories of a group of members and leaves one law for each."""

    def collect(self, theta: Tensor) -> None: ...  # (members, size), called at every collected iteration

    def laws(self) -> list[Law]: ...


class TrajectoryLaw(Protocol):
    """What the user names in `Iterations(...)`: how to summarise trajectories."""

    @property
    def every(self) -> int | Literal["epoch"]: ...  # how often it would see the trajectory: in steps, or once an epoch

    @property
    def fewest(self) -> int: ...  # how many iterations it needs to see

    def collector(self, theta: Tensor, iterations: int) -> Collector: ...  # theta: (members, size), to start from


@stored("Points")
@dataclass(frozen=True, eq=False)
class Points:
    """Equally likely points. With a single one it is the paper's delta(theta - A_h^t(theta0))."""

    points: Tensor  # (count, size)

    @property
    def mean(self) -> Tensor:
        return self.points.mean(0)

    @property
    def variance(self) -> Tensor:
        return self.points.var(0, correction=0)

    @property
    def is_random(self) -> bool:
        return len(self.points) > 1

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(self.points), (count,), generator=generator)
        return self.points[chosen.to(self.points.device)]

    def stops(self, averages: bool) -> Tensor:
        """What a training that stopped at each of these points, in their order, would have left: the point itself or,
        where the moment is marginalised, the mean of the later half.  # (count, size)
        """
        if not averages:
            return self.points
        return torch.stack([self.points[(k + 1) // 2 : k + 1].mean(0) for k in range(len(self.points))])

    def tensors(self) -> dict[str, Tensor]:
        return {"points": self.points}


@stored("Gaussian")
@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, diag(diagonal) + factor^T factor), never formed: a sample costs O((1 + rank) size).

    The factor may be less precise than the rest; it is then converted a few columns at a time, where it is used.
    """

    mean: Tensor  # (size,)
    diagonal: Tensor  # (size,)
    factor: Tensor  # (rank, size)

    @property
    def variance(self) -> Tensor:
        if self.factor.dtype == self.diagonal.dtype:
            return self.diagonal + self.factor.square().sum(0)
        total = self.diagonal.clone()
        for row in self.factor:
            total.addcmul_(row, row.to(total.dtype))
        return total

    @property
    def is_random(self) -> bool:
        return True

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        rank, size = self.factor.shape
        z = torch.randn(count, size + rank, generator=generator, dtype=self.mean.dtype).to(self.mean.device)
        # One z for all tensors of the network: the low-rank part is what correlates its layers.
        alone, shared = z[:, :size], z[:, size:]
        if self.factor.dtype == self.mean.dtype:
            return torch.addmm(self.mean, shared, self.factor).addcmul_(alone, self.diagonal.sqrt())
        result = torch.empty_like(alone, memory_format=torch.contiguous_format)
        for part, mean, factor in zip(*(t.split(_COLUMNS, -1) for t in (result, self.mean, self.factor)), strict=True):
            torch.addmm(mean, shared, factor.to(mean.dtype), out=part)
        return result.addcmul_(alone, self.diagonal.sqrt())

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "diagonal": self.diagonal, "factor": self.factor}
