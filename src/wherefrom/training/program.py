"""A function of tensors, recorded once as a flat list of torch operations and then replayed.

One training step of a small cohort is some thirty short operations. Run through the user's module, vmap and autograd,
most of the time goes into Python between them; replayed from the record, forward and backward, nearly none does.
The numbers are those of the same operations on the same tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_aten = torch.ops.aten


def record(function: Callable[..., Any], example: tuple[Any, ...]) -> Callable[..., Any]:
    """The function, specialised to the example's shapes and free of Python between its operations.

    It must return tensors, alone or in a tuple. One that looks at its numbers (`if x.sum() > 0`) could take another way
    next time, and is returned as it is.

    A program keeps the memory of its larger results from call to call: use what it returns before calling it again, and
    on one thread at a time.
    """
    recorder = _Recorder()
    for number, tensor in enumerate(tree_leaves(example)):
        recorder.remember(tensor, recorder.graph.placeholder(f"argument_{number}"))
    try:
        with recorder:
            results = function(*example)
    except _LooksAtNumbersError:
        return function
    recorder.graph.output(tree_map_only(Tensor, recorder.node_of, results))
    _drop_what_does_nothing(recorder.graph)
    _join_products(recorder.graph)
    _reuse_memory(recorder.graph)
    _keep_memory(recorder)
    for node in recorder.graph.nodes:
        node.meta.clear()  # the example's other tensors
    replay = fx.GraphModule(recorder.constants, recorder.graph).forward
    return lambda *arguments: replay(*_leaves(arguments))


def _leaves(arguments: tuple[Any, ...]) -> list[Tensor]:
    """Tensors, and lists of tensors, in a row."""
    return [leaf for one in arguments for leaf in (one if isinstance(one, list) else (one,))]


class _LooksAtNumbersError(Exception):
    pass


class _Recorder(TorchDispatchMode):
    """Sees every operation below vmap and autograd, lets it run, and writes it down."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.constants: dict[str, Tensor] = {}
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[Tensor] = []  # so that no two tensors ever have the same id

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and importing torch's compiler to say so takes a second

    def remember(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta["val"] = tensor
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)

    def node_of(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self._nodes:  # nobody made it here: it was there before
            self.remember(tensor, self.constant(tensor))
        return self._nodes[id(tensor)]

    def constant(self, tensor: Tensor) -> fx.Node:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = tensor
        return self.graph.get_attr(name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        arguments = tree_map_only(Tensor, self.node_of, (args, kwargs))
        results = func(*args, **kwargs)
        node = self.graph.call_function(func, *arguments)
        if isinstance(results, Tensor):
            self.remember(results, node)
        elif isinstance(results, tuple | list):
            for number, result in enumerate(results):
                if isinstance(result, Tensor):
                    self.remember(result, self.graph.call_function(operator.getitem, (node, number)))
        else:
            raise _LooksAtNumbersError
        return results


# Operations that can leave a tensor as it was; where they do, they are dropped from the record.
_MAY_DO_NOTHING = {
    _aten.expand.default,
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.detach.default,
}

def _drop_what_does_nothing(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target in _MAY_DO_NOTHING and _same_layout(node, node.args[0]):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _join_products(graph: fx.Graph) -> None:
    """Many matrices times one and the same: a single large product."""
    for node in graph.nodes:
        if node.target is _aten.bmm.default and node.args[1].meta["val"].stride(0) == 0:
            node.target = _product_with_one


def _product_with_one(many: Tensor, one: Tensor, out: Tensor | None = None) -> Tensor:
    count, rows, inner = many.shape
    flat = None if out is None else out.view(count * rows, one.shape[2])
    return torch.mm(many.reshape(count * rows, inner), one[0], out=flat).view(count, rows, one.shape[2])


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
    _product_with_one,
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


# Operations that can be told where to write.
_WITH_PLACE = {
    _product_with_one: _product_with_one,
    _aten.bmm.default: _aten.bmm.out,
    _aten.mm.default: _aten.mm.out,
    _aten.add.Tensor: _aten.add.out,
    _aten.sub.Tensor: _aten.sub.out,
    _aten.mul.Tensor: _aten.mul.out,
    _aten.relu.default: _aten.relu.out,
    _aten.tanh.default: _aten.tanh.out,
    _aten.sigmoid.default: _aten.sigmoid.out,
}
_LARGE = 2**12


def _keep_memory(recorder: _Recorder) -> None:
    """Write large results where the recording left them, at every call: new memory costs more than the arithmetic."""
    for node in list(recorder.graph.nodes):
        value = node.meta.get("val")
        if node.target not in _WITH_PLACE or not isinstance(value, Tensor) or value.numel() < _LARGE:
            continue
        with recorder.graph.inserting_before(node):
            memory = recorder.constant(torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device))
        node.target = _WITH_PLACE[node.target]
        node.kwargs = {**node.kwargs, "out": memory}


def _same_layout(a: fx.Node, b: fx.Node) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return False
    return x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype
