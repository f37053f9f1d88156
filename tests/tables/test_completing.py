"""Rows with gaps: their mean, their variance, whose doubt it is, and what to measure next, by closed forms."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import wherefrom as wf
from conftest import read_uci
from made_table import made, write
from wherefrom.tables.columns import TableEncoder
from wherefrom.tables.completing import TrainingRows
from wherefrom.tables.frames import table_of
from wherefrom.tables.gaps import GAPS
from wherefrom.tables.model import Model

SLOPES, NOISE, CORRELATION = np.array([1.0, 2.0, -1.0]), 1.0, 0.6
COVARIANCE = np.array([[1.0, CORRELATION, 0.0], [CORRELATION, 1.0, 0.0], [0.0, 0.0, 1.0]])


def linear(rows, seed=0):
    """y = x0 + 2 x1 - x2 + noise, where x0 and x1 go together."""
    random = np.random.default_rng(seed)
    x = random.multivariate_normal(np.zeros(3), COVARIANCE, rows)
    y = x @ SLOPES + NOISE * random.normal(size=rows)
    return {"x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "y": y}


def without(table, *names):
    return {name: np.full(len(values), np.nan) if name in names else values for name, values in table.items()}


def predicted(model, table, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.predict(table, **how)


@pytest.fixture(scope="module")
def model():
    return wf.fit(
        linear(3000), target="y", epochs=100, hidden=16, dropout=0.0, draws=3, samples=16, noise="fit", calibrate="none"
    )


# What is missing, the variance that it causes, and the fall of each column: Var(E[y | x_c]).
CASES = [
    (("x2",), 1.0, {"x2": 1.0}),
    (("x1",), 4 * (1 - CORRELATION**2), {"x1": 4 * (1 - CORRELATION**2)}),
    (
        ("x0", "x1"),
        1 + 4 + 4 * CORRELATION,
        {"x0": (1 + 2 * CORRELATION) ** 2, "x1": (2 + CORRELATION) ** 2},
    ),
    (("x1", "x2"), 4 * (1 - CORRELATION**2) + 1, {"x1": 4 * (1 - CORRELATION**2), "x2": 1.0}),
]


@pytest.mark.parametrize(("missing", "variance", "falls"), CASES, ids=["x2", "x1", "x0+x1", "x1+x2"])
@pytest.mark.parametrize("method", ["monte_carlo", "one_shot"])
def test_gaps_cause_the_variance_that_they_should(model, missing, variance, falls, method):
    table = linear(400, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        looked = model.look(without(table, *missing, "y"), wf_how(method))
    answers, columns = looked.predicted.answers, looked.columns()
    x = np.stack([table[name] for name in ("x0", "x1", "x2")], axis=1)
    seen = [k for k in range(3) if f"x{k}" not in missing]
    gone = [k for k in range(3) if f"x{k}" in missing]
    towards = np.linalg.solve(COVARIANCE[np.ix_(seen, seen)], COVARIANCE[np.ix_(seen, gone)])
    mean = x[:, seen] @ (SLOPES[seen] + towards @ SLOPES[gone])
    apart = answers["mean"] - mean
    assert np.sqrt((apart**2).mean()) < 0.35 * np.sqrt(variance)  # 1 / sqrt(20) = 0.22 by chance
    whole = variance + NOISE**2
    assert (answers["std"] ** 2).mean() == pytest.approx(whole, rel=0.12)
    share = (answers["share gaps"] * answers["std"] ** 2).mean() / (answers["std"] ** 2).mean()
    assert share == pytest.approx(variance / whole, abs=0.05)
    for name, fall in falls.items():
        promised = looked.predicted.falls[:, model.drawn_columns.index(name)]
        average = (promised * answers["std"] ** 2).mean() / (answers["std"] ** 2).mean()
        assert average == pytest.approx(fall / whole, abs=0.06), name
    best = max(falls, key=falls.__getitem__)
    assert (np.array(columns["measure_next"]) == best).mean() > 0.8
    np.testing.assert_array_equal(columns["expected_fall"], looked.predicted.falls.max(axis=1))
    shares = np.sum([values for name, values in answers.items() if name.startswith("share ")], axis=0)
    np.testing.assert_allclose(shares, 1.0)


def wf_how(method):
    from wherefrom.tables.looking import How

    return How(method=method)


def test_a_row_of_which_nothing_is_known_has_the_targets_distribution(model):
    one = without(linear(1), "x0", "x1", "x2", "y")
    each = [predicted(replace(model, donors=replace(model.donors, seed=seed)), one) for seed in range(20)]
    whole = SLOPES @ COVARIANCE @ SLOPES + NOISE**2
    assert np.mean([answers["mean"][0] for answers in each]) == pytest.approx(0.0, abs=0.5)
    assert np.mean([answers["std"][0] ** 2 for answers in each]) == pytest.approx(whole, rel=0.2)
    assert np.mean([answers["share_gaps"][0] for answers in each]) == pytest.approx(1 - NOISE**2 / whole, abs=0.04)
    assert {answers["measure_next"][0] for answers in each} <= {"x0", "x1", "x2"}


def test_the_promised_fall_is_what_comes_when_the_value_is_given(model):
    table = linear(3000, 2)
    before = predicted(model, without(table, "x0", "x1"))
    after = predicted(model, without(table, "x0"))
    error_before, error_after = (np.mean((each["mean"] - table["y"]) ** 2) for each in (before, after))
    given = model.drawn_columns.index("x1")
    looked = model.look(without(table, "x0", "x1", "y"))
    promised = (looked.predicted.falls[:, given] * before["std"] ** 2).mean() / (before["std"] ** 2).mean()
    assert 1 - error_after / error_before == pytest.approx(promised, abs=0.05)
    for each in (before, after):
        covered = np.mean((table["y"] >= each["lower"]) & (table["y"] <= each["upper"]))
        assert covered == pytest.approx(0.95, abs=0.02)


def test_a_row_has_the_same_answer_alone_and_among_others(model):
    table = linear(50, 3)
    for row in range(50):
        for name in ("x0", "x1", "x2")[: row % 4]:
            table[name][row] = np.nan
    every = predicted(model, table)
    for row in (0, 1, 3, 10, 49):
        alone = predicted(model, {name: values[row : row + 1] for name, values in table.items()})
        for name, values in alone.items():
            assert values[0] == every[name][row], name
    assert every["share_gaps"][0] == 0 == every["expected_fall"][0]
    assert every["measure_next"][0] == ""
    complete = predicted(model, {name: values[::4] for name, values in table.items()})
    assert "share_gaps" not in complete
    for name, values in complete.items():
        np.testing.assert_array_equal(np.array(values), np.array(every[name])[::4], err_msg=name)


def test_sources_say_gaps_by_column(model):
    table = linear(120, 4)
    table["x1"][:80] = np.nan
    table["x2"][:40] = np.nan
    with warnings.catch_warnings(record=True, action="always") as told:
        sources = model.sources(table)
    assert "'x1' is missing in 80 rows, but never was in training: values are drawn" in str(told[0].message)
    assert list(sources.gaps) == ["x1", "x2"]
    assert sources.gaps["x1"].rows == 80
    assert sources.gaps["x2"].measure_next < 40
    of_x1 = 4 * (1 - CORRELATION**2)
    expected = (of_x1 / (of_x1 + 1 + NOISE**2) + of_x1 / (of_x1 + NOISE**2)) / 2  # with and without x2
    assert sources.gaps["x1"].expected_fall == pytest.approx(expected, abs=0.07)
    variance = (80 * 4 * (1 - CORRELATION**2) + 40 * 1.0) / 120
    assert sources.overall["gaps"].share == pytest.approx(variance / (variance + 1), abs=0.06)
    assert "share_gaps" in sources.rows
    assert "measure next in" in str(sources)
    assert not model.sources(linear(30, 5)).gaps


def test_gaps_are_the_same_after_a_reload_and_made_up_rows_do_nearly_as_well(model, tmp_path):
    table = without(linear(300, 6), "x1")
    model.save(tmp_path / "run")
    first, again = predicted(model, table), predicted(Model.load(tmp_path / "run"), table)
    for name, values in first.items():
        np.testing.assert_array_equal(np.array(values), np.array(again[name]))
    model.save(tmp_path / "bare", keeps_data=False)
    bare = Model.load(tmp_path / "bare")
    assert not np.isin(bare.donors.values, model.donors.values).any()
    other = predicted(bare, table)
    error, of_bare = (np.mean((each["mean"] - table["y"]) ** 2) for each in (first, other))
    assert of_bare < 1.15 * error
    assert (other["std"] ** 2).mean() == pytest.approx((first["std"] ** 2).mean(), rel=0.15)


def test_training_rows_are_completed_given_their_target():
    table = linear(3000)
    gone = np.random.default_rng(1).random(3000) < 0.4
    table["x1"][gone] = np.nan
    raw = table_of({name: values for name, values in table.items() if name != "y"})
    encoder = TableEncoder.of(raw, list(raw.columns), {}, np.arange(3000))
    x = encoder.encode(raw)
    train = TrainingRows.of(encoder, x, table["y"], 0, 0)
    one, two = train.completed(2)
    assert one.columns == ("x0", "x1", "x1 (missing)", "x2")
    np.testing.assert_array_equal(one.values[~gone], x.values[~gone])
    np.testing.assert_array_equal(one.values[:, 2], gone)
    apart = one.values[gone, 1] - two.values[gone, 1]
    assert (apart != 0).mean() > 0.5
    assert abs(apart.mean()) < 4 * apart.std() / len(apart) ** 0.5  # neither has the lower values
    slopes = np.linalg.lstsq(one.values[:, [0, 1, 3]], table["y"], rcond=None)[0]
    np.testing.assert_allclose(slopes, SLOPES, atol=0.12)  # without the target, that of x1 would be 1.6
    assert train.completion().donors.values.shape == (2500, 3)  # of 3000 rows


def test_text_dates_and_classes_with_gaps(kinds, tmp_path):
    _, run = kinds
    cells = made(60, 9, classes=True)
    names = [name for name in cells if name not in ("kind", "id", "customer")]
    random = np.random.default_rng(0)
    for name in names:
        for row in np.flatnonzero(random.random(60) < 0.3):
            cells[name][row] = ""
    for name in names:
        cells[name][0] = ""
    answers = predicted(run, write(tmp_path / "new.csv", cells))
    probabilities = np.stack([answers[f"p_{label}"] for label in ("low", "mid", "high")])
    np.testing.assert_allclose(probabilities.sum(axis=0), 1.0, rtol=1e-6)
    assert (np.array(answers["expected_fall"]) <= answers["share_gaps"] + 1e-12).all()
    assert answers["share_gaps"].mean() > 0
    assert set(answers["measure_next"]) - {""} <= set(run.drawn_columns)
    assert {"colour", "day", "member", "region"} <= set(run.drawn_columns)


def test_limits_are_gaps_within_an_interval(tmp_path):
    table = linear(600, 7)
    table["x1"] = np.exp(table["x1"])
    table["y"] = table["y"] - 2 * np.log(table["x1"]) + 2 * table["x1"]
    cells = {name: [f"{value:.5g}" for value in values] for name, values in table.items()}
    below = table["x1"] < 0.5
    for row in np.flatnonzero(below).tolist():
        cells["x1"][row] = "<0.5" if row % 2 else "≤ 0.5"
    path = write(tmp_path / "limits.csv", cells)
    with pytest.warns(UserWarning, match=rf"column 'x1' has limits, such as '.*0.5', in {below.sum()} rows"):
        model = wf.fit(path, target="y", epochs=30, draws=2, samples=8)
    assert "x1 (missing)" not in model.encoder.features
    new = {"x0": [0.0, 0.0, 0.0], "x1": ["<0.5", "> 3", ""], "x2": [0.0, 0.0, 0.0]}
    new = {name: [*values, 1.0] for name, values in new.items()}  # a column of text and numbers
    with warnings.catch_warnings(record=True, action="always") as told:
        answers = model.predict(new)
    assert "column 'x1' has limits, such as '<0.5', in 2 rows: values are drawn inside" in str(told[1].message)
    assert answers["mean"][0] < answers["mean"][2] < answers["mean"][1]
    assert answers["std"][0] < answers["std"][2]
    assert answers["share_gaps"][0] < answers["share_gaps"][2]
    cells["y"][5] = "<0.1"
    with pytest.raises(ValueError, match=r"column 'y', row 7: '<0.1' is a limit, .* leave the cell empty"):
        wf.fit(write(tmp_path / "target.csv", cells), target="y")


def test_the_command_says_what_to_measure_next(quantities, tmp_path):
    from typer.testing import CliRunner

    from wherefrom.cli import app

    path, run = quantities
    run.save(tmp_path / "run")
    said = CliRunner().invoke(app, ["sources", str(tmp_path / "run"), str(path), "--json"])
    document = json.loads(said.stdout)
    assert set(document["gaps"]) == {"x6", "age", "income", "colour"}
    assert document["gaps"]["income"]["rows"] > 50
    assert "gaps" in document["overall"]
    assert {"measure_next", "expected_fall"} <= set(document["rows"][0])
    said = CliRunner().invoke(app, ["sources", str(tmp_path / "run"), str(path)])
    assert "values missing in the row" in said.stdout
    assert "measure next in" in said.stdout
    out = tmp_path / "out.csv"
    CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(path), "--out", str(out)])
    header = out.read_text().splitlines()[0].split(",")
    assert {"measure_next", "expected_fall", "share_gaps"} <= set(header)


def test_the_variable_is_finite_and_shares_samples():
    assert GAPS.name == "gaps"
    assert GAPS.is_finite
    assert GAPS.shares_samples


# ---------------------------------------------------------------------- real tables


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "held_out"), [("concrete", None), ("power", None), ("boston", None), ("naval", None), ("concrete", 0.15)]
)
def test_hidden_values_of_real_tables(name, held_out):
    """Intervals cover, errors are smaller than with the median, and fall as promised when the values are given.

    Every column of each test row is hidden in turn: squared errors of few rows are too noisy.
    """
    x, y = read_uci(name)
    order = np.random.default_rng(0).permutation(len(y))[:1000]
    varies = np.flatnonzero(x[order].std(axis=0) > 0)
    table = {f"x{k}": x[order, k] for k in varies} | {"y": y[order]}
    cut = len(order) - 150
    train = {column: values[:cut] for column, values in table.items()}
    known = {column: np.tile(values[cut:], len(varies)) for column, values in table.items() if column != "y"}
    truth = np.tile(table["y"][cut:], len(varies))
    which = np.repeat(varies, len(order) - cut)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of copies
        model = wf.fit(train, target="y", draws=3, samples=10, epochs=80, noise="fit", held_out=held_out)
    hidden = {column: np.where(which == int(column[1:]), np.nan, values) for column, values in known.items()}
    medians = {
        column: np.where(np.isnan(values), np.median(train[column]), values) for column, values in hidden.items()
    }
    of_hidden, of_medians, given = (predicted(model, each) for each in (hidden, medians, known))
    bare = predicted(replace(model, donors=model.donors.made_up()), hidden)

    def covered(answers):
        return np.mean((truth >= answers["lower"]) & (truth <= answers["upper"]))

    def errors(answers):
        return (answers["mean"] - truth) ** 2

    error = 3 * np.sqrt(0.05 * 0.95 / (len(order) - cut))  # copies of a row go together
    for answers in (of_hidden, bare):
        assert covered(answers) > min(0.95, covered(given)) - error
        assert errors(answers).mean() < errors(of_medians).mean()
    promised, variance, after = of_hidden["expected_fall"], of_hidden["std"] ** 2, given["std"] ** 2
    parts = [np.arange(len(truth)), *np.array_split(np.argsort(promised), 3)]
    promises = [np.average(promised[part], weights=variance[part]) for part in parts]
    of_variance = [1 - after[part].sum() / variance[part].sum() for part in parts]
    of_errors = [1 - errors(given)[part].sum() / errors(of_hidden)[part].sum() for part in parts]
    np.testing.assert_allclose(of_variance, promises, atol=0.1)
    assert of_errors[0] == pytest.approx(promises[0], abs=0.2)
    assert promises[1] < 0.1
    assert of_errors[3] > of_errors[1] - 0.05  # of naval, gaps cause next to nothing
