"""The paper's first figure from real trainings: where t, theta0, A and F, alone and combined, send theta.

The model has one parameter, so that its loss can be drawn: it is a tone of frequency theta. The signal holds three
tones and the model only one, so the loss L(theta) has three valleys, one for each tone that it may settle on.

    y = sum of a_k sin(w_k x),  x ~ N(0, 1)        F: f_theta(x) = sin(theta x)        F': sin(theta x + g x^3)

Mini-batches keep plain stochastic gradient descent moving in the valley it starts in (t), another start means another
valley (theta0), momentum rolls over a barrier (A), and another family has its valleys elsewhere (F). The choices are
crossed and trained once; each of the fifteen panels shows a part of the same trainings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import wherefrom as wf
from wherefrom.files import atomic
from wherefrom.plots import new_figure
from wherefrom.training import streams

TONES = ((3.5, 0.7), (6.3, 1.1), (9.2, 0.75))  # frequencies and amplitudes
ROWS = 200
SEEN = (0.9, 11.9)  # the frequencies that the figure shows
STARTS = (1.5, 11.2)  # p(theta0): log-uniform between these frequencies
FAMILIES = {"F": 0.0, "F′": 0.3}  # the glide g
ALGORITHMS = {"plain SGD": {"lr": 0.4, "momentum": 0.0}, "SGD with momentum": {"lr": 0.05, "momentum": 0.97}}
DRAWS = 4  # of theta0
BATCH_SIZE = 20
EPOCHS = 60  # of ten steps; the later half is the trajectory's neighbourhood of a minimum, tau >= tau-bar

SYMBOLS = {"t": "t", "theta0": "θ₀", "h": "A", "F": "F"}  # our names for the variables, and the paper's
PANELS = [panel for size in (1, 2, 3, 4) for panel in itertools.combinations(SYMBOLS, size)]

Panel = tuple[str, ...]  # the variables that it marginalises


def run(out: Path, seed: int = 0, progress: bool | None = None) -> None:
    """Train, draw `figure1.png`, write its numbers into `figure1.csv`, and say in words what is seen."""
    out.mkdir(parents=True, exist_ok=True)
    posteriors = train(seed, progress)
    shown = {panel: members(posteriors, panel) for panel in PANELS}
    figure = draw(posteriors, shown)
    figure.savefig(out / "figure1.png", dpi=160)
    write_numbers(shown, out / "figure1.csv")
    explain(posteriors, shown, out)


# ---------------------------------------------------------------------- the trainings


class Tone(nn.Module):
    """sin(theta x + g x^3): a tone of frequency theta, steady or (g > 0) gliding upwards away from x = 0."""

    def __init__(self, glide: float) -> None:
        super().__init__()
        self.glide = glide
        self.theta = nn.Parameter(torch.empty(()).uniform_(*map(math.log, STARTS)).exp())

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.theta * x + self.glide * x**3)


def signal() -> tuple[Tensor, Tensor]:
    """Three tones, at the quantiles of a normal distribution: its bell makes smooth valleys, without side lobes."""
    x = torch.special.ndtri((torch.arange(ROWS, dtype=torch.float64) + 0.5) / ROWS).unsqueeze(1)
    return x, sum((a * torch.sin(w * x) for w, a in TONES), torch.zeros_like(x))


def train(seed: int, progress: bool | None = None) -> dict[str, wf.Posterior]:
    """Train every start with every algorithm, for each family, and keep all iterates of each later half."""
    steps = EPOCHS * math.ceil(ROWS / BATCH_SIZE)
    return {
        family: wf.marginalise(
            wf.Training(
                model=partial(Tone, glide),
                algorithm=wf.Algorithm("sgd", batch_size=BATCH_SIZE, **ALGORITHMS["plain SGD"]),
                epochs=EPOCHS,
                standardise=False,  # the loss that is drawn is the loss that is trained on
            ),
            signal(),
            over=[
                wf.InitialCondition(DRAWS),
                wf.Hyperparameters(points=list(ALGORITHMS.values())),
                wf.Iterations(wf.Snapshots(keep=steps), start=0.5, every=1),
            ],
            seed=seed,
            progress=progress,
        )
        for family, glide in FAMILIES.items()
    }


def loss(posterior: wf.Posterior, theta: Tensor) -> Tensor:
    """L(theta) over all rows, by the network and the likelihood that were trained.  # (thetas,) -> (thetas,)"""
    x, y = signal()
    outputs = posterior.network.call_each({"theta": theta.double()}, x, ())
    return posterior.training.likelihood.loss_for(posterior.scaler)(outputs, y)


