"""Numbers that training steps need, prepared for some steps at a time, so that a step waits for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_FIRST_STEPS = 2**5

Item = TypeVar("Item")


class InBlocks(Generic[Item]):
    """Items for each step, of which `plan(first step, steps)` prepares some at a time.

    It begins with few and doubles them up to `most`, since a short training has no use for many.
    """

    def __init__(self, plan: Callable[[int, int], Sequence[Item]], most: int) -> None:
        self.plan, self.most, self.block = plan, most, min(_FIRST_STEPS, most)
        self.first = 0
        self.planned: Sequence[Item] = ()

    def __call__(self, step: int) -> Item:
        if not self.first <= step < self.first + len(self.planned):
            self.first, self.planned = step, self.plan(step, self.block)
            self.block = min(2 * self.block, self.most)
        return self.planned[step - self.first]
