"""Tables of times that may be censored: options, events, scores, files, reports."""

import itertools
import json
import re

import numpy as np
import pytest

import wherefrom as wf
from wherefrom.tables.model import as_table
from wherefrom.tables.neighbours import LINEAR, OWN
from wherefrom.tables.raw import Format
from wherefrom.tables.target import Target, known

ROWS = 240
RANDOM = np.random.default_rng(1)
AGE = RANDOM.uniform(40, 80, size=ROWS)
DOSE = RANDOM.choice(["low", "high"], size=ROWS)
TIME = 900 * np.exp(-0.04 * (AGE - 60) + 0.6 * (DOSE == "high")) * RANDOM.weibull(1.5, size=ROWS)
CUT = RANDOM.uniform(100, 2500, size=ROWS)
ENTRY = np.where(RANDOM.uniform(size=ROWS) < 0.3, 0.5 * np.minimum(TIME, CUT), 0.0)
TABLE = {
    "age": AGE,
    "dose": DOSE,
    "days": np.minimum(TIME, CUT),
    "status": np.where(TIME <= CUT, "dead", "alive"),
    "enrolled": ENTRY,
}
QUICK = dict(draws=2, epochs=12, noise="fit")


def raw(**columns):
    return as_table(TABLE | columns, Format())


# ---------------------------------------------------------------------- the event


@pytest.mark.parametrize(
    ("seen", "censored"),
    [(1, 0), (2, 1), (True, False), ("yes", "no"), ("TRUE", "FALSE"), ("dead", "alive"), ("relapse", "x"), ("x", "no")],
)
def test_which_of_two_values_is_the_event(seen, censored):
    target = Target.of(raw(status=np.where(TIME <= CUT, seen, censored)), "days", None, event="status")
    values = target.values(raw(status=np.where(TIME <= CUT, seen, censored)))
    assert target.task == "survival"
    np.testing.assert_array_equal(values[:, 1] == 1, TIME <= CUT)
    np.testing.assert_allclose(values[:, 0], TABLE["days"])
    assert (values[:, 2] == 0).all()


def test_an_event_can_be_named_among_several():
    status = np.where(TIME <= CUT, "dead", np.where(AGE > 60, "moved", "alive"))
    target = Target.of(raw(status=status), "days", None, event="status=dead", entry="enrolled")
    values = target.values(raw(status=status))
    np.testing.assert_array_equal(values[:, 1] == 1, TIME <= CUT)
    np.testing.assert_allclose(values[:, 2], ENTRY)
    assert target.columns == ("days", "status", "enrolled")


def test_rows_that_lack_a_part_have_no_target():
    status = TABLE["status"].astype(object)
    status[3] = None
    days = TABLE["days"].copy()
    days[5] = np.nan
    target = Target.of(raw(status=status, days=days), "days", None, event="status")
    assert np.flatnonzero(~known(target.values(raw(status=status, days=days)))).tolist() == [3, 5]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({}, dict(task="survival"), "event= is missing"),
        ({}, dict(entry="enrolled"), "event= is missing"),
        ({}, dict(event="status", task="regression"), "event= is for times"),
        ({}, dict(event="status=gone"), "never holds 'gone'"),
        ({}, dict(event="age"), "say which value means that the event was seen"),
        ({"status": np.where(TIME <= CUT, "a", "b")}, dict(event="status"), "say which means that the event was seen"),
        ({"status": np.full(ROWS, "alive")}, dict(event="status"), "'alive' alone"),
        ({"days": np.where(np.arange(ROWS) == 7, 0.0, TABLE["days"])}, dict(event="status"), "is 0: a time is above"),
        ({"enrolled": 2 * TABLE["days"]}, dict(event="status", entry="enrolled"), "it is not before 'days'"),
        ({"enrolled": ENTRY - 1e4}, dict(event="status", entry="enrolled"), "an entry is not below zero"),
        ({}, dict(event="status", entry="days"), "are different columns"),
        ({}, dict(event="days"), "different columns"),
    ],
)
def test_wrong_options_are_named(columns, options, words):
    with pytest.raises(ValueError, match=words):
        wf.fit(TABLE | columns, "days", **options, **QUICK)


def test_conformal_intervals_are_not_for_times():
    with pytest.raises(ValueError, match="is not for times that may be censored: take variance"):
        wf.fit(TABLE, "days", event="status", calibrate="conformal", **QUICK)


# ---------------------------------------------------------------------- a model


@pytest.fixture(scope="module")
def model() -> wf.Model:
    return wf.fit(TABLE, "days", event="status", entry="enrolled", **QUICK)


