"""Rows -> what is said of each: mean, interval or probabilities, whose doubt it is; a few rows at a time.

Samples of all rows together would not fit into memory. What is kept of each row is what is printed of it, and, where
the truth is known, what its scores need.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wherefrom.posterior import Posterior
from wherefrom.predictive.class_prediction import ClassPrediction
from wherefrom.predictive.prediction import Prediction
from wherefrom.predictive.sources import Sources
from wherefrom.tables.columns import Encoded
from wherefrom.tables.scores import Scores, of_rows, together
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
    scores: Scores = field(default_factory=Scores)
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
            split = sources_of(prediction)
            sources = split.names
            of = _of_classes if posterior.schema.classes else _of_quantity
            own = of(prediction, level, notes)
            own |= {f"share {name}": np.asarray(split[name]) for name in sources}
            for name, values in own.items():
                answers.setdefault(name, []).append(values)
            if truth is not None:
                for name, values in of_rows(prediction, own, truth[part]).items():
                    scored.setdefault(name, []).append(values)
            done(part.stop - part.start)
    joined = {name: np.concatenate(values) for name, values in answers.items()}
    return Predicted(joined, sources, together(scored, level), tuple(dict.fromkeys(notes)))


def sources_of(prediction: Any) -> Sources:
    """Of all doubt: a quantity's variance, or the classes' entropy."""
    found: Sources
    found = prediction.sources(of="entropy") if isinstance(prediction, ClassPrediction) else prediction.sources()
    return found


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
    """The labels of the classes one of which is right, as often as the level says."""
    try:
        sets = prediction.sets(level)
    except ValueError as error:  # too few rows were calibrated on for so high a level
        notes.append(f"{error}; the most probable classes that add up to it are taken")
        sets = prediction.sets(level, "probability")
    found = np.empty(len(sets), dtype=object)
    for row, is_in in enumerate(sets.tolist()):
        found[row] = tuple(itertools.compress(prediction.classes, is_in))
    return found
