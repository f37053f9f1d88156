"""Weights of the members of a mixture, chosen by rows that no member was trained on.

    p(y | x, D) = sum_m w_m p_m(y | x),      w_m >= 0,      sum_m w_m = 1

Both ways to choose look only at the members' log densities log p_m(y_r | x_r), a table of members by rows, and want the
mixture's mean log density over the rows to be large. It is concave in w, so the best weights can be found, and known to
be the best: with the gain g_m = mean_r p_m / p of each member, no weights are better by more than max_m g_m - 1.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import torch
from torch import Tensor

from wherefrom.predictive import gaussians
from wherefrom.training.workers import one_core

_RIDGE = 1e-10  # next to the diagonal: members that are the same, or more members than rows, leave it singular
_LEAST_STEP = 1e-4
_IMPOSSIBLE = -1e6  # what a row that a member rules out costs it in a greedy choice, next to the row's best
_ROUNDING = 1e-12


@one_core()
def stacking(log_densities: Any, tolerance: float = 1e-8, most: int = 500) -> Tensor:
    """The weights under which the mixture makes the rows most likely.  # (members, rows) -> (members,)

    No other weights give a mean log density that is larger by more than the tolerance. Members that do not help weigh
    exactly nothing. A density may be zero (-inf; what is not a number counts as that); a row that no member allows says
    nothing about them. `most` bounds the steps; a few are enough.

    >>> stacking([[0.0, 0.0, -9.0], [-9.0, -9.0, 0.0], [-5.0, -5.0, -5.0]]).round(decimals=2)
    tensor([0.6700, 0.3300, 0.0000], dtype=torch.float64)
    """
    densities = _relative(log_densities).exp()
    members, rows = densities.shape
    weights = torch.full((members,), 1 / members, dtype=torch.float64)
    # At the best weights no gain exceeds 1, so there the mixture has at least 1 / rows of every row's best density.
    # To stay within that, with a margin, keeps all ratios in bounds.
    least = 0.5 / max(members, rows)
    for _ in range(most):
        mixture = weights @ densities
        gain = densities @ mixture.reciprocal() / rows
        if (gap := float(gain.max()) - 1) <= tolerance:
            return weights
        weights = _step(densities, mixture, gain, weights, least)
    warnings.warn(
        f"after {most} steps, other weights could still raise the mean log density by as much as {gap:.1g}",
        stacklevel=3,
    )
    return weights


def crps_stacking(means: Any, variances: Any, y: Any, rows: Any = None) -> Tensor:
    """Return the weights under which a mixture of Gaussians has the lowest CRPS.  # (members,)

    The CRPS of a mixture is w A - w B w / 2, with A_m = E|X_m - y| and B_mn = E|X_m - X_n|, which is convex in w. So
    the best weights can be solved for on every subset of the members, of which there should be few. Unlike a
    likelihood, it does not hang on a few rows that are far off.

    means, variances: of each member's answer to each row.  # (members, rows)
    rows: how much each row counts (default: all the same).  # (rows,)

    >>> truth = torch.zeros(4)
    >>> crps_stacking([[1.0, 1, 1, 1], [-1, -1, -1, -1], [9, 9, 9, 9]], torch.ones(3, 4), truth).round(decimals=2)
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    means, variances, y = (torch.as_tensor(each, dtype=torch.float64) for each in (means, variances, y))
    counts = torch.ones_like(y) if rows is None else torch.as_tensor(rows, dtype=torch.float64)
    shares = counts / counts.sum()
    to_truth = gaussians.mean_distance(means - y, variances) @ shares
    pairs = gaussians.mean_distance(means[:, None] - means, variances[:, None] + variances) @ shares
    best, lowest = torch.zeros(len(means), dtype=torch.float64), math.inf
    for size in range(1, len(means) + 1):
        for some in map(list, itertools.combinations(range(len(means)), size)):
            weights = _on_subset(to_truth[some], pairs[some][:, some])
            if weights is None:
                continue
            score = float(weights @ to_truth[some] - weights @ pairs[some][:, some] @ weights / 2)
            if score < lowest - _ROUNDING:
                best, lowest = torch.zeros_like(best).index_copy(0, torch.tensor(some), weights), score
    return best


def _on_subset(to_truth: Tensor, pairs: Tensor) -> Tensor | None:
    """Return where w A - w B w / 2 is stationary among weights that add up to one; None if some are below zero."""
    count = len(to_truth)
    system = torch.ones(count + 1, count + 1, dtype=torch.float64)
    system[:count, :count], system[count, count] = -pairs, 0.0
    right = torch.cat([-to_truth, torch.ones(1, dtype=torch.float64)])
    weights = torch.linalg.lstsq(system, right.unsqueeze(1)).solution[:count, 0]
    return weights / weights.sum() if bool((weights >= 0).all()) and float(weights.sum()) > 0 else None


