"""A function of tensors as a list of torch operations on fixed memory, recorded once and then replayed.

One training step of a small cohort is some twenty short operations. Run through the user's module, vmap and autograd,
most of the time goes into the Python between them and into new memory for every result. Replayed from the record,
forward and backward, they read and write where they did when they were recorded; views cost nothing, since they already
are there. The numbers are those of the same operations.

Some operations, convolutions above all, cannot be told where to write. Copying a small result is cheap; a large one
stays where the operation put it until nobody reads it again, and views of it are made anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from wherefrom.training.precision import agree, tolerance
from wherefrom.training.tracing import LOOKS_AT_NUMBERS
from wherefrom.training.tracing import tensors_in as _tensors

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

_COPIES = (_aten.clone.default, _aten._to_copy.default)
_has_kernel: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
_TOLERANCE = 1e-4  # of a replay on a CPU, relative to the largest result
_MOST_NUMBERS = 2**24  # in the arguments of what is recorded
_LARGE = 2**16  # numbers of a result that takes longer to copy than new views of it to make

Operation = tuple[Callable[..., Any], Any, Any]  # with its arguments and keywords


class Program:
    """Calling it returns the results for what its arguments' memory holds now. For one thread at a time.

    Results that are recorded stay in the same memory, which the next call writes over.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        results: Any,
        tape: list[Operation],
        tolerance: float = _TOLERANCE,
        error: Exception | None = None,  # because of which nothing was recorded
    ) -> None:
        self.operations = [getattr(operation, "name", lambda: "python")() for operation, _, _ in tape] or ["python"]
        # An overload's inner function skips torch's Python around it.
        self._calls = [(getattr(operation, "_op", operation), args, kwargs) for operation, args, kwargs in tape]
        self._function, self._arguments, self._results, self._called = function, arguments, results, 0
        self._tolerance, self._error = tolerance, error

    def __call__(self) -> Any:
        if not self._calls:
            results = self._function(*self._arguments)
            if self._error is not None:  # of the record alone, since the function raises nothing
                _warn(f"could not be recorded ({type(self._error).__name__}: {self._error})")
                self._error = None
            return results
        for operation, arguments, keywords in self._calls:
            operation(*arguments, **keywords)
        self._called += 1
        return self._checked() if self._called == 2 else self._results

    def _checked(self) -> Any:
        """Compare with the function itself now that the arguments have changed: it may keep things elsewhere."""
        # Also what was written into arguments.
        replayed = [tensor.clone() for tensor in tree_leaves((self._arguments, self._results))]
        expected = self._function(*self._arguments)
        pairs = zip(replayed, tree_leaves((self._arguments, expected)), strict=True)
        if all(agree(ours, theirs, self._tolerance) for ours, theirs in pairs):
            return self._results
        _warn(
            "gives other numbers than the model itself. Does its forward keep or count things outside of its buffers?"
        )
        self._calls, self._results, self.operations = [], None, ["python"]
        return expected


def _warn(why: str) -> None:
    warnings.warn(
        f"the recorded form of the model {why} Its Python runs at every step instead, which is slower", stacklevel=4
    )


def record(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    others: tuple[Any, ...] | None = None,
    autocast: torch.dtype | None = None,
) -> Program:
    """The function, specialised to these very tensors; it returns tensors, alone or in a tuple.

    It is rehearsed on `others`: arguments of the same shapes that the function may get as well, by default the same
    numbers. One that looks at its numbers, for a decision (`if x.sum() > 0`), for a shape (`x[x > 0]`) or by way of
    numpy, could do otherwise next time: it is called as it is. So is one with large arguments, whose time goes into its
    operations, and whose every result would stay in memory; and one that cannot be recorded, with a warning.

    autocast: in which the function multiplies, where that is not its arguments' type (default: None).
    """
    if sum(tensor.numel() for tensor in _tensors(arguments)) > _MOST_NUMBERS:
        return called(function, arguments)
    try:
        rehearsal, write_over = _rehearse(function, others or arguments, arguments)
        # Autograd goes another way behind what is written over in place: then nothing is.
        for allowed in (write_over, frozenset[int]()):
            recorder = _Recorder(arguments, allowed, rehearsal.functions)
            with _NoLooking(), recorder:
                results = function(*arguments)
            if recorder.did_the_same(rehearsal):
                detached = tree_map_only(Tensor, torch.detach, results)
                return Program(function, arguments, detached, recorder.tape(results), _tolerance(arguments, autocast))
    except _LooksAtNumbersError:
        pass
    except Exception as error:  # of the user's function: a call will raise it, too, unless only the record was at fault
        return Program(function, arguments, None, [], error=error)
    return called(function, arguments)


