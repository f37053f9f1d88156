"""Executors side by side: threads and processes, one node and two, and the plan of a large run.

    python benchmarks/cluster.py processes      # the same trainings by two threads and by two processes
    python benchmarks/cluster.py nodes          # by one node of a Ray cluster, and by two; needs wherefrom[ray]
    python benchmarks/cluster.py plan           # what 1,000 members of 25 million weights take, computed

Each figure is the median of some repeats that take turns. All members must be equal to the last bit. How many cores are
free is measured first: on a machine that others use as well, no executor is faster than that.
"""

from __future__ import annotations

import argparse
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


def plan(members: int, weights: float, rank: int, workers: int, hours: float, gigabits: float) -> None:
    """Print what a run takes; `hours` are those of one member on one worker, to be measured by a short training."""
    theta = 4 * weights
    law = (2 + rank) * theta if rank else 0.0
    left = theta + law
    rounds = -(-members // workers)
    rows = {
        "first weights of one member, sent to a node": in_words(theta),
        "one member while it trains, without activations": in_words(5 * theta + law),
        "one member afterwards, sent back": in_words(left),
        "all members: disk of the store, and memory to predict with all of them": in_words(members * left),
        "first weights of all members, in the memory of the driver": in_words(members * theta),
        "in the object store at once (two units for each worker)": in_words(2 * workers * theta),
        f"traffic in all, at {gigabits:g} Gbit/s": f"{members * (theta + left) * 8 / gigabits / 1e9 / 60:.0f} min",
        f"rounds of {workers} workers": f"{rounds}",
        f"time, at {hours:g} h for a member": f"{rounds * hours:.0f} h",
        "lost with a node, at most, without checkpoints": f"{hours:g} h of one worker",
    }
    print(f"| {members:,} members of {weights:,.0f} weights, {'SWAG of rank ' + str(rank) if rank else 'no law'} | |")
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
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--hours", type=float, default=2.0, help="that one member takes on one worker")
    parser.add_argument("--gigabits", type=float, default=10.0, help="of the network, in a second")
    given = parser.parse_args()
    if given.what != "plan":
        control()
    if given.what == "plan":
        plan(given.members, given.weights, given.rank, given.workers, given.hours, given.gigabits)
    elif given.what == "nodes":
        nodes(given.epochs, given.repeats)
    else:
        processes(given.epochs, given.repeats, [case for case in CASES if given.case in case])


if __name__ == "__main__":
    main()
