"""bde (sklearn-contrib-bde): networks in JAX, trained and then sampled by microcanonical Langevin dynamics (MILE).

Its steps take all rows, so that it gets as many epochs as the others take steps. Early stopping, the steps of warm-up
and those of sampling are those of the example in its documentation; the samples are thinned to as many as ours.
"""

from __future__ import annotations

import warnings

import numpy as np
from bde import BdeRegressor

from neighbours.given import Fit, Given, Moments, Numbers, Predict

warnings.simplefilter("ignore")
WARM_UP, SAMPLED = 5000, 2000


def bayesian_ensemble(given: Given, seed: int) -> Predict:
    setting = given.setting
    steps = setting.epochs * -(-len(given.x) // setting.batch_size)
    model = BdeRegressor(
        n_members=setting.members,
        hidden_layers=[setting.units],
        epochs=steps,
        lr=setting.lr,
        validation_split=0.15,
        patience=10,
        warmup_steps=WARM_UP,
        n_samples=SAMPLED,
        n_thinning=SAMPLED * setting.members // setting.samples,
        seed=seed,
    ).fit(given.x, given.y[:, 0])

    def predict(x: Numbers) -> Moments:
        mean, std = model.predict(x, mean_and_std=True)
        return np.asarray(mean), np.square(np.asarray(std))

    return predict


METHODS: dict[str, Fit] = {"Bayesian ensemble": bayesian_ensemble}
