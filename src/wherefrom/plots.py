"""Pictures of plain arrays, on matplotlib's axes: each function takes `ax`, or makes a figure, and returns the axes.

matplotlib is imported when the first one is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Okabe and Ito's palette, which colour-blind readers can tell apart, and a grey for noise.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
NOISE_COLOUR = "#BBBBBB"
INK, GREY = "#1a1a1a", "#8a8a8a"
_UNEXPLAINED = ("noise", "overlap")  # what no choice of training causes
_MOST_CURVES = 20  # in one picture
_MOST_NAMES = 8  # of a legend
_LONGEST_LABEL = 46  # characters in a line beside a bar


def colour_of(names: Sequence[str]) -> dict[str, str]:
    """Give the same source the same colour in every picture of a run."""
    others = [name for name in names if name not in _UNEXPLAINED]
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(others)}
    return colours | dict.fromkeys(_UNEXPLAINED, NOISE_COLOUR)


def new_figure(width: float, height: float, **settings: Any) -> Any:
    """Return an empty matplotlib figure that no window and no global state knows of."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'wherefrom[plot]'") from None
    return Figure(figsize=(width, height), **settings)


def axes_for(ax: Any, width: float = 6.4, height: float = 4.2) -> Any:
    """Return the axes that were given, or new ones that a notebook shows."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'wherefrom[plot]'") from None
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def quiet(axes: Any) -> Any:
    """Remove two sides of the frame, and return the axes."""
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def with_grid(axes: Any, along: Literal["x", "y"]) -> None:
    """Draw a pale grid behind the marks, and frames in grey on two sides."""
    axes.grid(axis=along, linewidth=0.5, color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=GREY, labelcolor=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)


def intervals_against_truth(
    truth: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, unit: str = "", ax: Any = None
) -> Any:
    """Draw predictions with their intervals against the truth; those that miss it have another colour."""
    axes = axes_for(ax)
    truth, mean, low, high = (np.asarray(each, dtype=np.float64) for each in (truth, mean, low, high))
    is_inside = (truth >= low) & (truth <= high)
    for chosen, colour, label in ((is_inside, COLOURS[0], "within its interval"), (~is_inside, COLOURS[5], "outside")):
        middle = np.clip(mean[chosen], low[chosen], high[chosen])  # a mean may lie outside of a conformal interval
        axes.errorbar(
            truth[chosen],
            mean[chosen],
            yerr=np.stack([middle - low[chosen], high[chosen] - middle]),
            fmt="o",
            markersize=3.5,
            elinewidth=0.7,
            alpha=0.75,
            color=colour,
            label=f"{label} ({int(chosen.sum()):,})",
        )
    ends = [min(truth.min(), mean.min()), max(truth.max(), mean.max())]
    axes.plot(ends, ends, color="black", linewidth=0.8, zorder=0)
    of_unit = f", {unit}" * bool(unit)
    axes.set(xlabel=f"truth{of_unit}", ylabel=f"prediction with its interval{of_unit}")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return quiet(axes)


def intervals(mean: ArrayLike, low: ArrayLike, high: ArrayLike, unit: str = "", ax: Any = None) -> Any:
    """Draw predictions with their intervals, rows in order of their predictions."""
    axes = axes_for(ax)
    mean, low, high = (np.asarray(each, dtype=np.float64) for each in (mean, low, high))
    order = mean.argsort(kind="stable")
    position = np.arange(1, len(mean) + 1)
    axes.vlines(position, low[order], high[order], color=COLOURS[4], linewidth=max(0.5, min(4.0, 200 / len(mean))))
    axes.plot(position, mean[order], ".", color=COLOURS[0], markersize=4)
    axes.set(xlabel="row, in order of its prediction", ylabel=f"prediction with its interval{f', {unit}' * bool(unit)}")
    return quiet(axes)


def coverage(levels: ArrayLike, covered: ArrayLike, rows: int, ax: Any = None) -> Any:
    """Draw how often intervals hold the truth against how often they should.

    The grey band contains 95 of 100 calibrated models with this number of rows.
    """
    axes = axes_for(ax, 4.6, 4.6)
    levels, covered = np.asarray(levels, dtype=np.float64), np.asarray(covered, dtype=np.float64)
    reach = 1.96 * np.sqrt(levels * (1 - levels) / max(rows, 1))
    axes.fill_between(levels, np.maximum(levels - reach, 0), np.minimum(levels + reach, 1), color="#e4e4e4")
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    axes.plot(levels, covered, "o-", color=COLOURS[0], markersize=4, linewidth=1.4)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="level of the interval", ylabel=f"share of {rows:,} rows")
    return quiet(axes)


def stacked(parts: Mapping[str, ArrayLike], unit: str, ax: Any = None) -> Any:
    """Draw what each row's doubt is made of, rows in order of their doubt.

    parts: name -> a number for each row; negative ones count as none. Of more than there are colours, the smallest
        are added up.
    unit: of the numbers, for the axis.
    """
    axes = axes_for(ax, 7.0, 4.2)
    amounts = _largest({name: np.maximum(np.asarray(part, dtype=np.float64), 0) for name, part in parts.items()})
    total = np.sum(list(amounts.values()), axis=0)
    order, colours = (-total).argsort(kind="stable"), colour_of(list(amounts))
    names = list(reversed(amounts))  # the first on top
    heights = [amounts[name][order] for name in names]
    position = range(1, len(order) + 1)
    axes.stackplot(position, *heights, labels=names, colors=[colours[name] for name in names], step="mid")
    axes.set_xlim(1, max(2, len(order)))
    axes.set_ylim(0)
    axes.set(xlabel="row, in order of its doubt", ylabel=unit)
    handles, labels = axes.get_legend_handles_labels()
    columns = min(len(labels), 4)
    above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": columns}
    axes.legend(handles[::-1], labels[::-1], frameon=False, fontsize=9, **above)
    return quiet(axes)


def _largest(amounts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return as many parts as there are colours, with the smallest ones as one part; noise stays by itself.

    >>> parts = _largest({str(number): np.ones(2) * number for number in range(9)} | {"noise": np.ones(2)})
    >>> list(parts), parts["3 smaller ones"].tolist()
    (['3', '4', '5', '6', '7', '8', '3 smaller ones', 'noise'], [3.0, 3.0])
    """
    causes = [name for name in amounts if name not in _UNEXPLAINED]
    if len(causes) <= len(COLOURS):
        return dict(amounts)
    in_order = sorted(causes, key=lambda name: -amounts[name].sum())
    small = in_order[len(COLOURS) - 1 :]
    large = {name: amounts[name] for name in causes if name not in small}
    rest = {f"{len(small)} smaller ones": np.sum([amounts[name] for name in small], axis=0)}
    return large | rest | {name: part for name, part in amounts.items() if name in _UNEXPLAINED}


