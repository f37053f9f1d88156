"""The paper's figure, NLL and accuracy against ensemble size, and another of what happens on corrupted images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.plots import COLOURS, INK, new_figure, with_grid
from wherefrom.reproduce.cifar10.presets import COMBINATIONS, Combination, Regime
from wherefrom.reproduce.cifar10.scores import Scores
from wherefrom.reproduce.cifar10.shift import SEVERITIES
from wherefrom.reproduce.cifar10.tables import regime_title, title

WITH_T: Combination = ("t", "theta0")
# One colour, shape and dash for each combination; those with drawn learning rates are dashed.
_MARKS = ("o", "D", "s", "^", "v", "P")
_STYLE = {
    names: {"color": COLOURS[place], "marker": _MARKS[place], "linestyle": "--" if "alpha" in names else "-"}
    for place, names in enumerate(COMBINATIONS)
}


def draw_sizes(found: Mapping[str, Scores], regimes: Sequence[Regime], path: Path, heading: str) -> None:
    """A row for each regime: NLL, what t changes in it, and accuracy, against ensemble size.

    Bands of the outer panels hold the middle four fifths of the ensembles of that size; those of the middle panel are
    two standard errors over images and two over networks.
    """
    figure = new_figure(13.5, 0.9 + 3.7 * len(regimes), layout="constrained")
    figure.suptitle(f"{heading}: what each marginalisation does", x=0.01, ha="left", fontsize=13, color=INK)
    for panel, regime in zip(_panels(figure, len(regimes)), regimes, strict=True):
        scores = found[regime.name]
        sizes = list(range(1, scores.members + 1))
        panel.suptitle(regime_title(regime), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
        grid = panel.subplots(1, 3)
        for axes, (metric, name) in zip(grid[[0, 2]], (("nll", "NLL"), ("accuracy", "accuracy")), strict=True):
            for names in COMBINATIONS:
                own = [scores.get(names, metric, members=size) for size in sizes]
                low, high = ([getattr(one, end) for one in own] for end in ("low", "high"))
                axes.fill_between(sizes, low, high, color=_STYLE[names]["color"], alpha=0.10, linewidth=0)
                _line(axes, sizes, [one.value for one in own], names)
            axes.set_ylabel(f"{name} on the test images", color=INK)
        _draw_difference(grid[1], scores, sizes)
        for axes in grid:
            axes.set_xlabel("networks in the ensemble", color=INK)
            axes.set_xticks(sizes)
            with_grid(axes, "y")
        legend_of = grid[0]
    _legend(figure, legend_of)
    figure.savefig(path, dpi=150)


def _draw_difference(axes: Any, scores: Scores, sizes: Sequence[int]) -> None:
    """The NLL of theta0 + t less that of theta0 alone: below the line, t helps."""
    found = [scores.difference(WITH_T, "nll", size) for size in sizes]
    value = np.array([one.value for one in found])
    colour = _STYLE[WITH_T]["color"]
    for kind, alpha in (("image_error", 0.25), ("member_error", 0.13)):
        spread = 2 * np.array([getattr(one, kind) for one in found])
        axes.fill_between(sizes, value - spread, value + spread, color=colour, alpha=alpha, linewidth=0)
    axes.axhline(0, color=INK, linewidth=1)
    _line(axes, sizes, value.tolist(), WITH_T)
    axes.set_ylabel("NLL with t less NLL without (below 0: t helps)", color=INK)


def draw_shift(found: Mapping[str, Scores], regimes: Sequence[Regime], path: Path, heading: str) -> None:
    """Means over the four corruptions, from the clean images on; a row for each regime."""
    severities = (0, *SEVERITIES)
    figure = new_figure(13.5, 0.9 + 3.7 * len(regimes), layout="constrained")
    networks = found[regimes[0].name].members
    figure.suptitle(f"{heading}: corrupted images, {networks} networks", x=0.01, ha="left", fontsize=13, color=INK)
    named = (("nll", "NLL"), ("ece", "ECE"), ("auroc", "AUROC of the entropy, against clean images"))
    for panel, regime in zip(_panels(figure, len(regimes)), regimes, strict=True):
        scores = found[regime.name]
        panel.suptitle(regime_title(regime), x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
        grid = panel.subplots(1, 3)
        for axes, (metric, name) in zip(grid, named, strict=True):
            shown = severities[1:] if metric == "auroc" else severities
            for names in COMBINATIONS:
                _line(axes, shown, [scores.at_severity(names, metric, severity) for severity in shown], names)
            axes.set_xlabel("severity" if metric == "auroc" else "severity (0: clean)", color=INK)
            axes.set_ylabel(name, color=INK)
            axes.set_xticks(shown)
            with_grid(axes, "y")
        legend_of = grid[0]
    _legend(figure, legend_of)
    figure.savefig(path, dpi=150)


def _panels(figure: Any, count: int) -> list[Any]:
    """One part of the figure for each regime, below each other."""
    return list(figure.subfigures(count, 1, squeeze=False).ravel())


def _line(axes: Any, x: Sequence[int], y: Sequence[float], names: Combination) -> None:
    axes.plot(x, y, **_STYLE[names], linewidth=1.6, markersize=5, label=title(names))


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=10)
