"""NLL by combination for each data set: ours, and the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.plots import COLOURS, GREY, INK, new_figure, with_grid
from wherefrom.reproduce.uci.printed import Printed
from wherefrom.reproduce.uci.setups import Combination
from wherefrom.reproduce.uci.tables import Moments, title

CUT = "$\\gg$"  # at the end of a bar that is cut


def draw(
    ours: Moments,
    printed: Mapping[tuple[Combination, str], Printed],
    sets: Sequence[str],
    combinations: Sequence[Combination],
    path: Path,
    heading: str,
) -> None:
    """A panel for each set, a line for each combination; dots are means, bars one standard deviation over folds."""
    from matplotlib.lines import Line2D

    columns = min(3, len(sets))
    lines = -(-len(sets) // columns)
    figure = new_figure(
        4.2 * columns + 0.8, 0.34 * len(combinations) * lines + 0.62 * lines + 1.2, layout="constrained"
    )
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    kinds: set[str] = set()  # of marks that were drawn
    for place, axes in enumerate(grid):
        if place >= len(sets):
            axes.set_axis_off()
            continue
        kinds |= _panel(axes, ours, printed, sets[place], combinations)
        axes.set_yticklabels([title(names) for names in combinations] if place % columns == 0 else [])
        if place >= len(sets) - columns:
            axes.set_xlabel("NLL", fontsize=9, color=INK)
    handles = {
        "ours": Line2D([], [], color=COLOURS[0], marker="o", markersize=5, label="ours"),
        "printed": Line2D([], [], color=GREY, marker="s", markersize=5, markerfacecolor="white", label="printed"),
        "beyond": Line2D([], [], color=INK, marker=">", markersize=5, linestyle="", label="further right"),
        "cut": Line2D([], [], color=INK, marker=CUT, markersize=5, linestyle="", label="the bar goes on"),
    }
    shown = [handle for kind, handle in handles.items() if kind in kinds]
    figure.legend(handles=shown, loc="outside lower right", ncols=len(shown), frameon=False, fontsize=10)
    figure.savefig(path, dpi=150)


def _panel(
    axes: Any,
    ours: Moments,
    printed: Mapping[tuple[Combination, str], Printed],
    name: str,
    combinations: Sequence[Combination],
) -> set[str]:
    """Draw one set, and return the kinds of marks that it has."""
    kinds: set[str] = set()
    mine = {names: ours["+".join(names), name] for names in combinations}
    theirs = {names: printed[names, name] for names in combinations if (names, name) in printed}
    limit = _reach([*mine.values(), *((cell.mean, cell.std or 0.0) for cell in theirs.values())])
    for row, names in enumerate(combinations):
        mean, deviation = mine[names]
        kinds |= {"ours", _mark(axes, mean, deviation, row + 0.14, limit, COLOURS[0], "o")}
        if cell := theirs.get(names):
            kinds |= {"printed", _mark(axes, cell.mean, cell.std or np.nan, row - 0.14, limit, GREY, "s")}
    axes.set_title(name, fontsize=11, loc="left", color=INK)
    axes.set_ylim(len(combinations) - 0.5, -0.5)
    axes.set_yticks(range(len(combinations)))
    with_grid(axes, "x")
    axes.margins(x=0.06)
    return kinds


def _reach(scores: Sequence[tuple[float, float]]) -> float:
    """Return where the axis ends: one or two enormous scores must not squeeze the others together."""
    means = sorted(mean for mean, _ in scores if np.isfinite(mean)) or [0.0]
    bound = means[3 * len(means) // 4 - 1]
    bound += 4 * (bound - means[0])
    return min(
        bound, max((mean + np.nan_to_num(deviation) for mean, deviation in scores if mean <= bound), default=bound)
    )


def _mark(axes: Any, mean: float, deviation: float, height: float, limit: float, colour: str, shape: str) -> str:
    """Draw a mean with its bar, and return whether it is whole, cut, or beyond the axis."""
    style = {"color": colour, "markersize": 4.5}
    if mean > limit:
        axes.plot([limit], [height], marker=">", linestyle="", **style)
        axes.annotate(
            f"{mean:,.0f}" if mean >= 10 else f"{mean:.1f}",
            (limit, height),
            (-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=7.5,
            color=colour,
        )
        return "beyond"
    low, high = mean - np.nan_to_num(deviation), mean + np.nan_to_num(deviation)
    is_cut = high > limit
    axes.plot([low, min(high, limit)], [height, height], color=colour, linewidth=1)
    if is_cut:
        axes.plot([limit], [height], marker=CUT, linestyle="", **style)
    face = colour if shape == "o" else "white"
    axes.plot([mean], [height], marker=shape, linestyle="", markerfacecolor=face, **style)
    return "cut" if is_cut else "whole"
