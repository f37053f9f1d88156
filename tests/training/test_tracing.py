"""The tracer: what it keeps, that nobody else notices it, and that looking into a network hardly copies its weights."""

import copy
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import wherefrom as wf
from conftest import training
from wherefrom.predictive.one_shot.graph import Graph
from wherefrom.training import network as networks
from wherefrom.training import program
from wherefrom.training.network import Network
from wherefrom.training.probing import is_stack
from wherefrom.training.tracing import Tracer, last_function, tensors_in

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


class Two(nn.Module):
    """Two layers, and something between them that a test writes."""

    def __init__(self, between=torch.tanh) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(4, 8), nn.Linear(8, 1), between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))


def test_every_function_is_kept_in_order_with_its_arguments():
    with Tracer() as tracer:
        parts = [X.exp()]
        parts.append(parts[0] + 1)
        whole = torch.cat(parts)
        parts.append(whole)
        parts[0].view(-1)
    assert [call.name for call in tracer.calls] == ["exp", "add", "cat", "view"]
    assert len(tensors_in(tracer.calls[2].args)) == 2  # as the list was then
    assert tracer.calls[2].result is whole
    assert last_function(tracer.calls, tracer.calls[3].result) is Tensor.exp


def test_dropout_draws_nothing_and_gives_other_memory():
    state = torch.get_rng_state()
    with Tracer() as tracer:
        out = F.dropout(X, 0.5)
    assert torch.equal(out, X)
    assert out.data_ptr() != X.data_ptr()
    assert torch.equal(torch.get_rng_state(), state)
    assert [call.function for call in tracer.calls] == [F.dropout]


def test_a_watched_layer_is_one_call():
    module, tracer = Two(), Tracer()
    tracer.watch("first", module.first)
    with tracer:
        out = module(X)
    assert [(call.layer, call.name) for call in tracer.calls[1:]] == [(None, "tanh"), (None, "linear")]
    assert tracer.calls[0].layer == "first"
    assert tracer.calls[0].function is module.first
    assert torch.equal(out, Two.forward(module, X))


# ---------------------------------------------------------------------- others do not notice it


def elsewhere(task):
    """What a task returns on another thread, or raises there."""
    results = []

    def run() -> None:
        try:
            results.append(task())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("look", ["inspecting", "tracing for one-shot"])
def test_other_threads_networks_run_while_one_is_looked_into(look):
    """A forward pass that waits for another thread's network: there is no luck in it."""
    other, answers = Two(), []
    expected = other(X)

    def between(h: Tensor) -> Tensor:
        answers.append(elsewhere(lambda: other(X)))
        return torch.relu(h)

    module = Two(between)
    if look == "inspecting":
        Network(module, X)
    else:
        Graph(module, {name: p.detach() for name, p in module.named_parameters()}, X)
    assert len(answers) > 1
    assert all(isinstance(answer, Tensor) and torch.equal(answer, expected) for answer in answers)


