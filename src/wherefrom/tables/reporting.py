"""The report of a model: on rows of a table with their truth, or on those that it kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wherefrom.report import page
from wherefrom.tables.background import groups_of
from wherefrom.tables.columns import Encoded
from wherefrom.tables.outside import weight
from wherefrom.tables.raw import Numbers, RawTable
from wherefrom.tables.target import known
from wherefrom.tables.wording import language
from wherefrom.training import streams
from wherefrom.training.data import Rows, as_rows

if TYPE_CHECKING:
    from wherefrom.tables.model import Model

_REPORT_NUMBERS = 20_000_000  # answers that a report looks at


class Written(NamedTuple):
    """A report: where it is, of how many rows, and what to know about them."""

    path: Path
    rows: int
    notes: tuple[str, ...]


def report(model: Model, out: Path, table: RawTable | None = None) -> Written:
    """Write a page about a model on the rows of a table, or on those that it kept to be tested by."""
    rows, names, distance, groups = _rows(model, table)
    most = max(200, _REPORT_NUMBERS // (len(model.posterior) * model.samples * model.posterior.schema.targets))
    count, notes = len(rows), []
    if count > most:
        some = np.sort(streams.generator(model.posterior.seed, "tables", "report").permutation(count)[:most])
        rows, names, distance = rows.take(some), [names[row] for row in some.tolist()], distance[some]
        groups = None if groups is None else groups[some]
        notes.append(f"Of {count:,} rows, {most:,} at random are scored here: more would not fit into memory.")
    blend = model.background.at(weight(distance), groups) if (distance > 1).any() else None
    posterior = model.with_rows_to_calibrate()
    page.report(
        posterior,
        (Encoded(rows.x.numpy(), model.encoder.features), rows.truth),
        out,
        samples=model.samples,
        title=f"{model.target.name}: {_described(model, table)}",
        columns=model.encoder.features,
        target=None if model.target.several else model.target.name,
        rows=names,
        outside=distance,
        blend=blend,
        edge=1.0,
        speaks=language(),
        left_out_by=rows.left_out_by,
        before=posterior.uncalibrated if posterior.calibration else None,
        notes=[*(model.notes if table is None else ()), *notes],
    )
    return Written(out, len(rows), tuple(notes))


def _described(model: Model, table: RawTable | None) -> str:
    learnt = Path(model.about["source"]).name
    if table is None:
        is_by_folds = model.held_out is not None and model.held_out.left_out_by is not None
        return (
            f"rows of {learnt}, each by networks that did not see it" if is_by_folds else f"rows held out of {learnt}"
        )
    return f"rows of {Path(table.source).name}, learnt from {learnt}"


class _Chosen(NamedTuple):
    """Rows of a report and their names, how far outside they are, and their groups."""

    rows: Rows
    names: Sequence[str]
    distance: Numbers
    groups: Any


def _rows(model: Model, table: RawTable | None) -> _Chosen:
    """Return the rows of a table, or those that the model kept; the groups of those are not kept."""
    if table is None:
        kept, distance = model.rows_to_test(), model.distances_to_test()
        if kept is None or distance is None:
            raise ValueError(f"the model kept no rows: name a table of rows with {model.target.name!r} in it")
        return _Chosen(*kept, distance, None)
    y = model.target.values(table)
    there = known(y)
    if model.target.classes:
        there &= np.array([label in model.target.classes for label in y.tolist()])
    if not there.any():
        raise ValueError(
            f"{table.source} has no row with a {model.target.name!r}: a report needs the truth to compare with"
        )
    table, y = table.take(there), y[there]
    x, groups = model.encoder.encode(table), groups_of(table, model.about.get("group"))
    complete = x if model.completion is None else model.completion.once(x)
    rows = as_rows((complete, np.array(y.tolist())), model.posterior.training.likelihood, model.target.classes)
    return _Chosen(rows, model.encoder.row_names(table), model.around.look(x)[0], groups)