def _tolerance(arguments: tuple[Any, ...], autocast: torch.dtype | None) -> float:
    """Return how far a replay may be off: on a CPU, it is the same operations on the same numbers."""
    first = _tensors(arguments)[0]
    on_cpu = first.device.type == "cpu" and autocast is None
    return _TOLERANCE if on_cpu else tolerance(first.device, autocast or first.dtype)


def called(
    function: Callable[..., Any], arguments: tuple[Any, ...], others: Any = None, autocast: torch.dtype | None = None
) -> Program:
    """The function as a program that records nothing."""
    return Program(function, arguments, None, [])


class _NoLooking(TorchFunctionMode):
    """Ends a record where numbers leave torch: no operation shows what is done with them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LOOKS_AT_NUMBERS:
            raise _LooksAtNumbersError
        return func(*args, **(kwargs or {}))


class _LooksAtNumbersError(Exception):
    pass


class _Recorder(TorchDispatchMode):
    """Sees every operation below vmap and autograd, lets it run, and keeps it with its arguments and results."""

    def __init__(
        self, arguments: tuple[Any, ...], write_over: frozenset[int] = frozenset(), expected: Sequence[Any] = ()
    ) -> None:
        super().__init__()
        self.write_over = write_over  # the operations, by number, that may write over their first argument
        self.expected = expected  # all operations, as they were rehearsed
        self.given = {_memory(tensor) for tensor in tree_leaves(arguments)}
        self.known = set(self.given)
        self.foreign: list[Tensor] = []  # what was read that no operation had made
        self.foreign_memory: set[int] = set()
        self.functions: list[Any] = []
        self.seen: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and importing torch's compiler to say so takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _shape_depends_on_numbers(func, args):
            raise _LooksAtNumbersError
        self.functions.append(func)
        if len(self.seen) in self.write_over and self.functions == self.expected[: len(self.functions)]:
            func, args, kwargs = _writing_over(func, args, kwargs)
        # Kept as they are now: the same memory without autograd's graph, and whatever becomes of their shapes later.
        before = _detached((args, kwargs))
        for tensor in _tensors(before):
            if _memory(tensor) not in self.known:
                self.known.add(_memory(tensor))
                self.foreign.append(tensor.clone())
                self.foreign_memory.add(_memory(tensor))
        if func._schema.is_mutable and any(_memory(tensor) in self.foreign_memory for tensor in _written(func, before)):
            raise _LooksAtNumbersError  # what is made anew at every call would be written to again and again
        results = func(*args, **kwargs)
        if not isinstance(results, Tensor | tuple | list):
            raise _LooksAtNumbersError
        self.known |= {_memory(tensor) for tensor in _tensors(results)}
        self.seen.append((func, *before, _detached(results)))
        return results

    def did_the_same(self, other: _Recorder) -> bool:
        """Return True if the same operations were done, and nothing from outside depended on the numbers."""
        if self.functions != other.functions or len(self.foreign) != len(other.foreign):
            return False
        return all(map(torch.equal, self.foreign, other.foreign))

    def tape(self, results: Any) -> list[Operation]:
        """Return the operations of a replay; `results`, which the function returned, stay at their addresses."""
        last_use = {
            memory: number
            for number, (func, *held) in enumerate(self.seen)
            if not _is_view(func)
            for memory in map(_memory, _tensors(held))
        }
        old = self.given | {_memory(tensor) for tensor in _tensors(results)}
        slots: dict[int, _Slot] = {}
        tape: list[Operation] = []
        for number, (func, args, kwargs, made) in enumerate(self.seen):
            if not _is_view(func):
                anew = _stays_where_it_is_made(func, made, old)
                slots |= {_memory(tensor): _Slot(tensor) for tensor in _tensors(made)} if anew else {}
                operation = (func, args, kwargs) if anew else _replayed(func, args, kwargs, made)
                if any(_memory(tensor) in slots for tensor in _tensors([*operation[1:], made])):
                    makes = [slots[_memory(tensor)] for tensor in _tensors(made)] if anew else []
                    ends = [slot for memory, slot in slots.items() if last_use[memory] == number]
                    operation = _WithSlots(operation, slots, makes, ends), (), {}
                tape.append(operation)
            old |= {_memory(tensor) for tensor in _tensors((args, kwargs, made))}
        return tape


class _Slot:
    """The address of a large result, which every replay makes anew."""

    def __init__(self, recorded: Tensor) -> None:
        self.size, self.stride = recorded.shape, recorded.stride()
        self.tensor: Tensor | None = None

    def fill(self, new: Tensor) -> None:
        if new.stride() != self.stride:  # other views could not be read from it
            new = torch.empty_strided(self.size, self.stride, dtype=new.dtype, device=new.device).copy_(new)
        self.tensor = new


@dataclass(frozen=True)
class _InSlot:
    """A recorded argument whose memory is a slot's."""

    slot: _Slot
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def now(self) -> Tensor:
        whole = self.slot.tensor
        assert whole is not None
        return torch.as_strided(whole, self.size, self.stride, self.offset)


