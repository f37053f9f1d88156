"""The user's module as a pure function of (theta, x, masks), and theta as one flat vector.

The module itself is never touched: a skeleton of it without storage (on torch's meta device) is called with the
parameters of whichever member is meant. Dropout, wherever it stands in the module's forward, multiplies by a mask
that is given from outside, so that the randomness of training and prediction is ours to name and to repeat.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from wherefrom.files.codec import stored
from wherefrom.training import program, streams
from wherefrom.training.precision import agree
from wherefrom.training.tracing import DROPOUT, ELEMENT_DROPOUT, Call, Tracer, dropout_arguments, last_function

Parameters = dict[str, Tensor]

_GROUP_NUMBERS = 2**19  # activations of one group of members: 2 MB in single precision
_CONVOLVING_TOGETHER = 8  # members at least, where one has fewer
_CALL_NUMBERS, _FEWEST_ROWS = 2**24, 32  # activations of one call in prediction, and rows however many they have
_MOST_RECORDS = 8  # programs for prediction that are kept, with some 10 MB each
_MOST_STACKED = 2**22  # parameters of a network that trains with others: larger ones gain nothing from company

_NORMALISATION = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
_CONVOLUTION = (nn.Conv2d, nn.ConvTranspose2d)

_ATTENTION = {F.scaled_dot_product_attention: 4, F.multi_head_attention_forward: 10}  # where their dropout_p stands


@dataclass(frozen=True)
class Site:
    """One place in the forward pass where units are dropped: its rate, and the shape of one row's mask.

    `unit_by_unit` says how the activations lie in memory there: all rows of one unit together, or all units of a row.
    With a `weight`, the name of a parameter, it is its entries that are dropped, for all rows at once.
    """

    rate: float
    shape: tuple[int, ...]
    unit_by_unit: bool = False
    weight: str | None = None

    @property
    def cells(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def scale(self) -> float:
        """The factor of what survives, 1 / (1 - rate), so that the mean stays."""
        return 1.0 / (1.0 - self.rate)


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
    """Dropout becomes a product with the next given mask, and a linear layer what `_linear` says.

    `x.view(rows, -1)` behind a convolution means any order of memory.
    """

    def __init__(self, masks: Sequence[Tensor], drops: Sequence[bool], shared: Tensor | None = None) -> None:
        super().__init__()
        self.masks, self.drops = iter(masks), iter(drops)
        self.shared = shared  # rows that all members share, as in prediction

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in DROPOUT:
            x, _, _ = dropout_arguments(*args, **kwargs)
            mask = next(self.masks, None) if next(self.drops) else None
            return x if mask is None else x * mask
        if func is F.linear:
            is_shared = (args[0] if args else kwargs["input"]) is self.shared
            return (_linear_on_shared_rows if is_shared else _linear)(*args, **kwargs)
        if func is Tensor.view and args[0].ndim == 4 and not kwargs and not isinstance(args[-1], torch.dtype):
            func = Tensor.reshape
        return func(*args, **kwargs)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b as (W x^T + b)^T, so that the activations lie unit by unit in memory.

    For many small networks at once that is the faster way round: a layer with one output is 3 times as fast, and
    samples that share their rows become one large product. Under vmap, torch's own linear layer would moreover be
    taken apart into four passes over the activations instead of two.
    """
    if input.ndim != 2:
        product = torch.matmul(input, weight.t())
        return product if bias is None else product + bias
    product = torch.matmul(weight, input.t())
    return (product if bias is None else product + bias.unsqueeze(1)).t()


