"""Trainings that were interrupted end in the same bits as those that were not."""

import json
import os
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from apart import alone
from conftest import assert_same_members, mlp, training
from wherefrom.files.reading import read_tensors
from wherefrom.training import checkpoints, identity
from wherefrom.training.cohort import Examples
from wherefrom.training.noise import Noise
from wherefrom.training.optimisers import OPTIMISERS

pytestmark = pytest.mark.slow

EPOCHS = 12


class Interrupted(Exception):
    pass


def after(epochs: int):
    """A progress function that stops everything once so many epochs of members are done."""
    left = [epochs]

    def report(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            raise Interrupted

    return report


@contextmanager
def beginnings():
    """With how many epochs done, of each member, trainings began."""
    found, begin = [], checkpoints.Keeping.begin

    def spied(self, resumable):
        epochs = begin(self, resumable)
        found.append(list(epochs))
        return epochs

    with patch.object(checkpoints.Keeping, "begin", spied):
        yield found


def interrupted_and_resumed(folder: Path, stop: int, *args, **kwargs) -> wf.Posterior:
    with pytest.raises(Interrupted):
        wf.marginalise(*args, **kwargs, checkpoints=folder, progress=after(stop))
    assert len(list(folder.glob("*.safetensors"))) > 0
    heard = []
    with beginnings() as begun:
        posterior = wf.marginalise(*args, **kwargs, checkpoints=folder, progress=heard.append)
    assert max(map(sum, begun)) > 0  # it went on from there
    assert sum(heard) == EPOCHS * len(posterior)  # those before count as done
    assert not list(folder.glob(".*"))  # no temporary files
    return posterior


def check(folder: Path, stop: int, *args, **kwargs) -> None:
    expected = wf.marginalise(*args, **kwargs)
    assert_same_members(interrupted_and_resumed(folder, stop, *args, **kwargs), expected)
    # Everything is there now, and nothing is trained again.
    with beginnings() as begun:
        again = wf.marginalise(*args, **kwargs, checkpoints=folder)
    assert begun == []
    assert_same_members(again, expected)
    assert [c.trained.engine for c in again.mixture] == [c.trained.engine for c in expected.mixture]


SETTINGS = {
    "sgd": [{}, {"momentum": 0.9, "dampening": 0.1}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}],
    "adam": [{}, {"amsgrad": True, "weight_decay": 0.01}],
    "rmsprop": [{}, {"centered": True, "momentum": 0.5}],
    "sghmc": [{}, {"preconditioned": True}],
}


@pytest.mark.parametrize(
    ("name", "settings"), [(name, own) for name in OPTIMISERS for own in SETTINGS.get(name, [{}])], ids=str
)
def test_every_optimiser(name, settings, problem, tmp_path):
    algorithm = wf.Algorithm(name, lr=0.01, batch_size=25, clip=1.0, **settings)
    setup = training(algorithm=algorithm, epochs=EPOCHS)
    check(tmp_path, 3 * 7, setup, problem, [wf.InitialCondition(3)], engine="torch")


def test_noise_of_steps_already_done_is_not_drawn_again(problem, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Noise, "__call__", lambda noise, step: drawn.append(step) or torch.zeros(3, noise.size))
    setup = training(algorithm=wf.Algorithm("sgld", lr=0.01, batch_size=25), epochs=EPOCHS)
    given = setup, problem, [wf.InitialCondition(3)]
    interrupted_and_resumed(tmp_path, 3 * 7, *given, engine="torch", workers=1)
    assert drawn == list(range(EPOCHS * 4))  # 90 rows have four batches


class Forgetful(torch.optim.SGD):
    """Steps by random numbers, and by a number that its state does not hold."""

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, lr=lr, momentum=0.9)
        self.steps = 0

    def step(self, closure=None):
        self.steps += 1
        for group in self.param_groups:
            group["lr"] = group["lr"] / (1 + 0.01 * self.steps) ** 0.5
            for p in group["params"]:
                p.grad = p.grad + 0.01 * torch.randn_like(p)
        return super().step(closure)


class Counting(Forgetful):
    """Holds that number in its state."""

    def state_dict(self):
        return super().state_dict() | {"steps": self.steps}

    def load_state_dict(self, state_dict):
        self.steps = state_dict["steps"]
        super().load_state_dict(state_dict)


def test_what_an_optimiser_holds_outside_its_state_is_named(problem, tmp_path):
    setup = training(algorithm=wf.Algorithm(Forgetful, lr=0.01, batch_size=25), epochs=EPOCHS)
    with pytest.raises(ValueError, match=r"Forgetful\.steps changes, but is no part of its state_dict\(\)"):
        wf.marginalise(setup, problem, [], checkpoints=wf.Checkpoints(tmp_path, seconds=0))


