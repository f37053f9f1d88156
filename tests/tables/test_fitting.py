"""From a table to a run: who trains, calibrates and tests; how long; how many draws; and that intervals hold."""

import math
import os
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch

import wherefrom as wf
from made_table import QUICK, made, write
from wherefrom.posterior import stopping
from wherefrom.predictive.calibration import Conformal, Fit, Temperature, VarianceScale
from wherefrom.tables import calibrating, fitting, plan
from wherefrom.tables import pilot as fitting_pilot
from wherefrom.tables import training as fitting_training
from wherefrom.tables.columns import Encoded
from wherefrom.tables.fitting import learn
from wherefrom.tables.options import Request, seconds
from wherefrom.tables.pilot import LEAST_EPOCHS, decay, pilot
from wherefrom.tables.predicting import predict_rows
from wherefrom.tables.reading import read
from wherefrom.tables.splitting import split
from wherefrom.tables.target import Target
from wherefrom.training.pieces import Pieces
from wherefrom.training.sparse import SparseLinear
from wherefrom.variables import Design

QUIET = wf.Compute(progress=False)
pytestmark = pytest.mark.slow


def test_rows_are_split_once_and_for_all():
    y = np.arange(1000.0)
    one, same, other = split(y, 0.15, 0), split(y, 0.15, 0), split(y, 0.15, 1)
    everyone = np.concatenate([one.train, one.calibrate, one.test])
    assert sorted(everyone.tolist()) == list(range(1000))
    assert (len(one.calibrate), len(one.test)) == (75, 75)
    assert one.test.tolist() == same.test.tolist() != other.test.tolist()
    assert len(split(np.zeros(100_000), 0.15, 0).train) == 94_000


def test_classes_are_held_out_in_proportion_and_all_are_trained_on():
    y = np.array(["a"] * 800 + ["b"] * 150 + ["c"] * 49 + ["d"], dtype=object)
    rows = split(y, 0.2, 0)
    for part in (rows.calibrate, rows.test):
        counts = {label: int((y[part] == label).sum()) for label in "abcd"}
        assert abs(counts["a"] - 80) <= 2
        assert abs(counts["b"] - 15) <= 2
        assert counts["d"] == 0
    assert "d" in y[rows.train]


@pytest.mark.parametrize("written", ["", "soon", "-5min", "0s", "5 parsecs", "5"])
def test_budgets_are_times(written):
    with pytest.raises(ValueError, match="budget= is a time with its unit, such as 90s"):
        seconds(written)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calibrate": "hope"}, "calibrate= is one of auto"),
        ({"held_out": 0.9}, "held_out= is a share"),
        ({"epochs": 1}, "epochs= is auto"),
        ({"level": 95.0}, "level= lies between 0 and 1"),
        ({"samples": 1}, "samples= is at least 4"),
    ],
)
def test_requests_are_checked_before_anything_is_trained(changes, message):
    with pytest.raises(ValueError, match=message):
        Request("y", **changes)


def noisy(rows, random):
    x = random.normal(size=(rows, 3))
    return Encoded(x, ("a", "b", "c")), 2 * x[:, 0] + np.sin(x[:, 1]) + random.normal(size=rows)


@pytest.mark.parametrize("averages", [True, False])
def test_a_pilot_stops_before_it_learns_the_noise_by_heart(random, averages):
    x, y = noisy(120, random)
    training = wf.Training(wf.MLP([50]), wf.Algorithm("adam", lr=0.01, batch_size=16), 1, wf.Regression())
    found = pilot(training, (x, y), averages=averages, compute=QUIET)
    assert LEAST_EPOCHS <= found.training.epochs < found.epochs[-1]
    assert min(found.scores) <= found.scores[-1]
    assert 1.2 < min(found.scores) < 1.9  # that of the noise, which is 1, is 1.42
    again = pilot(training, (x, y), averages=averages, compute=QUIET)
    assert again.scores == found.scores
    assert again.training == found.training


def test_a_pilot_tries_settings_unless_they_are_given(random):
    x, y = noisy(120, random)
    training = plan.training_for(120, Target("y", "regression"), plan.Settings(lr=0.02))
    found = pilot(training, (x, y), averages=True, tried=["dropout"], compute=QUIET)
    assert found.training.algorithm.settings["lr"] == pytest.approx(0.02)
    assert found.training.model.dropout in (0.05, 0.2)
    given = pilot(training, (x, y), averages=True, tried=[], epochs=7, compute=QUIET)
    assert given.training.epochs == 7
    assert given.epochs[-1] == 7


