"""The training of a table: a network and an algorithm by its size, and the choices to marginalise, as they are written
on the command line: `theta0=5,t=swag,F=dropout`, or the name of a recipe.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np

from wherefrom import recipes
from wherefrom.laws import SWAG, TRADI, Snapshots
from wherefrom.likelihoods import LIKELIHOODS, TableWishes
from wherefrom.posterior.point import Algorithm, Training
from wherefrom.tables.raw import Integers
from wherefrom.tables.target import Target
from wherefrom.tables.wording import option
from wherefrom.training import streams
from wherefrom.training.mlp import MLP
from wherefrom.variables import (
    BatchOrder,
    Design,
    Dropout,
    Folds,
    Hyperparameters,
    InitialCondition,
    Iterations,
    Jointly,
    LogUniform,
    Resample,
)

_FOLDS, _MORE_FOLDS = 5, 10  # and those of small tables, in which each row that a fold leaves out is missed
_DRAWS, _DRAWS_WITHOUT_FOLDS = 3, 5  # of the networks in each fold, and of all
_MOST_BY_MORE_FOLDS, _MOST_BY_FOLDS = 2000, 50_000  # rows
_MOST_JUDGED = 5000  # rows that folds left out: their scores have small errors
_MOST_TO_CHOOSE = 2000  # of them, by which one of several ways is chosen
_SAMPLES, _FEWEST_SAMPLES = 500, 20  # of all networks together, and of one
FEWEST_ROWS, _FEWEST_GROUPS = 20, 5  # to choose settings by
_NOISE_ROWS = 1000  # are enough to fit the noise on
_MOST_FURTHER_EPOCHS = 1000
_COLLECTED = 25  # iterates that a law of t should see
_WIDER = 3.0  # the learning rate is drawn between a third and three times its value
_DRAWN: dict[str, Callable[..., Any]] = {"theta0": InitialCondition, "order": BatchOrder, "D": Resample}
_LAWS: dict[str, Callable[..., Any]] = {"swag": SWAG, "tradi": TRADI, "snapshots": Snapshots}


@dataclass(frozen=True)
class Settings:
    """Options of the training; those that are None are chosen by the table's size, or by a pilot."""

    hidden: tuple[int, ...] | None = None
    dropout: float | None = None
    lr: float | None = None
    batch_size: int | None = None
    noise: str = "auto"
    model: Any = None  # a factory of networks, in place of the network for tables
    activation: str = "relu"
    optimiser: Any = "adam"
    optimiser_settings: Mapping[str, Any] = field(default_factory=dict)  # further ones of the algorithm
    standardise: bool = True
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_noise(self.noise)
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"{option('dropout')} is a share of units, from 0 to below 1, not {self.dropout:g}")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ValueError(f"{option('lr')} is a positive number, such as 0.003, not {self.lr:g}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"{option('batch_size')} is a number of rows, from 1 on, not {self.batch_size}")


def as_hidden(written: str | int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the units of each layer; None leaves them to the table's size."""
    if written is None:
        return None
    if not isinstance(written, str):
        units = [written] if isinstance(written, int | Integral) else list(written)
        if not units:
            return ()  # no hidden layer
        written = ",".join(map(str, units))
    widths = tuple(int(width) for width in written.split(",") if width.strip().isdigit())
    if len(widths) != len(written.split(",")) or min(widths) < 1:
        raise ValueError(f"{option('hidden')} is the units of each layer, such as 64,64, not {written!r}")
    return widths


def _check_noise(written: str) -> None:
    if written in ("auto", "fit", "predicted", "none"):
        return
    try:
        float(written)
    except ValueError:
        raise ValueError(
            f"{option('noise')} is auto, fit, predicted, none, or a standard deviation, not {written!r}"
        ) from None


def training_for(rows: int, target: Target, settings: Settings) -> Training:
    """One training that suits this number of rows; its epochs are chosen later.

    >>> training_for(50_000, Target("y", "regression"), Settings()).model
    MLP(hidden=(128, 64), activation='relu', dropout=0.05)
    """
    by_size = (50,) if rows < 1000 else (64, 64) if rows < 20_000 else (128, 64)
    hidden = by_size if settings.hidden is None else settings.hidden
    dropout = 0.05 if settings.dropout is None else settings.dropout
    model = MLP(hidden, settings.activation, dropout) if settings.model is None else settings.model
    fitting = 2 ** round(math.log2(max(1, rows / 200)))
    batch_size = settings.batch_size or min(256, max(32, fitting), max(1, rows // 4))
    likelihood = LIKELIHOODS[target.task].of_table(wishes_for(rows, target, settings))
    chosen = {"lr": settings.lr or 0.003, "batch_size": batch_size}
    algorithm = Algorithm(settings.optimiser, **chosen | dict(settings.optimiser_settings))
    return Training(model, algorithm, epochs=1, likelihood=likelihood, standardise=settings.standardise)


def wishes_for(rows: int, target: Target, settings: Settings) -> TableWishes:
    """Options about the target, for a likelihood of these rows."""
    aside = min(max(10, rows // 10), _NOISE_ROWS)  # to fit the noise on; of a large table not more than enough
    return TableWishes(
        target.classes,
        target.least,
        settings.noise,
        min(0.5, aside / rows),
        settings.label_smoothing,
        target.has_zeros,
        target.exposure,
    )


def sized(training: Training, inputs: int, targets: int) -> Training:
    """Give a model factory the numbers of inputs and outputs, if it asks for them."""
    factory: Callable[..., Any] = training.model
    outputs = training.likelihood.outputs(targets)
    if isinstance(factory, MLP):
        return training
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # some that are written in C have none
        return training
    if {"inputs", "outputs"} <= set(parameters):
        return replace(training, model=partial(factory, inputs=inputs, outputs=outputs))
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in parameters.values() if p.kind in positional and p.default is p.empty]
    if len(needed) not in (0, 2):
        raise TypeError(
            "model is a function without arguments, or of the numbers of inputs and outputs, but it asks for "
            + ", ".join(needed)
        )
    return replace(training, model=partial(factory, inputs, outputs)) if needed else training


def variables(
    over: str | Sequence[Any] | None,
    recipe: str | None,
    draws: int | None,
    settings: Mapping[str, Any] | None = None,
    *,
    lr: float,
    folds: int = 0,
) -> list[Any]:
    """The choices to marginalise, by `over`, or by `recipe` and `draws`; `settings` are others of the recipe.

    folds: number of folds, each with these draws (default: none).
    """
    if over is not None:
        if recipe is not None or draws is not None:
            raise ValueError(f"{option('over', over)} says all: leave {option('recipe')} and {option('draws')} out")
        return _over(over, lr) if isinstance(over, str) else list(over)
    name = (recipe or "multi_swag").replace("-", "_")
    if name not in recipes.BY_NAME:
        raise ValueError(f"there is no recipe {recipe!r}; there are {', '.join(recipes.BY_NAME)}")
    is_drawn, draws_settings = recipes.parameters(name)
    if not is_drawn and draws is not None:
        raise ValueError(f"the recipe {name} trains one network: leave {option('draws')} out")
    usual = _DRAWS if folds else _DRAWS_WITHOUT_FOLDS
    chosen: dict[str, Any] = {"draws": usual if draws is None else draws} if is_drawn else {}
    settings, names = dict(settings or {}), inspect.signature(recipes.BY_NAME[name]).parameters
    if draws_settings and not set(settings) - set(names):
        chosen["lr"] = _rates(lr)
    return recipes.BY_NAME[name](**chosen | settings)


def _rates(lr: float) -> LogUniform:
    return LogUniform(lr / _WIDER, lr * _WIDER)


def _over(written: str, lr: float) -> list[Any]:
    """
    >>> _over("theta0+order=3,t=snapshots:10,F=dropout", lr=0.01)[1:]
    [Iterations(law=Snapshots(keep=10), start=0.5, every=None), Dropout(rate=None, on='units')]
    """
    over = [_variable(part.strip(), lr) for part in written.split(",") if part.strip()]
    Design.of(over)  # raises where they do not go together
    return over


def _variable(part: str, lr: float) -> Any:
    name, _, value = (piece.strip() for piece in part.partition("="))
    names = name.split("+")
    kind, _, number = value.partition(":")
    if all(one in (*_DRAWN, "h") for one in names) and re.fullmatch(r"\d+", value):
        draws = int(value)
        if len(names) == 1:
            return _drawn(name, lr, draws)
        return Jointly(*(_drawn(one, lr, None) for one in names), draws=draws)
    if name == "t" and kind in _LAWS:
        return Iterations(_LAWS[kind](int(number)) if number else _LAWS[kind](), 0.0 if kind == "tradi" else 0.5)
    if name in ("F", "M") and kind == "dropout":
        return Dropout(float(number) if number else None)
    raise ValueError(
        f"{option('over')} does not know {part!r}: it takes theta0=5, order=5, h=5 (the learning rate), D=5, several "
        "of them at once as theta0+order=5, t=swag (or tradi, snapshots), and F=dropout, separated by commas"
    )


def _drawn(name: str, lr: float, draws: int | None) -> Any:
    return Hyperparameters(draws, lr=_rates(lr)) if name == "h" else _DRAWN[name](draws)


def collecting(over: list[Any], epochs: int, steps_per_epoch: int) -> list[Any]:
    """Collect often enough: in a short training, more than once an epoch."""

    def often(variable: Any) -> Any:
        if not isinstance(variable, Iterations) or isinstance(variable.law, TRADI):
            return variable
        is_share = not isinstance(variable.start, str) and float(variable.start) < 1  # else it is an epoch, or "auto"
        if variable.every is not None or variable.steps is not None or not is_share:
            return variable
        steps = (1 - float(variable.start)) * epochs * steps_per_epoch
        if steps / steps_per_epoch >= _COLLECTED:
            return variable
        return replace(variable, every=max(1, math.floor(steps / _COLLECTED)))

    return [often(variable) for variable in over]


def long_enough(design: Design, epochs: int, steps_per_epoch: int) -> int:
    """Return the epochs, or more where the law of t would see too few iterates."""
    for more in range(epochs, epochs + _MOST_FURTHER_EPOCHS):
        try:
            if design.iterations is not None:
                design.iterations.collection(more, steps_per_epoch, range(more))
            return more
        except ValueError:
            continue
    return epochs  # whose error says what is wrong


def folds(over: list[Any], rows: int, different: int) -> int:
    """Return in how many folds D should be drawn, so that every row is judged by networks that did not see it; or 0.

    A large table has rows to spare, and one with D among its variables draws rows in its own way. A small one has
    more folds, so that its networks see more of it.

    >>> [folds([InitialCondition(3)], rows, rows) for rows in (8, 300, 20_000, 100_000)]
    [8, 10, 5, 0]
    """
    draws_rows = any("D" in axis.name.split("+") for axis in Design.of(over).axes)
    if rows > _MOST_BY_FOLDS or draws_rows or different < 2:
        return 0
    return min(_MORE_FOLDS if rows <= _MOST_BY_MORE_FOLDS else _FOLDS, different)


def judged(rows: int, seed: int) -> Integers:
    """Choose the rows by which noise, families and calibration are judged: all, or of a large table some at random."""
    return _some(rows, _MOST_JUDGED, seed)


def to_choose(judged: int, seed: int) -> Integers:
    """Choose those of the judged rows by which families, and ways to treat t, are compared: all, or some of many."""
    return _some(judged, _MOST_TO_CHOOSE, seed)


def _some(rows: int, most: int, seed: int) -> Integers:
    if rows <= most:
        return np.arange(rows)
    return np.sort(streams.generator(seed, "tables", "judged").permutation(rows)[:most])


def is_few(rows: int, different: int) -> bool:
    """Return True if there are too few rows, or too few groups of rows, to choose settings by."""
    return rows < FEWEST_ROWS or different < _FEWEST_GROUPS


def samples_of_each(networks: int) -> int:
    """Return how many samples of each network make a prediction."""
    return max(_FEWEST_SAMPLES, _SAMPLES // networks)


def with_draws(over: list[Any], draws: int) -> list[Any] | None:
    """Change the draws of the one variable that is drawn before training, but for D; None if there is not just one."""
    drawn = [variable for variable in over if not isinstance(variable, Iterations | Dropout | Folds)]
    if len(drawn) != 1:
        return None

    def changed(variable: Any) -> Any:
        if variable is not drawn[0]:
            return variable
        if isinstance(variable, Jointly):
            return Jointly(*variable.variables, draws=draws)
        if isinstance(variable, Hyperparameters):
            return Hyperparameters(draws, **dict[str, Any](variable.settings))
        return replace(variable, draws=draws)

    return [changed(variable) for variable in over]
