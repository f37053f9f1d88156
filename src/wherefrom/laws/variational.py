"""The Gaussian that an algorithm has learned beside its weights, as IVON does: N(theta_t, its own variances)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.laws.law import Collector, Finished, Gaussian, Law


@stored("Variational")
@dataclass(frozen=True)
class Variational:
    """Use the variance of every weight that the algorithm has learned: `Algorithm("ivon", ...)`.

    >>> Variational()
    Variational()
    """

    every: ClassVar[Literal["epoch"]] = "epoch"
    fewest: ClassVar[int] = 1

    def collector(self, theta: Tensor, iterations: int) -> Collector | None:
        return None

    def finish(self, member: Finished) -> Law:
        if member.variance is None:
            raise ValueError(
                'Variational needs an algorithm that learns the variance of its weights: Algorithm("ivon", ...). For '
                "others, use wf.SWAG() or wf.Laplace()"
            )
        mean = member.theta[: member.size].cpu()
        variance = F.pad(member.variance.cpu(), (0, len(mean) - len(member.variance)))
        return Gaussian(mean, variance, torch.zeros(0, len(mean), dtype=mean.dtype))
