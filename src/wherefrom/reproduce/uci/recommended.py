"""Our recommendation if only the prediction counts: several trainings, mixed as rows held out of them want it.

For each fold, from its training rows alone:

1. every candidate (a small network with noise in its likelihood) is trained on inner parts of the rows, and each of its
   readings (theta0 alone, with t, with M) is scored on the rest of them, row by row;
2. the weights of the readings are those under which their mixture makes the rows most likely;
3. the candidates that have weight are trained again on all rows of the fold, and mixed.

The candidates are the same for all sets, and a fold's test rows are seen once, when its mixture is scored. The
candidates themselves were found on inner validation rows too, before they were scored on any test row; as the splits
overlap, these are test rows of other splits, as in all tuning on this benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import wherefrom as wf
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.weights import stacking
from wherefrom.reproduce.uci.study import Array, Outcome, Report, Score, Split, in_units, scores_of
from wherefrom.training import streams
from wherefrom.training.engines import Choice
from wherefrom.training.executor import Executor

NAME = "recommended"
FEW_ROWS = 2000  # below: batches of 32 and three inner folds; from there on: batches of 100 and one inner split
INNER_FOLDS, INNER_PART = 3, 0.85
LEAST_WEIGHT = 0.02
ANSWERS = 500  # of the mixture, shared out by weight

ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU}


@dataclass(frozen=True)
class Candidate:
    """One training: two hidden layers, Adam, a number of steps."""

    rate: float
    steps: int
    width: int = 50
    activation: str = "relu"
    dropout: float = 0.0
    noise: Literal["fit", "predicted"] = "predicted"
    fewest_rows: int = 0  # a wide network is not worth its price on few rows

    def training(self, features: int, rows: int, most_epochs: int) -> wf.Training:
        batch_size = 32 if rows < FEW_ROWS else 100
        epochs = min(max(self.steps // -(-rows // batch_size), 2), most_epochs)
        return wf.Training(
            model=partial(self.network, features),
            algorithm=wf.Algorithm("adam", lr=self.rate, batch_size=batch_size),
            epochs=epochs,
            likelihood=wf.Regression(noise=self.noise),
        )

    def network(self, features: int) -> nn.Module:
        outputs = wf.Regression(noise=self.noise).outputs(1)
        activation = ACTIVATIONS[self.activation]
        dropout = [nn.Dropout(self.dropout)] if self.dropout else []
        return nn.Sequential(
            *(nn.Linear(features, self.width), activation(), *dropout),
            *(nn.Linear(self.width, self.width), activation(), *dropout),
            nn.Linear(self.width, outputs),
        )

    def over(self, members: int) -> list[Any]:
        return [*wf.recipes.multi_swag(members), *([wf.Dropout()] if self.dropout else [])]

    def __str__(self) -> str:
        dropout = f", dropout {self.dropout:g}" if self.dropout else ""
        rows = f", from {self.fewest_rows:,} rows on" if self.fewest_rows else ""
        layers = f"two layers of {self.width} {self.activation}"
        return f"Adam {self.rate:g} for {self.steps:,} steps, {layers}{dropout}, noise {self.noise}{rows}"

    @property
    def readings(self) -> list[tuple[str, ...]]:
        """Parts of the posterior that can be marginalised."""
        plain = [("theta0",), ("theta0", "t")]
        return [*plain, *(((*names, "F") for names in plain) if self.dropout else ())]


CANDIDATES = {
    "fast": Candidate(rate=0.01, steps=8000),
    "middle": Candidate(rate=0.003, steps=8000),
    "slow": Candidate(rate=0.001, steps=20000, activation="silu"),
    "dropout": Candidate(rate=0.01, steps=8000, dropout=0.05),
    "wide": Candidate(rate=0.001, steps=30000, width=100, fewest_rows=FEW_ROWS),
    "fitted": Candidate(rate=0.001, steps=20000, noise="fit"),
}


class Reading(NamedTuple):
    """One way to read one candidate's posterior."""

    candidate: str
    marginalised: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.candidate} {'+'.join('M' if name == 'F' else name for name in self.marginalised)}"


