"""A run of a table on disk: one folder that holds all it takes to predict.

    posterior.json, posterior-*.safetensors   the posterior, as `wf.load` reads it
    table.json                                what each column becomes, the target, scores, and how it came about
    table.safetensors                         where the training rows lie and, unless they are to be left out, the
                                              held-out rows as numbers, which the report is about; table.json has their
                                              names then

The files are written under another name, and renamed when all are there. Other files in the folder are left alone.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom import __version__
from wherefrom.files import atomic, codec
from wherefrom.files.codec import stored
from wherefrom.files.reading import blaming, check_format, read_json, read_tensors
from wherefrom.posterior import Posterior, store
from wherefrom.tables.columns import Encoded, TableEncoder
from wherefrom.tables.outside import Surroundings
from wherefrom.tables.reading import Integers, Numbers
from wherefrom.tables.scores import Scores
from wherefrom.tables.target import Target
from wherefrom.tables.writing import finite
from wherefrom.training.data import as_rows

FORMAT = 2
JSON, TENSORS = "table.json", "table.safetensors"
_STORED = ("encoder", "target", "around", "scores", "level", "samples", "about", "held_out")
_OWN_FILES = (JSON, TENSORS, "posterior.json", "posterior-*.safetensors", "report.html")


@stored("HeldOut")
@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that no network was trained on: to calibrate first, then to test. Classes go by their numbers."""

    x: Numbers
    y: Numbers
    rows: Integers  # their numbers in the file
    names: tuple[str, ...]
    calibrate: int  # how many of them are to calibrate

    @classmethod
    def of(
        cls,
        encoded: Encoded,
        y: NDArray[Any],
        rows: Integers,
        names: Sequence[str],
        calibrate: Integers,
        test: Integers,
        target: Target,
    ) -> HeldOut:
        rows_held_out = np.concatenate([calibrate, test])
        truth = y[rows_held_out]
        if target.classes:
            truth = np.array([target.classes.index(label) for label in truth.tolist()])
        called = tuple(names[row] for row in rows_held_out.tolist())
        return cls(encoded.values[rows_held_out], truth.astype(np.float64), rows[rows_held_out], called, len(calibrate))


@dataclass(frozen=True, eq=False)
class Run:
    """All that was learnt from a table, and that it takes to predict more rows of it."""

    posterior: Posterior
    encoder: TableEncoder
    target: Target
    around: Surroundings
    scores: Scores  # of the rows to test on
    level: float
    samples: int
    about: dict[str, Any]
    held_out: HeldOut | None

    def save(self, folder: Path, *, overwrite: bool = False, keeps_data: bool = True, command: str = "") -> None:
        """Whole, or not at all; what is there is kept unless it is a run that may be overwritten."""
        check_free(folder, overwrite)
        noise = self.posterior.held_out if keeps_data else None
        values = {name: getattr(self, name) for name in _STORED}
        values["held_out"] = self.held_out if keeps_data else None
        values["noise"] = None if noise is None else (noise.x, noise.y)
        tensors: dict[str, Tensor] = {}
        document = self._history(command) | {"run": codec.pack(values, tensors)}
        with atomic.writing_folder(folder.resolve(), last=JSON, owned=_OWN_FILES) as temporary:
            self.posterior.save(temporary)
            atomic.write_tensors(temporary / TENSORS, tensors)
            atomic.write_text(temporary / JSON, json.dumps(document, indent=1, allow_nan=False))

    def _history(self, command: str) -> dict[str, Any]:
        """Return how the run came about, and how good it is, for people who open the file."""
        return {
            "format": FORMAT,
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": command,
            "versions": {
                "wherefrom": __version__,
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "numpy": np.__version__,
            },
            "seed": self.posterior.seed,
            **finite(self.scores.shown()),
            "calibration": [str(each) for each in self.posterior.calibration],
        }

    @classmethod
    def load(cls, folder: Path) -> Run:
        document = _document(folder)
        try:
            (_, tensors), posterior = read_tensors(folder / TENSORS), store.load(folder)
        except FileNotFoundError as error:
            raise ValueError(f"{folder} is not whole ({error}): copy all of its files, or fit it again") from None
        with blaming(folder / JSON):
            values = codec.unpack(document["run"], tensors.__getitem__)
            codec.check(values, {name: hint for name, hint in get_type_hints(cls).items() if name in _STORED})
            noise = values.pop("noise")
            if noise is not None:
                x, y = (part.numpy() for part in noise)
                rows = as_rows((Encoded(x, values["encoder"].features), y[:, 0]), posterior.training.likelihood)
                posterior = replace(posterior, fold=replace(posterior.fold, held_out=rows))
            return cls(posterior, **values)

    # ------------------------------------------------------------------ held-out rows

    def rows_to_test(self) -> tuple[Encoded, NDArray[Any], tuple[str, ...]] | None:
        """x, y and the names of the rows that had no part in the run, where they were kept."""
        return None if self.held_out is None else self._held(slice(self.held_out.calibrate, None))

    def _held(self, part: slice) -> tuple[Encoded, NDArray[Any], tuple[str, ...]]:
        kept = self.held_out
        assert kept is not None
        y: NDArray[Any] = kept.y[part]
        if self.target.classes:
            y = np.array([self.target.classes[int(number)] for number in y.tolist()])
        return Encoded(kept.x[part], self.encoder.features), y, kept.names[part]

    def with_rows_to_calibrate(self) -> Posterior:
        """The posterior with rows at hand to fit the calibration of its parts."""
        if self.held_out is None or not self.held_out.calibrate:
            return self.posterior
        x, y, _ = self._held(slice(None, self.held_out.calibrate))
        rows = as_rows((x, y), self.posterior.training.likelihood, self.posterior.schema.classes)
        return replace(self.posterior, fitted=self.posterior.fitted.with_rows(rows))


def _check_writable(folder: Path) -> None:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        raise FileExistsError(f"{nearest} is a file: give --out a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{nearest} cannot be written to: give --out another folder")


def check_free(folder: Path, overwrite: bool) -> None:
    """Raise, before anything is trained, if a run cannot be written there."""
    _check_writable(folder.resolve())
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: give --out a folder")
    if not (folder / JSON).exists():
        raise FileExistsError(f"{folder} holds other files: give --out a folder of its own")
    if not overwrite:
        raise FileExistsError(f"{folder} holds a run already: give --out another folder, or add --overwrite")


def _document(folder: Path) -> dict[str, Any]:
    try:
        document = read_json(folder / JSON, "fit it again")
    except FileNotFoundError:
        what = "holds no run of a table" if folder.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"{folder} {what}: make one, as wherefrom fit train.csv --target y --out {folder}"
        ) from None
    number = document.get("format")
    if not isinstance(number, int):
        raise ValueError(f"{folder / JSON} was not written by wherefrom fit")
    check_format(number, FORMAT, folder)
    return document


def command_line() -> str:
    """Return the command as it was written, for the record."""
    import shlex

    return shlex.join(["wherefrom", *sys.argv[1:]])
