"""A fit of a calibration: on how many rows, how they were predicted, and what it did to their NLL."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from wherefrom.files.codec import stored
from wherefrom.training.data import Rows

Reading = Literal["gaussian", "paper", "shape", "mixture"]
Method = Literal["monte_carlo", "one_shot", "linearised", "auto"]

_LEAST_CHANGE = 1e-6  # of an NLL, that is worth a word


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


def described(fit: Fit) -> str:
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


def with_error(value: float, error: float) -> str:
    """A number with its standard error, where that is known, to two digits of it.

    >>> with_error(0.2583, 0.1142), with_error(12.34, 2.6), with_error(1.5, math.nan)
    ('0.26 ± 0.11', '12.3 ± 2.6', '1.5')
    """
    if not 0 < error < math.inf:
        return f"{value:.3g}"
    decimals = _decimals(error)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def _decimals(number: float) -> int:
    """Number of decimals that show two digits of a number, six at most."""
    return min(max(1 - math.floor(math.log10(number)), 0), 6)
