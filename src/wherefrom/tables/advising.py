"""Advice about a model of a table: what to do first, three items at most, each with its figure. In order of severity:

    intervals      they hold the truth more, or less, often than they say, by more than two standard errors, overall or
                   in a fifth of the rows; of classes, answers are right more, or less, often than their confidence says
    rows           which rows were trained on (D) causes half of the model's own doubt, and 5% of all: more rows help.
                   Folds have most rows in common, so D's variance is taken (k - 1)^2 / k times, for k folds
    gaps           a missing value that would lower the doubt of its rows by 5% if it were measured
    unexplained    half of the doubt, or more, is not explained by the columns: only further columns would lower it

The target itself need not be measured better: the length of a stay has no error of measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from wherefrom.predictive.components import UNEXPLAINED
from wherefrom.predictive.panels import percent, written
from wherefrom.predictive.sources import Overall
from wherefrom.showing import Library, card, paragraphs
from wherefrom.table import Table
from wherefrom.tables.columns import rows_of
from wherefrom.tables.labelled import Labelled
from wherefrom.tables.looking import Gap, gap_totals, gaps_by_column
from wherefrom.tables.scores import Scores
from wherefrom.tables.wording import option

if TYPE_CHECKING:
    from wherefrom.tables.model import Model

About = Literal["intervals", "rows", "gaps", "unexplained"]
Calibration = Literal["done", "tried", "none"]

MOST_ITEMS = 3
_MOST_ROWS = 500  # are enough to speak of all
_OF_MODEL, _OF_ALL = 1 / 2, 0.05  # shares of the rows (D) from which on more of them help
_FALL = 0.05  # of the doubt, by measuring a value
_MOST = 0.5  # of the doubt


@dataclass(frozen=True)
class Item:
    """One thing to do: what it is about, a heading, and a sentence with the figure."""

    about: About
    lead: str
    say: str


@dataclass(frozen=True)
class Advice:
    """Things to do, the most severe first."""

    items: tuple[Item, ...]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def about(self) -> tuple[About, ...]:
        """The subject of each item."""
        return tuple(item.about for item in self.items)

    def __str__(self) -> str:
        if not self.items:
            return NOTHING
        return "\n".join(f"{number}. {item.lead}. {item.say}" for number, item in enumerate(self.items, 1))

    __repr__ = __str__

    def to_frame(self, library: Library | None = None) -> Any:
        """Return a frame with a row for each item.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        items = [(item.about, item.lead, item.say) for item in self.items]
        return Table(("about", "lead", "say"), items).to_frame(library)

    def _repr_html_(self) -> str:
        return card("What to do", paragraphs(str(self)))


NOTHING = (
    "Nothing stands out: intervals have the right coverage, and neither more rows nor missing values would change much."
)


def advice(labelled: Labelled, scores: Scores | None = None, overall: Mapping[str, Overall] | None = None) -> Advice:
    """Return what to do about a model, by rows whose truth is known.

    scores: of these rows (default: they are scored).
    overall: sources of the doubt about rows like them (default: those of 500 of them, by all networks).
    """
    model = labelled.model
    if model.target.several:
        raise ValueError(f"{len(model.target.several)} columns are predicted: fit one of them alone to ask this")
    some = labelled.at_most(_MOST_ROWS, "advice")
    scores = labelled.predicted().scores if scores is None else scores
    gaps = {}
    if model.drawn_columns and some.x.has_gaps.any():
        gaps = gaps_by_column(gap_totals(some.x, some.predicted().falls), model.drawn_columns)
    overall = some.by_all_networks().all_sources().overall if overall is None else overall
    items = (
        about_intervals(scores, _calibration(model), model.posterior.training.likelihood.noise_kind),
        about_rows(overall, model.about["rows"]["all"], model.about["rows"].get("folds", 0)),
        about_gaps(gaps, len(some), "entropy" if model.target.classes else "variance"),
        about_unexplained(overall, model.target.name, model.posterior.training.likelihood.doubt_of),
    )
    return Advice(tuple(item for item in items if item is not None)[:MOST_ITEMS])


def _calibration(model: Model) -> Calibration:
    if model.posterior.calibration:
        return "done"
    return "tried" if model.about.get("calibrate") == "auto" else "none"


