"""One way to look into a module: call it on a few rows, and keep every torch function that it calls.

    with Tracer() as tracer:
        outputs = module(x)
    tracer.calls            # function, arguments, result; one after another

The tracer is a mode of torch, which belongs to one thread: nothing is patched, and other threads' modules run as ever.
What is asked of a module is read from the list: its dropout, its outputs and the size of its activations
(`network.py`), whether it is a plain MLP (`native/plain.py`), and its graph for one-shot prediction and export
(`predictive/one_shot/graph.py`). The steps of training are recorded below autograd instead, since no Python function is
called for a gradient: `program.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from wherefrom.training.attention import ATTENTION, Attention, is_closed, opened

# Whole channels or single elements: what one entry of a mask covers.
ELEMENT_DROPOUT: tuple[Callable[..., Tensor], ...] = (F.dropout, torch.dropout)
CHANNEL_DROPOUT: tuple[Callable[..., Tensor], ...] = (F.dropout1d, F.dropout2d, F.dropout3d, torch.feature_dropout)
DROPOUT = frozenset((*ELEMENT_DROPOUT, *CHANNEL_DROPOUT))

# Functions that take a tensor's numbers out of torch's sight: what follows may depend on them.
LOOKS_AT_NUMBERS = frozenset(
    (
        *(Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__complex__, Tensor.__index__, Tensor.__contains__),
        *(Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, Tensor.data_ptr),
        *(torch.equal, Tensor.equal, torch.allclose, Tensor.allclose, torch.is_nonzero, Tensor.is_nonzero),
    )
)

# The same numbers in another shape.
SAME_NUMBERS = frozenset(
    (
        *(torch.flatten, Tensor.flatten, torch.squeeze, Tensor.squeeze, Tensor.view, torch.reshape, Tensor.reshape),
        *(Tensor.contiguous, Tensor.float, Tensor.unsqueeze, torch.unsqueeze),
    )
)


_LAST = 32  # calls that are kept in any case


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a torch function, or of a layer that is watched from outside."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    layer: str | None = None  # the name of the layer

    @property
    def name(self) -> str:
        """The function's name as the user writes it; a property's getter has the property's name."""
        name = getattr(self.function, "__name__", str(self.function))
        if name != "__get__":
            return name
        return getattr(getattr(self.function, "__self__", None), "__name__", name)


class Tracer(TorchFunctionMode):
    """Keeps the calls of torch functions while it is entered. Dropout returns a copy and draws nothing, attention, too.

    instead: functions that run in place of others (default: none).
    keeps: which calls are kept, with their tensors, beside the last few (default: all).
    """

    def __init__(
        self,
        instead: Mapping[Any, Callable[..., Any]] | None = None,
        keeps: Callable[[Call], bool] | None = None,
    ) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.last: deque[Call] = deque(maxlen=_LAST)
        self.numbers = 0  # in the tensors that functions returned; dropout's do not count
        self._instead, self._keeps = instead or {}, keeps
        self._depth = 0  # of watched layers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._depth:
            return func(*args, **kwargs)
        if is_closed(func, args, kwargs):
            with self:
                return opened(args, kwargs)
        before = _without_lists(args), _without_lists(kwargs)  # which may get other entries later
        if func in DROPOUT:
            result = dropout_arguments(*args, **kwargs)[0].clone()
        elif func is ATTENTION:
            result = Attention(*args, **kwargs).without_dropout()
        else:
            result = self._instead.get(func, func)(*args, **kwargs)
        call = Call(func, *before, result)
        self.last.append(call)
        if self._keeps is None or self._keeps(call):
            self.calls.append(call)
        if func not in DROPOUT and isinstance(result, Tensor):
            self.numbers += result.numel()
        return result

    def watch(self, name: str, layer: nn.Module) -> None:
        """Let calls of this very layer count as one call each, whatever it calls inside."""
        forward = layer.forward

        def watched(*args: Any, **kwargs: Any) -> Any:
            before = _without_lists(args), _without_lists(kwargs)
            self._depth += 1
            try:
                result = forward(*args, **kwargs)
            finally:
                self._depth -= 1
            if not self._depth:
                self.calls.append(Call(layer, *before, result, name))
            return result

        layer.forward = watched


def dropout_arguments(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True
) -> tuple[Tensor, float, bool]:
    """Tensor, rate and whether anything is dropped, of a call of dropout, by the names that torch has for them."""
    return input, p, training and train


def tensors_in(tree: Any) -> list[Tensor]:
    """The tensors in tuples, lists and dictionaries, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return []
    return [tensor for part in tree for tensor in tensors_in(part)]


def last_function(calls: Sequence[Call], outputs: Tensor) -> Any:
    """The function that made the numbers of the outputs; views, dropout and the like do not count."""
    wanted, function = outputs, None
    for call in reversed(calls):
        if call.result is not wanted:
            continue
        function = call.function
        if function not in SAME_NUMBERS and function not in DROPOUT:
            break
        wanted = tensors_in((call.args, call.kwargs))[0]
    return function


def _without_lists(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _without_lists(part) for name, part in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_without_lists(part) for part in tree)
    return tree
