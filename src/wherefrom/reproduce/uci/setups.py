"""The trainings of the paper: one network, three set-ups, and the subsets of variables that each marginalises.

One hidden layer of 50 ReLU units (100 for protein), Dropout(0.01), squared error, Adam, batches of 100. Of what the
paper leaves open, these were found by trial against its first table: Glorot-uniform weights and zero biases, x and y
standardised on the training rows, each member its own batch order, SWAG once an epoch from half of the epochs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from torch import nn
from torch.distributions import Normal

import wherefrom as wf

Combination = tuple[str, ...]  # the variables that are marginalised, by the paper's names

OURS = {"M": "F", "t": "t", "theta0": "theta0", "alpha": "h"}  # the paper's names, and the library's
ALL_THREE = ("M", "t", "theta0")
SUBSETS: tuple[Combination, ...] = (
    ("M",),
    ("t",),
    ("theta0",),
    ("M", "t"),
    ("M", "theta0"),
    ("t", "theta0"),
    ALL_THREE,
)
WITH_ALPHA: tuple[Combination, ...] = (
    ("t",),
    ("theta0",),
    ("theta0", "alpha"),
    ("t", "theta0"),
    ("t", "theta0", "alpha"),
)
TUNED_RATES = {
    "boston": 0.050,
    "concrete": 0.015,
    "energy": 0.056,
    "kin8nm": 0.017,
    "naval": 0.033,
    "power": 0.099,
    "protein": 0.099,
    "wine": 0.013,
    "yacht": 0.099,
}


@dataclass(frozen=True)
class Setup:
    """One table of the paper: how long, how fast, and which subsets are scored."""

    table: str
    combinations: tuple[Combination, ...]
    epochs: int
    rate: float | Mapping[str, float]  # of Adam; one for all sets, or each its own
    start: float = 0.5  # of SWAG, as a fraction of the epochs
    dropout: float = 0.01
    noise: Literal["fit", "predicted"] | None = None
    members: int = 5
    rank: int = 20
    batch_size: int = 100
    samples: int = 100
    method: Literal["monte_carlo", "one_shot"] = "monte_carlo"

    @property
    def name(self) -> str:
        """Name of its files: the table, and what differs from it."""
        usual = SETUPS[self.table]
        changes = [
            f"{what}-{getattr(self, what):g}"
            for what in ("epochs", "start", "dropout")
            if getattr(self, what) != getattr(usual, what)
        ]
        one_shot = ["one-shot"] if self.method == "one_shot" else []
        return "-".join([self.table, *([self.noise] if self.noise else []), *one_shot, *changes])

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a result depends on, as plain values."""
        values = asdict(self) | {"combinations": ["+".join(names) for names in self.combinations]}
        if self.method == "monte_carlo":  # results from before there was another method stay what they are
            del values["method"]
        return values

    def but(self, **changes: Any) -> Setup:
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def rate_for(self, name: str) -> float:
        return self.rate[name] if isinstance(self.rate, Mapping) else self.rate

    def training(self, name: str, features: int) -> wf.Training:
        """The classical training that everything starts from."""
        likelihood = wf.Regression(noise=self.noise)
        hidden, outputs = 100 if name == "protein" else 50, likelihood.outputs(1)
        return wf.Training(
            model=partial(network, features, hidden, outputs, self.dropout),
            algorithm=wf.Algorithm("adam", lr=self.rate_for(name), batch_size=self.batch_size),
            epochs=self.epochs,
            likelihood=likelihood,
        )

    def marginalisations(self, name: str) -> list[tuple[list[Any], list[Combination]]]:
        """The variables to train over, and the combinations that are parts of that one posterior.

        The learning rate is drawn with theta0, one for each, so it needs its own trainings. The paper writes
        N(rate, rate / 100); rate / 100 is read as the standard deviation.
        """
        mean = self.rate_for(name)
        fixed = wf.recipes.deep_ensemble(self.members)
        drawn = wf.recipes.hyper_ensemble(self.members, lr=Normal(mean, mean / 100))
        sampled = [*wf.recipes.swag(self.rank, self.start), *([wf.Dropout()] if self.marginalises("M") else [])]
        return [
            ([*members, *sampled], served)
            for members, served in (
                (fixed, [names for names in self.combinations if "alpha" not in names]),
                (drawn, [names for names in self.combinations if "alpha" in names]),
            )
            if served
        ]

    @property
    def fullest(self) -> Combination:
        """The combination that marginalises most."""
        return max(self.combinations, key=len)

    def marginalises(self, name: str) -> bool:
        return any(name in names for names in self.combinations)


def network(features: int, hidden: int, outputs: int, dropout: float) -> nn.Module:
    layers = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, outputs))
    wf.glorot_uniform(layers)
    return layers


SETUPS = {
    "main": Setup("main", SUBSETS, epochs=400, rate=0.01),
    "short": Setup("short", SUBSETS, epochs=40, rate=0.1),
    "tuned": Setup("tuned", WITH_ALPHA, epochs=40, rate=TUNED_RATES),
}
