"""Calibration: what rows that were not trained on say of the predictive distribution, and how it is corrected by them.

Three corrections, each fitted on held-out rows (x_i, y_i), i = 1 ... n, kept with the posterior and applied to all that
it predicts:

    variance      y's deviations from the mean are s times what was said: everything is stretched away from the mean by
                  s, with the s^2 that makes the rows most likely. For the Gaussian reading it is exact,
                  s^2 = mean of (y_i - mean_i)^2 / variance_i, for each output. Shares of sources stay as they are.
    temperature   every answer's logits are divided by T, the most probable one given the rows, if log T ~ N(0, 1) was
                  expected. Few rows that all happen to be right would have it fall to nothing otherwise.
    conformal     intervals, or sets of classes, that reach as far as the rows themselves would have needed. If new
                  rows and these could have been swapped (and these served for nothing else), they hold the truth with
                  a probability of at least the level, whatever is wrong with the model. That is an average over rows
                  and over calibrations.

What conformal sets reach is one of two rules:

    one score     sets of classes with 1 - p <= q, or intervals mean ± q std, where q is the k-th smallest of the rows'
                  1 - p(y_i), or |y_i - mean_i| / std_i, with k = ceil((n + 1) level). They hold the truth at most with
                  level + 1 / (n + 1) where there are no ties; given these n rows, with Beta(k, n + 1 - k).
    two tails     intervals from mean + s_(k) std to mean + s_(n + 1 - k) std, of the rows' (y_i - mean_i) / std_i in
                  order of size, with k = floor((n + 1) a) and a = (1 - level) / 2. At most a of the truth lies below,
                  and at most a above, so a skewed y is not missed on one side alone. Each tail is Beta(k, n + 1 - k)
                  given these n rows, and they hold the truth at most with level + 2 / (n + 1) where there are no ties.

Intervals are by two tails if (n + 1) a >= 5, which is 199 rows for 95%, and mean ± q std with fewer: the ends of two
tails would be among the few farthest rows then, and much wider.

Rows with weights v_i count by them in the first two: means over rows are sums of v_i / sum of v. The third counts rows,
and knows no weights but none at all. Standard errors take the weights as given, not as repetitions of rows.

The first two correct the distribution, the third leaves it as it is and speaks of intervals alone, so it comes last.
A calibration is of the members and weights that it was fitted with, and of the way in which they predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive.searching import lowest
from wherefrom.table import Table
from wherefrom.training.data import Rows
from wherefrom.training.workers import one_core

By = Literal["variance", "temperature", "conformal"]
Reading = Literal["gaussian", "mixture"]
Method = Literal["monte_carlo", "one_shot", "auto"]

_FEWEST_ROWS = 2
_FEWEST_IN_TAIL = 5  # of the rows, on each side of an interval that has two tails
_ROUNDING = 1e-9
_LEAST_LOG, _MOST_LOG, _STEPS = -6.0, 6.0, 33  # of a factor of the variance; of a temperature, half of that
_SECTIONS = 20
_DIFFERENCE = 0.02  # in a logarithm, to differentiate by
_LEAST_CHANGE = 1e-6  # of an NLL, that is worth a word
_CLEARLY = 3.0  # standard errors


@stored("Fit", without=["data"])
@dataclass(frozen=True)
class Fit:
    """A fit of a calibration: what it takes to do it again, and the mean NLL of its rows before and after."""

    rows: int
    samples: int = 100
    method: Method = "monte_carlo"
    reading: Reading = "gaussian"
    before: float = math.nan
    after: float = math.nan
    on_held_out: bool = False  # those that the posterior held out itself
    data: Rows | None = field(default=None, repr=False, compare=False)  # not stored in files


@stored("VarianceScale")
@dataclass(frozen=True)
class VarianceScale:
    """The predictive variance of each output, times a factor.

    >>> print(VarianceScale((1.44,), (0.1,), Fit(200, before=1.50, after=1.47)))
    variance times 1.44 ± 0.10, so intervals 1.20 times as wide, by 200 rows (NLL 1.500 -> 1.470; lower is better)
    """

    by: ClassVar[By] = "variance"
    most_numbers: ClassVar[int | None] = None
    factor: tuple[float, ...]  # s^2, of each output
    standard_error: tuple[float, ...]
    fit: Fit

    def __post_init__(self) -> None:
        if not all(0 < each < math.inf for each in self.factor):
            raise ValueError(f"a factor of the variance is above zero, and finite, unlike {self.factor}")

    @property
    def is_clear(self) -> bool:
        """True if a factor is farther from 1 than chance would have it."""
        return any(abs(f - 1) > _CLEARLY * e for f, e in zip(self.factor, self.standard_error, strict=True))

    def applied(self, prediction: Any) -> Any:
        return prediction.stretched(torch.tensor(self.factor, dtype=torch.float64))

    def __str__(self) -> str:
        each = ", ".join(_with_error(f, e) for f, e in zip(self.factor, self.standard_error, strict=True))
        widths = ", ".join(f"{f**0.5:.3g}" if f**0.5 >= 10 else f"{f**0.5:.2f}" for f in self.factor)
        return f"variance times {each}, so intervals {widths} times as wide, by {_described(self.fit)}"


@stored("Temperature")
@dataclass(frozen=True)
class Temperature:
    """The divisor of every answer's logits.

    >>> print(Temperature(1.5, 0.08, Fit(500, before=0.61, after=0.55)))
    logits divided by 1.500 ± 0.080, so probabilities less extreme, by 500 rows (NLL 0.610 -> 0.550; lower is better)
    """

    by: ClassVar[By] = "temperature"
    most_numbers: ClassVar[int | None] = 3_000_000  # answers that a fit should look at, which it does many times
    value: float
    standard_error: float
    fit: Fit

    def __post_init__(self) -> None:
        if not 0 < self.value < math.inf:
            raise ValueError(f"a temperature is above zero, and finite, unlike {self.value}")

    @property
    def is_clear(self) -> bool:
        """True if it is farther from 1 than chance would have it."""
        return abs(self.value - 1) > _CLEARLY * self.standard_error

    def applied(self, prediction: Any) -> Any:
        return prediction if self.value == 1 else prediction.tempered(self.value)

    def __str__(self) -> str:
        if self.value == 1:
            return f"logits left as they are, which is best for {self.fit.rows:,} rows"
        less = "less" if self.value > 1 else "more"
        divided = _with_error(self.value, self.standard_error)
        return f"logits divided by {divided}, so probabilities {less} extreme, by {_described(self.fit)}"


class ConformalScores(NamedTuple):
    """Sizes that an interval or a set would have needed to hold each row, and how to speak of them."""

    scores: Tensor  # (rows, outputs)
    is_signed: bool  # scores below zero are of rows that lie below their mean
    what: str  # "intervals", or "sets of classes"
    all_there_is: str


@stored("Conformal")
@dataclass(frozen=True, eq=False)
class Conformal:
    """The reach of intervals, or of sets of classes, that holds the truth as often as they say.

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

    by: ClassVar[By] = "conformal"
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
        rows = len(self.scores)
        in_tail = (rows + 1) * (1 - level) / 2 + 1e-9
        if not self.is_signed or in_tail < _FEWEST_IN_TAIL:
            both = self.threshold(level)
            return -both, both
        place = math.floor(in_tail)
        return self.scores[place - 1], self.scores[rows - place]

    def threshold(self, level: float) -> Tensor:
        """The ceil((n + 1) level)-th smallest score, whatever its sign, of each output.  # (outputs,)"""
        rows = len(self.scores)
        place = math.ceil((rows + 1) * level - 1e-9)
        if place > rows:
            needed = math.ceil(level / (1 - level) - 1e-9)
            raise ValueError(
                f"a level of {100 * level:g}% needs at least {needed:,} rows to calibrate on, and there were {rows:,}: "
                f"only {self.all_there_is} would be safe. Give more rows, or ask for {self._highest_level} at most"
            )
        scores = self.scores.abs().sort(0).values if self.is_signed else self.scores
        return scores[place - 1]

    def of_output(self, j: int) -> Conformal:
        """One of several outputs, alone."""
        return replace(self, scores=self.scores[:, j : j + 1])

    def applied(self, prediction: Any) -> Any:
        return replace(prediction, conformal=self)

    def __str__(self) -> str:
        return f"conformal {self.what}, by {_described(self.fit)} (enough for levels up to {self._highest_level})"

    @property
    def _highest_level(self) -> str:
        """Largest level that so many rows can vouch for, n / (n + 1), rounded down."""
        rows = len(self.scores)
        return f"{math.floor(1000 * rows / (rows + 1) + 1e-9) / 10:g}%"

    __repr__ = __str__


