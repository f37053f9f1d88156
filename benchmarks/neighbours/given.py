"""Rows and settings that every library gets, and scores of its answers.

Inputs and target are standardised by the training rows. A tenth of these is held out, for the noise. A library trains a
network of one hidden layer, and returns the mean and the variance of new rows:

    deep ensemble, Bayesian ensemble   the network predicts a mean and a variance, as the library parametrises it, and
                                       the library mixes its members: its variance is that of y
    all others                         the network predicts a mean, by the squared error. The variance is that of the
                                       network's answers, and the noise that makes the held-out rows most likely is
                                       added to it, by one function for all
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tabular.answers import Answer, Quantities
from tabular.encoding import Matrix
from tabular.sets import Integers, Problem

if TYPE_CHECKING:
    from torch import Tensor, nn

Numbers = NDArray[np.float32]
Moments = tuple[Numbers, Numbers]  # mean and variance of each row
HELD_OUT, NOISES = 0.1, np.logspace(-6, 1, 200)
BATCH_OF_PREDICTION = 500
TEMPERATURE = 0.2  # of what samples weights: twice a noise variance of 0.1, in standard units


@dataclass(frozen=True)
class Setting:
    """Settings that all libraries have in common."""

    epochs: int
    units: int = 50
    batch_size: int = 100
    lr: float = 0.01
    members: int = 5
    samples: int = 100
    rank: int = 20  # of SWAG
    dropout: float = 0.05

    @property
    def burn_in(self) -> int:
        """Return the epochs before SWAG's first snapshot."""
        return self.epochs // 2


@dataclass(frozen=True, eq=False)
class Given:
    """The training rows of a fold in standard units; `aside` is for validation, where a library insists on it."""

    x: Numbers  # (rows, columns)
    y: Numbers  # (rows, 1)
    aside: tuple[Numbers, Numbers]
    setting: Setting

    def network(self, outputs: int = 1, dropout: float = 0.0) -> nn.Module:
        """Return a network with freshly drawn weights, by PyTorch's own initialisation."""
        from torch import nn

        dropped = [nn.Dropout(dropout)] if dropout else []
        layers = [nn.Linear(self.x.shape[1], self.setting.units), nn.ReLU(), *dropped]
        return nn.Sequential(*layers, nn.Linear(self.setting.units, outputs))

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """The rows as tensors."""
        import torch

        return torch.from_numpy(self.x), torch.from_numpy(self.y)


Predict = Callable[[Numbers], Moments]
Fit = Callable[[Given, int], Predict]
PREDICTED_NOISE = ("deep ensemble", "Bayesian ensemble")


def answered(
    fit: Fit, method: str, setting: Setting, problem: Problem, train: Integers, test: Integers, seed: int
) -> tuple[Answer, float, float]:
    """Train on the training rows and predict the test rows; return the answer and the CPU seconds of both."""
    order = np.random.default_rng(seed).permutation(train)
    count = max(10, round(HELD_OUT * len(train)))
    aside, kept = order[:count], order[count:]
    inputs, y = problem.inputs, problem.y
    shift, scale = float(y[kept].mean()), float(y[kept].std()) or 1.0
    matrix = Matrix.of(inputs.iloc[kept])
    x, x_aside, new = (matrix(inputs.iloc[rows]).astype(np.float32) for rows in (kept, aside, test))
    standard = ((y - shift) / scale).astype(np.float32)[:, None]
    given = Given(x, standard[kept], (x_aside, standard[aside]), setting)
    began = time.process_time()
    predict = fit(given, seed)
    fitted = time.process_time()
    mean, variance = _checked(predict(new), len(test))
    done = time.process_time()
    if method not in PREDICTED_NOISE:
        variance = variance + noise(*_checked(predict(x_aside), len(aside)), standard[aside, 0])
    return Quantities.gaussian(shift + scale * mean, scale * np.sqrt(variance)), fitted - began, done - fitted


def noise(mean: Numbers, variance: Numbers, y: Numbers) -> float:
    """Return the variance that makes y most likely when it is added to that of the answers."""

    def nll(added: float) -> float:
        total = np.maximum(variance + added, 1e-12)
        return float(np.mean(np.log(total) + (y - mean) ** 2 / total))

    return float(min(NOISES, key=nll))


def moments(outputs: Tensor) -> Moments:
    """Mean and variance over the first axis of a network's answers.  # (samples, rows)"""
    return outputs.mean(0).numpy(), outputs.var(0, correction=0).numpy()


def mixture(means: Tensor, variances: Tensor) -> Moments:
    """Mean and variance of a mixture of Gaussians.  # (members, rows)"""
    return means.mean(0).numpy(), (variances.mean(0) + means.var(0, correction=0)).numpy()


def by_batches(predict: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Predict:
    """Predict 500 rows at a time, with a library whose memory grows fast with the rows of a call."""
    import torch

    def of_all(x: Numbers) -> Moments:
        parts = [predict(rows) for rows in torch.from_numpy(x).split(BATCH_OF_PREDICTION)]
        mean, variance = (torch.cat([part[k].detach().flatten() for part in parts]).numpy() for k in range(2))
        return mean, variance

    return of_all


def _checked(answer: Moments, rows: int) -> Moments:
    mean, variance = (np.asarray(part, dtype=np.float64).reshape(-1) for part in answer)
    if not len(mean) == len(variance) == rows:
        raise ValueError(f"{len(mean)} means and {len(variance)} variances of {rows} rows")
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        raise ValueError("an answer is not finite")
    return mean, variance
