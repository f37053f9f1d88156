"""The network of most tables, as a model factory that takes x's and y's sizes from the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from wherefrom.files.codec import stored

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid,
}


@stored("MLP")
@dataclass(frozen=True, init=False)
class MLP:
    """A factory of plain networks: linear layers, each but the last followed by an activation and dropout.

    hidden: units of each hidden layer, or of one (default: one layer of 50).
    activation: name of the activation (default "relu").
    dropout: dropout rate (default 0).

    >>> MLP([50, 50], "tanh", dropout=0.05).sized(8, 1)()
    Sequential(
      (0): Linear(in_features=8, out_features=50, bias=True)
      (1): Tanh()
      (2): Dropout(p=0.05, inplace=False)
      (3): Linear(in_features=50, out_features=50, bias=True)
      (4): Tanh()
      (5): Dropout(p=0.05, inplace=False)
      (6): Linear(in_features=50, out_features=1, bias=True)
    )
    """

    hidden: tuple[int, ...]
    activation: str
    dropout: float

    def __init__(self, hidden: int | Sequence[int] = (50,), activation: str = "relu", dropout: float = 0.0) -> None:
        hidden = (hidden,) if isinstance(hidden, int) else hidden
        if any(int(width) != width or width < 1 for width in hidden):
            raise ValueError(f"widths of hidden layers must be whole numbers, at least 1, not {list(hidden)}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"there is no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1); it is {dropout}")
        object.__setattr__(self, "hidden", tuple(int(width) for width in hidden))
        object.__setattr__(self, "activation", activation)
        object.__setattr__(self, "dropout", float(dropout))

    def sized(self, inputs: int, outputs: int) -> Callable[[], nn.Module]:
        """Return the factory for these numbers of columns and outputs."""

        def make() -> nn.Module:
            layers: list[nn.Module] = []
            for before, after in pairwise((inputs, *self.hidden)):
                layers += [nn.Linear(before, after), ACTIVATIONS[self.activation]()]
                layers += [nn.Dropout(self.dropout)] if self.dropout else []
            return nn.Sequential(*layers, nn.Linear(self.hidden[-1] if self.hidden else inputs, outputs))

        return make

    def size(self, inputs: int, outputs: int) -> int:
        """Return how many weights that network has."""
        return sum((before + 1) * after for before, after in pairwise((inputs, *self.hidden, outputs)))

    def __call__(self) -> nn.Module:
        raise ValueError(f"{self} takes its sizes from the data; on its own, use {self}.sized(inputs, outputs)()")