class _WithSlots:
    """An operation that reads slots, fills some, and empties those that nobody reads again."""

    def __init__(self, operation: Operation, slots: dict[int, _Slot], makes: list[_Slot], ends: list[_Slot]) -> None:
        func, args, kwargs = operation
        self.name = getattr(func, "name", lambda: "python")
        self.func, self.makes, self.ends = getattr(func, "_op", func), makes, ends
        self.args, self.kwargs = _in_slots((args, kwargs), slots)

    def __call__(self) -> None:
        results = self.func(*_now(self.args), **_now(self.kwargs))
        for slot, new in zip(self.makes, _each(results) if self.makes else (), strict=True):
            slot.fill(new)
        for slot in self.ends:
            slot.tensor = None


def _in_slots(tree: Any, slots: dict[int, _Slot]) -> Any:
    def place(tensor: Tensor) -> Any:
        slot = slots.get(_memory(tensor))
        return tensor if slot is None else _InSlot(slot, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    return tree_map_only(Tensor, place, tree)


def _now(tree: Any) -> Any:
    kind = type(tree)
    if kind is _InSlot:
        return tree.now()
    if kind is list or kind is tuple:
        return [_now(part) if type(part) in _HOLDERS else part for part in tree]
    return {name: _now(part) for name, part in tree.items()} if kind is dict else tree


_HOLDERS = (_InSlot, list, tuple, dict)


def _stays_where_it_is_made(func: Any, made: Any, old: set[int]) -> bool:
    """Return True if a result is too large to be copied: new memory, of an operation without an `out`."""
    results = _tensors(made)
    if func._schema.is_mutable or func in _COPIES or max((t.numel() for t in results), default=0) < _LARGE:
        return False
    if any(_memory(tensor) in old or tensor.storage_offset() for tensor in results):
        return False
    form = _form_with_places(func)
    return form is None or not _has_kernel(form[0].name(), torch._C._dispatch_key_for_device(results[0].device.type))


def _rehearse(
    function: Callable[..., Any], others: tuple[Any, ...], arguments: tuple[Any, ...]
) -> tuple[_Recorder, frozenset[int]]:
    """The function once on other numbers: what it did, and the operations, by number, whose first argument nobody reads
    again, so that their result may take its memory."""
    flat, structure = tree_flatten(arguments)
    arguments = tree_unflatten(list(map(_in_layout, flat, tree_leaves(others))), structure)
    recorder = _Recorder(arguments)
    with _NoLooking(), recorder:
        results = function(*arguments)
    given = {_memory(tensor) for tensor in tree_leaves(arguments)}
    last_read = {_memory(tensor): len(recorder.seen) for tensor in tree_leaves(results)}
    for number, (func, args, kwargs, _) in enumerate(recorder.seen):
        if not _is_view(func):
            last_read |= {m: max(number, last_read.get(m, 0)) for m in map(_memory, _tensors((args, kwargs)))}
    may_be_written, made = set(), set()
    for number, (func, args, kwargs, result) in enumerate(recorder.seen):
        if func in _IN_PLACE and isinstance(args[0], Tensor):
            memory = _memory(args[0])
            is_read = memory in map(_memory, _tensors((args[1:], kwargs)))
            if memory in made and not is_read and last_read[memory] == number and _same_layout(args[0], result):
                may_be_written.add(number)
        if not _is_view(func):
            made |= {_memory(tensor) for tensor in _tensors(result)} - given
    recorder.seen.clear()  # and with it the memory
    return recorder, frozenset(may_be_written)


def _in_layout(tensor: Tensor, other: Tensor) -> Tensor:
    """A copy of the other numbers, in the layout of the tensor."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(other)


def _shape_depends_on_numbers(func: Any, args: Any) -> bool:
    """Boolean masks, nonzero, unique: another number of results next time. Indexing by whole numbers is harmless."""
    if func is _aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags


def _is_view(func: Any) -> bool:
    """Return True if an operation only views memory, which it still does when the memory has changed."""
    return func.is_view or func is _aten._unsafe_view.default or torch.Tag.inplace_view in func.tags


def _writing_over(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    if _IN_PLACE[func] is not None:
        return _IN_PLACE[func], args, kwargs
    return func.overloadpacket.grad_input, args, {**kwargs, "grad_input": args[0]}


def _replayed(func: Any, args: Any, kwargs: Any, results: Any) -> Operation:
    """The operation, writing its results where they are."""
    if func._schema.is_mutable:
        return func, args, kwargs
    if func in _COPIES:
        return _aten.copy_.default, (results, args[0]), {}
    if func is _aten.bmm.default and args[1].stride(0) == 0:
        return _product_with_one, (args[0], args[1][0], results), {}
    form, places = _form_with_places(func), _tensors(results)
    if func is _aten.native_batch_norm.default and not _same_layout(args[0], places[0]):
        form = None  # torch would write wrong numbers there
    if form is not None and len(form[1]) == len(places):
        return form[0], args, kwargs | dict(zip(form[1], places, strict=True))
    return _compute_and_copy, (func._op, args, kwargs, places), {}


def _form_with_places(func: Any) -> tuple[OpOverload, list[str]] | None:
    """The form of an operation that is told where to write, and its names for these places."""
    own = func._schema.arguments
    for name in func.overloadpacket.overloads():
        form = getattr(func.overloadpacket, name)
        taken, extra = form._schema.arguments[: len(own)], form._schema.arguments[len(own) :]
        same = [(a.name, str(a.type)) for a in own] == [(a.name, str(a.type)) for a in taken]
        if same and len(extra) == len(func._schema.returns) and all(argument.is_out for argument in extra):
            return form, [argument.name for argument in extra]
    return None


def _product_with_one(many: Tensor, one: Tensor, out: Tensor) -> None:
    """Many matrices times one and the same: a single large product."""
    torch.mm(many.reshape(-1, many.shape[2]), one, out=out.view(-1, out.shape[2]))


def _compute_and_copy(func: Callable[..., Any], args: Any, kwargs: Any, places: list[Tensor]) -> None:
    for kept, new in zip(places, _each(func(*args, **kwargs)), strict=True):
        kept.copy_(new)


def _detached(tree: Any) -> Any:
    """Return a tree of tensors without autograd's graph."""
    if isinstance(tree, Tensor):
        return tree.detach()
    if isinstance(tree, tuple | list):
        parts = [_detached(part) for part in tree]
        return tuple(parts) if isinstance(tree, tuple) else parts
    return {name: _detached(part) for name, part in tree.items()} if isinstance(tree, dict) else tree


def _each(results: Any) -> list[Tensor]:
    """The tensors among an operation's results, which are one or some."""
    return [results] if isinstance(results, Tensor) else [one for one in results if isinstance(one, Tensor)]


def _written(func: Any, before: tuple[Any, Any]) -> list[Tensor]:
    """The arguments that an operation writes to."""
    args, kwargs = before
    named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    return _tensors([named.get(argument.name) for argument in func._schema.arguments if argument.is_write])


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
