"""What the network's outputs say about y: the loss that training minimises, and p(y | x, theta)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from wherefrom.losses import MOST_LOG_VARIANCE, GaussianNLL, Loss, SquaredError

Noise = float | Literal["fit", "predicted"] | None


@dataclass(frozen=True)
class Regression:
    """A real-valued y, one column or several.

    `noise` is the standard deviation of y around the network's answer, in y's own units:
    `None` (the paper's: squared error, all doubt comes from theta), a number, `"fit"` (one value for each output,
    estimated on `held_out` of the rows, which no member trains on), or `"predicted"` (the network has two outputs for
    each column of y, its mean and the logarithm of its variance, and learns both).

    >>> Regression(noise=0.5).outputs(targets=2), Regression(noise="predicted").outputs(targets=2)
    (2, 4)
    """

    noise: Noise = None
    held_out: float = 0.1

    def __post_init__(self) -> None:
        if isinstance(self.noise, str):
            if self.noise not in ("fit", "predicted"):
                raise ValueError(f'noise must be None, a number, "fit" or "predicted", not {self.noise!r}')
        elif self.noise is not None and (isinstance(self.noise, bool) or not isinstance(self.noise, Real)):
            raise TypeError(f'noise must be None, one number, "fit" or "predicted", not {self.noise!r}')
        elif self.noise is not None and not self.noise > 0:
            raise ValueError(f"noise is a standard deviation and must be positive, not {self.noise}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a fraction of the rows, between 0 and 1, not {self.held_out}")

    def outputs(self, targets: int) -> int:
        """How many outputs the network must have for so many columns of y."""
        return 2 * targets if self.noise == "predicted" else targets

    @property
    def loss(self) -> Loss:
        """What training minimises: (..., rows, outputs), (..., rows, targets) -> (...)"""
        return GaussianNLL() if self.noise == "predicted" else SquaredError()

    def split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The means and log variances among the outputs of a network that predicts its noise."""
        mean, log_variance = outputs.chunk(2, dim=-1)
        return mean, log_variance

    def predicted_variance(self, log_variance: Tensor) -> Tensor:
        """What a log variance stands for: between a millionth and a million of y's own variance, as in training."""
        return log_variance.double().clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE).exp()


def most_likely_noise(squares: Tensor, weights: Tensor | None = None) -> Tensor:
    """The variance s that maximises sum_rows log sum_k w_k N(y; answer_k, s), for each output.

    `squares` are the squared distances of y from every answer; without weights, all answers weigh the same.
    # (answers, rows, outputs), (answers,) -> (outputs,)
    A grid first, because there can be more than one peak, then golden sections around the best of it.
    """
    if weights is not None:
        squares, weights = squares[weights > 0], weights[weights > 0]
        weights = None if bool((weights == weights[0]).all()) else weights / weights.sum()
    log_weights = None if weights is None else weights.log()[:, None, None]

    def cost(log_noise: Tensor) -> Tensor:  # (outputs,) -> (outputs,)
        logs = -0.5 * squares / log_noise.exp()
        return 0.5 * log_noise - torch.logsumexp(logs if log_weights is None else logs + log_weights, 0).mean(0)

    mean = squares.mean((0, 1)) if weights is None else torch.tensordot(weights, squares.mean(1), 1)
    spread = mean.log()
    grid = torch.linspace(-12, 1, 40, dtype=torch.float64)[:, None] + spread
    best = torch.stack([cost(candidate) for candidate in grid]).argmin(0)
    columns = torch.arange(len(spread))
    low, high = (grid[(best + step).clamp(0, len(grid) - 1), columns] for step in (-1, 1))
    ratio = (5**0.5 - 1) / 2
    for _ in range(25):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        go_left = cost(left) < cost(right)
        low, high = torch.where(go_left, low, left), torch.where(go_left, right, high)
    return ((low + high) / 2).exp()
