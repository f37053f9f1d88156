"""Every step rule against torch.optim on a small network, member by member, with different settings in one cohort."""

import itertools
import math

import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from wherefrom.training.cohort import Cohort, Examples
from wherefrom.training.optimisers import OPTIMISERS, Clip
from wherefrom.training.rules import Group
from wherefrom.training.torch_engine import TorchEngine

pytestmark = pytest.mark.slow

ROWS, BATCH, EPOCHS = 60, 20, 50  # 150 steps
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

# Each row is a member; every setting that an optimiser has stands somewhere at another value than its default.
BETAS = [dict(), dict(beta1=0.8, beta2=0.95, eps=1e-3), dict(beta1=0.5, beta2=0.9, eps=1e-6), dict(beta1=0.0)]
CASES = {
    "sgd": [
        dict(lr=0.1),
        dict(lr=0.03, weight_decay=0.05),
        dict(lr=0.02, momentum=0.9),
        dict(lr=0.02, momentum=0.5, nesterov=1.0, weight_decay=0.01),
        dict(lr=0.02, momentum=0.9, dampening=0.3),
        dict(lr=0.02, dampening=0.3),
    ],
    "sgd without momentum": [dict(lr=0.1), dict(lr=0.03)],
    "adam": [
        *(dict(lr=0.003 + 0.002 * k, **betas) for k, betas in enumerate(BETAS)),
        dict(lr=0.005, weight_decay=0.1, eps=1e-4),
        dict(lr=0.005, amsgrad=1.0, beta2=0.8, eps=1e-4),
    ],
    "adamw": [
        *(dict(lr=0.003 + 0.002 * k, **betas) for k, betas in enumerate(BETAS)),
        dict(lr=0.005, weight_decay=0.5),
        dict(lr=0.005, weight_decay=0.0, amsgrad=1.0, beta2=0.8, eps=1e-4),
    ],
    "nadam": [
        *(dict(lr=0.002 + 0.001 * k, **betas) for k, betas in enumerate(BETAS)),
        dict(lr=0.003, weight_decay=0.1, momentum_decay=0.1, eps=1e-4),
        dict(lr=0.003, weight_decay=0.1, decoupled_weight_decay=1.0, momentum_decay=0.0),
    ],
    "radam": [
        *(dict(lr=0.003 + 0.002 * k, **betas) for k, betas in enumerate(BETAS)),
        dict(lr=0.005, weight_decay=0.1, beta2=0.6),  # never rectified
        dict(lr=0.005, weight_decay=0.1, decoupled_weight_decay=1.0),
    ],
    "adamax": [
        *(dict(lr=0.003 + 0.002 * k, **betas) for k, betas in enumerate(BETAS)),
        dict(lr=0.005, weight_decay=0.1),
    ],
    "rmsprop": [
        dict(lr=0.003),
        dict(lr=0.002, alpha=0.9, eps=1e-3),
        dict(lr=0.001, momentum=0.9, weight_decay=0.1),
        dict(lr=0.001, centered=1.0, eps=1e-2),
        dict(lr=0.001, alpha=0.9, centered=1.0, momentum=0.5, eps=1e-2),
    ],
    "adagrad": [
        dict(lr=0.05),
        dict(lr=0.05, lr_decay=0.01, weight_decay=0.1),
        dict(lr=0.1, initial_accumulator_value=0.1, eps=1e-3),
    ],
    "adadelta": [dict(lr=1.0), dict(lr=0.5, rho=0.5, eps=1e-4), dict(lr=2.0, weight_decay=0.1)],
    "ivon": [
        dict(lr=0.05, temperature=0.1, beta2=0.999),
        dict(lr=0.05, hess_init=0.3, beta1=0.8, beta2=0.99, weight_decay=0.05),
        dict(lr=0.05, temperature=0.01, hess_init=0.5, clip_radius=0.1),
    ],
    "sgld": [
        dict(lr=0.05, temperature=0.1),
        dict(lr=0.05, temperature=0.0, weight_decay=0.05),
        dict(lr=0.002, temperature=0.01, preconditioned=1.0),
        dict(lr=0.002, temperature=0.01, preconditioned=1.0, alpha=0.9, eps=1e-2, weight_decay=0.05),
        dict(lr=0.05, noise_below=0.5),
    ],
    "sghmc": [
        dict(lr=0.01, temperature=0.1),
        dict(lr=0.01, momentum=0.5, weight_decay=0.05, temperature=0.1),
        dict(lr=0.01, momentum=0.0, noise_below=0.5),
        dict(lr=0.001, temperature=0.01, preconditioned=1.0, alpha=0.9, eps=1e-2),
    ],
    "lion": [dict(lr=0.001), dict(lr=0.002, beta1=0.5, beta2=0.7), dict(lr=0.001, weight_decay=0.2)],
}


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 2))


def examples(dtype: torch.dtype) -> Examples:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, 3, generator=generator)
    y = torch.tanh(x @ torch.randn(3, 2, generator=generator)) + 0.1 * torch.randn(ROWS, 2, generator=generator)
    return Examples(x.to(dtype), y.to(dtype))


