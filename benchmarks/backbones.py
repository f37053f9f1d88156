"""Many heads on one frozen backbone: processor time and peak memory of 50 members against one, and a plain loop.

The backbone has the size of a ResNet-50 (23.5 million parameters) and random weights: what it costs does not depend on
them. Each case runs in a process of its own, since a process keeps its largest memory. The plain loops train one head:
one runs the backbone in every step, as most scripts do, of which a single epoch is measured and the others are
reckoned; and one keeps the features of all rows.

    python benchmarks/backbones.py [--rows 256] [--sizes 64 224] [--epochs 20] [--rounds 3] [--page PATH]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

import wherefrom as wf
from setting import setting
from wherefrom.table import Table

CLASSES, BATCH, LR = 10, 64, 1e-3
HEADS: dict[str, Callable[[], list[nn.Module]]] = {
    "linear": lambda: [nn.Linear(2048, CLASSES)],
    "MLP": lambda: [nn.Linear(2048, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, CLASSES)],
}
CASES = [
    ("plain loop, backbone in every step", "loop", 1),
    ("plain loop on features", "features", 1),
    ("wherefrom", "ours", 1),
    ("wherefrom", "ours", 50),
    ("wherefrom", "ours", 100),
]


class Bottleneck(nn.Module):
    """Three convolutions with batch normalisation, and the inputs beside them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.third, self.third_norm = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.beside: nn.Module = nn.Identity()
        if stride > 1 or inputs != 4 * width:
            self.beside = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first_norm(self.first(x)))
        h = torch.relu(self.second_norm(self.second(h)))
        return torch.relu(self.third_norm(self.third(h)) + self.beside(x))


def backbone() -> nn.Module:
    """A ResNet-50 without its last layer, frozen."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).requires_grad_(False).eval()


def measured(case: str, head: str, members: int, rows: int, size: int, epochs: int) -> dict[str, float | str]:
    """Train in one of the ways, and return the seconds of processor time and the largest memory in bytes."""
    body = backbone()
    source = torch.Generator().manual_seed(1)
    x = torch.rand(rows, 3, size, size, generator=source)
    y = torch.randint(CLASSES, (rows,), generator=source)
    began = time.process_time()
    engine = ""
    if case == "ours":
        training = wf.Training(
            lambda: nn.Sequential(body, *HEADS[head]()),
            wf.Algorithm("adam", lr=LR, batch_size=BATCH),
            epochs,
            wf.Classification(classes=CLASSES),
            standardise=False,
        )
        posterior = wf.marginalise(training, (x, y), wf.recipes.deep_ensemble(members) if members > 1 else [])
        engine = ", ".join(posterior.engines)
    else:
        measured_epochs = 1 if case == "loop" else epochs
        loop(nn.Sequential(*HEADS[head]()), body, x, y, measured_epochs, keeps=case == "features")
    seconds = (time.process_time() - began) * (epochs if case == "loop" else 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "memory": float(memory), "engine": engine}


def loop(head: nn.Module, body: nn.Module, x: Tensor, y: Tensor, epochs: int, keeps: bool) -> None:
    """Train one head as anybody would."""
    optimiser = torch.optim.Adam(head.parameters(), lr=LR)
    if keeps:
        with torch.no_grad():
            x = torch.cat([body(rows) for rows in x.split(BATCH)])
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(BATCH):
            with torch.no_grad():
                features = x[rows] if keeps else body(x[rows])
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(features), y[rows]).backward()
            optimiser.step()


def in_a_process(
    arguments: argparse.Namespace, case: str, head: str, members: int, size: int
) -> dict[str, float | str]:
    """Measure in a new process."""
    numbers = [f"--rows={arguments.rows}", f"--epochs={arguments.epochs}", f"--sizes={size}"]
    command = [sys.executable, __file__, *numbers, "--case", case, "--head", head, "--members", str(members)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 224])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--case")
    parser.add_argument("--head", default="linear")
    parser.add_argument("--members", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.case:
        numbers = arguments.rows, arguments.sizes[0], arguments.epochs
        print(json.dumps(measured(arguments.case, arguments.head, arguments.members, *numbers)))
        return
    tables = []
    for size, head in product(arguments.sizes, HEADS):
        in_a_process(arguments, "ours", head, 1, 32)  # which compiles, if need be
        rounds = [
            [in_a_process(arguments, case, head, members, size) for _, case, members in CASES]
            for _ in range(arguments.rounds)
        ]
        each = list(zip(*rounds, strict=True))
        seconds = [statistics.median(float(one["seconds"]) for one in case) for case in each]
        memory = [statistics.median(float(one["memory"]) for one in case) for case in each]
        one = CASES.index(("wherefrom", "ours", 1))
        table = Table(
            ("way", "members", "engine", "seconds", "time / one member", "MB", "memory / one member"),
            [
                (
                    name,
                    members,
                    str(case[0]["engine"]),
                    round(took, 1),
                    round(took / seconds[one], 2),
                    round(used / 1e6),
                    round(used / memory[one], 2),
                )
                for (name, _, members), case, took, used in zip(CASES, each, seconds, memory, strict=True)
            ],
        )
        name = f"{'A linear head' if head == 'linear' else 'An MLP of 64 units as head'}, images of {size} x {size}"
        print(f"{name}\n{table}\n", flush=True)
        tables.append((name, table))
    if arguments.page:
        arguments.page.write_text(page(arguments, tables), encoding="utf-8")


def page(arguments: argparse.Namespace, tables: list[tuple[str, Table]]) -> str:
    """Return the results as a page."""
    parameters = sum(parameter.numel() for parameter in backbone().parameters())
    said = (
        f"# Heads on one frozen backbone\n\nWritten by `benchmarks/backbones.py`: the backbone is a ResNet-50 with "
        f"{parameters / 1e6:.1f} million frozen parameters, {arguments.rows:,} images, {arguments.epochs} epochs of "
        f"batches of {BATCH}. Processor seconds and the largest memory of a process, each case in a process of its "
        f"own. Of the loop that runs the backbone in every step, one epoch is measured and the others are reckoned."
        f"\n\n{setting('torch', rounds=arguments.rounds)}\n"
    )
    for name, table in tables:
        said += f"\n## {name}\n\n{table.markdown()}\n"
    return said


if __name__ == "__main__":
    main()
