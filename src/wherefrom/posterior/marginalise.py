"""Training under doubt: draw the choices, train every draw, and return the posterior that marginalises them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch

from wherefrom.posterior.fold import Fold
from wherefrom.posterior.growth import Divergence, checked, redrawn, without_diverged
from wherefrom.posterior.held_out import check_apart
from wherefrom.posterior.kept import keeping
from wherefrom.posterior.member import Origin
from wherefrom.posterior.networks import PROBE_ROWS, build_networks
from wherefrom.posterior.point import P, Training
from wherefrom.posterior.posterior import Posterior
from wherefrom.posterior.trainings import train_runs
from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.compute import Compute
from wherefrom.training.data import as_rows
from wherefrom.training.engines import Choice
from wherefrom.training.joined import check_same
from wherefrom.training.progress import Show
from wherefrom.variables import Design


class Options(TypedDict, total=False):
    """The keywords of `marginalise`, for type checkers."""

    held_out: Any
    groups: Any
    on_divergence: Divergence
    compute: Compute | None
    device: str | torch.device | None
    dtype: torch.dtype | None
    engine: Choice | None
    workers: int | None
    autocast: torch.dtype | None
    checkpoints: str | Path | Checkpoints | None
    progress: Show
    store: str | Path | None


@overload
def marginalise(
    training: Training[P],
    data: Any,
    over: Sequence[Any],
    seed: int = 0,
    *,
    folds: None = None,
    **others: Unpack[Options],
) -> Posterior[P]: ...


@overload
def marginalise(
    training: Training[P],
    data: Any,
    over: Sequence[Any],
    seed: int = 0,
    *,
    folds: Sequence[Any],
    **others: Unpack[Options],
) -> list[Posterior[P]]: ...


def marginalise(
    training: Training,
    data: Any,
    over: Sequence[Any],
    seed: int = 0,
    *,
    folds: Sequence[Any] | None = None,
    held_out: Any = None,
    groups: Any = None,
    on_divergence: Divergence = "raise",
    compute: Compute | None = None,
    device: str | torch.device | Sequence[str | torch.device] | None = None,
    dtype: torch.dtype | None = None,
    engine: Choice | None = None,
    workers: int | None = None,
    autocast: torch.dtype | None = None,
    checkpoints: str | Path | Checkpoints | None = None,
    progress: Show = None,
    store: str | Path | None = None,
) -> Posterior | list[Posterior]:
    """Train every draw of the uncertain choices in `over`, and return the posterior of all trained networks.

    training: `wf.Training`, the training to repeat with other choices.
    data: (x, y) or (x, y, weights) of arrays, tensors or frames, or a map-style torch Dataset. x may be a tuple or a
        dictionary of several inputs, each with a row for each row of y.
    over: the variables, such as [wf.InitialCondition(5), wf.Iterations(wf.SWAG())], or a recipe.
    seed: the same seed gives the same members: alone, among others, on any number of workers, or extended later.
    folds: the indices of the training rows of several folds. All of them are trained together, and a list of posteriors
        is returned; fold k is what its rows give with seed + k.
    held_out: rows (x, y) that are not trained on, to fit the noise on, or the fraction of `data` to hold out for it
        (default: the likelihood's own).
    groups: one entry for each row; rows with the same entry are trained on, or held out, together.
    on_divergence: "raise" (default): an error names the members that diverged, and holds the others; "drop": continue
        with the others; "redraw": train other values instead, with a warning: settings if these are drawn, otherwise
        first weights. `posterior.diverged` and `posterior.redrawn` name them.
    compute: where and how to compute, a `wf.Compute` (default None: on the CPU).
    device, dtype, engine, workers, autocast, checkpoints, progress: fields of `compute` by name (default None: those of
        `compute`).
    store: a folder in which each member is saved when it is finished, and the posterior at the end (default None).
        After an interruption, the same call continues; with more draws it trains only the new ones; other settings are
        refused. `wf.load` reads it. With folds, members are saved, but no posterior.
    """
    if not isinstance(seed, Integral):
        raise TypeError(f"seed must be a whole number, not {seed!r}")
    if folds is not None and not len(folds):
        raise ValueError("there are no folds to train on")
    compute = Compute.of(compute).but(
        device=device,
        dtype=dtype,
        engine=engine,
        workers=workers,
        autocast=autocast,
        checkpoints=checkpoints,
        progress=progress,
    )
    design = Design.of(over)
    on_divergence = checked(on_divergence, design)
    rows, device = as_rows(data, training.likelihood), compute.torch_device
    if rows.joined is not None and training.augment is not None:
        raise ValueError("augment takes one tensor of inputs, and x holds several: augment them in a Dataset")
    if held_out is not None and not isinstance(held_out, Real):
        held_out = as_rows(held_out, training.likelihood, rows.classes).that_count
        check_same(rows.joined, held_out.joined)
        for index in [slice(None)] if folds is None else folds:
            check_apart(rows.take(index).that_count, held_out)
    together = None if groups is None else np.asarray(groups)
    if together is not None and together.shape != (len(rows),):
        raise ValueError(f"groups must have one entry for each of the {len(rows)} rows, not shape {together.shape}")
    parts = [
        Fold.of(
            training,
            rows.take(index),
            int(seed) + number,
            held_out,
            None if together is None else together[index],
            design.parts,
        )
        for number, index in enumerate([slice(None)] if folds is None else folds)
    ]
    example = parts[0].scaler.x(parts[0].trained_on.x[:PROBE_ROWS], compute.dtype)
    networks = build_networks(
        training, design, design.dropout, example, rows.targets, int(seed), rows.x_names, rows.joined
    )
    networks = {family: network.to(device) for family, network in networks.items()}
    work = [(fold, design.runs(fold.seed)) for fold in parts]
    with nullcontext() if store is None else keeping(store, training, design, networks, parts, compute) as kept:
        if kept is not None and compute.checkpoints is None and compute.executes_here:
            compute = replace(compute, checkpoints=kept.checkpoints)
        trained = train_runs(training, networks, design, work, compute, kept)
        how, origin = compute.without_company.with_numbers, Origin(dropout=design.dropout)
        posteriors = [
            Posterior(training, design, networks, fold, how, tuple(members), origin)
            for fold, members in zip(parts, trained, strict=True)
        ]
        if on_divergence == "redraw":
            posteriors = redrawn(posteriors, compute, kept=kept)
        posteriors = without_diverged(posteriors, on_divergence)
        if kept is not None:
            kept.finish(posteriors, is_one=folds is None)
    return posteriors[0] if folds is None else posteriors


def marginalise_folds(
    training: Training[P],
    data: Any,
    folds: Sequence[Any],
    over: Sequence[Any],
    seed: int = 0,
    **others: Unpack[Options],
) -> list[Posterior[P]]:
    """Return one posterior for each fold, as `marginalise(..., folds=folds)` does.

    training: as for `marginalise`.
    data: as for `marginalise`.
    folds: as for `marginalise`.
    over: as for `marginalise`.
    seed: seed of all random choices (default 0).
    others: other arguments of `marginalise`.
    """
    return marginalise(training, data, over, seed, folds=folds, **others)
