"""Draw the pictures of pages from the code of those pages: docs/images/page-<name>.png.

    python tools/page_pictures.py                 all of them (about two minutes)
    python tools/page_pictures.py calibration     one of them

The examples of a page run first. A function of this file, named like the page, then draws with what they define, by the
plots of the library where it has one. So a picture shows the numbers of its page.
"""

from __future__ import annotations

import csv
import doctest
import re
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
            exec(compile(example.source, page.name, "single", dont_inherit=True), names)
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
    axes.legend(frameon=False, fontsize=9, loc="upper right")  # long intervals are on the left
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


def own_loop(names: dict[str, Any]) -> Any:
    figure = new_figure(6, 1.9, layout="constrained")
    axes = figure.subplots()
    names["sources"].plot("source", ax=axes)
    return figure


def own_likelihood(names: dict[str, Any]) -> Any:
    """Draw the predicted densities at a quiet and at a noisy row: Laplace noise, and the Gaussian that fits worse."""
    figure = new_figure(7, 3, layout="constrained")
    rows = np.array([[0.0, -0.5], [0.0, 0.5]])
    values = np.linspace(-4, 4, 241)
    shown = {"Laplace": names["posterior"], "Gaussian, predicted noise": names["other"]}
    for number, axes in enumerate(figure.subplots(1, 2)):
        for (label, posterior), colour in zip(shown.items(), COLOURS, strict=False):
            prediction = posterior.predict(rows[[number] * len(values)], samples=10)
            below = np.asarray(prediction.cdf(values), dtype=np.float64)
            axes.plot((values[1:] + values[:-1]) / 2, np.diff(below) / np.diff(values), color=colour, label=label)
        axes.set(xlabel="y", ylabel="density", xlim=(-1.5, 1.5) if number == 0 else (-4, 4), ylim=(0, None))
        axes.set_title("x₁ = 0, x₂ = −0.5: little noise" if number == 0 else "x₁ = 0, x₂ = 0.5: much noise", fontsize=9)
        quiet(axes)
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, frameon=False, fontsize=9, ncols=2, loc="outside upper center")
    return figure


def several(names: dict[str, Any]) -> Any:
    """Draw what one network predicts for each target, along the column that matters to it."""
    figure = new_figure(8, 2.8, layout="constrained")
    side = np.linspace(-2, 2, 41)
    drawn = zip(
        figure.subplots(1, 3), (("stay", 1, "days"), ("died", 0, "probability"), ("visits", 2, "visits")), strict=True
    )
    for axes, (name, column, label) in drawn:
        line = np.zeros((len(side), 3))
        line[:, column] = side
        prediction = names["posterior"].predict(line)[name]
        if name == "died":
            axes.plot(side, prediction.probabilities[:, 1], color=COLOURS[0])
            axes.set(ylim=(0, 1))
        else:
            low, high = prediction.interval(0.9)
            axes.fill_between(side, low, high, color=COLOURS[4], alpha=0.5, linewidth=0, label="90% interval")
            axes.plot(side, prediction.mean, color=COLOURS[0], label="mean")
            axes.legend(frameon=False, fontsize=8, loc="upper left")
        axes.set_title("died: yes" if name == "died" else name, fontsize=9)
        axes.set(xlabel=f"x{'₁₂₃'[column]}, the others 0", ylabel=label)
        quiet(axes)
    return figure


def convnets(names: dict[str, Any]) -> Any:
    """Draw the memory of a training by where SWAG's deviations are, from the table of the page."""
    figure = new_figure(6, 2, layout="constrained")
    axes = figure.subplots()
    rows = _table("convnets.md", "| deviations | memory of training")
    labels = [row[0].partition(" (")[0].replace("`", "") for row in rows]
    memory = np.array(
        [[float(cell.replace(",", "")) for cell in row[1].split(" MB")[0].split(" and ")] for row in rows]
    )
    for number, (size, colour) in enumerate(((30, COLOURS[0]), (10, COLOURS[4]))):
        axes.barh(np.arange(3) + 0.4 * number - 0.2, memory[:, 1 - number], 0.4, color=colour, label=f"{size} million")
    axes.set_yticks(range(3), labels)
    axes.invert_yaxis()
    axes.set(xlabel="memory of training a member, MB")
    axes.legend(frameon=False, fontsize=9, title="parameters", title_fontsize=9, loc="lower right")
    with_grid(axes, "x")
    return figure


