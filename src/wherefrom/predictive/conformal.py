"""Conformal intervals and sets of classes: they reach as far as rows that were not trained on would have needed.

Rows that were held out (`Conformal`)
-------------------------------------
What the sets reach is one of two rules, by n rows that served for nothing else:

    one score     sets of classes with 1 - p <= q, or intervals mean ± q std, where q is the k-th smallest of the rows'
                  1 - p(y_i), or |y_i - mean_i| / std_i, with k = ceil((n + 1) level). They hold the truth at most with
                  level + 1 / (n + 1) where there are no ties; given these n rows, with Beta(k, n + 1 - k).
    two tails     intervals from mean + s_(k) std to mean + s_(n + 1 - k) std, of the rows' (y_i - mean_i) / std_i in
                  order of size, with k = floor((n + 1) a) and a = (1 - level) / 2. At most a of the truth lies below,
                  and at most a above, so a skewed y is not missed on one side alone. Each tail is Beta(k, n + 1 - k)
                  given these n rows, and they hold the truth at most with level + 2 / (n + 1) where there are no ties.

Intervals are by two tails if (n + 1) a >= 5, which is 199 rows for 95%, and mean ± q std with fewer: the ends of two
tails would be among the few farthest rows then, and much wider.

A y that may be 0 has no deviation to score by. There the score of a row is the level from which on the interval of its
distribution holds y_i, and the interval of a new row is that of level q, by the rule of one score (`nested`). Intervals
of higher levels must hold those of lower ones.

Rows that were left out by one fold each (`CrossConformal`)
-----------------------------------------------------------
Every row calibrates, by the members that did not see it (CV+). Row i was left out by draw k(i) of D, and s_i is its
score under the members of that draw: (y_i - mean) / std, or for classes 1 - p(y_i). A new row x has a mean and a std,
or probabilities, under the members of every draw k:

    intervals     from the k-th smallest of mean_k(i)(x) + s_i std_k(i)(x), over all rows i, to the k-th largest, with
                  k = floor((n + 1) a), a = (1 - level) / 2, if that is 5 at least (199 rows for 95%); with fewer rows,
                  of mean_k(i)(x) ± |s_i| std_k(i)(x), with k = floor((n + 1) (1 - level)) for either side
    sets          all classes c for which no more than (n + 1) level of the rows have s_i < 1 - p_k(i)(c | x)
    levels        from the (n + 1) level-th largest of the lower ends, over all rows i, to the (n + 1) level-th smallest
                  of the upper ends, of the intervals of level s_i under the members of draw k(i)

If rows are exchangeable (groups of them are, where rows of a group are left out together), they hold the truth with a
probability of at least 2 level - 1 - sqrt(2 / n), whatever is wrong with the model, and of about the level in practice:
a little more, since what is shipped, the mean over all draws, errs less than the members of one draw (Barber, Candès,
Ramdas and Tibshirani 2021, "Predictive inference with the jackknife+"; what is learnt from all rows alike, such as the
number of epochs or the scale of a column, is as if it had been given).

A row that was left out by draw k is itself judged by the scores of the other parts alone: `of_left_out`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive.fit import Fit, described
from wherefrom.predictive.mixture import Mixture

_FEWEST_IN_TAIL = 5  # of the rows, on each side of an interval that has two tails
_ROUNDING = 1e-9
_STEPS = 60  # of a bisection


class ConformalScores(NamedTuple):
    """Sizes that an interval or a set would have needed to hold each row, and how to speak of them."""

    scores: Tensor  # (rows, outputs)
    is_signed: bool  # scores below zero are of rows that lie below their mean
    what: str  # "intervals", or "sets of classes"
    all_there_is: str


class Nested(Protocol):
    """A distribution for each row and output; its intervals of higher levels hold those of lower ones."""

    def interval(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of the interval of this level.  # (outputs,) -> (rows, outputs) each"""
        ...

    def needed(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Levels from which on the interval reaches down to y, and up to y.  # (rows, outputs) each"""
        ...

    def of_rows(self, rows: Any) -> Self: ...


@stored("Conformal")
@dataclass(frozen=True, eq=False)
class Conformal:
    """Conformal calibration: how far intervals, or sets of classes, must reach to contain the truth as often as they
    say.

    Intervals reach from mean + low std to mean + high std, with (low, high) = `reach(level)`. If the rows suffice, with
    (n + 1) (1 - level) / 2 >= 5 (199 for 95%), as much of the truth lies below as above. With fewer, and where a file
    of an earlier version holds scores without their signs, it is mean ± q std with q = `threshold(level)`, as two tails
    of few rows are much wider.

    >>> conformal = Conformal(torch.arange(1.0, 20.0, dtype=torch.float64)[:, None], Fit(19))
    >>> float(conformal.threshold(0.9)), float(conformal.threshold(0.95))
    (18.0, 19.0)
    >>> print(conformal)
    conformal intervals, by 19 rows (enough for levels up to 95%)
    >>> conformal.threshold(0.96)
    Traceback (most recent call last):
    ValueError: a level of 96% needs at least 24 rows to calibrate on, and there were 19: ...
    """

    by: ClassVar[Literal["conformal"]] = "conformal"
    most_numbers: ClassVar[int | None] = None
    is_clear: ClassVar[bool] = True
    scores: Tensor  # (rows, outputs), what each row would have needed; sorted
    fit: Fit
    what: str = "intervals"
    all_there_is: str = "infinite intervals"  # that would be safe with too few rows
    is_signed: bool = False  # scores below zero are of rows that lie below their mean

    def reach(self, level: float) -> tuple[Tensor, Tensor]:
        """Ends of an interval, in standard deviations above the mean, of each output.  # (outputs,) each

        >>> scores = torch.arange(-99.0, 100.0, dtype=torch.float64)[:, None] + 40
        >>> [float(end) for end in Conformal(scores, Fit(199), is_signed=True).reach(0.95)]  # 4 beyond each
        [-55.0, 135.0]
        >>> [float(end) for end in Conformal(scores[1:], Fit(198), is_signed=True).reach(0.95)]
        [-131.0, 131.0]
        """
        if not self.has_two_tails(level):
            both = self.threshold(level)
            return -both, both
        rows = len(self.scores)
        rank = math.floor((rows + 1) * (1 - level) / 2 + 1e-9)
        return self.scores[rank - 1], self.scores[rows - rank]

    def threshold(self, level: float) -> Tensor:
        """The ceil((n + 1) level)-th smallest score, whatever its sign, of each output.  # (outputs,)"""
        rows = len(self.scores)
        rank = math.ceil((rows + 1) * level - 1e-9)
        if rank > rows:
            needed = math.ceil(level / (1 - level) - 1e-9)
            raise ValueError(
                f"a level of {100 * level:g}% needs at least {needed:,} rows to calibrate on, and there were {rows:,}: "
                f"only {self.all_there_is} would be safe. Give more rows, or ask for {self._highest_level} at most"
            )
        scores = self.scores.abs().sort(0).values if self.is_signed else self.scores
        return scores[rank - 1]

    @property
    def pooled(self) -> Conformal:
        return self

    def has_two_tails(self, level: float) -> bool:
        """True if the rows suffice to miss as much of the truth below as above."""
        return self.is_signed and (len(self.scores) + 1) * (1 - level) / 2 + 1e-9 >= _FEWEST_IN_TAIL

    def ends(self, mixture: Mixture, level: float) -> tuple[Tensor, Tensor]:
        """Return the ends of an interval, in the mixture's units.  # (rows, outputs) each"""
        low, high = (mixture.mean + reach * unit(mixture.variance) for reach in self.reach(level))
        return low, high

    def holds(self, mixture: Mixture, level: float) -> Tensor:
        """True for each class that a set holds.  # (rows, classes)"""
        return 1 - mixture.mean <= self.threshold(level)

    def widened(self, mixture: Mixture, level: float, number: int, columns: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Move both ends of an interval outwards by what rows fell short of it; inwards, if they did not.

        number: of its scores. columns: of its ends, among the mixture's outputs.  # (rows,) each, in its units
        """
        low, high = (mixture.mean[:, column] for column in columns)
        further = self.threshold(level)[number]
        return low - further, high + further

    def nested(
        self, whole: Nested, along: Callable[[str], Sequence[Nested]], mixture: Mixture, level: float
    ) -> tuple[Tensor, Tensor]:
        """Return the ends of the interval of the level that rows needed.  # (rows, outputs) each

        whole: the distribution of all members. along: those of the members of each draw of an axis.
        """
        return whole.interval(self.threshold(level))

    def of_output(self, j: int) -> Conformal:
        """One of several outputs, alone."""
        return replace(self, scores=self.scores[:, j : j + 1])

    def of_rows(self, rows: Any) -> Conformal:
        return self

    def applied(self, prediction: Any) -> Any:
        return replace(prediction, conformal=self)

    def __str__(self) -> str:
        return f"conformal {self.what}, by {described(self.fit)} (enough for levels up to {self._highest_level})"

    @property
    def _highest_level(self) -> str:
        """Largest level that these rows are enough for, n / (n + 1), rounded down."""
        rows = len(self.scores)
        return f"{math.floor(1000 * rows / (rows + 1) + 1e-9) / 10:g}%"

    __repr__ = __str__


@stored("CrossConformal", without=["left_out_by"])
@dataclass(frozen=True, eq=False)
class CrossConformal:
    """The reach of intervals, or of sets of classes, by the scores of all rows, each by the draw that left it out."""

    by: ClassVar[Literal["conformal"]] = "conformal"
    most_numbers: ClassVar[int | None] = None
    is_clear: ClassVar[bool] = True
    scores: Tensor  # (rows, outputs), what each row would have needed
    parts: Tensor  # (rows,), the draw that left each out
    axis: str  # of these draws
    fit: Fit
    what: str = "intervals"
    all_there_is: str = "infinite intervals"
    is_signed: bool = False
    left_out_by: Tensor | None = field(default=None, repr=False)  # where the rows to predict are those of training

    @cached_property
    def pooled(self) -> Conformal:
        """All scores together."""
        return self._of(self.scores)

    def _of(self, scores: Tensor) -> Conformal:
        return Conformal(scores.sort(0).values, self.fit, self.what, self.all_there_is, self.is_signed)

    @cached_property
    def _by_draw(self) -> list[Tensor]:
        """The scores of each draw, sorted.  # (rows, outputs) each"""
        return [self.scores[self.parts == draw].sort(0).values for draw in self.parts.unique()]

    def applied(self, prediction: Any) -> Any:
        return replace(prediction, conformal=self)

    def of_left_out(self, left_out_by: Tensor) -> CrossConformal:
        """Speak of rows that calibrated it: each by the scores of all parts but its own."""
        return replace(self, left_out_by=left_out_by)

    def of_rows(self, rows: Any) -> CrossConformal:
        return self if self.left_out_by is None else replace(self, left_out_by=self.left_out_by[rows])

    def of_output(self, j: int) -> CrossConformal:
        return replace(self, scores=self.scores[:, j : j + 1])

    def __str__(self) -> str:
        return f"{self.pooled}, each left out by one of {len(self.parts.unique())} folds"

    __repr__ = __str__

    # ------------------------------------------------------------------ intervals

    def ends(self, mixture: Mixture, level: float) -> tuple[Tensor, Tensor]:
        """Return the ends of an interval, in the mixture's units.  # (rows, outputs) each"""
        if self.left_out_by is not None:
            return self._of_each_part(lambda pooled, rows: pooled.ends(mixture.of_rows(rows), level), mixture)
        self.pooled.threshold(level)  # raises where the rows are too few
        has_two_tails = self.pooled.has_two_tails(level)
        rank = math.floor((len(self.parts) + 1) * (1 - level) / (2 if has_two_tails else 1) + _ROUNDING)
        above = self._by_draw if has_two_tails else [each.abs().sort(0).values for each in self._by_draw]
        below = [-each.flip(0) for each in above] if has_two_tails else above
        moments = [(each.mean, unit(each.variance)) for each in mixture.along(self.axis)]
        mirrored = [(-mean, std) for mean, std in moments]
        return -_largest(rank, below, mirrored), _largest(rank, above, moments)

    def widened(self, mixture: Mixture, level: float, number: int, columns: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return the ends of an interval moved outwards, as `Conformal.widened`, by the draws of all rows (CV+)."""
        if self.left_out_by is not None:
            low, high = self._of_each_part(
                lambda pooled, rows: tuple_of_columns(pooled.widened(mixture.of_rows(rows), level, number, columns)),
                mixture,
            )
            return low[:, 0], high[:, 0]
        self.pooled.threshold(level)  # raises where the rows are too few
        rank = math.floor((len(self.parts) + 1) * (1 - level) + _ROUNDING)
        scores = [each[:, number : number + 1].sort(0).values for each in self._by_draw]
        ends = [each.mean[:, list(columns)] for each in mixture.along(self.axis)]
        ones = torch.ones(mixture.rows, 1, dtype=torch.float64)
        low = -_largest(rank, scores, [(-each[:, :1], ones) for each in ends])
        high = _largest(rank, scores, [(each[:, 1:], ones) for each in ends])
        return low[:, 0], high[:, 0]

    def nested(
        self, whole: Nested, along: Callable[[str], Sequence[Nested]], mixture: Mixture, level: float
    ) -> tuple[Tensor, Tensor]:
        """Return the ends of an interval, as `Conformal.nested`, by the draws of all rows (CV+)."""
        if self.left_out_by is not None:
            return self._of_each_part(
                lambda pooled, rows: pooled.nested(whole.of_rows(rows), along, mixture, level), mixture
            )
        self.pooled.threshold(level)  # raises where the rows are too few
        rank, draws = math.ceil((len(self.parts) + 1) * level - _ROUNDING), along(self.axis)

        def end(side: int) -> Tensor:
            def is_held(y: Tensor) -> Tensor:
                short = torch.zeros(y.shape, dtype=torch.int64)
                for scores, each in zip(self._by_draw, draws, strict=True):
                    short += torch.searchsorted(scores.T.contiguous(), each.needed(y)[side].T.contiguous()).T
                return short < rank

            nearest, farthest = (
                torch.stack([each.interval(self.pooled.scores[k])[side] for each in draws]) for k in (0, -1)
            )
            if side == 0:
                return _last_held(is_held, nearest.amax(0), farthest.amin(0))
            return _last_held(is_held, nearest.amin(0), farthest.amax(0))

        return end(0), end(1)

    # ------------------------------------------------------------------ sets of classes

    def holds(self, mixture: Mixture, level: float) -> Tensor:
        """True for each class that a set holds.  # (rows, classes)"""
        if self.left_out_by is not None:
            held, _ = self._of_each_part(
                lambda pooled, rows: (pooled.holds(mixture.of_rows(rows), level),) * 2, mixture, torch.bool
            )
            return held
        self.pooled.threshold(level)
        below = torch.zeros(mixture.rows, mixture.outputs, dtype=torch.int64)
        for scores, each in zip(self._by_draw, mixture.along(self.axis), strict=True):
            below += torch.searchsorted(scores[:, 0].contiguous(), (1 - each.mean).contiguous())
        return below < math.ceil((len(self.parts) + 1) * level - _ROUNDING)

    def _of_each_part(
        self,
        of: Callable[[Conformal, Tensor], tuple[Tensor, Tensor]],
        mixture: Mixture,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, Tensor]:
        """Judge the rows of each part by the scores of the others."""
        first, second = (torch.empty(mixture.rows, mixture.outputs, dtype=dtype) for _ in range(2))
        assert self.left_out_by is not None
        for draw in self.left_out_by.unique():
            rows = torch.nonzero(self.left_out_by == draw).flatten()
            first[rows], second[rows] = of(self._of(self.scores[self.parts != draw]), rows)
        return first, second


AnyConformal = Conformal | CrossConformal


def tuple_of_columns(ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the ends as columns.  # (rows,) each -> (rows, 1) each"""
    return ends[0].unsqueeze(1), ends[1].unsqueeze(1)


def unit(variance: Tensor) -> Tensor:
    """The unit of conformal intervals: the standard deviation; 1 where it is zero."""
    return torch.where(variance > 0, variance.sqrt(), 1.0)


def _last_held(is_held: Callable[[Tensor], Tensor], inside: Tensor, outside: Tensor) -> Tensor:
    """Return the value that is held last, on the way from one inside to another; the other where that is held, too."""
    is_all = is_held(outside)
    farthest = outside
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        is_inside = is_held(middle)
        inside, outside = torch.where(is_inside, middle, inside), torch.where(is_inside, outside, middle)
    return torch.where(is_all, farthest, inside)


def _largest(rank: int, scores: list[Tensor], moments: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the rank-th largest of mean_k + s std_k, over the sorted scores s of all draws k.  # (rows, outputs)"""
    both = list(zip(scores, moments, strict=True))
    ends = torch.stack([mean + each[[0, -1]].unsqueeze(1) * std for each, (mean, std) in both])
    low, high = ends[:, 0].amin(0), ends[:, 1].amax(0)
    low = low - (high - low).clamp_min(1e-12)

    def beyond(at: Tensor) -> Tensor:
        """Count the values above.  # (rows, outputs)"""
        count = torch.zeros(at.shape, dtype=torch.int64)
        for each, (mean, std) in both:
            z = ((at - mean) / std).T.contiguous()
            count += len(each) - torch.searchsorted(each.T.contiguous(), z, right=True).T
        return count

    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_low = beyond(middle) >= rank
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    return high
