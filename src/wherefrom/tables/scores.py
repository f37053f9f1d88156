"""Scores of predictions where the truth is known: each score with its standard error over the rows, and beside
what it would be if every row were answered the same.

    quantities     the answer N(mean of y, variance of y), for all rows alike
    classes        the classes' own shares among the rows
    times          the curve of Kaplan and Meier

Scores of rows are collected in turns (`of_rows`) and put together at the end (`together`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.predictive import row_scores
from wherefrom.predictive.events import Event
from wherefrom.predictive.row_scores import Score
from wherefrom.showing import Library, card
from wherefrom.table import Table
from wherefrom.tables.neighbours import Neighbour
from wherefrom.tables.target import known

Rows = dict[str, NDArray[Any]]
Kind = Literal["interval", "set", "confidence"]
NAMES = {  # in the order in which they are shown
    "concordance": "concordance",
    "ibs": "integrated Brier score",
    "accuracy": "accuracy",
    "auc": "AUC",
    "average_precision": "average precision",
    "rmse": "RMSE",
    "mae": "mean error",
    "r2": "R2",
    "crps": "CRPS",
    "rps": "RPS",
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
}
_CONFIDENCE = "mean confidence"
_FEW = 30  # rows, of which scores say little
_FAR_OFF, _FAR_OFF_IN_A_FIFTH = 2.0, 2.6  # standard errors
_FEWEST_IN_A_FIFTH = 20


@dataclass(frozen=True)
class Off:
    """Intervals, or sets of classes, that hold the truth too often or too rarely; or a confidence that is not kept."""

    kind: Kind
    observed: float
    expected: float
    say: str
    is_in_a_fifth: bool = False


@stored("Scores")
@dataclass(frozen=True)
class Scores:
    """Scores by name, their standard errors, and what they would be without a model, where these are known.

    event: of two classes, the rarer: its prevalence, and alerts at thresholds of its risk.
    """

    rows: int = 0
    values: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)
    event: Event | None = None
    level: float = 0.95  # of the interval
    fifths: tuple[float, ...] = ()  # coverage of the rows in fifths, by their predicted mean
    avoidable: tuple[float, ...] = ()  # coverage of all rows and of the fifths, less what single values of y force

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def table(self) -> Table:
        """Return a table for people: shares in percent, and no more digits than the errors allow."""
        lines = []
        for name, value in self.values.items():
            error, baseline = self.errors.get(name), self.baselines.get(name)
            in_percent = name.startswith(("coverage", "accuracy", "prevalence", _CONFIDENCE))
            lines.append((name, *_shown(value, error, in_percent, baseline)))
        return Table(("score", "this model", "±", "same answer for all"), lines)

    def to_frame(self, library: Library | None = None) -> Any:
        """Return a frame with a row for each score: its value, standard error, and that of one answer for all rows.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        lines = [(name, each, self.errors.get(name), self.baselines.get(name)) for name, each in self.values.items()]
        return Table(("score", "value", "error", "same_for_all"), lines).to_frame(library)

    def _repr_html_(self) -> str:
        return card(f"Scores of {self.rows:,} rows", self.table().html())

    def beside(self, neighbours: Sequence[Neighbour]) -> Table:
        """Return a table for people, with the scores of other models beside."""
        named = {shown: score for score, shown in NAMES.items()}
        lines = []
        for name, value in self.values.items():
            score = "coverage" if name.startswith("coverage") else named.get(name, name)
            in_percent = score in ("coverage", "accuracy", "prevalence", _CONFIDENCE)
            others = [each.scores.get(score) for each in neighbours]
            here, error, *shown = _shown(value, self.errors.get(name), in_percent, *others)
            lines.append((name, here, error, *shown))
        return Table(("score", "this model", "±", *(each.shown_name for each in neighbours)), lines)

    def alerts(self) -> Table | None:
        """Return what thresholds of the risk do, if an event is rare; None if there is no such event."""
        if self.event is None or not self.event.is_rare:
            return None
        header = ("act at a risk of", "alerts in 100 rows", "sensitivity", "precision", "specificity", "net benefit")
        return Table(
            (*header, "of acting on all"),
            [
                (
                    f"{each.threshold:.0%}",
                    f"{100 * each.alerts:.1f}",
                    *(_share(part) for part in (each.sensitivity, each.precision, each.specificity)),
                    f"{each.net_benefit:.4f}",
                    f"{each.net_benefit_of_all:.4f}",
                )
                for each in self.event.alerts
            ],
        )

    def remarks(self) -> list[str]:
        """Return warnings about the scores."""
        remarks = []
        if self.rows < _FEW:
            remarks.append(f"{self.rows} rows can tell little: take the ± seriously")
        value, error, baseline = (part.get("NLL") for part in (self.values, self.errors, self.baselines))
        if value is not None and error is not None and baseline is not None and value > baseline - error:
            how = "worse" if value > baseline + error else "hardly better"
            remarks.append(f"by its NLL this is {how} than the same answer for every row")
        off = self.off()
        return remarks if off is None else [*remarks, off.say]

    def off(self) -> Off | None:
        """Return by how much coverage differs from the level: overall, or in a fifth of the rows; None if it does not.

        Of five fifths, one lies beyond 2.6 standard errors by chance as often as the whole lies beyond two. Of classes
        without sets, it is how much more, or less, often answers are right than their confidence says. Intervals of
        counts contain more than they should, and are off only if narrower ones would be enough.
        """
        name = next((name for name in self.values if name.startswith("coverage")), None)
        if name is None:
            return self._off_confidence()
        kind: Kind = "set" if name.endswith("set") else "interval"
        expected, observed = math.sqrt(self.level * (1 - self.level) / self.rows), self.values[name]
        whole, *fifths = self.avoidable or (observed, *self.fifths)
        if abs(whole - self.level) > _FAR_OFF * max(expected, self.errors.get(name, 0.0)):
            how = "more" if observed > self.level else "less"
            say = f"{kind}s contain the truth {how} often than they should: {observed:.1%} of {self.rows:,} rows"
            say += f", not {100 * self.level:.4g}%"
            return Off(kind, observed, self.level, say)
        for number, (part, judged) in enumerate(zip(self.fifths, fifths, strict=True)):
            if abs(judged - self.level) > _FAR_OFF_IN_A_FIFTH * expected * math.sqrt(5):
                which = ("lowest", "second", "middle", "fourth", "highest")[number]
                where = f"in the {which} fifth of the rows by predicted value"
                say = f"{where}, {kind}s contain {part:.1%} of the true values, not {100 * self.level:.4g}%"
                return Off(kind, part, self.level, say, is_in_a_fifth=True)
        return None

    def _off_confidence(self) -> Off | None:
        sure, right = self.values.get(_CONFIDENCE), self.values.get("accuracy")
        if sure is None or right is None:
            return None
        if abs(right - sure) <= _FAR_OFF * max(self.errors.get("accuracy", 0.0), 1 / self.rows):
            return None
        how = "more" if right > sure else "less"
        say = f"answers are right {how} often than their confidence says: {right:.1%} of {self.rows:,} rows"
        return Off("confidence", right, sure, f"{say}, not {sure:.1%}")

    def shown(self) -> dict[str, Any]:
        """Return the scores for readers of JSON."""
        event = {} if self.event is None else {"event": asdict(self.event)}
        scores = {"rows": self.rows, **self.values}
        return {"scores": scores, "errors": self.errors, "baselines": self.baselines, **event}


