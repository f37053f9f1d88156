"""The literature's methods as marginalisations: each is a list of variables for `over`.

| method          | F      | theta0 | h      | t      |
|-----------------|--------|--------|--------|--------|
| one network     | .      | .      | .      | .      |
| deep ensemble   | .      | random | order  | .      |
| SWAG, TRADI     | .      | .      | .      | random |
| snapshots       | .      | .      | .      | random |
| Laplace         | .      | .      | .      | random |
| variational     | .      | .      | .      | random |
| cyclical MCMC   | .      | .      | .      | random |
| BatchEnsemble   | random | .      | .      | .      |
| MC-dropout      | random | .      | .      | .      |
| hyper-ensemble  | .      | random | random | .      |
| multiSWAG       | .      | random | order  | random |
| everything      | random | random | random | random |

`hyper_deep_ensemble` is more than a list: it looks at validation rows on its way, trains, and returns a posterior.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from wherefrom.laws import SWAG, TRADI, Laplace, Snapshots, Variational
from wherefrom.posterior import Posterior
from wherefrom.posterior.marginalise import marginalise
from wherefrom.posterior.point import Training
from wherefrom.predictive.weights import greedy
from wherefrom.training.data import as_rows
from wherefrom.training.progress import Show
from wherefrom.variables import BatchOrder, Dropout, Hyperparameters, InitialCondition, Iterations, Jointly

Variables = list[Any]
Setting = Any  # a torch distribution or a list of values
Start = float | Literal["auto"]

_PICKS = 50  # of a greedy choice, at most


def one_network() -> Variables:
    """Return no variables: one network by classical training, which says nothing about its doubt."""
    return []


def deep_ensemble(draws: int) -> Variables:
    """Deep ensemble (Lakshminarayanan et al., 2017): networks with their own initial weights and order of the batches.

    draws: how many networks.

    >>> deep_ensemble(5)
    [Jointly(InitialCondition(draws=None, init=None), BatchOrder(draws=None), draws=5)]
    """
    return [Jointly(InitialCondition(), BatchOrder(), draws=draws)]


def swag(rank: int = 20, start: Start = 0.5) -> Variables:
    """SWAG (Maddox et al., 2019): the Gaussian fitted to the later part of the trajectory.

    rank: how many deviations are kept (default 20).
    start: when to start collecting, as a fraction of the epochs, or "auto" (default 0.5).
    """
    return [Iterations(SWAG(rank), start)]


def tradi(start: Start = 0.0) -> Variables:
    """TRADI (Franchi et al., 2020): a Kalman filter for each weight, along the trajectory.

    start: when to start collecting, as a fraction of the epochs, or "auto" (default 0).
    """
    return [Iterations(TRADI(), start)]


def snapshots(keep: int = 20, start: Start = 0.5) -> Variables:
    """Snapshots: some of the later iterates themselves, equally likely.

    keep: how many (default 20).
    start: when to start collecting, as a fraction of the epochs, or "auto" (default 0.5).
    """
    return [Iterations(Snapshots(keep), start)]


def variational() -> Variables:
    """Variational inference (Shen et al., 2024): the Gaussian with independent weights that "ivon" learns.

    It needs this algorithm: `Algorithm("ivon", lr=0.1, ...)`.
    """
    return [Iterations(Variational())]


def cyclical_sg_mcmc(cycles: int = 4, each: int = 3, share: float = 0.25) -> Variables:
    """Cyclical MCMC (Zhang et al., 2020): snapshots at the end of every cycle of the learning rate, equally likely.

    It needs an algorithm that samples in as many cycles: `Algorithm("sghmc", ..., schedule=schedules.Cyclical(4),
    noise_below=0.15)`.

    cycles: how many cycles (default 4).
    each: snapshots in each cycle (default 3).
    share: the last part of a cycle in which they are taken (default 0.25).

    >>> cyclical_sg_mcmc(cycles=2, each=2)
    [Iterations(law=Snapshots(keep=4), steps=(0.4375, 0.5, 0.9375, 1.0))]
    """
    ends = [(cycle + 1 - share * k / each) / cycles for cycle in range(cycles) for k in reversed(range(each))]
    return [Iterations(Snapshots(cycles * each), steps=tuple(ends))]


def laplace(
    structure: Literal["diagonal", "kron", "full", "last_layer"] = "kron",
    prior_precision: float | Literal["marglik", "cv"] = "marglik",
) -> Variables:
    """Laplace (MacKay, 1992; Daxberger et al., 2021): the Gaussian with the curvature of the loss at the last iterate.

    Predict with `method="linearised"`.

    structure, prior_precision: as for `wf.Laplace` (default: "kron", "marglik").
    """
    return [Iterations(Laplace(structure, prior_precision))]


def mc_dropout(rate: float | None = None) -> Variables:
    """MC-dropout (Gal and Ghahramani, 2016): the sub-networks that dropout leaves.

    rate: dropout rate (default: that of the model).
    """
    return [Dropout(rate)]


def batch_ensemble() -> Variables:
    """BatchEnsemble (Wen, Tran and Ba, 2020): sub-networks that share their weights.

    The model must be `wf.rank_one(model, networks=4)`.
    """
    return [Dropout()]


def hyper_ensemble(draws: int, **settings: Setting) -> Variables:
    """Hyper-ensemble (Wenzel et al., 2020): networks with their own initial weights, order and settings.

    draws: how many networks.
    settings: the random settings, as for `wf.Hyperparameters`.
    """
    return [Jointly(InitialCondition(), Hyperparameters(**settings), BatchOrder(), draws=draws)]


def hyper_deep_ensemble(
    training: Training,
    data: Any,
    validation: Any,
    *,
    draws: int = 50,
    chosen: int = 4,
    inits: int = 4,
    seed: int = 0,
    progress: Show = None,
    **settings: Setting,
) -> Posterior:
    """Hyper-deep ensemble (Wenzel et al., 2020): train drawn settings, choose, train the best again, choose.

    Up to `chosen` of the drawn settings are those whose mixture makes the validation rows most likely. They are trained
    again from new initial weights, and up to `chosen` of these members are weighted by a last greedy choice.

    training, data, seed, progress: as for `wf.marginalise`.
    validation: (x, y), rows by which members are chosen.
    draws: how many settings are drawn and trained (default 50).
    chosen: how many settings, and then members, are kept at most (default 4).
    inits: initial weights for each chosen setting (default 4).
    settings: the random settings, as for `wf.Hyperparameters`.
    """
    if chosen < 2:
        raise ValueError(f"chosen must be at least 2; it is {chosen}")
    if not training.likelihood.has_density:
        raise ValueError("a choice by validation rows needs densities: give the likelihood a noise")
    over = hyper_ensemble(draws, **settings)
    searched = marginalise(training, data, over, seed, progress=progress, on_divergence="drop")
    rows = as_rows(validation, training.likelihood, searched.schema.classes)
    densities = searched.predict(rows.x).member_log_densities(rows.truth, by_output=True).flatten(1)
    weights = greedy(densities, _PICKS, distinct=chosen)
    # Those that were picked and, if that is a single one, the next best.
    order = sorted(range(len(searched)), key=lambda k: (float(weights[k]), float(densities[k].mean())), reverse=True)
    picked = order[: max(2, int((weights > 0).sum()))]
    names = Hyperparameters(2, **settings).names
    drawn = [searched.mixture[k].run.choices for k in picked]
    points = [{name: choices[name] for name in names if name in choices} for choices in drawn]
    best = [Hyperparameters(points=points), *deep_ensemble(inits)]
    return marginalise(training, data, best, seed, progress=progress).weighted("greedy", validation, distinct=chosen)


def multi_swag(draws: int, rank: int = 20, start: Start = 0.5) -> Variables:
    """MultiSWAG (Wilson and Izmailov, 2020): a deep ensemble, each member with its own SWAG.

    draws: how many networks.
    rank: how many deviations are kept (default 20).
    start: when to start collecting, as a fraction of the epochs, or "auto" (default 0.5).
    """
    return [*deep_ensemble(draws), *swag(rank, start)]


def everything(
    draws: int, rank: int = 20, start: Start = 0.5, rate: float | None = None, **settings: Setting
) -> Variables:
    """Everything at once: initial weights, settings and order of the batches drawn together, SWAG, and dropout.

    draws: how many networks.
    rank: how many deviations are kept (default 20).
    start: when to start collecting, as a fraction of the epochs, or "auto" (default 0.5).
    rate: dropout rate (default: that of the model).
    settings: the random settings, as for `wf.Hyperparameters`.
    """
    return [*hyper_ensemble(draws, **settings), *swag(rank, start), *mc_dropout(rate)]


# Those of the command, which knows neither other algorithms and models for a recipe, nor other ways to predict.
BY_NAME: dict[str, Callable[..., Variables]] = {
    recipe.__name__: recipe
    for recipe in (
        one_network,
        deep_ensemble,
        swag,
        tradi,
        snapshots,
        mc_dropout,
        hyper_ensemble,
        multi_swag,
        everything,
    )
}


def parameters(name: str) -> tuple[bool, bool]:
    """Return whether a recipe is drawn several times, and whether it draws settings of the algorithm.

    name: of the recipe.

    >>> parameters("multi_swag"), parameters("hyper_ensemble"), parameters("swag")
    ((True, False), (True, True), (False, False))
    """
    names = inspect.signature(BY_NAME[name]).parameters
    return "draws" in names, "settings" in names
