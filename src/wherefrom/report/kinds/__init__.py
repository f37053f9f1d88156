"""Kinds of targets, each by what it shows and says: here, and nowhere else, one of them is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wherefrom.predictive.class_prediction import ClassPrediction
from wherefrom.predictive.panels import Output
from wherefrom.report.kinds import classes, quantity

SOURCES = quantity.SOURCES | classes.SOURCES
HOW = quantity.HOW | classes.HOW


def outputs(prediction: Any, truth: Any, names: Sequence[str], likelihood: Any, unit: str = "") -> list[Output]:
    """The outputs of a prediction, one for each name."""
    kind = classes if isinstance(prediction, ClassPrediction) else quantity
    return kind.outputs(prediction, truth, names, likelihood, unit)
