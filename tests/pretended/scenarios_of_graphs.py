"""Training steps as graphs on the pretended device: captured without host traffic, and equal to plain steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from pretended import device
from wherefrom.reproduce.cifar10.vgg import VGG16
from wherefrom.training import graphs
from wherefrom.training.optimisers import OPTIMISERS

DEVICE = torch.device(device.FIRST)
QUICK = {"progress": False, "engine": "torch"}

X = np.random.default_rng(0).normal(size=(110, 6))
Y = X[:, 0] + np.sin(3 * X[:, 1])
IMAGES, CLASSES = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 3


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """Capture also what is short."""
    monkeypatch.setattr(graphs, "_FEWEST_STEPS", 4)


def net(rate: float = 0.05) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(rate), nn.Linear(8, 1))


def of_table(optimiser="adam", epochs: int = 6, model=net, **settings) -> wf.Posterior:
    algorithm = wf.Algorithm(optimiser, **{"lr": 0.01, "batch_size": 25} | settings)
    training = wf.Training(model, algorithm, epochs=epochs, likelihood=wf.Regression(noise=1.0))
    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=2), start=0.0)]
    return wf.marginalise(training, (X, Y), over, device=DEVICE, **QUICK)


def of_images(autocast=None) -> wf.Posterior:
    algorithm = wf.Algorithm("sgd", lr=0.05, momentum=0.9, weight_decay=5e-4, batch_size=8)
    settings = {"likelihood": wf.Classification(), "standardise": False, "augment": wf.augment.CropAndFlip(4)}
    training = wf.Training(lambda: VGG16(3, width=1 / 16, batch_norm=True), algorithm, epochs=4, **settings)
    return wf.marginalise(training, (IMAGES, CLASSES), [], device=DEVICE, autocast=autocast, **QUICK)


@pytest.fixture
def launched(monkeypatch) -> list:
    """Return the graphs as they are launched."""
    graphs, kind = [], torch.get_device_module(DEVICE).CUDAGraph
    replay = kind.replay
    monkeypatch.setattr(kind, "replay", lambda graph: (graphs.append(graph), replay(graph))[1])
    return graphs


def as_without_graphs(monkeypatch, ours: wf.Posterior, train, *given, **settings) -> None:
    """Check that the members are those of plain steps: to the last bit, or up to the rounding of a real device."""
    monkeypatch.setenv("WHEREFROM_GRAPHS", "0")
    expected = train(*given, **settings)
    close = {"rtol": 0, "atol": 0} if device.IS_PRETENDED else {"rtol": 1e-2, "atol": 1e-3}
    for one, other in zip(ours.mixture, expected.mixture, strict=True):
        torch.testing.assert_close(one.trained.last, other.trained.last, **close)
        torch.testing.assert_close(one.trained.losses, other.trained.losses, **close)


@pytest.mark.parametrize("optimiser", list(OPTIMISERS))
def test_every_optimisers_step_is_captured(launched, monkeypatch, optimiser):
    settings: dict = {"momentum": 0.9, "nesterov": True} if optimiser == "sgd" else {}
    settings["schedule"] = wf.schedules.Cosine()  # other numbers at each step
    ours = of_table(optimiser, clip=1.0, **settings)
    assert len(launched) == 6 * 5 - 2 * graphs._WARM_UP  # six epochs of four whole batches and a short one
    assert len(set(launched)) == 2
    as_without_graphs(monkeypatch, ours, of_table, optimiser, clip=1.0, **settings)
    assert len(launched) == 6 * 5 - 2 * graphs._WARM_UP


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_convolutional_networks_step_is_captured(launched, monkeypatch, autocast):
    ours = of_images(autocast)
    assert len(launched) == 4 * 2 - graphs._WARM_UP
    as_without_graphs(monkeypatch, ours, of_images, autocast)


def test_a_graph_is_launched_without_copies_and_without_waiting(native, monkeypatch):
    """A step more costs a launch, and neither a copy nor a synchronisation."""
    counts = []
    for epochs in (6, 8):
        native.reset()
        of_table(epochs=epochs)
        counts.append(native.counts())
    more = {name: counts[1][name] - counts[0].get(name, 0) for name in counts[1]}
    assert more["graph"] == 2 * 5
    assert more["D2H"] == 2  # the losses of two epochs
    assert not any(count for name, count in more.items() if name.startswith(("H2D", "SYNC", "implicit")))
    assert more["kernel"] < 40 * 10  # those that prepare a step: order, rows, masks


class Looking(nn.Module):
    """A network that looks at its numbers, which no graph can."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = net()

    def forward(self, x):
        return self.layers(x) if x.sum() > -1e9 else self.layers(-x)


def test_what_cannot_be_captured_is_trained_as_it_is(monkeypatch):
    with pytest.warns(UserWarning, match=r"graph of a training step could not be captured \("):
        ours = of_table(model=Looking)
    as_without_graphs(monkeypatch, ours, of_table, model=Looking)


def test_a_graph_that_gives_other_numbers_is_given_up(monkeypatch):
    module = torch.get_device_module(DEVICE)
    monkeypatch.setattr(module.CUDAGraph, "replay", lambda self: None)
    with pytest.warns(UserWarning, match=r"graph of a training step gives other numbers"):
        ours = of_table()
    as_without_graphs(monkeypatch, ours, of_table)


def test_torchs_own_optimisers_and_short_trainings_are_not_captured(launched, monkeypatch):
    of_table(torch.optim.AdamW)
    monkeypatch.setattr(graphs, "_FEWEST_STEPS", 100)
    of_table()
    assert not launched


def test_nothing_is_captured_beside_another_training(launched):
    with graphs.running():
        of_table()
    assert not launched
    of_table()
    assert launched


def test_the_pretended_capture_is_as_strict_as_cudas(native):
    module = torch.get_device_module(DEVICE)
    x = torch.ones(3, device=DEVICE)
    captured = module.CUDAGraph()
    with module.graph(captured):
        y = x * 2
        x.add_(y)
    assert x.tolist() == [1, 1, 1]  # nothing has happened yet
    for expected in (3, 9):
        captured.replay()
        assert x.tolist() == [expected] * 3
    for forbidden in (lambda: x.sum().item(), lambda: x.cpu(), lambda: torch.ones(3).to(DEVICE)):
        with pytest.raises(RuntimeError, match=r"not permitted"), module.graph(module.CUDAGraph()):
            forbidden()
    assert float(x.sum()) == 27
