"""Missing values on real tables: values of test rows are hidden, and the predictions compared with the truth.

    python benchmarks/masked_values.py                       all sets, one hidden value in each test row
    python benchmarks/masked_values.py --hidden 3 concrete   three values in each

Fits each set once on 70% of (at most 4,000) rows, and predicts the others: complete, with hidden values drawn, and with
the training rows' median in their place. Prints RMSE and coverage of the 95% interval, and for thirds of the rows by
promised fall of the variance how far the squared errors fell when the values were given; then what rows with gaps cost.
The sets are read from WHEREFROM_DATA (uci/<set>/data.csv.gz), or from `--data`.
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

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
MOST_ROWS = 4000


def columns(path: Path, seed: int) -> dict[str, np.ndarray]:
    """Rows of a set in another order, without columns that are always the same; the target is y."""
    values = np.loadtxt(path, delimiter=",", skiprows=1)
    values = values[np.random.default_rng(seed).permutation(len(values))[:MOST_ROWS]]
    x = {f"x{k}": column for k, column in enumerate(values[:, :-1].T) if column.std() > 0}
    return x | {"y": values[:, -1]}


def hide(x: dict[str, np.ndarray], count: int, seed: int) -> dict[str, np.ndarray]:
    """Hide so many values of each row, at random."""
    names, rows = list(x), len(next(iter(x.values())))
    order = np.random.default_rng(seed).random((rows, len(names))).argsort(axis=1)
    return {name: np.where((order[:, :count] == k).any(axis=1), np.nan, x[name]) for k, name in enumerate(names)}


def scores(answers: dict[str, np.ndarray], y: np.ndarray) -> tuple[float, str]:
    covered = (y >= answers["lower"]) & (y <= answers["upper"])
    return float(np.sqrt(np.mean((answers["mean"] - y) ** 2))), f"{covered.mean():.1%}"


def thirds(hidden: dict[str, np.ndarray], given: dict[str, np.ndarray], y: np.ndarray) -> str:
    """Promised and actual fall of the variance, for thirds of the rows by the former."""
    variance = hidden["std"] ** 2
    before, after = (np.square(each["mean"] - y) for each in (hidden, given))
    parts = np.array_split(np.argsort(hidden["share_gaps"]), 3)
    return ", ".join(
        f"{np.average(hidden['share_gaps'][part], weights=variance[part]):.2f} / "
        f"{1 - after[part].sum() / before[part].sum():.2f}"
        for part in parts
    )


def compare(path: Path, count: int, seed: int) -> tuple[object, ...]:
    table = columns(path, seed)
    cut = round(0.7 * len(table["y"]))
    train = {name: values[:cut] for name, values in table.items()}
    y, known = table["y"][cut:], {name: values[cut:] for name, values in table.items() if name != "y"}
    model = wf.fit(train, target="y", task="regression", seed=seed)
    masked = hide(known, count, seed)
    medians = {name: np.where(np.isnan(values), np.median(train[name]), values) for name, values in masked.items()}
    began = time.process_time()
    given = model.predict(known)
    complete = time.process_time() - began
    hidden = model.predict(masked)
    seconds = time.process_time() - began - complete
    bare = replace(model, donors=None if model.donors is None else model.donors.made_up()).predict(masked)
    parts = [model.predict(medians), hidden, bare, given]
    numbers = [f"{rmse:.4g}, {coverage}" for rmse, coverage in (scores(each, y) for each in parts)]

    return (path.parent.name, *numbers, thirds(hidden, given, y), f"{decay:g}", f"{seconds / complete:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--hidden", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=os.environ.get("WHEREFROM_DATA", "data"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in asked.sets:
        rows.append(compare(Path(asked.data) / "uci" / name / "data.csv.gz", asked.hidden, asked.seed))
        print(*rows[-1], sep=" | ", flush=True)
    header = ("set", "median", "drawn", "drawn, --no-data", "given", "fall promised / actual", "decay", "times slower")
    print(Table(header, rows).markdown())


if __name__ == "__main__":
    main()
