"""Which rows are set aside to calibrate and test: at random, classes in proportion, and whole groups on one side.

By default none are: every row trains, and is judged by the networks of the fold that left it out. Rows are set aside of
large tables, where `held_out` asks for it, and by time, as `test_after` says.

A group is what the user names (a patient with several rows) and, by itself, rows whose inputs are the same: even with
another outcome, a copy of a row is not a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.tables.columns import TableEncoder, dates_of, looks_like_identifier, rows_of
from wherefrom.tables.hints import hints
from wherefrom.tables.options import Request
from wherefrom.tables.raw import Integers, RawTable
from wherefrom.tables.wording import option
from wherefrom.training import streams

_MOST_HELD_OUT = 6000
_FEWEST_DIFFERENT = 100  # rows; fewer are those of a few levels, which repeat by their nature
_BY_NATURE = 0.5  # so do rows of which fewer than this part are different
_MOST_REPEATS = 10  # on average, of rows that are copies if all of them have the target of the other, too
_FEWEST_GROUPS = 10
_ROWS_OF_A_GROUP = 1.2  # on average, where a column that is named like an identifier is one of groups


@dataclass(frozen=True)
class Split:
    """Rows by what they are for."""

    train: Integers
    calibrate: Integers
    test: Integers


def split(y: NDArray[Any], share: float, seed: int, copies: Integers | None = None) -> Split:
    """Rows at random, or classes in proportion; of every class at least one row to train on.

    `copies` has the same number for rows that are copies of each other; they stay together.
    """
    group = np.arange(len(y)) if copies is None else copies
    _, first, sizes = np.unique(group, return_index=True, return_counts=True)
    chosen = _chosen(y[first], sizes, min(_MOST_HELD_OUT, round(share * len(y))), seed)
    part = np.zeros(len(first), dtype=np.int64)
    part[chosen[::2]], part[chosen[1::2]] = 1, 2
    part = part[group]
    return Split(*(np.flatnonzero(part == which) for which in range(3)))


def _chosen(y: NDArray[Any], sizes: Integers, aside: int, seed: int) -> Integers:
    """Choose groups of rows to hold out, so that their sizes make up what is to be set aside."""
    random, count = streams.generator(seed, "tables", "split"), len(y)
    order = random.permutation(count)
    if y.dtype == object:  # the rows of each class are spread evenly over [0, 1), and all but its first may be held out
        position = np.full(count, np.inf)
        for label in dict.fromkeys(y.tolist()):
            others = order[y[order] == label][1:]
            position[others] = (np.arange(len(others)) + random.random()) / max(1, len(others))
        order = np.argsort(position, kind="stable")
        order = order[np.isfinite(position[order])]
    chosen = order[_that_fit(sizes[order], aside)]
    if y.dtype == object:
        # Sorted by class, so that each half has its share of every class.
        chosen = np.array(sorted(chosen.tolist(), key=lambda row: str(y[row])), dtype=np.int64)
    return chosen


def _that_fit(sizes: Integers, room: int) -> list[int]:
    """Places, in their order, of those for which there is room."""
    indices = []
    for index, size in enumerate(sizes.tolist()):
        if size <= room:
            indices.append(index)
            room -= size
        if not room:
            break
    return indices


def everything(rows: int) -> Split:
    """Train on all rows."""
    none = np.empty(0, dtype=np.int64)
    return Split(np.arange(rows), none, none)


def after(table: RawTable, written: str, kinds: Mapping[str, str]) -> tuple[RawTable, RawTable]:
    """Cut a table by time: rows before a date, and those of that date or later (or of no date).

    `written` is the date, if the table has one column of dates, or the column and the date, as "when=2024-01-01".
    """
    name, _, date = written.rpartition("=")
    dates = {
        column: days for column in table.columns if (days := dates_of(table, column, kinds.get(column))) is not None
    }
    if not name:
        if len(dates) != 1:
            which = f"has {len(dates)} columns of dates ({', '.join(dates)})" if dates else "has no column of dates"
            raise ValueError(f"{table.source} {which}: say which, as {option('test_after', 'column=' + date)}")
        name = next(iter(dates))
    if name not in dates:
        table.column(name)
        otherwise = f"use {option('date', name)} if it is"
        raise ValueError(f"{option('test_after', written)}: {name!r} is no column of dates; {otherwise}")
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        asked = option("test_after")
        raise ValueError(f"{asked} is a date, as 2024-01-31, or column=2024-01-31, not {written!r}") from None
    limit = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86_400
    is_later = ~(dates[name] < limit)
    if not is_later.any() or is_later.all():
        how_many = "all" if is_later.all() else "none"
        raise ValueError(f"{option('test_after', written)}: {how_many} of the rows are from then on")
    return table.take(~is_later), table.take(is_later)


def fixed_order(values: NDArray[np.float64], y: NDArray[Any], weights: NDArray[np.float64] | None) -> Integers:
    """Return an order of the rows that does not depend on the one they are in: by a hash of their numbers.

    So what is drawn at random falls on the same rows, however a table is sorted.
    """
    if y.dtype == object:
        labels = {label: int.from_bytes(blake2b(str(label).encode(), digest_size=6).digest()) for label in set(y)}
        y = np.array([labels[label] for label in y], dtype=np.float64)
    columns = [*values.T, *y.reshape(len(y), -1).T, *([] if weights is None else [weights])]
    hashed = np.zeros(len(values), dtype=np.uint64)
    for column in columns:
        same = np.where(np.isnan(column), np.nan, column + 0.0)  # one zero, and one nan
        hashed = _mixed(hashed + same.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return hashed.argsort(kind="stable")


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64 of each number."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def copies_of(table: RawTable, names: Sequence[str]) -> Integers:
    """A number for each row, the same for rows whose cells in these columns are the same."""
    group = np.zeros(len(table), dtype=np.int64)
    for name in names:
        column = table.columns[name]
        cells = column.codes if column.numbers is None else np.unique(column.numbers, return_inverse=True)[1]
        _, group = np.unique(group * (int(cells.max()) + 2) + cells + 1, return_inverse=True)
    return group


def kept_together(table: RawTable, names: Sequence[str], request: Request, notes: list[str]) -> Integers | None:
    """Number the rows so that those of one group, and copies of a row, have the same number; None if none have."""
    for line in hints(table, names, request.kinds):
        notes.append(line)
    copies = _copies(table, names, request, notes)
    if request.group is None:
        return copies
    groups = _groups(table, request.group)
    count, largest = len(np.unique(groups)), int(np.bincount(groups).max())
    if count < _FEWEST_GROUPS:
        raise ValueError(
            f"{table.source} has {count} different {request.group!r}: groups are held out whole, and it takes at "
            f"least {_FEWEST_GROUPS}"
        )
    notes.append(
        f"{count:,} groups by {request.group!r}, of up to {rows_of(largest)}: all rows of one are trained on, or all "
        "are held out"
    )
    return groups if copies is None else joined(groups, copies)


def _copies(table: RawTable, names: Sequence[str], request: Request, notes: list[str]) -> Integers | None:
    """Number the rows by the columns that will be used; None where no two are the same, or rows repeat by nature."""
    used = TableEncoder.of(table, names, request.kinds, np.arange(len(table))).names
    group = copies_of(table, used)
    different = int(group.max()) + 1
    copies = len(group) - different
    if not copies:
        return None
    are_whole = (
        len(group) <= _MOST_REPEATS * different and int(copies_of(table, [*used, request.target]).max()) < different
    )
    if not are_whole and different < max(_FEWEST_DIFFERENT, _BY_NATURE * len(group)):
        notes.append(
            f"only {different:,} of {len(group):,} rows differ in their inputs: rows like those that are held out are "
            "among those to train"
        )
        return None
    has, is_kept = ("has", "is") if copies == 1 else ("have", "are")
    notes.append(f"{rows_of(copies)} {has} the inputs of another, and {is_kept} kept together with it")
    return group


def _groups(table: RawTable, name: str) -> Integers:
    """Number the rows by a column; a row without a value is a group by itself."""
    column = table.column(name)
    missing = np.flatnonzero(column.missing)
    text = column.as_text()
    groups = text.codes.astype(np.int64)
    groups[missing] = len(text.levels) + np.arange(len(missing))
    return np.unique(groups, return_inverse=True)[1]


def joined(one: Integers, other: Integers) -> Integers:
    """Number rows so that those with the same number in either have the same.

    >>> joined(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    label = one.copy()
    while True:
        before = label
        for each in (other, one):
            lowest = np.full(int(each.max()) + 1, len(label))
            np.minimum.at(lowest, each, label)
            label = lowest[each]
        if np.array_equal(label, before):
            return np.unique(label, return_inverse=True)[1]


def likely_groups(table: RawTable, names: Sequence[str]) -> list[str]:
    """Name the columns that look like an identifier, but whose values stand in several rows."""
    return [name for name in names if looks_like_identifier(name) and _repeats(table, name)]


def _repeats(table: RawTable, name: str) -> bool:
    column = table.columns[name]
    there = int((~column.missing).sum())
    different = len(
        np.unique(column.codes[column.codes >= 0] if column.numbers is None else column.numbers[~column.missing])
    )
    return _FEWEST_GROUPS <= different <= there / 1.2
