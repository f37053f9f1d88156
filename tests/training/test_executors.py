"""Processes: what threads train, they train to the same bits, and what goes wrong there is told here."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import apart
import wherefrom as wf
from wherefrom.training import interruption
from wherefrom.training.executors import processes
from wherefrom.training.parcels import packed

EPOCHS = 8


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 400), nn.Tanh(), nn.Dropout(0.1), nn.Linear(400, 1))


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 4))
    return x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=300)


def trained(model, over, augment=None, **how) -> list[torch.Tensor]:
    training = wf.Training(model, wf.Algorithm("adam", lr=0.01, batch_size=50), epochs=EPOCHS, augment=augment)
    posterior = wf.marginalise(training, rows(), over, seed=2, **how)
    laws = [[] if m.trained.law is None else list(m.trained.law.tensors().values()) for m in posterior.mixture]
    return [each for member, law in zip(posterior.mixture, laws, strict=True) for each in (member.trained.last, *law)]


def assert_equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def two():
    executor = wf.executors.Processes(2)
    yield executor
    executor.close()


OVER = [wf.InitialCondition(4), wf.Iterations(wf.SWAG(rank=2)), wf.Resample(2)]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "engine"), [(wide, "torch"), (wf.MLP(12), "native")])
def test_equal_bits(two, model, engine):
    heard = []
    how = dict(engine=engine, workers=2)
    there = trained(model, OVER, **how, compute=wf.Compute(executor=two, progress=heard.append))
    assert_equal(trained(model, OVER, **how), there)
    assert sum(heard) == EPOCHS * 8


@pytest.mark.slow
def test_processes_stay_for_the_next_training(two):
    trained(wide, OVER, compute=wf.Compute(executor=two))
    first = [worker.process.pid for worker in two._workers]
    trained(wf.MLP(5), OVER, compute=wf.Compute(executor=two))
    assert [worker.process.pid for worker in two._workers] == first


class Deadly(nn.Module):
    """Kills its process, if that is a worker's; once, if a file can tell that it has done so."""

    def __init__(self, mark: str, parent: int) -> None:
        super().__init__()
        self.inner, self.mark, self.parent = nn.Linear(4, 1), mark, parent

    def forward(self, x):
        if os.getpid() != self.parent and not Path(self.mark).exists():
            if Path(self.mark).parent.exists():
                Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(x)


@pytest.mark.slow
def test_members_of_a_process_that_died_are_trained_by_another(two, tmp_path):
    def model(mark: Path) -> list[torch.Tensor]:
        return trained(
            lambda: Deadly(str(mark), os.getpid()), [wf.InitialCondition(3)], compute=wf.Compute(executor=two)
        )

    (tmp_path / "done").touch()
    assert_equal(model(tmp_path / "done"), model(tmp_path / "once"))
    assert (tmp_path / "once").exists()
    with pytest.raises(RuntimeError, match=r"a process died \(exit code -9\).*fewer workers"):
        model(tmp_path / "no such folder" / "always")


@pytest.mark.slow
def test_errors_come_back(two):
    def here(x, generator):  # inside a function, where no other process can find it
        return x

    training = wf.Training(wide, wf.Algorithm("adam", lr=0.01, batch_size=50), epochs=2, augment=here)
    with pytest.raises(ValueError, match=r"cannot be sent to another process.*top level of a module"):
        wf.marginalise(training, rows(), [], compute=wf.Compute(executor=two))
    training = wf.Training(wide, wf.Algorithm("adam", lr=0.01, batch_size=50), epochs=2, augment=divided)
    with pytest.raises(ZeroDivisionError, match="in the augmentation"):
        wf.marginalise(training, rows(), [], compute=wf.Compute(executor=two))


def divided(x, generator):
    raise ZeroDivisionError("in the augmentation")


