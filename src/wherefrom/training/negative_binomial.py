"""Losses of counts whose dispersion, or whose further zeros, a network predicts, and the probability that they are of.

A count n has the mean m = s exp(f), with s the training rows' mean, and the dispersion a = 1 / r. y is n / s. The whole
negative log-likelihood is minimised, since all of it depends on the outputs:

    L(n)  =  (n + r) log(1 + m / r) - n log m - log(Gamma(n + r) / (Gamma(r) r^n)) + log n!
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wherefrom.training.losses import Numbers, as_numbers, bounded, mean_over_rows

LEAST_DISPERSION = 1e-15  # which no count can tell from none
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class PredictedDispersionNLL:
    """L(y), where the outputs are f and then log a; `scale` is the training rows' mean"""

    outputs_per_target: ClassVar[int] = 2
    scale: Numbers

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean, log_dispersion = (bounded(each) for each in outputs.chunk(2, dim=-1))
        scale = as_numbers(self.scale, outputs)
        r, count, mean = (-log_dispersion).exp(), (scale * y).round(), scale * log_mean.exp()
        kept = log_rising(count, r) - torch.lgamma(count + 1)
        return mean_over_rows((count + r) * torch.log1p(mean / r) - count * (scale.log() + log_mean) - kept, weights)


@dataclass(frozen=True)
class ZeroInflatedNLL:
    """-log of s(z) [y = 0] + (1 - s(z)) P(y), where the outputs are f, then log a if it is predicted, and then z"""

    scale: Numbers
    dispersion: Numbers  # empty where it is predicted

    @property
    def outputs_per_target(self) -> int:
        return 2 if len(self.dispersion) else 3

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        log_mean, *log_dispersion, z = outputs.chunk(outputs.shape[-1] // y.shape[-1], dim=-1)
        scale = as_numbers(self.scale, outputs)
        count, mean = (scale * y).round(), scale * bounded(log_mean).exp()
        a = bounded(log_dispersion[0]).exp() if log_dispersion else as_numbers(self.dispersion, outputs)
        return mean_over_rows(-inflated_log_probability(count, mean, a, z), weights)


def log_rising(count: Tensor, r: Tensor) -> Tensor:
    """log of Gamma(count + r) / (Gamma(r) r^count), by Stirling's series where r is large and the two would cancel."""
    small, large = r.clamp_max(8.0), r.clamp_min(8.0)
    direct = torch.lgamma(count + small) - torch.lgamma(small) - count * small.log()
    series = (count + large - 0.5) * torch.log1p(count / large) - count + _stirling(count + large) - _stirling(large)
    return torch.where(r < 8.0, direct, series)


def _stirling(z: Tensor) -> Tensor:
    """log Gamma(z) less (z - 1/2) log z - z + log(2 pi) / 2, to 1e-12 from z = 8 on."""
    square = z.square().reciprocal()
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / z


def log_probability(count: Tensor, mean: Tensor, a: Tensor) -> Tensor:
    """log P(count) of negative binomials, broadcast."""
    mean, r = mean.clamp_min(TINY), 1 / a.clamp_min(LEAST_DISPERSION)
    kept = log_rising(count, r) - torch.lgamma(count + 1)
    return kept + count * mean.log() - (count + r) * torch.log1p(mean / r)


def inflated_log_probability(count: Tensor, mean: Tensor, a: Tensor, z: Tensor) -> Tensor:
    """Log probability of counts, where they are zero with the probability s(z) beside."""
    logs = F.logsigmoid(-z) + log_probability(count, mean, a)
    return torch.where(count > 0, logs, torch.logaddexp(F.logsigmoid(z), logs))