# ---------------------------------------------------------------------- the panels are parts of them


@dataclass(frozen=True)
class Shown:
    """One training as a panel shows it. Where t is not marginalised, the band is the last iterate alone."""

    family: str
    algorithm: str
    theta0: float
    theta_t: float
    band_low: float
    band_high: float
    loss_at_theta0: float
    loss_at_theta_t: float


def members(posteriors: Mapping[str, wf.Posterior], panel: Panel) -> list[Shown]:
    """The trainings that are left when the panel's variables are marginalised and the others stand at one value."""
    first, *_ = posteriors
    start = telling_start(posteriors[first])
    shown = []
    for family in posteriors if "F" in panel else [first]:
        whole = posteriors[family] if "theta0" in panel else posteriors[family].select(theta0=start)
        part = whole.marginalising(*(name for name in panel if name != "F"))
        for component, law in zip(part.mixture, part.laws(), strict=True):
            begun = initial_condition(part, component.run.slots["theta0"])
            ended, points = component.trained.last, law.tensors()["points"]
            shown.append(
                Shown(
                    family,
                    list(ALGORITHMS)[component.run.slots["h"]],
                    *(begun.item(), ended.item(), points.min().item(), points.max().item()),
                    *loss(part, torch.cat([begun, ended])).tolist(),
                )
            )
    return shown


def telling_start(posterior: wf.Posterior) -> int:
    """The draw of theta0 from which the algorithms end furthest apart: panels that fix theta0 fix it there."""

    def distance(draw: int) -> float:
        ends = torch.cat([component.trained.last for component in posterior.select(theta0=draw).mixture])
        return (ends.max() - ends.min()).item()

    return max(range(DRAWS), key=distance)


def initial_condition(posterior: wf.Posterior, draw: int) -> Tensor:
    """theta0 is not kept after training, but its stream has a name, so it can be drawn again."""
    with streams.torch_seeded(posterior.seed, "theta0", draw):
        return posterior.network.theta(posterior.training.model())


def title(panel: Panel) -> str:
    return ", ".join(SYMBOLS[name] for name in panel)


def write_numbers(shown: Mapping[Panel, Sequence[Shown]], path: Path) -> None:
    """Everything that is drawn, one line for each training in each panel."""
    rows = ((title(panel), *astuple(member)) for panel, some in shown.items() for member in some)
    atomic.write_csv(path, ("panel", *(field.name for field in fields(Shown))), rows)


# ---------------------------------------------------------------------- in words


