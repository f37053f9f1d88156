"""The shape of a predictive distribution: y = mean + std s, where s has mean 0, variance 1, and one law for all rows.

    p(s)  =  sum over k of  w_k N(s; m_k, v_k),        sum w m = 0,    sum w (m^2 + v) = 1

Without a shape, s is Gaussian. Stays, costs and delays are not: s is skewed, or has long tails. Rows that were not
trained on show it by their deviations (y - mean) / std. A few Gaussians are fitted to these by expectation
maximisation; how many is chosen by cross-validation, and none is narrower than a kernel for as many rows would be. A
standard Gaussian with the weight of ten rows is among them: a value that few rows have, or none, is not ruled out.

Mean, variance and sources are those of the networks as before. Quantiles, intervals, densities and scores follow the
shape, so all of them speak of the same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive import gaussians
from wherefrom.predictive.fit import Fit, described, with_error
from wherefrom.predictive.student import StudentT

_MOST_COMPONENTS = 4
_TURNS = 60  # of expectation maximisation
_PARTS = 5  # of the rows, to choose the number of components by
_FEWEST_ROWS, _MOST_ROWS = 50, 5000  # to fit by
_KERNEL = 0.5  # times rows^(-1/5) of a robust deviation: the least deviation of a component
_GAUSSIAN_ROWS = 10  # that are assumed beside those that were seen
_LEAST_GAIN = 0.005  # nats a row, that are worth another shape

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]


@stored("Shape", without=["number"])
@dataclass(frozen=True, eq=False)
class Shape:
    """Gaussians that make up the distribution of (y - mean) / std, for each output.

    The first shape is that of all rows. Where rows were left out by folds, those that follow were fitted without the
    rows of one fold each: a row that a fold left out is judged by a shape that it had no part in.

    >>> half, apart = torch.full((1, 2, 1), 0.5).double(), torch.tensor([[[-0.8], [0.8]]]).double()
    >>> shape = Shape(half, apart, 0.72 * half, (0.2,), (0.03,), Fit(400, before=1.50, after=1.30))
    >>> float(shape.quantile(0.5)), round(float(shape.quantile(0.975)), 3)
    (0.0, 1.787)
    >>> print(shape)
    shape of 2 Gaussians, by 400 rows (NLL 1.50 -> 1.30; lower is better)
    """

    by: ClassVar[Literal["shape"]] = "shape"
    most_numbers: ClassVar[int | None] = None
    weights: Tensor  # (shapes, components, outputs)
    means: Tensor  # the same, in standard deviations above the mean
    variances: Tensor
    gain: tuple[float, ...]  # in log density over a Gaussian, by cross-validation, of each output; nan: too few rows
    standard_error: tuple[float, ...]
    fit: Fit
    number: Tensor | None = None  # (rows,), the shape of each row (default: the first)

    def __post_init__(self) -> None:
        if not bool((self.variances > 0).all()) or not bool((self.weights >= 0).all()):
            raise ValueError("the Gaussians of a shape have variances above zero, and no negative weight")

    @property
    def is_clear(self) -> bool:
        """True if some output's rows are clearly more likely so than under a Gaussian."""
        return any(g > max(_LEAST_GAIN, e) for g, e in zip(self.gain, self.standard_error, strict=True))

    def applied(self, prediction: Any) -> Any:
        return prediction.shaped(self)

    def of_left_out(self, left_out_by: Tensor) -> Shape:
        """Return the shapes of rows that a fold left out, each without its rows."""
        return self if len(self.weights) == 1 else replace(self, number=1 + left_out_by)

    def of_rows(self, rows: Any) -> Shape:
        return self if self.number is None else replace(self, number=self.number[rows])

    def of_output(self, j: int) -> Shape:
        """One of several outputs, alone."""
        one = slice(j, j + 1)
        weights, means, variances = (part[..., one] for part in (self.weights, self.means, self.variances))
        return Shape(weights, means, variances, self.gain[one], self.standard_error[one], self.fit, self.number)

    # ------------------------------------------------------------------ the distribution of s

    def log_density(self, s: Tensor) -> Tensor:
        """Log density at s.  # (rows, outputs)"""
        means, variances, weights = self.by_row
        return torch.logsumexp(gaussians.log_density(s, means, variances) + weights.log(), 0)

    def cdf(self, s: Tensor) -> Tensor:
        """Probability of a value no larger than s.  # (rows, outputs)"""
        means, variances, weights = self.by_row
        return (weights * gaussians.probability_below(means - s, variances)).sum(0)

    def quantile(self, probability: float) -> Tensor:
        """Value below which s falls with this probability.  # (rows or 1, outputs)"""
        each = [
            gaussians.quantile(means[:, None, None], variances[:, None, None], weights, probability)
            for means, variances, weights in zip(*map(_one_by_one, self._parts), strict=True)
        ]
        return self._of_rows(torch.cat(each).reshape(len(self.weights), -1))

    def quantiles(self, probabilities: Sequence[float]) -> list[Tensor]:
        """Values below which s falls with these probabilities.  # (rows or 1, outputs) each"""
        return [self.quantile(each) for each in probabilities]

    def crps(self, s: Tensor) -> Tensor:
        """CRPS at s: E|S - s| - E|S - S'| / 2.  # (rows, outputs)"""
        means, variances, weights = self.by_row
        to_truth = (weights * gaussians.mean_distance(means - s, variances)).sum(0)
        gaps, sums = (
            self.means[:, :, None] - self.means[:, None],
            self.variances[:, :, None] + self.variances[:, None],
        )
        pairs = self.weights[:, :, None] * self.weights[:, None] * gaussians.mean_distance(gaps, sums)
        return to_truth - 0.5 * self._of_rows(pairs.sum((1, 2)))

    @property
    def words(self) -> str:
        return "the shape that left-out rows have"

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.means, self.variances, self.weights

    @property
    def by_row(self) -> tuple[Tensor, Tensor, Tensor]:
        """Means, variances and weights.  # (components, rows or 1, outputs) each"""
        means, variances, weights = (self._of_rows(part).transpose(0, 1) for part in self._parts)
        return means, variances, weights

    def _of_rows(self, values: Tensor) -> Tensor:
        """Select the values of each row's shape.  # (shapes, ...) -> (rows or 1, ...)"""
        return values[:1] if self.number is None else values[self.number]

    def __str__(self) -> str:
        counts = [int(count) for count in (self.weights[0] > 0).sum(0)]
        each = ", ".join("a Gaussian" if count == 1 else f"{count} Gaussians" for count in counts)
        if max(counts) > 1:
            return f"shape of {each}, by {described(self.fit)}"
        if any(map(math.isnan, self.gain)):
            return f"shape of {each}: another shape needs {_FEWEST_ROWS} rows or more"
        gains = ", ".join(with_error(*pair) for pair in zip(self.gain, self.standard_error, strict=True))
        return f"shape of {each}: the best other shape raises the log density by {gains}"


