"""t: when training stops. p(theta | D, h, theta0) = lim 1/(t - tau) sum of delta(theta - A_h^tau(theta0))."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar, Literal

import numpy as np

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import own_class
from wherefrom.laws import Often, TrajectoryLaw
from wherefrom.training.cohort import Collection

_LEAST_SHARE, _LEAST_EPOCHS = 0.25, 5  # at the end of training, that are collected in any case


@stored("Iterations", code={"law": own_class("laws")})
@dataclass(frozen=True, repr=False)
class Iterations:
    """Make the time when training stops random: a law summarises the weights along the trajectory.

    law: how to summarise the collected weights: SWAG, TRADI, Snapshots, Laplace, Variational, or your own.
    start: when to start collecting (default 0.5): a fraction of the epochs, a number of epochs (1, 2, ...), or "auto":
        when each member's training loss has levelled off, for which it is trained twice.
    every: how often to collect: "epoch", or a number of steps (default: TRADI at every step, the others once an epoch).
    steps: the steps at which to collect, instead of `start` and `every`: their numbers, counted from 1, or fractions of
        the training, up to 1.0. [0.25, 0.5, 0.75, 1.0] are the ends of four cycles of the learning rate.

    >>> from wherefrom.laws import SWAG
    >>> Iterations(SWAG(diagonal_only=True), start=0.75, every="epoch")
    Iterations(law=SWAG(rank=20, diagonal_only=True, deviations=None), start=0.75, every='epoch')
    >>> Iterations(SWAG(), steps=[0.25, 0.5, 0.75, 1.0]).collection(epochs=40, steps_per_epoch=10).steps
    (100, 200, 300, 400)
    """

    slot: ClassVar[str] = "t"
    law: TrajectoryLaw
    start: float | Literal["auto"] = 0.5
    every: int | Literal["epoch"] | None = None
    steps: tuple[float, ...] | None = None

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
        if self.steps is not None:
            if self.every is not None or self.start != Iterations.start:
                raise ValueError("steps name every iteration to collect: leave out start and every")
            object.__setattr__(self, "steps", _plain_steps(self.steps))

    def __repr__(self) -> str:
        where = f"start={self.start!r}, every={self.every!r}" if self.steps is None else f"steps={self.steps!r}"
        return f"Iterations(law={self.law!r}, {where})"

    def collection(self, epochs: int, steps_per_epoch: int, losses: Sequence[float] | None = None) -> Collection:
        """Return the iterations that make the law; "auto" looks at the losses of one member's epochs."""
        often: Often = self.steps or self.every or self.law.every
        total = epochs * steps_per_epoch
        steps: range | tuple[int, ...]
        if isinstance(often, tuple):
            steps = _numbered(often, total)
        else:
            every = steps_per_epoch if often == "epoch" else int(often)
            steps = range(self._first_epoch(epochs, losses) * steps_per_epoch + every, total + 1, every)
        if len(steps) < self.law.fewest:
            more = "start earlier, or collect more often" if self.steps is None else "or name more steps"
            raise ValueError(
                f"{self} sees {len(steps)} iteration{'s' * (len(steps) != 1)} of {epochs} epoch{'s' * (epochs != 1)}, "
                f"but needs at least {self.law.fewest}: train longer, {more}"
            )
        return Collection(self.law, steps)

    def _first_epoch(self, epochs: int, losses: Sequence[float] | None) -> int:
        """Return the first epoch to be collected, counted from 0."""
        if self.start != "auto":
            return int(self.start) if isinstance(self.start, Integral) else round(self.start * epochs)
        if losses is None or len(losses) != epochs:
            given = "none are given" if losses is None else f"{len(losses)} are given"
            raise ValueError(f'start="auto" needs the training loss of each of the {epochs} epochs, but {given}')
        return levelled_off(losses)


def levelled_off(losses: Sequence[float]) -> int:
    """Return the epoch, counted from 0, from which on one member's training loss no longer falls: the paper's tau-bar.

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


def _plain_steps(steps: Iterable[float]) -> tuple[float, ...]:
    """Return steps in Python's numbers: whole ones are step numbers, others fractions of the training."""
    if isinstance(steps, str) or not hasattr(steps, "__iter__"):
        raise TypeError(f"steps must be a list of step numbers, or of fractions of the training, not {steps!r}")
    plain = tuple(int(step) if isinstance(step, Integral) else float(step) for step in steps)
    for step in plain:
        if not (step >= 1 if isinstance(step, int) else 0 < step <= 1):
            raise ValueError(f"steps are whole numbers from 1 on, or fractions of the training up to 1.0, not {step!r}")
    if not plain:
        raise ValueError("steps must name at least one step")
    return plain


def _numbered(steps: tuple[float, ...], total: int) -> tuple[int, ...]:
    """Return the numbers of steps of a training, ascending; fractions are rounded to the nearest step."""
    numbers = sorted({step if isinstance(step, int) else max(1, round(step * total)) for step in _plain_steps(steps)})
    if numbers[-1] > total:
        raise ValueError(f"steps names step {numbers[-1]}, but a training has {total}: give fractions of it, up to 1.0")
    return tuple(numbers)


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
