"""Who does the trainings: units of training go to other processes and come back as if they had stayed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

import apart
import oracle
import wherefrom as wf
from conftest import training
from wherefrom.training.executor import Report, Unit
from wherefrom.training.workers import one_core


def train_pickled(unit: bytes) -> list:
    with one_core():
        return pickle.loads(unit).train(lambda _: None)


@dataclass
class Elsewhere:
    """Every unit in a process of its own, one after the other."""

    width: int = 2
    sizes: list[int] = field(default_factory=list)  # of the pickled units

    def map(self, units: list[Unit], report: Report) -> list:
        pickled = [pickle.dumps(unit) for unit in units]
        self.sizes += map(len, pickled)
        return [apart.alone(train_pickled, unit) for unit in pickled]


def both(point: wf.Training, data, over, **how) -> tuple[wf.Posterior, wf.Posterior, Elsewhere]:
    elsewhere = Elsewhere()
    here = wf.marginalise(point, data, over, seed=3, compute=wf.Compute(**how))
    there = wf.marginalise(point, data, over, seed=3, compute=wf.Compute(**how, executor=elsewhere))
    return here, there, elsewhere


def assert_same(here: wf.Posterior, there: wf.Posterior) -> None:
    trained = [[member.trained for member in posterior.mixture] for posterior in (here, there)]
    oracle.assert_same_members(*trained)
    for one, other in zip(here.laws(), there.laws(), strict=True):
        torch.testing.assert_close(one.mean, other.mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_units_go_to_other_processes(problem, engine):
    over = [
        wf.InitialCondition(3),
        wf.Iterations(wf.SWAG(rank=3)),
        wf.Hyperparameters(2, lr=[0.003, 0.01]),
        wf.Resample(2),
    ]
    here, there, _ = both(training(), problem, over, engine=engine)
    assert_same(here, there)
    assert there.engines == (engine,)


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))


def test_users_own_networks_and_optimisers_go_too(problem):
    over = [wf.Families({"wide": wide, "normalised": normalised}), wf.InitialCondition(2)]
    point = training(algorithm=wf.Algorithm(torch.optim.Adamax, lr=0.01, batch_size=30))
    assert_same(*both(point, problem, over)[:2])


def test_a_unit_takes_its_own_members_and_rows_along_and_no_others(problem):
    x, y = (np.tile(part, (50, *[1] * (part.ndim - 1))) for part in problem)
    _, _, few = both(training(epochs=1), (x, y), [wf.Resample(2)], engine="native")
    _, _, many = both(training(epochs=1), (x, y), [wf.Resample(8)], engine="native")
    assert len(few.sizes) == 2
    assert len(many.sizes) == 8
    assert max(many.sizes) < 1.05 * max(few.sizes)


def test_members_that_were_kept_are_not_trained_again(problem, tmp_path):
    first, _, _ = both(training(), problem, [wf.InitialCondition(2)], engine="torch", checkpoints=tmp_path)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert written
    again = wf.marginalise(
        training(),
        problem,
        [wf.InitialCondition(2)],
        seed=3,
        compute=wf.Compute(engine="torch", checkpoints=tmp_path, executor=Elsewhere()),
    )
    assert_same(first, again)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written


class Broken:
    width = 1

    def map(self, units: list[Unit], report: Report) -> list:
        raise ConnectionError("the other machine does not answer")


def test_what_goes_wrong_elsewhere_is_raised_here(problem):
    with pytest.raises(ConnectionError, match="does not answer"):
        wf.marginalise(training(), problem, [], compute=wf.Compute(executor=Broken()))


@dataclass
class Lossy:
    """Trains all units, and returns something else."""

    change: Callable[[list], list]
    width: int = 1

    def map(self, units: list[Unit], report: Report) -> list:
        return self.change([unit.train(report) for unit in units])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda results: results[:-1], "returned 1 for 2 units"),
        (lambda results: [*results, []], "returned 3 for 2 units"),
        (lambda results: [results[0][:-1], *results[1:]], "unit 0 has 2 members, but .* returned 1"),
        (lambda results: [results[0], results[1] * 2], "unit 1 has 2 members, but .* returned 4"),
        (lambda results: [None, *results[1:]], "unit 0 has 2 members, but .* returned NoneType"),
    ],
)
def test_results_that_are_not_those_of_the_units_are_refused(problem, change, words):
    over = [wf.Hyperparameters(points=[dict(batch_size=10), dict(batch_size=20)]), wf.InitialCondition(2)]
    with pytest.raises(RuntimeError, match=f"map must return a list for each unit.*{words}"):
        wf.marginalise(training(epochs=1), problem, over, compute=wf.Compute("cpu", executor=Lossy(change)))


@pytest.mark.parametrize("model", [wide, normalised])
def test_a_posterior_can_be_pickled(problem, model):
    over = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank=3))]
    posterior = wf.marginalise(
        training(model, likelihood=wf.Regression(noise="fit")),
        problem,
        over,
        compute=wf.Compute(progress=lambda _: None),
    ).calibrated("variance")
    again = pickle.loads(pickle.dumps(posterior))
    assert torch.equal(again.predict(problem[0]).std, posterior.predict(problem[0]).std)
    assert (again.rows is None) == (model is wide)  # batch normalisation needs them to predict
    assert again.held_out is None
    assert again.calibration[0].fit.data is None
    assert again.with_data(problem).extend(theta0=1, progress=False).calibration
    assert copy.deepcopy(posterior) is posterior
