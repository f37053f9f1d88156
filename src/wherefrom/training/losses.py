"""Losses that training minimises: a mean over rows, for one member or for many at once.

Outputs are (..., rows, outputs), y is (..., rows, targets); weights, where there are any, are (..., rows) with a mean
of about one, and multiply each row's loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

MOST_LOG_VARIANCE = math.log(1e6)


class Loss(Protocol):
    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor: ...  # -> (...)


@runtime_checkable
class Curved(Protocol):
    """A loss that knows its derivatives, row by row, without a graph."""

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first and second derivatives of each row's loss by its outputs.  # (rows, outputs) each"""
        ...


def _mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Over rows and columns.  # (..., rows, columns) -> (...)"""
    return (losses if weights is None else losses * weights.unsqueeze(-1)).mean((-2, -1))


@dataclass(frozen=True)
class SquaredError:
    """(f - y)^2"""

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        return _mean((outputs - y).square(), weights)

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first and second derivatives.  # (rows, outputs) each"""
        return 2 * (outputs - y) / y.shape[-1], torch.full_like(outputs, 2 / y.shape[-1])


@dataclass(frozen=True)
class GaussianNLL:
    """(v + (m - y)^2 e^-v) / 2, where the outputs are the means m and then the log variances v

    A variance is taken within a millionth and a million of y's own: without a floor, rows that are fitted exactly
    (values that are rounded, or bounded) draw it to zero, and the loss out of all bounds. The gradient is that of the
    bounded loss and passes through, so that a variance can come back.
    """

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        mean, log_variance = outputs.chunk(2, dim=-1)
        beyond = log_variance.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE) - log_variance
        log_variance = log_variance + beyond.detach()
        return _mean(0.5 * (log_variance + (mean - y).square() * torch.exp(-log_variance)), weights)

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first derivatives, and the expected second ones, Fisher's information.  # (rows, outputs) each"""
        mean, log_variance = outputs.chunk(2, dim=-1)
        precision = torch.exp(-log_variance.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE))
        gap = mean - y
        slope = torch.cat([gap * precision, 0.5 * (1 - gap.square() * precision)], -1)
        return slope / y.shape[-1], torch.cat([precision, torch.full_like(gap, 0.5)], -1) / y.shape[-1]


@dataclass(frozen=True)
class CrossEntropy:
    """-sum_c t_c ln p_c with p the outputs' softmax; y holds the class's number, t is 1 there, or smoothed.

    With label smoothing s, t is 1 - s for the class and s / classes for every class. Members that train together may
    each have their own.
    """

    label_smoothing: float | Tensor = 0.0  # (members, 1, 1) where members differ

    def __post_init__(self) -> None:
        if not isinstance(self.label_smoothing, Tensor) and not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1); it is {self.label_smoothing}")

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_p = torch.log_softmax(outputs, dim=-1)
        is_own = y == torch.arange(outputs.shape[-1], device=y.device, dtype=y.dtype)  # (..., rows, classes)
        own = torch.where(is_own, log_p, 0.0).sum(-1, keepdim=True)
        smooth = log_p.mean(-1, keepdim=True)
        return _mean(-(1 - self.label_smoothing) * own - self.label_smoothing * smooth, weights)

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first derivatives, and a diagonal that bounds the second ones.  # (rows, classes) each

        p (1 - p) alone, the diagonal itself, would count what one class gains and another loses twice.
        """
        p = torch.softmax(outputs, dim=-1)
        is_own = y == torch.arange(outputs.shape[-1], device=y.device, dtype=y.dtype)
        target = (1 - self.label_smoothing) * is_own.to(p) + self.label_smoothing / outputs.shape[-1]
        return p - target, p * (1 - p) * p.shape[-1] / (p.shape[-1] - 1)


def together(losses: Sequence[Loss], like: Tensor) -> Loss:
    """Return one loss for members that train together, each with its own numbers, in a leading dimension."""
    first: Any = losses[0]
    if all(loss == first for loss in losses):
        return losses[0]
    assert all(type(loss) is type(first) for loss in losses)
    columns = {field.name: [getattr(loss, field.name) for loss in losses] for field in fields(first)}
    return replace(
        first, **{name: like.new_tensor(values).reshape(len(losses), 1, -1) for name, values in columns.items()}
    )
