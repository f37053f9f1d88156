"""Several pretended devices: members are divided by processes, and are those of one device."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from pretended import device
from wherefrom.training import compute
from wherefrom.training.executors import processes

BOTH = [device.FIRST, device.SECOND]
QUICK = {"progress": False, "engine": "torch"}

X = np.random.default_rng(0).normal(size=(60, 6))
Y = X[:, 0] + np.sin(3 * X[:, 1])


class Net(nn.Module):
    """A network with a buffer of whole numbers, which goes to each device."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
        self.register_buffer("order", torch.tensor([5, 4, 3, 2, 1, 0]))

    def forward(self, x):
        return self.layers(x[:, self.order])


def trained(device, draws: int = 3, **options) -> wf.Posterior:
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=20)
    training = wf.Training(Net, algorithm, epochs=3, likelihood=wf.Regression(noise=1.0))
    over = [wf.InitialCondition(draws), wf.Iterations(wf.SWAG(rank=2), start=0.0)]
    return wf.marginalise(training, (X, Y), over, device=device, **QUICK, **options)


@pytest.fixture
def children(monkeypatch):
    """Let child processes have the device, and import this module; end them afterwards."""
    here = Path(__file__).parent
    paths = [str(here / "in_children"), str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    yield
    compute._processes(tuple(BOTH)).close()


def test_members_are_divided_between_devices(children, second_device, monkeypatch):
    used, give = [], processes._Work._give

    def giving(work, worker):
        give(work, worker)
        if worker.unit is not None:
            used.append((worker.device, len(work.units[worker.unit].members)))

    monkeypatch.setattr(processes._Work, "_give", giving)
    ours, expected = trained(BOTH), trained("cpu")
    assert sorted(used) == [(device.FIRST, 1), (device.SECOND, 2)]
    assert ours.device == torch.device(device.FIRST)
    assert {member.trained.last.device for member in ours.mixture} == {torch.device(device.FIRST)}
    torch.testing.assert_close(ours.predict(X[:5], 4).mean, expected.predict(X[:5], 4).mean, rtol=1e-4, atol=1e-5)
    for one, other in zip(ours.laws(), expected.laws(), strict=True):
        torch.testing.assert_close(one.mean, other.mean, rtol=1e-4, atol=1e-5)
    longer = ours.extend(theta0=1, progress=False)  # by the same processes
    assert len(used) == 3
    torch.testing.assert_close(
        longer.predict(X[:5], 4).mean, trained("cpu", 4).predict(X[:5], 4).mean, rtol=1e-4, atol=1e-5
    )
    again = pickle.loads(pickle.dumps(ours))
    assert [str(device) for device in again.compute.devices] == BOTH
    assert torch.equal(again.predict(X[:5], 4).mean, ours.predict(X[:5], 4).mean)


@pytest.fixture
def gpus_of_ray(monkeypatch):
    """Start Ray on this machine, as if it had two GPUs; its workers have the device."""
    ray = pytest.importorskip("ray", reason="the cluster needs Ray: pip install 'wherefrom[ray]'")
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    hook = {"worker_process_setup_hook": "pretended.device.register"} if device.IS_PRETENDED else {}
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    ray.init(num_cpus=2, num_gpus=2, runtime_env=hook, **quiet)
    yield
    ray.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_members_are_divided_between_the_gpus_of_a_cluster(gpus_of_ray, second_device, monkeypatch):
    units, map_units = [], wf.executors.Ray.map
    monkeypatch.setattr(
        wf.executors.Ray, "map", lambda ray, some, report: units.extend(some) or map_units(ray, some, report)
    )
    ours = trained(device.NAME, compute=wf.Compute(executor=wf.executors.Ray(gpus=1)))
    assert [len(unit.members) for unit in units] == [1, 2]
    assert {member.trained.last.device for member in ours.mixture} == {torch.device(device.FIRST)}
    mean = trained("cpu").predict(X[:5], 4).mean
    torch.testing.assert_close(ours.predict(X[:5], 4).mean, mean, rtol=1e-4, atol=1e-5)


def test_several_devices_must_be_different_and_have_no_executor():
    for wrong in ([], [device.FIRST, device.FIRST], ["cpu", device.FIRST]):
        with pytest.raises(ValueError, match=r"several GPUs, each once"):
            wf.Compute(device=wrong)
    with pytest.raises(ValueError, match=r"leave executor out"):
        wf.Compute(device=BOTH, executor=wf.executors.Processes(2))
    with pytest.raises(ValueError, match=r"leave workers=3 out"):
        wf.executors.Processes(3, devices=BOTH)
    with pytest.raises(ValueError, match=r"the device '\w+:77' is not there"):
        trained([device.FIRST, f"{device.NAME}:77"])
