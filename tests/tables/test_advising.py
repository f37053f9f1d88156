"""Advice about tables, each item by a made-up table where exactly that holds."""

import numpy as np
import pytest

import wherefrom as wf
from wherefrom.predictive.sources import Overall
from wherefrom.tables.advising import (
    MOST_ITEMS,
    NOTHING,
    Advice,
    about_gaps,
    about_intervals,
    about_rows,
    about_unexplained,
    advice,
)
from wherefrom.tables.looking import Gap
from wherefrom.tables.scores import Scores
from wherefrom.tables.wording import speaking

QUICK = {"draws": 3, "hidden": [20], "samples": 4, "recipe": "deep_ensemble"}


def test_intervals_that_are_off_come_first():
    """The noise is said to be 0.3 where it is 1, and nothing is calibrated: intervals hold far too little."""
    random = np.random.default_rng(5)
    x, luck = random.normal(size=(2, 400))
    model = wf.fit({"x": x, "y": x + luck}, "y", noise=0.3, calibrate="none", epochs=30, **QUICK)
    found = model.advice()
    assert found.about[0] == "intervals"
    (first, *_) = found
    coverage = next(value for name, value in model.scores.values.items() if name.startswith("coverage"))
    assert coverage < 0.6
    assert f"contain the truth less often than they should: {coverage:.1%} of 400 rows" in first.say
    assert "Fit again with calibrate='conformal'." in first.say
    right = wf.fit({"x": x, "y": x + luck}, "y", noise="fit", epochs=30, **QUICK)
    assert "intervals" not in right.advice().about


def test_too_few_rows_call_for_more():
    """60 rows of a curved surface without noise: what the networks make of it depends on the rows that they saw."""
    random = np.random.default_rng(1)
    a, b = random.uniform(-2, 2, size=(2, 60))
    model = wf.fit({"a": a, "b": b, "y": np.sin(2 * a) * b}, "y", noise=0.02, epochs=400, **QUICK)
    found = model.advice()
    assert found.about == ("rows",)
    overall = model.labelled().by_all_networks().all_sources().overall
    between_folds = overall["D"].model_share
    share = 8.1 * between_folds / (1 + 7.1 * between_folds)
    assert share > 0.75
    (item,) = found
    assert item.say.startswith(f"About {share:.0%} of the model's own doubt")
    assert "There are 60 rows; more would lower this doubt." in item.say


def test_a_missing_column_that_matters_is_to_be_measured():
    """y is nearly a, which is missing in a quarter of the rows and which b does not tell."""
    random = np.random.default_rng(2)
    a, b, luck = random.normal(size=(3, 500))
    table = {"a": np.where(np.arange(500) % 4 == 0, np.nan, a), "b": b, "y": 4 * a + 0.3 * luck}
    model = wf.fit(table, "y", noise="fit", epochs=60, **QUICK)
    found = model.advice()
    assert "gaps" in found.about
    item = next(item for item in found if item.about == "gaps")
    assert item.lead == "Measure a where it is missing"
    assert "a is missing in 125 of 500 rows" in item.say
    fall = model.labelled().predicted().falls[:, 0]
    assert f"would lower the variance there by {fall[fall > 0].mean():.0%} on average" in item.say
    assert fall[fall > 0].mean() > 0.8
    assert "gaps" not in model.advice({"a": a, "b": b, "y": 4 * a + 0.3 * luck}).about


def test_luck_is_not_explained_by_columns_and_nobody_is_to_measure_it_better():
    random = np.random.default_rng(3)
    a, luck = random.normal(size=(2, 500))
    model = wf.fit({"a": a, "stay": 10 + a + luck}, "stay", noise="fit", epochs=40, **QUICK)
    found = model.advice()
    assert found.about == ("unexplained",)
    (item,) = found
    assert item.lead == "Look for columns that explain stay"
    assert "still differ by ± 0.9" in item.say or "still differ by ± 1.0" in item.say
    assert "further columns could" in item.say
    assert "easure" not in str(found)


# ---------------------------------------------------------------------- the rules


def overall(**shares: float) -> dict[str, Overall]:
    """Sources with these shares; the rest is noise."""
    own = sum(shares.values())
    parts = {name: Overall(share, 0.0, share, 0.01, share / own, 0.02) for name, share in shares.items()}
    return parts | {"noise": Overall(4 * (1 - own), 0.0, 1 - own, 0.01)}


@pytest.mark.parametrize(
    ("shares", "is_advised"),
    [
        ({"D": 0.1, "theta0": 0.1}, True),
        ({"D": 0.1, "theta0": 0.3}, False),  # networks disagree for other reasons
        ({"D": 0.01, "theta0": 0.001}, False),  # more rows would change the answers by next to nothing
        ({"theta0": 0.2}, False),
    ],
)
def test_more_rows_are_for_doubt_that_they_lower(shares, is_advised):
    item = about_rows(overall(**shares), 1234)
    assert (item is not None) == is_advised
    if item is not None:
        assert item.say.startswith(
            "About 50% of the model's own doubt, and 10.0% of all doubt, comes from the choice of training rows"
        )
        assert "1,234" in item.say