def test_a_pilot_of_few_long_epochs_looks_at_two_of_them(random):
    """With very many steps in an epoch, a quarter of the epochs is one, which is no trajectory."""
    x, y = noisy(300, random)
    training = wf.Training(wf.MLP([5]), wf.Algorithm("adam", lr=0.02, batch_size=1), 1, wf.Regression())
    chosen = pilot(training, (x, y), averages=False, tried=["decay"], compute=QUIET)
    assert chosen.training.epochs >= LEAST_EPOCHS


def test_a_pilot_may_drop_nothing(random):
    """A smooth function without noise, which dropout can only blur."""
    x = random.normal(size=(300, 3))
    data = Encoded(x, ("a", "b", "c")), np.sin(2 * x[:, 0]) + x[:, 1]
    training = plan.training_for(300, Target("y", "regression"), plan.Settings(lr=0.01))
    found = pilot(training, data, averages=True, tried=["dropout", "no dropout"], compute=QUIET)
    assert found.training.model.dropout == 0
    dropping = pilot(training, data, averages=True, tried=["dropout"], compute=QUIET)
    assert min(found.scores) < min(dropping.scores)


@pytest.mark.filterwarnings("ignore:.*have learnt nothing")
def test_a_pilot_that_diverges_goes_slower(random):
    x, y = noisy(120, random)
    training = wf.Training(wf.MLP([10]), wf.Algorithm("sgd", lr=30, batch_size=16), 1, wf.Regression())
    found = pilot(training, (x, y), averages=False, epochs=6, compute=QUIET)
    assert found.training.algorithm.settings["lr"] < 30


def test_what_is_done_is_told(quantities, folder):
    path, _ = quantities
    told = []
    learn(read(path), Request("y", **QUICK), told.append, False)
    text = "\n".join(told)
    assert "400 rows: 280 to train on, 60 to calibrate, 60 to test" in text
    assert "y: regression, because it has numbers" in text
    assert "dropped: id (" in text
    assert "customer (almost every value is unique)" in text
    assert "training 3 networks: 50 hidden units, 8 epochs" in text
    assert "variance unchanged: the effect on 60 rows is not clear (variance times" in text
    assert "calibrated: conformal intervals" in text


def test_the_same_seed_gives_the_same_run(quantities):
    path, run = quantities
    again = learn(read(path), Request("y", **QUICK), lambda line: None, False)
    assert again.scores == run.scores
    other = learn(read(path), Request("y", **QUICK, seed=1), lambda line: None, False)
    assert other.scores != run.scores


def test_rows_without_a_target_are_left_out_and_told(folder):
    cells = made(100)
    cells["y"][3] = cells["y"][50] = ""
    run = learn(read(write(folder / "gaps.csv", cells)), Request("y", **QUICK), lambda line: None, False)
    assert run.about["rows"]["all"] == 98
    assert "2 rows without 'y' left out" in run.about["notes"]
    few = write(folder / "few.csv", made(15))
    with pytest.raises(ValueError, match="15 rows with 'y': it takes at least 20"):
        learn(read(few), Request("y", **QUICK), lambda line: None, False)


@pytest.mark.parametrize("calibrate", ["variance", "conformal", "none"])
def test_calibration_is_as_asked(quantities, calibrate):
    path, _ = quantities
    run = learn(read(path), Request("y", **QUICK, calibrate=calibrate), lambda line: None, False)
    assert [each.by for each in run.posterior.calibration] == ([] if calibrate == "none" else [calibrate])


@pytest.mark.parametrize(("which", "by"), [("quantities", "temperature"), ("kinds", "variance")])
def test_calibration_that_cannot_be_is_refused_before_anything_is_trained(which, by, request, monkeypatch):
    path, run = request.getfixturevalue(which)
    monkeypatch.setattr(fitting, "train", None)
    with pytest.raises(ValueError, match=f"calibrate='{by}' is not for"):
        learn(read(path), Request(run.target.name, **QUICK, calibrate=by), lambda line: None, False)


