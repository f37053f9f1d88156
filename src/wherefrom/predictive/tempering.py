"""Moments of class probabilities whose logits are divided by a temperature, where the logits themselves are not known.

Each class's log-odds are taken as normal, with the mean and variance that give the probability's own moments, and are
divided by the temperature: exact for two classes, about so for more.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_SMALLEST, _MOST_SPREAD, _TURNS = 1e-12, 12.0, 24
_NODES = torch.stack([torch.from_numpy(each) for each in np.polynomial.hermite_e.hermegauss(24)])
_NODES[1] /= _NODES[1].sum()  # nodes and weights of a standard normal variable


def moments(logs: Tensor, new_logs: Tensor, variance: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Means and variances of probabilities p, where log-odds are divided by a temperature that takes the mean p to q.

    What the normal variable's own moments are off by is put right in both: at a temperature of 1, nothing changes.
    # (members, components, rows, classes)
    """
    p, q = (each.double().exp().clamp(_SMALLEST, 1 - _SMALLEST) for each in (logs, new_logs))
    variance = variance.double()
    spread = _spread_of_log_odds(p, variance)
    shift = _centre(p, spread) - p.logit()
    old_mean, old_variance = _logistic(p.logit() + shift, spread)
    new_mean, new_variance = _logistic(q.logit() + shift / temperature, spread / temperature)
    mean = torch.sigmoid(new_mean.logit(_SMALLEST) + p.logit() - old_mean.logit(_SMALLEST))
    whole = mean.sum(-1, keepdim=True)
    return mean / whole, variance * ratio(new_variance, old_variance) / whole.square()


def _spread_of_log_odds(p: Tensor, variance: Tensor) -> Tensor:
    """The deviation of a normal variable whose logistic function has mean p and this variance, by bisection."""
    low, high = torch.zeros_like(p), torch.full_like(p, _MOST_SPREAD)
    for _ in range(_TURNS):
        middle = (low + high) / 2
        is_small = _logistic(_centre(p, middle), middle)[1] < variance
        low, high = torch.where(is_small, middle, low), torch.where(is_small, high, middle)
    return (low + high) / 2


def _centre(p: Tensor, spread: Tensor) -> Tensor:
    """The mean of that variable: MacKay's, E logistic(N(m, s^2)) = logistic(m / sqrt(1 + pi s^2 / 8)), nearly."""
    return p.logit() * (1 + math.pi / 8 * spread.square()).sqrt()


def _logistic(centre: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the logistic function of a normal variable."""
    nodes, weights = _NODES.unbind()
    values = torch.sigmoid(centre.unsqueeze(-1) + spread.unsqueeze(-1) * nodes)
    mean = values @ weights
    return mean, (values.square() @ weights - mean.square()).clamp_min(0.0)


def ratio(above: Tensor, below: Tensor) -> Tensor:
    """Zero where there is nothing to compare with."""
    return torch.where(below > 0, above / below.clamp_min(torch.finfo(below.dtype).tiny), 0.0)
