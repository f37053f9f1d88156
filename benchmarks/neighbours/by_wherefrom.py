"""This library, with the settings that all have."""

from __future__ import annotations

import warnings
from typing import Any

import torch

import wherefrom as wf
from neighbours.given import TEMPERATURE, Fit, Given, Moments, Numbers, Predict

torch.set_num_threads(1)
warnings.simplefilter("ignore")
SNAPSHOTS = 20


def _fit(
    given: Given,
    seed: int,
    over: list[Any],
    algorithm: wf.Algorithm | None = None,
    dropout: float = 0.0,
    samples: int | None = None,
    method: Any = "monte_carlo",
    is_noise_predicted: bool = False,
) -> Predict:
    setting = given.setting
    outputs = 2 if is_noise_predicted else 1
    training = wf.Training(
        lambda: given.network(outputs, dropout),
        algorithm or wf.Algorithm("adam", lr=setting.lr, batch_size=setting.batch_size),
        setting.epochs,
        wf.Regression(noise="predicted" if is_noise_predicted else None),
        standardise=False,
    )
    posterior = wf.marginalise(training, (given.x, given.y[:, 0]), over, seed, workers=1, progress=False)

    def predict(x: Numbers) -> Moments:
        answer = posterior.predict(x, samples or setting.samples, method=method)
        return answer.mean.numpy(), answer.variance.numpy()

    return predict


def deep_ensemble(given: Given, seed: int) -> Predict:
    return _fit(given, seed, wf.recipes.deep_ensemble(given.setting.members), is_noise_predicted=True)


def bayesian_ensemble(given: Given, seed: int) -> Predict:
    """multiSWAG: as many samples of each member as make the samples of one network."""
    setting = given.setting
    over = wf.recipes.multi_swag(setting.members, setting.rank)
    return _fit(given, seed, over, samples=setting.samples // setting.members, is_noise_predicted=True)


def swag(given: Given, seed: int) -> Predict:
    return _fit(given, seed, wf.recipes.swag(given.setting.rank))


def mc_dropout(given: Given, seed: int) -> Predict:
    return _fit(given, seed, wf.recipes.mc_dropout(), dropout=given.setting.dropout)


def laplace(given: Given, seed: int) -> Predict:
    return _fit(given, seed, wf.recipes.laplace("kron"), method="linearised")


def sgld(given: Given, seed: int) -> Predict:
    algorithm = wf.Algorithm("sgld", **sampling(given, lr=0.1))
    return _fit(given, seed, wf.recipes.snapshots(SNAPSHOTS), algorithm, samples=SNAPSHOTS)


def ivon(given: Given, seed: int) -> Predict:
    algorithm = wf.Algorithm("ivon", hess_init=0.5, beta2=0.999, **sampling(given, lr=0.3))
    return _fit(given, seed, wf.recipes.variational(), algorithm)


def sampling(given: Given, lr: float) -> dict[str, float]:
    """Settings of what samples or learns a variance; the prior of the weights has a precision of one."""
    decay = TEMPERATURE / len(given.x)
    return {
        "lr": lr,
        "batch_size": given.setting.batch_size,
        "temperature": TEMPERATURE,
        "weight_decay": decay,
    }


METHODS: dict[str, Fit] = {
    "deep ensemble": deep_ensemble,
    "Bayesian ensemble": bayesian_ensemble,
    "SWAG": swag,
    "MC-dropout": mc_dropout,
    "Laplace": laplace,
    "SGLD": sgld,
    "IVON": ivon,
}
