"""Which networks are plain MLPs: linear layers one after another, with activations and dropout between them.

How the module is written does not matter. It is called on rows of zeros, and every torch function that it calls must
take what the one before returned. Anything else (a sum with an earlier result, a convolution, a layer used twice, a
look at the numbers, a hook) is a reason why it is not one, and is given in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from wherefrom.training.network import Network
from wherefrom.training.offset import WithOffset
from wherefrom.training.probing import has_hooks
from wherefrom.training.tracing import ELEMENT_DROPOUT, SAME_NUMBERS, Call, Tracer


class NotPlain(ValueError):
    """Why a network is not a plain MLP."""


@dataclass(frozen=True)
class Operation:
    """An activation, or dropout at one of the network's sites."""

    name: str
    parameter: float = 0.0
    site: int = -1


@dataclass(frozen=True)
class PlainMLP:
    """Linear layers by the names of their tensors, and what follows each; first, what is done to the inputs."""

    widths: tuple[int, ...]
    weights: tuple[str, ...]
    biases: tuple[str | None, ...]
    operations: tuple[tuple[Operation, ...], ...]  # one more than there are layers
    offset: int | None = None  # the column whose logarithm is added to all outputs, and that the layers see as zeros

    @property
    def multiplications(self) -> int:
        """The number of multiplications for one row, forward and backward."""
        pairs = list(zip(self.widths, self.widths[1:], strict=False))
        return 3 * sum(a * b for a, b in pairs) - pairs[0][0] * pairs[0][1]


def _leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Operation:
    return Operation("leaky_relu", negative_slope)


def _softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Operation:
    if beta <= 0 or threshold < 15:  # beyond it torch goes on linearly, which must be within rounding
        raise NotPlain(f"its softplus has beta={beta:g} and threshold={threshold:g}")
    return Operation("softplus", beta)


def _gelu(input: Tensor, approximate: str = "none") -> Operation:
    return Operation("gelu" if approximate == "none" else "gelu_tanh")


def _always(name: str) -> Callable[..., Operation]:
    return lambda *args, **kwargs: Operation(name)


_ACTIVATIONS: dict[Any, Callable[..., Operation]] = {
    function: operation
    for functions, operation in (
        ((F.relu, torch.relu, Tensor.relu, torch.relu_, Tensor.relu_), _always("relu")),
        ((F.leaky_relu, F.leaky_relu_), _leaky_relu),
        ((F.tanh, torch.tanh, Tensor.tanh, torch.tanh_, Tensor.tanh_), _always("tanh")),
        ((F.silu,), _always("silu")),
        ((F.gelu,), _gelu),
        ((F.softplus,), _softplus),
    )
    for function in functions
}

# What a forward pass may ask of a tensor without looking at its numbers.
_QUESTIONS = {
    *(Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__, Tensor.ndim.__get__),  # type: ignore[attr-defined]
    *(Tensor.size, Tensor.dim, Tensor.__len__, Tensor.numel, Tensor.is_floating_point),
}


class _Chain:
    """Follows one tensor through the calls of a forward pass."""

    def __init__(self, network: Network, tensors: dict[str, Tensor], x: Tensor) -> None:
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.drops = iter(network.drops)
        self.current, self.rows, self.sites = x, len(x), 0
        self.widths = [x.shape[1]]
        self.weights: list[str] = []
        self.biases: list[str | None] = []
        self.operations: list[list[Operation]] = [[]]

    def follow(self, call: Call) -> None:
        function, args, kwargs, result = call.function, call.args, call.kwargs, call.result
        if function in _QUESTIONS:
            return
        given = args[0] if args else kwargs.get("input")
        if not isinstance(given, Tensor):
            raise NotPlain(f"it calls {call.name}")
        if given is not self.current:
            raise NotPlain(f"its {call.name} works on something else than what the operation before it returned")
        if function in ELEMENT_DROPOUT:
            if next(self.drops):
                self.operations[-1].append(Operation("dropout", site=self.sites))
                self.sites += 1
        elif function is F.linear:
            self._linear(*args, **kwargs)
        elif function in _ACTIVATIONS:
            self.operations[-1].append(_ACTIVATIONS[function](*args, **kwargs))
        elif function not in SAME_NUMBERS:
            raise NotPlain(f"it calls {call.name}")
        elif result.numel() != given.numel() or len(result) != self.rows:
            raise NotPlain(f"its {call.name} moves numbers from row to row")
        if self.weights and not result.requires_grad:
            raise NotPlain(f"its {call.name} keeps no gradient")
        self.current = result

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
        if input.ndim != 2 or input.shape[0] != self.rows or weight.ndim != 2:
            raise NotPlain(f"a linear layer of {weight.ndim} dimensions works on a tensor of {input.ndim}")
        names = [self.names.pop(id(tensor), None) for tensor in (weight, bias) if tensor is not None]
        if None in names:
            raise NotPlain("a linear layer's tensors are computed, or used twice")
        self.weights.append(names[0] or "")
        self.biases.append(names[1] if len(names) == 2 else None)
        self.widths.append(weight.shape[0])
        self.operations.append([])


def recognise(network: Network, x: Tensor, row_counts: Iterable[int] = (3,)) -> PlainMLP:
    """The network as a plain MLP on rows like those of x, the same for batches of any of these sizes; else NotPlain."""
    layout = network.layout
    others = [*layout.names[layout.trained :], *network.in_common]
    if others:
        raise NotPlain(f"it has buffers or frozen parameters, such as {others[0]}")
    if x.ndim != 2 or not x.dtype.is_floating_point:
        raise NotPlain(f"a row of x has shape {tuple(x.shape[1:])}, or holds whole numbers")
    own = network.private("recognise")
    if any(has_hooks(module) for module in own.skeleton(training=True).modules()):
        raise NotPlain("its layers have hooks")
    mlp = _follow(own, torch.zeros(3, x.shape[1], dtype=x.dtype))
    if any(_follow(own, torch.zeros(rows, x.shape[1], dtype=x.dtype)) != mlp for rows in row_counts):
        raise NotPlain("it does something else for other numbers of rows")
    return mlp


def _follow(network: Network, x: Tensor) -> PlainMLP:
    layout = network.layout
    tensors = {  # zeros without memory
        name: torch.zeros((), dtype=x.dtype).expand(shape).requires_grad_()
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    module, prefix, column = network.skeleton(training=True), "", None
    if isinstance(module, WithOffset):
        if not all(module.log.added):
            raise NotPlain("it adds a column to some of its outputs alone")
        module, prefix, column = module.inner, "inner.", int(module.log.column)  # type: ignore[arg-type, union-attr]
    inner = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    with torch.enable_grad(), Tracer() as tracer:
        try:
            outputs = functional_call(module, inner, (x,))
        except Exception as error:  # whatever a forward pass may do
            raise NotPlain(f"it cannot be followed: {error}") from None
    chain = _Chain(network, tensors, x)
    for call in tracer.calls:
        chain.follow(call)
    if outputs is not chain.current:
        raise NotPlain("it does not return what its last operation returned")
    if not chain.weights:
        raise NotPlain("it has no linear layer")
    if chain.names:
        raise NotPlain("it has parameters that no linear layer uses")
    operations = tuple(map(tuple, chain.operations))
    return PlainMLP(tuple(chain.widths), tuple(chain.weights), tuple(chain.biases), operations, column)
