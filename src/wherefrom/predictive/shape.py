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
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive import gaussians
from wherefrom.predictive.fit import Fit, described, with_error

_MOST_COMPONENTS = 4
_TURNS = 60  # of expectation maximisation
_PARTS = 5  # of the rows, to choose the number of components by
_FEWEST_ROWS, _MOST_ROWS = 50, 5000  # to fit by
_KERNEL = 0.5  # times rows^(-1/5) of a robust deviation: the least deviation of a component
_GAUSSIAN_ROWS = 10  # that are assumed beside those that were seen
_LEAST_GAIN = 0.005  # nats a row, that are worth another shape

Numbers = NDArray[np.float64]


@stored("Shape")
@dataclass(frozen=True, eq=False)
class Shape:
    """Gaussians that make up the distribution of (y - mean) / std, for each output.

    >>> fair = torch.tensor([[0.5], [0.5]], dtype=torch.float64)
    >>> shape = Shape(fair, torch.tensor([[-0.8], [0.8]]).double(), torch.tensor([[0.36], [0.36]]).double(),
    ...     (0.2,), (0.03,), Fit(400, before=1.50, after=1.30))
    >>> float(shape.quantile(0.5)), round(float(shape.quantile(0.975)), 3)
    (0.0, 1.787)
    >>> print(shape)
    shape of 2 Gaussians, by 400 rows (NLL 1.50 -> 1.30; lower is better)
    """

    by: ClassVar[Literal["shape"]] = "shape"
    most_numbers: ClassVar[int | None] = None
    weights: Tensor  # (components, outputs)
    means: Tensor  # the same, in standard deviations above the mean
    variances: Tensor
    gain: tuple[float, ...]  # in log density over a Gaussian, by cross-validation, of each output
    standard_error: tuple[float, ...]
    fit: Fit

    def __post_init__(self) -> None:
        if not bool((self.variances > 0).all()) or not bool((self.weights >= 0).all()):
            raise ValueError("the Gaussians of a shape have variances above zero, and no negative weight")

    @property
    def is_clear(self) -> bool:
        """True if some output's rows are clearly more likely so than under a Gaussian."""
        return any(g > max(_LEAST_GAIN, e) for g, e in zip(self.gain, self.standard_error, strict=True))

    def applied(self, prediction: Any) -> Any:
        return prediction.shaped(self)

    def of_output(self, j: int) -> Shape:
        """One of several outputs, alone."""
        one = slice(j, j + 1)
        weights, means, variances = (part[:, one] for part in (self.weights, self.means, self.variances))
        return Shape(weights, means, variances, self.gain[one], self.standard_error[one], self.fit)

    # ------------------------------------------------------------------ the distribution of s

    def log_density(self, s: Tensor) -> Tensor:
        """Log density at s.  # (rows, outputs)"""
        means, variances, weights = self._by_row
        return torch.logsumexp(gaussians.log_density(s, means, variances) + weights.log(), 0)

    def cdf(self, s: Tensor) -> Tensor:
        """Probability of a value no larger than s.  # (rows, outputs)"""
        means, variances, weights = self._by_row
        return (weights * gaussians.probability_below(means - s, variances)).sum(0)

    def quantile(self, probability: float) -> Tensor:
        """Value below which s falls with this probability.  # (outputs,)"""
        means, variances, _ = self._by_row
        each = [
            gaussians.quantile(means[..., j : j + 1], variances[..., j : j + 1], self.weights[:, j], probability)
            for j in range(self.weights.shape[1])
        ]
        return torch.cat(each, 1)[0]

    def crps(self, s: Tensor) -> Tensor:
        """CRPS at s: E|S - s| - E|S - S'| / 2.  # (rows, outputs)"""
        means, variances, weights = self._by_row
        to_truth = (weights * gaussians.mean_distance(means - s, variances)).sum(0)
        pairs = gaussians.mean_distance(self.means[:, None] - self.means, self.variances[:, None] + self.variances)
        apart = (self.weights[:, None] * self.weights * pairs).sum((0, 1))
        return to_truth - 0.5 * apart

    @property
    def _by_row(self) -> tuple[Tensor, Tensor, Tensor]:
        """Means, variances and weights.  # (components, 1, outputs) each"""
        return self.means[:, None], self.variances[:, None], self.weights[:, None]

    def __str__(self) -> str:
        counts = [int(count) for count in (self.weights > 0).sum(0)]
        each = ", ".join("a Gaussian" if count == 1 else f"{count} Gaussians" for count in counts)
        if max(counts) == 1:
            gains = ", ".join(with_error(*pair) for pair in zip(self.gain, self.standard_error, strict=True))
            return f"shape of {each}: others gain {gains} in log density, by {self.fit.rows:,} rows"
        return f"shape of {each}, by {described(self.fit)}"


