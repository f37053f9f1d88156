"""From labelled runs to trained members: runs -> members -> cohorts -> what their trainings left."""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wherefrom.files.codec import stored
from wherefrom.posterior.point import Algorithm, Training
from wherefrom.training import streams
from wherefrom.training.cohort import Cohort, Collection, Examples, Member, Trained
from wherefrom.training.compute import Compute
from wherefrom.training.data import Rows, Scaler
from wherefrom.training.mlp import MLP
from wherefrom.training.network import Network
from wherefrom.training.objective import Objective
from wherefrom.training.progress import progress_bar
from wherefrom.training.streamed import in_memory
from wherefrom.training.torch_classes import TorchOptimiser
from wherefrom.training.workers import train_cohorts
from wherefrom.variables import Algorithms, Design, Dropout, Hyperparameters, Resample, Run
from wherefrom.variables.family import Factory

_PROBE_ROWS = 4
_NOT_SETTINGS = ("family", "algorithm", "dropout", "init", "share")  # choices that are not of the algorithm


@stored("Component")
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
    def of(
        cls, training: Training, rows: Rows, seed: int, held_out: Rows | float | None = None, groups: Any = None
    ) -> Fold:
        """Hold rows out where the noise is to be fitted on them; rows that weigh nothing are left out of both.

        `held_out` are other rows to take for it, or the fraction to hold out, instead of the likelihood's; rows of one
        of the `groups` stay together.
        """
        if groups is not None and rows.weights is not None:
            groups = np.asarray(groups)[(rows.weights > 0).numpy()]
        rows = rows.that_count
        share = training.likelihood.held_out if training.likelihood.fits_noise else 0.0
        if isinstance(held_out, Rows) or training.is_elsewhere:
            share = 0.0
        elif held_out is not None:
            share = float(held_out)
        if share:
            is_aside = torch.from_numpy(_drawn_apart(len(rows), share, groups, seed))
            aside = int(is_aside.sum())
            if aside < 2 or len(rows) - aside < 1:
                raise ValueError(
                    f'noise="fit" would hold {aside} of {len(rows)} rows out, which is too few; '
                    "raise held_out, or give the noise as a number"
                )
            held_out, rows = rows.take(is_aside), rows.take(~is_aside)
        held_out = held_out if isinstance(held_out, Rows) else None
        return cls(rows, held_out, Scaler.of(rows, training.standardise, training.likelihood), seed)


