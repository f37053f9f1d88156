"""A model's look at a table: every row predicted, how far it is from the training rows, and what to know about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.posterior.predicting import Method
from wherefrom.predictive.background import Blend
from wherefrom.report.words import column_of
from wherefrom.tables.background import groups_of
from wherefrom.tables.columns import Encoded, quantities, rows_of
from wherefrom.tables.gaps import GAPS, samples_of_a_draw
from wherefrom.tables.outside import weight
from wherefrom.tables.predicting import Answers, Predicted, Read, answering, predict_rows
from wherefrom.tables.raw import Numbers, RawTable
from wherefrom.tables.target import known, possible
from wherefrom.tables.telling import RowNote
from wherefrom.tables.wording import option
from wherefrom.training.progress import Show

if TYPE_CHECKING:
    from wherefrom.tables.model import Model

OVERALL_ROWS = 3000  # are enough to speak of all
_OVERALL_NUMBERS, _FEWEST_ROWS = 10_000_000, 200  # answers at once, where rows have many draws
FEWEST_SAMPLES = 4


@dataclass(frozen=True)
class How:
    """The way to predict a table; what is None is the model's own."""

    level: float | None = None
    samples: int | None = None
    method: Method = "monte_carlo"
    keep: Sequence[str] = ()  # columns to show beside the predictions, which the model may not know

    def __post_init__(self) -> None:
        if self.level is not None and not 0 < self.level < 1:
            raise ValueError(f"{option('level')} lies between 0 and 1, as 0.95, unlike {self.level}")
        if self.samples is not None and self.samples < FEWEST_SAMPLES:
            raise ValueError(f"{option('samples')} is at least {FEWEST_SAMPLES}, not {self.samples}")


@dataclass(frozen=True)
class Gap:
    """The missing values of a column: in how many rows, and what measuring them would do."""

    rows: int
    expected_fall: float  # of the doubt about those rows, relative to all of it, on average
    measure_next: int  # rows in which no other column would lower it more


