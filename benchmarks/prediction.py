"""Monte Carlo prediction: this library against a loop that loads every sample into the module and runs it.

100 SWAG samples x 5 members x 1,000 rows of an 8-50-1 network, interleaved; the median over rounds. Both sides draw
their samples from the same laws within the measurement.

    python benchmarks/prediction.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn

import wherefrom as wf
from wherefrom.table import Table

SAMPLES, MEMBERS, ROWS = 100, 5, 1000


def make_network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Dropout(0.01), nn.Linear(50, 1))


def load_and_run(posterior: wf.Posterior, x: torch.Tensor) -> torch.Tensor:
    """As one writes it: draw a theta, load it, run it."""
    module = make_network().eval()
    names = posterior.network.layout.names
    answers = []
    with torch.no_grad():
        for k, law in enumerate(posterior.laws()):
            generator = torch.Generator().manual_seed(k)
            for _ in range(SAMPLES):
                theta = law.sample(1, generator)[0]
                module.load_state_dict(dict(zip(names, posterior.network.layout.views(theta).values(), strict=True)))
                answers.append(module(x))
    return torch.stack(answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, 8))
    training = wf.Training(make_network, wf.Algorithm("adam", lr=0.01, batch_size=100), epochs=44)
    over = [*wf.recipes.multi_swag(MEMBERS), wf.Dropout()]
    posterior = wf.marginalise(training, (x, x.sum(1) ** 2), over).marginalising("theta0", "t")
    standardised = posterior.scaler.x(torch.from_numpy(x), torch.float32)

    contestants = {
        "load and run": lambda: load_and_run(posterior, standardised),
        "this library": lambda: posterior.predict(x, SAMPLES),
    }
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    processor: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    for _ in range(rounds):
        for name, run in contestants.items():
            began, began_cpu = time.perf_counter(), time.process_time()
            run()
            wall[name].append(time.perf_counter() - began)
            processor[name].append(time.process_time() - began_cpu)
    rows = []
    for name in contestants:
        cells = [f"{1e3 * statistics.median(times[name]):.1f}" for times in (processor, wall)]
        for times in (processor, wall):
            ratio = statistics.median(a / b for a, b in zip(times["load and run"], times[name], strict=True))
            cells.append(f"{ratio:.1f}")
        rows.append((name, *cells))
    print(f"\n{SAMPLES} SWAG samples x {MEMBERS} members x {ROWS:,} rows, 8-50-1")
    print(Table(("", "CPU ms", "wall ms", "x loop (CPU)", "x loop (wall)"), rows))


if __name__ == "__main__":
    main()
