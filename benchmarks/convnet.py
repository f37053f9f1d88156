"""Training convolutional networks: all members in one program, one at a time, and a plain loop; and the choice made.

One run, interleaved: in every round each contestant trains all members of a shape, and medians are taken over the
rounds. What is printed is the processor time for one optimiser step of ONE member (batch order, gather and the
optimiser's own step included; what comes before the first step is taken off by training longer and shorter), and what
the engine chose. The plain loop is measured in torch's usual order of memory and with channels last.

    python benchmarks/convnet.py [--rounds 5] [--shape tiny] [--markdown docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

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
HEADING = "## Convolutional networks"


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


def _seconds(run: Callable[[int], None], epochs: int) -> float:
    began = time.process_time()
    run(epochs)
    return time.process_time() - began


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
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the table into a section of this file")
    arguments = parser.parse_args()
    measured = {}
    with one_core():
        for shape in SHAPES:
            if arguments.shape in (None, shape.name):
                measured[shape] = measure(shape, arguments.rounds)
                print(table({shape: measured[shape]}), flush=True)
    print(f"\n{table(measured)}")
    if arguments.markdown:
        text = arguments.markdown.read_text(encoding="utf-8")
        without = re.sub(rf"\n{HEADING}.*?(?=\n## |\Z)", "", text, flags=re.DOTALL).rstrip()
        new = f"{without}\n\n{markdown(table(measured), arguments.rounds)}"
        arguments.markdown.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
