"""Schedules: how the learning rate moves along a training.

A schedule turns progress, from 0 at the first step to just below 1 at the last, into a factor of the learning rate.
Those here are values: their numbers can be replaced (`Algorithm.but(schedule__final=0.1)`), drawn at random, compared
and stored. Any function of progress is a schedule too, of one number or of arrays.

    >>> import wherefrom as wf
    >>> algorithm = wf.Algorithm("sgd", lr=0.05, batch_size=128, schedule=Ramp(final=0.2))
    >>> algorithm.but(schedule__final=0.1).schedule
    Ramp(final=0.1, start=0.5, end=0.9)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import Code, NotStoredError

Array = NDArray[np.float64]
Schedule = Callable[[Any], Any]  # progress -> factor, both arrays or both numbers

NOT_STORED = Code(
    "the schedule {it} is code, which is not stored, so a loaded posterior cannot train with it; those of wf.schedules "
    "can be stored"
)


@stored("Constant")
@dataclass(frozen=True)
class Constant:
    """The learning rate as it is.

    >>> Constant()(np.array([0.0, 0.9]))
    array([1., 1.])
    """

    def __call__(self, progress: Array) -> Array:
        return np.ones_like(progress)


@stored("Step")
@dataclass(frozen=True)
class Step:
    """Times `factor` at each of some moments.

    at: fractions of the training at which the rate changes (default 0.5 and 0.75).
    factor: multiplies the rate at each of them (default 0.1).

    >>> Step(at=(0.5, 0.75), factor=0.1)(np.array([0.0, 0.5, 0.8])).round(3)
    array([1.  , 0.1 , 0.01])
    """

    at: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __post_init__(self) -> None:
        moments = self.at if isinstance(self.at, tuple | list) else (self.at,)
        object.__setattr__(self, "at", tuple(_number(self, "at", moment, 0.0, 1.0) for moment in moments))
        _check(self, factor=(0.0, np.inf))

    def __call__(self, progress: Array) -> Array:
        passed = sum((progress >= moment for moment in self.at), np.zeros_like(progress))
        return np.asarray(self.factor**passed)


@stored("Linear")
@dataclass(frozen=True)
class Linear:
    """A straight line from 1 to `final`.

    final: factor of the learning rate at the end (default 0).

    >>> Linear(final=0.5)(np.array([0.0, 0.5]))
    array([1.  , 0.75])
    """

    final: float = 0.0

    def __post_init__(self) -> None:
        _check(self, final=(0.0, np.inf))

    def __call__(self, progress: Array) -> Array:
        return 1.0 + (self.final - 1.0) * progress


@stored("Cosine")
@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to `final` (Loshchilov and Hutter 2017, without restarts).

    final: factor of the learning rate at the end (default 0).

    >>> Cosine(final=0.5)(np.array([0.0, 0.5]))
    array([1.  , 0.75])
    """

    final: float = 0.0

    def __post_init__(self) -> None:
        _check(self, final=(0.0, np.inf))

    def __call__(self, progress: Array) -> Array:
        return self.final + (1.0 - self.final) * 0.5 * (1.0 + np.cos(np.pi * progress))


@stored("Cyclical")
@dataclass(frozen=True)
class Cyclical:
    """Cosines with warm restarts: `cycles` times from 1 down to `low`, then at once back to 1.

    It is the form of snapshot ensembles (Huang et al. 2017) and of cyclical MCMC (Zhang et al. 2020), not the triangle
    of Smith (2017): each cycle ends in a valley, and leaves it for another.

    cycles: number of cycles (default 4).
    low: factor of the learning rate at the end of each (default 0).

    >>> Cyclical(cycles=2)(np.array([0.0, 0.25, 0.5, 0.75]))
    array([1. , 0.5, 1. , 0.5])
    """

    cycles: int = 4
    low: float = 0.0

    def __post_init__(self) -> None:
        if int(self.cycles) != self.cycles or self.cycles < 1:
            raise ValueError(f"{type(self).__name__}: cycles must be a whole number, at least 1; it is {self.cycles}")
        object.__setattr__(self, "cycles", int(self.cycles))
        _check(self, low=(0.0, 1.0))

    def __call__(self, progress: Array) -> Array:
        place = self.cycles * progress
        return Cosine(self.low)(place - np.floor(place + 1e-9))  # a rounded multiple is one, too


