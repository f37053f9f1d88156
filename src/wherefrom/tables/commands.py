"""What the commands do, and what they say of it: lines for people, or one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from wherefrom.table import Table
from wherefrom.tables.advising import Advice
from wherefrom.tables.columns import rows_of
from wherefrom.tables.fitting import learn
from wherefrom.tables.looking import How, Looked
from wherefrom.tables.model import Model, check_free, command_line, gaps_table, sources_tables
from wherefrom.tables.neighbours import Neighbour
from wherefrom.tables.options import Request
from wherefrom.tables.raw import Format
from wherefrom.tables.reading import read
from wherefrom.tables.reporting import report
from wherefrom.tables.scores import Scores
from wherefrom.tables.writing import DIGITS, Columns, as_json, check_digits, check_writable, decimal, finite, write

_AT_RISK = 10  # rows that are listed


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
    path: Path,
    out: Path,
    request: Request,
    how: Format,
    *,
    test: Path | None,
    overwrite: bool,
    keeps_data: bool,
    talk: Talk,
) -> None:
    """`wherefrom fit`"""
    check_free(out, overwrite)
    to_test = None if test is None else read(test, how)
    run = learn(read(path, how), request, talk.say, talk.progress, how, talk.note, to_test)
    run.save(out, overwrite=overwrite, keeps_data=keeps_data, command=command_line())
    talk.say()
    by = "each by the networks that did not see it" if "folds" in run.about["rows"] else "that had no part in it"
    for line in run.verdict():
        talk.note(line)
    talk.say(f"On {rows_of(run.scores.rows)}, {by}:\n")
    _say_scores(run.scores, talk, run.neighbours)
    if run.tested:
        talk.say(f"\nOn {rows_of(run.tested.rows)} to test on:\n")
        _say_scores(run.tested, talk)
        _note_remarks(run.tested, talk)
    advised = run.advice() if run.scores else Advice(())
    if run.scores:
        talk.say(f"\nWhat to do next:\n\n{advised}")
    talk.say(f"\nThe run is in {out}. Next: wherefrom predict {out} new.csv --out predictions.csv")
    talk.give({"run": str(out), **_summary(run, advised)})


def _summary(run: Model, advised: Advice) -> dict[str, Any]:
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
        "tested": run.tested.shown() if run.tested else None,
        "seconds": run.about["seconds"],
        "seed": run.posterior.seed,
        "neighbours": {each.name: {**each.scores, "gain": each.gain, "error": each.error} for each in run.neighbours},
        "notes": [*run.about["notes"], *run.verdict()],
        "advice": _advice(advised),
    }


def _advice(advised: Advice) -> list[dict[str, str]]:
    return [asdict(item) for item in advised]


def _say_scores(scores: Scores, talk: Talk, neighbours: Sequence[Neighbour] = ()) -> None:
    talk.say(str(scores.beside(neighbours) if neighbours else scores.table()))
    if (alerts := scores.alerts()) is not None and scores.event is not None:
        event = scores.event
        talk.say(f"\nThe event is {event.label!r}, the rarer class. What acting on its risk would do:\n\n{alerts}")


def _note_remarks(scores: Scores, talk: Talk) -> None:
    for line in scores.remarks():
        talk.note(line)


# ------------------------------------------------------------------ predict


@dataclass(frozen=True)
class Question:
    """A run, a file of rows to predict with it, and how."""

    folder: Path
    path: Path
    reading: Format
    how: How
    digits: int = DIGITS

    def __post_init__(self) -> None:
        check_digits(self.digits)

    def answered(self, talk: Talk) -> Looked:
        """Predict every row of the file by the run."""
        model = Model.load(self.folder)
        looked = model.look(model.as_table(self.path, self.reading), self.how, talk.progress)
        for line in looked.notes:
            talk.note(line)
        return looked


def predict_table(asked: Question, out: Path | None, talk: Talk) -> None:
    """`wherefrom predict`"""
    check_writable(out)
    to_screen = out is None or str(out) == "-"
    talk = replace(talk, on_stderr=to_screen)
    looked = asked.answered(talk)
    scores, outside = looked.predicted.scores, looked.outside
    columns = looked.columns()
    document = {
        "rows": len(looked.table),
        "outside": int(outside.sum()),
        "level": asked.how.level or looked.model.level,
        **scores.shown(),
        "notes": [*looked.notes, *scores.remarks()],
    }
    if to_screen and talk.as_json:
        document["predictions"] = as_json(columns)
    else:
        write(columns, out, asked.digits)
        document["out"] = "-" if out is None else str(out)
    talk.say(f"{rows_of(len(looked.table))} predicted" + ("" if to_screen else f" into {out}"))
    talk.say(f"{rows_of(outside.sum())} ({outside.mean():.1%}) outside of what training saw")
    if not to_screen:
        _say_risks(looked, columns, asked.digits, talk)
    if scores:
        talk.say(f"\n{looked.model.target.name} is there in {rows_of(scores.rows)}:\n")
        _say_scores(scores, talk)
        _note_remarks(scores, talk)
    talk.give(document)


def _say_risks(looked: Looked, columns: Columns, digits: int, talk: Talk) -> None:
    """List the rows at the highest risk of a rare event."""
    risk, event = looked.risk(), looked.model.scores.event
    if risk is None or event is None:
        return
    order = np.argsort(-risk, kind="stable")[:_AT_RISK].tolist()
    name = next(name for name, values in columns.items() if values is risk)
    kept = [each for each in columns if each in looked.table.columns]
    header = ("row", *kept, name, "disagreement", "why")
    listed = [
        (int(looked.table.rows[row]), *(_shown(columns[each][row], digits) for each in header[1:])) for row in order
    ]
    talk.say(f"\nThe {rows_of(len(listed))} at the highest risk of {event.label!r}:\n\n{Table(header, listed)}")


# ------------------------------------------------------------------ sources


def sources_table(asked: Question, out: Path | None, rows: int, talk: Talk) -> None:
    """`wherefrom sources`"""
    check_writable(out)
    looked = asked.answered(talk)
    run, answers, shares = looked.model, looked.predicted.answers, looked.shares()
    overall, columns = looked.overall(), looked.columns()
    talk.show(f"Where the doubt about {run.target.name} comes from, over {rows_of(len(looked.encoded))}:\n")
    has_families = run.posterior.design.families is not None
    talk.show("\n\n".join(map(str, sources_tables(overall, has_families))))
    if gaps := looked.gaps():
        talk.show("\nWhat measuring the missing values would do to the doubt, on average where they are missing:\n")
        talk.show(str(gaps_table(gaps)))
    order = np.argsort(-looked.predicted.doubt, kind="stable")[:rows].tolist()
    shown = [name for name in ("mean", "std", "predicted", "confidence", "disagreement") if name in answers]
    named = [name for name in columns if name in looked.table.columns]
    measure = ("measure_next", "expected_fall") if gaps else ()
    header = ("row", *named, *shown, *(f"share_{name}" for name in shares), *measure, "why")
    listed = [(int(looked.table.rows[row]), *(columns[name][row] for name in header[1:])) for row in order]
    start = 1 + len(named) + len(shown)
    words = [
        (row[0], *(_shown(value, asked.digits) for value in row[1:start]), *map(_in_percent, row[start:-1]), row[-1])
        for row in listed
    ]
    talk.show(
        f"\nThe {rows_of(len(listed))} most in doubt by the choices of training, and each source's share of all doubt "
        "there:\n"
    )
    talk.show(str(Table(("row", *named, *shown, *shares, *measure, "why"), words)))
    if out is not None:
        write(columns, out, asked.digits)
        talk.say(f"\nEvery row's shares are in {out}")
    talk.give(
        {
            "overall": {
                name: {
                    "share": part.share,
                    "error": part.share_error,
                    "model_share": part.model_share,
                    "model_share_error": part.model_share_error,
                }
                for name, part in overall.items()
            },
            "gaps": {name: asdict(gap) for name, gap in gaps.items()},
            "rows": as_json(dict(zip(header, zip(*listed, strict=True), strict=True))),
            "notes": list(looked.notes),
        }
    )


def _in_percent(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.0%}"


def _shown(value: Any, digits: int) -> str:
    return decimal(float(value), digits) if isinstance(value, float | np.floating) else str(value)


# ------------------------------------------------------------------ report


def report_table(folder: Path, path: Path | None, out: Path | None, how: Format, *, talk: Talk) -> None:
    """`wherefrom report`"""
    model = Model.load(folder)
    table = None if path is None else model.as_table(path, how)
    written = report(model, folder / "report.html" if out is None else out, table)
    for note in written.notes:
        talk.note(note)
    if written.advice is not None:
        talk.say(f"What to do next:\n\n{written.advice}\n")
    talk.say(f"The report on {rows_of(written.rows)} is in {written.path}")
    talk.give(
        {
            "report": str(written.path),
            "rows": written.rows,
            "advice": None if written.advice is None else _advice(written.advice),
            "importance": None if written.importance is None else asdict(written.importance)["columns"],
            "unexplained": None if written.unexplained is None else asdict(written.unexplained)["columns"],
        }
    )
