"""Tables of any length: rows are read, predicted and written a few thousand at a time, in memory that does not grow.

Each row has the same answer as in a table that is predicted at once: by Monte Carlo to the last bit, by moments
(one-shot) up to rounding. What is said of all rows together is added up:

| what | how |
|---|---|
| rows, rows outside, missing values by column, notes | exact |
| scores, where the target is there | of all rows up to 200,000; of more, of 200,000 drawn at random, which is said |
| sources over all rows | of evenly spaced rows, 3,000 at most, as of a table at once |
| rows at the highest risk, rows most in doubt | exact |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.predictive.background import Blend
from wherefrom.tables.columns import Encoded
from wherefrom.tables.looking import OVERALL_ROWS, Gap, How, Looked, gap_totals, gaps_by_column, look, spaced
from wherefrom.tables.predicting import Answers, answering
from wherefrom.tables.raw import Integers, Numbers, RawTable
from wherefrom.tables.scores import Scores
from wherefrom.tables.telling import together
from wherefrom.tables.writing import check_digits, check_writable, writing
from wherefrom.training import streams
from wherefrom.training.progress import Show, progress_bar

if TYPE_CHECKING:
    from wherefrom.tables.model import Model

MOST_SCORED = 200_000  # rows


@dataclass(frozen=True, eq=False)
class PredictedFile:
    """Predictions that were written to a file: how many, and what is to be known about them.

    path: the file.
    rows: how many were predicted.
    outside: how many of them are outside of what training saw.
    scores: where the target is there (of 200,000 rows drawn at random, if there are more).
    notes: what the user should know.
    """

    path: Path
    rows: int
    outside: int
    scores: Scores
    notes: tuple[str, ...]


def looked_at(model: Model, tables: Iterable[RawTable], how: How, progress: Show = False) -> Iterator[Looked]:
    """Predict tables one after the other."""
    with progress_bar("predicting", None, progress) as done:
        for table in tables:
            yield look(model, table, how, done)


def predict_to_file(
    model: Model, tables: Iterable[RawTable], out: Path, how: How, digits: int, progress: Show = False
) -> PredictedFile:
    """Predict tables one after the other, and write all into one file: whole, or not at all."""
    check_writable(out)
    totals = Totals()
    with writing(out, check_digits(digits)) as write:
        for looked in looked_at(model, tables, how, progress):
            columns = looked.columns()
            write(columns)
            totals.add(looked, columns)
    return PredictedFile(out, totals.rows, totals.outside, totals.scores(), tuple(totals.all_notes()))


@dataclass(eq=False)
class Totals:
    """Totals over all rows of the tables that were added.

    most_listed: rows to list, those at the highest risk and those most in doubt.
    """

    most_listed: int = 10
    rows: int = 0
    outside: int = 0
    notes: list[str] = field(default_factory=list)
    risks: Top = field(init=False)
    doubts: Top = field(init=False)
    risk_column: str | None = None
    kept: tuple[str, ...] = ()  # columns of the table that are written beside the answers
    _scored: Sample = field(init=False)
    _scoring: Callable[[Answers], Scores] | None = None
    _is_scored: bool = True
    _gaps: Numbers | None = None
    _spaced: Spaced = field(init=False)
    _last: Looked | None = None

    def __post_init__(self) -> None:
        self.risks, self.doubts = Top(10), Top(self.most_listed)
        self._scored, self._spaced = Sample(MOST_SCORED), Spaced(OVERALL_ROWS)

    def add(self, looked: Looked, columns: Mapping[str, Any]) -> None:
        """Add a table, and the columns that are written of it."""
        predicted = looked.predicted
        first, self.kept = self.rows, tuple(name for name in columns if name in looked.table.columns)
        self.rows += len(looked.table)
        self.outside += int(looked.outside.sum())
        self.notes = together(self.notes, looked.notes)
        has_target = set(looked.model.target.columns) <= set(looked.table.columns)
        self._is_scored &= not (has_target and looked.truth is None)
        self._scoring = predicted.scoring
        if self._is_scored:
            self._scored.add(predicted.scored)
        gaps = gap_totals(looked.encoded, predicted.falls)
        self._gaps = gaps if self._gaps is None else self._gaps + gaps
        self._spaced.add(looked, first)
        self._last = looked if self._last is None or looked.has_gaps else self._last
        numbers = looked.table.rows
        self.doubts.add(predicted.doubt, first, numbers, columns)
        if (risk := looked.risk()) is not None:
            self.risk_column = next(name for name, values in columns.items() if values is risk)
            self.risks.add(risk, first, numbers, columns)

    def scores(self) -> Scores:
        """Return the scores of all rows whose target is known, or of a sample of them."""
        if not self._is_scored or self._scoring is None:
            return Scores()
        return self._scoring(self._scored.values)

    def all_notes(self) -> list[str]:
        """Return the notes, and that scores are of a sample if they are."""
        if not self._is_scored or self._scored.count <= MOST_SCORED:
            return self.notes
        return [*self.notes, f"scores are those of {MOST_SCORED:,} rows, drawn at random of {self._scored.count:,}"]

    def gaps(self) -> dict[str, Gap]:
        """Return the missing values of all rows by column, those that matter most first."""
        assert self._last is not None
        assert self._gaps is not None
        return gaps_by_column(self._gaps, self._last.model.drawn_columns)

    def overall(self) -> Mapping[str, Any]:
        """Split the doubt over all rows: name -> share and its error."""
        assert self._last is not None
        return self._spaced.prediction(self._last).all_sources().overall


class Sample:
    """A random sample, up to a limit, of all rows that were added: all sets of them are equally likely."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self._parts: list[tuple[NDArray[np.uint64], Answers]] = []
        self._kept = 0

    def add(self, values: Answers) -> None:
        """Add rows by what is kept of them; what is not there for all rows is left out."""
        rows = max(map(len, values.values()), default=0)
        if not rows:
            return
        counters = np.arange(self.count, self.count + rows, dtype=np.uint64)
        keys = streams.numbers(np.full(rows, streams.key(0, "tables", "scored"), dtype=np.uint64), counters)
        self._parts.append((keys, {name: each for name, each in values.items() if len(each) == rows}))
        self.count += rows
        self._kept += rows
        if self._kept > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        """Join the parts, and keep the rows whose random numbers are least."""
        names = [name for name in self._parts[0][1] if all(name in values for _, values in self._parts)]
        keys = np.concatenate([each for each, _ in self._parts])
        kept = np.sort(np.argsort(keys, kind="stable")[: self.most])
        joined = {name: np.concatenate([values[name] for _, values in self._parts])[kept] for name in names}
        self._parts, self._kept = [(keys[kept], joined)], len(kept)

    @property
    def values(self) -> Answers:
        """Values of the rows that are kept, in the order in which they were added."""
        if not self._parts:
            return {}
        self._cut()
        return self._parts[0][1]


