"""Rows whose truth is known, as a model answers them: of a table, or those that it kept to be judged by.

Rows that the model was trained on are answered by the networks of the fold that left them out. Missing values are drawn
as for a prediction; where one draw has to do, `complete` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.posterior import Posterior
from wherefrom.predictive.background import Blend
from wherefrom.tables.background import groups_of
from wherefrom.tables.columns import Encoded
from wherefrom.tables.gaps import GAPS, networks_of_a_row, samples_of_a_draw
from wherefrom.tables.outside import weight
from wherefrom.tables.predicting import Predicted, answering, predict_rows
from wherefrom.tables.raw import Integers, Numbers, RawTable
from wherefrom.tables.target import known, possible
from wherefrom.tables.wording import language
from wherefrom.training import streams
from wherefrom.training.data import Rows, as_rows

if TYPE_CHECKING:
    from wherefrom.tables.model import Model


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows with their truth, their names, how far outside they are, and what answers them without columns.

    x: with its gaps.
    rows: x with each missing value drawn once, and y; which fold left each row out, if any did.
    itself: the donor that each row is, and that may give it no value; None if they are none.
    """

    model: Model
    x: Encoded
    rows: Rows
    names: Sequence[str]
    distance: Numbers
    blend: Blend
    itself: Integers | None = None

    @classmethod
    def kept(cls, model: Model) -> Labelled:
        """Return the rows that a model kept to be tested by."""
        kept = model.held_out
        if kept is None or len(kept.y) == kept.calibrate:
            why, what = ("was made with --no-data", "file") if language() == "command" else ("kept no rows", "table")
            raise ValueError(f"the run {why}: name a {what} of rows with {model.target.name!r} in it")
        part = slice(kept.calibrate, None)
        cells = None if kept.cells is None else kept.cells.take(part)
        return cls(
            model,
            Encoded(kept.x[part], model.encoder.features, cells=cells),
            model.kept_rows(part),
            kept.names[part],
            kept.distance[part],
            model.background.at(weight(kept.distance[part])),  # groups are not kept
            None if kept.itself is None else kept.itself[part],
        )

    @classmethod
    def of_table(cls, model: Model, table: RawTable) -> Labelled:
        """Return the rows of a table whose target is known."""
        y = model.target.values(table)
        there = known(y)
        if model.target.classes:
            there &= np.array([label in model.target.classes for label in y.tolist()])
        there &= possible(model.posterior.training.likelihood, y)
        if not there.any():
            raise ValueError(f"{table.source} has no row with a {model.target.name!r}: the truth is needed")
        table, y = table.take(there), y[there]
        x = model.encoder.encode(table)
        complete = x if model.completion is None else model.completion.once(x)
        rows = as_rows((complete, np.array(y.tolist())), model.posterior.training.likelihood, model.target.classes)
        distance, _ = model.around.look(x)
        blend = model.background.at(weight(distance), groups_of(table, model.about.get("group")))
        return cls(model, x, rows, model.encoder.row_names(table), distance, blend)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Integers) -> Labelled:
        """Return some of the rows, by their indices."""
        return replace(
            self,
            x=self.x.take(chosen),
            rows=self.rows.take(chosen),
            names=[self.names[row] for row in chosen.tolist()],
            distance=self.distance[chosen],
            blend=self.blend.of_rows(chosen),
            itself=None if self.itself is None else self.itself[chosen],
        )

    def at_most(self, count: int, purpose: str) -> Labelled:
        """Return all rows, or `count` of them at random, in their order; another purpose has others."""
        if len(self) <= count:
            return self
        order = streams.generator(self.model.posterior.seed, "tables", purpose).permutation(len(self))
        return self.take(np.sort(order[:count]))

    # ------------------------------------------------------------------ answers

    @property
    def answers_of_a_row(self) -> int:
        """Numbers that a prediction of one row takes."""
        samples, posterior = self.model.samples, self.model.posterior
        if self._has_draws:
            networks = networks_of_a_row(len(posterior), self.rows.left_out_by)
            samples = samples_of_a_draw(samples, networks) * GAPS.draws
        return len(posterior) * samples * posterior.schema.targets

    @property
    def _has_draws(self) -> bool:
        return self.model.completion is not None and bool(self.x.has_gaps.any())

    @cached_property
    def answer(self) -> Callable[[Posterior], Any]:
        """Predict the rows by a posterior, or by a part of one: each by networks that did not see it."""
        return self._answering(self.rows.left_out_by)

    def by_all_networks(self) -> Any:
        """Predict the rows by all networks, as new ones are, whether these saw them or not."""
        return self._answering(None)(self.model.posterior)

    def _answering(self, left_out_by: Tensor | None) -> Callable[[Posterior], Any]:
        model = self.model
        return answering(
            self.x,
            model.samples,
            left_out_by=left_out_by,
            blend=self.blend,
            completion=model.completion,
            itself=self.itself,
        )

    def answered_at(self, values: Numbers, times: int, samples: int) -> Any:
        """Predict the rows several times, one after the other, as if their features had these values.

        values: (times * rows, features), nothing missing.
        samples: of each network, at most those of the model.
        """
        by = self.rows.left_out_by
        again = torch.arange(len(self)).repeat(times)
        answer = answering(
            Encoded(values, self.model.encoder.features),
            min(samples, self.model.samples),
            left_out_by=None if by is None else by[again],
            blend=self.blend.of_rows(again),
        )
        return answer(self.model.posterior)

    def predicted(self) -> Predicted:
        """Predict the rows in turns, with their scores, their sources, and what measuring their gaps would do."""
        model = self.model
        return predict_rows(
            model.posterior,
            self.x,
            model.level,
            model.samples,
            np.array(self.truth, dtype=object if model.target.classes else np.float64),
            left_out_by=self.rows.left_out_by,
            blend=self.blend,
            completion=model.completion,
            itself=self.itself,
            event=None if model.scores.event is None else model.scores.event.label,
        )

    @property
    def truth(self) -> Any:
        """y as its owner would write it: labels of classes, numbers else."""
        truth = self.rows.truth
        if not isinstance(truth, Tensor):
            return truth
        return truth.squeeze(1).numpy() if truth.shape[1] == 1 else truth.numpy()
