"""Trainings that go on with more epochs end in the same bits as those that were as long from the start."""

import pickle
from unittest.mock import patch

import pytest

import wherefrom as wf
from conftest import assert_same_members, training
from wherefrom.training import continuing
from wherefrom.training.continuing import Continuing

SHORT, LONG = 6, 12
ENGINES = ("torch", "native")


def trained(problem, epochs, keep, engine, checkpoints=None, **changes):
    over = [wf.InitialCondition(2), wf.Iterations(wf.Snapshots(keep), start=0.0)]
    at = training(epochs=epochs, **changes)
    return wf.marginalise(at, problem, over, seed=3, engine=engine, workers=1, checkpoints=checkpoints)


def continued(problem, engine, first, second, **changes):
    """Return a training that went on, and the epochs that its members had done before."""
    kept, begun, begin = Continuing(), [], continuing._Keeping.begin

    def spied(self, resumable):
        begun.append(list(begin(self, resumable)))
        return resumable.epochs

    trained(problem, *first, engine, kept, **changes.pop("at_first", {}))
    with patch.object(continuing._Keeping, "begin", spied):
        return trained(problem, *second, engine, kept, **changes), [epochs for each in begun for epochs in each]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kept", [(3, 6), (6, 6), (6, 3)])  # with the same distance of epochs, or twice that
def test_a_longer_training_goes_on_to_the_same_bits(problem, engine, kept):
    longer, begun = continued(problem, engine, (SHORT, kept[0]), (LONG, kept[1]))
    assert set(begun) == {SHORT}
    assert_same_members(longer, trained(problem, LONG, kept[1], engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_not_kept_is_trained_anew(problem, engine):
    longer, begun = continued(problem, engine, (SHORT, 2), (LONG, 12))
    assert set(begun) == {0}
    assert_same_members(longer, trained(problem, LONG, 12, engine))


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": wf.Algorithm("adam", lr=0.02, batch_size=16)},
        {"algorithm": wf.Algorithm("adam", lr=0.02, batch_size=25, weight_decay=0.1)},
    ],
)
def test_another_training_begins_anew(problem, changes):
    longer, begun = continued(problem, "torch", (SHORT, 3), (LONG, 6), **changes)
    assert set(begun) == {0}
    assert_same_members(longer, trained(problem, LONG, 6, "torch", **changes))


def test_a_schedule_over_the_whole_length_begins_anew(problem):
    slower = {"algorithm": wf.Algorithm("adam", lr=0.02, batch_size=16, schedule=wf.schedules.Cosine())}
    longer, begun = continued(problem, "torch", (SHORT, 3), (LONG, 6), at_first=slower, **slower)
    assert begun == []
    assert_same_members(longer, trained(problem, LONG, 6, "torch", **slower))


def test_it_is_empty_in_another_process(problem):
    kept = Continuing()
    trained(problem, SHORT, 3, "torch", kept)
    assert kept.moments
    assert not pickle.loads(pickle.dumps(kept)).moments
