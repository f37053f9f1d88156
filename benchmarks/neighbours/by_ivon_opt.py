"""ivon-opt: the optimiser of IVON's authors, in a plain loop."""

from __future__ import annotations

import torch
from ivon import IVON

from neighbours.given import TEMPERATURE, Fit, Given, Moments, Numbers, Predict, moments

torch.set_num_threads(1)
LR = 0.3


def ivon(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    setting = given.setting
    x, y = given.tensors
    network = given.network()
    settings = {"lr": LR, "hess_init": 0.5, "beta2": 0.999, "weight_decay": TEMPERATURE / len(x)}
    optimiser = IVON(network.parameters(), ess=len(x) / TEMPERATURE, **settings)
    for _ in range(setting.epochs):
        for rows in torch.randperm(len(x)).split(setting.batch_size):
            with optimiser.sampled_params(train=True):
                optimiser.zero_grad()
                (network(x[rows]) - y[rows]).square().mean().backward()
            optimiser.step()

    def predict(x: Numbers) -> Moments:
        outputs = []
        for _ in range(setting.samples):
            with torch.no_grad(), optimiser.sampled_params():
                outputs.append(network(torch.from_numpy(x))[:, 0])
        return moments(torch.stack(outputs))

    return predict


METHODS: dict[str, Fit] = {"IVON": ivon}
