"""Snapshots: the trajectory's own points, equally likely (the paper's sum of deltas over tau)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.laws.iterates import Iterates
from wherefrom.laws.law import Points


@stored("Snapshots")
@dataclass(frozen=True)
class Snapshots:
    """Keep some of the collected weights as they are.

    keep: how many, evenly spread over those collected (default 20).

    >>> Snapshots(keep=20)
    Snapshots(keep=20)
    """

    every: ClassVar[Literal["epoch"]] = "epoch"
    keep: int = 20

    def __post_init__(self) -> None:
        if self.keep < 2:
            raise ValueError(f"keep must be at least 2 snapshots; it is {self.keep}")

    @property
    def fewest(self) -> int:
        return 2

    def collector(self, theta: Tensor, iterations: int) -> Iterates:
        kept = min(self.keep, iterations)
        # Evenly spread, and always with the last one.
        chosen = {round((k + 1) * iterations / kept) - 1: k for k in range(kept)}
        points_of = [chosen.get(k, -1) for k in range(iterations)]
        return Iterates(theta, points_of, moments=False, make=lambda seen: [Points(points) for points in seen.points])
