"""A real Ray cluster of several nodes on this machine: equal bits, whatever happens to its nodes and objects."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from test_executors import (
    EPOCHS,
    OVER,
    RANDOM,
    assert_equal,
    assert_same_predictions,
    posterior_over,
    rows,
    trained,
    wide,
)
from typer.testing import CliRunner

import wherefrom as wf
from made_table import made, write
from wherefrom.cli import app
from wherefrom.files import folders
from wherefrom.training import interruption
from wherefrom.training.executors import cluster as ours

pytestmark = [
    pytest.mark.slow,
    # Ray leaves pipes of the processes that it starts to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

signal.signal(signal.SIGINT, signal.default_int_handler)  # which programs in the background of a shell ignore

NODE = dict(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=80 * 2**20)  # one core is only a label here


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray would leave 127.0.0.1 for another address
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv(
            "PYTHONPATH", os.pathsep.join([str(Path(wf.__file__).parents[1]), str(Path(__file__).parent)])
        )
        ray = pytest.importorskip("ray", reason="the cluster needs Ray: pip install 'wherefrom[ray]'")
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
        cluster.add_node(**NODE)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


SEVERAL = [wf.Hyperparameters(points=[dict(batch_size=size) for size in (10, 20, 30, 40, 50, 60)])]  # six units


def on(cluster: Any, over=SEVERAL, model=wide, progress=None, **how) -> list[torch.Tensor]:
    executor = wf.executors.Ray(cluster.address, workers=2)
    return trained(model, over, compute=wf.Compute(executor=executor, progress=progress), **how)


def here(over=SEVERAL, model=wide, **how) -> list[torch.Tensor]:
    return trained(model, over, workers=2, **how)


BATCHES = 35  # of a unit: more than one epoch of any of the six, and less than a whole training
PATIENCE = 400  # seconds: on a busy machine a worker takes its time to start


def signing(folder: Path, waits: bool = False) -> Callable[[torch.Tensor, Any], torch.Tensor]:
    """An augmentation that changes nothing, takes its time, and leaves the name of its node.

    If it waits, then in the middle of a unit, until a file has named a node that was added, and this node has signed.
    Every core of the old nodes is taken until then, so that a unit must go to the new one.
    """
    batches = [0]

    def is_added() -> bool:
        added = folder / "added"
        return added.exists() and (folder / added.read_text()).exists()

    def sign(x: torch.Tensor, _: Any) -> torch.Tensor:
        import ray

        (folder / ray.get_runtime_context().get_node_id()).touch()
        time.sleep(0.01)
        batches[0] += 1
        end = time.monotonic() + PATIENCE
        while waits and batches[0] > BATCHES and not is_added():
            if time.monotonic() > end:
                raise TimeoutError("the node that was added trains nothing")
            time.sleep(0.01)
        return x

    return sign


def once(act: Callable[[], Any], ready: Callable[[], bool] = lambda: True, after: int = 4) -> Callable[[int], None]:
    """A progress function that does something once, after so many epochs."""
    done, acts = [0], [act]

    def progress(epochs: int) -> None:
        done[0] += epochs
        if acts and done[0] >= after and ready():
            acts.pop()()

    return progress


@pytest.mark.parametrize(("model", "engine"), [(wide, "torch"), (wf.MLP(12), "native")])
def test_equal_bits(cluster, model, engine):
    heard = []
    there = on(cluster, OVER, model, engine=engine, progress=heard.append)
    assert_equal(here(OVER, model, engine=engine), there)
    assert sum(heard) == 8 * EPOCHS


def test_errors_of_the_training_come_back_as_they_are(cluster):
    def broken(x, generator):
        raise ZeroDivisionError("in the augmentation")

    with pytest.raises(ZeroDivisionError, match="in the augmentation"):
        on(cluster, augment=broken)


def on_node(node: Any, put: Callable[..., Any], references: list[Any]) -> Callable[..., Any]:
    """Put first plans into the memory of a node from which Ray cannot bring them back, and later ones as always."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)

    @ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)
    def carried(name: str, rest: bytes, numbers: np.ndarray, ends: tuple) -> tuple:
        return name, rest, np.concatenate([numbers, np.zeros(2**20, np.uint8)]), ends  # too large to travel by itself

    def put_there(self, name: str) -> Any:
        parcel = self.parcels[name]
        is_first = len(references) < 6
        where = carried.remote(name, parcel.rest, parcel.numbers, parcel.ends) if is_first else put(self, name)
        references.append(where)
        return where

    return put_there


