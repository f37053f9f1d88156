"""Neighbours of a table's scores, against scikit-learn and by hand."""

import math

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler

from wherefrom.likelihoods import Survival
from wherefrom.predictive import survival_scores
from wherefrom.tables import neighbours
from wherefrom.tables.neighbours import LINEAR, OWN, TREES, compared
from wherefrom.training.survival import LAWS, same_for_all


@pytest.fixture
def table(random):
    x = random.normal(size=(300, 4))
    return x, x[:, 0] - 2 * x[:, 1] + np.sin(2 * x[:, 2]) + random.normal(size=300), np.arange(300) % 5


def _named(x, y, parts, task="regression", level=0.9, ours=None, judged=None):
    judged = np.arange(len(y)) if judged is None else judged
    ours = {"nll": np.zeros(len(judged))} if ours is None else ours
    return {each.name: each for each in compared(x, y, parts, judged, task, level, ours)}


def test_the_target_itself_is_its_own_distribution(table):
    x, y, parts = table
    own = _named(x, y, parts)[OWN]
    nll, crps, covered = [], [], []
    for part in range(5):
        train, test = y[parts != part], y[parts == part]
        iqr = np.subtract(*np.quantile(train, [0.75, 0.25])) / 1.349
        kernel = KernelDensity(bandwidth=0.9 * min(train.std(), iqr) * len(train) ** -0.2).fit(train[:, None])
        nll += (-kernel.score_samples(test[:, None])).tolist()
        apart = np.abs(train[:, None] - train).mean()
        crps += (np.abs(test[:, None] - train).mean(1) - apart / 2).tolist()
        low, high = np.quantile(train, [0.05, 0.95])
        covered += ((test >= low) & (test <= high)).tolist()
    assert own.scores["nll"] == pytest.approx(np.mean(nll), rel=1e-6)
    assert own.scores["crps"] == pytest.approx(np.mean(crps), rel=1e-9)
    assert own.scores["coverage"] == pytest.approx(np.mean(covered))


def test_the_linear_model_is_ridge_regression(table):
    x, y, parts = table
    linear = _named(x, y, parts)[LINEAR]
    mean = np.empty(300)
    for part in range(5):
        train = parts != part
        scaler = StandardScaler().fit(x[train])
        ridge = RidgeCV(alphas=neighbours._PENALTIES * train.sum()).fit(scaler.transform(x[train]), y[train])
        mean[~train] = ridge.predict(scaler.transform(x[~train]))
    assert linear.scores["rmse"] == pytest.approx(math.sqrt(np.mean((y - mean) ** 2)), rel=1e-6)
    nll = []
    for part in range(5):
        variance = np.mean((y - mean)[parts != part] ** 2)
        nll += (0.5 * np.log(2 * np.pi * variance) + (y - mean)[parts == part] ** 2 / (2 * variance)).tolist()
    assert linear.scores["nll"] == pytest.approx(np.mean(nll), rel=1e-6)
    assert 0.8 < linear.scores["coverage"] < 0.97


def test_trees_are_those_of_scikit_learn(table):
    x, y, parts = table
    mean = np.empty(300)
    for part in range(5):
        train = parts != part
        settings = {"max_leaf_nodes": 15, "learning_rate": 0.2}
        model = HistGradientBoostingRegressor(early_stopping=True, random_state=0, **settings).fit(x[train], y[train])
        mean[~train] = model.predict(x[~train])
    assert _named(x, y, parts)[TREES].scores["rmse"] == pytest.approx(math.sqrt(np.mean((y - mean) ** 2)))


def test_classes(table, random):
    x, y, parts = table
    labels = (y + random.normal(size=300) > 1).astype(float)
    named = _named(x, labels, parts, "classification")
    mean = np.empty(300)
    for part in range(5):
        train = parts != part
        scaler = StandardScaler().fit(x[train])
        mean[~train] = (
            LogisticRegression()
            .fit(scaler.transform(x[train]), labels[train])
            .predict_proba(scaler.transform(x[~train]))[:, 1]
        )
    assert named[LINEAR].scores["nll"] == pytest.approx(log_loss(labels, mean), rel=1e-3)
    assert named[LINEAR].scores["auc"] == pytest.approx(roc_auc_score(labels, mean), abs=1e-3)
    assert named[TREES].scores["nll"] < named[OWN].scores["nll"]


