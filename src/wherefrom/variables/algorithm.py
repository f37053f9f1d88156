"""h: how training proceeds. p(theta | D, t, theta0) = integral of delta(theta - A_h^t(theta0)) p(h)."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.distributions import AffineTransform, Distribution, ExpTransform, TransformedDistribution, Uniform

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import Code
from wherefrom.training import streams
from wherefrom.training.algorithm import Algorithm
from wherefrom.training.schedules import NOT_STORED, SCHEDULES
from wherefrom.variables.drawn import Drawn, check_draws
from wherefrom.variables.finite import Finite, shares

_RESERVED = {"family", "algorithm", "init", "share", "leaves_out"}  # what other variables choose

Space = Distribution | Finite | Callable[[dict[str, Any]], Any]  # the last: a space that depends on earlier draws


_SPACE = Code("{it} cannot be stored in a file, so a loaded posterior cannot draw from it")


@stored("LogUniform", arguments=lambda it: {"low": it.low, "high": it.high})
class LogUniform(TransformedDistribution):
    """A distribution that is uniform in the logarithm, between two positive numbers.

    low, high: the two numbers.

    >>> LogUniform(1e-4, 1e-1)
    LogUniform(0.0001, 0.1)
    """

    def __init__(self, low: float, high: float) -> None:
        if not 0 < low < high:
            raise ValueError(f"LogUniform needs 0 < low < high, not {low} and {high}")
        self.low, self.high = float(low), float(high)
        transforms = [AffineTransform(math.log(low), math.log(high / low)), ExpTransform()]
        super().__init__(Uniform(0.0, 1.0), transforms)

    def __repr__(self) -> str:
        return f"LogUniform({self.low:g}, {self.high:g})"


@stored("Hyperparameters", code={"points": NOT_STORED, "*": _SPACE}, arguments=lambda it: it._arguments())
@dataclass(frozen=True, init=False, eq=False)
class Hyperparameters(Drawn):
    """Make settings of the algorithm random: `lr`, `batch_size`, `weight_decay`, `momentum`, `clip`, `dropout`, ...

    draws: how many trainings; each takes a random value of every setting (default: every combination of the lists is
        trained, or exactly the given `points`).
    points: the settings to train with, as dictionaries, instead of `settings`.
    weights: the probability of each point, up to a factor (default: equal).
    settings: for each setting, a `torch.distributions` object, a list of values, a dictionary from value to weight, or
        a function of the settings drawn before it (in the order in which they are written) that returns one of these, a
        number, or None to keep the setting. Fields of the schedule have two underscores: `schedule__final=[0.1, 0.5]`.

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
    points: tuple[dict[str, Any], ...] | None  # gone through one by one; else values are drawn
    weights: tuple[float, ...] | None  # of the points, where they are not equally likely
    settings: dict[str, Space]

    def __init__(
        self,
        draws: int | None = None,
        *,
        points: Sequence[Mapping[str, Any]] | None = None,
        weights: Sequence[float] | None = None,
        **settings: Any,
    ) -> None:
        if (points is None) == (not settings):
            raise ValueError("give either settings, such as lr=[0.01, 0.1], or points=[dict(lr=...), ...]")
        for name in {*settings, *(name for point in points or () for name in point)} & _RESERVED:
            raise ValueError(f"{name!r} is not a setting of an algorithm, and has a separate variable")
        if "epochs" in {*settings, *(name for point in points or () for name in point)}:
            raise ValueError(
                "epochs are not a setting of the algorithm: make the moment of stopping random by "
                "wf.Iterations(wf.SWAG()), or train for several numbers of epochs one by one"
            )
        spaces = {name: space(name, values) for name, values in settings.items()}
        if points is not None and draws is not None:
            raise ValueError("every point is trained once: leave draws out")
        if points is None and weights is not None:
            raise ValueError("weights are for points; weigh the values of a list by a dictionary, lr={0.01: 3, 0.1: 1}")
        if points is None and draws is None and all(isinstance(values, Finite) for values in spaces.values()):
            points, weights = _grid(spaces)
        plain = None if points is None else tuple({k: _plain(v) for k, v in point.items()} for point in points)
        object.__setattr__(self, "points", plain)
        object.__setattr__(self, "weights", None if plain is None else shares(weights, len(plain)))
        object.__setattr__(self, "draws", draws if plain is None else len(plain))
        object.__setattr__(self, "settings", spaces)
        check_draws(self)

    def drawn_jointly(self) -> Hyperparameters:
        """Return it as it is within `Jointly`, which says how many draws there are: lists are drawn at random."""
        if not self.settings and self.weights is not None:
            raise ValueError("within Jointly every point is used once, all equally likely: leave out the weights")
        if not self.settings or self.points is None:
            return self
        drawn = copy.copy(self)
        for name in ("points", "weights", "draws"):
            object.__setattr__(drawn, name, None)
        return drawn

    def _arguments(self) -> dict[str, Any]:
        """Return what makes it again, outside of `Jointly`."""
        if not self.settings:
            return {"points": self.points, "weights": self.weights}
        return {"draws": self.draws if self.points is None else None, **self.settings}

    @property
    def is_finite(self) -> bool:
        return self.points is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that it draws."""
        return tuple(self.settings or dict.fromkeys(name for point in self.points or () for name in point))

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        if self.points is not None:
            return dict(self.points[draw])
        return drawn(self.settings, seed, draw)

    def __repr__(self) -> str:
        what: dict[str, Any] = {"points": list(self.points)} if self.points is not None else {"draws": self.draws}
        if self.points is None:
            what |= {k: v.written() if isinstance(v, Finite) else v for k, v in self.settings.items()}
        elif self.weights is not None:
            what["weights"] = list(self.weights)
        return f"Hyperparameters({', '.join(f'{k}={v!r}' for k, v in what.items())})"


def space(name: str, values: Any) -> Space:
    """Return the values that a setting can have: a distribution of one number, a list, or a function of others."""
    if isinstance(values, Distribution):
        if values.batch_shape + values.event_shape != ():
            raise ValueError(f"{name}: the distribution must be of a single number")
        if name == "batch_size":
            raise ValueError("batch_size is a whole number: give a list of values")
        return values
    if isinstance(values, Finite):
        return values
    if isinstance(values, tuple(SCHEDULES.values())):
        raise TypeError(f"{name} is a fixed schedule, which belongs into wf.Algorithm; to draw it, give a list")
    if callable(values):
        return values
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise TypeError(
            f"{name} must be a torch.distributions object or a list of values, not {values!r}; "
            "a fixed value belongs into wf.Algorithm"
        )
    is_weighted = isinstance(values, Mapping)
    finite = Finite.of({_plain(k): v for k, v in values.items()} if is_weighted else list(map(_plain, values)))
    if not finite.values:
        raise ValueError(f"{name}: the list of values is empty")
    return finite


def drawn(spaces: Mapping[str, Space], seed: int, draw: int, *stream: str | int) -> dict[str, Any]:
    """Draw a value of every setting, each from its own stream: one more setting leaves the others as they are."""
    chosen: dict[str, Any] = {}
    for name, values in spaces.items():
        if not isinstance(values, Distribution | Finite):
            values = values(dict(chosen))
            if values is None:
                continue
            if not isinstance(values, Distribution) and not hasattr(values, "__iter__"):
                chosen[name] = _plain(values)
                continue
            values = space(name, values)
        if isinstance(values, Distribution):
            with streams.torch_seeded(seed, "h", *stream, name, draw):
                chosen[name] = float(values.sample())
        elif isinstance(values, Finite):
            chosen[name] = values.draw(streams.generator(seed, "h", *stream, name, draw))
    return chosen


def _grid(spaces: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[float] | None]:
    """Return every combination of the values, with its weight."""
    points = [
        dict(zip(spaces, values, strict=True)) for values in itertools.product(*(s.values for s in spaces.values()))
    ]
    if all(values.weights is None for values in spaces.values()):
        return points, None
    numbers = itertools.product(*(range(len(values)) for values in spaces.values()))
    weights = [
        math.prod(values.probability(number) for values, number in zip(spaces.values(), combination, strict=True))
        for combination in numbers
    ]
    return points, weights


def _plain(value: Any) -> Any:
    """Return a number of numpy's or torch's as Python's."""
    return value.item() if hasattr(value, "item") else value