@pytest.mark.parametrize("noise", ["predicted", "none", "2.5"])
def test_noise_is_as_asked(quantities, noise):
    asked = Request("y", **QUICK, settings=plan.Settings(noise=noise))
    run = learn(read(quantities[0]), asked, lambda line: None, False)
    assert ("noise" in predict_rows(run.posterior, Encoded(run.held_out.x, run.encoder.features), 0.9, 8).sources) == (
        noise != "none"
    )


def trained_by(random, rows, y_of, **changes):
    x = random.normal(size=(rows, 3))
    data = Encoded(x, ("a", "b", "c")), y_of(x)
    target = Target("y", "regression")
    training = plan.training_for(rows, target, plan.Settings())
    return pilot(training, data, averages=True, compute=QUIET, **changes)


def test_noise_that_differs_from_row_to_row_is_found(random):
    by_row = trained_by(random, 600, lambda x: x[:, 0] + np.exp(x[:, 1]) * random.normal(size=600), tried=["noise"])
    assert by_row.training.likelihood.noise == "predicted"
    assert "noise row by row" in by_row.notes[0]
    alike = trained_by(random, 600, lambda x: x[:, 0] + random.normal(size=600), tried=["noise"])
    assert alike.training.likelihood.noise == "fit"
    assert not alike.notes


def test_hidden_units_are_left_out_where_they_do_harm(random):
    tried = ["lr", "dropout", "hidden"]
    line = trained_by(random, 80, lambda x: x @ [2, -1, 0.5] + 0.3 * random.normal(size=80), tried=tried)
    assert line.training.model.hidden == ()
    assert "no hidden units" in line.notes[0]
    curve = trained_by(random, 400, lambda x: np.sin(3 * x[:, 0]) + 0.1 * random.normal(size=400), tried=tried)
    assert curve.training.model.hidden in ((50,), (64, 64))


def test_columns_are_taken_in_pieces_where_that_helps(random):
    def searched(rows, y_of):
        pieces = Pieces((0, 1, 2))
        return trained_by(random, rows, y_of, tried=["inputs"], pieces=pieces, epochs=60).training.standardise

    assert searched(300, lambda x: np.sign(x).sum(1) + 0.1 * random.normal(size=300)) == Pieces((0, 1, 2))
    assert searched(80, lambda x: x @ [2, -1, 0.5] + random.normal(size=80)) is True


def test_few_of_many_columns_are_found(random):
    x = random.normal(size=(60, 80))
    y = 2 * x[:, 0] - x[:, 1] + 0.3 * random.normal(size=60)
    training = plan.training_for(60, Target("y", "regression"), plan.Settings())
    data = Encoded(x, tuple(f"c{number}" for number in range(80))), y
    chosen = pilot(training, data, averages=False, tried=["lr", "hidden", "decay"], compute=QUIET)
    assert isinstance(chosen.training.model, SparseLinear)
    assert "few columns (sparse linear regression)" in chosen.notes[-1]
    assert min(chosen.scores) < 1.0  # one answer for all rows has 2.2
    assert decay(chosen.training) > 0


def test_a_pilot_goes_on_with_the_setting_that_won(random):
    """From too high a learning rate, which is tried as well, through several doublings."""
    x = random.normal(size=(300, 3))
    data = Encoded(x, ("a", "b", "c")), np.sin(2 * x[:, 0]) + 0.1 * random.normal(size=300)
    training = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.3, batch_size=60), 1, wf.Regression())
    seen = []
    marginalise = fitting_pilot.marginalise

    def watched(training, *rest, **how):
        found = marginalise(training, *rest, **how)
        rates = [c.run.choices.get("lr", training.algorithm.settings["lr"]) for c in found[0].mixture]
        seen.append((training.epochs, rates))
        return found

    with (
        patch.object(fitting_pilot, "marginalise", watched),
        patch.object(fitting_pilot, "_NEAR_THE_END", 0.0),  # so that it always goes on
        patch.object(fitting_pilot, "_MOST_EPOCHS", 400),
    ):
        found = pilot(training, data, averages=True, tried=["lr"], compute=QUIET)
    assert [(epochs, len(rates)) for epochs, rates in seen] == [(100, 2), (200, 1), (400, 1)]
    assert seen[1][1] != seen[0][1][:1]  # the second of them had won
    assert {tuple(rates) for _, rates in seen[1:]} == {tuple(seen[1][1])}
    assert found.training.algorithm.settings["lr"] == seen[1][1][0]