def bars(
    values: Mapping[str, float],
    errors: Mapping[str, float],
    label: str,
    ax: Any = None,
    colouring: Literal["by name", "one colour"] = "by name",
    titles: Mapping[str, str] | None = None,
) -> Any:
    """Draw one bar for each name, the first on top, with its standard error where that is known.

    titles: name -> the words beside its bar (default: the name). The name decides the colour.
    """
    axes = axes_for(ax, 6.4, 0.8 + 0.35 * len(values))
    names = list(values)
    colours = colour_of(names) if colouring == "by name" else dict.fromkeys(names, COLOURS[0])
    reach = [error if np.isfinite(error := errors.get(name, np.nan)) else 0.0 for name in names]
    axes.barh(
        range(len(names)),
        [values[name] for name in names],
        xerr=reach,
        color=[colours[name] for name in names],
        ecolor=INK,
        error_kw={"linewidth": 0.8},
    )
    words = [textwrap.fill((titles or {}).get(name, name), _LONGEST_LABEL) for name in names]
    axes.set_yticks(range(len(names)), words)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    with_grid(axes, "x")
    return axes


def curves(
    x: Mapping[str, ArrayLike], y: Mapping[str, ArrayLike], label: tuple[str, str], ax: Any = None, is_log: bool = False
) -> Any:
    """Draw curves by name; of many, some.

    x, y: name -> the numbers of a curve.
    label: of both axes.
    """
    axes = axes_for(ax)
    names = list(y)
    shown = names[:: -(-len(names) // _MOST_CURVES)]
    for number, name in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(np.asarray(x[name]), np.asarray(y[name]), color=colour, linewidth=1.2, label=name)
    axes.set(xlabel=label[0], ylabel=label[1])
    if is_log:
        axes.set_yscale("log")
    if 1 < len(shown) <= _MOST_NAMES:
        axes.legend(frameon=False, fontsize=9)
    return quiet(axes)


def bands(
    times: NDArray[Any],
    middle: NDArray[Any],
    low: NDArray[Any],
    high: NDArray[Any],
    names: Sequence[str],
    ax: Any = None,
) -> Any:
    """Draw survival curves with their bands.  # (times,), then (rows, times) each"""
    axes = axes_for(ax)
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        axes.fill_between(times, low[number], high[number], color=colour, alpha=0.18, linewidth=0)
        axes.plot(times, middle[number], color=colour, linewidth=1.4, label=name)
    axes.set(xlabel="time", ylabel="probability to be without the event", ylim=(0, 1.02), xlim=(0, float(times[-1])))
    if len(names) > 1:
        axes.legend(frameon=False, fontsize=9)
    return quiet(axes)


def reliability_diagram(reliability: Any, place: Any = None) -> Any:
    """Draw how often rows are right against how sure they were; larger dots are more rows, below the line is too sure.

    One, or several by name; drawn into a file, or onto matplotlib's axes, given or new, which are returned. Of one
    alone, grey bars say where the bins of a calibrated model would lie, about nineteen times out of twenty.
    """
    axes, figure = _axes_at(place, 4.8, 4.8)
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, zorder=1)
    curves = _named(reliability)
    for (name, curve), colour in zip(curves.items(), _colours(len(curves)), strict=True):
        each = (np.asarray(part, dtype=np.float64) for part in (curve.count, curve.confidence, curve.accuracy))
        count, confidence, accuracy = (part[np.asarray(curve.count) > 0] for part in each)
        if len(curves) == 1:
            reach = 1.96 * np.sqrt(confidence * (1 - confidence) / count)
            low, high = np.maximum(confidence - reach, 0), np.minimum(confidence + reach, 1)
            axes.vlines(confidence, low, high, color=NOISE_COLOUR, linewidth=4, zorder=0)
        sizes = 12 + 150 * count / count.sum()
        axes.plot(confidence, accuracy, color=colour, linewidth=1.2, zorder=2)
        label = f"{name}, ece {curve.ece:.3f}".removeprefix(", ")
        axes.scatter(confidence, accuracy, s=sizes, color=colour, label=label, zorder=3)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="confidence", ylabel="accuracy", aspect="equal")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return _finished(axes, figure, place)


