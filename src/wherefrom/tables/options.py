"""All that a user may say about how a table is learnt: the same words in Python and on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wherefrom.tables import plan
from wherefrom.tables.looking import FEWEST_SAMPLES
from wherefrom.training.compute import Compute

CALIBRATIONS = ("auto", "variance", "temperature", "conformal", "none")


@dataclass(frozen=True)
class Request:
    """All that a user may say about a run."""

    target: str
    task: str | None = None
    least: float | Literal["auto"] | None = "auto"  # that a quantity can be
    kinds: Mapping[str, str] = field(default_factory=dict)
    over: str | None = None
    recipe: str | None = None
    draws: int | None = None
    group: str | None = None  # a column of rows that belong together
    settings: plan.Settings = field(default_factory=plan.Settings)
    epochs: int | None = None  # None: found by a pilot
    budget: float | None = None  # seconds
    calibrate: str = "auto"
    held_out: float = 0.15
    level: float = 0.95
    samples: int = 100
    seed: int = 0
    compute: Compute = field(default_factory=Compute)

    @classmethod
    def of(
        cls,
        target: str,
        *,
        least: Any = "auto",
        number: Sequence[str] = (),
        text: Sequence[str] = (),
        date: Sequence[str] = (),
        drop: Sequence[str] = (),
        hidden: str | int | Sequence[int] | None = None,
        dropout: float | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        noise: Any = "auto",
        epochs: Any = "auto",
        budget: str | float | None = None,
        compute: Compute | None = None,
        device: str | None = None,
        engine: Any = None,
        workers: int | None = None,
        **others: Any,
    ) -> Request:
        """Read the options as a user writes them, in Python or on the command line."""
        kinds = dict.fromkeys(number, "number") | dict.fromkeys(text, "text")
        for one in date:
            name, _, written = one.partition("=")
            kinds[name] = f"date:{written}" if written else "date"
        return cls(
            target,
            least=as_least(least),
            kinds=kinds | dict.fromkeys(drop, "drop"),
            settings=plan.Settings(plan.as_hidden(hidden), dropout, lr, batch_size, as_noise(noise)),
            epochs=as_epochs(epochs),
            budget=seconds(budget) if isinstance(budget, str) else budget,
            compute=(compute or Compute()).but(device=device, engine=engine, workers=workers),
            **others,
        )

    def __post_init__(self) -> None:
        if self.calibrate not in CALIBRATIONS:
            raise ValueError(f"--calibrate is one of {', '.join(CALIBRATIONS)}, not {self.calibrate!r}")
        if not 0.02 <= self.held_out <= 0.5:
            raise ValueError(f"--held-out is a share of the rows, from 0.02 to 0.5, not {self.held_out}")
        if self.epochs is not None and self.epochs < 2:
            raise ValueError(f"--epochs is auto, or a number from 2 on, not {self.epochs}")
        if self.samples < FEWEST_SAMPLES:
            raise ValueError(f"--samples is at least {FEWEST_SAMPLES}, not {self.samples}")
        if not 0 < self.level < 1:
            raise ValueError(f"--level lies between 0 and 1, as 0.95, unlike {self.level}")
        plan.variables(self.over, self.recipe, self.draws, lr=0.001)  # raises where they cannot be


def seconds(written: str) -> float:
    """
    >>> seconds("90s"), seconds("5min"), seconds("1.5h")
    (90.0, 300.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|hours?)", written.strip())
    if not match or not float(match[1]) > 0:
        raise ValueError(f"--budget is a time with its unit, such as 90s, 5min or 1h, not {written!r}")
    return float(match[1]) * {"m": 60, "h": 3600}.get(match[2][0], 1)


def as_epochs(written: Any) -> int | None:
    """Return how many epochs to train for; None leaves it to the pilot."""
    if written not in ("auto", None) and not str(written).isdigit():
        raise ValueError(f"--epochs is auto, or a number, not {written!r}")
    return None if written in ("auto", None) else int(written)


def as_least(written: Any) -> float | Literal["auto"] | None:
    """Return the least that a quantity can be, None if there is none, or "auto"."""
    if written in ("auto", "none", None):
        return "auto" if written == "auto" else None
    try:
        return float(written)
    except ValueError:
        raise ValueError(f"--least is auto, none, or a number, not {written!r}") from None


def as_noise(written: Any) -> str:
    """Return the noise as the plan of a training has it."""
    return "none" if written is None else str(written)