def test_one_wrong_cell_does_not_turn_the_scores_upside_down(random):
    x = random.normal(size=(300, 3))
    y = x[:, 0] + 0.3 * random.normal(size=300)
    y[17] = 100.0
    target = Target("y", "regression")
    found = pilot(
        plan.training_for(300, target, plan.Settings()), (Encoded(x, ("a", "b", "c")), y), averages=True, compute=QUIET
    )
    assert found.training.epochs < 100  # and not a thousand, to learn it by heart


def test_copies_are_set_aside_together(random):
    x, y = noisy(100, random)
    four = np.tile(np.arange(100), 4)
    training = wf.Training(wf.MLP([50]), wf.Algorithm("adam", lr=0.01, batch_size=16), 1, wf.Regression())
    for train, test in stopping.folds(four, y[four], 0):
        assert not set(four[train]) & set(four[test])
    found = pilot(training, (x.take(four), y[four]), averages=True, tried=[], compute=QUIET, copies=four)
    assert found.training.epochs < 100
    assert min(found.scores) > 1.2  # that of the noise is 1.42
    held = wf.marginalise(
        replace(training, epochs=5, likelihood=wf.Regression("fit", 0.2)), (x.take(four), y[four]), [], groups=four
    )
    trained = {row.tobytes() for row in held.rows.x.numpy()}
    assert not trained & {row.tobytes() for row in held.held_out.x.numpy()}
    assert len(held.held_out) == 80
    assert 0.5 < float(held.fitted_noise) * float(held.scaler.y_std) ** 2 < 3


def test_networks_of_a_pilot_leave_no_notes(folder):
    cells = made(150)
    run = learn(
        read(write(folder / "wild.csv", cells)),
        Request("y", draws=2, samples=8, settings=plan.Settings(lr=1.0), epochs=6),
        lambda line: None,
        False,
    )
    assert not any(re.search(r"\bh \d", note) for note in run.about["notes"])
    assert len(run.about["notes"]) < 4


def test_what_is_left_open_is_tried():
    def tried(over=None, task="regression", epochs=None, **settings):
        asked = Request("y", over=over, epochs=epochs, settings=plan.Settings(**settings))
        target = Target("y", task, ("a", "b") if task == "classification" else ())
        return fitting_training._to_be_tried(asked, target, Design.of(plan.variables(over, None, None, lr=0.01)))

    assert tried() == ["lr", "dropout", "hidden", "inputs", "decay", "no dropout", "noise"]
    assert tried(task="classification") == ["lr", "dropout", "hidden", "inputs", "decay", "no dropout"]
    assert tried(lr=0.1, hidden=(5,), noise="fit") == ["dropout", "inputs", "decay", "no dropout"]
    assert "decay" not in tried(optimiser_settings={"weight_decay": 0.1})
    assert "inputs" not in tried(standardise=False)
    assert "no dropout" not in tried("theta0=2,F=dropout")  # whose sub-networks are marginalised
    assert tried(epochs=10) == ["noise"]
    assert "hidden" not in tried("theta0=2,F=dropout")
    assert "hidden" not in tried(dropout=0.3)


def test_a_quantity_that_is_never_negative_stays_so(folder):
    cells = made(150)
    cells["y"] = [f"{max(0.0, float(value) - 14):.5g}" for value in cells["y"]]  # half of them are 0
    told = []
    table = read(write(folder / "positive.csv", cells))
    run = learn(table, Request("y", **QUICK), told.append, False)
    assert run.target.least == 0
    assert "y is never below 0, so predictions are not either (turn off with least='none')" in told
    x, y = Encoded(run.held_out.x, run.encoder.features), run.held_out.y
    training = run.posterior.training
    unbounded = replace(training, likelihood=replace(training.likelihood, least=None))
    both = run.posterior, replace(run.posterior, training=unbounded)
    found, free = (predict_rows(posterior, x, 0.95, 8, y).answers for posterior in both)
    assert free["lower"].min() < 0
    assert found["lower"].min() == 0
    np.testing.assert_array_equal(found["lower"], np.maximum(free["lower"], 0))
    inside = [(y >= each["lower"]) & (y <= each["upper"]) for each in (found, free)]
    np.testing.assert_array_equal(*inside)
    assert Target.of(table, "y", None, None).least is None
    assert Target.of(table, "y", None, -1.0).least == -1
    with pytest.raises(ValueError, match=r"least=5\.0: 'y' is as low as 0 in some row"):
        Target.of(table, "y", None, 5.0)
    assert Target.of(read(write(folder / "few.csv", made(60))), "y", None).least is None


