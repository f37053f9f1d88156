"""Training many small networks: this engine, a plain PyTorch loop, JAX where it is installed, and the bare GEMM limit.

One run, interleaved: in every round each contestant trains all members for some steps, and the ratio to the plain loop
is taken within the round. What is printed is the median over rounds, processor time and wall time of one optimiser step
of ALL members (batch order, gather, dropout 0.01 and Adam included). Absolute times mean little on a shared machine;
the ratios do.

    python benchmarks/training.py [--rounds 7] [--shape concrete]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from wherefrom.likelihood import Regression
from wherefrom.table import Table
from wherefrom.training import streams, workers
from wherefrom.training.cohort import Cohort, Member
from wherefrom.training.network import Network
from wherefrom.training.point import Algorithm

DROPOUT = 0.01


@dataclass(frozen=True)
class Shape:
    """A study: so many members of one architecture on a table of random numbers."""

    name: str
    members: int
    widths: tuple[int, ...]
    rows: int
    batch_size: int = 100

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows // self.batch_size)

    def network(self) -> nn.Sequential:
        layers: list[nn.Module] = []
        for inputs, outputs in zip(self.widths, self.widths[1:], strict=False):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(DROPOUT)]
        return nn.Sequential(*layers[:-2])

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.rows, self.widths[0], generator=generator)
        return x, torch.randn(self.rows, self.widths[-1], generator=generator)

    @property
    def multiplications(self) -> int:
        """Forward, weight gradient and input gradient (not of the first layer) of one step of all members."""
        pairs = list(zip(self.widths, self.widths[1:], strict=False))
        products = 3 * sum(a * b for a, b in pairs) - pairs[0][0] * pairs[0][1]
        return self.members * self.batch_size * products


SHAPES = [
    Shape("concrete", 100, (8, 50, 1), 1000),
    Shape("protein", 25, (9, 100, 1), 41157),
    Shape("deep", 25, (8, 50, 50, 1), 1000),
]

Slice = Callable[[int], None]  # train all members for so many steps


def plain_loop(shape: Shape) -> Slice:
    """As one writes it: a loop over members, batches by index, torch.optim."""
    x, y = shape.data()
    networks = [shape.network().train() for _ in range(shape.members)]
    optimisers = [torch.optim.Adam(network.parameters(), lr=0.01) for network in networks]
    orders, taken = [torch.empty(0)] * shape.members, [0] * shape.members

    def run(steps: int) -> None:
        for k, (network, optimiser) in enumerate(zip(networks, optimisers, strict=True)):
            for step in range(taken[k], taken[k] + steps):
                if step % shape.steps_per_epoch == 0:
                    orders[k] = torch.randperm(shape.rows)
                start = step % shape.steps_per_epoch * shape.batch_size
                batch = orders[k][start : start + shape.batch_size]
                optimiser.zero_grad()
                nn.functional.mse_loss(network(x[batch]), y[batch]).backward()
                optimiser.step()
            taken[k] += steps

    return run


def this_engine(shape: Shape, threads: int) -> Slice:
    """The cohort engine, with all that comes before the first step."""
    x, y = shape.data()
    network = Network(shape.network(), x[:4])
    algorithm = Algorithm("adam", lr=0.01, batch_size=shape.batch_size)

    members = tuple(
        Member(network.theta(shape.network()), algorithm.settings, streams.key(0, "order", k), k, 0)
        for k in range(shape.members)
    )

    def run(steps: int) -> None:
        # A long epoch is cut short by giving each member fewer rows: same batches, same gather, same masks.
        rows = min(shape.rows, steps * shape.batch_size)
        epochs = max(1, steps * shape.batch_size // rows)
        table = (x[:rows], y[:rows])
        cohort = Cohort(network, "adam", shape.batch_size, epochs, Regression().loss, members, (table,), None)
        workers.train_cohorts([cohort], torch.device("cpu"), threads, lambda _: None)

    return run


def jax_vmap_scan(shape: Shape) -> Slice | None:
    """JAX as people write it: vmap over members, scan over batches, permutation and bernoulli inside."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    x, y = (jnp.asarray(t.numpy()) for t in shape.data())
    pairs = list(zip(shape.widths, shape.widths[1:], strict=False))

    def init(key: jax.Array) -> list:
        keys = jax.random.split(key, len(pairs))
        return [(jax.random.normal(k, p) / p[0] ** 0.5, jnp.zeros(p[1])) for k, p in zip(keys, pairs, strict=True)]

    def loss(weights: list, x: jax.Array, y: jax.Array, key: jax.Array) -> jax.Array:
        for i, (w, b) in enumerate(weights[:-1]):
            x = jax.nn.relu(x @ w + b)
            x = x * jax.random.bernoulli(jax.random.fold_in(key, i), 1 - DROPOUT, x.shape) / (1 - DROPOUT)
        w, b = weights[-1]
        return jnp.mean((x @ w + b - y) ** 2)

    def train(state: tuple, steps: int) -> tuple:
        weights, first, second, count, key = state
        key, order_key = jax.random.split(key)
        # Of as many rows as these steps visit, so that a slice of a long epoch does not pay for all of it.
        visited = min(shape.rows, steps * shape.batch_size)
        order = jax.random.permutation(order_key, visited)
        starts = jnp.arange(steps) * shape.batch_size % (visited - shape.batch_size + 1)

        def step(carry: tuple, start: jax.Array) -> tuple:
            weights, first, second, count, key = carry
            key, mask_key = jax.random.split(key)
            batch = jax.lax.dynamic_slice(order, (start,), (shape.batch_size,))
            gradient = jax.grad(loss)(weights, x[batch], y[batch], mask_key)
            count = count + 1
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
            second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
            weights = jax.tree.map(
                lambda p, m, v: p - 0.01 * m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8),
                weights,
                first,
                second,
            )
            return (weights, first, second, count, key), None

        return jax.lax.scan(step, (weights, first, second, count, key), starts)[0]

    keys = jax.random.split(jax.random.key(0), shape.members)
    weights = jax.vmap(init)(keys)
    zeros = jax.tree.map(jnp.zeros_like, weights)
    state = (weights, zeros, zeros, jnp.zeros(shape.members), keys)
    compiled: dict[int, Callable] = {}

    def run(steps: int) -> None:
        nonlocal state
        if steps not in compiled:
            compiled[steps] = jax.jit(jax.vmap(lambda s: train(s, steps)))
        state = jax.block_until_ready(compiled[steps](state))

    return run


