"""What the commands do, and what they say of it: lines for people, or one JSON document for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from wherefrom.table import Table
from wherefrom.tables import run as runs
from wherefrom.tables.columns import Encoded, rows_of
from wherefrom.tables.fitting import FEWEST_SAMPLES, Request, fit
from wherefrom.tables.predicting import Method, Predicted, predict_rows
from wherefrom.tables.reading import PARQUET, Format, RawTable, read
from wherefrom.tables.run import Run
from wherefrom.tables.scores import Scores
from wherefrom.tables.target import known
from wherefrom.tables.writing import Columns, as_json, check_writable, finite, write
from wherefrom.training import streams

_OVERALL_ROWS = 3000  # are enough to speak of all
_REPORT_NUMBERS = 20_000_000  # answers that a report looks at


@dataclass(frozen=True)
class Talk:
    """The listener: people on a terminal, a program that takes JSON, or nobody."""

    quiet: bool = False
    as_json: bool = False
    on_stderr: bool = False  # where standard output is for the predictions themselves

    def say(self, line: str = "") -> None:
        if not self.quiet and not self.as_json:
            typer.echo(line, err=self.on_stderr)

    def note(self, line: str) -> None:
        if not self.quiet:
            typer.echo(f"note: {line}", err=True)

    def show(self, text: str) -> None:
        """Print what was asked for, to people, however quiet it should be."""
        if not self.as_json:
            typer.echo(text, err=self.on_stderr)

    def give(self, document: Mapping[str, Any]) -> None:
        if self.as_json:
            typer.echo(json.dumps(finite(document), indent=1, allow_nan=False))

    @property
    def progress(self) -> bool | None:
        return False if self.quiet else None


# ------------------------------------------------------------------ fit


def fit_table(
    path: Path, out: Path, request: Request, how: Format, *, overwrite: bool, keeps_data: bool, talk: Talk
) -> None:
    """`wherefrom fit`"""
    runs.check_free(out, overwrite)
    table = read(path, how)
    run = fit(table, request, talk.say, talk.progress, talk.note)
    run.about["missing"] = list(how.missing)
    run.about["decimal"] = None if path.suffix.lower() in PARQUET else table.decimal
    run.save(out, overwrite=overwrite, keeps_data=keeps_data, command=runs.command_line())
    talk.say()
    talk.say(f"On {rows_of(run.scores.rows)} that had no part in it:\n")
    _say_scores(run.scores, talk)
    talk.say(f"\nThe run is in {out}. Next: wherefrom predict {out} new.csv --out predictions.csv")
    talk.give({"run": str(out), **_summary(run)})


def _summary(run: Run) -> dict[str, Any]:
    return {
        "target": run.target.name,
        "task": run.target.task,
        "classes": list(run.target.classes),
        "members": len(run.posterior),
        "marginalises": list(run.posterior.design.names),
        "epochs": run.posterior.training.epochs,
        "rows": run.about["rows"],
        "features": len(run.encoder.features),
        "dropped": {rule.name: rule.why for rule in run.encoder.dropped},
        "calibration": [str(each) for each in run.posterior.calibration],
        **run.scores.shown(),
        "seconds": run.about["seconds"],
        "seed": run.posterior.seed,
        "notes": [*run.about["notes"], *run.scores.remarks()],
    }


def _say_scores(scores: Scores, talk: Talk) -> None:
    talk.say(str(scores.table()))
    for line in scores.remarks():
        talk.note(line)


# ------------------------------------------------------------------ predict


@dataclass(frozen=True)
class Question:
    """A run, a file of rows to predict with it, and how; what is None is the run's own."""

    folder: Path
    path: Path
    how: Format
    keep: Sequence[str] = ()  # columns to show beside the predictions, which may be unknown to the run
    samples: int | None = None
    level: float | None = None
    method: Method = "monte_carlo"

    def __post_init__(self) -> None:
        if self.level is not None and not 0 < self.level < 1:
            raise ValueError(f"--level lies between 0 and 1, as 0.95, unlike {self.level}")
        if self.samples is not None and self.samples < FEWEST_SAMPLES:
            raise ValueError(f"--samples is at least {FEWEST_SAMPLES}, not {self.samples}")


