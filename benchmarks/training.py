"""Training many small networks: a plain PyTorch loop, this library's engines, JAX, and the bare matrix products.

One run, interleaved: in every round each contestant trains all members of a shape for a second or two, and ratios
are taken within the round. What is printed is the median over rounds, of processor and wall time for one optimiser
step of ALL members (batch order, gather, dropout 0.01 and the optimiser's own step included). Absolute times mean
little on a shared machine; the ratios do.

    python benchmarks/training.py [--rounds 7] [--shape concrete] [--markdown docs/benchmarks.md]

JAX takes part if it can be imported. To keep it out of the environment, give it a folder of its own:

    python -m pip install --no-deps --target FOLDER jax jaxlib ml_dtypes opt_einsum
    PYTHONPATH=FOLDER python benchmarks/training.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from importlib import import_module
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch

from contestants import Contestant, bare_products, engine, plain_loop
from setting import setting
from shapes import SHAPES, Shape
from wherefrom.table import Table

SECONDS = 1.0  # of each contestant in a round, at least: what a call costs before its first step should hardly count

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
    if importable("numba"):
        field |= {NATIVE: engine(shape, "native", 1), NATIVE_2: engine(shape, "native", 2)}
    if importable("jax"):
        import jax_contestants

        field |= {JAX: jax_contestants.usual(shape), JAX_TUNED: jax_contestants.tuned(shape)}
    return field | {PRODUCTS: bare_products(shape)}


def importable(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def measure(field: dict[str, Contestant], rounds: int) -> Results:
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
    while wall_time(contestant, units) < SECONDS:
        units *= 2
    return units


def wall_time(contestant: Contestant, units: int) -> float:
    began = time.perf_counter()
    contestant.run(units)
    return time.perf_counter() - began


def speed(results: Results, name: str, against: str, clock: Clock) -> float:
    """How many times as fast one contestant is as another."""
    pairs = zip(getattr(results[against], clock), getattr(results[name], clock), strict=True)
    return statistics.median(other / own for other, own in pairs)


# ---------------------------------------------------------------------- comparisons


class Comparison(NamedTuple):
    """One column of a table: a contestant's speed as a multiple of another's."""

    title: str
    name: str
    against: str
    clocks: tuple[Clock, ...] = ("cpu",)

    def cell(self, results: Results) -> str:
        for name in (self.name, self.against):
            if name not in results:
                return f"no {NEEDS[name]}"
        return " / ".join(number(speed(results, self.name, self.against, clock)) for clock in self.clocks)


WITH_THE_LOOP = (
    Comparison("torch engine, 1 worker", TORCH, LOOP),
    Comparison("native engine, 1 worker", NATIVE, LOOP),
    Comparison("native engine, 2 workers (wall)", NATIVE_2, LOOP, ("wall",)),
    Comparison("JAX as usually written", JAX, LOOP, ("cpu", "wall")),
    Comparison("JAX tuned by hand", JAX_TUNED, LOOP, ("cpu", "wall")),
    Comparison("bare matrix products", PRODUCTS, LOOP),
)
OF_THE_NATIVE_ENGINE = (
    Comparison("plain loop", NATIVE, LOOP),
    Comparison("torch engine", NATIVE, TORCH),
    Comparison("JAX as usually written", NATIVE, JAX),
    Comparison("JAX tuned by hand", NATIVE, JAX_TUNED),
    Comparison("2 workers against 1 (wall)", NATIVE_2, NATIVE, ("wall",)),
)


def step_table(results: Results) -> Table:
    rows = []
    for name in (LOOP, TORCH, TORCH_2, NATIVE, NATIVE_2, JAX, JAX_TUNED, PRODUCTS):
        if name in results:
            each_step = (f"{1e6 * statistics.median(times):,.1f}" for times in results[name])
            rows.append((name, *each_step, *(number(speed(results, name, LOOP, clock)) for clock in get_args(Clock))))
        else:
            rows.append((name, f"no {NEEDS[name]}", "", "", ""))
    return Table(("", "CPU us/step", "wall us/step", "x loop (CPU)", "x loop (wall)"), rows)


def native_table(results: Results) -> Table:
    rows = [(column.title, column.cell(results)) for column in OF_THE_NATIVE_ENGINE]
    return Table(("native engine, 1 worker, against", "x (CPU)"), rows)


ELSEWHERE = """\
## Beside other libraries

`make peers` runs torch-uncertainty, lightning-uq-box, laplace-torch, posteriors, ivon-opt, bde, fortuna, probly,
skorch, CatBoost, LightGBM and NGBoost beside this library, each in its own virtual environment: training, prediction,
memory, start-up, NLL, CRPS and coverage on the same splits, with the same network, epochs, batches, learning rate and
members.
[The page](../benchmarks/results/peers.md) begins with how often this library wins and loses, and lists every loss.

## How costs grow

`make growth` measures CPU time and memory against members, rows, columns, parameters, samples, draws and the rows of a
report, each point in a process of its own. [The page](../benchmarks/results/growth.md) has the exponents, with errors.

![CPU time and memory by size](images/growth.png)
"""


def markdown(measured: dict[Shape, Results], rounds: int) -> str:
    return f"""# Training, side by side

Written by `make bench`. [How it trains](training.md#what-it-costs) says what it means.

{setting("torch", "numba", "jax", rounds=rounds)}

## How many times as fast as a plain PyTorch loop

Processor time unless said; for JAX, which uses all cores, processor / wall time.

{_markdown_table("plain loop = 1", WITH_THE_LOOP, measured)}

## How many times as fast the native engine is as the others

Processor time, one worker; the last column is wall time.

{_markdown_table("native engine", OF_THE_NATIVE_ENGINE, measured)}

{ELSEWHERE}"""


def _markdown_table(title: str, columns: tuple[Comparison, ...], measured: dict[Shape, Results]) -> str:
    rows = [(title, *(column.title for column in columns)), ("---", *["---:"] * len(columns))]
    rows += [(f"{s.name}: {s}", *(column.cell(results) for column in columns)) for s, results in measured.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def number(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


# ---------------------------------------------------------------------- the program


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
            measured[shape] = measure(contestants(shape), arguments.rounds)
            print(f"\n{shape.name}: {shape}")
            print(step_table(measured[shape]))
            print(f"\n{native_table(measured[shape])}", flush=True)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(measured, arguments.rounds), encoding="utf-8")


if __name__ == "__main__":
    main()
