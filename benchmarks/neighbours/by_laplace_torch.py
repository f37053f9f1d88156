"""laplace-torch on a network from a plain PyTorch loop."""

from __future__ import annotations

import warnings

import torch

from neighbours import torchvision_operators

torchvision_operators.declare()

from laplace import Laplace  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from neighbours.given import Fit, Given, Predict, by_batches  # noqa: E402
from neighbours.plain_loop import train  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")


def laplace(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    network = train(given, given.network())
    x, y = given.tensors
    with torch.no_grad():
        noise = float((network(x) - y).square().mean().sqrt())
    approximation = Laplace(network, "regression", "all", "kron", sigma_noise=noise)
    approximation.fit(DataLoader(TensorDataset(x, y), batch_size=256))
    approximation.optimize_prior_precision()
    return by_batches(approximation)


METHODS: dict[str, Fit] = {"Laplace": laplace}
