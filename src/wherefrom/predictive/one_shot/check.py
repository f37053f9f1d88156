"""The error of one-shot or linearised prediction against Monte Carlo, beyond what the noise of the samples explains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.one_shot.graph import NoRuleError
from wherefrom.training.workers import one_core

_GROUPS = 10
_remembered: WeakKeyDictionary[Any, dict[str, OneShotCheck | None]] = WeakKeyDictionary()


@dataclass(frozen=True)
class OneShotCheck:
    """Relative errors over rows and outputs: of the mean in standard deviations, of the standard deviation in itself.

    Of classes, a row's standard deviation is that of all of its probabilities together.
    They are root mean squares with the samples' own noise taken out, and each has a standard error. `bias_of_std` is
    the mean of the latter with its sign: above zero, one-shot is too unsure.
    """

    mean_error: float
    mean_error_se: float
    std_error: float
    std_error_se: float
    bias_of_std: float
    rows: int
    samples: int
    covariance: str

    @property
    def way(self) -> str:
        return self.covariance if self.covariance == "linearised" else f"one-shot ({self.covariance})"

    def is_within(self, tolerance: float) -> bool:
        return self.mean_error <= tolerance and self.std_error <= tolerance

    def __str__(self) -> str:
        return (
            f"{self.way} against {self.samples} samples a member on {self.rows} rows: the mean is "
            f"off by {self.mean_error:.1%} ± {self.mean_error_se:.1%} of a standard deviation, the standard deviation "
            f"by {self.std_error:.1%} ± {self.std_error_se:.1%} (bias {self.bias_of_std:+.1%})"
        )


@one_core()
def compare(one_shot: Mixture, sampled: Mixture, jointly: bool) -> OneShotCheck:
    """Compare the moments of the answers, without noise, which both have in common.

    `jointly` measures the outputs of a row by one standard deviation, such as probabilities that add up to one.
    """
    answers = sampled.answers.double()
    groups = min(_GROUPS, answers.shape[1])
    weights = torch.full((len(answers),), 1 / len(answers), dtype=torch.float64)
    weights = weights if sampled.weights is None else sampled.weights
    mean, std = _moments(answers, weights)
    assert one_shot.spread is not None
    each, own_spread = one_shot.answers.double(), one_shot.spread.double().mean(1)
    own_mean = torch.tensordot(weights, each.mean(1), 1)
    own_std = torch.tensordot(weights, (each - own_mean).square().mean(1) + own_spread, 1).sqrt()
    own_std = _of_all_outputs(own_std) if jointly else own_std
    alive = ((_of_all_outputs(std) if jointly else std) > 0) & (own_std > 0)
    if not bool(alive.any()):
        raise ValueError("nothing is uncertain at these rows: there is nothing to compare")

    def errors(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        std = _of_all_outputs(std) if jointly else std
        return ((own_mean - mean) / std)[alive], (own_std / std - 1)[alive]

    # Without each group of samples in turn: the samples' own noise, in either error.
    number = torch.arange(answers.shape[1]) * groups // answers.shape[1]
    without = [errors(*_moments(answers[:, number != group], weights)) for group in range(groups)] if groups > 1 else []
    said = []
    for place, error in enumerate(errors(mean, std)):
        replicates = torch.stack([each[place] for each in without]) if without else error.unsqueeze(0)
        scale = (groups - 1) / groups if without else 0.0
        noise = scale * (replicates - replicates.mean(0)).square().sum(0)
        clean = math.sqrt(max(0.0, float((error.square() - noise).mean())))
        spread = float(replicates.square().mean(1).sqrt().std(correction=0)) * math.sqrt(max(0.0, scale * groups))
        said += [clean, spread]
    bias = float(errors(mean, std)[1].mean())
    mean_error, mean_se, std_error, std_se = said
    samples, covariance = answers.shape[1], one_shot.covariance or ""
    return OneShotCheck(mean_error, mean_se, std_error, std_se, bias, sampled.rows, samples, covariance)


def remembered(posterior: Any, method: str, check: Callable[[], OneShotCheck]) -> OneShotCheck | None:
    """A posterior's check of a method, made once; none where a layer has no rule, or a law no slopes."""
    by_method = _remembered.setdefault(posterior, {})
    if method not in by_method:
        try:
            by_method[method] = check()
        except NoRuleError:
            by_method[method] = None
    return by_method[method]


def _of_all_outputs(std: Tensor) -> Tensor:
    """One measure for all outputs of a row: classes that are hardly ever meant matter little, and so does their doubt.

    # (rows, outputs) -> (rows, outputs)
    """
    return std.square().mean(-1, keepdim=True).sqrt().expand_as(std)


def _moments(answers: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Moments over members, by their weights, and samples; within members the variance is that of a sample."""
    means, samples = answers.mean(1), answers.shape[1]
    own = answers.var(1, correction=1) if samples > 1 else torch.zeros_like(means)
    mean, within = (torch.tensordot(weights, part, 1) for part in (means, own))
    # The members' means carry some of it along.
    carried = (1 - weights)[:, None, None] * own / samples
    between = torch.tensordot(weights, (means - mean).square() - carried, 1)
    return mean, (within + between.clamp_min(0)).sqrt()
