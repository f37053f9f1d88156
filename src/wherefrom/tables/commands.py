"""The commands, and what they print: lines for people, or one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from wherefrom.files import folders
from wherefrom.files.folders import Writer
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
from wherefrom.tables.streaming import Totals, looked_at
from wherefrom.tables.whole import rows_to_learn
from wherefrom.tables.writing import DIGITS, as_json, check_digits, check_writable, decimal, finite, writing


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
    """`wherefrom fit`; no other process can write into the folder from the beginning on."""
    check_free(out, overwrite)
    with folders.writing(out.resolve(), is_new=True) as writer:
        check_free(out, overwrite)
        try:
            _fit_table(path, out, request, how, test=test, writer=writer, keeps_data=keeps_data, talk=talk)
        except KeyboardInterrupt as stop:
            if writer.is_committed:
                raise KeyboardInterrupt(f"the run is whole, in {out}") from stop
            raise


def _fit_table(
    path: Path,
    out: Path,
    request: Request,
    how: Format,
    *,
    test: Path | None,
    writer: Writer,
    keeps_data: bool,
    talk: Talk,
) -> None:
    to_test = None if test is None else read(test, how)
    table, whole = rows_to_learn(path, how, request)
    run = learn(table, request, talk.say, talk.progress, how, talk.note, to_test, whole=whole)
    run.put(writer, keeps_data=keeps_data, command=command_line())
    talk.say()
    by = "each by networks trained without it" if "folds" in run.about["rows"] else "which were not trained on"
    for line in run.verdict():
        talk.note(line)
    talk.say(f"Scores on {rows_of(run.scores.rows)}, {by}:\n")
    _say_scores(run.scores, talk, run.neighbours)
    if run.tested:
        talk.say(f"\nScores on {rows_of(run.tested.rows)} of the test set:\n")
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
        talk.say(
            f"\nThe event is {event.label!r}, the rarer class. If you act on all rows above a threshold of its risk:"
        )
        talk.say(f"\n{alerts}")


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

    def answered(self, model: Model, talk: Talk) -> Iterator[Looked]:
        """Predict the rows of the file by the run, some at a time."""
        return looked_at(model, model.chunks_of(self.path, self.reading), self.how, talk.progress)


def answers_of(path: Path, talk: Talk) -> Path:
    """Return the file that `wherefrom fit --predict` writes; raise if that cannot be, before anything is trained."""
    if talk.as_json:
        raise ValueError("--json prints one document: use wherefrom predict --json after the fit, without --predict")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: --predict takes a CSV or Parquet file")
    out = path.with_name(f"{path.name.partition('.')[0]}_predictions.csv")
    check_writable(out)
    return out


def predict_table(asked: Question, out: Path | None, talk: Talk) -> None:
    """`wherefrom predict`"""
    check_writable(out)
    to_screen = out is None or str(out) == "-"
    talk = replace(talk, on_stderr=to_screen)
    model, totals = Model.load(asked.folder), Totals()
    predictions: list[dict[str, Any]] = []
    is_document = to_screen and talk.as_json
    with (
        nullcontext(lambda columns: predictions.extend(as_json(columns)))
        if is_document
        else writing(out, asked.digits) as write
    ):
        for looked in asked.answered(model, talk):
            columns = looked.columns()
            write(columns)
            totals.add(looked, columns)
    scores, notes = totals.scores(), totals.all_notes()
    for line in notes:
        talk.note(line)
    document = {
        "rows": totals.rows,
        "outside": totals.outside,
        "level": asked.how.level or model.level,
        **scores.shown(),
        "notes": [*notes, *scores.remarks()],
    }
    if is_document:
        document["predictions"] = predictions
    else:
        document["out"] = "-" if out is None else str(out)
    talk.say(f"{rows_of(totals.rows)} predicted" + ("" if to_screen else f" into {out}"))
    unusual = f"{rows_of(totals.outside)} ({totals.outside / totals.rows:.1%})"
    talk.say(f"{unusual} unlike the training rows: see the columns outside and why")
    if not to_screen:
        _say_risks(model, totals, asked, talk)
    if scores:
        talk.say(f"\nScores on {rows_of(scores.rows)} whose {model.target.name} is in the table:\n")
        _say_scores(scores, talk)
        _note_remarks(scores, talk)
    talk.give(document)


def _say_risks(model: Model, totals: Totals, asked: Question, talk: Talk) -> None:
    """List the rows at the highest risk of a rare event."""
    event = model.scores.event
    if totals.risk_column is None or event is None:
        return
    header = ("row", *totals.kept, totals.risk_column, "disagreement", "why")
    listed = [(row["row"], *(_shown(row[each], asked.digits) for each in header[1:])) for row in totals.risks.rows]
    talk.say(f"\nThe {rows_of(len(listed))} at the highest risk of {event.label!r}:\n\n{Table(header, listed)}")


# ------------------------------------------------------------------ sources


def sources_table(asked: Question, out: Path | None, rows: int, talk: Talk) -> None:
    """`wherefrom sources`"""
    check_writable(out)
    run, totals = Model.load(asked.folder), Totals(rows)
    shares: dict[str, None] = {}
    with nullcontext(lambda columns: None) if out is None else writing(out, asked.digits) as write:
        for looked in asked.answered(run, talk):
            columns = looked.columns()
            write(columns)
            totals.add(looked, columns)
            shares = shares if len(shares) > len(looked.shares()) else dict.fromkeys(looked.shares())
            unit = looked.predicted.unit
    for line in totals.all_notes():
        talk.note(line)
    overall = totals.overall()
    doubt = f"Where the doubt about {run.target.name} comes from (shares of the {unit})"
    talk.show(f"{doubt}, over {rows_of(totals.rows)}:\n")
    has_families = run.posterior.design.families is not None
    talk.show("\n\n".join(map(str, sources_tables(overall, has_families))))
    if gaps := totals.gaps():
        talk.show("\nHow much measuring a missing value would lower the doubt of its row, on average:\n")
        talk.show(str(gaps_table(gaps)))
    first = "mean" if "mean" in columns else "median"
    shown = [name for name in (first, "std", "predicted", "confidence", "disagreement") if name in columns]
    measure = ("measure_next", "expected_fall") if gaps else ()
    header = ("row", *totals.kept, *shown, *(f"share_{name}" for name in shares), *measure, "why")
    listed = [tuple(row.get(name, 0.0) for name in header) for row in totals.doubts.rows]
    start = 1 + len(totals.kept) + len(shown)
    words = [
        (row[0], *(_shown(value, asked.digits) for value in row[1:start]), *map(_in_percent, row[start:-1]), row[-1])
        for row in listed
    ]
    talk.show(
        f"\nThe {rows_of(len(listed))} with the largest doubt caused by training choices, with each source's share of "
        "all doubt:\n"
    )
    talk.show(str(Table(("row", *totals.kept, *shown, *shares, *measure, "why"), words)))
    if out is not None:
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
            "rows": [finite(dict(zip(header, row, strict=True))) for row in listed],
            "notes": totals.all_notes(),
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
