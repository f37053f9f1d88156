"""Scores, their standard errors against repetition, and what no model scores."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from wherefrom.tables.scores import Scores, share_error, together


def quantity_rows(random, count):
    y = random.gamma(2.0, 3.0, count)
    error = random.normal(size=count) * np.sqrt(y)
    return {
        "error": [error],
        "truth": [y],
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
        "right": [probabilities.argmax(1) == place],
        "probabilities": [probabilities],
        "place": [place],
    }


@pytest.mark.parametrize("made", [quantity_rows, class_rows])
def test_errors_are_the_spread_of_scores_over_repetitions(made):
    random, repeated = np.random.default_rng(0), 300
    found = [together(made(random, 400), 0.95) for _ in range(repeated)]
    for name in found[0].errors:
        spread = np.std([scores[name] for scores in found], ddof=1)
        told = np.mean([scores.errors[name] for scores in found])
        # a standard deviation of 300 values is known to 1 in sqrt(600), four of which are 16%
        assert told == pytest.approx(spread, rel=4 / np.sqrt(2 * repeated)), name


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_auc_is_scikit_learns(classes):
    rows = class_rows(np.random.default_rng(1), 200, classes)
    probabilities, place = rows["probabilities"][0], rows["place"][0]
    given = probabilities[:, 1] if classes == 2 else probabilities
    assert together(rows, 0.95)["AUC"] == pytest.approx(roc_auc_score(place, given, multi_class="ovr"))


def test_the_same_answer_for_all_is_scored_beside():
    random = np.random.default_rng(2)
    rows = quantity_rows(random, 300)
    y, found = rows["truth"][0], together(rows, 0.95).baselines
    assert found["RMSE"] == pytest.approx(np.sqrt(np.mean((y - y.mean()) ** 2)))
    assert found["CRPS"] == pytest.approx(np.abs(y[:, None] - y[None]).mean() / 2)
    density = np.exp(-((y - y.mean()) ** 2) / (2 * y.var())) / np.sqrt(2 * np.pi * y.var())
    assert found["NLL"] == pytest.approx(-np.log(density).mean())
    rows = class_rows(random, 300)
    place, found = rows["place"][0], together(rows, 0.95).baselines
    shares = np.bincount(place) / len(place)
    assert found["NLL"] == pytest.approx(-np.log(shares[place]).mean())
    assert found["Brier score"] == pytest.approx(((shares - np.eye(3)[place]) ** 2).sum(1).mean())


def test_a_class_that_is_not_there_does_not_count():
    rows = class_rows(np.random.default_rng(3), 100)
    rows["place"] = [np.minimum(rows["place"][0], 1)]
    found = together(rows, 0.95)
    probabilities, place = rows["probabilities"][0], rows["place"][0]
    each = [roc_auc_score(place == one, probabilities[:, one]) for one in (0, 1)]
    assert found["AUC"] == pytest.approx(np.mean(each))
    rows["place"] = [np.zeros(100, dtype=np.int64)]
    assert "AUC" not in together(rows, 0.95).values


def test_what_says_little_is_told():
    assert together(quantity_rows(np.random.default_rng(4), 4), 0.95).remarks()[0].startswith("4 rows can tell little")
    vain = Scores(500, {"NLL": 0.69}, {"NLL": 0.02}, {"NLL": 0.693})
    assert "hardly better" in vain.remarks()[0]
    assert Scores(500, {"NLL": 0.5}, {"NLL": 0.02}, {"NLL": 0.693}).remarks() == []
    assert share_error(np.ones(4, dtype=bool)) > 0.1


def test_scores_go_into_json_and_back():
    found = together(class_rows(np.random.default_rng(5), 50), 0.95)
    assert Scores.from_json(found.to_json()) == found
    assert Scores.from_json({"scores": {"rows": 3, "RMSE": 1.5}}) == Scores(3, {"RMSE": 1.5})
