"""Ctrl-C and SIGTERM at any moment: the last finished epoch of every member is kept, and the same call goes on."""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

import apart
import wherefrom as wf
from wherefrom.training import interruption

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from reliable import signals
from reliable.signals import EPOCHS, epochs_in_files, long_training

MOMENTS = 8


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("engine", "workers"), [("torch", 1), ("native", 2)])
def test_signals_at_many_moments(tmp_path, number, engine, workers):
    how = dict(engine=engine, workers=workers)
    outcomes = apart.alone(signals.at_many_moments, tmp_path, number, how, MOMENTS)
    assert len(outcomes) == MOMENTS
    for outcome in outcomes:
        assert outcome.kept >= outcome.reported
        assert outcome.is_same
        assert outcome.fault is None


def steps_after_the_signal(folder: Path, seconds: float, signals: int) -> tuple[int, int, str]:
    """Return the steps taken when the sixth of 20 in the third epoch sent signals, the epochs kept, and the words."""
    steps = [0]

    def augment(x: torch.Tensor, _: torch.Generator) -> torch.Tensor:
        steps[0] += len(x) == 10  # a checkpoint looks at fewer rows
        if len(x) == 10 and 46 <= steps[0] < 46 + signals:
            os.kill(os.getpid(), signal.SIGINT)
        return x

    training, data = long_training()
    training = wf.Training(training.model, training.algorithm, EPOCHS, augment=augment)
    with pytest.raises(interruption.Interrupted) as error:
        wf.marginalise(training, data, [], checkpoints=wf.Checkpoints(folder, seconds), progress=False)
    return steps[0] - 40, epochs_in_files(folder), str(error.value)


@pytest.mark.parametrize(
    ("seconds", "signals", "steps", "epochs"),
    [
        (0, 1, 6, 2),  # the second epoch is in the file: the third need not end
        (60, 1, 20, 3),  # no epoch is: the third ends, and is written
        (60, 2, 7, 0),  # a second signal does not wait for that
    ],
)
def test_an_epoch_goes_on_only_where_something_would_be_lost(tmp_path, seconds, signals, steps, epochs):
    taken, kept, words = apart.alone(steps_after_the_signal, tmp_path, seconds, signals)
    assert (taken, kept) == (steps, epochs)
    assert str(tmp_path) in words


def one_after_the_other(folder: Path) -> list[int]:
    """Which handlers of the user's own were called."""
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))

    def stop(_: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(interruption.Interrupted):
        wf.marginalise(*long_training(), [], checkpoints=folder, progress=stop)
    return heard


def test_a_handler_of_the_users_own_is_called_afterwards(tmp_path):
    assert apart.alone(one_after_the_other, tmp_path) == [signal.SIGTERM]
    assert epochs_in_files(tmp_path) > 0
