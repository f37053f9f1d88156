"""Training convolutional networks: all members in one program, one at a time, and a plain loop; and the choice made.

One run, interleaved: in every round each contestant trains all members of a shape, and medians are taken over the
rounds. What is printed is the processor time for one optimiser step of ONE member (batch order, gather and the
optimiser's own step included; what comes before the first step is taken off by training longer and shorter), and what
the engine chose. The plain loop is measured in torch's usual order of memory and with channels last.

`--two-cores` measures something else, by the clock: two members of the largest network on two cores, as a user trains
them, with SWAG and checkpoints, beside plain loops with channels last, by two threads of torch and by two processes.

    python benchmarks/convnet.py [--rounds 5] [--shape tiny] [--two-cores] [--markdown docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import wherefrom as wf
from setting import setting
from wherefrom.reproduce.cifar10.vgg import VGG16
from wherefrom.table import Table
from wherefrom.training import streams
from wherefrom.training.algorithm import Algorithm
from wherefrom.training.cohort import Cohort, Examples, Trainee
from wherefrom.training.losses import CrossEntropy
from wherefrom.training.network import Network
from wherefrom.training.torch_engine import TorchEngine
from wherefrom.training.workers import one_core

CPU = torch.device("cpu")
ALGORITHM = {"lr": 0.01, "momentum": 0.9, "weight_decay": 3e-4}
LOOP, LOOP_LAST = "plain loop", "plain loop, channels last"
TOGETHER, ALONE = "all together", "one at a time"
HEADING, HEADING_OF_TWO = "## Convolutional networks", "## Convolutional networks on two cores"
THREADS_OF_TORCH, LOOP_PROCESSES = "plain loop, two threads of torch", "plain loops, two processes"
OURS_THREADS, OURS_PROCESSES = "marginalise, two threads", "marginalise, two processes"


@dataclass(frozen=True)
class Shape:
    """Members, their network, their images and their batches."""

    name: str
    network: Callable[[], nn.Module]
    image: tuple[int, int, int]
    batch_size: int
    members: int
    epochs: int  # that are measured, of four steps each

    def __str__(self) -> str:
        size = "x".join(map(str, self.image))
        return f"{self.name}: {self.members} members, images {size}, batch {self.batch_size}"

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        source = torch.Generator().manual_seed(0)
        rows = 4 * self.batch_size
        x = torch.randn(rows, *self.image, generator=source)
        return x, torch.randint(10, (rows, 1), generator=source).float()


def two_layers(image: tuple[int, int, int], width: int) -> Callable[[], nn.Module]:
    channels, size, _ = image

    def network() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(2 * width * (size // 4) ** 2, 10)),
        )

    return network


SHAPES = [
    Shape("tiny", two_layers((1, 8, 8), 8), (1, 8, 8), 32, 8, 12),
    Shape("small", two_layers((3, 16, 16), 8), (3, 16, 16), 32, 8, 6),
    Shape("digits", two_layers((1, 28, 28), 8), (1, 28, 28), 32, 8, 4),
    Shape("medium", two_layers((3, 32, 32), 16), (3, 32, 32), 64, 4, 2),
    Shape("VGG16 x 1/8", lambda: VGG16(width=0.125, batch_norm=True), (3, 32, 32), 128, 2, 1),
    Shape("VGG16 x 1/4", lambda: VGG16(width=0.25, batch_norm=True), (3, 32, 32), 128, 2, 1),
]


# ---------------------------------------------------------------------- contestants


def plain_loop(
    shape: Shape, last: bool, device: torch.device = CPU, autocast: torch.dtype | None = None
) -> Callable[[int], None]:
    """As one writes it: a loop over members, batches by index, torch.optim."""
    x, y = (each.to(device) for each in shape.data())
    labels, order = y[:, 0].long(), torch.channels_last if last else torch.contiguous_format

    def run(epochs: int) -> None:
        for _ in range(shape.members):
            network = shape.network().train().to(device).to(memory_format=order)
            optimiser = torch.optim.SGD(network.parameters(), **ALGORITHM)
            for _ in range(epochs):
                for batch in torch.randperm(len(x), device=device).split(shape.batch_size):
                    optimiser.zero_grad()
                    with torch.autocast(device.type, autocast, autocast is not None):
                        outputs = network(x[batch].contiguous(memory_format=order))
                        loss = nn.functional.cross_entropy(outputs, labels[batch])
                    loss.backward()
                    optimiser.step()

    return run


def cohort_of(shape: Shape) -> Cohort:
    examples = Examples(*shape.data())
    network = Network(shape.network(), examples.x[:4])
    settings = Algorithm("sgd", batch_size=shape.batch_size, **ALGORITHM).settings
    members = tuple(
        Trainee(network.theta(shape.network()), settings, streams.key(0, "order", k), streams.key(0, "masks", k), 0)
        for k in range(shape.members)
    )
    return Cohort(network, "sgd", shape.batch_size, 1, CrossEntropy(), members, (examples,), None)


def engine(cohort: Cohort, group: int) -> Callable[[int], None]:
    """The torch engine with groups of so many members."""
    network = cohort.network.private(("benchmark", group))
    network.largest_group = lambda _: group  # type: ignore[method-assign]
    own = replace(cohort, network=network)

    def run(epochs: int) -> None:
        trainer = TorchEngine(replace(own, epochs=epochs), CPU)
        for places in trainer.groups(1):
            trainer.train(own.members[places.start : places.stop], lambda _: None)

    return run


# ---------------------------------------------------------------------- measuring


def measure(shape: Shape, rounds: int) -> tuple[dict[str, list[float]], str]:
    """Seconds for a step of one member, one number for each round; and what the engine chose."""
    cohort = cohort_of(shape)
    field = {
        LOOP: plain_loop(shape, False),
        LOOP_LAST: plain_loop(shape, True),
        TOGETHER: engine(cohort, shape.members),
        ALONE: engine(cohort, 1),
    }
    times: dict[str, list[float]] = {name: [] for name in field}
    for run in field.values():
        run(1)
    for _ in range(rounds):
        for name, run in field.items():
            longer, shorter = _seconds(run, 1 + shape.epochs), _seconds(run, 1)
            times[name].append((longer - shorter) / (4 * shape.epochs * shape.members))
    return times, ALONE if cohort.network.largest_group(shape.batch_size) < shape.members else TOGETHER


def _seconds(run: Callable[[int], None], epochs: int, clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    run(epochs)
    return clock() - began


# ---------------------------------------------------------------------- two cores


def _in_a_process(shape: str, epochs: int, together: Any) -> None:
    """Train one member of a shape by a plain loop on one core; its seconds are from when all are ready."""
    torch.set_num_threads(1)
    (chosen,) = (each for each in SHAPES if each.name == shape)
    run = plain_loop(replace(chosen, members=1), True)
    together.wait()
    run(epochs)
    together.wait()


def loop_on_threads(shape: Shape) -> Callable[[int], float]:
    run = plain_loop(shape, True)

    def seconds(epochs: int) -> float:
        torch.set_num_threads(2)
        try:
            return _seconds(run, epochs, time.perf_counter)
        finally:
            torch.set_num_threads(1)

    return seconds


def loops_in_processes(shape: Shape) -> Callable[[int], float]:
    context = multiprocessing.get_context("spawn")

    def seconds(epochs: int) -> float:
        together = context.Barrier(1 + shape.members)
        given = shape.name, epochs, together
        processes = [context.Process(target=_in_a_process, args=given) for _ in range(shape.members)]
        for process in processes:
            process.start()
        together.wait()
        began = time.perf_counter()
        together.wait()
        took = time.perf_counter() - began
        for process in processes:
            process.join()
        return took

    return seconds


def ours(shape: Shape, executor: Any = None) -> Callable[[int], float]:
    """As a user trains: marginalise, with SWAG and checkpoints."""
    x, y = shape.data()
    algorithm = wf.Algorithm("sgd", batch_size=shape.batch_size, **ALGORITHM)
    over = [wf.InitialCondition(shape.members), wf.Iterations(wf.SWAG())]

    def run(epochs: int) -> None:
        training = wf.Training(shape.network, algorithm, epochs, wf.Classification(), standardise=False)
        with tempfile.TemporaryDirectory() as folder:
            compute = wf.Compute(engine="torch", workers=2, checkpoints=folder, executor=executor, progress=False)
            wf.marginalise(training, (x, y[:, 0].long()), over, compute=compute)

    return lambda epochs: _seconds(run, epochs, time.perf_counter)


def measure_two_cores(shape: Shape, rounds: int) -> dict[str, list[float]]:
    """Seconds by the clock for a step of one member, one number for each round."""
    field = {
        THREADS_OF_TORCH: loop_on_threads(shape),
        LOOP_PROCESSES: loops_in_processes(shape),
        OURS_THREADS: ours(shape),
        OURS_PROCESSES: ours(shape, wf.executors.Processes(2)),
    }
    times: dict[str, list[float]] = {name: [] for name in field}
    short, long = 4, 12  # epochs; SWAG collects from half of them on
    for seconds in field.values():
        seconds(short)
    for _ in range(rounds):
        for name, seconds in field.items():
            times[name].append((seconds(long) - seconds(short)) / (4 * (long - short) * shape.members))
    return times


def table_of_two(times: dict[str, list[float]]) -> Table:
    fastest = min(statistics.median(times[name]) for name in (THREADS_OF_TORCH, LOOP_PROCESSES))
    rows = [
        (
            name,
            f"{1e3 * statistics.median(each):,.1f}",
            f"{1e3 * min(each):,.1f} to {1e3 * max(each):,.1f}",
            f"{statistics.median(each) / fastest:.2f}",
        )
        for name, each in times.items()
    ]
    return Table(("", "ms for a member's step", "from, to", "of the faster plain loop"), rows)


def markdown_of_two(found: Table, shape: Shape, rounds: int) -> str:
    lines = [found.columns, ["---", *["---:"] * (len(found.columns) - 1)], *found.rows]
    return f"""{HEADING_OF_TWO}