def _linear_on_shared_rows(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear layer with a column of ones for the bias: a pass less, and cheap for few rows and many members."""
    if bias is None or input.ndim != 2:
        return _linear(input, weight, bias)
    ones = input.new_ones(len(input), 1)
    return _linear(torch.cat([input, ones], dim=1), torch.cat([weight, bias.unsqueeze(1)], dim=1))


@stored("Layout")
@dataclass(frozen=True)
class Layout:
    """The position of each tensor of a module in a flat theta.

    First what is trained, then buffers that training moves, then what stays as it was initialised: frozen parameters
    and constant buffers, which belong to a member all the same, but not to its law.
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

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        """Learn the module's tensors, its dropout and its output size from a few rows x."""
        everything = _tensors(module)
        if not any(tensor.requires_grad for tensor in everything.values()):
            raise ValueError("the model has no parameters that require a gradient: there is nothing to train")
        if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in module.parameters()):
            raise ValueError("the model has lazy layers, whose sizes are not known yet; give them their sizes")
        if any(parameter._backward_hooks for parameter in module.parameters()):
            raise ValueError("the model's parameters have gradient hooks, which members trained together cannot run")
        self.momenta = _batch_norm_momenta(module)  # buffer -> momentum, for all running statistics
        seen = _probe(module, x)
        trained = [name for name, tensor in everything.items() if tensor.requires_grad]
        moved = seen.moved | set(self.momenta)  # which rows of zeros would leave as they are
        moving = [name for name in everything if name in moved]
        floating = [name for name, tensor in everything.items() if tensor.is_floating_point()]
        names = [*trained, *moving, *(name for name in floating if name not in {*trained, *moving})]
        shapes = tuple(everything[name].shape for name in names)
        self.layout = Layout(tuple(names), shapes, len(trained), len(moving))
        self.constants = {name: tensor for name, tensor in everything.items() if name not in names}
        self.sites, self.drops = seen.sites, seen.drops  # drops: of every call of dropout, whether it drops anything
        self.outputs, self.numbers_per_row = seen.outputs, seen.numbers_per_row
        self.last_functions = seen.last_functions  # that make its outputs, in prediction and in training
        self.probe_answers = seen.answers  # of the module as it was given, to `probe_rows`
        self.convolves = False  # whether it convolves images, and can take them with their channels last in memory

        self._skeletons = {True: _skeleton(module).train(), False: _skeleton(module).eval()}
        self._private: dict[Any, Network] = {}
        self._at_rates: dict[float, Network] = {}
        self.kept: dict[str, Any] = {}  # what others have prepared for this very network
        self._recorded: dict[Any, tuple[list[Tensor], program.Program]] = {}
        self.description, self.probe_rows = repr(module), x.detach().clone()
        self._check_against(module, x)
        self.convolves = self._takes_channels_last(module, x)
        self.stackable = self._can_be_stacked(module, x)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no more than what it is: what was recorded or prepared belongs to this process."""
        return vars(self) | {"_private": {}, "_recorded": {}, "_at_rates": {}, "kept": {}}

    def __copy__(self) -> Network:
        copied = object.__new__(Network)
        vars(copied).update(vars(self))
        return copied

    def theta(self, module: nn.Module) -> Tensor:
        """A module's own parameters and buffers as one vector."""
        tensors = _tensors(module)
        if (
            not set(self.layout.names) <= set(tensors)
            or tuple(tensors[n].shape for n in self.layout.names) != self.layout.shapes
        ):
            raise ValueError("the model factory returned a network with other tensors than its first one had")
        return self.layout.flatten(tensors)

    def tensors(self, module: nn.Module) -> Parameters:
        """A module's tensors by name, as `call` takes them, not copied."""
        tensors = _tensors(module)
        return {name: tensors[name].detach() for name in self.layout.names}

    def check_draw(self, module: nn.Module) -> None:
        """Another draw of the factory must be the same function of its own weights; it is called as the first one."""
        own = copy.copy(self.private("draws"))
        own.constants = {name: tensor.cpu() for name, tensor in self.constants.items()}
        same = repr(module) == self.description
        if same:
            twin, x = _twin(module).eval(), self.probe_rows
            with torch.no_grad():
                expected, answers = twin(x), own.call(self.tensors(twin), x, (), False)
            same = agree(answers, expected.reshape(answers.shape))
        if not same:
            raise ValueError(
                "the model factory returned another network than its first one, with more drawn than initial weights "
                "(a slope, a dropout rate, a kind of layer?). All draws of theta0 must share one architecture"
            )

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
            _GivenMasks(masks, self.drops, x if shared else None),
        ):
            out = functional_call(self._skeletons[training], (tensors, constants), (x,))
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
        """`call_each` for theta (members, size), recorded when so many members and rows are first asked for.

        autocast: in which the network multiplies, where that is not theta's own type (default: None).

        The memory of what it returns is used again by the next call. Rows with many activations come in turns, of
        which the last repeats some of the one before: for fewer, it would have to be recorded again.
        """
        most = max(_FEWEST_ROWS, _CALL_NUMBERS // (max(1, self.numbers_per_row) * len(theta)))
        turns = -(-len(x) // most)
        rows = -(-len(x) // turns)
        memory, ask = self._asking(theta, x[:rows], masks, autocast)
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
        self, theta: Tensor, x: Tensor, masks: list[Tensor], autocast: torch.dtype | None
    ) -> tuple[list[Tensor], program.Program]:
        """Memory for what is given, and the program that answers it."""
        given = [theta, x, *masks]
        shapes = (*(tensor.shape for tensor in given), *(tensor.dtype for tensor in given), autocast)
        if shapes not in self._recorded:
            if len(self._recorded) >= _MOST_RECORDS:
                self._recorded.clear()
            memory = [tensor.clone() for tensor in given]
            if self.convolves and self._runs_alone(len(theta), len(x)):
                memory[1] = channels_last(memory[1])

            def call(theta: Tensor, x: Tensor, *masks: Tensor) -> Tensor:
                with torch.autocast(theta.device.type, autocast, autocast is not None, cache_enabled=False):
                    return self.call_each(self.layout.views(theta), x, masks).to(theta.dtype)

            ask = program.record(call, tuple(memory), (memory[0], memory[1].flip(0), *memory[2:]), autocast)
            self._recorded[shapes] = memory, ask
        return self._recorded[shapes]

    def _check_against(self, module: nn.Module, x: Tensor) -> None:
        """The function must give the module's own answers, at two thetas: what it does not know of would be garbage."""
        for scale in (1.0, 0.5):
            twin = _twin(module, scale).eval()
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
                "the model does not give the same answers when it is called with its parameters from outside. Does it "
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
                    usual, other = (self._call(self.tensors(_twin(module)), rows, (), training) for rows in (x, last))
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
        if self.layout.trained_size > _MOST_STACKED:
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
            self._at_rates[rate] = changed
        return self._at_rates[rate]

    def with_weight_dropout(self, rate: float) -> Network:
        """Return the network with its weights dropped one by one: those that multiply something, and no others."""
        changed = copy.copy(self)
        changed._private, changed._recorded, changed._at_rates, changed.kept = {}, {}, {}, {}
        trained = list(zip(self.layout.names, self.layout.shapes, strict=True))[: self.layout.trained]
        weights = [Site(rate, tuple(shape), weight=name) for name, shape in trained if self._multiplies(name, shape)]
        changed.sites = (*self.sites, *weights)
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
        self._private, self._recorded, self._at_rates, self.kept = {}, {}, {}, {}
        return self


def _skeleton(module: nn.Module) -> nn.Module:
    """A copy of the module without storage; parameters that are shared within it stay shared."""
    bare: dict[int, Any] = {id(b): b.detach().to("meta") for b in module.buffers()}
    bare |= {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, bare)


def _twin(module: nn.Module, scale: float = 1.0) -> nn.Module:
    """A copy of the module that shares its parameters, or has them and its buffers at some scale.

    What a forward pass writes to is its own: buffers, and embeddings that normalise themselves.
    """

    def copied(tensor: Tensor) -> Tensor:
        return tensor.detach() * scale if tensor.is_floating_point() and scale != 1.0 else tensor.detach().clone()

    normalised = [part for part in module.modules() if getattr(part, "max_norm", None) is not None]
    written = {id(parameter) for part in normalised for parameter in part.parameters()}
    memo: dict[int, Any] = {id(buffer): copied(buffer) for buffer in module.buffers()}
    for p in module.parameters():
        is_shared = scale == 1.0 and id(p) not in written
        memo[id(p)] = p if is_shared else nn.Parameter(copied(p), p.requires_grad)
    return copy.deepcopy(module, memo)


def _tensors(module: nn.Module) -> Parameters:
    return dict(module.named_parameters()) | dict(module.named_buffers())


@dataclass(frozen=True)
class _Seen:
    """Facts about a module that a few rows show."""

    sites: tuple[Site, ...]
    drops: tuple[bool, ...]  # for every call of dropout in a forward pass, whether training drops anything there
    outputs: int
    numbers_per_row: int
    moved: set[str]  # floating-point buffers that a training pass changes
    last_functions: frozenset[Any]
    answers: Tensor  # (rows, outputs)


def _probe(module: nn.Module, x: Tensor) -> _Seen:
    """Run a copy of the module on a few rows, in prediction and in training."""
    given, twin = x.clone(), _twin(module)
    before = dict(module.named_buffers())
    answers, calls = [], []
    with torch.no_grad(), streams.torch_seeded(0, "probe"):
        state = torch.get_rng_state()
        for training in (False, False, True):  # training last: it may move buffers
            twin.train(training)
            with Tracer({F.linear: _linear}) as tracer:
                answers.append(twin(given))
            calls.append(tracer.calls)
        drew = not torch.equal(state, torch.get_rng_state())
    outputs, predicting, in_training = answers[0], calls[1], calls[2]
    if not torch.equal(given, x):
        raise ValueError("the model changes its input in place; let it work on a copy")
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != len(x):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"the model must return a tensor of shape (rows, outputs); it returned {shape}")
    if drew or not torch.allclose(outputs, answers[1], equal_nan=True):
        raise ValueError(_why_random(in_training))
    sites = _sites(in_training, len(x))
    if [site.shape for site, _ in _sites(predicting, len(x))] != [site.shape for site, _ in sites]:
        raise ValueError(
            "the model calls dropout in training mode only (`if self.training: ...`). Call it always, as nn.Dropout "
            "does: then its masks can also be drawn in prediction"
        )
    changed = {name for name, buffer in twin.named_buffers() if not torch.equal(buffer, before[name])}
    for name in changed:
        if not before[name].is_floating_point() and not name.endswith("num_batches_tracked"):
            raise ValueError(f"the model counts in its buffer {name!r}, which members trained together cannot")
    made = [call.result for call in in_training if call.function not in DROPOUT and isinstance(call.result, Tensor)]
    flat = outputs.reshape(len(x), -1)
    return _Seen(
        tuple(site for site, drops in sites if drops),
        tuple(drops for _, drops in sites),
        flat.shape[1],
        -(-sum(tensor.numel() for tensor in made) // len(x)),
        {name for name in changed if before[name].is_floating_point()},
        frozenset(last_function(own, answer) for own, answer in zip(calls[1:], answers[1:], strict=True)),
        flat,
    )


def _sites(calls: Sequence[Call], rows: int) -> list[tuple[Site, bool]]:
    """Every call of dropout, and whether it is to drop anything."""
    sites = []
    for call in calls:
        if call.function not in DROPOUT:
            continue
        x, rate, drops = dropout_arguments(*call.args, **call.kwargs)
        if x.ndim < 2 or x.shape[0] != rows:
            raise ValueError(
                f"dropout on a tensor of shape {tuple(x.shape)}: its first dimension must be the rows of the "
                f"batch (here {rows}), so that every row can have its own mask"
            )
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate must lie in [0, 1); the model has one of {rate}")
        shape = x.shape[1:] if call.function in ELEMENT_DROPOUT else (x.shape[1], *(1 for _ in x.shape[2:]))
        sites.append((Site(float(rate), tuple(shape), x.ndim == 2 and x.stride(0) < x.stride(1)), drops))
    return sites


def _why_random(calls: Sequence[Call]) -> str:
    """Return the reason why random numbers of a forward cannot be repeated, as far as its calls show it."""
    for call in calls:
        if call.function not in _ATTENTION:
            continue
        place = _ATTENTION[call.function]
        rate = call.kwargs.get("dropout_p", call.args[place] if len(call.args) > place else 0.0)
        if rate > 0:
            return (
                f"the model's attention drops units inside {call.name} (dropout_p={rate:g}), where masks can be "
                "neither given nor repeated. Set its dropout to zero: nn.MultiheadAttention(..., dropout=0.0); in "
                "transformers attention_probs_dropout_prob=0.0 (or attention_dropout=0.0), or "
                'attn_implementation="eager", which drops by nn.functional.dropout'
            )
    return (
        "the model's forward draws random numbers of its own, as do recurrent layers with a dropout setting. Only the "
        "randomness of nn.Dropout, nn.Dropout2d and their kin can be named and repeated"
    )


def _batch_norm_momenta(module: nn.Module) -> dict[str, float]:
    momenta: dict[str, float] = {}
    for name, part in module.named_modules():
        if not getattr(part, "track_running_stats", False) or getattr(part, "running_mean", None) is None:
            continue
        if not part.momentum:
            why = "counts its own batches" if part.momentum is None else "never learns its statistics"
            raise ValueError(f"{name}: normalisation with momentum={part.momentum} {why}; give it a number above zero")
        prefix = f"{name}." if name else ""
        momenta |= {f"{prefix}{buffer}": float(part.momentum) for buffer in ("running_mean", "running_var")}
    return momenta
