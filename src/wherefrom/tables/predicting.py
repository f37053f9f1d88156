"""Rows -> what is said of each: mean, interval or probabilities, whose doubt it is; a few rows at a time.

Samples of all rows together would not fit into memory. What is kept of each row is what is printed of it, and, where
the truth is known, what its scores need.

A row with gaps is completed many times, and predicted as a mixture of those: the draws of its missing values are one
more variable, `gaps`, crossed with the networks. Measuring all of them would lower the variance by its share, on
average over what they may turn out to be; measuring one of several, by the part of that which it explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.posterior import Posterior
from wherefrom.posterior.predicting import Block, Method, in_blocks, predicted
from wherefrom.predictive.background import Blend
from wherefrom.predictive.components import CrossedAxis
from wherefrom.tables.columns import Encoded
from wherefrom.tables.completing import Completion
from wherefrom.tables.gaps import GAPS, networks_of_a_row, samples_of_a_draw
from wherefrom.tables.measuring import explained
from wherefrom.tables.raw import Integers, Numbers
from wherefrom.tables.scores import Scores, of_rows, together
from wherefrom.tables.threads import one_thread
from wherefrom.training.progress import Show, progress_bar

Answers = dict[str, NDArray[Any]]
Read = Callable[[Any], Answers]


@dataclass(frozen=True, eq=False)
class Predicted:
    """Answers of every row by name, the names of the sources among them, and scores where the truth is known."""

    answers: Answers
    doubt: NDArray[np.float64]  # that the choices of training cause, by which rows are put in order
    sources: tuple[str, ...]
    falls: Numbers  # (rows, columns that may be missing): relative fall of the doubt if that were measured
    scored: Answers  # what the scores are made of, for rows whose truth is known, in any order
    scoring: Callable[[Answers], Scores]
    notes: tuple[str, ...] = ()
    unit: str = "variance"  # that the shares are of
    by_row: Answers = field(default_factory=dict)  # what the scores are made of, where the truth of all is known

    @cached_property
    def scores(self) -> Scores:
        return self.scoring(self.scored)


@one_thread()
def predict_rows(
    posterior: Posterior,
    x: Encoded,
    level: float,
    samples: int,
    truth: NDArray[Any] | None = None,
    method: Method = "monte_carlo",
    progress: Show = None,
    left_out_by: Tensor | None = None,
    blend: Blend | None = None,
    completion: Completion | None = None,
    itself: Integers | None = None,
    event: str | None = None,
    read: Read | None = None,
) -> Predicted:
    """Predict rows in turns; `truth` may be missing (nan, or None) for some.

    left_out_by: the draw of D whose networks predict each row, which the others were trained on (default: all predict).
    blend: what is known without columns, and its weight in each row (default: nothing is).
    completion: draws the missing values (default: rows are taken as they are).
    itself: the training row that each row is, and that may give it no value; -1 where it is none (default: none is).
    event: the class of two that alerts are about (default: the rarer).
    read: returns what to keep of a prediction by name (default: all that is written of a row, its sources and scores).
    """
    has_gaps = x.has_gaps & (completion is not None)
    columns = 0 if completion is None else len(completion.names)
    parts: list[tuple[NDArray[np.int64], Answers]] = []
    scored: dict[str, list[NDArray[Any]]] = {}
    sources: tuple[str, ...] = ()
    unit = "variance"
    notes: list[str] = []
    with progress_bar("predicting", len(x), progress) as done:
        for rows in (np.flatnonzero(~has_gaps), np.flatnonzero(has_gaps)):
            if not len(rows):
                continue
            donors = None if itself is None else itself[rows]
            turn = _Turn(x.take(rows), completion if has_gaps[rows[0]] else None, donors)
            by = None if left_out_by is None else left_out_by[rows]
            mixed = None if blend is None else blend.of_rows(rows)
            each = turn.samples(samples, networks_of_a_row(len(posterior), left_out_by))
            for block in in_blocks(posterior, len(rows), turn.take, each, method, turn.axis, by):
                prediction = block.prediction
                if mixed is not None:
                    prediction = prediction.blended(mixed.of_rows(block.filled))
                done(len(block))
                if read is not None:
                    answers = {name: block.cut(values) for name, values in read(prediction).items()}
                    parts.append((rows[block.rows], answers))
                    continue
                split = prediction.all_sources()
                sources, unit = split.names, split.unit
                answers, more = prediction.columns(level)
                notes += more
                answers |= {f"share {name}": np.asarray(split[name]) for name in sources}
                answers = {name: block.cut(values) for name, values in answers.items()}
                answers |= {_DOUBT: block.cut(prediction.row_doubt.numpy()), _FALLS: np.zeros((len(block), columns))}
                if turn.axis is not None and turn.axis.name in split:
                    share = answers[f"share {turn.axis.name}"].reshape(len(block), -1).mean(1)  # over the outputs
                    answers[_FALLS] = turn.explained(block) * share[:, None]
                parts.append((rows[block.rows], answers))
                if truth is not None:
                    for name, values in of_rows(prediction, answers, truth[rows[block.rows]]).items():
                        scored.setdefault(name, []).append(values)
    joined = _joined(parts)
    doubt, falls = joined.pop(_DOUBT, np.empty(0)), joined.pop(_FALLS, np.empty((0, 0)))
    every = {name: np.concatenate(values) for name, values in scored.items()}
    scoring = partial(_scores, prediction.summary, level, getattr(prediction, "classes", ()), event)
    by_row = _in_order(every, parts)
    return Predicted(joined, doubt, sources, falls, every, scoring, tuple(dict.fromkeys(notes)), unit, by_row)


def _scores(summary: Any, level: float, classes: Any, event: str | None, scored: Answers) -> Scores:
    return together(summary, {name: [values] for name, values in scored.items()}, level, classes, event)


def answering(
    x: Encoded,
    samples: int,
    method: Method = "monte_carlo",
    left_out_by: Tensor | None = None,
    blend: Blend | None = None,
    completion: Completion | None = None,
    itself: Integers | None = None,
) -> Callable[[Posterior], Any]:
    """Return a function that predicts all rows together by a posterior, or by a part of one, as one prediction.

    Arguments are those of `predict_rows`. If any row has gaps, all rows have as many draws.
    """
    turn = _Turn(x, completion if x.has_gaps.any() else None, itself)
    complete = turn.take(slice(None))

    def answer(posterior: Posterior) -> Any:
        number = turn.samples(samples, networks_of_a_row(len(posterior), left_out_by))
        prediction = predicted(posterior, complete, number, method, drawn=turn.axis, left_out_by=left_out_by)
        return prediction if blend is None else prediction.blended(blend)

    return answer


_DOUBT, _FALLS = "doubt", "falls"


@dataclass(eq=False)
class _Turn:
    """Rows that are predicted in the same way, and what was drawn for the last ones that were taken."""

    x: Encoded
    completion: Completion | None
    itself: Integers | None = None
    drawn: Numbers = field(default_factory=lambda: np.empty((0, 0, 0)))

    @property
    def axis(self) -> CrossedAxis | None:
        return None if self.completion is None else GAPS

    def samples(self, of_a_row: int, networks: int) -> int:
        return of_a_row if self.completion is None else samples_of_a_draw(of_a_row, networks)

    def take(self, rows: slice) -> Encoded:
        if self.completion is None:
            return self.x.take(rows)
        itself = None if self.itself is None else self.itself[rows]
        complete, self.drawn = self.completion.drawn(self.x.take(rows), leaving_out=itself)
        return complete

    def explained(self, block: Block) -> Numbers:
        """Return the part of the variance between the draws that each column explains.  # (rows, columns)"""
        cells = self.x.take(block.rows).cells
        assert cells is not None
        answers = block.prediction.mixture.answers.double().mean(1)  # (members * draws, rows, outputs)
        by_draw = answers.unflatten(0, (-1, GAPS.draws)).mean(0).transpose(0, 1)
        return explained(block.cut(by_draw.numpy()), self.drawn, cells.gaps, cells.levels)


def _in_order(scored: Answers, parts: list[tuple[NDArray[np.int64], Answers]]) -> Answers:
    """Put what all rows are scored by into their order; nothing, if the truth of some is not known."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    return {name: values[order] for name, values in scored.items() if len(values) == len(order)}


def _joined(parts: list[tuple[NDArray[np.int64], Answers]]) -> Answers:
    """Put the answers of all parts into the order of the rows; a source that a part does not have is 0 there."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    names = max((answers for _, answers in parts), key=len)

    def of_part(name: str, rows: NDArray[np.int64], answers: Answers) -> NDArray[Any]:
        return answers[name] if name in answers else np.zeros((len(rows), *names[name].shape[1:]))

    return {name: np.concatenate([of_part(name, *part) for part in parts])[order] for name in names}
