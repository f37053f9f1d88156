"""The default: every row of a table trains, and is judged by the networks of the fold that left it out."""

import math

import numpy as np
import pytest

import wherefrom as wf
from made_table import made, write
from wherefrom.tables.model import Model

FOLDS = 10  # of a small table
QUICK = {"draws": 2, "epochs": 8, "samples": 8}
pytestmark = pytest.mark.slow


def table(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    x, z = random.normal(size=(2, rows))
    return {"x": x, "z": z, "y": x + np.sin(2 * z) + 0.5 * random.normal(size=rows)}


@pytest.fixture(scope="module")
def model():
    return wf.fit(table(300), "y", **QUICK)


def test_all_rows_train_and_all_are_scored(model):
    assert len(model.posterior.rows) == model.scores.rows == len(model.held_out.rows) == 300
    assert len(model.posterior) == 2 * FOLDS
    assert model.about["rows"] == {"all": 300, "folds": FOLDS}


def test_scores_are_those_of_networks_that_did_not_see_the_row(model):
    rows = model.posterior.held_out
    prediction = model.posterior.out_of_fold(model.samples)
    assert model.scores["NLL"] == pytest.approx(prediction.nll(rows.truth), rel=1e-4)
    assert model.scores["coverage of the 95% interval"] == pytest.approx(prediction.coverage(rows.truth), abs=0.01)


def test_scores_are_as_good_as_those_of_fresh_rows():
    """Over 6 tables, out of fold against 3,000 fresh rows: the difference is within its error, or pessimistic.

    What is shipped is the mean of all folds, which errs less than the networks of one.
    """
    gaps, errors = [], []
    for seed in range(6):
        one = wf.fit(table(250, seed), "y", draws=2, samples=8, epochs=40, seed=seed)
        fresh = one.score(table(3000, 100 + seed))
        gaps.append(one.scores["NLL"] - fresh["NLL"])
        errors.append(math.hypot(one.scores.errors["NLL"], fresh.errors["NLL"]))
    error = math.sqrt(np.sum(np.square(errors))) / len(errors)
    assert -3 * error < np.mean(gaps) < 3 * error + 0.1


def test_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "run")
    again = Model.load(tmp_path / "run")
    assert again.scores == model.scores
    labelled = again.labelled()
    rows, names = labelled.rows, labelled.names
    assert len(rows) == 300
    assert names[0] == "row 0"
    trained = model.posterior.rows  # the same rows in another order
    by_y = [each.y[:, 0].argsort() for each in (rows, trained)]
    np.testing.assert_array_equal(rows.left_out_by[by_y[0]], model.posterior.fold.parts[by_y[1]])
    part = again.posterior.marginalising("theta0")  # is fitted anew by the rows that were kept
    assert float(part.fitted_noise) > 0
    model.save(tmp_path / "without", keeps_data=False)
    assert Model.load(tmp_path / "without").posterior.held_out is None


def test_the_report_is_of_all_rows(model, tmp_path):
    page = model.report(tmp_path / "report.html").read_text()
    assert "each predicted by networks that were trained without it" in page
    assert "flatter" not in page.split('id="document"')[-1].split('"cautions":[')[1].split("]")[0]


def test_held_out_rows_can_be_asked_for():
    one = wf.fit(table(300), "y", held_out=0.2, **QUICK)
    assert one.about["rows"] == {"all": 300, "train": 240, "calibrate": 30, "test": 30}
    assert one.scores.rows == 30


def test_classes_and_counts_by_folds():
    cells = table(300)
    kinds = cells | {"y": np.where(cells["y"] > 0, "yes", "no")}
    of_kinds = wf.fit(kinds, "y", **QUICK)
    assert of_kinds.scores.rows == 300
    assert of_kinds.scores["AUC"] > 0.7
    counts = cells | {"y": np.random.default_rng(0).poisson(np.exp(cells["x"] / 2))}
    of_counts = wf.fit(counts, "y", task="counts", **QUICK)
    assert of_counts.scores["coverage of the 95% interval"] > 0.9


def test_groups_are_left_out_whole():
    cells = table(300) | {"who": np.repeat(np.arange(60), 5)}
    with pytest.warns(UserWarning, match="60 groups by 'who'"):
        one = wf.fit(cells, "y", group="who", **QUICK)
    parts = one.held_out.left_out_by.reshape(60, 5)
    assert (parts == parts[:, :1]).all()


