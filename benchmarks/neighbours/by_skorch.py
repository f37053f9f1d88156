"""skorch: networks as estimators, one after the other."""

from __future__ import annotations

import torch
from skorch import NeuralNetRegressor

from neighbours.given import Fit, Given, Moments, Numbers, Predict, mixture, moments
from neighbours.plain_loop import gaussian_nll

torch.set_num_threads(1)


def _net(given: Given, outputs: int = 1, dropout: float = 0.0, **more: object) -> NeuralNetRegressor:
    setting = given.setting
    return NeuralNetRegressor(
        given.network(outputs, dropout),
        max_epochs=setting.epochs,
        lr=setting.lr,
        batch_size=setting.batch_size,
        optimizer=torch.optim.Adam,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
        **more,
    ).fit(given.x, given.y)


class _GaussianNLL(torch.nn.Module):
    def forward(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gaussian_nll(outputs, y)


def deep_ensemble(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    nets = [_net(given, 2, criterion=_GaussianNLL) for _ in range(given.setting.members)]

    def predict(x: Numbers) -> Moments:
        outputs = torch.stack([net.forward(x) for net in nets])
        return mixture(outputs[..., 0], outputs[..., 1].exp())

    return predict


def mc_dropout(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    net = _net(given, dropout=given.setting.dropout)

    def predict(x: Numbers) -> Moments:
        net.batch_size = len(x)
        net.iterator_train__shuffle = False  # the loader of training gives rows to a network with dropout
        with torch.no_grad():
            return moments(torch.stack([net.forward(x, training=True)[:, 0] for _ in range(given.setting.samples)]))

    return predict


METHODS: dict[str, Fit] = {"deep ensemble": deep_ensemble, "MC-dropout": mc_dropout}
