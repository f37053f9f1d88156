"""The paper's toy regression: ten noisy points of x^3, and what each subset of {M, t, theta0} says beyond them.

    y = x^3 + N(0, 9),   x ~ U[-4, 4];      scored on the curve itself, 1,000 points of [-6, 6]

One call trains 20 initial conditions for each of two settings h = (learning rate, batch size). Every panel of the
figure is a part of that one posterior: a row chooses the settings (one, the other, or both, then with 5 initial
conditions for each), a column the variables that are marginalised.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

import wherefrom as wf
from wherefrom.files import atomic
from wherefrom.plots import GREY, INK, new_figure
from wherefrom.training import streams
from wherefrom.training.progress import progress_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

SETTINGS: tuple[dict[str, float], ...] = ({"lr": 0.04, "batch_size": 1}, {"lr": 0.05, "batch_size": 6})
ROWS = ((0,), (1,), (0, 1))  # the settings that a row of the figure draws on
SUBSETS = (
    (),
    ("M",),
    ("t",),
    ("M", "t"),
    ("theta0",),
    ("M", "theta0"),
    ("t", "theta0"),
    ("M", "t", "theta0"),
)
BAND = 3.0  # standard deviations


def run(
    out: Path,
    seed: int = 0,
    progress: bool | None = None,
    *,
    draws: int = 20,
    combined_draws: int = 5,
    epochs: int = 100,
    samples: int = 1000,
) -> None:
    """Train, score all 24 panels, write `toy.png` and `toy.csv` into `out`, and print the scores."""
    # Before the work: without matplotlib, or a folder to write to, there is no point in it.
    whole = new_figure(16, 7.4, dpi=160)
    out.mkdir(parents=True, exist_ok=True)
    data = training_data(seed)
    posterior = train(data, seed, progress, draws=draws, epochs=epochs)
    panels = score(posterior, progress, combined_draws=combined_draws, samples=samples)
    write_scores(panels, out / "toy.csv")
    draw(whole, panels, data)
    whole.savefig(out / "toy.png")
    _print_summary(panels, posterior.diverged, [out / "toy.png", out / "toy.csv"])


# ---------------------------------------------------------------------- data


def training_data(seed: int) -> tuple[Array, Array]:
    """Ten points of the cube with noise of variance 9."""
    random = streams.generator(seed, "toy data")
    x = random.uniform(-4, 4, 10)
    return x, x**3 + random.normal(0, math.sqrt(9), 10)


def curve() -> tuple[Array, Array]:
    """The cube itself, without noise, half as far again as the training data reach."""
    x = np.linspace(-6, 6, 1000)  # the paper prints [-6, -6]
    return x, x**3


# ---------------------------------------------------------------------- the posterior and its parts


def network() -> nn.Module:
    """One hidden layer, started from the paper's p(theta0), with the dropout whose sub-networks are M."""
    layers = nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Dropout(0.01), nn.Linear(100, 1))
    wf.glorot_uniform(layers)
    return layers


def train(
    data: tuple[Array, Array], seed: int, progress: bool | None = None, *, draws: int = 20, epochs: int = 100
) -> wf.Posterior:
    """All trainings of the figure at once: every initial condition, with its own batch order, at both settings."""
    x, y = data
    return wf.marginalise(
        wf.Training(model=network, algorithm=wf.Algorithm("sgd", lr=0.04, batch_size=1), epochs=epochs),
        (x.reshape(-1, 1), y),
        over=[
            wf.Jointly(wf.InitialCondition(), wf.BatchOrder(), draws=draws),
            wf.Hyperparameters(points=SETTINGS),
            wf.Iterations(wf.SWAG()),
            wf.Dropout(),
        ],
        seed=seed,
        on_divergence="drop",
        progress=progress,
    )


@dataclass(frozen=True, eq=False)
class Panel:
    """One panel: which part of the posterior it shows, what that predicts on the test points, and how it scores."""

    settings: tuple[int, ...]
    marginalised: tuple[str, ...]
    models: int
    mean: Array
    std: Array
    nll: float | None  # none where the variance is zero: a point has no density
    rmse: float
    coverage: float  # of the band


