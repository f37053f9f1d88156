"""Draw the pictures of pages from the code of those pages: docs/images/page-<name>.png.

    python tools/page_pictures.py                 all of them (about two minutes)
    python tools/page_pictures.py calibration     one of them

The examples of a page run first. A function of this file, named like the page, then draws with what they define, by the
plots of the library where it has one. So a picture shows the numbers of its page.
"""

from __future__ import annotations

import csv
import doctest
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wherefrom as wf
from wherefrom.plots import COLOURS, GREY, INK, NOISE_COLOUR, new_figure, quiet, with_grid

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_LARGEST = 60_000  # bytes of a picture


def names_of(page: Path) -> dict[str, Any]:
    """Run the examples of a page, and return what they define; those that show an error are left out."""
    names: dict[str, Any] = {"__name__": "page"}
    for example in doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8")):
        if example.exc_msg is None:
            exec(compile(example.source, page.name, "single"), names)
    return names


def notebook(names: dict[str, Any]) -> Any:
    figure = new_figure(8, 3.4, layout="constrained")
    left, right = figure.subplots(1, 2)
    names["prediction"].plot("intervals", names["y"][100:], ax=left)
    names["prediction"].plot("sources", ax=right)
    return figure


def scikit_learn(names: dict[str, Any]) -> Any:
    figure = new_figure(4.4, 3.6, layout="constrained")
    names["regressor"].predict_dist(names["X_new"]).plot("calibration", names["pressure"][200:], ax=figure.subplots())
    return figure


def calibration(names: dict[str, Any]) -> Any:
    figure = new_figure(8, 3.6, layout="constrained")
    x, y = names["x"][names["new"]], names["y"][names["new"]]
    both = {"before": names["posterior"], "after": names["better"]}
    for axes, (title, posterior) in zip(figure.subplots(1, 2, sharey=True), both.items(), strict=True):
        posterior.predict(x).plot("calibration", y, ax=axes)
        axes.set_title(title)
    return figure


def classification(names: dict[str, Any]) -> Any:
    figure = new_figure(8, 3.6, layout="constrained")
    left, right = figure.subplots(1, 2)
    x, y = names["x"], names["y"]
    for label, colour in zip(names["prediction"].classes, COLOURS, strict=False):
        left.plot(*x[y == label].T, "o", color=colour, markersize=3, label=label)
    side = np.linspace(-5, 5, 60)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    doubt = names["posterior"].predict(grid, samples=10).mutual_information.numpy().reshape(60, 60)
    left.contourf(side, side, doubt, levels=8, cmap="Greys", zorder=0)
    left.set(title="disagreement (grey), and training rows", xlabel="x₁", ylabel="x₂")
    left.legend(frameon=False, fontsize=8, loc="lower right")
    names["prediction"].plot("risk_coverage", names["truth"], ax=right)
    right.set_title("errors, if only sure rows are answered")
    return figure


def positive(names: dict[str, Any]) -> Any:
    """Draw stays: an interval is longer above than below, and never negative."""
    figure = new_figure(6, 3.4, layout="constrained")
    axes = figure.subplots()
    x, y = names["patients"](60)
    training = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.01, batch_size=50), 15, wf.Positive())
    posterior = wf.marginalise(training, names["patients"](800), over=[wf.InitialCondition(4)])
    posterior.predict(x).plot("intervals", y, ax=axes)
    return figure


def counts(names: dict[str, Any]) -> Any:
    figure = new_figure(6, 3.2, layout="constrained")
    axes = figure.subplots()
    prediction = names["posterior"].predict(np.array([[30.0, 0.0], [80.0, 1.0]]), samples=20)
    values = np.arange(21)
    for row, (label, colour) in enumerate((("30 years, healthy", COLOURS[0]), ("80 years, ill", COLOURS[1]))):
        below = np.array([float(prediction.cdf([float(value)] * 2)[row]) for value in values])
        axes.bar(values + 0.4 * row - 0.2, np.diff(below, prepend=0), width=0.4, color=colour, label=label)
    axes.set(xlabel="visits", ylabel="probability", xticks=values[::2])
    axes.legend(frameon=False)
    with_grid(axes, "y")
    return figure


