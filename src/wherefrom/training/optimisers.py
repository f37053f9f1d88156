"""The algorithm's step for many members at once, each with its own settings.

theta and its gradient are (members, parameters); every setting is a (members, 1) tensor, so two members of one cohort
may differ in all of them. The formulas are torch.optim's, in its order of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Settings = dict[str, Tensor]  # each (members, 1)
State = dict[str, Tensor]  # each (members, parameters)


@dataclass(frozen=True)
class Optimiser:
    """A step rule: the settings it knows with their defaults, the buffers it keeps, and the step itself."""

    defaults: dict[str, float]
    buffers: tuple[str, ...]
    step: Callable[[Tensor, Tensor, State, Settings, int], None]  # in place; the last argument counts from 1


def sgd(theta: Tensor, gradient: Tensor, state: State, settings: Settings, count: int) -> None:
    """v <- momentum v + g;  theta <- theta - lr v,  with Nesterov: theta - lr (g + momentum v)"""
    gradient = torch.addcmul(gradient, theta, settings["weight_decay"])
    velocity = state["velocity"].mul_(settings["momentum"]).add_(gradient)
    nesterov = gradient.addcmul_(velocity, settings["momentum"])
    step = torch.where(settings["nesterov"] > 0, nesterov, velocity)
    theta.addcmul_(step, settings["lr"], value=-1)


def adam(theta: Tensor, gradient: Tensor, state: State, settings: Settings, count: int) -> None:
    """m, v <- running means of g and g^2;  theta <- theta - lr m^ / (sqrt(v^) + eps),  weight decay inside g"""
    gradient = torch.addcmul(gradient, theta, settings["weight_decay"])
    _adam_step(theta, gradient, state, settings, count)


def adamw(theta: Tensor, gradient: Tensor, state: State, settings: Settings, count: int) -> None:
    """Adam with decoupled weight decay: theta <- (1 - lr weight_decay) theta before the step"""
    theta.mul_(1 - settings["lr"] * settings["weight_decay"])
    _adam_step(theta, gradient, state, settings, count)


def _adam_step(theta: Tensor, gradient: Tensor, state: State, settings: Settings, count: int) -> None:
    beta1, beta2 = settings["beta1"], settings["beta2"]
    first = state["first"].lerp_(gradient, 1 - beta1)
    second = state["second"].mul_(beta2).addcmul_(gradient, gradient * (1 - beta2))
    size = second.sqrt().div_((1 - beta2**count).sqrt()).add_(settings["eps"])
    theta.addcmul_(first / size, settings["lr"] / (1 - beta1**count), value=-1)


_ADAM = {"weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

OPTIMISERS = {
    "sgd": Optimiser({"weight_decay": 0.0, "momentum": 0.0, "nesterov": 0.0}, ("velocity",), sgd),
    "adam": Optimiser(_ADAM, ("first", "second"), adam),
    "adamw": Optimiser(_ADAM | {"weight_decay": 0.01}, ("first", "second"), adamw),
}
