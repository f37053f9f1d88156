"""The lowest point of a cost with few numbers: a grid, because there can be several valleys, then golden sections."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_RATIO = (5**0.5 - 1) / 2


def lowest(cost: Callable[[Tensor], Tensor], grid: Tensor, sections: int = 25) -> Tensor:
    """Return where each column's cost is lowest.  # cost: (columns,) -> (columns,); grid: (points, columns)

    >>> grid = torch.linspace(-3, 3, 20, dtype=torch.float64)[:, None]
    >>> lowest(lambda x: (x - 1.25).square(), grid).round(decimals=4)
    tensor([1.2500], dtype=torch.float64)
    """
    best = torch.stack([cost(point) for point in grid]).argmin(0)
    columns = torch.arange(grid.shape[1])
    low, high = (grid[(best + step).clamp(0, len(grid) - 1), columns] for step in (-1, 1))
    for _ in range(sections):
        left, right = high - _RATIO * (high - low), low + _RATIO * (high - low)
        go_left = cost(left) < cost(right)
        low, high = torch.where(go_left, low, left), torch.where(go_left, right, high)
    return (low + high) / 2
