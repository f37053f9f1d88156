"""A_h: an optimisation algorithm with all of its settings, as one value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import torch
from torch.distributions import Distribution

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import Code
from wherefrom.training import optimisers, schedules, torch_classes
from wherefrom.training.optimisers import OPTIMISERS
from wherefrom.training.schedules import Schedule
from wherefrom.training.torch_classes import TorchOptimiser

# What every algorithm has, and what some have.
_COMMON = ("lr", "batch_size", "clip", "replacement", "drop_last", "schedule")
SETTINGS = (*_COMMON, *dict.fromkeys(name for o in OPTIMISERS.values() for name in o.defaults))


_ANY = Code("{it} cannot be stored in a file, so a loaded posterior cannot draw from it or train with it")


@stored("Algorithm", code={"schedule": schedules.NOT_STORED, "*": _ANY}, arguments=lambda it: it._arguments())
@dataclass(frozen=True, init=False, repr=False)
class Algorithm:
    """A_h: an optimisation algorithm with its settings h.

    name: "sgd", "adam", "adamw", "nadam", "radam", "adamax", "rmsprop", "adagrad", "adadelta" or "lion", with
        torch.optim's settings and defaults; "sgld" or "sghmc", which sample; "ivon", which learns a variance for every
        weight; or any class of `torch.optim.Optimizer`'s kind, with its own arguments: members then step one by one.
    lr: the learning rate.
    batch_size: rows in a batch.
    clip: the largest norm of a gradient (default: no limit).
    schedule: one of `wf.schedules`, or any function of progress in [0, 1) that returns factors of lr (default:
        constant).
    replacement: draw each batch from all rows with replacement (default False: an epoch visits every row once).
    drop_last: leave out the last batch of an epoch if it is short (default False).
    settings: the other settings of the optimiser, such as betas, eps, weight_decay or amsgrad.

    "sgld" and "sghmc" add noise to every step, so that after some time the iterates have the distribution exp(-rows
    (loss + weight_decay |theta|^2 / 2) / temperature). For classes that is Bayes' posterior under a Gaussian prior of
    precision rows * weight_decay. For squared errors, use temperature=2 s^2 / columns, where s is the standard
    deviation of the noise in units of y's, and columns the number of columns of y. "sghmc" has a `momentum`.
    `preconditioned=True` scales each weight's step by its running mean square gradient (`alpha`, `eps`). With a
    schedule, `noise_below=0.1` leaves out the noise while the learning rate is above a tenth of lr.

    "ivon" learns the Gaussian with independent weights that is nearest to that distribution. Their variances start at
    temperature / (rows (hess_init + weight_decay)), and the law `Variational()` takes them over. `clip_radius`, if it
    is not zero, bounds the step of each weight, in units of the learning rate.

    >>> Algorithm("adam", lr=0.01, batch_size=100)
    Algorithm('adam', lr=0.01, batch_size=100)
    >>> Algorithm("sgd", lr=0.1, batch_size=32, momentum=0.9, nesterov=True).settings["momentum"]
    0.9
    >>> Algorithm(torch.optim.Adafactor, lr=0.01, batch_size=100, clip=1.0, eps=(None, 1e-3))
    Algorithm(torch.optim.Adafactor, lr=0.01, batch_size=100, clip=1, eps=(None, 0.001))
    """

    name: str
    batch_size: int
    settings: dict[str, float] = field(hash=False)  # complete, with what was not given at its default; clip if it clips
    schedule: Schedule | None = field(hash=False)
    replacement: bool
    drop_last: bool
    structure: str | TorchOptimiser  # what members that train together have in common
    random: dict[str, Any] = field(hash=False)  # settings that are yet to be drawn, as they were given

    def __init__(
        self,
        name: str | type[torch.optim.Optimizer] | TorchOptimiser,
        *,
        lr: Any,
        batch_size: Any,
        clip: Any = math.inf,
        schedule: Any = None,
        replacement: Any = False,
        drop_last: Any = False,
        **settings: Any,
    ) -> None:
        given = {"lr": lr, **_without_betas(settings, name), "clip": clip}
        structure, fixed, defaults = _structure(name, given)
        given = {k: v for k, v in given.items() if k not in fixed}
        random = {k: v for k, v in {**given, "batch_size": batch_size}.items() if _is_random(k, v, structure)}
        chosen = defaults | {k: _number(k, v, structure) for k, v in given.items() if k not in random}
        chosen = {k: v for k, v in chosen.items() if k not in random}
        optimisers.check({k: v for k, v in chosen.items() if isinstance(structure, str) or k in _COMMON})
        if math.isinf(chosen.get("clip", 0.0)):
            del chosen["clip"]
        schedules.check(schedule)
        for flag, value in (("replacement", replacement), ("drop_last", drop_last)):
            if value not in (False, True):
                raise TypeError(f"{flag} must be True or False, not {value!r}")
        object.__setattr__(self, "name", structure if isinstance(structure, str) else structure.name)
        object.__setattr__(self, "batch_size", 1 if "batch_size" in random else _rows(batch_size))
        object.__setattr__(self, "settings", chosen)
        object.__setattr__(self, "schedule", schedule)
        object.__setattr__(self, "replacement", bool(replacement))
        object.__setattr__(self, "drop_last", bool(drop_last))
        object.__setattr__(self, "structure", structure)
        object.__setattr__(self, "random", random)

    def steps_per_epoch(self, rows: int) -> int:
        """Return the number of steps of an epoch over `rows` rows."""
        batch_size = min(self.batch_size, rows)
        return rows // batch_size if self.drop_last else -(-rows // batch_size)

    def but(self, **changes: Any) -> Algorithm:
        """Return the same algorithm with some settings changed; `schedule__final=0.1` changes a field of its schedule.

        changes: settings by name, with their new values.

        >>> Algorithm("adam", lr=0.1, batch_size=10, schedule=schedules.Cosine()).but(lr=0.2, schedule__final=0.5)
        Algorithm('adam', lr=0.2, batch_size=10, schedule=Cosine(final=0.5))
        """
        fields = {name: changes.pop(name) for name in list(changes) if name.startswith("schedule__")}
        schedule = changes.pop("schedule", self.schedule)
        for path, value in fields.items():
            if schedule is None:
                raise ValueError(
                    f"there is no schedule of which {path} could be changed: give one, as schedule=Cosine()"
                )
            schedule = schedules.changed(schedule, path.removeprefix("schedule__"), value)
        return Algorithm(**self._arguments() | _without_betas(changes, self.structure) | {"schedule": schedule})

    def _arguments(self) -> dict[str, Any]:
        """Return what makes it again."""
        names = ("batch_size", "replacement", "drop_last", "schedule")
        common = {"name": self.structure} | {name: getattr(self, name) for name in names}
        return common | self.settings | self.random | self._fixed

    def has(self, name: str) -> bool:
        """Return True if there is such a setting to change."""
        if name.startswith("schedule__"):
            return schedules.get(self.schedule, name.removeprefix("schedule__")) is not None
        if isinstance(self.structure, TorchOptimiser):
            return name in _COMMON or self.structure.takes(name)
        return name in _COMMON or name in OPTIMISERS[self.structure].defaults

    def get(self, name: str) -> Any:
        """Return the value of any setting, by the name that `but` takes; None where there is none."""
        if name.startswith("schedule__"):
            return schedules.get(self.schedule, name.removeprefix("schedule__"))
        if name in ("batch_size", "replacement", "drop_last", "schedule"):
            return self.random.get(name, getattr(self, name))
        return (self.settings | self.random).get(name, math.inf if name == "clip" else None)

    @property
    def _fixed(self) -> dict[str, Any]:
        """Arguments of a class that are not numbers."""
        return self.structure.fixed if isinstance(self.structure, TorchOptimiser) else {}

    def __repr__(self) -> str:
        defaults = OPTIMISERS[self.structure].defaults if isinstance(self.structure, str) else {}
        given = {k: v for k, v in self.settings.items() if k not in defaults or defaults[k] != v}
        shown = {"lr": given.pop("lr", None), "batch_size": self.batch_size} | given | self._fixed | self.random
        shown |= {"schedule": self.schedule} if self.schedule is not None else {}
        shown |= {name: True for name in ("replacement", "drop_last") if getattr(self, name)}
        return f"Algorithm({self.structure!r}, {', '.join(f'{k}={_written(v)}' for k, v in shown.items())})"


def _structure(
    name: str | type[torch.optim.Optimizer] | TorchOptimiser, given: Mapping[str, Any]
) -> tuple[str | TorchOptimiser, Mapping[str, Any], dict[str, float]]:
    """Return what members share, those of its arguments that are not numbers, and the defaults of the others."""
    if isinstance(name, str):
        name = name.lower()
        if name not in OPTIMISERS:
            raise ValueError(
                f"unknown algorithm {name!r}; there are {', '.join(OPTIMISERS)}, and every class of torch.optim's kind"
            )
        defaults = OPTIMISERS[name].defaults
        for setting in given:
            if setting not in (*defaults, *_COMMON):
                others = ", ".join(defaults)
                raise ValueError(f"{name} has no setting {setting!r}; it has {', '.join(_COMMON)}, {others}")
        return name, {}, dict(defaults)
    arguments = {k: v for k, v in given.items() if k != "clip"}
    fixed = {k: v for k, v in arguments.items() if isinstance(v, bool) or not isinstance(v, Real | Distribution)}
    fixed.pop("lr", None)
    if isinstance(name, TorchOptimiser):
        optimiser = TorchOptimiser(name.name, name.kind, fixed)
    elif torch_classes.is_class(name):
        optimiser = TorchOptimiser.of(name, fixed)
    else:
        hint = "; give the class, and lr here" if isinstance(name, torch.optim.Optimizer) else ""
        raise TypeError(
            f"an algorithm is a name, such as 'adam', or a class such as torch.optim.Adam, not {name!r}{hint}"
        )
    optimiser.check_names(arguments)
    return optimiser, fixed, {}


def _without_betas(settings: Mapping[str, Any], name: object) -> dict[str, Any]:
    """Return settings with betas=(0.9, 0.99) as two settings, unless a class of torch's kind has betas itself."""
    if "betas" not in settings or not isinstance(name, str):
        return dict(settings)
    if "beta1" in settings or "beta2" in settings:
        raise ValueError("give either betas, or beta1 and beta2")
    try:
        beta1, beta2 = settings["betas"]
    except (TypeError, ValueError):
        raise ValueError(f"betas must be two numbers, not {settings['betas']!r}") from None
    return {k: v for k, v in settings.items() if k != "betas"} | {"beta1": beta1, "beta2": beta2}


def _is_random(name: str, value: Any, structure: str | TorchOptimiser) -> bool:
    """Return True if a value is to be drawn. Classes have arguments that are lists and functions."""
    if isinstance(structure, str) or name in _COMMON:
        return isinstance(value, Distribution | list | tuple | dict) or callable(value)
    return isinstance(value, Distribution)


def _number(name: str, value: Any, structure: str | TorchOptimiser) -> float:
    if isinstance(value, Integral) and not isinstance(structure, str):
        return int(value)  # a class may want it as it is
    try:
        number = None if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise TypeError(f"{name} must be a number, not {value!r}; to make it random, use wf.Hyperparameters")
    return number


def _rows(batch_size: Any) -> int:
    if not isinstance(batch_size, Real) or not float(batch_size).is_integer() or batch_size < 1:
        raise ValueError(
            f"batch_size must be a whole number of rows, at least 1; it is {batch_size}. "
            "To make it random, give a list of values"
        )
    return int(batch_size)  # type: ignore[call-overload]


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)
