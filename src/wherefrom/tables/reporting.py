"""The report of a model: on rows of a table with their truth, or on those that it kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wherefrom.predictive.panels import percent
from wherefrom.report import page
from wherefrom.table import Table
from wherefrom.tables.advising import NOTHING, Advice, advice
from wherefrom.tables.columns import Encoded, rows_of
from wherefrom.tables.decoding import raw_columns
from wherefrom.tables.families import WORDS
from wherefrom.tables.importance import Importance, importance
from wherefrom.tables.labelled import Labelled
from wherefrom.tables.looking import gap_totals, gaps_by_column
from wherefrom.tables.raw import Numbers, RawTable
from wherefrom.tables.scores import NAMES
from wherefrom.tables.unexplained import Unexplained, unexplained
from wherefrom.tables.wording import language, option

if TYPE_CHECKING:
    from wherefrom.tables.model import Model

_REPORT_NUMBERS = 20_000_000  # answers that a report looks at
_FIRST = 8  # lines of a table, and bars
_LEAST_FALL = 0.01  # of the doubt, so that a missing value is worth a line


class Written(NamedTuple):
    """A report: where it is, of how many rows, what to know about them, and what it says of the columns.

    Of several targets, there is neither advice nor a word about columns.
    """

    path: Path
    rows: int
    notes: tuple[str, ...]
    advice: Advice | None = None
    importance: Importance | None = None
    unexplained: Unexplained | None = None


def report(model: Model, out: Path, table: RawTable | None = None) -> Written:
    """Write a page about a model on the rows of a table, or on those that it kept to be tested by."""
    given, notes = model.labelled(table), []
    most = max(200, _REPORT_NUMBERS // given.answers_of_a_row)
    rows = given.at_most(most, "report")
    if len(rows) < len(given):
        notes.append(f"Of {len(given):,} rows, {most:,} at random are scored here: more would not fit into memory.")
    posterior, is_one, is_kept = model.with_rows_to_calibrate(), not model.target.several, table is None
    split = rows.by_all_networks().all_sources() if is_one else None
    advised = None if split is None else advice(rows, model.scores if is_kept else None, split.overall)
    resting = importance(rows) if is_one and len(rows) > 1 else None
    left = unexplained(rows) if is_one else None
    falls = _falls(rows) if is_one else None
    page.report(
        posterior,
        (Encoded(rows.rows.x.numpy(), model.encoder.features), rows.rows.truth),
        out,
        samples=model.samples,
        title=f"Predictions of {model.target.name}",
        subtitle=_described(model, table),
        columns=raw_columns(rows, is_new=not is_kept),
        target=model.target.name if is_one else None,
        rows=rows.names,
        outside=rows.distance,
        edge=1.0,
        speaks=language(),
        left_out_by=rows.rows.left_out_by,
        predict=rows.answer,
        sources=split,
        before=posterior.uncalibrated if posterior.calibration else None,
        cautions=[_sentence(line) for line in model.better_neighbours()] if is_kept else (),
        advice=None if advised is None else _shown_advice(advised),
        sections=[
            *_importance(resting),
            *([] if falls is None else _gaps(rows, falls)),
            *(_other_models(model) if is_kept else ()),
            *_unexplained(left),
            *(_families(model) if is_kept else ()),
            *(_ways(model) if is_kept else ()),
        ],
        measure=None if falls is None else _to_measure(falls, model.drawn_columns),
        notes=[*(model.notes if is_kept else ()), *notes],
    )
    return Written(out, len(rows), tuple(notes), advised, resting, left)


def _described(model: Model, table: RawTable | None) -> str:
    learnt = Path(model.about["source"]).name
    if table is None:
        is_by_folds = model.held_out is not None and model.held_out.left_out_by is not None
        return (
            f"Rows of {learnt}, each predicted by networks that were trained without it."
            if is_by_folds
            else f"Rows held out of {learnt}."
        )
    return f"Rows of {Path(table.source).name}, learnt from {learnt}."


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


# ------------------------------------------------------------------ what tables add to the page


def _shown_advice(advised: Advice) -> dict[str, Any]:
    if not advised.items:
        return {"lead": "Nothing stands out", "say": [NOTHING]}
    first, *others = advised.items
    return {"lead": first.lead, "say": [first.say, *(f"{item.lead}: {item.say}" for item in others)]}


def _importance(resting: Importance | None) -> list[dict[str, Any]]:
    """Return the section with the columns that the predictions rest on."""
    if resting is None or not resting.columns:
        return []
    score = resting.main_score
    items = [
        {
            "name": name,
            "value": each[score].mean,
            "error": each[score].error,
            "is_clear": each[score].is_clear,
            "text": _with_error(each[score].mean, each[score].error),
        }
        for name, each in resting.columns.items()
    ]
    caption = (
        f"How much worse predictions get if a column is shuffled among {rows_of(resting.rows)}: the rise of the "
        f"{NAMES[score]}. Grey: may be chance. If two columns have the same information, both seem to matter little."
    )
    panel = {"type": "bars", "title": "Which columns matter", "caption": caption, "items": items, "first": _FIRST}
    return [{"id": "importance", "title": "Which columns matter", "part": "summary", "panels": [panel]}]


def _with_error(value: float, error: float) -> str:
    """Write a number with its standard error, which has two digits.

    >>> _with_error(1.2604, 0.1271), _with_error(-0.00001, 0.001), _with_error(51.5, 20.3)
    ('1.26 ± 0.13', '0.0000 ± 0.0010', '52 ± 20')
    """
    places = max(0, min(4, 1 - math.floor(math.log10(error)))) if 0 < error < math.inf else 2
    return f"{round(value, places) + 0.0:.{places}f} ± {error:.{places}f}"


def _falls(rows: Labelled) -> Numbers | None:
    """Return the expected fall of each row's doubt if a column were measured; None if nothing is missing."""
    if not rows.model.drawn_columns or not rows.x.has_gaps.any():
        return None
    return rows.predicted().falls


