"""Columns as they are written -> the numbers that a network takes, by rules that are learnt once and kept.

| a column that holds | becomes |
|---|---|
| numbers | itself; a missing value is the training rows' median, and one more column says which were missing |
| true and false (or yes and no) | 1 and 0; missing as for numbers |
| dates | days since 1970; missing as for numbers |
| text | a column of 0 and 1 for each level that is frequent enough, one for all others, and one for missing |
| always the same, or a text of its own in nearly every row | nothing: it is dropped, and named |

Numbers with long tails are drawn in, asinh((x - median) / spread), so that no single row decides the scale of all.
The library standardises every column after that. A `TableEncoder` is plain data: it goes into JSON, and back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.tables.raw import Column, Numbers, RawTable, as_numbers, likely, nearest

Kind = Literal["number", "boolean", "date", "text", "drop"]

MOST_LEVELS, MOST_FEATURES = 50, 1000  # of one column, and of all text together
_LEAST_ROWS, _LEAST_SHARE = 5, 0.001  # that a level must have to get a column of its own
_MOSTLY = 0.8  # of the rows: then the others are mistakes
_OWN_VALUES = 0.5  # of the rows with a text that is nearly their own: an identifier
_LONG_TAIL = 20.0  # spreads away from the median
_MOST_NAMED = 40
_USUAL_OTHERS = 0.01  # of the training rows, over all columns of text: beyond it, one more rare level is no surprise

_TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0, "y": 1.0, "n": 0.0}
_DECORATED = re.compile(r"[$€£]?\s*[+-]?\d[\d.,' ]*\s*[%€$£]?")
_IDENTIFIER = re.compile(r"(^|.*[^a-zA-Z])(id|index|uuid|row|rownames|unnamed: 0|column 1)", re.IGNORECASE)
_SENTENCE = re.compile(r"\s|.{41}")
_CAMEL_IDENTIFIER = re.compile(r".*[a-z](Id|ID)")
_WHAT = {"number": "number", "boolean": "true or false"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_FORMATS = ("iso", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%b %d %Y")


@stored("Quantity")
@dataclass(frozen=True)
class Quantity:
    """A column of numbers, dates, or true and false."""

    name: str
    kind: Literal["number", "boolean", "date"]
    median: float  # of the training rows, for where it is missing
    spread: float
    marks_missing: bool  # whether a further column says where it was missing
    is_drawn_in: bool = False
    date_format: str = ""

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, *([f"{self.name} (missing)"] if self.marks_missing else []))


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

    @property
    def features(self) -> tuple[str, ...]:
        extra = [f"{self.name} (other)"] * self.has_others + [f"{self.name} (missing)"] * self.has_missing
        return (*(f"{self.name}={level}" for level in self.levels), *extra)

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


Rule = Quantity | Categories | Dropped


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows as numbers, with the names of their columns; a frame as far as the library is concerned."""

    values: Numbers  # (rows, features)
    columns: tuple[str, ...]
    never_seen: tuple[tuple[int, str, str], ...] = ()  # (row, column, level), where new levels are a surprise
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> Numbers:
        return self.values

    def take(self, rows: Any) -> Encoded:
        return Encoded(self.values[rows], self.columns)


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

        `kinds` are the user's own word: "number", "text", "boolean", "date" (or "date:%d/%m/%Y"), "drop".
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

    def quantities(self) -> list[int]:
        """Return the indices of the quantities among the features."""
        places, start = [], 0
        for rule in self.rules:
            if isinstance(rule, Quantity):
                places.append(start)
            start += len(rule.features)
        return places

    def encode(self, table: RawTable) -> Encoded:
        """Rows in their order; a column that is missing, or a cell that cannot be read, is an error that names it."""
        if absent := [name for name in self.names if name not in table.columns]:
            one = len(absent) == 1
            others = [name for name in table.columns if name not in self.names]
            meant = likely(absent[0], others) if one else None
            fix = f"is {meant!r} what it is called here? Rename it, or add" if meant else "add"
            raise ValueError(
                f"{table.source} lacks the column{'s' * (not one)} {', '.join(map(repr, absent))}, which the run was "
                f"trained with: {fix} {'it' if one else 'them'} (cells may be left empty)"
            )
        blocks: list[Numbers] = []
        never_seen: list[tuple[int, str, str]] = []
        notes: list[str] = []
        surprising = self._surprising()
        for rule in self.rules:
            if isinstance(rule, Quantity):
                block, more = _encode_quantity(rule, table)
            elif isinstance(rule, Categories):
                block, more, unknown = _encode_categories(rule, table)
                never_seen += unknown if rule.name in surprising else []
            else:
                continue
            blocks.append(block)
            notes += more
        values = np.concatenate(blocks, axis=1)
        return Encoded(values, self.features, tuple(never_seen), tuple(notes))

    def _surprising(self) -> set[str]:
        """Columns of text where a new level is a surprise: those with the fewest rare ones, as far as they go."""
        texts = sorted((r for r in self.rules if isinstance(r, Categories)), key=lambda rule: rule.others_share)
        used = np.cumsum([rule.others_share for rule in texts])
        return {rule.name for rule, share in zip(texts, used.tolist(), strict=True) if share < _USUAL_OTHERS}

    def describe(self) -> list[str]:
        """A line for each kind of column, for people."""
        quantities = [rule for rule in self.rules if isinstance(rule, Quantity)]
        named = {
            "numbers": [rule.name for rule in quantities if rule.kind == "number"],
            "true or false": [rule.name for rule in quantities if rule.kind == "boolean"],
            "dates, as days since 1970": [rule.name for rule in quantities if rule.kind == "date"],
            "text": [r.described for r in self.rules if isinstance(r, Categories)],
            "drawn in by asinh, for their long tails": [rule.name for rule in quantities if rule.is_drawn_in],
            "dropped": _dropped(self.rules),
        }
        return [f"{what}: {_listed(names)}" for what, names in named.items() if names]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + f" and {more} more" * (more > 0)


