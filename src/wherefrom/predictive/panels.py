"""The parts of a report about a prediction, as plain values that JSON can hold, and the interface to ask for them.

    prediction, truth  ->  an `Output` for each column of y  ->  scores, verdict, words, panels

A report never asks which kind of target it shows: whatever depends on that is behind `Output`, one file for each kind.

A text is a string, or a list of strings and of

    {"term": name, "text": text}         a word that the glossary explains
    {"score": name, "of": "baseline"}    a score with its error; with "of", the score of no model
    {"word": text, "tone": "good"}       a verdict; its tone is "good", "bad" or None

A field says how a value is written, {"name", "head", "as", ...}: `as` is "number" (with "digits" or "decimals", and
"unit"), "percent", "text", "label" (of "labels"), "range" (from one column to another, "of") or "count" (with its share
of "of"). "head" is its name at the top of a table, if another; "far" names the column of flags that mark it, "like" the
column whose decimals it shares; "size" sorts it by its absolute value; "also" gives the same value in another unit.

A panel is {"type", "title", "caption", ...}; "wide" ones take the whole width, "square" ones are about as high as wide,
and those with "part": "technical" are folded away. Axes are {"label", "domain", "ticks", "as"}; {"key"} names the
column of points that they show, and "log_from" where a logarithmic axis begins (smaller values stand there). "tips" say
what each mark stands for, {"title", "lines"}.

    scatter    a point for each row: axes x and y by key, flags "miss", "bars" with low and high, "diagonal", "legend"
    strips     two strips of rows, by the flags "by" with their "names", along the axis x
    curve      xs, ys; "chance" is where a calibrated run would lie, as a band or as bars; "before", "best", "sizes";
               "band" is around the curve itself
    histogram  "stacks" of counts in equal bins, and the "even" count with its reach
    matrix     counts by two labels
    groups     the output's groups: how often they hit, the range that chance allows, what is expected, a verdict
    table      fields as columns, and items as rows, "first" of them at once; "right" aligns text as numbers are
    bars       a bar for each of "items", {"name", "value", "error", "is_clear", "text"}: grey where it is not clear
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from wherefrom.predictive.row_scores import Score, Z, finite_or_none, standard_error, wilson
from wherefrom.predictive.sources import Sources

FEW_ROWS = 30  # that can tell little
UNIT = [0, 0.25, 0.5, 0.75, 1]  # ticks of an axis of shares
_STRANGE = 0.05  # the chance that any group of a calibrated run is called off
_NEGLIGIBLE = 0.02  # a distance from what was promised that nobody need act on
_LONG_TAIL = 10.0  # times the median, which one row in a hundred exceeds: then an axis is logarithmic
_PARTS, _LEAST_IN_A_PART = 5, 10  # groups of rows that are judged by themselves, and their rows


@dataclass(frozen=True)
class Term:
    """A word of the glossary; in its meaning, {target} is the name of what is predicted."""

    name: str
    meaning: str


@dataclass(frozen=True)
class ScoreTerm(Term):
    """A score: its short name, which values are best ("low", "high", or nearest to a number), and how it is written."""

    short: str
    best: str | float = "low"
    is_percent: bool = False
    absent: str = "–"  # what is shown where it has no value


@dataclass(frozen=True)
class SourceWords:
    """A source of doubt that no choice of training causes: what it is, and what lowers it, in {target}'s terms."""

    meaning: str
    remedy: str  # a heading
    advice: str  # a sentence
    column: str  # its name in tables, which every program takes


@dataclass(frozen=True)
class Words:
    """The report's words for one kind of target.

    Braces are filled in: {target}, {inputs}, {group}, and ways of doing things.
    """

    scores: Mapping[str, ScoreTerm] = field(default_factory=dict)
    glossary: Mapping[str, Term] = field(default_factory=dict)
    main_score: str = "nll"  # by which it is compared with no model
    no_model: str = "always predicting the same"
    calibrate: str = "Calibrate it on held-out rows."  # if it is too sure
    cause: str = ""  # why it is too sure, and what to do about that, where this is clear beforehand
    mend_group: str = ""  # if one group is off
    irreducible: str = "not explained by {inputs}"  # the part that no further network removes
    spread: str = "how wide predictions should be"
    footnote: str = ""


