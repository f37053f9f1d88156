"""h: how training proceeds. p(theta | D, t, theta0) = integral of delta(theta - A_h^t(theta0)) p(h)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.distributions import Distribution

from wherefrom.training import streams
from wherefrom.training.point import SETTINGS
from wherefrom.variables.drawn import check_draws


@dataclass(frozen=True, init=False, eq=False)
class Hyperparameters:
    """Settings of the algorithm are random: `lr`, `batch_size`, `weight_decay`, `momentum`, ...

    Each is a `torch.distributions` object or a list of values. With a number of draws, each draw takes a value of
    every setting at random. Without one, lists are gone through in full: every combination of them, or exactly the
    `points` that are given.

    >>> from torch.distributions import LogNormal
    >>> Hyperparameters(5, lr=LogNormal(-4.6, 0.3)).draws
    5
    >>> Hyperparameters(lr=[0.01, 0.1], batch_size=[10, 100]).draws
    4
    >>> Hyperparameters(points=[dict(lr=0.04, batch_size=1), dict(lr=0.05, batch_size=6)]).choices(seed=0, draw=1)
    {'lr': 0.05, 'batch_size': 6}
    """

    slot: ClassVar[str] = "h"
    draws: int | None
    points: tuple[dict[str, float], ...] | None  # gone through one by one; else values are drawn
    settings: dict[str, Any]

    def __init__(
        self,
        draws: int | None = None,
        *,
        points: Sequence[Mapping[str, float]] | None = None,
        **settings: Distribution | Sequence[float],
    ) -> None:
        if (points is None) == (not settings):
            raise ValueError("give either settings, such as lr=[0.01, 0.1], or points=[dict(lr=...), ...]")
        known = {name: _checked(name, values) for name, values in settings.items()}
        if points is not None and draws is not None:
            raise ValueError("points are gone through one by one: leave draws out")
        if points is None and draws is None and all(isinstance(values, list) for values in known.values()):
            points = [dict(zip(known, values, strict=True)) for values in itertools.product(*known.values())]
        plain = None if points is None else tuple({k: _plain(v) for k, v in point.items()} for point in points)
        object.__setattr__(self, "points", plain)
        object.__setattr__(self, "draws", draws if plain is None else len(plain))
        object.__setattr__(self, "settings", known)
        check_draws(self)

    def drawn_jointly(self) -> Hyperparameters:
        """The same within `Jointly`, which says how many draws there are: values from lists are drawn at random."""
        if not self.settings or self.points is None:
            return self
        drawn = copy.copy(self)
        object.__setattr__(drawn, "points", None)
        object.__setattr__(drawn, "draws", None)
        return drawn

    @property
    def is_finite(self) -> bool:
        return self.points is not None

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        if self.points is not None:
            return dict(self.points[draw])
        return {name: _draw(values, seed, name, draw) for name, values in self.settings.items()}

    def __repr__(self) -> str:
        what = {"points": list(self.points)} if self.points is not None else {"draws": self.draws} | self.settings
        return f"Hyperparameters({', '.join(f'{k}={v!r}' for k, v in what.items())})"


def _checked(name: str, values: Any) -> Any:
    """A distribution of a single number, or a list of plain numbers."""
    if name not in SETTINGS:
        raise ValueError(f"there is no setting {name!r} of an algorithm; there are {', '.join(SETTINGS)}")
    if isinstance(values, Distribution):
        if values.batch_shape + values.event_shape != ():
            raise ValueError(f"{name}: the distribution must be of a single number")
        return values
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise TypeError(
            f"{name} must be a torch.distributions object or a list of values, not {values!r}; "
            "a fixed value belongs into wf.Algorithm"
        )
    return [_plain(value) for value in values]


def _plain(value: Any) -> float:
    """A number of numpy's or torch's as Python's own."""
    return value.item() if hasattr(value, "item") else value


def _draw(values: Distribution | Sequence[float], seed: int, name: str, draw: int) -> float:
    """One value, on a stream of its own for each setting: a further setting leaves the others' draws as they are."""
    if isinstance(values, Distribution):
        with streams.torch_seeded(seed, "h", name, draw):
            return float(values.sample())
    return values[int(streams.generator(seed, "h", name, draw).integers(len(values)))]


@dataclass(frozen=True)
class BatchOrder:
    """The order in which batches are visited is random, and with it the dropout masks of training.

    Without it, every member sees the same batches in the same order.

    >>> BatchOrder(3)
    BatchOrder(draws=3)
    """

    slot: ClassVar[str] = "order"
    is_finite: ClassVar[bool] = False
    draws: int | None = None

    def __post_init__(self) -> None:
        check_draws(self)

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        return {}
