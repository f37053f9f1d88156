"""From labelled runs to trained members: runs -> members -> cohorts -> what their trainings left."""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wherefrom.training import streams
from wherefrom.training.cohort import Cohort, Examples, Member, Trained
from wherefrom.training.data import Rows, Scaler
from wherefrom.training.engines import Choice
from wherefrom.training.network import Network
from wherefrom.training.point import Algorithm, Training
from wherefrom.training.progress import Show, progress_bar
from wherefrom.training.workers import train_cohorts
from wherefrom.variables import Design, Run

_PROBE_ROWS = 4


@dataclass(frozen=True, eq=False)
class Component:
    """One member of the mixture: the run that it is, its algorithm, and what its training left."""

    run: Run
    algorithm: Algorithm
    trained: Trained


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows of one posterior: those it trains on, those it holds out, their scales, and its seed."""

    rows: Rows
    held_out: Rows | None
    scaler: Scaler
    seed: int

    @classmethod
    def of(cls, training: Training, rows: Rows, seed: int) -> Fold:
        """Hold rows out where the noise is to be fitted on them."""
        held_out = None
        if training.likelihood.noise == "fit":
            order = torch.from_numpy(streams.generator(seed, "held out").permutation(len(rows)))
            aside = round(len(rows) * training.likelihood.held_out)
            if aside < 2 or len(rows) - aside < 1:
                raise ValueError(
                    f'noise="fit" would hold {aside} of {len(rows)} rows out, which is too few; '
                    "raise held_out, or give the noise as a number"
                )
            held_out, rows = rows.take(order[:aside].sort().values), rows.take(order[aside:].sort().values)
        return cls(rows, held_out, Scaler.of(rows, training.standardise), seed)


def build_network(training: Training, design: Design, x: Tensor, targets: int, seed: int) -> Network:
    """The model as a function, checked against the data, the likelihood and the design."""
    with streams.torch_seeded(seed, "theta0", 0):
        module = training.model().to(dtype=x.dtype if x.is_floating_point() else None)
    try:
        network = Network(module, x[:_PROBE_ROWS])
    except (RuntimeError, IndexError) as error:
        hint = "" if x.is_floating_point() else " (whole numbers are taken as indices; for measurements use floats)"
        raise ValueError(f"the model cannot be run on rows of shape {tuple(x.shape[1:])}{hint}: {error}") from error
    needed = training.likelihood.outputs(targets)
    if network.outputs != needed:
        raise ValueError(
            f"the model has {network.outputs} outputs, but {training.likelihood} needs {needed} "
            f"for {targets} column{'s' * (targets > 1)} of y"
        )
    if design.dropout is None:
        return network
    if not network.sites:
        raise ValueError("Dropout() marginalises the sub-networks of a model with dropout; this one has no nn.Dropout")
    if design.dropout.rate is not None:
        return network.with_dropout_rate(design.dropout.rate)
    if not any(site.rate > 0 for site in network.sites):
        raise ValueError("every dropout rate in the model is zero; give one, as Dropout(rate=0.05)")
    return network


@dataclass(frozen=True)
class Execution:
    """Where and how trainings run. Nothing of it changes what they mean."""

    dtype: torch.dtype
    device: torch.device
    engine: Choice = "auto"
    workers: int | None = None
    progress: Show = None

    def announce(self, message: str) -> None:
        """Tell whoever waits why, unless nothing is to be shown."""
        if self.progress is not False:
            print(f"wherefrom: {message}", file=sys.stderr, flush=True)


def train_runs(
    training: Training,
    network: Network,
    design: Design,
    jobs: Sequence[tuple[Fold, Sequence[Run]]],
    how: Execution,
) -> list[list[Component]]:
    """Train all runs of all folds, in as few cohorts as there are batch sizes and numbers of rows."""
    tables = [
        Examples(fold.scaler.x(fold.rows.x, how.dtype), fold.scaler.y(fold.rows.y, how.dtype)) for fold, _ in jobs
    ]
    algorithms: dict[tuple[int, int], Algorithm] = {}
    places: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # cohort -> (job, run) of its members
    for j, (fold, runs) in enumerate(jobs):
        for r, run in enumerate(runs):
            algorithms[j, r] = algorithm = _algorithm(training, run)
            places[min(algorithm.batch_size, len(fold.rows)), len(fold.rows)].append((j, r))

    initial = _InitialConditions(training, network, how.dtype)
    cohorts = []
    for (batch_size, count), held in places.items():
        own = sorted({j for j, _ in held})
        members = tuple(
            _member(jobs[j][0].seed, jobs[j][1][r], algorithms[j, r], initial, own.index(j)) for j, r in held
        )
        if network.momenta and 1 in (batch_size, count % batch_size):
            raise ValueError(
                f"batches of {batch_size} leave a batch of one row of {count}, which batch normalisation cannot take: "
                "choose another batch size"
            )
        steps = -(-count // batch_size)
        collection = design.iterations.collection(training.epochs, steps) if design.iterations else None
        cohorts.append(
            Cohort(
                network,
                training.algorithm.name,
                batch_size,
                training.epochs,
                training.likelihood.loss,
                members,
                tuple(tables[j] for j in own),
                collection,
            )
        )

    total = training.epochs * sum(len(cohort.members) for cohort in cohorts)
    with progress_bar("training", total, how.progress) as report:
        trained = train_cohorts(cohorts, how.device, how.workers, report, how.engine, how.announce)
    found = {
        place: one
        for held, some in zip(places.values(), trained, strict=True)
        for place, one in zip(held, some, strict=True)
    }
    return [
        [Component(run, algorithms[j, r], found[j, r]) for r, run in enumerate(runs)]
        for j, (_, runs) in enumerate(jobs)
    ]


def _algorithm(training: Training, run: Run) -> Algorithm:
    changes = {name: value for name, value in run.choices.items() if name != "init"}
    try:
        return training.algorithm.but(**changes) if changes else training.algorithm
    except ValueError as error:
        raise ValueError(f"the settings drawn for {run} cannot be used: {error}") from error


def _member(seed: int, run: Run, algorithm: Algorithm, initial: _InitialConditions, table: int) -> Member:
    return Member(
        initial.get(seed, run),
        algorithm.settings,
        streams.key(seed, "order", run.slots["order"]),
        streams.key(seed, "order", run.slots["order"], "masks"),
        table,
    )


class _InitialConditions:
    """Each theta0 is drawn once, however many runs start from it."""

    def __init__(self, training: Training, network: Network, dtype: torch.dtype) -> None:
        self.training, self.network, self.dtype = training, network, dtype
        self.known: dict[tuple[int, int], Tensor] = {}
        self.made: list[weakref.ref[nn.Module]] = []

    def get(self, seed: int, run: Run) -> Tensor:
        draw = run.slots["theta0"]
        if (seed, draw) not in self.known:
            with streams.torch_seeded(seed, "theta0", draw):
                module = self.training.model()
                if any(module is earlier() for earlier in self.made):
                    raise ValueError("the model factory returned the same network twice; let it make a new one")
                self.made.append(weakref.ref(module))
                if init := run.choices.get("init"):
                    init(module)
            theta0 = self.network.theta(module.to(self.dtype))
            self.network.check_draw(module)
            for (other_seed, other), earlier in self.known.items():
                if other_seed == seed and torch.equal(earlier, theta0):
                    raise ValueError(
                        f"draws {other} and {draw} of theta0 are the same: the factory starts from the same weights. "
                        "Does it set a seed, or copy a trained network? Then leave InitialCondition out"
                    )
            self.known[seed, draw] = theta0
        return self.known[seed, draw]
