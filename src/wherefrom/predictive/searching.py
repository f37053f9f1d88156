"""The lowest point of a cost with few numbers: a grid, because there can be several valleys, then the valley's ground.

The ground is found by golden sections, or where there are slopes, by Newton's method: its steps that leave the interval
in which the slope changes its sign are replaced by the interval's middle.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_RATIO = (5**0.5 - 1) / 2
_MOST_STEPS, _SMALL_STEP = 40, 1e-9


def lowest(
    cost: Callable[[Tensor], Tensor],
    grid: Tensor,
    sections: int = 25,
    slopes: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
) -> Tensor:
    """Return where each column's cost is lowest.  # cost: (columns,) -> (columns,); grid: (points, columns)

    slopes: the first and second derivative of the cost (default: not known).

    >>> grid = torch.linspace(-3, 3, 20, dtype=torch.float64)[:, None]
    >>> lowest(lambda x: (x - 1.25).square(), grid).round(decimals=4)
    tensor([1.2500], dtype=torch.float64)
    >>> lowest(torch.cosh, grid + 1, slopes=lambda x: (x.sinh(), x.cosh())).round(decimals=8)
    tensor([0.], dtype=torch.float64)
    """
    best = torch.stack([cost(point) for point in grid]).argmin(0)
    columns = torch.arange(grid.shape[1])
    low, high = (grid[(best + step).clamp(0, len(grid) - 1), columns] for step in (-1, 1))
    if slopes is not None:
        return _by_slopes(slopes, low, grid[best, columns], high)
    for _ in range(sections):
        left, right = high - _RATIO * (high - low), low + _RATIO * (high - low)
        go_left = cost(left) < cost(right)
        low, high = torch.where(go_left, low, left), torch.where(go_left, right, high)
    return (low + high) / 2


def _by_slopes(slopes: Callable[[Tensor], tuple[Tensor, Tensor]], low: Tensor, at: Tensor, high: Tensor) -> Tensor:
    """Return where the slope is zero, between two points."""
    for _ in range(_MOST_STEPS):
        slope, curvature = slopes(at)
        low, high = torch.where(slope < 0, at, low), torch.where(slope < 0, high, at)
        step = at - slope / curvature
        is_inside = (curvature > 0) & (step >= low) & (step <= high)
        after = torch.where(is_inside, step, (low + high) / 2)
        if bool(((after - at).abs() <= _SMALL_STEP).all()):
            return after
        at = after
    return at
