"""What tests of this room share: a law that writes down what an engine shows it, and networks with given weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import wherefrom as wf
from wherefrom.laws import Collector, TrajectoryLaw
from wherefrom.training.network import Network


@dataclass(frozen=True, eq=False)
class Spied:
    """Another law, and every iterate that its collectors are shown."""

    law: TrajectoryLaw
    seen: list[Tensor] = field(default_factory=list)  # each (members, size)

    @property
    def every(self) -> Any:
        return self.law.every

    @property
    def fewest(self) -> int:
        return self.law.fewest

    def collector(self, theta: Tensor, iterations: int) -> Collector:
        return _SpiedCollector(self.law.collector(theta, iterations), self.seen)


@dataclass(eq=False)
class _SpiedCollector:
    inner: Collector
    seen: list[Tensor]

    def collect(self, theta: Tensor) -> None:
        self.seen.append(theta.clone())
        self.inner.collect(theta)

    def laws(self) -> list[Any]:
        return self.inner.laws()


def with_weights(module: nn.Module, network: Network, theta: Tensor) -> nn.Module:
    """The module with these weights: all of theta, or the part that varies."""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    names, sizes, shapes = network.layout.names, network.layout.sizes, network.layout.shapes
    with torch.no_grad():
        at = 0
        for name, size, shape in zip(names, sizes, shapes, strict=True):
            if at == len(theta):
                break
            tensors[name].copy_(theta[at : at + size].view(shape))
            at += size
    return module


def recorded(
    law: TrajectoryLaw,
    model: Callable[[], nn.Module],
    training: wf.Training,
    data: Any,
    over: list[Any],
    **settings: Any,
) -> tuple[wf.Posterior, list[wf.Recorder]]:
    """A training by the torch engine, and recorders that were shown the same iterates and the same end."""
    spied = Spied(law)
    posterior = wf.marginalise(training, data, [*over, wf.Iterations(spied)], engine="torch", workers=1, **settings)
    recorders = []
    for k, component in enumerate(posterior.mixture):
        recorder = wf.Recorder(law, expected=len(spied.seen))
        for iterate in spied.seen:
            recorder.update(with_weights(model(), posterior.network, iterate[k]))
        recorder.finish(with_weights(model(), posterior.network, component.trained.last))
        recorders.append(recorder)
    return posterior, recorders
