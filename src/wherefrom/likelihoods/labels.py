"""Likelihoods of labels: what classes and ordered levels share. `OfLabels` is abstract."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from wherefrom.likelihoods.likelihood import Cells, Moments
from wherefrom.likelihoods.target import Target
from wherefrom.predictive import background
from wherefrom.predictive.mixture import Mixture
from wherefrom.training.data import Scaler, no_change
from wherefrom.training.objective import Label

_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax, F.softmin}
_SIGMOID = {F.sigmoid, torch.sigmoid, Tensor.sigmoid, torch.sigmoid_, Tensor.sigmoid_, F.hardsigmoid}


class OfLabels(Target):
    """A likelihood of labels. Abstract: one adds its fields, `encode`, loss, outputs and prediction."""

    has_density: ClassVar[bool] = True
    has_atoms: ClassVar[bool] = True
    noise_kind: ClassVar[str] = "none"
    cells: ClassVar[Cells] = "labels"
    fits_noise: ClassVar[bool] = False  # whatever is left to chance, the probabilities say
    held_out: ClassVar[float] = 0.0
    by_row: ClassVar[None] = None
    learns_logs: ClassVar[bool] = False

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return no_change(1)

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above that of equal probabilities."""
        return 2.0 * math.log(max(2, targets))

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the outputs: one-shot prediction has passed the softmax already, and probabilities have no noise."""
        return Moments(outputs, spread, None)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> None:
        return None

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        raise ValueError(f"{self} has no noise to fit")

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        return background.of_classes(y, targets)

    def to_search(self, leaves_noise: bool) -> Self:
        return self


def ends_in_probabilities(outputs: Tensor, last_functions: frozenset[Any]) -> tuple[str, str] | None:
    """Return what a network seems to end in, a softmax or a sigmoid, and why; None if neither.

    The logarithm of a softmax does no harm: its softmax is the same again.
    """
    sums = outputs.sum(1)
    add_up = bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
    if add_up or not last_functions.isdisjoint(_SOFTMAX):
        return "a softmax", "its outputs add up to one"
    return None if last_functions.isdisjoint(_SIGMOID) else ("a sigmoid", "its outputs lie between 0 and 1")


def checked_labels(named: Any, what: str) -> int | tuple[Label, ...] | None:
    """Return the number of labels, or the labels, that a user names; `what` they are called."""
    if named is None:
        return None
    if isinstance(named, Integral) and not isinstance(named, bool):
        if named < 2:
            raise ValueError(f"there must be at least 2 {what}, not {named}")
        return int(named)
    if isinstance(named, str) or not hasattr(named, "__iter__"):
        raise TypeError(f"{what} must be their number, or a list of their labels, not {named!r}")
    labels = tuple(label.item() if hasattr(label, "item") else label for label in named)
    if not all(isinstance(label, str | int) for label in labels) or len({type(label) for label in labels}) > 1:
        raise TypeError(f"labels are words, whole numbers, or true and false, all of one kind: not {named!r}")
    if len(set(labels)) < len(labels) or len(labels) < 2:
        raise ValueError(f"name at least two {what}, each once, not {named!r}")
    return labels
