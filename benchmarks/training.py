"""Training many small networks: a plain PyTorch loop, this library's engines, JAX, and the bare matrix products.

One run, interleaved: in every round each contestant trains all members of a shape for about a second, and ratios are
taken within the round. What is printed is the median over rounds, of processor and wall time for one optimiser step
of ALL members (batch order, gather, dropout 0.01 and the optimiser's step included). Absolute times mean little on a
shared machine; the ratios do.

    python benchmarks/training.py [--rounds 7] [--shape concrete] [--markdown docs/benchmarks.md]

JAX takes part if it can be imported. To keep it out of the environment, give it a folder of its own:

    python -m pip install --no-deps --target FOLDER jax jaxlib ml_dtypes opt_einsum
    PYTHONPATH=FOLDER python benchmarks/training.py
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from contestants import Contestant, bare_products, engine, plain_loop
from shapes import SHAPES, Shape
from wherefrom.table import Table
from wherefrom.training.workers import available_cores

SECONDS = 1.0  # of each contestant in a round, so that what a call costs before its first step hardly counts

LOOP = "plain PyTorch loop"
TORCH, TORCH_2 = "torch engine, 1 worker", "torch engine, 2 workers"
NATIVE, NATIVE_2 = "native engine, 1 worker", "native engine, 2 workers"
JAX, JAX_TUNED = "JAX as usually written", "JAX tuned by hand"
PRODUCTS = "bare matrix products, 1 core"
NEEDS = {NATIVE: "numba", NATIVE_2: "numba", JAX: "jax", JAX_TUNED: "jax"}


class Times(NamedTuple):
    """Seconds for a step of all members, one number for each round."""

    cpu: list[float]
    wall: list[float]


Clock = Literal["cpu", "wall"]
Results = dict[str, Times]  # of the contestants that can be imported


# ---------------------------------------------------------------------- measuring


def contestants(shape: Shape) -> dict[str, Contestant]:
    field = {LOOP: plain_loop(shape), TORCH: engine(shape, "torch", 1), TORCH_2: engine(shape, "torch", 2)}
    if find_spec("numba"):
        field |= {NATIVE: engine(shape, "native", 1), NATIVE_2: engine(shape, "native", 2)}
    if find_spec("jax"):
        import jax_contestants

        field |= {JAX: jax_contestants.usual(shape), JAX_TUNED: jax_contestants.tuned(shape)}
    return field | {PRODUCTS: bare_products(shape)}


def measure(shape: Shape, rounds: int) -> Results:
    field = contestants(shape)
    units = {name: enough_units(contestant) for name, contestant in field.items()}
    results = {name: Times([], []) for name in field}
    for _ in range(rounds):
        for name, contestant in field.items():
            steps = units[name] * contestant.steps
            began, began_cpu = time.perf_counter(), time.process_time()
            contestant.run(units[name])
            results[name].cpu.append((time.process_time() - began_cpu) / steps)
            results[name].wall.append((time.perf_counter() - began) / steps)
    return results


def enough_units(contestant: Contestant) -> int:
    """How many units fill a round; on the way there, everything is compiled, recorded and touched once."""
    contestant.run(1)
    units = 1
    while True:
        began = time.perf_counter()
        contestant.run(units)
        took = time.perf_counter() - began
        if took > SECONDS / 4:
            return math.ceil(units * SECONDS / took)
        units *= 4


def speed(results: Results, name: str, against: str, clock: Clock) -> float | None:
    """How many times as fast one contestant is as another, or None if one of them is not there."""
    if name not in results or against not in results:
        return None
    pairs = zip(getattr(results[against], clock), getattr(results[name], clock), strict=True)
    return statistics.median(other / own for other, own in pairs)


# ---------------------------------------------------------------------- what is printed


def step_table(results: Results) -> Table:
    rows = []
    for name in (LOOP, TORCH, TORCH_2, NATIVE, NATIVE_2, JAX, JAX_TUNED, PRODUCTS):
        if name not in results:
            rows.append((name, f"no {NEEDS[name]}", "-", "-", "-"))
            continue
        each_step = [f"{1e6 * statistics.median(times):,.1f}" for times in results[name]]
        rows.append((name, *each_step, *(number(speed(results, name, LOOP, clock)) for clock in ("cpu", "wall"))))
    return Table(("", "CPU us/step", "wall us/step", "x loop (CPU)", "x loop (wall)"), rows)


NATIVE_COLUMNS: dict[str, Callable[[Results], float | None]] = {
    "plain loop": lambda results: speed(results, NATIVE, LOOP, "cpu"),
    "torch engine": lambda results: speed(results, NATIVE, TORCH, "cpu"),
    "JAX as usually written": lambda results: speed(results, NATIVE, JAX, "cpu"),
    "JAX tuned by hand": lambda results: speed(results, NATIVE, JAX_TUNED, "cpu"),
    "2 workers against 1 (wall)": lambda results: speed(results, NATIVE_2, NATIVE, "wall"),
}


def native_table(results: Results) -> Table:
    cells = tuple(number(column(results)) for column in NATIVE_COLUMNS.values())
    return Table(("native engine, x", *NATIVE_COLUMNS), [("1 worker (CPU)", *cells)])


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


# ---------------------------------------------------------------------- what is written


def markdown(measured: dict[Shape, Results], rounds: int) -> str:
    def against_loop(results: Results) -> list[str]:
        both = [
            " / ".join(number(speed(results, name, LOOP, clock)) for clock in ("cpu", "wall"))
            if name in results
            else "-"
            for name in (JAX, JAX_TUNED)
        ]
        return [
            number(speed(results, TORCH, LOOP, "cpu")),
            number(speed(results, NATIVE, LOOP, "cpu")),
            number(speed(results, NATIVE_2, LOOP, "wall")),
            *both,
            number(speed(results, PRODUCTS, LOOP, "cpu")),
        ]

    missing = [f"{name} is not installed: its columns are empty." for name in ("numba", "jax") if not find_spec(name)]
    return "\n".join(
        [
            "# Training, side by side",
            "",
            "Written by `make bench`; [How it trains](training.md#what-it-costs) says what it means.",
            "",
            f"{date.today().isoformat()}, {machine()}; {', '.join(versions())}. Medians of {rounds} interleaved rounds.",
            *missing,
            "",
            "## How many times as fast as a plain PyTorch loop",
            "",
            "Processor time unless said; for JAX, which takes all cores, processor / wall time.",
            "",
            *rows_of(
                [
                    "plain loop = 1",
                    "torch engine",
                    "native engine, 1 worker",
                    "native engine, 2 workers (wall)",
                    "JAX as usually written",
                    "JAX tuned by hand",
                    "bare matrix products",
                ],
                {shape: against_loop(results) for shape, results in measured.items()},
            ),
            "",
            "## How many times as fast the native engine is as the others",
            "",
            "Processor time, one worker; the last column is wall time.",
            "",
            *rows_of(
                ["native engine", *NATIVE_COLUMNS],
                {s: [number(column(r)) for column in NATIVE_COLUMNS.values()] for s, r in measured.items()},
            ),
            "",
        ]
    )


def rows_of(columns: list[str], rows: dict[Shape, list[str]]) -> list[str]:
    cells = [columns, ["---", *["---:"] * (len(columns) - 1)], *([f"{s.name}: {s}", *row] for s, row in rows.items())]
    return [f"| {' | '.join(row)} |" for row in cells]


def machine() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {available_cores()} cores"


def versions() -> list[str]:
    return [f"{name} {version(name)}" for name in ("torch", "numba", "jax") if find_spec(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shape", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write a summary of all shapes to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured: dict[Shape, Results] = {}
    for shape in SHAPES:
        if arguments.shape in (None, shape.name):
            measured[shape] = measure(shape, arguments.rounds)
            print(f"\n{shape.name}: {shape}")
            print(step_table(measured[shape]))
            print(f"\n{native_table(measured[shape])}", flush=True)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(measured, arguments.rounds), encoding="utf-8")


if __name__ == "__main__":
    main()
