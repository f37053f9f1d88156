"""The columns of times that may be censored: the time, whether the event was seen, and the entry.

A column says whether the event was seen by two values. It is the one of them that is named (`event="status=dead"`),
else that which is 1, true, yes or a word for an event while the other is not; else the one whose partner is 0, false,
no or a word for its absence; else, of two numbers, the larger (1 and 2, as R's survival has it). Other pairs must be
named.
"""

from __future__ import annotations

import numpy as np

from wherefrom.tables.columns import quantities
from wherefrom.tables.raw import Numbers, RawTable, as_numbers
from wherefrom.tables.wording import option

_SEEN = {"1", "true", "t", "yes", "y", "event", "seen", "dead", "died", "death", "deceased", "failed", "failure"}
_SEEN |= {"relapse", "relapsed", "recurrence", "progressed", "churned", "left"}
_NOT_SEEN = {"0", "false", "f", "no", "n", "none", "censored", "alive", "living", "survived", "ongoing", "active"}


def named_event(table: RawTable, written: str) -> tuple[str, str]:
    """Return the column, and the value that means that the event was seen.

    written: the column, or the column and the value, as "status=dead".
    """
    name, _, value = written.rpartition("=")
    if written in table.columns or not name:
        name, value = written, ""
    column = table.column(name).as_text()
    levels = [level for level, count in zip(column.levels, column.counts(), strict=True) if count]
    where = f"{table.source}, column {name!r}"
    if value:
        if value not in levels:
            raise ValueError(f"{where}, never holds {value!r}, but {', '.join(map(repr, levels[:10]))}")
        return name, value
    if len(levels) == 1 and (is_seen := _of_one(levels[0], table.decimal)) is not None:
        if not is_seen:
            raise ValueError(f"{where}, holds {levels[0]!r} alone: no row has the event, so there is nothing to learn")
        return name, levels[0]
    if len(levels) != 2:
        several = ", ".join(map(repr, levels[:10])) + ", ..." * (len(levels) > 10)
        how = option("event", f"{name}={levels[0]}") if levels else option("event")
        one = " alone" * (len(levels) == 1)
        raise ValueError(
            f"{where}, holds {several}{one}: say which value means that the event was seen, as {how}; all others are "
            "censored then"
        )
    seen = _of_two(levels, table.decimal)
    if seen is None:
        raise ValueError(
            f"{where}, holds {levels[0]!r} and {levels[1]!r}: say which means that the event was seen, as "
            + option("event", f"{name}={levels[0]}")
        )
    return name, seen


def _of_one(level: str, decimal: str) -> bool | None:
    """Return whether the only value means that the event was seen; None if that is not clear.

    >>> _of_one("1", "."), _of_one("alive", "."), _of_one("a", ".")
    (True, False, None)
    """
    number = float(as_numbers([level], decimal)[0])
    if number in (0.0, 1.0):
        return number == 1.0
    word = level.strip().lower()
    return word in _SEEN if word in _SEEN or word in _NOT_SEEN else None


def _of_two(levels: list[str], decimal: str) -> str | None:
    """Return which of two values means that the event was seen; None if that is not clear.

    >>> _of_two(["alive", "dead"], "."), _of_two(["1", "2"], "."), _of_two(["a", "b"], ".")
    ('dead', '2', None)
    """
    numbers = as_numbers(levels, decimal)
    if not np.isnan(numbers).any():
        return levels[int(numbers.argmax())]
    for words, is_wanted in ((_SEEN, True), (_NOT_SEEN, False)):
        inside = [level for level in levels if level.strip().lower() in words]
        if len(inside) == 1:
            return next(level for level in levels if (level == inside[0]) == is_wanted)
    return None


def censored(table: RawTable, time: str, event: str, seen: str, entry: str | None) -> Numbers:
    """Return time, event and entry of every row; all are nan where one is missing.  # (rows, 3)"""
    column = table.column(event).as_text()
    is_seen = np.array([float(level == seen) for level in column.levels] + [np.nan])[column.codes]
    parts = [quantities(table, table.column(time), "number", ""), is_seen]
    parts.append(np.zeros(len(table)) if entry is None else quantities(table, table.column(entry), "number", ""))
    values = np.stack(parts, axis=1)
    values[np.isnan(values).any(axis=1)] = np.nan
    _check(table, ~(values[:, 0] <= 0), values[:, 0], time, "a time is above zero: give it in a finer unit, or remove")
    if entry is not None:
        _check(table, ~(values[:, 2] < 0), values[:, 2], entry, "an entry is not below zero: mend it, or remove")
        _check(
            table, ~(values[:, 2] >= values[:, 0]), values[:, 2], entry, f"it is not before {time!r}: mend, or remove"
        )
    return values


def _check(table: RawTable, is_good: np.ndarray, values: Numbers, name: str, why: str) -> None:
    if is_good.all():
        return
    row, count = int((~is_good).argmax()), int((~is_good).sum())
    which = "the row" if count == 1 else f"the {count} such rows"
    raise ValueError(f"{table.source}, column {name!r}, row {table.rows[row]}, is {values[row]:g}: {why} {which}")
