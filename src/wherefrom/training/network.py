"""The user's module as a pure function of (theta, x, masks), and theta as one flat vector.

The module itself is never touched: a skeleton of it without storage (on torch's meta device) is called with the
parameters of whichever member is meant. Dropout, wherever it stands in the module's forward, multiplies by a mask
that is given from outside, so that the randomness of training and prediction is ours to name and to repeat.
"""

from __future__ import annotations

import copy
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from wherefrom.files.codec import stored
from wherefrom.training import front as front_part
from wherefrom.training import probing, program
from wherefrom.training.attention import ATTENTION, Attention, is_closed, opened
from wherefrom.training.precision import agree
from wherefrom.training.probing import Parameters, Site
from wherefrom.training.tracing import DROPOUT, dropout_arguments

_GROUP_NUMBERS = 2**19  # activations of one group of members: 2 MB in single precision
_CONVOLVING_TOGETHER = 8  # members at least, where one has fewer
_CALL_NUMBERS, _FEWEST_ROWS = 2**24, 32  # activations of one call in prediction, and rows however many they have
_MOST_RECORDS = 8  # programs for prediction that are kept, with some 10 MB each
_MOST_SHAPES = 1000  # of which it is known how often they were asked for
_CALLS_OF_A_RECORD = 8  # recording a program takes about as long as this many calls
_MOST_STACKED = 2**22  # parameters of a network that trains with others: larger ones gain nothing from company

_NORMALISATION = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
_CONVOLUTION = (nn.Conv2d, nn.ConvTranspose2d)


def channels_last(images: Tensor) -> Tensor:
    """Return images with each pixel's channels side by side in memory.  # (..., channels, height, width)

    Torch convolves the images of one network faster in that order, and keeps it from layer to layer.
    """
    if images.stride(-3) == 1:
        return images
    return images.movedim(-3, -1).clone(memory_format=torch.contiguous_format).movedim(-1, -3)


def making_tensors_on(device: torch.device) -> AbstractContextManager[Any]:
    """Let `torch.ones(3)` in a forward mean the device of its rows."""
    return nullcontext() if device.type == "cpu" else device


class _GivenMasks(TorchFunctionMode):
    """Dropout becomes a product with the next given mask, and a linear layer what `probing.linear` says.

    Attention multiplies its weights by the mask. `x.view(rows, -1)` behind a convolution means any order of memory.
    """

    def __init__(
        self, masks: Sequence[Tensor], drops: Sequence[bool], attends: Sequence[bool], shared: Tensor | None = None
    ) -> None:
        super().__init__()
        self.masks, self.drops, self.attends = iter(masks), iter(drops), iter(attends)
        self.shared = shared  # rows that all members share, as in prediction

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in DROPOUT:
            x, _, _ = dropout_arguments(*args, **kwargs)
            mask = next(self.masks, None) if next(self.drops) else None
            return x if mask is None else _dropped(x, mask)
        if is_closed(func, args, kwargs):
            with self:
                return opened(args, kwargs)
        if func is ATTENTION:
            attention, mask = Attention(*args, **kwargs), next(self.masks, None) if next(self.attends) else None
            return attention.without_dropout() if mask is None else attention.masked(mask)
        if func is F.linear:
            is_shared = (args[0] if args else kwargs["input"]) is self.shared
            return (_linear_on_shared_rows if is_shared else probing.linear)(*args, **kwargs)
        if func is Tensor.view and args[0].ndim == 4 and not kwargs and not isinstance(args[-1], torch.dtype):
            func = Tensor.reshape
        return func(*args, **kwargs)


def _dropped(x: Tensor, mask: Tensor) -> Tensor:
    """Return x times a mask, which has one dimension more where the model has folded one into its rows."""
    if mask.ndim <= x.ndim:
        return x * mask
    return (x.unflatten(0, (-1, mask.shape[1])) * mask).flatten(0, 1)


