"""The laws that trajectories leave over theta."""

from wherefrom.laws.delta import delta
from wherefrom.laws.iterates import Iterates
from wherefrom.laws.laplace import Laplace
from wherefrom.laws.law import (
    Collector,
    Finished,
    FinishingLaw,
    Gaussian,
    Law,
    Often,
    Points,
    TrajectoryLaw,
    beside,
    needs_statistics,
)
from wherefrom.laws.rotated import Rotated
from wherefrom.laws.snapshots import Snapshots
from wherefrom.laws.swag import SWAG
from wherefrom.laws.tradi import TRADI, Filters
from wherefrom.laws.variational import Variational

__all__ = [
    "SWAG",
    "TRADI",
    "Collector",
    "Filters",
    "Finished",
    "FinishingLaw",
    "Gaussian",
    "Iterates",
    "Laplace",
    "Law",
    "Often",
    "Points",
    "Rotated",
    "Snapshots",
    "TrajectoryLaw",
    "Variational",
    "beside",
    "delta",
    "needs_statistics",
]
