"""The law that a trajectory leaves over theta: p(theta | D, theta0, h), for one member.

There are three: equally likely points, a Gaussian with a diagonal and a low-rank part, and one that is diagonal in
rotated coordinates (rotated.py). Whatever summarises a trajectory (SWAG, TRADI, snapshots, Laplace, the last iterate)
ends in one of them, so that nothing later asks how it was made.

A law is made in one or two steps: a collector watches the trajectory, and `finish`, where a law has it, looks at the
trained member with its rows and its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from wherefrom.devices import fits
from wherefrom.files.codec import stored

_COLUMNS = 2**16  # of a factor that are converted at a time

# Every n steps, once an epoch, or at these steps: numbers from 1 on, or fractions of the training up to 1.0.
Often = int | Literal["epoch"] | tuple[float, ...]


class Law(Protocol):
    """A distribution over theta that can be sampled, summarised and stored.

    Statistics of batch normalisation are estimated anew for its samples if it is random, unless it has an attribute
    `carries_statistics` that is true: then each sample has the statistics that go with it, as a point of a trajectory.
    Linearised prediction needs a method `image(jacobian)`, the covariance of jacobian @ theta.
    """

    @property
    def mean(self) -> Tensor: ...  # (size,)

    @property
    def variance(self) -> Tensor: ...  # (size,), the diagonal of the covariance

    @property
    def is_random(self) -> bool: ...

    def sample(self, count: int, generator: torch.Generator) -> Tensor: ...  # (count, size)

    def tensors(self) -> dict[str, Tensor]: ...


def beside(law: Law, device: torch.device) -> Law:
    """Return a law on a device, where it is sampled faster, if it can be moved and there is room; else as it is.

    A law can be moved if it has a method `to(device)`. Its random numbers come from a generator of the CPU all the
    same, so samples are the same but for rounding.
    """
    move: Any = getattr(law, "to", None)
    tensors = law.tensors().values()
    if move is None or all(tensor.device == device for tensor in tensors):
        return law
    moved: Law = move(device) if fits(sum(tensor.nbytes for tensor in tensors), device) else law
    return moved


def needs_statistics(law: Law) -> bool:
    """Return True if statistics of batch normalisation must be estimated anew for samples of this law."""
    return law.is_random and not getattr(law, "carries_statistics", False)


class Collector(Protocol):
    """Watches the trajectories of a group of members and leaves one law for each.

    Checkpoints also need `state`, a tuple of the names of the attributes that change while it collects: tensors with a
    row for each member, and numbers (or tuples of them) that all members share.
    """

    def collect(self, theta: Tensor) -> None: ...  # (members, size), called at every collected iteration

    def laws(self) -> list[Law]: ...


class TrajectoryLaw(Protocol):
    """A way to summarise trajectories, which the user names in `Iterations(...)`.

    If it has an attribute `is_linearised` that is true, its law belongs to the network's linear expansion, for which
    noise is then fitted.
    """

    @property
    def every(self) -> Often: ...  # how often it looks, unless the user says otherwise

    @property
    def fewest(self) -> int: ...  # how many iterations it needs to see

    def collector(self, theta: Tensor, iterations: int) -> Collector | None:
        """Return what watches this number of iterations of members that start from theta (members, size).

        None, if the law is made by `finish` alone.
        """
        ...


class FinishingLaw(TrajectoryLaw, Protocol):
    """A law that is made, or completed, once training is over: from curvature, say."""

    def finish(self, member: Finished) -> Law: ...


@dataclass(frozen=True, eq=False)
class Finished:
    """A trained member, as `finish` sees it. Do not change any of it.

    theta: (all,), the last iterate: parameters that were trained, then buffers, then what is frozen.
    parameters: (trained,), the beginning of theta.
    size: how many numbers of theta a law describes: parameters and buffers. Laws are in main memory.
    collected: the law that the collector left, or None if there was none.
    rows: how many rows it was trained on.
    batches: count -> (x, y, weights or None), `count` rows at a time in their order, standardised, on theta's device.
    outputs: (parameters, x) -> (rows, outputs), the network without dropout; `torch.func` can differentiate it.
    loss: (outputs, y, weights or None) -> the mean loss of these rows, as in training.
    density: "whole" if the loss of a row, times y's columns, is -log p(y) but for a constant; "without its noise" if it
        is that times twice the variance of the noise, as the squared error is; None if it is no log-likelihood.
    information: (outputs, y) -> (rows, outputs, outputs), second derivatives of each row's loss, times y's columns.
    settings: of the algorithm: lr, weight_decay, ...
    variance: (trained,), of each parameter by the algorithm itself, if it learns any; else None.
    rates: of dropout, at every site.
    generator: random numbers of this member alone.
    network: the `Network` that theta belongs to; `network.layout.views(theta)` has its tensors by name.
    """

    theta: Tensor
    parameters: Tensor
    size: int
    collected: Law | None
    rows: int
    batches: Callable[[int], Iterator[tuple[Tensor, Tensor, Tensor | None]]]
    outputs: Callable[[Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    density: Literal["whole", "without its noise"] | None
    information: Callable[[Tensor, Tensor], Tensor]
    settings: Mapping[str, float]
    variance: Tensor | None
    rates: tuple[float, ...]
    generator: torch.Generator
    network: Any


@stored("Points")
@dataclass(frozen=True, eq=False)
class Points:
    """Equally likely points. With a single one it is the paper's delta(theta - A_h^t(theta0))."""

    carries_statistics: ClassVar[bool] = True  # each point was a network, with its own statistics
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

    def image(self, jacobian: Tensor) -> Tensor:
        """Return the covariance of jacobian @ theta.  # (..., outputs, size) -> (..., outputs, outputs)"""
        moved = jacobian @ (self.points - self.mean).T / len(self.points) ** 0.5
        return moved @ moved.mT

    def stops(self, averages: bool) -> Tensor:
        """Return what a training that stopped at each of these points, in their order, would have left.

        That is the point itself or, where the moment is marginalised, the mean of the later half.  # (count, size)
        """
        if not averages:
            return self.points
        return torch.stack([self.points[(k + 1) // 2 : k + 1].mean(0) for k in range(len(self.points))])

    def tensors(self) -> dict[str, Tensor]:
        return {"points": self.points}

    def to(self, device: torch.device) -> Points:
        return Points(self.points.to(device))


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

    def image(self, jacobian: Tensor) -> Tensor:
        """Return the covariance of jacobian @ theta.  # (..., outputs, size) -> (..., outputs, outputs)"""
        alone, shared = jacobian * self.diagonal.sqrt(), jacobian @ self.factor.to(self.mean.dtype).T
        return alone @ alone.mT + shared @ shared.mT

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "diagonal": self.diagonal, "factor": self.factor}

    def to(self, device: torch.device) -> Gaussian:
        return Gaussian(self.mean.to(device), self.diagonal.to(device), self.factor.to(device))
