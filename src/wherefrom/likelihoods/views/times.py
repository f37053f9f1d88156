"""Times that may be censored, as a report shows them: curves of survival, a median and an interval, against the truth.

Its doubt is that about being without the event at one time, the horizon. The 95% intervals should hold 95% of the
times; censored rows count by the probability that they have by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.likelihoods.views.variance import ByVariance
from wherefrom.predictive import panels, survival_scores
from wherefrom.predictive.panels import Output, ScoreTerm, Term, Words, percent, percents, short, written
from wherefrom.predictive.row_scores import Score, wilson

_MEDIAN = "Time by which the event is as likely to have happened as not"
_SHARE_ALONE = "The standard deviation of the survival probability that this source alone would cause"
_DISAGREE = "How far the networks differ in the survival probability: its standard deviation"
_CURVE_POINTS = 40
_PIT_BINS = 10

_SCORES = {
    "concordance": ScoreTerm(
        "Right order (concordance)",
        "Of all pairs of rows of which it is known who had the event first, how many are predicted in this order: 50% "
        "is chance, 100% is perfect (Harrell's C).",
        "concordance",
        "high",
        is_percent=True,
        absent="no two rows can be compared",
    ),
    "ibs": ScoreTerm(
        "Error of the curves (IBS)",
        "Integrated Brier score: the squared distance of the survival probability from what happened, over the times "
        "of the follow-up; censored rows are made up for by others. 0 is perfect, 0.25 is a coin. Lower is better.",
        "IBS",
        absent="the follow-up is too short",
    ),
    "nll": ScoreTerm(
        "Surprise (NLL)",
        "Negative log-likelihood: how much the times surprise the run; a censored row by the probability of living as "
        "long. Lower is better. It is in nats, and only differences mean something: 0.7 less means that the truth was "
        "given twice the probability.",
        "NLL",
    ),
    "crps": ScoreTerm(
        "Error of the whole prediction (CRPS)",
        "Continuous ranked probability score of the logarithm of {target}: 0.1 is about 10% of the time. Censored rows "
        "count up to their time. Lower is better.",
        "CRPS",
    ),
    "coverage": ScoreTerm(
        "Coverage of the 95% interval",
        "How many times lie within their 95% interval: 95% is right, less is too sure, more too careful. Censored rows "
        "count by the probability that they have by themselves.",
        "95% holds",
        0.95,
        is_percent=True,
    ),
}
_GLOSSARY = {
    "survival": Term("Survival probability", "The probability to be without the event at a time."),
    "censored": Term("Censored", "A row that was seen up to its time without the event: what came later is not known."),
}


def outputs(prediction: Any, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
    """A view of the time."""
    return [Times(prediction, truth, names[0], unit, noise)]


@dataclass(frozen=True, eq=False)
class Times(ByVariance):
    """A prediction of times, and the truth."""

    prediction: Any
    truth: Any  # as the prediction takes it
    name: str
    unit: str = ""
    noise: str = "fit"

    @property
    def words(self) -> Words:
        return Words(
            scores=_SCORES,
            glossary=_GLOSSARY,
            main_score="ibs",
            no_model="the same curve for every row (Kaplan and Meier)",
            calibrate="Calibrate them on held-out rows ({variance}), or leave more choices open.",
            mend_group="The scale is predicted row by row already; more rows there, or further columns, could mend it."
            if self.noise == "predicted"
            else "Let the networks predict the scale row by row: {row by row}.",
            irreducible="not explained by {inputs}",
            spread="how far apart the curves of the networks are",
            footnote="Scores of censored rows follow the rules in docs/survival.md.",
        )

    # ------------------------------------------------------------------ figures

    @cached_property
    def _rows(self) -> dict[str, Tensor]:
        """Numbers that the scores are made of, by row."""
        columns, _ = self.prediction.columns(0.95)
        rows = self.prediction.row_scores(columns, self.truth) | columns
        return {name: torch.as_tensor(np.asarray(values)) for name, values in rows.items()}

    @cached_property
    def _summary(self) -> Any:
        return self.prediction.summary(self._rows)

    @cached_property
    def _at_horizon(self) -> Tensor:
        """Survival probability at the horizon.  # (rows,)"""
        at: Tensor = self.prediction.survival(self.prediction.horizon)[:, 0]
        return at

    def scores(self) -> dict[str, Score]:
        scores: dict[str, Score] = self._summary.scores
        return scores

    def baseline(self) -> dict[str, Any]:
        rows = self._rows
        time, event, entry = (rows[name].numpy() for name in ("time", "event", "entry"))
        kaplan_meier = survival_scores.kaplan_meier(time, event > 0, entry)
        uncensored = survival_scores.censoring(time, event > 0, entry)
        times = rows["times"][0].numpy()
        is_scored = (times < time.max()) & (uncensored.at(times) > 0)
        gain = {"mean": None, "error": None, "word": "unknown"}
        if is_scored.sum() > 1:
            curves = rows["survival"].numpy()[:, is_scored]
            same = np.broadcast_to(kaplan_meier.at(times[is_scored]), curves.shape)
            ours, theirs = (
                survival_scores.brier(time, event > 0, each, times[is_scored], uncensored).integrated
                for each in (curves, same)
            )
            gain = panels.gain(torch.from_numpy(ours), torch.from_numpy(theirs))
        return {"scores": self._summary.baselines, "gain": gain}

    def nll_by_row(self) -> Tensor | None:
        return self._rows["nll"]

    def doubt(self) -> Tensor:
        doubt: Tensor = self.prediction.row_doubt
        return doubt

    spread = doubt

    def verdict(self) -> dict[str, Any]:
        return panels.coverage_verdict(self._rows["covered"], 0.95, "the times")

    def groups(self) -> list[dict[str, Any]]:
        """Return how often rows with a like predicted survival at the horizon are without the event there."""
        predicted, time, event = self._at_horizon, self._rows["time"], self._rows["event"] > 0
        at = self.prediction.horizon
        parts, groups = panels.fifths(predicted), []
        for part in parts:
            entry = self._rows["entry"][part].numpy()
            steps = survival_scores.kaplan_meier(time[part].numpy(), event[part].numpy(), entry)
            observed, expected = float(steps.at(np.array([at]))[0]), float(predicted[part].mean())
            count = int(part.sum())
            low, high = wilson(observed, count)
            ends = panels.told_apart(100 * float(predicted[part].min()), 100 * float(predicted[part].max()))
            groups.append(
                {
                    "name": " to ".join(ends) + "%",
                    "count": count,
                    "observed": observed,
                    "expected": expected,
                    "interval": [low, high],
                    "word": panels.group_word(round(observed * count), count, expected, len(parts)),
                }
            )
        return [each | {"say": self._about_group(each)} for each in groups]

    def _about_group(self, group: dict[str, Any]) -> str:
        at = f"{written(self.prediction.horizon)} {self.unit}".strip()
        return (
            f"Where survival to {at} is predicted to be {group['name']}, it is {group['observed']:.0%} (Kaplan and "
            "Meier)"
        )

    # ------------------------------------------------------------------ what is drawn

    def shown(self, listed: Tensor, before: Times | None) -> dict[str, Any]:
        in_unit = f", {self.unit}" if self.unit else ""
        at = written(self.prediction.horizon)
        return {
            "headline": self._headline(),
            "table": ["concordance", "ibs", "nll", "crps"],
            "points": self._points(listed),
            "fields": self._fields(at),
            "rows": {
                "columns": ["time", "event", "median", "survival", "doubt"],
                "sort": "doubt",
                "detail": ["interval"],
                "tip": ["time", "event", "median", "survival"],
                "search": [],
            },
            "doubt": panels.variance_by_source(
                f"The variance of survival to {at}{in_unit}, a yes or no, split by what causes it.",
                f"variance of survival to {at}",
                _SHARE_ALONE,
            ),
            "spread": {"key": "doubt", "label": f"disagreement about survival to {at}"},
            "truth": {
                "lead": None,
                "panels": [*self._curves(in_unit), self._scatter(in_unit)],
            },
            "calibration": {
                "lead": None,
                "panels": [self._ranks() | {"part": "technical"}, *self._groups_panel(at)],
            },
        }

    def _headline(self) -> dict[str, Any]:
        concordance = self._summary.scores["concordance"].value
        say = [
            "of comparable pairs of rows are predicted in the right order. The 95% intervals contain ",
            {"score": "coverage"},
            " of the times: ",
            self.verdict()["text"],
            ".",
        ]
        return {"big": "–" if concordance is None else percent(concordance), "small": f"for {self.name}", "say": say}

    def _points(self, listed: Tensor) -> dict[str, list[Any]]:
        rows, doubt = self._rows, self.doubt()
        at = self._at_horizon[listed]
        numbers = {
            "time": rows["time"][listed],
            "median": rows["median"][listed],
            "low": rows["lower"][listed],
            "high": rows["upper"][listed],
            "survival": at,
            "doubt": doubt[listed],
            "variance": at * (1 - at),
        }
        event = rows["event"][listed] > 0
        missed = (rows["covered"][listed] < 0.5) & event
        return {name: short(values) for name, values in numbers.items()} | {
            "event": ["event" if each else "censored" for each in event.tolist()],
            "is_missed": missed.int().tolist(),
        }

    def _fields(self, at: str) -> dict[str, Any]:
        number = {"as": "number", "digits": 4, "unit": f" {self.unit}" if self.unit else ""}
        return {
            "time": number | {"name": "time"},
            "event": {"name": "seen", "as": "text"},
            "median": number | {"name": "median", "head": "Median", "title": _MEDIAN},
            "survival": {"name": f"survival to {at}", "as": "percent"},
            "interval": number | {"name": "95% interval", "as": "range", "of": ["low", "high"]},
            "doubt": {"name": "± of survival", "as": "percent", "title": _DISAGREE},
        }

    def _curves(self, in_unit: str) -> list[dict[str, Any]]:
        """Curves of the rows at the 10%, 50% and 90% of predicted survival, each with its band."""
        order = self._at_horizon.argsort()
        latest = float(self._rows["time"].max())
        times = np.linspace(0, latest, _CURVE_POINTS + 1)
        drawn = []
        for part, words in ((0.1, "with an early event"), (0.5, "in the middle"), (0.9, "with a late event")):
            row = order[int(part * (len(order) - 1))].reshape(1)
            one = self.prediction.of_rows(row)
            curve = one.survival(times)[0]
            low, high = (end[0] for end in one.survival_interval(times))
            lines = {
                "survival": percents(curve.tolist()),
                "networks": [f"{percent(a)} to {percent(b)}" for a, b in zip(low.tolist(), high.tolist(), strict=True)],
            }
            drawn.append(
                {
                    "type": "curve",
                    "title": f"A row {words}",
                    "caption": f"Row {int(row)}. Band: 95% of the networks' curves.",
                    "xs": short(times),
                    "ys": short(curve),
                    "x": {"label": f"time{in_unit}", "domain": [0, latest]},
                    "y": panels.axis("survival probability", [0, 1]),
                    "band": {"at": short(times), "low": short(low), "high": short(high)},
                    "tips": panels.tips([written(time) for time in times.tolist()], lines),
                }
            )
        return drawn

    def _scatter(self, in_unit: str) -> dict[str, Any]:
        log_from = panels.log_from(self._rows["time"])
        return {
            "type": "scatter",
            "title": "Predicted medians against times",
            "caption": "On the line, the median is right.",
            "square": True,
            "x": {"key": "time", "label": f"time{in_unit}", "log_from": log_from},
            "y": {"key": "median", "label": f"predicted median{in_unit}", "log_from": log_from},
            "diagonal": True,
            "miss": "is_missed",
            "legend": ["censored, or in the interval", "the interval misses it"],
            "tip": ["time", "event", "median", "survival"],
        }

    def _ranks(self) -> dict[str, Any]:
        """Histogram of the predicted probability of the times (D-calibration)."""
        counted = self.prediction.d_calibration(self.truth, _PIT_BINS)
        return panels.probabilities_panel(
            "Where the times fall",
            "Censored rows count evenly above their time. Flat is right "
            f"(chi-square: p = {counted.p_value:.2g}); a U is too sure, a hill too careful.",
            "predicted probability of an earlier time",
            counted.counts.tolist(),
            counted.expected,
        )

    def _groups_panel(self, at: str) -> list[dict[str, Any]]:
        return panels.groups_panel(
            self.groups(),
            f"Survival to {at}",
            "Survival by Kaplan and Meier, by fifths of what is predicted.",
            head="Predicted",
            hit="Survived",
            sure="Predicted",
            x={"label": f"predicted survival to {at}"},
            y={"label": "survival (Kaplan and Meier)"},
        )

    def data(self, there: Tensor | None) -> dict[str, list[Any]]:
        return {"columns": [panels.column(self.name, self._rows["time"], there)], "panels": []}
