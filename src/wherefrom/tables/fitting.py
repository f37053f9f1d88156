"""A table -> a run: which rows train, calibrate and test, how long to train, how many draws, and how good it is.

Of all rows that have a target, 15% are held out (6,000 at most), classes in proportion: half of them to calibrate, and
half to test, so that what is said of the run is said of rows that had no part in it. What the user leaves open (epochs,
learning rate, dropout, whether there are hidden units, and what kind of noise) is found by a pilot among the training
rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.likelihoods import LIKELIHOODS
from wherefrom.posterior import Posterior
from wherefrom.posterior.marginalise import marginalise
from wherefrom.posterior.point import Training
from wherefrom.predictive.calibration import CALIBRATIONS as KINDS_OF_CALIBRATION
from wherefrom.tables import plan
from wherefrom.tables.columns import Encoded, TableEncoder, quoted, rows_of
from wherefrom.tables.model import HeldOut, Model, as_table
from wherefrom.tables.options import Request
from wherefrom.tables.outside import Surroundings
from wherefrom.tables.pilot import LEAST_EPOCHS, Pilot, Tried, dropout, pilot, rate
from wherefrom.tables.predicting import predict_rows
from wherefrom.tables.raw import Format, Integers, RawTable
from wherefrom.tables.splitting import kept_together, likely_groups, split
from wherefrom.tables.target import Target, known
from wherefrom.training import streams
from wherefrom.training.compute import Compute
from wherefrom.training.engines import Choice
from wherefrom.training.progress import Show
from wherefrom.variables import Design

_FEWEST_ROWS = 20
_FEWEST_TO_CALIBRATE = 20  # rows; a conformal interval of 95% needs 19
_MOST_DRAWS = 20
_PILOT_SHARE, _TRAINING_SHARE = 0.3, 0.6  # of the budget, and of what is left of it: noise and calibration take time

Tell = Callable[[str], None]


class _Notes(list[str]):
    """Notes for the user, shown at once and kept."""

    def __init__(self, tell: Tell | None) -> None:
        super().__init__()
        self.tell = tell

    def append(self, line: str) -> None:
        super().append(line)
        if self.tell is not None:
            self.tell(line)


def fit(
    table: Any,
    target: str,
    *,
    task: str | None = None,
    least: Any = "auto",
    over: str | None = None,
    recipe: str | None = None,
    draws: int | None = None,
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
    hidden: str | int | Sequence[int] | None = None,
    dropout: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    held_out: float = 0.15,
    level: float = 0.95,
    samples: int = 100,
    seed: int = 0,
    compute: Compute | None = None,
    device: str | None = None,
    engine: Choice | None = None,
    workers: int | None = None,
    verbose: bool = False,
) -> Model:
    """Learn to predict a column of a table from the others, and how sure to be.

    It is `wherefrom fit` in Python, with the same options and the same result: text, dates and missing values are
    taken as they are, settings are found by first networks, and intervals are calibrated on rows that are held out.

    table: a pandas or polars frame, a dictionary of columns, or a CSV or Parquet file.
    target: the column to predict.
    task: "regression", "classification" or "counts" (default: by the target).
    least: the least that a quantity can be, None, or "auto" (default: 0 if no row of 100 or more is below).
    over, recipe, draws: the choices to marginalise, as "theta0=5,t=swag,F=dropout", or a recipe's name and how many
        networks it trains (default: multi_swag with 5).
    noise: of a quantity, "auto" (default), "fit", "predicted", None, or a standard deviation.
    epochs: "auto" (default: found by first networks), or a number.
    budget: time to spend, about, as "5min" or in seconds: as many draws as fit are trained.
    calibrate: "auto" (default), "variance", "temperature", "conformal" or "none".
    number, text, date, drop: columns that are to be taken so; a date may have a format, as "when=%d/%m/%Y".
    missing: further words for a missing value.
    group: a column whose rows with the same value (a patient's) are trained on, or held out, together.
    hidden, dropout, lr, batch_size: of the training (default: by the data).
    held_out: share of rows to calibrate and test by (default 0.15, and 6,000 rows at most).
    level, samples: of intervals, and of each network's samples (default 0.95 and 100).
    seed: the same seed gives the same model.
    compute: where and how it is computed, `wf.Compute`; device, engine and workers say some of it by themselves.
    verbose: print what is done, and show progress (default False).

    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> ward = random.choice(["A", "B"], size=300)
    >>> age = random.uniform(20, 90, size=300)
    >>> table = {"ward": ward, "age": age, "stay": np.where(ward == "A", 2, 5) + age / 20 + random.normal(size=300)}
    >>> model = fit(table, target="stay", draws=3, epochs=30)
    >>> predictions = model.predict({"ward": ["A", "B"], "age": [40, 80]})
    >>> list(predictions)[:4]
    ['mean', 'std', 'lower', 'upper']
    """
    request = Request.of(
        target,
        task=task,
        least=least,
        over=over,
        recipe=recipe,
        draws=draws,
        noise=noise,
        epochs=epochs,
        budget=budget,
        calibrate=calibrate,
        number=number,
        text=text,
        date=date,
        drop=drop,
        group=group,
        hidden=hidden,
        dropout=dropout,
        lr=lr,
        batch_size=batch_size,
        held_out=held_out,
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
    model = learn(as_table(table, how), request, tell, None if verbose else False, how)
    for note in model.notes:
        warnings.warn(note, stacklevel=2)
    return model


def learn(
    table: RawTable,
    request: Request,
    tell: Tell,
    progress: Show = None,
    reading: Format | None = None,
    note: Tell | None = None,
) -> Model:
    """Learn from a table: `tell` hears what is done, `note` what the user should know."""
    began = time.monotonic()
    target = Target.of(table, request.target, request.task, request.least)
    _check_options(request, target)
    notes = _Notes(note)
    for line in table.notes:
        notes.append(line)
    table, y = _with_target(table, target, notes)
    names = [name for name in table.columns if name not in (target.name, request.group)]
    copies = kept_together(table, names, request, notes)
    for name in likely_groups(table, [name for name in names if name not in request.kinds]):
        notes.append(
            f"{name!r} looks like an identifier, and its values stand in several rows: if those belong together, say "
            f"--group {quoted(name)}, so that none is trained on while another is held out"
        )
    rows = split(y, request.held_out, request.seed, copies)
    encoder = TableEncoder.of(table, names, request.kinds, rows.train)
    encoded = encoder.encode(table)
    counts = {"all": len(y), "train": len(rows.train), "calibrate": len(rows.calibrate), "test": len(rows.test)}
    tell("{all:,} rows: {train:,} to train on, {calibrate:,} to calibrate, {test:,} to test".format(**counts))
    tell(f"{target.name}: {target.task}" + f", because {target.why}" * (target.why != "as asked"))
    if target.least is not None:
        tell(f"{target.name} is never below {target.least:g}, nor are its predictions (--least none lets them)")
    for line in encoder.describe():
        tell(line)

    with _told(notes):
        data = encoded.take(rows.train), y[rows.train]
        together = None if copies is None else copies[rows.train]
        compute = request.compute.but(progress=progress)
        posterior, first = _train(data, together, target, request, began, tell, compute)
        posterior = _calibrated(posterior, request, encoded.take(rows.calibrate), y[rows.calibrate], tell, notes)
    test = encoded.take(rows.test), y[rows.test]
    tested = predict_rows(posterior, test[0], request.level, request.samples, test[1], progress=progress)
    held_out = np.concatenate([rows.calibrate, rows.test])
    about = {
        "source": table.source,
        "missing": list((reading or Format()).missing),
        "decimal": table.decimal,
        "group": request.group,
        "rows": counts,
        "seconds": round(time.monotonic() - began, 1),
        "pilot": None if first is None else asdict(replace(first, training=None)),  # type: ignore[arg-type]
        "notes": list(notes),
    }
    return Model(
        posterior,
        encoder,
        target,
        Surroundings.of(encoder, encoded.values[rows.train], encoded.values[held_out]),
        tested.scores,
        request.level,
        request.samples,
        about,
        HeldOut.of(encoded, y, table.rows, encoder.row_names(table), rows.calibrate, rows.test, target),
    )


def _check_options(request: Request, target: Target) -> None:
    """Raise if the target cannot be calibrated so, or an option is not for it."""
    likelihood = LIKELIHOODS[target.task]
    if request.calibrate not in ("auto", "none", *likelihood.calibrations):
        offered = " or ".join(likelihood.calibrations)
        raise ValueError(f"--calibrate {request.calibrate} is not for {likelihood.target}: take {offered}")
    given = {"noise": request.settings.noise != "auto", "least": isinstance(request.least, float)}
    if wrong := [name for name, is_given in given.items() if is_given and name not in likelihood.table_options]:
        raise ValueError(f"--{wrong[0]} is not for {likelihood.target}, which {target.name!r} holds: leave it out")


def _with_target(table: RawTable, target: Target, notes: list[str]) -> tuple[RawTable, NDArray[Any]]:
    """The rows whose target is known, if there are enough."""
    y = target.values(table)
    there = known(y)
    if lost := int((~there).sum()):
        notes.append(f"{rows_of(lost)} without {target.name!r} left out")
        table, y = table.take(there), y[there]
    if len(y) < _FEWEST_ROWS:
        raise ValueError(f"{table.source} has {rows_of(len(y))} with {target.name!r}: it takes at least {_FEWEST_ROWS}")
    return table, y


@contextmanager
def _told(notes: list[str]) -> Iterator[None]:
    """The library's warnings, as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for line in dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)):
        notes.append(line)


# ------------------------------------------------------------------ training


def _train(
    data: tuple[Encoded, Any],
    copies: Integers | None,
    target: Target,
    request: Request,
    began: float,
    tell: Tell,
    compute: Compute,
) -> tuple[Posterior, Pilot | None]:
    count, asked = len(data[1]), request.settings
    training = plan.training_for(count, target, asked)
    wishes = request.over, request.recipe, request.draws
    over = plan.variables(*wishes, lr=rate(training))
    first, tried = None, _to_be_tried(request, target, Design.of(over))
    if request.epochs is None or request.budget is not None or tried:
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
        )
        training = first.training
        over = plan.variables(*wishes, lr=rate(training))
        if request.epochs is None:
            tell(
                f"found by first networks on rows set aside: {training.epochs} epochs, a learning rate of "
                f"{rate(training):.2g}" + f", {dropout(training):.0%} dropout" * bool(dropout(training))
            )
        for line in first.notes:
            tell(line)
    if request.epochs is not None:
        training = replace(training, epochs=request.epochs)
    if request.budget is not None and first is not None:
        training, over = _within_budget(training, over, request, first, began, tell)
    steps = training.algorithm.steps_per_epoch(count)
    over = plan.collecting(over, training.epochs, steps)
    draws = Design.of(over).size
    tell(f"training {draws} network{'s' * (draws != 1)} of {_sizes(training)} for {training.epochs} epochs")
    return marginalise(training, data, over, request.seed, groups=copies, compute=compute), first