def test_predictions_are_times_and_probabilities(model):
    predictions = model.predict({"age": [45, 78], "dose": ["high", "low"]})
    survival = [name for name in predictions if name.startswith("survival_")]
    assert len(survival) == 3
    assert all(name.replace("_", "").isalnum() for name in survival)
    lower, median, upper = (np.asarray(predictions[name]) for name in ("lower", "median", "upper"))
    assert ((lower < median) & (median < upper)).all()
    assert median[0] > 1.5 * median[1]
    for earlier, later in itertools.pairwise(survival):
        assert (np.asarray(predictions[earlier]) > np.asarray(predictions[later])).all()
    shares = sum(np.asarray(values) for name, values in predictions.items() if name.startswith("share_"))
    np.testing.assert_allclose(shares, 1.0)


def test_scores_stand_beside_simpler_models(model):
    assert model.scores["concordance"] > 0.6
    assert model.scores["integrated Brier score"] < model.scores.baselines["integrated Brier score"]
    assert 0.85 < model.scores["coverage of the 95% interval"] <= 1
    assert [each.name for each in model.neighbours] == [OWN, LINEAR]
    own, linear = model.neighbours
    assert own.scores["concordance"] == 0.5
    assert linear.scores["concordance"] > 0.6
    assert linear.scores["nll"] < own.scores["nll"]
    assert str(model.scores.beside(model.neighbours))


def test_the_law_is_the_one_that_suits_the_rows_without_columns(model):
    likelihood = wf.Survival()
    y = np.stack([TABLE["days"], TABLE["status"] == "dead", ENTRY], 1)
    assert model.posterior.training.likelihood.law == likelihood.suited(likelihood.encode(y).y).law
    random = np.random.default_rng(0)
    for law, times in (("weibull", random.weibull(1.5, size=2000)), ("lognormal", np.exp(random.normal(size=2000)))):
        drawn = likelihood.encode(np.stack([times, np.ones(2000)], 1)).y
        assert likelihood.suited(drawn).law == law


def test_models_come_back_from_files(model, tmp_path):
    model.save(tmp_path / "run")
    again = wf.load(tmp_path / "run")
    for name in ("median", "upper"):
        np.testing.assert_array_equal(again.predict(TABLE)[name], model.predict(TABLE)[name])
    assert again.look(TABLE).predicted.scores == model.look(TABLE).predicted.scores
    again.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Kaplan and Meier" in page
    document = json.loads(
        re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.S).group(1)
    )
    rows = document["views"][0]["rows"]
    assert rows["sort"] in rows["columns"]  # so that those most in doubt come first


def test_what_is_not_scored_is_told(model):
    assert model.look({name: TABLE[name] for name in ("age", "dose", "days")}).truth is None
    looked = model.look(TABLE | {"days": np.zeros(ROWS)})
    assert looked.truth is None
    assert any("not scored" in note for note in looked.notes)


def test_columns_and_advice(model):
    importance = model.importance()
    assert importance["age"]["nll"].is_clear
    assert str(importance)
    assert "not explained by your columns" in str(model.sources(TABLE))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:47 rows have the inputs of another")
def test_families_gaps_and_groups():
    """Trees are tried, a Gaussian process is not; ages are missing, and rows come in pairs."""
    random = np.random.default_rng(0)
    age = np.where(random.uniform(size=ROWS) < 0.2, np.nan, AGE)
    table = TABLE | {"age": age, "patient": np.arange(ROWS) // 2}
    options = dict(event="status", group="patient", drop=["enrolled"], families="network,trees,process")
    with pytest.warns(UserWarning, match="120 groups by 'patient'"):
        model = wf.fit(table, "days", **options)
    assert {family["name"] for family in model.about["families"]} == {"network", "trees"}
    predictions = model.predict({"age": [None, 60.0], "dose": ["low", "low"]})
    assert predictions["share_gaps"][0] > 0
    assert np.isfinite(predictions["median"]).all()


@pytest.mark.slow
def test_the_command(tmp_path):
    from typer.testing import CliRunner

    from wherefrom.cli import app

    path = tmp_path / "data.csv"
    lines = [",".join(TABLE), *(",".join(map(str, row)) for row in zip(*TABLE.values(), strict=True))]
    path.write_text("\n".join(lines))
    fitted = CliRunner().invoke(
        app,
        f"fit {path} --target days --event status --entry enrolled --out {tmp_path}/run --draws 2 --epochs 10 "
        "--noise fit --quiet".split(),
    )
    assert fitted.exit_code == 0, fitted.output
    predicted = CliRunner().invoke(app, f"predict {tmp_path}/run {path} --out {tmp_path}/out.csv".split())
    assert predicted.exit_code == 0, predicted.output
    assert "concordance" in predicted.output
    header = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert header[:3] == ["median", "lower", "upper"]
    sources = CliRunner().invoke(app, f"sources {tmp_path}/run {path} --rows 3".split())
    assert sources.exit_code == 0, sources.output
    assert "median" in sources.output
