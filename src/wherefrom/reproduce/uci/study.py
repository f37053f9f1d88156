"""One data set of the study: all folds and members trained as one cohort, every combination scored as a part of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import wherefrom as wf
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.reproduce.uci.setups import OURS, Combination, Setup
from wherefrom.training.engines import Choice
from wherefrom.training.executor import Executor

Array = NDArray[Any]
Split = tuple[Array, Array]  # rows to train on, rows to test on
Report = Callable[[int], None]  # what has been done since

SAMPLED_M = "M sampled"  # M alone from samples, beside its exact moments
LEVEL = 0.95
_SCORED_ROW = 3000  # what scoring a test row costs, in training rows


class Score(NamedTuple):
    """One number of the study."""

    set: str
    fold: int
    combination: str
    metric: str
    value: float


class Outcome(NamedTuple):
    """The result of a set's trainings."""

    scores: list[Score]
    engines: set[str]
    training_seconds: float  # of CPU time


def train_and_score(
    setup: Setup,
    name: str,
    data: tuple[Array, Array],
    splits: Sequence[Split],
    seed: int = 0,
    engine: Choice = "auto",
    report: Report | None = None,
    executor: Executor | None = None,
) -> Outcome:
    """One set of a set-up; `report` hears of training rows gone through, or what is worth as much."""
    begun = time.process_time()
    train_rows, test_rows = (len(rows) for rows in splits[0])
    trained = train(setup, name, data, splits, seed, engine, in_units(report, train_rows), executor)
    seconds = time.process_time() - begun
    scores = score(setup, name, data, splits, trained, in_units(report, test_rows * _SCORED_ROW))
    engines = {engine for _, posteriors in trained for posterior in posteriors for engine in posterior.engines}
    return Outcome(scores, engines, seconds)


def in_units(report: Report | None, size: int) -> Report | Literal[False]:
    """A function to report to in units of rows; without one, nothing is shown."""
    return (lambda done: report(done * size)) if report else False


def work(setup: Setup, splits: Sequence[Split]) -> int:
    """About what a set costs, in training rows."""
    train, test = splits[0]
    trainings = 2 if setup.marginalises("alpha") else 1
    return len(splits) * trainings * (len(train) * setup.members * setup.epochs + len(test) * _SCORED_ROW)


def train(
    setup: Setup,
    name: str,
    data: tuple[Array, Array],
    splits: Sequence[Split],
    seed: int = 0,
    engine: Choice = "auto",
    progress: Report | Literal[False] = False,
    executor: Executor | None = None,
) -> list[tuple[list[Combination], list[wf.Posterior]]]:
    """The posteriors of all folds, with the combinations that they serve. Fold k is trained from seed + k."""
    training = setup.training(name, data[0].shape[1])
    train_rows = [rows for rows, _ in splits]
    compute = wf.Compute(engine=engine, progress=progress, executor=executor)
    return [
        (served, wf.marginalise_folds(training, data, train_rows, over, seed, compute=compute))
        for over, served in setup.marginalisations(name)
    ]


def score(
    setup: Setup,
    name: str,
    data: tuple[Array, Array],
    splits: Sequence[Split],
    trained: Sequence[tuple[list[Combination], list[wf.Posterior]]],
    report: Report | Literal[False] = False,
) -> list[Score]:
    """Score every combination on every fold's test rows; `report` is called with folds done."""
    x, y = data
    scores = []
    for served, posteriors in trained:
        for fold, (posterior, (_, test)) in enumerate(zip(posteriors, splits, strict=True)):
            for names in served:
                part = posterior.marginalising(*(OURS[variable] for variable in names))
                for label, metric, value in _scored(part, names, x[test], y[test], setup):
                    scores.append(Score(name, fold, label, metric, value))
            if report:
                report(1)
    return scores


def _scored(
    part: wf.Posterior, names: Combination, x: Array, y: Array, setup: Setup
) -> Iterator[tuple[str, str, float]]:
    """(combination, metric, value) of one part of the posterior on one fold."""
    label = "+".join(names)
    prediction = part.predict(x, setup.samples, method=setup.method)
    if names == ("M",) and prediction.mixture.noise is None:
        # Samples of so small a rate often hold no dropped unit that matters; the moments are known without them.
        exact = exact_dropout(part, x)
        sampled = [(SAMPLED_M, prediction)] if prediction.method == "monte_carlo" else []
        for which, said in ((label, exact), *sampled):
            alive = (said.variance > 0).numpy()
            nll = math.nan
            if alive.any():
                again = exact_dropout(part, x[alive]) if said is exact else part.predict(x[alive], setup.samples)
                nll = again.nll(y[alive])
            yield which, "nll", nll
            yield which, "zero-variance rows", float(np.sum(~alive))
            yield from ((which, metric, value) for metric, value in _moment_scores(said, y))
        return
    yield from ((label, metric, value) for metric, value in scores_of(prediction, y))
    if names == setup.fullest:
        for source, share in prediction.sources().overall.items():
            yield label, f"share of {_paper_name(source)}", share.share


def scores_of(prediction: Prediction, y: Array) -> Iterator[tuple[str, float]]:
    """Read as a Gaussian, as the paper does; where there is noise, as the mixture too."""
    yield "nll", prediction.nll(y)
    yield from _moment_scores(prediction, y)
    if prediction.mixture.noise is not None:
        yield "mixture nll", prediction.nll(y, "mixture")
        yield "mixture coverage", prediction.coverage(y, LEVEL, "mixture")


def _moment_scores(prediction: Prediction, y: Array) -> Iterator[tuple[str, float]]:
    """Yield the scores that exist where the variance is zero, too."""
    yield "rmse", prediction.rmse(y)
    yield "crps", prediction.crps(y)
    yield "coverage", prediction.coverage(y, LEVEL, "paper")


def exact_dropout(part: wf.Posterior, x: Array) -> Prediction:
    """The exact mean and variance over all sub-networks of a network whose dropout stands before its last layer.

        f(omega) = b + sum_j w_j a_j omega_j,    Var f = sum_j (w_j a_j)^2 r / (1 - r)

    where omega_j is 1 / (1 - r) with probability 1 - r, else 0. The prediction holds two answers with these moments.
    """
    (dropout,) = part.network.sites
    theta = {name: tensor.cpu() for name, tensor in part.sample(1)[0].items()}
    first, last = (name.removesuffix("weight") for name in theta if name.endswith("weight"))
    inputs = part.scaler.x(torch.as_tensor(x), torch.float64)
    hidden = torch.relu(inputs @ theta[first + "weight"].double().T + theta[first + "bias"].double())
    weight = theta[last + "weight"].double().T
    mean = hidden @ weight + theta[last + "bias"].double()
    std = (hidden.square() @ weight.square() * dropout.rate / (1 - dropout.rate)).sqrt()
    answers = torch.stack([mean - std, mean + std]).unsqueeze(0)
    prediction = part.predict(x, samples=1)
    mixture = replace(prediction.mixture, answers=answers, plan=Plan.of(2, vary_theta=False, vary_mask=True))
    return replace(prediction, mixture=mixture)


def _paper_name(source: str) -> str:
    """A source of variance by the paper's names; the batch order is drawn with theta0, and goes without saying."""
    ours = {"F": "M", "theta0+order": "theta0", "theta0+h+order": "theta0+alpha"}
    return " x ".join(ours.get(part, part) for part in source.split(" x "))