def table_measured(names: dict[str, Any]) -> Any:
    """Draw the error with a hidden value, as a multiple of that with the value, and the coverage."""
    figure = new_figure(8, 3.2, layout="constrained")
    rows = _table("table_measured.md", "| set | the median | drawn |")
    cells = {kind: [row[number].split(", ") for row in rows] for number, kind in enumerate(("set", "median", "drawn"))}
    given = [row[4].split(", ") for row in rows]
    sets = [row[0] for row in rows]
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (kind, label, colour) in enumerate(
        (("median", "the median instead", COLOURS[1]), ("drawn", "values drawn from similar rows", COLOURS[0]))
    ):
        position = np.arange(len(sets)) + 0.4 * number - 0.2
        ratio = [float(cell[0]) / float(known[0]) for cell, known in zip(cells[kind], given, strict=True)]
        left.barh(position, ratio, 0.4, color=colour)
        right.barh(position, [float(cell[1].rstrip("%")) for cell in cells[kind]], 0.4, color=colour, label=label)
    left.set_yticks(range(len(sets)), sets)
    left.invert_yaxis()
    left.set(xscale="log", xlabel="RMSE, divided by that of complete rows", xlim=(0.9, 1000))
    left.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    right.axvline(95, color=INK, linewidth=0.8)
    right.set(xlabel="coverage of the 95% interval, %", xlim=(50, 100))
    figure.legend(*right.get_legend_handles_labels(), frameon=False, ncols=2, loc="outside upper center", fontsize=9)
    for axes in (left, right):
        with_grid(axes, "x")
    return figure


def one_shot_measured(names: dict[str, Any]) -> Any:
    """Draw error against time of each way to predict, for SWAG in two networks."""
    figure = new_figure(8, 3.2, layout="constrained")
    rows = _table("one_shot_measured.md", "| network | prediction |")
    shown = (
        ("8-50-1, t", "one hidden layer of 50 units, SWAG", "left"),
        ("8-100-100-100-1, t", "three hidden layers of 100 units, SWAG", "right"),
    )
    for axes, (network, title, side) in zip(figure.subplots(1, 2, sharey=True), shown, strict=True):
        for row in (row for row in rows if row[0] == network):
            is_sampled = row[1].startswith("Monte Carlo")
            point = float(row[2]), float(row[5].rstrip("%"))
            axes.plot(*point, "o", color=GREY if is_sampled else COLOURS[0])
            words = row[1].replace("Monte Carlo, K = ", "samples: ").removeprefix("one-shot, ")
            away = (7 if side == "left" else -7, -3)  # samples lie beside one-shot points: their words go elsewhere
            where = {"xytext": away, "ha": side} if is_sampled else {"xytext": (5, -11 if words == "diagonal" else 4)}
            axes.annotate(words, point, textcoords="offset points", fontsize=8, **where)
        axes.set(xscale="log", yscale="log", xlabel="CPU milliseconds for 1,000 rows", ylim=(0.4, 150))
        axes.set_title(title, fontsize=9)
        axes.margins(x=0.25)
        axes.set_yticks([1, 10, 100], ["1%", "10%", "100%"])
        quiet(axes)
    figure.axes[0].set_ylabel("error of the standard deviation")
    return figure


def training(names: dict[str, Any]) -> Any:
    """Draw how many times as fast as a plain loop each engine is, from the page of benchmarks."""
    figure = new_figure(7, 3.4, layout="constrained")
    axes = figure.subplots()
    rows = _table("benchmarks.md", "| plain loop = 1 |")
    shown = {"torch engine": (1, COLOURS[4]), "native engine": (2, COLOURS[0]), "JAX as usually written": (4, GREY)}
    for number, (label, (column, colour)) in enumerate(shown.items()):
        values = [float(row[column].partition(" / ")[0].replace(",", "")) for row in rows]
        axes.barh(np.arange(len(rows)) + 0.27 * (number - 1), values, 0.27, color=colour, label=label)
    axes.set_yticks(range(len(rows)), [", ".join(row[0].partition(": ")[2].split(", ")[:3]) for row in rows])
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="times as fast as a plain PyTorch loop, in CPU time", xlim=(1, 2000))
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    with_grid(axes, "x")
    return figure


