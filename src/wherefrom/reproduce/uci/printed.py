"""The figures to compare with: the paper's own tables, and the best published ones of other methods."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from wherefrom.reproduce.uci.setups import Combination


@dataclass(frozen=True)
class Printed:
    """A cell of the paper's tables: the mean and standard deviation over the folds, of three decimals.

    Some cells say no more than the order of magnitude, and have no deviation; naval's RMSEs have one of 0.000.
    """

    mean: float
    std: float | None

    @property
    def is_vague(self) -> bool:
        return self.std is None

    def distance(self, mean: float) -> float | None:
        """Distance of a mean in printed standard deviations, if there are any."""
        return (mean - self.mean) / self.std if self.std else None

    def is_rounded(self, mean: float) -> bool:
        """True if a mean equals the printed one, to its digits."""
        return abs(mean - self.mean) <= 0.0005 + 1e-9


@cache
def tables() -> dict[tuple[str, str], dict[tuple[Combination, str], Printed]]:
    """(table, metric) -> (combination, set) -> cell.

    >>> tables()["main", "nll"][("t",), "boston"]
    Printed(mean=5.958, std=1.962)
    """
    found: dict[tuple[str, str], dict[tuple[Combination, str], Printed]] = {}
    for row in _rows("printed.csv"):
        cell = Printed(float(row["mean"]), float(row["std"]) if row["std"] else None)
        table = found.setdefault((row["setup"], row["metric"]), {})
        table[tuple(row["combination"].split("+")), row["set"]] = cell
    return found


@cache
def published() -> dict[str, dict[str, str]]:
    """The best published NLLs on the same folds: set -> method -> figure, as printed.

    >>> published()["boston"]["deep ensemble (2017)"]
    '2.41'
    """
    return {row.pop("set"): row for row in _rows("published.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    text = (resources.files(__package__) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