@one_core()
def greedy(log_densities: Any, size: int, *, distinct: int | None = None) -> Tensor:
    """The weights of a greedy choice with replacement, in multiples of 1 / picks.  # (members, rows) -> (members,)

    It begins with the best member, and adds the one, possibly again, with which the mixture of all picks has the
    largest mean log density, until there are `size` picks or none is any better (Caruana et al. 2004; hyper-deep
    ensembles, Wenzel et al. 2020). With `distinct`, there are at most this many different members among the picks. Of
    equals, the first is taken.

    >>> greedy([[0.0, 0.0, -9.0], [-9.0, -9.0, 0.0], [-5.0, -5.0, -5.0]], size=3).round(decimals=2)
    tensor([0.6700, 0.3300, 0.0000], dtype=torch.float64)
    """
    for name, number in (("size", size), ("distinct", 1 if distinct is None else distinct)):
        if int(number) != number or number < 1:
            raise ValueError(f"{name} must be a whole number, at least 1; it is {number}")
    logs = _relative(log_densities).clamp_min(_IMPOSSIBLE)
    picks = torch.zeros(len(logs), dtype=torch.float64)
    total, score = torch.full_like(logs[0], -math.inf), -math.inf  # the sum of the densities that were picked
    for count in range(1, size + 1):
        is_full = distinct is not None and int((picks > 0).sum()) >= distinct
        candidates = torch.nonzero(picks > 0 if is_full else picks >= 0).flatten()
        sums = torch.logaddexp(total, logs[candidates])
        scores = sums.mean(1) - math.log(count)
        best = int(scores.argmax())
        if float(scores[best]) <= score + _ROUNDING * (1 + abs(score)):
            break
        picks[candidates[best]] += 1
        total, score = sums[best], float(scores[best])
    return picks / picks.sum()


def normalised(weights: Any, members: int) -> Tensor:
    """Weights that a user gives, one for each member, scaled so that they add up to one.

    >>> normalised([2, 1, 1], members=3)
    tensor([0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """
    given = torch.as_tensor(weights, dtype=torch.float64)
    if given.shape != (members,):
        raise ValueError(f"give one weight for each of the {members} members, not {tuple(given.shape)}")
    if not bool((given.isfinite() & (given >= 0)).all()) or not bool(given.any()):
        raise ValueError(f"weights are numbers from zero on, not all of them zero; these are {given.tolist()}")
    return given / given.sum()


def _relative(log_densities: Any) -> Tensor:
    """Log densities less the best of each row, for the rows that some member allows.  # (members, rows)"""
    logs = torch.as_tensor(log_densities, dtype=torch.float64)
    if logs.ndim != 2 or not logs.numel():
        raise ValueError(f"log densities are a table of members by rows; this one has shape {tuple(logs.shape)}")
    if bool((logs == math.inf).any()):
        raise ValueError("a member's density is infinite at some row: it is sure of the answer, without any noise")
    logs = logs.nan_to_num(nan=-math.inf, neginf=-math.inf)
    best = logs.amax(0)
    allowed = best > -math.inf
    if not bool(allowed.any()):
        raise ValueError("no member gives any of these rows a density above zero")
    return (logs - best)[:, allowed]


def _step(densities: Tensor, mixture: Tensor, gain: Tensor, weights: Tensor, least: float) -> Tensor:
    """Better weights: a Newton step on w >= 0, as far along it as it helps; one of expectation maximisation otherwise.

    That the weights add up to one is left to the term sum_m w_m, which is taken off the mean log density: its maximum
    over all w >= 0 has them so.
    """
    near = torch.nonzero((weights > 0) | (gain > 1)).flatten()
    own, slope = weights[near], gain[near] - 1
    ratios = densities[near] / mixture  # (near, rows); own @ ratios = 1
    curvature = ratios @ ratios.T / ratios.shape[1]
    ridge = _RIDGE * (1 + curvature.diagonal())
    curvature.diagonal().add_(ridge)
    direction = _least_quadratic(curvature, 2 * slope + 1 + ridge * own, own > 0) - own
    change, rise = direction @ ratios, float(direction @ slope)
    size = 1.0
    while rise > 0 and size > _LEAST_STEP:
        is_inside = bool((mixture * (1 + size * change) >= least).all())
        if is_inside and float(torch.log1p(size * change).mean() - size * direction.sum()) >= 1e-4 * size * rise:
            new = torch.zeros_like(weights).index_copy(0, near, (own + size * direction).clamp_min(0))
            return new / new.sum()
        size /= 2
    new = weights * gain
    return new / new.sum()


def _least_quadratic(a: Tensor, b: Tensor, free: Tensor) -> Tensor:
    """The y >= 0 at which y'ay / 2 - b'y is least, by exchanging what is zero and what is free until both are right.

    All that are wrong are exchanged at once; should that go round in circles, only the last of them, which ends
    (block principal pivoting).
    """
    fewest, patience = len(b) + 1, 3
    y = torch.zeros_like(b)
    for _ in range(50 + 5 * len(b)):
        places = torch.nonzero(free).flatten()
        factor = torch.linalg.cholesky(a[places][:, places])
        y = torch.zeros_like(b).index_copy(0, places, torch.cholesky_solve(b[places, None], factor).flatten())
        wrong = torch.where(free, y < 0, a @ y - b < -_ROUNDING)
        count = int(wrong.sum())
        if not count:
            break
        if count < fewest:
            fewest, patience = count, 3
        elif patience:
            patience -= 1
        else:
            last = torch.nonzero(wrong).flatten()[-1:]
            wrong = torch.zeros_like(wrong).index_fill(0, last, True)
        free = free ^ wrong
    return y.clamp_min(0)
