"""How good predictions were where the truth is known: every score with its standard error over the rows, and beside
what it would be if every row were answered the same.

    quantities     the answer N(mean of y, variance of y), for all rows alike
    classes        the classes' own shares among the rows

Scores of rows are collected in turns (`of_rows`) and put together at the end (`together`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.predictive import row_scores
from wherefrom.predictive.row_scores import Score
from wherefrom.table import Table
from wherefrom.tables.target import known

Rows = dict[str, NDArray[Any]]
_NAMES = {  # in the order in which they are shown
    "accuracy": "accuracy",
    "auc": "AUC",
    "rmse": "RMSE",
    "r2": "R2",
    "crps": "CRPS",
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
}
_FEW = 30  # rows, of which scores say little


@stored("Scores")
@dataclass(frozen=True)
class Scores:
    """Scores by name, their standard errors, and what they would be without a model, as far as these are known."""

    rows: int = 0
    values: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def table(self) -> Table:
        """Return a table for people: shares in percent, and no more digits than the errors allow."""
        lines = []
        for name, value in self.values.items():
            error, baseline = self.errors.get(name), self.baselines.get(name)
            in_percent = name.startswith(("coverage", "accuracy"))
            lines.append((name, *_shown(value, error, baseline, in_percent)))
        return Table(("score", "here", "±", "same answer for all"), lines)

    def remarks(self) -> list[str]:
        """Return warnings about the scores."""
        remarks = []
        if self.rows < _FEW:
            remarks.append(f"{self.rows} rows can tell little: take the ± seriously")
        value, error, baseline = (part.get("NLL") for part in (self.values, self.errors, self.baselines))
        if value is not None and error is not None and baseline is not None and value > baseline - error:
            how = "worse" if value > baseline + error else "hardly better"
            remarks.append(f"by its NLL this is {how} than the same answer for every row")
        return remarks

    def shown(self) -> dict[str, Any]:
        """Return the scores for readers of JSON."""
        return {"scores": {"rows": self.rows, **self.values}, "errors": self.errors, "baselines": self.baselines}


def _shown(value: float, error: float | None, baseline: float | None, in_percent: bool) -> tuple[str, str, str]:
    """
    >>> _shown(0.95333, 0.0123, None, True), _shown(123.456, 2.345, 130.0, False)
    (('95.3%', '1.2%', ''), ('123.5', '2.3', '130.0'))
    """
    times, sign = (100.0, "%") if in_percent else (1.0, "")
    has_error = error is not None and math.isfinite(error) and error > 0
    size = times * (error if has_error and error is not None else abs(value) / 100 or 1)  # else three digits
    digits = max(0, 1 - math.floor(math.log10(size))) if math.isfinite(size) else 3

    def one(number: float | None) -> str:
        return "" if number is None or math.isnan(number) else f"{times * number:,.{digits}f}{sign}"

    return one(value), one(error if has_error else None), one(baseline)


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


def together(summary: Callable[..., Any], parts: Mapping[str, Sequence[NDArray[Any]]], level: float) -> Scores:
    """The scores of all rows; `summary` is that of the predictions."""
    if not parts:
        return Scores()
    rows = {name: torch.from_numpy(np.concatenate(values)) for name, values in parts.items()}
    count = max(map(len, rows.values()))
    if len(rows.get("nll", ())) < count:  # some rows have no density
        rows.pop("nll", None)
    scores, baselines, sizes, covers = summary(rows)
    named = _NAMES | {"coverage": f"coverage of the {100 * level:.4g}% {covers}"}
    there = {named[name]: scores[name] for name in named if name in scores and scores[name].value is not None}
    return Scores(
        count,
        {name: score.value for name, score in there.items() if score.value is not None} | sizes,
        {name: error for name, score in there.items() if (error := _error(score)) is not None},
        {named[name]: value for name, value in baselines.items() if named.get(name) in there},
    )


def _error(score: Score) -> float | None:
    """The standard error; of a share near 0 or 1, what it would be for an interval as wide as its own."""
    if score.interval is None:
        return score.error
    low, high = score.interval
    return (high - low) / (2 * row_scores.Z)
