"""The commands and the files of a run: interrupted, two at once, checked, signed."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wherefrom.cli import app
from wherefrom.files import folders
from wherefrom.files.folders import Run
from wherefrom.tables import commands
from wherefrom.tables.model import Model


def wherefrom(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def fit(quantities, monkeypatch):
    """`wherefrom fit` that takes no time: the run was trained before."""
    path, run = quantities
    monkeypatch.setattr(commands, "learn", lambda *_, **__: run)
    monkeypatch.setattr(type(run), "advice", lambda self: ())
    return lambda out, *options: wherefrom("fit", path, "--target", "y", "--out", out, "--json", *options)


def stop(*_, **__):
    raise KeyboardInterrupt


def test_a_stop_before_the_run_is_written_leaves_what_was_there(fit, tmp_path, monkeypatch):
    assert fit(tmp_path / "run").exit_code == 0
    before = Run.open(tmp_path / "run").manifest
    for target, name in ((commands, "learn"), (folders.os, "replace"), (folders.Writer, "put_json")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, stop)
            for out in (tmp_path / "run", tmp_path / "new"):
                done = fit(out, "--overwrite")
                assert (done.exit_code, done.stderr) == (130, "wherefrom: stopped, and nothing was written\n")
    assert Run.open(tmp_path / "run").manifest == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert not folders.check(tmp_path / "run").others


@pytest.mark.parametrize("name", ["_clean", "verdict"])
def test_a_stop_after_the_run_is_written_says_so(name, fit, tmp_path, monkeypatch):
    clean, stops = folders._clean, iter([False, True])  # also in the middle of the switch: what counts is the folder

    def stop_second(folder, kept):
        clean(folder, kept)
        if next(stops, False):
            stop()

    with monkeypatch.context() as patch:
        patch.setattr(*((Model, name, stop) if name == "verdict" else (folders, name, stop_second)))
        done = fit(tmp_path / "run")
    words = f"wherefrom: stopped, and the run is whole, in {tmp_path / 'run'}\n"
    assert (done.exit_code, done.stderr) == (130, words)
    assert Model.load(tmp_path / "run").target.name == "y"


def test_a_second_fit_into_the_same_folder_is_refused_before_it_trains(fit, tmp_path):
    with folders.writing(tmp_path / "run"):
        done = fit(tmp_path / "run")
    assert done.exit_code == 2
    assert f"run is being written by process {os.getpid()}" in done.stderr
    assert fit(tmp_path / "run").exit_code == 0


def test_a_second_fit_does_not_replace_a_run_that_came_meanwhile(fit, quantities, tmp_path, monkeypatch):
    _, run = quantities
    writing = folders.writing

    def late(folder, **how):  # another process finishes between the first look and the lock
        monkeypatch.setattr(folders, "writing", writing)
        run.save(tmp_path / "run")
        return writing(folder, **how)

    monkeypatch.setattr(folders, "writing", late)
    done = fit(tmp_path / "run")
    assert done.exit_code == 2
    assert "holds a run already" in done.stderr


def test_a_run_is_checked(fit, tmp_path):
    run = tmp_path / "run"
    fit(run)
    done = wherefrom("check", run)
    total = len(Run.open(run).files)
    assert (done.exit_code, done.stdout) == (0, f"{run}: {total} of {total} files are undamaged\n")
    path = Run.open(run).path("member-1.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    (run / "notes.txt").write_text("mine")
    done = wherefrom("check", run)
    assert done.exit_code == 2
    assert f"{total - 1} of {total} files are undamaged" in done.stdout
    assert f"damaged: member-1.safetensors: {path} is damaged (it has" in done.stdout
    assert "not of the run: notes.txt" in done.stdout
    assert "partial=True" in done.stdout
    document = json.loads(wherefrom("check", run, "--json").stdout)
    assert (document["is_whole"], list(document["damaged"])) == (False, ["member-1.safetensors"])
    (run / "manifest.json").write_text("{")
    done = wherefrom("check", run)
    assert done.exit_code == 2
    assert "manifest.json is damaged" in done.stderr


def test_a_run_is_signed_and_verified(fit, tmp_path):
    run, key = tmp_path / "run", tmp_path / "key"
    fit(run)
    key.write_bytes(os.urandom(32))
    done = wherefrom("verify", run, "--key", key)
    assert done.exit_code == 2
    assert "is not signed" in done.stderr
    assert wherefrom("sign", run, "--key", key).exit_code == 0
    assert wherefrom("verify", run, "--key", key).exit_code == 0
    fit(run, "--overwrite")
    assert wherefrom("verify", run, "--key", key).exit_code == 2


def test_the_example_folder_is_not_touched(tmp_path):
    """A command for a folder that is not there makes none."""
    for command in (["check"], ["sign", "--key", "key"], ["verify", "--key", "key"]):
        done = wherefrom(command[0], tmp_path / "nowhere", *command[1:])
        assert done.exit_code == 2
    assert not list(Path(tmp_path).iterdir())
