"""Trajectories of known processes, and the laws that they leave."""

import torch

from wherefrom.laws import Law, TrajectoryLaw

MEMBERS, SIZE = 3, 7


def walk(count: int, seed: int = 0, drift: float = 0.0) -> torch.Tensor:
    """Snapshots of a few members: correlated Gaussian noise about a mean.  # (count, members, size)"""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, MEMBERS, SIZE, generator=generator, dtype=torch.float64) @ mix
    return 5.0 + noise + drift * torch.arange(count, dtype=torch.float64)[:, None, None]


def collect(law: TrajectoryLaw, snapshots: torch.Tensor) -> list[Law]:
    """The law of each member that was seen at these snapshots, and no others."""
    collector = law.collector(snapshots[0], len(snapshots))
    for theta in snapshots:
        collector.collect(theta)
    return collector.laws()