def test_a_test_table_is_scored_as_well(tmp_path):
    new = table(100, 5)
    one = wf.fit(table(200), "y", test=new, **QUICK)
    assert one.tested.rows == 100
    assert one.tested == one.score(new)
    path = write(tmp_path / "new.csv", {name: list(map(str, values)) for name, values in new.items()})
    assert wf.fit(table(200), "y", test=path, **QUICK).tested["NLL"] == pytest.approx(one.tested["NLL"])
    one.save(tmp_path / "run")
    assert Model.load(tmp_path / "run").tested == one.tested


def test_rows_from_a_date_on_are_for_testing_alone():
    days = np.datetime64("2023-01-01") + np.arange(300)
    cells = {"when": days.astype(str).tolist(), **table(300)}
    one = wf.fit(cells, "y", test_after="2023-09-01", **QUICK)
    assert one.tested.rows == int((days >= np.datetime64("2023-09-01")).sum())
    assert one.about["rows"]["all"] == 300 - one.tested.rows
    assert wf.fit(cells, "y", test_after="when=2023-09-01", **QUICK).tested == one.tested
    with pytest.raises(ValueError, match="'x' is no column of dates"):
        wf.fit(cells, "y", test_after="x=2023-09-01", **QUICK)
    with pytest.raises(ValueError, match="none of the rows are from then on"):
        wf.fit(cells, "y", test_after="2033-09-01", **QUICK)
    with pytest.raises(ValueError, match="is a date, as 2024-01-31"):
        wf.fit(cells, "y", test_after="when=soon", **QUICK)
    with pytest.raises(ValueError, match="has no column of dates"):
        wf.fit(table(100), "y", test_after="2023-09-01", **QUICK)
    with pytest.raises(ValueError, match="give one of them"):
        wf.fit(cells, "y", test_after="2023-09-01", test=cells, **QUICK)


def test_t_is_left_out_where_rows_are_more_likely_without_it():
    """Hardly any noise, and few epochs: the later half of the trajectory still moves a lot."""
    random = np.random.default_rng(1)
    x = random.normal(size=(400, 2))
    cells = {"a": x[:, 0], "b": x[:, 1], "y": 3 * x[:, 0] - x[:, 1]}
    one = wf.fit(cells, "y", draws=2, epochs=12, samples=20, hidden="20")
    assert "t" not in one.posterior.design.names
    kept = wf.fit(cells, "y", draws=2, epochs=12, samples=20, hidden="20", recipe="multi_swag")
    assert "t" in kept.posterior.design.names  # as it was asked for
    assert one.scores["NLL"] < kept.scores["NLL"]


def test_few_rows():
    one = wf.fit({name: values[:25] for name, values in made_numbers().items()}, "y", **QUICK)
    assert one.scores.rows == 25


def made_numbers() -> dict[str, list[float]]:
    cells = made(60)
    return {name: [float(value) for value in cells[name]] for name in ("x1", "y")}


def test_fit_says_where_another_model_is_better():
    """A line, and networks that hardly train."""
    random = np.random.default_rng(1)
    x = random.normal(size=300)
    with pytest.warns(UserWarning, match="a linear model would be better here: the NLL is lower by"):
        one = wf.fit({"x": x, "y": 3 * x + 0.1 * random.normal(size=300)}, "y", draws=2, epochs=2, samples=8)
    assert one.verdict()[0].startswith(("a linear model", "boosted trees"))
    assert one.neighbours[1].scores["rmse"] == pytest.approx(0.1, rel=0.2)
    table = str(one.scores.beside(one.neighbours))
    assert "linear model" in table.splitlines()[0]


def test_fit_says_where_intervals_are_off():
    from wherefrom.tables.scores import Scores

    name = "coverage of the 95% interval"
    fine = Scores(1000, {name: 0.945}, {name: 0.007}, {}, None, 0.95, (0.95, 0.96, 0.94, 0.95, 0.925))
    assert fine.remarks() == []
    off = Scores(1000, {name: 0.93}, {name: 0.008}, {}, None, 0.95, ())
    assert off.remarks() == ["intervals contain the truth less often than they should: 93.0% of 1,000 rows, not 95%"]
    here = Scores(1000, {name: 0.945}, {name: 0.007}, {}, None, 0.95, (0.98, 0.98, 0.97, 0.95, 0.85))
    where = "in the highest fifth of the rows by predicted value"
    expected = f"{where}, intervals contain 85.0% of the true values, not 95%"
    assert here.remarks() == [expected]
