"""The class of all variables that are drawn before training: a slot that they redraw, and a number of draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from wherefrom.training import streams


class Drawn(ABC):
    """A choice made anew for each training. A draw redraws the variable's own slot and nothing else.

    One of your own is a frozen dataclass of this kind: it has a slot, a field `draws`, and says what a draw chooses.
    The slot is one of the library's (F, theta0, gamma, h, order, D), whose place it takes, or a new name.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Rate(Drawn):
    ...     slot: ClassVar[str] = "rate"
    ...     draws: int | None = None
    ...     def choices(self, seed, draw):
    ...         return {"lr": 10 ** self.generator(seed, draw).uniform(-3, -1)}
    >>> Rate(5).choices(seed=0, draw=4) == Rate(9).choices(seed=0, draw=4)
    True
    """

    slot: ClassVar[str]
    draws: int | None  # how many trainings; None inside Jointly, which counts for all
    weights: tuple[float, ...] | None = None  # of its values, where they are finite and not equally likely

    def __post_init__(self) -> None:
        check_draws(self)

    @property
    def is_finite(self) -> bool:
        """True if its draws are all the values there are, not a sample of them."""
        return False

    @property
    def can_grow(self) -> bool:
        """True if more of it can be drawn, which leaves the first draws as they are."""
        return not self.is_finite

    def drawn_jointly(self) -> Self:
        """Return the variable as it is within `Jointly`: drawn at random, as often as `Jointly` says."""
        return self

    @abstractmethod
    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        """Return the settings that this draw changes in the training, by name; the same in every call."""

    def generator(self, seed: int, draw: int) -> np.random.Generator:
        """The random numbers of one draw, whichever other draws and variables there are."""
        return streams.generator(seed, self.slot, type(self).__name__, "own", draw)


def check_draws(variable: Drawn) -> None:
    name = type(variable).__name__
    draws = variable.draws
    if draws is not None and int(draws) != draws:
        raise ValueError(f"{name}({draws}): the number of draws must be whole")
    if draws is not None and draws < 2:
        raise ValueError(
            f"{name}({draws}): one draw holds no doubt; give at least 2, or leave the variable out of `over`"
        )
