"""From a posterior to its predictions: samples or moments of all members, mixed, with noise and calibration."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.likelihood import Classification, Regression
from wherefrom.mixture.groups import assembled, groups, inputs, refreshing
from wherefrom.mixture.weighing import crossed_axes, explicit_weights, turns
from wherefrom.predictive import monte_carlo
from wherefrom.predictive.class_prediction import ClassPrediction
from wherefrom.predictive.prediction import Prediction
from wherefrom.training.workers import one_core

if TYPE_CHECKING:
    from wherefrom.posterior import Posterior
    from wherefrom.predictive.one_shot.member import Covariance

_PROBES = 128


def thetas(posterior: Posterior, n: int, seed: int) -> list[dict[str, Tensor]]:
    """n draws of theta from the mixture, members taking turns by their weights."""
    if n < 1:
        raise ValueError(f"give at least one sample to draw, not {n}")
    whose = np.array(turns(posterior, n))
    drawn: dict[int, dict[str, Tensor]] = {}
    for group in groups(posterior):
        network, refresh = group.network, refreshing(posterior, group)
        for place, member in zip(group.places, group.members, strict=True):
            own = monte_carlo.Thetas(member, seed)
            for number, k in enumerate(np.flatnonzero(whose == place).tolist()):
                theta = own.get(np.array([number]))
                theta = refresh(network.private("sample"), theta) if refresh else theta
                drawn[k] = network.layout.views(theta[0])
    return [drawn[k] for k in range(n)]


# ---------------------------------------------------------------------- by samples


def by_samples(posterior: Posterior, x: Any, samples: int, seed: int) -> Any:
    """The prediction at x by Monte Carlo, with so many samples of each member."""
    rows, likelihood, design = inputs(posterior, x), posterior.training.likelihood, posterior.design
    plan = monte_carlo.Plan.of(samples, vary_theta=design.iterations is not None, vary_mask=design.dropout is not None)
    answers = assembled(
        {
            group: monte_carlo.outputs(group.network, group.members, plan, rows, seed, refreshing(posterior, group))
            for group in groups(posterior)
        }
    )
    if isinstance(likelihood, Classification):
        with one_core():
            return _calibrated(posterior, _of_classes(posterior, torch.log_softmax(answers, -1), plan))
    noise = None
    if likelihood.noise == "predicted":
        answers, log_variance = likelihood.split(answers)
        noise = likelihood.predicted_variance(log_variance)
    return _calibrated(posterior, _of_quantities(posterior, answers, noise, plan))


# ---------------------------------------------------------------------- by moments


def by_moments(posterior: Posterior, x: Any, x_std: Any, covariance: Covariance, rank: int | None) -> Any:
    """The prediction at x by one pass of moments for each member."""
    from wherefrom.predictive.one_shot.propagate import propagate

    likelihood, design = posterior.training.likelihood, posterior.design
    rows, x_variance = inputs(posterior, x), _input_variance(posterior, x, x_std)
    found = {
        group: propagate(
            group.network,
            group.members,
            rows,
            vary_theta=design.iterations is not None,
            vary_mask=design.dropout is not None,
            x_variance=x_variance,
            covariance=covariance,
            rank=rank,
            probes=None if rank is None else _probes(posterior),
            refresh=refreshing(posterior, group),
            classes=isinstance(likelihood, Classification),
        )
        for group in groups(posterior)
    }
    mean = assembled({group: part.mean for group, part in found.items()})
    spread = assembled({group: part.variance for group, part in found.items()})
    noise, targets = None, posterior.schema.targets
    if not isinstance(likelihood, Classification) and likelihood.noise == "predicted":
        (mean, log_mean), (spread, log_spread) = likelihood.split(mean), likelihood.split(spread)
        # The mean of a log-normal variable.
        noise = likelihood.predicted_variance(log_mean.double() + 0.5 * log_spread.double())

    def named(name: str) -> str:
        """Components within members, as dropout is called in this design."""
        return " x ".join(design.of_masks if part == "F" else part for part in name.split(" x "))

    def within() -> dict[str, Tensor]:
        parts = {group: part.within() for group, part in found.items()}
        names = next(iter(parts.values()))
        all_of = {name: assembled({group: part[name] for group, part in parts.items()}) for name in names}
        return {named(name): part[..., :targets] for name, part in all_of.items()}

    plan = monte_carlo.Plan(mean.shape[1], vary_theta=False, vary_mask=False)
    known: dict[str, Any] = {"spread": spread, "within": within, "covariance": covariance}
    if isinstance(likelihood, Classification):
        logs = mean.clamp_min(torch.finfo(mean.dtype).tiny).log()
        return _calibrated(posterior, replace(_of_classes(posterior, logs, plan), **known))
    return _calibrated(posterior, replace(_of_quantities(posterior, mean, noise, plan), **known))


def moments_are_good(posterior: Posterior, x: Any, tolerance: float) -> bool:
    """By a check on the first rows that were asked for, which is remembered."""
    from wherefrom.predictive.one_shot.check import remembered

    if not posterior.design.sampled:  # nothing is uncertain within members, and a single sample is exact
        return False
    check = remembered(posterior, lambda: posterior.check_one_shot(x))
    return check is not None and check.is_within(tolerance)


def _probes(posterior: Posterior) -> Tensor | None:
    """Rows by which the shared deviations of theta are chosen; none where x is standardised, and normal ones do."""
    if posterior.training.standardise:
        return None
    if posterior.rows is None:
        raise ValueError("rank needs training rows where x is not standardised: give them to wf.load(..., data=(x, y))")
    step = -(-len(posterior.rows) // _PROBES)
    return inputs(posterior, posterior.rows.x[::step])


def _input_variance(posterior: Posterior, x: Any, x_std: Any) -> Tensor | None:
    """The inputs' own noise as a variance, standardised as x is."""
    if x_std is None:
        return None
    rows = posterior.schema.inputs(x)
    if not rows.is_floating_point():
        raise ValueError("x_std is for measurements; whole numbers are taken as indices")
    std = torch.as_tensor(np.asarray(x_std), dtype=torch.float64)
    if std.shape not in ((), rows.shape[1:], rows.shape):
        raise ValueError(
            f"x_std has shape {tuple(std.shape)}, but x has {tuple(rows.shape)}: give one number, one for each "
            "column, or one for each entry"
        )
    std = std.expand(rows.shape)
    if not bool((std >= 0).all()):
        raise ValueError("x_std must not be negative, nor missing")
    return (std / posterior.scaler.x_std).square().to(posterior.dtype).to(posterior.device)


