"""F: what is trained. p(y | x, D) = integral of p(y | x, D, F) p(F)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Dropout:
    """The sub-networks M_theta of a network with dropout are random: a sample drops units as training did.

    One sample is one sub-network f(theta * omega), the same for all rows, so that a row's prediction does not
    depend on its neighbours. `rate` overrides the rates in the model, in training too.

    >>> Dropout()
    Dropout(rate=None)
    """

    slot: ClassVar[str] = "F"
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < 1:
            raise ValueError(f"the dropout rate must lie between 0 and 1; it is {self.rate}")