Calibration = VarianceScale | Temperature | Conformal
CALIBRATIONS: dict[str, type[Calibration]] = {
    "variance": VarianceScale,
    "temperature": Temperature,
    "conformal": Conformal,
}


def _described(fit: Fit) -> str:
    return f"{fit.rows:,} rows{_change(fit.before, fit.after)}"


def _change(before: float, after: float) -> str:
    """Say what it did to the NLL of its own rows, in as many decimals as show it to two digits."""
    if math.isnan(before):
        return ""
    change = abs(after - before)
    if change < _LEAST_CHANGE:
        return f" (NLL {before:.4g}, as before)"
    decimals = _decimals(change) if math.isfinite(change) else 3
    return f" (NLL {before:.{decimals}f} -> {after:.{decimals}f}; lower is better)"


def _with_error(value: float, error: float) -> str:
    """A number with its standard error, where that is known, to two digits of it.

    >>> _with_error(0.2583, 0.1142), _with_error(12.34, 2.6), _with_error(1.5, math.nan)
    ('0.26 ± 0.11', '12.3 ± 2.6', '1.5')
    """
    if not 0 < error < math.inf:
        return f"{value:.3g}"
    decimals = _decimals(error)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def _decimals(number: float) -> int:
    """Number of decimals that show two digits of a number, six at most."""
    return min(max(1 - math.floor(math.log10(number)), 0), 6)


