"""SWAG's memory, where it lies, and what deviations in half the bits lose."""

import gc
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import wherefrom as wf
from conftest import mlp, training
from trajectories import collect
from wherefrom.laws import SWAG, TRADI, Gaussian, Snapshots, iterates
from wherefrom.laws.on_disk import zeros_on_disk
from wherefrom.own_loop.running import watch

pytestmark = pytest.mark.slow

RANK, SIZE = 6, 50_000


class Memory(TorchDispatchMode):
    """The bytes of tensors that were made while it lasts and are still there: now, and at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.most, self.known = 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        if size and place not in self.known:
            self.known.add(place)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self.known.discard(place)
        self.now -= size


def trajectory(count: int, members: int = 1, size: int = SIZE) -> torch.Tensor:
    """A random walk in single precision.  # (count, members, size)"""
    return torch.randn(count, members, size, generator=torch.Generator().manual_seed(0)).cumsum(0)


@pytest.mark.parametrize(("precision", "copies"), [(None, 2 + RANK), ("bfloat16", 3 + RANK / 2)])
@pytest.mark.parametrize("count", [RANK, 15])
def test_nothing_is_held_twice(precision, copies, count, monkeypatch):
    """2 + rank numbers for each of theta, gathered and finished; one reference more, and half the bytes a deviation."""
    monkeypatch.setattr(iterates, "_BLOCK_NUMBERS", 1000)
    snapshots, block = trajectory(count), 4 * 4 * 1000
    gc.collect()
    with Memory() as memory:
        collector = SWAG(RANK, deviations=precision).collector(snapshots[0], count)
        assert memory.now == copies * 4 * SIZE
        for theta in snapshots:
            collector.collect(theta)
        laws = collector.laws()
    assert memory.most <= copies * 4 * SIZE + block
    held = {t.untyped_storage().data_ptr(): t.nbytes for law in laws for t in law.tensors().values()}
    assert sum(held.values()) == (copies - (precision is not None)) * 4 * SIZE


def test_blocks_change_nothing(monkeypatch):
    snapshots = trajectory(15, members=3, size=1001)
    laws = SWAG(RANK), SWAG(RANK, deviations="bfloat16"), Snapshots(4)
    whole = [own for law in laws for own in collect(law, snapshots)]
    monkeypatch.setattr(iterates, "_BLOCK_NUMBERS", 300)
    parts = [own for law in laws for own in collect(law, snapshots)]
    for one, other in zip(whole, parts, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.tensors().values(), other.tensors().values(), strict=True))


@pytest.mark.parametrize("law", [SWAG(5), SWAG(5, deviations="bfloat16"), Snapshots()])
def test_what_does_not_fit_beside_theta_lies_in_main_memory(law, monkeypatch):
    """Wherever theta is: here on torch's device without storage."""
    monkeypatch.setattr(iterates, "fits", lambda size, device: False)
    monkeypatch.setattr(iterates, "can_pin", lambda device: False)
    collector = law.collector(torch.zeros(2, 7, device="meta"), 10)
    tensors = [tensor for tensor in vars(collector).values() if isinstance(tensor, torch.Tensor)]
    assert len(tensors) == 4
    assert all(tensor.device.type == "cpu" for tensor in tensors)


# Steps of a hundred-thousandth of the weights; a walk, a drift, and a first iterate that lies far from the others.
TRAJECTORIES = {
    "noise": lambda noise: 100 + 1e-3 * noise,
    "walk": lambda noise: 100 + 1e-3 * noise.cumsum(0),
    "drift": lambda noise: 100 + 1e-3 * (noise + torch.arange(len(noise))[:, None, None]),
    "settling": lambda noise: 100 + 1e-3 * (noise + 50 * torch.exp(-0.3 * torch.arange(len(noise)))[:, None, None]),
}


