"""Scores of class probabilities: against their definitions by brute force, closed forms, and scikit-learn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas
import pytest
import torch
from sklearn import metrics

from wherefrom.predictive.class_scores import (
    accuracy,
    aupr,
    auroc,
    brier,
    classwise_ece,
    correct,
    entropy,
    fpr_at_95,
    nll,
    reliability,
    risk_coverage,
)

SEEDS = range(5)


def drawn(rows: int, classes: int, seed: int, concentration: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, and classes that are drawn from them: as calibrated as can be."""
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet([concentration] * classes, size=rows)
    y = (random.random((rows, 1)) > probabilities.cumsum(1)).sum(1).clip(max=classes - 1)
    return probabilities, y


def coarse(random: np.random.Generator, size: int, values: int = 6) -> np.ndarray:
    """Scores with many ties."""
    return random.integers(values, size=size) / values


# ---------------------------------------------------------------------- row by row


@pytest.mark.parametrize("seed", SEEDS)
def test_scores_by_row_are_scikit_learns(seed):
    probabilities, y = drawn(200, 4, seed)
    labels = list(range(4))
    assert float(nll(probabilities, y).mean()) == pytest.approx(metrics.log_loss(y, probabilities, labels=labels))
    assert accuracy(probabilities, y) == metrics.accuracy_score(y, probabilities.argmax(1))
    assert brier(probabilities, y).tolist() == pytest.approx(((probabilities - np.eye(4)[y]) ** 2).sum(1))


def test_brier_of_two_classes_is_twice_the_binary_one():
    probabilities, y = drawn(300, 2, 0)
    assert float(brier(probabilities, y).mean()) == pytest.approx(
        2 * metrics.brier_score_loss(y, probabilities[:, 1], pos_label=1)
    )


def test_certainty_right_and_wrong():
    probabilities = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert nll(probabilities, [0, 1]).tolist() == [0.0, math.inf]
    assert math.copysign(1, float(nll(probabilities, [0, 1])[0])) == 1
    assert brier(probabilities, [0, 1]).tolist() == [0.0, 2.0]
    assert correct(probabilities, [0, 1]).tolist() == [True, False]
    assert entropy(probabilities).tolist() == [0.0, 0.0]


