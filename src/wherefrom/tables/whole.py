"""All rows of a file to train on, where they are more than memory should hold.

The file is read twice. First, rows are drawn at random: by them columns are understood, settings chosen, and networks
calibrated and tested. Then every row is encoded, a few thousand at a time, into a file without a name, and the networks
train on all of them but those that judge.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.files.digests import row_hashes
from wherefrom.tables.columns import Encoded, TableEncoder, rows_of
from wherefrom.tables.completing import Filled
from wherefrom.tables.options import Request
from wherefrom.tables.raw import Format, Integers, RawTable
from wherefrom.tables.reading import CHUNK, chunks
from wherefrom.tables.sampling import MOST_ROWS, chosen_rows, read_counted, sampled
from wherefrom.tables.splitting import Split
from wherefrom.tables.target import Target, known
from wherefrom.training import streams
from wherefrom.training.data import Rows, as_rows
from wherefrom.training.mapped import MappedColumns
from wherefrom.training.objective import Objective

SAMPLE = 200_000  # rows, by which settings are chosen
_NOISE_ROWS = 1000  # to fit the noise on


@dataclass(frozen=True)
class Whole:
    """A file of more rows than are kept in memory.

    count: rows of the file.
    most: rows to train on, drawn at random if there are more.
    """

    path: Path
    how: Format
    count: int
    most: int
    seed: int

    def without(
        self, table: RawTable, encoder: TableEncoder, encoded: Encoded, filled: Filled, rows: Split, has_copies: bool
    ) -> Rest:
        """Return the rows of the file without those that judge: that calibrate, test, or fit the noise.

        table, encoded: rows that were drawn, cut into those that train and those that judge.
        has_copies: whether rows with the same values are to be kept together, so that none trains if another judges.
        """
        noise = streams.generator(self.seed, "tables", "noise").permutation(rows.train)[:_NOISE_ROWS]
        apart = np.concatenate([rows.calibrate, rows.test, noise])
        x = encoded.take(noise) if filled.completion is None else filled.completion.once(encoded.take(noise))
        hashes = row_hashes(encoded.values[apart if has_copies else []])
        return Rest(self, encoder, filled, table.rows[apart], hashes, x, table.take(noise))


@dataclass(frozen=True, eq=False)
class Rest:
    """The rows of a file without some that were drawn."""

    whole: Whole
    encoder: TableEncoder
    filled: Filled
    apart: Integers  # row numbers
    hashes: NDArray[np.uint64]  # of values that no row to train on may have
    x_of_noise: Encoded  # drawn rows to fit the noise on, as networks take them
    noise: RawTable  # and as they are written

    def rows(self, target: Target, likelihood: Objective) -> tuple[Rows, Rows | None]:
        """Return the rows, whose x is in a file, and those to fit the noise on, if there is noise to fit."""
        columns, targets, first, lost = MappedColumns(len(self.encoder.features)), [], 0, 0
        is_drawn = chosen_rows(self.whole.count, self.whole.most, self.whole.seed)
        for table in chunks(self.whole.path, self.whole.how, CHUNK):
            chosen = is_drawn(first, len(table))
            first += len(table)
            table = table if chosen.all() else table.take(np.flatnonzero(chosen))
            is_known = _has_class(table, target)
            lost += int((~is_known).sum())
            x, some = self._encoded(table if is_known.all() else table.take(np.flatnonzero(is_known)), target)
            columns.add(x.values)
            targets.append(some)
        if lost:
            warnings.warn(
                f"{rows_of(lost)} left out, with a {target.name!r} that no row of the {SAMPLE:,} has by which classes "
                "are known",
                stacklevel=2,
            )
        rows = as_rows((columns.tensor(), _named(np.concatenate(targets), target)), likelihood)
        rows = replace(rows, x_names=self.encoder.features)
        if not likelihood.fits_noise:
            return rows, None
        y = _named(target.values(self.noise), target)
        return rows, as_rows((self.x_of_noise, y), likelihood, rows.classes)

    def _encoded(self, table: RawTable, target: Target) -> tuple[Encoded, NDArray[Any]]:
        """Return the rows of a chunk that are trained on, complete, and their targets."""
        y, encoded = target.values(table), self.encoder.encode(table)
        is_apart = np.isin(table.rows, self.apart) | np.isin(row_hashes(encoded.values), self.hashes)
        chosen = np.flatnonzero(known(y) & ~is_apart)
        encoded, y = encoded.take(chosen), y[chosen]
        if self.filled.completion is None or not len(y):
            return encoded, y
        if self.filled.given_targets is None:
            return self.filled.completion.once(encoded), y
        return self.filled.given_targets.like_these(encoded, target.numbers(y)), y


def _has_class(table: RawTable, target: Target) -> NDArray[np.bool_]:
    """Return which rows have a class that is known, or none."""
    if not target.classes:
        return np.ones(len(table), dtype=bool)
    allowed = {*target.classes, None}
    return np.array([label in allowed for label in target.values(table).tolist()], dtype=bool)


def _named(y: NDArray[Any], target: Target) -> Any:
    return Encoded(y, target.several) if target.several else y


def rows_to_learn(path: str | Path, how: Format, request: Request) -> tuple[RawTable, Whole | None]:
    """Read the rows of a file to learn from; if more are asked for than memory should hold, some, and where all are."""
    table, count = read_counted(path, how, min(request.most_rows, MOST_ROWS), request.seed, request.as_text)
    is_plain = request.group is None and request.weight is None and request.class_weight is None
    if request.most_rows <= MOST_ROWS or count <= MOST_ROWS:
        return table, None
    if not is_plain or request.test_after is not None or str(path) == "-":
        return read_counted(path, how, request.most_rows, request.seed, request.as_text)[0], None
    some = sampled(table, SAMPLE, request.seed)
    trained = rows_of(min(count, request.most_rows))
    words = f"trains on {trained} from a file; settings, calibration and scores are by {len(some):,} of them"
    some = replace(some, notes=(*(note for note in table.notes if not note.startswith("learns from")), words))
    return some, Whole(Path(path), replace(how, decimal=table.decimal), count, request.most_rows, request.seed)
