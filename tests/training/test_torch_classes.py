"""Any class of torch.optim's kind: each member against the very optimiser on an nn.Module, in a plain loop."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from conftest import mlp
from reloaded import reloaded
from wherefrom.files.codec import unpack
from wherefrom.files.stand_in import StandIn
from wherefrom.training import schedules, streams
from wherefrom.training.cohort import Cohort, Examples
from wherefrom.training.torch_classes import TorchOptimiser
from wherefrom.training.torch_engine import TorchEngine

ROWS, BATCH, EPOCHS = 70, 20, 10  # four steps an epoch, the last one short


class Spectral(torch.optim.Optimizer):
    """Steps of one spectral norm for matrices, in the manner of Muon; plain ones for other tensors."""

    def __init__(self, params, lr, scale=1.0, ns_steps=3, sharpen=False):
        super().__init__(params, dict(lr=lr, scale=scale, ns_steps=ns_steps, sharpen=sharpen))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                direction = p.grad
                if p.ndim == 2:
                    u, s, vh = torch.linalg.svd(p.grad, full_matrices=False)
                    direction = u @ vh if group["sharpen"] else (u * s / s.max().clamp(min=1e-12)) @ vh
                for _ in range(group["ns_steps"]):
                    direction = 0.9 * direction
                p.add_(direction, alpha=-group["lr"] * group["scale"])


class NewMemory(torch.optim.Optimizer):
    """Gives its parameters other memory instead of other numbers, and forgets their gradients."""

    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - group["lr"] * p.grad
        self.zero_grad()


class Langevin(torch.optim.Optimizer):
    """Gradient descent with noise of its own."""

    def __init__(self, params, lr, temperature=1e-3):
        super().__init__(params, dict(lr=lr, temperature=temperature))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                noise = torch.randn_like(p) * math.sqrt(2 * group["lr"] * group["temperature"])
                p.add_(p.grad, alpha=-group["lr"]).add_(noise)


class NeedsTheLoss(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    def step(self, closure):
        closure()


class NeedsMore(torch.optim.SGD):
    def __init__(self, params, lr, horizon):
        super().__init__(params, lr=lr)


class TakesAnything(torch.optim.SGD):
    def __init__(self, params, lr, **others):
        super().__init__(params, lr=lr, **others)


class Scaled(nn.Module):
    """Batch normalisation, a parameter without dimensions, and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 6), nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 1)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.first.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.last(torch.tanh(self.norm(self.first(x))))


def examples(dtype: torch.dtype = torch.float64) -> Examples:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, 3, generator=generator)
    y = torch.tanh(x.sum(1, keepdim=True)) + 0.1 * torch.randn(ROWS, 1, generator=generator)
    return Examples(x.to(dtype), y.to(dtype))


def cohort_of(algorithm: wf.Algorithm, model=None, members: int = 3, dtype=torch.float64, **each) -> Cohort:
    cohort = oracle.cohort_of(model or mlp(3), examples(dtype), algorithm, members, EPOCHS, **each)
    return replace(cohort, optimiser=algorithm.structure)


def by_hand(model, cohort: Cohort, member) -> torch.Tensor:
    kind, fixed = cohort.optimiser.kind, cohort.optimiser.fixed
    own = {k: v for k, v in member.settings.items() if k != "clip"}
    trained = [p for p in model().parameters() if p.requires_grad]
    assert len(trained) == cohort.network.layout.trained

    def make(parameters):
        return kind([p for p in parameters if p.requires_grad], **own, **fixed)

    return oracle.trained_alone(model, cohort, member, make)


