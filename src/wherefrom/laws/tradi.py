"""TRADI (Franchi et al., 2019): a Kalman filter for each weight, along its trajectory.

A weight is a noisy observation of its own mean, and the mean moves by the step that the optimiser is expected to take:

    state           mean_k = mean_{k-1} + drift_{k-1} + noise,        drift_k = drift_{k-1} + noise
    observation    theta_k = mean_k + noise of variance s^2

With the innovation e_k = theta_k - mean_{k-1} - drift_{k-1}, and gains a_k and b_k,

    mean_k = mean_{k-1} + drift_{k-1} + a_k e_k,      drift_k = drift_{k-1} + b_k e_k,      E[(1 - a_k) e_k^2] = s^2

so (1 - a_k) e_k^2, the squared deviation from the tracked mean made unbiased, is what observes the variance. At the
end, theta ~ N(mean, s^2).

The expected step has to be a state. Franchi et al. put the actual one, theta_k - theta_{k-1}, in its place; but then
theta_k - mean_k = (1 - a_k) (theta_{k-1} - mean_{k-1}) whatever the steps are, and the mean ends at the last iterate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.laws.law import Gaussian, Law

_SHORTEST = 10.0  # memory, in iterations: a line and the scatter about it take some


@stored("TRADI")
@dataclass(frozen=True)
class TRADI:
    """Track each weight's mean and variance along the trajectory, by a Kalman filter.

    memory: older iterates fade to 1/e within this share of the iterations (default 0.25).

    There is nothing else to set, because all noise is relative: the noise of an observation is the tracked variance
    itself, and the noise of the state lets the past fade. Movement slower than the memory counts as drift, not as
    variance: a longer memory finds more variance, and its mean lags behind where trajectories bend.

    >>> TRADI(memory=0.5)
    TRADI(memory=0.5)
    """

    every: ClassVar[int] = 1
    memory: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.memory <= 1:
            raise ValueError(f"memory must be a share of the iterations, above 0 and up to 1; it is {self.memory}")

    @property
    def fewest(self) -> int:
        return 3  # two make a line

    def collector(self, theta: Tensor, iterations: int) -> Filters:
        return Filters(theta, math.exp(-1 / max(_SHORTEST, self.memory * iterations)))


class Filters:
    """The filters of all weights of a group of members, with what they know relative to the last iterate.

    Steps and deviations are small where weights may be large, so single precision will do. The filters start from
    nothing known, and since all noise is relative to a weight's own variance, they share their gains: those of least
    squares, for a line through the iterates, the one j iterations ago with a weight of discount^j.
    """

    state = ("count", "sums", "squares_weight", "last", "deviation", "drift", "variance")

    def __init__(self, theta: Tensor, discount: float) -> None:
        self.discount, self.count = discount, 0
        self.sums = 0.0, 0.0, 0.0  # of the weights, of their j, and of their j^2
        self.squares_weight = 0.0
        self.last = theta.clone()  # (members, size)
        self.deviation, self.drift, self.variance = (torch.zeros_like(theta) for _ in range(3))

    def collect(self, theta: Tensor) -> None:
        gain, drift_gain, new = self._gains()
        if self.count > 1:
            step = theta - self.last
            innovation = self.deviation.add_(step).sub_(self.drift)
            self.drift.add_(innovation, alpha=drift_gain)
            self.variance.mul_(1 - new).addcmul_(innovation, innovation, value=new * (1 - gain))
            self.deviation.mul_(1 - gain)
        self.last.copy_(theta)

    def gains(self, iterations: int) -> list[tuple[float, float, float]]:
        """Return the gains at the first iterates, for an engine that moves the tensors itself."""
        filters = Filters(self.last[:0], self.discount)
        return [filters._gains() for _ in range(iterations)]

    def filled(self, positions: Tensor) -> Filters:
        """Return it after an engine has moved the tensors, with coordinate k at positions[k]."""
        self.last, self.deviation, self.drift, self.variance = (
            tensor.index_select(-1, positions) for tensor in (self.last, self.deviation, self.drift, self.variance)
        )
        return self

    def laws(self) -> list[Law]:
        """Make the laws in place, and bring them to main memory, where other laws are.

        The filters stand beside theta, since they take every step.
        """
        mean, variance = self.last.sub_(self.deviation).cpu(), self.variance.cpu()
        none = mean.new_zeros(0, mean.shape[1])
        return [Gaussian(m, v, none) for m, v in zip(mean, variance, strict=True)]

    def _gains(self) -> tuple[float, float, float]:
        """Return the gains of the mean and of the drift, and the weight of a square, at the next iterate."""
        d, (w, wj, wjj) = self.discount, self.sums
        self.count += 1
        self.sums = w, wj, wjj = 1 + d * w, d * (w + wj), d * (w + 2 * wj + wjj)
        if self.count == 1:
            return 1.0, 0.0, 0.0  # one iterate tells of no drift
        determinant = w * wjj - wj**2
        if self.count == 2:
            return wjj / determinant, wj / determinant, 0.0  # and two make a line, without a scatter about it
        self.squares_weight = 1 + d * self.squares_weight
        return wjj / determinant, wj / determinant, 1 / self.squares_weight
