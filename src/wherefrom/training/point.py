"""A classical training: one point (F, theta0, h, t), and nothing about doubt yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from torch import nn

from wherefrom.likelihood import Regression
from wherefrom.training.optimisers import OPTIMISERS

SETTINGS = ("lr", "batch_size", *dict.fromkeys(name for o in OPTIMISERS.values() for name in o.defaults))


@dataclass(frozen=True, init=False)
class Algorithm:
    """A_h: an optimisation algorithm with its settings h.

    "sgd" has momentum, nesterov and weight_decay; "adam" and "adamw" have betas, eps and weight_decay.

    >>> Algorithm("adam", lr=0.01, batch_size=100)
    Algorithm('adam', lr=0.01, batch_size=100)
    >>> Algorithm("sgd", lr=0.1, batch_size=32, momentum=0.9, nesterov=True).settings["momentum"]
    0.9
    """

    name: str
    batch_size: int
    settings: dict[str, float] = field(hash=False)  # complete: what was not given stands at its default

    def __init__(self, name: str, *, lr: float, batch_size: int, **settings: Any) -> None:
        name = name.lower() if isinstance(name, str) else name
        if name not in OPTIMISERS:
            raise ValueError(f"unknown algorithm {name!r}; there are {', '.join(OPTIMISERS)}")
        if "betas" in settings:
            settings["beta1"], settings["beta2"] = settings.pop("betas")
        known = OPTIMISERS[name].defaults
        for setting in settings:
            if setting not in known:
                raise ValueError(f"{name} has no setting {setting!r}; it has lr, batch_size, {', '.join(known)}")
        chosen = {"lr": float(lr)} | known | {k: float(v) for k, v in settings.items()}
        _check(chosen, batch_size)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "batch_size", int(batch_size))
        object.__setattr__(self, "settings", chosen)

    def but(self, **changes: Any) -> Algorithm:
        """The same algorithm with some settings changed."""
        return Algorithm(self.name, **{**self.settings, "batch_size": self.batch_size, **changes})

    def __repr__(self) -> str:
        defaults = OPTIMISERS[self.name].defaults
        given = {k: v for k, v in self.settings.items() if k not in defaults or defaults[k] != v}
        shown = {"lr": given.pop("lr"), "batch_size": self.batch_size} | given
        return f"Algorithm({self.name!r}, {', '.join(f'{k}={v:g}' for k, v in shown.items())})"


def _check(settings: dict[str, float], batch_size: int) -> None:
    if not settings["lr"] >= 0:
        raise ValueError(f"lr must not be negative; it is {settings['lr']}")
    if int(batch_size) != batch_size or batch_size < 1:
        raise ValueError(
            f"batch_size must be a whole number of rows, at least 1; it is {batch_size}. "
            "To make it random, give a list of values"
        )
    for name in ("weight_decay", "momentum", "eps"):
        if settings.get(name, 0.0) < 0:
            raise ValueError(f"{name} must not be negative; it is {settings[name]}")
    for name in ("beta1", "beta2"):
        if not 0 <= settings.get(name, 0.0) < 1:
            raise ValueError(f"{name} must lie in [0, 1); it is {settings[name]}")
    if settings.get("nesterov") and not settings["momentum"]:
        raise ValueError("nesterov needs a momentum above zero")


@dataclass(frozen=True)
class Training:
    """One classical training, theta = A_h^t(theta0), to be repeated with other choices.

    `model` is a factory: each call returns a fresh network with freshly drawn initial weights, and so is both the
    family F and p(theta0). With `standardise`, the columns of a table and y are scaled by the training rows' mean
    and standard deviation on the way in; predictions come back in y's own units.

    >>> from torch import nn
    >>> training = Training(
    ...     model=lambda: nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 1)),
    ...     algorithm=Algorithm("adam", lr=0.01, batch_size=100),
    ...     epochs=400,
    ... )
    >>> training.likelihood
    Regression(noise=None, held_out=0.1)
    """

    model: Callable[[], nn.Module]
    algorithm: Algorithm
    epochs: int
    likelihood: Regression = field(default_factory=Regression)
    standardise: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            raise TypeError(
                "model must be a function that returns a new network each time, such as `lambda: make_net()`, "
                "not a network: its initial weights are one of the choices to draw"
            )
        if not isinstance(self.epochs, Integral) or self.epochs < 1:
            raise ValueError(f"epochs must be a whole number, at least 1; it is {self.epochs}")
        if not isinstance(self.likelihood, Regression):
            raise TypeError(f"likelihood must be wf.Regression(...), not {self.likelihood!r}")
        if not callable(self.model):
            raise TypeError(f"model must be a function that returns a network, not {self.model!r}")