def _dropped(rules: Sequence[Rule]) -> list[str]:
    return [f"{rule.name} ({rule.why})" for rule in rules if isinstance(rule, Dropped)]


# ------------------------------------------------------------------ what a column is


def _rule(table: RawTable, column: Column, asked: str | None, training: NDArray[np.int64]) -> Rule:
    if asked == "drop":
        return Dropped(column.name, "as asked")
    if bool(column.missing.all()):
        return Dropped(column.name, "empty")
    kind, date_format = _kind(table, column, asked)
    if kind == "text":
        return _categories(column.as_text().take(training), asked is not None)
    otherwise = f", or --text {quoted(column.name)} if the column is text"
    values = quantities(table, column, kind, date_format, otherwise)
    if asked is None and kind == "number" and _is_identifier(column.name, values):
        return Dropped(column.name, "a number of its own for every row, named like an identifier", is_identifier=True)
    return _quantity(column.name, kind, values[training], date_format)


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
    is_number = ~np.isnan(as_numbers(column.levels, table.decimal))
    if bool(is_number.all()) or share(is_number) >= _MOSTLY:
        return "number", ""  # stray words are told when the numbers are read
    words = {level.casefold() for level in column.levels}
    if words <= set(_TRUTHS) and len({_TRUTHS[word] for word in words}) == len(words):  # F and N are both no
        return "boolean", ""
    if date_format := _date_format(table, column, insist=False):
        return "date", date_format
    _refuse_decorated(table, column, counts)
    return "text", ""


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
            f"not its own: write plain numbers, or say --text {quoted(column.name)}"
        )


def quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else f"'{name}'"


def _place(table: RawTable, column: Column, row: int) -> str:
    return f"{table.source}, column {column.name!r}, row {table.rows[row]}"


# ------------------------------------------------------------------ quantities


def quantities(table: RawTable, column: Column, kind: str, date_format: str, otherwise: str = "") -> Numbers:
    """Value of every row, nan where it is missing; a cell that is no such value is an error that names it.

    `otherwise` is what else can be done about such a cell, as an end of the sentence.
    """
    if column.numbers is not None:
        _check_typed(table, column, kind)
        values, levels = column.numbers, None
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
        if strays := np.flatnonzero(np.isnan(values) & is_there).tolist():
            what = f"date written as {_written(date_format)}" if kind == "date" else _WHAT[kind]
            _refuse_stray(table, column, what, strays, otherwise)
    if infinite := np.flatnonzero(np.isinf(values)).tolist():
        raise ValueError(f"{_place(table, column, infinite[0])}: infinite; leave the cell empty, or correct it")
    return values


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
        f"{_place(table, column, strays[0])}: {shown!r} is no {what}{more}; correct it, or say --missing "
        f"{quoted(word)} if it means missing{otherwise}"
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
            f"--date {quoted(column.name + '=' + formats[0])}"
        )
    if not formats and insist:
        first = column.first_row_of(0)
        raise ValueError(
            f"{_place(table, column, first)}: {column.levels[0]!r} is no date as we know them: say how they are "
            f"written, as --date {quoted(column.name + '=%d.%m.%Y')}"
        )
    return formats[0] if formats else ""


