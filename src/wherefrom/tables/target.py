"""The column to predict: a quantity, or one of several classes; and which rows have it at all.

Whole numbers may be any of these. Two different ones are classes (0 and 1), and so are up to ten, since codes of
classes look like that (0, 1, 2) and classes assume nothing: of ratings from 1 to 5, the order is learnt. Counts are
told from codes by their frequencies: of six different numbers or more from 0 or 1 on, those beyond the most frequent
one get rarer and rarer, as visits do. More than ten are a quantity, and left-out rows say which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.likelihoods import LIKELIHOODS, Counts, Likelihood
from wherefrom.tables.columns import quantities, rows_of
from wherefrom.tables.events import censored, named_event
from wherefrom.tables.raw import Column, Numbers, RawTable, as_numbers
from wherefrom.tables.wording import option

_TIMES = tuple(name for name, likelihood in LIKELIHOODS.items() if likelihood.cells == "times")
_FEW = 10  # different whole numbers are classes, more are a quantity
_FEWEST_COUNTS, _RARE = 6, 0.2  # different numbers that are counts; how often the last is, in units of the first
_MOST_CLASSES, _MOST_LEVELS = 200, 20
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
    has_zeros: bool = False  # where it matters
    several: tuple[str, ...] = ()  # columns to predict, where there are several; the first gives the name
    exposure: str | None = None  # a column that says how long, or how many, each row was observed
    event: str = ""  # column that says whether the event was seen at this time, or the row is censored
    seen: str = ""  # its value that means so
    entry: str = ""  # column of the time from which on the row was seen

    @classmethod
    def of(
        cls,
        table: RawTable,
        name: str,
        asked: str | None,
        least: float | Literal["auto"] | None = "auto",
        levels: tuple[str, ...] = (),
        exposure: str | None = None,
        event: str | None = None,
        entry: str | None = None,
    ) -> Target:
        """Decide what the column is, by the user's word or by its cells.

        `levels` are those of ordered classes, from the lowest to the highest.

        `least` is the least that a quantity can be. By itself, it is 0 if no row is below, and there are 100 of them:
        then the next one is with a chance of 1 in 101 at most. With an `event`, the column is a time.
        """
        if asked is not None and asked not in LIKELIHOODS:
            raise ValueError(f"{option('task')} is {' or '.join(LIKELIHOODS)}, not {asked!r}")
        if event is not None or entry is not None or asked in _TIMES:
            return cls._of_times(table, name, asked, event, entry)
        column = table.column(name)
        if bool(column.missing.all()):
            raise ValueError(f"{table.source}, column {name!r}, is empty: there is nothing to learn")
        numbers = _numbers(column, table.decimal)
        if asked is not None and LIKELIHOODS[asked].cells == "numbers":
            quantities(table, column, "number", "", _otherwise())  # raises where it is none
            target = cls(name, asked, why="as asked")
        elif asked is None and (exposure is not None or _are_counts(column, numbers, table.decimal)):
            quantities(table, column, "number", "", _otherwise())
            why = "it has an exposure" if exposure is not None else _counts_because(numbers)
            target = cls(name, Counts.task, why=why)
        elif asked is None and (why := _quantity_because(numbers, column)):
            quantities(table, column, "number", "", _otherwise())
            target = cls(name, "regression", why=why)
        else:
            labels = _labels(column, numbers)
            if asked is not None and "levels" in LIKELIHOODS[asked].table_options:
                labels = _in_order(table, column, labels, levels)
            why = "as asked" if asked else _classes_because(labels)
            target = cls(name, asked or "classification", labels, why)
        _check(table, target, column, numbers)
        target = replace(target, exposure=exposure)
        if "least" in LIKELIHOODS[target.task].table_options:
            target = replace(target, least=least_of(target.values(table), least, target.name))
        if "zeros" in LIKELIHOODS[target.task].table_options:
            target = replace(target, has_zeros=bool((np.asarray(target.values(table)) == 0).any()))
        return target

    @classmethod
    def _of_times(cls, table: RawTable, name: str, asked: str | None, event: str | None, entry: str | None) -> Target:
        if event is None:
            raise ValueError(
                f"{option('event')} is missing: the column that says whether the event was seen at {name!r}, or the "
                "row is censored"
            )
        if asked is not None and asked not in _TIMES:
            raise ValueError(f"{option('event')} is for times: leave {option('task', asked)} out")
        column, seen = named_event(table, event)
        target = cls(name, asked or _TIMES[0], event=column, seen=seen, entry=entry or "")
        if len({each for each in (name, column, entry) if each}) < 2 + bool(entry):
            raise ValueError(f"{option('target')}, {option('event')} and {option('entry')} are different columns")
        values = target.values(table)
        if not (values[:, 1] == 1).any():
            raise ValueError(f"{table.source} has no row with the event ({column!r} is {seen!r}): nothing to learn")
        events = int((values[:, 1] == 1).sum())
        why = f"{column!r} is {seen!r} in the {rows_of(events)} that had the event; other times are censored"
        return replace(target, why=why)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the target is made of."""
        further = [each for each in (self.event, self.entry) if each]
        return tuple(dict.fromkeys((self.name, *self.several, *further)))

    @property
    def holds_numbers(self) -> bool:
        return LIKELIHOODS[self.task].cells != "labels"

    def values(self, table: RawTable) -> Numbers | NDArray[np.object_]:
        """Quantity of every row (nan where missing), or label (None where missing).  # (rows,) or (rows, several)

        Times have three columns: the time, whether the event was seen, and the entry.
        """
        column = table.column(self.name)
        if self.event:
            return censored(table, self.name, self.event, self.seen, self.entry or None)
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
        if self.event and not self.entry:
            y = y[:, :2]  # an entry that is always the same says nothing
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


