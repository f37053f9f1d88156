"""The report of a model: on rows of a table with their truth, or on those that it kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wherefrom.report import page
from wherefrom.tables.columns import Encoded
from wherefrom.tables.raw import RawTable
from wherefrom.tables.target import known
from wherefrom.training import streams

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
    x, y, names = _rows(model, table)
    most = max(200, _REPORT_NUMBERS // (len(model.posterior) * model.samples * model.posterior.schema.targets))
    count, notes = len(y), []
    if count > most:
        some = np.sort(streams.generator(model.posterior.seed, "tables", "report").permutation(count)[:most])
        x, y, names = x.take(some), y[some], [names[row] for row in some.tolist()]
        notes.append(f"Of {count:,} rows, {most:,} at random are scored here: more would not fit into memory.")
    distance, _ = model.around.look(x)
    posterior = model.with_rows_to_calibrate()
    page.report(
        posterior,
        (x, y),
        out,
        samples=model.samples,
        title=f"{model.target.name}: {_described(model, table)}",
        columns=model.encoder.features,
        target=model.target.name,
        rows=names,
        outside=np.minimum(distance, 1e6),
        edge=1.0,
        speaks="command",
        before=posterior.uncalibrated if posterior.calibration else None,
        notes=[*(model.notes if table is None else ()), *notes],
    )
    return Written(out, len(y), tuple(notes))


def _described(model: Model, table: RawTable | None) -> str:
    learnt = Path(model.about["source"]).name
    return f"rows held out of {learnt}" if table is None else f"rows of {Path(table.source).name}, learnt from {learnt}"


def _rows(model: Model, table: RawTable | None) -> tuple[Encoded, Any, Sequence[str]]:
    """Return the rows of a table, or those that the model kept, with their truth and their names."""
    if table is None:
        if (kept := model.rows_to_test()) is None:
            raise ValueError(f"the model kept no rows: name a table of rows with {model.target.name!r} in it")
        return kept
    y = model.target.values(table)
    there = known(y)
    if model.target.classes:
        there &= np.array([label in model.target.classes for label in y.tolist()])
    if not there.any():
        raise ValueError(
            f"{table.source} has no row with a {model.target.name!r}: a report needs the truth to compare with"
        )
    table, y = table.take(there), y[there]
    return model.encoder.encode(table), np.array(y.tolist()), model.encoder.row_names(table)
