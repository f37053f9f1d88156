"""Growth of a cost: the memory and time of a block of code, and the exponent of a cost by size.

    log cost = a + b log size

is fitted by least squares to the larger half of the sizes, since fixed costs flatten the smaller ones; of these, only
to points that cost at least twice what the smallest size does. b has the standard error of a slope, from the residuals.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ABOVE_FIXED, FEWEST = 2.0, 3  # times the smallest size's cost; points of a fit


class Exponent(NamedTuple):
    """A fitted exponent, its standard error, and the sizes that it was fitted to."""

    value: float
    error: float
    sizes: tuple[float, ...]

    @property
    def is_above_linear(self) -> bool:
        """True if it is above 1.05 by more than two standard errors."""
        return self.value - 2 * self.error > 1.05

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> Exponent | None:
    """Fit the exponent; None where fewer than three points are above the fixed cost.

    >>> print(exponent([1, 10, 100, 1000, 10_000], [5, 5, 5 + 1, 5 + 10, 5 + 100]))
    None
    >>> print(exponent([1, 2, 4, 8, 16, 32], [3 * size**1.5 for size in (1, 2, 4, 8, 16, 32)]))
    1.50 ± 0.00
    """
    points = sorted(zip(sizes, costs, strict=True))
    larger = [(size, cost) for size, cost in points[len(points) // 2 :] if cost >= ABOVE_FIXED * points[0][1] > 0]
    if len(larger) < FEWEST:
        return None
    x, y = np.log(np.array(larger)).T
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residuals = y - y.mean() - slope * centred
    error = math.sqrt(float(residuals @ residuals) / (len(x) - 2) / float(centred @ centred))
    return Exponent(slope, error, tuple(size for size, _ in larger))


class Watched:
    """The most memory that this process holds while it lasts, beyond what it held before, in MB; and CPU seconds."""

    def __enter__(self) -> Watched:
        self.before, self.most = held(), {"VmRSS": 0.0, "RssAnon": 0.0}
        self.ended, self.begun = threading.Event(), time.process_time()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.ended.wait(0.01):
            self._look()

    def _look(self) -> None:
        now = held()
        self.most = {name: max(self.most[name], now[name] - self.before[name]) for name in self.most}

    def __exit__(self, *_: Any) -> None:
        self.seconds = time.process_time() - self.begun
        self.ended.set()
        self.thread.join()
        self._look()


def held() -> dict[str, float]:
    """MB that this process holds: all of it, and without pages of files."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {words[0][:-1]: int(words[1]) / 1024 for words in lines if words[0] in ("VmRSS:", "RssAnon:")}
