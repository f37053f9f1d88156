"""The native engine beside its limits: bare products, ReLU, JAX, one worker, and the time of a first call.

One run, interleaved, by the contestants and the measuring of `training.py`; see there for JAX. Ratios are of processor
time, medians of the rounds, unless they say wall time.

    python benchmarks/native_speed.py [--rounds 7] [--markdown benchmarks/results/native_speed.md]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from contestants import CPU, Contestant, bare_products, engine, plain_loop
from setting import setting
from shapes import ACTIVATIONS, SHAPES, Shape
from training import JAX_TUNED, LOOP, NATIVE, NATIVE_2, PRODUCTS, Results, importable, measure, number, speed
from wherefrom.laws import TRADI
from wherefrom.table import Table
from wherefrom.training import native
from wherefrom.training.cohort import Cohort, Collection, Examples
from wherefrom.training.losses import SquaredError
from wherefrom.training.network import Network

FIRST_CALL = """
import torch
import wherefrom as wf

x = torch.randn(200, 8)
training = wf.Training(wf.MLP([50]), wf.Algorithm("adam", lr=0.01, batch_size=100), epochs=10)
wf.marginalise(training, (x, x[:, 0]), [wf.InitialCondition(5)], engine="native")
"""


# ---------------------------------------------------------------------- measuring


def field(shape: Shape) -> dict[str, Contestant]:
    some = {
        LOOP: plain_loop(shape),
        NATIVE: engine(shape, "native", 1),
        NATIVE_2: engine(shape, "native", 2),
        PRODUCTS: bare_products(shape),
    }
    if importable("jax") and shape.batch_size == 1:
        import jax_contestants

        some[JAX_TUNED] = jax_contestants.tuned(shape)
    return some


def shape_row(shape: Shape, results: Results) -> tuple[str, ...]:
    inflation = 1 / speed(results, NATIVE_2, NATIVE, "cpu")
    return (
        f"{shape.name}: {shape}",
        number(speed(results, NATIVE, LOOP, "cpu")),
        number(speed(results, PRODUCTS, LOOP, "cpu")),
        f"{speed(results, PRODUCTS, NATIVE, 'cpu'):.2f}",
        f"{speed(results, NATIVE, JAX_TUNED, 'cpu'):.2f}" if JAX_TUNED in results else "-",
        f"{speed(results, NATIVE_2, NATIVE, 'wall'):.2f}",
        f"{inflation:.2f}",
    )


def shapes_table(rounds: int) -> Table:
    rows = []
    for shape in SHAPES:
        rows.append(shape_row(shape, measure(field(shape), rounds)))
        print("  ".join(rows[-1]), flush=True)
    titles = ("x plain loop", "bare products, x plain loop", "time / bare products", "x tuned JAX")
    return Table(("", *titles, "2 workers, x 1 (wall)", "2 workers, CPU time / 1"), rows)


def activations_table(rounds: int) -> Table:
    """A step with each activation over one with ReLU, on a shape with one hidden layer and on one with two."""
    shapes = [shape for shape in SHAPES if shape.name in ("concrete", "deep")]
    measured = [
        measure({name: engine(replace(shape, activation=name), "native", 1) for name in ACTIVATIONS}, rounds)
        for shape in shapes
    ]
    rows = [(name, *(f"{1 / speed(results, name, 'ReLU', 'cpu'):.2f}" for results in measured)) for name in ACTIVATIONS]
    return Table(("time / ReLU", *(shape.name for shape in shapes)), rows)


def first_call_table() -> Table:
    """Seconds of whole processes, from their start to the end of a first native training."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("nothing compiled", "compiled before"):
            environment = os.environ | {"WHEREFROM_CACHE": cache}
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([sys.executable, "-c", FIRST_CALL], env=environment, check=True, capture_output=True)
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            rows.append((name, f"{cpu:.1f}", f"{wall:.1f}"))
    return Table(("a first native training", "CPU s", "wall s"), rows)


def engine_of_tradi() -> str:
    """Return what the native engine says to a training that TRADI watches."""
    shape = SHAPES[0]
    examples = Examples(*shape.data())
    network = Network(shape.network(), examples.x[:4])
    cohort = Cohort(
        network, "adam", shape.batch_size, 1, SquaredError(), (), (examples,), Collection(TRADI(), range(1, 11))
    )
    try:
        native.examine(cohort, CPU)
    except native.Obstacle as reason:
        return f"The native engine leaves TRADI to torch: {reason}."
    return "The native engine trains with TRADI."


# ---------------------------------------------------------------------- the program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the tables to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    tables = [shapes_table(arguments.rounds), activations_table(arguments.rounds), first_call_table()]
    said = engine_of_tradi()
    print(*tables, said, sep="\n\n")
    if arguments.markdown:
        about = (
            f"By benchmarks/native_speed.py. {said} The machine's load was {load:.1f} when the run began: above 1, wall"
        )
        parts = [
            "# The native engine and its limits",
            f"{about} times say nothing.",
            setting("torch", "numba", "jax", rounds=arguments.rounds),
            *(markdown(table) for table in tables),
        ]
        arguments.markdown.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def markdown(table: Table) -> str:
    rows = [table.columns, ("---", *["---:"] * (len(table.columns) - 1)), *table.rows]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


if __name__ == "__main__":
    main()