class Output(Protocol):
    """One output of a prediction, with the truth, as a report asks for it."""

    @property
    def name(self) -> str:
        """Name of what is predicted."""

    @property
    def words(self) -> Words: ...

    def scores(self) -> dict[str, Score]:
        """All scores that are defined here; one of them is "nll"."""

    def baseline(self) -> dict[str, Any]:
        """Scores of no model at all, and the `gain` over it: {"scores", "gain"}."""

    def nll_by_row(self) -> Tensor | None:
        """(rows,), or None where there is no density."""

    def doubt(self) -> Tensor:
        """(rows,): what rows are sorted by."""

    def spread(self) -> Tensor:
        """(rows,): the doubt that should be larger far away from the training rows."""

    def sources(self) -> Sources:
        """The doubt, split by its sources; raises ValueError where it cannot be split."""

    def amounts(self, amount: float) -> dict[str, float]:
        """Further readings of the amount of doubt that a source causes, for the columns of its table."""

    def verdict(self) -> dict[str, Any]:
        """Judge whether it is as sure as it should be: what `verdict` returns."""

    def groups(self) -> list[dict[str, Any]]:
        """Groups of rows, each judged by itself: what `group` returns, and a sentence, "say"."""

    def shown(self, listed: Tensor, before: Any) -> dict[str, Any]:
        """Return what is drawn. `before` is this output before calibration, or None.

        headline     {"score"} or {"big", "small"}, and the text that follows: "say"
        table        names of the scores that are listed below it
        points       columns of the listed rows, and `fields` that write them
        rows         the row browser, by keys of points: columns, sort, detail, tip, search; and its title, if another
        doubt        its lead, the key of the doubt in `points`, its axis, the columns of the table of sources
        spread       the axis of `spread`
        truth, calibration    {"lead", "panels"}
        """

    def data(self, there: Tensor | None) -> dict[str, list[Any]]:
        """Summary of the truth here and among the training rows: {"columns", "panels"}."""


# ---------------------------------------------------------------------- verdicts


def verdict(
    observed: float, expected: float, error: float, count: int, say: str, judged: float | None = None
) -> dict[str, Any]:
    """Judge whether intervals, or confidences, keep what they promise, within chance and two percent.

    judged: what is compared with the promise (default: what is observed).

    >>> verdict(0.85, 0.95, 0.02, 100, "")["word"], verdict(0.94, 0.95, 0.02, 100, "")["word"]
    ('too sure', 'about right')
    """
    judged = observed if judged is None else judged
    word = _judged(judged, expected, abs(judged - expected) <= max(Z * error, _NEGLIGIBLE))
    text, tone = word, "good" if word == "about right" else "bad"
    if count < FEW_ROWS and tone == "good":
        text, tone = "not clearly off, but rows are few", ""
    return {
        "observed": observed,
        "expected": expected,
        "error": error,
        "word": word,
        "say": say,
        "text": {"word": text, "tone": tone or None},
    }


def coverage_verdict(covered: Tensor, level: float, of: str, judged: float | None = None) -> dict[str, Any]:
    """Judge how much of the truth intervals of a level hold; rows count by their probability to be held.  # (rows,)

    judged: the share that is compared with the level (default: how much they hold).
    """
    part, count = float(covered.double().mean()), len(covered)
    say = f"The {percent(level)} intervals contain {part:.0%} of {of}"
    return verdict(part, level, math.sqrt(level * (1 - level) / count), count, say, judged)


def fifths(values: Tensor) -> list[Tensor]:
    """Rows of each fifth of these values, ties together; nothing where they are too few.  # (rows,) each, True or False

    >>> [int(part.sum()) for part in fifths(torch.arange(60.0))], fifths(torch.arange(40.0))
    ([12, 12, 12, 12, 12], [])
    """
    if len(values) < _PARTS * _LEAST_IN_A_PART:
        return []
    edges = values.quantile(torch.linspace(0, 1, _PARTS + 1, dtype=values.dtype)[1:-1])
    part_of = torch.bucketize(values, edges)
    return [part_of == part for part in part_of.unique().tolist()]


def group(name: str, hits: Tensor, expected: float, groups: int, judged: float | None = None) -> dict[str, Any]:
    """One of several groups of rows: how often it hits, and whether that is off.

    judged: what is compared with the expected share (default: how often it hits).
    """
    count, hit = len(hits), int(hits.sum())
    return {
        "name": name,
        "count": count,
        "observed": hit / count,
        "expected": expected,
        "interval": list(wilson(hit / count, count)),
        "word": group_word(hit if judged is None else round(judged * count), count, expected, groups),
    }


