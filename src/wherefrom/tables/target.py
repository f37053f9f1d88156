"""The column to predict: a quantity, or one of several classes; and which rows have it at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.likelihoods import LIKELIHOODS
from wherefrom.tables.columns import quantities, rows_of
from wherefrom.tables.raw import Column, Numbers, RawTable, as_numbers
from wherefrom.tables.wording import option

_FEW = 10  # different whole numbers are classes, more are a quantity
_MOST_CLASSES = 200
_ENOUGH = 100  # rows, none of which is negative: then none will be


@stored("Target")
@dataclass(frozen=True)
class Target:
    """The column's name, the task, and the classes where it has any."""

    name: str
    task: str  # the likelihood's name
    classes: tuple[str | int, ...] = ()
    why: str = ""  # the task was chosen
    least: float | None = None  # that a quantity can be
    several: tuple[str, ...] = ()  # columns to predict, where there are several; the first gives the name

    @classmethod
    def of(
        cls, table: RawTable, name: str, asked: str | None, least: float | Literal["auto"] | None = "auto"
    ) -> Target:
        """Decide what the column is, by the user's word or by its cells.

        `least` is the least that a quantity can be. By itself, it is 0 if no row is below, and there are 100 of them:
        then the next one is with a chance of 1 in 101 at most.
        """
        if asked is not None and asked not in LIKELIHOODS:
            raise ValueError(f"{option('task')} is {' or '.join(LIKELIHOODS)}, not {asked!r}")
        column = table.column(name)
        if bool(column.missing.all()):
            raise ValueError(f"{table.source}, column {name!r}, is empty: there is nothing to learn")
        numbers = _numbers(column, table.decimal)
        if asked is not None and LIKELIHOODS[asked].cells == "numbers":
            quantities(table, column, "number", "", _otherwise())  # raises where it is none
            target = cls(name, asked, why="as asked")
        elif asked is None and (why := _quantity_because(numbers, column)):
            quantities(table, column, "number", "", _otherwise())
            target = cls(name, "regression", why=why)
        else:
            labels = _labels(column, numbers)
            why = "as asked" if asked else _classes_because(labels)
            target = cls(name, asked or "classification", labels, why)
        _check(table, target, column, numbers)
        if "least" in LIKELIHOODS[target.task].table_options:
            target = replace(target, least=least_of(target.values(table), least, target.name))
        return target

    @property
    def holds_numbers(self) -> bool:
        return LIKELIHOODS[self.task].cells == "numbers"

    def values(self, table: RawTable) -> Numbers | NDArray[np.object_]:
        """Quantity of every row (nan where missing), or label (None where missing).  # (rows,) or (rows, several)"""
        column = table.column(self.name)
        if self.several:
            each = [quantities(table, table.column(name), "number", "") for name in self.several]
            return np.stack(each, axis=1)
        if self.holds_numbers:
            return quantities(table, column, "number", "")
        named = {str(label): label for label in self.classes}
        text, text_decimal = column.as_text(), "." if column.numbers is not None else table.decimal
        labels = np.empty(len(text.levels) + 1, dtype=object)
        for index, level in enumerate(text.levels):
            is_whole = isinstance(self.classes[0], int) and _is_whole(level, text_decimal)
            labels[index] = named.get(level, _whole(level) if is_whole else level)
        labels[-1] = None
        return labels[text.codes]

    def numbers(self, y: NDArray[Any]) -> Numbers:
        """Return targets, none of which is missing, as numbers; classes by theirs.  # (rows,) or (rows, several)"""
        classes = {label: number for number, label in enumerate(self.classes)}
        return np.asarray([classes[label] for label in y.tolist()] if classes else y, dtype=np.float64)


def _otherwise() -> str:
    return f", or use {option('task', 'classification')} if they are classes"


def least_of(values: Any, asked: float | Literal["auto"] | None, name: str) -> float | None:
    """Return the least that a quantity can be, None if there is no such number."""
    there = values[~np.isnan(values)]
    lowest = float(there.min())
    if asked == "auto":
        return 0.0 if lowest >= 0 and len(there) >= _ENOUGH else None
    if asked is not None and lowest < asked:
        raise ValueError(f"{option('least', asked)}: {name!r} is as low as {lowest:g} in some row")
    return asked


def known(values: Numbers | NDArray[np.object_]) -> NDArray[np.bool_]:
    """True for rows that have a target."""
    if values.dtype == object:
        return np.array([value is not None for value in values], dtype=bool)
    is_gap: NDArray[np.bool_] = np.isnan(values.astype(np.float64)).reshape(len(values), -1)
    return np.asarray(~is_gap.any(axis=1))


def _numbers(column: Column, decimal: str) -> Numbers:
    """Its different values as numbers, nan for what is none."""
    if column.numbers is not None:
        return np.unique(column.numbers[~column.missing])
    counts = column.counts()
    return as_numbers([level for level, count in zip(column.levels, counts, strict=True) if count], decimal)


def _quantity_because(numbers: Numbers, column: Column) -> str:
    """Return the reason to take it for a quantity; an empty one, if it is none."""
    if np.isnan(numbers).mean() > 0.2:
        return ""
    there = numbers[~np.isnan(numbers)]
    if np.isnan(numbers).any() or (there != np.round(there)).any():
        return "it holds numbers"
    return f"it holds {len(there):,} different numbers" if len(np.unique(there)) > _FEW else ""


def _classes_because(labels: tuple[Any, ...]) -> str:
    if isinstance(labels[0], int):
        otherwise = f"{option('task', 'regression')} takes them as a quantity"
        return f"it holds {len(labels)} different whole numbers; {otherwise}"
    return f"it holds {len(labels)} different words"


def _labels(column: Column, numbers: Numbers) -> tuple[str | int, ...]:
    text = column.as_text()
    present = [level for level, count in zip(text.levels, text.counts(), strict=True) if count]
    if not np.isnan(numbers).any() and bool((numbers == np.round(numbers)).all()):
        return tuple(sorted({_whole(level) for level in present}))
    return tuple(sorted(present))


def _whole(level: str) -> int:
    return int(float(level.replace(",", ".")))


def _is_whole(level: str, decimal: str) -> bool:
    value = as_numbers([level], decimal)[0]
    return bool(value == np.round(value))


def _check(table: RawTable, target: Target, column: Column, numbers: Numbers) -> None:
    where = f"{table.source}, column {target.name!r},"
    if target.holds_numbers:
        if len(np.unique(numbers)) < 2:
            raise ValueError(f"{where} is always the same: there is nothing to learn")
        return
    count = int((~column.missing).sum())
    if len(target.classes) < 2:
        raise ValueError(f"{where} holds {target.classes[0]!r} alone: there is nothing to tell apart")
    if len(target.classes) > min(_MOST_CLASSES, count // 2):
        raise ValueError(
            f"{where} holds {len(target.classes)} different values in {rows_of(count)}, too many for classes: is it "
            f"the right column ({option('target', target.name)})? If it is a quantity, write plain numbers, and use "
            + option("task", "regression")
        )