class Spaced:
    """Evenly spaced rows, up to a limit, of all that were added: every row, every second, every fourth, ..."""

    def __init__(self, most: int) -> None:
        self.most, self.step, self.count = most, 1, 0
        self._parts: list[tuple[Encoded, Blend]] = []
        self._kept = 0

    def add(self, looked: Looked, first: int) -> None:
        """Add rows, the first of which has this index among all."""
        self._keep(looked.encoded, looked.blend, np.arange(-first % self.step, len(looked.encoded), self.step))
        self.count += len(looked.encoded)
        while self._kept > self.most:
            self._thin(2)

    def _keep(self, encoded: Encoded, blend: Blend, rows: Integers) -> None:
        if len(rows):
            self._parts.append((encoded.take(rows), blend.of_rows(rows)))
            self._kept += len(rows)

    def _thin(self, times: int) -> None:
        encoded, blend = self._joined()
        self._parts, self._kept, self.step = [], 0, self.step * times
        self._keep(encoded, blend, np.arange(0, len(encoded), times))

    def _joined(self) -> tuple[Encoded, Blend]:
        if len(self._parts) == 1:
            return self._parts[0]
        return Encoded.joined([part for part, _ in self._parts]), Blend.joined([blend for _, blend in self._parts])

    def prediction(self, looked: Looked) -> Any:
        """Predict the rows as one, as the table `looked` was: one with missing values, if any had some."""
        times = (spaced(self.count, looked.most_overall).step or 1) // self.step
        if times > 1:
            self._thin(times)
        encoded, blend = self._joined()
        model, how = looked.model, looked.how
        answer = answering(encoded, how.samples or model.samples, how.method, blend=blend, completion=model.completion)
        return answer(model.posterior)


class Top:
    """The rows with the largest of some number, with all that is written of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._rows: list[tuple[float, int, dict[str, Any]]] = []

    def add(self, values: Numbers, first: int, numbers: Integers, columns: Mapping[str, Any]) -> None:
        """Add rows, the first of which has this index among all; `numbers` are those in the file."""
        values = np.where(np.isnan(values), -np.inf, values)
        for row in np.argsort(-values, kind="stable")[: self.most].tolist():
            written = {"row": int(numbers[row]), **{name: column[row] for name, column in columns.items()}}
            self._rows.append((-float(values[row]), first + row, written))
        self._rows = sorted(self._rows, key=lambda each: each[:2])[: self.most]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Columns of each row, and its number in the file as "row"; the largest first."""
        return [row for _, _, row in self._rows]
