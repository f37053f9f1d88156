"""SWAG (Maddox et al., 2019): the Gaussian with the moments of the trajectory.

From the snapshots theta_1, ..., theta_n, with their mean m and variances s^2, and the last K of them as deviations d_k:

    theta ~ N(m,  1/2 diag(s^2) + 1/2 sum_k d_k d_k^T / c),      d_k = theta_k - m,      c = K (n - 1) / n

c is K - 1 when all snapshots are kept, and in between it is the divisor that makes the variance of a sample equal, in
expectation, to the variance of the snapshots, whatever the rank and however few there were. (Where the trajectory still
drifts, the last snapshots lie further from the mean than the others, and the variance is that much larger.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.laws.iterates import Iterates, blocks
from wherefrom.laws.law import Gaussian, Law
from wherefrom.laws.on_disk import put_on_disk

_PRECISIONS = {None: None, "float32": torch.float32, "bfloat16": torch.bfloat16, "disk": None}


@stored("SWAG")
@dataclass(frozen=True)
class SWAG:
    """Summarise the trajectory by a Gaussian: mean and variance of the collected weights, and some deviations.

    It takes the memory of 2 + rank copies of the weights. On a GPU, what is not on disk is collected in its memory, if
    that takes no more than half of the free memory, otherwise in main memory.

    rank: how many deviations from the mean are kept, which hold the covariance between weights (default 20).
    diagonal_only: keep none, like rank=0: the weights are then independent, each with its full variance s^2 (default
        False).
    deviations: where and how they are kept. None (default): as precise as the weights. "float32": in single precision.
        "bfloat16": half the bits, about 3 digits; 3 + rank / 2 copies while it collects, 2 + rank / 2 afterwards.
        "disk": in a temporary file (in TMPDIR) that is deleted with the posterior; 2 copies stay in memory, and
        predictions are the same to the last bit. `save` writes the same files; `wf.load` puts the deviations on disk
        again, member by member.

    >>> SWAG(rank=10)
    SWAG(rank=10, diagonal_only=False, deviations=None)
    """

    every: ClassVar[Literal["epoch"]] = "epoch"
    rank: int = 20
    diagonal_only: bool = False
    deviations: Literal["float32", "bfloat16", "disk"] | None = None

    def __post_init__(self) -> None:
        if self.rank < 0 or int(self.rank) != self.rank:
            raise ValueError(f"rank must be a whole number, at least 0; it is {self.rank}")
        if self.diagonal_only and self.rank not in (0, SWAG.rank):
            raise ValueError(
                f"rank must be left out with diagonal_only=True, which keeps no deviations: not {self.rank}"
            )
        if self.deviations not in _PRECISIONS:
            raise ValueError(f'deviations must be "float32", "bfloat16", "disk" or None, not {self.deviations!r}')

    @property
    def fewest(self) -> int:
        return 2

    def collector(self, theta: Tensor, iterations: int) -> Iterates:
        rank = 0 if self.diagonal_only else min(self.rank, iterations)
        points_of = [k % rank if k >= iterations - rank else -1 for k in range(iterations)]
        return Iterates(
            theta,
            points_of,
            moments=True,
            make=_gaussians,
            precision=_PRECISIONS[self.deviations],
            on_disk=self.deviations == "disk",
        )

    def kept(self, law: Law) -> Law:
        """Return a law that was read from a file where this one keeps its deviations."""
        if self.deviations != "disk" or not isinstance(law, Gaussian):
            return law
        # Copies: what a file was read into is one piece, and stays as long as any part of it.
        return Gaussian(law.mean.clone(), law.diagonal.clone(), put_on_disk(law.factor))


def _gaussians(seen: Iterates) -> list[Law]:
    """Make the laws in place: no second copy of the deviations, which are most of the memory."""
    variance = seen.squares.div_(seen.count - 1)
    kept = min(seen.points.shape[1], seen.count)
    if not kept:
        return [Gaussian(m, v, none) for m, v, none in zip(seen.mean, variance, seen.points, strict=True)]
    divisor = (2 * kept * (seen.count - 1) / seen.count) ** 0.5
    centres = seen.reference.neg_().add_(seen.mean) if seen.rounds else seen.mean
    for factor, centre in zip(seen.points, centres, strict=True):
        for columns in blocks(*factor.shape):
            part = factor[:, columns]
            part.copy_(part.to(centre.dtype).sub_(centre[columns]).div_(divisor))
    half = variance.div_(2)
    return [Gaussian(m, v, d) for m, v, d in zip(seen.mean, half, seen.points, strict=True)]


def of_last(law: Gaussian, collected: int, last: int) -> Gaussian:
    """Return the law of the last few iterates alone, from SWAG's law of all that were collected.

    The deviations of the last iterates are kept in the law, so these can be had again. `last` is from 2 to the rank.
    """
    kept = len(law.factor)
    if not 2 <= last <= kept:
        raise ValueError(f"the law holds the last {kept} iterates: take from 2 to {kept} of them, not {last}")
    divisor = (2 * kept * (collected - 1) / collected) ** 0.5
    places = [k % kept for k in range(collected - last, collected)]
    deviations = law.factor[places].to(law.mean.dtype) * divisor
    around = deviations.mean(0)
    deviations = deviations - around
    diagonal = deviations.square().sum(0) / (2 * (last - 1))
    return Gaussian(law.mean + around, diagonal, (deviations / (2 * (last - 1)) ** 0.5).to(law.factor.dtype))
