"""`wherefrom demo`: one training on a small medical data set, and everything that it can say.

442 people with diabetes, ten measurements, and how far the disease went within a year (scikit-learn's copy).
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text
from torch import nn

import wherefrom as wf
from wherefrom import plots
from wherefrom.files import atomic
from wherefrom.predictive.sources import Sources
from wherefrom.report.words import meaning

TARGET = "disease progression"
UNIT = "points"
FILLS = "█▓▒░·"  # so that the bar can be read without colours


def bar_cells(shares: dict[str, float], width: int = 60) -> dict[str, int]:
    """Cells of a bar: in proportion, but at least one for what can be seen at all (from 0.5% on)."""
    cells = {name: max(round(share * width), int(share >= 0.005)) for name, share in shares.items()}
    largest = max(shares, key=lambda name: shares[name])
    return cells | {largest: cells[largest] + width - sum(cells.values())}


def make_network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Dropout(0.1), nn.Linear(50, 1))


def run(out: Path, seed: int = 0, progress: bool | None = None, epochs: int = 100) -> None:
    """Train, score every subset of the variables, and say where the doubt comes from."""
    console = Console(highlight=False)
    try:
        from sklearn.datasets import load_diabetes
    except ImportError:
        raise ImportError("the demo needs scikit-learn for its data: pip install 'wherefrom[demo]'") from None
    out.mkdir(parents=True, exist_ok=True)
    data = load_diabetes(scaled=False)
    names, x, y = data.feature_names, data.data, data.target
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:342], order[342:]

    console.print(
        f"\n[bold]Diabetes[/bold]: {len(y)} people, {len(names)} measurements ({', '.join(names)}); "
        f"to predict is how far the disease went within a year ({y.min():.0f} to {y.max():.0f}). "
        f"{len(train)} people to train on, {len(test)} held out.\n"
    )
    training = wf.Training(
        model=make_network,
        algorithm=wf.Algorithm("adam", lr=0.005, batch_size=50),
        epochs=epochs,
        likelihood=wf.Regression(noise="fit"),
    )
    began = time.perf_counter()
    posterior = wf.marginalise(
        training, (x[train], y[train]), over=[*wf.recipes.multi_swag(5), wf.Dropout()], seed=seed, progress=progress
    )
    console.print(
        f"Trained {len(posterior)} networks once, in {time.perf_counter() - began:.1f} s, by the "
        f"{' and '.join(posterior.engines)} engine. Three choices were left "
        "open: theta0 (the initial weights, with the batch order), t (when training stops, by SWAG) and F (which units "
        "dropout keeps). That one training answers for every subset of them:\n"
    )
    _print_subsets(console, posterior, x[test], y[test])

    prediction = posterior.predict(x[test])
    sources = prediction.sources()
    _print_sources(console, sources)
    _print_rows_in_doubt(console, prediction, sources, y[test], test)

    path = out / "diabetes.png"
    try:
        _save_overview(prediction, y[test], path)
        console.print(f"The picture is in [bold]{path}[/bold].")
    except ImportError as error:
        console.print(f"No picture: {error}", markup=False)
    page = posterior.report(
        out / "report.html",
        (x[test], y[test]),
        title="Diabetes: how far the disease goes within a year",
        target=TARGET,
        columns=list(names),
        rows=[f"person {row}" for row in test],
        unit=UNIT,
        notes=[f"{len(y)} people; scikit-learn's copy. {len(test)} of them were held out for this page."],
    )
    console.print(f"The report, for any browser, is in [bold]{page}[/bold].")
    tables = [out / "train.csv", out / "new.csv"]
    for path, people in zip(tables, (train, test), strict=True):
        values = np.column_stack([x, y])[people]
        cells = ([f"P{person:03d}", *map("{:g}".format, row)] for person, row in zip(people, values, strict=True))
        atomic.write_csv(path, ["person", *names, "progression"], cells)
    console.print(
        f"\nThe same from a table, as you would do with your own:\n\n"
        f"  wherefrom fit {tables[0]} --target progression --out {out / 'run'}\n"
        f"  wherefrom predict {out / 'run'} {tables[1]} --out {out / 'predictions.csv'}\n",
        soft_wrap=True,
    )


def _print_subsets(console: Console, posterior: wf.Posterior, x: np.ndarray, y: np.ndarray) -> None:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("marginalised")
    for column in ("networks", "RMSE", "NLL", "CRPS", "95% interval covers"):
        table.add_column(column, justify="right")
    names = ("theta0", "t", "F")
    for subset in itertools.chain.from_iterable(itertools.combinations(names, k) for k in range(len(names) + 1)):
        part = posterior.marginalising(*subset)
        prediction = part.predict(x)
        table.add_row(
            ", ".join(subset) or "nothing (one network)",
            str(len(part)),
            f"{prediction.rmse(y):.2f}",
            f"{prediction.nll(y):.3f}",
            f"{prediction.crps(y):.2f}",
            f"{prediction.coverage(y, 0.95):.0%}",
        )
    console.print(table)
    console.print(
        "RMSE is the error of the mean, NLL and CRPS are those of the whole distribution: lower is better. "
        "The interval should cover 95%; each row has its noise fitted anew.\n",
        style="dim",
    )


def _print_sources(console: Console, sources: Sources) -> None:
    console.print("[bold]Where the doubt comes from[/bold], over all held-out people:\n")
    overall = sources.overall
    colours, fills = plots.colour_of(sources.names), dict(zip(overall, itertools.cycle(FILLS), strict=False))
    bar = Text("  ")
    for name, cells in bar_cells({name: part.share for name, part in overall.items()}).items():
        bar.append(fills[name] * cells, style=colours[name])
    console.print(bar)
    table = RichTable(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "left", "right", "right", "left"):
        table.add_column(justify=justify)
    for name, part in overall.items():
        mark = Text(f"  {fills[name]}", style=colours[name])
        table.add_row(mark, name, f"{part.share:.1%}", f"± {part.share_error:.1%}", meaning(name))
    console.print(table)
    biggest = max((n for n in overall if n != "noise"), key=lambda n: overall[n].share)
    noise = overall["noise"].share
    advice = (
        f"Most of it is {TARGET} that these columns do not explain: which choices were made in training hardly matters "
        "here, more networks will not make it smaller, and further columns might."
        if noise > 0.5
        else f"Most of what training could remove comes from {meaning(biggest)}."
    )
    console.print(f"\n{advice}\n")


def _print_rows_in_doubt(
    console: Console, prediction: wf.Prediction, sources: Sources, y: np.ndarray, people: np.ndarray
) -> None:
    console.print("[bold]The five people most in doubt[/bold], and why:\n")
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in ("person", "prediction", "± std", "truth"):
        table.add_column(column, justify="right")
    for name in sources:
        table.add_column(name, justify="right")
    for row in prediction.std.argsort(descending=True)[:5].tolist():
        table.add_row(
            str(people[row]),
            f"{float(prediction.mean[row]):.0f}",
            f"{float(prediction.std[row]):.0f}",
            f"{y[row]:.0f}",
            *(f"{float(sources[name][row]):.0%}" for name in sources),
        )
    console.print(table)
    console.print("Columns on the right: each source's share of that person's variance.\n", style="dim")


def _save_overview(prediction: wf.Prediction, y: np.ndarray, path: Path) -> None:
    """Draw intervals against the truth, and every row's variance by source, into a file."""
    figure = plots.new_figure(11.0, 4.6, layout="constrained")
    figure.suptitle("Diabetes: 100 people held out", x=0.01, ha="left", fontsize=12, fontweight="bold")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    plots.intervals_against_truth(y, prediction.mean, *prediction.interval(0.95), TARGET, ax=left)
    plots.stacked(prediction.sources().variance, f"predictive variance by source, ({TARGET})²", ax=right)
    figure.savefig(path, dpi=150)
