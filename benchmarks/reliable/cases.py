"""Every writer of files: how to write an old and a new version, and how to tell which one is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import wherefrom as wf
from reliable.killing import in_child
from wherefrom.files import folders
from wherefrom.files.folders import Run
from wherefrom.tables.writing import writing as writing_predictions


@dataclass(frozen=True)
class Case:
    """A writer: `write(target, number)` leaves version 0 or 1, and `read(target)` returns the number, or raises."""

    name: str
    target: str  # file or folder, in a folder that it has for itself
    write: Callable[[Path, int], None]
    read: Callable[[Path], int]

    def leftovers(self, target: Path) -> list[str]:
        """Return the names of files that should not be there."""
        beside = [path.name for path in target.parent.iterdir() if path != target and path.name != "key"]
        if not target.is_dir() or not folders.is_run(target):
            return beside + ([path.name for path in target.glob(".*")] if target.is_dir() else [])
        return [*beside, *folders.check(target).others, *(path.name for path in target.glob(".*"))]


def problem(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Return a small regression problem."""
    x = np.random.default_rng(0).normal(size=(rows, 4))
    return x, x.sum(1)


def training(epochs: int = 2) -> wf.Training:
    """Return a short training of a small network."""
    return wf.Training(wf.MLP([4]), wf.Algorithm("adam", lr=0.02, batch_size=25), epochs=epochs)


def table(seed: int = 0, rows: int = 60) -> dict[str, list[Any]]:
    """Return a small table with text and a missing value."""
    a, b = np.random.default_rng(seed).normal(size=(2, rows))
    columns: dict[str, list[Any]] = {"a": a.tolist(), "b": ["u" if v > 0 else "v" for v in b], "y": (a + b).tolist()}
    columns["a"][3] = None
    return columns


def cases() -> list[Case]:
    """Return a case for each kind of file."""
    data = problem()
    posteriors = [wf.marginalise(training(), data, [wf.InitialCondition(3)], seed) for seed in (0, 1)]
    models = [wf.fit(table(seed), "y", draws=2, epochs=2, noise="fit", seed=seed) for seed in (0, 1)]
    recorders = [wf.Recorder(wf.SWAG(2)) for _ in posteriors]
    for number, recorder in enumerate(recorders):
        for _ in range(3 + number):
            recorder.update(wf.MLP([3]).sized(4, 1)())

    def add(target: Path, number: int) -> None:
        with folders.writing(target, is_new=number == 0) as run:
            run.put_json(f"part-{number}.json", {"number": number})
            run.commit()

    def sign(target: Path, number: int) -> None:
        if number == 0:
            posteriors[0].save(target)
        else:
            (target.parents[1] / "key").write_bytes(b"k" * 32)
            folders.sign(target, target.parents[1] / "key")

    def read_signed(target: Path) -> int:
        wf.load(target)
        if not (target / folders.SIGNATURE).exists():
            return 0
        wf.load(target, key=target.parents[1] / "key")
        return 1

    def keep(target: Path, number: int) -> None:
        """Checkpoints of a training that goes on from 2 epochs to its end."""

        def stop(_: int) -> None:
            raise InterruptedError

        with suppress(InterruptedError):
            where = wf.Checkpoints(target, seconds=0)
            wf.marginalise(training(4), data, [], checkpoints=where, progress=(stop, False)[number])

    def read_checkpoint(target: Path) -> int:
        from wherefrom.files.reading import read_tensors

        (path,) = target.glob("*.safetensors")
        return int("trained" in read_tensors(path)[0]["about"])

    def write_report(target: Path, number: int) -> None:
        posteriors[number].report(target, data, title=f"report {number}")

    def read_report(target: Path) -> int:
        text = target.read_text()
        if not text.rstrip().endswith("</html>"):
            raise ValueError("the report is cut off")
        return int("report 1" in text)

    def predict(target: Path, number: int) -> None:
        with writing_predictions(target) as write:
            write({"mean": np.full(500, float(number)), "name": ["ward A"] * 500})

    def read_predictions(target: Path) -> int:
        if target.suffix == ".parquet":  # in a process of its own: polars has threads, and does not survive a fork
            code = in_child(lambda: os._exit(100 + read_column(target)), is_quiet=True)
            if code not in (100, 101):
                raise ValueError("the predictions cannot be read")
            return code - 100
        return checked([float(line.split(",")[0]) for line in target.read_text().splitlines()[1:]])

    def read_column(target: Path) -> int:
        import polars

        return checked(polars.read_parquet(target)["mean"].to_list())

    def checked(values: list[float]) -> int:
        if len(values) != 500 or len(set(values)) > 1:
            raise ValueError("the predictions are a part, or a mixture")
        return int(values[0])

    def seed_of(target: Path) -> int:
        return int(wf.load(target).seed)

    return [
        Case("posterior.save", "run", lambda target, number: posteriors[number].save(target), seed_of),
        Case(
            "model.save (wherefrom fit --overwrite)",
            "run",
            lambda target, number: models[number].save(target, overwrite=True),
            lambda target: int(wf.load(target).posterior.seed),
        ),
        Case("a file added to a run", "run", add, lambda target: int("part-1.json" in Run.open(target))),
        Case("wherefrom sign", "run", sign, read_signed),
        Case("checkpoints", "checkpoints", keep, read_checkpoint),
        Case(
            "Recorder.save",
            "member.safetensors",
            lambda target, number: recorders[number].save(target),
            lambda target: wf.Recorder.load(target).updates - 3,
        ),
        Case("report", "report.html", write_report, read_report),
        Case("predictions, CSV", "predictions.csv", predict, read_predictions),
        Case("predictions, Parquet", "predictions.parquet", predict, read_predictions),
    ]


def fresh(case: Case, folder: Path, base: Path | None) -> Path:
    """Empty a folder, put the old version there if there is one, and return the target."""
    shutil.rmtree(folder, ignore_errors=True)
    if base is None:
        folder.mkdir(parents=True)
    else:
        shutil.copytree(base, folder)
    return folder / case.target
