"""Where predictions are far off, by column: what the columns leave unexplained is larger in some rows than in others.

Rows are put into groups by each column: a number or a date by thirds, text by its levels, missing values by themselves.
How far off a row is, is the absolute error of its mean, or of classes its NLL, by networks that did not see it. So it
holds whatever noise the model has; beside it stands what the model itself predicts, the standard deviation of its
noise, or of classes their overlap.

The groups with the largest and the smallest mean are chosen on a third of the rows, and compared on the others: chosen
and compared on the same rows, the ratio would be above 1 for every column, by chance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom import plots
from wherefrom.showing import Library, card, frame_of
from wherefrom.table import Table
from wherefrom.tables.columns import Categories, Quantity, Rule, written_date
from wherefrom.tables.dates import Date
from wherefrom.tables.labelled import Labelled
from wherefrom.tables.raw import Numbers
from wherefrom.tables.writing import decimal
from wherefrom.training import streams

MOST_ROWS = 3000
_FEWEST_TO_CHOOSE, _FEWEST = 10, 20  # rows of a group: of those that choose, and of those that compare
_PARTS = 3  # of a number
_CLEARLY = 2.0  # standard errors
_MOSTLY = 0.9  # of the rows

Groups = Mapping[str, NDArray[np.bool_]]  # by what they are called, the rows of each


@dataclass(frozen=True)
class Contrast:
    """Two groups of rows by one column: in `larger`, errors are `ratio` times as large as in `smaller`.

    predicted: the same ratio by the model's own noise; 1 if that is the same for all rows.
    """

    larger: str
    smaller: str
    ratio: float
    error: float
    predicted: float

    @property
    def is_clear(self) -> bool:
        """True if the ratio is above 1 by more than two standard errors."""
        return self.ratio - 1 > _CLEARLY * self.error


@dataclass(frozen=True)
class Unexplained:
    """Errors that the columns do not explain, by column: the largest ratio first.

    columns: column -> the rows in which errors are larger, and smaller.
    rows: how many were asked.
    is_predicted: True if the model's noise differs between rows.
    """

    columns: Mapping[str, Contrast]
    rows: int
    is_predicted: bool

    def __getitem__(self, column: str) -> Contrast:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.columns)

    def table(self) -> Table:
        """Return a line for each column, for people."""
        lines = [
            (column, each.larger, each.smaller, round(each.ratio, 2), round(each.error, 2), round(each.predicted, 2))
            for column, each in self.columns.items()
        ]
        return Table(
            ("column", "errors are larger where", "than where", "times", "±", "predicted"),
            [(*line[:3], *(f"{number:.2f}" for number in line[3:])) for line in lines],
        )

    def to_frame(self, library: Library | None = None) -> Any:
        """Return a frame with a row for each column.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        fields = [each.name for each in dataclasses.fields(Contrast)]
        values = {name: [getattr(each, name) for each in self.columns.values()] for name in fields}
        return frame_of({"column": list(self.columns)} | values, library)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw how many times as large errors are in one group of rows as in another, and return the axes.

        ax: matplotlib's axes to draw on (default: a new figure).
        """
        ratios = {f"{column}: {each.larger} / {each.smaller}": each.ratio for column, each in self.columns.items()}
        errors = dict(zip(ratios, (each.error for each in self.columns.values()), strict=True))
        return plots.bars(ratios, errors, "errors are larger, times", ax, "one colour")

    def _repr_html_(self) -> str:
        return card(f"Where errors are larger, by {self.rows:,} rows", self.table().html())

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__


def unexplained(labelled: Labelled) -> Unexplained:
    """Compare errors between rows of other values, column by column, for 3,000 rows at most."""
    model, rows = labelled.model, labelled.at_most(MOST_ROWS, "unexplained")
    if model.target.several:
        raise ValueError(f"{len(model.target.several)} columns are predicted: fit one of them alone to ask this")
    error, noise = (each.double().numpy() for each in rows.answer(model.posterior).row_errors(rows.truth))
    chooses = streams.generator(model.posterior.seed, "tables", "chooses").permutation(len(rows)) % 3 == 0
    values, slices, missing = rows.rows.x.double().numpy(), model.encoder.feature_slices, _missing(rows)
    columns = {}
    for rule in model.encoder.rules:
        if rule.features:
            groups = groups_by(rule, values[:, slices[rule.name]], missing.get(rule.name))
            if (compared := contrast(groups, error, noise, chooses)) is not None:
                columns[rule.name] = compared
    in_order = dict(sorted(columns.items(), key=lambda item: (-item[1].is_clear, -item[1].ratio)))
    is_predicted = bool(np.isclose(noise, np.median(noise)).mean() < _MOSTLY)
    return Unexplained(in_order, len(rows), is_predicted)


def contrast(groups: Groups, error: Numbers, noise: Numbers, chooses: NDArray[np.bool_]) -> Contrast | None:
    """Choose two groups by the rows that choose, and compare them by the others; None of fewer than two groups.

    >>> old = np.arange(80) % 2 == 0
    >>> compared = contrast({"= old": old, "= young": ~old}, np.where(old, 3.0, 2.0), np.ones(80), np.arange(80) < 40)
    >>> compared.larger, compared.smaller, compared.ratio, compared.predicted
    ('= old', '= young', 1.5, 1.0)
    """
    large = {
        name: rows
        for name, rows in groups.items()
        if (rows & chooses).sum() >= _FEWEST_TO_CHOOSE and (rows & ~chooses).sum() >= _FEWEST
    }
    if len(large) < 2:
        return None
    order = sorted(large, key=lambda name: float(error[large[name] & chooses].mean()))
    smaller, larger = (error[large[name] & ~chooses] for name in (order[0], order[-1]))
    of_noise = [float(noise[large[name] & ~chooses].mean()) for name in (order[0], order[-1])]
    if not smaller.mean() > 0:
        return None
    ratio = float(larger.mean() / smaller.mean())
    relative = [each.std(ddof=1) / math.sqrt(len(each)) / each.mean() for each in (smaller, larger) if each.mean() > 0]
    predicted = of_noise[1] / of_noise[0] if of_noise[0] > 0 else math.nan
    return Contrast(order[-1], order[0], ratio, ratio * math.hypot(*relative), predicted)


# ------------------------------------------------------------------ groups of rows


def groups_by(rule: Rule, features: Numbers, missing: NDArray[np.bool_] | None) -> Groups:
    """Put rows into groups by one column; each is called what follows the column's name in a sentence.

    features: (rows, features of the column), missing values drawn.
    missing: (rows,), where they were; None if nowhere.
    """
    is_gap = np.zeros(len(features), dtype=bool) if missing is None else missing
    gaps = {"missing": is_gap} if is_gap.any() else {}
    if isinstance(rule, Categories):
        names = [*(f"= {level}" for level in rule.levels), *["is another"] * rule.has_others]
        return {name: (features[:, k] > 0) & ~is_gap for k, name in enumerate(names)} | gaps
    values = features[:, 0]
    if isinstance(rule, Quantity):
        values = rule.as_written(values)
    if isinstance(rule, Quantity) and rule.kind == "boolean":
        return {name: (values == truth) & ~is_gap for name, truth in (("= no", 0.0), ("= yes", 1.0))} | gaps
    return _parts(values, is_gap, isinstance(rule, Date)) | gaps


def _parts(values: Numbers, is_gap: NDArray[np.bool_], are_dates: bool) -> dict[str, NDArray[np.bool_]]:
    """Put numbers into thirds; of few different ones, each by itself.

    >>> list(_parts(np.arange(91.0), np.zeros(91, dtype=bool), False))
    ['below 30', '30 to 60', 'above 60']
    """
    there = values[~is_gap]
    different = np.unique(there)
    if len(different) <= _PARTS:
        names = _written(different, are_dates)
        return {f"= {name}": (values == value) & ~is_gap for name, value in zip(names, different, strict=True)}
    low, high = np.quantile(there, [1 / _PARTS, 1 - 1 / _PARTS])
    if not low < high:  # most rows have the same number
        name = _written([low], are_dates)[0]
        return {
            f"below {name}": (values < low) & ~is_gap,
            f"= {name}": (values == low) & ~is_gap,
            f"above {name}": (values > low) & ~is_gap,
        }
    names = _written([low, high], are_dates)
    return {
        f"below {names[0]}": (values < low) & ~is_gap,
        f"{names[0]} to {names[1]}": (values >= low) & (values <= high) & ~is_gap,
        f"above {names[1]}": (values > high) & ~is_gap,
    }


def _written(values: Sequence[float] | Numbers, are_dates: bool) -> list[str]:
    return [written_date(float(value)) if are_dates else decimal(float(value)) for value in values]


def _missing(rows: Labelled) -> dict[str, NDArray[np.bool_]]:
    """Return where each column is missing, of those that are drawn."""
    cells = rows.x.cells
    return {} if cells is None else dict(zip(rows.model.drawn_columns, cells.gaps.T, strict=True))
