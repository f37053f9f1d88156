"""One output, as plain values: its scores, what it shows, and its sources, overall and row by row."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods import views as kinds
from wherefrom.predictive.panels import Output, short
from wherefrom.predictive.row_scores import finite_or_none
from wherefrom.predictive.sources import Sources
from wherefrom.report.words import Voice

_MOST_SOURCES = 6  # of which every row is shown; smaller ones are added up
_SUMMED = "others"
_BEATS = {
    "better": ("Better", "good", ", by more than chance."),
    "worse": ("Worse", "bad", "."),
    "unknown": ("Not shown to be better", "bad", "."),
}


def view(
    output: Output, listed: Tensor, voice: Voice, before: Output | None, split: Sources | None = None
) -> dict[str, Any]:
    """All of one output but its combinations and its advice; rows are shown where they are listed.

    split: the sources to show (default: those of the output's prediction).
    """
    baseline, shown = output.baseline(), output.shown(listed, before)
    word, tone, end = _BEATS[baseline["gain"]["word"]]
    beats = [{"word": word, "tone": tone}, f" than {output.words.no_model}{end}"]
    return {
        "name": output.name,
        **scored(output),
        "baseline": baseline,
        "verdict": output.verdict(),
        "groups": output.groups(),
        "sources": _sources(output, listed, voice, split),
        "before": None if before is None else scored(before),
        **shown,
        "headline": shown["headline"] | {"beats": beats},
    }


def with_rates(view: dict[str, Any], exposure: Tensor, name: str) -> dict[str, Any]:
    """Add to a view of counts what they are per unit of exposure: the prediction, and its interval.

    exposure: of the listed rows.
    name: of the column that holds it.
    """
    ends = {"rate": "mean", "rate_low": "low", "rate_high": "high"}
    counts = {end: [math.nan if value is None else value for value in view["points"][key]] for end, key in ends.items()}
    rates = {end: short(torch.tensor(values, dtype=torch.float64) / exposure) for end, values in counts.items()}
    number, title = {"digits": 3}, f"The predicted count, divided by {name}"
    fields = {
        "rate": number | {"as": "number", "name": f"per unit of {name}", "title": title},
        "rate_interval": number | {"as": "range", "name": "95% interval per unit", "of": ["rate_low", "rate_high"]},
    }
    rows = view["rows"]
    shown = {"columns": [*rows["columns"], "rate"], "detail": [*rows["detail"], "rate_interval"]}
    return view | {"points": view["points"] | rates, "fields": view["fields"] | fields, "rows": rows | shown}


def scored(output: Output) -> dict[str, dict[str, Any]]:
    """The scores that are defined, and how sure they are."""
    scores = output.scores()
    return {
        "scores": {name: score.value for name, score in scores.items()},
        "errors": {
            name: {"error": score.error, "interval": score.interval and list(score.interval)}
            for name, score in scores.items()
        },
    }


def _sources(output: Output, listed: Tensor, voice: Voice, split: Sources | None) -> dict[str, Any]:
    """Return every source's share of the doubt, overall and of the listed rows."""
    try:
        split = output.sources() if split is None else split
    except ValueError as error:
        return {"overall": [], "shares": {}, "problem": str(error).split(":")[0]}
    overall = [
        {
            "name": name,
            "meaning": voice.meaning(name),
            "is_noise": name in kinds.SOURCES,  # of the data, not of training
            "share": part.share,
            "share_error": finite_or_none(part.share_error),
            "model_share": finite_or_none(part.model_share),
            "model_share_error": finite_or_none(part.model_share_error),
            "amount": part.variance,
            "amount_error": finite_or_none(part.variance_error),
            **output.amounts(part.variance),
        }
        for name, part in split.overall.items()
    ]
    kept = _kept({name: part.share for name, part in split.overall.items()})
    by_row = {name: short(split[name][listed]) for name in kept}
    if len(kept) < len(overall):
        rest = torch.stack([part for name, part in split.items() if name not in kept]).sum(0)
        by_row[_SUMMED] = short(rest[listed])
    return {"overall": overall, "shares": by_row, "problem": None}


def _kept(shares: dict[str, float]) -> list[str]:
    """The names whose shares are shown row by row: all, or the largest, in the order in which they came."""
    if len(shares) <= _MOST_SOURCES:
        return list(shares)
    largest = sorted(shares, key=lambda name: -shares[name])[: _MOST_SOURCES - 1]
    return [name for name in shares if name in largest]
