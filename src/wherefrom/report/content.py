"""The document of a report, as plain values: what was trained, on what, how it scores, and where its doubt comes from.

    posterior, labelled rows that were not trained on  ->  a dictionary that JSON can hold

Scores, calibration and overall sources are of all rows. Points of plots and the list of rows are thinned to what a page
of less than a megabyte and a half can hold: the rows most in doubt, and others evenly spaced.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from wherefrom import __version__
from wherefrom.posterior import Posterior
from wherefrom.posterior import settled as settling
from wherefrom.posterior.held_out import part_trained_on
from wherefrom.posterior.predicting import predicted
from wherefrom.predictive.background import Blend
from wherefrom.predictive.panels import FEW_ROWS, Output, short, thinned
from wherefrom.predictive.row_scores import finite_or_none
from wherefrom.predictive.sources import Sources
from wherefrom.report import words
from wherefrom.report.columns import RawColumn, of_numbers
from wherefrom.report.outside import Outside, outside_rows
from wherefrom.report.views import scored, view, with_rates
from wherefrom.training.data import Rows, as_rows
from wherefrom.training.fitted import FittingEngine

_MOST_NUMBERS = 75_000  # that are listed row by row: less than a megabyte
_MOST_ROWS, _FEWEST_ROWS = 1000, 50  # that are listed
_MOST_CURVES, _MOST_EPOCHS = 60, 150  # of the learning curves
_MOST_COLUMNS, _MOST_VALUES = 40, 30  # in the summary of the data, and of every listed row
_TRAINED_ROWS = 100_000  # by which the usual values of training are described
_PARTS = ("summary", "trust", "technical")  # of the page, in which a section may stand
_NUMBERS_OF_A_ROW = 18  # of each output
_ALL_SUBSETS = 6  # variables of which all subsets are tried


def content(
    posterior: Posterior,
    x: Any,
    y: Any,
    *,
    samples: int = 100,
    title: str = "How sure, and why",
    subtitle: str = "",
    target: str | None = None,
    columns: Sequence[str] | Sequence[RawColumn] | None = None,
    rows: Sequence[Any] | None = None,
    unit: str = "",
    outside: Any = None,
    edge: float | None = None,
    before: Posterior | None = None,
    notes: Sequence[str] = (),
    speaks: words.Language = "python",
    left_out_by: Tensor | None = None,
    blend: Blend | None = None,
    predict: Callable[[Posterior], Any] | None = None,
    sources: Sources | None = None,
    cautions: Sequence[str] = (),
    advice: dict[str, Any] | None = None,
    sections: Sequence[dict[str, Any]] = (),
    measure: Sequence[tuple[str, float] | None] | None = None,
) -> dict[str, Any]:
    """Return the document of a page about a posterior, by labelled rows that it was not trained on.

    x, y: rows that were not trained on, as `posterior.predict` and `posterior.report` take them.
    samples: of each network (default 100).
    title, subtitle: a heading, and a sentence about the rows below it.
    target: the name of what is predicted (default: that of y's frame, or "y").
    columns: the names of the columns of x (default: those of its frame), or raw columns, where x is encoded.
    rows: the names of the rows (default: those of x's frame, or their numbers).
    unit: of y.
    outside: for each row, whether or how far it is outside of the training data: true or false, or any score (default:
        the distance to the nearest training row, where these are at hand).
    edge: the score beyond which a row is outside.
    before: another posterior to compare the calibration with (default: this one before it was calibrated, if it was).
    notes: sentences to show below the summary.
    speaks: "python" writes advice for a posterior in Python (the default), "command" as options of `wherefrom fit`,
        "fit" as arguments of `wf.fit`.
    left_out_by: for rows that were trained on, the draw of D that left each out, and is to judge it.
    blend: a background distribution, mixed into the predictions of rows that are outside.
    predict: answers the rows by a posterior, or by a part of one, where that takes more than x (default: by x,
        `left_out_by` and `blend`).
    sources: the sources of the doubt of these rows, for one output (default: those of their predictions).
    cautions: sentences to show first.
    advice: {"lead", "say"} instead of the page's.
    sections: further sections of panels, {"id", "title", "lead", "panels", "part"}; "part" is "summary", "trust" (the
        default) or "technical".
    measure: for each row, the missing column that would lower its doubt most and by which share, or None.
    """
    likelihood, families = posterior.training.likelihood, posterior.design.families is not None
    given = replace(as_rows((x, y), likelihood, posterior.schema.classes), left_out_by=left_out_by)
    names = _output_names(posterior, given, target)

    def answer(part: Posterior) -> Any:
        prediction = predicted(part, given.x, samples, "monte_carlo", left_out_by=given.left_out_by)
        return prediction if blend is None else prediction.blended(blend)

    def split(part: Posterior) -> list[Output]:
        return (predict or answer)(part).views(given.truth, names, likelihood.noise_kind, unit)

    whole = split(posterior)
    voices = [words.Voice(output.name, speaks, families, bool(posterior.calibration), output.words) for output in whole]
    aside = outside_rows(posterior, given, outside, edge)
    listed, drawn = _listed(whole, given, aside)
    tables = _combinations(posterior, samples, whole, split, given.left_out_by is not None)
    if before is None and posterior.calibration:
        before = posterior.uncalibrated
    earlier = [None] * len(whole) if before is None else split(before)
    further = _further(posterior, given, samples, voices[0])
    views = []
    schema = posterior.schema
    exposure = likelihood.offset(schema.x_names, math.prod(schema.x_shape), schema.targets)
    for output, past, table, voice in zip(whole, earlier, tables, voices, strict=True):
        one = view(output, listed, voice, past, sources) | {"combinations": table}
        if exposure is not None and len(exposure.outputs) == len(whole):  # all outputs are counts
            name = schema.x_names[exposure.column] if schema.x_names else f"column {exposure.column}"
            one = with_rates(one, given.x[listed, exposure.column].double(), name)
        one["outside"] = None if aside is None else aside.shown(output, one["spread"], len(given))
        far = int(aside.is_beyond.sum()) if aside is not None and aside.kind != "distance" else None
        one["advice"] = advice or words.advice(one, voice, further, far)
        views.append(one)
    return {
        "wherefrom": __version__,
        "made": datetime.date.today().isoformat(),
        "title": title,
        "subtitle": subtitle,
        "cautions": [*cautions, *_cautions(posterior, given, voices[0])],
        "sections": [_section(each) for each in sections],
        "notes": list(notes),
        "rows": {
            "count": len(given),
            "names": _row_names(x, rows, listed, len(given)),
            "are_named": rows is not None or hasattr(x, "iloc"),
            "drawn": drawn,
            "measure": None if measure is None else [measure[row] for row in listed.tolist()],
        },
        "samples": samples,
        "trained": _trained(posterior, given, samples, families),
        "data": _data(posterior, given, whole, columns, listed),
        "views": views,
        "learning": _learning(posterior),
        "members": _members(posterior),
        "further": further,
        "scores": {
            name: {"short": term.short, "best": term.best, "is_percent": term.is_percent, "absent": term.absent}
            for output in whole
            for name, term in output.words.scores.items()
        },
        "glossary": words.glossary(whole),
        "footnotes": list(dict.fromkeys(output.words.footnote for output in whole if output.words.footnote)),
        "outside": None if aside is None else aside.columns(listed),
    }


def _section(given: dict[str, Any]) -> dict[str, Any]:
    part = given.get("part", "trust")
    if part not in _PARTS:
        raise ValueError(f"the part of a section is {', '.join(map(repr, _PARTS))}, not {part!r}")
    return {"lead": None, **given, "part": part}


# ---------------------------------------------------------------------- rows


def _listed(whole: Sequence[Output], given: Rows, aside: Outside | None) -> tuple[Tensor, list[int]]:
    """The rows that are listed, and the indices among them of those that are drawn: evenly spaced over all.

    Of more rows than can be listed, a fifth are those most in doubt, and up to a tenth those farthest outside.
    """
    values = min(_MOST_VALUES, math.prod(given.x.shape[1:])) + _NUMBERS_OF_A_ROW * len(whole)
    most = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_NUMBERS // values))
    if len(given) <= most:
        return torch.arange(len(given)), list(range(len(given)))
    doubted = torch.stack([output.doubt() / output.doubt().mean().clamp_min(1e-300) for output in whole]).amax(0)
    far = torch.zeros(0, dtype=torch.long)
    if aside is not None and aside.edge is not None:
        far = aside.values.argsort(descending=True)[: min(most // 10, int(aside.is_beyond.sum()))]
    even = thinned(len(given), most - most // 5 - len(far))
    listed = torch.cat([even, far, doubted.argsort(descending=True)[: most // 5]]).unique()
    return listed, torch.searchsorted(listed, even).tolist()


def _row_names(x: Any, rows: Sequence[Any] | None, listed: Tensor, count: int) -> list[str]:
    if rows is None:
        rows = list(x.index) if hasattr(x, "iloc") else range(count)
    if len(rows) != count:
        raise ValueError(f"there are {len(rows)} names for {count} rows")
    return [str(rows[row]) for row in listed.tolist()]


def _output_names(posterior: Posterior, given: Rows, target: str | None) -> list[str]:
    count = 1 if given.y_is_flat else math.prod(given.y.shape[1:])
    if target is not None:
        if count > 1:
            raise ValueError(f"target names one output, and there are {count}: name the columns of y instead")
        return [target]
    if names := posterior.schema.y_names or given.y_names:
        return list(names)
    return ["y"] if count == 1 else [f"y {j}" for j in range(count)]


def _cautions(posterior: Posterior, given: Rows, voice: words.Voice) -> list[str]:
    cautions = []
    if len(given) < FEW_ROWS:
        rows = "row is" if len(given) == 1 else "rows are"
        cautions.append(
            f"Only {len(given)} {rows} scored here, which is not reliable: another {len(given)} might have "
            "quite different scores."
        )
    overlap = part_trained_on(posterior, given) if given.left_out_by is None else 0.0
    if overlap == 1:
        cautions.append("These are the rows that the networks were trained on: every score here is too good.")
    elif overlap:
        cautions.append(f"{overlap:.0%} of these rows were trained on: every score here is too good.")
    if posterior.diverged:
        lost = len(posterior.diverged)
        cautions.append(
            f"{lost} member{'s' * (lost != 1)} ({posterior.diverged_share:.0%}) diverged and had to be left out: "
            f"{'; '.join(posterior.diverged)}."
        )
    if posterior.redrawn:
        lost = len(posterior.redrawn)
        cautions.append(
            f"{lost} member{'s' * (lost != 1)} ({posterior.redrawn_share:.0%}) diverged; other draws took their place: "
            f"{'; '.join(posterior.redrawn)}."
        )
    if damaged := posterior.origin.damaged:
        cautions.append(
            f"The files of {len(damaged)} member{'s' * (len(damaged) != 1)} are damaged, and left out: "
            f"{'; '.join(damaged)}."
        )
    settled = None if overlap else settling.compared(posterior, given)
    if settled is not None and not settled.is_settled:
        text = str(settled)
        cautions.append(f"{text[0].upper()}{text[1:]}. {voice.how('later')}.")
    return cautions


# ---------------------------------------------------------------------- every subset of the variables


def _combinations(
    posterior: Posterior,
    samples: int,
    whole: Sequence[Output],
    split: Callable[[Posterior], list[Output]],
    are_left_out: bool,
) -> list[dict[str, Any]]:
    """Return the scores and the cost of every part of the variables, for each output; the last part is all of them.

    Where rows are judged by the draw of D that left them out, D stands at that draw in all of them.
    """
    by_draw = (posterior.design.axis("D").name,) if are_left_out else ()
    variables = tuple(name for name in posterior.design.names if name not in by_draw)
    everything = [output.nll_by_row() for output in whole]
    rows: list[list[dict[str, Any]]] = [[] for _ in whole]
    missing: list[str] = []
    for subset in _subsets(variables):
        is_all = len(subset) == len(variables)
        try:
            with warnings.catch_warnings():  # of a calibration that cannot be fitted anew: it shows in the table
                warnings.simplefilter("ignore")
                part = posterior if is_all else posterior.marginalising(*subset, *by_draw)
            outputs = whole if is_all else split(part)
        except ValueError as error:  # no member is left of it, or its noise cannot be fitted anew
            missing.append(str(error))
            continue
        for j, output in enumerate(outputs):
            rows[j].append(
                {
                    "on": list(subset),
                    "is_all": is_all,
                    "is_calibrated": len(part.calibration) == len(posterior.calibration),
                    **scored(output),
                    **_gap(output.nll_by_row(), everything[j]),
                    **_cost(part, samples),
                }
            )
    why = missing[0] if missing else None
    return [{"variables": list(variables), "rows": each, "left_out": len(missing), "why": why} for each in rows]


def _subsets(variables: Sequence[str]) -> list[tuple[str, ...]]:
    """All of them by size; of very many variables, those with at most one or all but one."""
    sizes = range(len(variables) + 1)
    if len(variables) > _ALL_SUBSETS:
        sizes = sorted({0, 1, len(variables) - 1, len(variables)})  # type: ignore[assignment]
    return list(itertools.chain.from_iterable(itertools.combinations(variables, size) for size in sizes))


def _gap(nll: Tensor | None, everything: Tensor | None) -> dict[str, float | None]:
    """Mean difference of the NLL to that of all variables together, and its standard error over rows."""
    if nll is None or everything is None:
        return {"nll_gap": None, "nll_gap_error": None}
    apart = nll - everything
    error = float(apart.std()) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
    return {"nll_gap": finite_or_none(float(apart.mean())), "nll_gap_error": finite_or_none(error)}


def _cost(part: Posterior, samples: int) -> dict[str, Any]:
    seconds = math.fsum(component.trained.seconds for component in part.mixture)
    passes = len(part) * (samples if part.design.sampled else 1)
    return {"members": len(part), "seconds": finite_or_none(seconds) or None, "passes": passes}


def _further(posterior: Posterior, given: Rows, samples: int, voice: words.Voice) -> dict[str, Any] | None:
    """Return what more trainings would do to the errors of the prediction; None where that is unknown."""
    try:
        advised = posterior.advise(given.x, samples=samples)
    except ValueError:
        return None
    table = advised.table()
    spent_on = table.columns.index("spent on")
    rows = [[_plain(value) for value in row] for row in table.rows]
    for row in rows:
        row[spent_on], row[-1] = voice.meaning(row[spent_on]), row[-1].replace("->", "→")
    return {
        "say": words.further(advised, voice, samples),
        "is_enough": advised.best is None,
        "columns": list(table.columns),
        "rows": rows,
    }


# ---------------------------------------------------------------------- what was trained, and on what


def _trained(posterior: Posterior, given: Rows, samples: int, has_families: bool) -> dict[str, Any]:
    training, design, networks = posterior.training, posterior.design, posterior.networks
    seconds = math.fsum(component.trained.seconds for component in posterior.mixture)
    trained_on = "" if posterior.rows is None else f"{len(posterior.rows):,}"
    aside = posterior.fold.held_out
    held_out = "" if aside is None or aside.left_out_by is not None else f"{len(aside):,}"
    networks_trained = sum(member.trained.engine != FittingEngine.name for member in posterior.mixture)
    counts = {"network": networks_trained, "other model": len(posterior) - networks_trained}
    facts = [
        *((f"{kind}s", f"{count}" if count else "") for kind, count in counts.items()),
        ("parameters of each", " or ".join(sorted({f"{n.layout.trained_size:,}" for n in networks.values()}))),
        ("algorithm", "elsewhere" if training.is_elsewhere else _brief(training.algorithm)),
        ("epochs", "" if training.is_elsewhere else f"{training.epochs}"),
        ("likelihood", _brief(training.likelihood)),
        ("calibration", "; ".join(map(str, posterior.calibration))),
        ("rows trained on", trained_on),
        ("rows held out for the noise", held_out),
        ("rows scored here", f"{len(given):,}"),
        ("samples a network", f"{samples}" if design.sampled else ""),
        ("engine", " and ".join(posterior.engines)),
        ("processor time", f"{seconds:.1f} s" if seconds else ""),
        ("seed", f"{posterior.seed}"),
    ]
    variables = [
        {
            "name": axis.name,
            "meaning": words.meaning(axis.name, has_families),
            "how": f"{axis.draws} draws",
            "what": ", ".join(map(_brief, axis.variables)),
        }
        for axis in design.axes
    ]
    for name, variable in (("t", design.iterations), (design.of_masks, design.dropout)):
        if variable is not None:
            about = {"name": name, "meaning": words.meaning(name, False), "how": "sampled within each network"}
            variables.append(about | {"what": _brief(variable)})
    return {
        "by": " and ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items() if count),
        "facts": [[name, value] for name, value in facts if value],
        "variables": variables,
        "models": [[name, network.description] for name, network in networks.items()],
    }


def _brief(value: Any) -> str:
    """Return a value as it would be written, without what was not given."""
    return re.sub(r"\b\w+=None(, )?", "", repr(value)).replace(", )", ")")


def _data(
    posterior: Posterior,
    given: Rows,
    outputs: Sequence[Output],
    columns: Sequence[str] | Sequence[RawColumn] | None,
    listed: Tensor,
) -> dict[str, Any]:
    """Return what is usual in each column, and the cells of the listed rows; of images and the like, their shape."""
    trained = posterior.rows
    y = None if trained is None else trained.numbers.view(len(trained), -1)
    truths = [output.data(None if y is None else y[:, j]) for j, output in enumerate(outputs)]
    data: dict[str, Any] = {
        "trained_on": None if trained is None else len(trained),
        "shape": list(given.x.shape[1:]),
        "targets": [column for truth in truths for column in truth["columns"]],
        "panels": [panel for truth in truths for panel in truth["panels"]],
        "columns": [],
        "left_out": 0,
        "values": [],
    }
    if given.x.ndim == 2:
        raw = _raw_columns(posterior, given, columns)
        data["columns"] = [each.about() for each in raw[:_MOST_COLUMNS]]
        data["left_out"] = max(0, len(columns or given.x[0]) - _MOST_COLUMNS)
        data["values"] = [each.listed(listed.tolist()) for each in raw[:_MOST_VALUES]]
    return data


def _raw_columns(
    posterior: Posterior, given: Rows, columns: Sequence[str] | Sequence[RawColumn] | None
) -> Sequence[RawColumn]:
    """Return the columns that are given, or else the first ones of x."""
    if raw := [each for each in columns or () if isinstance(each, RawColumn)]:
        if wrong := next((each for each in raw if len(each.cells) != len(given)), None):
            raise ValueError(f"column {wrong.name!r} has {len(wrong.cells)} cells for {len(given)} rows")
        return raw
    names = _column_names(posterior, given, columns)[: max(_MOST_COLUMNS, _MOST_VALUES)]
    trained = None if posterior.rows is None else posterior.rows.x[thinned(len(posterior.rows), _TRAINED_ROWS)]
    return [of_numbers(name, given.x[:, j], None if trained is None else trained[:, j]) for j, name in enumerate(names)]


def _column_names(posterior: Posterior, given: Rows, columns: Sequence[Any] | None) -> list[str]:
    width = given.x.shape[1]
    if columns is None:
        columns = posterior.schema.x_names or given.x_names or [f"column {j}" for j in range(width)]
    if len(columns) != width:
        raise ValueError(f"there are {len(columns)} names for {width} columns")
    return list(map(str, columns))


# ---------------------------------------------------------------------- how training went


def _learning(posterior: Posterior) -> dict[str, Any]:
    """The training loss of every member, epoch by epoch."""
    members = thinned(len(posterior), _MOST_CURVES).tolist()
    curves = []
    for component in (posterior.mixture[member] for member in members):
        losses = torch.tensor(component.trained.losses, dtype=torch.float64)
        if not bool(losses.isfinite().any()):
            continue
        epochs = thinned(len(losses), _MOST_EPOCHS)
        curves.append({"name": str(component.run), "epochs": (epochs + 1).tolist(), "losses": short(losses[epochs])})
    return {"curves": curves, "members": len(posterior), "collected_from": _collected_from(posterior)}


def _collected_from(posterior: Posterior) -> int | None:
    """The epoch from which on iterations make the law of t."""
    iterations = posterior.design.iterations
    if iterations is None or iterations.start == "auto" or iterations.steps or posterior.training.is_elsewhere:
        return None
    start = iterations.start
    return 1 + (int(start) if isinstance(start, Integral) else round(start * posterior.training.epochs))


def _members(posterior: Posterior) -> dict[str, Any]:
    with warnings.catch_warnings():  # of trajectories that had not settled, which the cautions say
        warnings.simplefilter("ignore")
        table = posterior.members()
    kept = thinned(len(table), _MOST_ROWS).tolist()
    return {"columns": list(table.columns), "rows": [[_plain(value) for value in table.rows[k]] for k in kept]}


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, float):
        return finite_or_none(value)
    return value if value is None or isinstance(value, int | str) else str(value)
