"""What is trained in the benchmark: so many members of one architecture on a table of random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import nn

DROPOUT = 0.01
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU,
    "leaky ReLU": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "SiLU": nn.SiLU,
    "GELU": nn.GELU,
    "GELU by tanh": partial(nn.GELU, approximate="tanh"),
    "softplus": nn.Softplus,
}
LEARNING_RATE = 0.001  # small enough that nothing diverges; it has no say in the cost


@dataclass(frozen=True)
class Shape:
    name: str
    members: int
    widths: tuple[int, ...]
    batch_size: int
    rows: int
    optimiser: str  # "adam" or "sgd"
    activation: str = "ReLU"

    def __str__(self) -> str:
        layers = "-".join(map(str, self.widths))
        return f"{self.members} members, {layers}, batch {self.batch_size}, {self.rows:,} rows, {self.optimiser}"

    @property
    def layers(self) -> list[tuple[int, int]]:
        return list(pairwise(self.widths))

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows // self.batch_size)

    @property
    def multiplications(self) -> float:
        """Forward, weight gradient and input gradient (not of the first layer), in one step of all members."""
        products = 3 * sum(a * b for a, b in self.layers) - self.widths[0] * self.widths[1]
        return self.members * products * self.rows / self.steps_per_epoch

    def network(self) -> nn.Sequential:
        modules: list[nn.Module] = []
        for inputs, outputs in self.layers:
            modules += [nn.Linear(inputs, outputs), ACTIVATIONS[self.activation](), nn.Dropout(DROPOUT)]
        return nn.Sequential(*modules[:-2])

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.rows, self.widths[0], generator=generator)
        return x, torch.randn(self.rows, self.widths[-1], generator=generator)


SHAPES = [
    Shape("concrete", 100, (8, 50, 1), 100, 1000, "adam"),
    Shape("protein", 25, (9, 100, 1), 100, 41157, "adam"),
    Shape("toy-1", 20, (1, 100, 1), 1, 10, "sgd"),  # the paper's toy regression, at both of its batch sizes
    Shape("toy-6", 20, (1, 100, 1), 6, 10, "sgd"),
    Shape("deep", 25, (8, 50, 50, 1), 100, 1000, "adam"),
    Shape("vector", 10, (64, 128, 128, 10), 100, 2000, "adam"),
    Shape("wide", 10, (9, 256, 256, 1), 100, 2000, "adam"),
]
