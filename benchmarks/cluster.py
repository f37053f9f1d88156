"""Executors side by side: threads and processes, one node and two, and the plan of a large run.

    python benchmarks/cluster.py processes      # the same trainings by two threads and by two processes
    python benchmarks/cluster.py nodes          # by one node of a Ray cluster, and by two; needs wherefrom[ray]
    python benchmarks/cluster.py plan           # what 1,000 members of 25 million weights take, by a measured step

Each figure is the median of some repeats that take turns. All members must be equal to the last bit. How many cores are
free is measured first: on a machine that others use as well, no executor is faster than that.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import wherefrom as wf
from wherefrom.training.memory import in_words

ROWS, MEMBERS = 600, 4


def convolving() -> nn.Module:
    """A network of many short operations: Python issues them, one thread at a time."""
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))


def wide() -> nn.Module:
    """A network of few long operations, which threads do without Python's lock."""
    return nn.Sequential(nn.Linear(100, 1500), nn.ReLU(), nn.Linear(1500, 1500), nn.ReLU(), nn.Linear(1500, 1))


def in_python(x: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """An augmentation that computes in Python, and changes nothing."""
    total = 0
    for number in range(200_000):
        total += number % 7
    return x + 0.0 * total


def table(columns: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(ROWS, *columns, generator=torch.Generator().manual_seed(0))
    return x, x.flatten(1)[:, 0]


IN_PYTHON = "Python in every step (an augmentation)"
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, Any]] = {
    IN_PYTHON: (convolving, (3, 8, 8), "torch", "adam"),
    "short operations (small convolutions, Adam)": (convolving, (3, 8, 8), "torch", "adam"),
    "short operations (an optimiser class of torch)": (convolving, (3, 8, 8), "torch", torch.optim.Adamax),
    "long operations (1,500 hidden units, Adam)": (wide, (100,), "torch", "adam"),
    "the native engine (100 hidden units, Adam)": (wf.MLP(100), (100,), "native", "adam"),
}


def trained(case: str, executor: Any, epochs: int) -> tuple[float, list[torch.Tensor]]:
    """Wall seconds, and the members' weights."""
    model, columns, engine, algorithm = CASES[case]
    epochs = 40 * epochs if engine == "native" else epochs
    augment = in_python if case == IN_PYTHON else None
    training = wf.Training(model, wf.Algorithm(algorithm, lr=0.001, batch_size=20), epochs=epochs, augment=augment)
    # Other settings are other cohorts, so that there is a unit for each member whichever the network.
    over = [wf.Hyperparameters(points=[dict(batch_size=20 + k) for k in range(MEMBERS)])]
    how = wf.Compute(engine=engine, workers=2, executor=executor, progress=False)
    began = time.perf_counter()
    posterior = wf.marginalise(training, table(columns), over, compute=how)
    return time.perf_counter() - began, [member.trained.last for member in posterior.mixture]


def compare(executors: dict[str, Any], cases: list[str], epochs: int, repeats: int) -> None:
    first, second = executors
    print(f"| | {first}, s | {second}, s | ratio | from | to |\n|---|---|---|---|---|---|")
    for case in cases:
        seconds: dict[str, list[float]] = {name: [] for name in executors}
        weights = {}
        for name, executor in executors.items():
            trained(case, executor, 1)  # processes start, kernels are loaded
            weights[name] = None
        for _ in range(repeats):
            for name, executor in executors.items():
                took, weights[name] = trained(case, executor, epochs)
                seconds[name].append(took)
        equal = all(torch.equal(a, b) for a, b in zip(*weights.values(), strict=True))
        assert equal, "members differ"
        ratios = sorted(a / b for a, b in zip(seconds[first], seconds[second], strict=True))
        medians = [statistics.median(each) for each in seconds.values()]
        print(
            f"| {case} | {medians[0]:.2f} | {medians[1]:.2f} | {statistics.median(ratios):.2f} | {ratios[0]:.2f} | "
            f"{ratios[-1]:.2f} |",
            flush=True,
        )


def count(seconds: float) -> int:
    """Return how far a process counts in so many seconds."""
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(10_000):
            pass
        done += 1
    return done


