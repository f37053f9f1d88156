"""Recorded programs: the same numbers as the function, memory written over only where nobody looks again."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from wherefrom.training import program

GENERATOR = torch.Generator().manual_seed(0)
A, B = (torch.randn(3, 6, 6, generator=GENERATOR) for _ in range(2))
KEPT = torch.randn(6, generator=GENERATOR)


def operations(function, *example) -> list[str]:
    """The names of the operations that are replayed."""
    replay = program.record(function, example)
    graph = replay.__closure__[0].cell_contents.__self__.graph
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


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
    "gradient": gradient,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_replay_equals_the_function_and_leaves_its_arguments_alone(function):
    replay = program.record(function, (torch.zeros_like(A), torch.zeros_like(B)))
    before = [t.clone() for t in (A, B, KEPT)]
    for _ in range(2):
        expected, found = function(A, B), replay(A, B)
        for e, f in zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]:
            assert torch.equal(e, f)
    assert all(torch.equal(a, b) for a, b in zip(before, (A, B, KEPT), strict=True))


def test_dead_memory_is_written_over():
    names = operations(lambda a, b: torch.relu((a @ b).transpose(1, 2) + KEPT), A, B)
    assert "aten.relu_.default" in names
    assert "aten.add_.Tensor" in names


def test_living_memory_is_not():
    assert "aten.relu_.default" not in operations(FUNCTIONS["read again"], A, B)
    assert "aten.relu_.default" not in operations(FUNCTIONS["view is an output"], A, B)


def test_a_function_that_looks_at_its_numbers_is_not_recorded():
    def looks(a: Tensor) -> Tensor:
        return a if a.sum() > 0 else -a

    assert program.record(looks, (A,)) is looks


def test_recording_does_not_wake_torchs_compiler():
    code = (
        "import sys, torch; from wherefrom.training import program; "
        "program.record(lambda x: (x @ x).relu(), (torch.ones(2, 2),)); assert 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