# ---------------------------------------------------------------------- which there can be


_NEEDS = {"variance": "have no variance to scale", "temperature": "have no logits to divide"}


def checked(by: Any, offered: Sequence[By], target: str) -> By:
    """The name of a calibration that the likelihood offers; `target` says what is predicted, in the plural."""
    if by not in CALIBRATIONS:
        raise ValueError(f'calibrate by "variance", "temperature" or "conformal", not {by!r}')
    if by not in offered:
        others = ", or by ".join(f'"{each}"' for each in offered)
        raise ValueError(f"{target} {_NEEDS[by]}: calibrate by {others}")
    return by


def before(by: By, present: Sequence[Calibration]) -> tuple[Calibration, ...]:
    """Return what a calibration is fitted on top of: a further one of the same kind takes the place of the first."""
    kept = tuple(each for each in present if each.by != by)
    if by != "conformal" and any(each.by == "conformal" for each in kept):
        raise ValueError(
            f"conformal intervals and sets hold for the distribution that they were fitted with: calibrate by {by} "
            "first, and by conformal last (posterior.uncalibrated takes you back)"
        )
    return kept


# ---------------------------------------------------------------------- fitting


@one_core()
def fitted(by: By, prediction: Any, y: Any, fit: Fit, weights: Tensor | None = None) -> Calibration:
    """A calibration by the truth about rows that were not trained on; a conformal one leaves their weights aside."""
    if fit.rows < _FEWEST_ROWS:
        raise ValueError(f"it takes at least {_FEWEST_ROWS} rows to calibrate, and there are only {fit.rows}")
    share = torch.ones(fit.rows, dtype=torch.float64) if weights is None else weights.double()
    share = (share / share.sum()).unsqueeze(1)
    if by == "variance":
        return _variance_scale(prediction, y, fit, share)
    if by == "temperature":
        return _temperature(prediction, y, fit, share)
    scores, is_signed, what, all_there_is = prediction.conformal_scores(y)
    return Conformal(scores.sort(0).values, fit, what, all_there_is, is_signed)


