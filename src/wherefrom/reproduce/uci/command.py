"""`wherefrom reproduce uci`: train what is not yet there, score it, and write the tables beside the paper's."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from wherefrom.reproduce import datasets, long_runs
from wherefrom.reproduce.uci import beyond, picture, recommended, study, tables
from wherefrom.reproduce.uci.printed import tables as printed_tables
from wherefrom.reproduce.uci.results import Results, go_on, read
from wherefrom.reproduce.uci.setups import SETUPS, Setup
from wherefrom.training.engines import Choice
from wherefrom.training.executor import Executor


@dataclass(frozen=True)
class Request:
    """The options of the command."""

    setup: str = "main"
    sets: tuple[str, ...] = datasets.NAMES
    folds: int | None = None  # all that are published
    epochs: int | None = None
    start: float | None = None
    dropout: float | None = None
    method: Literal["monte_carlo", "one_shot"] = "monte_carlo"
    data: Path | None = None
    out: Path = Path("results/uci")
    seed: int = 0
    engine: Choice | None = None  # native where numba is there
    executor: Executor | None = None
    beyond: bool = False
    fresh: bool = False
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.setup not in SETUPS:
            raise ValueError(f"there is no set-up {self.setup!r}; there are {', '.join(SETUPS)}")
        for name in self.sets:
            if name not in datasets.NAMES:
                raise ValueError(f"there is no set {name!r}; there are {', '.join(datasets.NAMES)}")
        if not self.sets:
            raise ValueError(f"--sets names no set; there are {', '.join(datasets.NAMES)}")
        if self.folds is not None and self.folds < 1:
            raise ValueError(f"--folds must be at least 1, not {self.folds}")
        if self.start is not None and not 0 <= self.start < 1:
            raise ValueError(f"--start is a fraction of the epochs, from 0 to below 1, not {self.start}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"--dropout is a rate, from 0 to below 1, not {self.dropout}")
        if self.method not in ("monte_carlo", "one_shot"):
            raise ValueError(f"--method must be monte_carlo or one_shot, not {self.method!r}")
        if self.engine not in (None, "native", "torch"):
            raise ValueError(f"--engine must be native or torch, not {self.engine!r}")
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"--epochs must be at least 1, not {self.epochs}")
        setup = self.setup_of()
        left = setup.epochs - round(setup.start * setup.epochs)
        if left < 2:
            raise ValueError(
                f"{setup.epochs} epochs leave SWAG {max(0, left)} from {setup.start:g} of them on, and it needs two: "
                "raise --epochs, or lower --start"
            )

    @property
    def chosen_engine(self) -> Choice:
        return self.engine or ("native" if importlib.util.find_spec("numba") else "torch")

    @property
    def command(self) -> str:
        """The command line, without what changes no number."""
        options = {
            "setup": self.setup,
            "sets": ",".join(self.sets) if self.sets != datasets.NAMES else None,
            "folds": self.folds,
            "epochs": self.epochs,
            "start": self.start,
            "dropout": self.dropout,
            "method": self.method if self.method != "monte_carlo" else None,
            "seed": self.seed,
            "engine": self.engine,
            "beyond": self.beyond or None,
        }
        return long_runs.command_line("uci", options)

    @property
    def few_folds(self) -> int | None:
        """Number of folds, if not all of them are asked for."""
        few = self.folds is not None and any(self.folds < datasets.SETS[name].folds for name in self.sets)
        return self.folds if few else None

    def stem(self, name: str) -> str:
        """Stem of the files: other folds or another seed are other results."""
        folds = f"-folds-{self.few_folds}" if self.few_folds else ""
        return name + folds + (f"-seed-{self.seed}" if self.seed else "")

    def caveats(self, setup: Setup) -> list[str]:
        """Why the printed figures may not be ours to compare with."""
        usual = SETUPS[setup.table]
        caveats = []
        if setup.epochs != usual.epochs:
            caveats.append(
                f"{setup.epochs} epochs instead of the paper's {usual.epochs}: not comparable with its figures."
            )
        if self.few_folds:
            caveats.append(f"Only the first {self.few_folds} of the published folds: a sketch.")
        return caveats

    def setup_of(self, **changes: Any) -> Setup:
        asked = {"epochs": self.epochs, "start": self.start, "dropout": self.dropout, "method": self.method}
        wanted = SETUPS[self.setup].but(**asked | changes)
        if not wanted.dropout and wanted.marginalises("M"):
            raise ValueError(f"the set-up {self.setup} marginalises M, the sub-networks of dropout: it needs a rate")
        return wanted


def run(request: Request) -> None:
    """One set-up: its scores, tables and picture; with `beyond`, what the paper does not have."""
    setup = request.setup_of()
    jobs = [_paper(setup)]
    if request.beyond:
        jobs += [_paper(request.setup_of(noise=noise)) for noise in ("fit", "predicted")]
        jobs.append(_recommended(request.epochs))
    begun = [_begin(request, job) for job in jobs]  # all of them, before the first is trained
    results, *others = (train_and_score(request, job, so_far) for job, so_far in zip(jobs, begun, strict=True))
    write_pages(request, setup, results)
    show(request, setup, results)
    if request.beyond:
        fit, predicted, best = others
        path = request.out / f"{results.name}-beyond.md"
        by_noise = {"none": results, "fit": fit, "predicted": predicted}
        page = beyond.page(by_noise, best, setup.combinations)
        path.write_text(page, encoding="utf-8")
        print()
        print(beyond.console_table(by_noise, best, setup.fullest))
        for one in others:
            print(tables.cost(one))
        print(path)


@dataclass(frozen=True)
class _Job:
    """Something to be done for each set, with its own file."""

    name: str
    settings: dict[str, Any]
    work: Callable[[Sequence[study.Split]], int]
    carry_out: Callable[..., study.Outcome]


def _paper(setup: Setup) -> _Job:
    return _Job(setup.name, setup.settings, partial(study.work, setup), partial(study.train_and_score, setup))


def _recommended(epochs: int | None) -> _Job:
    recipe = recommended.Recipe() if epochs is None else recommended.Recipe(most_epochs=epochs)
    return _Job(recipe.name, recipe.settings, recipe.work, recipe.train_and_score)


def _begin(request: Request, job: _Job) -> Results:
    """The file's results so far; whatever would go wrong at its end goes wrong now."""
    path = request.out / f"{request.stem(job.name)}.csv"
    long_runs.check_folder(request.out)
    settings = job.settings | {"folds": request.few_folds, "seed": request.seed}
    return go_on(path, settings, request.sets if request.fresh else (), request.engine)


