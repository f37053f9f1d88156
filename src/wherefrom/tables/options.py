"""All that a user may say about how a table is learnt: the same words in Python and on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wherefrom.likelihoods import LIKELIHOODS
from wherefrom.likelihoods.choice import LAWS, TASKS
from wherefrom.predictive.calibration import CALIBRATIONS as KINDS_OF_CALIBRATION
from wherefrom.tables import plan
from wherefrom.tables.looking import FEWEST_SAMPLES
from wherefrom.tables.sampling import MOST_ROWS
from wherefrom.tables.wording import option
from wherefrom.training.compute import Compute

FAMILIES = ("network", "trees", "process")
CALIBRATIONS = ("auto", *KINDS_OF_CALIBRATION, "none")


@dataclass(frozen=True)
class Request:
    """All that a user may say about a run."""

    target: str
    task: str | None = None
    likelihood: str = "auto"  # of a quantity: one of LAWS, or what left-out rows call for
    event: str | None = None  # column that says whether the event was seen at the time that is the target
    entry: str | None = None  # column of the time from which on a row was seen
    least: float | Literal["auto"] | None = "auto"  # that a quantity can be
    levels: tuple[str, ...] = ()  # of ordered classes, from the lowest to the highest
    exposure: str | None = None  # a column that says how long, or how many, each row was observed
    kinds: Mapping[str, str] = field(default_factory=dict)
    over: str | Sequence[Any] | None = None  # as it is written, or variables
    recipe: str | None = None
    draws: int | None = None
    recipe_settings: Mapping[str, Any] = field(default_factory=dict)
    families: str = "auto"  # or names of families, separated by commas
    group: str | None = None  # a column of rows that belong together
    weight: str | None = None  # a column that says how much each row counts
    class_weight: Any = None
    settings: plan.Settings = field(default_factory=plan.Settings)
    epochs: int | None = None  # None: found by a pilot
    budget: float | None = None  # seconds
    calibrate: str = "auto"
    held_out: float | None = None  # None: none, all rows are judged by networks that did not see them
    test_after: str | None = None  # a date from which on rows are for testing alone, or its column and the date
    level: float = 0.95
    samples: int | None = None  # of each network; None: by how many there are
    seed: int = 0
    compute: Compute = field(default_factory=Compute)
    fewest_rows: int = plan.FEWEST_ROWS
    most_rows: int = MOST_ROWS  # to learn from, drawn at random if there are more

    @classmethod
    def of(
        cls,
        target: str,
        *,
        least: Any = "auto",
        levels: str | Sequence[Any] | None = None,
        exposure: str | None = None,
        number: Sequence[str] = (),
        text: Sequence[str] = (),
        date: Sequence[str] = (),
        drop: Sequence[str] = (),
        hidden: str | int | Sequence[int] | None = None,
        dropout: float | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        noise: Any = "auto",
        settings: Mapping[str, Any] | None = None,
        epochs: Any = "auto",
        budget: str | float | None = None,
        compute: Compute | None = None,
        device: str | None = None,
        engine: Any = None,
        workers: int | None = None,
        **others: Any,
    ) -> Request:
        """Read the options as a user writes them, in Python or on the command line; `settings` are further ones."""
        if not isinstance(target, str):
            raise TypeError(
                f"target is the name of one column, not {target!r}: fit a model for each, or train one network for all "
                "by wf.Several"
            )
        kinds = dict.fromkeys(number, "number") | dict.fromkeys(text, "text")
        for one in date:
            name, _, written = one.partition("=")
            kinds[name] = f"date:{written}" if written else "date"
        if exposure is not None:
            kinds[exposure] = "exposure"
        return cls(
            target,
            least=as_least(least),
            levels=as_levels(levels),
            exposure=exposure,
            kinds=kinds | dict.fromkeys(drop, "drop"),
            settings=plan.Settings(
                plan.as_hidden(hidden), dropout, lr, batch_size, as_noise(noise), **dict(settings or {})
            ),
            epochs=as_epochs(epochs),
            budget=seconds(budget) if isinstance(budget, str) else budget,
            compute=(compute or Compute()).but(device=device, engine=engine, workers=workers),
            **others,
        )

    def __post_init__(self) -> None:
        if self.likelihood not in ("auto", *LAWS):
            log_normal = f": a log-normal is {option('likelihood', 'positive')}" * str(self.likelihood).startswith(
                "log"
            )
            offered = f"auto, {', '.join(LAWS[:-1])} or {LAWS[-1]}"
            raise ValueError(f"{option('likelihood')} is {offered}, not {self.likelihood!r}{log_normal}")
        of_times = self.event is not None or self.entry is not None
        if self.likelihood != "auto" and (of_times or self.task not in (None, TASKS[self.likelihood])):
            other = option("event") if of_times else option("task", self.task)
            raise ValueError(
                f"{option('likelihood', self.likelihood)} is for {LIKELIHOODS[TASKS[self.likelihood]].target}, and "
                f"not for {other}: give one of them"
            )
        if self.target in (self.exposure, self.event, self.entry):
            raise ValueError(f"{self.target!r} is the target: target, exposure, event and entry are different columns")
        if self.calibrate not in CALIBRATIONS:
            raise ValueError(f"{option('calibrate')} is one of {', '.join(CALIBRATIONS)}, not {self.calibrate!r}")
        if self.families != "auto" and (unknown := set(self.families_asked) - {*FAMILIES}):
            raise ValueError(
                f"{option('families')} is auto, or some of {', '.join(FAMILIES)}, separated by commas, not "
                f"{min(unknown)!r}"
            )
        if self.held_out is not None and not 0.02 <= self.held_out <= 0.5:
            raise ValueError(f"{option('held_out')} is a share of the rows, from 0.02 to 0.5, not {self.held_out}")
        if self.epochs is not None and self.epochs < 2:
            raise ValueError(f"{option('epochs')} is auto, or a number from 2 on, not {self.epochs}")
        if self.samples is not None and self.samples < FEWEST_SAMPLES:
            raise ValueError(f"{option('samples')} is at least {FEWEST_SAMPLES}, not {self.samples}")
        if self.most_rows < self.fewest_rows:
            raise ValueError(f"{option('most_rows')} is at least {self.fewest_rows}, not {self.most_rows}")
        if not 0 < self.level < 1:
            raise ValueError(f"{option('level')} lies between 0 and 1, as 0.95, unlike {self.level}")
        self.variables(0.001)  # raises where they cannot be

    @property
    def families_asked(self) -> tuple[str, ...]:
        """The families to try, networks first. Whoever says how to train a network means networks alone."""
        if self.families != "auto":
            named = [name.strip() for name in self.families.split(",")]
            return (FAMILIES[0], *(name for name in named if name != FAMILIES[0]))
        of_networks = (self.over, self.recipe, self.epochs, self.settings.hidden, self.settings.model, self.exposure)
        return FAMILIES if all(each is None for each in of_networks) else FAMILIES[:1]

    @property
    def as_text(self) -> frozenset[str]:
        """Columns whose cells are to be read as text."""
        return frozenset((*self.kinds, *(name for name in (self.group,) if name is not None)))

    def variables(self, lr: float, folds: int = 0) -> list[Any]:
        """The choices to marginalise, around a learning rate, in each of some folds."""
        return plan.variables(self.over, self.recipe, self.draws, self.recipe_settings, lr=lr, folds=folds)


def seconds(written: str) -> float:
    """
    >>> seconds("90s"), seconds("5min"), seconds("1.5h")
    (90.0, 300.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|hours?)", written.strip())
    if not match or not float(match[1]) > 0:
        raise ValueError(f"{option('budget')} is a time with its unit, such as 90s, 5min or 1h, not {written!r}")
    return float(match[1]) * {"m": 60, "h": 3600}.get(match[2][0], 1)


def as_epochs(written: Any) -> int | None:
    """Return how many epochs to train for; None leaves it to the pilot."""
    if written not in ("auto", None) and not str(written).isdigit():
        raise ValueError(f"{option('epochs')} is auto, or a number, not {written!r}")
    return None if written in ("auto", None) else int(written)


def as_least(written: Any) -> float | Literal["auto"] | None:
    """Return the least that a quantity can be, None if there is none, or "auto"."""
    if written in ("auto", "none", None):
        return "auto" if written == "auto" else None
    try:
        return float(written)
    except ValueError:
        raise ValueError(f"{option('least')} is auto, none, or a number, not {written!r}") from None


def as_levels(written: str | Sequence[Any] | None) -> tuple[str, ...]:
    """Return levels as text, from the lowest to the highest.

    >>> as_levels("low, medium,high"), as_levels([1, 2, 3])
    (('low', 'medium', 'high'), ('1', '2', '3'))
    """
    if written is None:
        return ()
    return tuple(part.strip() for part in written.split(",")) if isinstance(written, str) else tuple(map(str, written))


def as_noise(written: Any) -> str:
    """Return the noise as the plan of a training has it."""
    return "none" if written is None else str(written)
