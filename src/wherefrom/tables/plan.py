"""What to train on a table: a network and an algorithm by its size, and the choices to marginalise, as they are written
on the command line: `theta0=5,t=swag,F=dropout`, or the name of a recipe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wherefrom import recipes
from wherefrom.laws import SWAG, TRADI, Snapshots
from wherefrom.likelihoods import LIKELIHOODS, TableWishes
from wherefrom.posterior.point import Algorithm, Training
from wherefrom.tables.target import Target
from wherefrom.training.mlp import MLP
from wherefrom.variables import (
    BatchOrder,
    Design,
    Dropout,
    Hyperparameters,
    InitialCondition,
    Iterations,
    Jointly,
    LogUniform,
    Resample,
)

DRAWS = 5
_NOISE_ROWS = 1000  # are enough to fit the noise on
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

    def __post_init__(self) -> None:
        _check_noise(self.noise)
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"--dropout is a share of units, from 0 to below 1, not {self.dropout:g}")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ValueError(f"--lr is a positive number, such as 0.003, not {self.lr:g}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"--batch-size is a number of rows, from 1 on, not {self.batch_size}")


def as_hidden(written: str | int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the units of each layer; None leaves them to the table's size."""
    if written is None:
        return None
    if not isinstance(written, str):
        written = ",".join(map(str, [written] if isinstance(written, int) else written))
    widths = tuple(int(width) for width in written.split(",") if width.strip().isdigit())
    if len(widths) != len(written.split(",")) or min(widths) < 1:
        raise ValueError(f"--hidden is the units of each layer, such as 64,64, not {written!r}")
    return widths


def _check_noise(written: str) -> None:
    if written in ("auto", "fit", "predicted", "none"):
        return
    try:
        float(written)
    except ValueError:
        raise ValueError(f"--noise is auto, fit, predicted, none, or a standard deviation, not {written!r}") from None


def training_for(rows: int, target: Target, settings: Settings) -> Training:
    """One training that suits so many rows; its epochs are yet to be found.

    >>> training_for(50_000, Target("y", "regression"), Settings()).model
    MLP(hidden=(128, 64), activation='relu', dropout=0.05)
    """
    hidden = settings.hidden or ((50,) if rows < 1000 else (64, 64) if rows < 20_000 else (128, 64))
    dropout = 0.05 if settings.dropout is None else settings.dropout
    fitting = 2 ** round(math.log2(max(1, rows / 200)))
    batch_size = settings.batch_size or min(256, max(32, fitting), max(1, rows // 4))
    aside = min(max(10, rows // 10), _NOISE_ROWS)  # to fit the noise on; of a large table not more than enough
    wishes = TableWishes(target.classes, target.least, settings.noise, min(0.5, aside / rows))
    likelihood = LIKELIHOODS[target.task].of_table(wishes)
    algorithm = Algorithm("adam", lr=settings.lr or 0.003, batch_size=batch_size)
    return Training(MLP(hidden, dropout=dropout), algorithm, epochs=1, likelihood=likelihood)


def variables(over: str | None, recipe: str | None, draws: int | None, *, lr: float) -> list[Any]:
    """The choices to marginalise, by `--over`, or by `--recipe` and `--draws`."""
    if over is not None:
        if recipe is not None or draws is not None:
            raise ValueError("--over says all: leave --recipe and --draws out, as in --over theta0=5,t=swag")
        return _over(over, lr)
    name = (recipe or "multi_swag").replace("-", "_")
    if name not in recipes.BY_NAME:
        raise ValueError(f"there is no recipe {recipe!r}; there are {', '.join(recipes.BY_NAME)}")
    is_drawn, draws_settings = recipes.parameters(name)
    if not is_drawn and draws is not None:
        raise ValueError(f"the recipe {name} trains one network: leave --draws out")
    count = {"draws": DRAWS if draws is None else draws} if is_drawn else {}
    settings = {"lr": _rates(lr)} if draws_settings else {}
    return recipes.BY_NAME[name](**count, **settings)


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
        f"--over does not know {part!r}: it takes theta0=5, order=5, h=5 (the learning rate), D=5, several of them at "
        "once as theta0+order=5, t=swag (or tradi, snapshots), and F=dropout, separated by commas"
    )


def _drawn(name: str, lr: float, draws: int | None) -> Any:
    return Hyperparameters(draws, lr=_rates(lr)) if name == "h" else _DRAWN[name](draws)


def collecting(over: list[Any], epochs: int, steps_per_epoch: int) -> list[Any]:
    """Collect often enough: in a short training, more than once an epoch."""

    def often(variable: Any) -> Any:
        if not isinstance(variable, Iterations) or isinstance(variable.law, TRADI):
            return variable
        if variable.every is not None or variable.steps is not None:
            return variable
        steps = (1 - float(variable.start)) * epochs * steps_per_epoch
        if steps / steps_per_epoch >= _COLLECTED:
            return variable
        return replace(variable, every=max(1, math.floor(steps / _COLLECTED)))

    return [often(variable) for variable in over]


def with_draws(over: list[Any], draws: int) -> list[Any] | None:
    """Change the draws of the one variable that is drawn before training; None if there is not just one."""
    drawn = [variable for variable in over if not isinstance(variable, Iterations | Dropout)]
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
