"""Classes, as a report shows them: an answer with its confidence, against the truth.

Their doubt is the entropy, shown as a share of the largest possible: all classes equally probable. Some of it every
network has by itself (overlap); the rest is disagreement. Confidence should be as large as answers are often right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wherefrom.predictive import events, panels, row_scores
from wherefrom.predictive.class_scores import brier, correct
from wherefrom.predictive.events import Event
from wherefrom.predictive.panels import Output, ScoreTerm, SourceWords, Term, Words, percent, percents, short
from wherefrom.predictive.row_scores import Score, Z
from wherefrom.predictive.sources import Sources

_LARGEST = ", of the largest doubt possible"
_BINS = 10
_CURVE_POINTS = 100
_MOST_CLASSES = 20  # of which a table of mistakes is shown
_LEAST_IN_A_GROUP = 10

SOURCES = {
    "overlap": SourceWords(
        "classes that overlap in {inputs}",
        "Look for columns that tell the classes apart",
        "Every network has this doubt by itself: in these columns the classes overlap. More networks would not lower "
        "it. Further columns or cleaner labels could.",
        "overlap",
    )
}
# How it is done: of a posterior, on the command line, and by wf.fit.
HOW = {
    "temperature": (
        'posterior.calibrated("temperature", data)',
        "--calibrate temperature",
        'calibrate="temperature"',
    )
}
_SCORES = {
    "accuracy": ScoreTerm(
        "Right answers (accuracy)",
        "The share of rows whose most probable class is the true one.",
        "Right",
        "high",
        is_percent=True,
    ),
    "auc": ScoreTerm(
        "Ranks rightly (AUC)",
        "Area under the ROC curve: how often a row of a class is given a larger probability of it than a row of "
        "another. 1 is perfect, 0.5 is chance. Of two classes it is that of the second; of more, the mean over all.",
        "AUC",
        "high",
    ),
    "average_precision": ScoreTerm(
        "Finds the rarer class (average precision)",
        "Of two classes, the mean precision over all alerts that it takes to find every row of the rarer one, from the "
        "highest risk down. 1 is perfect; chance gives its share of the rows.",
        "AP",
        "high",
    ),
    "nll": ScoreTerm(
        "Surprise (NLL)",
        "Negative log-likelihood: how much the true class surprises the run, most of all where it was sure and wrong. "
        "Lower is better. It is in nats: 0.7 less means that the truth was given twice the probability.",
        "NLL",
    ),
    "brier": ScoreTerm(
        "Error of the probabilities (Brier)",
        "Brier score: the squared distance between the probabilities and the truth, added up over classes. 0 is "
        "perfect, 2 is sure and wrong; lower is better.",
        "Brier",
    ),
    "ece": ScoreTerm(
        "Calibration error (ECE)",
        "Expected calibration error: how far, on average, confidence is from how often it is right. Lower is better, "
        "but chance alone keeps it above 0.",
        "ECE",
        is_percent=True,
    ),
}
_GLOSSARY = {
    "doubt": Term(
        "Doubt (entropy)",
        "How spread the probabilities are: 0% is sure of one class, 100% is all classes equally probable. It is their "
        "entropy, as a share of the largest that is possible; entropies are in nats.",
    ),
    "overlap": Term(
        "Overlap",
        "Doubt that every network has by itself, because in these columns the classes look alike. More networks do not "
        "lower it.",
    ),
    "risk": Term(
        "Risk, alert, net benefit",
        "The risk is the probability of the rarer of two classes. Whoever acts on it chooses a threshold, and is "
        "alerted for every row at or above it. The net benefit counts the events that alerts find, less false alerts, "
        "each weighed by the odds of the threshold: at 10%, nine false alerts cost as much as one event is worth.",
    ),
    "disagreement": Term(
        "Disagreement",
        "Doubt because the networks answer differently (mutual information). It is split by the choices that make them "
        "differ.",
    ),
}
_WORDS = Words(
    scores=_SCORES,
    glossary=_GLOSSARY,
    no_model="always predicting the class frequencies",
    calibrate="Calibrate it on held-out rows: {temperature}.",
    mend_group="No single temperature can mend a class by itself; more rows of {group!r} could.",
    irreducible="the classes' own overlap, as every network sees it",
    spread="how much the networks disagree",
)


def outputs(prediction: Any, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
    return [Classes(prediction, truth, names[0])]


@dataclass(frozen=True, eq=False)
class Classes:
    """A prediction of classes, and the true labels."""

    prediction: Any
    truth: Any  # (rows,), labels
    name: str
    words = _WORDS

    # ------------------------------------------------------------------ figures

    @cached_property
    def _numbers(self) -> Tensor:
        """Number of each row's class.  # (rows,)"""
        number_of = {label: k for k, label in enumerate(self.prediction.classes)}
        return torch.tensor([number_of[label] for label in self.truth])

    @cached_property
    def _guesses(self) -> Tensor:
        return self.prediction.probabilities.argmax(1)

    @cached_property
    def _is_right(self) -> Tensor:
        return correct(self.prediction.probabilities, self._numbers)

    @property
    def _labels(self) -> list[str]:
        return list(map(str, self.prediction.classes))

    @property
    def _most(self) -> float:
        """The largest doubt possible, in nats."""
        return math.log(len(self.prediction.classes)) or 1.0

    def scores(self) -> dict[str, Score]:
        nll, squares = self.prediction.nll(self.truth, by_row=True), self.prediction.brier(self.truth, by_row=True)
        scores = row_scores.of_classes(self.prediction.probabilities, self._numbers, nll, squares)
        if self._event_risk is not None:
            scores["average_precision"] = events.average_precision(self._event_risk, self._is_event)
        return scores

    @cached_property
    def _event(self) -> int:
        """The rarer class."""
        return events.rarer(self._numbers)

    @property
    def _is_event(self) -> Tensor:
        return self._numbers == self._event

    @cached_property
    def _event_risk(self) -> Tensor | None:
        """Probability of the rarer of two classes.  # (rows,)"""
        probabilities: Tensor = self.prediction.probabilities
        return probabilities[:, self._event] if probabilities.shape[1] == 2 else None

    @cached_property
    def _measured(self) -> Event | None:
        return (
            None if self._event_risk is None else Event.of(self._labels[self._event], self._event_risk, self._is_event)
        )

    def baseline(self) -> dict[str, Any]:
        """The gain is by the NLL; by the Brier score where a class had a probability of zero, and came."""
        numbers, classes = self._numbers, len(self.prediction.classes)
        part = torch.bincount(numbers, minlength=classes).double() / len(numbers)
        loss, without = self.nll_by_row(), -part.log()[numbers]
        if not bool(loss.isfinite().all()):
            loss = self.prediction.brier(self.truth, by_row=True)
            without = brier(part.expand(len(numbers), -1), numbers)
        scores = row_scores.always_the_shares(numbers, classes)
        if self._measured is not None:
            scores["average_precision"] = self._measured.prevalence
        return {"scores": scores, "gain": panels.gain(loss, without)}

    def nll_by_row(self) -> Tensor:
        nll: Tensor = self.prediction.nll(self.truth, by_row=True)
        return nll

    def doubt(self) -> Tensor:
        return self.prediction.entropy

    def spread(self) -> Tensor:
        return self.prediction.mutual_information

    def sources(self) -> Sources:
        return self.prediction.sources(of="entropy")

    def amounts(self, amount: float) -> dict[str, float]:
        return {"doubt": amount / self._most}

    def verdict(self) -> dict[str, Any]:
        confidence, count = self.prediction.confidence, len(self.prediction)
        accuracy, expected = float(self._is_right.double().mean()), float(confidence.mean())
        error = math.sqrt(float((confidence * (1 - confidence)).sum())) / count
        say = f"The mean confidence is {expected:.0%}, and {accuracy:.0%} of the answers are right"
        return panels.verdict(accuracy, expected, error, count, say)

    def groups(self) -> list[dict[str, Any]]:
        """Return how often answers are right, and how sure they are, by the class that is answered."""
        answered = torch.bincount(self._guesses, minlength=len(self.prediction.classes)).tolist()
        present = [k for k, count in enumerate(answered) if count >= _LEAST_IN_A_GROUP]
        present = sorted(sorted(present, key=lambda k: -answered[k])[:_MOST_CLASSES])
        groups = []
        for k in present:
            rows = self._guesses == k
            expected = float(self.prediction.confidence[rows].mean())
            each = panels.group(self._labels[k], self._is_right[rows], expected, len(present))
            groups.append(each | {"say": self._about_group(each)})
        return groups

    def _about_group(self, group: dict[str, Any]) -> str:
        right = f"{group['observed']:.0%} are right, and {group['expected']:.0%} should be"
        return f"Of {group['count']:,} answers {group['name']!r}, {right}"

    # ------------------------------------------------------------------ what is drawn

    def shown(self, listed: Tensor, before: Classes | None) -> dict[str, Any]:
        fields, technical = self._fields(), {"part": "technical"}
        of_event = [] if self._measured is None else ["risk"]
        is_rare = self._measured is not None and self._measured.is_rare
        return {
            "headline": self._headline(),
            "table": ["auc", *(["average_precision"] if of_event else []), "nll", "brier", "ece"],
            "points": self._points(listed),
            "fields": fields,
            "rows": {
                "title": f"The rows at the highest risk of {self._labels[self._event]}" if is_rare else None,
                "columns": ["truth", "guess", *(of_event or ["confidence"]), "doubt"],
                "sort": "risk" if is_rare else "doubt",
                "detail": ["truth", "guess", "of_truth", "overlap", "disagreement"],
                "tip": ["truth", "guess", "confidence"],
                "search": ["truth", "guess"],
            },
            "doubt": {
                "lead": "Overlap: every network is unsure by itself. The rest: networks disagree, split by why.",
                "caption": "The doubt of each row by source.",
                "axis": panels.axis("doubt, of the largest possible", key="doubt"),
                "columns": [fields["doubt"] | {"key": "doubt"}],
            },
            "spread": panels.axis(f"disagreement of the networks{_LARGEST}", key="disagreement", least=0.0),
            "truth": {
                "lead": None,
                "panels": [self._mistakes(), *self._event_panels(), self._two_kinds() | technical],
            },
            "calibration": {
                "lead": None,
                "panels": [
                    self._reliability(before),
                    *self._groups_panel(),
                    self._confidence() | technical,
                    self._risk() | technical,
                ],
            },
        }

    def _headline(self) -> dict[str, Any]:
        verdict, about = self.verdict(), f" for {self.name}" if self.name != "y" else ""
        say = [
            f"of the answers{about} are right; always predicting the most frequent class would be right in ",
            {"score": "accuracy", "of": "baseline"},
            f". On average it is {percent(verdict['expected'], 1)} confident: ",
            verdict["text"],
            ".",
        ]
        return {"score": "accuracy", "say": say}

    def _points(self, listed: Tensor) -> dict[str, list[Any]]:
        prediction = self.prediction
        shares = {
            "confidence": prediction.confidence,
            "of_truth": prediction.probabilities.gather(1, self._numbers[:, None]).squeeze(1),
            "doubt": prediction.entropy / self._most,
            "overlap": prediction.expected_entropy / self._most,
            "disagreement": (prediction.mutual_information / self._most).clamp_max(1.0),
        }
        if self._event_risk is not None:
            shares["risk"] = self._event_risk
        numbers = {"truth": self._numbers, "guess": self._guesses, "is_wrong": (~self._is_right).int()}
        return {name: short(values[listed]) for name, values in shares.items()} | {
            name: values[listed].tolist() for name, values in numbers.items()
        }

    def _fields(self) -> dict[str, Any]:
        label, share = {"as": "label", "labels": self._labels}, {"as": "percent", "decimals": 1}
        nats = {"first": "of the largest possible", "name": "entropy", "times": self._most, "decimals": 3}
        return {
            "truth": label | {"name": "truth"},
            "guess": label | {"name": "answer", "far": "is_wrong"},
            "confidence": share | {"name": "confidence", "head": "Sure", "title": "Probability of the answer"},
            "of_truth": share | {"name": "probability of the truth"},
            **self._risk_field(share),
            "doubt": share | {"name": "doubt", "term": "doubt", "also": nats | {"unit": " nats"}},
            "overlap": share | {"name": "overlap", "term": "overlap"},
            "disagreement": share | {"name": "disagreement", "term": "disagreement"},
        }

    def _risk_field(self, share: dict[str, Any]) -> dict[str, Any]:
        if self._measured is None:
            return {}
        title = f"Probability of {self._measured.label}, the rarer class"
        return {"risk": share | {"name": f"risk of {self._measured.label}", "head": "Risk", "title": title}}

    def _event_panels(self) -> list[dict[str, Any]]:
        """Return what acting on the risk of the rarer of two classes would do: at some thresholds, and as a curve."""
        event = self._measured
        if event is None:
            return []
        share = {"as": "percent", "decimals": 1}
        columns = [
            {"key": "threshold", "name": "act at", "as": "percent", "strong": True, "title": "Risk that alerts"},
            share | {"key": "alerts", "name": "alerts", "title": "Share of all rows"},
            share | {"key": "sensitivity", "name": "sensitivity", "title": "Share of the events that are alerted"},
            share | {"key": "precision", "name": "precision", "title": "Share of the alerts that are events (PPV)"},
            share | {"key": "specificity", "name": "specificity", "title": "Share of other rows that are not alerted"},
        ]
        lift = (
            "" if event.lift is None else f" Among the tenth at highest risk it is {event.lift:.1f} times as frequent."
        )
        xs, ys, of_all = events.net_benefits(event.curve)
        low, high = -0.25 * event.prevalence, 1.1 * max(event.prevalence, *ys)
        return [
            {
                "type": "table",
                "wide": True,
                "title": f"Alerts for {event.label}",
                "caption": f"{event.label} is the rarer class: {percent(event.prevalence, 1)} of the rows.{lift} What "
                "thresholds of its risk would do:",
                "columns": columns,
                "items": [asdict(each) for each in event.alerts],
            },
            {
                "type": "curve",
                "title": "Is it worth acting on?",
                "caption": "Net benefit of acting on rows above a threshold of risk. Dotted: acting on every row. The "
                "model is of use where its line is above both that and 0.",
                "xs": short(xs),
                "ys": short(max(low, value) for value in ys),
                "best": short(max(low, value) for value in of_all),
                "x": panels.axis("threshold of the risk", [0, xs[-1]], ticks=None),
                "y": {"label": "net benefit, in events a row", "domain": [low, high]},
                "tips": panels.tips(
                    [f"act at {percent(x, 1)}" for x in xs],
                    {
                        "net benefit": [panels.written(value) for value in ys],
                        "of acting on all": [panels.written(value) for value in of_all],
                    },
                ),
            },
        ]

    def _two_kinds(self) -> dict[str, Any]:
        return {
            "type": "scatter",
            "title": "Two kinds of doubt",
            "caption": "To the right: every network is unsure. Upwards: the networks disagree.",
            "height": 320,
            "x": panels.axis(f"overlap{_LARGEST}", key="overlap", least=0.05),
            "y": panels.axis(f"disagreement{_LARGEST}", key="disagreement", least=0.05),
            "miss": "is_wrong",
            "legend": ["right", "wrong"],
            "tip": ["truth", "guess", "confidence", "overlap", "disagreement"],
        }

    def _mistakes(self) -> dict[str, Any]:
        """Return the confusion matrix as a panel."""
        classes = len(self.prediction.classes)
        if classes > _MOST_CLASSES:
            caption = f"There are {classes} classes: too many for a table of mistakes."
            return {"type": "note", "title": "Mistakes", "caption": caption}
        table = torch.bincount(self._numbers * classes + self._guesses, minlength=classes**2).view(classes, classes)
        return {
            "type": "matrix",
            "title": "Mistakes",
            "caption": "How many rows of each class get which prediction.",
            "rows": "truth",
            "columns": "answer",
            "labels": self._labels,
            "counts": table.tolist(),
            "share": "of this class",
        }

    def _reliability(self, before: Classes | None) -> dict[str, Any]:
        confidence, accuracy, count = self._bins
        error = (confidence * (1 - confidence) / count).sqrt().tolist()
        past = None if before is None else before._bins
        return {
            "type": "curve",
            "title": "Is confidence justified?",
            "caption": "Answers that are 80% confident should be right 80% of the time. Below the line is too sure; "
            f"grey bars are chance. Calibration error {percent(self.prediction.ece(self.truth), 1)}, of which chance "
            f"alone gives about {percent(self._ece_by_chance(), 1)}.",
            "xs": short(confidence),
            "ys": short(accuracy),
            "sizes": short(count / count.sum(), 3),
            "x": panels.axis("confidence", [0, 1.02]),
            "y": panels.axis("right", [0, 1.02]),
            "chance": panels.around(confidence.tolist(), error, "bars"),
            "before": None if past is None else {"xs": short(past[0]), "ys": short(past[1])},
            "tips": panels.tips(
                [panels.counted(n, "row") for n in count.tolist()],
                {
                    "confidence": percents(confidence.tolist()),
                    "right": percents(accuracy.tolist()),
                    "chance allows": [f"± {percent(Z * reach, 1)}" for reach in error],
                },
            ),
        }

    @cached_property
    def _bins(self) -> tuple[Tensor, Tensor, Tensor]:
        """Confidence, accuracy and number of rows, of the bins that have any."""
        bins = self.prediction.reliability(self.truth, bins=_BINS)
        kept = bins.count > 0
        return bins.confidence[kept], bins.accuracy[kept], bins.count[kept]

    def _ece_by_chance(self) -> float:
        """The calibration error to expect of a calibrated run."""
        bins, confidence = self.prediction.reliability(self.truth), self.prediction.confidence
        bin_of = torch.bucketize(confidence, bins.upper[:-1])
        variance = torch.zeros(len(bins), dtype=torch.float64).index_add(0, bin_of, confidence * (1 - confidence))
        return float(variance.sqrt().sum()) * math.sqrt(2 / math.pi) / len(confidence)

    def _confidence(self) -> dict[str, Any]:
        wrong, right = (
            panels.counts(self.prediction.confidence[rows], _BINS) for rows in (~self._is_right, self._is_right)
        )
        edges = [percent(i / _BINS) for i in range(_BINS + 1)]
        return {
            "type": "histogram",
            "title": "How confident it is",
            "caption": "Rows by the probability of their answer.",
            "x": panels.axis("confidence", [0, 1]),
            "y": {"label": "rows"},
            "stacks": [wrong, right],
            "legend": ["right", "wrong"],
            "tips": panels.tips(
                [f"{low} to {high}" for low, high in itertools.pairwise(edges)],
                {"right": [f"{n:,}" for n in right], "wrong": [f"{n:,}" for n in wrong]},
            ),
        }

    def _risk(self) -> dict[str, Any]:
        curve = self.prediction.risk_coverage(self.truth)
        some = panels.thinned(len(curve), _CURVE_POINTS)
        coverage, risk, best = (part[some].tolist() for part in (curve.coverage, curve.risk, curve.best))
        return {
            "type": "curve",
            "title": "Predicting only the most confident rows",
            "caption": "Wrong answers among the most confident rows. Dotted: if it knew its mistakes.",
            "xs": short(coverage),
            "ys": short(risk),
            "best": short(best),
            "x": panels.axis("rows answered", [0, 1]),
            "y": panels.axis("wrong among them", [0, 1.12 * max(0.02, *risk)], ticks=None),
            "tips": panels.tips(
                [f"{percent(part)} answered" for part in coverage], {"wrong": percents(risk), "at best": percents(best)}
            ),
        }

    def _groups_panel(self) -> list[dict[str, Any]]:
        return panels.groups_panel(
            self.groups(),
            "Accuracy by predicted class",
            "How often each predicted class is right (dots), and its mean confidence (dashes).",
            head="Answer",
            hit="Right",
            sure="Sure",
            x={"label": "answer"},
            y={"label": "right"},
        )

    def data(self, there: Tensor | None) -> dict[str, list[Any]]:
        classes = len(self.prediction.classes)
        here = torch.bincount(self._numbers, minlength=classes).tolist()
        trained = None if there is None else torch.bincount(there.flatten().long(), minlength=classes).tolist()
        columns = [{"key": "name", "name": "class", "as": "text", "strong": True}]
        if trained is not None:
            columns.append({"key": "there", "name": "trained on", "as": "count", "of": sum(trained)})
        columns.append({"key": "here", "name": "here", "as": "count", "of": sum(here)})
        items = [
            {"name": label, "here": here[k], "there": None if trained is None else trained[k]}
            for k, label in enumerate(self._labels)
        ]
        return {"columns": [], "panels": [{"type": "table", "title": "Classes", "columns": columns, "items": items}]}
