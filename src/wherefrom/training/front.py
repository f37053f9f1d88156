"""A frozen part that comes first: its features are computed once, and what is trained takes them in place of x.

    outputs  =  head(features; theta),        features  =  front(x)

The front is all that is computed from x without a tensor of theta and without randomness: neither a trained parameter,
nor batch normalisation in training mode, nor dropout. torch.fx shows what depends on what. Where the head takes several
tensors of it, they stand side by side. A forward that torch.fx cannot follow is not divided: then the frozen part is
computed in every step.
"""

from __future__ import annotations

import operator
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from wherefrom.training.joined import JoinedInputs
from wherefrom.training.mapped import MappedColumns
from wherefrom.training.stochastic_depth import RowDropout
from wherefrom.training.tracing import DROPOUT, dropout_arguments

_IN_MEMORY = 2**30  # bytes of features that are not written to disk
_PREFIX = "inner."
_TORCHS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_DROPOUT_LAYERS = (*_TORCHS, RowDropout)


class NotFollowedError(Exception):
    """Why torch.fx cannot follow a forward."""


def divided(
    module: nn.Module, x: Tensor, of_theta: Collection[str], shared: Collection[str]
) -> tuple[nn.Module, nn.Module] | None:
    """Return the front and the head of a module in training mode, which share its layers; None if there is no front.

    Raises a NotFollowedError if that cannot be seen.

    module: a copy, to which layers may be added.
    x: a few rows, which show the shapes of what the head takes.
    of_theta: names of the tensors that belong to members.
    shared: names of those that all members share.
    """
    names = {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}

    def has(part: nn.Module, wanted: Collection[str]) -> bool:
        return any(names.get(id(tensor)) in wanted for tensor in (*part.parameters(), *part.buffers()))

    def is_frozen(part: nn.Module) -> bool:
        return not has(part, of_theta) and not any(map(_is_random_or_of_batches, part.modules()))

    graph = _followed(module, lambda part: is_frozen(part) and has(part, shared))
    if graph is None:  # the module itself is one layer
        return None
    in_front = _front_nodes(graph, module, of_theta, is_frozen)
    layers = [module.get_submodule(str(node.target)) for node in in_front if node.op == "call_module"]
    read = {str(source.target) for node in in_front for source in node.all_input_nodes if source.op == "get_attr"}
    behind = [node for node in graph.nodes if node not in in_front]
    used = {source for node in behind for source in node.all_input_nodes}
    ends = [node for node in graph.nodes if node in in_front and node in used]
    if not ends or not (read & set(shared) or any(has(layer, shared) for layer in layers)):
        return None
    with torch.no_grad():
        features = _first_part(module, graph, ends)(x)
    if not all(isinstance(each, Tensor) and each.ndim and len(each) == len(x) for each in features):
        return None
    joined = JoinedInputs.of((), features, [()] * len(features))
    module.add_module("_joining", _Joining(joined))
    module.add_module("_separating", _Separating(joined))
    return _first_part(module, graph, ends, joins=True), _second_part(module, graph, in_front, ends)


def features(front: Callable[[Tensor], Tensor], x: Any, rows_at_once: int, prepared: Callable[[Any], Tensor]) -> Tensor:
    """Return the features of all rows, in main memory, or in a file without a name if they are large.

    prepared: makes some rows of x what the front takes.  # (rows, ...)
    """
    rows = len(x)
    first = front(prepared(x[:rows_at_once])).cpu()
    size = first[:1].nbytes * rows
    if size <= _IN_MEMORY:
        result = first.new_empty(rows, *first.shape[1:])
        for start, some in _blocks(front, x, rows_at_once, prepared, first):
            result[start : start + len(some)] = some
        return result
    columns = MappedColumns(first[:1].numel(), first.dtype)
    for _, some in _blocks(front, x, rows_at_once, prepared, first):
        columns.add(some.flatten(1).numpy())
    return columns.tensor().unflatten(1, first.shape[1:])


def has_room(numbers: int, itemsize: int) -> bool:
    """Return True if this many feature values can be kept: in memory, or in half of the free space on disk."""
    size = numbers * itemsize
    return size <= _IN_MEMORY or size <= shutil.disk_usage(tempfile.gettempdir()).free // 2


