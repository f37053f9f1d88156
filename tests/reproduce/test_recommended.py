"""The recommended recipe: weights against brute force, mixtures against their density, and no look at test rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.reproduce import datasets
from wherefrom.reproduce.uci import recommended
from wherefrom.reproduce.uci.recommended import CANDIDATES, Candidate, Recipe

pytestmark = pytest.mark.slow

TINY = {
    "one": Candidate(rate=0.02, steps=120, width=6),
    "other": Candidate(rate=0.02, steps=60, width=6, activation="silu", dropout=0.1, noise="fit"),
    "large only": Candidate(rate=0.02, steps=10, fewest_rows=2000),
}


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(1)
    x = random.normal(size=(90, 3))
    return x, 50 + 3 * x[:, 0] + random.normal(size=90)


def test_weights_make_the_rows_most_likely():
    random = np.random.default_rng(0)
    nll = random.gamma(2.0, size=(2, 400)) * [[1.0], [1.2]]
    grid = np.linspace(0.001, 0.999, 999)
    likelihood = [np.log(w * np.exp(-nll[0]) + (1 - w) * np.exp(-nll[1])).mean() for w in grid]
    first, second = recommended.stacking_weights(nll)
    assert first == pytest.approx(grid[int(np.argmax(likelihood))], abs=0.002)
    assert first + second == pytest.approx(1)


def test_hopeless_readings_get_no_weight():
    nll = np.array([[1.0, 1.0, 1.0], [5.0, 6.0, 700.0], [np.inf, 9.0, 2000.0]])
    assert recommended.stacking_weights(nll).tolist() == [1.0, 0.0, 0.0]
    nll = np.array([[1.0, np.nan, np.inf], [2.0, 3.0, np.inf]])
    # The last row tells nothing, the second allows only the other: log(w + (1 - w) / e) + log(1 - w) is largest at
    share = 1 - 2 / math.e
    expected = share / (1 + share)
    assert recommended.stacking_weights(nll, tolerance=1e-9) == pytest.approx([expected, 1 - expected], abs=1e-6)


def test_weights_of_many_similar_readings_converge():
    """No weight can be moved to another reading with any gain worth the name."""
    random = np.random.default_rng(3)
    nll = random.gamma(2.0, size=(1, 600)) + 0.3 * random.normal(size=(14, 600))
    found = recommended.stacking_weights(nll, tolerance=1e-7, most=100_000)
    density = np.exp(-nll)
    gain = (density / (found[:, None] * density).sum(0)).mean(1)  # the derivative of the likelihood by each weight
    assert gain.max() < 1 + recommended.LEAST_WEIGHT


def test_a_mixture_has_the_density_of_its_parts(data):
    x, y = data
    training = Recipe(TINY).trainings(3, 90)["one"]
    posterior = wf.marginalise(training, (x, y), wf.recipes.multi_swag(5), progress=False)
    parts = [
        posterior.marginalising("theta0").predict(x[:20]),  # 5 answers
        posterior.marginalising("theta0", "t").predict(x[:20], 10),  # 50 answers
    ]
    weights = [0.4, 0.6]  # of 500: each of the 5 answers 40 times, each of the 50 six times
    mixture = recommended.mixed(parts, weights)
    each = torch.stack([part.nll(y[:20], "mixture", by_row=True) for part in parts])
    expected = -torch.logsumexp(torch.tensor(weights).double().log()[:, None] - each, 0)
    torch.testing.assert_close(mixture.nll(y[:20], "mixture", by_row=True), expected)
    mean = sum(weight * part.mean for weight, part in zip(weights, parts, strict=True))
    square = sum(w * (part.variance + part.mean.square()) for w, part in zip(weights, parts, strict=True))
    torch.testing.assert_close(mixture.mean, mean)
    torch.testing.assert_close(mixture.variance, square - mean.square(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("rows", "parts"), [(100, 3), (2500, 1)])
def test_inner_splits_share_out_the_training_rows(rows, parts):
    own = np.random.default_rng(0).choice(5000, rows, replace=False)
    inner = recommended.inner_splits(own, seed=3)
    assert len(inner) == parts
    for train, aside in inner:
        assert sorted([*train, *aside]) == sorted(own)
    if parts > 1:
        assert sorted(np.concatenate([aside for _, aside in inner])) == sorted(own)
    again = recommended.inner_splits(own, seed=3)
    assert all(
        np.array_equal(a, b) for one, two in zip(inner, again, strict=True) for a, b in zip(one, two, strict=True)
    )


def test_weights_do_not_look_at_test_rows(data):
    x, y = data
    splits = datasets.splits(90, 2)
    recipe = Recipe(TINY, inner_samples=5)
    for fold, (train, test) in enumerate(splits):
        spoilt_x, spoilt_y = x.copy(), y.copy()
        spoilt_x[test], spoilt_y[test] = 1e3, -1e6
        whole, blind = (
            recipe.find_weights(data, [train], seed=fold, engine="torch") for data in ((x, y), (spoilt_x, spoilt_y))
        )
        assert whole == blind
        assert math.fsum(whole[0].values()) == pytest.approx(1)


def test_the_final_training_does_not_look_at_test_rows_either(data):
    """Spoilt test targets change the scores and nothing else; and the mixture is what the public interface makes."""
    x, y = data
    splits = datasets.splits(90, 2)
    recipe = Recipe({"one": TINY["one"]}, members=3, inner_samples=5, samples=8)
    spoilt = y.copy()
    spoilt[splits[1][1]] += 1000
    whole, blind = (
        {
            (one.fold, one.metric): one.value
            for one in recipe.train_and_score("boston", (x, values), splits, 4, "torch").scores
        }
        for values in (y, spoilt)
    )
    weights = {key: value for key, value in whole.items() if key[1].startswith("weight of ")}
    assert weights == {key: blind[key] for key in weights if key[0] == 1} | {
        k: v for k, v in weights.items() if k[0] == 0
    }
    train, test = splits[1]
    training = recipe.trainings(3, len(train))["one"]
    posterior = wf.marginalise(training, (x[train], y[train]), TINY["one"].over(3), seed=4 + 1, progress=False)
    parts = {
        "weight of one theta0": posterior.marginalising("theta0").predict(x[test]),
        "weight of one theta0+t": posterior.marginalising("theta0", "t").predict(x[test], 8),
    }
    used = {name: part for name, part in parts.items() if (1, name) in whole}
    mixture = recommended.mixed(list(used.values()), [whole[1, name] for name in used])
    assert whole[1, "mixture nll"] == pytest.approx(mixture.nll(y[test], "mixture"), rel=1e-5)
    assert blind[1, "mixture nll"] == pytest.approx(mixture.nll(spoilt[test], "mixture"), rel=1e-5)


def test_a_candidate_of_which_nothing_is_left_is_an_error(data):
    hot = {"one": TINY["one"], "hot": Candidate(rate=1e30, steps=60, width=6)}
    recipe = Recipe(hot, members=3, inner_samples=5, samples=8)
    with pytest.raises(wf.DivergedError, match="Lower their learning rate"):
        recipe.train_and_score("boston", data, datasets.splits(90, 1), 0, "torch")


def test_every_fold_is_scored_and_its_weights_are_kept(data):
    reports = []
    recipe = Recipe(TINY, members=3, inner_samples=8, samples=8)
    splits = datasets.splits(90, 2)
    outcome = recipe.train_and_score("boston", data, splits, 0, "torch", reports.append)
    assert outcome.engines == {"torch"}
    for fold in range(2):
        own = {one.metric: one.value for one in outcome.scores if one.fold == fold}
        assert {"nll", "mixture nll", "rmse", "crps", "coverage", "mixture coverage"} <= set(own)
        weights = [value for metric, value in own.items() if metric.startswith("weight of ")]
        assert math.fsum(weights) == pytest.approx(1)
        assert math.isfinite(own["mixture nll"])
    assert sum(reports) == pytest.approx(recipe.work(splits), rel=0.05)  # 81 rows do not fall into thirds evenly


def test_candidates_are_two_layers_and_long_enough():
    trainings = Recipe().trainings(8, 927)
    assert "wide" not in trainings
    assert set(Recipe().trainings(8, 7373)) == set(CANDIDATES)
    for name, training in trainings.items():
        steps = training.epochs * -(-927 // 32)
        assert steps == pytest.approx(CANDIDATES[name].steps, rel=0.01)
        layers = [layer for layer in training.model() if isinstance(layer, torch.nn.Linear)]
        assert [layer.out_features for layer in layers] == [50, 50, 1 if name == "fitted" else 2]
