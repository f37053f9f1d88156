"""Growth of costs: CPU time and memory against members, rows, columns, parameters, samples, draws and rows of a report.

    python benchmarks/growth.py                       points of up to 60 CPU seconds and 8 GB
    python benchmarks/growth.py --full                all points
    python benchmarks/growth.py --only samples        one of the sizes
    python benchmarks/growth.py --page                write the page of the results so far

Each point is a process of its own, on one thread. What comes before the measured part (data, a training to predict
with) is not counted. Memory is what the process holds at most beyond what it held before. A point is left out if the
smaller ones lead to expect more than the budget. Results are appended to a file of JSON lines, so an interrupted run
goes on where it stopped. `scaling.py` fits the exponents.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interpreters import ONE_THREAD, QUIETLY, ROOT, Store
from scaling import Exponent, Watched, exponent

Costs = dict[str, dict[str, float]]  # part -> cost -> value
COSTS = {"seconds": "CPU seconds", "memory": "MB of memory"}
BUDGET_SECONDS, BUDGET_MEMORY = 60.0, 8000.0  # CPU seconds and MB of a point
COLUMNS = 10


def _powers(first: int, last: int, step: float = 0.5) -> tuple[int, ...]:
    """Round powers of ten, two in each decade.

    >>> _powers(0, 2)
    (1, 3, 10, 32, 100)
    """
    return tuple(round(10 ** (first + k * step)) for k in range(round((last - first) / step) + 1))


@dataclass(frozen=True)
class Size:
    """A size that grows.

    parts: what is measured at each size, with its title.
    measure: train and predict at a size, in a process of its own.
    """

    sizes: tuple[int, ...]
    parts: Mapping[str, str]
    measure: Callable[[int], Costs]


# ---------------------------------------------------------------------- measuring


def _cost(watched: Watched, **more: float) -> dict[str, float]:
    return {"seconds": watched.seconds, "memory": max(watched.most["VmRSS"], 0.1)} | more


def _rows(count: int, columns: int = COLUMNS) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.standard_normal((count, columns), dtype=np.float32)
    return x, x[:, 0] + x[:, 1] ** 2 + random.standard_normal(count, dtype=np.float32)


def _trained(data: tuple[Any, Any], over: list[Any], epochs: int = 4, batch_size: int = 100, **network: Any) -> Any:
    import wherefrom as wf

    model = network.get("model") or wf.MLP([network.get("units", 20)], dropout=network.get("dropout", 0.0))
    training = wf.Training(
        model, wf.Algorithm("adam", lr=0.001, batch_size=batch_size), epochs, wf.Regression(noise=0.5)
    )
    return wf.marginalise(training, data, over, workers=1, progress=False)


def _warm() -> None:
    """Import and run everything once on few rows, so that no point holds the imports."""
    import wherefrom as wf

    x, y = _rows(50)
    _trained((x, y), [*wf.recipes.multi_swag(2, rank=2), wf.Dropout()], dropout=0.1).predict(x, 2).sources()


def members(size: int) -> Costs:
    import wherefrom as wf

    data = _rows(200)
    with Watched() as train:
        posterior = _trained(data, wf.recipes.deep_ensemble(size)) if size > 1 else _trained(data, [])
    with Watched() as predict:
        posterior.predict(data[0], samples=1)
    return {"train": _cost(train), "predict": _cost(predict)}


def rows(size: int) -> Costs:
    import wherefrom as wf

    data = _rows(size)
    with Watched() as train:
        posterior = _trained(data, wf.recipes.deep_ensemble(2), epochs=1)
    with Watched() as predict:
        for _ in posterior.predict_chunks(data[0], samples=1):
            pass
    return {"train": _cost(train), "predict": _cost(predict)}


def table_rows(size: int) -> Costs:
    return {"fit": _cost(_fitted(size, COLUMNS))}


def table_columns(size: int) -> Costs:
    return {"fit": _cost(_fitted(200, size))}


def _fitted(count: int, columns: int) -> Watched:
    import polars

    import wherefrom as wf

    wf.fit(_frame(polars, 60, 3), "y", epochs=2, samples=4, draws=2, workers=1)
    frame = _frame(polars, count, columns)
    with Watched() as watched:
        wf.fit(frame, "y", epochs=2, samples=4, draws=2, workers=1, most_rows=count)
    return watched


def _frame(polars: Any, count: int, columns: int) -> Any:
    x, y = _rows(count, columns)
    return polars.DataFrame({f"x{k}": x[:, k] for k in range(columns)} | {"y": y})


def parameters(size: int) -> Costs:
    from torch import nn

    width = max(1, round((math.sqrt(4**2 + 4 * size) - 4) / 2))  # 1 w + w + w^2 + w + w + 1 parameters

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    random = np.random.default_rng(0)
    x = random.standard_normal((64, 1), dtype=np.float32)
    with Watched() as train:
        posterior = _trained((x, x[:, 0]), [], epochs=4, batch_size=64, model=model)
    with Watched() as predict:
        posterior.predict(x, samples=1)
    return {"train": _cost(train), "predict": _cost(predict)}


def samples(size: int) -> Costs:
    import wherefrom as wf

    data = _rows(200)
    posterior = _trained(data, wf.recipes.swag(rank=5), epochs=20)
    with Watched() as predict:
        posterior.predict(data[0], samples=size)
    return {"predict": _cost(predict)}


def draws(size: int) -> Costs:
    import wherefrom as wf

    data = _rows(200)
    over = [*wf.recipes.deep_ensemble(size), wf.Dropout()]
    prediction = _trained(data, over, dropout=0.1).predict(data[0], samples=4)
    with Watched() as watched:
        prediction.sources()
    return {"sources": _cost(watched)}


def report(size: int) -> Costs:
    import wherefrom as wf

    posterior = _trained(_rows(200), [*wf.recipes.deep_ensemble(4), wf.Dropout()], dropout=0.1)
    with tempfile.TemporaryDirectory() as folder:
        posterior.report(Path(folder) / "first.html", _rows(60))
        data = _rows(size)
        with Watched() as watched:
            path = posterior.report(Path(folder) / "report.html", data)
        return {"report": _cost(watched, megabytes=path.stat().st_size / 1e6)}


TRAIN_AND_PREDICT = {"train": "train", "predict": "predict"}
SIZES = {
    "members": Size(_powers(0, 5), TRAIN_AND_PREDICT, members),
    "rows": Size(_powers(3, 7), TRAIN_AND_PREDICT, rows),
    "parameters": Size(_powers(2, 8), TRAIN_AND_PREDICT, parameters),
    "samples": Size(_powers(1, 5), {"predict": "predict"}, samples),
    "draws": Size(_powers(1, 4), {"sources": "sources()"}, draws),
    "rows of a table": Size(_powers(3, 7), {"fit": "wf.fit"}, table_rows),
    "columns of a table": Size(_powers(1, 4), {"fit": "wf.fit"}, table_columns),
    "rows of a report": Size(_powers(2, 6), {"report": "report"}, report),
}


# ---------------------------------------------------------------------- running


def run(name: str, store: Store, is_full: bool) -> None:
    """Measure all points of a size that have no result yet, from the smallest on, while they keep to the budget."""
    for size in SIZES[name].sizes:
        done = [each for each in store.read() if each["name"] == name]
        if any(each["size"] == size for each in done):
            continue
        reason = None if is_full else over_budget(done, size)
        if reason is None:
            command = [sys.executable, __file__, "--point", name, str(size)]
            ran = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, env=os.environ | ONE_THREAD | QUIETLY, check=False
            )
            last = ran.stdout.splitlines()[-1:]
            if ran.returncode or not last:
                reason = f"its process ended with {ran.returncode}"
            else:
                store.append({"name": name, "size": size, "parts": json.loads(last[0])})
                print(f"{name} {size:,}: {last[0]}", flush=True)
        if reason is not None:
            print(f"{name} {size:,}: left out, {reason}", flush=True)
            store.append({"name": name, "size": size, "left_out": reason})


def over_budget(done: Sequence[Mapping[str, Any]], size: int) -> str | None:
    """Say why a point is left out: by the slope of the last two points, it costs more than the budget.

    The slope is taken to be between 1 and 2, since small costs are noise.
    """
    measured = sorted((each for each in done if "parts" in each), key=lambda each: each["size"])
    if not measured:
        return None
    last = measured[-1]
    for cost, budget, unit in (("seconds", BUDGET_SECONDS, "CPU seconds"), ("memory", BUDGET_MEMORY, "MB")):
        for part, values in last["parts"].items():
            slope = 1.0
            if len(measured) > 1:
                before = measured[-2]
                slope = math.log(values[cost] / before["parts"][part][cost]) / math.log(last["size"] / before["size"])
            expected = values[cost] * (size / last["size"]) ** min(max(slope, 1.0), 2.0)
            if expected > budget:
                return f"{part} would take about {expected:,.0f} {unit}"
    return None


def point(name: str, size: int) -> None:
    """Measure a point, and print it as the last line."""
    import torch

    torch.set_num_threads(1)
    if name not in ("rows of a table", "columns of a table"):
        _warm()
    print(json.dumps({part: _rounded(costs) for part, costs in SIZES[name].measure(size).items()}))


def _rounded(costs: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in costs.items()}


# ---------------------------------------------------------------------- the page

# What is above linear for a reason, by size, part and cost.
EXPLAINED = {
    ("draws", "sources", "memory"): "It holds about two copies of the answers in double precision at 1,000 draws, and "
    "2.6 at 10,000 (64 MB each): what few draws need fits into memory that the prediction has freed.",
}


@dataclass(frozen=True)
class Curve:
    """A cost by size, and its exponent where it could be fitted."""

    name: str
    part: str
    cost: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def fitted(self) -> Exponent | None:
        return exponent(self.sizes, self.values)

    @property
    def title(self) -> str:
        return f"{SIZES[self.name].parts[self.part]}, {self.name}"


def curves(results: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """All costs of all parts, in the order of the sizes."""
    every = []
    for name, about in SIZES.items():
        points = {each["size"]: each["parts"] for each in results if each["name"] == name and "parts" in each}
        sizes = tuple(sorted(points))
        for part in about.parts if sizes else ():
            for cost in points[sizes[0]][part]:
                values = tuple(points[size][part][cost] for size in sizes)
                every.append(Curve(name, part, cost, sizes, values))
    return every


def written(results: Sequence[Mapping[str, Any]], picture: str) -> str:
    """The page."""
    from setting import setting
    from tabular.page import markdown_table

    every = curves(results)
    timed = [each for each in every if each.cost != "megabytes"]
    above = [each for each in timed if each.fitted is not None and each.fitted.is_above_linear]
    rows = []
    for each in every:
        cost = COSTS.get(each.cost, "MB of the file")
        ends = f"{_size(each.sizes[0])} to {_size(each.sizes[-1])}"
        fitted = each.fitted
        over = "" if fitted is None else f"{_size(fitted.sizes[0])} to {_size(fitted.sizes[-1])}"
        rows.append((each.title, cost, ends, f"{each.values[0]:,.4g}", f"{each.values[-1]:,.4g}", _shown(each), over))
    columns = ("", "cost", "sizes", "smallest", "largest", "exponent", "fitted over")
    words = [
        "# How costs grow",
        "Written by `python benchmarks/growth.py`, which says how it is measured.",
        _sentence(timed, above),
        setting("torch", "numba", rounds=1).rpartition("\n")[0],
        f"![CPU time and memory by size]({picture})",
        "An exponent of 1 is linear. It is fitted to the larger half of the sizes, as far as a cost is at least twice "
        "that of the smallest size, and not fitted to fewer than three points. ± is the standard error of the slope. "
        "Memory is what a part adds to that of the process, in which earlier parts may have left room: 0.1 is none.",
        markdown_table(columns, rows),
    ]
    if above:
        lines = [f"- {each.title}, {COSTS[each.cost]}: {each.fitted}. {_reason(each)}" for each in above]
        words += ["## Above linear", "\n".join(lines)]
    if left_out := [each for each in results if "left_out" in each]:
        budget = f"The budget of a point is {BUDGET_SECONDS:.0f} CPU seconds and {BUDGET_MEMORY / 1000:.0f} GB; "
        lines = [f"- {each['name']}, {each['size']:,}: {each['left_out']}" for each in left_out]
        words += ["## Left out", f"{budget}`--full` goes on.", "\n".join(lines)]
    return "\n\n".join(words) + "\n"


def _sentence(timed: Sequence[Curve], above: Sequence[Curve]) -> str:
    fitted = [each for each in timed if each.fitted is not None]
    counts = f"{len(fitted) - len(above)} of {len(fitted)} costs that grow are linear or below"
    return f"**{counts}; {len(above)} grow clearly faster than that.**"


def _shown(curve: Curve) -> str:
    return "not fitted" if curve.fitted is None else str(curve.fitted)


def _reason(curve: Curve) -> str:
    return EXPLAINED.get((curve.name, curve.part, curve.cost), "Not explained yet.")


def _size(value: float) -> str:
    return f"{value:,.0f}"


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw small multiples: time above, memory below, a line of slope 1 in each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter

    shown = [each for each in curves(results) if each.cost in COSTS]
    panels = list(dict.fromkeys((each.name, each.part) for each in shown))
    across = 4
    down = 2 * -(-len(panels) // across)
    figure, axes = pyplot.subplots(down, across, figsize=(3.1 * across, 2.3 * down), squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    colours = {"seconds": "#2b6cb0", "memory": "#b7561b"}
    for each in shown:
        k = panels.index((each.name, each.part))
        axis = axes[2 * (k // across) + (each.cost == "memory"), k % across]
        axis.set_visible(True)
        axis.loglog(each.sizes, each.values, "o-", color=colours[each.cost], markersize=3.5, linewidth=1.4)
        last = each.values[-1]
        line = [last * size / each.sizes[-1] for size in each.sizes]
        axis.loglog(each.sizes, line, ":", color="grey", linewidth=1)
        low = min(each.values)
        axis.set_ylim(low / 2, 2 * max(each.values))
        exponents = "" if each.fitted is None else f", exponent {each.fitted}"
        axis.set_title(f"{each.title}\n{COSTS[each.cost]}{exponents}", fontsize=8)
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.tick_params(labelsize=7)
        axis.grid(True, which="major", color="#e5e5e5", linewidth=0.6)
        axis.set_axisbelow(True)
    figure.suptitle("Costs by size, on logarithmic axes; the dotted line is linear growth", fontsize=10)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=85)
    pyplot.close(figure)


# ---------------------------------------------------------------------- the program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="measure points beyond the budget, too")
    parser.add_argument("--only", choices=list(SIZES), action="append", help="of these sizes; may be repeated")
    parser.add_argument("--again", choices=list(SIZES), action="append", default=[], help="forget their results first")
    parser.add_argument("--page", action="store_true", help="write the page of the results so far, and end")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "growth.md")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "images" / "growth.png")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)  # name, size: in a process of its own
    asked = parser.parse_args()
    if asked.point:
        point(asked.point[0], int(asked.point[1]))
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    store = Store(asked.out.with_suffix(".jsonl"))
    if asked.full:
        store.forget(lambda each: "left_out" in each)
    store.forget(lambda each: each["name"] in asked.again)
    if not asked.page:
        for name in asked.only or SIZES:
            run(name, store, asked.full)
    results = store.read()
    draw(results, asked.picture)
    relative = os.path.relpath(asked.picture, asked.out.parent)
    asked.out.write_text(written(results, Path(relative).as_posix()), encoding="utf-8")
    print(f"written: {asked.out}, {asked.picture}")


if __name__ == "__main__":
    main()