def _linear_on_shared_rows(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear layer with a column of ones for the bias: a pass less, and cheap for few rows and many members."""
    if bias is None or input.ndim != 2:
        return probing.linear(input, weight, bias)
    ones = input.new_ones(len(input), 1)
    return probing.linear(torch.cat([input, ones], dim=1), torch.cat([weight, bias.unsqueeze(1)], dim=1))


@stored("Layout")
@dataclass(frozen=True)
class Layout:
    """The position of each tensor of a module in a flat theta.

    First what is trained, then buffers that training moves, then what stays as it was initialised and differs from
    member to member: frozen parameters and constant buffers that the factory draws anew, which no law speaks of. What
    all members have in common is not in theta: `Network.shared`.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    trained: int  # how many of the entries the optimiser moves
    moving: int  # how many of those after them the forward pass moves

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def trained_size(self) -> int:
        return sum(self.sizes[: self.trained])

    @property
    def varying_size(self) -> int:
        return sum(self.sizes[: self.trained + self.moving])

    @property
    def kinds(self) -> tuple[frozenset[str], ...]:
        """The names of what is trained, of what moves, and of the rest."""
        ends = (0, self.trained, self.trained + self.moving, len(self.names))
        return tuple(frozenset(self.names[first:last]) for first, last in pairwise(ends))

    def views(self, theta: Tensor) -> Parameters:
        """The tensors inside theta, sharing its memory, with theta's leading dimensions kept."""
        pieces = theta.split(self.sizes, dim=-1)
        return {
            name: piece.unflatten(-1, shape) if shape else piece.squeeze(-1)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }

    def flatten(self, tensors: Parameters) -> Tensor:
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])