@stored("Ramp")
@dataclass(frozen=True)
class Ramp:
    """Flat at 1 until `start`, then a straight line to `final`, flat from `end` on.

    The paper's schedule for CIFAR-10, as that of Maddox et al. (2019): from alpha_u = lr to alpha_l = final * lr. (The
    paper prints another slope in the middle; the line that meets both ends is meant.)

    final: factor of the learning rate at the end (default 0.2).
    start: fraction of the training at which it begins to fall (default 0.5).
    end: fraction at which it has reached `final` (default 0.9).

    >>> Ramp(final=0.2)(np.array([0.0, 0.5, 0.7, 0.95]))
    array([1. , 1. , 0.6, 0.2])
    """

    final: float = 0.2
    start: float = 0.5
    end: float = 0.9

    def __post_init__(self) -> None:
        _check(self, final=(0.0, np.inf), start=(0.0, 1.0), end=(0.0, 1.0))
        if self.start > self.end:
            raise ValueError(f"Ramp: start must not come after end; they are {self.start:g} and {self.end:g}")

    def __call__(self, progress: Array) -> Array:
        if self.start == self.end:
            return np.where(progress < self.start, 1.0, self.final)
        return np.interp(progress, [self.start, self.end], [1.0, self.final])


@stored("Warmup", code={"then": NOT_STORED})
@dataclass(frozen=True)
class Warmup:
    """A straight line from `initial` up to 1 in the first `share` of training, and another schedule in the rest.

    share: fraction of the training in which the rate rises (default 0.1).
    then: the schedule after that (default Cosine()).
    initial: factor of the learning rate at the start (default 0).

    >>> Warmup(share=0.5, then=Linear())(np.array([0.0, 0.25, 0.5, 0.75]))
    array([0. , 0.5, 1. , 0.5])
    """

    share: float = 0.1
    then: Schedule = field(default_factory=Cosine)
    initial: float = 0.0

    def __post_init__(self) -> None:
        _check(self, share=(0.0, 1.0), initial=(0.0, 1.0))
        _check_callable(self, "then")

    def __call__(self, progress: Array) -> Array:
        is_warm = progress >= self.share
        part = np.where(is_warm, 0.0, progress) / max(self.share, np.finfo(float).tiny)
        rest = np.where(is_warm, progress - self.share, 0.0) / max(1.0 - self.share, np.finfo(float).tiny)
        return np.where(is_warm, factors(self.then, rest), self.initial + (1.0 - self.initial) * part)


@stored("ConstantFrom", code={"before": NOT_STORED})
@dataclass(frozen=True)
class ConstantFrom:
    """Constant at `factor` from `start` on, while iterates are averaged; the whole of another schedule before.

    SWA and SWAG keep the rate up so that the trajectory explores the valley that it has come to: let `start` be that of
    `wf.Iterations`.

    start: fraction of the training from which the rate is constant (default 0.5).
    factor: its factor from there on (default 0.5).
    before: the schedule until then (default Constant()).

    >>> ConstantFrom(start=0.5, factor=0.3, before=Linear())(np.array([0.0, 0.25, 0.5, 0.9]))
    array([1. , 0.5, 0.3, 0.3])
    """

    start: float = 0.5
    factor: float = 0.5
    before: Schedule = field(default_factory=Constant)

    def __post_init__(self) -> None:
        _check(self, start=(0.0, 1.0), factor=(0.0, np.inf))
        _check_callable(self, "before")

    def __call__(self, progress: Array) -> Array:
        is_early = progress < self.start
        part = np.where(is_early, progress, 0.0) / max(self.start, np.finfo(float).tiny)
        return np.where(is_early, factors(self.before, part), self.factor)


