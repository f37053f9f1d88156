"""The networks of a table: settings by a pilot, draws by the budget, and which choices are marginalised in the end."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from wherefrom.likelihoods import LIKELIHOODS, Likelihood
from wherefrom.likelihoods.choice import TASKS, Law, candidates
from wherefrom.posterior import Posterior, stopping
from wherefrom.posterior.left_out import judged_by
from wherefrom.posterior.marginalise import marginalise
from wherefrom.posterior.parts import of_last_iterates
from wherefrom.posterior.point import Training
from wherefrom.tables import plan
from wherefrom.tables.columns import Encoded
from wherefrom.tables.families import Family, with_families
from wherefrom.tables.options import Request
from wherefrom.tables.pilot import LEAST_EPOCHS, Pilot, Tried, dropout, pilot, rate
from wherefrom.tables.raw import Integers
from wherefrom.tables.scores import NAMES as SCORES
from wherefrom.tables.target import Target
from wherefrom.tables.telling import Tell
from wherefrom.tables.wording import option
from wherefrom.training.compute import Compute
from wherefrom.training.data import Rows, as_rows
from wherefrom.training.native import COMPILING_SECONDS, is_compiled
from wherefrom.training.objective import Objective
from wherefrom.training.pieces import Pieces
from wherefrom.training.sparse import SparseLinear
from wherefrom.variables import Design, Folds

_MOST_DRAWS = 20
_ROWS_OF_SHARES = 1000  # are enough to compare the shares of the sources by
_LAST_ITERATES = (10, 5)  # of those that SWAG collects, to try alone
_EPOCHS_OF_FEW = 200  # where there are too few rows to find a better number
_FEW_VALUES, _SOME_ROWS = 3, 1000  # of a column that is not cut into pieces, in the first rows
_MOST_PIECES, _MOST_NUMBERS = 1000, 50_000_000  # of all columns, and of all rows
_PILOT_SHARE, _TRAINING_SHARE = 0.3, 0.6  # of the budget, and of what is left of it: noise and calibration take time


class AllRows(Protocol):
    """Rows to train on that are in a file."""

    def rows(self, target: Target, likelihood: Objective) -> tuple[Rows, Rows | None]:
        """Return the rows, and others to fit the noise on, if there is noise to fit."""
        ...


@dataclass(frozen=True, eq=False)
class Networks:
    """The networks of a table, and the pilot that chose their settings, where there was one."""

    posterior: Posterior
    first: Pilot | None
    samples: int  # of each network, to predict by
    ways: tuple[Way, ...] = ()  # to treat t, that were compared; the chosen one is among them
    families: tuple[Family, ...] = ()  # that were weighed, if any were beside networks
    trained_on: int = 0  # rows


def train(
    data: tuple[Encoded, Any, Any],
    versions: Sequence[Encoded],
    copies: Integers | None,
    target: Target,
    values: Any,
    request: Request,
    began: float,
    tell: Tell,
    compute: Compute,
    folds: int,
    all_rows: AllRows | None = None,
) -> Networks:
    """Train the networks that a request asks for, at settings that a pilot finds where they are left open.

    data: x, y, and the weights of the rows or None.
    versions: x for each fold to train on, where its rows have gaps that are drawn.
    values: of the target in all rows, held-out ones among them: its likelihood must suit them.
    folds: in how many D is drawn, too; 0 if not.
    all_rows: to train on, if the data is only some of them (default: the data).
    """
    count, asked = len(data[1]), request.settings
    training = plan.training_for(count, target, asked)
    if not target.classes:
        encoded = training.likelihood.encode(Encoded(data[1], target.several) if target.several else data[1])
        training = replace(training, likelihood=training.likelihood.suited(encoded.y))
    laws = candidates(target.task, values, plan.wishes_for(count, target, asked))
    if request.likelihood != "auto":
        training = replace(training, likelihood=_insisted(request, training.likelihood, laws))
    _check_calibration(request, training.likelihood)
    training = plan.sized(training, data[0].values.shape[1], len(target.classes or target.several) or 1)
    is_few = plan.is_few(count, count if copies is None else len(np.unique(copies)))

    def variables(at: Training) -> list[Any]:
        over = request.variables(rate(at), folds)
        return [*over, Folds(folds)] if folds else over

    over = variables(training)
    compute = _without_waiting(compute, request.budget, tell)
    first, tried = None, _to_be_tried(request, target, Design.of(over))
    if is_few:
        training = replace(training, epochs=_EPOCHS_OF_FEW)
    elif request.epochs is None or request.budget is not None or tried:
        first = pilot(
            training,
            data,
            averages=Design.of(over).iterations is not None,
            tried=tried,
            epochs=request.epochs,
            seed=request.seed,
            until=None if request.budget is None else began + _PILOT_SHARE * request.budget,
            compute=compute,
            copies=copies,
            pieces=_pieces(data[0]),
            rivals=_rivals(request, laws) if all_rows is None else {},
        )
        training = first.training
        over = variables(training)
        if request.epochs is None:
            tell(
                f"chosen on validation rows: {training.epochs} epochs, a learning rate of "
                f"{rate(training):.2g}" + f", {dropout(training):.0%} dropout" * bool(dropout(training))
            )
        for line in first.notes:
            tell(line)
    if request.epochs is not None:
        training = replace(training, epochs=request.epochs)
    if request.budget is not None and first is not None:
        training, over = _within_budget(training, over, request, first, began, tell)
    apart = None
    if all_rows is not None:
        rows, apart = all_rows.rows(target, training.likelihood)
        if request.epochs is None:  # as many steps as were found to be enough
            training = replace(training, epochs=max(1, -(-training.epochs * count // len(rows))))
        count, copies = len(rows), None
    steps = training.algorithm.steps_per_epoch(count)
    over = plan.collecting(over, training.epochs, steps)
    if request.epochs is None:
        training = replace(training, epochs=plan.long_enough(Design.of(over), training.epochs, steps))
    design = Design.of(over)
    each = f", {design.size // design.parts} for each of {design.parts} folds" if design.parts else ""
    tell(
        f"training {design.size} network{'s' * (design.size != 1)}{each}: {_sizes(training)}, {training.epochs} epochs"
    )
    if all_rows is None:
        x, y, weights = data
        rows = as_rows((x, Encoded(y, target.several) if target.several else y, weights), training.likelihood)
    if versions:
        rows = replace(rows, versions=torch.from_numpy(np.stack([each.values for each in versions])))
    posterior = marginalise(training, rows, over, request.seed, held_out=apart, groups=copies, compute=compute)
    if design.parts and apart is None:
        posterior = judged_by(posterior, torch.from_numpy(plan.judged(count, request.seed)))
    if all_rows is not None:  # whose memory is free then
        posterior = replace(posterior, fold=replace(posterior.fold, rows=None))
    samples = request.samples or plan.samples_of_each(len(posterior))
    compared: tuple[Way, ...] = ()
    if design.parts and request.over is None and request.recipe is None:
        posterior, compared = _as_far_as_it_helps(posterior, samples, tell)
    others = request.families_asked[1:]
    if not others or not design.parts or is_few or _is_late(request.budget, began):
        return Networks(posterior, first, samples, compared, trained_on=len(rows))
    together = np.arange(count) if copies is None else np.unique(copies, return_inverse=True)[1]
    validation = stopping.folds(together, np.asarray(y).reshape(count, -1)[:, 0], request.seed)
    posterior, judged = with_families(posterior, others, rows, copies, validation, samples, compute, tell)
    return Networks(posterior, first, samples, compared, judged, trained_on=len(rows))


def _rivals(request: Request, laws: Mapping[Law, Likelihood]) -> dict[Law, Likelihood]:
    """Return the likelihoods to compare with the Gaussian, if what was asked for leaves the distribution open."""
    settings = request.settings
    is_open = request.likelihood == "auto" and settings.noise == "auto" and request.calibrate == "auto"
    if not is_open or settings.model is not None:
        return {}
    ends_at_zero = request.least in ("auto", 0.0)  # where y ends elsewhere, or nowhere, these would not
    return {law: each for law, each in laws.items() if law == "student" or (ends_at_zero and law != "gaussian")}


def _check_calibration(request: Request, likelihood: Likelihood) -> None:
    """Raise, before anything is trained, if the likelihood has no such calibration."""
    offered = likelihood.own_calibrations
    if request.calibrate not in ("auto", "none", *offered):
        raise ValueError(
            f"{option('calibrate', request.calibrate)} is not for {likelihood}: take {' or '.join(offered)}"
        )


def _insisted(request: Request, training: Likelihood, laws: Mapping[Law, Likelihood]) -> Likelihood:
    """Return the likelihood that was asked for; that of the training, where the task is the same."""
    by_name = {str(law): likelihood for law, likelihood in laws.items()}
    if not laws and training.task == TASKS.get(request.likelihood):
        return training
    if request.likelihood not in by_name:
        can_be = f"its values can be {' or '.join(laws)}" if laws else "it is for one column of quantities"
        raise ValueError(f"{option('likelihood', request.likelihood)} is not for {request.target!r}: {can_be}")
    return by_name[request.likelihood]


def _is_late(budget: float | None, began: float) -> bool:
    """True if more than half of the budget is spent."""
    return budget is not None and time.monotonic() - began > 0.5 * budget


@dataclass(frozen=True)
class Way:
    """One way to treat t, on rows that networks did not see: the same trainings serve them all."""

    name: str
    score: str  # by its name: the NLL, where there is a density
    loss: float
    behind: float  # the loss over that of the chosen one
    error: float  # standard error of that
    shares: dict[str, float]  # of the variance, or of the entropy, by source


def _as_far_as_it_helps(posterior: Posterior, samples: int, tell: Tell) -> tuple[Posterior, tuple[Way, ...]]:
    """Choose from when SWAG collects, or to leave t out: what makes rows most likely that networks did not see."""
    if "t" not in posterior.design.names:
        return posterior, ()
    assert posterior.held_out is not None
    some = torch.from_numpy(plan.to_choose(len(posterior.held_out), posterior.seed))
    candidates = _ways_to_treat_t(judged_by(posterior, some))
    rows = candidates["t as trained"].held_out
    assert rows is not None
    answers = {name: each.out_of_fold(samples) for name, each in candidates.items()}
    weights = None if rows.weights is None else rows.weights / rows.weights.mean()
    losses = {name: answer.row_losses(rows.truth) for name, answer in answers.items()}
    score = next(iter(losses["t as trained"]))  # the NLL, where there is a density
    by_row = {name: torch.from_numpy(np.asarray(each[score])) for name, each in losses.items()}
    by_row = {name: each if weights is None else weights * each for name, each in by_row.items()}
    best = min(by_row, key=lambda name: float(by_row[name].mean()))
    ways = []
    for name, each in by_row.items():
        behind = each - by_row[best]
        is_one = rows.y_is_flat  # several targets have their own sources
        some = torch.arange(0, len(rows), -(-len(rows) // _ROWS_OF_SHARES))
        split = answers[name].of_rows(some).all_sources().overall if is_one else {}
        shares = {source: float(of.share) for source, of in split.items()}
        error = float(behind.std()) / len(behind) ** 0.5
        ways.append(Way(name, SCORES[score], float(each.mean()), float(behind.mean()), error, shares))
    if best != "t as trained":
        by = ways[0]
        tell(f"{best}: lower {by.score} on left-out rows, by {by.behind:.3f} ± {by.error:.3f}")
    is_all = len(rows) == len(posterior.held_out)
    return candidates[best] if is_all else _ways_to_treat_t(posterior, best)[best], tuple(ways)


def _ways_to_treat_t(posterior: Posterior, only: str | None = None) -> dict[str, Posterior]:
    """Return the posterior with each way to treat t by its name, or with one of them; noise is fitted for each."""
    others = [name for name in posterior.design.names if name != "t"]
    ways: dict[str, Callable[[], Posterior | None]] = {"t as trained": lambda: posterior}
    for last in _LAST_ITERATES:
        ways[f"t from the last {last} iterates"] = partial(of_last_iterates, posterior, last)
    ways["t left out"] = partial(posterior.marginalising, *others)
    made = {name: way() for name, way in ways.items() if only in (None, name)}
    return {name: each for name, each in made.items() if each is not None}


def _without_waiting(compute: Compute, budget: float | None, tell: Tell) -> Compute:
    """Take the torch engine where compiling the other one would take too much of the budget."""
    is_open = compute.engine in ("auto", "fastest") and importlib.util.find_spec("numba") is not None
    if budget is None or not is_open or budget * _PILOT_SHARE > COMPILING_SECONDS or is_compiled():
        return compute
    tell("the budget is too short to compile the native engine on this machine first: training by torch")
    return replace(compute, engine="torch")


def _to_be_tried(request: Request, target: Target, design: Design) -> list[Tried]:
    """Return the settings to search: given epochs fix them, but not the noise; of a user's model, the rate alone."""
    names: list[Tried] = []
    if request.settings.model is not None:
        return ["lr"] if request.epochs is None and request.settings.lr is None else []
    if request.epochs is None:
        names += [name for name in ("lr", "dropout", "hidden") if getattr(request.settings, name) is None]
        names += ["inputs"] if request.settings.standardise else []
        names += ["decay"] if "weight_decay" not in request.settings.optimiser_settings else []
    if "dropout" in names and design.dropout is None:
        names.append("no dropout")
    if "hidden" in names and (design.dropout is not None or request.settings.dropout):
        names.remove("hidden")  # without hidden units there is nothing to drop
    if request.settings.noise == "auto" and "noise" in LIKELIHOODS[target.task].table_options:
        names.append("noise")
    return names


