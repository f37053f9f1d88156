"""A table such as people have: numbers with gaps and long tails, text, dates, identifiers; and how it was made."""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

Cells = dict[str, list[str]]
QUICK = {"draws": 3, "epochs": 8, "samples": 8, "held_out": 0.3}  # of a run whose quality does not matter


def made(rows: int, seed: int = 0, classes: bool = False) -> Cells:
    """20 columns and a target: 12 of numbers, 4 of text, a truth value, a date, and two identifiers."""
    random = np.random.default_rng(seed)
    numbers = {f"x{k}": random.normal(size=rows) for k in range(8)}
    numbers["income"] = np.exp(random.normal(10, 1.2, rows))
    numbers["age"] = random.integers(18, 90, rows).astype(float)
    numbers["visits"] = random.poisson(3, rows).astype(float)
    colour, region, grade = (random.integers(count, size=rows) for count in (4, 12, 5))
    shop = np.minimum(random.geometric(0.02, rows), 400)
    member, day = random.random(rows) < 0.3, random.integers(0, 3000, rows)
    y = (
        3 * np.sin(numbers["x0"])
        + numbers["x1"] * numbers["x2"]
        + np.log(numbers["income"])
        + 0.03 * numbers["age"]
        + np.array([0, 1, -1, 2])[colour] * (1 + 0.5 * numbers["x3"])
        + np.sin(2.0 * np.arange(12))[region]
        + 1.5 * member * np.abs(numbers["x4"])
        + 0.4 * grade
        + day / 1000
        + np.cos(shop)
        + random.normal(size=rows) * (0.6 + 0.3 * np.abs(numbers["x5"]))
    )
    table: Cells = {"id": [str(k) for k in range(rows)]}
    table |= {name: [f"{value:.6g}" for value in values] for name, values in numbers.items()}
    table["colour"] = np.array(["red", "green", "blue", "black"])[colour].tolist()
    for name, share in (("x6", 0.1), ("age", 0.05), ("income", 0.2), ("colour", 0.07)):
        for row in np.flatnonzero(random.random(rows) < share):
            table[name][row] = "" if name != "age" else "NA"
    table["region"] = [f"R{k:02d}" for k in region]
    table["shop"] = [f"shop {k}" for k in shop]
    table["member"] = np.where(member, "yes", "no").tolist()
    table["grade"] = grade.astype(str).tolist()
    table["day"] = [(date(2015, 1, 1) + timedelta(days=int(d))).isoformat() for d in day]
    table["customer"] = [f"c{number:08x}" for number in random.integers(0, 2**31, rows)]
    if classes:
        table["kind"] = np.array(["low", "mid", "high"])[np.digitize(y, [14, 17])].tolist()
    else:
        table["y"] = [f"{value:.6g}" for value in y]
    return table


def write(path: Path, table: Cells, separator: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


def without(table: Cells, *names: str) -> Cells:
    return {name: cells for name, cells in table.items() if name not in names}