def test_a_factor_is_applied_by_itself_only_where_it_is_clear():
    clear = {VarianceScale((1.5,), (0.1,), Fit(50)): True, VarianceScale((1.25,), (0.1,), Fit(50)): False}
    clear |= {Temperature(0.77, 0.16, Fit(45)): False, Temperature(2.0, 0.2, Fit(45)): True}
    assert {each: each.is_clear for each in clear} == clear
    assert Conformal(torch.zeros(1, 1), Fit(1)).is_clear


def test_files_can_be_read_by_others(quantities, tmp_path):
    _, run = quantities
    before = os.umask(0o022)
    try:
        run.save(tmp_path / "run")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()} == {0o644}


def test_what_should_be_known_is_told_before_the_training(folder):
    cells = made(100)
    cells["y"][3] = ""
    heard = []
    learn(read(write(folder / "gap.csv", cells)), Request("y", **QUICK), heard.append, False, None, heard.append)
    note = heard.index("1 row without 'y' left out")
    assert note < next(place for place, line in enumerate(heard) if line.startswith("training"))


def test_options_of_a_quantity_are_refused_for_classes(kinds, monkeypatch):
    path, _ = kinds
    monkeypatch.setattr(fitting, "train", None)
    for changes in ({"least": 5.0}, {"settings": plan.Settings(noise="fit")}):
        with pytest.raises(ValueError, match=r"(noise|least)= is not for classes, which 'kind' holds"):
            learn(read(path), Request("kind", **QUICK, **changes), lambda line: None, False)


def test_a_budget_decides_the_draws(quantities):
    told = []
    asked = Request("y", epochs=4, samples=8, budget=1e6)
    run = learn(read(quantities[0]), asked, told.append, False)
    assert len(run.posterior) == 20 * 10
    assert any("the budget allows for 20 draws" in line for line in told)
    told = []
    run = learn(read(quantities[0]), Request("y", samples=8, budget=0.01), told.append, False)
    assert len(run.posterior) == 2 * 10
    assert run.posterior.training.epochs >= LEAST_EPOCHS


def test_intervals_hold_on_rows_never_seen(folder):
    """With defaults, besides what chance does to 2,500 rows that calibrate and 3,000 new ones.

    What is shipped is better than the networks of one fold, by which it is calibrated: it may cover more, by a point.
    """
    table = read(write(folder / "covered.csv", made(2500, 5)))
    run = learn(table, Request("y", samples=20), lambda line: None, False)
    new = read(write(folder / "new.csv", made(3000, 6)))
    truth = run.target.values(new)
    scores = predict_rows(run.posterior, run.encoder.encode(new), 0.95, 20, truth).scores
    chance = 3 * math.sqrt(0.05 * 0.95 * (1 / 2500 + 1 / 3000))
    assert -chance < scores["coverage of the 95% interval"] - 0.95 < chance + 0.01
    assert scores["R2"] > 0.6


