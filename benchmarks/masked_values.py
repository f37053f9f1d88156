"""Missing values on real tables: values of test rows are hidden, and the predictions compared with the truth.

    python benchmarks/masked_values.py                       all sets, every column of every test row hidden in turn
    python benchmarks/masked_values.py --hidden 3 concrete   three values in each row at once

Fits each set on 70% of (at most 2,000) rows in other orders (`--splits`), and predicts (at most 200 of) the others:
complete, with values hidden and drawn, without training rows in the run (`--no-data`), and with the training rows'
median in place of the hidden values. Every test row has as many copies as columns, with another column hidden in each.

Prints a table for docs/table_measured.md, the mean over splits of: RMSE and coverage of the 95% interval; the CRPS of
the hidden values, in standard deviations of their columns; the fall of the variance that was promised (the share of
`gaps` in all variance), and that of the predicted variance and of the squared errors when the values were given, over
all rows and for thirds of the rows by promised fall; and how much longer rows with gaps took. Squared errors of few
rows are noisy: that is why all columns are hidden in turn. The sets are read from WHEREFROM_DATA
(uci/<set>/data.csv.gz), or `--data`.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import wherefrom as wf
from wherefrom.table import Table
from wherefrom.tables.cells import Cells
from wherefrom.tables.frames import table_of
from wherefrom.tables.hiding import crps
from wherefrom.tables.model import Model

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
HEADER = (
    "set",
    "the median",
    "drawn",
    "drawn, `--no-data`",
    "given",
    "CRPS of values, drawn, `--no-data`",
    "fall promised / of variance / of squared errors",
    "thirds by promised fall",
    "times slower",
)
MOST_ROWS, MOST_TEST_ROWS = 2000, 200
Columns = dict[str, np.ndarray]


def columns(path: Path, seed: int) -> Columns:
    """Rows of a set in another order, without columns that are always the same; the target is y."""
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    values = values[np.random.default_rng(seed).permutation(len(values))[:MOST_ROWS]]
    x = {f"x{k}": column for k, column in enumerate(values[:, :-1].T) if column.std() > 0}
    return x | {"y": values[:, -1]}


def hide(x: Columns, count: int, seed: int) -> Columns:
    """Repeat all rows once for each column, and hide that column in them; with a count, others at random as well."""
    names, rows = list(x), len(next(iter(x.values())))
    random = np.random.default_rng(seed).random((len(names), rows, len(names)))
    random[np.arange(len(names)), :, np.arange(len(names))] = -1
    is_hidden = (random.argsort(axis=2).argsort(axis=2) < count).reshape(-1, len(names))
    return {
        name: np.where(hidden, np.nan, np.tile(x[name], len(names)))
        for name, hidden in zip(names, is_hidden.T, strict=True)
    }


def scores(answers: Columns, y: np.ndarray) -> tuple[float, float]:
    """RMSE, and coverage."""
    covered = (y >= answers["lower"]) & (y <= answers["upper"])
    return float(np.sqrt(np.mean((answers["mean"] - y) ** 2))), float(covered.mean())


def falls(hidden: Columns, given: Columns, y: np.ndarray) -> np.ndarray:
    """Fall that was promised, of the variance, and of the squared errors.  # (all rows and three thirds, 3)"""
    share, variance = hidden["share_gaps"], hidden["std"] ** 2
    before, after = (np.square(each["mean"] - y) for each in (hidden, given))
    parts = [np.arange(len(y)), *np.array_split(np.argsort(share, kind="stable"), 3)]
    return np.array(
        [
            (
                np.average(share[part], weights=variance[part]),
                1 - (given["std"][part] ** 2).sum() / variance[part].sum(),
                1 - after[part].sum() / before[part].sum(),
            )
            for part in parts
        ]
    )


def drawn_crps(model: Model, masked: Columns, known: Columns, deviation: np.ndarray) -> float:
    """CRPS of the draws of hidden values, in standard deviations of their columns: the mean over columns."""
    assert model.donors is not None
    cells, truth = (model.encoder.encode(table_of(each)).cells for each in (masked, known))
    assert cells is not None
    assert truth is not None
    repeats = len(cells) // len(truth)
    truth = Cells(*(np.tile(each, (repeats, 1)) for each in (truth.values, truth.low, truth.high)), truth.levels)
    draws, each = model.donors.draws(cells), []
    weights = np.full(draws.shape[1], 1 / draws.shape[1])
    for column, gaps in enumerate(cells.gaps.T):
        score = crps(draws[gaps, :, column], weights, truth.values[gaps, column]).mean()
        each.append(score / deviation[column])
    return float(np.mean(each))


def measure(path: Path, count: int, seed: int) -> dict[str, np.ndarray]:
    """Fit a set once, and return what the table says of it, as numbers."""
    table = columns(path, seed)
    cut = round(0.7 * len(table["y"]))
    train = {name: values[:cut] for name, values in table.items()}
    test = {name: values[cut : cut + MOST_TEST_ROWS] for name, values in table.items()}
    known = {name: values for name, values in test.items() if name != "y"}
    model = wf.fit(train, target="y", task="regression", seed=seed)
    masked = hide(known, count, seed)
    medians = {name: np.where(np.isnan(values), np.median(train[name]), values) for name, values in masked.items()}
    assert model.donors is not None
    bare = replace(model, donors=model.donors.made_up())
    y = np.tile(test["y"], len(known))
    many = {name: np.tile(values, len(known)) for name, values in known.items()}
    model.predict({name: values[:5] for name, values in masked.items()})  # to compile what is compiled once
    began = time.process_time()
    given = model.predict(many)
    complete = time.process_time() - began
    hidden = model.predict(masked)
    seconds = time.process_time() - began - complete
    parts = [model.predict(medians), hidden, bare.predict(masked), given]
    return {
        "scores": np.array([scores(each, y) for each in parts]),
        "crps": np.array([drawn_crps(each, masked, known, model.donors.values.std(0)) for each in (model, bare)]),
        "falls": falls(hidden, given, y),
        "slower": np.array(seconds / complete),
    }


def line(name: str, each: list[dict[str, np.ndarray]]) -> tuple[str, ...]:
    """Return the mean over splits as a line of the table."""
    mean = {key: np.mean([split[key] for split in each], axis=0) for key in each[0]}
    every, *thirds = [" / ".join(f"{fall:.2f}" for fall in part) for part in mean["falls"]]
    return (
        name,
        *(f"{rmse:.4g}, {coverage:.1%}" for rmse, coverage in mean["scores"]),
        ", ".join(f"{score:.3g}" for score in mean["crps"]),
        every,
        ", ".join(thirds),
        f"{mean['slower']:.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--hidden", type=int, default=1, help="values in each row")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--data", type=Path, default=os.environ.get("WHEREFROM_DATA", "data"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in asked.sets:
        path = Path(asked.data) / "uci" / name / "data.csv.gz"
        rows.append(line(name, [measure(path, asked.hidden, seed) for seed in range(asked.splits)]))
        print(*rows[-1], sep=" | ", flush=True)
    print(Table(HEADER, rows).markdown())


if __name__ == "__main__":
    main()