SCHEDULES: dict[str, type] = {
    kind.__name__: kind for kind in (Constant, Step, Linear, Cosine, Cyclical, Ramp, Warmup, ConstantFrom)
}


def factors(schedule: Schedule, progress: Array) -> Array:
    """Return a schedule's factors at some moments, checked: one for each, none of them negative.  # progress's shape

    A function of one number (`lambda p: 1.0 if p < 0.5 else 0.1`) is asked one by one.
    """
    progress = np.asarray(progress, dtype=np.float64)
    if progress.size == 1:  # numpy takes an array of one for a number in some places, with a warning
        return factors(schedule, np.repeat(progress, 2))[:1].reshape(progress.shape)
    try:
        found = np.asarray(schedule(progress), dtype=np.float64)
    except NotStoredError:
        raise
    except (TypeError, ValueError):
        try:
            found = np.array([float(schedule(moment)) for moment in progress.ravel().tolist()]).reshape(progress.shape)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the schedule {schedule!r} gives no factor of the learning rate: {error}") from error
    if found.shape != progress.shape:
        if found.shape != ():
            raise ValueError(
                f"the schedule {schedule!r} must give one factor for each moment: for {len(progress)} moments of "
                f"progress it returned an array of shape {found.shape}"
            )
        found = np.broadcast_to(found, progress.shape)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        raise ValueError(
            f"the schedule {schedule!r} must give factors that are finite and not negative; "
            f"at progress {progress[wrong][0]:g} it gives {found[wrong][0]:g}"
        )
    return found


def check(schedule: Any) -> None:
    """Raise unless it can be a schedule, asked at some moments of a training."""
    if schedule is None:
        return
    if isinstance(schedule, type) or not callable(schedule):
        hint = f"; did you mean {schedule.__name__}()?" if isinstance(schedule, type) else ""
        raise TypeError(
            f"schedule must be a function of progress, such as wf.schedules.Cosine(), not {schedule!r}{hint}"
        )
    with suppress(NotStoredError):  # it may be shown all the same
        factors(schedule, np.linspace(0.0, 1.0, 50, endpoint=False))


def changed(schedule: Any, path: str, value: Any) -> Any:
    """The schedule with one of its fields replaced; `then__final` is the field `final` of its field `then`."""
    name, _, rest = path.partition("__")
    known = [f.name for f in fields(schedule)] if is_dataclass(schedule) else []
    if name not in known:
        there = f"it has {', '.join(known)}" if known else "there is nothing in it to change"
        raise ValueError(f"the schedule {schedule!r} has no field {name!r}; {there}")
    return replace(schedule, **{name: changed(getattr(schedule, name), rest, value) if rest else value})


def get(schedule: Any, path: str) -> Any:
    """The value of a field, by the same path; None where there is none."""
    for name in path.split("__"):
        schedule = getattr(schedule, name, None)
    return schedule


def _check(schedule: Any, **ranges: tuple[float, float]) -> None:
    for name, (low, high) in ranges.items():
        object.__setattr__(schedule, name, _number(schedule, name, getattr(schedule, name), low, high))


def _number(schedule: Any, name: str, value: Any, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{type(schedule).__name__}: {name} must be a number, not {value!r}") from None
    if not (np.isfinite(number) and low <= number <= high):
        wanted = "must be finite and not negative" if high == np.inf else f"must lie between {low:g} and {high:g}"
        raise ValueError(f"{type(schedule).__name__}: {name} {wanted}; it is {number:g}")
    return number


def _check_callable(schedule: Any, name: str) -> None:
    inner = getattr(schedule, name)
    if isinstance(inner, type) or not callable(inner):
        raise TypeError(f"{type(schedule).__name__}: {name} must be a schedule such as Cosine(), not {inner!r}")
