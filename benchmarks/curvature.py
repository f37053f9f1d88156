"""Curvature for Laplace's law: ours by torch.func and hooks beside curvlinops', processor time and largest difference.

    python benchmarks/curvature.py        needs curvlinops-for-pytorch; about a minute

Each is computed at the same weights, in double precision, for the sum over all rows. Ours includes the decomposition
that a law needs, which curvlinops' time leaves out. Medians of interleaved rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import wherefrom as wf
from setting import setting
from wherefrom.laws import Finished, Law, delta
from wherefrom.laws.gauss_newton import STRUCTURES, Curvature

ROUNDS = 5
_MOST_WHOLE = 1000  # weights of which all of the curvature is compared


@dataclass(frozen=True)
class Catching:
    """Keeps the finished member."""

    every: ClassVar[str] = "epoch"
    fewest: ClassVar[int] = 1
    seen: list[Finished] = field(default_factory=list)

    def collector(self, theta: Tensor, iterations: int) -> None:
        return None

    def finish(self, member: Finished) -> Law:
        self.seen.append(member)
        return delta(member.theta[: member.size])


def table(rows: int, columns: int) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(rows, columns))
    return x, np.sin(x[:, 0]) + x[:, 1]


def images(rows: int) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(rows, 1, 12, 12))
    return x, (x.mean((1, 2, 3)) > 0).astype(int)


def mlp(columns: int, units: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(columns, units), nn.Tanh(), nn.Linear(units, 1))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(512, 2))


CASES = {
    "table of 1,000 rows, 50 units": (mlp(8, 50), lambda: table(1000, 8), wf.Regression()),
    "table of 1,000 rows, 300 units": (mlp(8, 300), lambda: table(1000, 8), wf.Regression()),
    "300 images, two convolutions": (convolutional, lambda: images(300), wf.Classification()),
}


def theirs(structure: str, member: Finished, model: nn.Module) -> Callable[[], Any]:
    """Return what computes it by curvlinops: all of the matrix, or Kronecker's factors."""
    from curvlinops import FisherType, GGNLinearOperator, KFACLinearOperator

    (x, y, _) = next(member.batches(10**6))
    is_table = member.density == "without its noise"
    loss: nn.Module = nn.MSELoss(reduction="sum") if is_table else nn.CrossEntropyLoss(reduction="sum")
    data, params = [(x, y if is_table else y[:, 0].long())], list(model.parameters())
    if structure == "full":
        return lambda: (
            GGNLinearOperator(model, loss, params, data, check_deterministic=False)
            @ torch.eye(len(member.parameters), dtype=x.dtype)
        )

    def factors() -> Any:
        how = {"fisher_type": FisherType.TYPE2, "separate_weight_and_bias": False, "check_deterministic": False}
        operator = KFACLinearOperator(model, loss, params, data, **how)
        operator.compute_kronecker_factors()
        return operator

    return factors


def difference(curvature: Curvature, member: Finished, other: Any) -> float:
    """The largest difference of the matrices seen along a few directions, relative to the largest number there."""
    law = curvature.law(member, curvature.values.sqrt())
    directions = torch.randn(3, len(member.parameters), generator=torch.Generator().manual_seed(0)).to(law.mean)
    expected = directions @ (other @ directions.T)
    return float((law.image(directions) - expected).abs().max() / expected.abs().max())


def measured(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def main() -> None:
    torch.set_num_threads(1)
    print(setting("torch", rounds=ROUNDS))
    print(f"- curvlinops {version('curvlinops-for-pytorch')}")
    print("\n| case | weights | curvature | ours / curvlinops, processor time | largest difference |")
    print("|---|---|---|---|---|")
    for name, (make, data, likelihood) in CASES.items():
        catching = Catching()
        training = wf.Training(make, wf.Algorithm("adam", lr=0.01, batch_size=100), 3, likelihood, standardise=False)
        wf.marginalise(training, data(), [wf.Iterations(catching)], dtype=torch.float64, progress=False)
        (member,) = catching.seen
        model = make().double()
        model.load_state_dict(member.network.layout.views(member.parameters))
        for structure in ("full", "kron") if len(member.parameters) < _MOST_WHOLE else ("kron",):
            ours, call = partial(STRUCTURES[structure], member), theirs(structure, member, model)
            rounds = [(measured(ours), measured(call)) for _ in range(ROUNDS)]
            ratio = median(our_seconds / their_seconds for (our_seconds, _), (their_seconds, _) in rounds)
            (_, curvature), (_, other) = rounds[-1]
            away = difference(curvature, member, other)
            print(f"| {name} | {len(member.parameters):,} | {structure} | {ratio:.2f} | {away:.1e} |", flush=True)


if __name__ == "__main__":
    main()
