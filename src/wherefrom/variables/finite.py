"""Values that can be gone through one by one, with a probability for each where they are not equally likely."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wherefrom.files.codec import stored
from wherefrom.training.schedules import NOT_STORED


@stored("Finite", code={"values": NOT_STORED})
@dataclass(frozen=True)
class Finite:
    """A finite set of values. Written as a list, or as a dictionary from value to weight.

    >>> Finite.of({0.01: 3, 0.1: 1})
    Finite(values=(0.01, 0.1), weights=(0.75, 0.25))
    """

    values: tuple[Any, ...]
    weights: tuple[float, ...] | None = None  # adding up to one; None: equally likely

    @classmethod
    def of(cls, values: Mapping[Any, float] | Sequence[Any]) -> Finite:
        if isinstance(values, Mapping):
            return cls(tuple(values), shares(list(values.values()), len(values)))
        return cls(tuple(values))

    def __len__(self) -> int:
        return len(self.values)

    def probability(self, place: int) -> float:
        return 1 / len(self.values) if self.weights is None else self.weights[place]

    def written(self) -> Any:
        """Return it as a user writes it."""
        return list(self.values) if self.weights is None else dict(zip(self.values, self.weights, strict=True))

    def draw(self, generator: np.random.Generator) -> Any:
        if self.weights is None:
            return self.values[int(generator.integers(len(self.values)))]
        cumulative = np.cumsum(self.weights)
        return self.values[min(int(np.searchsorted(cumulative, generator.random(), side="right")), len(self) - 1)]


def shares(weights: Sequence[float] | None, count: int) -> tuple[float, ...] | None:
    """Weights that add up to one; none where all are equally likely."""
    if weights is None:
        return None
    if len(weights) != count:
        raise ValueError(f"there are {len(weights)} weights for {count} values")
    if any(not (math.isfinite(weight) and weight > 0) for weight in weights):
        raise ValueError(f"weights must be positive numbers, not {list(weights)}")
    total = math.fsum(weights)
    return tuple(float(weight) / total for weight in weights)
