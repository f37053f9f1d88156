"""Memory and time of one member against the number of its parameters, and of many members one after the other.

Each size is measured in processes of its own: a training of one member by SWAG with its deviations in memory, in
bfloat16 and on disk, and a prediction with it. Memory is what the process holds at most beyond what it held before: all
of it, and without pages of files, which the system drops when memory is short (Linux tells). `scaling.py`
fits the exponents.

    python benchmarks/memory.py [--sizes 100000 300000 ...] [--markdown file]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from scaling import Watched, exponent

RANK, EPOCHS, ROWS, SAMPLES = 10, 20, 64, 10
WAYS = {"float32": None, "bfloat16": "bfloat16", "disk": "disk"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--members", type=int, default=4, help="of the prediction of many (default: 4)")
    parser.add_argument("--markdown", type=Path, help="where to write the table")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # parameters, way, members: in a process of its own
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(int(asked.one[0]), asked.one[1], int(asked.one[2]))))
        return
    lines = [
        "| parameters | members | deviations | training, MB | without files | CPU s | prediction, MB | CPU s |",
        "|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    print(*lines, sep="\n", flush=True)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    jobs = [(size, way, 1) for size in asked.sizes for way in WAYS]
    jobs += [(asked.sizes[-2], way, asked.members) for way in WAYS]
    for size, way, members in jobs:
        command = [sys.executable, __file__, "--one", str(size), way, str(members)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        values = json.loads(ran.stdout.splitlines()[-1])
        if members == 1:
            found[way].append(values)
        cells = [f"{values[name]:,.1f}" for name in ("training", "anonymous", "seconds", "predicting", "answering")]
        lines.append(f"| {values['parameters']:,} | {members} | {way} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += ["", "| exponent of | memory of training | time of training | memory of prediction | time of prediction |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for way, values in found.items():
        slopes = [shown(values, name) for name in ("anonymous", "seconds", "predicting", "answering")]
        lines.append(f"| {way} | {' | '.join(slopes)} |")
    print(*lines[-len(found) - 3 :], sep="\n")
    if asked.markdown:
        asked.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def shown(values: list[dict[str, float]], name: str) -> str:
    """The exponent of a cost by parameters, in words."""
    sizes, costs = ([each[key] for each in values] for key in ("parameters", name))
    return str(exponent(sizes, costs) or "not fitted")


def measured(size: int, way: str, members: int) -> dict[str, float]:
    """Train a network of about so many parameters, and predict with it."""
    import torch
    from torch import nn

    import wherefrom as wf

    torch.set_num_threads(1)
    width = round((math.sqrt(34**2 + 8 * size) - 34) / 4)  # 32 w + w + w^2 + w + w + 1 parameters, and as many again

    def model() -> nn.Module:
        return nn.Sequential(
            *(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)),
        )

    parameters = sum(p.numel() for p in model().parameters())
    x = np.random.default_rng(0).normal(size=(ROWS, 32)).astype(np.float32)
    training = wf.Training(model, wf.Algorithm("sgd", lr=0.01, batch_size=ROWS), epochs=EPOCHS)
    over: list[Any] = [wf.Iterations(wf.SWAG(rank=RANK, deviations=WAYS[way]))]
    if members > 1:
        over.append(wf.InitialCondition(members))
    with Watched() as train:
        posterior = wf.marginalise(training, (x, x[:, 0]), over, engine="torch", workers=1)
    with Watched() as predict:
        posterior.predict(x, samples=SAMPLES)
    return {
        "parameters": parameters,
        "training": train.most["VmRSS"],
        "anonymous": train.most["RssAnon"],
        "seconds": train.seconds,
        "predicting": predict.most["RssAnon"],
        "answering": predict.seconds,
    }


if __name__ == "__main__":
    main()