def _gaps(rows: Labelled, falls: Numbers) -> list[dict[str, Any]]:
    """Return the section with what to measure next; nothing if no missing value matters."""
    gaps = gaps_by_column(gap_totals(rows.x, falls), rows.model.drawn_columns)
    worth = {name: gap for name, gap in gaps.items() if gap.expected_fall >= _LEAST_FALL}
    if not worth:
        return []
    items = [
        {
            "name": name,
            "value": gap.expected_fall,
            "error": None,
            "is_clear": True,
            "text": f"{percent(gap.expected_fall)} in {rows_of(gap.rows)}",
        }
        for name, gap in worth.items()
    ]
    doubt = "entropy" if rows.model.target.classes else "variance"
    caption = f"By how much the {doubt} of a prediction would fall on average, where the column is missing."
    panel = {"type": "bars", "title": "What to measure next", "caption": caption, "items": items, "first": _FIRST}
    return [{"id": "gaps", "title": "What to measure next", "part": "summary", "panels": [panel]}]


def _to_measure(falls: Numbers, names: Sequence[str]) -> list[tuple[str, float] | None]:
    """Return for each row the missing column that would lower its doubt most, and by how much.

    >>> import numpy as np
    >>> _to_measure(np.array([[0.0, 0.25], [0.0, 0.0]]), ["age", "weight"])
    [('weight', 0.25), None]
    """
    best = falls.argmax(axis=1).tolist()
    each = ((names[k], round(float(row[k]), 4)) for k, row in zip(best, falls, strict=True))
    return [(name, fall) if fall >= _LEAST_FALL else None for name, fall in each]


def _other_models(model: Model) -> list[dict[str, Any]]:
    """Return the section with the neighbours' scores; nothing if there are none."""
    if not model.neighbours:
        return []
    better = model.better_neighbours()
    verdict = "None has a clearly lower NLL." if not better else " ".join(map(_sentence, better))
    beside = model.scores.beside(model.neighbours)
    shared = [line for line in beside.rows if any(line[3:])]
    models = ("this model", *beside.columns[3:])
    lines = [(name, *(_score(line, k) for line in shared)) for k, name in enumerate(models)]
    table = Table(("model", *(line[0] for line in shared)), lines)
    rows = model.scores.rows
    answered = model.neighbours[0].rows or rows  # older runs do not say
    which = f"The same {rows_of(rows)}" if answered == rows else f"{rows_of(answered)} of the {rows:,} of this model"
    lead = f"{which}, by the same folds. {verdict}"
    return [{"id": "others", "title": "Other models", "panels": [_panel(table, "Other models", lead)]}]


