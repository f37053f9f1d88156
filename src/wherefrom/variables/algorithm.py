"""h: how training proceeds. p(theta | D, t, theta0) = integral of delta(theta - A_h^t(theta0)) p(h)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.distributions import Distribution

from wherefrom.training import streams
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
    points: tuple[dict[str, float], ...] | None
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
        for name, values in settings.items():
            if not isinstance(values, Distribution) and (isinstance(values, str) or not isinstance(values, Sequence)):
                raise TypeError(
                    f"{name} must be a torch.distributions object or a list of values, not {values!r}; "
                    "a fixed value belongs into wf.Algorithm"
                )
            if isinstance(values, Distribution) and values.batch_shape + values.event_shape != ():
                raise ValueError(f"{name}: the distribution must be of a single number")
        if points is not None and draws is not None:
            raise ValueError("points are gone through one by one: leave draws out")
        if points is None and draws is None and all(isinstance(v, Sequence) for v in settings.values()):
            lists: list[list[float]] = [list(values) for values in settings.values()]  # type: ignore[arg-type]
            points = [dict(zip(settings, values, strict=True)) for values in itertools.product(*lists)]
        object.__setattr__(self, "points", tuple(map(dict, points)) if points is not None else None)
        object.__setattr__(self, "draws", len(points) if points is not None else draws)
        object.__setattr__(self, "settings", dict(settings))
        check_draws(self)

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
