"""Losses that training minimises: a mean over rows, for one member or for many at once.

Outputs are (..., rows, outputs), y is (..., rows, targets); weights, where there are any, are (..., rows) with a mean
of about one, and multiply each row's loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

MOST_LOG_VARIANCE = math.log(1e6)
MOST_LOG_MEAN = 20.0  # of a count's mean, relative to that of the training rows


class Loss(Protocol):
    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor: ...  # -> (...)


# Of a loss that is a negative log-likelihood: the loss of a row, times y's columns, is -log p(y) but for a constant;
# "without its noise": it is that times twice the variance of the noise, which no network knows.
Density = Literal["whole", "without its noise"]


@runtime_checkable
class Curved(Protocol):
    """A loss that knows its derivatives, row by row, without a graph."""

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first and second derivatives of each row's loss by its outputs.  # (rows, outputs) each"""
        ...


def information(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    """Return second derivatives of each row's loss, times y's columns, by its outputs.  # (rows, outputs, outputs)

    They are expected ones, Fisher's information, where the loss has them and they are on the diagonal alone.
    """
    columns = y.shape[-1]
    if getattr(loss, "expects", False):
        assert isinstance(loss, Curved)
        return torch.diag_embed(loss.derivatives(outputs, y)[1] * columns)

    def of_row(answer: Tensor, truth: Tensor) -> Tensor:
        return columns * loss(answer.unsqueeze(0), truth.unsqueeze(0))

    return torch.func.vmap(torch.func.jacrev(torch.func.grad(of_row)))(outputs, y)


def mean_over_rows(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Average over rows and columns.  # (..., rows, columns) -> (...)"""
    return (losses if weights is None else losses * weights.unsqueeze(-1)).mean((-2, -1))


@dataclass(frozen=True)
class SquaredError:
    """(f - y)^2"""

    outputs_per_target: ClassVar[int] = 1
    density: ClassVar[Density] = "without its noise"

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        return mean_over_rows(self.each(outputs, y), weights)

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of every row and column.  # (..., rows, columns)"""
        return (outputs - y).square()

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

    outputs_per_target: ClassVar[int] = 2
    density: ClassVar[Density] = "whole"
    expects: ClassVar[bool] = True  # its second derivatives are Fisher's information, without anything off the diagonal
    has_log_variances: ClassVar[bool] = True  # outputs after the first of each target, as many again

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        return mean_over_rows(self.each(outputs, y), weights)

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of every row and column.  # (..., rows, columns)"""
        mean, log_variance = _with_bounded_variance(outputs)
        return 0.5 * (log_variance + (mean - y).square() * torch.exp(-log_variance))

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first derivatives, and the expected second ones, Fisher's information.  # (rows, outputs) each"""
        mean, log_variance = outputs.chunk(2, dim=-1)
        precision = torch.exp(-log_variance.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE))
        gap = mean - y
        slope = torch.cat([gap * precision, 0.5 * (1 - gap.square() * precision)], -1)
        return slope / y.shape[-1], torch.cat([precision, torch.full_like(gap, 0.5)], -1) / y.shape[-1]


def _with_bounded_variance(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and log variances; beyond their bounds, the gradient passes."""
    mean, log_variance = outputs.chunk(2, dim=-1)
    beyond = log_variance.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE) - log_variance
    return mean, log_variance + beyond.detach()


@dataclass(frozen=True)
class StudentError:
    """c log(1 + (f - y)^2 / c), which is squared error where y is near, and forgets what is far

    But for a factor it is the negative log-likelihood of Student's t with nu degrees of freedom and the scale s, where
    c = nu s^2. Errors beyond the square root of c pull less the larger they are.
    """

    outputs_per_target: ClassVar[int] = 1
    width: float | Tensor = 1.0  # c, in units of y's variance; (members, 1, 1) where members differ

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        return mean_over_rows(self.width * torch.log1p((outputs - y).square() / self.width), weights)

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first derivatives, and the second ones of the parabola that touches the loss from above.

        # (rows, outputs) each
        """
        gap = outputs - y
        curvature = 2 / (1 + gap.square() / self.width) / y.shape[-1]
        return gap * curvature, curvature


@dataclass(frozen=True)
class StudentNLL:
    """v / 2 + (nu + 1) / 2 log(1 + (m - y)^2 e^-v / nu), where the outputs are m and then v, the log of a squared scale

    Squared scales are bounded as the variances of `GaussianNLL` are.
    """

    outputs_per_target: ClassVar[int] = 2
    density: ClassVar[Density] = "whole"
    expects: ClassVar[bool] = True
    has_log_variances: ClassVar[bool] = True
    df: float | Tensor = 4.0  # nu; (members, 1, 1) where members differ

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        mean, log_square = _with_bounded_variance(outputs)
        away = (mean - y).square() * torch.exp(-log_square) / self.df
        return mean_over_rows(0.5 * log_square + 0.5 * (self.df + 1) * torch.log1p(away), weights)

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first derivatives, and the expected second ones, Fisher's information.  # (rows, outputs) each"""
        mean, log_square = outputs.chunk(2, dim=-1)
        precision = torch.exp(-log_square.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE))
        gap, df = mean - y, self.df
        pull = (df + 1) * precision / (df + gap.square() * precision)
        slope = torch.cat([gap * pull, 0.5 * (1 - gap.square() * pull)], -1)
        expected = [precision * (df + 1) / (df + 3), torch.full_like(gap, 0.5) * df / (df + 3)]
        return slope / y.shape[-1], torch.cat(expected, -1) / y.shape[-1]


@dataclass(frozen=True)
class _Hurdle:
    """The loss of y where it is there, and the cross-entropy of whether it is: log(1 + e^l) - [y there] l

    y is -inf where it is not there, as the logarithm of 0 is. The logits l are the last outputs, one for each column.
    Abstract: a hurdle adds the loss of what is there.
    """

    there: ClassVar[SquaredError | GaussianNLL]
    outputs_per_target: ClassVar[int]

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        inner, logits, y, is_there = self._parts(outputs, y)
        each = torch.where(is_there, self.there.each(inner, y), 0.0)
        return mean_over_rows(each + torch.nn.functional.softplus(logits) - is_there * logits, weights)

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first derivatives, and second ones as those of what is there.  # (rows, outputs) each"""
        inner, logits, y, is_there = self._parts(outputs, y)
        mask = is_there.repeat(1, self.there.outputs_per_target)
        p, columns = torch.sigmoid(logits), y.shape[-1]
        slope, curvature = (torch.where(mask, part, 0.0) for part in self.there.derivatives(inner, y))
        both = (slope, (p - is_there.to(p)) / columns), (curvature, p * (1 - p) / columns)
        return torch.cat(both[0], -1), torch.cat(both[1], -1)

    @staticmethod
    def _parts(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return outputs about y, logits, y with 0 where it is not there, and whether it is."""
        is_there = y > -math.inf
        columns = y.shape[-1]
        return outputs[..., :-columns], outputs[..., -columns:], torch.where(is_there, y, 0.0), is_there


@dataclass(frozen=True)
class HurdleError(_Hurdle):
    """(f - y)^2 where y is there, and log(1 + e^l) - [y there] l"""

    there: ClassVar[SquaredError | GaussianNLL] = SquaredError()
    outputs_per_target: ClassVar[int] = 2


@dataclass(frozen=True)
class HurdleNLL(_Hurdle):
    """(v + (m - y)^2 e^-v) / 2 where y is there, and log(1 + e^l) - [y there] l"""

    there: ClassVar[SquaredError | GaussianNLL] = GaussianNLL()
    outputs_per_target: ClassVar[int] = 3
    has_log_variances: ClassVar[bool] = True


@dataclass(frozen=True)
class CrossEntropy:
    """-sum_c t_c ln p_c with p the outputs' softmax; y holds the class's number, t is 1 there, or smoothed.

    With label smoothing s, t is 1 - s for the class and s / classes for every class. Members that train together may
    each have their own.
    """

    density: ClassVar[Density] = "whole"
    label_smoothing: float | Tensor = 0.0  # (members, 1, 1) where members differ

    def __post_init__(self) -> None:
        if not isinstance(self.label_smoothing, Tensor) and not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1); it is {self.label_smoothing}")

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_p = torch.log_softmax(outputs, dim=-1)
        is_own = y == torch.arange(outputs.shape[-1], device=y.device, dtype=y.dtype)  # (..., rows, classes)
        own = torch.where(is_own, log_p, 0.0).sum(-1, keepdim=True)
        smooth = log_p.mean(-1, keepdim=True)
        return mean_over_rows(-(1 - self.label_smoothing) * own - self.label_smoothing * smooth, weights)

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first derivatives, and a diagonal that bounds the second ones.  # (rows, classes) each

        p (1 - p) alone, the diagonal itself, would count what one class gains and another loses twice.
        """
        p = torch.softmax(outputs, dim=-1)
        is_own = y == torch.arange(outputs.shape[-1], device=y.device, dtype=y.dtype)
        target = (1 - self.label_smoothing) * is_own.to(p) + self.label_smoothing / outputs.shape[-1]
        return p - target, p * (1 - p) * p.shape[-1] / (p.shape[-1] - 1)


Numbers = tuple[float, ...] | Tensor  # one for each column; (members, 1, columns) where members differ


def as_numbers(numbers: Numbers, like: Tensor) -> Tensor:
    """Return the numbers of a loss as a tensor."""
    return numbers if isinstance(numbers, Tensor) else like.new_tensor(numbers)


def bounded(logs: Tensor) -> Tensor:
    """Clamp logarithms to what exp can take; the gradient passes, so that an output can come back."""
    return logs + (logs.clamp(-MOST_LOG_MEAN, MOST_LOG_MEAN) - logs).detach()


@dataclass(frozen=True)
class PoissonNLL:
    """mu - y f with mu = exp(f), where y is a multiple of the training rows' mean"""

    outputs_per_target: ClassVar[int] = 1

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean = bounded(outputs)
        return mean_over_rows(log_mean.exp() - y * log_mean, weights)


@dataclass(frozen=True)
class NegativeBinomialNLL:
    """(y + r) log(1 + mu / r) - y f with r = 1 / a, all of them multiples of the training rows' mean"""

    outputs_per_target: ClassVar[int] = 1

    r: Numbers

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean, r = bounded(outputs), as_numbers(self.r, outputs)
        return mean_over_rows((y + r) * torch.log1p(log_mean.exp() / r) - y * log_mean, weights)


def steps_from_middle(gaps: Tensor) -> Tensor:
    """Return ascending positions, each a gap after the one before, where the middle one is 0.

    # (..., n - 1) gaps above zero -> (..., n); of an even number, the middle is the lower of the two
    """
    positions = F.pad(gaps.cumsum(-1), (1, 0))
    middle = gaps.shape[-1] // 2
    return positions - positions[..., middle : middle + 1]


def log_level_probabilities(outputs: Tensor) -> Tensor:
    """Return log P(y = k) of K ordered levels, by a cumulative logit.  # (..., K - 1) -> (..., K)

    With the outputs f and z_1, ..., z_{K-2}, and s the logistic function,

        P(y > k) = s(f - c_k),    c_k - c_{k-1} = log(1 + exp(z_k)),    c = 0 in the middle
        P(y = k) = s(f - c_{k-1}) s(c_k - f) s(z_k)

    since s(u) - s(v) = s(u) s(-v) (1 - exp(v - u)): nothing cancels, however far out.
    """
    location, z = outputs[..., :1], outputs[..., 1:]
    above = location - steps_from_middle(F.softplus(z))
    none = torch.zeros_like(location)
    over, under, between = F.logsigmoid(above), F.logsigmoid(-above), F.logsigmoid(z)
    return torch.cat([none, over], -1) + torch.cat([under, none], -1) + torch.cat([none, between, none], -1)


@dataclass(frozen=True)
class OrdinalNLL:
    """-log P(y), where y holds the level's number and the outputs are those of `log_level_probabilities`"""

    density: ClassVar[Density] = "whole"

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        logs = log_level_probabilities(outputs)
        is_own = y == torch.arange(logs.shape[-1], device=y.device, dtype=y.dtype)
        return mean_over_rows(-torch.where(is_own, logs, 0.0).sum(-1, keepdim=True), weights)


@dataclass(frozen=True)
class Pinball:
    """The mean over quantiles of max(p (y - q), (p - 1) (y - q)); y is one column.

    Outputs are f and z: the middle quantile is f, and each is `unit` log(1 + exp(z)) above the one before, so that they
    cannot cross.
    """

    levels: Numbers  # p, ascending
    units: Numbers  # of the gaps between them

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        error = y - ordered_quantiles(outputs, as_numbers(self.units, outputs))
        levels = as_numbers(self.levels, outputs)
        return mean_over_rows(torch.maximum(levels * error, (levels - 1) * error), weights)


def ordered_quantiles(outputs: Tensor, units: Tensor) -> Tensor:
    """Return ascending quantiles of the outputs of a network trained by `Pinball`.  # (..., n) -> (..., n)"""
    return outputs[..., :1] + steps_from_middle(units * F.softplus(outputs[..., 1:]))


def together(losses: Sequence[Loss], like: Tensor) -> Loss:
    """Return one loss for members that train together, each with its own numbers, in a leading dimension."""
    first: Any = losses[0]
    if all(loss == first for loss in losses):
        return losses[0]
    assert all(type(loss) is type(first) for loss in losses)
    if hasattr(first, "of_members"):  # it is made of others
        joint: Loss = first.of_members(losses, like)
        return joint
    names = [field.name for field in fields(first)]
    each = {name: like.new_tensor([getattr(loss, name) for loss in losses]) for name in names}
    return replace(first, **{name: of.reshape(len(losses), 1, of[0].numel()) for name, of in each.items()})