def _score(line: Sequence[str], model: int) -> str:
    """Return a score of one model as text; that of the first model, which is this one, has its error."""
    if model:
        return line[2 + model]
    return f"{line[1]} ± {line[2]}" if line[2] else line[1]


def _families(model: Model) -> list[dict[str, Any]]:
    """Return the section on the kinds of model in the mixture; nothing if there were only networks."""
    families = model.about.get("families", [])
    if not families:
        return []
    score = "Brier score" if model.target.classes else "CRPS"
    table = Table(
        ("kind of model", "weight", "NLL", score),
        [(WORDS[each["name"]], f"{each['weight']:.0%}", each["nll"], each["crps"]) for each in families],
    )
    lowest = "NLL" if model.target.classes else "CRPS"
    caption = f"Scores of each kind alone on left-out rows. The weights give the lowest {lowest} on them."
    panels = [_panel(table, "Kinds of model", caption)]
    return [{"id": "families", "title": "Kinds of model", "part": "technical", "panels": panels}]


def _ways(model: Model) -> list[dict[str, Any]]:
    """Return the section on how much the sources depend on how t is treated; nothing if nothing was compared."""
    ways = model.about.get("ways", [])
    if not ways or not ways[0]["shares"]:
        return []
    sources = list(dict.fromkeys(source for way in ways for source in way["shares"]))
    shares = [f"share of {source}" for source in sources]
    table = Table(
        ("when training stops", ways[0]["score"], "more than the best", "±", *shares),
        [
            (way["name"], way["loss"], way["behind"], way["error"], *(way["shares"].get(each, 0.0) for each in sources))
            for way in ways
        ],
    )
    caption = "The same trainings, before calibration. The way with the lowest loss on left-out rows is used."
    panels = [_panel(table, "How the sources depend on when training stops", caption)]
    return [{"id": "ways", "title": "When training stops", "part": "technical", "panels": panels}]


def _unexplained(left: Unexplained | None) -> list[dict[str, Any]]:
    """Return the section about where errors are large; nothing if no column can tell."""
    if left is None or not len(left):
        return []
    clear = {name: each for name, each in left.columns.items() if each.is_clear}
    if not clear:
        caption = f"No column makes errors clearly larger or smaller, by {rows_of(left.rows)}."
        panel: dict[str, Any] = {"type": "note", "wide": True, "title": "Where errors are larger", "caption": caption}
    else:
        table = Table(
            ("column", "larger where it", "than where it", "times"),
            [
                (name, _is(each.larger), _is(each.smaller), _with_error(each.ratio, each.error))
                for name, each in clear.items()
            ],
        )
        panel = _panel(table, "Where errors are larger", _about_noise(left))
    return [{"id": "unexplained", "title": "Where errors are larger", "panels": [panel]}]


def _about_noise(left: Unexplained) -> str:
    say = f"Errors of {rows_of(left.rows)}; a third of them are used to choose the groups, the others to compare them."
    if left.is_predicted:
        return say
    return f"{say} The model has one noise for all rows; {option('noise', 'predicted')} lets it differ."


def _is(group: str) -> str:
    """
    >>> _is("below 40"), _is("= ward A"), _is("is another"), _is("missing")
    ('is below 40', 'is ward A', 'is another', 'is missing')
    """
    return group if group.startswith("is ") else f"is {group.removeprefix('= ')}"


def _panel(table: Table, title: str, caption: str | None) -> dict[str, Any]:
    """Return a table as a panel: columns of numbers are aligned, the first names the rows."""
    columns: list[dict[str, Any]] = []
    for index, name in enumerate(table.columns):
        cells: Sequence[Any] = [row[index] for row in table.rows]
        field = {"key": str(index), "name": name.strip() or " ", "as": "text", "strong": index == 0}
        if all(isinstance(cell, float) for cell in cells):
            field |= {"as": "number", "digits": 4} | ({"like": str(index - 1)} if name.startswith("±") else {})
        elif all(not cell or cell.lstrip("-")[:1].isdigit() for cell in cells):
            field |= {"right": True}
        columns.append(field)
    items = [{str(index): cell for index, cell in enumerate(row)} for row in table.rows]
    about = {"type": "table", "wide": True, "title": title, "caption": caption, "first": _FIRST}
    return about | {"columns": columns, "items": items}