def _share(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"


def _shown(value: float, error: float | None, in_percent: bool, *others: float | None) -> tuple[str, ...]:
    """
    >>> _shown(0.95333, 0.0123, True, None), _shown(123.456, 2.345, False, 130.0)
    (('95.3%', '1.2%', ''), ('123.5', '2.3', '130.0'))
    """
    times, sign = (100.0, "%") if in_percent else (1.0, "")
    has_error = error is not None and math.isfinite(error) and error > 0
    size = times * (error if has_error and error is not None else abs(value) / 100 or 1)  # else three digits
    digits = max(0, 1 - math.floor(math.log10(size))) if math.isfinite(size) else 3

    def one(number: float | None) -> str:
        return "" if number is None or math.isnan(number) else f"{times * number:,.{digits}f}{sign}"

    return one(value), one(error if has_error else None), *map(one, others)


# ------------------------------------------------------------------ in turns


def of_rows(prediction: Any, columns: Rows, truth: NDArray[Any]) -> Rows:
    """Return what the scores are made of, for the rows whose truth is known, and one of the classes if any."""
    there = known(truth)
    if classes := getattr(prediction, "classes", ()):
        there &= np.array([label in classes for label in truth])
    if not there.any():
        return {}
    rows = np.flatnonzero(there)
    some = {name: values[there] for name, values in columns.items()}
    values = truth[there]
    return prediction.of_rows(torch.from_numpy(rows)).row_scores(some, np.array(values.tolist()))


# ------------------------------------------------------------------ together


def together(
    summary: Callable[..., Any],
    parts: Mapping[str, Sequence[NDArray[Any]]],
    level: float,
    classes: Sequence[Any] = (),
    event: str | None = None,
) -> Scores:
    """The scores of all rows; `summary` is that of the predictions.

    `event` is the label, among `classes`, that alerts are about; left out, it is that of the rarer of two classes.
    """
    if not parts:
        return Scores()
    rows = {name: torch.from_numpy(np.concatenate(values)) for name, values in parts.items()}
    count = max(map(len, rows.values()))
    if len(rows.get("nll", ())) < count:  # some rows have no density
        rows.pop("nll", None)
    labels = list(map(str, classes))
    scores, baselines, sizes, covers, measured = summary(rows, labels.index(event) if event in labels else None)
    if measured is not None and labels:
        measured = replace(measured, label=labels[int(measured.label)])
    named = NAMES | {"coverage": f"coverage of the {100 * level:.4g}% {covers}"}
    there = {named[name]: scores[name] for name in named if name in scores and scores[name].value is not None}
    return Scores(
        count,
        {name: score.value for name, score in there.items() if score.value is not None} | sizes,
        {name: error for name, score in there.items() if (error := _error(score)) is not None},
        {named[name]: value for name, value in baselines.items() if named.get(name) in there},
        measured,
        level,
        tuple(float(rows["covered"].flatten()[part].double().mean()) for part in _fifths(rows)),
        _avoidable(rows, level),
    )


def _fifths(rows: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The rows of each fifth, by their predicted mean; none where they are too few."""
    if "covered" not in rows or "mean" not in rows or len(rows["covered"]) < 5 * _FEWEST_IN_A_FIFTH:
        return ()
    return rows["mean"].flatten().argsort(stable=True).tensor_split(5)


def _avoidable(rows: Mapping[str, torch.Tensor], level: float) -> tuple[float, ...]:
    """Coverage of all rows and of each fifth, less what single values of y force; none where there are no ends."""
    if "lower" not in rows:
        return ()
    truth, low, high = (rows[name].flatten() for name in ("truth", "lower", "upper"))
    parts = (torch.arange(len(truth)), *_fifths(rows))
    return tuple(row_scores.avoidable_coverage(truth[part], low[part], high[part], level) for part in parts)


def _error(score: Score) -> float | None:
    """The standard error; of a share near 0 or 1, what it would be for an interval as wide as its own."""
    if score.interval is None:
        return score.error
    low, high = score.interval
    return (high - low) / (2 * row_scores.Z)