Written by `benchmarks/convnet.py --two-cores`: milliseconds by the clock for one step of one member, {shape}. Training
by `marginalise` has SWAG and checkpoints; the plain loops have neither.

{setting("torch", rounds=rounds)}

{chr(10).join(f"| {' | '.join(line)} |" for line in lines)}
"""


def write(path: Path, heading: str, section: str) -> None:
    """Put a section into a page, in the place of the one with its heading."""
    text = path.read_text(encoding="utf-8")
    without = re.sub(rf"\n{re.escape(heading)}\n.*?(?=\n## |\Z)", "", text, flags=re.DOTALL).rstrip()
    path.write_text(f"{without}\n\n{section}", encoding="utf-8")


def table(measured: dict[Shape, tuple[dict[str, list[float]], str]]) -> Table:
    names = (LOOP, LOOP_LAST, TOGETHER, ALONE)
    rows = []
    for shape, (times, chosen) in measured.items():
        each = {name: 1e3 * statistics.median(times[name]) for name in names}
        ratio = each[chosen] / min(each.values())
        rows.append((str(shape), *(f"{each[name]:,.2f}" for name in names), chosen, f"{ratio:.2f}"))
    return Table(("ms for a member's step", *names, "chosen", "chosen / fastest"), rows)


def markdown(found: Table, rounds: int) -> str:
    lines = [found.columns, ["---", *["---:"] * (len(found.columns) - 1)], *found.rows]
    return f"""{HEADING}

Written by `benchmarks/convnet.py`: milliseconds of processor time for one step of one member, SGD with momentum, on
one core. Small networks train together, as one convolution in groups; large ones alone, with channels last.

{setting("torch", rounds=rounds)}

{chr(10).join(f"| {' | '.join(line)} |" for line in lines)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--two-cores", action="store_true", help="measure two members on two cores instead")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the table into a section of this file")
    arguments = parser.parse_args()
    if arguments.two_cores:
        shape = SHAPES[-1]
        table = table_of_two(measure_two_cores(shape, arguments.rounds))
        print(table)
        if arguments.markdown:
            write(arguments.markdown, HEADING_OF_TWO, markdown_of_two(table, shape, arguments.rounds))
        return
    measured = {}
    with one_core():
        for shape in SHAPES:
            if arguments.shape in (None, shape.name):
                measured[shape] = measure(shape, arguments.rounds)
                print(table({shape: measured[shape]}), flush=True)
    print(f"\n{table(measured)}")
    if arguments.markdown:
        write(arguments.markdown, HEADING, markdown(table(measured), arguments.rounds))


if __name__ == "__main__":
    main()