def about_intervals(scores: Scores, calibration: Calibration, noise: str) -> Item | None:
    """Return what to do about intervals that are off; None if they are not.

    calibration: "done", "tried" if its effect was not clear, or "none".
    """
    off = scores.off()
    if off is None:
        return None
    what = "intervals" if off.kind == "interval" else "sets" if off.kind == "set" else "probabilities"
    if calibration == "none":
        how = option("calibrate", "temperature" if off.kind == "confidence" else "conformal")
        cure = f"Fit again with {how}."
    elif off.is_in_a_fifth and noise in ("fit", "given"):
        cure = f"Fit again with {option('noise', 'predicted')}, so that the noise can differ between rows."
    else:
        already = "They are calibrated already" if calibration == "done" else "Calibration was tried, and did not help"
        cure = f"{already}: until you have more rows, read {100 * off.expected:.4g}% as "
        cure += f"{off.observed:.0%}{' there' * off.is_in_a_fifth}."
    lead = "Do not trust the probabilities" if off.kind == "confidence" else f"Do not trust the level of the {what}"
    return Item("intervals", lead, f"{_sentence(off.say)} {cure}")


def about_rows(overall: Mapping[str, Overall], count: int, folds: int = 0) -> Item | None:
    """Return that more rows would help; None if they would not, or if which rows there are was not left open.

    Folds share most of their rows: other rows would change the answer with (folds - 1)^2 / folds times the variance
    between folds (the delete-a-group jackknife).

    folds: by which rows were left out; 0 if each draw of D has rows of its own.
    """
    rows = overall.get("D")
    if rows is None:
        return None
    more = (folds - 1) ** 2 / folds if folds else 1.0
    of_model, of_all = (_times(share, more) for share in (rows.model_share, rows.share))
    if not (of_model >= _OF_MODEL and of_all >= _OF_ALL):
        return None
    less = f" (The split by cause shows {rows.model_share:.0%}: the networks have most training rows in common.)"
    return Item(
        "rows",
        "Collect more rows",
        f"About {of_model:.0%} of the model's own doubt, and {percent(of_all, 1)} of all doubt, comes from the choice "
        f"of training rows.{less * (more > 1)} There are {count:,} rows; more would lower this doubt.",
    )


def _times(share: float, factor: float) -> float:
    """Return a part's share of the whole if the part were larger by a factor.

    >>> _times(0.25, 3.0)
    0.5
    """
    return factor * share / (1 + (factor - 1) * share)


def about_gaps(gaps: Mapping[str, Gap], count: int, measure: str = "variance") -> Item | None:
    """Return which missing values to measure; None if none would help.

    count: of all rows.
    measure: of the doubt.
    """
    worth = {name: gap for name, gap in gaps.items() if gap.expected_fall >= _FALL}
    if not worth:
        return None
    (name, gap), *others = worth.items()
    say = f"{name} is missing in {gap.rows:,} of {rows_of(count)}: measuring it would lower the {measure} there by "
    say += f"{gap.expected_fall:.0%} on average."
    if others:
        say += f" Next: {others[0][0]}, {others[0][1].expected_fall:.0%} in {rows_of(others[0][1].rows)}."
    return Item("gaps", f"Measure {name} where it is missing", say)


def about_unexplained(overall: Mapping[str, Overall], target: str, doubt_of: str = "{name}") -> Item | None:
    """Return what it means that most of the doubt is not explained by the columns; None if it is not most.

    doubt_of: what the doubt is of, by the target's name.
    """
    name = next((name for name in UNEXPLAINED if name in overall), None)
    if name is None or overall[name].share < _MOST:
        return None
    part = overall[name]
    share = f"{percent(part.share, 1 if part.share > 0.99 else 0)} of the doubt about {target}"
    differ = "still have different classes"
    if name == "noise":
        is_number = "{name}" in doubt_of  # and no yes or no
        by = f" by ± {written(math.sqrt(max(0.0, part.variance)))}" * is_number
        differ = f"still differ{by} in {doubt_of.format(name=target)}"
    return Item(
        "unexplained",
        f"Look for columns that explain {target}",
        f"{share} is not explained by your columns: rows that are alike in all of them {differ}. More rows, networks "
        "or training would not lower it; further columns could.",
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
