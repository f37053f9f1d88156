"""A run folder: whole, self-contained, the same after a reload, and refused if it is newer."""

from pathlib import Path

import numpy as np
import pytest

import wherefrom as wf
from rewritten import rewrite
from wherefrom.files.folders import Run, Writer, check
from wherefrom.tables import model as models
from wherefrom.tables.columns import Encoded
from wherefrom.tables.model import Model
from wherefrom.tables.outside import weight
from wherefrom.tables.predicting import predict_rows
from wherefrom.tables.reading import read


@pytest.mark.parametrize("which", ["quantities", "kinds"])
def test_a_reload_predicts_the_same(which, request, tmp_path):
    path, run = request.getfixturevalue(which)
    run.save(tmp_path / "run", command="wherefrom fit")
    again = Model.load(tmp_path / "run")
    table = read(path)
    one, two = (predict_rows(r.posterior, r.encoder.encode(table), 0.95, 8) for r in (run, again))
    for name, values in one.answers.items():
        np.testing.assert_array_equal(values, two.answers[name])
    assert again.target == run.target
    assert again.scores == run.scores
    distances = [r.around.look(r.encoder.encode(table))[0] for r in (run, again)]
    np.testing.assert_array_equal(*distances)
    own = wf.load(tmp_path / "run").posterior.predict(run.encoder.encode(table), 8)  # without the rules
    name = "mean" if which == "quantities" else "confidence"
    np.testing.assert_array_equal(getattr(own, name), two.answers[name])


def test_the_folder_says_how_it_came_about(quantities, tmp_path):
    _, run = quantities
    run.save(tmp_path / "run", command="wherefrom fit data.csv --target y")
    document = Run.open(tmp_path / "run").json("table.json")
    assert document["format"] == models.FORMAT
    assert document["command"] == "wherefrom fit data.csv --target y"
    assert document["versions"]["wherefrom"] == wf.__version__
    assert document["seed"] == 0
    assert document["calibration"]


def test_rows_to_test_had_no_part_in_it(quantities, tmp_path):
    path, run = quantities
    run.save(tmp_path / "run")
    again = Model.load(tmp_path / "run")
    labelled = again.labelled()
    kept, names = labelled.rows, labelled.names
    x, y = Encoded(kept.x.numpy(), run.encoder.features), kept.y[:, 0].numpy()
    rows = again.held_out.rows[again.held_out.calibrate :]
    assert names == tuple(str(number - 2) for number in rows.tolist())  # the identifier, which counts from 0
    table = read(path)
    truth = run.target.values(table)
    np.testing.assert_array_equal(y, truth[rows - 2])
    encoded = run.encoder.encode(table).take(rows - 2)
    there = ~encoded.has_gaps
    np.testing.assert_array_equal(x.values[there], encoded.values[there])
    assert not there.all()
    np.testing.assert_array_equal(x.values, run.completion.once(encoded).values)
    trained = {row.numpy().tobytes() for row in run.posterior.rows.x}
    assert not any(row.tobytes() in trained for row in x.values)
    blend = again.background.at(weight(labelled.distance))
    again = predict_rows(
        run.posterior, encoded, run.level, run.samples, y, blend=blend, completion=run.completion
    ).scores
    assert again.values == pytest.approx(run.scores.values)


def test_parts_are_fitted_anew_by_the_rows_that_were_kept(quantities, tmp_path):
    _, run = quantities
    run.save(tmp_path / "run")
    again = Model.load(tmp_path / "run")
    rows = again.labelled().rows
    part = again.with_rows_to_calibrate().marginalising("t")
    assert [each.by for each in part.calibration] == ["conformal"]
    assert part.predict(rows.x, 8).nll(rows.truth) > 0


