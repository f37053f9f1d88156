"""Everything that a report shows, as plain values: what was trained, on what, how it scores, and whose doubt it is.

    posterior, labelled rows that were not trained on  ->  a dictionary that JSON can hold

Scores, calibration and overall sources speak of all rows. Points of plots and the list of rows are thinned to what a
page of about two megabytes can hold: the rows most in doubt, and others evenly spaced.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom import __version__
from wherefrom.mixture import settled as settling
from wherefrom.mixture.held_out import part_trained_on
from wherefrom.posterior import Posterior
from wherefrom.predictive.class_scores import auroc
from wherefrom.report import words
from wherefrom.report.views import Scored, number, short, split, thinned, view
from wherefrom.training.data import Rows, as_rows

_MOST_NUMBERS = 150_000  # that are listed row by row: about a megabyte and a half
_MOST_ROWS, _FEWEST_ROWS = 1000, 50  # that are listed
_MOST_CURVES, _MOST_EPOCHS = 60, 150  # of the learning curves
_MOST_COLUMNS, _MOST_VALUES = 40, 30  # in the summary of the data, and of every listed row
_BINS = 12
_ALL_SUBSETS = 6  # variables of which all subsets are tried
_MOST_PRODUCTS = 2e10  # of numbers, for distances to the training rows
_FEW_ROWS = 30  # to score by, that can tell little
_FEW = 1000  # training rows whose own distances are looked at


def content(
    posterior: Posterior,
    x: Any,
    y: Any,
    *,
    samples: int = 100,
    title: str = "How sure, and why",
    target: str | None = None,
    columns: Sequence[str] | None = None,
    rows: Sequence[Any] | None = None,
    unit: str = "",
    outside: Any = None,
    edge: float | None = None,
    before: Posterior | None = None,
    notes: Sequence[str] = (),
    speaks: words.Language = "python",
) -> dict[str, Any]:
    """What a page says of a posterior, by labelled rows that it was not trained on.

    `target` names what is predicted, `columns` the columns of x, `rows` the rows (a frame has names for all), and
    `unit` is y's. `outside` says of each row how far from the training data it is: true or false, or any score, which
    is outside beyond the `edge`; left out, it is the distance to the nearest training row, where these are at hand.
    `before` is another posterior to compare the calibration with; left out, it is this one before it was calibrated, if
    it was. What there is to do is said in Python, or where `speaks` is "command", as options of `wherefrom fit`.
    """
    given = as_rows((x, y), posterior.training.likelihood, posterior.schema.classes)
    truth, families = given.truth, posterior.design.families is not None
    names = _output_names(posterior, given, target)
    voices = [
        words.Voice(
            name, speaks, families, getattr(posterior.training.likelihood, "noise", None), bool(posterior.calibration)
        )
        for name in names
    ]
    whole = split(posterior.predict(given.x, samples), truth, names)
    aside = _outside(posterior, given, outside, edge)
    listed, drawn = _listed(whole, given, aside)
    tables = _combinations(posterior, given, samples, names, whole)
    if before is None and posterior.calibration:
        before = posterior.uncalibrated
    earlier = None if before is None else split(before.predict(given.x, samples), truth, names)
    further = _further(posterior, given, samples, voices[0])
    views = []
    for place, scored in enumerate(whole):
        one = view(scored, listed, families) | {"combinations": tables[place], "before": None}
        if earlier is not None:
            past = view(earlier[place], listed[:0], families)
            one["before"] = {
                k: past[k] for k in ("scores", "errors", "verdict", "calibration", "reliability") if k in past
            }
        one["outside"] = None if aside is None else _doubt_outside(scored, aside)
        far = one["outside"]["far"] if aside is not None and aside.kind != "distance" else None
        one["advice"] = words.advice(one, voices[place], further, far)
        views.append(one)
    return {
        "wherefrom": __version__,
        "made": datetime.date.today().isoformat(),
        "title": title,
        "kind": "classes" if given.classes else "quantity",
        "unit": unit,
        "cautions": _cautions(posterior, given, voices[0]),
        "notes": list(notes),
        "rows": {
            "count": len(given),
            "names": _row_names(x, rows, listed, len(given)),
            "are_named": rows is not None or hasattr(x, "iloc"),
            "drawn": drawn,
        },
        "samples": samples,
        "trained": _trained(posterior, given, samples, families),
        "data": _data(posterior, given, names, columns, listed),
        "views": views,
        "learning": _learning(posterior),
        "members": _members(posterior),
        "further": further,
        "glossary": words.glossary(bool(given.classes), voices[0] if len(voices) == 1 else words.Voice("y")),
        "outside": None if aside is None else _shown_outside(aside, listed),
    }


# ---------------------------------------------------------------------- rows


def _listed(whole: Sequence[Scored], given: Rows, aside: _Aside | None) -> tuple[Tensor, list[int]]:
    """The rows that are listed, and the places among them of those that are drawn: evenly spaced over all.

    Of more rows than can be listed, a fifth are those most in doubt, and up to a tenth those farthest outside.
    """
    values = min(_MOST_VALUES, math.prod(given.x.shape[1:])) + 14 * len(whole)
    most = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_NUMBERS // values))
    if len(given) <= most:
        return torch.arange(len(given)), list(range(len(given)))
    doubted = torch.stack([scored.doubt() / scored.doubt().mean().clamp_min(1e-300) for scored in whole]).amax(0)
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
    return [str(rows[place]) for place in listed.tolist()]


def _output_names(posterior: Posterior, given: Rows, target: str | None) -> list[str]:
    count = 1 if given.classes else given.y.shape[1]
    if target is not None:
        if count > 1:
            raise ValueError(f"target names one output, and there are {count}: name the columns of y instead")
        return [target]
    known = posterior.schema.y_names or given.y_names
    if known:
        return list(known)
    return ["y"] if count == 1 else [f"y {j}" for j in range(count)]


def _cautions(posterior: Posterior, given: Rows, voice: words.Voice) -> list[str]:
    found = []
    if len(given) < _FEW_ROWS:
        rows = "row is" if len(given) == 1 else "rows are"
        found.append(
            f"Only {len(given)} {rows} scored here, which can tell little: another {len(given)} might score quite "
            "otherwise."
        )
    overlap = part_trained_on(posterior, given)
    if overlap == 1:
        found.append("These are the rows that the networks were trained on: every score here flatters them.")
    elif overlap:
        found.append(f"{overlap:.0%} of these rows were trained on: every score here flatters the networks.")
    if posterior.diverged:
        lost = len(posterior.diverged)
        found.append(
            f"{lost} member{'s' * (lost != 1)} diverged and had to be left out: {'; '.join(posterior.diverged)}."
        )
    settled = None if overlap else settling.compared(posterior, given)
    if settled is not None and not settled.is_settled:
        text = str(settled)
        found.append(f"{text[0].upper()}{text[1:]}. {voice.how('later')}.")
    return found


# ---------------------------------------------------------------------- every subset of the variables


def _combinations(
    posterior: Posterior, given: Rows, samples: int, names: Sequence[str], whole: Sequence[Scored]
) -> list[dict[str, Any]]:
    """For each output, the scores and the cost of every part of the variables; all of them together is the last."""
    variables = posterior.design.names
    everything = [scored.nll_by_row() for scored in whole]
    rows: list[list[dict[str, Any]]] = [[] for _ in whole]
    missing: list[str] = []
    for subset in _subsets(variables):
        is_all = len(subset) == len(variables)
        try:
            with warnings.catch_warnings():  # of a calibration that cannot be fitted anew: it shows in the table
                warnings.simplefilter("ignore")
                part = posterior if is_all else posterior.marginalising(*subset)
            scored = whole if is_all else split(part.predict(given.x, samples), given.truth, names)
        except ValueError as error:  # no member is left of it, or its noise cannot be fitted anew
            missing.append(str(error))
            continue
        for place, one in enumerate(scored):
            rows[place].append(
                {
                    "on": list(subset),
                    "is_all": is_all,
                    "is_calibrated": len(part.calibration) == len(posterior.calibration),
                    **one.scores(),
                    **_gap(one.nll_by_row(), everything[place]),
                    **_cost(part, samples),
                }
            )
    why = missing[0] if missing else None
    return [{"variables": list(variables), "rows": own, "left_out": len(missing), "why": why} for own in rows]


def _subsets(variables: Sequence[str]) -> list[tuple[str, ...]]:
    """All of them by size; of very many variables, those with at most one or all but one."""
    sizes = range(len(variables) + 1)
    if len(variables) > _ALL_SUBSETS:
        sizes = sorted({0, 1, len(variables) - 1, len(variables)})  # type: ignore[assignment]
    return list(itertools.chain.from_iterable(itertools.combinations(variables, size) for size in sizes))


def _gap(own: Tensor | None, everything: Tensor | None) -> dict[str, float | None]:
    """How far the NLL lies above that of everything, and the standard error of that, row by row."""
    if own is None or everything is None:
        return {"nll_gap": None, "nll_gap_error": None}
    apart = own - everything
    error = float(apart.std()) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
    return {"nll_gap": number(float(apart.mean())), "nll_gap_error": number(error)}


def _cost(part: Posterior, samples: int) -> dict[str, Any]:
    seconds = math.fsum(component.trained.seconds for component in part.mixture)
    passes = len(part) * (samples if part.design.sampled else 1)
    return {"members": len(part), "seconds": number(seconds) or None, "passes": passes}


def _further(posterior: Posterior, given: Rows, samples: int, voice: words.Voice) -> dict[str, Any] | None:
    """What more trainings would do to the errors of the prediction, where that can be told."""
    try:
        found = posterior.advise(given.x, samples=samples)
    except ValueError:
        return None
    table = found.table()
    place = table.columns.index("spent on")
    rows = [[_plain(value) for value in row] for row in table.rows]
    for row in rows:
        row[place], row[-1] = voice.meaning(row[place]), row[-1].replace("->", "→")
    return {
        "say": words.further(found, voice, samples),
        "is_enough": found.best is None,
        "columns": list(table.columns),
        "rows": rows,
    }


# ---------------------------------------------------------------------- rows from elsewhere


@dataclass(frozen=True, eq=False)
class _Aside:
    """How far outside of the training data each row is."""

    kind: str  # flag, score or distance
    values: Tensor  # (rows,)
    edge: float | None  # beyond which a row is outside, or farther out than most

    @property
    def is_beyond(self) -> Tensor:
        return self.values > (math.inf if self.edge is None else self.edge)


def _outside(posterior: Posterior, given: Rows, outside: Any, edge: float | None) -> _Aside | None:
    if edge is not None and outside is None:
        raise ValueError("edge is the score beyond which a row is outside: give these scores, too, as outside")
    if outside is not None:
        values = np.asarray(outside.detach().cpu() if isinstance(outside, Tensor) else outside)
        if values.shape != (len(given),):
            raise ValueError(f"outside has shape {values.shape}: give one flag or score for each of {len(given)} rows")
        is_flag = values.dtype == bool
        scores = torch.from_numpy(values.astype(np.float64))
        return _Aside("flag" if is_flag else "score", scores, 0.5 if is_flag else edge)
    if posterior.rows is None or not posterior.rows.x.is_floating_point():
        return None
    return _distances(posterior.scaler.x(posterior.rows.x, torch.float64), posterior.scaler.x(given.x, torch.float64))


def _distances(known: Tensor, new: Tensor) -> _Aside | None:
    """Of each row to the nearest training row, in units of what is usual between training rows."""
    known, new = known.flatten(1), new.flatten(1)
    most = max(_FEW, int(_MOST_PRODUCTS / (new.numel() + 1)))
    known = known[thinned(len(known), most)]
    own = known[thinned(len(known), _FEW)]
    if len(own) < 3:
        return None
    among = torch.cdist(own, known).topk(2, largest=False).values[:, 1]  # the nearest is the row itself
    usual = float(among.median())
    if not usual > 0:
        usual = float(among.mean()) or 1.0
    nearest = torch.cat([torch.cdist(block, known).amin(1) for block in new.split(1000)])
    return _Aside("distance", nearest / usual, float(among.quantile(0.95)) / usual)


def _shown_outside(aside: _Aside, listed: Tensor) -> dict[str, Any]:
    return {"kind": aside.kind, "values": short(aside.values[listed]), "edge": aside.edge}


def _doubt_outside(scored: Scored, aside: _Aside) -> dict[str, Any]:
    """Whether there is more doubt farther outside: by ranks, or for flags by the chance to tell two rows apart."""
    doubt = scored.prediction.mutual_information if scored.is_classes else scored.prediction.std
    far = aside.is_beyond
    found: dict[str, Any] = {"far": None, "far_and_sure": None, "auroc": None, "rank": None}
    if aside.edge is not None:
        found["far"] = int(far.sum())
        found["far_and_sure"] = int((far & (doubt < doubt.median())).sum())
    if aside.kind != "flag":
        found["rank"] = _rank_correlation(aside.values, doubt)
    elif 0 < found["far"] < len(far):
        found["auroc"] = auroc(doubt[~far], doubt[far])
    return found


def _rank_correlation(one: Tensor, other: Tensor) -> float | None:
    ranks = torch.stack([values.double().argsort().argsort().double() for values in (one, other)])
    if len(one) < 3 or not float(one.std()) or not float(other.std()):
        return None
    return number(float(torch.corrcoef(ranks)[0, 1]))


# ---------------------------------------------------------------------- what was trained, and on what


def _trained(posterior: Posterior, given: Rows, samples: int, has_families: bool) -> dict[str, Any]:
    training, design, networks = posterior.training, posterior.design, posterior.networks
    seconds = math.fsum(component.trained.seconds for component in posterior.mixture)
    own = "" if posterior.rows is None else f"{len(posterior.rows):,}"
    held = "" if posterior.held_out is None else f"{len(posterior.held_out):,}"
    facts = [
        ("networks", f"{len(posterior)}"),
        ("parameters of each", " or ".join(sorted({f"{n.layout.trained_size:,}" for n in networks.values()}))),
        ("algorithm", "elsewhere" if training.is_elsewhere else _brief(training.algorithm)),
        ("epochs", "" if training.is_elsewhere else f"{training.epochs}"),
        ("likelihood", _brief(training.likelihood)),
        ("calibration", "; ".join(map(str, posterior.calibration))),
        ("rows trained on", own),
        ("rows held out for the noise", held),
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
        "facts": [[name, value] for name, value in facts if value],
        "variables": variables,
        "models": [[name, network.description] for name, network in networks.items()],
    }


def _brief(value: Any) -> str:
    """As it would be written: without what was not given."""
    return re.sub(r"\b\w+=None(, )?", "", repr(value)).replace(", )", ")")


def _data(
    posterior: Posterior, given: Rows, names: Sequence[str], columns: Sequence[str] | None, listed: Tensor
) -> dict[str, Any]:
    """Each column's distribution, where it was trained on and here; of images and the like, their shape."""
    known = posterior.rows
    found: dict[str, Any] = {
        "trained_on": None if known is None else len(known),
        "shape": list(given.x.shape[1:]),
        "targets": [],
        "columns": [],
        "left_out": 0,
        "values": [],
        "counts": None,
    }
    if given.classes:
        found["counts"] = [
            {"name": str(label), "here": int((given.y == k).sum()), "there": _count(known, k)}
            for k, label in enumerate(given.classes)
        ]
    else:
        found["targets"] = [
            _column(name, given.y[:, j], None if known is None else known.y[:, j]) for j, name in enumerate(names)
        ]
    if given.x.ndim == 2:
        of_x = _column_names(posterior, given, columns)
        found["columns"] = [
            _column(name, given.x[:, j], None if known is None else known.x[:, j])
            for j, name in enumerate(of_x[:_MOST_COLUMNS])
        ]
        found["left_out"] = max(0, len(of_x) - _MOST_COLUMNS)
        found["values"] = [short(given.x[listed, j]) for j in range(min(len(of_x), _MOST_VALUES))]
    return found


