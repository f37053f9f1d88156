"""What is fitted by rows that were not trained on: the noise, the calibration, and the weights of the members."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from wherefrom.posterior.held_out import like_training, not_trained_on
from wherefrom.posterior.predicting import sampled_outputs
from wherefrom.predictive.calibration import By, Fit, Method, Reading, before, checked, compared, fitted
from wherefrom.predictive.weights import greedy, stacking
from wherefrom.table import Table

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

Weighing = Literal["stacking", "greedy"]

_NOISE_SAMPLES = 100  # samples a member when the noise is fitted on held-out rows


def with_noise(posterior: Posterior, data: Any, samples: int) -> Posterior:
    """The same with the noise under which these rows are most likely, and the calibration of that."""
    if not posterior.training.likelihood.fits_noise:
        raise ValueError(f'{posterior.training.likelihood} has no noise to fit; use Regression(noise="fit")')
    return calibrated_anew(replace(posterior, fitted_noise=_noise(posterior, data, samples)))


def _noise(posterior: Posterior, data: Any, samples: int) -> Tensor:
    """Fit the noise by samples of the members' outputs."""
    rows, targets = like_training(posterior, data), posterior.schema.targets
    if rows.targets != targets:
        raise ValueError(f"y has {rows.targets} columns, but the model was trained on {targets}")
    outputs = sampled_outputs(posterior, rows.x, samples, posterior.seed)
    return posterior.training.likelihood.fit_noise(outputs, rows.y, posterior.scaler, rows.weights)


def calibrated(posterior: Posterior, by: By, data: Any, samples: int, method: Method, reading: Reading) -> Posterior:
    """The same with a further calibration, or with another of the same kind."""
    likelihood = posterior.training.likelihood
    by = checked(by, likelihood.calibrations, likelihood.target)
    earlier = before(by, posterior.calibration)
    rows = not_trained_on(posterior, data, f'calibrated("{by}", (x, y))')
    base = replace(posterior, calibration=earlier)
    fit = Fit(len(rows), samples, method, reading, on_held_out=data is None, data=rows)
    found = fitted(by, base.predict(rows.x, samples, method=method), rows.truth, fit, rows.weights)
    return replace(base, calibration=(*earlier, found))


def before_and_after(posterior: Posterior, data: Any, samples: int, levels: Sequence[float], method: Method) -> Table:
    """The scores of these rows without the calibration, and with it."""
    rows = not_trained_on(posterior, data, "check_calibration((x, y))")
    plain, own = (each.predict(rows.x, samples, method=method) for each in (posterior.uncalibrated, posterior))
    return compared(plain, own, rows.truth, levels)


def fitted_anew(posterior: Posterior) -> Posterior:
    """With the noise and the calibration of its own members, where there are rows to fit them on."""
    if posterior.training.likelihood.fits_noise and posterior.held_out is not None:
        posterior = replace(posterior, fitted_noise=_noise(posterior, posterior.held_out, _NOISE_SAMPLES))
    return calibrated_anew(posterior)


def calibrated_anew(posterior: Posterior) -> Posterior:
    """What was fitted for other members is fitted again for these, or dropped."""
    found = posterior.uncalibrated
    for each in posterior.calibration:
        fit = each.fit
        own = fit.on_held_out and posterior.held_out is not None
        why = "the rows that it was fitted on are not at hand"
        if own or fit.data is not None:
            try:
                found = calibrated(found, each.by, None if own else fit.data, fit.samples, fit.method, fit.reading)
                continue
            except ValueError as error:
                why = str(error)
        warnings.warn(
            f"the calibration by {each.by} was of other members, and is dropped ({why}): calibrate these anew",
            stacklevel=5,
        )
    return found


def weighted(
    posterior: Posterior, by: Weighing | Sequence[float], data: Any, samples: int, size: int, distinct: int | None
) -> Posterior:
    """The same members, those that weigh anything, with weights by held-out rows, or as they are given."""
    if isinstance(by, str):
        if by not in ("stacking", "greedy"):
            raise ValueError(f'members are weighted by "stacking", "greedy" or a list of weights, not {by!r}')
        rows = not_trained_on(posterior, data, f'weighted("{by}", (x, y))')
        plain = posterior.uncalibrated.predict(rows.x, samples)
        densities = plain.member_log_densities(rows.truth, by_output=True).flatten(1)
        found = stacking(densities) if by == "stacking" else greedy(densities, size, distinct=distinct)
        given = found.tolist()
    else:
        given = [float(weight) for weight in by]
    if len(given) != len(posterior) or min(given) < 0 or not math.isfinite(total := math.fsum(given)) or total <= 0:
        raise ValueError(f"give one weight for each of the {len(posterior)} members, none below zero, not {given}")
    changed = replace(
        posterior,
        mixture=tuple(component for component, weight in zip(posterior.mixture, given, strict=True) if weight),
        own_weights=tuple(weight / total for weight in given if weight),
        is_part=True,
    )
    return fitted_anew(replace(changed, fitted_noise=None))