AnyShape = Shape | StudentT


def _one_by_one(part: Tensor) -> list[Tensor]:
    """The components of each shape and output.  # (shapes, components, outputs) -> (components,) each"""
    return list(part.transpose(1, 2).flatten(0, 1))


def fitted_shape(deviations: Tensor, share: Tensor, fit: Fit, left_out_by: Tensor | None = None) -> Shape:
    """Fit the shape of each output to the deviations of rows.

    left_out_by: the fold that left each row out (default: none).
    # (rows, outputs), (rows, 1) adding up to 1, (rows,)
    """
    weights = len(share) * share[:, 0].numpy()
    folds = None if left_out_by is None else left_out_by.numpy()
    rows = np.arange(len(weights))
    if len(rows) > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).permutation(len(rows))[:_MOST_ROWS])
    parts = None if folds is None else folds[rows]
    columns = [_searched(column[rows], weights[rows], parts) for column in deviations.double().numpy().T]
    shapes = 1 if folds is None else 2 + int(folds.max())
    most = max(len(each.weights) for column in columns for each in column.shapes)

    def stacked(name: str, filling: float) -> Tensor:
        """Return a part of all shapes and outputs, each as long as the longest."""
        each = [[getattr(column.shape(k), name) for k in range(shapes)] for column in columns]
        padded = [[np.pad(part, (0, most - len(part)), constant_values=filling) for part in parts] for parts in each]
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(np.array(padded), 0, -1)))

    return Shape(
        stacked("weights", 0.0),
        stacked("means", 0.0),
        stacked("variances", 1.0),
        tuple(column.gain for column in columns),
        tuple(column.error for column in columns),
        fit,
    )


def shape_gains(deviations: Tensor) -> Tensor:
    """Return what a shape that is fitted to other rows adds to each row's log density.  # (rows, outputs) -> (rows,)"""
    columns = [_searched(column, np.ones(len(column))) for column in deviations.double().numpy().T]
    return torch.from_numpy(np.sum([column.gains for column in columns], axis=0))


