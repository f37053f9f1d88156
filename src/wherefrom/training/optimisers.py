"""The optimisers by name: the settings that each has, their defaults and ranges, and the rule of its step.

Two members of one cohort may differ in every setting. Flags are settings too, 0 or 1. `clip`, the largest norm of the
gradient, belongs to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from wherefrom.training import rules
from wherefrom.training.rules import Group, Rule


@dataclass(frozen=True)
class Optimiser:
    """The settings that an optimiser has, with torch.optim's defaults, and the rule of its step."""

    defaults: dict[str, float]
    rule: Callable[[Group], Rule]


_SAMPLING = {
    "weight_decay": 0.0,
    "temperature": 1.0,
    "preconditioned": 0.0,
    "alpha": 0.99,
    "eps": 1e-5,
    "noise_below": 1.0,
}
_LEARNING = {
    "weight_decay": 1e-4,
    "temperature": 1.0,
    "beta1": 0.9,
    "beta2": 0.99999,
    "hess_init": 1.0,
    "clip_radius": 0.0,
}
_BETAS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

OPTIMISERS = {
    "sgd": Optimiser({"weight_decay": 0.0, "momentum": 0.0, "nesterov": 0.0, "dampening": 0.0}, rules.SGD),
    "adam": Optimiser({"weight_decay": 0.0, **_BETAS, "amsgrad": 0.0}, rules.Adam),
    "adamw": Optimiser({"weight_decay": 0.01, **_BETAS, "amsgrad": 0.0}, partial(rules.Adam, decoupled=True)),
    "nadam": Optimiser(
        {"weight_decay": 0.0, **_BETAS, "momentum_decay": 4e-3, "decoupled_weight_decay": 0.0}, rules.NAdam
    ),
    "radam": Optimiser({"weight_decay": 0.0, **_BETAS, "decoupled_weight_decay": 0.0}, rules.RAdam),
    "adamax": Optimiser({"weight_decay": 0.0, **_BETAS}, rules.Adamax),
    "rmsprop": Optimiser(
        {"weight_decay": 0.0, "alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "centered": 0.0}, rules.RMSprop
    ),
    "adagrad": Optimiser(
        {"weight_decay": 0.0, "lr_decay": 0.0, "eps": 1e-10, "initial_accumulator_value": 0.0}, rules.Adagrad
    ),
    "adadelta": Optimiser({"weight_decay": 0.0, "rho": 0.9, "eps": 1e-6}, rules.Adadelta),
    "lion": Optimiser({"weight_decay": 0.0, "beta1": 0.9, "beta2": 0.99}, rules.Lion),
    "ivon": Optimiser(_LEARNING, rules.IVON),
    "sgld": Optimiser(_SAMPLING, rules.Langevin),
    "sghmc": Optimiser({**_SAMPLING, "momentum": 0.9}, partial(rules.Langevin, has_momentum=True)),
}

_BELOW_ONE = ("beta1", "beta2", "alpha")
_FLAGS = ("nesterov", "amsgrad", "centered", "decoupled_weight_decay", "preconditioned")


def check(settings: Mapping[str, float]) -> None:
    """Raise if a setting of an optimiser is out of its range."""
    for name, value in settings.items():
        if name == "clip":
            if not value > 0:
                raise ValueError(f"clip, the largest norm of the gradient, must be above zero; it is {value}")
            continue
        if name in _FLAGS and value not in (0, 1):
            raise ValueError(f"{name} must be True or False; it is {value}")
        if name in _BELOW_ONE and not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1); it is {value}")
        if name == "rho" and not 0 <= value <= 1:
            raise ValueError(f"rho must lie in [0, 1]; it is {value}")
        if name == "hess_init" and not value > 0:
            raise ValueError(f"hess_init must be above zero; it is {value}")
        if value < 0 and name != "dampening":
            raise ValueError(f"{name} must not be negative; it is {value}")
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number; it is {value}")
    if "hess_init" in settings and not settings.get("temperature", 1) > 0:
        raise ValueError("the temperature of ivon must be above zero: at zero, no weight would vary")
    if "temperature" in settings and not settings.get("momentum", 0) < 1:
        raise ValueError(f"the momentum of sghmc must lie in [0, 1); it is {settings['momentum']}")
    if settings.get("nesterov") and (not settings.get("momentum", 1) or settings.get("dampening")):
        raise ValueError("nesterov needs a momentum above zero, and no dampening")


class Clip:
    """Gradients no longer than each member allows: torch.nn.utils.clip_grad_norm_ for many members at once."""

    def __init__(self, group: Group, limits: Sequence[float]) -> None:
        largest = np.array([[limit] for limit in limits], dtype=np.float64)  # infinity where nothing is clipped
        self.off = torch.from_numpy(np.isinf(largest)).to(group.theta.device)
        self.largest = group.column(largest)

    def __call__(self, gradient: Tensor) -> None:
        """Clip in place.  # (members, parameters)"""
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        factor = (self.largest / (norm + 1e-6)).clamp_(max=1.0)
        gradient.mul_(factor.masked_fill_(self.off, 1.0))  # also where its square is too large for a number


def clipping(group: Group) -> Clip | None:
    """Return what clips the members' gradients, if any asks for it."""
    limits = [settings.get("clip", math.inf) for settings in group.settings]
    return Clip(group, limits) if any(math.isfinite(limit) for limit in limits) else None