@pytest.mark.parametrize("name", TRAJECTORIES)
@pytest.mark.parametrize("count", [20, 25, 100])
def test_deviations_in_half_the_bits(name, count):
    """They are rounded twice to 8 bits, relative to themselves; raw iterates would be all alike.

    Somewhat more is lost where the reference is one of few iterates, and those after it moved away from it.
    """
    noise = torch.randn(count, 2, 5000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    snapshots, bound = TRAJECTORIES[name](noise).float(), 2**-8 if name == "walk" or count > 40 else 2**-7
    for full, half in zip(
        collect(SWAG(20), snapshots), collect(SWAG(20, deviations="bfloat16"), snapshots), strict=True
    ):
        assert half.factor.dtype == torch.bfloat16
        assert torch.equal(half.mean, full.mean)
        assert torch.equal(half.diagonal, full.diagonal)
        error = (half.factor.double() - full.factor.double()).square().mean().sqrt()
        assert float(error / full.factor.double().square().mean().sqrt()) < bound
        torch.testing.assert_close(half.variance, full.variance, rtol=2**-6, atol=0)
    assert len(snapshots[:, 0].bfloat16().unique(dim=0)) < count  # what raw iterates would have been


def test_samples_of_a_rounded_factor_are_those_of_the_same_in_full(monkeypatch):
    law = collect(SWAG(20, deviations="bfloat16"), trajectory(30, size=1001))[0]
    full = Gaussian(law.mean, law.diagonal, law.factor.float())
    expected = full.sample(50, torch.Generator().manual_seed(0))
    monkeypatch.setattr("wherefrom.laws.law._COLUMNS", 100)
    torch.testing.assert_close(law.sample(50, torch.Generator().manual_seed(0)), expected)
    torch.testing.assert_close(law.variance, full.variance)


def test_a_sample_never_holds_the_whole_factor_in_full():
    law = collect(SWAG(20, deviations="bfloat16"), trajectory(30, size=2**20))[0]
    generator = torch.Generator().manual_seed(0)
    gc.collect()
    with Memory() as memory:
        law.sample(2, generator)
    assert memory.most <= 4 * (5 * 2**20 + 20 * 2**16 + 100)  # z, the sample, a square root; 65,536 columns


@pytest.mark.parametrize("law", [SWAG(4), SWAG(4, deviations="bfloat16"), SWAG(0, deviations="bfloat16")])
def test_a_recorder_gathers_the_same(law):
    """A loop of unknown length keeps differences from its first iterate."""
    snapshots = trajectory(15, size=200)
    watching = watch(law, snapshots[0, 0], None)
    for theta in snapshots[:, 0]:
        watching.collect(theta)
    again = watch(law, snapshots[0, 0], None)
    again.restore(watching.state())
    expected = collect(law, snapshots)[0]
    for own in (watching.law(), again.law()):
        assert own.factor.dtype == expected.factor.dtype
        torch.testing.assert_close(own.mean, expected.mean)
        scale = float(expected.factor.float().abs().max()) if len(expected.factor) else 0
        torch.testing.assert_close(own.factor.float(), expected.factor.float(), rtol=0, atol=2**-6 * scale)


def test_tradi_takes_no_memory_of_its_own_in_the_end():
    snapshots = trajectory(5)
    gc.collect()
    with Memory() as memory:
        collector = TRADI().collector(snapshots[0], 5)
        for theta in snapshots:
            collector.collect(theta)
        collector.laws()
    assert memory.most <= (4 + 1 + 0.01) * 4 * SIZE  # last, deviation, drift, variance; a step


# ---------------------------------------------------------------------- from training to prediction


@pytest.fixture
def posteriors(problem):
    return [
        wf.marginalise(
            training(mlp(rate=0.0), epochs=12), problem, [wf.InitialCondition(2), wf.Iterations(SWAG(5, deviations=d))]
        )
        for d in (None, "bfloat16")
    ]


def test_predictions_hardly_differ(posteriors, problem):
    full, half = posteriors
    one, other = (posterior.predict(problem[0], samples=50) for posterior in posteriors)
    assert not np.array_equal(one.mean, other.mean)
    np.testing.assert_allclose(one.mean, other.mean, atol=0.02 * float(one.std.max()))
    for settings in ({}, {"rank": 2}, {"covariance": "diagonal"}, {"covariance": "full"}):
        np.testing.assert_allclose(
            half.one_shot(problem[0], **settings).std, full.one_shot(problem[0], **settings).std, rtol=0.03
        )


def test_files_hold_rounded_deviations_as_they_are(posteriors, problem, tmp_path):
    _, half = posteriors
    half.save(tmp_path)
    again = wf.load(tmp_path, mlp(rate=0.0), data=problem)
    assert again.design.iterations == half.design.iterations
    assert [law.factor.dtype for law in again.laws()] == [torch.bfloat16] * 2
    assert all(torch.equal(a.factor, b.factor) for a, b in zip(again.laws(), half.laws(), strict=True))
    assert torch.equal(again.predict(problem[0], 10).answers, half.predict(problem[0], 10).answers)


def test_recorders_with_rounded_deviations_make_a_posterior(problem, tmp_path):
    network, recorder = mlp(rate=0.0)(), wf.Recorder(SWAG(4, deviations="bfloat16"))
    for _ in range(10):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 0.01 * torch.randn_like(parameter)
        recorder.update(network)
    recorder.save(tmp_path / "one.safetensors")
    for one in (recorder, tmp_path / "one.safetensors"):
        posterior = wf.Posterior.from_members([one], model=mlp(rate=0.0), x=problem[0], y=problem[1])
        assert posterior.laws()[0].factor.dtype == torch.bfloat16
        assert torch.isfinite(torch.as_tensor(posterior.predict(problem[0], 10).mean)).all()


def test_the_native_engine_leaves_rounded_deviations_to_torch(problem):
    pytest.importorskip("numba")
    over = [wf.Iterations(SWAG(5, deviations="bfloat16"))]
    with pytest.raises(ValueError, match="bfloat16"):
        wf.marginalise(training(), problem, over, engine="native")
    assert wf.marginalise(training(epochs=500), problem, over).engines == ("torch",)


def test_deviations_on_disk_change_no_bit(problem, tmp_path, monkeypatch):
    """Neither in training nor in files, and the files that they lie in have no names."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    setup = training(mlp(rate=0.0), epochs=12)
    kept, disk = (
        wf.marginalise(setup, problem, [wf.InitialCondition(2), wf.Iterations(SWAG(5, deviations=d))])
        for d in (None, "disk")
    )
    expected = kept.predict(problem[0], samples=20).answers
    assert torch.equal(disk.predict(problem[0], samples=20).answers, expected)
    disk.save(tmp_path / "run")
    again = wf.load(tmp_path / "run", mlp(rate=0.0), data=problem)
    assert again.design.iterations.law.deviations == "disk"
    assert torch.equal(again.predict(problem[0], samples=20).answers, expected)
    assert all("wherefrom-deviations" in mapping(law.factor) for law in (*disk.laws(), *again.laws()))
    assert not list(folder.iterdir())


def mapping(tensor):
    """The line of the system's table of this process's memory that a tensor lies in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= tensor.data_ptr() < last:
            return line
    return ""


def test_a_disk_without_room_is_named(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"no room for 0\.1 GB of deviations.*set TMPDIR"):
        zeros_on_disk((5, 5_000_000), torch.float32)
