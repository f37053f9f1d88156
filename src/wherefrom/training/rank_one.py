"""Ensembles that share their weights: sub-networks that differ by a rank-one factor of every layer.

Sub-network k of an ensemble has, in each linear or convolutional layer, the weights

    W_k  =  W * (s_k r_k^T),        so that        W_k x  =  s_k * (W (r_k * x)),

and a bias of its own (BatchEnsemble; Wen, Tran and Ba, 2020). The weights W are shared: K sub-networks of a layer with
n inputs and m outputs take n m + K (n + 2 m) numbers instead of K (n + 1) m. Which of them answers is a choice of the
architecture, F. It is made by fair coins, log2 K for each row in training and for each sample in prediction. The coins
are a site of dropout at a rate of one half, so the variable `Dropout` marginalises the choice. Where it is not
marginalised, the mean of the factors answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wherefrom.files.codec import stored
from wherefrom.training.cohort import FitsItself, Sized

_LAYERS = (nn.Linear, nn.Conv2d)


def rank_one(model: Any, networks: int = 4, spread: float | None = 0.5) -> Any:
    """Return a model factory whose networks are ensembles that share their weights (BatchEnsemble).

    model: the factory of a network of linear and convolutional layers, or `wf.MLP(...)`.
    networks: number of networks in each ensemble, a power of two (default 4).
    spread: the initial factors are drawn from N(1, spread^2) (default 0.5); None: random signs.

    Marginalise `wf.Dropout()`, and leave its rate alone: the coins are fair.

    >>> rank_one(lambda: nn.Linear(3, 1), networks=2)()
    SharedWeights(
      2 networks
      (inner): RankOneLayer(3 -> 1)
    )
    """
    if isinstance(networks, bool) or networks != int(networks) or networks < 2 or networks & (networks - 1):
        raise ValueError(f"networks must be a power of two, at least 2; it is {networks}")
    if spread is not None and not spread >= 0:
        raise ValueError(f"spread must be a standard deviation, at least 0, or None for random signs; it is {spread}")
    if isinstance(model, FitsItself):
        raise ValueError(f"{model} fits itself, and has no layers whose weights could be shared")
    return (SizedRankOne if isinstance(model, Sized) else RankOne)(model, int(networks), spread)


@dataclass(frozen=True)
class RankOne:
    """A factory of ensembles; see `rank_one`."""

    model: Callable[[], nn.Module]
    networks: int
    spread: float | None

    def __call__(self) -> nn.Module:
        return SharedWeights(self.model(), self.networks, self.spread)


@stored("RankOne")
@dataclass(frozen=True)
class SizedRankOne:
    """A factory of ensembles that takes x's and y's sizes from the data; see `rank_one`."""

    model: Any
    networks: int
    spread: float | None

    def sized(self, inputs: int, outputs: int) -> Callable[[], nn.Module]:
        """Return the factory for these numbers of columns and outputs."""
        return RankOne(self.model.sized(inputs, outputs), self.networks, self.spread)

    def size(self, inputs: int, outputs: int) -> int:
        """Return how many weights that network has."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self.sized(inputs, outputs)().parameters())

    def __call__(self) -> nn.Module:
        raise ValueError(f"{self} takes its sizes from the data; on its own, use {self}.sized(inputs, outputs)()")


class _Chosen:
    """The share of each sub-network in each row's answer, while a forward pass runs.  # (rows, networks)"""

    shares: Tensor | None = None

    def of(self, factors: Tensor, x: Tensor) -> Tensor:
        """Return each row's factors.  # (networks, units) -> (rows, units)"""
        if self.shares is None or len(self.shares) != len(x):
            raise ValueError(
                "layers that share weights must be called by their network, with the rows of the batch as the first "
                f"dimension; this one is called with a tensor of shape {tuple(x.shape)}"
            )
        return self.shares @ factors


class SharedWeights(nn.Module):
    """A network whose layers have their own factors for each sub-network."""

    def __init__(self, inner: nn.Module, networks: int, spread: float | None) -> None:
        super().__init__()
        self.networks, self.coins, self.chosen = networks, networks.bit_length() - 1, _Chosen()
        self.inner = self._replaced(inner, spread, {})
        if not any(isinstance(part, RankOneLayer) for part in self.inner.modules()):
            raise ValueError("the model has neither nn.Linear nor nn.Conv2d layers, whose weights could be shared")

    def forward(self, x: Tensor) -> Tensor:
        like = next(self.parameters())
        fair = torch.ones(len(x), self.coins, dtype=like.dtype, device=x.device)
        heads = F.dropout(fair, 0.5, self.training) / 2  # 0 or 1; one half where nothing is dropped
        shares = fair[:, :1]
        for head in heads.unbind(1):
            shares = torch.cat([shares * head.unsqueeze(1), shares * (1 - head).unsqueeze(1)], dim=1)
        self.chosen.shares = shares
        try:
            answer: Tensor = self.inner(x)
        finally:
            self.chosen.shares = None
        return answer

    def extra_repr(self) -> str:
        return f"{self.networks} networks"

    def _replaced(self, module: nn.Module, spread: float | None, made: dict[nn.Module, nn.Module]) -> nn.Module:
        """Return a module with its layers replaced; one that stands in two places stays one."""
        if type(module) in _LAYERS:
            if module not in made:
                made[module] = RankOneLayer(module, self.networks, spread, self.chosen)
            return made[module]
        for name, part in [(name, part) for name, part in module._modules.items() if part is not None]:
            setattr(module, name, self._replaced(part, spread, made))
        return module


class RankOneLayer(nn.Module):
    """A linear layer, or a convolution, with shared weights."""

    def __init__(self, layer: Any, networks: int, spread: float | None, chosen: _Chosen) -> None:
        super().__init__()
        self.chosen, outputs, inputs = chosen, layer.weight.shape[0], _inputs(layer)
        self.weight = layer.weight
        self.inputs, self.outputs = (nn.Parameter(_drawn(networks, n, spread, layer.weight)) for n in (inputs, outputs))
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().repeat(networks, 1))
        self.is_linear = isinstance(layer, nn.Linear)
        self.how = {} if self.is_linear else _how(layer)

    def extra_repr(self) -> str:
        return f"{self.inputs.shape[1]} -> {self.outputs.shape[1]}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the product with the shared weights, with the factors and the bias of each row's network."""
        positions = (*(1,) * (x.ndim - 2), -1) if self.is_linear else (-1, 1, 1)  # of a sequence, or an image

        def of_rows(part: Tensor) -> Tensor:
            return self.chosen.of(part, x).reshape(len(x), *positions)

        product: Any = F.linear if self.is_linear else F.conv2d
        answer: Tensor = product(x * of_rows(self.inputs), self.weight, **self.how) * of_rows(self.outputs)
        return answer if self.bias is None else answer + of_rows(self.bias)


def _how(layer: nn.Conv2d) -> dict[str, Any]:
    """Return the settings of a convolution."""
    if layer.padding_mode != "zeros":
        raise ValueError(f"a convolution that shares its weights pads with zeros, not {layer.padding_mode!r}")
    return {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}


def _inputs(layer: Any) -> int:
    count: int = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    return count


def _drawn(networks: int, units: int, spread: float | None, like: Tensor) -> Tensor:
    """Return factors at the beginning.  # (networks, units)"""
    numbers = torch.randn(networks, units, dtype=like.dtype, device=like.device)
    return numbers.sign() if spread is None else 1 + spread * numbers
