"""One-shot prediction against Monte Carlo: time, memory, and how far each is from very many samples.

For a table's network with one hidden layer, one with three, and a small VGG: 5 members (3 for the VGG), SWAG of rank 20
and dropout. Processor time is the median of interleaved rounds on one thread, with everything warm. The error is the
root mean square over rows of the relative error of the standard deviation, against a reference of so many samples that
its own error hardly counts. The last column says how many samples Monte Carlo would need for the same error, from its
error at K = 30, which falls with the square root of K.

With --data, also the networks of the UCI study (the first fold of each set, as in its first table): the median over
test rows and members of the relative error of the standard deviation, against 10,000 samples.

    python benchmarks/one_shot.py [--rounds 9] [--data folder] [--markdown docs/one_shot_measured.md]
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import wherefrom as wf
from wherefrom.reproduce import datasets
from wherefrom.reproduce.uci import study
from wherefrom.reproduce.uci.setups import SETUPS


@dataclass(frozen=True)
class Problem:
    """A posterior, rows to predict, which variables are marginalised, and samples for the reference."""

    name: str
    posterior: wf.Posterior
    x: Any
    covariances: tuple[str, ...]
    reference: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--data", type=Path, help="folder with the UCI sets")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| network | prediction | CPU ms | as fast as K = 100 | MB | error of std | samples for the same error |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for problem in problems():
        for line in measured(problem, asked.rounds):
            lines.append(line)
            print(line, flush=True)
    if asked.data:
        lines += ["", *uci(asked.data)]
    if asked.markdown:
        asked.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def problems() -> list[Problem]:
    table, deep, vgg = table_posterior(one_layer), table_posterior(three_layers), image_posterior()
    rows = np.random.default_rng(1).normal(size=(1000, 8))
    images = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    everything, both = ("diagonal", "low_rank", "full"), ("diagonal", "low_rank")
    found = []
    for name, posterior in (("8-50-1", table), ("8-100-100-100-1", deep)):
        found += [
            Problem(f"{name}, M", posterior.marginalising("theta0", "F"), rows, ("diagonal", "full"), 10_000),
            Problem(f"{name}, t", posterior.marginalising("theta0", "t"), rows, everything, 10_000),
            Problem(f"{name}, M + t", posterior, rows, everything, 10_000),
        ]
    return [
        *found,
        Problem("small VGG, M", vgg.marginalising("theta0", "F"), images, ("diagonal",), 2000),
        Problem("small VGG, t", vgg.marginalising("theta0", "t"), images, both, 2000),
        Problem("small VGG, M + t", vgg, images, both, 2000),
    ]


def uci(root: Path) -> list[str]:
    """How good it is on real networks: each way of marginalising, and each covariance."""
    ways = {
        "M": (("theta0", "F"), 20, "diagonal"),
        "t, SWAG's diagonal alone": (("theta0", "t"), 0, "diagonal"),
        "t, low_rank": (("theta0", "t"), 20, "low_rank"),
        "M + t, low_rank": (("theta0", "t", "F"), 20, "low_rank"),
        "t, diagonal": (("theta0", "t"), 20, "diagonal"),
    }
    lines = [f"| | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    print(*lines, sep="\n", flush=True)
    for name in datasets.NAMES:
        data = datasets.load(name, root)
        splits = datasets.splits(len(data[1]), 1)
        test = data[0][splits[0][1]][:500]
        trained = {
            rank: study.train(replace(SETUPS["main"], rank=rank), name, data, splits)[0][1][0] for rank in (0, 20)
        }
        cells = []
        for names, rank, covariance in ways.values():
            part = trained[rank].marginalising(*names)
            many, one = part.predict(test, 10_000).answers.double().std(1), part.one_shot(test, covariance=covariance)
            assert one.spread is not None
            errors = (one.spread[:, 0].double().sqrt() / many - 1)[many > 0]
            cells.append(f"{100 * float(errors.abs().median()):.1f}%")
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def measured(problem: Problem, rounds: int) -> list[str]:
    posterior, x = problem.posterior, problem.x
    ways: dict[str, Callable[[], wf.Prediction]] = {
        "Monte Carlo, K = 30": lambda: posterior.predict(x, 30),
        "Monte Carlo, K = 100": lambda: posterior.predict(x, 100),
    }
    for covariance in problem.covariances:
        ways[f"one-shot, {covariance}"] = lambda kind=covariance: posterior.one_shot(x, covariance=kind)
    reference = posterior.predict(x, problem.reference, seed=1).std
    for way in ways.values():  # records and compiles
        for _ in range(3):
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            seconds[name].append(time.process_time() - begun)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    errors = {name: float((way().std / reference - 1).square().mean().sqrt()) for name, way in ways.items()}
    at_30 = errors["Monte Carlo, K = 30"]
    lines = []
    for name, way in ways.items():
        gain, same = median["Monte Carlo, K = 100"] / median[name], 30 * (at_30 / errors[name]) ** 2
        cells = [problem.name, name, f"{1000 * median[name]:.1f}", f"{gain:.1f}", f"{memory(way):.0f}"]
        lines.append(f"| {' | '.join([*cells, f'{100 * errors[name]:.1f}%', f'{same:,.0f}'])} |")
    return lines


def memory(way: Callable[[], object]) -> float:
    """How much more the process holds at most while it predicts, in MB; Linux tells."""
    clear, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not clear.exists():
        return float("nan")

    def now(what: str) -> int:
        found = re.search(rf"{what}:\s+(\d+) kB", status.read_text())
        assert found
        return int(found[1])

    clear.write_text("5")
    before = now("VmRSS")
    way()
    return (now("VmHWM") - before) / 1024


# ---------------------------------------------------------------------- what is predicted with


def one_layer() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Dropout(0.01), nn.Linear(50, 1))


def three_layers() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(8, 100), nn.ReLU(), nn.Dropout(0.01)),
        *(nn.Linear(100, 100), nn.ReLU(), nn.Dropout(0.01)),
        *(nn.Linear(100, 100), nn.ReLU(), nn.Dropout(0.01)),
        nn.Linear(100, 1),
    )


def table_posterior(model: Callable[[], nn.Module]) -> wf.Posterior:
    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 8))
    y = 3 * x[:, 0] - np.abs(x[:, 1]) + x[:, 2] * x[:, 3] + 0.3 * random.normal(size=1000)
    training = wf.Training(model, wf.Algorithm("adam", lr=0.01, batch_size=100), epochs=60)
    return wf.marginalise(training, (x, y), [*wf.recipes.multi_swag(5), wf.Dropout()])


def small_vgg() -> nn.Module:
    def block(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
        return nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()

    return nn.Sequential(
        *(*block(3, 16), *block(16, 16), nn.MaxPool2d(2), nn.Dropout(0.05)),
        *(*block(16, 32), *block(32, 32), nn.MaxPool2d(2), nn.Dropout(0.05)),
        *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, 1)),
    )


def image_posterior() -> wf.Posterior:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 3, 16, 16, generator=generator)
    y = 20 * x.mean((1, 2, 3)) + x[:, 0, :8].mean((1, 2)) * 5
    training = wf.Training(small_vgg, wf.Algorithm("adam", lr=0.002, batch_size=50), epochs=24)
    return wf.marginalise(training, (x, y), [*wf.recipes.multi_swag(3, rank=10), wf.Dropout()])


if __name__ == "__main__":
    main()
