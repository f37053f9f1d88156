"""Train the two sets of networks, and let them answer once for every kind of sampling; everything else is arithmetic.

Each of them is kept in a folder as soon as it is there, if one is named: an interrupted run goes on from it, and an
evaluation can be redone without a training.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import wherefrom as wf
from wherefrom.files import atomic, folders
from wherefrom.files.digests import digest
from wherefrom.files.reading import read_tensors
from wherefrom.predictive.class_scores import entropy
from wherefrom.reproduce.cifar10.data import Images
from wherefrom.reproduce.cifar10.presets import OURS, Kind, Preset, Rates, Regime
from wherefrom.reproduce.cifar10.shift import CORRUPTIONS, SEVERITIES, corrupt
from wherefrom.reproduce.long_runs import other_settings
from wherefrom.training.executor import Executor
from wherefrom.training.workers import available_cores, one_core
from wherefrom.variables import Design

TEST = "test"  # the part of the exam that is CIFAR's own
_MOST_ROWS = 20_000  # images that are answered at a time


@dataclass(frozen=True, eq=False)
class Exam:
    """All images to be answered, in one row: CIFAR's own test images, corrupted ones, and other things."""

    x: Tensor  # (images, 3, 32, 32)
    parts: dict[str, slice]  # "test", "noise 1", ..., "fashion"
    labels: dict[str, Tensor]  # of the parts that have any

    @classmethod
    def of(cls, test: Images, spoiled: Images, others: dict[str, Tensor], seed: int) -> Exam:
        """`spoiled` are the images to corrupt, in every way and at every severity."""
        each = {TEST: test.x}
        for name in CORRUPTIONS:
            for severity in SEVERITIES:
                each[f"{name} {severity}"] = corrupt(spoiled.x, name, severity, seed)
        labels = {name: test.y if name == TEST else spoiled.y for name in each}
        each |= others
        parts, start = {}, 0
        for name, x in each.items():
            parts[name] = slice(start, start + len(x))
            start += len(x)
        return cls(torch.cat(list(each.values())), parts, labels)

    @property
    def digest(self) -> str:
        return digest(self.x)


class Answers(NamedTuple):
    """Answers of every member to every image, the mean over its samples."""

    probabilities: Tensor  # (members, images, classes)
    entropies: Tensor  # (members, images): the mean entropy of single samples

    def of(self, part: slice) -> Answers:
        return Answers(self.probabilities[:, part], self.entropies[:, part])


@dataclass
class Kept:
    """Results that are there already, with their costs: in a folder, or in this run's memory alone.

    Its settings are those of the trainings: answers know their own.
    """

    folder: Path | None
    settings: dict[str, Any]
    costs: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        path = self.folder / "settings.json"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.write_text(path, json.dumps(self.settings, indent=1) + "\n")
        if other := other_settings(json.loads(path.read_text(encoding="utf-8")), self.settings):
            raise ValueError(f"{self.folder} was made with other settings ({other}): name another folder as --runs")
        if (self.folder / "costs.json").exists():
            self.costs = json.loads((self.folder / "costs.json").read_text(encoding="utf-8"))

    @contextmanager
    def costing(self, what: str) -> Iterator[None]:
        """Add up what something costs, also over several runs."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        cost = self.costs.setdefault(what, {"cpu_seconds": 0.0, "wall_seconds": 0.0})
        cost["cpu_seconds"] = round(cost["cpu_seconds"] + time.process_time() - cpu, 2)
        cost["wall_seconds"] = round(cost["wall_seconds"] + time.perf_counter() - wall, 2)
        if self.folder is not None:
            atomic.write_text(self.folder / "costs.json", json.dumps(self.costs, indent=1) + "\n")


@dataclass(frozen=True)
class Machine:
    """A device and its precision."""

    device: torch.device
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    executor: Executor | None = None

    @property
    def portion(self) -> int:
        """Members that are trained before they are kept."""
        if self.executor is not None:
            return max(2, self.executor.width)
        return max(2, available_cores()) if self.device.type == "cpu" else 2


# ---------------------------------------------------------------------- trainings


def train(
    preset: Preset,
    regime: Regime,
    rates: Rates,
    data: Images,
    seed: int,
    machine: Machine,
    kept: Kept,
    report: Callable[[int], None] | None = None,
) -> wf.Posterior:
    """Train one of the two sets, a few members at a time; `report` is called with the epochs done."""
    posterior = _found(preset, regime, rates, data, machine, kept)
    checkpoints = kept.folder and kept.folder / "checkpoints"
    how = wf.Compute(progress=report or False, checkpoints=checkpoints, executor=machine.executor)
    if posterior and report:
        report(len(posterior) * preset.epochs)
    while posterior is None or len(posterior) < preset.members:
        with kept.costing(f"training, {rates} rates"):
            if posterior is None:
                posterior = wf.marginalise(
                    preset.training(regime),
                    (data.x, data.y),
                    preset.over(rates, min(machine.portion, preset.members), len(data)),
                    seed,
                    compute=replace(how, device=machine.device, dtype=machine.dtype, autocast=machine.autocast),
                )
            else:
                more = min(machine.portion, preset.members - len(posterior))
                posterior = posterior.extend(theta0=more, compute=how)
        if kept.folder and checkpoints:
            posterior.save(kept.folder / rates)
            shutil.rmtree(checkpoints, ignore_errors=True)
    return posterior if len(posterior) == preset.members else posterior.select(theta0=range(preset.members))


def _found(
    preset: Preset, regime: Regime, rates: Rates, data: Images, machine: Machine, kept: Kept
) -> wf.Posterior | None:
    """The members that an earlier run has kept, with the code that a file cannot hold."""
    if kept.folder is None or not folders.is_run(kept.folder / rates):
        return None
    posterior = wf.load(kept.folder / rates, preset.model(regime), (data.x, data.y), machine.device)
    design = Design.of(preset.over(rates, len(posterior), len(data)))
    how = replace(posterior.compute, autocast=machine.autocast)
    return replace(posterior, training=preset.training(regime), design=design, compute=how)


# ---------------------------------------------------------------------- answers


def answer(posterior: wf.Posterior, rates: Rates, kind: Kind, samples: int, exam: Exam, kept: Kept) -> Answers:
    """Return every member's answers to the whole exam, with this many samples of what is sampled."""
    name = "+".join(kind) or "none"
    path = kept.folder and kept.folder / f"answers-{rates}-{name}.safetensors"
    about = {"exam": exam.digest, "members": str(len(posterior)), "samples": str(samples)}
    if path and path.exists():
        metadata, tensors = read_tensors(path)
        if about.items() <= metadata.items():
            return Answers(tensors["probabilities"], tensors["entropies"])
    with kept.costing(f"answers, {rates} rates, {name} sampled"):
        part = posterior.marginalising("theta0", *(OURS[one] for one in kind))
        blocks = [_reduced(part.predict(x, samples)) for x in exam.x.split(_MOST_ROWS)]
        answers = Answers(*(torch.cat(several, dim=1) for several in zip(*blocks, strict=True)))
    if path:
        atomic.write_tensors(path, answers._asdict(), about)
    return answers


@one_core()
def _reduced(prediction: wf.ClassPrediction) -> Answers:
    each = prediction.log_probabilities.double().exp()  # (members, samples, images, classes); none is zero
    return Answers(each.mean(1), entropy(each).mean(1))
