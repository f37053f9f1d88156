"""What is fitted by rows that were not trained on: the noise and the calibration, once, and anew for other members."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherefrom.calibration import By, Fit, Method, before, checked, compared, fitted
from wherefrom.likelihood import Classification, most_likely_noise
from wherefrom.mixture.held_out import like_training, not_trained_on
from wherefrom.predictive.prediction import Reading
from wherefrom.table import Table
from wherefrom.training.workers import one_core

if TYPE_CHECKING:
    from wherefrom.posterior import Posterior

_NOISE_SAMPLES = 100  # samples a member when the noise is fitted on held-out rows


def with_noise(posterior: Posterior, data: Any, samples: int) -> Posterior:
    """The same with the noise under which these rows are most likely, and the calibration of that."""
    if posterior.training.likelihood.noise != "fit":
        raise ValueError(f'{posterior.training.likelihood} has no noise to fit; use Regression(noise="fit")')
    return calibrated_anew(replace(posterior, fitted_noise=_noise(posterior, data, samples)))


def _noise(posterior: Posterior, data: Any, samples: int) -> Tensor:
    """One variance for each output, in units of y's own."""
    rows, targets = like_training(posterior, data), posterior.schema.targets
    if rows.y.shape[1] != targets:
        raise ValueError(f"y has {rows.y.shape[1]} columns, but the model was trained on {targets}")
    known = replace(posterior, fitted_noise=torch.zeros(targets, dtype=torch.float64), calibration=())
    answers = known.predict(rows.x, samples).answers.double()
    squares = (answers.flatten(0, 1) - posterior.scaler.y(rows.y, torch.float64)).square()
    weights = torch.tensor(posterior.weights, dtype=torch.float64).repeat_interleave(answers.shape[1])
    with one_core():
        return most_likely_noise(squares, weights, rows.weights)


def calibrated(posterior: Posterior, by: By, data: Any, samples: int, method: Method, reading: Reading) -> Posterior:
    """The same with a further calibration, or with another of the same kind."""
    by = checked(by, isinstance(posterior.training.likelihood, Classification))
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
    if posterior.training.likelihood.noise == "fit" and posterior.held_out is not None:
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