def fitted_shape(deviations: Tensor, share: Tensor, fit: Fit) -> Shape:
    """Fit the shape of each output to the deviations of rows.  # (rows, outputs), (rows, 1) adding up to 1"""
    weights = len(share) * share[:, 0].numpy()
    rows = np.arange(len(weights))
    if len(rows) > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).permutation(len(rows))[:_MOST_ROWS])
    found = [_chosen(column[rows], weights[rows])[0] for column in deviations.double().numpy().T]
    most = max(len(each.weights) for each in found)

    def stacked(name: str, filling: float) -> Tensor:
        columns = [getattr(each, name) for each in found]
        padded = [np.pad(column, (0, most - len(column)), constant_values=filling) for column in columns]
        return torch.from_numpy(np.stack(padded, axis=1))

    return Shape(
        stacked("weights", 0.0),
        stacked("means", 0.0),
        stacked("variances", 1.0),
        tuple(each.gain for each in found),
        tuple(each.error for each in found),
        fit,
    )


def shape_gains(deviations: Tensor) -> Tensor:
    """Return what a shape that is fitted to other rows adds to each row's log density.  # (rows, outputs) -> (rows,)"""
    columns = deviations.double().numpy().T
    return torch.from_numpy(np.sum([_chosen(column, np.ones(len(column)))[1] for column in columns], axis=0))


class _Gaussians(NamedTuple):
    """A mixture of Gaussians of one output, and its cross-validated gain over a single one."""

    weights: Numbers
    means: Numbers
    variances: Numbers
    gain: float = 0.0
    error: float = 0.0

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
        shares = weights * np.exp(logs - np.logaddexp.reduce(logs, axis=0))
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
        """The same shape with mean 0 and variance 1."""
        mean = float(self.weights @ self.means)
        variance = float(self.weights @ (self.means**2 + self.variances)) - mean**2
        return self._replace(means=(self.means - mean) / math.sqrt(variance), variances=self.variances / variance)


def _chosen(s: Numbers, weights: Numbers) -> tuple[_Gaussians, Numbers]:
    """Return as many Gaussians as make rows most likely that they were not fitted to, and each row's gain by that."""
    parts = np.random.default_rng(0).permutation(len(s)) % _PARTS
    single = _Gaussians(np.ones(1), np.zeros(1), np.ones(1))
    best, best_gains = single, np.zeros(len(s))
    if len(s) < _FEWEST_ROWS:
        return best, best_gains
    for count in range(2, _MOST_COMPONENTS + 1):
        gains = -single.log_density(s)
        for part in range(_PARTS):
            rest = parts != part
            gains[~rest] += _fitted(s[rest], weights[rest], count).log_density(s[~rest])
        gain = float((weights * gains).mean())
        if gain > best.gain + _LEAST_GAIN:
            error = float((weights * gains).std()) / math.sqrt(len(s))
            best, best_gains = _fitted(s, weights, count)._replace(gain=gain, error=error), gains
    return best, best_gains


def _fitted(s: Numbers, weights: Numbers, count: int) -> _Gaussians:
    """Fit Gaussians from two beginnings, side by side and one within the other, and return the better one."""
    low, median, high = np.quantile(s, [0.25, 0.5, 0.75])
    spread = max(float(high - low) / 1.349, 1e-3)
    least = (_KERNEL * len(s) ** -0.2 * spread) ** 2
    even = np.full(count, 1 / count)
    middles = np.quantile(s, (np.arange(count) + 0.5) / count)
    beside = _Gaussians(even, middles, np.full(count, max(least, spread**2 / count)))
    within = _Gaussians(even, np.full(count, median), np.maximum(least, spread**2 * 4.0 ** (np.arange(count) - 0.5)))
    found = []
    for each in (beside, within):
        for _ in range(_TURNS):
            each = each.improved(s, weights, least)
        found.append(each.with_gaussian_rows(len(s)).standardised)
    return max(found, key=lambda each: float(weights @ each.log_density(s)))