def _to_be_tried(request: Request, target: Target, design: Design) -> list[Tried]:
    """Return the settings to search: given epochs fix them, but not the noise."""
    names: list[Tried] = []
    if request.epochs is None:
        names += [name for name in ("lr", "dropout", "hidden") if getattr(request.settings, name) is None]
    if "dropout" in names and design.dropout is None:
        names.append("no dropout")
    if "hidden" in names and (design.dropout is not None or request.settings.dropout):
        names.remove("hidden")  # without hidden units there is nothing to drop
    if request.settings.noise == "auto" and "noise" in LIKELIHOODS[target.task].table_options:
        names.append("noise")
    return names


def _sizes(training: Training) -> str:
    hidden = getattr(training.model, "hidden", ())
    return f"{' + '.join(map(str, hidden))} hidden units" if hidden else "no hidden units"


def _within_budget(
    training: Training, over: list[Any], request: Request, first: Pilot, began: float, tell: Tell
) -> tuple[Training, list[Any]]:
    """Take as many draws as fit into the time that is left, or fewer epochs if two do not."""
    assert request.budget is not None
    left = _TRAINING_SHARE * (began + request.budget - time.monotonic())
    each = first.seconds_per_epoch * training.epochs
    most = _MOST_DRAWS if request.draws is None else request.draws
    fits = max(0, int(left / each)) if each > 0 else most
    drawn = plan.with_draws(over, max(2, min(most, fits))) if request.over is None else None
    over = over if drawn is None else drawn
    size = Design.of(over).size
    if size > fits:
        epochs = max(LEAST_EPOCHS, int(training.epochs * max(left, 0.0) / (size * each)))
        if epochs < training.epochs:
            tell(f"the budget is short: {epochs} epochs instead of {training.epochs}")
            training = replace(training, epochs=epochs)
    elif drawn is not None:
        tell(f"the budget allows for {size} draws" + " (the most that are taken)" * (size == most))
    return training, over


