"""Training on a GPU: a plain PyTorch loop, torch.func, JAX if it is there, and this library, side by side in one run.

The shapes are those of training.py and convnet.py, and a VGG16 of full width. In every round each contestant trains all
members of a shape for a second or so; what is printed is the median over rounds of the wall time for one optimiser step
of ALL members (batch order, gather, dropout and the optimiser's step included), and how many times as fast as the plain
loop that is. The device is waited for before each clock is read.

    python benchmarks/gpu.py [--device cuda] [--rounds 5] [--shape concrete] [--out gpu.md]

This library was tested on a pretended device and not yet timed on hardware: please send us what this prints.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import convnet
from contestants import by_torch_func, engine, plain_loop
from convnet import VGG16, cohort_of
from setting import setting
from shapes import SHAPES, Shape
from training import importable
from wherefrom.devices import wait_for
from wherefrom.table import Table
from wherefrom.training.compute import Compute

SECONDS = 1.0  # of each contestant in a round, at least
LOOP, FUNC, JAX, JAX_TUNED = "plain loop", "torch.func", "JAX as usually written", "JAX tuned by hand"
OURS, OURS_PLAIN = "wherefrom", "wherefrom without graphs"
CONVOLVING = [
    *(shape for shape in convnet.SHAPES if shape.name in ("tiny", "digits", "VGG16 x 1/8")),
    convnet.Shape("VGG16", lambda: VGG16(batch_norm=True), (3, 32, 32), 128, 2, 1),
]


@dataclass(frozen=True)
class Job:
    """Work that is measured: `run(units)`, each of so many optimiser steps of all members."""

    run: Callable[[int], None]
    steps: float


@contextmanager
def graphs(on: bool) -> Iterator[None]:
    before = os.environ.get("WHEREFROM_GRAPHS")
    os.environ["WHEREFROM_GRAPHS"] = "1" if on else "0"
    try:
        yield
    finally:
        os.environ.pop("WHEREFROM_GRAPHS")
        os.environ |= {} if before is None else {"WHEREFROM_GRAPHS": before}


def with_graphs(run: Callable[[int], None], on: bool) -> Callable[[int], None]:
    def set_and_run(units: int) -> None:
        with graphs(on):
            run(units)

    return set_and_run


# ---------------------------------------------------------------------- contestants


def of_table(shape: Shape, device: torch.device) -> dict[str, Job]:
    field = {LOOP: plain_loop(shape, device), FUNC: by_torch_func(shape, device)}
    if importable("jax"):
        import jax_contestants

        field |= {JAX: jax_contestants.usual(shape), JAX_TUNED: jax_contestants.tuned(shape)}
    jobs = {name: Job(contestant.run, contestant.steps) for name, contestant in field.items()}
    ours = engine(shape, "torch", 1, device)
    return jobs | {
        OURS: Job(with_graphs(ours.run, True), ours.steps),
        OURS_PLAIN: Job(with_graphs(ours.run, False), ours.steps),
    }


def of_images(shape: convnet.Shape, device: torch.device, autocast: torch.dtype | None) -> dict[str, Job]:
    cohort = replace(cohort_of(shape), autocast=autocast)
    cohort.network.to(device)

    def ours(epochs: int) -> None:
        Compute(device, engine="torch").train([replace(cohort, epochs=epochs)], lambda _: None)

    return {
        LOOP: Job(convnet.plain_loop(shape, True, device, autocast), 4),
        OURS: Job(with_graphs(ours, True), 4),
        OURS_PLAIN: Job(with_graphs(ours, False), 4),
    }


# ---------------------------------------------------------------------- measuring


def measured(field: dict[str, Job], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Return seconds for a step of all members, one number for each round."""
    units = {name: enough(job, device) for name, job in field.items()}
    times: dict[str, list[float]] = {name: [] for name in field}
    for _ in range(rounds):
        for name, job in field.items():
            times[name].append(seconds(job, units[name], device) / (units[name] * job.steps))
    return times


def enough(job: Job, device: torch.device) -> int:
    """Return how many units fill a round; on the way there, everything is compiled and captured once."""
    units = 1
    seconds(job, units, device)
    while seconds(job, units, device) < SECONDS:
        units *= 2
    return units


def seconds(job: Job, units: int, device: torch.device) -> float:
    wait_for(device)
    began = time.perf_counter()
    job.run(units)
    wait_for(device)
    return time.perf_counter() - began


def row(name: str, times: dict[str, list[float]]) -> tuple[str, ...]:
    cells = [name]
    for contestant in (LOOP, FUNC, JAX, JAX_TUNED, OURS, OURS_PLAIN):
        if contestant not in times:
            cells.append("")
            continue
        ratio = statistics.median(a / b for a, b in zip(times[LOOP], times[contestant], strict=True))
        cells.append(f"{1e6 * statistics.median(times[contestant]):,.0f} us, {ratio:.1f}x")
    return tuple(cells)


# ---------------------------------------------------------------------- what is sent


def description(device: torch.device) -> str:
    """Return the device, its driver and the libraries, as a list in Markdown."""
    lines = []
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        lines += [
            f"{about.name}, {about.total_memory / 2**30:.0f} GiB, compute capability {about.major}.{about.minor}",
            f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
            f"TF32 in convolutions {torch.backends.cudnn.allow_tf32}, matmul {torch.backends.cuda.matmul.allow_tf32}",
        ]
    if importable("jax"):
        import jax

        lines.append(f"JAX on {jax.devices()[0]}")
    return "\n".join(f"- {line}" for line in [f"device {device}", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", action="append", help="only these, by name")
    parser.add_argument("--out", type=Path, help="a file for the tables, in Markdown")
    given = parser.parse_args()
    device = Compute(given.device).torch_device
    rows = []
    for shape in SHAPES:
        if not given.shape or shape.name in given.shape:
            rows.append(row(str(shape), measured(of_table(shape, device), given.rounds, device)))
            print(*rows[-1], sep=" | ", flush=True)
    for images in CONVOLVING:
        for autocast in (None, torch.bfloat16):
            if not given.shape or images.name in given.shape:
                name = f"{images}, {autocast or torch.float32}".replace("torch.", "")
                rows.append(row(name, measured(of_images(images, device, autocast), given.rounds, device)))
                print(*rows[-1], sep=" | ", flush=True)
    columns = ("one step of all members", LOOP, FUNC, JAX, JAX_TUNED, OURS, OURS_PLAIN)
    about = setting("torch", "wherefrom", "jax", rounds=given.rounds)
    text = f"# Training on a GPU\n\n{about}\n{description(device)}\n\n{Table(columns, rows).markdown()}\n"
    if given.out:
        given.out.write_text(text)
    print(f"\n{text}\nPlease send us this{f', the file {given.out},' if given.out else ''} in an issue: thank you.")


if __name__ == "__main__":
    main()