# ---------------------------------------------------------------------- as predictions


def _of_quantities(
    posterior: Posterior, answers: Tensor, predicted_noise: Tensor | None, plan: monte_carlo.Plan
) -> Prediction:
    """Answers with whatever noise the likelihood has, in the user's units."""
    likelihood, scaler, schema, noise = (
        posterior.training.likelihood,
        posterior.scaler,
        posterior.schema,
        predicted_noise,
    )
    if likelihood.noise == "fit":
        if posterior.fitted_noise is None:
            raise ValueError(
                "the noise of these members is not fitted, and there are no held-out rows at hand: "
                "give rows that were not trained on to fit_noise((x, y))"
            )
        noise = posterior.fitted_noise
    elif isinstance(likelihood.noise, Real):
        noise = (likelihood.noise / scaler.y_std).square()
    return Prediction(
        answers,
        noise,
        scaler.y_mean,
        scaler.y_std,
        schema.y_is_flat,
        plan,
        crossed_axes(posterior),
        _missing(posterior),
        schema.y_names,
        weights=explicit_weights(posterior),
        least=likelihood.least if isinstance(likelihood, Regression) else None,
    )


def _of_classes(posterior: Posterior, log_probabilities: Tensor, plan: monte_carlo.Plan) -> ClassPrediction:
    return ClassPrediction(
        log_probabilities,
        posterior.schema.classes,
        plan,
        crossed_axes(posterior),
        _missing(posterior),
        weights=explicit_weights(posterior),
    )


def _missing(posterior: Posterior) -> str | None:
    """Why members are missing from the design's product, if any are."""
    return f"these diverged: {'; '.join(posterior.diverged)}" if posterior.diverged else None


def _calibrated(posterior: Posterior, prediction: Any) -> Any:
    for each in posterior.calibration:
        prediction = each.applied(prediction)
    return prediction