def interrupted(folder: Path) -> tuple[int, bool]:
    """Return how many files an interrupted training left, and whether it ended in the same bits."""
    executor, left = wf.executors.Processes(2), [12]
    how = dict(engine="torch", checkpoints=folder)

    def stop(done: int) -> None:
        left[0] -= done
        if left[0] <= 0 and not interruption.is_requested():
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match="make the same call again"):
        trained(wide, OVER, **how, compute=wf.Compute(executor=executor, progress=stop))
    files = len(list(folder.glob("*.safetensors")))
    again = trained(wide, OVER, **how, compute=wf.Compute(executor=executor))
    executor.close()
    return files, all(
        torch.equal(a, b) for a, b in zip(again, trained(wide, OVER, engine="torch", workers=2), strict=True)
    )


@pytest.mark.slow
def test_interrupted_processes_keep_their_members(tmp_path):
    files, same = apart.alone(interrupted, tmp_path)
    assert files > 0
    assert same


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))


CERTAIN = [wf.InitialCondition(3)]  # a single sample of each is exact
RANDOM = [wf.Families({"wide": wide, "normalised": normalised}), wf.Iterations(wf.SWAG(rank=2)), wf.Dropout()]


def posterior_over(over, model=wide) -> wf.Posterior:
    training = wf.Training(model, wf.Algorithm("adam", lr=0.01, batch_size=50), epochs=4)
    return wf.marginalise(training, rows(), over, seed=2, engine="torch")


def assert_same_predictions(posterior: wf.Posterior, executor) -> None:
    """Samples of all members are the same here and by an executor, at once and in chunks."""
    x = np.random.default_rng(1).normal(size=(500, 4))
    here, there = posterior.predict(x, 120), posterior.predict(x, 120, executor=executor)
    assert torch.equal(here.mixture.answers, there.mixture.answers)
    assert torch.equal(here.mean, there.mean)
    parts = [x[:300], x[300:]]
    ours, theirs = (list(posterior.predict_chunks(parts, 8, executor=each)) for each in (None, executor))
    assert len(theirs) > 1
    assert all(torch.equal(one.mixture.answers, two.mixture.answers) for one, two in zip(ours, theirs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("over", [CERTAIN, RANDOM], ids=["certain", "random"])
def test_predictions_are_the_same_to_the_last_bit(two, over):
    assert_same_predictions(posterior_over(over), two)
    assert not any(worker.has for worker in two._workers)  # memory is free again


@pytest.mark.slow
def test_a_process_that_dies_while_it_predicts(two, tmp_path):
    (tmp_path / "mark").touch()
    parent = os.getpid()
    posterior = posterior_over(CERTAIN, lambda: Deadly(str(tmp_path / "mark"), parent))
    (tmp_path / "mark").unlink()
    assert_same_predictions(posterior, two)
    assert (tmp_path / "mark").exists()


@dataclass(frozen=True)
class OnlyTrains:
    width: int = 1

    def map(self, units, report):
        return [unit.train(report) for unit in units]


def test_an_executor_that_cannot_predict_is_named(problem):
    posterior = posterior_over(CERTAIN)
    with pytest.raises(TypeError, match=r"OnlyTrains.* trains, but does not predict: use wf\.executors\.Processes"):
        posterior.predict(rows()[0], executor=OnlyTrains())
    assert posterior.predict(rows()[0], method="one_shot", executor=OnlyTrains()).mean.shape == (300,)


def test_large_tensors_travel_apart():
    thing = {"rows": torch.randn(5000, 3), "small": torch.ones(3), "array": np.arange(9), "name": "x"}
    parcel = packed(thing)
    assert len(parcel.rest) < 2000
    again = parcel.opened()
    assert torch.equal(again["rows"], thing["rows"])
    assert torch.equal(again["small"], thing["small"])
    np.testing.assert_array_equal(again["array"], thing["array"])
    with processes._in_shared_memory("given", parcel) as shared:
        assert os.pread(shared.descriptor, shared.size, 0) == bytes(parcel.numbers)


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_refused(workers):
    with pytest.raises(ValueError, match="at least 1"):
        wf.executors.Processes(workers)