def group_word(hits: int, count: int, expected: float, groups: int) -> str:
    """Judge whether one of several groups is off: by more than two percent, and than chance, all groups considered."""
    is_near = abs(hits / count - expected) <= _NEGLIGIBLE
    return _judged(hits / count, expected, is_near or chance(hits, count, expected) >= _STRANGE / groups)


def _judged(observed: float, expected: float, is_right: bool) -> str:
    return "about right" if is_right else "too sure" if observed < expected else "too careful"


def chance(hits: int, count: int, expected: float) -> float:
    """Two-sided probability of a count of hits as far from what is expected, by chance alone.

    >>> round(chance(9, 10, 0.5), 4), chance(5, 10, 0.5)
    (0.0215, 1.0)
    """
    if not 0 < expected < 1:
        return 1.0 if hits == round(expected * count) else 0.0
    k = torch.arange(count + 1, dtype=torch.float64)
    total = torch.tensor(float(count), dtype=torch.float64)
    ways = torch.lgamma(total + 1) - torch.lgamma(k + 1) - torch.lgamma(total - k + 1)
    each = (ways + k * math.log(expected) + (count - k) * math.log1p(-expected)).exp()
    return min(1.0, 2 * min(float(each[: hits + 1].sum()), float(each[hits:].sum())))


def gain(loss: Tensor, without: Tensor) -> dict[str, Any]:
    """Return how much lower the loss of a row is than without a model, and whether that is more than chance."""
    apart = (without - loss).double()
    mean, error = float(apart.mean()), standard_error(apart)
    word = "unknown"
    if error is not None and math.isfinite(mean):
        word = "better" if mean > Z * error else "worse" if mean < -Z * error else "unknown"
    return {"mean": finite_or_none(mean), "error": error, "word": word}


# ---------------------------------------------------------------------- panels


