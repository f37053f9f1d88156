"""Batch normalisation under sampled weights: the running statistics belong to theta, and so must follow it.

A sample of theta sees other activations than the trajectory did; with the trajectory's statistics its answers are
wrong. For every sample the statistics are therefore estimated anew on the training rows, as the average over batches.
In training mode a layer moves its buffers by `buffer <- (1 - momentum) buffer + momentum statistic`; started from zero,
they show the statistic itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wherefrom.training.network import Network

_MOST_ROWS = 512
_CALL_NUMBERS = 2**22  # activations of one call: 16 MB in single precision


def refresh(network: Network, theta: Tensor, x: Tensor) -> Tensor:
    """The same samples with their running statistics estimated on x.  # (samples, size) -> (samples, size)"""
    rows = min(len(x), _MOST_ROWS)
    together = max(1, _CALL_NUMBERS // (rows * network.numbers_per_row)) if network.stackable else 1
    return torch.cat([_refresh_some(network, some, x, rows) for some in theta.split(together)])


def _refresh_some(network: Network, theta: Tensor, x: Tensor, rows: int) -> Tensor:
    tensors = network.layout.views(theta)
    total = {name: torch.zeros_like(tensors[name]) for name in network.momenta}
    counted = 0
    for batch in x.split(rows):
        if len(batch) > 1:  # a single row has no variance
            started = tensors | {name: torch.zeros_like(tensors[name]) for name in network.momenta}
            network.call_many(started, batch.expand(len(theta), *batch.shape), (), True)
            for name, momentum in network.momenta.items():
                total[name] += started[name] * (len(batch) / momentum)
            counted += len(batch)
    fresh = tensors | {name: value / counted for name, value in total.items()}
    return torch.cat([fresh[name].reshape(len(theta), -1) for name in network.layout.names], dim=1)
