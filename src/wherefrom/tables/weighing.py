"""Row weights: a weight of k is the row k times, and a row that weighs nothing is left out.

Whole weights repeat their rows. Other weights, and whole ones that would make more than ten times as many rows,
multiply each row's loss; they count in standardisation, in the noise and in the calibration, too. Scores count every
row once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.tables.columns import quantities, rows_of
from wherefrom.tables.raw import Integers, Numbers, RawTable

MOST_REPEATS = 10  # repeated rows are at most this many times the rows


def weighted(table: RawTable, name: str | None) -> tuple[RawTable, Numbers | None]:
    """Return the rows that count, each as often as the column says; or once each, and their weights."""
    if name is None:
        return table, None
    weights = quantities(table, table.column(name), "number", "")
    where = f"{table.source}, column {name!r}"
    if missing := int(np.isnan(weights).sum()):
        raise ValueError(f"{where}, has no weight in {rows_of(missing)}: give each row one, or remove the row")
    if (weights < 0).any():
        row = table.rows[int((weights < 0).argmax())]
        raise ValueError(f"{where}, row {row}: weights must not be negative; it is {weights.min():g}")
    if not (weights > 0).any():
        raise ValueError(f"{where}: all weights are zero, and there is nothing to learn from")
    counts = np.flatnonzero(weights > 0)
    table, weights = table.take(counts), weights[counts]
    if (weights == np.round(weights)).all() and weights.sum() <= MOST_REPEATS * len(weights):
        return table.take(np.arange(len(weights)).repeat(weights.astype(np.int64))), None
    return table, weights


def with_classes(
    weights: Numbers | None, y: NDArray[Any], classes: tuple[Any, ...], class_weight: Any
) -> Numbers | None:
    """Multiply the weights of rows by those of their classes; classes that a dictionary leaves out weigh 1.

    class_weight: None, a dictionary from class to weight, or "balanced", which makes all classes count the same.
    """
    if class_weight is None:
        return weights
    weights = np.ones(len(y)) if weights is None else weights
    number_of = {label: number for number, label in enumerate(classes)}
    numbers = np.array([number_of[label] for label in y.tolist()])
    if isinstance(class_weight, str) and class_weight == "balanced":
        each = 1 / np.bincount(numbers, weights, minlength=len(classes))
    elif isinstance(class_weight, Mapping):
        if unknown := [label for label in class_weight if label not in number_of]:
            raise ValueError(f"class_weight names {unknown}, but the classes are {list(classes)}")
        each = np.array([float(class_weight.get(label, 1.0)) for label in classes])
    else:
        raise ValueError(f'class_weight is "balanced" or a dictionary from class to weight, not {class_weight!r}')
    weights = weights * each[numbers]
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError(f"class weights are finite numbers, none below zero and not all zero, unlike {class_weight}")
    return weights


def drawn_by_weight(rows: Integers, weights: Numbers | None) -> Integers:
    """Draw as many of the rows, evenly along their order, each as often as its weight says.

    >>> drawn_by_weight(np.array([4, 5, 6, 7]), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 2.0, 1.0])).tolist()
    [4, 6, 6, 7]
    """
    if weights is None:
        return rows
    shares = weights[rows].cumsum()
    return rows[np.searchsorted(shares, (np.arange(len(rows)) + 0.5) / len(rows) * shares[-1], side="right")]
