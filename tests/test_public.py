"""The public face: its names, that it opens quickly, and that the command answers."""

import subprocess
import sys

import pytest

import wherefrom as wf

FIRST_WEEK = [
    "Training",
    "Algorithm",
    "Regression",
    "Classification",
    "Counts",
    "Ordinal",
    "Positive",
    "Quantiles",
    "Several",
    "Survival",
    "marginalise",
    "fit",
    "Model",
    "Compute",
    "InitialCondition",
    "Iterations",
    "SWAG",
    "TRADI",
    "Snapshots",
    "Laplace",
    "Variational",
    "Hyperparameters",
    "LogUniform",
    "Algorithms",
    "BatchOrder",
    "Families",
    "Folds",
    "MLP",
    "rank_one",
    "Dropout",
    "Resample",
    "Jointly",
    "recipes",
    "Posterior",
    "load",
    "WherefromRegressor",
    "WherefromClassifier",
]
IN_THEIR_ROOMS = [
    "marginalise_folds",
    "Checkpoints",
    "schedules",
    "augment",
    "MLPs",
    "glorot_uniform",
    "Recorder",
    "callbacks",
    "Prediction",
    "ClassPrediction",
    "CountPrediction",
    "OrdinalPrediction",
    "QuantilePrediction",
    "SeveralPrediction",
    "OwnLikelihood",
    "OwnPrediction",
    "SurvivalPrediction",
    "one_shot",
    "Sources",
    "Advice",
    "VarianceScale",
    "Temperature",
    "Conformal",
    "DivergedError",
    "FileError",
    "DoubtDisplay",
]


def test_the_names_of_a_first_week_are_shown():
    assert sorted(wf.__all__) == sorted(FIRST_WEEK)
    assert set(dir(wf)) == {*FIRST_WEEK, "__version__"}
    everything = {}
    exec("from wherefrom import *", everything)
    assert set(FIRST_WEEK) <= set(everything)


@pytest.mark.parametrize("name", [*FIRST_WEEK, *IN_THEIR_ROOMS])
def test_every_public_name_is_there_and_documented(name):
    assert getattr(wf, name).__doc__
    exec(f"from wherefrom import {name}", {})


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wf.nothing  # noqa: B018


@pytest.mark.parametrize("code", ["import wherefrom", "import wherefrom.cli"])
def test_opening_does_not_wait_for_torch(code):
    check = f"{code}; import sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_command_answers():
    done = subprocess.run([sys.executable, "-m", "wherefrom", "--help"], capture_output=True, text=True, check=True)
    assert "demo" in done.stdout
    assert "reproduce" in done.stdout
    version = subprocess.run(
        [sys.executable, "-m", "wherefrom", "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == f"wherefrom {wf.__version__}"
