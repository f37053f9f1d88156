"""Columns as their owner wrote them: the text of each cell, which cells are unusual, and what is usual, in words.

A report shows raw values: `39.1`, `2021-03-04`, `female`, never a standardised number or a code. Inputs of networks are
raw already; the room `tables` decodes those of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.predictive.panels import percent, written
from wherefrom.predictive.row_scores import finite_or_none

FAR = 3.0  # spreads from the median of the training rows: marked as unusual
RARE = 0.02  # of the training rows have this level, or fewer: marked as unusual
UNUSUAL = (
    f"A number that is {FAR:g} or more spreads away from the median of the training rows, or a level that at most "
    f"{RARE:.0%} of them have. A spread is the distance between the quartiles divided by 1.349; for a Gaussian, that "
    "is its standard deviation."
)
_QUARTILES_OF_A_GAUSSIAN = 1.349  # the distance between them, in standard deviations
_DIGITS = 4


@dataclass(frozen=True)
class RawColumn:
    """One column of the rows that are scored.

    cells: the text of every row; empty where it is missing.
    unusual: how far from the usual every cell is; from 1 on it is marked.
    usual: the usual values here, in words.
    trained: the usual values of the training rows, if they are others and known.
    moved: how far the median is from that of training, in spreads of the training rows.
    beyond: the share of rows beyond the range of training.
    """

    name: str
    cells: Sequence[str]
    unusual: Sequence[float]
    usual: str
    trained: str | None = None
    moved: float | None = None
    beyond: float | None = None

    def __post_init__(self) -> None:
        if len(self.cells) != len(self.unusual):
            raise ValueError(f"column {self.name!r} has {len(self.cells)} cells, {len(self.unusual)} say how unusual")

    def about(self) -> dict[str, Any]:
        """Return what the page says of the column as a whole."""
        missing = sum(not cell for cell in self.cells) / max(1, len(self.cells))
        return {
            "name": self.name,
            "usual": self.usual,
            "missing": missing,
            "trained": self.trained,
            "moved": self.moved,
            "beyond": self.beyond,
        }

    def listed(self, rows: Sequence[int]) -> dict[str, list[Any]]:
        """Return the cells of some rows, and the rows among them whose cells are unusual, with how much."""
        far = {k: round(float(self.unusual[row]), 1) for k, row in enumerate(rows) if self.unusual[row] >= 1}
        return {"cells": [self.cells[row] for row in rows], "far": [[k, value] for k, value in far.items()]}


def spread(values: NDArray[np.float64], median: float) -> float:
    """Return a standard deviation that a few rows cannot change: the distance between the quartiles, divided by 1.349.

    If the quartiles are the same: the median distance of the values that differ from the median (0 if none do).

    >>> round(spread(np.arange(101.0), 50.0), 2), spread(np.array([0.0, 0.0, 0.0, 0.0, 4.0]), 0.0)
    (37.06, 4.0)
    """
    low, high = np.quantile(values, [0.25, 0.75])
    if high > low:
        return float(high - low) / _QUARTILES_OF_A_GAUSSIAN
    distances = np.abs(values - median)
    return float(np.median(distances[distances > 0])) if (distances > 0).any() else 0.0


def how_unusual(values: NDArray[np.float64], median: float, spread: float) -> NDArray[np.float64]:
    """Return the distance from the median of the training rows, as a multiple of `FAR` spreads: from 1 on it is marked.

    >>> how_unusual(np.array([50.0, 80.0]), 50.0, 5.0).tolist()
    [0.0, 2.0]
    """
    return np.abs(values - median) / (FAR * spread) if spread else np.zeros(len(values))


def of_numbers(name: str, here: Tensor, there: Tensor | None = None) -> RawColumn:
    """Return a column of inputs that are numbers.

    here: the values of the rows that are scored.
    there: the values of the training rows (default: unknown).

    >>> column = of_numbers("age", torch.tensor([50.0, 51.0, 80.0]), torch.arange(40.0, 61.0))
    >>> column.cells, column.usual, [value >= 1 for value in column.unusual]
    (['50', '51', '80'], '51 (50.1 to 77.1)', [False, False, True])
    >>> column.trained, round(column.moved, 2), round(column.beyond, 2)
    ('50 (41 to 59)', 0.13, 0.33)
    """
    values = here.double().numpy()
    reference = values if there is None else there.double().numpy()
    median = float(np.median(reference))
    width = spread(reference, median)
    return RawColumn(
        name,
        [f"{value:.{_DIGITS + 1}g}" for value in values.tolist()],
        how_unusual(values, median, width).tolist(),
        usual_numbers(here),
        usual_numbers(there) if there is not None else None,
        finite_or_none((float(np.median(values)) - median) / width) if there is not None and width else None,
        float(((values < reference.min()) | (values > reference.max())).mean()) if there is not None else None,
    )


def usual_numbers(values: Tensor) -> str:
    """Return the median, and the range of nine rows in ten.

    >>> usual_numbers(torch.arange(0.0, 101.0))
    '50 (5 to 95)'
    """
    if not len(values):
        return "–"
    ends = torch.tensor([0.5, 0.05, 0.95], dtype=torch.float64)
    middle, low, high = (written_short(value) for value in values.double().quantile(ends).tolist())
    return f"{middle} ({low} to {high})"


def usual_levels(shares: Sequence[tuple[str, float]], most: int = 3) -> str:
    """Return the most frequent levels with their shares.

    >>> usual_levels([("a", 0.2), ("b", 0.7), ("c", 0.06), ("d", 0.04)])
    'b 70%, a 20%, c 6%, 1 other'
    """
    in_order = sorted(shares, key=lambda each: -each[1])
    others = len(in_order) - most
    texts = [f"{level} {percent(share)}" for level, share in in_order[:most]]
    return ", ".join([*texts, *([f"{others} other{'s' * (others > 1)}"] if others > 0 else [])])


def written_short(value: float, digits: int = 3) -> str:
    """Return a number without needless zeros.

    >>> written_short(2007.0), written_short(2007.4), written_short(0.25001), written_short(1234567.0)
    ('2007', '2007', '0.25', '1,234,567')
    """
    if float(value).is_integer() and abs(value) < 1e4:
        return f"{value:.0f}".replace("-", "−")
    text = written(value, digits)
    if abs(value) < 1e4:
        text = text.replace(",", "")
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
