"""`wherefrom reproduce cifar10`: train what is not kept, score every combination, and write tables and pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import wherefrom as wf
from wherefrom.reproduce import long_runs
from wherefrom.reproduce.cifar10 import data, picture, scores, shift, study, tables
from wherefrom.reproduce.cifar10.data import Images
from wherefrom.reproduce.cifar10.presets import (
    COMBINATIONS,
    PRESETS,
    Kind,
    Preset,
    Rates,
    Regime,
    kind_of,
    kinds_of,
    rates_of,
)
from wherefrom.reproduce.cifar10.scores import Scores
from wherefrom.reproduce.cifar10.study import Answers, Exam, Kept, Machine
from wherefrom.training.executor import Executor
from wherefrom.training.workers import available

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Request:
    """The options of the command."""

    preset: str = "cpu"
    epochs: int | None = None
    members: int | None = None
    samples: int | None = None
    width: float | None = None
    batch_norm: bool | None = None
    start: float | None = None  # of SWAG
    schedule: str | None = None
    augment: bool | None = None  # only this regime
    dropout: float | None = None
    device: str = "cpu"
    dtype: str = "float32"
    autocast: bool | None = None  # on a GPU
    data: Path | None = None
    out: Path | None = None  # results/cifar10/<preset>
    runs: Path | None = None
    executor: Executor | None = None
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ValueError(f"there is no preset {self.preset!r}; there are {', '.join(PRESETS)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"--dtype must be float32 or float64, not {self.dtype!r}")
        self.scale  # noqa: B018 - complains about what it cannot be

    @property
    def scale(self) -> Preset:
        """The preset with whatever was asked for instead."""
        names = ("epochs", "members", "samples", "width", "batch_norm", "start", "schedule", "augment", "dropout")
        return PRESETS[self.preset].but(**{name: getattr(self, name) for name in names})

    @property
    def machine(self) -> Machine:
        device = available(self.device)
        halved = self.autocast if self.autocast is not None else device.type == "cuda"
        return Machine(device, DTYPES[self.dtype], torch.bfloat16 if halved else None, self.executor)

    @property
    def folder(self) -> Path:
        return self.out or Path("results/cifar10") / self.preset

    @property
    def command(self) -> str:
        """The command line, without what changes no number."""
        usual = Request()
        named = ("epochs", "members", "samples", "width", "start", "schedule", "dropout", "seed")
        options = {name: getattr(self, name) for name in named}
        options |= {
            name: value for name in ("device", "dtype") if (value := getattr(self, name)) != getattr(usual, name)
        }
        options |= {"batch-norm": self.batch_norm, "augment": self.augment, "autocast": self.autocast}
        return long_runs.command_line("cifar10", {"preset": self.preset} | options)


def run(request: Request) -> None:
    """The whole study: trainings, answers, scores, and the files that show them."""
    preset = request.scale
    long_runs.check_folder(request.folder)
    train, exam, counts = images(preset, request.data, request.seed, request.progress)
    print(tables.described(preset.settings, counts))
    by_regime: dict[str, Scores] = {}
    arms: dict[str, Arm] = {}
    then = "with --runs FOLDER it could have gone on"
    if request.runs:
        then = f"what is finished is in {request.runs}, and the same command goes on from here"
    total = 2 * len(preset.regimes) * preset.members * preset.epochs
    with long_runs.going_on(lambda: then), long_runs.bar("training", total, request.progress) as bar:
        for regime in preset.regimes:
            bar.line(tables.regime_title(regime))
            arms[regime.name] = arm = run_regime(request, regime, train, exam, bar.line, bar.done)
            by_names = {names: arm.answers[rates_of(names), kind_of(names)] for names in COMBINATIONS}
            by_regime[regime.name] = scores.scored(by_names, exam, request.seed)
    write(request, by_regime, summary_of(request, counts, arms))


@dataclass(frozen=True)
class Arm:
    """The result of one regime: its two sets of networks, their answers, and their costs."""

    posteriors: dict[Rates, wf.Posterior]
    answers: dict[tuple[Rates, Kind], Answers]
    kept: Kept


def run_regime(
    request: Request,
    regime: Regime,
    train: Images,
    exam: Exam,
    say: Callable[[str], None],
    done: Callable[[int], None],
) -> Arm:
    """Train both sets of networks in one regime, and let them answer the exam."""
    preset, machine = request.scale, request.machine
    precision = {"dtype": request.dtype, "autocast": str(machine.autocast)}
    settings = preset.trained_with | asdict(regime) | precision | {"seed": request.seed}
    arm = Arm({}, {}, Kept(request.runs and request.runs / regime.name, settings))
    for rates in ("fixed", "drawn"):
        arm.posteriors[rates] = study.train(preset, regime, rates, train, request.seed, machine, arm.kept, done)
        cost = _cost(arm.kept, f"training, {rates} rates")
        say(f"trained {len(arm.posteriors[rates])} networks with {rates} rates: {cost}")
    for rates, posterior in arm.posteriors.items():
        for kind in kinds_of(rates):
            arm.answers[rates, kind] = study.answer(posterior, rates, kind, preset.samples, exam, arm.kept)
            name = "+".join(kind) or "none"
            cost = _cost(arm.kept, f"answers, {rates} rates, {name} sampled")
            say(f"answered {len(exam.x):,} images with {rates} rates, {name} sampled: {cost}")
    return arm


def images(preset: Preset, root: Path | None, seed: int, progress: bool | None) -> tuple[Images, Exam, dict[str, Any]]:
    """Return the images to train on and to answer, and how many of each there are."""
    others: dict[str, Tensor]
    if preset.is_made:
        train, test = data.made(preset.train_images or 100, seed), data.made(preset.test_images or 100, seed + 1)
        static = torch.rand(preset.other_images, *data.SHAPE, generator=torch.Generator().manual_seed(seed))
        others = {"static": static}
    else:
        everything, tests = data.load(root, progress)
        train, test = everything.some(preset.train_images), tests.some(preset.test_images)
        others = shift.other_sets(root, preset.other_images)
    spoiled = test.some(preset.shifted_images)
    counts = {
        "train": len(train),
        "test": len(test),
        "shifted": len(spoiled),
        "others": {name: len(x) for name, x in others.items()},
    }
    return train, Exam.of(test, spoiled, others, seed), counts


def summary_of(request: Request, counts: dict[str, Any], arms: dict[str, Arm]) -> dict[str, Any]:
    """Return the history of the numbers: command, versions, costs, settings."""
    preset, machine = request.scale, request.machine

    def total(what: str) -> dict[str, float]:
        every = [item for arm in arms.values() for item in arm.kept.costs.items()]
        return {
            part: round(sum(cost[what] for name, cost in every if name.startswith(part)), 2)
            for part in ("training", "answers")
        }

    device = torch.cuda.get_device_name(machine.device) if machine.device.type == "cuda" else machine.device.type
    return {
        "command": request.command,
        "seed": request.seed,
        "versions": long_runs.versions(),
        "device": f"{device}, {os.cpu_count()} cores" if machine.device.type == "cpu" else device,
        "autocast": str(machine.autocast).removeprefix("torch."),
        "cpu_seconds": total("cpu_seconds"),
        "wall_seconds": total("wall_seconds"),
        "peak_memory_mb": round(long_runs.peak_memory()),
        "preset": preset.settings,
        "images": counts,
        "regimes": {name: _arm_summary(arm, preset) for name, arm in arms.items()},
    }


def _arm_summary(arm: Arm, preset: Preset) -> dict[str, Any]:
    """The costs, the networks, and their mean training loss when SWAG starts and at the end."""

    def mean_loss(rates: Rates, epoch: int) -> float:
        losses = [component.trained.losses[epoch] for component in arm.posteriors[rates].mixture]
        return sum(losses) / len(losses)

    moments = {"start": max(0, preset.first_collected - 1), "end": preset.epochs - 1}
    return {
        "costs": arm.kept.costs,
        "training_loss": {
            rates: {name: round(mean_loss(rates, epoch), 4) for name, epoch in moments.items()}
            for rates in arm.posteriors
        },
        "networks": {rates: list(posterior.members()) for rates, posterior in arm.posteriors.items()},
    }


def write(request: Request, by_regime: dict[str, Scores], summary: dict[str, Any]) -> None:
    """Write the files, and print the main tables on the terminal."""
    folder, regimes = request.folder, request.scale.regimes
    scores.write(folder / "scores.csv", by_regime)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "table.md").write_text(tables.page(by_regime, regimes, summary), encoding="utf-8")
    if long_runs.can_draw():
        of = f"CIFAR-10, {request.preset} preset" if not request.scale.is_made else "Made images, no CIFAR-10"
        picture.draw_sizes(by_regime, regimes, folder / "figure.png", of)
        picture.draw_shift(by_regime, regimes, folder / "shift.png", of)
    for regime in regimes:
        scores_of_regime = by_regime[regime.name]
        print(f"\n{tables.regime_title(regime)}")
        print(tables.training_loss(summary, regime))
        for shown in (
            tables.main_table(scores_of_regime),
            tables.by_size_difference(scores_of_regime),
            tables.by_severity(scores_of_regime, "nll"),
            *([tables.other_things(scores_of_regime)] if scores_of_regime.others else []),
        ):
            print(f"\n{shown}")
    print(f"\n{tables.LETTERS}\n{tables.cost(summary)}.")
    for name in ("scores.csv", "summary.json", "table.md", "figure.png", "shift.png"):
        if (folder / name).exists():
            print(folder / name)


def _cost(kept: Kept, what: str) -> str:
    cost = kept.costs.get(what, {"cpu_seconds": 0.0, "wall_seconds": 0.0})
    return f"{cost['cpu_seconds']:.0f} s of CPU time, {cost['wall_seconds']:.0f} s of wall time"
