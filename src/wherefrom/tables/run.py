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
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from wherefrom import __version__, store
from wherefrom.posterior import Posterior
from wherefrom.tables.columns import Encoded, TableEncoder
from wherefrom.tables.outside import Surroundings
from wherefrom.tables.reading import Integers, Numbers
from wherefrom.tables.scores import Scores
from wherefrom.tables.target import Target
from wherefrom.training.data import as_rows

FORMAT = 1
JSON, TENSORS = "table.json", "table.safetensors"
_OWN_FILES = (JSON, TENSORS, "posterior.json", "posterior-*.safetensors", "report.html")


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
        held = np.concatenate([calibrate, test])
        own = y[held]
        if target.classes:
            own = np.array([target.classes.index(label) for label in own.tolist()])
        called = tuple(names[place] for place in held.tolist())
        return cls(encoded.values[held], own.astype(np.float64), rows[held], called, len(calibrate))


@dataclass(frozen=True, eq=False)
class Run:
    """What was learnt from a table, and all that it takes to predict more rows of it."""

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
        folder = folder.resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = folder if folder.exists() else folder.parent
        unfinished = place / f".{folder.name}-{secrets.token_hex(4)}"
        try:
            self.posterior.save(unfinished)
            save_file(self._tensors(keeps_data), unfinished / TENSORS)
            store.as_others(unfinished / TENSORS)
            document = self._document(keeps_data, command)
            (unfinished / JSON).write_text(json.dumps(document, indent=1, allow_nan=False), "utf-8")
            if folder.exists():
                _replace(folder, unfinished)
            else:
                os.replace(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _tensors(self, keeps_data: bool) -> dict[str, NDArray[Any]]:
        tensors: dict[str, NDArray[Any]] = {f"around.{name}": own for name, own in self.around.tensors().items()}
        if keeps_data and self.held_out is not None:
            held = self.held_out
            tensors |= {"held_out.x": held.x, "held_out.y": held.y, "held_out.rows": held.rows.astype(np.int64)}
            if (noise := self.posterior.held_out) is not None:
                tensors |= {"noise.x": noise.x.numpy(), "noise.y": noise.y.numpy()}
        return {name: np.ascontiguousarray(own) for name, own in tensors.items()}

    def _document(self, keeps_data: bool, command: str) -> dict[str, Any]:
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
            "target": asdict(self.target),
            "level": self.level,
            "samples": self.samples,
            **self.scores.to_json(),
            "calibration": [str(each) for each in self.posterior.calibration],
            "calibrate": 0 if self.held_out is None else self.held_out.calibrate,
            "held_out": list(self.held_out.names) if keeps_data and self.held_out is not None else [],
            "about": self.about,
            "columns": self.encoder.to_json(),
        }

    @classmethod
    def load(cls, folder: Path) -> Run:
        document = _document(folder)
        try:
            tensors, posterior = load_file(folder / TENSORS), store.load(folder)
        except (FileNotFoundError, SafetensorError) as error:
            raise ValueError(f"{folder} is not whole ({error}): copy all of its files, or fit it again") from None
        encoder = TableEncoder.from_json(document["columns"])
        target = Target(**document["target"] | {"classes": tuple(document["target"]["classes"])})
        around = {name.removeprefix("around."): own for name, own in tensors.items() if name.startswith("around.")}
        held_out = None
        if "held_out.x" in tensors:
            x, y, rows = (tensors[f"held_out.{name}"] for name in ("x", "y", "rows"))
            names = document.get("held_out") or [f"row {number}" for number in rows.tolist()]  # older runs have none
            held_out = HeldOut(x, y, rows, tuple(names), document["calibrate"])
        if "noise.x" in tensors:
            noise = Encoded(tensors["noise.x"], encoder.features), tensors["noise.y"][:, 0]
            posterior = replace(posterior, held_out=as_rows(noise, posterior.training.likelihood))
        return cls(
            posterior,
            encoder,
            target,
            Surroundings.from_tensors(encoder, around),
            Scores.from_json(document),
            document["level"],
            document["samples"],
            document["about"],
            held_out,
        )

    # ------------------------------------------------------------------ held-out rows

    def rows_to_test(self) -> tuple[Encoded, NDArray[Any], tuple[str, ...]] | None:
        """x, y and the names of the rows that had no part in the run, where they were kept."""
        return None if self.held_out is None else self._held(slice(self.held_out.calibrate, None))

    def _held(self, part: slice) -> tuple[Encoded, NDArray[Any], tuple[str, ...]]:
        held = self.held_out
        assert held is not None
        y: NDArray[Any] = held.y[part]
        if self.target.classes:
            y = np.array([self.target.classes[int(number)] for number in y.tolist()])
        return Encoded(held.x[part], self.encoder.features), y, held.names[part]

    def with_rows_to_calibrate(self) -> Posterior:
        """The posterior with rows at hand to fit the calibration of its parts."""
        if self.held_out is None or not self.held_out.calibrate:
            return self.posterior
        x, y, _ = self._held(slice(None, self.held_out.calibrate))
        rows = as_rows((x, y), self.posterior.training.likelihood, self.posterior.schema.classes)
        known = tuple(replace(each, fit=replace(each.fit, data=rows)) for each in self.posterior.calibration)
        return replace(self.posterior, calibration=known)


def _replace(folder: Path, unfinished: Path) -> None:
    """The files of a run by those of another, and no others; the one that says that it is a run comes last."""
    old = [path for pattern in _OWN_FILES for path in folder.glob(pattern)]
    for path in sorted(old, key=lambda path: path.name != JSON):
        path.unlink()
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name == JSON):
        os.replace(path, folder / path.name)


def _check_writable(folder: Path) -> None:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        raise FileExistsError(f"{nearest} is a file: give --out a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{nearest} cannot be written to: give --out another folder")


def check_free(folder: Path, overwrite: bool) -> None:
    """Before anything is trained: whether a run can be written there."""
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
        document = json.loads((folder / JSON).read_text("utf-8"))
    except FileNotFoundError:
        what = "holds no run of a table" if folder.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"{folder} {what}: make one, as wherefrom fit train.csv --target y --out {folder}"
        ) from None
    except (json.JSONDecodeError, NotADirectoryError) as error:
        raise ValueError(f"{folder / JSON} is damaged ({error}): fit it again") from None
    found = document.get("format")
    if not isinstance(found, int):
        raise ValueError(f"{folder / JSON} was not written by wherefrom fit")
    if found > FORMAT:
        raise ValueError(
            f"{folder} was written by a newer version (format {found}; this one reads up to {FORMAT}): update wherefrom"
        )
    return dict(document)


def command_line() -> str:
    """As it was written, for the record."""
    import shlex

    return shlex.join(["wherefrom", *sys.argv[1:]])