def explain(posteriors: Mapping[str, wf.Posterior], shown: Mapping[Panel, Sequence[Shown]], out: Path) -> None:
    from rich.console import Console

    def ends(*panel: str) -> list[str]:
        return [f"{member.theta_t:.1f}" for member in shown[panel]]

    def valleys(*panel: str) -> int:
        return len({(m.family, valley(posteriors[m.family], m.theta_t)) for m in shown[panel]})

    (alone,) = shown["t",]
    several = len(shown["theta0",])
    lines = [
        f"{sum(map(len, posteriors.values()))} trainings of one parameter θ, seen in {len(shown)} ways:",
        f"  t   the training from θ₀ = {alone.theta0:.1f} does not come to rest: its later iterates lie anywhere "
        f"between {alone.band_low:.1f} and {alone.band_high:.1f}",
        f"  θ₀  {several} starts end in {valleys('theta0')} valleys of the loss: θ = {', '.join(ends('theta0'))}",
        f"  A   from that one start, {' and '.join(ALGORITHMS)} end at {' and '.join(ends('h'))}",
        f"  F   from that one start, the families {' and '.join(FAMILIES)} end at {' and '.join(ends('F'))}",
        f"All four together reach {valleys(*SYMBOLS)} valleys of the two losses; one training knows of one.",
        f"Figure: {out / 'figure1.png'}   numbers: {out / 'figure1.csv'}",
    ]
    Console(soft_wrap=True, markup=False).print("\n".join(lines))


def valley(posterior: wf.Posterior, theta: float) -> int:
    """Return which valley of the loss theta lies in: the number of barriers to its left."""
    grid = torch.linspace(*SEEN, 1000)
    return int((grid[1:-1][is_peak(loss(posterior, grid))] < theta).sum())


def is_peak(heights: Tensor) -> Tensor:
    """True for each inner value above both of its neighbours.  # (n,) -> (n - 2,)"""
    return (heights[1:-1] > heights[:-2]) & (heights[1:-1] > heights[2:])


# ---------------------------------------------------------------------- in pictures

BOXES = (  # headings, rows and columns
    ("(a)  one variable", 2, 2),
    ("(b)  two variables", 2, 3),
    ("(c)  three variables", 2, 2),
    ("(d)  all four", 1, 1),
)
# Okabe and Ito's colours, which colour-blind readers can tell apart; shapes, dashes and hatches say the same again.
CURVES: dict[str, dict[str, Any]] = {
    "F": {"color": "#0072B2", "linestyle": "-"},
    "F′": {"color": "#56B4E9", "linestyle": (0, (4, 1.5))},
}
DOTS: dict[str, dict[str, Any]] = {
    "plain SGD": {"color": "#009E73", "marker": "o", "s": 50, "zorder": 3},
    "SGD with momentum": {"color": "#E69F00", "marker": "D", "s": 32, "zorder": 4},
}
START: dict[str, Any] = {"color": "black", "marker": "o", "s": 22, "zorder": 5}
BANDS: dict[str, dict[str, Any]] = {
    "plain SGD": {"facecolor": "#009E7348", "linewidth": 0},
    "SGD with momentum": {"facecolor": "#E69F0030", "edgecolor": "#E69F00b0", "hatch": "////", "linewidth": 0},
}
INK, FRAME, PAPER = "#262626", "#c9c9c4", "#f7f7f4"
MATHS = {"t": "t", "theta0": r"\theta_0", "h": "A", "F": r"\mathcal{F}"}


def draw(posteriors: Mapping[str, wf.Posterior], shown: Mapping[Panel, Sequence[Shown]]) -> Any:
    """All panels as a matplotlib figure, in the paper's boxes: (a) one variable, (b) two, (c) three, (d) all four."""
    grid = torch.linspace(*SEEN, 1500, dtype=torch.float64)
    curves = {family: loss(posterior, grid) for family, posterior in posteriors.items()}
    figure = new_figure(13, 9.6)
    upper, lower, foot = figure.subfigures(3, 1, squeeze=False, height_ratios=(1, 1, 0.16)).flat
    boxes = [box for row in (upper, lower) for box in row.subfigures(1, 2, width_ratios=(2, 3))]
    panels = iter(PANELS)
    for box, (heading, rows, columns) in zip(boxes, BOXES, strict=True):
        _draw_frame(box, heading)
        for ax in box.subplots(rows, columns, squeeze=False).flat:
            panel = next(panels)
            _draw_panel(ax, grid, curves, shown[panel])
            maths = r",\ ".join(MATHS[name] for name in panel)
            ax.set_title(f"${maths}$", fontsize=15, pad=5, math_fontfamily="cm")
    _label_axes(ax)  # of the last and largest one; they are the same for all
    _draw_legend(foot)
    return figure