@dataclass(frozen=True)
class Recipe:
    """The candidates, how they are weighed, and how they are mixed."""

    candidates: Mapping[str, Candidate] = field(default_factory=lambda: CANDIDATES)
    most_epochs: int = 1000
    inner_members: int = 2
    members: int = 5
    inner_samples: int = 30
    samples: int = 100

    @property
    def name(self) -> str:
        """Name of its file: a shortened one is another recipe."""
        return NAME if self.most_epochs == Recipe.most_epochs else f"{NAME}-epochs-{self.most_epochs}"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a result depends on, as plain values."""
        return asdict(self) | {
            "few_rows": FEW_ROWS,
            "inner_folds": INNER_FOLDS,
            "inner_part": INNER_PART,
            "least_weight": LEAST_WEIGHT,
            "answers": ANSWERS,
        }

    def trainings(self, features: int, rows: int) -> dict[str, wf.Training]:
        """Trainings of the candidates that these rows are enough for."""
        return {
            name: candidate.training(features, rows, self.most_epochs)
            for name, candidate in self.candidates.items()
            if rows >= candidate.fewest_rows
        }

    def work(self, splits: Sequence[Split]) -> int:
        """About what a set costs, in training rows, if every candidate gets some weight on every fold."""
        rows = len(splits[0][0])
        inner = INNER_FOLDS - 1 if rows < FEW_ROWS else INNER_PART
        epochs = sum(training.epochs for training in self.trainings(1, rows).values())
        return round(len(splits) * rows * epochs * (self.inner_members * inner + self.members))

    def train_and_score(
        self,
        name: str,
        data: tuple[Array, Array],
        splits: Sequence[Split],
        seed: int,
        engine: Choice,
        report: Report | None = None,
        executor: Executor | None = None,
    ) -> Outcome:
        """All folds of a set; `report` hears of training rows gone through."""
        x, y = data
        begun = time.process_time()
        by_fold = self.find_weights(data, [train for train, _ in splits], seed, engine, report, executor)
        seconds = time.process_time() - begun
        scores: list[Score] = []
        engines: set[str] = set()
        for fold, ((train, test), weights) in enumerate(zip(splits, by_fold, strict=True)):
            begun = time.process_time()
            posteriors: dict[str, wf.Posterior] = {}
            for label, training in self.trainings(x.shape[1], len(train)).items():
                if any(reading.candidate == label for reading in weights):
                    over = self.candidates[label].over(self.members)
                    how = _how(engine, report, len(train), executor)
                    posteriors[label] = wf.marginalise(training, (x[train], y[train]), over, seed + fold, **how)
                    engines |= set(posteriors[label].engines)
                elif report:
                    report(len(train) * training.epochs * self.members)
            seconds += time.process_time() - begun
            parts = [posteriors[reading.candidate].marginalising(*reading.marginalised) for reading in weights]
            mixture = mixed([part.predict(x[test], self.samples) for part in parts], list(weights.values()))
            scores += [Score(name, fold, NAME, metric, value) for metric, value in scores_of(mixture, y[test])]
            scores += [Score(name, fold, NAME, f"weight of {reading}", value) for reading, value in weights.items()]
            lost = sum(len(posterior.diverged) for posterior in posteriors.values())
            scores.append(Score(name, fold, NAME, "members lost", float(lost)))
        return Outcome(scores, engines, seconds)

    def find_weights(
        self,
        data: tuple[Array, Array],
        folds: Sequence[NDArray[Any]],
        seed: int,
        engine: Choice,
        report: Report | None = None,
        executor: Executor | None = None,
    ) -> list[dict[Reading, float]]:
        """Find each fold's weights of the readings, from its own rows: inner parts train, the rest of them decides."""
        x, y = data
        inner = [inner_splits(rows, seed + fold) for fold, rows in enumerate(folds)]
        rows = [train for own in inner for train, _ in own]
        nll: list[dict[Reading, list[Array]]] = [{} for _ in folds]
        for label, training in self.trainings(x.shape[1], len(folds[0])).items():
            candidate = self.candidates[label]
            over = candidate.over(self.inner_members)
            how = _how(engine, report, len(rows[0]), executor)
            posteriors = iter(wf.marginalise_folds(training, data, rows, over, seed, **how))
            for own, known in zip(inner, nll, strict=True):
                for _, aside in own:
                    posterior = next(posteriors)
                    for names in candidate.readings:
                        said = posterior.marginalising(*names).predict(x[aside], self.inner_samples)
                        each = said.nll(y[aside], "mixture", by_row=True).numpy()
                        known.setdefault(Reading(label, names), []).append(each)
        return [_weights(known) for known in nll]


