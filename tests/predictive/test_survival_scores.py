"""Scores of censored times, against formulas that go pair by pair and row by row."""

import numpy as np
import pytest
import torch
from scipy import stats

from wherefrom.predictive import survival_scores
from wherefrom.predictive.survival_scores import brier, censoring, concordance, d_calibration, kaplan_meier

RANDOM = np.random.default_rng(5)
ROWS = 60
TIME = RANDOM.integers(1, 25, size=ROWS).astype(float)  # many ties
EVENT = RANDOM.uniform(size=ROWS) < 0.6
ENTRY = np.where(RANDOM.uniform(size=ROWS) < 0.4, np.floor(TIME * RANDOM.uniform(size=ROWS)), 0.0)
PREDICTED = np.round(TIME + 6 * RANDOM.normal(size=ROWS))


def test_kaplan_meier_goes_by_the_rows_at_risk():
    steps = kaplan_meier(TIME, EVENT, ENTRY)
    survival = 1.0
    for time in sorted({time for time, event in zip(TIME, EVENT, strict=True) if event}):
        at_risk = sum(entry < time <= end for end, entry in zip(TIME, ENTRY, strict=True))
        survival *= 1 - sum((end == time) and event for end, event in zip(TIME, EVENT, strict=True)) / at_risk
        assert steps.at(np.array([time]))[0] == pytest.approx(survival, abs=1e-12)
    assert steps.at(np.array([0.5]))[0] == 1
    assert steps.at(steps.times[:1], before=True)[0] == 1


def test_weights_are_repetitions_in_kaplan_meier():
    times = np.repeat(np.arange(ROWS), 1 + np.arange(ROWS) % 3)
    one = kaplan_meier(TIME, EVENT, weights=1.0 + np.arange(ROWS) % 3)
    np.testing.assert_allclose(one.survival, kaplan_meier(TIME[times], EVENT[times]).survival)


def test_quantiles_of_a_curve():
    steps = kaplan_meier(np.array([1.0, 2, 3, 4, 5]), np.array([True, True, True, False, False]))
    assert steps.quantile(np.array([0.1, 0.2, 0.3, 0.6, 0.61])).tolist() == [1, 1, 2, 3, np.inf]


def test_events_come_before_censorings_of_the_same_time():
    uncensored = censoring(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, False]))
    assert uncensored.at(np.array([1.0, 2.0, 3.0])).tolist() == [1.0, 0.5, 0.0]


def slow_concordance(weights=None, entry=None, until=np.inf):
    right = pairs = 0.0
    for i in range(ROWS):
        for j in range(ROWS):
            is_first = TIME[i] < TIME[j] or (TIME[i] == TIME[j] and not EVENT[j])
            if (
                i == j
                or not EVENT[i]
                or not is_first
                or TIME[i] >= until
                or (entry is not None and entry[j] >= TIME[i])
            ):
                continue
            weight = 1.0 if weights is None else weights[i]
            pairs += weight
            right += weight * (0.5 if PREDICTED[i] == PREDICTED[j] else PREDICTED[i] < PREDICTED[j])
    return right / pairs


def test_concordance_pair_by_pair():
    assert concordance(TIME, EVENT, PREDICTED).value == pytest.approx(slow_concordance(), abs=1e-12)
    late = concordance(TIME, EVENT, PREDICTED, ENTRY)
    assert late.value == pytest.approx(slow_concordance(entry=ENTRY), abs=1e-12)
    weights = 1 / np.maximum(censoring(TIME, EVENT).at(TIME), 0.1) ** 2
    uno = concordance(TIME, EVENT, PREDICTED, pair_weights=weights, until=20.0)
    assert uno.value == pytest.approx(slow_concordance(weights, until=20.0), abs=1e-12)


def test_the_error_of_a_concordance_is_that_of_other_samples():
    """By the spread over 300 samples of 80 rows, whose own standard error is 4%."""
    values, errors = [], []
    for seed in range(300):
        random = np.random.default_rng(seed)
        time = random.exponential(size=80)
        one = concordance(time, random.uniform(size=80) < 0.7, time + random.normal(size=80))
        values.append(one.value)
        errors.append(one.error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_no_pair_no_concordance():
    assert concordance(np.array([1.0, 2.0]), np.array([False, False]), np.array([1.0, 2.0])).value is None


def test_brier_row_by_row():
    times, survival = np.array([3.0, 8.5, 15.0]), RANDOM.uniform(size=(ROWS, 3))
    uncensored = censoring(TIME, EVENT)
    scored = brier(TIME, EVENT, survival, times, uncensored)
    for i in range(ROWS):
        for k, at in enumerate(times):
            expected = 0.0
            if TIME[i] <= at and EVENT[i]:
                expected = survival[i, k] ** 2 / uncensored.at(TIME[i : i + 1])[0]
            elif TIME[i] > at:
                expected = (1 - survival[i, k]) ** 2 / uncensored.at(np.array([at]))[0]
            assert scored.by_row[i, k] == pytest.approx(expected, abs=1e-12)
    first, middle, last = scored.by_row.mean(0)
    expected = ((first + middle) / 2 * 5.5 + (middle + last) / 2 * 6.5) / 12
    assert scored.integrated.mean() == pytest.approx(expected)


def test_brier_scores_end_with_the_follow_up():
    uncensored = censoring(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    with pytest.raises(ValueError, match="no row is under observation after 2"):
        brier(np.array([1.0]), np.array([True]), np.ones((1, 2)), np.array([2.0, 3.0]), uncensored)


def test_d_calibration_counts_censored_rows_evenly():
    least = torch.tensor([0.05, 0.55, 0.5, 0.0], dtype=torch.float64)
    most = torch.tensor([0.05, 0.55, 1.0, 1.0], dtype=torch.float64)
    counted = d_calibration(least, most, 4)
    expected = [1 + 0.25, 0.25, 1 + 0.5 + 0.25, 0.5 + 0.25]
    torch.testing.assert_close(counted.counts, torch.tensor(expected, dtype=torch.float64))
    chi = stats.chisquare(expected)
    assert counted.statistic == pytest.approx(chi.statistic)
    assert counted.p_value == pytest.approx(chi.pvalue)
    assert "p = " in str(counted)


def test_many_rows_are_drawn_at_random(monkeypatch):
    monkeypatch.setattr(survival_scores, "_MOST_ROWS", 40)
    some = np.sort(np.random.default_rng(0).permutation(ROWS)[:40])
    expected = concordance(TIME[some], EVENT[some], PREDICTED[some])
    assert concordance(TIME, EVENT, PREDICTED) == expected