@dataclass(frozen=True, eq=False)
class Looked:
    """A table of new rows, their predictions, and how far from the training rows they are."""

    run: Run
    table: RawTable
    encoded: Encoded
    predicted: Predicted
    distance: Any
    why: Sequence[str]
    notes: Sequence[str]

    @property
    def outside(self) -> Any:
        return self.distance > 1

    def columns(self, kept: Sequence[str] = ()) -> Columns:
        """Return what is written for each row, its identifier and the columns to keep first."""
        answers: dict[str, Any] = {
            re.sub("^(share|p) ", r"\1_", name): values for name, values in self.predicted.answers.items()
        }
        if "set" in answers:
            answers["set"] = ["|".join(map(str, labels)) for labels in answers["set"]]
        answers |= {"outside": self.outside, "distance": self.distance, "why": self.why}
        if doubled := [name for name in kept if name in answers]:
            raise ValueError(f"--keep {doubled[0]!r}: predictions have a column of that name, too; rename it first")
        identifier = self.run.encoder.identifier
        if identifier in self.table.columns and identifier not in answers:
            kept = tuple(dict.fromkeys((identifier, *kept)))
        return {**{name: self.table.column(name).plain() for name in kept}, **answers}


def _as_trained(run: Run, how: Format) -> Format:
    """Return how a file is read: with the run's words for missing, and its decimal sign unless one is asked for."""
    words = tuple(dict.fromkeys((*run.about.get("missing", ()), *how.missing)))
    return replace(how, missing=words, decimal=how.decimal or run.about.get("decimal"))


def look(asked: Question, talk: Talk) -> Looked:
    """Predict every row of a file by a run."""
    run = Run.load(asked.folder)
    table = read(asked.path, _as_trained(run, asked.how))
    encoded = run.encoder.encode(table)
    notes = [*table.notes, *encoded.notes]
    expected = {rule.name for rule in run.encoder.rules} | {run.target.name, *asked.keep}
    if extra := [name for name in table.columns if name not in expected]:
        shown = ", ".join(map(repr, extra[:10])) + ", ..." * (len(extra) > 10)
        notes.append(f"{table.source} has columns that the run does not know, and ignores: {shown}")
    truth = _truth(run, table, notes)
    level, samples = asked.level or run.level, asked.samples or run.samples
    predicted = predict_rows(run.posterior, encoded, level, samples, truth, asked.method, talk.progress)
    notes += predicted.notes
    for line in notes:
        talk.note(line)
    distance, why = run.around.look(encoded)
    return Looked(run, table, encoded, predicted, distance, why, notes)


def _truth(run: Run, table: RawTable, notes: list[str]) -> Any:
    """Return the target where it is there, and can be read; no prediction depends on it."""
    if run.target.name not in table.columns:
        return None
    try:
        truth = run.target.values(table)
    except ValueError as error:
        notes.append(f"not scored: {error}")
        return None
    strange = {label for label in truth.tolist() if label is not None and label not in run.target.classes}
    if run.target.classes and strange:
        notes.append(f"{run.target.name} holds {min(map(repr, strange))}, a class never seen: not scored")
    return truth


def predict_table(asked: Question, out: Path | None, talk: Talk) -> None:
    """`wherefrom predict`"""
    check_writable(out)
    to_screen = out is None or str(out) == "-"
    talk = replace(talk, on_stderr=to_screen)
    looked = look(asked, talk)
    scores, outside = looked.predicted.scores, looked.outside
    columns = looked.columns(asked.keep)
    document = {
        "rows": len(looked.table),
        "outside": int(outside.sum()),
        "level": asked.level or looked.run.level,
        **scores.shown(),
        "notes": [*looked.notes, *scores.remarks()],
    }
    if to_screen and talk.as_json:
        document["predictions"] = as_json(columns)
    else:
        write(columns, out)
        document["out"] = "-" if out is None else str(out)
    talk.say(f"{rows_of(len(looked.table))} predicted" + ("" if to_screen else f" into {out}"))
    talk.say(f"{rows_of(outside.sum())} ({outside.mean():.1%}) outside of what training saw")
    if scores:
        talk.say(f"\n{looked.run.target.name} is there in {rows_of(scores.rows)}:\n")
        _say_scores(scores, talk)
    talk.give(document)


# ------------------------------------------------------------------ sources


