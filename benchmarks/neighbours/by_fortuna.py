"""fortuna: Bayesian networks in JAX. The mean and the log variance are two networks there."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import optax
from flax import linen as nn
from fortuna.data import DataLoader, InputsLoader
from fortuna.model import MLP
from fortuna.prob_model import (
    DeepEnsemblePosteriorApproximator,
    FitConfig,
    FitMonitor,
    FitOptimizer,
    ProbRegressor,
)

from neighbours.given import Fit, Given, Moments, Numbers, Predict

warnings.simplefilter("ignore")
logging.disable(logging.INFO)


class _Constant(nn.Module):
    """A log variance that is learnt, and the same for all rows."""

    @nn.compact
    def __call__(self, x: Any, train: bool = False, **_: Any) -> Any:
        return self.param("log_variance", nn.initializers.zeros, (1,)) + 0 * x[:, :1]


def _fit(given: Given, seed: int, approximator: Any, is_noise_predicted: bool, **fit: Any) -> Predict:
    setting = given.setting

    def network() -> MLP:
        return MLP(output_dim=1, widths=(setting.units,), activations=(nn.relu,))

    variance = network() if is_noise_predicted else _Constant()
    model = ProbRegressor(network(), variance, posterior_approximator=approximator, seed=seed)
    rows = DataLoader.from_array_data((given.x, given.y), batch_size=setting.batch_size, shuffle=True)
    model.train(rows, fit_config=_config(setting.lr, setting.epochs), **fit)

    def predict(x: Numbers) -> Moments:
        new = InputsLoader.from_array_inputs(x, batch_size=len(x))
        mean = model.predictive.mean(new, n_posterior_samples=setting.samples)
        which = model.predictive.variance if is_noise_predicted else model.predictive.epistemic_variance
        return np.asarray(mean), np.asarray(which(new, n_posterior_samples=setting.samples))

    return predict


def _config(lr: float, epochs: int) -> FitConfig:
    return FitConfig(optimizer=FitOptimizer(method=optax.adam(lr), n_epochs=epochs), monitor=FitMonitor(verbose=False))


def deep_ensemble(given: Given, seed: int) -> Predict:
    return _fit(given, seed, DeepEnsemblePosteriorApproximator(given.setting.members), is_noise_predicted=True)


METHODS: dict[str, Fit] = {"deep ensemble": deep_ensemble}
