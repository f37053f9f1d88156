"""How good predictions were where the truth is known: every score with its standard error over the rows, and beside
what it would be if every row were answered the same.

    quantities     the answer N(mean of y, variance of y), for all rows alike
    classes        the classes' own shares among the rows

Scores of rows are collected in turns (`of_rows`) and put together at the end (`together`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.predictive import class_scores
from wherefrom.predictive.class_prediction import ClassPrediction
from wherefrom.table import Table
from wherefrom.tables.reading import Numbers
from wherefrom.tables.target import known

Rows = dict[str, NDArray[Any]]
_FEW = 30  # rows, of which scores say little


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
        """For people: shares in percent, and no more digits than the errors allow."""
        lines = []
        for name, value in self.values.items():
            error, baseline = self.errors.get(name), self.baselines.get(name)
            in_percent = name.startswith(("coverage", "accuracy"))
            lines.append((name, *_shown(value, error, baseline, in_percent)))
        return Table(("score", "here", "±", "same answer for all"), lines)

    def remarks(self) -> list[str]:
        """What a reader should know before believing them."""
        found = []
        if self.rows < _FEW:
            found.append(f"{self.rows} rows can tell little: take the ± seriously")
        value, error, baseline = (part.get("NLL") for part in (self.values, self.errors, self.baselines))
        if value is not None and error is not None and baseline is not None and value > baseline - error:
            found.append("by its NLL this is hardly better than the same answer for every row")
        return found

    def to_json(self) -> dict[str, Any]:
        def finite(part: Mapping[str, float]) -> dict[str, float | None]:
            return {name: value if math.isfinite(value) else None for name, value in part.items()}

        return {
            "scores": {"rows": self.rows, **finite(self.values)},
            "errors": finite(self.errors),
            "baselines": finite(self.baselines),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Scores:
        def numbers(part: Mapping[str, float | None]) -> dict[str, float]:
            return {name: math.nan if value is None else value for name, value in part.items()}

        values = dict(document["scores"])
        rows = int(values.pop("rows", 0))
        others = (document.get(part, {}) for part in ("errors", "baselines"))  # older runs have none
        return cls(rows, numbers(values), *map(numbers, others))


def _shown(value: float, error: float | None, baseline: float | None, in_percent: bool) -> tuple[str, str, str]:
    """
    >>> _shown(0.95333, 0.0123, None, True), _shown(123.456, 2.345, 130.0, False)
    (('95.3%', '1.2%', ''), ('123.5', '2.3', '130.0'))
    """
    times, sign = (100.0, "%") if in_percent else (1.0, "")
    known = error is not None and math.isfinite(error) and error > 0
    size = times * (error if known and error is not None else abs(value) / 100 or 1)  # else three digits
    digits = max(0, 1 - math.floor(math.log10(size))) if math.isfinite(size) else 3

    def one(number: float | None) -> str:
        return "" if number is None or math.isnan(number) else f"{times * number:,.{digits}f}{sign}"

    return one(value), one(error if known else None), one(baseline)


# ------------------------------------------------------------------ in turns


def of_rows(prediction: Any, answers: Rows, truth: NDArray[Any]) -> Rows:
    """Of the rows whose truth is known, what their scores are made of."""
    there = known(truth)
    if isinstance(prediction, ClassPrediction):
        there &= np.array([label in prediction.classes for label in truth])
    if not there.any():
        return {}
    rows = _of_classes if isinstance(prediction, ClassPrediction) else _of_quantity
    return {name: values[there] for name, values in rows(prediction, answers, truth, there).items()}


def _of_classes(prediction: ClassPrediction, answers: Rows, truth: NDArray[Any], there: NDArray[np.bool_]) -> Rows:
    classes = list(prediction.classes)
    given = np.array([label if ok else classes[0] for label, ok in zip(truth, there, strict=True)])
    rows = {
        "nll": prediction.nll(given, by_row=True).numpy(),
        "brier": prediction.brier(given, by_row=True).numpy(),
        "right": answers["predicted"] == given,
        "probabilities": prediction.probabilities.numpy(),
        "place": np.array([classes.index(label) for label in given.tolist()]),
    }
    if "set" in answers:
        sets = [row.split("|") for row in answers["set"].tolist()]
        rows["covered"] = np.array([str(label) in row for label, row in zip(given.tolist(), sets, strict=True)])
        rows["size"] = np.array([len(row) if row != [""] else 0 for row in sets])
    return rows


def _of_quantity(prediction: Any, answers: Rows, truth: NDArray[Any], there: NDArray[np.bool_]) -> Rows:
    filled = np.where(there, truth.astype(np.float64), 0.0)
    rows = {
        "error": filled - answers["mean"],
        "truth": filled,
        "covered": (filled >= answers["lower"]) & (filled <= answers["upper"]),
        "width": answers["upper"] - answers["lower"],
        "crps": prediction.crps(filled, by_row=True).numpy(),
    }
    if (answers["std"] > 0).all():
        rows["nll"] = prediction.nll(filled, by_row=True).numpy()
    return rows


# ------------------------------------------------------------------ together


def together(parts: Mapping[str, Sequence[NDArray[Any]]], level: float) -> Scores:
    """The scores of all rows."""
    if not parts:
        return Scores()
    rows = {name: np.concatenate(values) for name, values in parts.items()}
    return _class_scores(rows, level) if "place" in rows else _quantity_scores(rows, level)


def _quantity_scores(rows: Rows, level: float) -> Scores:
    y, squares = rows["truth"], rows["error"] ** 2
    count, variance, rmse = len(y), float(np.var(y)), math.sqrt(float(squares.mean()))
    values, errors = {"RMSE": rmse}, {"RMSE": _error(squares) / (2 * rmse) if rmse else 0.0}
    ranked = np.sort(y) * (2 * np.arange(count) - count + 1)
    baselines = {"RMSE": math.sqrt(variance), "CRPS": float(ranked.sum()) / count**2}
    if variance > 0:
        values["R2"] = 1 - rmse**2 / variance
        errors["R2"] = _error((squares - (1 - values["R2"]) * (y - y.mean()) ** 2) / variance)
        baselines |= {"R2": 0.0, "NLL": 0.5 * math.log(2 * math.pi * math.e * variance)}
    for name in ("crps", "nll"):
        if name in rows:
            values[name.upper()], errors[name.upper()] = float(rows[name].mean()), _error(rows[name])
    covered = f"coverage of the {100 * level:.4g}% interval"
    values[covered], errors[covered] = float(rows["covered"].mean()), share_error(rows["covered"])
    values["mean width of the interval"] = float(rows["width"].mean())
    return Scores(count, values, errors, baselines)


def _class_scores(rows: Rows, level: float) -> Scores:
    place, probabilities = rows["place"], rows["probabilities"]
    shares = np.bincount(place, minlength=probabilities.shape[1]) / len(place)
    some = shares[shares > 0]
    values = {"accuracy": float(rows["right"].mean())}
    errors = {"accuracy": share_error(rows["right"])}
    baselines = {
        "accuracy": float(shares.max()),
        "NLL": float(-(some * np.log(some)).sum()),
        "Brier score": float(1 - (some**2).sum()),
    }
    if (ranked := _auc(probabilities, place)) is not None:
        values["AUC"], errors["AUC"] = ranked
        baselines["AUC"] = 0.5
    for name, own in (("NLL", rows["nll"]), ("Brier score", rows["brier"])):
        values[name], errors[name] = float(own.mean()), _error(own)
    values["ECE"] = class_scores.reliability(torch.from_numpy(probabilities), torch.from_numpy(place)).ece
    if "covered" in rows:
        covered = f"coverage of the {100 * level:.4g}% set"
        values[covered], errors[covered] = float(rows["covered"].mean()), share_error(rows["covered"])
        values["mean size of the set"] = float(rows["size"].mean())
    return Scores(len(place), values, errors, baselines)


def _auc(probabilities: Numbers, place: NDArray[np.int64]) -> tuple[float, float] | None:
    """The chance to rank a row of a class above one of another, by its probability; the mean over the classes.

    Of two classes both have the same. The standard error is DeLong's: each row's part in it is the share of the other
    side that it is ranked above. None where no class is told apart from another.
    """
    found, parts = [], []
    for one in range(1 if probabilities.shape[1] == 2 else 0, probabilities.shape[1]):
        is_one = place == one
        if not 0 < is_one.sum() < len(place):
            continue
        own, others = probabilities[is_one, one], probabilities[~is_one, one]
        above, below = _below(others, own), 1 - _below(own, others)
        auc = float(above.mean())
        part = np.empty(len(place))
        part[is_one] = (above - auc) / is_one.mean()
        part[~is_one] = (below - auc) / (~is_one).mean()
        found.append(auc)
        parts.append(part)
    if not found:
        return None
    return float(np.mean(found)), _error(np.mean(parts, axis=0))


def _below(some: Numbers, values: Numbers) -> Numbers:
    """Of each value, the share of some that lie below it; ties count half."""
    ordered = np.sort(some)
    return (np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right")) / (2 * len(some))


def _error(values: NDArray[Any]) -> float:
    """The standard error of a mean."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def share_error(is_so: NDArray[np.bool_]) -> float:
    """The standard error of a share; two of each kind are added, so that all of four rows is not taken for certain.

    >>> round(share_error(np.ones(4, dtype=bool)), 3)
    0.153
    """
    count = len(is_so) + 4
    share = (float(is_so.sum()) + 2) / count
    return math.sqrt(share * (1 - share) / count)