def _variance_scale(prediction: Any, y: Any, fit: Fit, share: Tensor) -> VarianceScale:
    if float(prediction.deviation(y).abs().amax(0).min()) < _ROUNDING:
        raise ValueError("every one of these rows is predicted exactly: there is no variance to be scaled")
    mean, reading = prediction._matrix(prediction.mean), fit.reading
    gap = prediction._matrix(y) - mean

    def nll(log_factor: Tensor) -> Tensor:
        """NLL of a distribution stretched by s: p(mean + (y - mean) / s) / s.  # (outputs,) -> (rows, outputs)"""
        return log_factor / 2 - prediction.log_density(mean + gap * (-log_factor / 2).exp(), reading)

    unchanged = nll(torch.zeros(gap.shape[1], dtype=torch.float64))  # raises where there is no density
    if reading == "gaussian":
        log_factor = (share * prediction.deviation(y).square()).sum(0).log()
    else:
        log_factor = lowest(
            lambda each: (share * nll(each)).sum(0), _grid(_LEAST_LOG, _MOST_LOG, gap.shape[1]), _SECTIONS
        )
    factor, error = log_factor.exp(), _standard_error(nll, log_factor, share)
    fit = _scored(fit, unchanged, nll(log_factor), share)
    return VarianceScale(tuple(factor.tolist()), tuple((factor * error).tolist()), fit)


def _temperature(prediction: Any, y: Any, fit: Fit, share: Tensor) -> Temperature:
    def nll(log_temperature: Tensor) -> Tensor:  # (1,) -> (rows, 1)
        return prediction.tempered(float(log_temperature.exp())).nll(y, by_row=True).unsqueeze(1)

    def cost(log_temperature: Tensor) -> Tensor:
        return (share * nll(log_temperature)).sum(0) + log_temperature.square() / (2 * fit.rows)

    best = lowest(cost, _grid(_LEAST_LOG / 2, _MOST_LOG / 2, 1), _SECTIONS)
    unchanged = prediction.nll(y, by_row=True).unsqueeze(1)
    if not float(cost(best)) < float((share * unchanged).sum()):
        best = torch.zeros(1, dtype=torch.float64)
    value, error = float(best.exp()), float(_standard_error(nll, best, share, expected=1 / fit.rows))
    return Temperature(value, value * error, _scored(fit, unchanged, nll(best), share))


def _scored(fit: Fit, unchanged: Tensor, changed: Tensor, share: Tensor) -> Fit:
    return replace(fit, before=float((share * unchanged).sum()), after=float((share * changed).sum()))


def _grid(low: float, high: float, outputs: int) -> Tensor:
    return torch.linspace(low, high, _STEPS, dtype=torch.float64).unsqueeze(1).expand(-1, outputs)


def _standard_error(nll: Callable[[Tensor], Tensor], at: Tensor, share: Tensor, expected: float = 0.0) -> Tensor:
    """Standard error of where a mean over rows is lowest: sqrt(sum of (share slope)^2) / mean of curvature.

    What was expected beforehand has a curvature, too, and counts as a row that was drawn like the others.  # (outputs,)
    """
    below, here, above = (nll(at + step) for step in (-_DIFFERENCE, 0.0, _DIFFERENCE))
    slope = (above - below) / (2 * _DIFFERENCE)
    curvature = (share * (above - 2 * here + below) / _DIFFERENCE**2).sum(0)
    squares = (share * (slope - (share * slope).sum(0))).square().sum(0) + expected**2
    curvature = curvature + expected
    return torch.where(curvature > 0, squares.sqrt() / curvature, math.nan)


# ---------------------------------------------------------------------- before and after


def compared(before: Any, after: Any, y: Any, levels: Sequence[float]) -> Table:
    """Scores of the same rows, as they were predicted without calibration and with it."""
    both = [prediction.scores_by_level(y, levels) for prediction in (before, after)]
    return Table(("score", "before", "after"), [(name, value, both[1][name]) for name, value in both[0].items()])


def or_nan(score: Callable[..., float], *about: Any) -> float:
    """A score, or not a number where there is no density, or there were too few rows for the level."""
    try:
        return score(*about)
    except ValueError:
        return math.nan