CASES = {
    "adafactor": (torch.optim.Adafactor, dict(lr=0.05), {"lr": [0.05, 0.02, 0.1], "d": [1.0, 1.5, 2.0]}),
    "adafactor, a tuple": (torch.optim.Adafactor, dict(lr=0.05, eps=(1e-8, 1e-2)), {}),
    "adam": (torch.optim.Adam, dict(lr=0.01, betas=(0.5, 0.9), amsgrad=True), {"weight_decay": [0.0, 0.1, 0.2]}),
    "asgd": (torch.optim.ASGD, dict(lr=0.05, t0=10), {"lambd": [1e-4, 1e-2, 0.1]}),
    "rprop": (torch.optim.Rprop, dict(lr=0.01, etas=(0.6, 1.1)), {}),
    "spectral": (Spectral, dict(lr=0.05, ns_steps=2, sharpen=True), {"scale": [1.0, 2.0, 0.5]}),
    "spectral, plain": (Spectral, dict(lr=0.1), {"ns_steps": [0, 1, 4]}),
    "new memory": (NewMemory, dict(lr=0.1), {"lr": [0.1, 0.05, 0.2]}),
    "anything": (TakesAnything, dict(lr=0.05, momentum=0.9, nesterov=True), {}),
}


@pytest.mark.parametrize(("kind", "given", "each"), CASES.values(), ids=CASES)
def test_members_are_those_of_a_plain_loop(kind, given, each):
    algorithm = wf.Algorithm(kind, batch_size=BATCH, **given)
    cohort = cohort_of(algorithm, settings=each)
    for member, result in zip(cohort.members, oracle.train(cohort, "auto"), strict=True):
        expected = by_hand(mlp(3), cohort, member)
        assert (expected - member.theta0).abs().max() > 0.02
        torch.testing.assert_close(result.last, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, Spectral, NewMemory])
def test_tensors_have_their_own_shapes(kind):
    """Those that are trained, also one without dimensions, beside buffers and frozen ones."""
    cohort = cohort_of(wf.Algorithm(kind, lr=0.05, batch_size=BATCH), Scaled)
    for member, result in zip(cohort.members, oracle.train(cohort, "torch"), strict=True):
        torch.testing.assert_close(result.last, by_hand(Scaled, cohort, member), rtol=0, atol=1e-10)


def test_schedules_and_clipping_are_each_members_own():
    each = {
        "settings": {"clip": [0.1, math.inf, 0.5], "lr": [0.05, 0.1, 0.02]},
        "schedule": [schedules.Cosine(), None, schedules.Step(factor=0.5)],
        "replacement": [False, True, True],
    }
    cohort = cohort_of(wf.Algorithm(torch.optim.Adafactor, lr=0.05, batch_size=BATCH), **each)
    for member, result in zip(cohort.members, oracle.train(cohort, "torch"), strict=True):
        torch.testing.assert_close(result.last, by_hand(mlp(3), cohort, member), rtol=0, atol=1e-12)


def test_torch_optim_is_what_the_name_does():
    """The same optimiser by its class and by its name."""
    by_class = cohort_of(wf.Algorithm(torch.optim.AdamW, lr=0.01, batch_size=BATCH, weight_decay=0.1))
    by_name = oracle.cohort_of(
        mlp(3), examples(), wf.Algorithm("adamw", lr=0.01, batch_size=BATCH, weight_decay=0.1), 3, EPOCHS
    )
    for a, b in zip(oracle.train(by_class, "torch"), oracle.train(by_name, "torch"), strict=True):
        torch.testing.assert_close(a.last, b.last, rtol=0, atol=1e-12)


def test_random_steps_are_the_members_own(monkeypatch):
    """Noise comes from the member's stream: the same in any group, on any thread; torch's generator is left alone."""
    cohort = cohort_of(wf.Algorithm(Langevin, lr=0.05, batch_size=BATCH), members=5, dtype=torch.float32)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    together = oracle.train(cohort, "torch")
    assert torch.equal(torch.rand(3), expected)
    for bounds in (range(6), [0, 2, 5]):
        groups = [range(a, b) for a, b in itertools.pairwise(bounds)]
        with monkeypatch.context() as patch:
            patch.setattr(TorchEngine, "groups", lambda *_, groups=groups: groups)
            oracle.assert_same_members(together, oracle.train(cohort, "torch", threads=2))
    others = replace(cohort, members=tuple(replace(m, order=m.order + 1) for m in cohort.members))
    assert not torch.allclose(oracle.train(others, "torch")[0].last, together[0].last, atol=1e-4)


