"""Snapshots: the trajectory's own points, equally likely (the paper's sum of deltas over tau)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from wherefrom.laws.law import Law, Points


@dataclass(frozen=True)
class Snapshots:
    """Keep `most` iterates, evenly spread over those collected.

    >>> Snapshots(most=20)
    Snapshots(most=20)
    """

    most: int = 20

    def __post_init__(self) -> None:
        if self.most < 2:
            raise ValueError(f"most must be at least 2 snapshots; it is {self.most}")

    @property
    def fewest(self) -> int:
        return 2

    def collector(self, theta: Tensor, iterations: int) -> SnapshotPoints:
        return SnapshotPoints(theta, iterations, min(self.most, iterations))


class SnapshotPoints:
    """Writes the chosen iterates of many trajectories into one tensor."""

    def __init__(self, theta: Tensor, iterations: int, kept: int) -> None:
        members, size = theta.shape
        # Evenly spread, and always with the last one.
        self.chosen = {round((k + 1) * iterations / kept) - 1: k for k in range(kept)}
        self.points = theta.new_zeros(members, kept, size)
        self.count = 0

    def collect(self, theta: Tensor) -> None:
        if (place := self.chosen.get(self.count)) is not None:
            self.points[:, place] = theta
        self.count += 1

    def laws(self) -> list[Law]:
        return [Points(points) for points in self.points]
