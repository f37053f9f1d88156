"""A file of scores that a later run goes on with: what was set on top, one line for each finished set, then a table.

# setup: {...}                    settings that all its sets share; a run with others does not touch the file
# boston: {...}                   how these scores came about: command, versions, seed, engine, cost
set,fold,combination,metric,value
boston,0,M,nll,...
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wherefrom.reproduce.uci.study import Score


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
        self.scores = sorted([*(one for one in self.scores if one.set != name), *scores], key=lambda one: one.set)
        self.records[name] = record

    def by_fold(self, metric: str) -> dict[tuple[str, str], list[float]]:
        """(combination, set) -> the values of all folds, in their order."""
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for one in self.scores:
            if one.metric == metric:
                found[one.combination, one.set].append(one.value)
        return dict(found)

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
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(text.getvalue(), encoding="utf-8")
        os.replace(unfinished, path)


def read(path: Path) -> Results:
    """What an earlier run has left."""
    settings: dict[str, Any] = {}
    records: dict[str, dict[str, Any]] = {}
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        for line in lines:
            if line.startswith("#"):
                name, _, value = line.removeprefix("#").strip().partition(": ")
                known = json.loads(value)
                settings, records = (known, records) if name == "setup" else (settings, records | {name: known})
        table = csv.DictReader(line for line in lines if not line.startswith("#"))
        scores = [
            Score(row["set"], int(row["fold"]), row["combination"], row["metric"], float(row["value"])) for row in table
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file of scores ({error}): move it away, or use --fresh") from error
    if not settings or {one.set for one in scores} != set(records):
        raise ValueError(f"{path} is not a whole file of scores: move it away, or use --fresh")
    return Results(path.stem, settings, records, scores)


def go_on(path: Path, settings: dict[str, Any], fresh: bool = False) -> Results:
    """The results so far, if they were made with the same settings."""
    if fresh or not path.exists():
        return Results(path.stem, settings)
    found = read(path)
    now = json.loads(json.dumps(settings))
    other = [name for name in {*now, *found.settings} if now.get(name) != found.settings.get(name)]
    if other:
        said = ", ".join(f"{name} {found.settings.get(name)} instead of {now.get(name)}" for name in sorted(other))
        raise ValueError(f"{path} was made with other settings ({said}): use another --out, or --fresh to replace it")
    return found


def mean_and_std(values: list[float]) -> tuple[float, float]:
    """Over the folds; the deviation is of a sample, and there is none of a single fold."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