def _column_names(posterior: Posterior, given: Rows, columns: Sequence[str] | None) -> list[str]:
    width = given.x.shape[1]
    if columns is None:
        columns = posterior.schema.x_names or given.x_names or [f"column {j}" for j in range(width)]
    if len(columns) != width:
        raise ValueError(f"there are {len(columns)} names for {width} columns")
    return list(map(str, columns))


def _column(name: str, here: Tensor, there: Tensor | None) -> dict[str, Any]:
    here = here.double()
    there = None if there is None else there.double()
    both = here if there is None else torch.cat([here, there])
    low, high = float(both.min()), float(both.max())
    beyond = None if there is None else float(((here < there.min()) | (here > there.max())).double().mean())
    return {
        "name": name,
        "here": _moments(here, low, high),
        "there": None if there is None else _moments(there, low, high),
        "beyond": beyond,
        "range": [low, high],
    }


def _moments(values: Tensor, low: float, high: float) -> dict[str, Any]:
    counts = torch.histc(values, _BINS, low, high) if high > low else torch.tensor([float(len(values))])
    return {
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
        "low": float(values.min()),
        "high": float(values.max()),
        "bins": short(counts / len(values), 3),
    }


def _count(known: Rows | None, k: int) -> int | None:
    return None if known is None else int((known.y == k).sum())


# ---------------------------------------------------------------------- how training went


def _learning(posterior: Posterior) -> dict[str, Any]:
    """The training loss of every member, epoch by epoch."""
    places = thinned(len(posterior), _MOST_CURVES).tolist()
    curves = []
    for component in (posterior.mixture[place] for place in places):
        losses = torch.tensor(component.trained.losses, dtype=torch.float64)
        if not bool(losses.isfinite().any()):
            continue
        epochs = thinned(len(losses), _MOST_EPOCHS)
        curves.append({"name": str(component.run), "epochs": (epochs + 1).tolist(), "losses": short(losses[epochs])})
    return {"curves": curves, "members": len(posterior), "collected_from": _collected_from(posterior)}


def _collected_from(posterior: Posterior) -> int | None:
    """The epoch from which on iterations make the law of t."""
    iterations = posterior.design.iterations
    if iterations is None or iterations.start == "auto" or posterior.training.is_elsewhere:
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
    """As JSON can hold it."""
    if isinstance(value, float):
        return number(value)
    return value if value is None or isinstance(value, int | str) else str(value)