@pytest.mark.slow
def test_threads_that_predict_trace_and_call_their_own_networks(problem):
    x, y = problem
    over = [*wf.recipes.multi_swag(2, rank=2), wf.Dropout()]
    posterior = wf.marginalise(training(epochs=4), (x, y), over, progress=False)
    own = Two()
    questions = {
        "own": lambda: own(X).detach(),
        "predict": lambda: posterior.predict(x[:5], samples=4).answers,
        "one_shot": lambda: posterior.one_shot(x[:5]).std,
        "traced anew": lambda: (
            replace(posterior, networks={"": copy.copy(posterior.network).to(posterior.device)}).one_shot(x[:5]).std
        ),
    }
    expected = {name: ask() for name, ask in questions.items()}
    wrong = []

    def work(first: int) -> None:
        names = list(questions)
        for turn in range(60):
            name = names[(first + turn) % len(names)]
            try:
                if not torch.allclose(questions[name](), expected[name], rtol=1e-5):
                    wrong.append(name)
            except Exception as error:
                wrong.append(f"{name}: {error}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


# ---------------------------------------------------------------------- memory


class CountCopies(TorchDispatchMode):
    """Counts the new memory of at least some size."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.numbers, self.kept = numbers, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {t.untyped_storage()._cdata for t in tensors_in((args, kwargs or {}))}
        results = func(*args, **(kwargs or {}))
        for tensor in tensors_in(results):
            if tensor.numel() >= self.numbers and not tensor.is_meta:
                storage = tensor.untyped_storage()
                if storage._cdata not in given:
                    self.kept[storage._cdata] = storage  # so that its memory is not taken again
        return results


def test_looking_into_a_large_network_copies_its_weights_once():
    """At half of its weights, to compare; nothing else needs them anywhere but where they are."""
    module = nn.Sequential(nn.Linear(1030, 4096), nn.ReLU(), nn.BatchNorm1d(4096), nn.Dropout(0.1), nn.Linear(4096, 1))
    with CountCopies(2**21) as copies:
        network = Network(module, torch.randn(4, 1030))
    assert len(copies.kept) == 1
    assert not network.stackable
    with CountCopies(2**21) as copies:
        network.check_draw(module)
    assert not copies.kept


def test_a_module_is_not_changed_by_being_looked_into():
    """Neither its mode nor its buffers, nor embeddings that normalise themselves when they are called."""
    module = nn.Sequential(nn.Embedding(5, 4, max_norm=0.1), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 1))
    before = copy.deepcopy(module.state_dict())
    Network(module, torch.tensor([[0, 1, 2], [3, 4, 0], [1, 2, 4], [2, 2, 0]]))
    assert module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def members(problem, model=Two) -> Tensor:
    short = training(model, algorithm=wf.Algorithm("sgd", lr=0.002, momentum=0.9, batch_size=7), epochs=3)
    posterior = wf.marginalise(short, problem, wf.recipes.deep_ensemble(3), dtype=torch.float64, engine="torch")
    return torch.stack([component.trained.last for component in posterior.mixture])


def test_large_networks_are_called_one_by_one_and_learn_the_same(problem, monkeypatch):
    expected = members(problem)
    monkeypatch.setattr(program, "_MOST_NUMBERS", 0)
    assert torch.equal(members(problem), expected)
    monkeypatch.setattr(networks, "_MOST_STACKED", 0)
    torch.testing.assert_close(members(problem), expected, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- inputs that are not any numbers


class Codes(nn.Module):
    """Embeds the codes of a table's first column, which stand there as floats."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(6, 3), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cat([self.table(x[:, 0].long()), x[:, 1:]], dim=1))


class Correlated(nn.Module):
    """Multiplies by the Cholesky factor of a matrix of parameters, which must be positive definite."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.last = nn.Parameter(torch.eye(4) + 0.1 * torch.rand(1)), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x @ torch.linalg.cholesky(self.matrix + self.matrix.t() - torch.eye(4).to(x)))


@pytest.mark.parametrize("model", [Codes, Correlated])
def test_a_recorded_network_sees_real_rows_only(model, monkeypatch):
    random = np.random.default_rng(0)
    x = np.concatenate([random.integers(0, 6, size=(40, 1)), random.normal(size=(40, 3))], axis=1)
    plain = training(model, algorithm=wf.Algorithm("sgd", lr=0.001, batch_size=8), epochs=3, standardise=False)
    ask = lambda: wf.marginalise(plain, (x, x[:, 0] + x[:, 1]), wf.recipes.deep_ensemble(2), dtype=torch.float64)  # noqa: E731
    posterior = ask()
    answers = posterior.predict(x[:9]).answers
    monkeypatch.setattr(program, "record", program.called)
    alone = ask()
    torch.testing.assert_close(posterior.mixture[1].trained.last, alone.mixture[1].trained.last, rtol=0, atol=1e-10)
    torch.testing.assert_close(answers, alone.predict(x[:9]).answers, rtol=0, atol=1e-9)


# ---------------------------------------------------------------------- dropout within attention


class Attends(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.inputs, self.last, self.fused = nn.Linear(1, 6), nn.Linear(6, 1), fused

    def forward(self, x: Tensor) -> Tensor:
        h, rate = self.inputs(x.unsqueeze(-1)), 0.1 if self.training else 0.0
        if self.fused:
            return self.last(F.scaled_dot_product_attention(h, h, h, dropout_p=rate).mean(1))
        scores = F.dropout(torch.softmax(h @ h.transpose(1, 2), -1), rate, self.training)
        return self.last((scores @ h).mean(1))


@pytest.mark.parametrize("fused", [False, True])
def test_a_rate_that_is_zero_in_prediction_counts_as_in_training(fused, problem):
    posterior = wf.marginalise(training(lambda: Attends(fused), epochs=2), problem, [wf.Dropout()], progress=False)
    assert posterior.network.rates == (0.1,)
    assert posterior.predict(problem[0][:5], samples=20).std.min() > 0


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Dropout(0.1), nn.Linear(3, 1)), True),
        (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), False),
        (nn.Sequential(nn.Sequential(nn.Linear(2, 1))), False),
        (type("Sequential", (nn.Sequential,), {})(nn.Linear(2, 1)), False),
        (nn.Linear(2, 1), False),
    ],
)
def test_stacks_are_known_by_their_layers(module, expected):
    assert is_stack(module) == expected


def test_a_stack_in_which_something_else_is_called_is_none():
    hooked, patched = (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)) for _ in range(2))
    assert is_stack(hooked)
    hooked[1].register_forward_hook(lambda *_: None)
    patched[1].forward = torch.sin
    assert not is_stack(hooked)
    assert not is_stack(patched)