def test_of_equal_probabilities_the_first_is_taken():
    even = torch.full((3, 3), 1 / 3)
    assert correct(even, [0, 1, 2]).tolist() == [True, False, False]
    assert reliability(even, [0, 1, 2]).accuracy.nan_to_num(0).sum() == pytest.approx(1 / 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_entropy_is_its_definition(seed):
    probabilities, _ = drawn(50, 5, seed, concentration=0.05)
    probabilities[:10] = np.eye(5).repeat(2, axis=0)
    expected = [-sum(p * math.log(p) for p in row if p > 0) for row in probabilities]
    torch.testing.assert_close(entropy(probabilities), torch.tensor(expected, dtype=torch.float64))
    assert bool((entropy(probabilities) >= 0).all())


def test_entropy_is_largest_for_even_probabilities_and_keeps_other_dimensions():
    probabilities = torch.full((4, 3, 8), 1 / 8)
    torch.testing.assert_close(entropy(probabilities), torch.full((4, 3), math.log(8), dtype=torch.float64))


@pytest.mark.parametrize("seed", SEEDS)
def test_proper_scores_are_least_for_the_truth(seed):
    """The mean score under p, which is its own expectation, is no larger than that of any other q."""
    random = np.random.default_rng(seed)
    truth, other = random.dirichlet([1.0] * 4, size=2)
    for score in (nll, brier):
        own, others = (torch.stack([score([q], [c])[0] for c in range(4)]) for q in (truth, other))
        assert float(torch.tensor(truth) @ own) < float(torch.tensor(truth) @ others)


# ---------------------------------------------------------------------- calibration


def ece_by_hand(confidence, is_right, bins) -> tuple[float, float]:
    """Bin by bin, in exact steps: lower < confidence <= upper, and zero in the first."""
    gaps, weights = [], []
    for b in range(bins):
        inside = [i for i, q in enumerate(confidence) if b / bins < q <= (b + 1) / bins or (b == 0 and q == 0)]
        if inside:
            gaps.append(abs(np.mean([is_right[i] for i in inside]) - np.mean([confidence[i] for i in inside])))
            weights.append(len(inside) / len(confidence))
    return float(np.dot(gaps, weights)), max(gaps)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bins", [1, 4, 15, 400])
def test_equal_width_bins_by_brute_force(seed, bins):
    probabilities, y = drawn(150, 3, seed)
    found = reliability(probabilities, y, bins)
    ece, mce = ece_by_hand(probabilities.max(1), probabilities.argmax(1) == y, bins)
    assert found.ece == pytest.approx(ece, abs=1e-12)
    assert found.mce == pytest.approx(mce, abs=1e-12)
    assert len(found) == bins
    assert int(found.count.sum()) == 150
    by_class = [ece_by_hand(probabilities[:, c], y == c, bins)[0] for c in range(3)]
    assert classwise_ece(probabilities, y, bins) == pytest.approx(np.mean(by_class), abs=1e-12)


def test_one_bin_is_the_gap_between_accuracy_and_confidence():
    probabilities, y = drawn(90, 3, 1)
    gap = abs(accuracy(probabilities, y) - probabilities.max(1).mean())
    for adaptive in (False, True):
        assert reliability(probabilities, y, 1, adaptive).ece == pytest.approx(gap)


def test_ends_of_bins_belong_to_the_lower_bin():
    """Also 0 to the first and 1 to the last."""
    first = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    found = reliability(torch.stack([first, 1 - first], 1), [0] * 5, bins=4)
    assert found.count.tolist() == [0, 1, 2, 2]  # top labels: 1, 0.75, 0.5, 0.75, 1
    assert found.lower.tolist() == [0, 0.25, 0.5, 0.75]
    assert found.upper.tolist() == [0.25, 0.5, 0.75, 1]
    assert math.isnan(float(found.gap[0]))
    # by class: 0 and 0.25 | 0.5 | 0.75 | 1, where class 0 is always right and class 1 never
    expected = (1 - 0.125) * 2 / 5 + 0.5 / 5 + (1 - 0.875) * 2 / 5
    assert classwise_ece(torch.stack([first, 1 - first], 1), [0] * 5, bins=4) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("rows", "bins"), [(150, 15), (97, 10), (8, 8), (7, 15), (1, 15)])
def test_adaptive_bins_hold_equal_counts(seed, rows, bins):
    probabilities, y = drawn(rows, 3, seed)
    found = reliability(probabilities, y, bins, adaptive=True)
    assert len(found) == min(rows, bins)
    assert int(found.count.max()) - int(found.count.min()) <= 1
    assert int(found.count.sum()) == rows
    order = np.argsort(probabilities.max(1))
    right = (probabilities.argmax(1) == y)[order]
    confidence = probabilities.max(1)[order]
    starts = np.r_[0, found.count.cumsum(0).numpy()]
    for b, (start, end) in enumerate(itertools.pairwise(starts)):
        assert float(found.confidence[b]) == pytest.approx(confidence[start:end].mean())
        assert float(found.accuracy[b]) == pytest.approx(right[start:end].mean())
        assert float(found.lower[b]) == confidence[start]
        assert float(found.upper[b]) == confidence[end - 1]


