"""A loop in plain PyTorch, for neighbours that leave training to their users, and as a contender itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neighbours.given import Fit, Given, Moments, Numbers, Predict, mixture, moments

Loss = Callable[[Tensor, Tensor], Tensor]
torch.set_num_threads(1)


def gaussian_nll(outputs: Tensor, y: Tensor) -> Tensor:
    """The loss of a network whose outputs are a mean and the logarithm of a variance."""
    return F.gaussian_nll_loss(outputs[:, :1], y, outputs[:, 1:].exp())


def train(given: Given, network: nn.Module, loss: Loss = F.mse_loss) -> nn.Module:
    """Train by Adam, with batches by index."""
    x, y = given.tensors
    optimiser = torch.optim.Adam(network.parameters(), lr=given.setting.lr)
    network.train()
    for _ in range(given.setting.epochs):
        for rows in torch.randperm(len(x)).split(given.setting.batch_size):
            optimiser.zero_grad()
            loss(network(x[rows]), y[rows]).backward()
            optimiser.step()
    return network.eval()


def deep_ensemble(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    networks = [train(given, given.network(2), gaussian_nll) for _ in range(given.setting.members)]

    def predict(x: Numbers) -> Moments:
        with torch.no_grad():
            outputs = torch.stack([network(torch.from_numpy(x)) for network in networks])
        return mixture(outputs[..., 0], outputs[..., 1].exp())

    return predict


def mc_dropout(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    network = train(given, given.network(dropout=given.setting.dropout)).train()

    def predict(x: Numbers) -> Moments:
        with torch.no_grad():
            return moments(torch.stack([network(torch.from_numpy(x))[:, 0] for _ in range(given.setting.samples)]))

    return predict


METHODS: dict[str, Fit] = {"deep ensemble": deep_ensemble, "MC-dropout": mc_dropout}
