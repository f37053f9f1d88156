"""The paper's figure, NLL and accuracy against ensemble size, and another of what happens on corrupted images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wherefrom.report.plots import COLOURS, new_figure
from wherefrom.reproduce.cifar10.presets import COMBINATIONS, Combination
from wherefrom.reproduce.cifar10.scores import Scores
from wherefrom.reproduce.cifar10.shift import SEVERITIES
from wherefrom.reproduce.cifar10.tables import title

INK, GREY = "#1a1a1a", "#8a8a8a"
# One colour, shape and dash for each combination; those with drawn learning rates are dashed.
_MARKS = ("o", "D", "s", "^", "v", "P")
_STYLE = {
    names: {"color": COLOURS[place], "marker": _MARKS[place], "linestyle": "--" if "alpha" in names else "-"}
    for place, names in enumerate(COMBINATIONS)
}


def draw_sizes(scores: Scores, path: Path, heading: str) -> None:
    """A line for each combination; bands hold the middle four fifths of the ensembles of that size."""
    sizes = list(range(1, scores.members + 1))
    figure = new_figure(10.5, 4.6, layout="constrained")
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    grid = figure.subplots(1, 2)
    for axes, (metric, name) in zip(grid, (("nll", "NLL"), ("accuracy", "accuracy")), strict=True):
        for names in COMBINATIONS:
            found = [scores.get(names, metric, members=size) for size in sizes]
            low, high = ([getattr(one, end) for one in found] for end in ("low", "high"))
            axes.fill_between(sizes, low, high, color=_STYLE[names]["color"], alpha=0.13, linewidth=0)
            _line(axes, sizes, [one.value for one in found], names)
        axes.set_xlabel("networks in the ensemble", color=INK)
        axes.set_ylabel(f"{name} on the test images", color=INK)
        axes.set_xticks(sizes)
        _quiet(axes)
    _legend(figure, grid[0])
    figure.savefig(path, dpi=150)


def draw_shift(scores: Scores, path: Path, heading: str) -> None:
    """Means over the four corruptions, from the clean images on."""
    severities = (0, *SEVERITIES)
    figure = new_figure(12.5, 4.4, layout="constrained")
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    grid = figure.subplots(1, 3)
    named = (("nll", "NLL"), ("ece", "ECE"), ("auroc", "AUROC of the entropy, against clean images"))
    for axes, (metric, name) in zip(grid, named, strict=True):
        shown = severities[1:] if metric == "auroc" else severities
        for names in COMBINATIONS:
            _line(axes, shown, [scores.at_severity(names, metric, severity) for severity in shown], names)
        axes.set_xlabel("severity" if metric == "auroc" else "severity (0: clean)", color=INK)
        axes.set_ylabel(name, color=INK)
        axes.set_xticks(shown)
        _quiet(axes)
    _legend(figure, grid[0])
    figure.savefig(path, dpi=150)


def _line(axes: Any, x: Sequence[int], y: Sequence[float], names: Combination) -> None:
    axes.plot(x, y, **_STYLE[names], linewidth=1.6, markersize=5, label=title(names))


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=10)


def _quiet(axes: Any) -> None:
    axes.grid(axis="y", linewidth=0.5, color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=GREY, labelcolor=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
