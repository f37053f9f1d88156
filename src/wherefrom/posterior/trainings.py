"""From labelled runs to trained members: runs -> cohorts -> what their trainings left."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from wherefrom.posterior.fold import Fold
from wherefrom.posterior.member import Member, family_of, network_of
from wherefrom.posterior.networks import factories, factories_as_given
from wherefrom.posterior.point import Training
from wherefrom.training import streams
from wherefrom.training.algorithm import Algorithm
from wherefrom.training.cohort import Cohort, Collection, Examples, FitsItself, SharedRows, Trained, Trainee
from wherefrom.training.compute import Compute
from wherefrom.training.front import has_room
from wherefrom.training.mapped import release
from wherefrom.training.network import Network
from wherefrom.training.progress import progress_bar
from wherefrom.training.streamed import Streamed
from wherefrom.training.torch_classes import TorchOptimiser
from wherefrom.variables import Algorithms, Design, Resample, Run
from wherefrom.variables.family import Factory

_NOT_SETTINGS = ("family", "algorithm", "dropout", "init", "share", "leaves_out")  # of the algorithm


def train_runs(
    training: Training,
    networks: dict[str, Network],
    design: Design,
    work: Sequence[tuple[Fold, Sequence[Run]]],
    compute: Compute,
    kept: Kept | None = None,
) -> list[list[Member]]:
    """Train all runs of all folds, in as few cohorts as their structures allow.

    kept: has members that are finished already, and keeps those that this call trains; its folds are those of `work`.
    """
    trainings = _Trainings(training, networks, design, work, compute, kept)
    there = {job: one.trained for job in trainings.algorithms if (one := trainings.kept_member(job)) is not None}
    everyone = [job for job in trainings.algorithms if job not in there]
    if design.iterations is not None and design.iterations.start == "auto":
        # Where each loss levels off is known when it has been seen: once without collecting, then again.
        trained = trainings.train("first look", everyone, collects=False) if everyone else {}
        losses = {job: tuple(one.losses) for job, one in trained.items() if one.diverged is None}
        trained |= trainings.train("training", list(losses), collects=True, losses=losses) if losses else {}
    else:
        trained = trainings.train("training", everyone, collects=design.iterations is not None) if everyone else {}
    trained |= there
    return [
        [Member(run, trainings.algorithms[j, r], trained[j, r]) for r, run in enumerate(runs)]
        for j, (_, runs) in enumerate(work)
    ]


class Kept(Protocol):
    """Members that are finished, by the number of their fold."""

    def get(self, fold: int, run: Run) -> Member | None: ...

    def keep(self, fold: int, member: Member) -> None: ...


_Job = tuple[int, int]  # the number of a fold, and of a run in it
_TableKey = tuple[int, int, float | None, str]  # fold, draw of D, share of the rows, and a family that takes features
Losses = tuple[float, ...]  # of every epoch


class _Trainings:
    """The runs of some folds as members of cohorts."""

    def __init__(
        self,
        training: Training,
        networks: dict[str, Network],
        design: Design,
        work: Sequence[tuple[Fold, Sequence[Run]]],
        compute: Compute,
        kept: Kept | None = None,
    ) -> None:
        self.kept = kept
        self.training, self.networks, self.design, self.work, self.compute = training, networks, design, work, compute
        self.algorithms: dict[_Job, Algorithm] = {
            (j, r): algorithm_of(training, design.algorithms, run)
            for j, (_, runs) in enumerate(work)
            for r, run in enumerate(runs)
        }
        fold = work[0][0]
        schema = fold.schema
        models = factories(
            training, design, fold.scaler.input_shape(schema.x_shape), schema.targets, schema.x_names, schema.joined
        )
        given = factories_as_given(training, design)
        self.initial = {
            name: _InitialConditions(models[name], networks[name], compute.dtype, given[name]) for name in models
        }
        self.features = {name: network for name, network in networks.items() if self._has_features(network)}
        self.inputs: dict[tuple[int, str], Any] = {}  # by fold, and by family where it takes features
        self.tables: dict[_TableKey, Examples] = {}
        self.collections: dict[range | tuple[int, ...], Collection] = {}  # by their steps

    def train(
        self, what: str, jobs: Sequence[_Job], *, collects: bool, losses: Mapping[_Job, Losses] | None = None
    ) -> dict[_Job, Trained]:
        """Train these runs; if they collect their trajectories, their losses may tell from where on."""
        alike = self._alike(jobs, collects, losses or {})
        cohorts = [self._cohort(key, members) for key, members in alike.items()]
        numbered = list(alike.values())

        def done(cohort: int, member: int, trained: Trained) -> None:
            job = numbered[cohort][member]
            if self.kept is not None and what == "training":
                self.kept.keep(job[0], Member(self.work[job[0]][1][job[1]], self.algorithms[job], trained))

        with progress_bar(what, self.training.epochs * len(jobs), self.compute.progress) as report:
            trained = self.compute.train(cohorts, report, done)
        return {
            job: one
            for members, some in zip(alike.values(), trained, strict=True)
            for job, one in zip(members, some, strict=True)
        }

    def kept_member(self, job: _Job) -> Member | None:
        """Return a member that is finished already, and None for others."""
        return None if self.kept is None else self.kept.get(job[0], self.work[job[0]][1][job[1]])

    def _alike(
        self, jobs: Sequence[_Job], collects: bool, losses: Mapping[_Job, Losses]
    ) -> dict[_Structure, list[_Job]]:
        """Runs that can train as one cohort."""
        alike: dict[_Structure, list[_Job]] = defaultdict(list)
        for job in jobs:
            algorithm, rows = self.algorithms[job], len(self._table(job).y)
            batch_size = min(algorithm.batch_size, rows)
            collection = None
            if collects and self.design.iterations is not None:
                steps = algorithm.steps_per_epoch(rows)
                collection = self.design.iterations.collection(self.training.epochs, steps, losses.get(job))
                collection = self.collections.setdefault(collection.steps, collection)
            family, drops = self._family(job), algorithm.drop_last and bool(rows % batch_size)
            alike[_Structure(family, algorithm.structure, batch_size, drops, rows, collection)].append(job)
        return alike

    def _cohort(self, key: _Structure, jobs: list[_Job]) -> Cohort:
        whole, (batch_size, rows) = self.networks[key.family], (key.batch_size, key.rows)
        network = whole.head if key.family in self.features else whole
        assert network is not None
        if network.momenta and 1 in (batch_size, rows % batch_size * (not key.drop_last)):
            fold = self.work[jobs[0][0]][0]
            aside = 0 if fold.held_out is None else len(fold.held_out)
            why = f" ({aside} of {rows + aside} rows are held out to fit the noise)" if aside else ""
            raise ValueError(
                f"batches of {batch_size} leave a batch of one row of {rows}{why}, which batch normalisation cannot "
                "take: choose another batch size"
                + ", or leave that batch out by wf.Algorithm(..., drop_last=True)"
                * (batch_size > 1)
            )
        tables = list(dict.fromkeys(self._table_key(job) for job in jobs))
        return Cohort(
            network,
            key.optimiser,
            batch_size,
            self.training.epochs,
            self.training.likelihood.loss_for(self.work[jobs[0][0]][0].scaler),
            tuple(self._trainee(job, tables.index(self._table_key(job))) for job in jobs),
            tuple(self.tables[table] for table in tables),
            key.collection,
            self.training.augment,
            self.compute.autocast,
            key.drop_last,
            self.initial[key.family].fits_itself,
        )

    def _trainee(self, job: _Job, table: int) -> Trainee:
        (fold, runs), algorithm = self.work[job[0]], self.algorithms[job]
        run = runs[job[1]]
        order, likelihood = run.slots["order"], self.training.likelihood.changed(run.choices)
        return Trainee(
            self.initial[self._family(job)].get(fold.seed, run),
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

    def _family(self, job: _Job) -> str:
        return family_of(self.work[job[0]][1][job[1]])

    def _has_features(self, network: Network) -> bool:
        """Return True if what is frozen and comes first can be computed once: its rows are always the same."""
        if network.head is None or self.training.augment is not None:
            return False
        rows = [fold.trained_on.x for fold, _ in self.work]
        if any(isinstance(x, Streamed) and x.is_random for x in rows):
            return False
        numbers = network.head.probe_rows[0].numel() * sum(map(len, rows))
        return has_room(numbers, self.compute.dtype.itemsize)

    def _table_key(self, job: _Job) -> _TableKey:
        run = self.work[job[0]][1][job[1]]
        is_drawn = "share" in run.choices or "leaves_out" in run.choices
        family = self._family(job) if self._family(job) in self.features else ""
        return job[0], run.slots["D"] if is_drawn else -1, run.choices.get("share"), family

    def _table(self, job: _Job) -> Examples:
        """The rows of a run: its fold's, or a draw of them."""
        key = self._table_key(job)
        if key not in self.tables:
            (fold, runs), (_, draw, share, family) = self.work[job[0]], key
            rows, x = fold.trained_on, self._inputs(job[0], family)
            chosen = None if draw < 0 else Resample.rows(len(rows), share, fold.seed, draw)
            if "leaves_out" in runs[job[1]].choices:
                assert fold.parts is not None
                chosen = torch.nonzero(fold.parts != draw).flatten()
            if chosen is not None:
                x = x[chosen] if isinstance(x, Streamed) else SharedRows(x, chosen)
                if "leaves_out" in runs[job[1]].choices and rows.versions is not None:
                    x = self._seen(fold.scaler.x(rows.versions[draw][chosen], self.compute.dtype), family)
                drawn_weights = None if rows.weights is None else rows.weights[chosen]
                rows = replace(rows, x=rows.x[:0], y=rows.y[chosen], weights=drawn_weights)  # x is in memory once
            weights = self.training.likelihood.row_weights(rows)
            self.tables[key] = Examples(
                x,
                fold.scaler.y(rows.y, self.compute.dtype),
                None if weights is None else weights.to(self.compute.dtype),
            )
        return self.tables[key]

    def _inputs(self, fold: int, family: str) -> Any:
        """Return all rows of a fold as networks see them, the same object each time: draws of them share it."""
        if (fold, family) not in self.inputs:
            one = self.work[fold][0]
            self.inputs[fold, family] = self._seen(one.scaler.x(one.trained_on.x, self.compute.dtype), family)
            release(one.trained_on.x)
        return self.inputs[fold, family]

    def _seen(self, x: Any, family: str) -> Any:
        """Return rows as what is trained takes them: as they are, or as their features."""
        if family not in self.features:
            return x
        return self.features[family].features(x, self.compute.dtype, self.compute.torch_device)


