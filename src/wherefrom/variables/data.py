"""D: the rows that are learnt from. The paper conditions on them; they were drawn from something, too.

`Resample` draws them again, `Folds` leaves one part of them out of each draw. Then every row has members that did not
see it, and these judge it: all rows train, and all test (see posterior/left_out.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.training import streams
from wherefrom.variables.drawn import Drawn, check_draws


@stored("Resample")
@dataclass(frozen=True)
class Resample(Drawn):
    """Make the choice of training rows random: each draw takes as many rows again, with replacement (the bootstrap).

    Standardisation, held-out rows, and the statistics of batch normalisation for sampled weights use the whole data.

    draws: how many choices of rows to train on (needed, except in `Jointly`).
    share: take this share of the rows, each at most once (subsampling; default: as many rows as there are, with
        replacement).

    >>> Resample(20)
    Resample(draws=20, share=None)
    """

    slot: ClassVar[str] = "D"
    draws: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        check_draws(self)
        if self.share is not None and not 0 < self.share < 1:
            raise ValueError(
                f"share is a part of the rows, between 0 and 1, not {self.share}; leave it out to bootstrap"
            )

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        return {"share": self.share}

    @staticmethod
    def rows(count: int, share: float | None, seed: int, draw: int) -> Tensor:
        """The rows of a draw, by their numbers."""
        generator = streams.generator(seed, "D", draw)
        if share is None:
            return torch.from_numpy(generator.integers(count, size=count)).sort().values
        kept = max(1, round(share * count))
        return torch.from_numpy(generator.permutation(count)[:kept]).sort().values


@stored("Folds")
@dataclass(frozen=True)
class Folds(Drawn):
    """Make the choice of training rows random: they are split into folds, and each draw leaves one fold out.

    Folds have similar y, and rows of one of the `groups` of `wf.marginalise` stay together. The rows that a draw leaves
    out test its members: noise, weights and calibration are fitted on them without holding any row out, and
    `posterior.out_of_fold()` predicts every training row by the members that did not see it. Standardisation uses all
    rows.

    draws: how many folds (needed, except in `Jointly`).

    >>> Folds(5)
    Folds(draws=5)
    """

    slot: ClassVar[str] = "D"
    draws: int | None = None

    @property
    def can_grow(self) -> bool:
        return False  # more folds are other ones

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        return {"leaves_out": draw}