@pytest.mark.parametrize(
    "algorithm",
    [
        wf.Algorithm(torch.optim.Adafactor, lr=0.01, batch_size=25),
        wf.Algorithm(torch.optim.Adam, lr=0.01, batch_size=25, amsgrad=True, clip=1.0),
        wf.Algorithm(torch.optim.SGD, lr=0.01, batch_size=25, momentum=0.9, schedule=wf.schedules.Cosine()),
        wf.Algorithm(torch.optim.Rprop, lr=0.01, batch_size=25),
        wf.Algorithm(Counting, lr=0.01, batch_size=25),
    ],
    ids=str,
)
def test_classes_of_torch(algorithm, problem, tmp_path):
    check(tmp_path, 2 * 5, training(algorithm=algorithm, epochs=EPOCHS), problem, [wf.InitialCondition(2)])


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 1))


LAWS = [
    wf.SWAG(4),
    wf.SWAG(4, deviations="bfloat16"),
    wf.SWAG(diagonal_only=True),
    wf.TRADI(),
    wf.Snapshots(keep=3),
]


@pytest.mark.parametrize("stop", [2, 9])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_laws_dropout_and_batch_normalisation(law, stop, problem, tmp_path):
    """Before and after it begins to collect."""
    over = [wf.InitialCondition(3), wf.Iterations(law, start=0.4), wf.Dropout()]
    check(tmp_path, 3 * stop, training(normalised, epochs=EPOCHS), problem, over)


@pytest.mark.parametrize("law", [None, wf.SWAG(4), wf.Snapshots(keep=3), wf.TRADI()], ids=str)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_native_engine(law, workers, problem, tmp_path, monkeypatch):
    """Members one after another, in blocks of epochs: some are done, one is on its way, others have not begun."""
    pytest.importorskip("numba")
    from wherefrom.training.native import engine

    monkeypatch.setattr(engine, "_CALL_SECONDS", 0.0)  # blocks of one epoch
    drawn = wf.Hyperparameters(4, lr=wf.LogUniform(1e-3, 1e-1), schedule=[wf.schedules.Cosine(), wf.schedules.Linear()])
    over = [drawn, *([wf.Iterations(law, start=0.4)] if law else []), wf.Dropout()]
    check(tmp_path, 2 * EPOCHS + 7, training(epochs=EPOCHS), problem, over, engine="native", workers=workers)


def shaky(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return batch + 0.1 * torch.randn(batch.shape, generator=generator)


def test_augmentation_resampling_schedules_and_double_precision(problem, tmp_path):
    over = [wf.Resample(2), wf.Hyperparameters(2, lr=wf.LogUniform(1e-3, 1e-1)), wf.Iterations(wf.SWAG(3))]
    algorithm = wf.Algorithm("adamw", lr=0.01, batch_size=25, schedule=lambda p: 1 - 0.5 * p, replacement=True)
    setup = training(algorithm=algorithm, epochs=EPOCHS, augment=shaky)
    check(tmp_path, 4 * 5, setup, problem, over, dtype=torch.float64)


def test_a_lone_member(problem, tmp_path):
    """It trains beside a twin of itself, and is written once."""
    check(tmp_path, 5, training(epochs=EPOCHS), problem, [wf.Iterations(wf.SWAG(3))], engine="torch")


def test_families_algorithms_and_folds(problem, tmp_path):
    """Many cohorts at once; folds have files of their own."""
    families = wf.Families({"wide": mlp(hidden=16), "deep": normalised})
    algorithms = wf.Algorithms(
        [wf.Algorithm("adam", lr=0.01, batch_size=25), wf.Algorithm("sgd", lr=0.1, batch_size=30)]
    )
    over, setup = [families, algorithms, wf.Iterations(wf.SWAG(3))], training(epochs=EPOCHS)
    check(tmp_path / "one", 30, setup, problem, over, workers=2)
    folds = [range(60), range(30, 90)]
    expected = wf.marginalise_folds(setup, problem, folds, over)
    with pytest.raises(Interrupted):
        wf.marginalise_folds(setup, problem, folds, over, checkpoints=tmp_path / "two", progress=after(60))
    found = wf.marginalise_folds(setup, problem, folds, over, checkpoints=tmp_path / "two")
    for one, other in zip(found, expected, strict=True):
        assert_same_members(one, other)


def test_where_the_start_is_found_by_a_first_look(problem, tmp_path):
    """Both trainings are written: that which only looks, and that which collects."""
    over, setup = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3), start="auto")], training(epochs=EPOCHS)
    expected = wf.marginalise(setup, problem, over)
    for stop in (2 * 5, 2 * EPOCHS + 5):
        with pytest.raises(Interrupted):
            wf.marginalise(setup, problem, over, checkpoints=tmp_path, progress=after(stop))
    assert_same_members(wf.marginalise(setup, problem, over, checkpoints=tmp_path), expected)