@dataclass(frozen=True)
class _Structure:
    """All that the members of one cohort have in common."""

    family: str
    optimiser: str | TorchOptimiser
    batch_size: int
    drop_last: bool  # and there is a short one
    rows: int
    collection: Collection | None


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

    def __init__(self, factory: Factory, network: Network, dtype: torch.dtype, given: Any = None) -> None:
        self.factory, self.network, self.dtype = factory, network, dtype
        self.fits_itself = given if isinstance(given, FitsItself) else None
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
                    _initialise(module, init)
            theta0 = self.network.theta(module.to("cpu", self.dtype))
            if self.fits_itself is not None:  # from nothing that is drawn
                return self.drawn.setdefault((seed, draw), theta0)
            self.network.check_draw(module)
            alike = self.alike[seed, _digest(theta0)]
            for other in alike:
                if torch.equal(self.drawn[seed, other], theta0):
                    raise ValueError(
                        f"draws {other} and {draw} of theta0 are the same: the factory starts from the same weights. "
                        "Does it set a seed, or copy a trained network? Then leave InitialCondition out, or let "
                        "InitialCondition(init=...) redraw what is trained"
                    )
            alike.append(draw)
            self.drawn[seed, draw] = theta0
        return self.drawn[seed, draw]


def _initialise(module: nn.Module, init: Callable[[nn.Module], Any]) -> None:
    """Let `init` set what is trained; frozen parameters stay, which all members share, maybe with other networks."""
    frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    before = [parameter.detach().clone() for parameter in frozen]
    init(module)
    with torch.no_grad():
        for parameter, values in zip(frozen, before, strict=True):
            if not torch.equal(parameter, values):
                parameter.copy_(values)


def _digest(theta: Tensor) -> int:
    """A number that equal thetas share, and others hardly ever: the sum of their bits, taken as whole numbers."""
    even = theta[: len(theta) - len(theta) % 2]  # two single numbers are one of 64 bits
    return int(even.view(torch.int64).sum())
