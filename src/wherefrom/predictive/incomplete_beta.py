"""The incomplete beta function, which torch lacks: the distribution functions of counts and of Student's t."""

from __future__ import annotations

import torch
from torch import Tensor

_MOST_TERMS = 5000


def regularised(a: Tensor, b: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    """I_x(a, b), where `rest` is 1 - x, which x alone would not tell where it is near 1.  # flat

    >>> half, x = torch.tensor([0.5]).double(), torch.tensor([0.25]).double()
    >>> regularised(half, half, x, 1 - x)  # 2 / pi asin(sqrt(x))
    tensor([0.3333], dtype=torch.float64)
    """
    swap = x > (a + 1) / (a + b + 2)  # where the fraction converges fast
    first, second = torch.where(swap, b, a), torch.where(swap, a, b)
    at, other = torch.where(swap, rest, x), torch.where(swap, x, rest)
    log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    front = torch.exp(torch.xlogy(first, at) + torch.xlogy(second, other) - log_beta) / first
    value = (front * fraction(first, second, at)).clamp(0.0, 1.0)
    return torch.where(swap, 1 - value, value)


def fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Lentz's continued fraction of I_x(a, b); what has converged is left out of further steps.  # flat"""
    value = torch.empty_like(x)
    left = torch.arange(len(x))
    c, d = torch.ones_like(x), 1 / _apart_from_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = result
        for step in (even, odd):
            d = 1 / _apart_from_zero(1 + step * d)
            c = _apart_from_zero(1 + step / c)
            result = result * (c * d)
        if m % 8 == 0:
            value[left] = result
            goes_on = torch.nonzero((result - before).abs() > 1e-14 * result.abs()).flatten()
            if not len(goes_on):
                break
            a, b, x, c, d, result, left = (each[goes_on] for each in (a, b, x, c, d, result, left))
    return value


def _apart_from_zero(values: Tensor) -> Tensor:
    return torch.where(values.abs() < 1e-300, 1e-300, values)
