"""A file of scores that a later run goes on with: what was set on top, one line for each finished set, then a table.

# setup: {...}                    settings that all its sets share; a run with others does not touch the file
# boston: {...}                   how these scores came about: command, versions, engine, cost
set,fold,combination,metric,value
boston,0,M,nll,...
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wherefrom.files import atomic
from wherefrom.reproduce.long_runs import other_settings
from wherefrom.reproduce.uci.study import Score

RECORD = (  # of a finished set
    "command",
    "versions",
    "engine",
    "folds",
    "training_cpu_seconds",
    "cpu_seconds",
    "wall_seconds",
    "peak_memory_mb",
)


@dataclass
class Results:
    """All scores of one set-up, set by set."""

    name: str
    settings: dict[str, Any]
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)

    @property
    def sets(self) -> list[str]:
        return sorted(self.records)

    def add(self, name: str, scores: list[Score], record: dict[str, Any]) -> None:
        self.remove(name)
        self.scores = sorted([*self.scores, *scores], key=lambda one: one.set)
        self.records[name] = record

    def remove(self, name: str) -> None:
        self.scores = [one for one in self.scores if one.set != name]
        self.records.pop(name, None)

    def by_fold(self, metric: str) -> dict[tuple[str, str], list[float]]:
        """(combination, set) -> the values of all folds, in their order."""
        values: dict[tuple[str, str], list[float]] = defaultdict(list)
        for one in self.scores:
            if one.metric == metric:
                values[one.combination, one.set].append(one.value)
        return dict(values)

    def is_whole(self) -> bool:
        """True if every set that has scores has its record and all its folds."""
        if {one.set for one in self.scores} != set(self.records):
            return False
        if any(set(RECORD) - set(record) for record in self.records.values()):
            return False
        return all(
            len(values) == self.records[name]["folds"]
            for metric in ("nll", "rmse", "crps", "coverage")
            for (_, name), values in self.by_fold(metric).items()
        )

    def metrics(self) -> list[str]:
        return list(dict.fromkeys(one.metric for one in self.scores))

    def write(self, path: Path) -> None:
        """All or nothing: an interrupted run leaves the file as it was."""
        text = io.StringIO()
        text.write(f"# setup: {json.dumps(self.settings)}\n")
        text.writelines(f"# {name}: {json.dumps(self.records[name])}\n" for name in self.sets)
        table = csv.writer(text, lineterminator="\n")
        table.writerow(Score._fields)
        table.writerows((*one[:-1], f"{one.value:.8g}") for one in self.scores)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, text.getvalue())


def read(path: Path) -> Results:
    """Read what an earlier run has left."""
    settings: dict[str, Any] = {}
    records: dict[str, dict[str, Any]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line.startswith("#"):
                name, _, value = line.removeprefix("#").strip().partition(": ")
                if name == "setup":
                    settings = json.loads(value)
                else:
                    records[name] = json.loads(value)
        table = csv.DictReader(line for line in lines if not line.startswith("#"))
        scores = [
            Score(row["set"], int(row["fold"]), row["combination"], row["metric"], float(row["value"])) for row in table
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file of scores ({error}): move it away, or use --fresh") from error
    results = Results(path.stem, settings, records, scores)
    if not settings or not results.is_whole():
        raise ValueError(f"{path} is not a whole file of scores: move it away, or use --fresh")
    return results


def go_on(path: Path, settings: dict[str, Any], again: Sequence[str] = (), engine: str | None = None) -> Results:
    """The results so far, if they were made with the same settings, without the sets that are to be done again.

    With other settings, and sets to be done again, the old file is moved aside.
    """
    if not path.exists():
        return Results(path.stem, settings)
    try:
        results = read(path)
    except ValueError:
        if not again:
            raise
        results = Results(path.stem, {})
    other = other_settings(results.settings, settings)
    if other and not again:
        raise ValueError(f"{path} was made with other settings ({other}): use another --out, or --fresh to replace it")
    if other:
        path.replace(path.with_suffix(".csv.old"))
        return Results(path.stem, settings)
    for name in again:
        results.remove(name)
    foreign = sorted(name for name, record in results.records.items() if engine and record["engine"] != engine)
    if foreign:
        raise ValueError(
            f"{path} has {', '.join(foreign)} by the {results.records[foreign[0]]['engine']} engine, not by {engine}: "
            "use another --out, or --fresh with all of them"
        )
    return results


def mean_and_std(values: list[float]) -> tuple[float, float]:
    """Mean and sample deviation over the folds; there is no deviation of a single fold."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1)