def _blocks(
    front: Callable[[Tensor], Tensor], x: Any, size: int, prepared: Callable[[Any], Tensor], first: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """Yield the features of some rows at a time, with the number of the first row."""
    yield 0, first
    for start in range(size, len(x), size):
        yield start, front(prepared(x[start : start + size])).cpu()


def _is_random_or_of_batches(part: nn.Module) -> bool:
    """Return True if a layer drops units, or normalises by the batch."""
    if isinstance(part, _DROPOUT_LAYERS):
        return part.training and part.p > 0
    return isinstance(part, nn.modules.batchnorm._NormBase) and (part.training or part.running_mean is None)


class _Alone(nn.Module):
    """A module called with x alone, whatever else its forward could take."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(x)


def _followed(module: nn.Module, is_whole: Callable[[nn.Module], bool]) -> fx.Graph | None:
    """Return the graph of a forward pass, with frozen parts as single nodes; None if all of it is one node."""

    class Follower(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return is_whole(m) or fx.Tracer.is_leaf_module(self, m, module_qualified_name)

    try:
        graph = Follower().trace(_Alone(module))
    except Exception as error:  # branches on numbers, and whatever else a forward may do
        raise NotFollowedError(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    for node in graph.nodes:
        node.type = None  # annotations that are text cannot be pickled
        if node.op in ("call_module", "get_attr"):
            if node.target == _PREFIX[:-1]:  # the module itself is one layer
                return None
            node.target = str(node.target).removeprefix(_PREFIX)
    return graph


def _front_nodes(
    graph: fx.Graph, module: nn.Module, of_theta: Collection[str], is_frozen: Callable[[nn.Module], bool]
) -> set[fx.Node]:
    """Return the nodes that are computed from x, and neither trained nor random."""
    in_front: set[fx.Node] = set()
    constants: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            in_front.add(node)
        elif node.op == "get_attr" and node.target not in of_theta:
            constants.add(node)
        elif node.op != "output" and all(source in in_front or source in constants for source in node.all_input_nodes):
            if node.op == "call_module":
                is_still = is_frozen(module.get_submodule(str(node.target)))
            else:
                is_still = node.op != "get_attr" and not _drops(node)
            if is_still:
                (in_front if any(source in in_front for source in node.all_input_nodes) else constants).add(node)
    return in_front


def _drops(node: fx.Node) -> bool:
    """Return True if a node is a call of a function that drops units."""
    if node.target not in DROPOUT:
        return False
    _, rate, drops = dropout_arguments(*node.args, **node.kwargs)  # type: ignore[arg-type]
    return drops and rate > 0


class Returning(nn.Module):
    """Return what a layer returned before, in its place."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, *_: Any, **__: Any) -> Any:
        return self.result


def outputs_of_layers(front: nn.Module, x: Tensor) -> dict[str, Any]:
    """Return what each layer of a front returns for some rows, by its name, of those that are called once."""
    assert isinstance(front, fx.GraphModule)
    interpreter = fx.Interpreter(front, garbage_collect_values=False)
    with torch.no_grad():
        interpreter.run(x)
    calls = [node for node in front.graph.nodes if node.op == "call_module" and node.target != "_joining"]
    names = [str(node.target) for node in calls]
    return {str(node.target): interpreter.env[node] for node in calls if names.count(str(node.target)) == 1}


class _Joining(nn.Module):
    """Put several tensors side by side."""

    def __init__(self, joined: JoinedInputs) -> None:
        super().__init__()
        self.joined = joined

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.joined.joined(tensors) if len(tensors) > 1 else tensors[0]


class _Separating(nn.Module):
    """Take several tensors apart again."""

    def __init__(self, joined: JoinedInputs) -> None:
        super().__init__()
        self.joined = joined

    def forward(self, features: Tensor) -> list[Tensor]:
        return self.joined.separated(features) if len(self.joined.shapes) > 1 else [features]


def _first_part(module: nn.Module, graph: fx.Graph, ends: Sequence[fx.Node], joins: bool = False) -> nn.Module:
    """Return what computes some nodes from x, in a tuple or side by side."""
    part = fx.Graph()
    needed = set(ends)
    for node in reversed(graph.nodes):
        needed |= set(node.all_input_nodes) if node in needed else set()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node in needed or node.op == "placeholder":
            copies[node] = part.node_copy(node, copies.__getitem__)
    outputs = tuple(copies[end] for end in ends)
    part.output(part.call_module("_joining", outputs) if joins else outputs)
    return fx.GraphModule(module, part, "Front")


def _second_part(
    module: nn.Module, graph: fx.Graph, in_front: Collection[fx.Node], ends: Sequence[fx.Node]
) -> nn.Module:
    """Return what computes the outputs from some nodes; layers that drop units are added to the module."""
    part = fx.Graph()
    features = part.call_module("_separating", (part.placeholder("features"),))
    copies = {end: part.call_function(operator.getitem, (features, number)) for number, end in enumerate(ends)}
    for number, node in enumerate(graph.nodes):
        if node not in in_front and _drops(node):
            (source,), (_, rate, _) = node.all_input_nodes, dropout_arguments(*node.args, **node.kwargs)
            name = f"_dropping_{number}"  # a layer: as a function, it would drop in any mode
            module.add_module(name, _Dropping(node.target, rate))
            copies[node] = part.call_module(name, (copies[source],))
        elif node not in in_front:
            copies[node] = part.node_copy(node, copies.__getitem__)
    return fx.GraphModule(module, part, "Head")


class _Dropping(nn.Module):
    """A call of a function that drops units, in training mode alone."""

    def __init__(self, function: Any, rate: float) -> None:
        super().__init__()
        self.function, self.rate = function, rate

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function(x, self.rate, self.training)
        return result
