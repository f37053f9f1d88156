"""The rows that a posterior is of: those it trains on, those it holds out, and how the networks see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.posterior.point import Training
from wherefrom.training import streams
from wherefrom.training.data import Rows, Scaler, Schema


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows of one posterior, what they look like and how they are scaled, and the seed of all that is drawn.

    A file holds no rows: after loading, the rest is known, and the rows are not.
    """

    seed: int
    schema: Schema
    scaler: Scaler
    rows: Rows | None = None  # to train on
    held_out: Rows | None = None  # to fit the noise on, and to judge the members by
    aside: Tensor | None = None  # numbers of the rows that were held out, among all that count
    parts: Tensor | None = None  # (rows,), where D leaves one part of the rows out of each draw: the part of each row

    @classmethod
    def of(
        cls,
        training: Training,
        rows: Rows,
        seed: int,
        held_out: Rows | float | None = None,
        groups: Any = None,
        parts: int = 0,
    ) -> Fold:
        """Hold rows out where the noise is to be fitted on them; rows that weigh nothing are left out of both.

        `held_out` are other rows to take for it, or the fraction to hold out, instead of the likelihood's; rows of one
        of the `groups` stay together. With `parts`, none are held out: D cuts the rows into this many parts.
        """
        if groups is not None and rows.weights is not None:
            groups = np.asarray(groups)[(rows.weights > 0).numpy()]
        rows = rows.that_count
        share = training.likelihood.held_out if training.likelihood.fits_noise else 0.0
        if isinstance(held_out, Rows) or training.is_elsewhere or (parts and held_out is None):
            share = 0.0
        elif held_out is not None:
            share = float(held_out)
            if isinstance(held_out, bool) or not 0 < share < 1:
                raise ValueError(f"held_out is a fraction of the rows, between 0 and 1, or rows (x, y); not {held_out}")
        aside = None
        if share:
            aside = torch.from_numpy(np.flatnonzero(_drawn_apart(len(rows), share, groups, seed)))
            if len(aside) < 2 or len(rows) - len(aside) < 1:
                raise ValueError(
                    f"fitting the noise would hold {len(aside)} of {len(rows)} rows out, which is too few; raise "
                    "held_out, or give the noise as a number"
                )
        if groups is not None and aside is not None:
            groups = np.delete(np.asarray(groups), aside.numpy())
        rows, drawn = _cut(rows, aside)
        held_out = held_out if isinstance(held_out, Rows) else drawn
        scaler = Scaler.of(rows, training.standardise, training.likelihood)
        dealt = torch.from_numpy(dealt_out(rows.y[:, 0].numpy(), groups, parts, seed)) if parts else None
        return cls(seed, rows.schema, scaler, rows, held_out, aside, dealt)

    @property
    def trained_on(self) -> Rows:
        """The rows to train on, where they are at hand."""
        if self.rows is None:
            raise ValueError("a loaded posterior has no data: give it again, as wf.load(folder, model, data=(x, y))")
        return self.rows

    def with_rows(self, rows: Rows) -> Fold:
        """Take up the rows that it was made of, given again, and hold the same ones out; others are refused."""
        rows = rows.that_count
        if self.aside is None or int(self.aside.max()) < len(rows):
            trained_on, drawn = _cut(rows, self.aside)
            if not self.schema.digest or trained_on.schema.digest == self.schema.digest:
                return replace(self, rows=trained_on, held_out=drawn)
        raise ValueError("this is not the data that the posterior was trained on")


def dealt_out(y: NDArray[Any], groups: Any, parts: int, seed: int) -> NDArray[np.int64]:
    """Deal the rows out to `parts` parts, along y, so that all are alike in it; a group goes to one of them.  # (rows,)

    A part that has the fewest rows comes first, so that large groups leave no part empty.
    """
    together = np.arange(len(y)) if groups is None else np.asarray(groups)
    _, first, numbers = np.unique(together, return_index=True, return_inverse=True)
    if len(first) < parts:
        what = "rows" if groups is None else "groups of rows"
        raise ValueError(f"{len(first)} {what} cannot be cut into {parts} folds: draw fewer")
    ranks = np.unique(y[first], return_inverse=True)[1].reshape(-1)
    order = np.lexsort((streams.generator(seed, "folds").permutation(len(first)), ranks))
    part = np.empty(len(first), dtype=np.int64)
    if groups is None:
        part[order] = np.arange(len(first)) % parts
        return part[numbers]
    sizes, rows = np.bincount(numbers), np.zeros(parts, dtype=np.int64)
    for start in range(0, len(order), parts):  # each part takes one of the next groups, the smallest part the largest
        some = order[start : start + parts]
        some = some[np.argsort(-sizes[some], kind="stable")]
        smallest = np.argsort(rows, kind="stable")[: len(some)]
        part[some] = smallest
        rows[smallest] += sizes[some]
    return part[numbers]


def _cut(rows: Rows, aside: Tensor | None) -> tuple[Rows, Rows | None]:
    """Return the rows to train on, and those that are set aside."""
    if aside is None:
        return rows, None
    is_aside = torch.zeros(len(rows), dtype=torch.bool)
    is_aside[aside] = True
    return rows.take(~is_aside), rows.take(is_aside)


def _drawn_apart(rows: int, share: float, groups: Any, seed: int) -> NDArray[np.bool_]:
    """Draw rows to hold out: whole groups in random order, to the nearest, and at least two of four.  # (rows,)"""
    numbers = np.arange(rows) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if numbers.shape != (rows,):
        raise ValueError(f"groups must have one entry for each of the {rows} rows, not shape {numbers.shape}")
    sizes, room = np.bincount(numbers), round(rows * share)
    fewest = 0 if groups is None else min(2, len(sizes) // 2)
    chosen: list[int] = []
    for group in streams.generator(seed, "held out").permutation(len(sizes)).tolist():
        if 2 * room >= sizes[group] or len(chosen) < fewest:
            chosen.append(group)
            room -= int(sizes[group])
        if room <= 0 and len(chosen) >= fewest:
            break
    return np.isin(numbers, chosen)