def cluster(names: dict[str, Any]) -> Any:
    """Draw how much faster two processes are than two threads, from the table of the page."""
    figure = new_figure(7, 2.2, layout="constrained")
    axes = figure.subplots()
    rows = _table("cluster.md", "| trainings of 4 members |")
    ratio, low, high = (np.array([float(row[number]) for row in rows]) for number in (3, 4, 5))
    axes.barh(range(len(rows)), ratio, xerr=[ratio - low, high - ratio], color=COLOURS[0], ecolor=INK, height=0.6)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="two processes: times as fast as two threads", xlim=(0, 2))
    with_grid(axes, "x")
    return figure


def reliability(names: dict[str, Any]) -> Any:
    """Draw the largest memory of predicting and of fitting by rows, from the tables of the page."""
    figure = new_figure(6, 3, layout="constrained")
    axes = figure.subplots()
    shown = {
        "wherefrom predict": [
            row for row in _table("reliability.md", "| `wherefrom predict`") if row[0].endswith("rows, CSV")
        ],
        "wherefrom fit": _table("reliability.md", "| `wherefrom fit`, three epochs")[:2],
    }
    shown["wherefrom predict"].append(
        next(row for row in _table("reliability.md", "| `wherefrom predict`") if row[0].startswith("10,000,000"))
    )
    shown["wherefrom fit, rows on disk"] = _table("reliability.md", "| `wherefrom fit`, three epochs")[3:]
    for (label, rows), colour in zip(shown.items(), (COLOURS[0], COLOURS[5], COLOURS[1]), strict=True):
        count = [int(row[0].partition(" rows")[0].replace(",", "")) for row in rows]
        axes.plot(count, [float(row[1].partition(" GB")[0]) for row in rows], "o-", color=colour, label=label)
    axes.set(xscale="log", xlabel="rows of the table", ylabel="largest memory, GB", ylim=(0, None))
    axes.set_xticks([1e5, 1e6, 1e7], ["100,000", "1,000,000", "10,000,000"])
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, frameon=False, fontsize=9, ncols=3, loc="outside upper center")
    with_grid(axes, "y")
    return figure


def extending(names: dict[str, Any]) -> Any:
    """Draw the way from choices to sources, and what can be added to each step."""
    figure = new_figure(8, 1.9, layout="constrained")
    axes = figure.subplots()
    steps = (
        ("choices", "a variable"),
        ("trainings", "an executor"),
        ("distribution\nof weights", "a law"),
        ("predictions", "a layer rule,\na likelihood"),
        ("sources\nof doubt", ""),
    )
    for number, (step, addition) in enumerate(steps):
        box = {"boxstyle": "round,pad=0.4", "facecolor": "#eef3f7", "edgecolor": GREY}
        axes.text(2 * number, 1, step, ha="center", va="center", fontsize=10, bbox=box)
        axes.text(2 * number, 0.1, addition, ha="center", va="center", fontsize=9, color=COLOURS[0])
        if addition:
            axes.annotate(
                "", (2 * number, 0.62), (2 * number, 0.32), arrowprops={"arrowstyle": "->", "color": COLOURS[0]}
            )
            axes.annotate(
                "", (2 * number + 1.22, 1), (2 * number + 0.78, 1), arrowprops={"arrowstyle": "->", "color": INK}
            )
    axes.text(-1.0, 0.1, "yours:", ha="center", va="center", fontsize=9, color=COLOURS[0])
    axes.set(xlim=(-1.3, 9), ylim=(-0.2, 1.5))
    axes.axis("off")
    return figure


def devices(names: dict[str, Any]) -> Any:
    """Draw what a step sends to the device, before and now, from the table of the page."""
    figure = new_figure(7, 2.2, layout="constrained")
    axes = figure.subplots()
    labels = (
        "100 MLPs, dropout 0.05",
        "100 MLPs, dropout 0.2",
        "100 MLPs with SWAG, no dropout",
        "one narrow VGG16, augmented",
    )
    sent = [re.search(r"to the device, ([\d,]+) KiB", row[1]) for row in _table("devices.md", "| one step of |")]
    before = [int(found[1].replace(",", "")) if found else 0 for found in sent]
    for number, size in enumerate(before):
        axes.barh(number, size, color=COLOURS[0], height=0.6)
        axes.text(size + 12, number, f"{size:,} KiB, now 0", va="center", fontsize=9)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlabel="sent to the device by one training step, before the change, KiB", xlim=(0, 1.3 * max(before)))
    with_grid(axes, "x")
    return figure


