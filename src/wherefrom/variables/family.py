"""F: what is trained. p(y | x, D) = integral of p(y | x, D, F) p(F)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import Code
from wherefrom.training import streams
from wherefrom.training.mlp import MLP
from wherefrom.variables.drawn import Drawn, check_draws
from wherefrom.variables.finite import Finite, shares

Factory = Callable[[], nn.Module]


@stored("Dropout")
@dataclass(frozen=True)
class Dropout:
    """Make the units that dropout keeps random: each sample of a prediction drops units as in training.

    One sample is one sub-network f(theta * omega), the same for all rows, so that a row's prediction does not depend on
    its neighbours.

    rate: dropout rate, instead of the rates in the model, in training too (default: those of the model).
    on: "units" (default), or "weights": single weights are dropped (not biases, nor those of normalisation), in a
        network with or without dropout layers. This is the paper's edge dropout.

    >>> Dropout()
    Dropout(rate=None, on='units')
    """

    slot: ClassVar[str] = "F"
    rate: float | None = None
    on: Literal["units", "weights"] = "units"

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < 1:
            raise ValueError(f"the dropout rate must lie between 0 and 1; it is {self.rate}")
        if self.on not in ("units", "weights"):
            raise ValueError(f'on must be "units" or "weights", not {self.on!r}')
        if self.on == "weights" and self.rate is None:
            raise ValueError('Dropout(on="weights") needs a rate')


_FACTORY = Code("a file holds no code: give the model factory {name}, as load(folder, model={...})")


@stored("Families", code={"factories": _FACTORY}, without=["draws", "is_drawn"])
@dataclass(frozen=True, init=False, eq=False)
class Families(Drawn):
    """Make the kind of model random: one of several model factories, each with a name.

    All of them are trained, and predictions are mixed by weight. They replace the model of the training.

    factories: name -> model factory.
    weights: the probability of each, up to a factor: a list, or a dictionary by name (default: equal).

    >>> Families({"narrow": MLP([20]), "wide": MLP([200])}, weights=[1, 3]).weights
    (0.25, 0.75)
    """

    slot: ClassVar[str] = "F"
    factories: dict[str, Factory]
    weights: tuple[float, ...] | None
    draws: int | None
    is_drawn: bool  # at random, as within `Jointly`, rather than gone through

    def __init__(self, factories: Mapping[str, Factory], weights: Sequence[float] | Mapping[str, float] | None = None):
        if not isinstance(factories, Mapping) or len(factories) < 2:
            raise ValueError('Families needs a dictionary of at least two, such as {"narrow": make_narrow, ...}')
        for name, factory in factories.items():
            if isinstance(factory, nn.Module) or not callable(factory):
                raise TypeError(f"the family {name!r} must be a function that returns a new network, not {factory!r}")
        if isinstance(weights, Mapping):
            if set(weights) != set(factories):
                raise ValueError(f"weights name {', '.join(weights)}, but the families are {', '.join(factories)}")
            weights = [weights[name] for name in factories]
        object.__setattr__(self, "factories", {str(name): factory for name, factory in factories.items()})
        object.__setattr__(self, "weights", shares(weights, len(factories)))
        object.__setattr__(self, "draws", len(factories))
        object.__setattr__(self, "is_drawn", False)
        check_draws(self)

    @property
    def is_finite(self) -> bool:
        return not self.is_drawn

    def drawn_jointly(self) -> Families:
        joint = copy.copy(self)
        object.__setattr__(joint, "draws", None)
        object.__setattr__(joint, "is_drawn", True)
        return joint

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        names = Finite(tuple(self.factories), self.weights)
        return {"family": names.draw(streams.generator(seed, "F", draw)) if self.is_drawn else names.values[draw]}

    def __repr__(self) -> str:
        weights = f", weights={list(self.weights)}" if self.weights else ""
        return f"Families({list(self.factories)}{weights})"


def MLPs(
    widths: Sequence[int] = (50,),
    depths: Sequence[int] = (1,),
    activations: Sequence[str] = ("relu",),
    dropout: float = 0.0,
    weights: Sequence[float] | None = None,
) -> Families:
    """Return all MLPs of these widths, depths and activations, as one family each.

    The numbers of inputs and outputs come from the data.

    widths: hidden units of a layer (default: 50).
    depths: numbers of hidden layers (default: 1).
    activations: names of activations (default: "relu").
    dropout: dropout rate of all (default 0).
    weights: the probability of each MLP, up to a factor (default: equal).

    >>> MLPs(widths=[20, 50], depths=[1, 2])
    Families(['20 relu', '20-20 relu', '50 relu', '50-50 relu'])
    """
    found = {}
    for width, depth, activation in itertools.product(widths, depths, activations):
        if depth < 1:
            raise ValueError(f"depths count hidden layers, and are at least 1, not {depth}")
        name = f"{'-'.join([str(width)] * depth)} {activation}"
        if name in found:
            raise ValueError(f"there are two MLPs {name!r}: name each width, depth and activation once")
        found[name] = MLP([width] * depth, activation, dropout)
    if len(found) < 2:
        raise ValueError("a single MLP leaves nothing uncertain: give several widths, depths or activations")
    return Families(found, weights)
