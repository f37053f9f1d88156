"""A small version of each trial of `benchmarks/reliability.py`: kills, bits, full disks, two writers."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import apart
from reliable import trials
from reliable.cases import cases

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def every():
    return {case.name: case for case in cases()}


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def assert_held(trial, least):
    assert not trial.faults
    assert trial.held == trial.tried >= least


@pytest.mark.parametrize(
    ("name", "how", "every_nth"),
    [
        ("posterior.save", "die", 9),
        ("posterior.save", "die half-way", 6),
        ("posterior.save", "fail", 13),
        ("model.save (wherefrom fit --overwrite)", "die", 40),
        ("a file added to a run", "die", 5),
        ("wherefrom sign", "die", 8),
        ("Recorder.save", "die", 5),
        ("Recorder.save", "fail", 8),
        ("predictions, CSV", "die", 4),
    ],
)
def test_interrupted_writers(name, how, every_nth, every, tmp_path):
    assert_held(trials.interruptions(every[name], tmp_path, how, has_old=True, every=every_nth), 2)


def checkpoints_held(folder: Path) -> tuple[list, int, int]:
    os.fsync = lambda descriptor: None
    case = next(case for case in cases() if case.name == "checkpoints")
    trial = trials.interruptions(case, folder, "die", has_old=True, every=30)
    return trial.faults, trial.held, trial.tried


def test_interrupted_checkpoints(tmp_path):
    """In a process of its own: a forked one cannot train if its parent's autograd has started threads."""
    faults, held, tried = apart.alone(checkpoints_held, tmp_path)
    assert not faults
    assert held == tried >= 2


def test_interrupted_writers_where_nothing_was(every, tmp_path):
    assert_held(trials.interruptions(every["posterior.save"], tmp_path, "die", has_old=False, every=15), 3)


def test_flipped_bits(tmp_path):
    assert_held(trials.flipped_bits(tmp_path / "table", 50), 50)
    assert_held(trials.flipped_bits_of_members(tmp_path / "posterior", 5), 5)


def test_no_descriptors(every, tmp_path):
    assert_held(trials.no_descriptors([every["posterior.save"]], tmp_path), 4)


def test_two_writers(every, tmp_path):
    assert_held(trials.two_writers([every["posterior.save"], every["Recorder.save"]], tmp_path, 2), 4)