def test_a_class_that_a_fold_lacks(table):
    x, _, parts = table
    labels = np.zeros(300)
    labels[::3] = 1
    labels[0] = 2  # alone: the folds that answer it have not seen it
    named = _named(x, labels, parts, "classification")
    assert all(math.isfinite(each.scores["nll"]) for each in named.values())


def test_counts(table, random):
    x, _, parts = table
    y = random.poisson(np.exp(0.3 + 0.8 * x[:, 0])).astype(float)
    named = _named(x, y, parts, "counts")
    assert named[LINEAR].scores["nll"] < named[OWN].scores["nll"]


def test_the_gain_is_that_of_paired_rows(table):
    x, y, parts = table
    rows = {"nll": np.random.default_rng(0).normal(2, 1, size=300)}
    linear = _named(x, y, parts, ours=rows)[LINEAR]
    assert linear.gain == pytest.approx(rows["nll"].mean() - linear.scores["nll"])
    assert linear.error == pytest.approx(1 / math.sqrt(300), rel=0.3)
    assert linear.is_better == (linear.gain > 2 * linear.error)
    assert linear.claim.startswith("a linear model would be better here: the NLL is lower by")


@pytest.mark.parametrize("task", ["regression", "counts", "classification"])
def test_of_a_large_table_as_many_folds_are_answered_as_are_enough(table, task, monkeypatch):
    """Models are trained on all rows of the other folds, and scores are of the rows in the folds that are answered."""
    x, y, parts = table
    y = {"regression": y, "counts": np.round(np.exp(y / 3)), "classification": (y > 0).astype(float)}[task]
    first, gain = np.flatnonzero(parts < 3), np.linspace(0, 1, 300)
    expected = _named(x, y, parts, task, ours={"nll": gain[first]}, judged=first)
    monkeypatch.setattr(neighbours, "_ENOUGH_ROWS", 170)
    some = _named(x, y, parts, task, ours={"nll": gain})
    assert set(some) == {OWN, LINEAR, TREES}
    for name, neighbour in some.items():
        by_mean = {"regression": ["rmse"], "counts": ["rmse"], "classification": ["nll", "brier", "accuracy", "auc"]}
        for score in [*by_mean[task], *["nll", "crps", "coverage"] * (name == OWN and task == "regression")]:
            assert neighbour.scores[score] == pytest.approx(expected[name].scores[score], rel=1e-9)
        assert np.isfinite(list(neighbour.scores.values())).all()
        assert np.isfinite([neighbour.gain, neighbour.error]).all()


def test_wide_tables(random):
    x = random.normal(size=(50, 300))
    y = x[:, :3].sum(1) + 0.1 * random.normal(size=50)
    linear = _named(x, y, np.arange(50) % 5)[LINEAR]
    assert math.isfinite(linear.scores["nll"])


def test_unknown_tasks_have_none(table):
    x, y, parts = table
    assert compared(x, y, parts, np.arange(len(y)), "ranking", 0.9, {}) == ()


def test_all_scores_are_of_the_rows_that_judge(table, random):
    """Of one fold, an answer of the linear model grows with the only column: its order is known without the fit."""
    x, y, parts = table
    judged = np.flatnonzero(parts == 0)[::2]
    middle = [y[parts != 0].mean()] * len(judged)
    own = _named(x, y, parts, judged=judged)[OWN]
    assert own.scores["rmse"] == pytest.approx(math.sqrt(np.mean((y[judged] - middle) ** 2)), rel=1e-9)
    counts = random.poisson(2, size=300).astype(float)
    own = _named(x, counts, parts, "counts", judged=judged)[OWN]
    assert own.scores["rmse"] == pytest.approx(math.sqrt(np.mean((counts[judged] - counts[parts != 0].mean()) ** 2)))
    one, labels = x[:, :1], (x[:, 0] + random.normal(size=300) > 0).astype(float)
    linear = _named(one, labels, parts, "classification", judged=judged)[LINEAR]
    assert linear.scores["auc"] == pytest.approx(roc_auc_score(labels[judged], x[judged, 0]), rel=1e-9)