def risk_coverage_plot(risk_coverage: Any, place: Any = None) -> Any:
    """The error among the most confident rows, by how many are answered; dotted, with an order that knows the errors.

    One, or several by name; drawn into a file, or onto matplotlib's axes, given or new, which are returned.
    """
    axes, figure = _axes_at(place, 5.6, 4.2)
    curves = _named(risk_coverage)
    first, *others = curves.values()
    is_shared = all(np.array_equal(first.best, other.best) for other in others)  # of one model, by several confidences
    for curve, colour in [(first, "black")] if is_shared else zip(curves.values(), _colours(len(curves)), strict=True):
        axes.plot(curve.coverage, curve.best, color=colour, linewidth=1, linestyle=":")
    for (name, curve), colour in zip(curves.items(), _colours(len(curves)), strict=True):
        label = f"{name}, area {curve.area:.3f}".removeprefix(", ")
        axes.plot(curve.coverage, curve.risk, color=colour, linewidth=1.4, label=label)
    axes.set(xlim=(0, 1), xlabel="coverage: share of rows that are answered", ylabel="risk: their mean error")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return _finished(axes, figure, place)


def _named(curves: Any) -> Mapping[str, Any]:
    return curves if isinstance(curves, Mapping) else {"": curves}


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _axes_at(target: Any, width: float, height: float) -> tuple[Any, Any]:
    """Return the axes to draw on, and the figure if it is to be saved."""
    if not isinstance(target, str | Path):
        return axes_for(target, width, height), None
    figure = new_figure(width, height, layout="constrained")
    return figure.subplots(), figure


def _finished(axes: Any, figure: Any, target: Any) -> Any:
    quiet(axes)
    if figure is not None:
        figure.savefig(target, dpi=150)
    return axes
