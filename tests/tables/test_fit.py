"""`wf.fit`: a frame in, a model out; the command with the same options gives the same numbers."""

import io
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import wherefrom as wf
from made_table import made, write
from wherefrom.cli import app
from wherefrom.tables.reading import read

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:column 'shop' has levels")]
QUICK = {"draws": 3, "epochs": 8, "samples": 8}


def framed(rows: int, seed: int = 0) -> pd.DataFrame:
    """The table with typed columns: numbers are numbers, and gaps are nan."""
    return pd.read_csv(io.StringIO(pd.DataFrame(made(rows, seed)).to_csv(index=False)))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return framed(300)


@pytest.fixture(scope="module")
def model(frame) -> wf.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wf.fit(frame, target="y", **QUICK)


@pytest.fixture(scope="module")
def by_command(tmp_path_factory):
    """The same by `wherefrom fit` and `wherefrom predict`."""
    from typer.testing import CliRunner

    folder = tmp_path_factory.mktemp("command")
    write(folder / "train.csv", made(300))
    write(folder / "new.csv", made(40, 1))
    options = ["--draws", "3", "--epochs", "8", "--samples", "8"]
    for words in (
        ["fit", folder / "train.csv", "--target", "y", "--out", folder / "run", *options],
        ["predict", folder / "run", folder / "new.csv", "--out", folder / "new.parquet"],
    ):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
    return folder


def test_a_frame_is_learnt_as_its_file_is(model, by_command):
    """Cells of a CSV file are text, of a frame they are numbers: what is learnt is the same."""
    new = framed(40, 1)
    here, there = model.predict(new), pl.read_parquet(by_command / "new.parquet")
    assert list(here.columns) == there.columns
    for name in ("mean", "std", "lower", "upper", "distance"):
        np.testing.assert_allclose(here[name], there[name], rtol=1e-5, atol=1e-6)
    from_file = wf.load(by_command / "run")
    assert isinstance(from_file, wf.Model)
    assert from_file.scores == model.scores


def test_predictions_are_of_the_frames_kind(model):
    new = framed(5, 1)
    pandas = model.predict(new.set_index(pd.Index(list("abcde"))))
    assert pandas.index.tolist() == list("abcde")
    polars = model.predict(pl.DataFrame(new.to_dict("list"), strict=False))
    arrays = model.predict(new.to_dict("list"))
    for name in ("mean", "upper"):
        assert pandas[name].tolist() == polars[name].to_list() == list(arrays[name])


def test_a_file_is_predicted_as_its_frame_is(model, tmp_path):
    path = write(tmp_path / "new.csv", made(40, 1))
    of_file, of_frame = model.predict(path), model.predict(framed(40, 1))
    assert isinstance(of_file, dict)
    assert list(of_file) == list(of_frame.columns)
    np.testing.assert_allclose(of_file["mean"], of_frame["mean"], rtol=1e-12)
    assert model.score(str(path)) == model.score(framed(40, 1))
    np.testing.assert_allclose(sum(model.sources(path).rows.values()), 1, atol=1e-6)


def test_options_of_predict(model):
    new = framed(5, 1)
    wide, narrow = (model.predict(new, level=level) for level in (0.95, 0.5))
    assert (wide["upper"] - wide["lower"] > narrow["upper"] - narrow["lower"]).all()
    assert model.predict(new, keep=["x1"])["x1"].tolist() == pytest.approx(new["x1"].tolist())
    assert model.predict(new, method="one_shot").shape == wide.shape
    with pytest.raises(ValueError, match="level= lies between 0 and 1"):
        model.predict(new, level=95)


def test_scores_and_sources(model, frame):
    new = framed(200, 2)
    scores = model.score(new)
    assert scores.rows == 200
    assert 0 < scores["RMSE"] < new["y"].std()
    with pytest.raises(ValueError, match="no row with a 'y'"):
        model.score(new.drop(columns="y"))
    sources = model.sources(new)
    assert sum(part.share for part in sources.overall.values()) == pytest.approx(1)
    np.testing.assert_allclose(sources.rows.sum(axis=1), 1, atol=1e-6)
    assert "not explained by your columns" in str(sources)


def test_saved_and_loaded(model, tmp_path):
    new = framed(20, 1)
    model.save(tmp_path / "run")
    again = wf.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.predict(new), model.predict(new))
    assert repr(again) == repr(model) == "Model(y: regression, 30 networks, learnt from 300 rows)"
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(model)).predict(new), model.predict(new))


def test_a_report_of_kept_rows_and_of_others(model, tmp_path):
    assert model.report(tmp_path / "own.html").read_text().startswith("<!doctype html>")
    assert "Rows of the frame" in model.report(tmp_path / "new.html", framed(60, 3)).read_text()


def test_notes_are_warnings(frame):
    gaps = frame.copy()
    gaps.loc[3, "y"] = np.nan
    with pytest.warns(UserWarning, match="1 row without 'y' left out") as caught:
        model = wf.fit(gaps, "y", **QUICK)
    assert {one.filename for one in caught} == {__file__}
    assert any("left out" in note for note in model.notes)
    with pytest.warns(UserWarning, match="does not know, and ignores: 'other'"):
        model.predict(frame.assign(other=1))


def test_files_and_options_as_the_command_has_them(tmp_path):
    path = write(tmp_path / "train.csv", made(300))
    few = wf.fit(str(path), "y", hidden=[7], dropout=0.0, lr=0.01, drop=["x1"], noise=0.5, budget="1h", **QUICK)
    assert few.posterior.training.model.hidden == (7,)
    assert "x1" not in few.encoder.names
    assert few.posterior.training.likelihood.noise == 0.5
    with pytest.raises(ValueError, match="has no column 'z'"):
        wf.fit(read(path), "z")
    with pytest.raises(ValueError, match="budget= is a time"):
        wf.fit(path, "y", budget="soon")


def test_verbose_says_what_the_command_says(frame, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wf.fit(frame, "y", verbose=True, **QUICK)
    assert "300 rows: all are used to train; each is tested" in capsys.readouterr().out
