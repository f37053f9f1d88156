"""Batch normalisation under sampled weights: the running statistics belong to theta, and so must follow it.

A sample of theta sees other activations than the trajectory did; with the trajectory's statistics its answers are
wrong. For every sample the statistics are therefore estimated anew on the training rows, as the average over batches.
In training mode a layer moves its buffers by `buffer <- (1 - momentum) buffer + momentum statistic`; started from zero,
they show the statistic itself.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from wherefrom.training.network import Network

_BATCH = 512


def refresh(network: Network, theta: Tensor, x: Tensor) -> Tensor:
    """The same samples with their running statistics estimated on x.  # (samples, size) -> (samples, size)"""
    layout, momenta = network.layout, network.momenta

    def statistics(tensors: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
        started = tensors | {name: torch.zeros_like(tensors[name]) for name in momenta}
        network.call(started, rows, (), True)
        return {name: started[name] / momentum for name, momentum in momenta.items()}

    tensors = layout.views(theta)
    total = {name: torch.zeros_like(tensors[name]) for name in momenta}
    for start in range(0, len(x), _BATCH):
        rows = x[start : start + _BATCH]
        if len(rows) > 1:  # a single row has no variance
            seen = vmap(lambda t, r=rows: statistics(t, r))(tensors)
            total = {name: total[name] + seen[name] * len(rows) for name in momenta}
    counted = len(x) - (len(x) % _BATCH == 1)
    fresh = tensors | {name: value / counted for name, value in total.items()}
    return torch.cat([fresh[name].reshape(len(theta), -1) for name in layout.names], dim=1)
