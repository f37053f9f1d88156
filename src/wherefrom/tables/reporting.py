"""The report of a model: on rows of a table with their truth, or on those that it kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wherefrom.report import page
from wherefrom.table import Table
from wherefrom.tables.advising import NOTHING, Advice, advice
from wherefrom.tables.columns import Encoded, rows_of
from wherefrom.tables.families import WORDS
from wherefrom.tables.importance import Importance, importance
from wherefrom.tables.raw import RawTable
from wherefrom.tables.unexplained import Unexplained, unexplained
from wherefrom.tables.wording import language, option

if TYPE_CHECKING:
    from wherefrom.tables.model import Model

_REPORT_NUMBERS = 20_000_000  # answers that a report looks at
_FIRST = 12  # lines of a table


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
    posterior, is_one = model.with_rows_to_calibrate(), not model.target.several
    split = rows.by_all_networks().all_sources() if is_one else None
    advised = None if split is None else advice(rows, model.scores if table is None else None, split.overall)
    resting = importance(rows) if is_one and len(rows) > 1 else None
    left = unexplained(rows) if is_one else None
    page.report(
        posterior,
        (Encoded(rows.rows.x.numpy(), model.encoder.features), rows.rows.truth),
        out,
        samples=model.samples,
        title=f"{model.target.name}: {_described(model, table)}",
        columns=model.encoder.features,
        target=model.target.name if is_one else None,
        rows=rows.names,
        outside=rows.distance,
        edge=1.0,
        speaks=language(),
        left_out_by=rows.rows.left_out_by,
        predict=rows.answer,
        sources=split,
        before=posterior.uncalibrated if posterior.calibration else None,
        cautions=[_sentence(line) for line in model.better_neighbours()] if table is None else (),
        advice=None if advised is None else _shown_advice(advised),
        sections=[
            *(_other_models(model) if table is None else ()),
            *_columns(resting, left, model.target.name),
            *(_families(model) if table is None else ()),
            *(_ways(model) if table is None else ()),
        ],
        notes=[*(model.notes if table is None else ()), *notes],
    )
    return Written(out, len(rows), tuple(notes), advised, resting, left)


def _described(model: Model, table: RawTable | None) -> str:
    learnt = Path(model.about["source"]).name
    if table is None:
        is_by_folds = model.held_out is not None and model.held_out.left_out_by is not None
        return (
            f"rows of {learnt}, each by networks that did not see it" if is_by_folds else f"rows held out of {learnt}"
        )
    return f"rows of {Path(table.source).name}, learnt from {learnt}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


# ------------------------------------------------------------------ what tables add to the page


def _shown_advice(advised: Advice) -> dict[str, Any]:
    if not advised.items:
        return {"lead": "Nothing stands out", "say": [NOTHING]}
    first, *others = advised.items
    return {"lead": first.lead, "say": [first.say, *(f"{item.lead}: {item.say}" for item in others)]}


def _other_models(model: Model) -> list[dict[str, Any]]:
    """Return the section with the neighbours' scores; nothing if there are none."""
    if not model.neighbours:
        return []
    better = model.better_neighbours()
    verdict = "None of them has a clearly lower NLL." if not better else " ".join(map(_sentence, better))
    return [
        {
            "id": "others",
            "title": "Beside other models",
            "name": "Other models",
            "lead": f"What others make of the same {rows_of(model.scores.rows)}, by the same folds. {verdict}",
            "panels": [_panel(model.scores.beside(model.neighbours), "Scores", None)],
        }
    ]


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
    lead = (
        "Kinds of model that were trained on the same folds, by the same loss, and the scores of each alone on "
        f"left-out rows. Weights are those with the lowest {lowest} of these rows. Where kinds disagree about a row, "
        "that is part of its doubt."
    )
    panels = [_panel(table, "Weights and scores of each kind alone", None)]
    return [{"id": "families", "title": "Kinds of model", "name": "Kinds of model", "lead": lead, "panels": panels}]


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
    lead = (
        "The same trainings, with t treated in other ways: as SWAG collected it, from its last iterates alone, or left "
        "out. The way that makes left-out rows most likely is the one that is used. Where the shares differ much, do "
        "not read more into them than this."
    )
    panels = [_panel(table, "Scores and shares, before calibration", None)]
    return [
        {"id": "ways", "title": "How the sources depend on t", "name": "Choice of t", "lead": lead, "panels": panels}
    ]


def _columns(resting: Importance | None, left: Unexplained | None, target: str) -> list[dict[str, Any]]:
    """Return the section about columns: which ones the prediction rests on, and where errors are large."""
    panels = []
    if resting is not None:
        caption = (
            f"How much worse the predictions of {rows_of(resting.rows)} get if one column is shuffled among them "
            f"({resting.repeats} times), each row answered by networks that did not see it. Within two standard errors "
            "of 0 it may be chance. Columns that say the same as another seem to matter less than they do."
        )
        panels.append(_panel(resting.table(), "Columns that the prediction rests on", caption))
    if left is not None and len(left):
        panels.append(_panel(left.table(), "Columns that make the noise large or small", _about_noise(left)))
    if not panels:
        return []
    lead = f"What the prediction of {target} rests on, and where your columns leave most of it unexplained."
    return [{"id": "columns", "title": "What each column does", "name": "Columns", "lead": lead, "panels": panels}]


def _about_noise(left: Unexplained) -> str:
    clear = [(name, each) for name, each in left.columns.items() if each.is_clear]
    if clear:
        name, each = clear[0]
        times = f"{each.ratio:.1f} ± {each.error:.1f} times"
        say = f"Errors are {times} as large where {name} {_is(each.larger)} as where it {_is(each.smaller)}."
    else:
        say = "No column makes errors clearly larger or smaller."
    say += f" By the errors of {rows_of(left.rows)}; a third of them chooses what is compared on the others."
    if left.is_predicted:
        return f"{say} The last column is what the model itself predicts."
    row_by_row = option("noise", "predicted")
    return f"{say} The model has one noise for all rows; {row_by_row} lets it differ."


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
