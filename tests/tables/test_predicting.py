"""Rows in turns say what they say together, and scores are those of the prediction itself."""

import numpy as np
import pytest

from made_table import made, write
from wherefrom.posterior import predicting as posterior_predicting
from wherefrom.tables.predicting import predict_rows
from wherefrom.tables.reading import read


def rows_of(run, path):
    table = read(path)
    return run.encoder.encode(table), run.target.values(table)


def test_quantities_are_the_posteriors_own(quantities):
    path, run = quantities
    x, y = rows_of(run, path)
    found = predict_rows(run.posterior, x, 0.9, 8, y)
    prediction = run.posterior.predict(x, 8)
    low, high = prediction.interval(0.9)
    for name, own in (("mean", prediction.mean), ("std", prediction.std), ("lower", low), ("upper", high)):
        np.testing.assert_allclose(found.answers[name], own, rtol=1e-9)
    sources = prediction.sources()
    assert found.sources == sources.names
    for name in sources.names:
        np.testing.assert_allclose(found.answers[f"share {name}"], sources[name], rtol=1e-9)
    scores = found.scores
    assert scores["RMSE"] == pytest.approx(prediction.rmse(y))
    assert scores["NLL"] == pytest.approx(prediction.nll(y))
    assert scores["CRPS"] == pytest.approx(prediction.crps(y))
    assert scores["coverage of the 90% interval"] == pytest.approx(prediction.coverage(y, 0.9))


def test_classes_are_the_posteriors_own(kinds):
    path, run = kinds
    x, y = rows_of(run, path)
    found = predict_rows(run.posterior, x, 0.9, 8, y)
    prediction = run.posterior.predict(x, 8)
    np.testing.assert_allclose(found.answers["p low"], prediction.probabilities[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(found.answers["predicted"], prediction.predicted)
    np.testing.assert_allclose(found.answers["entropy"], prediction.entropy, rtol=1e-9)
    np.testing.assert_allclose(found.answers["disagreement"], prediction.mutual_information, atol=1e-12)
    truth = y.tolist()
    for name, own in (
        ("accuracy", prediction.accuracy(truth)),
        ("NLL", prediction.nll(truth)),
        ("Brier score", prediction.brier(truth)),
        ("ECE", prediction.ece(truth)),
    ):
        assert found.scores[name] == pytest.approx(own), name


@pytest.mark.parametrize("which", ["quantities", "kinds"])
def test_turns_change_nothing(which, request, monkeypatch):
    path, run = request.getfixturevalue(which)
    x, y = rows_of(run, path)
    whole = predict_rows(run.posterior, x, 0.9, 8, y)
    monkeypatch.setattr(posterior_predicting, "_MOST_ROWS", 64)
    parts = predict_rows(run.posterior, x, 0.9, 8, y)
    for name, values in whole.answers.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(parts.answers[name], values, rtol=1e-4, atol=1e-6)
    for part in ("values", "errors", "baselines"):
        assert getattr(parts.scores, part) == pytest.approx(getattr(whole.scores, part), rel=1e-3), part


def test_truths_may_be_missing(quantities, kinds):
    path, run = quantities
    x, y = rows_of(run, path)
    some = np.where(np.arange(len(y)) % 2, y, np.nan)
    assert predict_rows(run.posterior, x, 0.9, 8, some).scores.rows == len(y) // 2
    assert not predict_rows(run.posterior, x, 0.9, 8, np.full(len(y), np.nan)).scores
    path, run = kinds
    x, y = rows_of(run, path)
    y[:10], y[10:20] = None, "never seen"
    assert predict_rows(run.posterior, x, 0.9, 8, y).scores.rows == len(y) - 20


def test_a_level_that_calibration_cannot_reach_is_told(quantities):
    path, run = quantities
    x, _ = rows_of(run, path)
    found = predict_rows(run.posterior, x, 0.999, 8)
    assert "needs at least 999 rows" in found.notes[0]
    assert (found.answers["upper"] > found.answers["mean"]).all()


def test_sets_of_classes_are_written_and_scored(kinds):
    path, run = kinds
    x, y = rows_of(run, path)
    assert "set" not in predict_rows(run.posterior, x, 0.9, 8).answers
    test = run.labelled().rows
    posterior = run.posterior.uncalibrated.calibrated("conformal", test, 8)
    found = predict_rows(posterior, x, 0.9, 8, y)
    prediction = posterior.predict(x, 8)
    sets = prediction.sets(0.9).numpy()
    classes = np.array(prediction.classes)
    assert found.answers["set"].tolist() == [tuple(classes[row]) for row in sets]
    covered = [label in classes[row] for label, row in zip(y.tolist(), sets, strict=True)]
    assert found.scores["coverage of the 90% set"] == pytest.approx(np.mean(covered))
    assert found.scores["mean size of the set"] == pytest.approx(sets.sum(axis=1).mean())
    assert "needs at least 999 rows" in predict_rows(posterior, x, 0.999, 8).notes[0]


def test_shares_have_plain_names_and_interactions_share_a_column(folder):
    from wherefrom.tables.fitting import learn
    from wherefrom.tables.options import Request

    table = read(write(folder / "crossed.csv", made(200)))
    run = learn(
        table,
        Request("y", over="theta0=2,order=2,F=dropout", epochs=4, samples=8, held_out=0.2),
        lambda line: None,
        False,
    )
    looked = run.look(table)
    columns = looked.columns()
    shares = [name for name in columns if name.startswith("share_")]
    assert shares == [
        f"share_{name}"
        for name in ("initial_weights", "batch_order", "gaps", "together", "dropout", "unexplained", "outside")
    ]
    joint = [name for name in looked.sources if " x " in name]
    assert joint
    np.testing.assert_allclose(
        columns["share_together"], sum(looked.predicted.answers[f"share {name}"] for name in joint), rtol=1e-12
    )
    np.testing.assert_allclose(sum(columns[name] for name in shares), 1.0, rtol=1e-6)


def test_rows_most_in_doubt_are_those_that_the_networks_disagree_on(quantities, kinds):
    for path, run in (quantities, kinds):
        looked = run.look(path)
        answers, doubt = looked.predicted.answers, looked.predicted.doubt
        if "std" in answers:
            expected = answers["std"] * np.sqrt(np.clip(1 - answers["share noise"], 0, None))
        else:
            expected = answers["disagreement"]
        np.testing.assert_allclose(doubt, expected, rtol=0.2, atol=1e-6)