@pytest.mark.timeout(900)
def test_a_node_is_killed_in_the_middle_with_its_objects_and_one_is_added(cluster, tmp_path):
    heard, lost, added, references = [], cluster.list_all_nodes()[-1], [], []

    def kill() -> None:
        heard.clear()
        cluster.remove_node(lost, allow_graceful=False)
        added.append(cluster.add_node(**NODE))
        (tmp_path / "new").write_text(added[0].node_id)
        (tmp_path / "new").rename(tmp_path / "added")

    wf.executors.Ray(cluster.address)._connected()
    act = once(kill, lambda: (tmp_path / lost.node_id).exists(), after=1)
    how = dict(progress=lambda done: (heard.append(done), act(done)), augment=signing(tmp_path, waits=True))
    with patch.object(ours._Work, "_put", on_node(lost, ours._Work._put, references)):
        there = on(cluster, **how)
    assert sum(heard) > 0  # it was in the middle
    assert {path.name for path in tmp_path.iterdir()} >= {lost.node_id, added[0].node_id}
    assert len(references) > 6  # what was lost was put there again
    assert_equal(here(augment=lambda x, _: x), there)


def test_interrupted_tasks_keep_their_members(cluster, tmp_path):
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "nodes").mkdir()
    how = dict(checkpoints=tmp_path / "kept", augment=signing(tmp_path / "nodes"))
    with pytest.raises(interruption.Interrupted, match="make the same call again"):
        on(cluster, **how, progress=once(stop))
    assert list((tmp_path / "kept").glob("*.safetensors"))
    assert len(list((tmp_path / "kept").glob("*.safetensors"))) < 6
    assert_equal(here(augment=lambda x, _: x), on(cluster, **how))


DRIVER = """
import sys
from pathlib import Path
from cluster_scenarios import on, signing
from types import SimpleNamespace
on(SimpleNamespace(address=sys.argv[1]), augment=signing(Path(sys.argv[2])), store=sys.argv[3])
"""


def test_the_driver_is_killed_and_started_again(cluster, tmp_path):
    (tmp_path / "nodes").mkdir()
    words = [cluster.address, str(tmp_path / "nodes"), str(tmp_path / "run")]
    path = os.pathsep.join([*map(str, Path(__file__).parents[:2]), os.environ["PYTHONPATH"]])
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, *words], env=os.environ | {"PYTHONPATH": path})
    run = tmp_path / "run"
    while not (folders.is_run(run) and any("kept-" in name for name in folders.Run.open(run).files)):
        assert driver.poll() is None
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    heard = []
    how = dict(augment=signing(tmp_path / "nodes"), store=tmp_path / "run")
    there = on(cluster, **how, progress=heard.append)
    assert 0 < sum(heard) < 6 * EPOCHS  # some were finished, and some were not
    assert_equal(here(augment=lambda x, _: x), there)


# ---------------------------------------------------------------------- one member by several processes


OF_TWO = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(2))]


def shared_out(compute: wf.Compute, augment=None, **how):
    """Members in double precision, with weights of rows, dropout, clipping, and a last batch of one row."""
    x, y = (np.concatenate([part, part[:1]]) for part in rows())
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=50, clip=0.5)
    training = wf.Training(wide, algorithm, epochs=EPOCHS, augment=augment)
    data = x, y, np.linspace(0.5, 1.5, len(y))
    posterior = wf.marginalise(training, data, OF_TWO, seed=2, compute=compute.but(dtype=torch.float64), **how)
    parts = ((member.trained.last, *member.trained.law.tensors().values()) for member in posterior.mixture)
    return [each for part in parts for each in part], [member.trained.losses for member in posterior.mixture]