def sources_table(asked: Question, out: Path | None, rows: int, talk: Talk) -> None:
    """`wherefrom sources`"""
    from wherefrom.report.words import meaning

    check_writable(out)
    looked = look(asked, talk)
    run, answers, sources = looked.run, looked.predicted.answers, looked.predicted.sources
    step = -(-len(looked.encoded) // _OVERALL_ROWS)
    some = run.posterior.predict(looked.encoded.take(slice(None, None, step)), asked.samples or run.samples)
    overall = some.all_sources().overall
    columns = looked.columns(asked.keep)
    talk.show(f"Where the doubt about {run.target.name} comes from, over {rows_of(len(looked.encoded))}:\n")
    has_families = run.posterior.design.families is not None
    table = Table(
        ("source", "share", "±", ""),
        [
            (name, f"{part.share:.1%}", f"{part.share_error:.1%}", meaning(name, has_families, run.target.name))
            for name, part in overall.items()
        ],
    )
    talk.show(str(table))
    order = np.argsort(-looked.predicted.doubt, kind="stable")[:rows].tolist()
    shown = [name for name in ("mean", "std", "predicted", "confidence", "entropy") if name in answers]
    named = [name for name in columns if name in looked.table.columns]
    header = ("row", *named, *shown, *sources, "outside")
    listed = [
        (
            int(looked.table.rows[row]),
            *(columns[name][row] for name in named),
            *(answers[name][row] for name in shown),
            *(float(answers[f"share {name}"][row]) for name in sources),
            looked.why[row],
        )
        for row in order
    ]
    start = 1 + len(named) + len(shown)
    words = [
        (row[0], *map(_shown, row[1:start]), *(f"{part:.0%}" for part in row[start:-1]), row[-1]) for row in listed
    ]
    talk.show(f"\nThe {rows_of(len(listed))} most in doubt, and each source's share there:\n")
    talk.show(str(Table(header, words)))
    if out is not None:
        write(columns, out)
        talk.say(f"\nEvery row's shares are in {out}")
    talk.give(
        {
            "overall": {name: {"share": part.share, "error": part.share_error} for name, part in overall.items()},
            "rows": as_json(dict(zip(header, zip(*listed, strict=True), strict=True))),
            "notes": list(looked.notes),
        }
    )


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


# ------------------------------------------------------------------ report


def report_table(folder: Path, path: Path | None, out: Path | None, how: Format, *, talk: Talk) -> None:
    """`wherefrom report`"""
    from wherefrom.report.page import report

    run = Run.load(folder)
    out = folder / "report.html" if out is None else out
    x, y, names = _rows_to_report(run, folder, path, how)
    most = max(200, _REPORT_NUMBERS // (len(run.posterior) * run.samples * run.posterior.schema.targets))
    notes, count = list(run.about["notes"]) if path is None else [], len(y)
    if count > most:
        some = np.sort(streams.generator(run.posterior.seed, "tables", "report").permutation(count)[:most])
        x, y, names = x.take(some), y[some], [names[row] for row in some.tolist()]
        notes.append(f"Of {count:,} rows, {most:,} at random are scored here: more would not fit into memory.")
        talk.note(notes[-1])
    distance, _ = run.around.look(x)
    posterior = run.with_rows_to_calibrate()
    report(
        posterior,
        (x, y),
        out,
        samples=run.samples,
        title=f"{run.target.name}: {_described(run, path)}",
        columns=run.encoder.features,
        target=run.target.name,
        rows=names,
        outside=np.minimum(distance, 1e6),
        edge=1.0,
        speaks="command",
        before=posterior.uncalibrated if posterior.calibration else None,
        notes=notes,
    )
    talk.say(f"The report on {rows_of(len(y))} is in {out}")
    talk.give({"report": str(out), "rows": len(y)})


def _described(run: Run, path: Path | None) -> str:
    learnt = Path(run.about["source"]).name
    return f"rows held out of {learnt}" if path is None else f"rows of {path.name}, learnt from {learnt}"


def _rows_to_report(run: Run, folder: Path, path: Path | None, how: Format) -> tuple[Encoded, Any, Sequence[str]]:
    """Return the rows of a file, or those that the run kept."""
    if path is None:
        if (kept := run.rows_to_test()) is None:
            raise ValueError(f"{folder} was made with --no-data: name a file of rows with {run.target.name!r} in it")
        return kept
    table = read(path, _as_trained(run, how))
    y = run.target.values(table)
    there = known(y)
    if run.target.classes:
        there &= np.array([label in run.target.classes for label in y.tolist()])
    if not there.any():
        raise ValueError(f"{path} has no row with a {run.target.name!r}: a report needs the truth to compare with")
    table, y = table.take(there), y[there]
    encoded = run.encoder.encode(table)
    return encoded, np.array(y.tolist()), run.encoder.row_names(table)
