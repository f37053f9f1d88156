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

_aten = torch.ops.aten

# Operations that can leave a tensor as it was; where they do, they are dropped from the record.
_MAY_DO_NOTHING = {
    _aten.expand.default,
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.detach.default,
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
    _drop_what_does_nothing(program.graph)
    _reuse_memory(program.graph)
    program.recompile()
    return program


def _drop_what_does_nothing(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target in _MAY_DO_NOTHING and _same_layout(node, node.args[0]):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()


# Element by element, so that the result may stand where the first argument stood.
_IN_PLACE = {
    _aten.add.Tensor: _aten.add_.Tensor,
    _aten.sub.Tensor: _aten.sub_.Tensor,
    _aten.mul.Tensor: _aten.mul_.Tensor,
    _aten.mul.Scalar: _aten.mul_.Scalar,
    _aten.relu.default: _aten.relu_.default,
    _aten.tanh.default: _aten.tanh_.default,
    _aten.sigmoid.default: _aten.sigmoid_.default,
}
# The same for backward formulas, which have a place to write to instead: (operation, its name for that place).
_WITH_OUTPUT = {
    _aten.threshold_backward.default: (_aten.threshold_backward.grad_input, "grad_input"),
    _aten.tanh_backward.default: (_aten.tanh_backward.grad_input, "grad_input"),
    _aten.sigmoid_backward.default: (_aten.sigmoid_backward.grad_input, "grad_input"),
}
_MAKES_NEW_MEMORY = {
    _aten.bmm.default,
    _aten.mm.default,
    _aten.sum.dim_IntList,
    _aten.sum.default,
    _aten.mean.dim,
    _aten.pow.Tensor_Scalar,
    _aten.cat.default,
    _aten.clone.default,
    *_IN_PLACE,
    *_WITH_OUTPUT,
}


def _reuse_memory(graph: fx.Graph) -> None:
    """Write a result over an argument that nobody reads again: then activations pass through the cache once, not twice.

    Every node belongs to the memory of the node that made it. What is not known to make new memory counts as a view of
    all of its arguments; memory of the program's own arguments is never written to.
    """
    place = {node: i for i, node in enumerate(graph.nodes)}
    makers: dict[fx.Node, set[fx.Node]] = {}  # node -> the nodes whose memory it may show
    shown_by: dict[fx.Node, list[fx.Node]] = {}  # maker -> all nodes that may show its memory
    for node in graph.nodes:
        source = node.args[0] if node.args else None
        if isinstance(source, fx.Node) and (node.target in _IN_PLACE or node.target in _WITH_OUTPUT):
            own = makers[source]
            readers = {user for maker in own for shown in shown_by[maker] for user in shown.users} - {node}
            dead = all(place[user] < place[node] for user in readers)
            if dead and all(m.target in _MAKES_NEW_MEMORY for m in own) and node.args.count(source) == 1:
                if _same_layout(node, source):
                    _write_over(node, source)
                    makers[node] = own
                    for maker in own:
                        shown_by[maker].append(node)
                    continue
        if node.op == "call_function" and node.target not in _MAKES_NEW_MEMORY:
            makers[node] = set().union(*(makers[argument] for argument in node.all_input_nodes)) or {node}
        else:
            makers[node] = {node}
        for maker in makers[node]:
            shown_by.setdefault(maker, []).append(node)


def _write_over(node: fx.Node, source: fx.Node) -> None:
    if node.target in _IN_PLACE:
        node.target = _IN_PLACE[node.target]
    else:
        node.target, output = _WITH_OUTPUT[node.target]
        node.kwargs = {**node.kwargs, output: source}


def _same_layout(a: fx.Node, b: fx.Node) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return False
    return x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype
