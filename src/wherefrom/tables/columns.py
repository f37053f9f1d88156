"""Columns as they are written -> the numbers that a network takes, by rules that are learnt once and kept.

| a column that holds | becomes |
|---|---|
| numbers | itself; if training rows lack it, one more column says which |
| numbers and limits ("<0.6", ">200") | itself; a limit is a missing value that lies within an interval |
| true and false (or yes and no) | 1 and 0; missing as for numbers |
| dates | days since 1970 and, if the dates have them, season, weekday and time of day (see `dates`) |
| text | a column of 0 and 1 for each level that is frequent enough, one for all others, and one for missing |
| text of many rare levels | the same, and how frequent the row's level is among the training rows (its logarithm) |
| whole numbers, some with leading zeros | text: they are codes |
| always the same, or text that is unique in almost every row | nothing: it is dropped, and named |

Missing values are drawn (`gaps`): `Encoded.cells` says what is known of them. Until then a quantity is the training
rows' median, or the end of its limit, and text has no level.

Numbers beyond the range of the training rows are taken as its end: networks know nothing of what is farther out
(`outside.py` says how far that is). Numbers with long tails are drawn in, asinh((x - median) / spread), so that no
single row decides the scale of all.
The library standardises every column after that. A `TableEncoder` is plain data: it goes into JSON, and back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.report.columns import spread
from wherefrom.tables.cells import Cells
from wherefrom.tables.dates import Date
from wherefrom.tables.raw import Column, Numbers, RawTable, as_limits, as_numbers, likely, nearest
from wherefrom.tables.telling import RowNote
from wherefrom.tables.wording import option
from wherefrom.training.offset import far_from, too_far

Kind = Literal["number", "boolean", "date", "text", "drop"]

MOST_LEVELS, MOST_FEATURES = 50, 1000  # of one column, and of all text together
_LEAST_ROWS, _LEAST_SHARE = 5, 0.001  # that a level must have to get its own column
_MOSTLY = 0.8  # of the rows: then the others are mistakes
_SOME = 0.2  # of the rows hold numbers where the others hold limits: else it is text
_OWN_VALUES = 0.5  # of the rows with a text that is nearly their own: an identifier
_LONG_TAIL = 20.0  # spreads away from the median
_MOST_NAMED = 40
_MANY_RARE = 20  # levels without their own column: then how frequent they are is told
_USUAL_OTHERS = 0.01  # of the training rows, over all columns of text: beyond it, one more rare level is no surprise

_TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0, "y": 1.0, "n": 0.0}
_DECORATED = re.compile(r"[$€£]?\s*[+-]?\d[\d.,' ]*\s*[%€$£]?")
_IDENTIFIER = re.compile(r"(^|.*[^a-zA-Z])(id|index|uuid|row|rownames|unnamed: 0|column 1)", re.IGNORECASE)
_CODE = re.compile(r"\d+")
_LEADING_ZERO = re.compile(r"0\d+")
_SENTENCE = re.compile(r"\s|.{41}")
_CAMEL_IDENTIFIER = re.compile(r".*[a-z](Id|ID)")
_WHAT = {"number": "number", "boolean": "true or false"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_FORMATS = ("iso", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%b %d %Y")


@stored("Quantity")
@dataclass(frozen=True)
class Quantity:
    """A column of numbers, or of true and false."""

    name: str
    kind: Literal["number", "boolean"]
    median: float  # of the training rows, for where it is missing
    spread: float
    marks_missing: bool  # whether a further column says where it was missing
    is_drawn_in: bool = False
    low: float | None = None  # ends of the range in the training rows; without them, nothing is clipped
    high: float | None = None
    is_positive: bool = False  # no training row is below 0

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, *([f"{self.name} (missing)"] if self.marks_missing else []))

    def in_units(self, values: Numbers) -> Numbers:
        """Return values as the networks take them."""
        return np.arcsinh((values - self.median) / self.spread) if self.is_drawn_in else values

    def as_written(self, values: Numbers) -> Numbers:
        """Return values that the networks take as they were written.

        >>> income = Quantity("income", "number", 3.0, 2.0, False, is_drawn_in=True)
        >>> income.as_written(income.in_units(np.array([3.0, 500.0]))).round(6).tolist()
        [3.0, 500.0]
        """
        return np.sinh(values) * self.spread + self.median if self.is_drawn_in else values


@stored("Categories")
@dataclass(frozen=True)
class Categories:
    """A column of text: its levels, and whether there is a column for all others, and one for missing."""

    name: str
    levels: tuple[str, ...]
    shares: tuple[float, ...]  # of the training rows, for each level
    has_others: bool
    has_missing: bool
    rare: tuple[str, ...] = ()  # levels that are among the others, but have been seen
    others_share: float = 0.0  # of the training rows
    counts: tuple[int, ...] = ()  # of training rows, for each level and each rare one, where they are a feature

    @property
    def features(self) -> tuple[str, ...]:
        extra = [f"{self.name} (other)"] * self.has_others + [f"{self.name} (missing)"] * self.has_missing
        frequency = [f"{self.name} (log frequency)"] * bool(self.counts)
        return (*(f"{self.name}={level}" for level in self.levels), *extra, *frequency)

    @property
    def described(self) -> str:
        """Its name and its levels, counted.

        >>> Categories("town", ("Bern",), (0.9,), True, False, rare=("Genf",)).described
        'town (1 level, and 1 rare one)'
        """
        levels = "1 level" if len(self.levels) == 1 else f"{len(self.levels)} levels"
        rare = ", and 1 rare one" if len(self.rare) == 1 else f", and {len(self.rare)} rare ones together"
        return f"{self.name} ({levels}{rare * bool(self.rare)})"


@stored("Dropped")
@dataclass(frozen=True)
class Dropped:
    """A column that says nothing, and why."""

    name: str
    why: str
    features: tuple[str, ...] = ()
    is_identifier: bool = False  # so that it can name rows


@stored("Exposure")
@dataclass(frozen=True)
class Exposure:
    """A column that says how long, or how many, each row was observed: taken as it is."""

    kind: ClassVar[str] = "number"
    name: str
    median: float  # of the training rows

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name,)

    @classmethod
    def of(cls, table: RawTable, column: Column, training: NDArray[np.int64]) -> Exposure:
        return cls(column.name, float(np.median(_exposures(table, column)[training])))


Rule = Quantity | Date | Categories | Exposure | Dropped


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows as numbers, with the names of their columns; a frame to the library."""

    values: Numbers  # (rows, features)
    columns: tuple[str, ...]
    never_seen: tuple[tuple[int, str, str], ...] = ()  # (row, column, level), where new levels are a surprise
    notes: tuple[str, ...] = ()
    raw: Numbers = field(default_factory=lambda: np.empty((0, 0)))  # (rows, quantities) as written; nan is missing
    cells: Cells | None = None  # what is known of each row; None if all is

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> Numbers:
        return self.values

    def take(self, rows: Any) -> Encoded:
        """Return some of the rows, without the notes, which are about all of them."""
        kept = np.arange(len(self))[rows]
        unseen: dict[int, list[tuple[str, str]]] = {}
        for row, name, level in self.never_seen:
            unseen.setdefault(row, []).append((name, level))
        indices = np.flatnonzero(np.isin(kept, list(unseen))).tolist() if unseen else ()  # few of many rows
        never_seen = tuple((index, *each) for index in indices for each in unseen[int(kept[index])])
        raw = self.raw[rows] if len(self.raw) else self.raw
        cells = None if self.cells is None else self.cells.take(rows)
        return Encoded(self.values[rows], self.columns, never_seen, raw=raw, cells=cells)

    @classmethod
    def joined(cls, parts: Sequence[Encoded]) -> Encoded:
        """Return the rows of several, without their notes and what was never seen."""
        cells = None if parts[0].cells is None else Cells.joined([part.cells for part in parts if part.cells])
        values, raw = (np.concatenate(each) for each in zip(*((part.values, part.raw) for part in parts), strict=True))
        return cls(values, parts[0].columns, raw=raw, cells=cells)

    @property
    def has_gaps(self) -> NDArray[np.bool_]:
        """True for rows that lack a value.  # (rows,)"""
        gaps = np.zeros((len(self), 1), dtype=bool) if self.cells is None else self.cells.gaps
        return np.asarray(gaps.any(axis=1))


