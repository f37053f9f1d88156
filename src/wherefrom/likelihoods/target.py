"""Defaults that the likelihoods of labels, of numbers and of several targets share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from wherefrom.predictive.calibration import By
from wherefrom.training.data import Rows
from wherefrom.training.objective import own_row_weights
from wherefrom.training.offset import Offset


class Target:
    """A likelihood whose loss has no settings, without an offset or weights of classes. Abstract."""

    settings: ClassVar[tuple[str, ...]] = ()
    doubt_of: ClassVar[str] = "{name}"
    calibrations: ClassVar[tuple[By, ...]]

    @property
    def own_calibrations(self) -> tuple[By, ...]:
        """Return those of `calibrations` that it has with these settings."""
        return self.calibrations

    def offset(self, x_names: tuple[str, ...], columns: int, targets: int) -> Offset | None:
        return None

    def changed(self, settings: Mapping[str, Any]) -> Self:
        return self

    def row_weights(self, rows: Rows) -> Tensor | None:
        return own_row_weights(rows)

    def suited(self, y: Tensor) -> Self:
        return self

    def can_be(self, y: Tensor) -> Tensor:
        return torch.ones_like(y, dtype=torch.bool)
