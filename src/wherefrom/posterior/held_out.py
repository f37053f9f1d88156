"""Rows that were not trained on, to judge the members by, and a check that they were not."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.files.digests import row_hashes
from wherefrom.posterior.caller import users_stacklevel
from wherefrom.training.data import Rows, as_rows
from wherefrom.training.joined import check_same
from wherefrom.training.streamed import in_memory

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

_WARNED, _REFUSED = 0.1, 0.5  # parts of some rows that were trained on
_ROWS_AT_ONCE = 2**16
_COARSE = 10  # where trained rows are so often the same, others hold them all by chance


def like_training(posterior: Posterior, data: Any) -> Rows:
    """Data of the kind that the posterior was trained on."""
    rows = as_rows(data, posterior.training.likelihood, posterior.schema.classes)
    check_same(posterior.schema.joined, rows.joined)
    return rows


def not_trained_on(posterior: Posterior, data: Any, call: str) -> Rows:
    """The rows that are given, or held out: refused if they are those that were trained on."""
    if data is None:
        if posterior.held_out is None:
            raise ValueError(f"{call} needs rows that were not trained on")
        return posterior.held_out
    rows = like_training(posterior, data).that_count
    if rows.left_out_by is not None:  # each is judged by members that did not see it
        return rows
    _refuse(part_trained_on(posterior, rows))
    return rows


def held_out_of(posterior: Posterior, data: Any) -> Rows | None:
    """Return the rows that were held out of these, where they are the posterior's own data; None if they are not."""
    if posterior.fold.aside is None:
        return None
    try:
        return posterior.fold.with_rows(like_training(posterior, data)).held_out
    except ValueError:
        return None


def check_apart(trained: Rows, given: Rows) -> None:
    """Raise, or warn, if rows that are to judge the members are among those to train on."""
    _refuse(_overlap(trained, given))


def _refuse(overlap: float) -> None:
    """Raise if most of some rows were trained on, and warn if some of them were."""
    if overlap == 1:
        raise ValueError("these are the rows that the members were trained on: give others")
    if overlap >= _REFUSED:
        raise ValueError(f"{overlap:.0%} of these rows were trained on: give others")
    if overlap >= _WARNED:
        warnings.warn(
            f"{overlap:.0%} of these rows were trained on, which flatters the members", stacklevel=users_stacklevel()
        )


def part_trained_on(posterior: Posterior, rows: Rows) -> float:
    """Share of these rows that is known to have been trained on: all, if they contain all that was."""
    if any(_is_training_data(posterior, each) for each in (rows, replace(rows, weights=None))):
        return 1.0
    return 0.0 if posterior.rows is None else _overlap(posterior.rows, rows)


def _is_training_data(posterior: Posterior, rows: Rows) -> bool:
    """Compare digests: of what was trained on, alone or with what was held out of it to fit the noise."""
    trained_on = posterior.schema.digest
    if not trained_on:
        return False
    if rows.schema.digest == trained_on:
        return True
    try:
        posterior.fold.with_rows(rows)
    except ValueError:
        return False
    return True


def _overlap(trained: Rows, given: Rows) -> float:
    """The part of the given rows that was trained on, or 1 if they hold all that was; 0 if it may be chance.

    A new row equals some trained one about as often as trained ones equal each other.
    """
    is_single = torch.float32 in (trained.x.dtype, given.x.dtype)
    before, now = (_hashes(rows, is_single) for rows in (trained, given))
    different, counts = np.unique(before, return_counts=True)
    is_all = bool(np.isin(different, now).all())  # of those that were trained on
    if (is_all and len(trained) <= _COARSE * len(different)) or np.array_equal(np.sort(before), np.sort(now)):
        return 1.0
    overlap = float(np.isin(now, different).mean())
    chance = 1 - float((counts == 1).sum()) / len(trained)
    margin = 2 * math.sqrt(chance * (1 - chance) / len(given))
    return overlap if overlap - chance - margin >= _WARNED else 0.0


def _hashes(rows: Rows, is_single: bool) -> NDArray[np.uint64]:
    """Return a number for every row that equal rows share, as it is or in single precision, which y may have come in.

    A few rows at a time.  # (rows,)
    """
    each = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        x, y = (in_memory(part[start : start + _ROWS_AT_ONCE]).numpy() for part in (rows.x, rows.y))
        x = x.reshape(len(x), -1)
        each.append(row_hashes(x.astype(np.float32) if is_single else x, y.astype(np.float32)))
    return np.concatenate(each)
