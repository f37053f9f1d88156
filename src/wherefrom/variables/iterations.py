"""t: when training stops. p(theta | D, h, theta0) = lim 1/(t - tau) sum of delta(theta - A_h^tau(theta0))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from wherefrom.laws import TrajectoryLaw
from wherefrom.training.cohort import Collection


@dataclass(frozen=True)
class Iterations:
    """The moment training stops is random: the trajectory from `start` (a fraction of the epochs) on leaves a law.

    It is collected once an epoch, or every so many steps.

    >>> from wherefrom.laws import SWAG
    >>> Iterations(SWAG(rank=10), start=0.75)
    Iterations(law=SWAG(rank=10), start=0.75, every='epoch')
    """

    slot: ClassVar[str] = "t"
    law: TrajectoryLaw
    start: float = 0.5
    every: int | Literal["epoch"] = "epoch"

    def __post_init__(self) -> None:
        if isinstance(self.law, type) or not hasattr(self.law, "collector"):
            raise TypeError(f"law must be a law such as wf.SWAG(rank=20), not {self.law!r}")
        if not 0 <= self.start < 1:
            raise ValueError(f"start is a fraction of the epochs, from 0 to below 1, not {self.start}")
        if self.every != "epoch" and (isinstance(self.every, str) or self.every < 1):
            raise ValueError(f'every must be "epoch" or a number of steps, at least 1, not {self.every!r}')

    def collection(self, epochs: int, steps_per_epoch: int) -> Collection:
        every = steps_per_epoch if self.every == "epoch" else int(self.every)
        total = epochs * steps_per_epoch
        first = round(self.start * epochs) * steps_per_epoch + every
        collection = Collection(self.law, first, every, total)
        if first > total or collection.iterations < self.law.fewest:
            raise ValueError(
                f"{self} sees {max(0, collection.iterations)} iterations of {epochs} epochs, but needs at least "
                f"{self.law.fewest}: train longer, start earlier, or collect more often"
            )
        return collection