def tips(titles: Sequence[str], lines: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """A title and lines for each mark; every line has a text for each of them.

    >>> tips(["80%", "90%"], {"hold": ["81%", "88%"]})[1]
    {'title': '90%', 'lines': [['hold', '88%']]}
    """
    return [
        {"title": title, "lines": [[name, texts[i]] for name, texts in lines.items()]} for i, title in enumerate(titles)
    ]


def axis(label: str, domain: Sequence[float] | None = None, **more: Any) -> dict[str, Any]:
    """An axis of shares; that from 0 to 1 has ticks at its quarters."""
    marks = {"ticks": UNIT} if domain is not None and 0.9 < domain[1] < 1.1 else {}
    return {"label": label, "domain": domain, "as": "percent", **marks, **more}


def around(at: Sequence[float], error: Sequence[float], style: str) -> dict[str, Any]:
    """Return where a calibrated run would lie 19 times out of 20, as a "band" or as "bars"."""
    return {
        "style": style,
        "at": short(at),
        "low": short(max(0.0, p - Z * e) for p, e in zip(at, error, strict=True)),
        "high": short(min(1.0, p + Z * e) for p, e in zip(at, error, strict=True)),
    }


def counts(values: Tensor, bins: int) -> list[int]:
    """Number of values between 0 and 1 in each bin."""
    rows: list[int] = torch.histc(values.double(), bins, 0.0, 1.0).long().tolist()
    return rows


def probabilities_panel(title: str, caption: str, label: str, rows: Sequence[float], even: float) -> dict[str, Any]:
    """Histogram of the predicted probabilities of what happened, which are uniform if all is well.

    rows: the number of rows in each bin; not whole where censored rows count in several.
    even: the number that each bin should have.
    """
    bins = len(rows)
    reach = Z * math.sqrt(even * (1 - 1 / bins))
    edges = [f"{i / bins:g}" for i in range(bins + 1)]
    return {
        "type": "histogram",
        "title": title,
        "caption": caption,
        "x": {"label": label, "domain": [0, 1], "ticks": UNIT},
        "y": {"label": "rows"},
        "stacks": [short(rows, digits=9)],
        "even": {"at": even, "reach": reach},
        "tips": tips(
            [f"{low} to {high}" for low, high in itertools.pairwise(edges)],
            {
                "rows": [f"{n:,}" if isinstance(n, int) else written(n) for n in rows],
                "if calibrated": [f"{written(even)} ± {written(reach, 2)}"] * bins,
            },
        ),
    }


def variance_by_source(lead: str, label: str, title: str) -> dict[str, Any]:
    """The part of a page that splits a variance; `label` names it, `title` explains the standard deviation of one."""
    return {
        "lead": lead,
        "caption": "The variance of each row by source.",
        "axis": {"key": "variance", "label": label},
        "columns": [
            {"key": "amount", "name": "variance", "as": "number", "digits": 4, "extra": True},
            {"key": "std", "name": "as ± std", "as": "number", "title": title},
        ],
    }


def groups_panel(groups: list[dict[str, Any]], title: str, caption: str, **more: Any) -> list[dict[str, Any]]:
    """No panel, of fewer than two groups."""
    if len(groups) < 2:
        return []
    off = sum(each["word"] != "about right" for each in groups)
    words = f"{off or 'None'} of {len(groups)} {'is' if off < 2 else 'are'} off by more than chance."
    return [{"type": "groups", "wide": True, "title": title, "caption": f"{caption} {words}", **more}]


def column(name: str, here: Tensor, there: Tensor | None) -> dict[str, Any]:
    """Moments and range of a column, here and where it was trained on."""
    return {"name": name, "here": _moments(here), "there": None if there is None else _moments(there)}


def _moments(values: Tensor) -> dict[str, float]:
    values = values.double()
    return {
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
        "low": float(values.min()),
        "high": float(values.max()),
    }


def log_from(values: Tensor) -> float | None:
    """Return the value at which a logarithmic axis begins, or None if the values ask for none.

    They ask for one if none is below 0, and one row in a hundred has more than ten times the median of what is above 0.
    It begins at 1, 2 or 5 times a power of ten, below all but one in a hundred of the values above 0.

    >>> costs = torch.logspace(-1, 3, 200)
    >>> log_from(costs), log_from(torch.cat([costs, torch.zeros(50)])), log_from(torch.arange(1.0, 100.0))
    (0.1, 0.1, None)
    >>> log_from(torch.cat([costs, torch.tensor([-1.0])]))
    """
    values = values.double()
    values = values[values.isfinite()]
    above = values[values > 0]
    if not len(above) or float(values.min()) < 0:
        return None
    low, middle = np.quantile(above.numpy(), [0.01, 0.5])  # torch's has a limit of 16 million
    if not np.quantile(values.numpy(), 0.99) > _LONG_TAIL * middle:
        return None
    power = 10.0 ** math.floor(math.log10(low))
    return float(f"{max(step for step in (1, 2, 5) if step * power <= low * 1.001) * power:.6g}")


# ---------------------------------------------------------------------- plain values


def thinned(count: int, most: int) -> Tensor:
    """Return at most `most` indices, evenly spaced, with the first and the last.

    >>> thinned(10, 4).tolist(), thinned(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most, dtype=torch.float64).round().long()


def short(values: Iterable[float] | Tensor, digits: int = 5) -> list[float | int | None]:
    """Numbers rounded to some significant digits: for points of plots, not for scores.

    >>> short([1.23456789, 1e-9, float("nan"), 2.0])
    [1.2346, 1e-09, None, 2]
    """
    rounded: list[float | int | None] = []
    for value in values.tolist() if isinstance(values, Tensor) else values:
        if not math.isfinite(value):
            rounded.append(None)
            continue
        near = float(f"{value:.{digits}g}")
        rounded.append(int(near) if near.is_integer() and abs(near) < 1e15 else near)
    return rounded


def percent(value: float, digits: int = 0) -> str:
    """
    >>> percent(0.123), percent(0.0002, 1)
    ('12%', '<0.1%')
    """
    if 0 < value < 0.5 * 10 ** (-2 - digits):
        return f"<{10**-digits:.{digits}f}%"
    return f"{100 * value:.{digits}f}%"


def percents(values: Iterable[float], digits: int = 1) -> list[str]:
    return [percent(value, digits) for value in values]


def told_apart(*values: float, digits: int = 2) -> list[str]:
    """Numbers with as many significant digits as tell them apart, at least `digits`, at most six.

    >>> told_apart(2.0131, 2.0118), told_apart(0.5, 0.5), told_apart(1234.6, 0.001)
    (['2.013', '2.012'], ['0.50', '0.50'], ['1,235', '0.0010'])
    """
    texts: list[str] = []
    for places in range(digits, 7):
        texts = [written(value, places) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def written(value: float, digits: int = 3) -> str:
    """Number as text, with this many significant digits."""
    if not value or not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits}g}".replace("-", "−")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace("-", "−")


def counted(count: int, word: str) -> str:
    """
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {word}{'s' * (count != 1)}"