def test_diverged_members(problem, tmp_path):
    over = [wf.Hyperparameters(lr=[0.01, 1e30])]
    setup = training(algorithm=wf.Algorithm("sgd", lr=0.1, batch_size=25), epochs=EPOCHS)
    for _ in range(2):
        with pytest.raises(wf.DivergedError, match="1 of 2 members diverged"):
            wf.marginalise(setup, problem, over, checkpoints=tmp_path)
    found = wf.marginalise(setup, problem, over, checkpoints=tmp_path, on_divergence="keep")
    assert_same_members(found, wf.marginalise(setup, problem, over, on_divergence="keep"))


def trainings(monkeypatch) -> list[int]:
    """How many members each training was for."""
    from wherefrom.training.torch_engine import TorchEngine

    found, train = [], TorchEngine.train

    def counted(self, members, *others):
        found.append(len(members))
        return train(self, members, *others)

    monkeypatch.setattr(TorchEngine, "train", counted)
    return found


def test_more_draws_train_only_the_new_ones(problem, tmp_path, monkeypatch):
    setup = training(epochs=EPOCHS)
    counts = trainings(monkeypatch)
    three = wf.marginalise(setup, problem, [wf.InitialCondition(3)], checkpoints=tmp_path)
    five = wf.marginalise(setup, problem, [wf.InitialCondition(5)], checkpoints=tmp_path)
    assert counts == [3, 2]
    assert_same_members(three.extend(theta0=2, checkpoints=tmp_path), five)
    assert_same_members(
        wf.marginalise(setup, problem, [wf.InitialCondition(4)], checkpoints=tmp_path), five.select(theta0=[0, 1, 2, 3])
    )
    assert counts == [3, 2]


def test_extend_can_be_interrupted(problem, tmp_path):
    posterior = wf.marginalise(training(epochs=EPOCHS), problem, [wf.InitialCondition(2)])
    with pytest.raises(Interrupted):
        posterior.extend(theta0=2, checkpoints=tmp_path, progress=after(10))
    assert_same_members(posterior.extend(theta0=2, checkpoints=tmp_path), posterior.extend(theta0=2))


def test_another_grouping(problem, tmp_path, monkeypatch):
    """Members that were together go on together, whatever the number of workers has become."""
    monkeypatch.setattr(wf.training.network, "_GROUP_NUMBERS", 3000)  # several groups
    setup, over = training(epochs=EPOCHS), [wf.InitialCondition(7), wf.Iterations(wf.SWAG(3))]
    with pytest.raises(Interrupted):
        wf.marginalise(setup, problem, over, checkpoints=tmp_path, workers=1, progress=after(30), engine="torch")
    found = wf.marginalise(setup, problem, over, checkpoints=tmp_path, workers=3, engine="torch")
    whole = wf.marginalise(setup, problem, over, engine="torch")
    oracle.assert_same_members(*([component.trained for component in one.mixture] for one in (found, whole)))


# ---------------------------------------------------------------------- others' checkpoints


OTHERS = {
    "another seed": lambda setup, data: ((setup, data, [wf.InitialCondition(2)]), {"seed": 1}),
    "other rows": lambda setup, data: ((setup, (data[0] + 1e-7 * data[0], data[1]), [wf.InitialCondition(2)]), {}),
    "more epochs": lambda setup, data: ((training(epochs=EPOCHS + 1), data, [wf.InitialCondition(2)]), {}),
    "another batch size": lambda setup, data: (
        (
            training(epochs=EPOCHS, algorithm=wf.Algorithm("adam", lr=0.02, batch_size=30)),
            data,
            [wf.InitialCondition(2)],
        ),
        {},
    ),
    "a schedule": lambda setup, data: (
        (
            training(
                epochs=EPOCHS,
                algorithm=wf.Algorithm("adam", lr=0.02, batch_size=25, schedule=lambda p: 1.0 - (p > 0.5) * 0.1),
            ),
            data,
            [wf.InitialCondition(2)],
        ),
        {},
    ),
    "another rate of dropout": lambda setup, data: (
        (training(mlp(rate=0.2), epochs=EPOCHS), data, [wf.InitialCondition(2)]),
        {},
    ),
    "another law": lambda setup, data: ((setup, data, [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))]), {}),
    "augmentation": lambda setup, data: ((training(epochs=EPOCHS, augment=shaky), data, [wf.InitialCondition(2)]), {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_trainings_are_left_alone(name, problem, tmp_path):
    setup = training(epochs=EPOCHS)
    with pytest.raises(Interrupted):
        wf.marginalise(setup, problem, [wf.InitialCondition(2)], checkpoints=tmp_path, progress=after(10))
    args, kwargs = OTHERS[name](setup, problem)
    assert_same_members(wf.marginalise(*args, **kwargs, checkpoints=tmp_path), wf.marginalise(*args, **kwargs))
    found = wf.marginalise(setup, problem, [wf.InitialCondition(2)], checkpoints=tmp_path)
    assert_same_members(found, wf.marginalise(setup, problem, [wf.InitialCondition(2)]))


class Silent(nn.Module):
    """A model of which nothing tells from outside what it computes."""

    slope = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.slope * self.first(x)))