def neighbours(names: dict[str, Any]) -> Any:
    """Draw how far the NLL of other packages is from ours with the same method, from the table of laws."""
    figure = new_figure(7, 2.6, layout="constrained")
    axes = figure.subplots()
    rows = [row for row in _table("../benchmarks/results/laws.md", "| set | method |") if row[4] != "."]
    packages, sets = (list(dict.fromkeys(row[column] for row in rows)) for column in (1, 0))
    for number, name in enumerate(sets):
        each = {row[1]: [float(part) for part in row[4].split(" ± ")] for row in rows if row[0] == name}
        heights = [packages.index(package) + 0.2 * (number - (len(sets) - 1) / 2) for package in each]
        means, errors = zip(*each.values(), strict=True)
        axes.errorbar(means, heights, xerr=errors, fmt="o", color=COLOURS[number], capsize=3, label=name)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(packages)), packages)
    axes.invert_yaxis()
    axes.set(xlabel="NLL of the package minus ours, with one standard error over 20 folds")
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    with_grid(axes, "x")
    return figure


def glossary(names: dict[str, Any]) -> Any:
    """Draw the words of the glossary in their order, by an example with two variables of two draws each."""
    figure = new_figure(8, 3.1, layout="constrained")
    axes = figure.subplots()
    box = {"boxstyle": "round,pad=0.35", "facecolor": "#eef3f7", "edgecolor": GREY}
    arrow = {"arrowstyle": "->", "color": INK}

    def put(x: float, y: float, words: str) -> None:
        axes.text(x, y, words, ha="center", va="center", fontsize=9, bbox=box)

    def lead(start: tuple[float, float], end: tuple[float, float]) -> None:
        axes.annotate("", end, start, arrowprops=arrow)

    put(0, 3, "InitialCondition(2)")
    put(0, 2, "BatchOrder(2)")
    put(0, 1, "Iterations(SWAG())")
    for row, (theta0, order) in enumerate((theta0, order) for theta0 in (0, 1) for order in (0, 1)):
        y = 3.5 - row
        lead((1.45, 2 + 0.3 * (y - 2)), (2.35, y))
        put(3.6, y, f"theta0={theta0}, order={order}")
        lead((4.8, y), (5.5, y))
        put(6, y, "SWAG")
        lead((6.5, y), (7.15, 2 + 0.2 * (y - 2)))
    put(8, 2, "mixture of\n4 laws")
    lead((8.85, 2), (9.4, 2))
    put(10.1, 2, "mean,\ninterval")
    lead((10.8, 2), (11.35, 2))
    put(12.3, 2, "theta0\norder\ntheta0 x order\nt")
    heads = ("variables", "members", "laws", "posterior", "prediction", "sources")
    for x, head in zip((0, 3.6, 6, 8, 10.1, 12.3), heads, strict=True):
        axes.text(x, 4.35, head, ha="center", va="center", fontsize=10, color=COLOURS[0], weight="bold")
    axes.set(xlim=(-1.5, 13.4), ylim=(0, 4.7))
    axes.axis("off")
    return figure


def _table(page: str, start: str) -> list[list[str]]:
    """Return the cells of the table of a page whose head starts with these words."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(start)) + 2
    last = next((number for number in range(first, len(lines)) if not lines[number].startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:last]]


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
        cluster,
        convnets,
        counts,
        devices,
        extending,
        glossary,
        neighbours,
        notebook,
        one_shot,
        one_shot_measured,
        ordinal,
        own_likelihood,
        own_loop,
        positive,
        quantiles,
        reliability,
        scikit_learn,
        several,
        sources,
        survival,
        table_measured,
        table_training,
        training,
    )
}

# Drawn from figures that stand on a page or in the results, so that no example has to run.
WITHOUT_EXAMPLES = (
    "choices",
    "choosing",
    "cluster",
    "convnets",
    "devices",
    "extending",
    "glossary",
    "neighbours",
    "one_shot_measured",
    "reliability",
    "table_measured",
    "table_training",
    "training",
)


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or PICTURES:
        path = DOCS / "images" / f"page-{name}.png"
        names = {} if name in WITHOUT_EXAMPLES else names_of(DOCS / f"{name}.md")
        PICTURES[name](names).savefig(path, dpi=90)
        size = path.stat().st_size
        print(f"{path.name}: {size:,} bytes")
        if size > _LARGEST:
            sys.exit(f"{path} is larger than {_LARGEST:,} bytes: draw less")


if __name__ == "__main__":
    main()