@stored("BatchOrder")
@dataclass(frozen=True)
class BatchOrder(Drawn):
    """Make the order of the batches random, and with it the dropout masks of training.

    Without it, every member sees the same batches in the same order.

    draws: how many orders to train with (needed, except in `Jointly`).

    >>> BatchOrder(3)
    BatchOrder(draws=3)
    """

    slot: ClassVar[str] = "order"
    draws: int | None = None

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        return {}


@stored("Algorithms", arguments=lambda it: it._arguments())
@dataclass(frozen=True, init=False, eq=False)
class Algorithms(Drawn):
    """Make the algorithm random: one of several, each with its own settings.

    algorithms: the algorithms. Their settings may be random too, as in `Hyperparameters`: `Algorithm("sgd",
        lr=LogUniform(0.01, 1), ...)`.
    weights: the probability of each, up to a factor (default: equal).
    draws: how many trainings. Each draw chooses an algorithm by its weight, then its settings: one share of doubt,
        `gamma+h`. Random settings need it (default: each algorithm is trained once, and they are mixed by `weights`).

    >>> both = Algorithms([Algorithm("sgd", lr=0.1, batch_size=10), Algorithm("adam", lr=0.01, batch_size=10)])
    >>> both.draws, both.slot
    (2, 'gamma')
    """

    slot: ClassVar[str] = "gamma"
    algorithms: tuple[Algorithm, ...]
    weights: tuple[float, ...] | None
    draws: int | None
    is_drawn: bool  # at random, rather than gone through

    def __init__(
        self, algorithms: Sequence[Algorithm], weights: Sequence[float] | None = None, draws: int | None = None
    ) -> None:
        algorithms = tuple(algorithms)
        if len(algorithms) < 2:
            raise ValueError(
                "Algorithms needs at least two algorithms; the settings of one belong into Hyperparameters"
            )
        if not all(isinstance(algorithm, Algorithm) for algorithm in algorithms):
            raise TypeError("Algorithms takes a list of wf.Algorithm(...)")
        is_drawn = draws is not None or any(algorithm.random for algorithm in algorithms)
        object.__setattr__(self, "algorithms", algorithms)
        object.__setattr__(self, "weights", shares(weights, len(algorithms)))
        object.__setattr__(self, "draws", draws if is_drawn else len(algorithms))
        object.__setattr__(self, "is_drawn", is_drawn)
        check_draws(self)

    @property
    def is_finite(self) -> bool:
        return not self.is_drawn

    def _arguments(self) -> dict[str, Any]:
        """Return what makes it again, outside of `Jointly`."""
        draws = self.draws if self.is_drawn else None
        return {"algorithms": self.algorithms, "weights": self.weights, "draws": draws}

    @property
    def draws_settings(self) -> bool:
        return any(algorithm.random for algorithm in self.algorithms)

    def drawn_jointly(self) -> Algorithms:
        if self.is_drawn:
            return self
        joint = copy.copy(self)
        object.__setattr__(joint, "draws", None)
        object.__setattr__(joint, "is_drawn", True)
        return joint

    def choices(self, seed: int, draw: int) -> dict[str, Any]:
        number = draw
        if self.is_drawn:
            numbers = Finite(tuple(range(len(self.algorithms))), self.weights)
            number = numbers.draw(streams.generator(seed, "gamma", draw))
        algorithm = self.algorithms[number]
        spaces = {name: space(name, values) for name, values in algorithm.random.items()}
        return {"algorithm": algorithm.but(**drawn(spaces, seed, draw, "gamma", number))}

    def __repr__(self) -> str:
        weights = f", weights={list(self.weights)}" if self.weights else ""
        draws = f", draws={self.draws}" if self.is_drawn else ""
        return f"Algorithms({list(self.algorithms)!r}{weights}{draws})"
