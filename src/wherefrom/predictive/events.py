"""One class of two as an event: how well its risk finds it, and what acting on the risk is worth.

Whoever acts on a risk chooses a threshold, and is alerted for every row at or above it. Of n rows, with TP alerts at
events and FP at others,

    net benefit at threshold t  =  TP / n  -  FP / n * t / (1 - t)                       (Vickers and Elkin 2006)

which counts a false alert as t / (1 - t) of an event found. Acting on every row has TP = events, on no row 0: a risk is
of use at the thresholds where its net benefit is above both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.predictive.row_scores import Score

RARE = 0.2  # a prevalence below which rows are listed by their risk
THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
_TOP = 0.1  # of the rows, by their risk, to count the events among
_CURVE_POINTS = 50
_CURVE_LEAST, _CURVE_MOST, _PREVALENCES = (
    0.2,
    0.99,
    4,
)  # where the curve ends: within two limits, at 4 times the prevalence


@stored("Alerts")
@dataclass(frozen=True)
class Alerts:
    """The effect of acting above a threshold; None is a share of nothing.

    alerts: share of the rows at or above the threshold.
    sensitivity: share of the events that are alerted.
    precision: share of the alerts that are events (positive predictive value).
    specificity: share of the other rows that are not alerted.
    net_benefit: of acting on the alerts.
    net_benefit_of_all: of acting on every row; that of acting on none is 0.
    """

    threshold: float
    alerts: float
    sensitivity: float | None
    precision: float | None
    specificity: float | None
    net_benefit: float
    net_benefit_of_all: float


@stored("Event")
@dataclass(frozen=True)
class Event:
    """The rarer of two classes: how many rows have it, and what its predicted risk is worth."""

    label: str
    prevalence: float
    lift: float | None  # prevalence among the tenth of rows at highest risk, over that of all
    alerts: tuple[Alerts, ...]
    curve: tuple[Alerts, ...]  # at evenly spaced thresholds

    @classmethod
    def of(cls, label: str, risk: Tensor, is_event: Tensor) -> Event:
        """Measure how a risk does.  # (rows,), (rows,)"""
        prevalence = float(is_event.double().mean())
        last = min(_CURVE_MOST, max(_CURVE_LEAST, _PREVALENCES * prevalence))
        grid = [last * (k + 1) / _CURVE_POINTS for k in range(_CURVE_POINTS)]
        alerts, curve = ([alerts_at(risk, is_event, each) for each in some] for some in (THRESHOLDS, grid))
        return cls(label, prevalence, lift(risk, is_event), tuple(alerts), tuple(curve))

    @property
    def is_rare(self) -> bool:
        return self.prevalence < RARE


def rarer(numbers: Tensor) -> int:
    """Return the number of the rarer of two classes; the second, if both are as frequent.

    >>> rarer(torch.tensor([1, 1, 0])), rarer(torch.tensor([0, 1]))
    (0, 1)
    """
    counts = torch.bincount(numbers, minlength=2)
    return int(counts[1] <= counts[0])


def alerts_at(risk: Tensor, is_event: Tensor, threshold: float) -> Alerts:
    """Count the alerts at a threshold.

    >>> alerts_at(torch.tensor([0.9, 0.4, 0.2, 0.1]), torch.tensor([True, False, True, False]), 0.25).net_benefit
    0.166...
    """
    is_alert = risk >= threshold
    rows, alerts, events = len(risk), int(is_alert.sum()), int(is_event.sum())
    hits = int((is_alert & is_event).sum())
    odds = threshold / (1 - threshold)
    return Alerts(
        threshold,
        alerts / rows,
        _share(hits, events),
        _share(hits, alerts),
        _share(rows - events - (alerts - hits), rows - events),
        (hits - odds * (alerts - hits)) / rows,
        (events - odds * (rows - events)) / rows,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def lift(risk: Tensor, is_event: Tensor, share: float = _TOP) -> float | None:
    """Prevalence among the rows at highest risk, over that of all rows; of equal risks, each counts in part.

    >>> lift(torch.tensor([0.9, 0.2, 0.1, 0.1]), torch.tensor([True, False, True, False]), share=0.25)
    2.0
    """
    events = float(is_event.sum())
    if not events:
        return None
    count = max(1, math.ceil(share * len(risk)))
    last = risk.sort(descending=True).values[count - 1]
    above, level = risk > last, risk == last
    part = (count - float(above.sum())) / float(level.sum())
    hits = float((above & is_event).sum()) + part * float((level & is_event).sum())
    return (hits / count) / (events / len(risk))


def average_precision(risk: Tensor, is_event: Tensor) -> Score:
    """Mean over the events of the precision at each event's risk; rows of equal risk share a threshold.

    The error is by the infinitesimal jackknife: with weights w of rows, of which T_u events and N_u rows have a risk
    of u or more, AP = sum_i w_i T_(u_i) / N_(u_i) / sum_i w_i over events i, and the error is the root of the sum over
    rows of (dAP / dw_r)^2.
    """
    events, rows = int(is_event.sum()), len(risk)
    if not 0 < events < rows:
        return Score(None)
    levels, level_of = risk.double().unique(return_inverse=True)
    at = torch.bincount(level_of, is_event.double(), minlength=len(levels))  # events of each risk
    above = at.flip(0).cumsum(0).flip(0)
    alerts = torch.bincount(level_of, minlength=len(levels)).flip(0).cumsum(0).flip(0).double()
    precision = above / alerts
    value = float(at @ precision) / events
    per_event, per_row = ((at * part).cumsum(0)[level_of] for part in (1 / alerts, -above / alerts.square()))
    influence = is_event * (precision[level_of] - value + per_event) + per_row
    return Score(value, float(influence.square().sum().sqrt()) / events * math.sqrt(rows / (rows - 1)))


def net_benefits(curve: Sequence[Alerts]) -> tuple[list[float], list[float], list[float]]:
    """Return the thresholds, the net benefit of acting on the risk, and that of acting on all rows."""
    return (
        [each.threshold for each in curve],
        [each.net_benefit for each in curve],
        [each.net_benefit_of_all for each in curve],
    )