def possible(likelihood: Likelihood, values: Numbers | NDArray[np.object_]) -> NDArray[np.bool_]:
    """Return which values of a quantity its likelihood allows at all; all of another target."""
    if values.ndim > 1 or values.dtype == object:
        return np.ones(len(values), dtype=bool)
    numbers = torch.from_numpy(np.asarray(values, dtype=np.float64))
    return np.asarray(likelihood.can_be(numbers.unsqueeze(1)).squeeze(1))


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
        return "it has numbers"
    return f"it has {len(there):,} different numbers" if len(np.unique(there)) > _FEW else ""


def _are_counts(column: Column, numbers: Numbers, decimal: str) -> bool:
    """Return whether a few different whole numbers are those of counts, and no codes of classes."""
    if np.isnan(numbers).any() or not _FEWEST_COUNTS <= len(np.unique(numbers)) <= _FEW:
        return False
    if column.numbers is not None:
        each = column.numbers[~column.missing]
    else:
        there = as_numbers(list(column.levels), decimal)
        each = np.repeat(there, column.counts())
    values, rows = np.unique(each, return_counts=True)
    if values[:3].tolist() not in ([0, 1, 2], [1, 2, 3]) or (values != np.round(values)).any():
        return False
    falling = rows[rows.argmax() :].astype(np.float64)
    rises = np.diff(falling) > 2 * np.sqrt(falling[1:] + falling[:-1])  # more than chance would do
    return not rises.any() and falling[-1] < _RARE * falling[0]


def _counts_because(numbers: Numbers) -> str:
    return (
        f"it has {len(np.unique(numbers))} different whole numbers from {numbers.min():g} on, large ones rarely; "
        f"{option('task', 'classification')} takes them as classes, {option('task', 'ordinal')} as ordered ones"
    )


def _classes_because(labels: tuple[Any, ...]) -> str:
    if not isinstance(labels[0], int):
        return f"it has {len(labels)} different words"
    otherwise = f"{option('task', 'regression')} takes them as a quantity"
    if len(labels) > 2:
        otherwise += f", {option('task', 'ordinal')} as ordered levels"
        if labels[0] == 0:
            otherwise += f", {option('task', 'counts')} as counts"
    return f"it has {len(labels)} different whole numbers; {otherwise}"


def _labels(column: Column, numbers: Numbers) -> tuple[str | int, ...]:
    text = column.as_text()
    present = [level for level, count in zip(text.levels, text.counts(), strict=True) if count]
    if not np.isnan(numbers).any() and bool((numbers == np.round(numbers)).all()):
        return tuple(sorted({_whole(level) for level in present}))
    return tuple(sorted(present))


def _in_order(
    table: RawTable, column: Column, labels: tuple[str | int, ...], levels: tuple[str, ...]
) -> tuple[str | int, ...]:
    """Return the labels from the lowest to the highest: as given, else numbers in their order."""
    where = f"{table.source}, column {column.name!r},"
    if not levels:
        if all(isinstance(label, int) for label in labels):
            return labels
        if len(labels) > _MOST_LEVELS and all(map(_is_decimal, labels)):
            raise ValueError(
                f"{where} holds {len(labels)} different numbers, which are not whole: a quantity, "
                f"{option('task', 'regression')}, and no levels"
            )
        few = ",".join(map(str, labels[:5])) + ",..." * (len(labels) > 5)
        raise ValueError(f"{where} holds text: name its levels from the lowest to the highest, {option('levels', few)}")
    named = {str(label): label for label in labels}
    if unknown := [label for label in named if label not in levels]:
        raise ValueError(f"{where} holds {unknown[0]!r}, which is none of {option('levels', ','.join(levels))}")
    if len(set(levels)) < len(levels):
        raise ValueError(f"{option('levels', ','.join(levels))} names a level twice")
    are_numbers = all(isinstance(label, int) for label in labels) and all(map(_is_number, levels))
    return tuple(int(level) for level in levels) if are_numbers else levels


def _is_decimal(label: str | int) -> bool:
    return not np.isnan(as_numbers([str(label)], ".")[0])


def _is_number(level: str) -> bool:
    return level.lstrip("-").isdigit()


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
