"""The posterior: from a training and its variables to members, what they predict, parts of them, and files."""

from __future__ import annotations

from wherefrom.posterior.growth import DivergedError
from wherefrom.posterior.posterior import Posterior

__all__ = ["DivergedError", "Posterior"]