def cohort_of(case: str, dtype: torch.dtype = torch.float64, epochs: int = EPOCHS) -> Cohort:
    """One cohort with a member for each of a case's settings."""
    name, settings = case.split()[0], CASES[case]
    algorithms = [wf.Algorithm(name, **{"batch_size": BATCH, **own}) for own in settings]
    each = {k: [a.settings[k] for a in algorithms] for k in algorithms[0].settings}
    return oracle.cohort_of(model, examples(dtype), algorithms[0], len(settings), epochs, settings=each)


@pytest.fixture
def double_scalars():
    """NAdam keeps one number of each step in torch's default precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_equals_torch_optim(case, dtype, request):
    if dtype == torch.float64:
        request.getfixturevalue("double_scalars")
    cohort = cohort_of(case, dtype)
    for member, result in zip(cohort.members, oracle.train(cohort, "torch"), strict=True):
        expected = oracle.trained_alone(model, cohort, member)
        assert (expected - member.theta0).abs().max() > 0.05, "nothing was learnt, so nothing is tested"
        torch.testing.assert_close(result.last, expected, rtol=0, atol=TOLERANCE[dtype])


def test_every_setting_is_tested():
    for name, optimiser in OPTIMISERS.items():
        cases = [own for case, settings in CASES.items() if case.split()[0] == name for own in settings]
        for setting, default in optimiser.defaults.items():
            assert any(own.get(setting, default) != default for own in cases), f"{name} {setting}"


@pytest.mark.parametrize("case", CASES)
def test_members_do_not_depend_on_the_group(case, monkeypatch):
    """Whatever the neighbours have: a member without momentum beside one with it, or alone."""
    cohort = cohort_of(case, torch.float64, epochs=12)
    together = oracle.train(cohort, "torch")
    count = len(cohort.members)
    for bounds in (range(count + 1), [0, 2, count]):
        groups = [range(a, b) for a, b in itertools.pairwise(bounds) if a < b]
        with monkeypatch.context() as patch:
            patch.setattr(TorchEngine, "groups", lambda *_, groups=groups: groups)
            oracle.assert_same_members(together, oracle.train(cohort, "torch"))


def test_plans_are_made_in_blocks(monkeypatch):
    """NAdam's product goes on from one block to the next, and schedules know where they are."""
    from wherefrom.training import torch_engine

    cohort = cohort_of("nadam", epochs=12)
    whole = oracle.train(cohort, "torch")
    monkeypatch.setattr(torch_engine, "_PLANNED_STEPS", 5)
    for a, b in zip(whole, oracle.train(cohort, "torch"), strict=True):
        torch.testing.assert_close(a.last, b.last, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------- clipping


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_clip_is_clip_grad_norm_of_each_member(name, dtype):
    clips = [0.05, math.inf, 0.3, 1e9]
    algorithm = wf.Algorithm(name, lr=0.01, batch_size=BATCH, clip=0.05)
    cohort = oracle.cohort_of(model, examples(dtype), algorithm, 4, 20, settings={"clip": clips})
    trained = oracle.train(cohort, "torch")
    for member, result in zip(cohort.members, trained, strict=True):
        torch.testing.assert_close(
            result.last, oracle.trained_alone(model, cohort, member), rtol=0, atol=TOLERANCE[dtype] / 10
        )
    free = oracle.cohort_of(model, examples(dtype), algorithm, 4, 20, settings={"clip": [math.inf] * 4})
    moved = [(a.last - b.last).abs().max() for a, b in zip(oracle.train(free, "torch"), trained, strict=True)]
    assert moved[0] > 1e-3
    assert moved[1] == 0


def test_a_member_without_a_limit_is_never_scaled():
    """Not even where the square of its norm is too large for a number, nor a diverged one's neighbours."""
    gradient = torch.tensor([[3e20, 4e20], [3.0, 4.0], [math.nan, 1.0], [0.3, 0.4], [0.0, 0.0]])
    clip = Clip(Group(torch.zeros(5, 2), [{}] * 5), [math.inf, 1.0, 1.0, 1.0, 1.0])
    clip(gradient)
    assert gradient[0].tolist() == pytest.approx([3e20, 4e20])
    assert gradient[1].tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    assert gradient[3].tolist() == pytest.approx([0.3, 0.4])
    assert gradient[4].tolist() == [0.0, 0.0]


def test_clipping_does_not_depend_on_the_group(monkeypatch):
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=BATCH)
    settings = {"clip": [0.05, math.inf, 0.3, 0.1, 0.2]}
    cohort = oracle.cohort_of(model, examples(torch.float64), algorithm, 5, 12, settings=settings)
    together = oracle.train(cohort, "torch")
    for bounds in (range(6), [0, 3, 5]):
        groups = [range(a, b) for a, b in itertools.pairwise(bounds)]
        with monkeypatch.context() as patch:
            patch.setattr(TorchEngine, "groups", lambda *_, groups=groups: groups)
            oracle.assert_same_members(together, oracle.train(cohort, "torch"))
