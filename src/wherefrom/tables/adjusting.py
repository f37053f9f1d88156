"""Adjust a donor's values to the row that they are given to, by linear regression of the missing columns on the known.

    value  =  value_d + (x - x_d) B

x and x_d are the known quantities of the row and of the donor. Such a draw is what the regression predicts for the row,
plus the donor's residual. Where columns nearly determine each other, donors' values as they are would be too coarse.

    "none"   B = 0: the donor's value as it is
    "all"    B of a ridge regression on all donors
    "near"   that B, plus the B of a ridge regression of its residuals on the donors nearest to the row, four for each
             known column, with weights that fall with the rank
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from wherefrom.tables.raw import Numbers

Adjustment = Literal["none", "all", "near"]

ADJUSTMENTS: tuple[Adjustment, ...] = ("none", "all", "near")
_DONORS_PER_COLUMN = 4
_RIDGE = 1e-4  # of the mean variance of the known columns
_TINY = 1e-12
_MOST_LEVERAGE = 0.9


def donors_near(known: int) -> int:
    """Return how many donors the regression near a row looks at, by the number of known quantities."""
    return _DONORS_PER_COLUMN * (known + 1)


def slopes(covariance: Numbers, towards: Numbers) -> Numbers:
    """Slopes of a ridge regression.

    covariance: of the known columns.  # (..., known, known)
    towards: their covariance with the missing ones.  # (..., known, missing)
    # (..., known, missing)
    """
    size = covariance.shape[-1]
    ridge = _RIDGE * np.trace(covariance, axis1=-2, axis2=-1) / max(size, 1) + _TINY
    return np.linalg.solve(covariance + ridge[..., None, None] * np.eye(size), towards)


def adjusted_near(x: Numbers, y: Numbers, row: Numbers, count: int) -> Numbers:
    """Adjust y of the nearest donors by a ridge regression on the first `count` of them: prediction plus residual.

    The residual of a donor that had a part in the fit is e / (1 - h), with its leverage h: what it would be without
    that part. Residuals themselves are too small.

    # x (rows, donors, known), y (rows, donors, missing), row (rows, known) -> (rows, donors, missing)
    """
    weights = np.exp(-2 * np.arange(min(count, x.shape[1])) / count)
    weights = (weights / weights.sum())[:, None]
    count = len(weights)
    centre, level = ((weights * each[:, :count]).sum(axis=1, keepdims=True) for each in (x, y))
    x, y, row = x - centre, y - level, row[:, None] - centre
    weighted = (weights * x[:, :count]).swapaxes(1, 2)  # (rows, known, count)
    both = slopes(weighted @ x[:, :count], np.concatenate([weighted @ y[:, :count], weighted], axis=2))
    slope, hat = both[:, :, : y.shape[2]], both[:, :, y.shape[2] :]
    residuals = y - x @ slope
    leverage = weights[:, 0] + (x[:, :count] * hat.swapaxes(1, 2)).sum(axis=2)
    residuals[:, :count] /= 1 - np.minimum(leverage, _MOST_LEVERAGE)[:, :, None]
    return np.asarray(level + row @ slope + residuals)
