"""Scores of rows and how sure they are: against scikit-learn, SciPy, and the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wherefrom.predictive import class_scores, row_scores
from wherefrom.predictive.row_scores import Score


def bootstrapped(score, *columns: torch.Tensor, times: int = 2000) -> float:
    """The standard deviation of a score over rows drawn with replacement."""
    generator = torch.Generator().manual_seed(0)
    count = len(columns[0])
    draws = (torch.randint(count, (count,), generator=generator) for _ in range(times))
    return float(np.std([score(*(column[draw] for column in columns)) for draw in draws]))


@pytest.fixture
def quantity() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    y = torch.randn(400, generator=generator, dtype=torch.float64).exp()
    return y, 0.5 * y + 0.3 * torch.randn(400, generator=generator, dtype=torch.float64)


@pytest.fixture
def classes() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    probabilities = torch.softmax(2 * torch.randn(300, 3, generator=generator, dtype=torch.float64), 1)
    return probabilities, torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


def found(y: torch.Tensor, mean: torch.Tensor) -> dict[str, Score]:
    away = (mean - y).abs()
    return row_scores.of_quantities(y, mean, away < 1, away, away)


def test_errors_of_quantities_are_those_of_the_bootstrap(quantity):
    y, mean = quantity
    own = found(y, mean)
    rmse = bootstrapped(lambda y, mean: float((mean - y).square().mean().sqrt()), y, mean)
    explained = bootstrapped(lambda y, mean: 1 - float((mean - y).square().mean() / y.var(correction=0)), y, mean)
    held = bootstrapped(lambda y, mean: float(((mean - y).abs() < 1).double().mean()), y, mean)
    assert own["rmse"].error == pytest.approx(rmse, rel=0.12)
    assert own["r2"].error == pytest.approx(explained, rel=0.12)
    assert own["coverage"].error == pytest.approx(held, rel=0.12)
    assert own["nll"].value == pytest.approx(float((mean - y).abs().mean()))


def test_explained_variance_is_that_of_sklearn(quantity):
    metrics = pytest.importorskip("sklearn.metrics")
    y, mean = quantity
    assert found(y, mean)["r2"].value == pytest.approx(metrics.r2_score(y, mean))


def test_auc_is_that_of_sklearn_and_its_error_that_of_the_bootstrap(classes):
    metrics = pytest.importorskip("sklearn.metrics")
    probabilities, y = classes
    own = row_scores.auc(probabilities, y)
    assert own.value == pytest.approx(metrics.roc_auc_score(y, probabilities, multi_class="ovr"))
    spread = bootstrapped(lambda p, y: row_scores.auc(p, y).value, probabilities, y, times=500)
    assert own.error == pytest.approx(spread, rel=0.12)
    pair = probabilities[:, :2] / probabilities[:, :2].sum(1, keepdim=True)
    assert row_scores.auc(pair, (y == 1).long()).value == pytest.approx(metrics.roc_auc_score(y == 1, pair[:, 1]))


def test_auc_of_a_class_that_is_not_there_is_unknown_and_of_few_rows_unsure():
    ranked = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7]])
    assert row_scores.auc(ranked, torch.zeros(4, dtype=torch.long)) == Score(None)
    perfect = row_scores.auc(ranked, torch.tensor([0, 0, 1, 1]))
    assert perfect.value == 1
    assert perfect.interval[0] < 0.5
    tied = row_scores.auc(torch.full((4, 2), 0.5), torch.tensor([0, 0, 1, 1]))
    assert tied.value == 0.5


def test_shares_near_the_ends_have_an_interval():
    binomial = pytest.importorskip("scipy.stats").binomtest
    for hits, count in ((4, 4), (0, 7), (97, 100)):
        own = Score.share(torch.arange(count) < hits)
        expected = binomial(hits, count).proportion_ci(method="wilson")
        assert own.interval == pytest.approx((expected.low, expected.high))
    assert Score.share(torch.arange(100) < 50).interval is None
    assert Score.share(torch.arange(100) < 50).error == pytest.approx(0.05)


def test_the_same_answer_for_all(quantity):
    y, _ = quantity
    none = row_scores.always_the_same(y)
    std = float(y.std(correction=0))
    gaussian = torch.distributions.Normal(y.mean(), std)
    assert none["nll"] == pytest.approx(float(-gaussian.log_prob(y).mean()))
    grid = torch.linspace(-10, 40, 20001, dtype=torch.float64)
    steps = (gaussian.cdf(grid)[:, None] - (grid[:, None] >= y).double()).square()
    assert none["crps"] == pytest.approx(float(steps.mean() * 50), rel=0.01)
    assert row_scores.always_the_same(torch.ones(3)) == {"rmse": 0.0}


def test_the_shares_of_all_for_all(classes):
    _, y = classes
    none, share = row_scores.always_the_shares(y, 3), torch.bincount(y).double() / len(y)
    table = share.expand(len(y), -1)
    assert none["nll"] == pytest.approx(float(class_scores.nll(table, y).mean()))
    assert none["brier"] == pytest.approx(float(class_scores.brier(table, y).mean()))
    assert none["accuracy"] == pytest.approx(class_scores.accuracy(table, y))