def _pieces(x: Encoded) -> Pieces | None:
    """Return the pieces of the columns that have more than a few values; None where these are none, or too many."""
    columns = tuple(
        number for number, values in enumerate(x.values.T) if len(np.unique(values[:_SOME_ROWS])) > _FEW_VALUES
    )
    pieces = Pieces(columns)
    inputs = len(columns) * pieces.count
    return pieces if 0 < inputs <= _MOST_PIECES and inputs * len(x) <= _MOST_NUMBERS else None


def _sizes(training: Training) -> str:
    hidden = getattr(training.model, "hidden", ())
    if isinstance(training.model, SparseLinear):
        return f"few columns (sparse {training.likelihood.without_hidden})"
    if not hidden:
        return f"no hidden units ({training.likelihood.without_hidden})"
    return f"{' + '.join(map(str, hidden))} hidden units"


def _within_budget(
    training: Training, over: list[Any], request: Request, first: Pilot, began: float, tell: Tell
) -> tuple[Training, list[Any]]:
    """Take as many draws as fit into the time that is left, or fewer epochs if two do not."""
    assert request.budget is not None
    left = _TRAINING_SHARE * (began + request.budget - time.monotonic())
    each = first.seconds_per_epoch * training.epochs
    most = _MOST_DRAWS if request.draws is None else request.draws
    parts = max(1, Design.of(over).parts)
    fits = max(0, int(left / each)) if each > 0 else most * parts
    drawn = plan.with_draws(over, max(2, min(most, fits // parts))) if request.over is None else None
    over = over if drawn is None else drawn
    size = Design.of(over).size
    if size > fits:
        epochs = max(LEAST_EPOCHS, int(training.epochs * max(left, 0.0) / (size * each)))
        if epochs < training.epochs:
            tell(f"the budget is short: {epochs} epochs instead of {training.epochs}")
            training = replace(training, epochs=epochs)
    elif drawn is not None:
        draws = size // parts
        tell(f"the budget allows for {draws} draws" + " (the most that are taken)" * (draws == most))
    return training, over
