"""A function of tensors as a list of torch operations on fixed memory, recorded once and then replayed.

One training step of a small cohort is some twenty short operations. Run through the user's module, vmap and autograd,
most of the time goes into the Python between them and into new memory for every result. Replayed from the record,
forward and backward, they read and write where they did when they were recorded; views cost nothing, since they already
are there. The numbers are those of the same operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_aten = torch.ops.aten

# Element by element, so that the result may stand where the first argument stood.
_IN_PLACE = {
    _aten.add.Tensor: _aten.add_.Tensor,
    _aten.sub.Tensor: _aten.sub_.Tensor,
    _aten.mul.Tensor: _aten.mul_.Tensor,
    _aten.mul.Scalar: _aten.mul_.Scalar,
    _aten.relu.default: _aten.relu_.default,
    _aten.tanh.default: _aten.tanh_.default,
    _aten.sigmoid.default: _aten.sigmoid_.default,
    # Backward formulas have no such form; they are told to write over their first argument.
    _aten.threshold_backward.default: None,
    _aten.tanh_backward.default: None,
    _aten.sigmoid_backward.default: None,
}


Operation = tuple[Callable[..., Any], Any, Any]  # with its arguments and keywords


class Program:
    """Calling it computes `results` anew from what its arguments' memory holds now. For one thread at a time."""

    def __init__(self, results: Any, tape: list[Operation]) -> None:
        self.results = results
        # An overload's inner function skips torch's Python around it.
        self._calls = [(getattr(operation, "_op", operation), args, kwargs) for operation, args, kwargs in tape]
        self.operations = [getattr(operation, "name", lambda: "python")() for operation, _, _ in tape]

    def __call__(self) -> None:
        for operation, arguments, keywords in self._calls:
            operation(*arguments, **keywords)


def record(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Program:
    """The function, specialised to these very tensors; it returns tensors, alone or in a tuple.

    One that looks at its numbers (`if x.sum() > 0`) could take another way next time: it is called as it is.
    """
    first = _Recorder(arguments)
    try:
        with first:
            results = function(*arguments)
    except _LooksAtNumbersError:
        return _Called(function, arguments)
    second = _Recorder(arguments, write_over=first.dead_arguments(results))
    with second:
        results = function(*arguments)
    return Program(tree_map_only(Tensor, torch.detach, results), second.tape())


class _Called(Program):
    """A function that cannot be recorded, called each time."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__(function(*arguments), [])
        self._calls = [(lambda: setattr(self, "results", function(*arguments)), (), {})]


class _LooksAtNumbersError(Exception):
    pass


class _Recorder(TorchDispatchMode):
    """Sees every operation below vmap and autograd, lets it run, and keeps it with its arguments and results."""

    def __init__(self, arguments: tuple[Any, ...], write_over: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.given = {_memory(tensor) for tensor in tree_leaves(arguments)}
        self.write_over = write_over  # the operations, by number, that may write over their first argument
        self.seen: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and importing torch's compiler to say so takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if len(self.seen) in self.write_over:
            func, args, kwargs = _writing_over(func, args, kwargs)
        results = func(*args, **kwargs)
        if not isinstance(results, Tensor | tuple | list):
            raise _LooksAtNumbersError
        self.seen.append((func, args, kwargs, results))
        return results

    def dead_arguments(self, results: Any) -> frozenset[int]:
        """The operations whose first argument nobody reads again, so that their result may take its memory."""
        last_read = {_memory(tensor): len(self.seen) for tensor in tree_leaves(results)}
        made = set()
        for number, (func, args, kwargs, _) in enumerate(self.seen):
            if not _is_view(func):
                last_read |= {m: max(number, last_read.get(m, 0)) for m in map(_memory, _tensors((args, kwargs)))}
        found = set()
        for number, (func, args, kwargs, result) in enumerate(self.seen):
            if func in _IN_PLACE and isinstance(args[0], Tensor):
                own = _memory(args[0])
                others = {_memory(tensor) for tensor in _tensors((args[1:], kwargs))}
                if own in made and own not in others and last_read[own] == number and _same_layout(args[0], result):
                    found.add(number)
                    # From here on both are one memory: what holds for the result holds for the argument.
                    last_read[own] = max(last_read[own], last_read.get(_memory(result), 0))
            if not _is_view(func):
                made |= {_memory(tensor) for tensor in _tensors(result)} - self.given
        return frozenset(found)

    def tape(self) -> list[Operation]:
        # Detached, tensors are the same memory without the graph that autograd hung on them.
        entries = [tree_map_only(Tensor, torch.detach, entry) for entry in self.seen if not _is_view(entry[0])]
        return [_replayed(*entry) for entry in entries]


def _is_view(func: Any) -> bool:
    """Whether an operation only looks at memory in another way, which it still does when the memory has changed."""
    return func.is_view or func is _aten._unsafe_view.default


def _writing_over(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    if _IN_PLACE[func] is not None:
        return _IN_PLACE[func], args, kwargs
    return func.overloadpacket.grad_input, args, {**kwargs, "grad_input": args[0]}


def _replayed(func: Any, args: Any, kwargs: Any, results: Any) -> Operation:
    """The operation, writing its results where they are."""
    if func._schema.is_mutable:
        return func, args, kwargs
    if func is _aten.bmm.default and args[1].stride(0) == 0:
        return _product_with_one, (args[0], args[1][0], results), {}
    place = _form_with_place(func)
    if place is not None and isinstance(results, Tensor):
        return place[0], args, {**kwargs, place[1]: results}
    return _compute_and_copy, (func, args, kwargs, results), {}


def _form_with_place(func: Any) -> tuple[OpOverload, str] | None:
    """The form of an operation that is told where to write, and its name for that place."""
    own = func._schema.arguments
    for name in func.overloadpacket.overloads():
        form = getattr(func.overloadpacket, name)
        taken, extra = form._schema.arguments[: len(own)], form._schema.arguments[len(own) :]
        same = [(a.name, str(a.type)) for a in own] == [(a.name, str(a.type)) for a in taken]
        if same and len(extra) == 1 and extra[0].is_out:
            return form, extra[0].name
    return None


def _product_with_one(many: Tensor, one: Tensor, out: Tensor) -> None:
    """Many matrices times one and the same: a single large product."""
    torch.mm(many.reshape(-1, many.shape[2]), one, out=out.view(-1, out.shape[2]))


def _compute_and_copy(func: Callable[..., Any], args: Any, kwargs: Any, results: Any) -> None:
    for kept, new in zip(_tensors(results), _tensors(func(*args, **kwargs)), strict=True):
        kept.copy_(new)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