def _drawn_apart(rows: int, share: float, groups: Any, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out: whole groups in random order, to the nearest, and at least two of four.  # (rows,)"""
    numbers = np.arange(rows) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if numbers.shape != (rows,):
        raise ValueError(f"groups must have one entry for each of the {rows} rows, not shape {numbers.shape}")
    sizes, room = np.bincount(numbers), round(rows * share)
    fewest = 0 if groups is None else min(2, len(sizes) // 2)
    chosen: list[int] = []
    for group in streams.generator(seed, "held out").permutation(len(sizes)).tolist():
        if 2 * room >= sizes[group] or len(chosen) < fewest:
            chosen.append(group)
            room -= int(sizes[group])
        if room <= 0 and len(chosen) >= fewest:
            break
    return np.isin(numbers, chosen)


def build_networks(
    training: Training, design: Design, dropout: Dropout | None, x: Tensor, targets: int, seed: int
) -> dict[str, Network]:
    """Each family's model as a function, checked against the data, the likelihood, the design and what is dropped."""
    draws_rates = any(isinstance(v, Hyperparameters) and "dropout" in v.names for a in design.axes for v in a.variables)
    if draws_rates and dropout is not None and (dropout.rate is not None or dropout.on == "weights"):
        raise ValueError("the dropout rate is drawn by Hyperparameters(dropout=...): leave it out of Dropout")
    models = factories(training, design, x, targets)
    networks = {name: _build_network(f, name, training.likelihood, x, targets, seed) for name, f in models.items()}
    if draws_rates:
        for name, network in networks.items():
            if not network.sites:
                raise ValueError(
                    f"Hyperparameters(dropout=...) needs units to drop, and {_called(name)} has no nn.Dropout"
                )
    elif dropout is not None:
        networks = {name: _dropping(network, dropout) for name, network in networks.items()}
        if not any(network.sites for network in networks.values()):
            raise ValueError(
                "Dropout() marginalises the sub-networks of a model with dropout; the model has no nn.Dropout. "
                'Dropout(rate=0.05, on="weights") drops weights of any model'
            )
        if not any(rate > 0 for network in networks.values() for rate in network.rates):
            raise ValueError("every dropout rate in the model is zero; give one, as Dropout(rate=0.05)")
    return networks


def _dropping(network: Network, dropout: Dropout) -> Network:
    """As it is trained and sampled; a family without dropout has no other sub-network than itself."""
    if dropout.rate is None:
        return network
    return (network.with_weight_dropout if dropout.on == "weights" else network.with_dropout_rate)(dropout.rate)


def _called(family: str) -> str:
    return f"the model {family!r}" if family else "the model"


def factories(training: Training, design: Design, x: Tensor, targets: int) -> dict[str, Factory]:
    """The model factory of each family; without families, the training's own, under no name."""
    found = {"": training.model} if design.families is None else design.families.factories
    outputs = training.likelihood.outputs(targets)
    return {name: f.sized(_columns(x), outputs) if isinstance(f, MLP) else f for name, f in found.items()}


def _columns(x: Tensor) -> int:
    if x.ndim != 2:
        raise ValueError(f"an MLP takes a table, but x has rows of shape {tuple(x.shape[1:])}")
    return x.shape[1]


def _build_network(
    factory: Factory,
    family: str,
    likelihood: Objective,
    x: Tensor,
    targets: int,
    seed: int,
) -> Network:
    the_model = _called(family)
    with streams.torch_seeded(seed, "theta0", 0):
        module = factory().to(dtype=x.dtype if x.is_floating_point() else None)
    try:
        network = Network(module, in_memory(x[:_PROBE_ROWS]))
    except (RuntimeError, IndexError) as error:
        hint = "" if x.is_floating_point() else " (whole numbers are taken as indices; for measurements use floats)"
        raise ValueError(f"{the_model} cannot be run on rows of shape {tuple(x.shape[1:])}{hint}: {error}") from error
    likelihood.check_network(the_model, network.outputs, targets)
    if warning := likelihood.doubt_network(the_model, network.probe_answers, network.last_functions, False):
        warnings.warn(warning, stacklevel=5)
    return network


def train_runs(
    training: Training,
    networks: dict[str, Network],
    design: Design,
    jobs: Sequence[tuple[Fold, Sequence[Run]]],
    compute: Compute,
) -> list[list[Component]]:
    """Train all runs of all folds, in as few cohorts as their structures allow."""
    work = _Trainings(training, networks, design, jobs, compute)
    everyone = list(work.algorithms)
    if design.iterations is not None and design.iterations.start == "auto":
        # Where each loss levels off is known when it has been seen: once without collecting, then again.
        found = work.train("first look", everyone, collects=False)
        losses = {place: tuple(one.losses) for place, one in found.items() if one.diverged is None}
        found |= work.train("training", list(losses), collects=True, losses=losses) if losses else {}
    else:
        found = work.train("training", everyone, collects=design.iterations is not None)
    return [
        [Component(run, work.algorithms[j, r], found[j, r]) for r, run in enumerate(runs)]
        for j, (_, runs) in enumerate(jobs)
    ]


_Place = tuple[int, int]  # the number of a job, and of a run in it
Losses = tuple[float, ...]  # of every epoch


class _Trainings:
    """The runs of some folds as members of cohorts."""

    def __init__(
        self,
        training: Training,
        networks: dict[str, Network],
        design: Design,
        jobs: Sequence[tuple[Fold, Sequence[Run]]],
        compute: Compute,
    ) -> None:
        self.training, self.networks, self.design, self.jobs, self.compute = training, networks, design, jobs, compute
        self.algorithms: dict[_Place, Algorithm] = {
            (j, r): algorithm_of(training, design.algorithms, run)
            for j, (_, runs) in enumerate(jobs)
            for r, run in enumerate(runs)
        }
        fold = jobs[0][0]
        models = factories(training, design, fold.rows.x, fold.rows.targets)
        self.initial = {name: _InitialConditions(models[name], networks[name], compute.dtype) for name in models}
        self.tables: dict[tuple[int, int, float | None], Examples] = {}
        self.collections: dict[range | tuple[int, ...], Collection] = {}  # by their steps

    def train(
        self, what: str, places: Sequence[_Place], *, collects: bool, losses: Mapping[_Place, Losses] | None = None
    ) -> dict[_Place, Trained]:
        """Train these runs; if they collect their trajectories, their losses may tell from where on."""
        alike = self._alike(places, collects, losses or {})
        cohorts = [self._cohort(key, held) for key, held in alike.items()]
        with progress_bar(what, self.training.epochs * len(places), self.compute.progress) as report:
            how = self.compute
            trained = train_cohorts(cohorts, how.place, how.workers, report, how.engine, how.announce, how.kept_in)
        return {
            place: one
            for held, some in zip(alike.values(), trained, strict=True)
            for place, one in zip(held, some, strict=True)
        }

    def _alike(
        self, places: Sequence[_Place], collects: bool, losses: Mapping[_Place, Losses]
    ) -> dict[_Structure, list[_Place]]:
        """Runs that can train as one cohort."""
        found: dict[_Structure, list[_Place]] = defaultdict(list)
        for place in places:
            algorithm, rows = self.algorithms[place], len(self._table(place).y)
            batch_size = min(algorithm.batch_size, rows)
            collection = None
            if collects and self.design.iterations is not None:
                steps = rows // batch_size if algorithm.drop_last else -(-rows // batch_size)
                collection = self.design.iterations.collection(self.training.epochs, steps, losses.get(place))
                collection = self.collections.setdefault(collection.steps, collection)
            family, drops = self._family(place), algorithm.drop_last and bool(rows % batch_size)
            found[_Structure(family, algorithm.structure, batch_size, drops, rows, collection)].append(place)
        return found

    def _cohort(self, key: _Structure, held: list[_Place]) -> Cohort:
        network, (batch_size, rows) = self.networks[key.family], (key.batch_size, key.rows)
        if network.momenta and 1 in (batch_size, rows % batch_size * (not key.drop_last)):
            fold = self.jobs[held[0][0]][0]
            aside = 0 if fold.held_out is None else len(fold.held_out)
            why = f" ({aside} of {rows + aside} rows are held out to fit the noise)" if aside else ""
            raise ValueError(
                f"batches of {batch_size} leave a batch of one row of {rows}{why}, which batch normalisation cannot "
                "take: choose another batch size"
                + ", or leave that batch out by wf.Algorithm(..., drop_last=True)"
                * (batch_size > 1)
            )
        tables = list(dict.fromkeys(self._table_key(place) for place in held))
        return Cohort(
            network,
            key.optimiser,
            batch_size,
            self.training.epochs,
            self.training.likelihood.loss_for(self.jobs[held[0][0]][0].scaler),
            tuple(self._member(place, tables.index(self._table_key(place))) for place in held),
            tuple(self.tables[table] for table in tables),
            key.collection,
            self.training.augment,
            self.compute.autocast,
            key.drop_last,
        )

    def _member(self, place: _Place, table: int) -> Member:
        (fold, runs), algorithm = self.jobs[place[0]], self.algorithms[place]
        run = runs[place[1]]
        order, likelihood = run.slots["order"], self.training.likelihood.changed(run.choices)
        return Member(
            self.initial[self._family(place)].get(fold.seed, run),
            algorithm.settings,
            streams.key(fold.seed, "order", order),
            streams.key(fold.seed, "order", order, "masks"),
            table,
            network_of(self.networks, run).rates if "dropout" in run.choices else None,
            algorithm.schedule,
            streams.key(fold.seed, "order", order, "augmentation"),
            likelihood.loss_for(fold.scaler),
            algorithm.replacement,
        )

    def _family(self, place: _Place) -> str:
        return family_of(self.jobs[place[0]][1][place[1]])

    def _table_key(self, place: _Place) -> tuple[int, int, float | None]:
        run = self.jobs[place[0]][1][place[1]]
        is_resampled = "share" in run.choices
        return place[0], run.slots["D"] if is_resampled else -1, run.choices.get("share")

    def _table(self, place: _Place) -> Examples:
        """The rows of a run: its fold's, or a draw of them."""
        key = self._table_key(place)
        if key not in self.tables:
            (fold, _), (_, draw, share) = self.jobs[place[0]], key
            rows = fold.rows
            if draw >= 0:
                chosen = Resample.rows(len(rows), share, fold.seed, draw)
                drawn_weights = None if rows.weights is None else rows.weights[chosen]
                rows = replace(rows, x=rows.x[chosen], y=rows.y[chosen], weights=drawn_weights)
            weights = self.training.likelihood.row_weights(rows)
            self.tables[key] = Examples(
                fold.scaler.x(rows.x, self.compute.dtype),
                fold.scaler.y(rows.y, self.compute.dtype),
                None if weights is None else weights.to(self.compute.dtype),
            )
        return self.tables[key]


@dataclass(frozen=True)
class _Structure:
    """What the members of one cohort have in common."""

    family: str
    optimiser: str | TorchOptimiser
    batch_size: int
    drop_last: bool  # and there is a short one
    rows: int
    collection: Collection | None


def family_of(run: Run) -> str:
    return str(run.choices.get("family", ""))


def network_of(networks: dict[str, Network], run: Run) -> Network:
    """A run's network: its family's, at the dropout rate that was drawn for it."""
    network = networks[family_of(run)]
    return network.with_dropout_rate(run.choices["dropout"]) if "dropout" in run.choices else network


def algorithm_of(training: Training, several: Algorithms | None, run: Run) -> Algorithm:
    """The training's algorithm, or the one that was drawn, with the settings that were drawn and that it has."""
    algorithm = run.choices.get("algorithm", training.algorithm)
    others = (*_NOT_SETTINGS, *training.likelihood.settings)
    changes = {name: value for name, value in run.choices.items() if name not in others}
    if several is not None:  # some of which may not have a setting, but not all
        for name in changes:
            if not any(one.has(name) for one in several.algorithms):
                raise ValueError(f"none of {several} has a setting {name!r}")
        changes = {name: value for name, value in changes.items() if algorithm.has(name)}
    try:
        return algorithm.but(**changes) if changes else algorithm
    except ValueError as error:
        raise ValueError(f"the settings drawn for {run} cannot be used: {error}") from error


class _InitialConditions:
    """Each theta0 is drawn once, however many runs start from it."""

    def __init__(self, factory: Factory, network: Network, dtype: torch.dtype) -> None:
        self.factory, self.network, self.dtype = factory, network, dtype
        self.drawn: dict[tuple[int, int], Tensor] = {}
        self.alike: dict[tuple[int, int], list[int]] = defaultdict(list)  # draws by their seed and digest
        self.made: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def get(self, seed: int, run: Run) -> Tensor:
        draw = run.slots["theta0"]
        if (seed, draw) not in self.drawn:
            with streams.torch_seeded(seed, "theta0", draw):
                module = self.factory()
                if module in self.made:
                    raise ValueError("the model factory returned the same network twice; let it make a new one")
                self.made.add(module)
                if init := run.choices.get("init"):
                    init(module)
            theta0 = self.network.theta(module.to(self.dtype))
            self.network.check_draw(module)
            alike = self.alike[seed, _digest(theta0)]
            for other in alike:
                if torch.equal(self.drawn[seed, other], theta0):
                    raise ValueError(
                        f"draws {other} and {draw} of theta0 are the same: the factory starts from the same weights. "
                        "Does it set a seed, or copy a trained network? Then leave InitialCondition out"
                    )
            alike.append(draw)
            self.drawn[seed, draw] = theta0
        return self.drawn[seed, draw]


def _digest(theta: Tensor) -> int:
    """A number that equal thetas share, and others hardly ever: the sum of their bits, taken as whole numbers."""
    even = theta[: len(theta) - len(theta) % 2]  # two single numbers are one of 64 bits
    return int(even.view(torch.int64).sum())