def test_noise_has_the_size_that_was_asked_for():
    """Without a gradient, theta moves by a random walk: its variance after t steps is 2 lr temperature t."""
    flat = Examples(torch.zeros(ROWS, 3), torch.zeros(ROWS, 1))
    algorithm = wf.Algorithm(Langevin, lr=0.05, batch_size=BATCH, temperature=1e-3)

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2000, bias=False), nn.Linear(2000, 1, bias=False))

    cohort = oracle.cohort_of(model, flat, algorithm, 2, EPOCHS)
    cohort = replace(cohort, optimiser=algorithm.structure)
    moved = torch.cat(
        [one.last - m.theta0 for one, m in zip(oracle.train(cohort, "torch"), cohort.members, strict=True)]
    )
    variance = 2 * 0.05 * 1e-3 * 4 * EPOCHS
    assert moved.var().item() == pytest.approx(variance, rel=4 * math.sqrt(2 / len(moved)))


# ---------------------------------------------------------------------- what is refused


REFUSED = [
    (torch.optim.LBFGS, {}, "torch.optim.LBFGS computes the loss several times in one step .*closure"),
    (NeedsTheLoss, {}, "NeedsTheLoss computes the loss several times"),
    (torch.optim.Adafactor, dict(momentum=0.9), "Adafactor has no setting 'momentum'; it has lr, .*beta2_decay"),
    (NeedsMore, {}, "NeedsMore needs horizon"),
    (torch.optim.Adafactor, dict(clip=0.0), "clip, the largest norm of the gradient, must be above zero"),
]


@pytest.mark.parametrize(("kind", "given", "reason"), REFUSED)
def test_what_cannot_be_used_is_refused_at_once(kind, given, reason):
    with pytest.raises(ValueError, match=reason):
        wf.Algorithm(kind, lr=0.1, batch_size=BATCH, **given)


def test_a_negative_rate_is_refused():
    with pytest.raises(ValueError, match="lr must not be negative"):
        wf.Algorithm(torch.optim.Adafactor, lr=-0.1, batch_size=BATCH)


def test_what_only_the_class_can_know_is_told_with_its_name():
    bad = cohort_of(wf.Algorithm(torch.optim.Adafactor, lr=0.1, batch_size=BATCH, weight_decay=-1.0))
    with pytest.raises(ValueError, match=r"torch.optim.Adafactor cannot be used here: .*weight_decay"):
        oracle.train(bad, "torch")


def test_an_optimiser_instead_of_its_class():
    made = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(TypeError, match="give the class, and lr here"):
        wf.Algorithm(made, lr=0.1, batch_size=1)
    with pytest.raises(TypeError, match="an algorithm is a name, such as 'adam', or a class"):
        wf.Algorithm(nn.Linear, lr=0.1, batch_size=1)


def test_the_native_engine_says_that_it_cannot():
    pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")
    cohort = cohort_of(wf.Algorithm(torch.optim.Adafactor, lr=0.1, batch_size=BATCH), dtype=torch.float32)
    with pytest.raises(ValueError, match=r"does not know the optimiser torch.optim.Adafactor\. Use engine='auto'"):
        oracle.train(cohort, "native")


# ---------------------------------------------------------------------- names, changes, files