def score(
    posterior: wf.Posterior, progress: bool | None = None, *, combined_draws: int = 5, samples: int = 1000
) -> list[Panel]:
    """The 24 panels, row by row, each with the same number of samples.

    The number is divided among the models, so that no panel is scored more finely than another. It has to be large for
    the sake of M: where a single unit is active, 100 sub-networks can all agree (0.99^100 = 0.37), and then the
    variance is zero.
    """
    x, y = curve()
    complete = _complete_draws(posterior)
    panels: list[Panel] = []
    with progress_bar("predicting", len(ROWS) * len(SUBSETS), progress) as report:
        for settings in ROWS:
            draws = complete if len(settings) == 1 else complete[:combined_draws]
            for names in SUBSETS:
                chosen = posterior.select(theta0=draws if "theta0" in names else draws[:1], h=settings)
                variables = ["F" if name == "M" else name for name in names]  # M_theta is F's sub-networks
                part = chosen.marginalising(*variables, *(["h"] if len(settings) > 1 else []))
                prediction = part.predict(x.reshape(-1, 1), samples=-(-samples // len(part)))
                panels.append(
                    Panel(
                        settings,
                        names,
                        len(part),
                        prediction.mean.numpy(),
                        prediction.std.numpy(),
                        prediction.nll(y) if bool((prediction.variance > 0).all()) else None,
                        prediction.rmse(y),
                        prediction.coverage(y, math.erf(BAND / math.sqrt(2)), "paper"),
                    )
                )
                report(1)
    return panels


def _complete_draws(posterior: wf.Posterior) -> list[int]:
    """The initial conditions whose trainings came to an end at every setting, so that rows compare like with like."""
    count = Counter(posterior.members()["theta0+order"])
    complete = sorted(draw for draw, trainings in count.items() if trainings == len(SETTINGS))
    if len(complete) < 2:
        raise wf.DivergedError(
            f"too few trainings are left to marginalise theta0: {'; '.join(posterior.diverged)}. Try another seed",
            posterior,
        )
    return complete


# ---------------------------------------------------------------------- what is written


def write_scores(panels: Sequence[Panel], path: Path) -> None:
    rows = (
        (
            _row_name(panel.settings),
            "+".join(panel.marginalised) or "classical",
            panel.models,
            "" if panel.nll is None else f"{panel.nll:.6g}",
            f"{panel.rmse:.6g}",
            f"{panel.coverage:.3f}",
        )
        for panel in panels
    )
    atomic.write_csv(path, ("h", "marginalised", "models", "nll", "rmse", "coverage"), rows)


def _print_summary(panels: Sequence[Panel], diverged: Sequence[str], files: Sequence[Path]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(
        title="NLL on x³ over [-6, 6]; bold: the lowest of its row", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("h", no_wrap=True)
    for names in SUBSETS:
        table.add_column("+".join(names).replace("theta0", "θ₀") or "classical", justify="right", no_wrap=True)
    for settings in ROWS:
        row = [panel for panel in panels if panel.settings == settings]
        lowest = min((panel.nll for panel in row if panel.nll is not None), default=math.nan)
        cells = [f"[bold green]{_number(p.nll)}[/]" if p.nll == lowest else _number(p.nll) for p in row]
        table.add_row(_row_name(settings), *cells)
    console.print(table)
    if diverged:
        console.print(f"diverged, and left out at both settings: {'; '.join(diverged)}", markup=False)
    for path in files:
        console.print(str(path), markup=False, soft_wrap=True)


def _row_name(settings: tuple[int, ...]) -> str:
    if len(settings) > 1:
        return "both"
    chosen = SETTINGS[settings[0]]
    return f"({chosen['lr']:g}, {chosen['batch_size']:g})"


def _number(value: float | None) -> str:
    """Three figures or so, whatever the size: NLLs go from tens to hundreds of thousands."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


# ---------------------------------------------------------------------- the figure

BLUE, PALE = "#1f5fbf", "#a9c8f0"
LOW_TO_HIGH = ("#009e73", "#e9d21e", "#e06c00", "#a50026")  # bluish green to dark red: told apart by nearly everyone


def draw(whole: Figure, panels: Sequence[Panel], data: tuple[Array, Array]) -> None:
    """Rows of settings, columns of marginalisations; the border says the NLL (colour) and the models (thickness)."""
    colour = _Colour([panel.nll for panel in panels if panel.nll is not None])
    grid = whole.subplots(
        len(ROWS),
        len(SUBSETS),
        sharex=True,
        sharey=True,
        gridspec_kw={"left": 0.066, "right": 0.992, "top": 0.945, "bottom": 0.135, "wspace": 0.1, "hspace": 0.09},
    )
    for axes, panel in zip(grid.flat, panels, strict=True):
        _draw_panel(axes, panel, data, None if panel.nll is None else colour(panel.nll))
    for axes, names in zip(grid[0], SUBSETS, strict=True):
        axes.set_title(_column_title(names), fontsize=14, pad=9, color=INK)
    whole.text(0.06, 0.957, "marginalised", ha="right", fontsize=9, color=GREY)
    beside: dict[str, Any] = {"xycoords": "axes fraction", "rotation": 90, "ha": "center", "va": "center"}
    for axes, settings in zip(grid[:, 0], ROWS, strict=True):
        one = len(settings) == 1
        name, meaning = (
            (f"$h$ = {_row_name(settings)}", "learning rate, batch size") if one else ("both $h$", "combined")
        )
        axes.annotate(name, (-0.47, 0.5), fontsize=14, color=INK, **beside)
        axes.annotate(meaning, (-0.345, 0.5), fontsize=9, color=GREY, **beside)
    _draw_key(whole, sorted({panel.models for panel in panels}), colour)


def _draw_panel(axes: Axes, panel: Panel, data: tuple[Array, Array], border: Any) -> None:
    x, truth = curve()
    low, high = panel.mean - BAND * panel.std, panel.mean + BAND * panel.std
    axes.fill_between(x, low, high, color=PALE, linewidth=0, zorder=1)
    axes.plot(x, truth, color=INK, linewidth=1.3, zorder=2)
    axes.plot(x, panel.mean, color=BLUE, linewidth=1.6, zorder=3)
    axes.plot(*data, "o", color=BLUE, markersize=4.5, markeredgecolor="white", markeredgewidth=0.6, zorder=4)
    axes.set_xlim(-6, 6)
    axes.set_ylim(-150, 150)
    axes.set_xticks([-4, 0, 4])
    axes.set_yticks([-100, 0, 100])
    axes.tick_params(labelsize=9, colors=GREY, labelcolor=INK, length=3)
    axes.label_outer(remove_inner_ticks=True)
    nll = [] if panel.nll is None else [f"NLL {_number(panel.nll)}"]
    words = [*nll, f"RMSE {_number(panel.rmse)}", f"{panel.models} model{'s' * (panel.models > 1)}"]
    axes.text(0.06, 0.94, "\n".join(words), transform=axes.transAxes, va="top", fontsize=9.5, color=INK, zorder=5)
    for spine in axes.spines.values():
        spine.set_zorder(6)
        spine.set_color(GREY if border is None else border)
        spine.set_linewidth(0.8 if border is None else _thickness(panel.models))


def _thickness(models: int) -> float:
    """Points of border: the fewer trained models, the thicker."""
    return 6 * models**-0.45


class _Colour:
    """The border's colour by NLL, on a logarithmic scale that is linear about zero, where an NLL may well be.

    The scale ends at the ninth decile: two models whose means cross somewhere have an NLL of any size.
    """

    def __init__(self, scores: Sequence[float]) -> None:
        from matplotlib.colors import AsinhNorm, LinearSegmentedColormap

        self.low = min(scores)
        self.high = max(float(np.quantile(scores, 0.9)), self.low + 1)
        self.norm: Normalize = AsinhNorm(1.0, self.low, self.high, clip=True)
        self.map = LinearSegmentedColormap.from_list("low to high", LOW_TO_HIGH)

    def __call__(self, value: float) -> Any:
        return self.map(float(self.norm(value)))

    def ticks(self) -> list[float]:
        """Round numbers within the scale, six at most."""
        sizes = [factor * 10.0**power for power in range(8) for factor in (1, 2, 5)]
        within = [tick for tick in [*(-size for size in sizes[::-1]), 0.0, *sizes] if self.low <= tick <= self.high]
        return within[:: max(1, -(-len(within) // 6))]


def _column_title(names: tuple[str, ...]) -> str:
    symbols = {"M": r"$\mathcal{M}_\theta$", "t": "$t$", "theta0": r"$\theta_0$"}
    return " + ".join(symbols[name] for name in names) or "classical"


def _draw_key(whole: Figure, models: Sequence[int], colour: _Colour) -> None:
    """Explain lines, borders and colours below the panels."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    style: dict[str, Any] = {
        "frameon": False,
        "fontsize": 11,
        "handletextpad": 0.6,
        "columnspacing": 1.6,
        "borderaxespad": 0,
        "borderpad": 0,
        "labelcolor": INK,
    }
    lines = [
        Line2D([], [], color=BLUE, marker="o", linestyle="", markersize=6, label="training data"),
        Line2D([], [], color=INK, linewidth=1.5, label="truth, $x^3$"),
        Line2D([], [], color=BLUE, linewidth=2, label="predictive mean"),
        Patch(color=PALE, label=r"mean ± $3\sigma$"),
    ]
    borders = [Line2D([], [], color=GREY, linewidth=_thickness(number), label=str(number)) for number in models]
    height = 0.05
    whole.legend(handles=lines, loc="center left", bbox_to_anchor=(0.066, height), ncols=4, **style)
    whole.text(0.468, height, "trained models", va="center", ha="left", fontsize=11, color=INK)
    whole.legend(handles=borders, loc="center left", bbox_to_anchor=(0.55, height), ncols=len(models), **style)
    whole.text(0.768, height, "NLL", va="center", ha="right", fontsize=11, color=INK)
    bar = whole.colorbar(
        ScalarMappable(colour.norm, colour.map),
        cax=whole.add_axes((0.775, height - 0.009, 0.217, 0.018)),
        orientation="horizontal",
        extend="max",
        ticks=colour.ticks(),
    )
    bar.ax.minorticks_off()
    bar.ax.set_xticklabels([f"{tick:,g}" for tick in colour.ticks()])
    bar.ax.tick_params(labelsize=9.5, length=3, colors=GREY, labelcolor=INK)
    bar.outline.set_visible(False)
