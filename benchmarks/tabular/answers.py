"""What every contender returns for the rows of a test fold, and the one function that scores it.

    quantities   a Gaussian (mean, std) and an interval of 95%; or, instead of the Gaussian, the NLL and the CRPS of the
                 contender's predictive distribution at each row
    classes      a probability for each class

Scores are by row, so that contenders are compared row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Numbers = NDArray[np.float64]
LEVEL = 0.95
Z = 1.959963984540054  # the quantile of N(0, 1) at 0.975
_LEAST_PROBABILITY = 1e-12


class Claim(NamedTuple):
    """The NLL that a contender states of itself after training, without the test rows, and its standard error."""

    nll: float
    error: float


@dataclass(frozen=True, eq=False)
class Quantities:
    """Predictions of a quantity: `nll` and `crps` by row, where they are not those of N(mean, std^2)."""

    mean: Numbers
    lower: Numbers
    upper: Numbers
    std: Numbers | None = None
    nll: Numbers | None = None
    crps: Numbers | None = None
    claim: Claim | None = None

    @classmethod
    def gaussian(
        cls, mean: Numbers, std: Numbers, lower: Numbers | None = None, upper: Numbers | None = None
    ) -> Quantities:
        """The answer N(mean, std^2), with its own 95% interval unless another is given."""
        mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
        return cls(mean, mean - Z * std if lower is None else lower, mean + Z * std if upper is None else upper, std)

    def scored(self, y: Numbers) -> dict[str, list[float]]:
        """NLL, CRPS, mean, whether y is covered, and the width, by row."""
        if self.nll is not None and self.crps is not None:
            nll, crps = self.nll, self.crps
        else:
            assert self.std is not None
            std = np.maximum(self.std, 1e-9 * (np.std(y) or 1.0))
            z = (y - self.mean) / std
            density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
            nll = z**2 / 2 + np.log(std) + np.log(2 * np.pi) / 2
            crps = std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
        covered = ((y >= self.lower) & (y <= self.upper)).astype(np.float64)
        return {
            "nll": _short(nll),
            "crps": _short(crps),
            "mean": _short(self.mean),
            "covered": _short(covered),
            "width": _short(self.upper - self.lower),
        }


@dataclass(frozen=True, eq=False)
class Classes:
    """Predictions of a class."""

    probabilities: Numbers  # (rows, classes)
    claim: Claim | None = None

    def scored(self, y: Numbers) -> dict[str, list[float]]:
        """NLL and Brier score by row; of two classes, the probability of the second, for the AUC."""
        truth = y.astype(np.int64)
        p = np.clip(self.probabilities, _LEAST_PROBABILITY, 1.0)
        p = p / p.sum(1, keepdims=True)
        indicator = np.eye(p.shape[1])[truth]
        scores = {
            "nll": _short(-np.log(p[np.arange(len(p)), truth])),
            "brier": _short(((p - indicator) ** 2).sum(1)),
        }
        return scores | ({"second": _short(p[:, 1])} if p.shape[1] == 2 else {})


Answer = Quantities | Classes


class Skipped(Exception):
    """A contender does not take this table: the message says why."""


def _short(values: Numbers) -> list[float]:
    """Six significant digits, to keep files small."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64)]
