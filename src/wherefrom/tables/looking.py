"""A model's look at a table: every row predicted, how far it is from the training rows, and what to know about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wherefrom.posterior.predicting import Method
from wherefrom.tables.columns import Encoded
from wherefrom.tables.predicting import Predicted, predict_rows
from wherefrom.tables.raw import Numbers, RawTable
from wherefrom.training.progress import Show

if TYPE_CHECKING:
    from wherefrom.tables.model import Model

_OVERALL_ROWS = 3000  # are enough to speak of all
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
            raise ValueError(f"--level lies between 0 and 1, as 0.95, unlike {self.level}")
        if self.samples is not None and self.samples < FEWEST_SAMPLES:
            raise ValueError(f"--samples is at least {FEWEST_SAMPLES}, not {self.samples}")


@dataclass(frozen=True, eq=False)
class Looked:
    """A table of rows, their predictions, and how far from the training rows they are."""

    model: Model
    table: RawTable
    encoded: Encoded
    predicted: Predicted
    distance: Numbers
    why: Sequence[str]
    notes: Sequence[str]
    how: How

    @property
    def outside(self) -> Any:
        return self.distance > 1

    @property
    def sources(self) -> tuple[str, ...]:
        return self.predicted.sources

    def columns(self) -> dict[str, Any]:
        """Return what is written for each row, its identifier and the columns to keep first."""
        answers: dict[str, Any] = {
            re.sub("^(share|p) ", r"\1_", name): values for name, values in self.predicted.answers.items()
        }
        if "set" in answers:
            answers["set"] = ["|".join(map(str, labels)) for labels in answers["set"]]
        answers |= {"outside": self.outside, "distance": self.distance, "why": list(self.why)}
        kept = tuple(self.how.keep)
        if doubled := [name for name in kept if name in answers]:
            raise ValueError(f"--keep {doubled[0]!r}: predictions have a column of that name, too; rename it first")
        identifier = self.model.encoder.identifier
        if identifier in self.table.columns and identifier not in answers:
            kept = tuple(dict.fromkeys((identifier, *kept)))
        return {**{name: self.table.column(name).plain() for name in kept}, **answers}

    def overall(self) -> Mapping[str, Any]:
        """Split the doubt over all rows, or over evenly spaced ones if there are many: name -> share and its error."""
        step = -(-len(self.encoded) // _OVERALL_ROWS)
        samples = self.how.samples or self.model.samples
        some = self.model.posterior.predict(self.encoded.take(slice(None, None, step)), samples)
        return some.all_sources().overall


def look(model: Model, table: RawTable, how: How | None = None, progress: Show = None) -> Looked:
    """Predict every row of a table, and score those whose target is there."""
    how = how or How()
    encoded = model.encoder.encode(table)
    notes = [*table.notes, *encoded.notes]
    expected = {rule.name for rule in model.encoder.rules} | {model.target.name, model.about.get("group"), *how.keep}
    if extra := [name for name in table.columns if name not in expected]:
        shown = ", ".join(map(repr, extra[:10])) + ", ..." * (len(extra) > 10)
        notes.append(f"{table.source} has columns that the run does not know, and ignores: {shown}")
    truth = _truth(model, table, notes)
    level, samples = how.level or model.level, how.samples or model.samples
    predicted = predict_rows(model.posterior, encoded, level, samples, truth, how.method, progress)
    distance, why = model.around.look(encoded)
    return Looked(model, table, encoded, predicted, distance, why, (*notes, *predicted.notes), how)


def _truth(model: Model, table: RawTable, notes: list[str]) -> Any:
    """Return the target where it is there, and can be read; no prediction depends on it."""
    target = model.target
    if target.name not in table.columns:
        return None
    try:
        truth = target.values(table)
    except ValueError as error:
        notes.append(f"not scored: {error}")
        return None
    strange = {label for label in truth.tolist() if label is not None and label not in target.classes}
    if target.classes and strange:
        notes.append(f"{target.name} holds {min(map(repr, strange))}, a class never seen: not scored")
    return truth