def control(seconds: float = 3.0) -> None:
    """Print how much two processes that share nothing get done at once: what a speed-up is to be compared with."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(count, [0.1, 0.1])
        alone = pool.map(count, [seconds])[0]
        both = sum(pool.map(count, [seconds, seconds], chunksize=1))
    print(f"Two processes that only count do {both / alone:.2f} times as much at once as one of them does alone.\n")


def processes(epochs: int, repeats: int, chosen: list[str]) -> None:
    executor = wf.executors.Processes(2)
    compare({"two threads": None, "two processes": executor}, chosen, epochs, repeats)
    executor.close()


def nodes(epochs: int, repeats: int) -> None:
    """Time a cluster of one node with one core, and one of two: nodes are added once, so these do not take turns."""
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray.cluster_utils import Cluster

    node = dict(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=200 * 2**20)
    cases, seconds = [IN_PYTHON], {}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    executor = wf.executors.Ray(cluster.address, workers=2)
    for count in (1, 2):
        for case in cases:
            trained(case, executor, 1)
            runs = [trained(case, executor, epochs) for _ in range(repeats)]
            seconds[case, count] = [took for took, _ in runs], runs[-1][1]
        if count == 1:
            cluster.add_node(**node)
    print("| | one node, s | two nodes, s | ratio |\n|---|---|---|---|")
    for case in cases:
        (one, first), (two, second) = seconds[case, 1], seconds[case, 2]
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)), "members differ"
        medians = statistics.median(one), statistics.median(two)
        print(f"| {case} | {medians[0]:.2f} | {medians[1]:.2f} | {medians[0] / medians[1]:.2f} |")
    ray.shutdown()
    cluster.shutdown()


def large() -> nn.Module:
    """A convolutional network of 25 million weights, for images of 32 x 32 pixels."""
    layers: list[nn.Module] = []
    widths = [3, 64, 128, 256, 256, 512, 512, 512, 512]
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if number in (1, 3, 5, 7) else []
    head = [nn.Flatten(), nn.Linear(2048, 5120), nn.ReLU(), nn.Linear(5120, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    return nn.Sequential(*layers, *head)


def measured_step(batch_size: int, steps: int = 3) -> tuple[float, int]:
    """Return the CPU seconds of one training step of the large network by one core, and its number of weights."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch_size * steps, 3, 32, 32, generator=generator)
    y = torch.arange(len(x)) % 10
    training = wf.Training(
        large, wf.Algorithm("sgd", lr=1e-4, batch_size=batch_size), epochs=2, likelihood=wf.Classification()
    )
    posterior = wf.marginalise(training, (x, y), [], engine="torch", workers=1, progress=False)
    member = posterior.mixture[0].trained
    return member.seconds / (2 * steps), len(member.last)


def plan(given: argparse.Namespace) -> None:
    """Print what a run of many large members takes, by a step that is measured here, or given."""
    seconds, weights = given.step_seconds, given.weights
    if seconds is None:
        seconds, weights = measured_step(given.batch_size)
    theta = 4 * weights
    law = (2 + given.rank) * theta if given.rank else 0.0
    left, training = theta + law, 5 * theta + law
    hours = seconds * given.steps / 3600
    nodes = -(-given.members * hours // (24 * given.days * given.cores))
    at_once = int(nodes * given.cores)
    rounds = -(-given.members // at_once)
    rows = {
        "weights of one member": f"{weights:,.0f}",
        f"one step of {given.batch_size} rows, on one core": f"{seconds:.2f} s",
        f"one member, {given.steps:,} steps": f"{hours:.1f} h",
        "all members": f"{given.members * hours / given.cores / 24:,.0f} days of one node",
        f"nodes of {given.cores} cores, to be done in {given.days:g} days": f"{nodes:,.0f}",
        "rounds, one member on each core": f"{rounds}",
        "time": f"{rounds * hours / 24:.1f} days",
        "one member while it trains, without activations": in_words(training),
        f"all members of a node, while {given.cores} train": in_words(given.cores * training),
        "one member afterwards, sent back": in_words(left),
        "all members: disk of the store, and memory of the calling process": in_words(given.members * left),
        "first weights of all members, in the memory of the calling process": in_words(given.members * theta),
        "first weights in the object stores at once (two for each core)": in_words(2 * at_once * theta),
        f"traffic in all, at {given.gigabits:g} Gbit/s": (
            f"{given.members * (theta + left) * 8 / given.gigabits / 1e9 / 60:.0f} min"
        ),
        "lost with a core, at most, without checkpoints": f"{hours:.1f} h of it",
    }
    print(f"| {given.members:,} members, {'SWAG of rank ' + str(given.rank) if given.rank else 'last iterates'} | |")
    print("|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["processes", "nodes", "plan"])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", default="", help="part of the names of the trainings to compare")
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--weights", type=float, default=25e6)
    parser.add_argument("--rank", type=int, default=0, help="of SWAG; 0 for the last iterates alone")
    parser.add_argument("--step-seconds", type=float, help="of one core; measured on this machine if not given")
    parser.add_argument("--steps", type=int, default=40_000, help="of one training")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--cores", type=int, default=64, help="of one node")
    parser.add_argument("--days", type=float, default=7.0, help="in which all members are to be trained")
    parser.add_argument("--gigabits", type=float, default=10.0, help="of the network, in a second")
    given = parser.parse_args()
    if given.what != "plan":
        control()
    if given.what == "plan":
        plan(given)
    elif given.what == "nodes":
        nodes(given.epochs, given.repeats)
    else:
        processes(given.epochs, given.repeats, [case for case in CASES if given.case in case])


if __name__ == "__main__":
    main()
