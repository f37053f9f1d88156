"""t: when training stops. p(theta | D, h, theta0) = lim 1/(t - tau) sum of delta(theta - A_h^tau(theta0))."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import own_class
from wherefrom.laws import TrajectoryLaw
from wherefrom.training.cohort import Collection

_LEAST_SHARE, _LEAST_EPOCHS = 0.25, 5  # at the end of training, that are collected in any case


@stored("Iterations", code={"law": own_class("laws")})
@dataclass(frozen=True)
class Iterations:
    """The moment training stops is random: the trajectory from `start` on leaves a law.

    `start` is a fraction of the epochs, or a number of epochs (1, 2, ...), or "auto": each member from where its own
    training loss has levelled off, for which it is trained twice. The trajectory is collected `every` so many steps or
    once an "epoch"; if nothing is said, as the law would have it: TRADI at every step, the others once an epoch.

    >>> from wherefrom.laws import SWAG
    >>> Iterations(SWAG(diagonal_only=True), start=0.75, every="epoch")
    Iterations(law=SWAG(rank=20, diagonal_only=True, deviations=None), start=0.75, every='epoch')
    """

    slot: ClassVar[str] = "t"
    law: TrajectoryLaw
    start: float | Literal["auto"] = 0.5
    every: int | Literal["epoch"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.law, type) or not hasattr(self.law, "collector"):
            raise TypeError(f"law must be a law such as wf.SWAG(rank=20), not {self.law!r}")
        if not _is_start(self.start):
            raise ValueError(
                "start is a fraction of the epochs, from 0 to below 1, or a whole number of epochs, "
                f'or "auto", not {self.start!r}'
            )
        if not _is_often(self.every):
            raise ValueError(f'every must be "epoch" or a number of steps, at least 1, not {self.every!r}')

    def collection(self, epochs: int, steps_per_epoch: int, losses: Sequence[float] | None = None) -> Collection:
        """The iterations that make the law; `losses` are those of one member's epochs, which "auto" looks at."""
        often = self.law.every if self.every is None else self.every
        every = steps_per_epoch if often == "epoch" else int(often)
        total = epochs * steps_per_epoch
        first = self._first_epoch(epochs, losses) * steps_per_epoch + every
        collection = Collection(self.law, first, every, total)
        if first > total or collection.iterations < self.law.fewest:
            raise ValueError(
                f"{self} sees {max(0, collection.iterations)} iterations of {epochs} epochs, but needs at least "
                f"{self.law.fewest}: train longer, start earlier, or collect more often"
            )
        return collection

    def _first_epoch(self, epochs: int, losses: Sequence[float] | None) -> int:
        """The first epoch to be collected, counted from 0."""
        if self.start != "auto":
            return int(self.start) if isinstance(self.start, Integral) else round(self.start * epochs)
        if losses is None or len(losses) != epochs:
            given = "none are given" if losses is None else f"{len(losses)} are given"
            raise ValueError(f'start="auto" needs the training loss of each of the {epochs} epochs, but {given}')
        return levelled_off(losses)


def levelled_off(losses: Sequence[float]) -> int:
    """The epoch, counted from 0, from which on one member's training loss no longer falls: the paper's tau-bar.

    It is where the losses that are left would tell their mean most precisely: the start s with the smallest

        (variance of the ranks of losses s, s + 1, ..., n) / (how many these are)

    Leaving out an epoch pays as long as it stands apart from the later ones by more than their scatter; beyond that it
    only wastes epochs (the marginal standard error rule for the warm-up of a simulation, White 1997). Ranks instead of
    losses, so that a few spikes decide nothing. At least the last quarter of the epochs is left, and no fewer than
    five: that is where a loss starts which falls to the end.

    >>> levelled_off([9.0, 5.0, 3.0, 1.1, 1.0, 1.2, 1.0, 1.1, 1.1, 1.0, 1.2, 1.1])
    3
    """
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError("a loss levels off only if it is known and finite in every epoch")
    count = len(values)
    least = min(count, max(_LEAST_EPOCHS, int(np.ceil(_LEAST_SHARE * count))))
    ranks = np.unique(values, return_inverse=True)[1] - (count - 1) / 2
    left = np.arange(count, 0, -1.0)
    sums, squares = (np.cumsum(power[::-1])[::-1] for power in (ranks, ranks**2))  # of what is left from each epoch on
    variance = squares / left - (sums / left) ** 2
    return int(np.argmin((variance / left)[: count - least + 1]))


def _is_start(start: object) -> bool:
    if isinstance(start, bool | str):
        return start == "auto"
    if isinstance(start, Integral):
        return int(start) >= 0
    return isinstance(start, Real) and 0 <= float(start) < 1


def _is_often(every: object) -> bool:
    if isinstance(every, bool | str):
        return every == "epoch"
    return every is None or (isinstance(every, Integral) and int(every) >= 1)