def test_equal_confidences_share_an_adaptive_bin():
    top = np.array([0.6] * 7 + [0.8] * 2 + [0.9])
    probabilities = np.stack([top, 1 - top], 1)
    found = reliability(probabilities, [0, 1] * 5, bins=5, adaptive=True)
    assert found.count.tolist() == [7, 2, 1]
    same = reliability(np.full((6, 2), 0.5), [0, 1] * 3, bins=5, adaptive=True)
    assert same.count.tolist() == [6]
    assert same.ece == 0


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_rows_does_not_matter(seed, adaptive):
    random = np.random.default_rng(seed)
    top = 0.5 + coarse(random, 60) / 2
    probabilities, y = np.stack([top, 1 - top], 1), random.integers(2, size=60)
    order = random.permutation(60)
    one = reliability(probabilities, y, 7, adaptive)
    other = reliability(probabilities[order], y[order], 7, adaptive)
    for name in ("lower", "upper", "count", "confidence", "accuracy"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), equal_nan=True)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_drawn_from_their_probabilities_are_calibrated_up_to_chance(seed, adaptive):
    """A bin's gap is nearly normal with variance s^2 = sum q (1 - q) / n^2, so its mean distance from 0 is known."""
    probabilities, y = drawn(20_000, 5, seed)
    found = reliability(probabilities, y, 10, adaptive)
    q = torch.from_numpy(probabilities.max(1))
    place = torch.bucketize(q, found.upper[:-1])
    variance = torch.zeros(len(found), dtype=torch.float64).index_add(0, place, q * (1 - q))
    filled = found.count > 0
    std = variance[filled].sqrt() / found.count[filled]
    weights = found.count[filled] / found.count.sum()
    expected = float((weights * std).sum()) * math.sqrt(2 / math.pi)
    spread = float((weights * std).square().sum().sqrt()) * math.sqrt(1 - 2 / math.pi)
    assert abs(found.ece - expected) < 4 * spread
    assert float((found.gap[filled].abs() / std).max()) < 4.5


def test_overconfidence_is_what_was_put_in():
    """Always 0.9 sure, and right in 600 of 1000 rows."""
    found = reliability([[0.9, 0.1]] * 1000, [0] * 600 + [1] * 400)
    assert found.ece == pytest.approx(0.3)
    assert found.mce == pytest.approx(0.3)
    assert float(found.gap.nansum()) == pytest.approx(-0.3)
    assert repr(found) == "Reliability(1000 rows in 15 bins, ece 0.3000)"
    table = found.table()
    assert len(table) == 15
    assert table["rows"][13] == 1000
    assert "-" in str(table)  # empty bins


# ---------------------------------------------------------------------- rows from elsewhere