def by_two(cluster: Any, **how) -> wf.Compute:
    return wf.Compute(executor=wf.executors.Ray(cluster.address, processes_per_member=2), **how)


def assert_equal_to_rounding(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-9, atol=1e-11)


def dying(mark: Path) -> Callable[[torch.Tensor, Any], torch.Tensor]:
    """An augmentation that changes nothing, and kills one process of the cluster in its tenth batch, once."""
    batches, here = [0], os.getpid()

    def augment(x: torch.Tensor, _: Any) -> torch.Tensor:
        batches[0] += 1
        if batches[0] == 10 and os.getpid() != here:
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                return x
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    return augment


def test_one_member_by_two_processes_is_that_of_one(cluster, tmp_path):
    """Also if one of the processes is killed in the middle: both begin anew."""
    heard = []
    there = shared_out(by_two(cluster, progress=heard.append), dying(tmp_path / "died"))
    assert (tmp_path / "died").exists()
    assert sum(heard) == 2 * EPOCHS
    for one, two in zip(shared_out(wf.Compute(engine="torch")), there, strict=True):
        assert_equal_to_rounding(one, two)


def test_one_member_by_two_processes_goes_on_after_an_interruption(cluster, tmp_path):
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "nodes").mkdir()
    how = dict(augment=signing(tmp_path / "nodes"), checkpoints=tmp_path / "kept")
    with pytest.raises(interruption.Interrupted, match="make the same call again"):
        shared_out(by_two(cluster, progress=once(stop, after=2)), **how)
    assert len(list((tmp_path / "kept").glob("*.safetensors"))) == 1
    for one, two in zip(shared_out(wf.Compute(engine="torch")), shared_out(by_two(cluster), **how), strict=True):
        assert_equal_to_rounding(one, two)


def normalised() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


def test_what_several_processes_cannot_train_is_said_before(cluster):
    def broken(x, generator):
        raise ZeroDivisionError("in the augmentation")

    with pytest.raises(ZeroDivisionError, match="in the augmentation"):
        shared_out(by_two(cluster), broken)
    with pytest.raises(ValueError, match=r"1\.running_mean is computed from whole batches .* nn\.GroupNorm"):
        trained(normalised, SEVERAL, compute=by_two(cluster))
    with pytest.raises(ValueError, match='the native engine trains a member by one process: use engine="torch"'):
        shared_out(by_two(cluster, engine="native"))
    many = wf.executors.Ray(cluster.address, processes_per_member=50)
    with pytest.raises(ValueError, match="needs 50 cores at once, and the cluster has 2: take fewer, or add nodes"):
        shared_out(wf.Compute(executor=many))


# ---------------------------------------------------------------------- prediction


def test_predictions_are_the_same_to_the_last_bit(cluster):
    assert_same_predictions(posterior_over(RANDOM), wf.executors.Ray(cluster.address))


# ---------------------------------------------------------------------- the command


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a run whose quality does not matter
def test_the_command_trains_on_the_cluster(cluster, tmp_path):
    table, how = write(tmp_path / "train.csv", made(120)), ["--draws", "2", "--epochs", "3", "--samples", "8"]
    for name, where in (("here", []), ("there", ["--ray", cluster.address])):
        words = ["fit", str(table), "--target", "y", "--out", str(tmp_path / name), *how, *where, "--engine", "native"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    one, other = (wf.load(tmp_path / name).predict(str(table)) for name in ("here", "there"))
    np.testing.assert_array_equal(one["mean"], other["mean"])


def test_no_cluster_there(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("nobody answers")))
    with pytest.raises(ConnectionError, match=r"no Ray cluster answers at 10\.0\.0\.9:6379.*ray start --head"):
        _ = wf.executors.Ray("10.0.0.9:6379").width
