"""Frozen parameters on the pretended device: shared where the members train, and features that are computed there."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import wherefrom as wf
from pretended.scenarios import DEVICE, KIND, NEW, OLD, QUICK, X, Y, same

OVER = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=2)), wf.Dropout()]


def backbone() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh())
        body.train()(torch.randn(50, 3))
    return body.requires_grad_(False).eval()


def first() -> nn.Module:
    """The frozen part comes first, and batch normalisation is trained behind it."""
    return nn.Sequential(backbone(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 1))


def between() -> nn.Module:
    """The frozen part stands between trained ones."""
    return nn.Sequential(nn.Linear(3, 3), backbone(), nn.Dropout(0.1), nn.Linear(8, 1))


@pytest.mark.parametrize("model", [first, between])
def test_frozen_parts_are_those_of_the_cpu(model, tmp_path):
    training = wf.Training(model, wf.Algorithm("adam", lr=0.01, batch_size=32), 5)
    ours, expected = (
        wf.marginalise(training, (X[OLD], Y[OLD]), OVER, device=device, **QUICK) for device in (DEVICE, "cpu")
    )
    network = ours.networks[""]
    assert {tensor.device.type for tensor in network.shared.values()} == {DEVICE}
    assert (network.head is None) == (model is between)
    same(ours.predict(X[NEW], 8).answers, expected.predict(X[NEW], 8).answers)
    same(ours.one_shot(X[NEW]).std, expected.one_shot(X[NEW]).std)
    same(pickle.loads(pickle.dumps(ours)).predict(X[NEW], 8).answers, expected.predict(X[NEW], 8).answers)
    ours.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run", model, data=(X[OLD], Y[OLD]))
    same(loaded.predict(X[NEW], 8).answers, expected.predict(X[NEW], 8).answers)
    same(ours.extend(theta0=1).predict(X[NEW], 8).mean, expected.extend(theta0=1).predict(X[NEW], 8).mean)


class Mixed(nn.Module):
    """Numbers beside an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(2, 2), nn.Linear(5, 1)

    def forward(self, numbers: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([numbers, self.embed(kind)], 1))


def test_several_inputs_are_those_of_the_cpu():
    x = {"numbers": X, "kind": KIND}
    old, new = ({name: part[rows] for name, part in x.items()} for rows in (OLD, NEW))
    training = wf.Training(Mixed, wf.Algorithm("adam", lr=0.01, batch_size=32), 5)
    ours, expected = (
        wf.marginalise(training, (old, Y[OLD]), OVER[:2], device=device, **QUICK) for device in (DEVICE, "cpu")
    )
    same(ours.predict(new, 8).answers, expected.predict(new, 8).answers)
    same(ours.one_shot(new).std, expected.one_shot(new).std)
