"""Rows that are nobody, for runs that are not to hold data: each is drawn from ten training rows that are alike.

A training row is chosen, and the nine nearest to it. Quantities are drawn from the Gaussian with the mean and the
covariance of these ten,

    mean + sum over k of e_k (x_k - mean) / sqrt(9),        e_k ~ N(0, 1),

and a level of text is that of one of the ten. So the columns go together as they do among the rows, also where that is
no matter of correlations. Quantities stay between the least and the largest. In a column whose values repeat, a value
becomes the nearest there is if at least 5 rows share that.
"""

from __future__ import annotations

import numpy as np

from wherefrom.tables.raw import Integers, Numbers

_ALIKE = 10  # rows that a row is made of
_SHARED_BY = 5  # rows have a value that is nobody's own
_ROWS_AT_ONCE = 128


def made_up_rows(
    values: Numbers, scores: Numbers, levels: tuple[int, ...], count: int, random: np.random.Generator
) -> Numbers:
    """Draw rows that are like those given.

    values: training rows.  # (rows, columns)
    scores: their normal scores, in which rows are near each other.  # (rows, columns)
    levels: number of levels of each column of text, 0 for a quantity.
    # (count, columns)
    """
    alike = _alike(scores, levels, random.permutation(len(values))[:count])
    chosen = values[alike]  # (count, alike, columns)
    mean = chosen.mean(axis=1)
    noise = random.normal(size=alike.shape) / np.sqrt(max(alike.shape[1] - 1, 1))
    drawn = mean + np.einsum("ck,ckp->cp", noise, chosen - mean[:, None])
    whose = random.integers(alike.shape[1], size=len(alike))
    for column, count_of_levels in enumerate(levels):
        if count_of_levels:
            drawn[:, column] = chosen[np.arange(len(alike)), whose, column]
        else:
            drawn[:, column] = _allowed(values[:, column], drawn[:, column])
    return drawn


def repeated(column: Numbers) -> Numbers | None:
    """Return the values of a column whose values repeat, 5 times on average; None for other columns.

    >>> repeated(np.repeat([1.0, 2.0, 3.0], [9, 1, 5])), repeated(np.arange(9.0))
    (array([1., 2., 3.]), None)
    """
    different = np.unique(column)
    return different if len(different) * _SHARED_BY <= len(column) else None


def nearest_of(ordered: Numbers, values: Numbers) -> Numbers:
    """Return the nearest of ordered numbers to each value.

    >>> nearest_of(np.array([0.0, 1.0, 5.0]), np.array([0.4, 2.0, 3.5, 9.0])).tolist()
    [0.0, 1.0, 5.0, 5.0]
    """
    return np.asarray(ordered[np.searchsorted((ordered[1:] + ordered[:-1]) / 2, values)])


def _allowed(column: Numbers, drawn: Numbers) -> Numbers:
    """Mirror values at the ends of the column's range; of a column that repeats, take the nearest if it is shared.

    >>> _allowed(np.repeat([0.0, 1.0, 9.0], [9, 6, 1]), np.array([0.4, -2.2, 7.0])).tolist()
    [0.0, 1.0, 7.0]
    """
    low, high = column.min(), column.max()
    drawn = low + np.abs(drawn - low)
    drawn = np.clip(high - np.abs(high - drawn), low, high)
    if (values := repeated(column)) is None:
        return drawn
    nearest = nearest_of(values, drawn)
    shared = values[np.unique(column, return_counts=True)[1] >= _SHARED_BY]
    return np.where(np.isin(nearest, shared), nearest, drawn)


def _alike(scores: Numbers, levels: tuple[int, ...], rows: Integers) -> Integers:
    """Return the rows nearest to each of some, with itself; text of another level counts as 2 = E (z - z')^2.

    # (rows, alike)
    """
    is_text = np.array(levels) > 0
    x, texts = scores[:, ~is_text], scores[:, is_text]
    squares, parts = (x**2).sum(axis=1), []
    for some in np.split(rows, range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE)):
        distance = squares - 2 * x[some] @ x.T
        distance += 2 * (texts[some][:, None] != texts).sum(axis=2)
        parts.append(np.argsort(distance, axis=1, kind="stable")[:, :_ALIKE])
    return np.concatenate(parts)