def _written(date_format: str) -> str:
    """An example of a date in a format.

    >>> _written("iso"), _written("%d.%m.%Y")
    ('2026-01-31', '31.01.2026')
    """
    example = datetime(2026, 1, 31)
    return example.date().isoformat() if date_format == "iso" else example.strftime(date_format)


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


def _quantity(name: str, kind: Any, values: Numbers, date_format: str) -> Rule:
    present = values[~np.isnan(values)]
    has_missing = len(present) < len(values)
    if not len(present):
        return Dropped(name, "empty in the training rows")
    if present.min() == present.max() and not has_missing:
        return Dropped(name, "always the same")
    median = float(np.median(present))
    spread = _spread(present, median)
    reach = float(np.abs(present - median).max())
    is_drawn_in = kind == "number" and reach > _LONG_TAIL * spread
    return Quantity(name, kind, median, spread, has_missing, is_drawn_in, date_format)


def _spread(values: Numbers, median: float) -> float:
    """A standard deviation that a few rows cannot change: by quartiles, or by what is not the median at all."""
    low, high = np.quantile(values, [0.25, 0.75])
    if high > low:
        return float(high - low) / 1.349
    apart = np.abs(values - median)
    return float(np.median(apart[apart > 0])) if (apart > 0).any() else 1.0


def _encode_quantity(rule: Quantity, table: RawTable) -> tuple[Numbers, list[str]]:
    column = table.columns[rule.name]
    values = quantities(table, column, rule.kind, rule.date_format or "iso")
    missing = np.isnan(values)
    values = np.where(missing, rule.median, values)
    if rule.is_drawn_in:
        values = np.arcsinh((values - rule.median) / rule.spread)
    notes = []
    if missing.any() and not rule.marks_missing:
        notes.append(
            f"column {rule.name!r} is missing in {rows_of(missing.sum())}, but never was in training: "
            "its median is taken"
        )
    return np.stack([values, missing] if rule.marks_missing else [values], axis=1).astype(np.float64), notes


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
            return Dropped(column.name, "text of its own in nearly every row", is_identifier=is_identifier)
        chosen = []  # what can be told is whether there is any
    if not chosen and not missing.any():
        return Dropped(column.name, f"no text in it is shared by {least} rows")
    others = sorted(set(seen.tolist()) - {int(level) for level in chosen})
    rare = tuple(sorted(column.levels[level] for level in others))
    return Categories(
        column.name,
        tuple(column.levels[level] for level in chosen),
        tuple(float(counts[level]) / len(column) for level in chosen),
        bool(rare),
        bool(missing.any()),
        rare if chosen else (),
        float(counts[others].sum()) / len(column),
    )


def _at_most(rule: Rule, levels: int) -> Rule:
    """Keep only so many levels of text, the most frequent."""
    if not isinstance(rule, Categories) or len(rule.levels) <= levels:
        return rule
    kept, others = rule.levels[:levels], rule.levels[levels:]
    return replace(
        rule,
        levels=kept,
        shares=rule.shares[:levels],
        has_others=True,
        rare=(*rule.rare, *others),
        others_share=rule.others_share + math.fsum(rule.shares[levels:]),
    )


def _encode_categories(rule: Categories, table: RawTable) -> tuple[Numbers, list[str], list[tuple[int, str, str]]]:
    column = table.columns[rule.name].as_text()
    width, missing = len(rule.features), column.missing
    place_of = {level: index for index, level in enumerate(rule.levels)}
    others = len(rule.levels) if rule.has_others else -1
    places = np.array([place_of.get(level, others) for level in column.levels] or [-1])
    column_of_row = np.where(missing, width - 1 if rule.has_missing else -1, places[column.codes])
    block = np.zeros((len(column), width))
    is_set = column_of_row >= 0
    block[np.flatnonzero(is_set), column_of_row[is_set]] = 1.0
    notes, unknown = [], []
    if missing.any() and not rule.has_missing:
        notes.append(f"column {rule.name!r} is missing in {rows_of(missing.sum())}, but never was in training")
    seen = {*rule.levels, *rule.rare}
    if rule.levels:  # else every row has a text of its own, and a new one is nothing new
        strange = np.array([level not in seen for level in column.levels] or [False])
        rows = np.flatnonzero(strange[column.codes] & ~missing).tolist()
        unknown = [(row, rule.name, column.levels[column.codes[row]]) for row in rows]
        if unknown:
            words = list(dict.fromkeys(level for _, _, level in unknown))
            shown = ", ".join(map(repr, words[:3])) + ", ..." * (len(words) > 3)
            notes.append(f"column {rule.name!r} has levels that training never saw, in {rows_of(len(rows))}: {shown}")
    return block, notes, unknown