def test_names_and_changes():
    algorithm = wf.Algorithm(Spectral, lr=0.05, batch_size=10, ns_steps=2, sharpen=True)
    assert algorithm.name.endswith("test_torch_classes.Spectral")
    assert algorithm.settings == {"lr": 0.05, "ns_steps": 2}
    assert isinstance(algorithm.settings["ns_steps"], int)  # a class may count with it
    assert algorithm.structure == TorchOptimiser(algorithm.name, Spectral, {"sharpen": True})
    assert repr(algorithm).endswith("Spectral, lr=0.05, batch_size=10, ns_steps=2, sharpen=True)")
    changed = algorithm.but(lr=0.1, scale=3.0, clip=1.0, sharpen=False)
    assert changed.settings == {"lr": 0.1, "ns_steps": 2, "scale": 3.0, "clip": 1.0}
    assert changed.structure.fixed == {"sharpen": False}
    assert algorithm.has("scale")
    assert not algorithm.has("momentum")
    assert hash(algorithm) == hash(wf.Algorithm(Spectral, lr=0.05, batch_size=10, ns_steps=2, sharpen=True))
    assert algorithm != changed


STORED = [
    wf.Algorithm(torch.optim.Adafactor, lr=0.01, batch_size=100, eps=(None, 1e-2), d=2.0, clip=1.0),
    wf.Algorithm(torch.optim.SGD, lr=0.01, batch_size=100, momentum=0.9, nesterov=True),
    wf.Algorithm(torch.optim.ASGD, lr=0.01, batch_size=100, t0=float("inf")),
]


@pytest.mark.parametrize("algorithm", STORED, ids=repr)
def test_torchs_own_come_back_from_a_file(algorithm):
    again = reloaded(algorithm)
    assert again == algorithm
    assert again.structure.kind is algorithm.structure.kind


def test_other_classes_have_to_be_given():
    algorithm = wf.Algorithm(Spectral, lr=0.05, batch_size=BATCH, sharpen=True)
    assert reloaded(algorithm, optimisers=[Langevin, Spectral]) == algorithm
    forgotten = reloaded(algorithm)
    assert repr(forgotten) == repr(algorithm)
    assert reloaded(forgotten, optimisers=[Spectral]) == algorithm
    assert forgotten.but(lr=0.1).settings["lr"] == 0.1
    with pytest.raises(ValueError, match=r"Spectral is code, which is not stored, .* give the class"):
        oracle.train(cohort_of(forgotten), "torch")


def test_a_file_names_nothing_that_is_then_imported(monkeypatch):
    """Nor anything in torch.optim that is no optimiser."""
    for name in ("os.system", "torch.optim.lr_scheduler", "torch.optim.Optimizer.step", "torch.optim.swa_utils"):
        kind = {"$": "TorchOptimiser", "name": name, "kind": {"$": "class", "name": name}}
        algorithm = unpack({"$": "Algorithm", "name": kind, "batch_size": 1, "lr": 0.1})
        assert isinstance(algorithm.structure.kind, StandIn)
    with pytest.raises(ValueError, match=r"unknown algorithm 'os\.system'"):
        unpack({"$": "Algorithm", "name": "os.system", "batch_size": 1, "lr": 0.1})


def test_arguments_that_a_file_cannot_hold():
    algorithm = wf.Algorithm(TakesAnything, lr=0.05, batch_size=BATCH, foreach=torch.float32, fused=mlp)
    again = reloaded(algorithm, optimisers=[TakesAnything])
    assert again.structure.fixed["foreach"] is torch.float32
    assert repr(again) == repr(algorithm)
    with pytest.raises(ValueError, match=r"<function mlp.* cannot be stored in a file"):
        oracle.train(cohort_of(again), "torch")


def test_streams_of_steps_are_not_those_of_rows():
    key = streams.key(0, "order", 0)
    assert not np.intersect1d(
        streams.numbers(np.array([[key]], dtype=np.uint64), streams.address(0, np.arange(100, dtype=np.uint64))[None]),
        streams.numbers(
            np.array([[streams.key(key, "step")]], dtype=np.uint64), streams.address(0, np.arange(100, dtype=np.uint64))
        ),
    ).size
