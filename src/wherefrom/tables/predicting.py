"""Rows -> what is said of each: mean, interval or probabilities, whose doubt it is; a few rows at a time.

Samples of all rows together would not fit into memory. What is kept of each row is what is printed of it, and, where
the truth is known, what its scores need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.posterior import Posterior
from wherefrom.posterior.predicting import Method, in_blocks
from wherefrom.tables.columns import Encoded
from wherefrom.tables.scores import Scores, of_rows, together
from wherefrom.training.progress import Show, progress_bar

Answers = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Predicted:
    """Answers of every row by name, the names of the sources among them, and scores where the truth is known."""

    answers: Answers
    doubt: NDArray[np.float64]  # by which rows are put in order
    sources: tuple[str, ...]
    scores: Scores = field(default_factory=Scores)
    notes: tuple[str, ...] = ()


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
    doubt: list[NDArray[np.float64]] = []
    with progress_bar("predicting", len(x), progress) as done:
        for block in in_blocks(posterior, len(x), x.take, samples, method):
            prediction = block.prediction
            split = prediction.all_sources()
            sources = split.names
            columns, more = prediction.columns(level)
            notes += more
            columns |= {f"share {name}": np.asarray(split[name]) for name in sources}
            columns = {name: block.cut(values) for name, values in columns.items()}
            for name, values in columns.items():
                answers.setdefault(name, []).append(values)
            doubt.append(block.cut(prediction.row_doubt.numpy()))
            if truth is not None:
                for name, values in of_rows(prediction, columns, truth[block.rows]).items():
                    scored.setdefault(name, []).append(values)
            done(len(block))
    joined = {name: np.concatenate(values) for name, values in answers.items()}
    scores = together(prediction.summary, scored, level)
    return Predicted(joined, np.concatenate(doubt), sources, scores, tuple(dict.fromkeys(notes)))