class Network:
    """A module as a function `outputs = network(views, x, masks)`, for one member or, by vmap, for many."""

    def __init__(self, module: nn.Module, x: Tensor, shared: Collection[str] = ()) -> None:
        """Learn the module's tensors, its dropout and its output size from a few rows x.

        shared: names of tensors that all members have in common, unless they are trained or moved (default: none).
        """
        everything = probing.tensors_of(module)
        if not any(tensor.requires_grad for tensor in everything.values()):
            raise ValueError("the model has no parameters that require a gradient: there is nothing to train")
        if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in module.parameters()):
            raise ValueError("the model has lazy layers, whose sizes are not known yet; give them their sizes")
        if any(parameter._backward_hooks for parameter in module.parameters()):
            raise ValueError("the model's parameters have gradient hooks, which members trained together cannot run")
        training = probing.in_mode(probing.skeleton(module), module, training=True)
        self.momenta = probing.batch_norm_momenta(training)  # buffer -> momentum, for all running statistics that move
        seen = probing.probe(module, x)
        trained = [name for name, tensor in everything.items() if tensor.requires_grad]
        moved = seen.moved | set(self.momenta)  # which rows of zeros would leave as they are
        moving = [name for name in everything if name in moved]
        floating = [name for name, tensor in everything.items() if tensor.is_floating_point()]
        still = [name for name in floating if name not in {*trained, *moving}]
        common = {name for name in still if name in set(shared)}
        names = [*trained, *moving, *(name for name in still if name not in common)]
        shapes = tuple(everything[name].shape for name in names)
        self.layout = Layout(tuple(names), shapes, len(trained), len(moving))
        self.shared = {name: everything[name].detach().clone() for name in still if name in common}  # by all members
        self.constants = {name: tensor for name, tensor in everything.items() if name not in {*names, *common}}
        self.sites, self.drops = seen.sites, seen.drops  # drops: of every call of dropout, whether it drops anything
        self.attends = seen.attends  # the same, of every call of attention
        self.outputs, self.numbers_per_row = seen.outputs, seen.numbers_per_row
        self.last_functions = seen.last_functions  # that make its outputs, in prediction and in training
        self.probe_answers = seen.answers  # of the module as it was given, to `probe_rows`
        self.convolves = False  # whether it convolves images, and can take them with their channels last in memory

        self._skeletons = {True: training, False: probing.skeleton(module).eval()}
        self._private: dict[Any, Network] = {}
        self._at_rates: dict[float, Network] = {}
        self._compared: dict[str, tuple[Callable[[], Any], int]] = {}  # tensors of the last draw, and their versions
        self._front_layers: dict[str, tuple[weakref.ref[nn.Module], Any]] = {}  # of this module, and what they return
        self.kept: dict[str, Any] = {}  # what others have prepared for this very network
        self._recorded: dict[Any, tuple[list[Tensor], program.Program] | int] = {}  # or how often it was called
        self.description, self.probe_rows = repr(module), x.detach().clone()
        untouched = copy.deepcopy(self._skeletons)  # a forward may leave tensors of these trials in its module
        self._check_against(module, x)
        self.convolves = self._takes_channels_last(module, x)
        self.stackable = self._can_be_stacked(module, x)
        self._skeletons = untouched
        self.not_followed = ""  # why a frozen part in front cannot be told from the rest, if it cannot
        self._front, self.head = self._divided(module, x)  # what is frozen and comes first, and what takes its features

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no more than what it is: what was recorded or prepared belongs to this process."""
        for_this_process = ("_private", "_recorded", "_at_rates", "_compared", "_front_layers", "kept")
        return vars(self) | {name: {} for name in for_this_process}

    def __copy__(self) -> Network:
        copied = object.__new__(Network)
        vars(copied).update(vars(self))
        return copied

    def theta(self, module: nn.Module) -> Tensor:
        """A module's own parameters and buffers as one vector."""
        tensors = probing.tensors_of(module)
        if (
            not set(self.layout.names) <= set(tensors)
            or tuple(tensors[n].shape for n in self.layout.names) != self.layout.shapes
        ):
            raise ValueError("the model factory returned a network with other tensors than its first one had")
        return self.layout.flatten(tensors)

    @property
    def in_common(self) -> Parameters:
        """Return the tensors that are the same in all members: constant buffers, and parameters that they share."""
        return self.constants | self.shared

    def tensors(self, module: nn.Module) -> Parameters:
        """A module's tensors by name, as `call` takes them, not copied."""
        tensors = probing.tensors_of(module)
        return {name: tensors[name].detach() for name in self.layout.names}

    def check_draw(self, module: nn.Module) -> None:
        """Another draw of the factory must be the same function of its own weights; it is called as the first one."""
        same = repr(module) == self.description
        if same and not self.shared and probing.is_stack(module) and probing.is_stack(self.skeleton(training=True)):
            return
        first = self._for_draws()
        if same:
            self._check_shared(probing.tensors_of(module), first.shared)
            part, x, seen = first, self.probe_rows, self.probe_rows
            if first.head is not None:  # the frozen part has been compared: one row will do
                part, x, seen = first.head.private("draws"), x[:1], first.head.probe_rows[:1]
            twin = probing.twin(module, stand_ins=self._of_the_first(module)).eval()
            with torch.no_grad():
                expected, answers = twin(x), part.call(self.tensors(twin), seen, (), False)
            same = agree(answers, expected.reshape(answers.shape))
        if not same:
            raise ValueError(
                "the model factory returned another network than its first one, with more drawn than initial weights "
                "(a slope, a dropout rate, a kind of layer?). All draws of theta0 must share one architecture"
            )

    def _for_draws(self) -> Network:
        """Return the network on the CPU, where draws are compared with it; the same object for all of them."""
        private = self.private("draws")
        if "for draws" not in private.kept:
            private.kept["for draws"] = copy.copy(private).to(torch.device("cpu"))
        network: Network = private.kept["for draws"]
        return network

    def _of_the_first(self, module: nn.Module) -> dict[int, nn.Module]:
        """Return what stands in for the frozen layers that a draw has from the first one, and that need not be run."""
        layers = {name: module.get_submodule(name) for name in self._front_layers}
        standing = Counter(id(part) for _, part in module.named_modules(remove_duplicate=False))
        layers = {name: layer for name, layer in layers.items() if standing[id(layer)] == 1}  # others run later, too
        with_outputs = [(layer, *self._front_layers[name]) for name, layer in layers.items()]
        return {id(layer): front_part.Returning(out) for layer, first, out in with_outputs if first() is layer}

    def _check_shared(self, tensors: Parameters, shared: Parameters) -> None:
        """Raise if a draw has other numbers in what all share; one that is the very same tensor is compared once."""
        for name, expected in shared.items():
            tensor = tensors[name]
            before, version = self._compared.get(name, (lambda: None, 0))
            if before() is not tensor or version != tensor._version:
                if not torch.equal(tensor, expected):
                    raise ValueError(
                        f"{name} is frozen, but has other numbers than in the first draws of the model factory, which "
                        "all members share: load the same numbers in each call of the factory"
                    )
                self._compared[name] = weakref.ref(tensor), tensor._version

    def call(self, tensors: Parameters, x: Tensor, masks: Sequence[Tensor], training: bool) -> Tensor:
        """Outputs of one member. x: (rows, ...), masks: one for each site, -> (rows, outputs)"""
        return self._call(tensors, channels_last(x) if self.convolves else x, masks, training)

    def _call(
        self, tensors: Parameters, x: Tensor, masks: Sequence[Tensor], training: bool, shared: bool = False
    ) -> Tensor:
        constants = {name: tensor.clone() for name, tensor in self.constants.items()}
        dropped = {
            site.weight: tensors[site.weight] * mask.squeeze(0)
            for site, mask in zip(self.sites, masks, strict=False)
            if site.weight
        }
        tensors = tensors | dropped if dropped else tensors
        with (
            making_tensors_on(x.device),
            _GivenMasks(masks, self.drops, self.attends, x if shared else None),
        ):
            out = functional_call(self._skeletons[training], (tensors, constants, self.shared), (x,))
        return out.reshape(len(x), self.outputs)

    def skeleton(self, training: bool) -> nn.Module:
        """The module without storage, in one of its two modes."""
        return self._skeletons[training]

    def call_many(self, tensors: Parameters, x: Tensor, masks: Sequence[Tensor], training: bool) -> Tensor:
        """Outputs of many members, each with its own rows.  # (members, rows, outputs)"""
        if x.shape[0] == 1:  # one at a time: no vmap, so any forward will do
            one = self.call({n: t[0] for n, t in tensors.items()}, x[0], [m[0] for m in masks], training)
            return one.unsqueeze(0)
        return vmap(lambda p, rows, m: self._call(p, rows, m, training))(tensors, x, list(masks))

    def largest_group(self, batch_size: int) -> int:
        """Return the number of members to train as one program: those whose activations a core's cache holds.

        Beyond it memory sets the pace. Many networks' convolutions are one convolution in groups, which saves the
        time to issue it for each, but multiplies more slowly: large ones run best alone.
        """
        numbers = max(1, self.numbers_per_row * batch_size)
        if self.trains_alone(batch_size):
            return 1
        return max(_CONVOLVING_TOGETHER if self.convolves else 1, _GROUP_NUMBERS // numbers)

    def trains_alone(self, batch_size: int) -> bool:
        """Return True if members train one after another, on whatever device."""
        return not self.stackable or (self.convolves and self.numbers_per_row * batch_size > _GROUP_NUMBERS)

    def call_each(self, tensors: Parameters, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """Outputs of many members on the same rows, as in prediction.  # (members, rows, outputs)"""
        count = len(next(iter(tensors.values())))
        mixes = bool(self.momenta) and torch.is_autocast_enabled(x.device.type)  # statistics are not rounded: no vmap
        if mixes or self._runs_alone(count, len(x)):
            each = ({name: t[i] for name, t in tensors.items()} for i in range(count))
            return torch.stack([self.call(p, x, [m[i] for m in masks], False) for i, p in enumerate(each)])
        return vmap(lambda p, m: self._call(p, x, m, False, shared=True))(tensors, list(masks))

    def _runs_alone(self, members: int, rows: int) -> bool:
        """Return True if members answer the same rows one after another, and not as one program."""
        return not self.stackable or (self.convolves and (members == 1 or self.largest_group(rows) == 1))

    def answers(self, theta: Tensor, x: Tensor, masks: list[Tensor], autocast: torch.dtype | None = None) -> Tensor:
        """`call_each` for theta (members, size), recorded when these numbers of members and rows are asked for often.

        autocast: in which the network multiplies, where that is not theta's own type (default: None).

        The memory of what it returns is used again by the next call. Rows with many activations come in turns, of
        which the last repeats some of the one before: for fewer, it would have to be recorded again.
        """
        most = max(_FEWEST_ROWS, _CALL_NUMBERS // (max(1, self.numbers_per_row) * len(theta)))
        turns = -(-len(x) // most)
        rows = -(-len(x) // turns)
        memory, ask = self._asking(theta, x[:rows], masks, autocast, turns)
        for kept, new in zip(memory, [theta, x[:rows], *masks], strict=True):
            kept.copy_(new)
        first = ask()
        if turns == 1:
            return first
        answers = first.new_empty(len(theta), len(x), self.outputs)
        answers[:, :rows] = first
        for start in range(rows, len(x), rows):
            own = slice(min(start, len(x) - rows), start + rows)
            memory[1].copy_(x[own])
            answers[:, own] = ask()
        return answers

    def _asking(
        self, theta: Tensor, x: Tensor, masks: list[Tensor], autocast: torch.dtype | None, turns: int
    ) -> tuple[list[Tensor], program.Program]:
        """Memory for what is given, and the program that answers it.

        On a CPU, a replay is the same operations on the same numbers, so that a record can wait until it pays.
        Elsewhere its last bits may differ from those of a call, and the first call is recorded.
        """
        given = [theta, x, *masks]
        shapes = (*(tensor.shape for tensor in given), *(tensor.dtype for tensor in given), autocast)
        before = self._recorded.get(shapes, 0)
        if not isinstance(before, int):
            return before
        memory = [tensor.clone() for tensor in given]
        if self.convolves and self._runs_alone(len(theta), len(x)):
            memory[1] = channels_last(memory[1])

        def call(theta: Tensor, x: Tensor, *masks: Tensor) -> Tensor:
            with torch.autocast(theta.device.type, autocast, autocast is not None, cache_enabled=False):
                return self.call_each(self.layout.views(theta), x, masks).to(theta.dtype)

        if len(self._recorded) >= _MOST_SHAPES:
            self._recorded.clear()
        if theta.device.type == "cpu" and before + turns <= _CALLS_OF_A_RECORD:
            self._recorded[shapes] = before + turns
            return memory, program.called(call, tuple(memory))
        if sum(not isinstance(each, int) for each in self._recorded.values()) >= _MOST_RECORDS:
            self._recorded.clear()
        ask = program.record(call, tuple(memory), (memory[0], memory[1].flip(0), *memory[2:]), autocast)
        self._recorded[shapes] = memory, ask
        return memory, ask

    def _check_against(self, module: nn.Module, x: Tensor) -> None:
        """The function must give the module's own answers, at two thetas: what it does not know of would be garbage."""
        for scale in (1.0, 0.5):
            twin = probing.twin(module, scale, self.shared).eval()
            with torch.no_grad():
                try:
                    expected = twin(x)
                except Exception:  # such numbers may be none that it can take, as under a logarithm or a Cholesky
                    if scale == 1.0:
                        raise
                    return
                answers = self.call(self.tensors(twin), x, (), False)
            expected = expected.reshape(answers.shape)
            if not answers.is_meta and agree(answers, expected):
                continue
            raise ValueError(
                "the model does not give the same outputs when it is called with its parameters from outside. Does it "
                "keep tensors that are neither nn.Parameter nor registered buffers, cache what it computed, or drop "
                "units although it is not training?"
            )

    def _takes_channels_last(self, module: nn.Module, x: Tensor) -> bool:
        """Return True if images may have their channels last in memory: a forward could ask for their order."""
        if x.ndim != 4 or not any(isinstance(part, _CONVOLUTION) for part in module.modules()):
            return False
        last = channels_last(x)
        try:
            with torch.no_grad():
                for training in (False, True):
                    usual, other = (
                        self._call(self.tensors(probing.twin(module)), rows, (), training) for rows in (x, last)
                    )
                    if not agree(usual, other):
                        return False
        except RuntimeError:
            return False
        return True

    def _can_be_stacked(self, module: nn.Module, x: Tensor) -> bool:
        """Return True if vmap gives every member its own outputs and gradients.

        One that looks at its numbers (`if x.sum() > 0`), that has an operation which vmap would do member by member,
        with a warning, or one for which its rule is wrong (an embedding's padding row), trains one at a time. So does a
        large one, whose time goes into its own products.
        """
        if self.layout.trained_size > _MOST_STACKED or (self.convolves and self.numbers_per_row > _GROUP_NUMBERS):
            return False
        first = self.theta(module)
        twins = torch.stack([first, 0.5 * first])
        rows = torch.stack([x, x.flip(0)])
        try:
            alone = [self._slopes(twins[k : k + 1], rows[k : k + 1])[0] for k in range(2)]
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="There is a performance drop")
                together = self._slopes(twins, rows)
        except (RuntimeError, UserWarning):
            return False
        return agree(torch.stack(alone), together)

    def _slopes(self, theta: Tensor, x: Tensor) -> Tensor:
        """Some gradient of each member's training outputs.  # (members, trained size)"""
        tensors = self.layout.views(theta)
        weights = {name: tensors[name].clone().requires_grad_() for name in self.layout.names[: self.layout.trained]}
        others = {name: tensors[name].clone() for name in self.layout.names[self.layout.trained :]}
        with torch.enable_grad():
            total = (self.call_many(weights | others, x, (), True) + 1).square().sum()
            slopes = torch.autograd.grad(total, list(weights.values()), materialize_grads=True)
        return torch.cat([slope.reshape(len(theta), -1) for slope in slopes], dim=1)

    def features(self, x: Any, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
        """Return what the head takes in place of x, in main memory; large ones are in a file.  # (rows, ...)

        x: rows, or what reads them. dtype, device: in which and on which they are computed (default: those of x).
        """
        assert self._front is not None
        front = self.private("features")._front
        assert front is not None
        names = probing.tensors_of(front)
        tensors = {name: tensor for name, tensor in self.in_common.items() if name in names}

        def prepared(some: Any) -> Tensor:
            rows = some.read() if hasattr(some, "read") else some
            rows = rows.to(device or rows.device, dtype if rows.is_floating_point() else None)
            return channels_last(rows) if self.convolves else rows

        def called(rows: Tensor) -> Tensor:
            with torch.no_grad(), making_tensors_on(rows.device):
                result: Tensor = functional_call(front, tensors, (rows,))
                return result

        rows_at_once = max(_FEWEST_ROWS, _CALL_NUMBERS // max(1, self.numbers_per_row))
        return front_part.features(called, x, rows_at_once, prepared)

    def _divided(self, module: nn.Module, x: Tensor) -> tuple[nn.Module | None, Network | None]:
        """Return the frozen part that comes first, and the rest as a network of the same theta; or neither."""
        if not self.shared:
            return None, None
        twin = probing.in_mode(probing.twin(module), module, training=True)
        try:
            parts = front_part.divided(twin, x, self.layout.names, list(self.shared))
        except front_part.NotFollowedError as error:
            self.not_followed = str(error)
            return None, None
        if parts is None:
            return None, None
        front, head = parts
        with torch.no_grad():
            features = front(x)
            is_of_rows = isinstance(features, Tensor) and features.ndim > 1 and len(features) == len(x)
            if not is_of_rows or not agree(front(x[:1]), features[:1]):
                return None, None
        try:
            rest = Network(head, features, list(self.shared))
        except (ValueError, RuntimeError):  # as if features were changed in place
            return None, None
        has_the_same = rest.layout.kinds == self.layout.kinds and len(rest.sites) == len(self.sites)
        rest.layout = self.layout
        rest.numbers_per_row += features[0].numel()  # which are no activations of it, but take the same memory
        for training in (False, True) if has_the_same else ():
            whole = self.call(self.tensors(probing.twin(module)), x, (), training)
            has_the_same &= agree(rest.call(self.tensors(probing.twin(module)), features, (), training), whole)
        if not has_the_same:
            return None, None
        outputs = front_part.outputs_of_layers(front, x[:1])
        self._front_layers = {name: (weakref.ref(module.get_submodule(name)), out) for name, out in outputs.items()}
        return probing.skeleton(front), rest

    @property
    def runs_frozen_part_in_every_step(self) -> bool:
        """Return True if frozen parameters stand before what is trained, and the forward hides that they come first."""
        order = [name for name, _ in self._skeletons[True].named_parameters()]
        trained = self.layout.kinds[0]
        first = next((k for k, name in enumerate(order) if name in trained), 0)
        is_in_front = all(name in self.shared for name in order[:first])
        return bool(self.not_followed) and first > 0 and is_in_front and trained >= set(order[first:])

    def private(self, worker: Any) -> Network:
        """Return a copy of the network for one of several threads.

        Calling a module sets and unsets its parameters, and a recorded program has its memory. Each worker of each
        thread gets the same copy again.
        """
        key = (threading.get_ident(), worker)
        if key not in self._private:
            alive = {thread.ident for thread in threading.enumerate()}
            for other in [other for other in list(self._private) if other[0] not in alive]:
                self._private.pop(other, None)
            own = copy.copy(self)
            own._skeletons, own._recorded, own.kept = copy.deepcopy(self._skeletons), {}, {}
            own._front = copy.deepcopy(self._front)
            self._private[key] = own
        return self._private[key]

    def with_dropout_rate(self, rate: float) -> Network:
        """Return the network with every dropout site at another rate; for one rate, always the same object."""
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate must lie in [0, 1); one of {rate} was drawn")
        if rate not in self._at_rates:
            changed = copy.copy(self)
            changed._private, changed._recorded, changed._at_rates, changed.kept = {}, {}, {}, {}
            changed.sites = tuple(site if site.weight else replace(site, rate=rate) for site in self.sites)
            changed.head = self.head and self.head.with_dropout_rate(rate)
            self._at_rates[rate] = changed
        return self._at_rates[rate]

    def with_weight_dropout(self, rate: float) -> Network:
        """Return the network with its weights dropped one by one: those that multiply something, and no others."""
        changed = copy.copy(self)
        changed._private, changed._recorded, changed._at_rates, changed.kept = {}, {}, {}, {}
        trained = list(zip(self.layout.names, self.layout.shapes, strict=True))[: self.layout.trained]
        weights = [Site(rate, tuple(shape), weight=name) for name, shape in trained if self._multiplies(name, shape)]
        changed.sites = (*self.sites, *weights)
        changed.head = self.head and self.head.with_weight_dropout(rate)
        return changed

    def _multiplies(self, name: str, shape: torch.Size) -> bool:
        """Return True if a parameter is a weight of connections, and not a bias or a scale of normalisation."""
        owner, _, own_name = name.rpartition(".")
        return (
            len(shape) > 1
            and own_name != "bias"
            and not isinstance(self._skeletons[False].get_submodule(owner), _NORMALISATION)
        )

    @property
    def rates(self) -> tuple[float, ...]:
        """The dropout rate at every site."""
        return tuple(site.rate for site in self.sites)

    def to(self, device: torch.device) -> Network:
        self.constants = {name: buffer.to(device) for name, buffer in self.constants.items()}
        self.shared = {name: tensor.to(device) for name, tensor in self.shared.items()}
        self._private, self._recorded, self._at_rates, self.kept = {}, {}, {}, {}
        self.head = self.head and copy.copy(self.head).to(device)
        return self

    def with_shared(self, tensors: Parameters) -> Network:
        """Return the network with other numbers in what all members share."""
        changed = copy.copy(self)
        changed._private, changed._recorded, changed._at_rates, changed.kept = {}, {}, {}, {}
        changed.shared = {name: tensors[name].to(tensor, copy=True) for name, tensor in self.shared.items()}
        changed.head = self.head and self.head.with_shared(tensors)
        return changed
