"""Values that were hidden, and drawn: scores of the draws, and the rule that clearly has the best of them."""

from __future__ import annotations

import numpy as np

from wherefrom.tables.raw import Numbers

_FEWEST_ROWS = 8  # to prefer a rule by


def clearly_best(scores: Numbers, usual: int) -> int:
    """Return the rule with the lowest mean score, if it is lower than that of the usual one by a standard error.

    # (rules, rows)
    """
    if scores.shape[1] < _FEWEST_ROWS:
        return usual
    best = int(scores.mean(axis=1).argmin())
    gain = scores[usual] - scores[best]
    return best if gain.mean() > gain.std() / np.sqrt(len(gain)) else usual


def crps(values: Numbers, weights: Numbers, truth: Numbers) -> Numbers:
    """CRPS of weighted points, row by row.  # (rows, points), (points,), (rows,) -> (rows,)

    >>> crps(np.array([[0.0, 2.0]]), np.array([0.5, 0.5]), np.array([1.0])).tolist()
    [0.5]
    """
    order = values.argsort(axis=1)
    below = np.cumsum(weights[order], axis=1)[:, :-1]
    apart = (below * (1 - below) * np.diff(np.take_along_axis(values, order, axis=1), axis=1)).sum(axis=1)
    return np.asarray((np.abs(values - truth[:, None]) * weights).sum(axis=1) - apart)


def brier(codes: Numbers, weights: Numbers, truth: Numbers) -> Numbers:
    """Half the Brier score of weighted levels, row by row.  # (rows, points), (points,), (rows,) -> (rows,)

    >>> brier(np.array([[0.0, 2.0]]), np.array([0.5, 0.5]), np.array([2.0])).tolist()
    [0.25]
    """
    squares = [((codes == level) * weights).sum(axis=1) ** 2 for level in np.unique(codes)]
    right = ((codes == truth[:, None]) * weights).sum(axis=1)
    return np.asarray(0.5 * (1 - 2 * right + np.sum(squares, axis=0)))
