"""From labelled runs to trained members: runs -> members -> cohorts -> what their trainings left."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from wherefrom import likelihood as likelihoods
from wherefrom.files.codec import stored
from wherefrom.likelihood import Classification, Likelihood
from wherefrom.training import streams
from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.cohort import Cohort, Collection, Examples, Member, Trained
from wherefrom.training.data import Rows, Scaler
from wherefrom.training.engines import Choice
from wherefrom.training.mlp import MLP
from wherefrom.training.network import Network
from wherefrom.training.point import Algorithm, Training
from wherefrom.training.progress import Show, progress_bar
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
    def of(cls, training: Training, rows: Rows, seed: int) -> Fold:
        """Hold rows out where the noise is to be fitted on them; rows that weigh nothing are left out of both."""
        held_out, rows = None, rows.that_count
        if training.likelihood.noise == "fit" and not training.is_elsewhere:
            order = torch.from_numpy(streams.generator(seed, "held out").permutation(len(rows)))
            aside = round(len(rows) * training.likelihood.held_out)
            if aside < 2 or len(rows) - aside < 1:
                raise ValueError(
                    f'noise="fit" would hold {aside} of {len(rows)} rows out, which is too few; '
                    "raise held_out, or give the noise as a number"
                )
            held_out, rows = rows.take(order[:aside].sort().values), rows.take(order[aside:].sort().values)
        return cls(rows, held_out, Scaler.of(rows, training.standardise), seed)


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
    likelihood: Likelihood,
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
    needed = likelihood.outputs(targets)
    if network.outputs != needed:
        if isinstance(likelihood, Classification):
            raise ValueError(
                f"{the_model} has {network.outputs} output{'s' * (network.outputs > 1)}, but there are {targets} "
                "classes, each with a logit of its own. If y lacks some, name them: wf.Classification(classes=...)"
            )
        raise ValueError(
            f"{the_model} has {network.outputs} outputs, but {likelihood} needs {needed} "
            f"for {targets} column{'s' * (targets > 1)} of y"
        )
    if isinstance(likelihood, Classification):
        _warn_of_probabilities(network, module, the_model)
    return network


def _warn_of_probabilities(network: Network, module: nn.Module, the_model: str) -> None:
    """A network that ends in a softmax would get another one, and could never be sure."""
    with torch.no_grad():
        answers = network.private("draws").call(
            network.layout.views(network.theta(module)), network.probe_rows, (), False
        )
    sums = answers.sum(1)
    if bool((answers >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-5):
        warnings.warn(
            f"{the_model} seems to end in a softmax: its outputs add up to one. They are taken as logits, of which the "
            "softmax is still to come: leave it out of the model",
            stacklevel=5,
        )


@dataclass(frozen=True)
class Execution:
    """Where and how trainings run. Nothing of it changes what they mean."""

    dtype: torch.dtype
    device: torch.device
    engine: Choice = "auto"
    workers: int | None = None
    progress: Show = None
    autocast: torch.dtype | None = None
    checkpoints: Checkpoints | None = None

    def announce(self, message: str) -> None:
        """Tell whoever waits why, unless nothing is to be shown."""
        if self.progress is not False:
            print(f"wherefrom: {message}", file=sys.stderr, flush=True)


def train_runs(
    training: Training,
    networks: dict[str, Network],
    design: Design,
    jobs: Sequence[tuple[Fold, Sequence[Run]]],
    how: Execution,
) -> list[list[Component]]:
    """Train all runs of all folds, in as few cohorts as their structures allow."""
    work = _Trainings(training, networks, design, jobs, how)
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
        how: Execution,
    ) -> None:
        self.training, self.networks, self.design, self.jobs, self.how = training, networks, design, jobs, how
        self.algorithms: dict[_Place, Algorithm] = {
            (j, r): algorithm_of(training, design.algorithms, run)
            for j, (_, runs) in enumerate(jobs)
            for r, run in enumerate(runs)
        }
        fold = jobs[0][0]
        models = factories(training, design, fold.rows.x, fold.rows.targets)
        self.initial = {name: _InitialConditions(models[name], networks[name], how.dtype) for name in models}
        self.tables: dict[tuple[int, int, float | None], Examples] = {}
        self.collections: dict[tuple[int, int, int], Collection] = {}

    def train(
        self, what: str, places: Sequence[_Place], *, collects: bool, losses: Mapping[_Place, Losses] | None = None
    ) -> dict[_Place, Trained]:
        """Train these runs; if they collect their trajectories, their losses may tell from where on."""
        alike = self._alike(places, collects, losses or {})
        cohorts = [self._cohort(key, held) for key, held in alike.items()]
        with progress_bar(what, self.training.epochs * len(places), self.how.progress) as report:
            how = self.how
            where = how.device, how.workers
            trained = train_cohorts(cohorts, *where, report, how.engine, how.announce, how.checkpoints)
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
                steps = -(-rows // batch_size)
                own = self.design.iterations.collection(self.training.epochs, steps, losses.get(place))
                collection = self.collections.setdefault((own.first, own.every, own.last), own)
            found[_Structure(self._family(place), algorithm.structure, batch_size, rows, collection)].append(place)
        return found

    def _cohort(self, key: _Structure, held: list[_Place]) -> Cohort:
        network, (batch_size, rows) = self.networks[key.family], (key.batch_size, key.rows)
        if network.momenta and 1 in (batch_size, rows % batch_size):
            raise ValueError(
                f"batches of {batch_size} leave a batch of one row of {rows}, which batch normalisation cannot take: "
                "choose another batch size"
            )
        tables = list(dict.fromkeys(self._table_key(place) for place in held))
        return Cohort(
            network,
            key.optimiser,
            batch_size,
            self.training.epochs,
            self.training.likelihood.loss,
            tuple(self._member(place, tables.index(self._table_key(place))) for place in held),
            tuple(self.tables[table] for table in tables),
            key.collection,
            self.training.augment,
            self.how.autocast,
        )

    def _member(self, place: _Place, table: int) -> Member:
        (fold, runs), algorithm = self.jobs[place[0]], self.algorithms[place]
        run = runs[place[1]]
        order, likelihood = run.slots["order"], likelihood_of(self.training, run)
        return Member(
            self.initial[self._family(place)].get(fold.seed, run),
            algorithm.settings,
            streams.key(fold.seed, "order", order),
            streams.key(fold.seed, "order", order, "masks"),
            table,
            network_of(self.networks, run).rates if "dropout" in run.choices else None,
            algorithm.schedule,
            streams.key(fold.seed, "order", order, "augmentation"),
            None if likelihood is self.training.likelihood else likelihood.loss,
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
            weights = row_weights(self.training.likelihood, rows)
            self.tables[key] = Examples(
                fold.scaler.x(rows.x, self.how.dtype),
                fold.scaler.y(rows.y, self.how.dtype),
                None if weights is None else weights.to(self.how.dtype),
            )
        return self.tables[key]


@dataclass(frozen=True)
class _Structure:
    """What the members of one cohort have in common."""

    family: str
    optimiser: str | TorchOptimiser
    batch_size: int
    rows: int
    collection: Collection | None


def family_of(run: Run) -> str:
    return str(run.choices.get("family", ""))


def network_of(networks: dict[str, Network], run: Run) -> Network:
    """A run's network: its family's, at the dropout rate that was drawn for it."""
    network = networks[family_of(run)]
    return network.with_dropout_rate(run.choices["dropout"]) if "dropout" in run.choices else network


def likelihood_of(training: Training, run: Run) -> Likelihood:
    """The training's likelihood, with the settings of its loss that were drawn."""
    return likelihoods.changed(training.likelihood, run.choices)


def row_weights(likelihood: Likelihood, rows: Rows) -> Tensor | None:
    """What each row's loss is multiplied by, with a mean of one: its own weight times its class's.  # (rows,)"""
    own = rows.weights
    classes = likelihood.row_weights(rows.y, rows.classes) if isinstance(likelihood, Classification) else None
    if own is None or classes is None:
        return classes if own is None else own / own.mean()
    if isinstance(likelihood, Classification) and likelihood.class_weights == "balanced":
        # Classes are balanced by what their rows weigh, not by how many these are.
        numbers = rows.y.flatten().long()
        counts = torch.bincount(numbers, minlength=len(rows.classes))
        totals = torch.bincount(numbers, own, minlength=len(rows.classes))
        classes = classes * (counts / totals)[numbers]
    found = own * classes
    if not float(found.sum()) > 0:
        raise ValueError("all rows are of classes that weigh nothing")
    return found / found.mean()


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
        self.known: dict[tuple[int, int], Tensor] = {}
        self.made: list[weakref.ref[nn.Module]] = []

    def get(self, seed: int, run: Run) -> Tensor:
        draw = run.slots["theta0"]
        if (seed, draw) not in self.known:
            with streams.torch_seeded(seed, "theta0", draw):
                module = self.factory()
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