def test_data_can_be_left_out(quantities, tmp_path):
    _, run = quantities
    run.save(tmp_path / "run", keeps_data=False)
    again = Model.load(tmp_path / "run")
    with pytest.raises(ValueError, match="kept no rows: name a table of rows with 'y' in it"):
        again.labelled()
    assert again.with_rows_to_calibrate() is again.posterior
    income, kept = (each.donors.values[:, each.drawn_columns.index("income")] for each in (again, run))
    assert not np.isin(income, kept).any()


def test_a_newer_format_is_refused_in_words(quantities, tmp_path):
    _, run = quantities
    run.save(tmp_path / "run")
    rewrite(tmp_path / "run", "table.json", lambda document: document | {"format": 99})
    with pytest.raises(
        ValueError, match=rf"newer version \(format 99; this one reads up to {models.FORMAT}\): update wherefrom"
    ):
        Model.load(tmp_path / "run")


def test_folders_that_hold_no_run(quantities, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not exist: make one, as wf.fit\(table, target='y'\).save"):
        Model.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"holds no run of a table"):
        Model.load(tmp_path)
    (tmp_path / "table.json").write_text("{}")
    with pytest.raises(ValueError, match=r"in a format that is no longer read: make it again"):
        Model.load(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"manifest.json is damaged, or was not written by wherefrom"):
        Model.load(tmp_path)
    quantities[1].posterior.save(tmp_path / "posterior")
    with pytest.raises(ValueError, match=r"holds no run of a table: make one, as wf.fit"):
        Model.load(tmp_path / "posterior")
    with pytest.raises(FileExistsError, match=r"holds a run that is not of a table"):
        quantities[1].save(tmp_path / "posterior", overwrite=True)
    quantities[1].save(tmp_path / "model")
    with pytest.raises(FileExistsError, match=r"holds a run with table.json, which would be lost"):
        quantities[1].posterior.save(tmp_path / "model")


def test_what_is_there_is_not_lost(quantities, tmp_path, monkeypatch):
    _, run = quantities
    folder = tmp_path / "run"
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("")
    with pytest.raises(FileExistsError, match=r"holds other files"):
        run.save(tmp_path / "photos", overwrite=True)
    with pytest.raises(FileExistsError, match=r"is a file"):
        run.save(tmp_path / "photos" / "cat.png")
    folder.mkdir()  # an empty folder is free
    run.save(folder)
    with pytest.raises(FileExistsError, match=r"holds a run already: .* overwrite=True"):
        run.save(folder)

    def broken(*_):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "put_tensors", broken)
        with pytest.raises(OSError, match=r"the disk is full"):
            run.save(folder, overwrite=True)
    assert Model.load(folder).scores == run.scores
    run.save(folder, overwrite=True)
    assert Model.load(folder).scores == run.scores
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "run"]


def test_overwriting_replaces_the_runs_own_files_alone(quantities, tmp_path):
    _, run = quantities
    folder = tmp_path / "run"
    run.save(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "data").mkdir()
    (folder / "report.html").write_text("of the run before")
    run.save(folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert check(folder).others == ("data", "notes.txt")
    assert check(folder).is_whole
    assert Model.load(folder).scores == run.scores


def test_a_run_can_be_written_here_or_it_is_told_before(quantities, tmp_path, monkeypatch):
    _, run = quantities
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run.save(Path())
    assert Model.load(tmp_path / "here").scores == run.scores
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match=r"file is a file: name a folder"):
        models.check_free(tmp_path / "file" / "run", overwrite=False)
    monkeypatch.setattr(models.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match=r"cannot be written to: name another folder"):
        models.check_free(tmp_path / "a" / "run", overwrite=False)


def test_rows_for_the_noise_are_those_that_it_was_fitted_on(quantities, tmp_path):
    _, run = quantities
    run.save(tmp_path / "run")
    posterior = Model.load(tmp_path / "run").with_rows_to_calibrate()
    np.testing.assert_array_equal(posterior.held_out.x, run.posterior.held_out.x)
    np.testing.assert_array_equal(posterior.held_out.y, run.posterior.held_out.y)
    assert {len(each.fit.data) for each in posterior.calibration} == {run.held_out.calibrate}
