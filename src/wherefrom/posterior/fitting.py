"""Fits on rows that were not trained on: the noise, the calibration, and the weights of the members."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from wherefrom.likelihoods.likelihood import TableWishes
from wherefrom.posterior.caller import users_stacklevel
from wherefrom.posterior.held_out import held_out_of, like_training, not_trained_on
from wherefrom.posterior.predicting import sampled_outputs
from wherefrom.predictive.calibration import By, Calibration, Fit, Method, Reading, before, checked, compared, fitted
from wherefrom.predictive.weights import greedy, stacking
from wherefrom.table import Table
from wherefrom.training.data import Rows

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

Weighing = Literal["stacking", "greedy"]

_NOISE_SAMPLES = 100  # samples a member when the noise is fitted on held-out rows


@dataclass(frozen=True, eq=False)
class Fitted:
    """The noise and the corrections that rows which were not trained on have called for."""

    noise: Tensor | None = None  # the variance of each output's noise, in units of y's own variance
    calibration: tuple[Calibration, ...] = ()  # in the order of their fitting

    def with_rows(self, rows: Rows | None) -> Fitted:
        """Return the same with the rows at hand on which the calibration was fitted, or without them."""
        return replace(self, calibration=tuple(replace(c, fit=replace(c.fit, data=rows)) for c in self.calibration))


def with_noise(posterior: Posterior, data: Any, samples: int) -> Posterior:
    """Fit the noise under which these rows are most likely, and the calibration of that."""
    likelihood = posterior.training.likelihood
    if not likelihood.fits_noise:
        can_fit = "noise" in likelihood.table_options
        advice = f"; use {type(likelihood).of_table(TableWishes(noise='fit'))}" if can_fit else ""
        raise ValueError(f"{likelihood} has no noise to fit{advice}")
    rows = held_out_of(posterior, data) or not_trained_on(posterior, data, "fit_noise((x, y))")
    return calibrated_anew(_with_noise(posterior, _noise(posterior, rows, samples)))


def _with_noise(posterior: Posterior, noise: Tensor | None) -> Posterior:
    return replace(posterior, fitted=replace(posterior.fitted, noise=noise))


def _with_calibration(posterior: Posterior, calibration: tuple[Calibration, ...]) -> Posterior:
    return replace(posterior, fitted=replace(posterior.fitted, calibration=calibration))


def _noise(posterior: Posterior, data: Any, samples: int) -> Tensor:
    """Fit the noise by samples of the members' outputs."""
    rows, targets = like_training(posterior, data), posterior.schema.targets
    if rows.targets != targets:
        raise ValueError(f"y has {rows.targets} columns, but the model was trained on {targets}")
    outputs = sampled_outputs(posterior, rows.x, samples, posterior.seed)
    return posterior.training.likelihood.fit_noise(outputs, rows.y, posterior.scaler, rows.weights)


def calibrated(posterior: Posterior, by: By, data: Any, samples: int, method: Method, reading: Reading) -> Posterior:
    """Add a calibration, or replace the one of the same kind."""
    likelihood = posterior.training.likelihood
    by = checked(by, likelihood.calibrations, likelihood.target)
    earlier = before(by, posterior.calibration)
    rows = not_trained_on(posterior, data, f'calibrated("{by}", (x, y))')
    base = _with_calibration(posterior, earlier)
    fit = Fit(len(rows), samples, method, reading, on_held_out=data is None, data=rows)
    new = fitted(by, base.predict(rows.x, samples, method=method), rows.truth, fit, rows.weights)
    return _with_calibration(base, (*earlier, new))


def before_and_after(posterior: Posterior, data: Any, samples: int, levels: Sequence[float], method: Method) -> Table:
    """Compare the scores of these rows without the calibration and with it."""
    rows = not_trained_on(posterior, data, "check_calibration((x, y))")
    plain, corrected = (each.predict(rows.x, samples, method=method) for each in (posterior.uncalibrated, posterior))
    return compared(plain, corrected, rows.truth, levels)


def fitted_anew(posterior: Posterior) -> Posterior:
    """Fit the noise and the calibration for its members, where there are rows to fit them on."""
    if posterior.training.likelihood.fits_noise and posterior.held_out is not None:
        posterior = _with_noise(posterior, _noise(posterior, posterior.held_out, _NOISE_SAMPLES))
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
            f"the calibration by {each.by} was of other members, and is dropped ({why}): calibrate these anew",
            stacklevel=users_stacklevel(),
        )
    return again


def weighted(
    posterior: Posterior, by: Weighing | Sequence[float], data: Any, samples: int, size: int, distinct: int | None
) -> Posterior:
    """Weigh the members by held-out rows, or as given, and leave out those that weigh nothing."""
    if isinstance(by, str):
        if by not in ("stacking", "greedy"):
            raise ValueError(f'members are weighted by "stacking", "greedy" or a list of weights, not {by!r}')
        rows = not_trained_on(posterior, data, f'weighted("{by}", (x, y))')
        plain = posterior.uncalibrated.predict(rows.x, samples)
        densities = plain.member_log_densities(rows.truth, by_output=True).flatten(1)
        weights = stacking(densities) if by == "stacking" else greedy(densities, size, distinct=distinct)
        given = weights.tolist()
    else:
        given = [float(weight) for weight in by]
    if len(given) != len(posterior) or min(given) < 0 or not math.isfinite(total := math.fsum(given)) or total <= 0:
        raise ValueError(f"give one weight for each of the {len(posterior)} members, none below zero, not {given}")
    weighty = tuple(member for member, weight in zip(posterior.mixture, given, strict=True) if weight)
    shares = tuple(weight / total for weight in given if weight)
    origin = replace(posterior.origin, weights=shares, is_part=True)
    return fitted_anew(_with_noise(replace(posterior, mixture=weighty, origin=origin), None))