# ------------------------------------------------------------------ calibration


def _to_calibrate(by: str, posterior: Posterior, count: int, request: Request) -> Integers:
    """The rows to calibrate by: all, or as many at random (a file may be sorted) as a fit should look at."""
    most = KINDS_OF_CALIBRATION[by].most_numbers
    if most is None:
        return np.arange(count)
    answers = len(posterior) * request.samples * posterior.schema.targets
    order = streams.generator(request.seed, "tables", "calibrate").permutation(count)
    return np.sort(order[: max(200, most // answers)])


def _calibrated(posterior: Posterior, request: Request, x: Encoded, y: Any, tell: Tell, notes: list[str]) -> Posterior:
    """Calibrate as asked. By default, quantities get conformal intervals, and a factor of the variance (or classes a
    temperature) only where it is clearly not 1: few rows say too little, above all of rare classes.
    """
    asked: Sequence[str] = (request.calibrate,)
    if request.calibrate == "none":
        return posterior
    if request.calibrate == "auto":
        if len(y) < _FEWEST_TO_CALIBRATE:
            notes.append(
                f"not calibrated, because {rows_of(len(y))} to do it by are too few: --held-out sets more aside"
            )
            return posterior
        asked = posterior.training.likelihood.calibrates_tables
    for by in asked:
        rows = _to_calibrate(by, posterior, len(y), request)
        try:
            calibrated = posterior.calibrated(by, (x.take(rows), y[rows]), request.samples)  # type: ignore[arg-type]
        except ValueError as error:
            if request.calibrate != "auto":
                raise
            notes.append(f"not calibrated by {by}: {error}")
            continue
        if request.calibrate == "auto" and not calibrated.calibration[-1].is_clear:
            factor = str(calibrated.calibration[-1]).split(",")[0]
            tell(f"not calibrated by {by}: {rows_of(len(y))} do not clearly ask for it ({factor})")
            continue
        posterior = calibrated
        tell(f"calibrated: {posterior.calibration[-1]}")
    return posterior
