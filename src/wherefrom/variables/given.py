"""A choice that somebody else made: members that were trained elsewhere have draws too, known by their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from wherefrom.files.codec import stored


@stored("Given")
@dataclass(frozen=True)
class Given:
    """A variable of trainings that were done elsewhere, under any name. No more of it can be drawn.

    >>> Given("annotator", 3)
    Given(slot='annotator', draws=3, is_finite=False)
    """

    weights: ClassVar[None] = None
    slot: str
    draws: int
    is_finite: bool = False  # its draws are all the values there are, not a sample of them

    def drawn_jointly(self) -> Given:
        return self

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        raise ValueError(
            f"these members were trained elsewhere, so no more draws of {self.slot} can be trained here: train them "
            "there, and make a posterior of all of them by wf.Posterior.from_members"
        )
