"""The value to measure next: how much of the variance that gaps cause each missing column explains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wherefrom.tables.raw import Numbers


def explained(answers: Numbers, drawn: Numbers, gaps: NDArray[np.bool_], levels: tuple[int, ...]) -> Numbers:
    """Return the share of the variance between draws that each missing column would remove if it were measured.

    Var(E[y | x_c]) / Var(y) over the draws; 1 for a row's only gap. Of several, y is fitted to a quantity by a parabola
    of it, to text by its two most frequent levels, and what 20 draws explain by chance is taken out (adjusted R^2).

    answers: (rows, draws, outputs), drawn: (rows, draws, columns), gaps: (rows, columns); returns (rows, columns).
    """
    shares = np.where(gaps, 1.0, 0.0)
    several = np.flatnonzero(gaps.sum(axis=1) > 1)
    y = answers[several] - answers[several].mean(axis=1, keepdims=True)
    whole = (y**2).sum(axis=(1, 2))
    for column, count in enumerate(levels):
        rows = gaps[several, column]
        regressors = (
            _levels(drawn[several[rows], :, column], count) if count else _powers(drawn[several[rows], :, column])
        )
        here, left = y[rows], float(answers.shape[1] - 1)
        fitted, used = np.zeros(len(here)), np.zeros(len(here))
        for each in regressors:  # (rows, draws), orthogonal
            length = (each**2).sum(axis=1)
            is_there = length > 1e-9
            unit = each / np.sqrt(np.where(is_there, length, 1.0))[:, None] * is_there[:, None]
            fitted += (np.einsum("rd,rdo->ro", unit, here) ** 2).sum(axis=1)
            used += is_there
        total = whole[rows]
        unexplained = 1 - np.divide(fitted, total, out=np.zeros_like(fitted), where=total > 0)
        shares[several[rows], column] = np.clip(1 - unexplained * left / (left - used), 0.0, 1.0) * (used > 0)
    return shares


def _powers(values: Numbers) -> list[Numbers]:
    """Return a column and its square over the draws, orthogonal to each other and to 1."""
    deviation = values.std(axis=1, keepdims=True)
    first = (values - values.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    return [first, _orthogonal(first**2, first)]


def _levels(codes: Numbers, count: int) -> list[Numbers]:
    """Return the indicators of the two most frequent levels over the draws, orthogonal to each other and to 1."""
    counts = np.stack([(codes == level).sum(axis=1) for level in range(count)], axis=1)
    order = np.argsort(-counts, axis=1, kind="stable")
    first = (codes == order[:, :1]) * 1.0
    first = first - first.mean(axis=1, keepdims=True)
    second = (codes == order[:, 1:2]) * 1.0 if count > 1 else np.zeros_like(first)
    return [first, _orthogonal(second, first)]


def _orthogonal(values: Numbers, to: Numbers) -> Numbers:
    values = values - values.mean(axis=1, keepdims=True)
    length = (to**2).sum(axis=1, keepdims=True)
    return np.asarray(values - to * (values * to).sum(axis=1, keepdims=True) / np.where(length > 0, length, 1.0))
