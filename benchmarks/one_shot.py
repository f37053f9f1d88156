"""One-shot prediction against Monte Carlo: time, memory, and how far each is from very many samples.

For a table's network with one hidden layer, one with three, and a small VGG: 5 members (3 for the VGG), SWAG of rank 20
(10) and dropout. Processor time is the median of interleaved rounds on one thread, with everything warm. Memory is what
a copy of the process takes more, at most, for the first three predictions. The errors are root mean squares over rows
and members of the relative error of a member's standard deviation, against a reference of so many samples that its own
error hardly counts. The last column says how many samples Monte Carlo would need for the same error, from its error at
K = 30, which falls with the square root of K. With full covariance, which is slow, 20 rows are predicted, and its time
is reckoned up; its error and its memory are those of the 20.

With --data, also the networks of the UCI study (the first fold of each set, as in its first table): the median over
test rows and members of the relative error of the standard deviation, against 10,000 samples; and the same run's time
as a multiple of Monte Carlo's with K = 100.

    python benchmarks/one_shot.py [--rounds 9] [--data folder] [--markdown docs/one_shot_measured.md]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import wherefrom as wf
from setting import setting
from wherefrom.reproduce import datasets
from wherefrom.reproduce.uci import study
from wherefrom.reproduce.uci.setups import SETUPS

UCI = """The networks of the UCI study, first fold: the error of a member's standard deviation, the median over rows and
members, against 10,000 samples; and how many times as fast as Monte Carlo of t with K = 100."""

PICTURE = (
    "![Error against time for SWAG in two networks: with one hidden layer, low_rank has the error of thousands of "
    "samples in the time of a hundred](images/page-one_shot_measured.png)"
)

FULL_ROWS = 20

DIAGONAL, RANK_2, LOW_RANK = {"covariance": "diagonal"}, {"rank": 2}, {"covariance": "low_rank"}
FULL = {"covariance": "full"}
LINEARISED = {"method": "linearised"}


@dataclass(frozen=True)
class Problem:
    """A posterior, rows to predict, ways of one-shot to try, and samples for the reference."""

    name: str
    posterior: wf.Posterior
    x: Any
    ways: tuple[dict[str, Any], ...]
    reference: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--data", type=Path, help="folder with the UCI sets")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "# One-shot prediction, measured",
        "",
        "Written by `benchmarks/one_shot.py`, which says how. [One-shot prediction](one_shot.md) says what it means.",
        "",
        setting("torch", "numba", rounds=asked.rounds),
        "",
        "| network | prediction | CPU ms | times as fast as K = 100 | MB | error of std | samples for the same error |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for problem in problems():
        for line in measured(problem, asked.rounds):
            lines.append(line)
            print(line, flush=True)
    lines += ["", PICTURE]
    if asked.data:
        lines += ["", UCI, "", *uci(asked.data, asked.rounds)]
    if asked.markdown:
        asked.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def problems() -> list[Problem]:
    table, deep, vgg = table_posterior(one_layer), table_posterior(three_layers), image_posterior()
    rows = np.random.default_rng(1).normal(size=(1000, 8))
    images = torch.randn(32, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    found = []
    for name, posterior in (("8-50-1", table), ("8-100-100-100-1", deep)):
        swag = (DIAGONAL, RANK_2, LOW_RANK, FULL)
        found += [
            Problem(f"{name}, M", posterior.marginalising("theta0", "F"), rows, (DIAGONAL, FULL), 10_000),
            Problem(f"{name}, t", posterior.marginalising("theta0", "t"), rows, (*swag, LINEARISED), 10_000),
            Problem(f"{name}, M + t", posterior, rows, swag, 10_000),
        ]
    return [
        *found,
        Problem("small VGG, M", vgg.marginalising("theta0", "F"), images, (DIAGONAL,), 1000),
        Problem(
            "small VGG, t", vgg.marginalising("theta0", "t"), images, (DIAGONAL, RANK_2, LOW_RANK, LINEARISED), 1000
        ),
        Problem("small VGG, M + t", vgg, images, (DIAGONAL, RANK_2, LOW_RANK), 1000),
    ]


def uci(root: Path, rounds: int) -> list[str]:
    """How good it is on real networks: each way of marginalising, and each covariance."""
    ways: dict[str, tuple[tuple[str, ...], int, dict[str, Any]]] = {
        "M": (("theta0", "F"), 20, DIAGONAL),
        "t, SWAG's diagonal alone": (("theta0", "t"), 0, DIAGONAL),
        "t, low_rank": (("theta0", "t"), 20, LOW_RANK),
        "M + t, low_rank": (("theta0", "t", "F"), 20, LOW_RANK),
        "t, rank=2": (("theta0", "t"), 20, RANK_2),
        "t, diagonal": (("theta0", "t"), 20, DIAGONAL),
    }
    lines = [f"| | {' | '.join(ways)} | t, K = 30 |", "|---" * (len(ways) + 2) + "|"]
    print(*lines, sep="\n", flush=True)
    for name in datasets.NAMES:
        data = datasets.load(name, root)
        splits = datasets.splits(len(data[1]), 1)
        test = data[0][splits[0][1]][:500]
        trained = {
            rank: study.train(replace(SETUPS["main"], rank=rank), name, data, splits)[0][1][0] for rank in (0, 20)
        }
        cells, K_100 = [], partial(trained[20].marginalising("theta0", "t").predict, test, 100)
        for names, rank, how in ways.values():
            part = trained[rank].marginalising(*names)
            many, way = _std(part.predict(test, 10_000)), partial(part.one_shot, test, **how)
            seconds = timed({"K = 100": K_100, "one-shot": way}, rounds)
            error = (_std(way()) / many - 1)[many > 0].abs().median()
            cells.append(f"{100 * float(error):.1f}% ({seconds['K = 100'] / seconds['one-shot']:.1f}x)")
            if how == RANK_2:
                few = (_std(part.predict(test, 30)) / many - 1)[many > 0].abs().median()
        lines.append(f"| {name} | {' | '.join(cells)} | {100 * float(few):.1f}% |")
        print(lines[-1], flush=True)
    return lines


def measured(problem: Problem, rounds: int) -> list[str]:
    posterior, x = problem.posterior, problem.x
    ways: dict[str, Callable[[], wf.Prediction]] = {
        "Monte Carlo, K = 30": lambda: posterior.predict(x, 30),
        "Monte Carlo, K = 100": lambda: posterior.predict(x, 100),
    }
    for how in problem.ways:
        rows = x[:FULL_ROWS] if how == FULL else x
        words = ", ".join(f"{name}={value}" if name == "rank" else str(value) for name, value in how.items())
        if how == LINEARISED:
            ways[words] = partial(posterior.predict, rows, **how)
        else:
            ways[f"one-shot, {words}"] = partial(posterior.one_shot, rows, **how)
    for _ in range(2):  # loads what is loaded when it is first needed
        posterior.predict(x[:2], 2), posterior.one_shot(x[:2])
    megabytes = {name: memory(way) for name, way in ways.items()}
    reference = _std(posterior.predict(x, problem.reference, seed=1))
    seconds = timed(ways, rounds)
    errors = {}
    for name, way in ways.items():
        own = _std(way())
        errors[name] = float((own / reference[:, : own.shape[1]] - 1).square().mean().sqrt())
        seconds[name] *= len(x) / own.shape[1]
    at_30 = errors["Monte Carlo, K = 30"]
    lines = []
    for name in ways:
        gain, same = seconds["Monte Carlo, K = 100"] / seconds[name], 30 * (at_30 / errors[name]) ** 2
        cells = [problem.name, name, f"{1000 * seconds[name]:.1f}", f"{gain:.3g}", f"{megabytes[name]:.1f}"]
        lines.append(f"| {' | '.join([*cells, f'{100 * errors[name]:.1f}%', f'{same:,.0f}'])} |")
    return lines


def timed(ways: dict[str, Callable[[], wf.Prediction]], rounds: int) -> dict[str, float]:
    """Processor seconds of each, by turns."""
    for way in ways.values():  # records and compiles
        for _ in range(3):
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            seconds[name].append(time.process_time() - begun)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _std(prediction: wf.Prediction) -> torch.Tensor:
    """Each member's own, of its answers.  # (members, rows, outputs)"""
    mixture = prediction.mixture
    if mixture.spread is None:
        return mixture.answers.double().std(1)
    return mixture.spread[:, 0].double().sqrt()


def memory(way: Callable[[], object]) -> float:
    """How much more a copy of this process takes, at most, to predict three times, in MB; Linux tells."""
    told, tell = os.pipe()
    if os.fork() == 0:
        try:
            before = _largest()
            for _ in range(3):
                way()
            os.write(tell, f"{(_largest() - before) / 1024}".encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as answer:
        said = answer.read()
    os.wait()
    return float(said)


def _largest() -> int:
    """The most memory that this process has had, in kB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


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
