"""One network beside a plain loop: memory and set-up of a large one, the time of a step of small ones, draws of theta0.

One process, CPU time on one core. Memory is the largest resident size while each contestant runs, less what was there
before, in copies of the network's weights; it is read where Linux shows it. A step's time is that of a long training
less that of a short one.

    python benchmarks/one_network.py [large | steps | draws]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import wherefrom as wf
from wherefrom.training.workers import one_core

SGD = {"lr": 0.001, "momentum": 0.9}


def vgg11() -> nn.Module:
    """VGG11 with 10 classes: 129 million parameters, 103 million of them in one layer."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if isinstance(width, str):
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
        channels = width
    return nn.Sequential(
        *layers,
        *(nn.AdaptiveAvgPool2d(7), nn.Flatten()),
        *(nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 4096), nn.ReLU(inplace=True)),
        nn.Linear(4096, 10),
    )


def convnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 10)),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def data(rows: int, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    return torch.randn(rows, *shape, generator=source), torch.arange(rows) % 10


def plain_loop(make: Callable[[], nn.Module], x: torch.Tensor, y: torch.Tensor, batch: int, epochs: int) -> None:
    """As one writes it: batches by index, torch.optim."""
    network = make().train()
    optimiser = torch.optim.SGD(network.parameters(), **SGD)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            optimiser.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            optimiser.step()


def marginalised(make: Callable[[], nn.Module], x: torch.Tensor, y: torch.Tensor, batch: int, epochs: int) -> object:
    algorithm = wf.Algorithm("sgd", batch_size=batch, **SGD)
    training = wf.Training(make, algorithm, epochs, wf.Classification(), standardise=False)
    return wf.marginalise(training, (x, y), [], engine="torch", workers=1, progress=False)


# ---------------------------------------------------------------------- measuring


def seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def resident(field: str) -> int:
    """Bytes that the process has in memory now (VmRSS), or had at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def peak(run: Callable[[], object]) -> tuple[float, float, float]:
    """Bytes at most and bytes that stay with what it returns, over those before; and seconds."""
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    began = time.process_time()
    result = run()
    took, most = time.process_time() - began, resident("VmHWM") - before
    gc.collect()
    stays = resident("VmRSS") - before
    del result
    return most, stays, took


def large() -> None:
    x, y = data(24, 3, 32, 32)
    copy = 4 * sum(p.numel() for p in vgg11().parameters())
    print(f"VGG11, {copy / 4e6:.0f} million parameters, {copy / 1e9:.2f} GB; 3 steps of 8 images, SGD with momentum")
    plain_loop(convnet, x, y, 8, 1)
    marginalised(convnet, x, y, 8, 1)
    runs = {"plain loop": plain_loop, "marginalise": marginalised}
    for epochs in (1, 3):
        for name, run in runs.items():
            most, stays, took = peak(partial(run, vgg11, x, y, 8, epochs))
            print(
                f"{name:12} {3 * epochs} steps: peak {most / copy:5.2f} copies ({most / 1e9:.2f} GB), "
                f"kept {stays / copy:5.2f}, {took:6.2f} CPU s",
                flush=True,
            )


def steps(rounds: int) -> None:
    shapes = {
        "3-layer convnet, batch 64": (convnet, data(512, 3, 32, 32), 64, 3),
        "3-layer convnet, batch 8": (convnet, data(512, 3, 32, 32), 8, 2),
        "MLP 20-256-256-10, batch 64": (mlp, data(2048, 20), 64, 20),
        "MLP 20-256-256-10, batch 512": (mlp, data(8192, 20), 512, 20),
    }
    for name, (make, (x, y), batch, epochs) in shapes.items():
        ratios = []
        each: dict[str, list[float]] = {"loop": [], "ours": []}
        for _ in range(rounds):
            for who, run in (("loop", plain_loop), ("ours", marginalised)):
                long, short = (seconds(partial(run, make, x, y, batch, e)) for e in (1 + epochs, 1))
                each[who].append((long - short) / (epochs * -(-len(x) // batch)))
            ratios.append(each["ours"][-1] / each["loop"][-1])
        loop, ours = (1e3 * statistics.median(each[who]) for who in ("loop", "ours"))
        print(f"{name:30} loop {loop:7.3f} ms, ours {ours:7.3f} ms a step: {statistics.median(ratios):.2f}", flush=True)


def draws() -> None:
    """Drawing and checking theta0 of many members, without training them."""
    from wherefrom.posterior.trainings import _InitialConditions
    from wherefrom.training.network import Network
    from wherefrom.variables import Design

    x = torch.randn(4, 8)
    for count in (1250, 2500, 5000, 10_000):
        runs = Design.of([wf.InitialCondition(count)]).runs(0)
        make = wf.MLP([10]).sized(8, 1)
        initial = _InitialConditions(make, Network(make(), x), torch.float32)
        took = seconds(lambda runs=runs, initial=initial: [initial.get(0, run) for run in runs])
        print(f"{count:6} draws of theta0: {took:6.2f} CPU s, {1e6 * took / count:5.0f} us each", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=("large", "steps", "draws"))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with one_core():
        for part, run in {"large": large, "steps": lambda: steps(arguments.rounds), "draws": draws}.items():
            if arguments.part in (None, part):
                run()


if __name__ == "__main__":
    main()
