"""When to stop: one trajectory shows what a training of any number of epochs would have left.

Networks are trained on some of the rows, and their trajectories kept. A training of E epochs would leave the iterate at
E or, where t is marginalised, a law around the mean of the later half of its iterates; both can be scored for every E
on the rows that were set aside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.laws import Snapshots
from wherefrom.laws.law import Points
from wherefrom.posterior.member import Member
from wherefrom.posterior.posterior import Posterior
from wherefrom.posterior.predicting import member_scores
from wherefrom.predictive.shape import shape_gains
from wherefrom.training import streams
from wherefrom.variables import Iterations

_KEPT = 20  # iterates of a trajectory
_FOLDS = 5
_ENOUGH_ROWS, _MOST_ROWS = 600, 2000  # held-out rows: folds are tried until there are 600, and cut to 2,000
_AS_GOOD = 0.002  # nats a row for which it does not pay to train longer

Integers = NDArray[np.int64]


def spacing(epochs: int) -> int:
    """Return how many epochs lie between the kept iterates of a training that may become longer."""
    return max(1, epochs // _KEPT)


def kept_trajectory(epochs: int, every: int) -> Iterations:
    """Return the variable that keeps the iterates of a whole training.

    every: epochs between them in a short training; in longer ones it is doubled until they are not too many, so that
        those of a longer training are among those of a shorter one where both exist.
    """
    return Iterations(Snapshots(max(2, epochs // _every(epochs, every))), start=0.0)


def even(epochs: int, every: int) -> int:
    """Return these epochs, or a few less, so that the last iterate is among those that are kept."""
    every = _every(epochs, every)
    return max(1, epochs // every) * every


def _every(epochs: int, every: int) -> int:
    while epochs // every >= 2 * _KEPT:
        every *= 2
    return every


def folds(copies: Integers, y: NDArray[Any], seed: int) -> list[tuple[Integers, Integers]]:
    """Cut the rows into those to train on and those to score by, several times: few rows are all scored once.

    Rows are dealt out along y, so that all folds are alike in it; those with the same number in `copies` stay together.
    """
    _, firsts, groups = np.unique(copies, return_index=True, return_inverse=True)
    ranks = np.unique(y[firsts], return_inverse=True)[1].reshape(-1)
    order = np.lexsort((streams.generator(seed, "folds").permutation(len(firsts)), ranks))
    fold = np.empty(len(firsts), dtype=np.int64)
    fold[order] = np.arange(len(firsts)) % _FOLDS
    count = min(_FOLDS, math.ceil(_ENOUGH_ROWS * _FOLDS / len(firsts)))
    aside = [order[fold[order] == k] for k in range(count)]
    is_aside = [np.isin(groups, each[:: -(-len(each) // _MOST_ROWS)]) for each in aside]  # evenly along y, where cut
    return [(np.flatnonzero(~each), np.flatnonzero(each)) for each in is_aside]


@dataclass(frozen=True, eq=False)
class Stops:
    """Scores of networks that stopped after some numbers of epochs, on each row that was set aside."""

    epochs: tuple[int, ...]
    nll: Tensor  # (len(epochs), rows)
    crps: Tensor  # of classes, the Brier score
    deviation: Tensor | None  # (len(epochs), rows, outputs), where the shape of y can be fitted

    def first_good(self) -> int:
        """Return the number of the first that is nearly as good as the best."""
        scores = self.nll.mean(1).tolist()
        lowest = min(scores)
        return next(number for number, score in enumerate(scores) if score <= lowest + _AS_GOOD or lowest == math.inf)

    def shaped_nll(self, stop: int) -> Tensor:
        """Return the NLL of each row after a stop, under the shape that the other rows have.  # (rows,)"""
        if self.deviation is None or not bool(self.deviation[stop].isfinite().all()):
            return self.nll[stop]
        return self.nll[stop] - shape_gains(self.deviation[stop])


def scored(posteriors: Sequence[Posterior], members: Sequence[Member], aside: Sequence[Any], averages: bool) -> Stops:
    """Score what each fold's member would have been after every number of epochs, on the rows set aside of that fold.

    `averages` where t is marginalised.
    """
    stops = [_after_epochs(*each, averages) for each in zip(posteriors, members, strict=True)]
    scores = [member_scores(networks, rows) for (_, networks), rows in zip(stops, aside, strict=True)]
    nll, crps = (torch.cat([getattr(each, name) for each in scores], 1) for name in ("nll", "crps"))
    deviations = [each.deviation for each in scores if each.deviation is not None]
    return Stops(stops[0][0], nll, crps, torch.cat(deviations, 1) if deviations else None)


def _after_epochs(posterior: Posterior, member: Member, averages: bool) -> tuple[tuple[int, ...], Posterior]:
    """Return numbers of epochs, and the networks that they would leave, as members of one posterior."""
    law, epochs = member.trained.law, posterior.training.epochs
    assert isinstance(law, Points)
    count = len(law.points)
    run = replace(member.run, labels={})
    stopped = []
    for theta in law.stops(averages):
        last = torch.cat([theta.to(member.trained.last), member.trained.last[len(theta) :]])
        stopped.append(replace(member, run=run, trained=replace(member.trained, last=last)))
    seen = tuple(round((k + 1) * epochs / count) for k in range(count))
    return seen, replace(posterior.marginalising(), mixture=tuple(stopped))
