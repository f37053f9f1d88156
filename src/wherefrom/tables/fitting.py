"""A table -> a model: what the columns are, which rows judge the networks, the training, the calibration, the scores.

Every row that has a target trains, and is judged by the networks of the one fold (of ten) that left it out: by these
answers the noise is fitted, the calibration, and the scores that are shown. Of more than 5,000 rows, that many judge,
drawn at random. Of more than 50,000, or where it is asked for, 15% are held out instead (6,000 at most), half of them
to calibrate, half to test. What the user leaves open (epochs, learning rate, dropout, whether there are hidden units,
and what kind of noise) is chosen by a pilot.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.likelihoods import LIKELIHOODS
from wherefrom.likelihoods.choice import TASKS
from wherefrom.posterior import Posterior
from wherefrom.predictive.survival_scores import FEWEST_EVENTS
from wherefrom.tables import neighbours, plan
from wherefrom.tables.background import background_of, groups_of
from wherefrom.tables.calibrating import Judges, calibrated
from wherefrom.tables.columns import Encoded, TableEncoder, rows_of
from wherefrom.tables.completing import Filled
from wherefrom.tables.model import HeldOut, Model, as_table
from wherefrom.tables.neighbours import Neighbour
from wherefrom.tables.options import Request
from wherefrom.tables.outside import Surroundings, weight
from wherefrom.tables.predicting import Predicted, predict_rows
from wherefrom.tables.raw import Format, Integers, RawTable
from wherefrom.tables.sampling import MOST_ROWS, sampled
from wherefrom.tables.scores import Scores
from wherefrom.tables.splitting import after, everything, fixed_order, kept_together, likely_groups, split
from wherefrom.tables.target import Target, known, possible
from wherefrom.tables.telling import Notes, Tell, warnings_as
from wherefrom.tables.threads import one_thread
from wherefrom.tables.training import train
from wherefrom.tables.weighing import weighted, with_classes
from wherefrom.tables.whole import Whole, rows_to_learn
from wherefrom.tables.wording import option
from wherefrom.training import streams
from wherefrom.training.compute import Compute
from wherefrom.training.engines import Choice
from wherefrom.training.progress import Show

_HELD_OUT = 0.15  # of a large table
_MOST_KEPT = 6000  # rows, for the report


def fit(
    table: Any,
    target: str,
    *,
    task: str | None = None,
    likelihood: str = "auto",
    event: str | None = None,
    entry: str | None = None,
    least: Any = "auto",
    levels: str | Sequence[Any] | None = None,
    exposure: str | None = None,
    over: str | None = None,
    recipe: str | None = None,
    draws: int | None = None,
    families: str = "auto",
    noise: Any = "auto",
    epochs: Any = "auto",
    budget: str | float | None = None,
    calibrate: str = "auto",
    number: Sequence[str] = (),
    text: Sequence[str] = (),
    date: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing: Sequence[str] = (),
    group: str | None = None,
    weight: str | None = None,
    hidden: str | int | Sequence[int] | None = None,
    dropout: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    held_out: float | None = None,
    test: Any = None,
    test_after: str | None = None,
    most_rows: int = MOST_ROWS,
    level: float = 0.95,
    samples: int | None = None,
    seed: int = 0,
    compute: Compute | None = None,
    device: str | None = None,
    engine: Choice | None = None,
    workers: int | None = None,
    verbose: bool = False,
) -> Model:
    """Train a model that predicts a column of a table from the others, with intervals.

    It is `wherefrom fit` in Python, with the same options and the same result. Text, dates and missing values are
    handled, settings are chosen on validation rows, and every row is scored by networks that did not see it.

    table: a pandas or polars frame, a dictionary of columns, or a CSV or Parquet file.
    target: the column to predict.
    task: "regression", "positive", "classification", "counts", "ordinal", "quantiles" or "survival" (default: by the
        target).
    likelihood: the distribution of a quantity: "gaussian", "student" (heavy tails), "positive" (log-normal, with a
        hurdle for zeros) or "counts" (default "auto": chosen on validation rows).
    event: for survival times, the column that says whether the event was seen (1, true, yes) or the row is censored (0,
        false, no). For other words, name that of the event: "status=dead".
    entry: for survival times, the column with the time from which a row was observed (default: 0).
    least: the lowest possible value of a quantity, where intervals end; None, or "auto" (default: 0 if no value of 100
        or more rows is negative).
    levels: the ordered classes of task "ordinal", from the lowest to the highest, such as ["low", "medium", "high"]
        (default: numbers in their order).
    exposure: for counts, the column with the time, or the size, in which each row was counted; means are proportional
        to it.
    over, recipe, draws: the choices to treat as uncertain, such as "theta0=5,t=swag,F=dropout", or the name of a recipe
        and how many networks it trains in each fold (default: multi_swag with 3; without folds 5).
    families: "auto" (default: boosted trees and a Gaussian process are added, with weights, if that improves the
        predictions of left-out rows), or names, "network,trees,process". If over, recipe, hidden or epochs are given,
        "auto" is "network".
    noise: the noise of a quantity: "auto" (default), "fit" (one value), "predicted" (for each row), None, or a standard
        deviation.
    epochs: "auto" (default: chosen on validation rows), or a number.
    budget: approximate time for training, such as "5min" or in seconds: trains as many draws as possible.
    calibrate: "auto" (default), "variance", "shape", "temperature", "conformal" or "none".
    number, text, date, drop: columns of this type, or to leave out; a date may have a format: "when=%d/%m/%Y".
    missing: more words for a missing value.
    group: a column, such as a patient's number: rows with the same value stay together in every split.
    weight: a column of row weights: a weight of k counts the row k times.
    hidden, dropout, lr, batch_size: settings of the network and its training (default: chosen by the data).
    held_out: share of rows to hold out for calibration and testing, 6,000 rows at most (default: none up to 50,000
        rows: every row is trained on, and scored by the networks that did not see it).
    test: a table, or file, of test rows; `model.tested` has their scores.
    test_after: a date, such as "2024-01-01": rows from this date on are test rows. If several columns hold dates,
        "column=2024-01-01".
    most_rows: the largest number of rows to train on (default 1,000,000). If the table has more, this many are drawn at
        random. Above a million rows of a file, rows stay on disk, and 200,000 of them give the settings, the
        calibration and the scores.
    level: level of the intervals (default 0.95).
    samples: samples of each network (default: 500 from all together, at least 20 of each).
    seed: seed of all random choices; the same seed gives the same model (default 0).
    compute: where and how to compute, a `wf.Compute` (default None: on the CPU).
    device, engine, workers: fields of `compute` by name (default None: those of `compute`).
    verbose: print messages, and show progress (default False).

    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> ward = random.choice(["A", "B"], size=300)
    >>> age = random.uniform(20, 90, size=300)
    >>> table = {"ward": ward, "age": age, "stay": np.where(ward == "A", 2, 5) + age / 20 + random.normal(size=300)}
    >>> model = fit(table, target="stay", draws=3, epochs=30)
    >>> predictions = model.predict({"ward": ["A", "B"], "age": [40, 80]})
    >>> list(predictions)[:5]
    ['mean', 'median', 'std', 'lower', 'upper']
    """
    request = Request.of(
        target,
        task=task,
        likelihood=likelihood,
        event=event,
        entry=entry,
        least=least,
        levels=levels,
        exposure=exposure,
        over=over,
        recipe=recipe,
        draws=draws,
        families=families,
        noise=noise,
        epochs=epochs,
        budget=budget,
        calibrate=calibrate,
        number=number,
        text=text,
        date=date,
        drop=drop,
        group=group,
        weight=weight,
        hidden=hidden,
        dropout=dropout,
        lr=lr,
        batch_size=batch_size,
        held_out=held_out,
        test_after=test_after,
        most_rows=most_rows,
        level=level,
        samples=samples,
        seed=seed,
        compute=compute,
        device=device,
        engine=engine,
        workers=workers,
    )
    how = Format(missing=tuple(missing))
    tell: Tell = print if verbose else lambda _: None
    to_test = None if test is None else as_table(test, how)
    rows, whole = _rows_to_learn(table, request, how)
    model = learn(rows, request, tell, None if verbose else False, how, test=to_test, whole=whole)
    for note in (*model.verdict(), *model.notes):
        warnings.warn(note, stacklevel=2)
    return model


def _rows_to_learn(table: Any, request: Request, how: Format) -> tuple[RawTable, Whole | None]:
    if isinstance(table, str | Path):
        return rows_to_learn(table, how, request)
    return sampled(as_table(table, how), request.most_rows, request.seed), None


@one_thread()
def learn(
    table: RawTable,
    request: Request,
    tell: Tell,
    progress: Show = None,
    reading: Format | None = None,
    note: Tell | None = None,
    test: RawTable | None = None,
    target: Target | None = None,
    whole: Whole | None = None,
) -> Model:
    """Learn from a table: `tell` hears what is done, `note` what the user should know; `test` has rows to score.

    target: what to predict (default: as the cells of the column that is asked for say).
    whole: the file that the rows were drawn from, if all of its rows are to be trained on (default: none).
    """
    began = time.monotonic()
    target = target or Target.of(
        table,
        request.target,
        request.task or TASKS.get(request.likelihood),
        request.least,
        request.levels,
        request.exposure,
        request.event,
        request.entry,
    )
    _check_options(request, target)
    notes = Notes(note)
    for line in table.notes:
        notes.append(line)
    if request.test_after is not None:
        if test is not None:
            raise ValueError(
                f"{option('test')} and {option('test_after')} both say which rows are to test: give one of them"
            )
        table, test = after(table, request.test_after, request.kinds)
    table, y = _with_target(table, target, notes, request.fewest_rows)
    _check_values(table, y, target, request)
    if target.event and (events := int((y[:, 1] == 1).sum())) < FEWEST_EVENTS:
        notes.append(
            f"only {events} of {rows_of(len(y))} had the event ({target.event!r} is {target.seen!r}): networks learn "
            f"little from so few, and concordance and the Brier score are left out below {FEWEST_EVENTS}"
        )
    table, weights = weighted(table, request.weight)
    y = y if request.weight is None else target.values(table)  # of rows that may be repeated
    others = (*target.columns, request.group, request.weight)
    names = [name for name in table.columns if name not in others]
    encoder = TableEncoder.of(table, names, request.kinds, np.arange(len(table)))
    encoded = encoder.encode(table)
    order = fixed_order(encoded.values, y, weights)
    weights = with_classes(None if weights is None else weights[order], y[order], target.classes, request.class_weight)
    if weights is not None:
        order, weights = order[weights > 0], weights[weights > 0]
    table, encoded, y = table.take(order), encoded.take(order), y[order]
    copies = kept_together(table, names, request, notes)
    for name in likely_groups(table, [name for name in names if name not in request.kinds]):
        notes.append(
            f"{name!r} looks like an identifier, and its values stand in several rows: if those belong together, use "
            f"{option('group', name)}, so that none is trained on while another is held out"
        )
    different = len(y) if copies is None else len(np.unique(copies))
    is_apart = request.held_out is not None or whole is not None
    folds = 0 if is_apart else plan.folds(request.variables(1.0), len(y), different)
    is_by_folds, is_few = bool(folds), plan.is_few(len(y), different)
    judged = plan.judged(len(y), request.seed)
    if is_by_folds or is_few:
        rows = everything(len(y))
    else:
        rows = split(y, request.held_out or _HELD_OUT, request.seed, copies)
        encoder = TableEncoder.of(table, names, request.kinds, rows.train)
        encoded = encoder.encode(table)
        judged = rows.test
    for line in encoder.limits(table):
        notes.append(line)
    counts = {"all": len(y), "train": len(rows.train), "calibrate": len(rows.calibrate), "test": len(rows.test)}
    if is_by_folds:
        counts = {"all": len(y), "folds": folds}
        tell(f"{_rows_judged(len(y), len(judged))} by networks that were trained without it")
    else:
        tell("{all:,} rows: {train:,} to train on, {calibrate:,} to calibrate, {test:,} to test".format(**counts))
    tell(f"{target.name}: {target.task}" + f", because {target.why}" * (target.why != "as asked"))
    if target.least is not None:
        free = option("least", "none")
        tell(f"{target.name} is never below {target.least:g}, so predictions are not either (turn off with {free})")
    for line in encoder.describe():
        tell(line)

    filled = Filled.of(encoder, encoded.take(rows.train), y[rows.train], target, request.seed, folds)
    with warnings_as(notes):
        data = filled.x, y[rows.train], None if weights is None else weights[rows.train]
        together = None if copies is None else copies[rows.train]
        compute = request.compute.but(progress=progress)
        if compute.engine == "auto":  # all trainings together are worth a compilation
            compute = compute.but(engine="fastest")
        all_rows = None if whole is None else whole.without(table, encoder, encoded, filled, rows, together is not None)
        networks = train(data, filled.versions, together, target, y, request, began, tell, compute, folds, all_rows)
        if all_rows is not None:
            counts |= {"all": networks.trained_on + len(rows.calibrate) + len(rows.test), "train": networks.trained_on}
        posterior, samples = networks.posterior, networks.samples
        target = replace(target, task=posterior.training.likelihood.task)
        if is_by_folds:
            posterior, judges = Judges.left_out(posterior, encoded, filled, judged)
        else:
            some = rows.calibrate
            their_weights = None if weights is None else weights[some]
            judges = Judges.held_out(posterior, encoded.take(some), y[some], their_weights, filled.completion)
        posterior = calibrated(posterior, request, judges, samples, tell, notes)
    kept, left_out_by = np.concatenate([_as_in_table(table, some) for some in (rows.calibrate, rows.test)]), None
    complete = encoded if filled.completion is None else filled.x
    if is_by_folds:
        assert posterior.fold.parts is not None
        kept, left_out_by = _as_in_table(table, _some_rows(len(y), request.seed)), posterior.fold.parts
    elif filled.completion is not None:
        complete = filled.completion.once(encoded)
    around = Surroundings.of(encoder, encoded.take(rows.train), together)
    groups = groups_of(table, request.group)
    trained = None if groups is None else groups[rows.train]
    background = background_of(posterior, filled.x, y[rows.train], trained, request.level, samples)
    distance, _ = around.look(encoded)
    scored = None
    if len(judged) and not target.several:
        scored = predict_rows(
            posterior,
            encoded.take(judged),
            request.level,
            samples,
            y[judged],
            progress=progress,
            left_out_by=None if left_out_by is None else left_out_by[judged],
            blend=background.at(weight(distance[judged])),  # groups are judged by others
            completion=filled.completion,
            itself=filled.itself[judged] if is_by_folds and filled.itself is not None else None,
        )
    about = {
        "source": table.source,
        "missing": list((reading or Format()).missing),
        "decimal": table.decimal,
        "group": request.group,
        "weight": request.weight,
        "calibrate": request.calibrate,
        "rows": counts,
        "seconds": round(time.monotonic() - began, 1),
        "pilot": None if networks.first is None else asdict(replace(networks.first, training=None)),  # type: ignore[arg-type]
        "ways": [asdict(way) for way in networks.ways],
        "families": [asdict(family) for family in networks.families],
        "notes": list(notes),
    }
    left_out = None if left_out_by is None else left_out_by.numpy()
    row_names = encoder.row_names(table)
    model = Model(
        posterior,
        encoder,
        target,
        around,
        background,
        Scores() if scored is None else scored.scores,
        request.level,
        samples,
        about,
        HeldOut.of(
            complete,
            y,
            table,
            row_names,
            kept,
            target,
            distance,
            len(rows.calibrate),
            left_out,
            None if filled.completion is None else encoded.cells,
            filled.itself if is_by_folds else None,
        ),
        donors=None if filled.completion is None else filled.completion.donors,
        neighbours=()
        if left_out is None or is_few or scored is None
        else _neighbours(encoded, y, left_out, judged, posterior, target, request.level, scored),
    )
    if test is None:
        return model
    return replace(model, tested=model.look(test, progress=progress).predicted.scores)


def _neighbours(
    encoded: Encoded,
    y: NDArray[Any],
    folds: Integers,
    judged: Integers,
    posterior: Posterior,
    target: Target,
    level: float,
    scored: Predicted,
) -> tuple[Neighbour, ...]:
    """Score other models on the same rows, by the same folds."""
    truth = y
    if target.classes:
        truth = np.array([target.classes.index(label) for label in y.tolist()])
    truth = truth.astype(np.float64)
    has_atoms = posterior.training.likelihood.has_atoms
    return neighbours.compared(encoded.values, truth, folds, judged, target.task, level, scored.by_row, has_atoms)


def _rows_judged(rows: int, judged: int) -> str:
    """
    >>> _rows_judged(4000, 4000), _rows_judged(40_000, 5000)
    ('4,000 rows: all are used to train; each is tested', '40,000 rows: all are used to train; each of 5,000 is tested')
    """
    return f"{rows:,} rows: all are used to train; each " + f"of {judged:,} " * (judged < rows) + "is tested"


def _some_rows(count: int, seed: int) -> Integers:
    """Choose the rows that a model keeps for its report: all, or as many at random as one can look at."""
    if count <= _MOST_KEPT:
        return np.arange(count)
    return streams.generator(seed, "tables", "kept").permutation(count)[:_MOST_KEPT]


def _as_in_table(table: RawTable, rows: Integers) -> Integers:
    """Return rows in the order in which the user wrote them."""
    return rows[np.argsort(table.rows[rows], kind="stable")]


def _check_options(request: Request, target: Target) -> None:
    """Raise if the target cannot be calibrated so, or an option is not for it."""
    likelihood = LIKELIHOODS[target.task]
    if request.calibrate not in ("auto", "none", *likelihood.calibrations):
        offered = " or ".join(likelihood.calibrations)
        raise ValueError(f"{option('calibrate', request.calibrate)} is not for {likelihood.target}: take {offered}")
    is_set = {
        "noise": request.settings.noise != "auto",
        "least": isinstance(request.least, float),
        "levels": bool(request.levels),
        "exposure": request.exposure is not None,
    }
    if wrong := [name for name, is_there in is_set.items() if is_there and name not in likelihood.table_options]:
        of_task = {"exposure": "counts", "levels": "ordinal"}
        instead = f"take {option('task', of_task[wrong[0]])}, or " if wrong[0] in of_task else ""
        raise ValueError(
            f"{option(wrong[0])} is not for {likelihood.target}, which {target.name!r} holds: {instead}leave it out"
        )


def _check_values(table: RawTable, y: NDArray[Any], target: Target, request: Request) -> None:
    """Raise if the column holds a value that its likelihood rules out."""
    likelihood = plan.training_for(len(y), target, request.settings).likelihood
    wrong = np.flatnonzero(~possible(likelihood, y))
    if not len(wrong):
        return
    asked = next((name for name in ("likelihood", "task") if getattr(request, name) not in (None, "auto")), "exposure")
    instead = {
        "likelihood": f"take {option('likelihood', 'gaussian')}, which any number may be",
        "task": f"take {option('task', 'regression')}, which any number may be",
        "exposure": f"leave {option('exposure')} out",
    }[asked]
    more = f" (and {rows_of(len(wrong) - 1)} more like it)" * (len(wrong) > 1)
    raise ValueError(
        f"{table.source}, column {target.name!r}, row {table.rows[wrong[0]]}, is {float(y[wrong[0]]):.6g}{more}: "
        f"{option(asked, getattr(request, asked))} is for {likelihood.target}; {instead}, or correct the column"
    )


def _with_target(table: RawTable, target: Target, notes: list[str], fewest: int) -> tuple[RawTable, NDArray[Any]]:
    """The rows whose target is known, if there are enough."""
    y = target.values(table)
    there = known(y)
    if lost := int((~there).sum()):
        notes.append(f"{rows_of(lost)} without {target.name!r} left out")
        table, y = table.take(there), y[there]
    if len(y) < fewest:
        raise ValueError(f"{table.source} has {rows_of(len(y))} with {target.name!r}: it takes at least {fewest}")
    return table, y
