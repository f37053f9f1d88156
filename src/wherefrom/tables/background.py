"""The target's own distribution: what is known of a row without its columns, for rows that are outside.

It is that of all training rows or, in tables that were fitted by groups, that of the row's group if it has 50 training
rows at least: fewer say too little of how far a further one can lie. It is stretched where it has to be, so that it is
as wide as 99% of the networks' own predictions: an unknown row may be one of the noisiest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.posterior import Posterior
from wherefrom.predictive.background import Background
from wherefrom.tables.columns import Encoded
from wherefrom.tables.raw import RawTable
from wherefrom.training import streams

_FEWEST = 50  # rows of a group that has its own distribution
_LOOKED_AT, _SAMPLES = 500, 100  # training rows, by whose predictions it is stretched, and samples of all networks


def groups_of(table: RawTable, column: str | None) -> NDArray[np.object_] | None:
    """Name of each row's group, empty where it is missing; None without such a column."""
    if column is None or column not in table.columns:
        return None
    return np.array(table.columns[column].cells(), dtype=object)


def background_of(
    posterior: Posterior, x: Encoded, y: Any, groups: NDArray[np.object_] | None, level: float, samples: int
) -> Background:
    """Learn from training rows; `groups` names the group of each.

    Intervals of this level, and at most `samples` samples of each network, say how wide it must be.
    """
    likelihood, schema = posterior.training.likelihood, posterior.schema
    encoded = likelihood.encode(y, schema.classes).y
    names, rows = ((), ()) if groups is None else _large(groups)
    each = [likelihood.background(encoded[some], posterior.scaler, schema.targets) for some in (slice(None), *rows)]
    points, noise = (torch.stack(parts) for parts in zip(*each, strict=True))
    background = Background(points, noise, torch.ones(points.shape[-1], dtype=torch.float64), names)
    order = streams.generator(posterior.seed, "tables", "background").permutation(len(x))[:_LOOKED_AT]
    some = posterior.predict(x.take(np.sort(order)), min(samples, -(-_SAMPLES // len(posterior))))
    return replace(background, stretch=some.needed_stretch(background, level))


def _large(groups: NDArray[np.object_]) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """Names of the groups that have enough rows, and the rows of each."""
    names, number, counts = np.unique(groups.astype(str), return_inverse=True, return_counts=True)
    large = [k for k in np.flatnonzero(counts >= _FEWEST).tolist() if names[k]]
    return tuple(str(names[k]) for k in large), [np.flatnonzero(number == k) for k in large]