def test_another_model_under_the_same_name_is_refused(problem, tmp_path, monkeypatch):
    setup = training(Silent, epochs=EPOCHS)
    with pytest.raises(Interrupted):
        wf.marginalise(setup, problem, [], checkpoints=tmp_path, progress=after(5))
    monkeypatch.setattr(Silent, "slope", 0.5)
    with pytest.raises(ValueError, match="another model"):
        wf.marginalise(setup, problem, [], checkpoints=tmp_path)


def test_files_that_cannot_be_read_are_left_alone(problem, tmp_path):
    setup, over = training(epochs=EPOCHS), [wf.InitialCondition(2)]
    with pytest.raises(Interrupted):
        wf.marginalise(setup, problem, over, checkpoints=tmp_path, progress=after(10))
    (file,) = tmp_path.glob("*.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(file.read_bytes()[:500])
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("mine")
    assert_same_members(
        wf.marginalise(setup, problem, over, checkpoints=tmp_path), wf.marginalise(setup, problem, over)
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        file.name,
        "torn.safetensors",
        "empty.safetensors",
        "notes.txt",
    }


def test_what_cannot_be_written_is_named(problem, tmp_path):
    class Odd(torch.optim.SGD):
        def step(self, closure=None):
            self.state["odd"] = {"it": object()}
            return super().step(closure)

    setup = training(algorithm=wf.Algorithm(Odd, lr=0.01, batch_size=25), epochs=EPOCHS)
    with pytest.raises(ValueError, match="leave checkpoints out"):
        wf.marginalise(setup, problem, [], checkpoints=wf.Checkpoints(tmp_path, seconds=0))
    for bad in (3, ["folder"]):
        with pytest.raises(TypeError, match="must be a folder"):
            wf.marginalise(training(), problem, [], checkpoints=bad)
    with pytest.raises(ValueError, match="negative"):
        wf.Checkpoints("folder", seconds=-1)


class Elsewhere:
    """Rows that are read when they are wanted, as streamed ones are."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def __getitem__(self, index) -> "Elsewhere":
        return Elsewhere(self.rows[index])

    def read(self) -> torch.Tensor:
        return self.rows

    def fingerprint(self) -> bytes:
        return self.rows[::2].numpy().tobytes()


def test_rows_that_are_streamed_are_known_again():
    x, y = torch.randn(10, 3), torch.randn(10, 1)
    digest = identity.of_table(Examples(Elsewhere(x), y))
    assert identity.of_table(Examples(Elsewhere(x.clone()), y.clone())) == digest
    for other in (Examples(Elsewhere(x + 1), y), Examples(Elsewhere(x), y + 1), Examples(Elsewhere(x), y, y[:, 0])):
        assert identity.of_table(other) != digest


# ---------------------------------------------------------------------- when it is written


def test_it_is_written_when_it_is_time(problem, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(checkpoints.Keeper, "save", lambda self, *others: written.append(others[2]))
    clock = iter(np.arange(0, 1000, 25.0))
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: next(clock))
    wf.marginalise(training(epochs=EPOCHS), problem, [wf.InitialCondition(2)], checkpoints=tmp_path)
    assert [about.get("epochs") for about in written] == [(3, 3), (6, 6), (9, 9), (12, 12), None]
    assert "trained" in written[-1]


def killed_setup():
    generator = np.random.default_rng(7)
    x = generator.normal(size=(90, 4))
    over = [wf.InitialCondition(4), wf.Iterations(wf.SWAG(3)), wf.Dropout()]
    return x, 3.0 * x[:, 0] + generator.normal(size=90), training(normalised, epochs=EPOCHS), over


def train_and_die(folder: Path) -> None:
    x, y, setup, over = killed_setup()
    left = [4 * 7]

    def report(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            os._exit(3)  # nothing is cleaned up

    wf.marginalise(setup, (x, y), over, workers=1, checkpoints=wf.Checkpoints(folder, seconds=0), progress=report)


def test_a_process_that_was_killed(tmp_path):
    with pytest.raises(BrokenProcessPool):
        alone(train_and_die, tmp_path)
    x, y, setup, over = killed_setup()
    (file,) = tmp_path.glob("*.safetensors")
    assert json.loads(read_tensors(file)[0]["about"])["epochs"] == [7] * 4
    found = wf.marginalise(setup, (x, y), over, workers=1, checkpoints=tmp_path)
    assert_same_members(found, wf.marginalise(setup, (x, y), over, workers=1))
