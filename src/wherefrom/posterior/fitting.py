"""Fits on rows that were not trained on: the noise, the calibration, and the weights of the members."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import Tensor

from wherefrom.likelihoods.likelihood import TableWishes
from wherefrom.posterior.caller import users_stacklevel
from wherefrom.posterior.held_out import held_out_of, like_training, not_trained_on
from wherefrom.posterior.predicting import outputs_to_judge, predicted
from wherefrom.predictive.calibration import By, Calibration, before, checked, compared, fitted
from wherefrom.predictive.fit import Fit, Method, Reading
from wherefrom.predictive.weights import greedy, stacking
from wherefrom.table import Table
from wherefrom.training.data import Rows

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

Weighing = Literal["stacking", "greedy"]
NoiseMethod = Literal["monte_carlo", "linearised"]

_NOISE_SAMPLES, _FEWEST_SAMPLES = 100, 10  # of a member, when the noise is fitted on rows that were not trained on
_NOISE_NUMBERS = 100_000  # answers to look at, several times: more rows need fewer samples each


@dataclass(frozen=True, eq=False)
class Fitted:
    """The noise and the corrections that rows which were not trained on have called for."""

    noise: Tensor | None = None  # the variance of each output's noise, in units of y's own variance
    calibration: tuple[Calibration, ...] = ()  # in the order of their fitting

    def with_rows(self, rows: Rows | None) -> Fitted:
        """Return the same with the rows at hand on which the calibration was fitted, or without them."""
        return replace(self, calibration=tuple(replace(c, fit=replace(c.fit, data=rows)) for c in self.calibration))


def with_noise(posterior: Posterior, data: Any, samples: int, method: NoiseMethod | None = None) -> Posterior:
    """Fit the noise under which these rows are most likely, and the calibration of that."""
    if method is not None and method not in get_args(NoiseMethod):
        raise ValueError(f'method must be "monte_carlo", "linearised" or None, not {method!r}')
    likelihood = posterior.training.likelihood
    if not likelihood.fits_noise:
        can_fit = "noise" in likelihood.table_options
        advice = f"; use {type(likelihood).of_table(TableWishes(noise='fit'))}" if can_fit else ""
        raise ValueError(f"{likelihood} has no noise to fit{advice}")
    rows = held_out_of(posterior, data) or not_trained_on(posterior, data, "fit_noise((x, y))")
    return calibrated_anew(_with_noise(posterior, _noise(posterior, rows, samples, method)))


def _with_noise(posterior: Posterior, noise: Tensor | None) -> Posterior:
    return replace(posterior, fitted=replace(posterior.fitted, noise=noise))


def _with_calibration(posterior: Posterior, calibration: tuple[Calibration, ...]) -> Posterior:
    return replace(posterior, fitted=replace(posterior.fitted, calibration=calibration))


def _noise(posterior: Posterior, data: Any, samples: int, method: NoiseMethod | None = None) -> Tensor:
    """Fit the noise by samples of the members' outputs."""
    rows, targets = like_training(posterior, data), posterior.schema.targets
    if rows.targets != targets:
        raise ValueError(f"y has {rows.targets} columns, but the model was trained on {targets}")
    outputs = outputs_to_judge(posterior, rows, samples, method)
    return posterior.training.likelihood.fit_noise(outputs, rows.y, posterior.scaler, rows.weights)


