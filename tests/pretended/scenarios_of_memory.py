"""Memory of the pretended device: groups, laws and iterates are there by what is free."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from pretended import device
from wherefrom.training.torch_engine import TorchEngine

DEVICE = torch.device(device.FIRST)
QUICK = {"progress": False, "engine": "torch"}

X = np.random.default_rng(0).normal(size=(100, 6))
Y = X[:, 0] + np.sin(3 * X[:, 1])


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 20, bias=False), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 1))


def trained(device: str | torch.device, law=None, draws: int = 2, epochs: int = 6, **options) -> wf.Posterior:
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=25)
    training = wf.Training(net, algorithm, epochs=epochs, likelihood=wf.Regression(noise=1.0))
    over = [wf.InitialCondition(draws), wf.Iterations(wf.SWAG(rank=3) if law is None else law, start=0.0)]
    return wf.marginalise(training, (X, Y), over, device=device, **QUICK, **options)


@pytest.fixture
def free(monkeypatch):
    """Set the bytes that are free."""
    module = torch.get_device_module(DEVICE)
    monkeypatch.setattr(module, "memory_reserved", lambda _: 0, raising=False)
    return lambda size: monkeypatch.setattr(module, "mem_get_info", lambda device=0: (size, 2**34))


def close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize(("size", "groups"), [(2**30, 1), (2**18, 2), (0, 5)])
def test_groups_are_as_large_as_memory_allows(free, monkeypatch, size, groups):
    sizes, train = [], TorchEngine.train
    monkeypatch.setattr(
        TorchEngine, "train", lambda self, members, *given: sizes.append(len(members)) or train(self, members, *given)
    )
    free(size)
    ours = trained(DEVICE, draws=5)
    assert len(sizes) == groups
    assert sum(sizes) == 5
    close(ours.predict(X[:4], 4).mean, trained("cpu", draws=5).predict(X[:4], 4).mean)


SWAG, ROUNDED, SNAPSHOTS = wf.SWAG(rank=3), wf.SWAG(rank=3, deviations="bfloat16"), wf.Snapshots(keep=3)
PLENTY, LITTLE, NONE = 2**30, 6000, 0  # bytes: in the second, two moments and a reference fit, but no three deviations


@pytest.mark.parametrize(
    ("law", "size", "copies"),
    [
        *((law, PLENTY, "none") for law in (SWAG, ROUNDED, SNAPSHOTS)),
        *((SWAG, LITTLE, "behind"), (ROUNDED, LITTLE, "behind"), (SNAPSHOTS, NONE, "behind")),
        *((SWAG, NONE, "waiting"), (ROUNDED, NONE, "waiting")),
    ],
)
def test_iterates_are_kept_on_the_device_in_pinned_or_in_main_memory(native, free, law, size, copies):
    expected = trained("cpu", law)
    free(size)
    ours = trained(DEVICE, law)
    for one, other in zip(ours.laws(), expected.laws(), strict=True):
        for name, tensor in one.tensors().items():
            assert tensor.device.type == "cpu"
            torch.testing.assert_close(tensor, other.tensors()[name], rtol=1e-2, atol=1e-4)
    counts = []
    for epochs in (6, 8):
        native.reset()
        trained(DEVICE, law, epochs=epochs)
        counts.append({name: native.counts().get(name, 0) for name in ("D2H behind", "D2H")})
    groups = 1 if size == PLENTY else 2
    more = counts[1]["D2H"] - counts[0]["D2H"] - 2 * groups  # beside the losses of two epochs
    assert more == (2 * groups if copies == "waiting" else 0)
    assert bool(counts[0]["D2H behind"]) == (copies == "behind")


# ---------------------------------------------------------------------- prediction


def test_laws_are_sampled_on_the_device_where_they_fit(native, free):
    posterior, expected = trained(DEVICE), trained("cpu").predict(X[:8], 8)
    answers = {}
    for size in (2**30, 0):
        free(size)
        native.reset()
        answers[size] = posterior.predict(X[:8], 8)
        sampled_there = native.counts().get("op aten::addmm.out", 0) + native.counts().get("op aten::addmm", 0)
        assert bool(sampled_there) == bool(size)
        close(answers[size].mean, expected.mean)
        close(answers[size].std, expected.std)


def test_statistics_of_a_known_sample_cost_no_copy_of_it(native):
    """They are remembered by the law, the seed and the number of the sample."""
    posterior = trained(DEVICE)
    posterior.predict(X[:8], 4)
    native.reset()
    posterior.predict(X[:8], 4)
    theta = posterior.network.layout.size * 4
    copied = [size for name, size in native.sizes().items() if name.startswith("D2H")]
    assert sum(copied) < 2 * 4 * theta  # the answers alone: two members, four samples, eight rows


@pytest.mark.parametrize("device", [DEVICE, "cpu"])
def test_autocast_in_prediction_is_on_request(device):
    posterior = trained(device)
    exact, rounded = posterior.predict(X, 8).answers, posterior.predict(X, 8, autocast=torch.bfloat16).answers
    assert rounded.dtype == exact.dtype
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0, atol=3e-2 * float(exact.abs().max()))
    assert torch.equal(posterior.predict(X, 8).answers, exact)
    (chunk,) = posterior.predict_chunks(X, 8, autocast=torch.bfloat16)
    torch.testing.assert_close(chunk.answers, rounded, rtol=0, atol=3e-2 * float(exact.abs().max()))
    with pytest.raises(ValueError, match=r"autocast must be None or torch\.bfloat16"):
        posterior.predict(X, autocast=torch.float16)


def test_a_recorder_goes_on_on_the_device(tmp_path):
    models = [net() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    recorders = [wf.Recorder(wf.SWAG(rank=2)) for _ in models]
    for number, (model, recorder) in enumerate(zip(models, recorders, strict=True)):
        for step in range(6):
            if number and step == 3:  # saved on the CPU, it goes on where the model is now
                recorder.save(tmp_path / "recorder.safetensors")
                recorder = recorders[1] = wf.Recorder.load(tmp_path / "recorder.safetensors", device=DEVICE)
                model = model.to(DEVICE)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.1 * (step + 1))
            recorder.update(model)
    assert recorders[1]._theta.device == DEVICE
    for name, tensor in recorders[1].law().tensors().items():
        close(tensor, recorders[0].law().tensors()[name])


def test_no_double_precision_and_no_eigenvalues_are_asked_of_the_device(native):
    """As on MPS, which has neither."""
    native.single(True)
    with pytest.raises(RuntimeError, match="no float64"):
        torch.ones(2, dtype=torch.float64, device=DEVICE)
    with pytest.raises(RuntimeError, match="no eigenvalues"):
        torch.linalg.eigvalsh(torch.eye(2, device=DEVICE))
    ours, expected = trained(DEVICE), trained("cpu")
    new = torch.tensor(X[:8], dtype=torch.float32, device=DEVICE)
    for predict in (
        lambda posterior, x: posterior.predict(x, 8),
        lambda posterior, x: posterior.one_shot(x),
        lambda posterior, x: posterior.one_shot(x, rank=2),
        lambda posterior, x: posterior.one_shot(x, covariance="full", x_std=0.1),
    ):
        one, other = predict(ours, new), predict(expected, X[:8].astype(np.float32))
        close(one.mean, other.mean)
        close(one.std, other.std)
        assert one.nll(Y[:8]) == pytest.approx(other.nll(Y[:8]), rel=1e-3)
        assert list(one.sources().overall) == list(other.sources().overall)
    assert len(ours.members((X[:20] + 0.1, Y[:20]))) == 2
    ours.calibrated("variance", (X[:40] + 0.1, Y[:40])).predict(new)
    ours.weighted("stacking", (X[:40] + 0.1, Y[:40])).predict(new)
    ours.check_one_shot(new)
    ours.extend(theta0=1, progress=False)