@stored("TableEncoder")
@dataclass(frozen=True)
class TableEncoder:
    """The rule for each column, as learnt from the training rows."""

    rules: tuple[Rule, ...]

    @classmethod
    def of(
        cls, table: RawTable, columns: Sequence[str], kinds: Mapping[str, str], training: NDArray[np.int64]
    ) -> TableEncoder:
        """Learn from a table: kinds of columns from all rows, levels, medians and spreads from the training rows.

        `kinds` are the user's own word: "number", "text", "boolean", "date" (or "date:%d/%m/%Y"), "drop",
        "exposure".
        """
        for name in kinds:
            if name not in columns:
                raise ValueError(f"{table.source} has no column {name!r}{nearest(name, columns)}")
        rules = tuple(_rule(table, table.columns[name], kinds.get(name), training) for name in columns)
        texts = [rule for rule in rules if isinstance(rule, Categories)]
        if sum(len(rule.features) for rule in texts) > MOST_FEATURES:
            rules = tuple(_at_most(rule, max(1, MOST_FEATURES // len(texts) - 2)) for rule in rules)
        if not any(rule.features for rule in rules):
            raise ValueError(f"no column of {table.source} is left to learn from: {'; '.join(_dropped(rules))}")
        return cls(rules)

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(feature for rule in self.rules for feature in rule.features)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a file must have to be predicted on."""
        return tuple(rule.name for rule in self.rules if not isinstance(rule, Dropped))

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Dropped))

    @property
    def identifier(self) -> str | None:
        """The column that names rows, if one was dropped for being nothing but that."""
        return next((rule.name for rule in self.dropped if rule.is_identifier), None)

    def row_names(self, table: RawTable) -> list[str]:
        """Return the names of rows: their identifier where the table has it, else their numbers in the file."""
        if self.identifier is None or self.identifier not in table.columns:
            return [f"row {number}" for number in table.rows.tolist()]
        cells = table.columns[self.identifier].cells()
        return [cell or f"row {number}" for cell, number in zip(cells, table.rows.tolist(), strict=True)]

    @property
    def feature_slices(self) -> dict[str, slice]:
        """Return the slice of features of each column.

        >>> numbers = [Quantity(name, "number", 0.0, 1.0, marks_missing=True) for name in ("age", "weight")]
        >>> TableEncoder(tuple(numbers)).feature_slices
        {'age': slice(0, 2, None), 'weight': slice(2, 4, None)}
        """
        ends = np.cumsum([len(rule.features) for rule in self.rules]).tolist()
        return {rule.name: slice(end - len(rule.features), end) for rule, end in zip(self.rules, ends, strict=True)}

    def quantities(self) -> list[int]:
        """Return the indices of the quantities among the features; of dates, of their trend."""
        slices = self.feature_slices
        return [slices[rule.name].start for rule in self.rules if isinstance(rule, Quantity | Date)]

    @property
    def drawn(self) -> tuple[Quantity | Date | Categories, ...]:
        """Rules of the columns whose missing values are drawn: all that have values to draw."""
        return tuple(rule for rule in self.rules if isinstance(rule, Quantity | Date) or _has_levels(rule))

    def completed(self, encoded: Encoded, drawn: Numbers) -> Encoded:
        """Return rows with their missing values as drawn, each as many times as it was; earlier draws are replaced.

        drawn: (rows, draws, columns), as `Donors.draws` returns them; the draws of a row stand one after the other.
        """
        if encoded.cells is None:
            raise ValueError("these rows do not say what is known of them: encode a table")
        draws = drawn.shape[1]
        values = np.repeat(encoded.values, draws, axis=0)
        gaps = np.repeat(encoded.cells.gaps, draws, axis=0)
        drawn = drawn.reshape(len(values), -1)
        slices = self.feature_slices
        for column, rule in enumerate(self.drawn):
            rows, start = np.flatnonzero(gaps[:, column]), slices[rule.name].start
            if isinstance(rule, Quantity):
                values[rows, start] = drawn[rows, column]
            elif isinstance(rule, Date):
                parts = rule.encoded(drawn[rows, column])[:, : len(rule.features) - rule.marks_missing]
                values[rows, start : start + parts.shape[1]] = parts
            else:
                values[rows, start : start + len(rule.levels) + rule.has_others] = 0.0
                values[rows, start + drawn[rows, column].astype(np.int64)] = 1.0
        return Encoded(values, encoded.columns)

    def encode(self, table: RawTable) -> Encoded:
        """Rows in their order; a column that is missing, or a cell that cannot be read, is an error that names it."""
        if absent := [name for name in self.names if name not in table.columns]:
            one = len(absent) == 1
            others = sorted(set(table.columns) - set(self.names))
            meant = likely(absent[0], others) if one else None
            fix = f"is {meant!r} what it is called here? Rename it, or add" if meant else "add"
            raise ValueError(
                f"{table.source} lacks the column{'s' * (not one)} {', '.join(map(repr, absent))}, which the run was "
                f"trained with: {fix} {'it' if one else 'them'} (cells may be left empty)"
            )
        blocks: list[Numbers] = []
        raw: list[Numbers] = []
        cells: list[tuple[Numbers, Numbers, Numbers]] = []
        never_seen: list[tuple[int, str, str]] = []
        notes: list[str] = []
        surprising = self._surprising()
        for rule in self.rules:
            if isinstance(rule, Quantity):
                as_written = quantities(table, table.columns[rule.name], rule.kind, "", takes_limits=True)
                block, cell, more = _encode_quantity(rule, as_written, table)
                raw.append(as_written)
                cells.append(cell)
            elif isinstance(rule, Date):
                days = quantities(table, table.columns[rule.name], "date", rule.date_format or "iso")
                block, more = rule.encoded(days), _about_missing(rule, np.isnan(days))
                raw.append(days)
                cells.append(
                    (np.clip(days, rule.low, rule.high), np.full(len(days), -np.inf), np.full(len(days), np.inf))
                )
            elif isinstance(rule, Exposure):
                exposures = _exposures(table, table.columns[rule.name])
                _check_exposures(table, table.columns[rule.name], exposures, rule.median)
                block, more = exposures[:, None], []
            elif isinstance(rule, Categories):
                block, codes, more, unknown = _encode_categories(rule, table)
                never_seen += unknown if rule.name in surprising else []
                if _has_levels(rule):
                    cells.append((codes, np.full(len(codes), -np.inf), np.full(len(codes), np.inf)))
            else:
                continue
            blocks.append(block)
            notes += more
        notes += self.limits(table)
        values = np.concatenate(blocks, axis=1)
        levels = tuple(len(rule.levels) + rule.has_others if _has_levels(rule) else 0 for rule in self.drawn)
        parts = [np.stack(each, axis=1) for each in zip(*cells, strict=True)]
        by_column = Cells(parts[0], parts[1], parts[2], levels) if cells else None
        as_written = np.stack(raw, axis=1) if raw else np.empty((len(values), 0))
        return Encoded(values, self.features, tuple(never_seen), tuple(notes), as_written, by_column)

    def limits(self, table: RawTable) -> list[str]:
        """Return a note for each column that holds limits, as "<0.6"."""
        notes: list[str] = []
        for rule in self.rules:
            if not isinstance(rule, Quantity):
                continue
            column = table.columns[rule.name]
            is_limit = ~np.isnan(limits(table, column, rule.kind)[0])
            if is_limit.any():
                first = column.levels[column.codes[is_limit.argmax()]]
                pattern = f"column {rule.name!r} has limits, such as {{words}}, in {{rows}}: values are drawn inside"
                notes.append(RowNote.of(pattern, int(is_limit.sum()), [first]))
        return notes

    def _surprising(self) -> set[str]:
        """Columns of text where a new level is a surprise: those with the fewest rare levels."""
        texts = sorted((r for r in self.rules if isinstance(r, Categories)), key=lambda rule: rule.others_share)
        used = np.cumsum([rule.others_share for rule in texts])
        return {rule.name for rule, share in zip(texts, used.tolist(), strict=True) if share < _USUAL_OTHERS}

    def describe(self) -> list[str]:
        """A line for each kind of column, for people."""
        quantities = [rule for rule in self.rules if isinstance(rule, Quantity)]
        named = {
            "numbers": [rule.name for rule in quantities if rule.kind == "number"],
            "true or false": [rule.name for rule in quantities if rule.kind == "boolean"],
            "dates": [rule.described for rule in self.rules if isinstance(rule, Date)],
            "text": [r.described for r in self.rules if isinstance(r, Categories)],
            "long tails compressed (asinh)": [rule.name for rule in quantities if rule.is_drawn_in],
            "exposure": [rule.name for rule in self.rules if isinstance(rule, Exposure)],
            "dropped": _dropped(self.rules),
        }
        return [f"{what}: {_listed(names)}" for what, names in named.items() if names]


def _has_levels(rule: Rule) -> TypeGuard[Categories]:
    return isinstance(rule, Categories) and bool(rule.levels)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + f" and {more} more" * (more > 0)


def _dropped(rules: Sequence[Rule]) -> list[str]:
    return [f"{rule.name} ({rule.why})" for rule in rules if isinstance(rule, Dropped)]


# ------------------------------------------------------------------ what a column is


def _rule(table: RawTable, column: Column, asked: str | None, training: NDArray[np.int64]) -> Rule:
    if asked == "drop":
        return Dropped(column.name, "as asked")
    if asked == "exposure":
        return Exposure.of(table, column, training)
    if bool(column.missing.all()):
        return Dropped(column.name, "empty")
    kind, date_format = _kind(table, column, asked)
    if kind == "text":
        return _categories(column.as_text().take(training), asked is not None)
    otherwise = f", or use {option('text', column.name)} if the column is text"
    values = quantities(table, column, kind, date_format, otherwise, takes_limits=True)
    is_limit = ~np.isnan(limits(table, column, kind)[0])
    if asked is None and kind == "number" and _is_identifier(column.name, values):
        return Dropped(column.name, "every value is unique, and it is named like an identifier", is_identifier=True)
    return _quantity(column.name, kind, values[training], is_limit[training], date_format)


def is_code(levels: Sequence[str]) -> bool:
    """True for whole numbers of which some have leading zeros: a number would lose them.

    >>> is_code(["007", "123"]), is_code(["0", "12"]), is_code(["0.5", "01"])
    (True, False, False)
    """
    return any(map(_LEADING_ZERO.fullmatch, levels)) and all(map(_CODE.fullmatch, levels))


def _kind(table: RawTable, column: Column, asked: str | None) -> tuple[Any, str]:
    """Return the kind of a column, and for dates their format."""
    if asked is not None:
        kind, _, date_format = asked.partition(":")
        if kind == "date" and not date_format and column.numbers is None:
            date_format = _date_format(table, column, insist=True)
        return kind, date_format
    if column.numbers is not None:
        return ("date" if column.is_date else "number"), ""
    counts = column.counts()
    share = lambda ok: counts[ok].sum() / counts.sum()  # noqa: E731 - a word for it
    if is_code(column.levels):
        return "text", ""
    is_number = ~np.isnan(as_numbers(column.levels, table.decimal))
    is_limit = ~np.isnan(as_limits(column.levels, table.decimal)[0])
    has_numbers = bool(is_number.all()) or share(is_number) >= _SOME
    if has_numbers and (bool((is_number | is_limit).all()) or share(is_number | is_limit) >= _MOSTLY):
        return "number", ""  # stray words are told when the numbers are read
    words = {level.casefold() for level in column.levels}
    if words <= set(_TRUTHS) and len({_TRUTHS[word] for word in words}) == len(words):  # F and N are both no
        return "boolean", ""
    if date_format := _date_format(table, column, insist=False):
        return "date", date_format
    _refuse_decorated(table, column, counts)
    return "text", ""


def dates_of(table: RawTable, name: str, asked: str | None) -> Numbers | None:
    """Days since 1970 of every row, nan where it is missing, of a column of dates; None if it is none."""
    column = table.columns[name]
    if asked == "drop" or bool(column.missing.all()):
        return None
    kind, date_format = _kind(table, column, asked)
    return quantities(table, column, kind, date_format) if kind == "date" else None


def looks_like_identifier(name: str) -> bool:
    """
    >>> looks_like_identifier("patient_id"), looks_like_identifier("patientId"), looks_like_identifier("humid")
    (True, True, False)
    """
    return bool(_IDENTIFIER.fullmatch(name) or _CAMEL_IDENTIFIER.fullmatch(name))


def _is_identifier(name: str, values: Numbers) -> bool:
    if not looks_like_identifier(name) or np.isnan(values).any():
        return False
    return bool((values == np.round(values)).all()) and len(np.unique(values)) == len(values)


def _refuse_decorated(table: RawTable, column: Column, counts: NDArray[np.int64]) -> None:
    """Prices, percentages and thousands with a separator are numbers to their owner, and text to everybody else."""
    decorated = np.array([bool(_DECORATED.fullmatch(level)) for level in column.levels])
    if len(column.levels) > 10 and counts[decorated].sum() >= _MOSTLY * counts.sum():
        first = column.first_row_of(int(np.flatnonzero(decorated)[0]))
        raise ValueError(
            f"{_place(table, column, first)}: {column.levels[column.codes[first]]!r} is a number with signs that are "
            f"not its own: write plain numbers, or use {option('text', column.name)}"
        )


def _place(table: RawTable, column: Column, row: int) -> str:
    return f"{table.source}, column {column.name!r}, row {table.rows[row]}"


# ------------------------------------------------------------------ quantities


def quantities(
    table: RawTable,
    column: Column,
    kind: str,
    date_format: str,
    otherwise: str = "",
    *,
    takes_limits: bool = False,
) -> Numbers:
    """Value of every row, nan where it is missing; a cell that is no such value is an error that names it.

    otherwise: what else can be done about such a cell, as an end of the sentence.
    takes_limits: a limit, as "<0.6", is a missing value (default False: it is an error).
    """
    if column.numbers is not None:
        _check_typed(table, column, kind)
        values = column.numbers
    elif kind == "number" and (plain := column.plain_numbers(table.decimal)) is not None:
        values = plain
    else:
        if kind == "number":
            levels = as_numbers(column.levels, table.decimal)
        elif kind == "boolean":
            levels = np.array([_truth(level) for level in column.levels])
        else:
            levels = _days(column.levels, date_format)
            if np.isnan(levels).any():  # another way to write dates that cannot be mistaken
                levels = np.where(np.isnan(levels), _days(column.levels, "iso"), levels)
        values = np.full(len(column), np.nan)
        is_there = column.codes >= 0
        values[is_there] = levels[column.codes[is_there]]
        is_limit = ~np.isnan(limits(table, column, kind)[0])
        if strays := np.flatnonzero(np.isnan(values) & is_there & ~(is_limit & takes_limits)).tolist():
            if is_limit[strays[0]]:
                _refuse_limit(table, column, strays[0])
            what = f"date written as {_written(date_format)}" if kind == "date" else _WHAT[kind]
            _refuse_stray(table, column, what, strays, otherwise)
    if infinite := np.flatnonzero(np.isinf(values)).tolist():
        raise ValueError(f"{_place(table, column, infinite[0])}: infinite; leave the cell empty, or correct it")
    return values


def _exposures(table: RawTable, column: Column) -> Numbers:
    """Return the exposure of every row; one that is missing, or not above zero, is an error."""
    values = quantities(table, column, "number", "")
    if len(wrong := np.flatnonzero(~(values > 0))):
        row = int(wrong[0])
        value = "missing" if np.isnan(values[row]) else f"{values[row]:g}"
        raise ValueError(f"{_place(table, column, row)}: the exposure is {value}, and must be a number above zero")
    return values


def _check_exposures(table: RawTable, column: Column, values: Numbers, usual: float) -> None:
    """Raise where an exposure is so far from the usual one that its count could not be predicted."""
    if len(wrong := too_far(torch.from_numpy(values), usual)):
        row = int(wrong[0])
        raise ValueError(
            f"{_place(table, column, row)}: the exposure is {values[row]:g}, {far_from(usual)}: correct it, or leave "
            "the row out"
        )


def limits(table: RawTable, column: Column, kind: str) -> tuple[Numbers, Numbers]:
    """Return the ends of each row's interval where its cell is a limit of a number, as "<0.6"; nan elsewhere."""
    low, high = np.full((2, len(column)), np.nan)
    if kind != "number" or column.numbers is not None or column.plain_numbers(table.decimal) is not None:
        return low, high
    if column.levels:
        there = column.codes >= 0
        low[there], high[there] = (each[column.codes[there]] for each in as_limits(column.levels, table.decimal))
    return low, high


def _refuse_limit(table: RawTable, column: Column, row: int) -> None:
    raise ValueError(
        f"{_place(table, column, row)}: {column.levels[column.codes[row]]!r} is a limit, and the column to predict "
        "takes numbers alone: write a number there, or leave the cell empty"
    )


def _check_typed(table: RawTable, column: Column, kind: str) -> None:
    """Numbers of a typed file are what is needed, or it is said."""
    assert column.numbers is not None
    where = f"{table.source}, column {column.name!r},"
    if kind == "date" and not column.is_date:
        raise ValueError(f"{where} holds numbers instead of dates: give it a type of dates, or write them as text")
    if kind != "date" and column.is_date:
        wanted = "numbers" if kind == "number" else "true and false"
        raise ValueError(f"{where} holds dates instead of {wanted}")
    if kind == "boolean":
        strays = np.flatnonzero(~column.missing & ~np.isin(column.numbers, (0.0, 1.0)))
        if len(strays):
            value = column.numbers[strays[0]]
            raise ValueError(
                f"{_place(table, column, int(strays[0]))}: {value:g} is neither 0 nor 1, for false or true"
            )


def _refuse_stray(table: RawTable, column: Column, what: str, strays: list[int], otherwise: str) -> None:
    word = column.levels[column.codes[strays[0]]]
    others = {column.levels[column.codes[row]] for row in strays} - {word}
    more = f" (and {len(strays) - 1} more, such as {min(others)!r})" if others else ""
    shown = word if len(word) <= 40 else word[:40] + "..."
    raise ValueError(
        f"{_place(table, column, strays[0])}: {shown!r} is no {what}{more}; correct it, or use "
        f"{option('missing', word)} if it means missing{otherwise}"
    )


def _truth(level: str) -> float:
    truth = _TRUTHS.get(level.casefold(), math.nan)
    return truth if truth == truth else {"1": 1.0, "0": 0.0}.get(level, math.nan)


def _date_format(table: RawTable, column: Column, insist: bool) -> str:
    """Return the format of dates, the one that nearly all rows have; an empty text if they are no dates."""
    counts = column.counts()
    order = np.argsort(-counts)[:200]
    some = [column.levels[level] for level in order]

    def fits(date_format: str, levels: Sequence[str], weights: Any) -> bool:
        return bool((~np.isnan(_days(levels, date_format)) * weights).sum() >= _MOSTLY * weights.sum())

    formats = [one for one in _DATE_FORMATS if fits(one, some, counts[order])]
    if len(formats) > 1:  # more rows may tell
        formats = [one for one in formats if not np.isnan(_days(column.levels, one)).any()] or formats[:1]
    if len(formats) > 1:
        first = column.first_row_of(0)
        raise ValueError(
            f"{_place(table, column, first)}: {column.levels[0]!r} may have the day or the month first: say which, as "
            + option("date", f"{column.name}={formats[0]}")
        )
    if not formats and insist:
        first = column.first_row_of(0)
        raise ValueError(
            f"{_place(table, column, first)}: {column.levels[0]!r} has no known date format: give it, as "
            f"{option('date', column.name + '=%d.%m.%Y')}"
        )
    return formats[0] if formats else ""


def _written(date_format: str) -> str:
    """An example of a date in a format.

    >>> _written("iso"), _written("%d.%m.%Y")
    ('2026-01-31', '31.01.2026')
    """
    example = datetime(2026, 1, 31)
    return example.date().isoformat() if date_format == "iso" else example.strftime(date_format)


def written_date(days: float) -> str:
    """Days since 1970 as a date; a number, if no calendar has it.

    >>> written_date(20484.5), written_date(1e9)
    ('2026-01-31', 'day 1e+09')
    """
    try:
        return (_EPOCH + timedelta(days=float(days))).date().isoformat()
    except OverflowError:
        return f"day {days:.4g}"


def _days(levels: Sequence[str], date_format: str) -> Numbers:
    """Days since 1970, nan for what is no date."""
    days = np.full(len(levels), np.nan)
    for index, level in enumerate(levels):
        try:
            if date_format == "iso":
                moment = datetime.fromisoformat(level)
            else:
                moment = datetime.strptime(level.replace(",", ""), date_format)
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        days[index] = (moment - _EPOCH).total_seconds() / 86_400
    return days


def _quantity(name: str, kind: Any, values: Numbers, is_limit: NDArray[np.bool_], date_format: str) -> Rule:
    present = values[~np.isnan(values)]
    has_missing = bool((np.isnan(values) & ~is_limit).any())
    if not len(present):
        return Dropped(name, "empty in the training rows")
    if present.min() == present.max() and len(present) == len(values):
        return Dropped(name, "always the same")
    if kind == "date":
        return Date.of(name, values, date_format)
    median = float(np.median(present))
    width = spread(present, median) or 1.0
    reach = float(np.abs(present - median).max())
    is_drawn_in = kind == "number" and reach > _LONG_TAIL * width
    low, high = float(present.min()), float(present.max())
    return Quantity(name, kind, median, width, has_missing, is_drawn_in, low, high, low >= 0)


def _encode_quantity(
    rule: Quantity, values: Numbers, table: RawTable
) -> tuple[Numbers, tuple[Numbers, Numbers, Numbers], list[str]]:
    """Return the features, the cells with their limits, and notes."""
    low, high = limits(table, table.columns[rule.name], rule.kind)
    is_limit = ~np.isnan(low)
    missing = np.isnan(values) & ~is_limit
    low = np.where(is_limit, low, -np.inf)
    high = np.where(is_limit, high, np.inf)
    if rule.is_positive:
        low = np.where(is_limit & (high >= 0), np.maximum(low, 0.0), low)
    if rule.low is not None and rule.high is not None:  # what is farther out is not known, nor does it tell more
        values = np.clip(values, rule.low, rule.high)
    filled = rule.in_units(np.where(np.isnan(values), np.clip(rule.median, low, high), values))
    block = np.stack([filled, missing] if rule.marks_missing else [filled], axis=1).astype(np.float64)
    return block, (rule.in_units(values), rule.in_units(low), rule.in_units(high)), _about_missing(rule, missing)


def _about_missing(rule: Quantity | Date, missing: NDArray[np.bool_]) -> list[str]:
    """Return a note where values are missing, but never were in training."""
    if rule.marks_missing or not missing.any():
        return []
    pattern = (
        f"column {rule.name!r} is missing in {{rows}}, but never was in training: values are drawn "
        "from training rows that are like them"
    )
    return [RowNote.of(pattern, int(missing.sum()))]


def rows_of(count: Any) -> str:
    return f"{int(count):,} row{'s' * (int(count) != 1)}"


# ------------------------------------------------------------------ text


def _categories(column: Column, insist: bool) -> Rule:
    counts, missing = column.counts(), column.missing
    seen = np.flatnonzero(counts)
    if not len(seen):
        return Dropped(column.name, "empty in the training rows")
    if len(seen) == 1 and not missing.any():
        return Dropped(column.name, "always the same")
    least = max(_LEAST_ROWS, math.ceil(_LEAST_SHARE * len(column)))
    frequent = sorted(seen[counts[seen] >= least], key=lambda level: (-counts[level], column.levels[level]))
    chosen = frequent[:MOST_LEVELS]
    is_own = len(seen) > _OWN_VALUES * counts.sum()
    if is_own and not insist:
        if not missing.any():
            is_identifier = len(seen) == len(column) and not any(_SENTENCE.search(column.levels[k]) for k in seen)
            return Dropped(column.name, "almost every value is unique", is_identifier=is_identifier)
        chosen = []  # what can be told is whether there is any
    if not chosen and not missing.any():
        return Dropped(column.name, f"no text in it is shared by {least} rows")
    others = sorted(set(seen.tolist()) - {int(level) for level in chosen}, key=column.levels.__getitem__)
    rare = tuple(column.levels[level] for level in others)
    has_frequency = bool(chosen) and len(rare) >= _MANY_RARE
    return Categories(
        column.name,
        tuple(column.levels[level] for level in chosen),
        tuple(float(counts[level]) / len(column) for level in chosen),
        bool(rare),
        bool(missing.any()),
        rare if chosen else (),
        float(counts[others].sum()) / len(column),
        tuple(counts[[*chosen, *others]].tolist()) if has_frequency else (),
    )


def _at_most(rule: Rule, levels: int) -> Rule:
    """Keep only the most frequent levels of text."""
    if not isinstance(rule, Categories) or len(rule.levels) <= levels:
        return rule
    kept, others = rule.levels[:levels], rule.levels[levels:]
    return replace(
        rule,
        levels=kept,
        shares=rule.shares[:levels],
        has_others=True,
        rare=(*others, *rule.rare),  # in the order of the counts
        others_share=rule.others_share + math.fsum(rule.shares[levels:]),
    )


def _encode_categories(
    rule: Categories, table: RawTable
) -> tuple[Numbers, Numbers, list[str], list[tuple[int, str, str]]]:
    """Return the features, the codes of the levels, notes, and levels that training never saw."""
    column = table.columns[rule.name].as_text()
    width, missing = len(rule.features) - bool(rule.counts), column.missing
    place_of = {level: index for index, level in enumerate(rule.levels)}
    others = len(rule.levels) if rule.has_others else -1
    places = np.array([place_of.get(level, others) for level in column.levels] or [-1])
    column_of_row = np.where(missing, width - 1 if rule.has_missing else -1, places[column.codes])
    block = np.zeros((len(column), len(rule.features)))
    is_set = column_of_row >= 0
    block[np.flatnonzero(is_set), column_of_row[is_set]] = 1.0
    if rule.counts:
        block[:, -1] = np.where(missing, 0.0, _log_frequencies(rule, column.levels)[column.codes])
    notes: list[str] = []
    unknown = []
    if missing.any() and not rule.has_missing:
        pattern = (
            f"column {rule.name!r} is missing in {{rows}}, but never was in training: levels are drawn from training "
            "rows that are like them"
        )
        notes.append(RowNote.of(pattern, int(missing.sum())))
    seen = {*rule.levels, *rule.rare}
    if rule.levels:  # else every row has its own text, and a new one is nothing new
        strange = np.array([level not in seen for level in column.levels] or [False])
        rows = np.flatnonzero(strange[column.codes] & ~missing).tolist()
        unknown = [(row, rule.name, column.levels[column.codes[row]]) for row in rows]
        if unknown:
            pattern = f"column {rule.name!r} has levels that training never saw, in {{rows}}: {{words}}"
            notes.append(RowNote.of(pattern, len(rows), (level for _, _, level in unknown), 3))
    return block, np.where(missing, np.nan, places[column.codes].astype(np.float64)), notes, unknown


def _log_frequencies(rule: Categories, levels: Sequence[str]) -> Numbers:
    """Return log(1 + training rows) of each level; 0 for one that training never saw."""
    count_of = dict(zip((*rule.levels, *rule.rare), rule.counts, strict=True))
    return np.log1p(np.array([count_of.get(level, 0) for level in levels] or [0], dtype=np.float64))
