"""`wherefrom demo`: a table in which the doubt has causes, predicted as users predict their own tables.

392 cars of 1970 to 1982, and how far they go on a gallon (Auto MPG, mlxtend's copy). Most cars that are held out are
like those of training. Some are of a kind that training hardly saw, some have missing values, and one has a value in
another unit. Each of these shows in another source of the doubt.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import warnings
import webbrowser
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

import wherefrom as wf
from wherefrom import plots
from wherefrom.files import atomic
from wherefrom.report.words import column_of

TARGET = "mpg"
MEASURED = ("cylinders", "displacement", "horsepower", "weight", "acceleration", "year")
ORIGINS = {1: "America", 2: "Europe", 3: "Japan"}
LATE = 81  # from this year on, cars are hardly in the training rows
LATE_TO_TRAIN_ON = 3
HELD_OUT = 80  # cars that are like those of training, but for what is done to some of them
HIDDEN = (
    ("year",),
    ("year", "weight"),
    ("acceleration",),
    ("horsepower", "weight", "year"),
    ("displacement", "origin"),
)
CUBIC_CENTIMETRES = 16.387  # in a cubic inch

USUAL, RARE, GAPS, OTHER_UNIT = "usual", "of 1981 and 1982", "with gaps", "wrong unit"
WORDS = {
    "architecture": "kind of model",
    "initial_weights": "initial weights",
    "rows": "choice of training rows",
    "stopping": "moment training stops",
    "together": "these choices together",
    "gaps": "values missing in the row",
    "outside": "row unlike those of training",
    "unexplained": "not explained by the columns",
}

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Cars:
    """Cars to train on, others to predict, the same without anything done to them, and what each of them is."""

    train: Columns
    new: Columns
    complete: Columns
    kind: NDArray[np.str_]  # of each new car
    late: int  # of all cars

    @classmethod
    def drawn(cls, seed: int) -> Cars:
        """Split the cars, hide values of some, and write one value of one car in another unit."""
        cars = _all_cars()
        order = np.random.default_rng(seed).permutation(len(cars[TARGET]))
        is_late = cars["year"][order] >= LATE
        late, others = order[is_late], order[~is_late]
        new = np.concatenate([others[:HELD_OUT], late[LATE_TO_TRAIN_ON:]])
        complete = _taken(cars, new)
        kind = np.array([USUAL] * HELD_OUT + [RARE] * (len(new) - HELD_OUT), dtype=object)
        changed = {name: values.astype(object) for name, values in complete.items()}
        for row, names in enumerate(HIDDEN):
            kind[row] = GAPS
            for name in names:
                changed[name][row] = None
        kind[len(HIDDEN)] = OTHER_UNIT
        changed["displacement"][len(HIDDEN)] = round(complete["displacement"][len(HIDDEN)] * CUBIC_CENTIMETRES)
        train = _taken(cars, np.concatenate([others[HELD_OUT:], late[:LATE_TO_TRAIN_ON]]))
        return cls(train, changed, complete, kind.astype(str), len(late))

    def described(self, row: int) -> str:
        """Return a new car in words."""
        return f"19{self.complete['year'][row]:.0f}, {self.complete['origin'][row]}"


@dataclass(frozen=True)
class Answers:
    """Predictions of the new cars, by column, and their truth."""

    columns: Mapping[str, NDArray[Any]]
    truth: NDArray[np.float64]

    @cached_property
    def sources(self) -> list[str]:
        return [name.removeprefix("share_") for name in self.columns if name.startswith("share_")]

    def variance(self, source: str, rows: Any = slice(None)) -> float:
        """Return the variance that a source causes, on average over rows."""
        return float((self.columns[f"share_{source}"] * self.columns["std"] ** 2)[rows].mean())

    def std(self, rows: Any) -> float:
        return math.sqrt(float((self.columns["std"] ** 2)[rows].mean()))

    def error(self, rows: Any) -> float:
        """Return the root mean squared error."""
        return math.sqrt(float(((self.columns["mean"] - self.truth) ** 2)[rows].mean()))

    def own_doubt(self, rows: Any) -> float:
        """Return the standard deviation that the choices of training cause together."""
        given = ("unexplained", "gaps", "outside")
        return math.sqrt(sum(self.variance(source, rows) for source in self.sources if source not in given))

    def inside(self, rows: Any) -> NDArray[np.bool_]:
        """True for each row whose interval holds the truth."""
        return ((self.columns["lower"] <= self.truth) & (self.truth <= self.columns["upper"]))[rows]

    def interval(self, row: int) -> str:
        return f"{self.columns['lower'][row]:.0f} to {self.columns['upper'][row]:.0f}"


def run(out: Path, seed: int = 0, *, quick: bool = False, quiet: bool = False, opens: bool = False) -> None:
    """Fit a model to the cars, predict those that were held out, and say what causes the doubt about each.

    out: folder for the tables, the run, a picture and the report.
    seed: seed of the split and of the model (default 0).
    quick: train fewer networks for fewer epochs (default False).
    quiet: show no sign of progress (default False).
    opens: open the report in the browser, if there is a display (default False).
    """
    console = Console(highlight=False)
    out.mkdir(parents=True, exist_ok=True)
    cars = Cars.drawn(seed)
    console.print(
        f"\n[bold]The data[/bold]: {len(cars.train[TARGET]) + len(cars.kind)} cars of 1970 to 1982. To predict: "
        f"miles per gallon (mpg), from {', '.join(MEASURED)} and origin.\n"
        f"{len(cars.train[TARGET])} cars are used to train, {len(cars.kind)} are held out. Of the {cars.late} cars "
        f"{RARE}, only {LATE_TO_TRAIN_ON} are in training. {len(HIDDEN)} held-out cars have missing values. "
        "One has its displacement in cubic centimetres instead of cubic inches.\n"
    )
    with nullcontext() if quiet else console.status("Training, about 15 seconds of processor time ..."):
        less: dict[str, Any] = dict(draws=2, epochs=20) if quick else {}
        model = wf.fit(cars.train, TARGET, likelihood="gaussian", seed=seed, **less)
        answers = Answers(_predicted(model, cars.new), cars.complete[TARGET])
    _print_scores(console, model, cars, answers)
    _print_causes(console, cars, answers)
    _print_gaps(console, model, cars, answers)
    _print_other_unit(console, cars, answers)
    _print_combinations(console, model, cars)

    _save_picture(console, cars, answers, out / "cars.png")
    page = model.report(out / "report.html", cars.new)
    _write_tables(out, cars)
    model.save(out / "run", overwrite=True)
    console.print(
        f"The report on the held-out cars is in [bold]{page}[/bold].\n\n"
        "To do the same by hand (for your own table, change the names):\n\n"
        f"  wherefrom fit {out / 'train.csv'} --target {TARGET} --out my-run\n"
        f"  wherefrom predict my-run {out / 'new.csv'} --out predictions.csv\n",
        soft_wrap=True,
    )
    if opens and has_display():
        webbrowser.open(page.resolve().as_uri())


def has_display() -> bool:
    """True if somebody watches, and a browser can open a window."""
    can_open = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return sys.stdout.isatty() and can_open


# ---------------------------------------------------------------------- the cars


def _all_cars() -> Columns:
    try:
        from mlxtend.data import autompg_data
    except ImportError:
        raise ImportError("the demo needs mlxtend for its data: pip install 'wherefrom[demo]'") from None
    x, y = autompg_data()
    cars: Columns = {"car": np.array([f"C{number:03d}" for number in range(len(y))])}
    cars |= dict(zip(MEASURED, x[:, : len(MEASURED)].T, strict=True))
    origin = [ORIGINS[int(code)] for code in x[:, len(MEASURED)]]
    return cars | {"origin": np.array(origin), TARGET: np.asarray(y, dtype=np.float64)}


def _taken(cars: Columns, rows: NDArray[np.int64]) -> Columns:
    return {name: values[rows] for name, values in cars.items()}


def _predicted(model: Any, cars: Columns) -> dict[str, NDArray[Any]]:
    with warnings.catch_warnings():  # that values lie outside the training range is what the demo tells
        warnings.simplefilter("ignore")
        return {name: np.asarray(values) for name, values in model.predict(cars).items()}


def _write_tables(out: Path, cars: Cars) -> None:
    for name, table in (("train.csv", cars.train), ("new.csv", cars.new)):
        cells = (["" if value is None else _plain(value) for value in row] for row in zip(*table.values(), strict=True))
        atomic.write_csv(out / name, list(table), cells)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


# ---------------------------------------------------------------------- what is printed


def _print_scores(console: Console, model: Any, cars: Cars, answers: Answers) -> None:
    usual = cars.kind == USUAL
    inside = answers.inside(usual)
    console.print(
        f"[bold]1. An interval for each car.[/bold] The model: {_models(model)}. For {usual.sum()} held-out cars like "
        f"those of training, the error is ± {answers.error(usual):.1f} mpg (± {answers.truth[usual].std():.1f} if all "
        f"cars got the same answer). The 95% interval contains the truth for {inside.sum()} of them; "
        f"{0.95 * len(inside):.0f} ± {math.sqrt(0.95 * 0.05 * len(inside)):.0f} were expected.\n"
    )


def _models(model: Any) -> str:
    words = {"network": "networks", "trees": "boosted trees", "process": "a Gaussian process"}
    weights = {each["name"]: each["weight"] for each in model.about.get("families", ()) if each["weight"]}
    if len(weights) < 2:
        return f"{len(model.posterior)} networks"
    named = [f"{words[name]} (weight {weight:.0%})" for name, weight in weights.items()]
    return f"{', '.join(named[:-1])} and {named[-1]}"


def _print_causes(console: Console, cars: Cars, answers: Answers) -> None:
    groups = {kind: cars.kind == kind for kind in (USUAL, RARE, GAPS, OTHER_UNIT)}
    table = _table("cause of the doubt", *groups)
    table.add_row("number of cars", *(str(rows.sum()) for rows in groups.values()))
    table.add_row("doubt (standard deviation), mpg", *(f"{answers.std(rows):.1f}" for rows in groups.values()))
    table.add_row("error, mpg", *(f"{answers.error(rows):.1f}" for rows in groups.values()), end_section=True)
    for source in sorted(answers.sources, key=list(WORDS).index):
        shares = [answers.variance(source, rows) / answers.std(rows) ** 2 for rows in groups.values()]
        table.add_row(WORDS[source], *(f"{share:.0%}" for share in shares))
    doubts = {kind: answers.own_doubt(rows) for kind, rows in groups.items()}
    choices = [source for source in answers.sources if source not in ("unexplained", "gaps", "outside", "together")]
    most = max(choices, key=lambda source: answers.variance(source, groups[RARE]))
    console.print("[bold]2. What causes the doubt[/bold], for each kind of car:\n")
    console.print(table)
    console.print(
        f"\nTraining hardly saw cars {RARE}. For them, training choices alone cause a doubt of ± {doubts[RARE]:.1f} "
        f"mpg; for usual cars it is ± {doubts[USUAL]:.1f}. The largest single cause: {WORDS[most]}. More such cars in "
        "training would lower this doubt. They would not lower what the columns do not explain.\n"
    )


def _print_gaps(console: Console, model: Any, cars: Cars, answers: Answers) -> None:
    columns = answers.columns
    rows = np.flatnonzero(cars.kind == GAPS)
    measured = {name: values.copy() for name, values in cars.new.items()}
    for row in rows.tolist():
        if column := columns["measure_next"][row]:
            measured[column][row] = cars.complete[column][row]
    later = Answers(_predicted(model, measured), answers.truth)
    table = _table("car", "missing", "95% interval", "measure next", "interval then", "truth")
    for row in rows.tolist():
        table.add_row(
            cars.described(row),
            ", ".join(HIDDEN[row]),
            answers.interval(row),
            f"{columns['measure_next'][row]} (-{columns['expected_fall'][row]:.0%})",
            later.interval(row),
            f"{answers.truth[row]:.0f}",
        )
    console.print("[bold]3. What to measure next.[/bold] Missing values are drawn many times, from similar cars:\n")
    console.print(table)
    console.print(
        "\nIn brackets: by how much the variance falls on average, once the value is measured. For a single car, a "
        "surprising value can also widen the interval.\n"
    )


def _print_other_unit(console: Console, cars: Cars, answers: Answers) -> None:
    (row,) = np.flatnonzero(cars.kind == OTHER_UNIT).tolist()
    low, high = np.quantile(cars.train[TARGET], (0.025, 0.975))
    console.print(
        f"[bold]4. A row that makes no sense.[/bold] One car ({cars.described(row)}) is marked as unusual: "
        f"{escape(answers.columns['why'][row])}. Its interval is {answers.interval(row)}, nearly that of any car "
        f"({low:.0f} to {high:.0f}): the model does not trust the row, and answers as if it knew nothing about the "
        f"car. The truth is {answers.truth[row]:.0f}.\n"
    )


def _print_combinations(console: Console, model: Any, cars: Cars) -> None:
    """Print the scores of usual cars if only some of the choices are treated as uncertain."""
    posterior = model.posterior
    has_families = posterior.design.families is not None
    usual = {name: values[cars.kind == USUAL] for name, values in cars.new.items()}
    rows = model.labelled(usual)
    names = posterior.design.names
    table = _table("treated as uncertain", "models", "error", "NLL", "95% interval covers")
    for subset in [*itertools.chain.from_iterable(itertools.combinations(names, size) for size in (0, 1)), names]:
        with warnings.catch_warnings():  # a part may have too few members to calibrate it by
            warnings.simplefilter("ignore")
            part = posterior if subset == names else posterior.marginalising(*subset)
            prediction = rows.answer(part)
        words = (
            "all of them" if subset == names else " and ".join(WORDS[column_of(name, has_families)] for name in subset)
        )
        table.add_row(
            "all of them" if subset == names else words or "nothing (one network)",
            str(len(part)),
            f"{prediction.rmse(rows.truth):.2f}",
            f"{prediction.nll(rows.truth):.2f}",
            f"{prediction.coverage(rows.truth, 0.95):.0%}",
        )
    console.print("[bold]5. Which choices matter.[/bold] The same models predict with any subset of the choices:\n")
    console.print(table)
    console.print(
        f"\nScores of the {len(rows)} usual cars. NLL scores the whole distribution; lower is better. The report has "
        "every combination.\n"
    )


def _save_picture(console: Console, cars: Cars, answers: Answers, path: Path) -> None:
    """Draw intervals against the truth, and the causes of the doubt for each kind of car, into a file."""
    try:
        figure = plots.new_figure(11.0, 4.6, layout="constrained")
    except ImportError as error:
        console.print(f"No picture: {error}", markup=False)
        return
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    columns = answers.columns
    plots.intervals_against_truth(answers.truth, columns["mean"], columns["lower"], columns["upper"], TARGET, ax=left)
    kinds = (OTHER_UNIT, GAPS, RARE, USUAL)  # from the bottom to the top
    reached = np.zeros(len(kinds))
    colours = plots.colour_of(tuple(WORDS)) | {"unexplained": plots.NOISE_COLOUR}
    for source, words in WORDS.items():
        if source in answers.sources:
            part = np.array([answers.variance(source, cars.kind == kind) for kind in kinds])
            part /= np.array([answers.std(cars.kind == kind) ** 2 for kind in kinds])
            right.barh(kinds, part, left=reached, label=words, color=colours[source])
            reached += part
    right.set(xlabel="share of the doubt", xlim=(0, 1))
    figure.legend(*right.get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(path, dpi=90)
    console.print(f"A picture of all held-out cars is in [bold]{path}[/bold].", soft_wrap=True)


def _table(first: str, *others: str) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right" if name not in ("missing", "measure next") else "left")
    return table
