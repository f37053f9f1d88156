"""How far one-shot is from Monte Carlo on the user's own rows, beyond what the samples' own noise explains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from wherefrom.predictive.one_shot.graph import NoRuleError
from wherefrom.predictive.prediction import Prediction
from wherefrom.training.workers import one_core

_GROUPS = 10
_remembered: WeakKeyDictionary[Any, OneShotCheck | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class OneShotCheck:
    """Relative errors over rows and outputs: of the mean in standard deviations, of the standard deviation in itself.

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

    def is_within(self, tolerance: float) -> bool:
        return self.mean_error <= tolerance and self.std_error <= tolerance

    def __str__(self) -> str:
        return (
            f"one-shot ({self.covariance}) against {self.samples} samples a member on {self.rows} rows: the mean is "
            f"off by {self.mean_error:.1%} ± {self.mean_error_se:.1%} of a standard deviation, the standard deviation "
            f"by {self.std_error:.1%} ± {self.std_error_se:.1%} (bias {self.bias_of_std:+.1%})"
        )


@one_core()
def compare(one_shot: Prediction, sampled: Prediction) -> OneShotCheck:
    """Compare the moments of the answers, without noise, which both have in common."""
    answers = sampled.answers.double()
    groups = min(_GROUPS, answers.shape[1])
    mean, std = _moments(answers)
    own_mean = one_shot.answers.double().mean((0, 1))
    assert one_shot.spread is not None
    own_std = (one_shot.answers.double().var((0, 1), correction=0) + one_shot.spread.double().mean((0, 1))).sqrt()
    alive = (std > 0) & (own_std > 0)
    if not bool(alive.any()):
        raise ValueError("nothing is uncertain at these rows: there is nothing to compare")

    def errors(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        return ((own_mean - mean) / std)[alive], (own_std / std - 1)[alive]

    # Without each group of samples in turn: the samples' own noise, in either error.
    number = torch.arange(answers.shape[1]) * groups // answers.shape[1]
    without = [errors(*_moments(answers[:, number != group])) for group in range(groups)] if groups > 1 else []
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
    return OneShotCheck(mean_error, mean_se, std_error, std_se, bias, len(sampled), samples, covariance)


def remembered(posterior: Any, check: Callable[[], OneShotCheck]) -> OneShotCheck | None:
    """A posterior's check, made once; none where a layer has no rule."""
    if posterior not in _remembered:
        try:
            _remembered[posterior] = check()
        except NoRuleError:
            _remembered[posterior] = None
    return _remembered[posterior]


def _moments(answers: Tensor) -> tuple[Tensor, Tensor]:
    """Over members and samples; within members the variance is that of a sample."""
    means = answers.mean(1)
    within = answers.var(1, correction=1).mean(0) if answers.shape[1] > 1 else torch.zeros_like(means[0])
    # The members' means carry some of it along.
    between = means.var(0, correction=0) - within * (1 - 1 / len(means)) / answers.shape[1]
    return means.mean(0), (within + between.clamp_min(0)).sqrt()
