"""How long to train, how fast, and how much to drop: a few networks go first, and rows that they were not trained on
say which was best, and when.

Their trajectories are kept. A training of E epochs would leave the iterate at E or, where t is marginalised, a law
around the mean of the later half of its iterates; both can be scored for every E from one trajectory. If the best E is
near the end, pilots of twice the epochs follow. What the user has said is not tried otherwise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.laws import Snapshots
from wherefrom.laws.law import Points
from wherefrom.likelihood import Regression
from wherefrom.marginalisation import marginalise
from wherefrom.posterior import DivergedError, Posterior
from wherefrom.runs import Component
from wherefrom.training import streams
from wherefrom.training.mlp import MLP
from wherefrom.training.point import Training
from wherefrom.training.progress import Show
from wherefrom.variables import Hyperparameters, Iterations

LEAST_EPOCHS = 5
_FIRST_EPOCHS, _FIRST_STEPS, _MOST_STEPS = 10, 2000, 40_000
_MOST_EPOCHS = 1000
_KEPT = 40  # iterates of a trajectory
_NEAR_THE_END = 0.7
_AS_GOOD = 0.002  # a relative difference of scores for which it does not pay to train longer
_SCORED_ROWS = 2000
_RATES, _DROPOUTS = (1.0, 1 / 3), (1.0, 4.0)  # times what would be taken without a pilot
_CALMER, _TRIES = 1 / 10, 3  # of the learning rate, where all pilots diverge


@dataclass(frozen=True)
class Pilot:
    """What the first networks taught."""

    training: Training  # with the epochs, the learning rate and the dropout that were found
    epochs: tuple[int, ...]  # after which the best was scored
    scores: tuple[float, ...]  # on rows that it was not trained on
    by: str  # RMSE or NLL
    seconds_per_epoch: float  # of one network, by the clock


def pilot(
    training: Training,
    data: tuple[Any, Any],
    *,
    averages: bool,
    tried: Sequence[str] = ("lr", "dropout"),
    epochs: int | None = None,
    seed: int = 0,
    until: float | None = None,
    progress: Show = None,
) -> Pilot:
    """Look for the best training: `averages` where t is marginalised, `tried` are the settings to look for.

    With `epochs` they are given. `until` is when, by the clock, no longer ones may begin.
    """
    x, y = data
    order = streams.generator(seed, "tables", "pilot").permutation(len(x))
    aside = min(_SCORED_ROWS, max(5, len(x) // 8))
    test, train = np.sort(order[:aside]), np.sort(order[aside:])
    steps = -(-len(train) // training.algorithm.batch_size)
    length = epochs or min(100, max(_FIRST_EPOCHS, round(_FIRST_STEPS / steps)))
    most = epochs or min(_MOST_EPOCHS, max(4 * _FIRST_EPOCHS, round(_MOST_STEPS / steps)))
    if isinstance(training.likelihood, Regression) and training.likelihood.noise != "predicted":
        training = replace(training, likelihood=Regression())
    while True:
        began = time.monotonic()
        posterior = _trained(replace(training, epochs=length), tried, (x.take(train), y[train]), seed, progress)
        each = (time.monotonic() - began) / (length * len(posterior))
        found = _best_of(posterior, x.take(test), y[test], averages, epochs is not None, each)
        is_late = until is not None and time.monotonic() + 2 * length * len(posterior) * each > until
        if found.training.epochs < _NEAR_THE_END * length or length >= most or is_late:
            return found
        length = min(most, 2 * length)


def _trained(training: Training, tried: Sequence[str], data: tuple[Any, Any], seed: int, progress: Show) -> Posterior:
    """Networks with their trajectories, one for each setting that is tried; those that diverge are left out."""
    for _ in range(_TRIES):
        rate, drop = float(training.algorithm.settings["lr"]), _dropout(training)
        settings: dict[str, list[float]] = {}
        if "lr" in tried:
            settings["lr"] = [rate * times for times in _RATES]
        if "dropout" in tried and drop > 0:
            settings["dropout"] = [min(0.5, drop * times) for times in _DROPOUTS]
        points = [dict(zip(settings, values, strict=True)) for values in product(*settings.values())]
        over: list[Any] = [Iterations(Snapshots(min(_KEPT, training.epochs)), start=0.0)]
        if len(points) > 1:
            over.append(Hyperparameters(points=points))
        try:
            return marginalise(training, data, over, seed, progress=progress, on_divergence="keep")
        except DivergedError as error:
            last = error
            training = replace(training, algorithm=training.algorithm.but(lr=rate * _CALMER))
    raise last


def _dropout(training: Training) -> float:
    return training.model.dropout if isinstance(training.model, MLP) else 0.0


def _best_of(posterior: Posterior, x: Any, y: Any, averages: bool, to_the_end: bool, seconds: float) -> Pilot:
    """The member, and its epochs, that make these rows most likely."""
    one = posterior.marginalising()
    found = []
    for component in posterior.mixture:
        seen, scores = _scored(one, component, x, y, averages)
        place = len(scores) - 1 if to_the_end else _first_good(scores)
        found.append((scores[place], seen[place], component, seen, scores))
    _, epochs, component, seen, scores = min(found, key=lambda each: each[0])
    choices, training = component.run.choices, posterior.training
    model = training.model
    if isinstance(model, MLP) and "dropout" in choices:
        model = MLP(model.hidden, model.activation, choices["dropout"])
    chosen = replace(training, model=model, algorithm=component.algorithm, epochs=max(LEAST_EPOCHS, epochs))
    by = "RMSE" if training.likelihood == Regression() else "NLL"
    return Pilot(chosen, tuple(seen), tuple(scores), by, seconds)


def _scored(one: Posterior, component: Component, x: Any, y: Any, averages: bool) -> tuple[list[int], list[float]]:
    """The score of what every number of epochs would leave."""
    law, epochs = component.trained.law, one.training.epochs
    assert isinstance(law, Points)
    count = len(law.points)
    seen = [round((k + 1) * epochs / count) for k in range(count)]
    scores = []
    for k in range(count):
        later = [j for j in range(k + 1) if 2 * seen[j] > seen[k]]
        theta = law.points[later].mean(0) if averages else law.points[k]
        scores.append(_score(_at(one, component, theta), x, y))
    return seen, scores


def _at(one: Posterior, component: Component, theta: Tensor) -> Posterior:
    """A posterior of one network: this one, with these weights."""
    last = torch.cat([theta, component.trained.last[len(theta) :]])
    run, trained = replace(component.run, labels={}), replace(component.trained, last=last)
    return replace(one, mixture=(replace(component, run=run, trained=trained),))


def _score(posterior: Posterior, x: Any, y: Any) -> float:
    prediction = posterior.predict(x)
    score = prediction.rmse(y) if posterior.training.likelihood == Regression() else prediction.nll(y)
    return score if math.isfinite(score) else math.inf


def _first_good(scores: Sequence[float]) -> int:
    """The first that is as good as the best, nearly."""
    lowest = min(scores)
    slack = _AS_GOOD * max(abs(lowest), 1e-12)
    return next(place for place, score in enumerate(scores) if score <= lowest + slack)
