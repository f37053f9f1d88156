"""Training under doubt: draw the choices, train every draw, and return the posterior that marginalises them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wherefrom.posterior.growth import Divergence, finished
from wherefrom.posterior.members import Execution, Fold, build_networks, train_runs
from wherefrom.posterior.point import Training
from wherefrom.posterior.posterior import Posterior
from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.data import as_rows
from wherefrom.training.engines import Choice
from wherefrom.training.progress import Show
from wherefrom.training.workers import available
from wherefrom.variables import Design


def marginalise(
    training: Training,
    data: Any,
    over: Sequence[Any],
    seed: int = 0,
    *,
    held_out: Any = None,
    groups: Any = None,
    **how: Any,
) -> Posterior:
    """Train every draw of the variables in `over`, and return the posterior that marginalises them.

    `data` is (x, y) or (x, y, weights) of arrays, tensors or frames, or a map-style torch Dataset.

    `held_out` are rows (x, y) that were not trained on, to fit the noise on, or the fraction of `data` to hold out for
    it, instead of the likelihood's own. Rows with the same entry in `groups` are trained on, or held out, together.

    `engine` is "torch" (any network, any device), "native" (plain MLPs on a CPU, several times as fast; needs numba) or
    "auto" (native where it can be and is worth a compilation). `autocast=torch.bfloat16` multiplies in half the bits
    while training, for devices that are faster so; weights and steps stay as they are. `workers` counts threads
    (default: all cores); `progress` shows a bar (default: on a terminal), or is a function to call with the members'
    epochs done since. When members diverge, the error names them and holds the others; `on_divergence="keep"` goes on
    with the others. `checkpoints="folder"` writes every training down about once a minute, so that the same call goes
    on where it was interrupted (`wf.Checkpoints`).

    Same seed, same members: alone, among others, on any number of workers, or extended later.
    """
    (posterior,) = marginalise_folds(training, data, [slice(None)], over, seed, held_out=held_out, groups=groups, **how)
    return posterior


def marginalise_folds(
    training: Training,
    data: Any,
    folds: Sequence[Any],
    over: Sequence[Any],
    seed: int = 0,
    *,
    dtype: torch.dtype = torch.float32,
    autocast: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    engine: Choice = "auto",
    workers: int | None = None,
    checkpoints: str | Path | Checkpoints | None = None,
    on_divergence: Divergence = "raise",
    progress: Show = None,
    held_out: Any = None,
    groups: Any = None,
) -> list[Posterior]:
    """Return one posterior for each fold (the indices of its training rows), all of them trained together.

    Fold k is what `marginalise` gives on its rows with seed + k.
    """
    if on_divergence not in ("raise", "keep"):
        raise ValueError(f'on_divergence must be "raise" or "keep", not {on_divergence!r}')
    if not isinstance(seed, Integral):
        raise TypeError(f"seed must be a whole number, not {seed!r}")
    seed = int(seed)
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype}")
    if autocast not in (None, torch.bfloat16):
        raise ValueError(f"autocast must be None or torch.bfloat16, whose range is that of float32, not {autocast}")
    if not folds:
        raise ValueError("there are no folds to train on")
    rows, place, design = as_rows(data, training.likelihood), available(device), Design.of(over)
    if held_out is not None and not isinstance(held_out, Real):
        held_out = as_rows(held_out, training.likelihood, rows.classes).that_count
    together = None if groups is None else np.asarray(groups)
    work = [
        Fold.of(training, rows.take(index), seed + number, held_out, None if together is None else together[index])
        for number, index in enumerate(folds)
    ]
    example = work[0].scaler.x(work[0].rows.x, dtype)
    networks = build_networks(training, design, design.dropout, example, rows.targets, seed)
    networks = {family: network.to(place) for family, network in networks.items()}
    jobs = [(fold, design.runs(fold.seed)) for fold in work]
    how = Execution(dtype, place, engine, workers, progress, autocast, Checkpoints.of(checkpoints))
    trained = train_runs(training, networks, design, jobs, how)
    empty = [
        Posterior(
            training,
            design,
            fold.seed,
            networks,
            fold.scaler,
            fold.rows.schema,
            dtype,
            place,
            rows=fold.rows,
            held_out=fold.held_out,
            dropping=design.dropout,
            autocast=autocast,
        )
        for fold in work
    ]
    return finished(list(zip(empty, trained, strict=True)), on_divergence)
