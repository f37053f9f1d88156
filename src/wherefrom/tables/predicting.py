"""Rows -> what is said of each: mean, interval or probabilities, whose doubt it is; a few rows at a time.

Samples of all rows together would not fit into memory. What is kept of each row is what is printed of it, and, where
the truth is known, what its scores need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wherefrom.posterior import Posterior
from wherefrom.predictive.class_prediction import ClassPrediction
from wherefrom.predictive.prediction import Prediction
from wherefrom.tables.columns import Encoded
from wherefrom.tables.target import known
from wherefrom.training.progress import Show, progress_bar

Method = Literal["monte_carlo", "one_shot", "auto"]
Answers = dict[str, NDArray[Any]]

_CHUNK_NUMBERS = 2_000_000  # answers at a time
_MOST_ROWS, _FEWEST_ROWS = 4096, 64


@dataclass(frozen=True, eq=False)
class Predicted:
    """Every row's answers by name, the names of the sources among them, and scores where the truth is known."""

    answers: Answers
    sources: tuple[str, ...]
    scores: dict[str, float]
    notes: tuple[str, ...] = ()

    def doubt(self) -> NDArray[np.float64]:
        return self.answers["std"] if "std" in self.answers else self.answers["entropy"]


def predict_rows(
    posterior: Posterior,
    x: Encoded,
    level: float,
    samples: int,
    truth: NDArray[Any] | None = None,
    method: Method = "monte_carlo",
    progress: Show = None,
) -> Predicted:
    """Predict rows in turns; `truth` may be missing (nan, or None) for some."""
    answers: dict[str, list[NDArray[Any]]] = {}
    scored: dict[str, list[NDArray[Any]]] = {}
    sources: tuple[str, ...] = ()
    notes: list[str] = []
    with progress_bar("predicting", len(x), progress) as done:
        for part in _parts(posterior, len(x), samples):
            prediction = posterior.predict(x.take(part), samples, method=method)
            split = prediction.sources()
            sources = split.names
            of = _of_classes if posterior.schema.classes else _of_quantity
            own = of(prediction, level, notes)
            own |= {f"share {name}": np.asarray(split[name]) for name in sources}
            for name, values in own.items():
                answers.setdefault(name, []).append(values)
            if truth is not None:
                for name, values in _scored(prediction, own, truth[part]).items():
                    scored.setdefault(name, []).append(values)
            done(part.stop - part.start)
    scores = _scores(scored, level, bool(posterior.schema.classes))
    joined = {name: np.concatenate(values) for name, values in answers.items()}
    return Predicted(joined, sources, scores, tuple(dict.fromkeys(notes)))


