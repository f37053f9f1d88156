"""Recorded programs: the same numbers as the function, memory written over only where nobody looks again."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from apart import alone
from wherefrom.training import program

GENERATOR = torch.Generator().manual_seed(0)
A, B = (torch.randn(3, 6, 6, generator=GENERATOR) for _ in range(2))
KEPT = torch.randn(6, generator=GENERATOR)


def gradient(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    a = a.detach().requires_grad_()
    with torch.enable_grad():
        loss = torch.tanh(vmap(lambda x, y: torch.relu(x @ y) * y)(a, b)).square().sum()
        (slope,) = torch.autograd.grad(loss, [a])
    return loss.detach(), slope


FUNCTIONS = {
    "chain": lambda a, b: torch.relu(a @ b + KEPT) * 2.0,
    "read again": lambda a, b: (h := a @ b, torch.relu(h) + h)[1],
    "view read again": lambda a, b: (h := a @ b, v := h.transpose(1, 2), torch.relu(h) + v)[2],
    "result is also an output": lambda a, b: (h := a @ b, torch.relu(h)),
    "view is an output": lambda a, b: ((h := a @ b).flatten(1), torch.relu(h)),
    "same argument twice": lambda a, b: (h := a @ b) * h,
    "arguments stay": lambda a, b: torch.relu(a) + torch.relu(b),
    "constants stay": lambda a, b: torch.relu(KEPT) + a,
    "in place by the user": lambda a, b: nn.ReLU(inplace=True)(a @ b) + (a @ b).add_(1.0).mul_(b),
    "broadcast": lambda a, b: torch.relu(a.sum(1, keepdim=True).expand(3, 6, 6) - b),
    "several results": lambda a, b: torch.relu((a @ b).split(3, dim=1)[0]) + (a @ b)[:, 3:],
    "batch normalisation": lambda a, b: vmap(lambda x, y: F.batch_norm((x @ y).t(), None, None, training=True))(a, b),
    "gradient": gradient,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_replay_equals_the_function_and_leaves_its_arguments_alone(function):
    a, b = torch.zeros_like(A), torch.zeros_like(B)
    replay = program.record(function, (a, b))
    for _ in range(2):
        a.copy_(A)
        b.copy_(B)
        kept = KEPT.clone()
        expected = function(A, B)
        results = replay()
        if isinstance(expected, tuple):
            assert all(map(torch.equal, expected, results))
        else:
            assert torch.equal(expected, results)
        assert torch.equal(a, A)
        assert torch.equal(b, B)
        assert torch.equal(KEPT, kept)
        a.zero_()
        replay()
    assert replay.operations != ["python"]  # it was a replay


def test_dead_memory_is_written_over_and_views_are_free():
    replay = program.record(lambda a, b: torch.relu((a @ b).transpose(1, 2) + KEPT), (A, B))
    assert replay.operations == ["aten::bmm.out", "aten::add_.Tensor", "aten::relu_"]


def test_living_memory_is_not():
    assert "aten::relu_" not in program.record(FUNCTIONS["read again"], (A, B)).operations
    assert "aten::relu_" not in program.record(FUNCTIONS["view is an output"], (A, B)).operations


def test_one_matrix_for_all_is_one_product():
    """Also where the many are not contiguous, as weights within a flat theta are not."""
    one, many = torch.randn(6, 4), torch.randn(3, 50)[:, :36].view(3, 6, 6)
    replay = program.record(lambda a: vmap(lambda x: x @ one)(a), (many,))
    assert "aten::bmm.out" not in replay.operations
    torch.testing.assert_close(replay(), many @ one)


def test_a_function_that_looks_at_its_numbers_is_called():
    def looks(a: Tensor) -> Tensor:
        return a * 2 if a.sum() > 0 else a * 3

    a = torch.ones(3)
    replay = program.record(looks, (a,))
    a.fill_(-1.0)
    assert torch.equal(replay(), -3 * torch.ones(3))


def test_recording_does_not_wake_torchs_compiler():
    code = (
        "import sys, torch; from wherefrom.training import program; "
        "program.record(lambda x: (x @ x).relu(), (torch.ones(2, 2),)); assert 'sympy' not in sys.modules"
    )
    alone(exec, code, {})


def test_a_program_that_gives_other_numbers_is_given_up_with_a_warning():
    calls = []

    def counts(a: Tensor) -> Tensor:
        calls.append(a)
        return a * float(len(calls))  # a number that no tensor shows

    a = torch.ones(3)
    replay = program.record(counts, (a,))
    replay()
    with pytest.warns(UserWarning, match="gives other numbers than the model itself"):
        replay()
    assert replay.operations == ["python"]
    assert torch.equal(replay(), torch.full((3,), float(len(calls))))


def test_a_function_that_only_the_record_cannot_take_is_called_with_a_warning(monkeypatch):
    def fails(*given: object) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(program, "_rehearse", fails)
    replay = program.record(lambda a: a * 2, (torch.ones(3),))
    with pytest.warns(UserWarning, match="could not be recorded .*no kernel"):
        assert torch.equal(replay(), 2 * torch.ones(3))
    assert torch.equal(replay(), 2 * torch.ones(3))  # and says it once


@pytest.mark.parametrize(("autocast", "is_kept"), [(None, False), (torch.bfloat16, True)])
def test_a_replay_may_be_off_by_the_rounding_of_its_products(autocast, is_kept):
    steps = iter([1.0, 1.0, 1.0 + 2**-8, 1.0 + 2**-8])

    def rounded(a: Tensor) -> Tensor:
        return a * next(steps)  # one unit in the last place of bfloat16

    replay = program.record(rounded, (torch.ones(3),), None, autocast)
    replay()
    if is_kept:
        replay()
    else:
        with pytest.warns(UserWarning, match="gives other numbers"):
            replay()
    assert (replay.operations != ["python"]) == is_kept