CASES = {
    "apart": lambda g: (g.normal(size=50), g.normal(size=70) + 2),
    "ties": lambda g: (coarse(g, 80), coarse(g, 33)),
    "all the same": lambda g: (np.ones(9), np.ones(4)),
    "one each": lambda g: (g.normal(size=1), g.normal(size=1)),
    "infinite": lambda g: (np.r_[-np.inf, g.normal(size=20)], np.r_[np.inf, np.inf, g.normal(size=20)]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_detection_by_brute_force(case, seed):
    inside, outside = CASES[case](np.random.default_rng(seed))
    pairs = [(a < b) + 0.5 * (a == b) for a in inside for b in outside]
    assert auroc(inside, outside) == pytest.approx(np.mean(pairs), abs=1e-12)
    area, before = 0.0, 0.0
    for threshold in sorted({*inside, *outside}, reverse=True):
        caught, alarms = (outside >= threshold).sum(), (inside >= threshold).sum()
        area += (caught / len(outside) - before) * caught / (caught + alarms)
        before = caught / len(outside)
    assert aupr(inside, outside) == pytest.approx(area, abs=1e-12)
    rates = [(inside >= t).mean() for t in {*inside, *outside} if (outside >= t).mean() >= 0.95]
    assert fpr_at_95(inside, outside) == pytest.approx(min(rates), abs=1e-12)


@pytest.mark.parametrize("case", ["apart", "ties", "all the same", "one each"])
@pytest.mark.parametrize("seed", SEEDS)
def test_detection_is_scikit_learns(case, seed):
    inside, outside = CASES[case](np.random.default_rng(seed))
    truth, scores = np.r_[np.zeros(len(inside)), np.ones(len(outside))], np.r_[inside, outside]
    assert auroc(inside, outside) == pytest.approx(metrics.roc_auc_score(truth, scores), abs=1e-12)
    assert aupr(inside, outside) == pytest.approx(metrics.average_precision_score(truth, scores), abs=1e-12)
    false, true, _ = metrics.roc_curve(truth, scores, drop_intermediate=False)
    assert fpr_at_95(inside, outside) == pytest.approx(false[true >= 0.95].min(), abs=1e-12)


def test_detection_of_normal_scores_is_its_closed_form():
    """P(N(d, 1) > N(0, 1)) = Phi(d / sqrt(2)), within four standard errors."""
    random = np.random.default_rng(3)
    inside, outside = random.normal(size=40_000), random.normal(size=40_000) + 1
    expected = 0.5 * (1 + math.erf(0.5))
    assert abs(auroc(inside, outside) - expected) < 4 * math.sqrt(0.25 / 40_000)
    assert auroc(outside, inside) == pytest.approx(1 - auroc(inside, outside))


def test_detection_at_its_ends():
    assert auroc([0.0, 1.0], [2.0, 3.0]) == aupr([0.0, 1.0], [2.0, 3.0]) == 1
    assert auroc([2.0, 3.0], [0.0, 1.0]) == 0
    assert fpr_at_95([0.0, 1.0], [2.0, 3.0]) == 0
    assert fpr_at_95([2.0, 3.0], [0.0, 1.0]) == 1
    assert fpr_at_95(range(100), [200] * 19 + [0]) == 0  # 19 of 20 are 95%


def test_detection_does_not_depend_on_the_scale():
    random = np.random.default_rng(0)
    inside, outside = random.normal(size=60), random.normal(size=40) + 0.5
    for score in (auroc, aupr, fpr_at_95):
        assert score(inside, outside) == score(np.exp(inside), np.exp(outside))


# ---------------------------------------------------------------------- answering only when sure


@pytest.mark.parametrize("seed", SEEDS)
def test_risk_without_ties_is_a_running_mean(seed):
    random = np.random.default_rng(seed)
    confidence, errors = random.random(40), random.random(40) < 0.3
    found = risk_coverage(confidence, errors)
    sorted_errors = errors[np.argsort(-confidence)]
    running = [sorted_errors[: k + 1].mean() for k in range(40)]
    assert found.risk.tolist() == pytest.approx(running)
    assert found.coverage.tolist() == pytest.approx([(k + 1) / 40 for k in range(40)])
    assert found.area == pytest.approx(np.mean(running))
    best = [np.sort(errors)[: k + 1].mean() for k in range(40)]
    assert found.excess_area == pytest.approx(np.mean(running) - np.mean(best))
    assert found.excess_area >= 0


@pytest.mark.parametrize("seed", SEEDS)
def test_risk_with_ties_is_the_mean_over_all_orders(seed):
    """Every order of seven rows that sorts the confidence, each as likely as the others."""
    random = np.random.default_rng(seed)
    confidence, losses = coarse(random, 7, values=3), random.random(7)
    curves = []
    for order in itertools.permutations(range(7)):
        if all(confidence[a] >= confidence[b] for a, b in itertools.pairwise(order)):
            curves.append(losses[list(order)].cumsum() / np.arange(1, 8))
    found = risk_coverage(confidence, losses)
    assert found.risk.tolist() == pytest.approx(np.mean(curves, 0).tolist())
    order = random.permutation(7)
    torch.testing.assert_close(found.risk, risk_coverage(confidence[order], losses[order]).risk)


def test_risk_closed_forms():
    errors = [True] * 3 + [False] * 7
    same = risk_coverage([0.5] * 10, errors)
    assert same.area == pytest.approx(0.3)
    perfect = risk_coverage([0.1] * 3 + [0.9] * 7, errors)
    assert perfect.excess_area == pytest.approx(0)
    assert perfect.area == pytest.approx((1 / 8 + 2 / 9 + 3 / 10) / 10)
    worst = risk_coverage([0.9] * 3 + [0.1] * 7, errors)
    assert worst.excess_area > same.excess_area > 0
    assert worst.risk.tolist()[:3] == [1, 1, 1]


def test_risk_at_a_coverage():
    found = risk_coverage(np.arange(100)[::-1], np.arange(100) % 2)
    assert found.risk_at(0.07) == pytest.approx(3 / 7)  # 0.07 * 100 is a little more than 7
    assert found.risk_at(0.065) == pytest.approx(3 / 7)
    assert found.risk_at(1e-12) == 0
    assert found.risk_at(1.0) == 0.5
    table = found.table()
    assert table["coverage"] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert table["rows"] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert found.table([0.5])["best"] == [0.0]
    assert repr(risk_coverage([1.0], [False])) == "RiskCoverage(1 row, area 0.0000, 0.0000 above the best)"
    for wrong in (0.0, 1.01, math.nan):
        with pytest.raises(ValueError, match="a coverage lies above 0"):
            found.risk_at(wrong)


# ---------------------------------------------------------------------- what is given


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_tensors_of_any_precision_are_taken_and_answered_in_double(dtype):
    probabilities = torch.softmax(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), 1).to(dtype)
    probabilities.requires_grad_()
    y = torch.arange(20) % 4
    for score in (nll, brier):
        assert score(probabilities, y).dtype == torch.float64
        assert not score(probabilities, y).requires_grad
        torch.testing.assert_close(score(probabilities, y), score(probabilities.detach().double(), y.int()))
    assert entropy(probabilities).dtype == torch.float64


GOOD = [[0.5, 0.5], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("probabilities", "y", "said"),
    [
        ([[1.5, -0.5]], [0], "must not be negative"),
        ([[math.nan, 1.0]], [0], "must not be negative, nor nan"),
        ([[2.0, 3.0], [0.5, 0.5]], [0, 1], "1 of 2 rows are off, by up to 4. Are they logits"),
        ([[math.inf, 0.0]], [0], "must add up to 1"),
        (np.empty((0, 3)), [], "there are no probabilities here"),
        (np.empty((3, 0)), [0, 0, 0], "there are no probabilities here"),
        ([0.5, 0.5], [0, 1], "a table of rows by classes"),
        ([GOOD], [0, 1], "a table of rows by classes"),
        (GOOD, [0], r"for 2 rows, but y has shape \(1,\)"),
        (GOOD, [[0], [1]], r"y has shape \(2, 1\)"),
        (GOOD, [0, 2], "y must be from 0 to 1; it goes from 0 to 2"),
        (GOOD, [-1, 1], "y must be from 0 to 1; it goes from -1 to 1"),
        (GOOD, [0.0, 1.0], "as integers; its type is float64"),
        (GOOD, ["a", "b"], "as integers; its type is <U1"),
    ],
)
def test_what_is_not_probabilities_or_classes_is_named(probabilities, y, said):
    for score in (nll, brier, correct, accuracy, reliability, classwise_ece):
        with pytest.raises(ValueError, match=said):
            score(probabilities, y)


@pytest.mark.parametrize("bins", [0, -1, 2.5])
def test_bins_are_a_number(bins):
    for score in (reliability, classwise_ece):
        with pytest.raises(ValueError, match="bins must be a whole number"):
            score(GOOD, [0, 1], bins=bins)


def test_what_are_not_scores_is_named():
    for score in (auroc, aupr, fpr_at_95):
        with pytest.raises(ValueError, match="inside must be one number for each row"):
            score([], [1.0])
        with pytest.raises(ValueError, match="outside must be one number for each row"):
            score([1.0], [[1.0]])
        with pytest.raises(ValueError, match="outside must be numbers; some are nan"):
            score([1.0], [math.nan])
    with pytest.raises(ValueError, match=r"2 confidences, but errors of shape \(1,\)"):
        risk_coverage([0.1, 0.2], [True])
    with pytest.raises(ValueError, match="confidence must be one number"):
        risk_coverage([], [])
    with pytest.raises(ValueError, match="errors must be finite"):
        risk_coverage([0.1], [math.inf])


def test_lists_arrays_and_frames_are_taken():
    frame, series = pandas.DataFrame(GOOD), pandas.Series([1, 0])
    fixed = np.array(GOOD)[:, ::-1]
    fixed.setflags(write=False)
    for probabilities, y in (
        (GOOD, [1, 0]),
        (np.array(GOOD), np.array([1, 0], np.uint8)),
        (frame, series),
        (fixed, [False, True]),
    ):
        torch.testing.assert_close(nll(probabilities, y), -torch.tensor([0.5, 0.2], dtype=torch.float64).log())
