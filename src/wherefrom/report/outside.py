"""Rows unlike those of training: how far outside each is, and whether there is more doubt the farther out.

Users flag such rows or give a score; left out, it is the distance to the nearest training row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.posterior import Posterior
from wherefrom.predictive.class_scores import auroc
from wherefrom.predictive.panels import Output, counted, log_from, percent, short, thinned
from wherefrom.predictive.row_scores import finite_or_none
from wherefrom.training.data import Rows

_MOST_PRODUCTS = 2e10  # of numbers, for distances to the training rows
_FEW = 1000  # training rows whose distances among each other are looked at
_FARTHER = "farther out than 95% of the training rows are from each other"


@dataclass(frozen=True, eq=False)
class Outside:
    """Distances of rows from the training data."""

    kind: str  # flag, score or distance
    values: Tensor  # (rows,)
    edge: float | None  # beyond which a row is outside, or farther out than most

    @property
    def is_beyond(self) -> Tensor:
        return self.values > (math.inf if self.edge is None else self.edge)

    @property
    def _word(self) -> str:
        return "far out" if self.kind == "distance" else "outside"

    def columns(self, listed: Tensor) -> dict[str, Any]:
        """Columns of the listed rows, as `Output.shown` has them, and how rows beyond the edge are marked."""
        name = "distance to the nearest training row" if self.kind == "distance" else "how far outside"
        title = "Unlike the rows that were trained on: its prediction is a guess, even if it looks sure"
        return {
            "edge": self.edge,
            "word": self._word,
            "title": _FARTHER.capitalize() if self.kind == "distance" else title,
            "points": {"outside": short(self.values[listed]), "is_beyond": self.is_beyond[listed].int().tolist()},
            "fields": {} if self.kind == "flag" else {"outside": {"name": name, "as": "number"}},
        }

    def shown(self, output: Output, axis: dict[str, Any], count: int) -> dict[str, Any]:
        """Title, lead and panel of one output: its doubt by how far outside the rows are."""
        doubt, far = output.spread(), int(self.is_beyond.sum())
        sure = int((self.is_beyond & (doubt < doubt.median())).sum())
        if self.kind == "flag":
            return self._flags(doubt, axis)
        rank, is_distance = _rank_correlation(self.values, doubt), self.kind == "distance"
        label, lead = "how far outside", ""
        if self.edge is not None:
            label = f"how far outside (the edge is at {self.edge:.3g})"
        if is_distance:
            label = "distance to the nearest training row (1 is usual)"
            lead = "Distances are to the nearest training row; 1 is usual among training rows."
        return {
            "title": "Rows unlike the training data",
            "lead": (lead + self._about_far(far, sure, count, rank) + _together(rank, self.kind)).strip(),
            "far": far,
            "panel": {
                "type": "scatter",
                "wide": True,
                "title": "Doubt against distance from the training rows",
                "height": 320,
                "x": {"key": "outside", "label": label, "least": 0.0, "log_from": log_from(self.values)},
                "y": axis,
                "also": "is_beyond",
                "miss": "is_beyond",
                "legend": ["nearer" if is_distance else "inside", self._word] if far else None,
                "edge": self.edge,
                "foot": None if self.edge is None else f"Shaded: {_FARTHER if is_distance else 'outside'}.",
                "tip": ["outside", axis["key"]],
            },
        }

    def _flags(self, doubt: Tensor, axis: dict[str, Any]) -> dict[str, Any]:
        beyond = self.is_beyond
        far, lead = int(beyond.sum()), "All rows are of one kind, so there is nothing to tell apart."
        if 0 < far < len(beyond):
            part = auroc(doubt[~beyond], doubt[beyond])
            finds = _first(
                part,
                (0.9, "doubt finds them"),
                (0.7, "doubt finds many of them"),
                (0.58, "doubt is a weak guide to them"),
                (-1.0, "doubt does not find them"),
            )
            lead = (
                f"{counted(far, 'row')} {'is' if far == 1 else 'are'} outside. A row from outside has more doubt than "
                f"one from inside {percent(part)} of the time: {finds}. Half the time would be chance."
            )
        panel = {
            "type": "strips",
            "wide": True,
            "label": "Doubt of rows from inside and from outside",
            "x": axis,
            "by": "is_beyond",
            "names": ["inside", "outside"],
        }
        return {"title": "Rows from elsewhere", "lead": lead, "far": far, "panel": panel}

    def _about_far(self, far: int, sure: int, count: int, rank: float | None) -> str:
        if self.edge is None:
            return ""
        where = f"{'is' if far < 2 else 'are'} outside (above {self.edge:.3g})"
        if self.kind == "distance":
            where = f"{'lies' if far < 2 else 'lie'} {_FARTHER}"
        if not far:
            return f" No row of {count:,} {where}."
        if rank is None:  # all rows have the same doubt
            return f" {counted(far, 'row')} of {count:,} {where}."
        unsure = f"{'it has no' if far == 1 else 'none of them has'} less doubt than the median row, as it should be"
        if sure:
            who = "it has" if far == 1 else "one of them has" if sure == 1 else f"{sure:,} of them have"
            unsure = f"{who} less doubt than the median row: do not rely on {'that' if sure == 1 else 'those'}"
        return f" {counted(far, 'row')} of {count:,} {where}; {unsure}."


def outside_rows(posterior: Posterior, given: Rows, outside: Any, edge: float | None) -> Outside | None:
    """Return the flags or scores that are given, else distances, where the training rows are at hand."""
    if edge is not None and outside is None:
        raise ValueError("edge is the score beyond which a row is outside: give these scores, too, as outside")
    if outside is not None:
        values = np.asarray(outside.detach().cpu() if isinstance(outside, Tensor) else outside)
        if values.shape != (len(given),):
            raise ValueError(f"outside has shape {values.shape}: give one flag or score for each of {len(given)} rows")
        is_flag = values.dtype == bool
        scores = torch.from_numpy(values.astype(np.float64))
        return Outside("flag" if is_flag else "score", scores, 0.5 if is_flag else edge)
    if posterior.rows is None or not posterior.rows.x.is_floating_point():
        return None
    return _distances(posterior.scaler.x(posterior.rows.x, torch.float64), posterior.scaler.x(given.x, torch.float64))


def _distances(trained: Tensor, new: Tensor) -> Outside | None:
    """Distance of each row to the nearest training row, in units of what is usual between training rows."""
    trained, new = trained.flatten(1), new.flatten(1)
    trained = trained[thinned(len(trained), max(_FEW, int(_MOST_PRODUCTS / (new.numel() + 1))))]
    some = trained[thinned(len(trained), _FEW)]
    if len(some) < 3:
        return None
    among = torch.cdist(some, trained).topk(2, largest=False).values[:, 1]  # the nearest is the row itself
    usual = float(among.median())
    if not usual > 0:
        usual = float(among.mean()) or 1.0
    nearest = torch.cat([torch.cdist(block, trained).amin(1) for block in new.split(1000)])
    return Outside("distance", nearest / usual, float(among.quantile(0.95)) / usual)


def _rank_correlation(one: Tensor, other: Tensor) -> float | None:
    ranks = torch.stack([values.double().argsort().argsort().double() for values in (one, other)])
    if len(one) < 3 or not float(one.std()) or not float(other.std()):
        return None
    return finite_or_none(float(torch.corrcoef(ranks)[0, 1]))


def _together(rank: float | None, what: str) -> str:
    if rank is None:
        return ""
    how = _first(
        rank,
        (0.5, "rise together"),
        (0.2, "rise together, loosely"),
        (-0.2, "are hardly related"),
        (-2.0, "go opposite ways"),
    )
    return f" Doubt and {what} {how} (rank correlation {rank:.2f})."


def _first(value: float, *steps: tuple[float, str]) -> str:
    """The text of the first step that the value is above."""
    return next(text for least, text in steps if value > least)
