"""theta0: where training starts. p(theta | D, t, h) = integral of delta(theta - A_h^t(theta0)) p(theta0)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import Code
from wherefrom.variables.drawn import Drawn

_INIT = Code("InitialCondition(init=...) is code, which is not stored: do the initialisation in the model factory")


@stored("InitialCondition", code={"init": _INIT})
@dataclass(frozen=True)
class InitialCondition(Drawn):
    """Make the initial weights random: each draw calls the model factory again, with its own random stream.

    draws: how many initial weights to train from (needed, except in `Jointly`).
    init: a function that is called with the new network and sets its weights in place (default: the network's own
        initialiser).

    >>> InitialCondition(5)
    InitialCondition(draws=5, init=None)
    """

    slot: ClassVar[str] = "theta0"
    draws: int | None = None
    init: Callable[[nn.Module], Any] | None = None

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        return {"init": self.init} if self.init else {}


def glorot_uniform(network: nn.Module) -> None:
    """Glorot-uniform weights and zero biases, the paper's p(theta0), for `InitialCondition(init=...)` or a factory.

    network: a new network of the model factory.
    """
    for part in network.modules():
        weight, bias = getattr(part, "weight", None), getattr(part, "bias", None)
        if isinstance(weight, nn.Parameter) and weight.ndim > 1:
            nn.init.xavier_uniform_(weight)
            if isinstance(bias, nn.Parameter):
                nn.init.zeros_(bias)
