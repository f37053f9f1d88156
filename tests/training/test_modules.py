"""A zoo of modules: trained together and recorded, each member is what it is alone and unrecorded, or a clear error."""

import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wherefrom as wf
from conftest import training
from wherefrom.training import program
from wherefrom.training.network import Network


class Module(nn.Module):
    """Two layers, with something of interest between them."""

    def __init__(self, between) -> None:
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(4, 8), nn.Linear(8, 1), nn.LayerNorm(8)
        self.between = between
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf] * 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, torch.tanh(self.first(x))))


class Recurrent(nn.Module):
    """batch_first transposes its output in place; with as many rows as steps the shapes do not give that away."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer, self.last = kind(1, 5, batch_first=True), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(x.unsqueeze(-1))[0][:, -1])


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(3, 4, padding_idx=0), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.table((x > 0).long() + (x > 1).long()).sum(1))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()
        )
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x.view(-1, 1, 2, 2)))


def rows_by_number(m: Module, h: Tensor) -> Tensor:
    return h[torch.arange(len(h)).flip(0)].flip(0) + h[:, [0, 0, 1, 1, 2, 2, 3, 3]]


def through_numpy(m: Module, h: Tensor) -> Tensor:
    return h * torch.from_numpy(np.sign(h.detach().numpy().mean(0)))


BETWEEN = {
    "residual": lambda m, h: h + F.relu(h) + m.norm(h),
    "attention scores": lambda m, h: torch.softmax(h + m.mask, -1) * h,
    "where and cumsum": lambda m, h: torch.where(h > 0, h, h.cumsum(1)),
    "in place": lambda m, h: (h * 2).add_(1).mul_(h).relu_(),
    "transposed in place": lambda m, h: (h * 2).t_().t_() + h,
    "constants": lambda m, h: h + torch.arange(8.0, dtype=h.dtype) + torch.zeros(8, dtype=h.dtype),
    "rows by number": rows_by_number,
    "rows by mask": lambda m, h: h - h[h[:, 0] > 0].sum(0) / len(h),
    "nonzero": lambda m, h: h * torch.nonzero(h[:, 0] > 0).numel(),
    "masked select": lambda m, h: h + torch.masked_select(h, h > 0).sum() / 100,
    "a decision": lambda m, h: h if h.sum() > 0 else 2 * h,
    "through numpy": through_numpy,
    "dropout that is off": lambda m, h: F.dropout(h, 0.9, training=False),
    "made anew and added to": lambda m, h: h + torch.tensor([0.0] * 8, dtype=h.dtype).add_(h.detach().mean(0)),
    "linear by keyword": lambda m, h: F.linear(input=h, weight=torch.eye(8, dtype=h.dtype)),
}
ZOO = {name: (lambda f=f: Module(f)) for name, f in BETWEEN.items()} | {
    "GRU": lambda: Recurrent(nn.GRU),
    "RNN": lambda: Recurrent(nn.RNN),
    "LSTM": lambda: Recurrent(nn.LSTM),
    "padding row": Padded,
    "images": Images,
}


def last(model, problem, batch_size: int) -> Tensor:
    short = training(model, algorithm=wf.Algorithm("sgd", lr=0.002, batch_size=batch_size), epochs=3)
    posterior = wf.marginalise(short, problem, wf.recipes.deep_ensemble(3), dtype=torch.float64)
    return torch.stack([component.trained.last for component in posterior.mixture])


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [4, 7])  # of 4 columns, and with a short batch at the end
@pytest.mark.parametrize("model", ZOO.values(), ids=ZOO)
def test_together_and_recorded_equals_alone_and_called(model, batch_size, problem, monkeypatch):
    x, y = problem
    problem = (x[:46], y[:46])
    together = last(model, problem, batch_size)
    monkeypatch.setattr(program, "record", program.called)
    monkeypatch.setattr(Network, "largest_group", lambda *_: 1)
    alone = last(model, problem, batch_size)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)
    assert float(together[:, 5].std()) > 0


@pytest.mark.parametrize("model", ZOO.values(), ids=ZOO)
def test_predictions_equal_the_module(model, problem):
    x, _ = problem
    posterior = wf.marginalise(training(model, epochs=2), problem, wf.recipes.deep_ensemble(2), dtype=torch.float64)
    for rows in (x[:4], x[4:8], x[8:20]):  # the second call of a shape is a replay
        found = posterior.predict(rows).answers
        inputs = posterior.scaler.x(torch.from_numpy(rows), torch.float64)
        for k, component in enumerate(posterior.mixture):
            module = model().double().eval()
            tensors = posterior.network.layout.views(component.trained.last)
            module.load_state_dict({n: t.clone() for n, t in tensors.items()}, strict=False)
            with torch.no_grad():
                torch.testing.assert_close(found[k, 0], module(inputs), rtol=0, atol=1e-9)


def test_a_model_that_squeezes_everything_away_keeps_its_targets(problem):
    """With one row in a batch, `.squeeze()` leaves no dimension at all."""

    class Squeezes(nn.Module):
        def __init__(self, *dimension: int) -> None:
            super().__init__()
            self.layer, self.dimension = nn.Linear(4, 1), dimension

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).squeeze(*self.dimension)

    a, b = (last(lambda d=d: Squeezes(*d), problem, 1) for d in ((), (-1,)))
    assert torch.equal(a, b)


def test_infinite_buffers_do_not_count_as_divergence(problem):
    model = ZOO["attention scores"]
    posterior = wf.marginalise(training(model), problem, wf.recipes.multi_swag(2, rank=2))
    assert torch.isfinite(posterior.predict(problem[0]).std).all()
    (shared,) = posterior.network.shared.values()  # in no theta
    assert shared.numel() == 8
    assert bool(torch.isinf(shared).any())
    assert posterior.laws()[0].mean.numel() == sum(p.numel() for p in model().parameters())


def test_counting_in_a_buffer_is_refused(problem):
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(self.training)
            return self.layer(x) / (1 + self.calls)

    with pytest.raises(ValueError, match="counts in its buffer 'calls'"):
        wf.marginalise(training(Counts), problem, [])


def test_spectral_norm_trains(problem):
    def model() -> nn.Module:
        return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))

    posterior = wf.marginalise(training(model), problem, wf.recipes.deep_ensemble(2))
    assert posterior.predict(problem[0]).rmse(problem[1]) < 2 * problem[1].std()


def test_several_threads_of_the_user(problem):
    """One posterior asked from four threads at once, and two trainings at once, give what one thread gives."""
    posterior = wf.marginalise(training(), problem, [*wf.recipes.multi_swag(2, rank=2), wf.Dropout()])
    expected = [posterior.predict(problem[0][k : k + 30], samples=8).answers for k in range(4)]
    found: dict[tuple[int, int], Tensor] = {}
    members: dict[int, Tensor] = {}

    def ask(k: int) -> None:
        for turn in range(5):
            found[k, turn] = posterior.predict(problem[0][k : k + 30], samples=8).answers

    def train(k: int) -> None:
        members[k] = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(3), seed=k).mixture[2].trained.last

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(4)]
    threads += [threading.Thread(target=train, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    for (k, _), answers in found.items():
        assert torch.equal(answers, expected[k])
    for k, theta in members.items():
        alone = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(3), seed=k)
        assert torch.equal(theta, alone.mixture[2].trained.last)