def inner_splits(rows: NDArray[Any], seed: int) -> list[Split]:
    """Rows to train on and rows to decide by: every row decides once where there are few of them."""
    order = streams.generator(seed, "inner splits").permutation(rows)
    if len(rows) >= FEW_ROWS:
        edge = round(len(rows) * INNER_PART)
        return [(order[:edge], order[edge:])]
    blocks = np.array_split(order, INNER_FOLDS)
    return [
        (np.concatenate([block for k, block in enumerate(blocks) if k != aside]), blocks[aside])
        for aside in range(INNER_FOLDS)
    ]


def stacking_weights(nll: Array, tolerance: float = 1e-8, most: int = 500) -> Array:
    """The weights under which a mixture makes the rows most likely; tiny ones are zero.

    `nll` is each component's negative log-likelihood of each row; it may be infinite, and not a number counts as that.
    # (components, rows) -> (components,)

    >>> stacking_weights(np.array([[0.0, 0.0, 9.0], [9.0, 9.0, 0.0], [5.0, 5.0, 5.0]])).round(2)
    array([0.67, 0.33, 0.  ])
    """
    weights = stacking(-nll, tolerance, most).numpy()
    weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
    return weights / weights.sum()


def mixed(predictions: Sequence[Prediction], weights: Sequence[float]) -> Prediction:
    """One prediction whose answers are those of the others, in numbers by weight, in y's own units."""
    counts = shared_out(weights, ANSWERS)
    answers, noises = [], []
    for prediction, count in zip(predictions, counts, strict=True):
        own = prediction.answers.double()
        assert prediction.mixture.noise is not None
        noise = prediction.mixture.noise.double().expand_as(own).flatten(0, 1)
        own = own.flatten(0, 1)
        # Evenly spaced among all members' samples; the same ones again where there are fewer.
        chosen = torch.arange(count) * max(len(own), count) // count % len(own)
        answers.append(prediction.location + prediction.scale * own[chosen])
        noises.append(prediction.scale.square() * noise[chosen])
    plan = Plan.of(ANSWERS, vary_theta=True, vary_mask=False)
    mixture = Mixture(torch.cat(answers).unsqueeze(0), plan, (), noise=torch.cat(noises).unsqueeze(0))
    first = predictions[0]
    return replace(
        first, mixture=mixture, location=torch.zeros_like(first.location), scale=torch.ones_like(first.scale)
    )


def shared_out(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to the weights that add up to the total.

    >>> shared_out([0.5, 0.3, 0.2], 7)
    [4, 2, 1]
    """
    edges = np.round(np.cumsum([0.0, *weights]) / sum(weights) * total).astype(int)
    return np.diff(edges).tolist()


def _weights(nll: Mapping[Reading, list[Array]]) -> dict[Reading, float]:
    """Weights of those readings that have any."""
    found = stacking_weights(np.stack([np.concatenate(each) for each in nll.values()]))
    return {reading: float(weight) for reading, weight in zip(nll, found, strict=True) if weight > 0}


def _how(engine: Choice, report: Report | None, rows: int, executor: Executor | None) -> dict[str, Any]:
    compute = wf.Compute(engine=engine, progress=in_units(report, rows), executor=executor)
    return {"compute": compute, "on_divergence": "drop"}
