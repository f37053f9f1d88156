"""What all variables have in common that are drawn before training: a slot that they redraw, and a number of draws."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol


class Drawn(Protocol):
    """A choice made anew for each training. A draw redraws the variable's own slot and nothing else."""

    slot: ClassVar[str]

    @property
    def draws(self) -> int | None: ...  # how many trainings; None inside Jointly, which counts for all

    @property
    def is_finite(self) -> bool: ...  # its draws are all the values there are, not a sample of them

    @property
    def weights(self) -> tuple[float, ...] | None: ...  # of its values, where they are finite and not equally likely

    def drawn_jointly(self) -> Drawn: ...  # the same within Jointly: at random, and Jointly says how often

    def choices(self, seed: int, draw: int) -> dict[str, Any]: ...  # what this draw changes in the training


def check_draws(variable: Drawn) -> None:
    name = type(variable).__name__
    draws = variable.draws
    if draws is not None and int(draws) != draws:
        raise ValueError(f"{name}({draws}): the number of draws must be whole")
    if draws is not None and draws < 2:
        raise ValueError(
            f"{name}({draws}): one draw holds no doubt; give at least 2, or leave the variable out of `over`"
        )
