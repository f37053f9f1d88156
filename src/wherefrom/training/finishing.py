"""The end of a training, whichever engine it ran on: which members diverged, and the law that each of them left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.laws import Collector, Finished, Law
from wherefrom.training import streams
from wherefrom.training.cohort import Cohort, Trained, Trainee
from wherefrom.training.losses import information
from wherefrom.training.network import Layout


def finished(
    cohort: Cohort,
    members: Sequence[Trainee],
    theta: Tensor,
    losses: NDArray[np.float64],
    collector: Collector | None,
    began: float,
    engine: str,
    variances: Tensor | None = None,
) -> list[Trained]:
    """Return the members of a group after their training.

    theta: (members, size), their last iterates; losses: (members, epochs).
    collector: what watched them, if anything did.
    began: the thread's processor time when their training began.
    variances: (members, trained size) of each weight, where the algorithm learns them (default None).
    """
    trained_size = cohort.network.layout.trained_size
    diverged = [first_bad_epoch(one, _is_finite(last[:trained_size])) for one, last in zip(losses, theta, strict=True)]
    laws: Sequence[Law | None] = [None] * len(members)
    if collector is not None and None in diverged:
        laws = [law if bad is None else None for law, bad in zip(collector.laws(), diverged, strict=True)]
    finish: Any = getattr(cohort.collection and cohort.collection.law, "finish", None)
    if finish is not None:
        learned = [None] * len(members) if variances is None else list(variances)
        each = zip(members, theta, laws, learned, diverged, strict=True)
        laws = [_checked(finish, _at_hand(cohort, *one)) if bad is None else None for *one, bad in each]
    seconds = (time.thread_time() - began) / len(members)
    return [
        Trained(last, law, one.tolist(), bad, seconds, engine)
        for last, law, one, bad in zip(theta, laws, losses, diverged, strict=True)
    ]


def _at_hand(
    cohort: Cohort, member: Trainee, theta: Tensor, collected: Law | None, variance: Tensor | None
) -> Finished:
    """Return a trained member with its rows and its loss."""
    network, table = cohort.network.private("finish"), cohort.tables[member.table]
    layout, tensors, loss = network.layout, network.layout.views(theta), cohort.loss_of(member)
    trained = Layout(layout.names[: layout.trained], layout.shapes[: layout.trained], layout.trained, 0)

    def batches(count: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        for first in range(0, cohort.rows, count):
            some = slice(first, first + count)
            x: Any = table.x[some]
            x = x.read() if hasattr(x, "read") else x
            weights = None if table.weights is None else table.weights[some].to(theta.device)
            yield x.to(theta.device), table.y[some].to(theta.device), weights

    return Finished(
        theta,
        theta[: layout.trained_size],
        layout.varying_size,
        collected,
        cohort.rows,
        batches,
        lambda parameters, x: network.call(tensors | trained.views(parameters), x, (), False),
        loss,
        getattr(loss, "density", None),
        partial(information, loss),
        member.settings,
        variance,
        cohort.rates(member),
        streams.torch_generator(member.masks, "finish"),
        network,
    )


def _checked(finish: Any, member: Finished) -> Law:
    law: Law = finish(member)
    shape = tuple(getattr(getattr(law, "mean", None), "shape", ()))
    if shape != (member.size,):
        raise ValueError(
            f"finish must return a law whose mean has the shape ({member.size},), that of parameters and buffers; "
            f"it returned {type(law).__name__} with a mean of shape {shape}"
        )
    return law


def first_bad_epoch(losses: NDArray[np.float64], ended_well: bool) -> int | None:
    """Return when a training diverged: at the first loss that is no number, or at the end if only its weights are none.

    None, if it did not.
    """
    bad = np.flatnonzero(~np.isfinite(losses))
    return int(bad[0]) if len(bad) else None if ended_well else len(losses) - 1


def _is_finite(theta: Tensor) -> bool:
    """Return True if all numbers are finite; their sum tells it sooner, unless it overflows."""
    return bool(torch.isfinite(theta.sum())) or bool(torch.isfinite(theta).all())