def _enough_samples(posterior: Posterior) -> int:
    """Return how many samples of each member to fit the noise by."""
    rows = posterior.held_out
    assert rows is not None
    members = len(posterior) // (posterior.design.parts if rows.left_out_by is not None else 1)
    return min(_NOISE_SAMPLES, max(_FEWEST_SAMPLES, _NOISE_NUMBERS // (members * len(rows))))


def calibrated(
    posterior: Posterior,
    by: By,
    data: Any,
    samples: int,
    method: Method = "monte_carlo",
    reading: Reading = "gaussian",
    predict: Callable[[Posterior], Any] | None = None,
) -> Posterior:
    """Add a calibration, or replace the one of the same kind.

    predict: posterior -> its prediction of these rows, where they are random (default: at their x).
    """
    likelihood = posterior.training.likelihood
    by = checked(by, likelihood.own_calibrations, likelihood.target)
    earlier = before(by, posterior.calibration)
    rows = not_trained_on(posterior, data, f'calibrated("{by}", (x, y))')
    base = _with_calibration(posterior, earlier)
    fit = Fit(len(rows), samples, method, reading, on_held_out=data is None, data=rows)
    left_out = None if rows.left_out_by is None else (rows.left_out_by, posterior.design.axis("D").name)
    prediction = _predicted(base, rows, samples, method) if predict is None else predict(base)
    new = fitted(by, prediction, rows.truth, fit, rows.weights, left_out)
    return _with_calibration(base, (*earlier, new))


def _predicted(posterior: Posterior, rows: Rows, samples: int, method: Method) -> Any:
    return predicted(posterior, rows.x, samples, method, left_out_by=rows.left_out_by)


def before_and_after(posterior: Posterior, data: Any, samples: int, levels: Sequence[float], method: Method) -> Table:
    """Compare the scores of these rows without the calibration and with it."""
    rows = not_trained_on(posterior, data, "check_calibration((x, y))")
    plain, corrected = (_predicted(each, rows, samples, method) for each in (posterior.uncalibrated, posterior))
    return compared(plain, corrected, rows.truth, levels)


def fitted_anew(posterior: Posterior) -> Posterior:
    """Fit the noise and the calibration for its members, where there are rows to fit them on."""
    if posterior.training.likelihood.fits_noise and posterior.held_out is not None:
        posterior = _with_noise(posterior, _noise(posterior, posterior.held_out, _enough_samples(posterior)))
    return calibrated_anew(posterior)


def calibrated_anew(posterior: Posterior) -> Posterior:
    """Fit again for these members what was fitted for others, or drop it."""
    again = posterior.uncalibrated
    for each in posterior.calibration:
        fit = each.fit
        is_held_out = fit.on_held_out and posterior.held_out is not None
        why = "the rows that it was fitted on are not at hand"
        if is_held_out or fit.data is not None:
            try:
                rows = None if is_held_out else fit.data
                again = calibrated(again, each.by, rows, fit.samples, fit.method, fit.reading)
                continue
            except ValueError as error:
                why = str(error)
        warnings.warn(
            f"the calibration by {each.by} belongs to other members, and is dropped ({why}): calibrate again",
            stacklevel=users_stacklevel(),
        )
    return again


def _of_every_draw(posterior: Posterior, weights: Sequence[float]) -> list[float]:
    """Return a weight for each member, given those of the members of one draw of D, in their order."""
    seen: Counter[int] = Counter()
    given = []
    for member in posterior.mixture:
        draw = member.run.slots["D"]
        given.append(weights[seen[draw]])
        seen[draw] += 1
    return given


def weighted(
    posterior: Posterior, by: Weighing | Sequence[float], data: Any, samples: int, size: int, distinct: int | None
) -> Posterior:
    """Weigh the members by held-out rows, or as given, and leave out those that weigh nothing."""
    if isinstance(by, str):
        if by not in ("stacking", "greedy"):
            raise ValueError(f'members are weighted by "stacking", "greedy" or a list of weights, not {by!r}')
        rows = not_trained_on(posterior, data, f'weighted("{by}", (x, y))')
        plain = _predicted(posterior.uncalibrated, rows, samples, "monte_carlo")
        densities = plain.member_log_densities(rows.truth, by_output=True).flatten(1)
        weights = stacking(densities) if by == "stacking" else greedy(densities, size, distinct=distinct)
        given = weights.tolist()
        if rows.left_out_by is not None:  # the members of one draw of D: those of every other weigh the same
            given = _of_every_draw(posterior, given)
    else:
        given = [float(weight) for weight in by]
    if len(given) != len(posterior) or min(given) < 0 or not math.isfinite(total := math.fsum(given)) or total <= 0:
        raise ValueError(f"give one weight for each of the {len(posterior)} members, none below zero, not {given}")
    weighty = tuple(member for member, weight in zip(posterior.mixture, given, strict=True) if weight)
    shares = tuple(weight / total for weight in given if weight)
    origin = replace(posterior.origin, weights=shares, is_part=True)
    return fitted_anew(_with_noise(replace(posterior, mixture=weighty, origin=origin), None))