def _parts(posterior: Posterior, rows: int, samples: int) -> Iterator[slice]:
    answers = len(posterior) * samples * posterior.schema.targets
    size = min(_MOST_ROWS, max(_FEWEST_ROWS, _CHUNK_NUMBERS // answers))
    return (slice(start, min(rows, start + size)) for start in range(0, rows, size))


def _of_quantity(prediction: Prediction, level: float, notes: list[str]) -> Answers:
    try:
        low, high = prediction.interval(level)
    except ValueError as error:  # too few rows were calibrated on for so high a level
        notes.append(f"{error}; the interval of a Gaussian is taken")
        low, high = prediction.interval(level, "gaussian")
    named = {"mean": prediction.mean, "std": prediction.std, "lower": low, "upper": high}
    return {name: values.numpy() for name, values in named.items()}


def _of_classes(prediction: ClassPrediction, level: float, notes: list[str]) -> Answers:
    probabilities = prediction.probabilities.numpy()
    named: Answers = {"predicted": prediction.predicted, "confidence": prediction.confidence.numpy()}
    named |= {f"p {label}": probabilities[:, place] for place, label in enumerate(prediction.classes)}
    if prediction.conformal is not None:
        named["set"] = _sets(prediction, level, notes)
    return named | {"entropy": prediction.entropy.numpy(), "disagreement": prediction.mutual_information.numpy()}


def _sets(prediction: ClassPrediction, level: float, notes: list[str]) -> NDArray[Any]:
    """The classes that one of which is right, as the level says, joined by |."""
    try:
        sets = prediction.sets(level)
    except ValueError as error:  # too few rows were calibrated on for so high a level
        notes.append(f"{error}; the most probable classes that add up to it are taken")
        sets = prediction.sets(level, "probability")
    labels = list(map(str, prediction.classes))
    joined = ["|".join(label for label, is_in in zip(labels, row, strict=True) if is_in) for row in sets.tolist()]
    return np.array(joined, dtype=object)


# ------------------------------------------------------------------ scores


def _scored(prediction: Any, own: Answers, truth: NDArray[Any]) -> Answers:
    """Of the rows whose truth is known, what their scores are made of."""
    there = known(truth)
    if isinstance(prediction, ClassPrediction):
        there &= np.array([label in prediction.classes for label in truth])
    if not there.any():
        return {}
    if isinstance(prediction, ClassPrediction):
        classes = list(prediction.classes)
        given = np.array([label if ok else classes[0] for label, ok in zip(truth, there, strict=True)])
        rows = {
            "nll": prediction.nll(given, by_row=True).numpy(),
            "brier": prediction.brier(given, by_row=True).numpy(),
            "right": own["predicted"] == given,
            "confidence": own["confidence"],
            "place": np.array([classes.index(label) for label in given.tolist()]),
        }
        if "set" in own:
            sets = [row.split("|") for row in own["set"].tolist()]
            rows["covered"] = np.array([str(label) in row for label, row in zip(given.tolist(), sets, strict=True)])
            rows["size"] = np.array([len(row) if row != [""] else 0 for row in sets])
        return {name: values[there] for name, values in rows.items()}
    filled = np.where(there, truth.astype(np.float64), 0.0)
    error = filled - own["mean"]
    rows = {
        "error": error,
        "truth": filled,
        "covered": (filled >= own["lower"]) & (filled <= own["upper"]),
        "width": own["upper"] - own["lower"],
        "crps": prediction.crps(filled, by_row=True).numpy(),
    }
    if (own["std"] > 0).all():
        rows["nll"] = prediction.nll(filled, by_row=True).numpy()
    return {name: values[there] for name, values in rows.items()}


def _scores(parts: dict[str, list[NDArray[Any]]], level: float, is_classes: bool) -> dict[str, float]:
    if not parts:
        return {}
    rows = {name: np.concatenate(values) for name, values in parts.items()}
    if is_classes:
        return _class_scores(rows, level)
    rmse = float(np.sqrt(np.mean(rows["error"] ** 2)))
    found = {
        "rows": len(rows["error"]),
        "RMSE": rmse,
        "R2": float(1 - np.mean(rows["error"] ** 2) / max(np.var(rows["truth"]), 1e-300)),
        "CRPS": float(rows["crps"].mean()),
        f"coverage of the {100 * level:.4g}% interval": float(rows["covered"].mean()),
        "mean width of the interval": float(rows["width"].mean()),
    }
    return found | ({"NLL": float(rows["nll"].mean())} if "nll" in rows else {})


def _class_scores(rows: Answers, level: float) -> dict[str, float]:
    counts = np.bincount(rows["place"])
    bins = np.minimum((rows["confidence"] * 15).astype(int), 14)
    gap = sum(abs(float((rows["confidence"] - rows["right"])[bins == k].sum())) for k in range(15))
    found = {
        "rows": len(rows["nll"]),
        "accuracy": float(rows["right"].mean()),
        "accuracy of the largest class": float(counts.max() / counts.sum()),
        "NLL": float(rows["nll"].mean()),
        "Brier score": float(rows["brier"].mean()),
        "ECE": float(gap / len(rows["nll"])),
    }
    if "covered" in rows:
        found[f"coverage of the {100 * level:.4g}% set"] = float(rows["covered"].mean())
        found["mean size of the set"] = float(rows["size"].mean())
    return found
