"""Neighbours of a table's scores, against scikit-learn and by hand."""

import math

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler

from wherefrom.tables import neighbours
from wherefrom.tables.neighbours import LINEAR, OWN, TREES, compared


@pytest.fixture
def table(random):
    x = random.normal(size=(300, 4))
    return x, x[:, 0] - 2 * x[:, 1] + np.sin(2 * x[:, 2]) + random.normal(size=300), np.arange(300) % 5


def _named(x, y, parts, task="regression", level=0.9, ours=None):
    ours = {"nll": np.zeros(len(y))} if ours is None else ours
    return {each.name: each for each in compared(x, y, parts, task, level, ours)}


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
        model = HistGradientBoostingRegressor(early_stopping=True, random_state=0).fit(x[train], y[train])
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


def test_wide_tables(random):
    x = random.normal(size=(50, 300))
    y = x[:, :3].sum(1) + 0.1 * random.normal(size=50)
    linear = _named(x, y, np.arange(50) % 5)[LINEAR]
    assert math.isfinite(linear.scores["nll"])


def test_unknown_tasks_have_none(table):
    x, y, parts = table
    assert compared(x, y, parts, "survival", 0.9, {}) == ()
