"""posteriors: SGLD, in a plain loop, with samples of the second half of the epochs."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from posteriors.sgmcmc import sgld as transform_of
from torch import Tensor

from neighbours.given import TEMPERATURE, Fit, Given, Moments, Numbers, Predict, moments

torch.set_num_threads(1)
warnings.simplefilter("ignore")
SNAPSHOTS, LR = 20, 0.1


def sgld(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    setting = given.setting
    x, y = given.tensors
    network = given.network()
    decay = TEMPERATURE / len(x)

    def log_posterior(parameters: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        loss = (torch.func.functional_call(network, parameters, (batch[0],)) - batch[1]).square().mean()
        return -loss - decay / 2 * sum(p.square().sum() for p in parameters.values()), torch.empty(0)

    transform = transform_of.build(log_posterior, lr=LR, temperature=TEMPERATURE / len(x))
    state = transform.init({name: p.detach().clone() for name, p in network.named_parameters()})
    kept = set(np.linspace(setting.burn_in, setting.epochs - 1, SNAPSHOTS).round().astype(int).tolist())
    samples = []
    for epoch in range(setting.epochs):
        for rows in torch.randperm(len(x)).split(setting.batch_size):
            state, _ = transform.update(state, (x[rows], y[rows]), inplace=True)
        if epoch in kept:
            samples.append({name: p.detach().clone() for name, p in state.params.items()})

    def predict(x: Numbers) -> Moments:
        with torch.no_grad():
            inputs = (torch.from_numpy(x),)
            return moments(torch.stack([torch.func.functional_call(network, p, inputs)[:, 0] for p in samples]))

    return predict


METHODS: dict[str, Fit] = {"SGLD": sgld}