def test_copies_of_a_row_stay_together(folder):
    y = np.arange(300.0)
    copies = np.repeat(np.arange(100), 3)
    rows = split(y, 0.2, 0, copies)
    parts = [set(copies[part].tolist()) for part in (rows.train, rows.calibrate, rows.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 100
    assert len(rows.train) == 240
    labels = np.repeat(np.array(["a", "b"], dtype=object), 150)
    rows = split(labels, 0.2, 0, copies)
    assert {*labels[rows.train]} == {*labels[rows.test]} == {"a", "b"}


def test_copies_are_found_by_the_columns_that_are_used(folder):
    cells = {name: own * 2 for name, own in made(150).items()}
    cells["id"] = [str(k) for k in range(300)]  # a copy has a number of its own
    table = read(write(folder / "copies.csv", cells))
    run = learn(table, Request("y", **QUICK), lambda line: None, False)
    assert any("150 rows have the inputs of another" in note for note in run.about["notes"])
    held = set(((run.held_out.rows - 2) % 150).tolist())
    assert len(run.held_out.rows) == 2 * len(held) == 90


def test_few_different_rows_are_split_as_they_are(folder):
    cells = {"a": [str(k % 5) for k in range(200)], "y": [str(k % 3) for k in range(200)]}
    run = learn(read(write(folder / "repeats.csv", cells)), Request("y", **QUICK), lambda line: None, False)
    assert any("only 5 of 200 rows differ in their inputs" in note for note in run.about["notes"])


def test_rows_that_set_the_temperature_are_from_the_whole_file():
    class Large(list):  # stands for a posterior of so many members
        schema = SimpleNamespace(targets=1000)

    some = calibrating._some(Temperature.most_numbers, Large(range(100)), 3000, 100, 0)
    assert len(some) == len(set(some.tolist())) == 200
    assert np.histogram(some, bins=4, range=(0, 3000))[0].min() > 25
    assert calibrating._some(Temperature.most_numbers, Large(range(100)), 100, 100, 0).tolist() == list(range(100))
    assert len(calibrating._some(VarianceScale.most_numbers, Large(range(100)), 3000, 100, 0)) == 3000


def test_algorithms_without_weight_decay_are_searched_without_it(random):
    x, y = random.normal(size=(60, 40)), random.normal(size=60)
    estimator = wf.WherefromRegressor(draws=2, optimiser=torch.optim.Rprop, noise="fit", samples=8)
    assert estimator.fit(x, y).posterior_.training.algorithm.name == "torch.optim.Rprop"
    given = wf.WherefromRegressor(draws=2, weight_decay=0.0, noise="fit", samples=8).fit(x, x[:, 0])
    assert given.posterior_.training.algorithm.settings["weight_decay"] == 0.0


@pytest.mark.filterwarnings("ignore:only 2 of 400 rows differ")
def test_intervals_hold_a_value_that_most_rows_have(random):
    """A conformal end just above 0 would miss all rows that are 0."""

    def zeros(rows):
        ward = random.choice(["x", "y"], size=rows)
        costs = np.exp(random.normal(size=rows)) * np.where(ward == "x", 1.0, 2.0)
        return {"ward": ward, "cost": np.where(random.random(rows) < 0.8, 0.0, costs)}

    for _ in range(3):
        model = wf.fit(zeros(400), "cost", draws=2, epochs=20, samples=20)
        assert model.score(zeros(1000))["coverage of the 95% interval"] > 0.92


def test_a_posterior_without_t_can_be_extended(random):
    x = random.normal(size=(60, 2))
    data = x, x[:, 0]
    training = wf.Training(wf.MLP(5), wf.Algorithm("adam", lr=0.01, batch_size=20), 8, wf.Regression(0.1))
    whole = wf.marginalise(training, data, [wf.InitialCondition(2), wf.Iterations(wf.SWAG())])
    without = whole.marginalising("theta0")
    assert len(without.extend(theta0=1)) == 3
    with pytest.raises(ValueError, match="cannot be extended"):
        whole.marginalising("t").extend(theta0=1)


def test_a_short_budget_does_not_wait_for_a_compilation(quantities, monkeypatch):
    pytest.importorskip("numba")
    for is_there, budget, expected in ((False, 20, "torch"), (True, 20, "fastest"), (False, 1e6, "fastest")):
        told: list[str] = []
        monkeypatch.setattr(fitting_training, "is_compiled", lambda is_there=is_there: is_there)
        how = fitting_training._without_waiting(wf.Compute(engine="fastest"), budget, told.append)
        assert how.engine == expected
        assert any("too short to compile" in line for line in told) == (expected == "torch")
    assert fitting_training._without_waiting(wf.Compute(engine="native"), 1.0, told.append).engine == "native"


def test_a_short_budget_shortens_the_pilot(random):
    x = random.normal(size=(60, 3))
    data = Encoded(x, ("a", "b", "c")), x[:, 0]
    point = wf.Training(wf.MLP(5), wf.Algorithm("adam", lr=0.01, batch_size=20), epochs=100)
    folds = stopping.folds(np.arange(60), data[1], 0)
    search = fitting_pilot._Search(data, folds, False, None, 0, None, wf.Compute(engine="torch"))
    assert search._affordable([point], 77) == 77
    assert replace(search, until=math.inf)._affordable([point], 77) == 77
    assert replace(search, until=-math.inf)._affordable([point], 77) == LEAST_EPOCHS