@dataclass(frozen=True, eq=False)
class Looked:
    """A table of rows, their predictions, and how far from the training rows they are."""

    model: Model
    table: RawTable
    encoded: Encoded
    truth: Any  # where it is there
    distance: Numbers
    why: Sequence[str]
    blend: Blend
    notes_of_table: Sequence[str]
    how: How
    progress: Show

    @cached_property
    def predicted(self) -> Predicted:
        return self._in_turns()

    def read(self, read: Read) -> Answers:
        """Return what `read` takes of the predictions, by name, for all rows."""
        return self._in_turns(read).answers

    def _in_turns(self, read: Read | None = None) -> Predicted:
        event = self.model.scores.event
        return predict_rows(
            self.model.posterior,
            self.encoded,
            self.how.level or self.model.level,
            self._samples,
            self.truth,
            self.how.method,
            self.progress,
            blend=self.blend,
            completion=self.model.completion,
            event=None if event is None else event.label,
            read=read,
        )

    def prediction(self, rows: Any = slice(None)) -> Any:
        """Predict some of the rows at once, as one prediction."""
        answer = answering(
            self.encoded.take(rows),
            self._samples,
            self.how.method,
            blend=self.blend.of_rows(rows),
            completion=self.model.completion,
        )
        return answer(self.model.posterior)

    @property
    def has_gaps(self) -> bool:
        """True if rows have missing values that are drawn."""
        return self.model.completion is not None and bool(self.encoded.has_gaps.any())

    @property
    def _samples(self) -> int:
        return self.how.samples or self.model.samples

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.notes_of_table, *self.predicted.notes)

    @property
    def outside(self) -> Any:
        return self.distance > 1

    @property
    def sources(self) -> tuple[str, ...]:
        return self.predicted.sources

    @property
    def expected_fall(self) -> Numbers:
        """Return by how much the doubt about each row would fall if `measure_next` were known, relative to all."""
        falls = self.predicted.falls
        return falls.max(axis=1) if falls.size else np.zeros(len(falls))

    @property
    def measure_next(self) -> list[str]:
        """Return the missing column of each row that would lower its doubt most; empty if none would."""
        best = self.predicted.falls.argmax(axis=1).tolist() if self.predicted.falls.size else [0] * len(self.encoded)
        names = self.model.drawn_columns
        return [names[column] if fall > 0 else "" for column, fall in zip(best, self.expected_fall, strict=True)]

    def gaps(self) -> dict[str, Gap]:
        """Return the missing values of all rows by column, those that matter most first."""
        return gaps_by_column(gap_totals(self.encoded, self.predicted.falls), self.model.drawn_columns)

    def shares(self) -> dict[str, Numbers]:
        """Return the share of each source in each row, by the name of its column; interactions are added up."""
        has_families = self.model.posterior.design.families is not None
        shares: dict[str, Numbers] = {}
        for source in self.sources:
            column = column_of(source, has_families)
            shares[column] = shares.get(column, 0.0) + self.predicted.answers[f"share {source}"]
        return shares

    def columns(self) -> dict[str, Any]:
        """Return what is written for each row, its identifier and the columns to keep first."""
        labels = [name.removeprefix("p ") for name in self.predicted.answers if name.startswith("p ")]
        names = {f"p {label}": name for label, name in probability_columns(labels).items()}
        answers: dict[str, Any] = {
            names.get(name, name): values
            for name, values in self.predicted.answers.items()
            if not name.startswith("share ")
        }
        answers |= self._rates(answers)
        answers |= {f"share_{name}": values for name, values in self.shares().items()}
        if several := self.model.target.several:
            answers = {
                f"{name}_{output}": column
                for name, values in answers.items()
                for output, column in zip(several, values.T, strict=True)
            }
        if "set" in answers:
            answers["set"] = ["|".join(map(str, labels)) for labels in answers["set"]]
        answers |= {"measure_next": self.measure_next, "expected_fall": self.expected_fall}
        answers |= {"outside": self.outside, "distance": self.distance, "why": list(self.why)}
        kept = tuple(self.how.keep)
        if doubled := [name for name in kept if name in answers]:
            raise ValueError(
                f"{option('keep', doubled[0])}: predictions have a column of that name, too; rename it first"
            )
        identifier = self.model.encoder.identifier
        if identifier in self.table.columns and identifier not in answers:
            kept = tuple(dict.fromkeys((identifier, *kept)))
        return {**{name: self.table.column(name).plain() for name in kept}, **answers}

    def _rates(self, answers: Mapping[str, Any]) -> dict[str, Numbers]:
        """Return counts per unit of exposure, and the ends of their intervals; nothing if there is no exposure."""
        if (exposure := self.model.target.exposure) is None:
            return {}
        per_unit = 1 / quantities(self.table, self.table.column(exposure), "number", "")
        return {
            rate: answers[name] * per_unit
            for rate, name in (("rate", "mean"), ("rate_lower", "lower"), ("rate_upper", "upper"))
        }

    def risk(self) -> Numbers | None:
        """Return the risk of a rare event in each row; None if there is no such event."""
        event = self.model.scores.event
        return self.predicted.answers[f"p {event.label}"] if event is not None and event.is_rare else None

    def overall(self) -> Mapping[str, Any]:
        """Split the doubt over all rows, or over evenly spaced ones if there are many: name -> share and its error."""
        return self.prediction(spaced(len(self.encoded), self.most_overall)).all_sources().overall

    @property
    def most_overall(self) -> int:
        """Most rows that `overall` looks at: fewer, if rows have many draws of missing values."""
        if not self.has_gaps:
            return OVERALL_ROWS
        posterior = self.model.posterior
        samples = samples_of_a_draw(self._samples, len(posterior))
        each = len(posterior) * samples * posterior.schema.targets * GAPS.draws
        return max(_FEWEST_ROWS, min(OVERALL_ROWS, _OVERALL_NUMBERS // each))


def spaced(rows: int, most: int) -> slice:
    """Choose evenly spaced rows, up to a limit: every row, every second, every fourth, ...

    >>> spaced(100, 100), spaced(101, 100), spaced(1000, 100)
    (slice(None, None, 1), slice(None, None, 2), slice(None, None, 16))
    """
    step = 1
    while -(-rows // step) > most:
        step *= 2
    return slice(None, None, step)


def gap_totals(x: Encoded, falls: Numbers) -> Numbers:
    """Return, by column: rows that lack it, the sum of the falls there, and rows in which it matters most.

    falls: (rows, columns): the fall of each row's doubt if that column were measured.
    # (3, columns)
    """
    if x.cells is None or not falls.shape[1]:
        return np.zeros((3, falls.shape[1]))
    gaps = x.cells.gaps
    best = np.where(falls.max(axis=1) > 0, falls.argmax(axis=1), -1)
    is_best = best[:, None] == np.arange(falls.shape[1])
    return np.stack([gaps.sum(axis=0), np.where(gaps, falls, 0.0).sum(axis=0), (is_best & gaps).sum(axis=0)])


def gaps_by_column(totals: Numbers, names: Sequence[str]) -> dict[str, Gap]:
    """Return the missing values of rows by column, those that matter most first.

    totals: as `gap_totals` returns them; those of several tables can be added.
    names: of the columns.
    """
    each = {
        name: Gap(int(rows), float(fall / rows), int(best))
        for name, (rows, fall, best) in zip(names, totals.T, strict=True)
        if rows
    }
    return dict(sorted(each.items(), key=lambda item: -item[1].rows * item[1].expected_fall))


def probability_columns(labels: Sequence[str]) -> dict[str, str]:
    """Name the columns of the classes' probabilities: letters, digits and _, or the labels if that would not differ.

    >>> probability_columns(["ward A", "ward-B"]), probability_columns(["<50", ">50"])
    ({'ward A': 'p_ward_A', 'ward-B': 'p_ward_B'}, {'<50': 'p_<50', '>50': 'p_>50'})
    """
    names = [re.sub(r"\W+", "_", label) for label in labels]
    is_clear = len(set(names)) == len(names)
    return {label: f"p_{name if is_clear else label}" for label, name in zip(labels, names, strict=True)}


def look(model: Model, table: RawTable, how: How | None = None, progress: Show = None) -> Looked:
    """Return every row of a table as the model sees it; it is predicted, and scored, when it is asked for."""
    how = how or How()
    encoded = model.encoder.encode(table)
    notes = [*table.notes, *encoded.notes]
    others = {*model.target.columns, *(model.about.get(name) for name in ("group", "weight"))}
    expected = {rule.name for rule in model.encoder.rules} | others | {*how.keep}
    if extra := [name for name in table.columns if name not in expected]:
        shown = ", ".join(map(repr, extra[:10])) + ", ..." * (len(extra) > 10)
        notes.append(f"{table.source} has columns that the run does not know, and ignores: {shown}")
    truth = _truth(model, table, notes)
    distance, why = model.around.look(encoded)
    blend = model.background.at(weight(distance), groups_of(table, model.about.get("group")))
    return Looked(model, table, encoded, truth, distance, why, blend, tuple(notes), how, progress)


def _possible(model: Model, truth: Any, notes: list[str]) -> Any:
    """Return the truth without values that the chosen distribution rules out, such as a zero among log-normals."""
    impossible = known(truth) & ~possible(model.posterior.training.likelihood, truth)
    if not impossible.any():
        return truth
    first = float(truth[impossible][0])
    notes.append(
        f"{model.target.name} is {first:g} in a row, and such values in {rows_of(int(impossible.sum()))}, which "
        f"{model.target.task} rules out: not scored"
    )
    return np.where(impossible, np.nan, truth)


def _truth(model: Model, table: RawTable, notes: list[str]) -> Any:
    """Return the target where it is there, and can be read; no prediction depends on it."""
    target = model.target
    if target.several or not set(target.columns) <= set(table.columns):
        return None
    try:
        truth = target.values(table)
    except ValueError as error:
        notes.append(f"not scored: {error}")
        return None
    if not target.classes:
        return _possible(model, truth, notes)
    strange = {label for label in truth.tolist() if label is not None and label not in target.classes}
    if strange:
        pattern = f"{target.name} holds {{words}}, a class never seen: not scored"
        notes.append(RowNote.of(pattern, len(strange), sorted(strange, key=repr)))
    return truth
