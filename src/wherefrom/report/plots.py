"""Pictures of predictions and of where their doubt comes from. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.class_scores import Reliability, RiskCoverage

Curve = TypeVar("Curve")

# Okabe and Ito's palette, which colour-blind readers can tell apart, and a grey for noise.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
NOISE_COLOUR = "#BBBBBB"
INK, GREY = "#1a1a1a", "#8a8a8a"


def colour_of(names: Sequence[str]) -> dict[str, str]:
    """Give the same source the same colour in every picture of a run."""
    others = [name for name in names if name != "noise"]
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(others)} | {"noise": NOISE_COLOUR}


def new_figure(width: float, height: float, **settings: Any) -> Any:
    """An empty matplotlib figure that no window and no global state knows of."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'wherefrom[plot]'") from None
    return Figure(figsize=(width, height), **settings)


def with_grid(axes: Any, along: Literal["x", "y"]) -> None:
    """Draw a pale grid behind the marks, and frames in grey on two sides."""
    axes.grid(axis=along, linewidth=0.5, color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=GREY, labelcolor=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)


def save_overview(prediction: Prediction, y: Tensor, path: Path, title: str, unit: str) -> None:
    """Intervals against the truth, and every row's variance by source, rows in order of their doubt."""
    figure = new_figure(11.0, 4.6, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    _intervals_against_truth(left, prediction, y, unit)
    _variance_by_source(right, prediction, unit)
    figure.savefig(path, dpi=150)


def reliability_diagram(reliability: Reliability | Mapping[str, Reliability], place: Any) -> Any:
    """Draw how often rows are right against how sure they were; larger dots are more rows, below the line is too sure.

    One, or several by name; drawn into a file or onto matplotlib's axes, which are returned. Of one alone, grey bars
    say where the bins of a calibrated model would lie, about nineteen times out of twenty.
    """
    axes, figure = _axes(place, 4.8, 4.8)
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, zorder=1)
    curves = _named(reliability)
    for (name, curve), colour in zip(curves.items(), _colours(len(curves)), strict=True):
        filled = curve.count > 0
        count, confidence, accuracy = (part[filled] for part in (curve.count, curve.confidence, curve.accuracy))
        if len(curves) == 1:
            reach = 1.96 * (confidence * (1 - confidence) / count).sqrt()
            low, high = (confidence - reach).clamp_min(0), (confidence + reach).clamp_max(1)
            axes.vlines(confidence.numpy(), low.numpy(), high.numpy(), color=NOISE_COLOUR, linewidth=4, zorder=0)
        sizes = 12 + 150 * count / count.sum()
        axes.plot(confidence.numpy(), accuracy.numpy(), color=colour, linewidth=1.2, zorder=2)
        label = f"{name}, ece {curve.ece:.3f}".removeprefix(", ")
        axes.scatter(confidence.numpy(), accuracy.numpy(), s=sizes.numpy(), color=colour, label=label, zorder=3)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="confidence", ylabel="accuracy", aspect="equal")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return _finished(axes, figure, place)


def risk_coverage_plot(risk_coverage: RiskCoverage | Mapping[str, RiskCoverage], place: Any) -> Any:
    """The error among the most confident rows, by how many are answered; dotted, with an order that knows the errors.

    One, or several by name; drawn into a file or onto matplotlib's axes, which are returned.
    """
    axes, figure = _axes(place, 5.6, 4.2)
    curves = _named(risk_coverage)
    first, *others = curves.values()
    is_shared = all(torch.equal(first.best, other.best) for other in others)  # of one model, by several confidences
    for curve, colour in [(first, "black")] if is_shared else zip(curves.values(), _colours(len(curves)), strict=True):
        axes.plot(curve.coverage.numpy(), curve.best.numpy(), color=colour, linewidth=1, linestyle=":")
    for (name, curve), colour in zip(curves.items(), _colours(len(curves)), strict=True):
        label = f"{name}, area {curve.area:.3f}".removeprefix(", ")
        axes.plot(curve.coverage.numpy(), curve.risk.numpy(), color=colour, linewidth=1.4, label=label)
    axes.set(xlim=(0, 1), xlabel="coverage: share of rows that are answered", ylabel="risk: their mean error")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return _finished(axes, figure, place)


def _named(curves: Curve | Mapping[str, Curve]) -> Mapping[str, Curve]:
    return curves if isinstance(curves, Mapping) else {"": curves}


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _axes(target: Any, width: float, height: float) -> tuple[Any, Any]:
    """The axes to draw on, and the figure if it is a new one."""
    if not isinstance(target, str | Path):
        return target, None
    figure = new_figure(width, height, layout="constrained")
    return figure.subplots(), figure


def _finished(axes: Any, figure: Any, target: Any) -> Any:
    _quiet(axes)
    if figure is not None:
        figure.savefig(target, dpi=150)
    return axes


def _intervals_against_truth(axes: Any, prediction: Prediction, y: Tensor, unit: str) -> None:
    low, high = prediction.interval(0.95)
    inside = (y >= low) & (y <= high)
    for chosen, colour, label in ((inside, COLOURS[0], "within its interval"), (~inside, COLOURS[5], "outside")):
        mean = prediction.mean[chosen]
        reach = torch.stack([mean - low[chosen], high[chosen] - mean]).numpy()
        axes.errorbar(
            y[chosen].numpy(),
            mean.numpy(),
            yerr=reach,
            fmt="o",
            markersize=3.5,
            elinewidth=0.7,
            alpha=0.75,
            color=colour,
            label=f"{label} ({int(chosen.sum())})",
        )
    ends = [float(torch.minimum(y, prediction.mean).min()), float(torch.maximum(y, prediction.mean).max())]
    axes.plot(ends, ends, color="black", linewidth=0.8, zorder=0)
    axes.set_xlabel(f"truth, {unit}")
    axes.set_ylabel(f"prediction with its 95% interval, {unit}")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    _quiet(axes)


def _variance_by_source(axes: Any, prediction: Prediction, unit: str) -> None:
    sources = prediction.sources()
    total = sum((part.clamp_min(0) for part in sources.variance.values()), start=torch.zeros(len(prediction)))
    order = total.argsort(descending=True)
    colours = colour_of(sources.names)
    heights = [sources.variance[name].clamp_min(0)[order].numpy() for name in reversed(sources.names)]
    axes.stackplot(
        range(1, len(order) + 1),
        *heights,
        labels=list(reversed(sources.names)),
        colors=[colours[name] for name in reversed(sources.names)],
        step="mid",
    )
    axes.set_xlim(1, len(order))
    axes.set_ylim(0)
    axes.set_xlabel("row, in order of doubt")
    axes.set_ylabel(f"predictive variance by source, ({unit})²")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1],
        labels[::-1],
        frameon=False,
        fontsize=9,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=len(labels),
    )
    _quiet(axes)


def _quiet(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
