"""Real tables whose rows are moved out, one column at a time: for tests, and for benchmarks/far_rows.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wherefrom.tables.columns import Quantity, TableEncoder, quantities
from wherefrom.tables.options import Request
from wherefrom.tables.outside import Surroundings
from wherefrom.tables.raw import Column, RawTable
from wherefrom.tables.reading import read
from wherefrom.tables.splitting import kept_together

RANGES = (0, 1, 3, 10, 100)  # beyond the range of training; 0 is its end


@dataclass(frozen=True)
class Case:
    """A table, what is predicted from it, and what is not known then."""

    target: str
    drop: tuple[str, ...] = ()
    group: str | None = None
    task: str | None = None


UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
TABLES = {
    "airquality": Case("Ozone"),
    "azpro": Case("los", task="counts"),
    "birthwt": Case("bwt", ("low",)),
    "cells": Case("class", ("case",)),
    "colon": Case("time", ("status",), "id"),
    "diamonds": Case("price"),
    "doctor_visits": Case("visits", task="counts"),
    "flights": Case("arr_delay", ("arr_time", "air_time", "dep_delay", "dep_time")),
    "gbsg": Case("rfstime", ("status", "pid")),
    "hitters": Case("Salary", ("rownames",)),
    "hmda": Case("deny"),
    "loans": Case("interest_rate", ("grade", "sub_grade")),
    "lung_cancer": Case("time", ("status",)),
    "med_exp": Case("med"),
    "mgus2": Case("futime", ("id", "ptime", "pstat", "death")),
    "pbcseq": Case("bili", ("futime", "status"), "id"),
    "penguins": Case("species"),
    "rotterdam": Case("dtime", ("pid", "rtime", "recur", "death")),
    "rwm5yr": Case("docvis", ("hospvis",), "id", "counts"),
    "sleepstudy": Case("Reaction", group="Subject"),
    "slid": Case("wages"),
    "stackoverflow": Case("Remote"),
}


def real_tables(root: Path, most: int | None = None, only: str | None = None) -> Iterator[tuple[str, Case, RawTable]]:
    """Read every table below a folder, or one; some rows at random of those that have more than `most`."""
    paths = {name: root / "uci" / name / "data.csv.gz" for name in UCI}
    paths |= {name: root / "tables" / f"{name}.csv.gz" for name in TABLES}
    for name, path in paths.items():
        if not path.exists() or only not in (None, name):
            continue
        table = read(path)
        case = TABLES.get(name) or Case(list(table.columns)[-1])
        if most is not None and len(table) > most:
            table = table.take(np.sort(np.random.default_rng(0).permutation(len(table))[:most]))
        yield name, case, table


def inputs(table: RawTable, case: Case) -> list[str]:
    return [name for name in table.columns if name not in (case.target, case.group, *case.drop)]


def left_out(table: RawTable, case: Case, folds: int = 5, seed: int = 0) -> np.ndarray:
    """Measure the distance of every row by what is learnt without its fold, groups kept whole."""
    names = inputs(table, case)
    copies = kept_together(table, names, Request(case.target, group=case.group), [])
    group = np.arange(len(table)) if copies is None else copies
    fold = (np.random.default_rng(seed).permutation(int(group.max()) + 1) % folds)[group]
    distance = np.zeros(len(table))
    for one in range(folds):
        rows, new = np.flatnonzero(fold != one), np.flatnonzero(fold == one)
        encoder = TableEncoder.of(table, names, {}, rows)
        encoded = encoder.encode(table)
        around = Surroundings.of(encoder, encoded.take(rows), None if copies is None else copies[rows])
        distance[new] = around.look(encoded.take(new))[0]
    return distance


@dataclass(frozen=True)
class Moved:
    """Rows of a table, each with one column moved out."""

    table: RawTable
    shape: tuple[int, int, int, int]  # quantities, sides, ranges, rows
    names: tuple[str, ...]


def moved(table: RawTable, encoder: TableEncoder, rows: np.ndarray, ranges: tuple[float, ...] = RANGES) -> Moved:
    """Move every column of numbers of some rows out, down and up, by so many ranges of training."""
    rules = [
        rule for rule in encoder.rules if isinstance(rule, Quantity) and rule.kind != "boolean" and rule.high > rule.low
    ]
    shape = len(rules), 2, len(ranges), len(rows)
    copies = table.take(np.tile(rows, shape[0] * shape[1] * shape[2]))
    columns = dict(copies.columns)
    for number, rule in enumerate(rules):
        column = copies.columns[rule.name]
        values = quantities(copies, column, rule.kind, getattr(rule, "date_format", "") or "iso").reshape(shape).copy()
        size = rule.high - rule.low
        for step, count in enumerate(ranges):
            values[number, 0, step], values[number, 1, step] = rule.low - count * size, rule.high + count * size
        is_date = rule.kind == "date"
        columns[rule.name] = Column(rule.name, None, values.ravel(), is_date)
    return Moved(replace(copies, columns=columns), shape, tuple(rule.name for rule in rules))
