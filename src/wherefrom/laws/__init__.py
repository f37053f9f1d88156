"""The laws that trajectories leave over theta."""

from wherefrom.laws.delta import delta
from wherefrom.laws.iterates import Iterates
from wherefrom.laws.law import Collector, Gaussian, Law, Points, TrajectoryLaw
from wherefrom.laws.snapshots import Snapshots
from wherefrom.laws.swag import SWAG
from wherefrom.laws.tradi import TRADI

__all__ = [
    "SWAG",
    "TRADI",
    "Collector",
    "Gaussian",
    "Iterates",
    "Law",
    "Points",
    "Snapshots",
    "TrajectoryLaw",
    "delta",
]
