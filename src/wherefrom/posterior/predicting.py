"""From a posterior to its predictions: samples or moments of all members, mixed, with noise and calibration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.posterior.groups import assembled, groups, inputs, refreshing
from wherefrom.posterior.weighing import crossed_axes, explicit_weights, turns
from wherefrom.predictive import monte_carlo
from wherefrom.predictive.mixture import Mixture
from wherefrom.training.data import as_rows

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior
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
    return _predictive(posterior, sampled_outputs(posterior, x, samples, seed))


def sampled_outputs(posterior: Posterior, x: Any, samples: int, seed: int) -> Mixture:
    """The networks' outputs at x, with so many samples of each member."""
    rows, design = inputs(posterior, x), posterior.design
    plan = monte_carlo.Plan.of(samples, vary_theta=design.iterations is not None, vary_mask=design.dropout is not None)
    answers = assembled(
        {
            group: monte_carlo.outputs(group.network, group.members, plan, rows, seed, refreshing(posterior, group))
            for group in groups(posterior)
        }
    )
    return _mixture(posterior, answers, plan)


def member_scores(posterior: Posterior, data: Any) -> tuple[Tensor, Tensor]:
    """The NLL and the CRPS (or Brier score) of each member by itself, one sample of it, row by row.

    Noise that is to be fitted is fitted for each member, on these rows.  # (members, rows) each
    """
    likelihood = posterior.training.likelihood
    rows = as_rows(data, likelihood, posterior.schema.classes)
    outputs = sampled_outputs(posterior, rows.x, 1, posterior.seed)
    scores = likelihood.member_scores(outputs.answers[:, 0], rows.y, posterior.scaler)
    return tuple(torch.nan_to_num(score, nan=math.inf) for score in scores)  # type: ignore[return-value]


# ---------------------------------------------------------------------- by moments


def by_moments(posterior: Posterior, x: Any, x_std: Any, covariance: Covariance, rank: int | None) -> Any:
    """The prediction at x by one pass of moments for each member."""
    from wherefrom.predictive.one_shot.propagate import propagate

    design = posterior.design
    rows, x_variance = inputs(posterior, x), _input_variance(posterior, x, x_std)
    parts = {
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
            head=posterior.training.likelihood.head,
        )
        for group in groups(posterior)
    }
    mean = assembled({group: part.mean for group, part in parts.items()})
    spread = assembled({group: part.variance for group, part in parts.items()})

    def named(name: str) -> str:
        """Components within members, as dropout is called in this design."""
        return " x ".join(design.of_masks if part == "F" else part for part in name.split(" x "))

    def within() -> dict[str, Tensor]:
        by_group = {group: part.within() for group, part in parts.items()}
        names = next(iter(by_group.values()))
        return {named(name): assembled({group: part[name] for group, part in by_group.items()}) for name in names}

    plan = monte_carlo.Plan(mean.shape[1], vary_theta=False, vary_mask=False)
    moments = {"spread": spread, "within": within, "covariance": covariance}
    return _predictive(posterior, _mixture(posterior, mean, plan, **moments))


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


def _mixture(posterior: Posterior, outputs: Tensor, plan: monte_carlo.Plan, **moments: Any) -> Mixture:
    """The members' outputs, with their weights and labels."""
    return Mixture(
        outputs,
        plan,
        crossed_axes(posterior),
        f"these diverged: {'; '.join(posterior.diverged)}" if posterior.diverged else None,
        weights=explicit_weights(posterior),
        **moments,
    )


def _predictive(posterior: Posterior, outputs: Mixture) -> Any:
    """What the likelihood makes of the outputs, calibrated."""
    likelihood = posterior.training.likelihood
    prediction: Any = likelihood.predictive(outputs, posterior.schema, posterior.scaler, posterior.fitted_noise)
    for calibration in posterior.calibration:
        prediction = calibration.applied(prediction)
    return prediction