class _Gaussians(NamedTuple):
    """A mixture of Gaussians."""

    weights: Numbers
    means: Numbers
    variances: Numbers

    def log_density(self, s: Numbers) -> Numbers:
        return np.logaddexp.reduce(self._logs(s), axis=0)

    def _logs(self, s: Numbers) -> Numbers:
        """Log of weight times density.  # (components, rows)"""
        gaps, variances = s - self.means[:, None], self.variances[:, None]
        logs = -0.5 * (gaps**2 / variances + np.log(2 * np.pi * variances))
        return logs + np.log(self.weights)[:, None]

    def improved(self, s: Numbers, weights: Numbers, least: float) -> _Gaussians:
        """Take one step of expectation maximisation. Each component counts one more row than it has."""
        logs = self._logs(s)
        shares = np.exp(logs - logs.max(0))
        shares *= weights / shares.sum(0)
        counts = shares.sum(1) + 1e-9
        means = shares @ s / counts
        variances = (shares * (s - means[:, None]) ** 2).sum(1) / counts
        return _Gaussians((counts + 1) / (counts + 1).sum(), means, np.maximum(variances, least))

    def with_gaussian_rows(self, rows: int) -> _Gaussians:
        """Add a standard Gaussian with the weight of a few rows, so that no value is all but ruled out."""
        weight = _GAUSSIAN_ROWS / (rows + _GAUSSIAN_ROWS)
        weights = np.append((1 - weight) * self.weights, weight)
        return _Gaussians(weights, np.append(self.means, 0.0), np.append(self.variances, 1.0))

    @property
    def standardised(self) -> _Gaussians:
        """Shift and scale to mean 0 and variance 1."""
        mean = float(self.weights @ self.means)
        variance = float(self.weights @ (self.means**2 + self.variances)) - mean**2
        return self._replace(means=(self.means - mean) / math.sqrt(variance), variances=self.variances / variance)


_SINGLE = _Gaussians(np.ones(1), np.zeros(1), np.ones(1))


class _Searched(NamedTuple):
    """The shapes of one output: of all rows, and without each part of them; and the gain over a single Gaussian.

    gains: of each row, by the shape that was fitted without its part.
    gain, error: of the best mixture that was tried, even if it is not good enough.
    """

    shapes: tuple[_Gaussians, ...]
    gains: Numbers
    gain: float
    error: float

    def shape(self, number: int) -> _Gaussians:
        return self.shapes[number] if number < len(self.shapes) else self.shapes[0]


def _searched(s: Numbers, weights: Numbers, parts: Integers | None = None) -> _Searched:
    """Choose as many Gaussians as make rows most likely that they were not fitted to.

    parts: of the rows, for cross-validation (default: at random; equal values, which may be copies of a row, together).
    """
    distinct, copies = np.unique(s, return_inverse=True)
    if parts is None:
        parts = np.random.default_rng(0).permutation(len(distinct))[copies] % _PARTS
    numbers = np.arange(int(parts.max()) + 1)
    nothing = _Searched((_SINGLE,), np.zeros(len(s)), math.nan, math.nan)
    if len(distinct) < _FEWEST_ROWS or any((parts != k).sum() < 2 for k in numbers):
        return nothing
    best, tried = nothing._replace(gain=0.0), (-math.inf, math.nan)
    for count in range(2, _MOST_COMPONENTS + 1):
        whole, start = _fitted(s, weights, count)
        without = [_fitted(s[parts != k], weights[parts != k], count, start)[0] for k in numbers]
        gains = -_SINGLE.log_density(s)
        for k, each in zip(numbers, without, strict=True):
            gains[parts == k] += each.log_density(s[parts == k])
        gain, error = float((weights * gains).mean()), float((weights * gains).std()) / math.sqrt(len(distinct))
        tried = max(tried, (gain, error))
        if gain > best.gain + _LEAST_GAIN:
            best = _Searched((whole, *without), gains, gain, error)
    return best if len(best.shapes) > 1 else nothing._replace(gain=tried[0], error=tried[1])


def _fitted(s: Numbers, weights: Numbers, count: int, start: int | None = None) -> tuple[_Gaussians, int]:
    """Fit Gaussians from two starts, side by side and one within the other, and return the better one and its start.

    start: the number of the only start to try (default: both).
    """
    low, median, high = np.quantile(s, [0.25, 0.5, 0.75])
    spread = max(float(high - low) / 1.349, 1e-3)
    least = (_KERNEL * len(np.unique(s)) ** -0.2 * spread) ** 2
    even = np.full(count, 1 / count)
    middles = np.quantile(s, (np.arange(count) + 0.5) / count)
    beside = _Gaussians(even, middles, np.full(count, max(least, spread**2 / count)))
    within = _Gaussians(even, np.full(count, median), np.maximum(least, spread**2 * 4.0 ** (np.arange(count) - 0.5)))
    fits = {}
    for number, each in enumerate((beside, within)):
        if start in (None, number):
            for _ in range(_TURNS):
                each = each.improved(s, weights, least)
            fits[number] = each.with_gaussian_rows(len(np.unique(s))).standardised
    best = max(fits, key=lambda number: float(weights @ fits[number].log_density(s)))
    return fits[best], best
