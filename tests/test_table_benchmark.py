"""The benchmark on real tables: its scores and comparisons against oracles, and its folds."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from tabular.answers import Classes, Quantities, Z
from tabular.comparing import record
from tabular.encoding import Matrix
from tabular.sets import FOLDS, Problem, TableSet


def _problem(rows: int, per_group: int = 1, labels: tuple[str, ...] = ()) -> Problem:
    random = np.random.default_rng(0)
    y = random.integers(len(labels), size=rows).astype(float) if labels else random.normal(size=rows)
    frame = pd.DataFrame({"x": random.normal(size=rows), "y": y})
    about = TableSet("made", "", "", "y", bool(labels), group=None if per_group == 1 else "g")
    return Problem(about, "y", frame, y, labels, np.arange(rows) // per_group)


def test_gaussian_scores_are_those_of_scipy_and_of_an_integral() -> None:
    stats = pytest.importorskip("scipy.stats")
    mean, std, y = np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.5, 3.0]), np.array([0.3, 2.0, -7.0])
    scores = Quantities.gaussian(mean, std).scored(y)
    np.testing.assert_allclose(scores["nll"], -stats.norm(mean, std).logpdf(y), rtol=1e-5)
    points = np.linspace(-40, 40, 400_001)[:, None]
    gaps = (stats.norm(mean, std).cdf(points) - (points >= y)) ** 2  # CRPS = integral of (F - 1[y <= .])^2
    np.testing.assert_allclose(scores["crps"], gaps.sum(0) * (points[1] - points[0]), rtol=1e-3)
    np.testing.assert_allclose(scores["width"], 2 * Z * std, rtol=1e-5)
    assert scores["covered"] == [1.0, 0.0, 1.0]  # 2.0 is two standard deviations from 1.0


def test_class_scores_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(3), size=50)
    y = random.integers(3, size=50).astype(float)
    scores = Classes(p).scored(y)
    assert np.mean(scores["nll"]) == pytest.approx(metrics.log_loss(y, p), rel=1e-4)
    assert np.mean(scores["brier"]) == pytest.approx(((p - np.eye(3)[y.astype(int)]) ** 2).sum(1).mean(), rel=1e-4)


def test_auc_is_that_of_scikit_learn_with_ties() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    y = random.integers(2, size=80).astype(float)
    p = np.round(0.3 * y + 0.7 * random.random(80), 1)
    part = {"repeat": 0, "fold": 0, "rows": list(range(80)), "scores": Classes(np.stack([1 - p, p], 1)).scored(y)}
    together = record([part], y, np.arange(80))
    assert together.auc() == pytest.approx(metrics.roc_auc_score(y, p), abs=1e-9)


def test_differences_are_paired_by_row_and_clustered_by_group() -> None:
    random = np.random.default_rng(0)
    ours, theirs = random.normal(size=(2, 60))

    def of(values: np.ndarray, groups: np.ndarray):
        halves = np.split(np.arange(60), 2)
        parts = [
            {"repeat": 0, "fold": k, "rows": rows.tolist(), "scores": {"nll": values[rows].tolist()}}
            for k, rows in enumerate(halves)
        ]
        return record(parts, np.zeros(60), groups)

    alone, in_threes = np.arange(60), np.arange(60) // 3
    compared = of(ours, alone).against(of(theirs, alone), "nll")
    difference = ours - theirs
    assert compared.difference == pytest.approx(difference.mean())
    assert compared.error == pytest.approx(difference.std(ddof=1) / np.sqrt(60))
    grouped = of(ours, in_threes).against(of(theirs, in_threes), "nll")
    means = difference.reshape(20, 3).mean(1)  # groups of one size: as if each were one row
    assert grouped.error == pytest.approx(means.std(ddof=1) / np.sqrt(20))


def test_claims_are_compared_with_the_test_rows() -> None:
    nll = np.random.default_rng(0).normal(size=40)
    part = {"repeat": 0, "fold": 0, "rows": list(range(40)), "scores": {"nll": nll.tolist()}, "claim": [0.5, 0.3]}
    (claimed,) = record([part], np.zeros(40), np.arange(40)).claims()
    assert claimed.gap == pytest.approx(nll.mean() - 0.5)
    assert claimed.z == pytest.approx(claimed.gap / np.hypot(0.3, nll.std(ddof=1) / np.sqrt(40)))


@pytest.mark.parametrize("problem", [_problem(103), _problem(90, per_group=4), _problem(97, labels=("a", "b"))])
def test_folds_part_the_rows_and_keep_groups_together(problem: Problem) -> None:
    tested = []
    for fold in range(FOLDS):
        train, test = problem.fold(0, fold)
        assert not set(problem.groups[train]) & set(problem.groups[test])
        assert len(train) + len(test) == len(problem.y)
        tested += test.tolist()
        if problem.labels:
            assert abs(problem.y[test].mean() - problem.y.mean()) < 0.06
    assert sorted(tested) == list(range(len(problem.y)))


def test_the_matrix_fills_gaps_with_the_median_and_keeps_rare_levels_together() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, None, 9.0] * 5, "b": ["x"] * 10 + ["y"] * 9 + ["z"]})
    matrix = Matrix.of(frame)
    values = matrix(frame)
    assert values.shape == (20, 5)  # a, its gaps, x, y, others
    np.testing.assert_allclose(values.mean(0), 0, atol=1e-12)
    filled, direct = (matrix(pd.DataFrame({"a": [a], "b": ["new"]})) for a in (None, 2.0))
    assert filled[0, 0] == direct[0, 0]
    assert filled[0, 1] > direct[0, 1]