def survival(names: dict[str, Any]) -> Any:
    figure = new_figure(6, 3.6, layout="constrained")
    names["prediction"].plot("curves", ax=figure.subplots())
    return figure


def ordinal(names: dict[str, Any]) -> Any:
    figure = new_figure(6, 3.2, layout="constrained")
    axes = figure.subplots()
    line = np.column_stack([np.linspace(-3, 3, 61), np.zeros(61)])
    probabilities = names["posterior"].predict(line, samples=20).probabilities.numpy()
    shades = [str(shade) for shade in np.linspace(0.9, 0.3, probabilities.shape[1])]
    axes.stackplot(line[:, 0], probabilities.T, labels=names["levels"], colors=shades, edgecolor="white")
    axes.set(xlabel="x₁ (x₂ = 0)", ylabel="probability", xlim=(-3, 3), ylim=(0, 1))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, reverse=True)
    quiet(axes)
    return figure


def quantiles(names: dict[str, Any]) -> Any:
    figure = new_figure(6, 3.2, layout="constrained")
    axes = figure.subplots()
    line = np.column_stack([np.full(61, 0.0), np.linspace(-1, 1, 61)])
    prediction = names["posterior"].predict(line)
    for level, quantile in zip(prediction.levels, prediction.quantiles.T, strict=True):
        axes.plot(line[:, 1], quantile, color=COLOURS[0], linewidth=2 if level == 0.5 else 1)
        axes.annotate(f"{level:g}", (1, float(quantile[-1])), xytext=(4, -3), textcoords="offset points", fontsize=8)
    near = np.abs(names["x"][:, 0]) < 0.2
    axes.plot(names["x"][near, 1], names["y"][near], "o", color=GREY, markersize=2)
    axes.set(xlabel="x₂ (x₁ near 0)", ylabel="y")
    quiet(axes)
    return figure


def sources(names: dict[str, Any]) -> Any:
    figure = new_figure(7, 5, layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[2, 1])
    names["sources"].plot("row", ax=above)
    names["sources"].plot("source", ax=below)
    return figure


def advice(names: dict[str, Any]) -> Any:
    figure = new_figure(6, 3.4, layout="constrained")
    names["advice"].plot(ax=figure.subplots())
    return figure


def choices(names: dict[str, Any]) -> Any:
    """Draw the factor of the learning rate by progress, for the schedules of the page."""
    schedules = wf.schedules
    shown = {
        "Step()": schedules.Step(),
        "Cosine()": schedules.Cosine(),
        "Cyclical(4)": schedules.Cyclical(4),
        "Ramp()": schedules.Ramp(),
        "Warmup()": schedules.Warmup(),
        "ConstantFrom()": schedules.ConstantFrom(),
    }
    figure = new_figure(8, 3.2, layout="constrained")
    progress = np.linspace(0, 1, 200, endpoint=False)
    for axes, (title, schedule) in zip(
        figure.subplots(2, 3, sharex=True, sharey=True).flat, shown.items(), strict=True
    ):
        axes.plot(progress, [float(schedule(each)) for each in progress], color=COLOURS[0])
        axes.set_title(title, fontsize=9)
        quiet(axes)
    figure.supxlabel("progress of training", fontsize=9)
    figure.supylabel("factor", fontsize=9)
    return figure