def train_and_score(request: Request, job: _Job, results: Results) -> Results:
    """Train and score what the file does not hold yet; each set is in the file as soon as it is finished."""
    missing = [name for name in request.sets if name not in results.records]
    loaded = {name: datasets.load(name, request.data) for name in missing}  # before any of them is trained on
    splits = {name: datasets.splits(len(loaded[name][1]), _folds(request, name)) for name in missing}
    work = {name: job.work(splits[name]) for name in missing}
    path = request.out / f"{results.name}.csv"

    def then() -> str:
        there = f"the finished sets are in {path}, and " if path.exists() else ""
        return f"{there}the same command goes on from here"

    with long_runs.going_on(then), long_runs.bar(job.name, sum(work.values()), request.progress, percent=True) as bar:
        if there := [name for name in request.sets if name not in missing]:
            bar.line(f"{job.name}: there already: {', '.join(there)}")
        for number, name in enumerate(missing, 1):
            bar.say(f"{job.name}: {name}, set {number} of {len(missing)}, {len(splits[name])} folds")
            cpu, wall = time.process_time(), time.perf_counter()
            report = None if request.progress is False else bar.done
            how = request.seed, request.chosen_engine, report, request.executor
            outcome = job.carry_out(name, loaded[name], splits[name], *how)
            record = {
                "command": request.command,
                "versions": long_runs.versions(),
                "engine": "+".join(sorted(outcome.engines)),
                "folds": len(splits[name]),
                "training_cpu_seconds": round(outcome.training_seconds, 2),
                "cpu_seconds": round(time.process_time() - cpu, 2),
                "wall_seconds": round(time.perf_counter() - wall, 2),
                "peak_memory_mb": round(long_runs.peak_memory(), 0),
            }
            results.add(name, outcome.scores, record)
            results.write(path)
            bar.line(f"{job.name}: {_sentence(name, record)}")
    return results


def write_pages(request: Request, setup: Setup, results: Results) -> None:
    caveats = request.caveats(setup)
    sampled = request.out / f"{request.stem(setup.but(method='monte_carlo').name)}.csv"
    beside = read(sampled) if setup.method == "one_shot" and sampled.exists() else None
    page = tables.markdown_page(results, setup.table, setup.combinations, caveats, beside)
    (request.out / f"{results.name}.md").write_text(page, encoding="utf-8")
    if long_runs.can_draw():
        picture.draw(
            tables.moments(results, "nll"),
            printed_tables().get((setup.table, "nll"), {}),
            results.sets,
            setup.combinations,
            request.out / f"{results.name}.png",
            " ".join([f"NLL on the UCI sets, {results.name}.", *caveats]),
        )


def show(request: Request, setup: Setup, results: Results) -> None:
    """The tables on the terminal, and where the files are."""
    for metric in ("nll", "rmse"):
        print()
        print(tables.console_table(results, metric, setup.table, setup.combinations))
        for sentence in tables.summary(results, metric, printed_tables().get((setup.table, metric), {})):
            print(sentence)
    print()
    for caveat in request.caveats(setup):
        print(caveat)
    print(tables.LETTERS)
    print("In brackets: the distance from the paper's mean, in its own standard deviations over folds.")
    print(tables.cost(results))
    for path in (request.out / f"{results.name}.{suffix}" for suffix in ("csv", "md", "png")):
        if path.exists():
            print(path)


def _folds(request: Request, name: str) -> int:
    every = datasets.SETS[name].folds
    return every if request.folds is None else min(request.folds, every)


def _sentence(name: str, record: dict[str, Any]) -> str:
    folds = f"{record['folds']:>3} fold{'s' * (record['folds'] != 1)}"
    scoring = record["cpu_seconds"] - record["training_cpu_seconds"]
    return (
        f"{name:<9}{folds}  trained in {record['training_cpu_seconds']:.1f} s, scored in {scoring:.1f} s of CPU time "
        f"({record['engine']})"
    )
