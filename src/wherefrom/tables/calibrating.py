"""The calibration of a table's networks: as asked, or what its rows clearly call for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.posterior import Posterior
from wherefrom.posterior.fitting import calibrated as calibrated_by
from wherefrom.posterior.fitting import fitted_anew
from wherefrom.posterior.predicting import outputs_at, predictive
from wherefrom.predictive.calibration import CALIBRATIONS as KINDS_OF_CALIBRATION
from wherefrom.tables.columns import Encoded, rows_of
from wherefrom.tables.completing import Completion, Filled
from wherefrom.tables.gaps import GAPS, networks_of_a_row, samples_of_a_draw
from wherefrom.tables.options import Request
from wherefrom.tables.raw import Integers, Numbers
from wherefrom.tables.telling import Tell
from wherefrom.training import streams
from wherefrom.training.data import Rows, as_rows

_FEWEST_TO_CALIBRATE = 20  # rows; a conformal interval of 95% needs 19
_ENOUGH = 199  # rows without gaps: a conformal interval of 95% has both its tails then
_MOST_NUMBERS = 20_000_000  # answers to calibrate by, where rows have many draws


@dataclass(frozen=True, eq=False)
class Judges:
    """Rows to calibrate by, and where they have gaps, all draws of each, one after the other."""

    rows: Rows | None
    drawn: Encoded | None = None

    @classmethod
    def left_out(
        cls, posterior: Posterior, encoded: Encoded, filled: Filled, judged: Integers
    ) -> tuple[Posterior, Judges]:
        """Take rows that a fold left out each; those without gaps alone if there are enough, for the noise, too.

        judged: the rows that the posterior is judged by, of all.
        """
        rows = posterior.held_out
        assert rows is not None
        encoded = encoded.take(judged)
        gaps = encoded.has_gaps
        if not gaps.any() or filled.completion is None:
            return posterior, cls(rows)
        if (~gaps).sum() >= _ENOUGH:
            fold = replace(posterior.fold, held_out=rows.take(~gaps))
            posterior = fitted_anew(replace(posterior, fold=fold))
            return posterior, cls(posterior.held_out)
        itself = None if filled.itself is None else filled.itself[judged]
        return posterior, cls(rows, filled.completion.drawn(encoded, leaving_out=itself)[0])

    @classmethod
    def held_out(
        cls,
        posterior: Posterior,
        x: Encoded,
        y: NDArray[Any],
        weights: Numbers | None,
        completion: Completion | None,
    ) -> Judges:
        """Take rows that were held out; those without gaps alone if there are enough."""
        if not len(x):
            return cls(None)
        if (~x.has_gaps).sum() >= _ENOUGH:
            weights = None if weights is None else weights[~x.has_gaps]
            x, y = x.take(~x.has_gaps), y[~x.has_gaps]
        drawn = None
        if x.has_gaps.any() and completion is not None:
            drawn, x = completion.drawn(x)[0], completion.once(x)
        return cls(as_rows((x, y, weights), posterior.training.likelihood, posterior.schema.classes), drawn)

    @property
    def count(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def calibrator(
        self, posterior: Posterior, kinds: Sequence[str], samples: int, seed: int
    ) -> Callable[[Posterior, Any], Posterior]:
        """Return a function that adds a calibration of these kinds, by rows as they will be predicted.

        The networks answer these rows once, for all kinds.
        """
        assert self.rows is not None
        if self.drawn is not None:
            limits = (KINDS_OF_CALIBRATION[by].most_numbers or _MOST_NUMBERS for by in kinds)
            return self._by_draws(posterior, self.rows, self.drawn, min(limits), samples, seed)

        rows = self.rows
        chosen = {by: _some(KINDS_OF_CALIBRATION[by].most_numbers, posterior, len(rows), samples, seed) for by in kinds}
        most = max(chosen.values(), key=len)
        looked_at = rows.take(most)
        outputs = outputs_at(posterior, looked_at.x, samples, "monte_carlo", left_out_by=looked_at.left_out_by)

        def calibrate(base: Posterior, by: Any) -> Posterior:
            some = rows.take(chosen[by])
            theirs = outputs.of_rows(torch.from_numpy(np.searchsorted(most, chosen[by])))
            is_all = some.left_out_by is not None and len(some) == len(rows)  # None: those that it has
            return calibrated_by(
                base,
                by,
                None if is_all else some,
                samples,
                predict=lambda earlier: predictive(earlier, theirs, some.left_out_by),
            )

        return calibrate

    @staticmethod
    def _by_draws(
        posterior: Posterior, rows: Rows, drawn: Encoded, most: int, samples: int, seed: int
    ) -> Callable[[Posterior, Any], Posterior]:
        """Let the networks answer all draws once, for whatever is calibrated."""
        chosen = _some(most // GAPS.draws, posterior, len(rows), samples, seed)
        rows = rows.take(chosen)
        drawn = drawn.take((chosen[:, None] * GAPS.draws + np.arange(GAPS.draws)).flatten())
        samples = samples_of_a_draw(samples, networks_of_a_row(len(posterior), rows.left_out_by))
        outputs = outputs_at(posterior, drawn, samples, "monte_carlo", drawn=GAPS, left_out_by=rows.left_out_by)

        def calibrate(base: Posterior, by: Any) -> Posterior:
            return calibrated_by(
                base, by, rows, samples, predict=lambda earlier: predictive(earlier, outputs, rows.left_out_by)
            )

        return calibrate


def _some(most: int | None, posterior: Posterior, count: int, samples: int, seed: int) -> Integers:
    """The rows to calibrate by: all, or as many at random (a file may be sorted) as a fit should look at.

    most: answers of the networks to look at (default: all).
    """
    if most is None:
        return np.arange(count)
    answers = len(posterior) * samples * posterior.schema.targets
    order = streams.generator(seed, "tables", "calibrate").permutation(count)
    return np.sort(order[: max(200, most // answers)])


def calibrated(
    posterior: Posterior, request: Request, judges: Judges, samples: int, tell: Tell, notes: list[str]
) -> Posterior:
    """Calibrate as asked, by rows that were held out, or that the folds left out.

    By default, quantities get conformal intervals, and a factor of the variance (or classes a temperature) only where
    it is clearly not 1: few rows say too little, above all of rare classes.
    """
    asked: Sequence[str] = (request.calibrate,)
    count = judges.count
    if request.calibrate == "none":
        return posterior
    if request.calibrate == "auto":
        if count < _FEWEST_TO_CALIBRATE:
            notes.append(f"not calibrated, because {rows_of(count)} to do it by are too few")
            return posterior
        likelihood = posterior.training.likelihood
        asked = [by for by in likelihood.calibrates_tables if by in likelihood.own_calibrations]
    calibrate = judges.calibrator(posterior, asked, samples, request.seed)
    for by in asked:
        try:
            more = calibrate(posterior, by)
        except ValueError as error:
            if request.calibrate != "auto":
                raise
            notes.append(f"not calibrated by {by}: {error}")
            continue
        if request.calibrate == "auto" and not more.calibration[-1].is_clear:
            factor = str(more.calibration[-1]).split(",")[0]
            tell(f"{by} unchanged: the effect on {rows_of(count)} is not clear ({factor})")
            continue
        posterior = more
        tell(f"calibrated: {posterior.calibration[-1]}")
    return posterior
