"""A function of tensors, recorded once as a flat list of torch operations and then replayed.

One training step of a small cohort is some thirty short operations. Run through the user's module, vmap and autograd,
most of the time goes into Python between them; replayed from the record, forward and backward, nearly none does.
The numbers are the same operations on the same tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

# Operations that can leave a tensor as it was; where they do, they are dropped from the record.
_MAY_DO_NOTHING = {
    torch.ops.aten.expand.default,
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.detach.default,
}

_STEPS_WORTH_A_RECORD = 400
_STEPS_WORTH_THE_RECORDER = 4000  # torch's recorder takes a second to import; a step gains some 0.3 ms


def is_worth_recording(steps: int) -> bool:
    """Whether so many replays pay for the recording."""
    return steps >= (_STEPS_WORTH_A_RECORD if "sympy" in sys.modules else _STEPS_WORTH_THE_RECORDER)


def record(function: Callable[..., Any], example: tuple[Any, ...]) -> Callable[..., Any]:
    """The function, specialised to the example's shapes and free of Python between its operations.

    What torch cannot record is returned as it is: slower, with the same results.
    """
    try:
        program = make_fx(function)(*example)
    except Exception:
        return function
    _drop_what_does_nothing(program)
    return program


def _drop_what_does_nothing(program: fx.GraphModule) -> None:
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target not in _MAY_DO_NOTHING:
            continue
        source = node.args[0]
        before, after = source.meta.get("val"), node.meta.get("val")
        if isinstance(before, Tensor) and isinstance(after, Tensor) and _same_layout(before, after):
            node.replace_all_uses_with(source)
            program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.recompile()


def _same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride()
