"""probly: its ensemble and its dropout, trained by a plain loop, since it leaves training to its users."""

from __future__ import annotations

import warnings

import torch

from neighbours import torchvision_operators

torchvision_operators.declare()

from probly.representation import Dropout, Ensemble  # noqa: E402

from neighbours.given import Fit, Given, Moments, Numbers, Predict, mixture, moments  # noqa: E402
from neighbours.plain_loop import gaussian_nll, train  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")


def deep_ensemble(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    ensemble = Ensemble(given.network(2), given.setting.members)
    for member in ensemble.models:
        train(given, member, gaussian_nll)

    def predict(x: Numbers) -> Moments:
        with torch.no_grad():
            outputs = ensemble.predict_representation(torch.from_numpy(x), logits=True)  # (rows, members, 2)
        return mixture(outputs[..., 0].T, outputs[..., 1].T.exp())

    return predict


def mc_dropout(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    model = Dropout(given.network(), p=given.setting.dropout)
    train(given, model)

    def predict(x: Numbers) -> Moments:
        with torch.no_grad():
            outputs = model.predict_representation(torch.from_numpy(x), given.setting.samples, logits=True)
        return moments(outputs[..., 0].T)

    return predict


METHODS: dict[str, Fit] = {"deep ensemble": deep_ensemble, "MC-dropout": mc_dropout}
