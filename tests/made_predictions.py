"""Predictions made by hand: their mixture and what stands around it in one call."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from wherefrom.likelihoods import ClassPrediction, Prediction
from wherefrom.predictive.mixture import Mixture

_OF_MIXTURE = {field.name for field in fields(Mixture)}


def quantity(answers, noise, location, scale, is_flat, plan, axes, missing, **others: Any) -> Prediction:
    """A prediction of quantities."""
    mixture = {name: others.pop(name) for name in _OF_MIXTURE & set(others)}
    return Prediction(Mixture(answers, plan, axes, missing, noise, **mixture), location, scale, is_flat, **others)


def classes(log_probabilities, labels, plan, axes, missing, **others: Any) -> ClassPrediction:
    """A prediction of classes."""
    mixture = {name: others.pop(name) for name in _OF_MIXTURE & set(others)}
    return ClassPrediction(Mixture(log_probabilities, plan, axes, missing, **mixture), labels, **others)


def changed(prediction: Any, **changes: Any) -> Any:
    """The same prediction with something else in its mixture, or around it."""
    if "log_probabilities" in changes:
        changes["answers"] = changes.pop("log_probabilities")
    mixture = {name: changes.pop(name) for name in _OF_MIXTURE & set(changes)}
    where = "logs" if isinstance(prediction, ClassPrediction) else "mixture"
    changes |= {where: replace(getattr(prediction, where), **mixture)} if mixture else {}
    return replace(prediction, **changes)
