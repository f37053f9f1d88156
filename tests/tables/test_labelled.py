"""Rows whose truth is known, as a model answers them, and the report on them."""

from functools import cache

import numpy as np
import pytest

import wherefrom as wf
from made_table import made, without
from wherefrom.report import page
from wherefrom.tables.looking import gap_totals, gaps_by_column
from wherefrom.tables.model import Model
from wherefrom.tables.neighbours import Neighbour

QUICK = {"draws": 2, "epochs": 8, "samples": 4, "noise": "fit"}


def rows(count: int, seed: int = 0) -> dict:
    """Make a table without the column that has ever new levels."""
    return without(made(count, seed), "shop")


@cache
def gappy() -> Model:
    """A model of a table with gaps, in numbers and in text."""
    return wf.fit(rows(200), "y", **QUICK)


@pytest.fixture
def documents(monkeypatch) -> list[dict]:
    """The documents of the reports that are made."""
    written: list[dict] = []
    monkeypatch.setattr(page, "write", lambda path, document: written.append(document) or path)
    return written


def test_kept_rows_score_as_fit_said_after_loading_too(tmp_path):
    """Missing values are drawn as they were: by the same donors, and never by the row itself."""
    gappy().save(tmp_path / "run")
    again = wf.load(tmp_path / "run")
    assert again.labelled().x.has_gaps.any()
    assert again.labelled().predicted().scores.values == pytest.approx(gappy().scores.values)
    np.testing.assert_array_equal(*(each.labelled().answer(each.posterior).mean for each in (gappy(), again)))


def test_rows_that_were_completed_once_can_be_completed_again():
    """The levels of a text that was drawn give way to others."""
    kept = gappy().labelled()
    cells = gappy().completion.donors.draws(kept.x.cells, 3, leaving_out=kept.itself)
    complete = gappy().encoder.completed(kept.x, cells).values
    part = gappy().encoder.feature_slices["colour"]
    rule = next(rule for rule in gappy().encoder.rules if rule.name == "colour")
    levels = complete[:, part][:, : len(rule.levels) + rule.has_others]
    np.testing.assert_array_equal(levels.sum(1), 1)


def test_a_report_shows_rows_with_gaps_as_predict_answers_them(documents, tmp_path):
    new = rows(60, 5)
    gappy().report(tmp_path / "report.html", new)
    (document,) = documents
    view = document["views"][0]
    overall = {part["name"]: part["share"] for part in view["sources"]["overall"]}
    assert {"gaps", "D", "noise"} <= set(overall)
    assert overall == pytest.approx({name: part.share for name, part in gappy().sources(new).overall.items()})
    predicted = gappy().predict(new)
    np.testing.assert_allclose(view["points"]["mean"], predicted["mean"], rtol=1e-3)
    np.testing.assert_allclose(view["points"]["std"], predicted["std"], rtol=0.02)  # rows without gaps: other samples


def test_a_report_of_kept_rows_has_all_sources_and_each_row_by_networks_that_did_not_see_it(documents, tmp_path):
    gappy().report(tmp_path / "report.html")
    view = documents[0]["views"][0]
    own = [part for part in view["sources"]["overall"] if not part["is_noise"]]
    assert {"D", "gaps"} <= {part["name"] for part in own}
    assert sum(part["model_share"] for part in own) == pytest.approx(1)
    (noise,) = (part for part in view["sources"]["overall"] if part["is_noise"])
    assert (noise["meaning"], noise["model_share"]) == ("not explained by your columns", None)
    expected = gappy().labelled().answer(gappy().posterior).mean
    np.testing.assert_allclose(view["points"]["mean"], expected, rtol=1e-3)
    advised = gappy().advice()
    assert view["advice"]["lead"] == advised.items[0].lead
    assert len(view["advice"]["say"]) == len(advised)
    assert "easure y" not in str(view["advice"])


def test_a_report_shows_other_models_and_what_columns_do(documents, tmp_path):
    from dataclasses import replace

    better = Neighbour("boosted trees", {"nll": 2.0, "rmse": 1.5}, 0.2, 0.03)
    model = replace(gappy(), neighbours=(Neighbour("linear model", {"nll": 2.6}, -0.3, 0.1), better))
    model.report(tmp_path / "report.html")
    document = documents[0]
    claim = "Boosted trees would be better here: the NLL is lower by 0.200 ± 0.030."
    assert document["cautions"][0] == claim
    parts = {each["id"]: each["part"] for each in document["sections"]}
    assert parts == {
        "importance": "summary",
        "gaps": "summary",
        "others": "trust",
        "unexplained": "trust",
        "ways": "technical",
    }
    resting, gaps, scores, left, ways = (each["panels"][0] for each in document["sections"])
    assert [item["0"] for item in ways["items"]] == [way["name"] for way in model.about["ways"]]
    assert claim in scores["caption"]
    assert [item["0"] for item in scores["items"]] == ["this model", "linear model", "boosted trees"]
    nll = next(field["key"] for field in scores["columns"] if field["name"] == "NLL")
    assert [item[nll][:3] for item in scores["items"][1:]] == ["2.6", "2.0"]
    assert {item["name"] for item in resting["items"]} == set(model.encoder.names)
    assert "200 rows" in resting["caption"]
    assert left["title"] == "Where errors are larger"
    kept = model.labelled()
    expected = gaps_by_column(gap_totals(kept.x, kept.predicted().falls), model.drawn_columns)
    assert {item["name"]: item["value"] for item in gaps["items"]} == {
        name: gap.expected_fall for name, gap in expected.items() if gap.expected_fall >= 0.01
    }
    model.report(tmp_path / "report.html", rows(60, 5))  # neighbours are of other rows
    assert [each["id"] for each in documents[1]["sections"]] == ["importance", "gaps"]


def test_no_neighbour_is_better_and_that_is_said(documents, tmp_path):
    from dataclasses import replace

    model = replace(gappy(), neighbours=(Neighbour("linear model", {"nll": 2.6}, -0.3, 0.1),))
    model.report(tmp_path / "report.html")
    (others,) = (each["panels"][0] for each in documents[0]["sections"] if each["id"] == "others")
    assert "None has a clearly lower NLL." in others["caption"]


def test_several_targets_have_the_general_advice(documents, tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 2))
    several = wf.WherefromRegressor(draws=2, epochs=4, samples=4, noise="fit").fit(x, np.stack([x[:, 0], x[:, 1]], 1))
    several.model_.report(tmp_path / "report.html")
    assert [view["name"] for view in documents[0]["views"]]
    assert documents[0]["sections"] == []
    with pytest.raises(ValueError, match="2 columns are predicted"):
        several.model_.advice()
    with pytest.raises(ValueError, match="2 columns are predicted"):
        several.model_.unexplained()
    assert len(several.model_.importance(repeats=1).columns) == 2
