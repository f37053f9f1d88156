"""Rare outcomes: average precision as scikit-learn has it, and alerts counted by hand."""

import math

import numpy as np
import pytest
import torch

from reloaded import reloaded
from wherefrom.predictive.events import Event, alerts_at, average_precision, lift, rarer


def made(rows, seed=0, digits=2):
    """Risks, rounded so that some are equal, and events that are as frequent as they say."""
    random = np.random.default_rng(seed)
    risk = np.round(random.beta(0.6, 4, rows), digits)
    return torch.from_numpy(risk), torch.from_numpy(random.random(rows) < risk)


@pytest.mark.parametrize("digits", [1, 2, 8])
def test_average_precision_is_scikit_learns(digits):
    metrics = pytest.importorskip("sklearn.metrics")
    risk, is_event = made(500, digits=digits)
    assert average_precision(risk, is_event).value == pytest.approx(metrics.average_precision_score(is_event, risk))


def test_its_error_is_the_spread_over_repetitions():
    found = [average_precision(*made(600, seed, digits=8)) for seed in range(300)]
    spread = np.std([score.value for score in found], ddof=1)
    # a standard deviation of 300 values is known to 1 in sqrt(600), four of which are 16%
    assert np.mean([score.error for score in found]) == pytest.approx(spread, rel=4 / math.sqrt(600))


def test_without_events_or_without_others_there_is_none():
    for is_event in (torch.zeros(5, dtype=torch.bool), torch.ones(5, dtype=torch.bool)):
        assert average_precision(torch.rand(5), is_event).value is None
    none = alerts_at(torch.rand(5), torch.zeros(5, dtype=torch.bool), 0.5)
    assert none.sensitivity is None
    assert lift(torch.rand(5), torch.zeros(5, dtype=torch.bool)) is None
    assert alerts_at(torch.rand(5), torch.ones(5, dtype=torch.bool), 1 - 1e-9).precision is None


def test_alerts_are_counted_as_by_hand():
    """Ten rows, two events; at 0.3 four alerts, of which one is an event."""
    risk = torch.tensor([0.8, 0.5, 0.4, 0.3, 0.2, 0.2, 0.1, 0.1, 0.0, 0.0])
    is_event = torch.tensor([0, 1, 0, 0, 0, 0, 1, 0, 0, 0], dtype=torch.bool)
    found = alerts_at(risk, is_event, 0.3)
    assert (found.alerts, found.sensitivity, found.precision, found.specificity) == (0.4, 0.5, 0.25, 5 / 8)
    assert found.net_benefit == pytest.approx(1 / 10 - 3 / 10 * 3 / 7)
    assert found.net_benefit_of_all == pytest.approx(2 / 10 - 8 / 10 * 3 / 7)
    assert lift(risk, is_event, 0.2) == pytest.approx((1 / 2) / (2 / 10))
    assert lift(risk, is_event, 0.5) == pytest.approx((1 / 5) / (2 / 10))


def test_equal_risks_share_what_is_left_of_the_top():
    assert lift(torch.full((10,), 0.3), torch.arange(10) < 2) == pytest.approx(1.0)


def test_the_decision_curve_of_a_perfect_risk_is_the_prevalence():
    is_event = torch.arange(100) < 7
    event = Event.of("yes", is_event.double(), is_event)
    assert event.is_rare
    assert len(event.curve) == 50
    assert [each.net_benefit for each in event.curve] == pytest.approx([0.07] * 50)
    assert event.curve[-1].threshold == pytest.approx(0.28)
    for each in event.curve:
        odds = each.threshold / (1 - each.threshold)
        assert each.net_benefit_of_all == pytest.approx(0.07 - 0.93 * odds)
    assert reloaded(event) == event


def test_the_rarer_class_is_the_event():
    assert rarer(torch.tensor([0, 0, 1])) == 1
    assert rarer(torch.tensor([0, 1, 1])) == 0
    assert rarer(torch.tensor([0, 0])) == 1
