"""Calibration: what rows that were not trained on say of the predictive distribution, and how it is corrected by them.

Four corrections, each fitted on held-out rows (x_i, y_i), i = 1 ... n, kept with the posterior and applied to all that
it predicts:

    variance      y's deviations from the mean are s times what was said: everything is stretched away from the mean by
                  s, with the s^2 that makes the rows most likely. For the Gaussian reading it is exact,
                  s^2 = mean of (y_i - mean_i)^2 / variance_i, for each output. Shares of sources stay as they are, but
                  for values that are missing in a row: how much they matter is known from the training rows.
    shape         y's deviations from the mean, in standard deviations, are skewed or have long tails: their
                  distribution takes the place of the Gaussian (predictive/shape.py). Mean, variance and sources stay.
    temperature   every answer's logits are divided by T, the most probable one given the rows, if log T ~ N(0, 1) was
                  expected. Few rows that all happen to be right would have it fall to nothing otherwise.
    conformal     intervals, or sets of classes, that reach as far as the rows themselves would have needed. If new
                  rows and these could have been swapped (and these served for nothing else), they hold the truth with
                  a probability of at least the level, whatever is wrong with the model. That is an average over rows
                  and over calibrations.

What conformal intervals and sets reach is in predictive/conformal.py.

Rows with weights v_i count by them, means over rows are sums of v_i / sum of v; but conformal intervals count rows,
and know no weights but none at all. Standard errors take the weights as given, not as repetitions of rows.

The others correct the distribution; conformal leaves it as it is and speaks of intervals alone, so it comes last.
A calibration is of the members and weights that it was fitted with, and of the way in which they predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive.conformal import AnyConformal, Conformal, CrossConformal
from wherefrom.predictive.fit import Fit, described, with_error
from wherefrom.predictive.searching import lowest
from wherefrom.predictive.shape import Shape, fitted_shape
from wherefrom.table import Table
from wherefrom.training.workers import one_core

By = Literal["variance", "shape", "temperature", "conformal"]

_FEWEST_ROWS = 2
_ROUNDING = 1e-9
_LEAST_LOG, _MOST_LOG, _STEPS = -6.0, 6.0, 33  # of a factor of the variance; of a temperature, half of that
_SECTIONS = 20
_DIFFERENCE = 0.02  # in a logarithm, to differentiate by
_CLEARLY = 3.0  # standard errors


@stored("VarianceScale")
@dataclass(frozen=True)
class VarianceScale:
    """Calibration of quantities: a factor that multiplies the predictive variance of each output.

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
        each = ", ".join(with_error(f, e) for f, e in zip(self.factor, self.standard_error, strict=True))
        widths = ", ".join(f"{f**0.5:.3g}" if f**0.5 >= 10 else f"{f**0.5:.2f}" for f in self.factor)
        return f"variance times {each}, so intervals {widths} times as wide, by {described(self.fit)}"


@stored("Temperature")
@dataclass(frozen=True)
class Temperature:
    """Calibration of classes: a number that divides the logits of every answer.

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
        divided = with_error(self.value, self.standard_error)
        return f"logits divided by {divided}, so probabilities {less} extreme, by {described(self.fit)}"


Calibration = VarianceScale | Shape | Temperature | AnyConformal
CALIBRATIONS: dict[str, type[VarianceScale | Shape | Temperature | Conformal]] = {
    "variance": VarianceScale,
    "shape": Shape,
    "temperature": Temperature,
    "conformal": Conformal,
}


# ---------------------------------------------------------------------- which there can be


_NEEDS = {
    "variance": "have no variance to scale",
    "shape": "have no shape to fit",
    "temperature": "have no logits to divide",
    "conformal": "have no conformal intervals: a censored row does not say how wide its interval must be",
}


def checked(by: Any, offered: Sequence[By], target: str) -> By:
    """The name of a calibration that the likelihood offers; `target` says what is predicted, in the plural."""
    if by not in CALIBRATIONS:
        names = ", ".join(f'"{name}"' for name in CALIBRATIONS)
        raise ValueError(f"calibrate by one of {names}, not by {by!r}")
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
def fitted(
    by: By,
    prediction: Any,
    y: Any,
    fit: Fit,
    weights: Tensor | None = None,
    left_out: tuple[Tensor, str] | None = None,
) -> Calibration:
    """A calibration by the truth about rows that were not trained on; a conformal one leaves their weights aside.

    `left_out` is the draw that left each row out, where each was trained on by the others, and the name of their axis.
    """
    if fit.rows < _FEWEST_ROWS:
        raise ValueError(f"it takes at least {_FEWEST_ROWS} rows to calibrate, and there are only {fit.rows}")
    share = torch.ones(fit.rows, dtype=torch.float64) if weights is None else weights.double()
    share = (share / share.sum()).unsqueeze(1)
    if by in ("variance", "shape"):
        left_out_by = None if left_out is None else left_out[0]
        prediction, y, rows, shift = prediction.to_calibrate(y)
        if rows is not None:
            if len(rows) < _FEWEST_ROWS:
                raise ValueError(
                    f"it takes at least {_FEWEST_ROWS} rows above 0 to calibrate, and there are {len(rows)}"
                )
            fit, share = replace(fit, rows=len(rows)), share[rows] / share[rows].sum()
            left_out_by = None if left_out_by is None else left_out_by[rows]
        calibration = (
            _variance_scale(prediction, y, fit, share)
            if by == "variance"
            else _shape(prediction, y, fit, share, left_out_by)
        )
        if shift is None:
            return calibration
        away = float((share[:, 0] * shift).sum())
        return replace(
            calibration,
            fit=replace(calibration.fit, before=calibration.fit.before + away, after=calibration.fit.after + away),
        )
    if by == "temperature":
        return _temperature(prediction, y, fit, share)
    scores, is_signed, what, all_there_is = prediction.conformal_scores(y)
    if left_out is not None:
        return CrossConformal(scores, *left_out, fit, what, all_there_is, is_signed)
    return Conformal(scores.sort(0).values, fit, what, all_there_is, is_signed)


def _variance_scale(prediction: Any, y: Any, fit: Fit, share: Tensor) -> VarianceScale:
    if float(prediction.deviation(y).abs().amax(0).min()) < _ROUNDING:
        raise ValueError("every one of these rows is predicted exactly: there is no variance to be scaled")
    has_other_law = fit.reading == "gaussian" and not prediction.reads_as_gaussian
    nll = prediction.stretched_nll(y, None if has_other_law else fit.reading)
    outputs = prediction.mixture.outputs
    unchanged = nll(torch.zeros(outputs, dtype=torch.float64))  # raises where there is no density
    if fit.reading == "gaussian" and not has_other_law:
        log_factor = (share * prediction.deviation(y).square()).sum(0).log()
    else:
        log_factor = lowest(lambda each: (share * nll(each)).sum(0), _grid(_LEAST_LOG, _MOST_LOG, outputs), _SECTIONS)
    factor, error = log_factor.exp(), _standard_error(nll, log_factor, share)
    fit = _scored(fit, unchanged, nll(log_factor), share)
    return VarianceScale(tuple(factor.tolist()), tuple((factor * error).tolist()), fit)


def _shape(prediction: Any, y: Any, fit: Fit, share: Tensor, left_out_by: Tensor | None) -> Shape:
    shape = fitted_shape(prediction.deviation(y), share, fit, left_out_by)
    before = float((share * -prediction.log_density(y)).sum())
    gained = math.fsum(gain for gain in shape.gain if gain > 0)
    return replace(shape, fit=replace(fit, before=before, after=before - gained))


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
