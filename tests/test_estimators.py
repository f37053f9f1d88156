"""scikit-learn's face: its own checks, equality with wf.fit, its tools, frames, weights, pickles, and MAPIE."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from mapie.classification import SplitConformalClassifier
from mapie.regression import CrossConformalRegressor, SplitConformalRegressor
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import wherefrom as wf
from wherefrom.posterior import predicting, stopping
from wherefrom.tables import pilot

pytestmark = pytest.mark.slow

QUICK = {"draws": 2, "epochs": 40, "lr": 0.03, "samples": 5, "recipe_settings": {"rank": 3}}


def regressor(over="multi_swag", **changes):
    own = {} if over == "multi_swag" else {"recipe_settings": None}
    return wf.WherefromRegressor(over, **QUICK | {"random_state": 0, "noise": "fit"} | own | changes)


def classifier(**changes):
    return wf.WherefromClassifier(**QUICK | {"random_state": 0} | changes)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 3))
    return x, 5 * x[:, 0] + x[:, 1] ** 2 + 0.5 * random.normal(size=120)


@pytest.fixture(scope="module")
def labelled(table):
    return table[0], np.array(["low", "middle", "high"])[np.digitize(table[1], [-1, 3])]


@pytest.fixture(scope="module")
def fitted(table):
    return regressor().fit(*table)


@pytest.fixture(scope="module")
def telling(labelled):
    return classifier().fit(*labelled)


# ---------------------------------------------------------------------- scikit-learn's own checks


@parametrize_with_checks(
    [
        wf.WherefromRegressor(**QUICK, noise="fit"),
        wf.WherefromClassifier(**QUICK),
        wf.WherefromRegressor("deep_ensemble", draws=2, epochs=20, lr=0.03, noise=None, calibrate=None),
        wf.WherefromClassifier(draws=2, samples=5),
    ]
)
def test_scikit_learns_checks(estimator, check, monkeypatch):
    """All of them, and none is expected to fail. A pilot makes few steps."""
    monkeypatch.setattr(pilot, "_FIRST_STEPS", 60)
    monkeypatch.setattr(pilot, "_MOST_EPOCHS", 20)
    check(estimator)


# ---------------------------------------------------------------------- the pipeline


def people(rows=200, seed=0):
    """A table with text, dates, numbers and gaps, and what is to be predicted from it."""
    random = np.random.default_rng(seed)
    age, ward = random.normal(50, 10, size=rows), random.choice(["north", "south", "west"], size=rows)
    seen = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.permutation(500)[:rows], unit="D")
    y = 2 * (ward == "south") + age / 10 + random.normal(size=rows)
    frame = pd.DataFrame({"age": age, "ward": ward, "seen": seen})
    frame.loc[::9, "age"] = np.nan
    frame.loc[::11, "ward"] = None
    return frame, pd.Series(y, name="stay")


@pytest.mark.filterwarnings("ignore:20 rows can tell little")
@pytest.mark.parametrize("settings", [{}, {"over": "theta0=2,F=dropout"}, {"held_out": 0.2}], ids=str)
def test_a_regressor_is_wf_fit(settings):
    x, y = people()
    settings = {"draws": None if settings.get("over") else 2, "samples": 8, "epochs": 12} | settings
    found = wf.WherefromRegressor(**settings, random_state=3).fit(x, y)
    model = wf.fit(x.assign(stay=y)[["stay", *x.columns]], "stay", **settings, seed=3)
    answers = model.predict(x)
    mean, std = found.predict(x, return_std=True)
    np.testing.assert_allclose(mean, answers["mean"], rtol=1e-5)
    np.testing.assert_allclose(std, answers["std"], rtol=1e-5)
    np.testing.assert_allclose(found.predict_interval(x), answers[["lower", "upper"]], rtol=1e-5)
    assert found.model_.scores == model.scores
    pd.testing.assert_frame_equal(found.model_.predict(x), answers)


def test_a_classifier_is_wf_fit(monkeypatch):
    """With settings that the pilot chooses."""
    monkeypatch.setattr(pilot, "_FIRST_STEPS", 60)
    monkeypatch.setattr(pilot, "_MOST_EPOCHS", 20)
    x, y = people()
    y = np.where(y > y.median(), "long", "short")
    found = wf.WherefromClassifier(draws=2, samples=8, random_state=0).fit(x, y)
    model = wf.fit(x.assign(kind=y), "kind", draws=2, samples=8)
    np.testing.assert_allclose(found.predict_proba(x), model.predict(x)[["p_long", "p_short"]], rtol=1e-5, atol=1e-7)
    assert found.n_iter_ == model.posterior.training.epochs
    assert found.model_.scores == model.scores


def as_polars(frame):
    words = [None if word != word else word for word in frame["ward"]]
    return pl.DataFrame({"age": frame["age"].to_numpy(), "ward": words, "seen": frame["seen"].to_numpy()})


@pytest.mark.parametrize("frame", [lambda x: x, as_polars], ids=["pandas", "polars"])
def test_text_dates_and_gaps(frame):
    x, y = people()
    found = regressor().fit(frame(x), y)
    assert {"ward=south", "ward (missing)", "age (missing)"} < set(found.model_.encoder.features)
    assert found.model_.encoder.names == ("age", "ward", "seen")
    assert found.score(frame(x), y) > 0.4
    new = frame(x.head(3).assign(ward=["east", None, "north"], age=[np.nan, 40.0, 50.0]))
    assert np.isfinite(found.predict(new)).all()


def test_gaps_in_arrays_and_nothing_infinite(table):
    x, y = table
    x = np.where(np.random.default_rng(0).random(x.shape) < 0.1, np.nan, x)
    found = regressor().fit(x, y)
    assert found.score(x, y) > 0.5
    assert "x0 (missing)" in found.model_.encoder.features
    x[3, 1] = np.inf
    for infinite in (x, pd.DataFrame(x, columns=list("abc"))):
        with pytest.raises(ValueError, match="infinit"):
            regressor().fit(infinite, y)


def test_columns_are_taken_as_asked():
    x, y = people()
    x = x.assign(code=np.arange(200) % 3)
    found = regressor(text=["code"], drop=["seen"]).fit(x, y)
    assert {"code=0", "code=1", "code=2"} < set(found.model_.encoder.features)
    assert "seen" not in found.model_.encoder.names


def test_groups_are_judged_together(table):
    x, y = table
    found = regressor().fit(x, y, groups=np.arange(120) // 4)
    parts = found.model_.held_out.left_out_by.reshape(30, 4)
    assert (parts == parts[:, :1]).all()


@pytest.mark.parametrize("rows", [2, 3, 4, 7, 19])
def test_few_rows(table, labelled, rows):
    x, y = table
    found = regressor(epochs="auto", noise="auto").fit(x[:rows], y[:rows])
    assert np.isfinite(np.stack(found.predict(x, return_std=True))).all()
    assert found.n_iter_ == 200  # there are too few rows to find a better number
    assert np.isfinite(found.predict_interval(x)).all()
    kinds = np.where(np.arange(rows) % 2, "a", "b")
    assert set(classifier().fit(x[:rows], kinds).predict(x)) <= {"a", "b"}


def test_the_column_to_predict_may_have_any_name():
    x, y = people()
    found = regressor().fit(x.assign(y=1.0 + x["age"].isna()), y.rename("y"), sample_weight=np.full(200, 0.5))
    assert found.model_.target.name == "y_"
    assert list(found.feature_names_in_) == ["age", "ward", "seen", "y"]


# ---------------------------------------------------------------------- what is predicted


def test_regression_in_all_its_words(fitted, table):
    x, y = table
    mean, std = fitted.predict(x, return_std=True)
    assert mean.shape == std.shape == (120,)
    assert np.array_equal(mean, fitted.predict(x))
    assert fitted.score(x, y) > 0.9
    prediction = fitted.predict_dist(x)
    assert np.allclose(prediction.mean, mean, rtol=1e-5, atol=1e-5)
    interval = fitted.predict_interval(x, 0.8)
    assert interval.shape == (120, 2)
    assert np.allclose(np.stack(prediction.interval(0.8), 1), interval, rtol=1e-5, atol=1e-4)
    assert 0.6 < ((interval[:, 0] <= y) & (y <= interval[:, 1])).mean() < 0.95
    quantiles = fitted.predict_quantiles(x, [0.1, 0.5, 0.9], reading="mixture")
    assert quantiles.shape == (120, 3)
    assert (np.diff(quantiles, axis=1) > 0).all()
    assert np.allclose(fitted.predict_quantiles(x)[:, 1], mean)
    assert fitted.sources(x).names == ("theta0+order", "D", "theta0+order x D", "t", "noise", "outside")
    assert fitted.n_iter_ == 40
    assert fitted.predict_interval(x).tolist() == fitted.predict_interval(x, 0.95).tolist()


@pytest.mark.parametrize("likelihood", ["positive", "counts"])
def test_readings_of_other_distributions_work_or_say_why(likelihood, random):
    x = random.normal(size=(120, 2))
    y = 1 + random.poisson(np.exp(1 + 0.5 * x[:, 0]))
    fitted = wf.WherefromRegressor("deep_ensemble", draws=2, epochs=5, likelihood=likelihood, random_state=0).fit(x, y)
    low, high = fitted.predict_quantiles(x, [0.1, 0.9], reading="mixture").T
    assert (low <= high).all()
    assert (np.diff(fitted.predict_interval(x, 0.8, reading="few_members"), axis=1) >= 0).all()
    with pytest.raises(ValueError, match=r"for intervals"):
        fitted.predict_quantiles(x, [0.5], reading="few_members")


def test_several_outputs(table):
    x, y = table
    both = pd.DataFrame({"y": y, "opposite": -10 * y})
    found = regressor().fit(x, both)
    mean, std = found.predict(x, return_std=True)
    assert mean.shape == std.shape == (120, 2)
    assert found.predict_interval(x).shape == (120, 2, 2)
    assert found.predict_quantiles(x, [0.2]).shape == (120, 1, 2)
    assert found.score(x, both) > 0.9
    assert found.sources(x)["t"].shape == (120, 2)
    assert pickle.loads(pickle.dumps(found)).predict(x).shape == (120, 2)
    table_of = {f"x{column}": x[:, column] for column in range(3)}
    assert np.array_equal(found.model_.predict(table_of)["mean_opposite"], found.predict(x)[:, 1])
    assert regressor().fit(x, y[:, None]).predict(x).shape == (120, 1)
    assert found.predict_dist(x).y_names == ("y", "opposite")


@pytest.mark.parametrize("noise", [None, 0.5, "predicted", "auto"])
def test_other_noise(table, noise):
    std = regressor(noise=noise).fit(*table).predict(table[0], return_std=True)[1]
    assert (std > (0.5 if noise == 0.5 else 0)).all()


def test_classification_in_all_its_words(telling, labelled):
    x, y = labelled
    assert telling.classes_.tolist() == ["high", "low", "middle"]
    probabilities = telling.predict_proba(x)
    assert np.abs(probabilities.sum(1) - 1).max() < 1e-12
    assert np.array_equal(telling.predict(x), telling.classes_[probabilities.argmax(1)])
    assert np.allclose(telling.predict_log_proba(x), np.log(probabilities))
    assert telling.score(x, y) > 0.85
    prediction = telling.predict_dist(x)
    assert prediction.classes == ("high", "low", "middle")
    assert np.allclose(prediction.probabilities, probabilities, atol=1e-6)
    assert telling.sources(x).names == ("theta0+order", "D", "theta0+order x D", "t", "outside")


@pytest.mark.parametrize("labels", [[1.0, 2.0], [False, True], [-3, 7], ["b", "a"]])
def test_labels_come_back_as_they_were(table, labels):
    y = np.array(labels)[(table[1] > 1).astype(int)]
    found = classifier().fit(table[0], y)
    assert found.predict(table[0]).dtype == y.dtype
    assert found.score(table[0], y) > 0.9


@pytest.mark.parametrize("class_weight", ["balanced", {"low": 5, "middle": 1}])
def test_class_weights(labelled, telling, class_weight):
    x, y = labelled
    rare = np.flatnonzero(y == "low")[6:]
    x, y = np.delete(x, rare, 0), np.delete(y, rare)
    plain, weighted = (classifier(class_weight=w).fit(x, y).predict_proba(x)[:, 1].mean() for w in (None, class_weight))
    assert weighted > plain
    assert classifier(class_weight={"low": 0}).fit(x, y).predict_proba(x)[:, 1].max() < 0.3
    with pytest.raises(ValueError, match=r"names \['lower'\]"):
        classifier(class_weight={"lower": 2}).fit(x, y)
    with pytest.raises(ValueError, match="balanced"):
        classifier(class_weight="fair").fit(x, y)


def test_other_ways_to_predict(table, fitted):
    at_once = clone(fitted).set_params(method="one_shot").fit(*table)
    assert at_once.predict_dist(table[0]).method == "one_shot"
    assert np.allclose(at_once.predict(table[0]), fitted.predict(table[0]), atol=1.0)


@pytest.mark.parametrize("rows", [1, 7, 33])
def test_a_row_is_told_the_same_among_others(fitted, telling, table, rows):
    x = table[0]
    for tell in (fitted.predict, fitted.predict_interval, telling.predict_proba):
        alone = np.concatenate([tell(x[start : start + rows]) for start in range(0, len(x), rows)])
        assert np.array_equal(tell(x), alone)


def test_many_rows_go_in_blocks(fitted, table, monkeypatch):
    whole = fitted.predict_interval(table[0])
    monkeypatch.setattr(predicting, "_BLOCK_NUMBERS", 400)
    assert np.array_equal(fitted.predict_interval(table[0]), whole)


def test_compute_is_one_value_and_single_words_win(table):
    how = wf.Compute(dtype=torch.float64, workers=1, engine="torch")
    found = regressor(epochs=5, compute=how).fit(*table)
    assert found.posterior_.dtype == torch.float64
    assert found.posterior_.engines == ("torch",)
    single = regressor(epochs=5, compute=wf.Compute(engine="native"), engine="torch").fit(*table)
    assert single.posterior_.engines == ("torch",)
    assert clone(found).get_params()["compute"] == how
    with pytest.raises(TypeError, match=r"compute must be wf\.Compute"):
        regressor(compute={"workers": 1}).fit(*table)


def test_calibration(table, labelled):
    x, y = table
    for calibrate in ("variance", "conformal"):
        found = regressor(calibrate=calibrate, calibrate_on=0.3).fit(x, y)
        assert found.model_.about["rows"]["calibrate"] == 18  # the other half of them is to test
        assert found.predict_interval(x, 0.8).shape == (120, 2)
        again = pickle.loads(pickle.dumps(found))
        assert np.array_equal(again.predict_interval(x, 0.8), found.predict_interval(x, 0.8))
    assert classifier(calibrate="temperature").fit(*labelled).score(*labelled) > 0.8
    assert regressor(calibrate=None).fit(x, y).posterior_.calibration == ()
    with pytest.raises(ValueError, match="temperature' is not for quantities"):
        regressor(calibrate="temperature").fit(x, y)
    with pytest.raises(ValueError, match="share of the rows"):
        regressor(calibrate="variance", calibrate_on=2).fit(x, y)
    with pytest.raises(ValueError, match="calibrate_on and held_out"):
        regressor(calibrate_on=0.2, held_out=0.2).fit(x, y)


def test_a_level_that_rows_are_too_few_for(table):
    x, y = table
    assert np.isfinite(regressor(calibrate="conformal").fit(x, y).predict_interval(x, 0.9999)).all()


# ---------------------------------------------------------------------- what is trained


@pytest.mark.parametrize("over", ["one_network", "deep_ensemble", "swag", "tradi", "snapshots", "mc_dropout"])
def test_every_recipe(table, over):
    assert np.isfinite(regressor(over).fit(*table).predict(table[0])).all()


def test_recipes_with_random_settings(table):
    found = regressor("hyper_ensemble")
    assert "theta0+h+order" in found.fit(*table).sources(table[0]).names  # around the learning rate
    found.set_params(recipe_settings={"lr": wf.LogUniform(0.01, 0.05)}).fit(*table)
    drawn = [member["lr"] for member in found.posterior_.members()]
    assert all(0.01 <= lr <= 0.05 for lr in drawn)
    everything = regressor("everything").set_params(recipe_settings={"lr": [0.01, 0.03]}).fit(*table)
    assert "F" in everything.sources(table[0]).names


def test_variables_instead_of_a_recipe(table):
    over = [wf.InitialCondition(2), wf.Resample(2), wf.Dropout()]
    found = regressor(over).fit(*table)
    assert set(found.posterior_.design.names) == {"theta0", "D", "F"}
    assert clone(found).fit(*table).predict(table[0]).shape == (120,)


class Net(nn.Module):
    def __init__(self, inputs: int, outputs: int, width: int = 8) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def plain_net():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def positional_net(columns, heads):
    return nn.Linear(columns, heads)


@pytest.mark.parametrize("model", [Net, plain_net, positional_net, wf.MLP([8, 8], "tanh")])
def test_any_model(table, model):
    found = regressor(model=model, batch_size=40).fit(*table)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.predict(table[0]), found.predict(table[0]))


def test_a_model_that_asks_for_something_else(table, labelled):
    with pytest.raises(TypeError, match="asks for a, b, c"):
        regressor(model=lambda a, b, c: plain_net()).fit(*table)
    with pytest.raises(TypeError, match="must be a function"):
        regressor(model=plain_net()).fit(*table)
    with pytest.raises(ValueError, match="3 classes"):
        classifier(model=plain_net).fit(*labelled)


def test_a_lambda_is_not_pickled(table):
    found = regressor(model=lambda: plain_net(), epochs=4, recipe_settings={"rank": 2}).fit(*table)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(found)
    assert np.array_equal(copy.deepcopy(found).predict(table[0]), found.predict(table[0]))


def test_optimisers(table):
    found = regressor(optimiser=torch.optim.NAdam, optimiser_settings={"clip": 1.0, "eps": 1e-7}).fit(*table)
    assert found.posterior_.training.algorithm.settings["clip"] == 1
    assert np.array_equal(pickle.loads(pickle.dumps(found)).predict(table[0]), found.predict(table[0]))
    found = regressor(optimiser="sgd", weight_decay=0, optimiser_settings={"momentum": 0.9}).fit(*table)
    assert found.posterior_.training.algorithm.settings["weight_decay"] == 0


# ---------------------------------------------------------------------- when to stop


def noisy(rows, seed=1):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 8))
    return x, x @ np.random.default_rng(0).normal(size=8) + 3 * random.normal(size=rows)


def curved(rows, seed=1):
    x = np.random.default_rng(seed).uniform(-2, 2, size=(rows, 2))
    return x, np.sin(3 * x[:, 0]) * x[:, 1]


def error(found, data):
    return float(np.sqrt(np.mean((found.predict(data[0]) - data[1]) ** 2)))


def test_it_stops_before_it_learns_the_noise():
    """Hidden units are given: a model without them, which would be chosen here, cannot learn the noise."""
    settings = {"noise": None, "lr": 0.01, "hidden": (50,)}
    found, longest = (regressor(epochs=epochs, **settings).fit(*noisy(100)) for epochs in ("auto", 200))
    assert found.n_iter_ <= 50
    assert error(found, noisy(1000, seed=2)) < 0.9 * error(longest, noisy(1000, seed=2))


def test_it_goes_on_while_there_is_something_to_learn():
    found, short = (regressor(epochs=epochs, noise=None, lr=0.01).fit(*curved(200)) for epochs in (None, 30))
    assert found.n_iter_ >= 150
    assert error(found, curved(1000, seed=2)) < 0.7 * error(short, curved(1000, seed=2))


def test_classes_stop_too():
    """Without the temperature, which would make good some of what is learnt by heart."""
    x, y = noisy(100)
    new, truth = noisy(1000, seed=2)
    settings = {"lr": 0.01, "hidden": (50,), "calibrate": None}
    found, longest = (classifier(epochs=epochs, **settings).fit(x, y > 0).predict_dist(new) for epochs in (None, 200))
    assert found.nll(truth > 0) < 0.9 * longest.nll(truth > 0)


def test_the_epochs_of_a_users_model_are_chosen_too(table):
    found = regressor(epochs=None, lr=None, model=plain_net, noise="auto").fit(*table)
    assert found.score(*table) > 0.9
    assert found.posterior_.training.likelihood.noise == "fit"


@pytest.mark.parametrize("start", [0.9, 120, "auto"])
def test_the_law_of_t_gets_iterations_enough(start):
    found = regressor([wf.Iterations(wf.SWAG(3), start)], epochs=None, noise=None).fit(*noisy(100))
    assert found.n_iter_ >= {0.9: 5, 120: 121, "auto": 5}[start]
    posterior = found.posterior_
    assert all(member.trained.law.is_random for member in posterior.mixture)
    if start != "auto":  # which is a matter of each member's losses
        steps = posterior.training.algorithm.steps_per_epoch(80)
        assert len(posterior.design.iterations.collection(found.n_iter_, steps).steps) >= wf.SWAG(3).fewest


def test_copies_do_not_tell_when_to_stop():
    """Rows that are repeated, or weighted, are set aside together: it stops as if each were there once."""
    x, y = noisy(60)
    times = np.random.default_rng(3).integers(1, 4, size=60)
    copies = np.arange(60).repeat(times)
    for train, test in stopping.folds(copies, y.repeat(times), seed=0):
        assert not set(copies[train]) & set(copies[test])
    assert [len(test) for _, test in stopping.folds(np.arange(60), y, seed=0)] == [12] * 5
    weighted = regressor(epochs=None).fit(x, y, sample_weight=times)
    repeated = regressor(epochs=None).fit(x.repeat(times, axis=0), y.repeat(times))
    single = dict(zip(y, np.arange(60), strict=True))
    of_row = [
        {
            int(part)
            for part, kept in zip(weighted.posterior_.fold.parts, weighted.posterior_.rows.y[:, 0], strict=True)
            if single[float(kept)] == row
        }
        for row in range(60)
    ]
    assert all(len(parts) == 1 for parts in of_row)
    assert weighted.n_iter_ == repeated.n_iter_
    assert np.array_equal(weighted.predict(x), repeated.predict(x))


def test_folds_are_alike_in_classes():
    y = np.array([0] * 80 + [1] * 20)
    assert [int(y[test].sum()) for _, test in stopping.folds(np.arange(100), y, seed=0)] == [4] * 5


def test_of_many_rows_few_are_set_aside():
    y = np.random.default_rng(0).normal(size=50_000)
    ((train, test),) = stopping.folds(np.arange(50_000), y, seed=0)
    assert len(test) == 2000
    assert len(train) == 48_000
    assert abs(y[test].mean() - y.mean()) < 0.1 * y.std() / np.sqrt(2000)  # they are alike in y


# ---------------------------------------------------------------------- errors


def test_errors_say_what_to_do(table):
    x, y = table
    with pytest.raises(ValueError, match="no recipe 'bagging'; there are one_network, deep"):
        regressor("bagging").fit(x, y)
    with pytest.raises(ValueError, match="1 class"):
        classifier().fit(x, np.ones(120))
    with pytest.raises(ValueError, match=r"(?i)sample weights.*zero"):
        regressor().fit(x, y, sample_weight=np.zeros(120))
    for samples in (0, 2.5):
        with pytest.raises(ValueError, match=f"samples= is at least 4, not {samples}"):
            regressor(samples=samples).fit(x, y)
    with pytest.raises(NotFittedError):
        regressor().predict(x)


def test_random_state(table):
    x, y = table
    fixed, other = (regressor(random_state=seed).fit(x, y).predict(x) for seed in (0, 1))
    assert not np.array_equal(fixed, other)
    drawn = [regressor(random_state=np.random.RandomState(3)).fit(x, y).predict(x) for _ in range(2)]
    assert np.array_equal(*drawn)
    unsaid = [regressor(random_state=None, epochs=4, recipe_settings={"rank": 2}).fit(x, y).predict(x) for _ in "ab"]
    assert not np.array_equal(*unsaid)


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("settings", [{}, {"batch_size": 16, "noise": 0.5}], ids=["fit", "small batches"])
def test_a_weight_of_k_is_the_row_k_times(table, settings):
    x, y = table
    times = np.random.default_rng(1).integers(0, 4, size=120)
    weighted = regressor(**settings).fit(x, y, sample_weight=times)
    repeated = regressor(**settings).fit(x.repeat(times, 0)[::-1], y.repeat(times)[::-1])
    assert np.array_equal(weighted.predict_interval(x), repeated.predict_interval(x))


def test_copies_do_not_make_the_noise_small():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 5))
    y = x[:, 0] + random.normal(size=60)
    greedy = {"epochs": 150, "hidden": (100,), "weight_decay": 0, "batch_size": 20}
    noise = [
        float(regressor("deep_ensemble", **greedy).fit(x, y, sample_weight=weights).posterior_.fitted_noise)
        for weights in (None, np.full(60, 2.0))
    ]
    assert noise[1] > 0.7 * noise[0] > 0.3


def test_equal_rows_of_a_coarse_table_are_no_copies():
    random = np.random.default_rng(0)
    x = random.integers(0, 2, size=(200, 1)).astype(float)
    y = np.where(random.random(200) < 0.2 + 0.6 * x[:, 0], "yes", "no")
    found = classifier(calibrate="temperature").fit(x, y)
    assert found.model_.about["rows"] == {"all": 200, "folds": 10}
    assert found.predict_proba([[0.0], [1.0]])[:, 1] == pytest.approx([0.2, 0.8], abs=0.15)


def test_other_weights_multiply_the_loss(table):
    x, y = table
    trusted = x[:, 2] > 0
    misled = np.where(trusted, y, 50.0)
    found = regressor(noise=0.5).fit(x, misled, sample_weight=np.where(trusted, 0.7, 1e-9))
    assert found.score(x[trusted], y[trusted]) > 0.9
    assert found.posterior_.rows.weights is not None
    counts = regressor(noise=0.5).fit(x, y, sample_weight=np.where(trusted, 1000, 1))  # too many to be repeated
    assert len(counts.posterior_.rows) == 120


def test_the_order_of_the_rows_does_not_matter(table, labelled, fitted, telling):
    order = np.random.default_rng(5).permutation(120)
    assert np.array_equal(regressor().fit(table[0][order], table[1][order]).predict(table[0]), fitted.predict(table[0]))
    shuffled = classifier().fit(labelled[0][order], labelled[1][order])
    assert np.array_equal(shuffled.predict_proba(table[0]), telling.predict_proba(table[0]))


def test_balanced_classes_with_weights_and_with_repeated_rows(labelled):
    x, y = labelled
    times = np.random.default_rng(1).integers(0, 4, size=120)
    weighted = classifier(class_weight="balanced").fit(x, y, sample_weight=times)
    repeated = classifier(class_weight="balanced").fit(x.repeat(times, 0), y.repeat(times))
    assert np.array_equal(weighted.predict_proba(x), repeated.predict_proba(x))


# ---------------------------------------------------------------------- in scikit-learn's tools


def test_parameters():
    found = regressor()
    assert found.get_params()["draws"] == 2
    assert found.set_params(lr=0.5).lr == 0.5
    assert clone(found).get_params() == found.get_params()
    assert repr(wf.WherefromRegressor("swag", lr=0.1)) == "WherefromRegressor(lr=0.1, over='swag')"
    own, other = (set(kind().get_params()) for kind in (wf.WherefromRegressor, wf.WherefromClassifier))
    assert own - other == {"likelihood", "noise", "least"}
    assert other - own == {"label_smoothing", "class_weight"}


def test_a_pipeline_of_mixed_columns(table):
    x, y = table
    frame = pd.DataFrame(x, columns=["age", "dose", "weight"]).assign(
        ward=np.array(["a", "b", "c"])[np.arange(120) % 3]
    )
    columns = ColumnTransformer([("ward", OneHotEncoder(), ["ward"])], remainder=StandardScaler())
    pipeline = make_pipeline(columns.set_output(transform="default"), regressor())
    assert pipeline.fit(frame, y).score(frame, y) > 0.9
    mean, std = pipeline.predict(frame, return_std=True)
    assert mean.shape == std.shape
    assert pipeline[-1].n_features_in_ == 6


def test_a_search_over_settings_and_methods(table, labelled):
    grid = {"lr": [1e-5, 0.03], "over": ["swag", "multi_swag"]}
    search = GridSearchCV(regressor(epochs=20), grid, cv=2, n_jobs=2).fit(*table)
    assert search.best_params_["lr"] == 0.03
    assert search.best_estimator_.sources(table[0]).names[-2:] == ("noise", "outside")
    search = GridSearchCV(classifier(epochs=20), {"hidden": [2, (8, 8)]}, cv=2, scoring="neg_log_loss").fit(*labelled)
    assert search.best_score_ < 0


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_cross_validation_on_several_processors(table, backend):
    import joblib

    found = regressor(epochs=20)
    alone = cross_val_score(found, *table, cv=KFold(3))
    with joblib.parallel_backend(backend, n_jobs=2):
        together = cross_val_score(found, *table, cv=KFold(3))
    assert np.array_equal(alone, together)


def test_pickles_predict_the_same(fitted, telling, table):
    for found, tell in ((fitted, "predict_interval"), (telling, "predict_proba")):
        again = pickle.loads(pickle.dumps(found))
        assert np.array_equal(getattr(again, tell)(table[0]), getattr(found, tell)(table[0]))
        assert again.get_params() == found.get_params()
    assert again.posterior_.rows is None  # the data stays where it is
    assert again.model_.held_out is None
    assert found.model_.held_out is not None


# ---------------------------------------------------------------------- frames


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_keep_their_column_names(table, frame, fitted):
    x = frame(dict(zip(["age", "dose", "weight"], table[0].T, strict=True)))
    found = regressor().fit(x, table[1])
    assert found.feature_names_in_.tolist() == ["age", "dose", "weight"]
    assert found.posterior_.schema.x_names == ("age", "dose", "weight")
    assert np.array_equal(found.predict(x), fitted.predict(table[0]))
    with pytest.raises(ValueError, match=r"(?s)feature names.*order"):
        found.predict(x[["dose", "age", "weight"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        found.predict(table[0])


@pytest.mark.parametrize("series", [pd.Series, pl.Series], ids=["pandas", "polars"])
def test_series(table, labelled, series, fitted, telling):
    found = regressor().fit(table[0], series(table[1]), sample_weight=series(np.ones(120)))
    assert np.array_equal(found.predict(table[0]), fitted.predict(table[0]))
    found = classifier().fit(labelled[0], series(labelled[1]))
    assert np.array_equal(found.predict(labelled[0]), telling.predict(labelled[0]))


# ---------------------------------------------------------------------- MAPIE


@pytest.fixture(scope="module")
def fresh():
    random = np.random.default_rng(8)
    x = random.normal(size=(400, 3))
    return x, 5 * x[:, 0] + x[:, 1] ** 2 + 0.5 * random.normal(size=400)


def covered(intervals, y):
    return ((intervals[:, 0, 0] <= y) & (y <= intervals[:, 1, 0])).mean()


@pytest.mark.parametrize("prefit", [False, True])
def test_mapie_wraps_the_regressor(table, fresh, fitted, prefit):
    x, y = fresh
    if prefit:
        wrapped = SplitConformalRegressor(fitted, confidence_level=0.9)
    else:
        wrapped = SplitConformalRegressor(regressor(), confidence_level=0.9, prefit=False).fit(*table)
    _, intervals = wrapped.conformalize(x[:200], y[:200]).predict_interval(x[200:])
    assert 0.8 < covered(intervals, y[200:]) < 0.98


def test_mapie_cross_fits_the_regressor(table, fresh):
    wrapped = CrossConformalRegressor(regressor(epochs=30), confidence_level=0.9, cv=3)
    _, intervals = wrapped.fit_conformalize(*table).predict_interval(fresh[0])
    assert 0.8 < covered(intervals, fresh[1]) <= 1


def test_mapie_wraps_the_classifier(labelled, fresh):
    x = fresh[0]
    y = np.array(["low", "middle", "high"])[np.digitize(fresh[1], [-1, 3])]
    wrapped = SplitConformalClassifier(classifier(), confidence_level=0.9, prefit=False).fit(*labelled)
    _, sets = wrapped.conformalize(x[:200], y[:200]).predict_set(x[200:])
    places = np.searchsorted(np.unique(y), y[200:])
    assert 0.8 < sets[np.arange(200), places, 0].mean() <= 1


# ---------------------------------------------------------------------- an optional guest


def test_wherefrom_opens_without_scikit_learn():
    check = """
import sys
import wherefrom as wf
wf.marginalise
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = sys.modules["sklearn.base"] = None
try:
    wf.WherefromRegressor
except ImportError as error:
    assert "wherefrom[sklearn]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", check], check=True)


def test_intervals_end_at_the_least_that_y_can_be(table):
    x, y = table
    y = np.maximum(0, y)
    for least in (0.0, "auto"):
        assert regressor(least=least).fit(x, y).predict_interval(x, 0.95).min() == 0
    assert regressor(least=None).fit(x, y).predict_interval(x, 0.95).min() < 0
