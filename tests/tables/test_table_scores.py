"""Scores of a table's rows: their errors against repetition, what no model scores, and what is said of them."""

import numpy as np
import pytest
import torch
from scipy import stats

from reloaded import reloaded
from wherefrom.likelihoods import ClassPrediction, CountPrediction, Prediction
from wherefrom.predictive.row_scores import avoidable_coverage
from wherefrom.tables import scores
from wherefrom.tables.scores import Scores
from wherefrom.tables.writing import finite


def together(parts, level):
    """The scores of rows by whichever prediction gave them."""
    kind = ClassPrediction if "class" in parts else Prediction
    return scores.together(kind.summary, parts, level)


def quantity_rows(random, count):
    y = random.gamma(2.0, 3.0, count)
    error = random.normal(size=count) * np.sqrt(y)
    return {
        "truth": [y],
        "mean": [y - error],
        "covered": [np.abs(error) < 4],
        "width": [np.full(count, 8.0)],
        "crps": [np.abs(error) / 2],
        "nll": [error**2 / 2],
    }


def class_rows(random, count, classes=3):
    logits = random.normal(size=(count, classes))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    place = np.array([random.choice(classes, p=row) for row in probabilities])
    return {
        "nll": [-np.log(probabilities[np.arange(count), place])],
        "brier": [((probabilities - np.eye(classes)[place]) ** 2).sum(1)],
        "probabilities": [probabilities],
        "class": [place],
        "covered": [probabilities[np.arange(count), place] > 0.1],
        "size": [(probabilities > 0.1).sum(1)],
    }


@pytest.mark.slow
@pytest.mark.parametrize("made", [quantity_rows, class_rows])
def test_errors_are_the_spread_of_scores_over_repetitions(made):
    random, repeated = np.random.default_rng(0), 300
    found = [together(made(random, 400), 0.95) for _ in range(repeated)]
    for name in found[0].errors:
        if name == "ECE":  # is far from normal where the run is calibrated
            continue
        spread = np.std([scores[name] for scores in found], ddof=1)
        told = np.mean([scores.errors[name] for scores in found])
        # a standard deviation of 300 values is known to 1 in sqrt(600), four of which are 16%
        assert told == pytest.approx(spread, rel=4 / np.sqrt(2 * repeated)), name


def test_parts_of_a_table_are_put_together():
    rows = quantity_rows(np.random.default_rng(1), 100)
    parts = {name: [own[:30], own[30:]] for name, (own,) in rows.items()}
    assert together(parts, 0.9) == together(rows, 0.9)
    assert together(rows, 0.9).values["coverage of the 90% interval"] == rows["covered"][0].mean()
    assert not together({}, 0.9)


def test_what_is_not_defined_is_left_out():
    rows = quantity_rows(np.random.default_rng(2), 50)
    alike = rows | {"truth": [np.ones(50)]}
    del alike["nll"]
    found = together(alike, 0.95)
    assert "NLL" not in found.values
    assert "R2" not in found.values
    assert "NLL" not in together(rows | {"nll": [rows["nll"][0][:20]]}, 0.95).values  # the others have none
    assert found.baselines["RMSE"] == 0
    rows = class_rows(np.random.default_rng(3), 100) | {"class": [np.zeros(100, dtype=np.int64)]}
    assert "AUC" not in together(rows, 0.95).baselines


def test_scores_are_shown_in_their_order_and_with_the_digits_that_errors_allow():
    shown = str(together(quantity_rows(np.random.default_rng(4), 400), 0.95).table())
    assert [line.split("  ")[0] for line in shown.splitlines()] == [
        "score",
        "RMSE",
        "R2",
        "CRPS",
        "NLL",
        "coverage of the 95% interval",
        "mean width of the interval",
    ]
    found = Scores(9, {"RMSE": 123.456, "coverage": 0.95333}, {"RMSE": 2.345, "coverage": 0.0123}, {"RMSE": 130.0})
    assert str(found.table()).splitlines()[1:] == ["RMSE      123.5       2.3   130.0", "coverage  95.3%       1.2%"]


def test_what_says_little_is_told():
    assert together(quantity_rows(np.random.default_rng(4), 4), 0.95).remarks()[0].startswith("4 rows can tell little")
    vain = Scores(500, {"NLL": 0.69}, {"NLL": 0.02}, {"NLL": 0.693})
    assert "hardly better" in vain.remarks()[0]
    assert Scores(500, {"NLL": 0.5}, {"NLL": 0.02}, {"NLL": 0.693}).remarks() == []
    assert "worse than" in Scores(500, {"NLL": 8.0}, {"NLL": 0.1}, {"NLL": 1.8}).remarks()[0]


def test_scores_go_into_a_file_and_back():
    found = together(class_rows(np.random.default_rng(5), 50), 0.95)
    assert reloaded(found) == found
    assert finite(Scores(2, {"NLL": np.inf}).shown())["scores"] == {"rows": 2, "NLL": None}


def count_rows(random, rows, wider=0):
    """Counts of a known distribution, with its own central intervals, and those that are wider by some counts."""
    mean = np.exp(random.normal(0.3, 0.8, rows))
    known = stats.nbinom(2.0, 2.0 / (2.0 + mean))
    y, low, high = known.rvs(random_state=random), known.ppf(0.025), known.ppf(0.975) + wider
    return {
        "truth": [y.astype(float)],
        "mean": [mean],
        "covered": [(y >= low) & (y <= high)],
        "lower": [low],
        "upper": [high],
        "width": [high - low],
        "crps": [np.abs(y - mean)],
        "nll": [-known.logpmf(y)],
    }


def test_intervals_of_counts_are_off_only_if_narrower_ones_would_do():
    """By their own distribution they hold more than 95%: counts have no others, and one is too wide by a few counts."""
    coverage, flagged = [], 0
    for seed in range(40):
        found = scores.together(CountPrediction.summary, count_rows(np.random.default_rng(seed), 1000), 0.95)
        coverage.append(found["coverage of the 95% interval"])
        flagged += found.off() is not None
    assert np.mean(coverage) > 0.97
    assert flagged <= 4  # one in twenty overall, and as many in a fifth
    wide = scores.together(CountPrediction.summary, count_rows(np.random.default_rng(0), 1000, wider=4), 0.95)
    assert wide.off().say.startswith("intervals contain the truth more often than they should: 99.")
    assert reloaded(wide) == wide


def test_where_single_values_have_no_probability_all_coverage_can_be_avoided():
    random = np.random.default_rng(3)
    for shift in (-1.0, 0.0, 0.7):
        y, low, high = (torch.from_numpy(random.normal(mean, 0.3, 500)) for mean in (shift, -1.5, 1.5))
        held = float(((y >= low) & (y <= high)).double().mean())
        for level in (0.5, 0.9, 0.95, 0.999):
            assert avoidable_coverage(y, low, high, level) == pytest.approx(held)