def bare_gemm_seconds(shape: Shape, rounds: int) -> float:
    """The least time in which one core could do the step's multiplications, from its best rate on a large product."""
    a, b = torch.randn(768, 768), torch.randn(768, 768)
    best = float("inf")
    for _ in range(rounds * 5):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return shape.multiplications * best / 768**3


def measure(shape: Shape, rounds: int) -> Table:
    contestants: dict[str, tuple[Slice | None, int]] = {
        "plain PyTorch loop": (plain_loop(shape), 5),
        "this engine, 1 worker": (this_engine(shape, 1), 200),
        "this engine, 2 workers": (this_engine(shape, 2), 200),
        "JAX, vmap + scan": (jax_vmap_scan(shape), 40),
    }
    present = {name: pair for name, pair in contestants.items() if pair[0]}
    for run, steps in present.values():
        run(steps)  # warm-up: recording, compiling, first touches of memory
    wall: dict[str, list[float]] = {name: [] for name in present}
    processor: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(rounds):
        for name, (run, steps) in present.items():
            began, began_cpu = time.perf_counter(), time.process_time()
            run(steps)
            wall[name].append((time.perf_counter() - began) / steps)
            processor[name].append((time.process_time() - began_cpu) / steps)
    loop = "plain PyTorch loop"
    rows = []
    for name in contestants:
        if name not in present:
            rows.append((name, "not installed", None, None, None))
            continue
        rows.append(
            (
                name,
                f"{1e6 * statistics.median(processor[name]):,.0f}",
                f"{1e6 * statistics.median(wall[name]):,.0f}",
                f"{statistics.median(a / b for a, b in zip(processor[loop], processor[name], strict=True)):.1f}",
                f"{statistics.median(a / b for a, b in zip(wall[loop], wall[name], strict=True)):.1f}",
            )
        )
    limit = bare_gemm_seconds(shape, rounds)
    rows.append(
        ("bare GEMMs, 1 core", f"{1e6 * limit:,.0f}", None, f"{statistics.median(processor[loop]) / limit:.0f}", None)
    )
    return Table(("", "CPU us/step", "wall us/step", "x loop (CPU)", "x loop (wall)"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shape", choices=[shape.name for shape in SHAPES])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for shape in SHAPES:
        if arguments.shape in (None, shape.name):
            layers = "-".join(map(str, shape.widths))
            print(f"\n{shape.name}: {shape.members} members, {layers}, batch {shape.batch_size}, {shape.rows:,} rows")
            print(measure(shape, arguments.rounds))


if __name__ == "__main__":
    main()
