"""A limit on memory: groups are sized by an estimate, which real memory stays below, and what cannot fit is refused."""

import resource
import sys

import numpy as np
import pytest
import torch
from torch import nn

import apart
import oracle
import wherefrom as wf
from conftest import training
from wherefrom.training import compute as computing
from wherefrom.training.memory import Need


@pytest.mark.parametrize("wrong", [0, -1, True, "much", "8 XB", "-1 GB"])
def test_a_limit_is_a_size(wrong):
    with pytest.raises(ValueError, match="memory_limit is a number of bytes"):
        wf.Compute(memory_limit=wrong)


def spied(monkeypatch) -> tuple[list[Need], list[tuple[int, list[int]]]]:
    """Return what cohorts need, and what came of it: groups at once, and their sizes."""
    needs, used = [], []
    of = Need.of

    def counted(cohort):
        needs.append(of(cohort))
        return needs[-1]

    monkeypatch.setattr(computing.Need, "of", counted)
    train = computing.Threads.map

    def mapped(self, units, report):
        used.append((self.width, [len(unit.members) for unit in units]))
        return train(self, units, report)

    monkeypatch.setattr(computing.Threads, "map", mapped)
    return needs, used


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "native"])
def test_groups_are_sized_by_the_limit_and_members_are_the_same(problem, monkeypatch, engine):
    over = [wf.InitialCondition(6), wf.Iterations(wf.SWAG(rank=3))]
    free = wf.marginalise(training(), problem, over, engine=engine, workers=1)
    needs, used = spied(monkeypatch)

    def limited(limit: int) -> wf.Posterior:
        return wf.marginalise(
            training(), problem, over, compute=wf.Compute(engine=engine, workers=2, memory_limit=limit)
        )

    limited(10**9)
    need = needs[0]
    standing = need.rows + 6 * need.trained
    few = limited(standing + 2 * need.training)
    oracle.assert_same_members([m.trained for m in few.mixture], [m.trained for m in free.mixture])
    assert used[-1] == (2, [1] * 6)
    limited(standing + need.training)
    assert used[-1][0] == 1
    with pytest.raises(ValueError, match=r"one member takes about .* kB while it trains.*raise memory_limit"):
        limited(standing + need.training - 1)


def large() -> nn.Module:
    return nn.Sequential(nn.Linear(50, 1500), nn.ReLU(), nn.Linear(1500, 1500), nn.ReLU(), nn.Linear(1500, 1))


def peak(members: int) -> tuple[int, Need]:
    """Bytes that a training took at its peak, and what was thought that it needs."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(100, 50)), rng.normal(size=100)
    needs, of = [], Need.of
    computing.Need.of = lambda cohort: needs.append(of(cohort)) or needs[-1]
    point = wf.Training(large, wf.Algorithm("adam", lr=0.001, batch_size=50), epochs=4)
    over = [wf.InitialCondition(members), wf.Iterations(wf.SWAG(rank=2))]
    small = wf.Training(wf.MLP(5), point.algorithm, epochs=4)
    wf.marginalise(small, data, over, engine="torch", workers=1)  # imports what it needs
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    wf.marginalise(point, data, over, compute=wf.Compute(engine="torch", workers=1, memory_limit="4 GB"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before, needs[-1]


@pytest.mark.slow
def test_the_estimate_is_about_what_is_taken():
    taken, need = apart.alone(peak, 3)
    thought = need.rows + 3 * need.trained + need.training
    assert 0.4 * thought < taken < 1.6 * thought, (taken, thought)


def test_predictions_stay_below_the_limit(problem):
    posterior = wf.marginalise(
        training(), problem, [wf.InitialCondition(2), wf.Dropout()], compute=wf.Compute(memory_limit="1 MB")
    )
    with pytest.raises(
        ValueError, match=r"predicting 90 rows by 2 members with 1000 samples.*predict 15 rows at a time"
    ):
        posterior.predict(problem[0], samples=1000)
    assert posterior.predict(problem[0][:15], samples=1000).mean.shape == (15,)


def test_executors_that_cannot_be_narrowed_are_told():
    class Wide:
        width = 64

        def map(self, units, report):
            raise AssertionError("nothing is trained")

    x = torch.randn(40, 4)
    how = wf.Compute(executor=Wide(), memory_limit="60 kB")
    with pytest.raises(ValueError, match=r"room for \d+ members at once, but .* trains 64"):
        wf.marginalise(training(), (x, x[:, 0]), [wf.InitialCondition(2)], compute=how)