def test_folds_that_share_rows_show_a_part_of_what_other_rows_would_change():
    """The variance of a mean of n values is that of its n jackknife values, times (n - 1)^2 / n."""
    values = np.random.default_rng(0).normal(size=10)
    left_out = (values.sum() - values) / 9
    assert left_out.var(ddof=1) * 81 / 10 == pytest.approx(values.var(ddof=1) / 10)
    few = overall(D=0.02, theta0=0.1)
    assert about_rows(few, 100) is None
    item = about_rows(few, 100, folds=10)
    part = 8.1 * 0.02
    assert item.say.startswith(
        f"About {part / (part + 0.1):.0%} of the model's own doubt, and {part / (part + 0.98):.1%}"
    )


def scores(**values: float) -> Scores:
    named = {name.replace("_", " "): value for name, value in values.items() if name != "fifths"}
    return Scores(400, named, {"accuracy": 0.02}, {}, None, 0.95, tuple(values.get("fifths", ())))


def test_intervals_are_off_overall_in_a_fifth_or_not():
    covers = "coverage of the 95% interval"
    assert about_intervals(scores(**{covers: 0.945}), "done", "fit") is None
    whole = about_intervals(scores(**{covers: 0.90}), "done", "fit")
    assert "read 95% as 90%." in whole.say
    fifths = (0.95, 0.96, 0.94, 0.95, 0.80)
    fifth = about_intervals(scores(**{covers: 0.945}, fifths=fifths), "done", "fit")
    assert fifth.say.startswith("In the highest fifth of the rows by predicted value, intervals contain 80.0%")
    with speaking("command"):
        fifth = about_intervals(scores(**{covers: 0.945}, fifths=fifths), "done", "fit")
    assert "--noise predicted" in fifth.say
    fifth = about_intervals(scores(**{covers: 0.945}, fifths=fifths), "done", "predicted")
    assert "read 95% as 80% there." in fifth.say
    sets = about_intervals(scores(**{"coverage of the 95% set": 0.90}), "done", "none")
    assert (sets.lead, sets.say[:4]) == ("Do not trust the level of the sets", "Sets")


def test_classes_are_as_often_right_as_they_are_sure():
    assert about_intervals(scores(accuracy=0.80, mean_confidence=0.83), "none", "none") is None
    item = about_intervals(scores(accuracy=0.80, mean_confidence=0.90), "none", "none")
    assert item.lead == "Do not trust the probabilities"
    assert item.say.startswith("Answers are right less often than their confidence says: 80.0% of 400 rows, not 90.0%.")
    assert "calibrate='temperature'" in item.say
    item = about_intervals(scores(accuracy=0.80, mean_confidence=0.90), "tried", "none")
    assert "Calibration was tried, and did not help: " in item.say
    assert "temperature" not in item.say


def test_gaps_that_matter_most_are_named_and_small_ones_are_not():
    gaps = {"age": Gap(40, 0.31, 38), "weight": Gap(10, 0.06, 2), "height": Gap(90, 0.01, 0)}
    item = about_gaps(gaps, 400)
    assert item.say == (
        "age is missing in 40 of 400 rows: measuring it would lower the variance there by 31% on average. "
        "Next: weight, 6% in 10 rows."
    )
    assert "would lower the entropy there by 31%" in about_gaps(gaps, 400, "entropy").say
    assert about_gaps({"height": gaps["height"]}, 400) is None
    assert about_gaps({}, 400) is None


def test_unexplained_doubt_is_said_if_it_is_most():
    assert about_unexplained(overall(D=0.6), "stay") is None
    item = about_unexplained(overall(D=0.01), "stay")
    assert item.say.startswith("99% of the doubt about stay is not explained by your columns")
    assert "± 1.99 in stay" in item.say
    classes = {"overlap": Overall(0.5, 0.0, 0.96, 0.01)}
    assert "still have different classes" in about_unexplained(classes, "died").say


def test_three_items_at_most_in_order():
    random = np.random.default_rng(4)
    a, b, luck = random.normal(size=(3, 300))
    table = {"a": np.where(np.arange(300) % 3 == 0, np.nan, a), "b": b, "y": 2 * a + luck}
    model = wf.fit(table, "y", noise="fit", epochs=20, **QUICK)
    bad = Scores(400, {"coverage of the 95% interval": 0.8}, {}, {}, None, 0.95)
    all_four = overall(D=0.2, theta0=0.1)
    found = advice(model.labelled(), bad, all_four)
    assert found.about == ("intervals", "rows", "gaps")
    assert len(found) == MOST_ITEMS
    assert [line[:3] for line in str(found).splitlines()] == ["1. ", "2. ", "3. "]
    good = Scores(400, {"coverage of the 95% interval": 0.95}, {}, {}, None, 0.95)
    assert advice(model.labelled(), good, all_four).about == ("rows", "gaps", "unexplained")
    assert str(Advice(())) == NOTHING