def _draw_frame(box: Any, heading: str) -> None:
    from matplotlib.patches import Rectangle

    frame = Rectangle((0.012, 0.012), 0.976, 0.976, facecolor=PAPER, edgecolor=FRAME, zorder=-1)
    box.add_artist(frame)
    box.text(0.035, 0.955, heading, va="top", fontsize=13, color=INK)
    box.subplots_adjust(left=0.06, right=0.95, bottom=0.065, top=0.835, hspace=0.32, wspace=0.12)


def _draw_panel(ax: Any, grid: Tensor, curves: Mapping[str, Tensor], shown: Sequence[Shown]) -> None:
    low, high = min(c.min().item() for c in curves.values()), max(c.max().item() for c in curves.values())
    floor, ceiling = low - 0.22 * (high - low), high + 0.06 * (high - low)
    for family, curve in curves.items():
        if not any(member.family == family for member in shown):
            continue
        ax.plot(grid, curve, linewidth=1.8, zorder=2, **CURVES[family])
        for algorithm, style in BANDS.items():
            bands = [m for m in shown if (m.family, m.algorithm) == (family, algorithm) and m.band_low < m.band_high]
            within = [((m.band_low <= grid) & (grid <= m.band_high)) for m in bands]
            if within:  # as one region, so that bands on top of each other do not darken
                ax.fill_between(grid, floor, curve, where=torch.stack(within).any(0), zorder=1, **style)
    for member in shown:  # from large to small, so that what lies on one spot can all be seen
        ax.scatter(member.theta_t, member.loss_at_theta_t, edgecolor="white", linewidth=0.7, **DOTS[member.algorithm])
        ax.scatter(member.theta0, member.loss_at_theta0, edgecolor="white", linewidth=0.4, **START)
    ax.set(xlim=SEEN, ylim=(floor, ceiling), xticks=[], yticks=[], facecolor="white")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(INK)


def _label_axes(ax: Any) -> None:
    ax.figure.subplots_adjust(left=0.075, bottom=0.15)
    ax.set_xticks(range(2, 12, 2))
    ax.tick_params(length=3, colors=INK)
    ax.set_xlabel(r"$\theta$", fontsize=14, labelpad=0, math_fontfamily="cm")
    ax.set_ylabel(r"$L(\theta)$", fontsize=14, math_fontfamily="cm")


def _draw_legend(foot: Any) -> None:
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def dot(color: str, marker: str, s: float, zorder: float) -> Line2D:
        return Line2D([], [], color=color, marker=marker, markersize=1.1 * s**0.5, linestyle="")

    steady, gliding = (Line2D([], [], linewidth=1.8, **style) for style in CURVES.values())
    plain, momentum = (dot(**style) for style in DOTS.values())
    bands = tuple(Patch(**style) for style in BANDS.values())
    entries = {
        r"$L$ of the family $\mathcal{F}$: $\sin(\theta x)$": steady,
        rf"$L$ of another, $\mathcal{{F}}'$: $\sin(\theta x + {FAMILIES['F′']} x^3)$": gliding,
        r"$\theta_0$, where training starts": dot(**START),
        r"$\theta_t$, where it ends: plain SGD": plain,
        r"$\theta_t$: SGD with momentum": momentum,
        r"$\theta_\tau$ for $\tau \geq \bar\tau$, where $t$ is random": bands,
    }
    legend = foot.legend(
        list(entries.values()),
        list(entries),
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.3)},
        loc="center",
        ncols=3,
        frameon=False,
        fontsize=12,
        columnspacing=3,
        handlelength=2.4,
    )
    for text in legend.get_texts():
        text.set_math_fontfamily("cm")