def test_scores_of_times_are_of_the_rows_that_judge(random):
    x = random.normal(size=(200, 1))
    time, cut = np.exp(2 + x[:, 0] + random.gumbel(size=200)), random.exponential(30, size=200)
    y = np.stack([np.minimum(time, cut), time <= cut, np.zeros(200)], 1)
    parts = np.arange(200) % 4
    judged = np.flatnonzero(parts == 0)
    grid = np.linspace(3.0, 12.0, 10)
    ours = {"nll": np.zeros(len(judged)), "times": np.tile(grid, (len(judged), 1))}
    named = _named(x, y, parts, "survival", ours=ours, judged=judged)
    (times, event, _), order = y[judged].T, x[judged, 0]
    pairs = [(i, j) for i in range(50) for j in range(50) if times[i] < times[j] and event[i]]
    right = np.mean([order[i] < order[j] for i, j in pairs])
    assert named[LINEAR].scores["concordance"] == pytest.approx(right, rel=1e-9)
    others = y[parts != 0]
    curve = survival_scores.kaplan_meier(others[:, 0], others[:, 1] > 0).at(grid)
    by_row = np.empty((50, 10))
    for k, at in enumerate(grid):
        for i in range(50):
            had = times[i] <= at
            weight = _uncensored(times, event, times[i] if had else at)
            by_row[i, k] = (had * event[i] * curve[k] ** 2 + (not had) * (1 - curve[k]) ** 2) / weight
    expected = np.trapezoid(by_row, grid, axis=1).mean() / (grid[-1] - grid[0])
    assert named[OWN].scores["ibs"] == pytest.approx(expected, rel=1e-9)


def _uncensored(times, event, at):
    """Probability of not being censored by a time, by the product over censored rows."""
    return np.prod([1 - 1 / (times >= t).sum() for t, seen in zip(times, event, strict=True) if not seen and t <= at])


def test_times_are_answered_by_kaplan_meier_and_accelerated_failure():
    """The linear model is the one that scipy finds by the same penalty; each is fitted on the other folds."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2))
    time = np.exp(2 + x[:, 0] + 0.5 * random.gumbel(size=200))
    cut = random.exponential(30, size=200)
    y = np.stack([np.minimum(time, cut), time <= cut, np.zeros(200)], 1)
    parts = np.arange(200) % 4
    own, linear = compared(x, y, parts, np.arange(len(y)), "survival", 0.9, {"nll": np.full(200, 3.0)})
    assert own.scores["concordance"] == 0.5
    assert linear.scores["concordance"] > 0.75
    assert linear.scores["ibs"] < own.scores["ibs"]
    assert linear.gain == pytest.approx(3.0 - linear.scores["nll"])
    law = {"weibull": stats.gumbel_l, "lognormal": stats.norm, "loglogistic": stats.logistic}  # of log time
    total = 0.0
    for part in range(4):
        train, rows = parts != part, parts == part
        likelihood = Survival()
        chosen = likelihood.suited(likelihood.encode(y[train]).y).law

        def nll(at, some, chosen=chosen, train=train):
            z = (x[some] - x[train].mean(0)) / x[train].std(0)
            middle, width = at[0] + z @ at[2:], np.exp(at[1])
            one, log = law[chosen](middle, width), np.log(y[some, 0])
            return -np.where(y[some, 1] > 0, one.logpdf(log) - log, one.logsf(log))

        units = same_for_all(LAWS[chosen], likelihood.encode(y[train]).y)
        found = optimize.minimize(
            lambda at, train=train, nll=nll, scale=units.scale: (
                nll(at, train).sum() + ((at[2:] / scale) ** 2).sum() / 2
            ),
            [2.0, -0.5, 0.5, 0.0],
        )
        total += nll(found.x, rows).sum()
    assert linear.scores["nll"] == pytest.approx(total / 200, abs=1e-3)