def one_shot(names: dict[str, Any]) -> Any:
    """Draw standard deviations by one-shot and by samples, for a network with one hidden layer and SWAG."""
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 3))
    y = 5 * x[:, 0] + x[:, 1] ** 2 + random.normal(size=150)
    training = wf.Training(wf.MLP([30]), wf.Algorithm("adam", lr=0.01, batch_size=40), epochs=60)
    posterior = wf.marginalise(training, (x, y), [wf.Iterations(wf.SWAG(rank=10))], seed=0)
    many = posterior.predict(x, samples=4000).std
    figure = new_figure(8, 3.4, layout="constrained")
    shown = {"100 samples": posterior.predict(x, samples=100).std, "one-shot": posterior.one_shot(x).std}
    for axes, (title, std) in zip(figure.subplots(1, 2, sharex=True, sharey=True), shown.items(), strict=True):
        axes.plot([0, float(many.max())], [0, float(many.max())], color=INK, linewidth=0.8)
        axes.plot(many, std, "o", markersize=3, color=COLOURS[0])
        axes.set(title=title, xlabel="standard deviation by 4,000 samples", ylabel="standard deviation")
        quiet(axes)
    return figure


def choosing(names: dict[str, Any]) -> Any:
    """Draw the coverage of 95% intervals in the UCI study, with and without noise, from its results."""
    figure = new_figure(7, 3.2, layout="constrained")
    axes = figure.subplots()
    combinations = ("M", "t", "theta0", "M+t", "M+theta0", "t+theta0", "M+t+theta0")
    for number, (file, label, colour) in enumerate(
        (("main.csv", "no noise", COLOURS[1]), ("main-fit.csv", "noise fitted", COLOURS[0]))
    ):
        covered = _coverage(ROOT / "results" / "uci" / file)
        values = [covered[name] for name in combinations]
        axes.bar(np.arange(len(values)) + 0.4 * number - 0.2, values, width=0.4, color=colour, label=label)
    axes.axhline(0.95, color=INK, linewidth=0.8)
    axes.set_xticks(
        range(len(combinations)), [name.replace("theta0", "θ₀").replace("+", " + ") for name in combinations]
    )
    axes.set(ylabel="coverage of 95% intervals", ylim=(0.4, 1))
    axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    with_grid(axes, "y")
    return figure


def table_training(names: dict[str, Any]) -> Any:
    """Draw which rows each network is trained on, and which of them predict a row of training."""
    figure = new_figure(7, 3.2, layout="constrained")
    axes = figure.subplots()
    for fold in range(10):
        for part in range(10):
            is_left_out = part == 9 - fold
            colour = COLOURS[1] if is_left_out else NOISE_COLOUR
            axes.barh(fold, 0.96, left=part, height=0.8, color=colour)
    axes.set_yticks(range(10), [f"networks {3 * fold + 1} to {3 * fold + 3}" for fold in range(10)], fontsize=8)
    axes.set_xticks(np.arange(10) + 0.48, [f"{number}" for number in range(1, 11)])
    axes.set(xlabel="fold of the rows: grey to train, orange to predict, calibrate and score")
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return figure


def _coverage(path: Path) -> dict[str, float]:
    """Return the mean over sets of the mean over folds, by combination."""
    each: dict[tuple[str, str], list[float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["metric"] == "coverage":
                each.setdefault((row["combination"], row["set"]), []).append(float(row["value"]))
    names = {name for name, _ in each}
    return {name: float(np.mean([np.mean(of) for (one, _), of in each.items() if one == name])) for name in names}


PICTURES: dict[str, Callable[[dict[str, Any]], Any]] = {
    draw.__name__: draw
    for draw in (
        advice,
        calibration,
        choices,
        choosing,
        classification,
        counts,
        notebook,
        one_shot,
        ordinal,
        positive,
        quantiles,
        scikit_learn,
        sources,
        survival,
        table_training,
    )
}


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or PICTURES:
        path = DOCS / "images" / f"page-{name}.png"
        PICTURES[name](names_of(DOCS / f"{name}.md")).savefig(path, dpi=90)
        size = path.stat().st_size
        print(f"{path.name}: {size:,} bytes")
        if size > _LARGEST:
            sys.exit(f"{path} is larger than {_LARGEST:,} bytes: draw less")


if __name__ == "__main__":
    main()
