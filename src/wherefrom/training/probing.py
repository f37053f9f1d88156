"""Copies of a user's module, and what a few rows show of it: its outputs, where it drops units, what it writes to."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wherefrom.training import stochastic_depth, streams
from wherefrom.training.attention import ATTENTION, Attention
from wherefrom.training.precision import agree
from wherefrom.training.tracing import DROPOUT, ELEMENT_DROPOUT, Call, Tracer, dropout_arguments, last_function

Parameters = dict[str, Tensor]

_DROPPING = DROPOUT | {ATTENTION, F.multi_head_attention_forward}
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_DRAWS = frozenset(
    (
        *("bernoulli", "bernoulli_", "rand", "rand_like", "uniform_", "randn", "randn_like", "normal", "normal_"),
        *("randint", "randint_like", "randperm", "random_", "multinomial", "poisson", "exponential_", "rrelu"),
    )
)
_LAYERS = {nn.Linear, nn.Dropout, nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.SiLU, nn.GELU, nn.Softplus, nn.Identity}
_RATE = 10  # where dropout_p stands among the arguments of nn.functional.multi_head_attention_forward


@dataclass(frozen=True)
class Site:
    """One place in the forward pass where units are dropped: its rate, and the shape of one row's mask.

    Where the model has folded a dimension into the rows, as some do with the heads of attention, that is the first of
    the mask's.
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


def is_stack(module: nn.Module) -> bool:
    """Return True if a module is a sequence of torch's own layers, so that repr says all of it but its weights."""
    layers = list(module.children())
    is_plain = type(module) is nn.Sequential and all(type(layer) in _LAYERS for layer in layers)
    return is_plain and not any(has_hooks(each) or "forward" in vars(each) for each in (module, *layers))


def has_hooks(module: nn.Module) -> bool:
    """Return True if something else is called before or after the module."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind, None) for kind in kinds)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
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


def untrained_in_common(module: nn.Module, other: nn.Module) -> set[str]:
    """Return the names of tensors that are the same in two draws of a model, and not trained."""
    tensors, others = tensors_of(module), tensors_of(other)
    still = {name: tensor for name, tensor in tensors.items() if not tensor.requires_grad}
    return {name for name, tensor in still.items() if name in others and torch.equal(tensor, others[name])}


def skeleton(module: nn.Module) -> nn.Module:
    """A copy of the module without storage; parameters that are shared within it stay shared."""
    bare: dict[int, Any] = {id(b): b.detach().to("meta") for b in module.buffers()}
    bare |= {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, bare | stochastic_depth.stand_ins(module.modules()))


def in_mode(copied: nn.Module, module: nn.Module, training: bool) -> nn.Module:
    """Put a copy of a module into training or prediction mode, in place, and return it.

    A frozen part that the module itself has in prediction mode stays so in training, as users of pretrained networks
    want it: batch normalisation keeps its statistics there, and nothing is dropped.
    """
    copied.train(training)
    if training:
        _keep_frozen_modes(copied, module)
    return copied


def _keep_frozen_modes(copied: nn.Module, module: nn.Module) -> None:
    """Restore the modes of the largest parts that are in prediction mode, and whose parameters are all frozen."""
    needs = [parameter.requires_grad for parameter in module.parameters()]
    if needs and not any(needs) and not module.training:
        for part, original in zip(copied.modules(), module.modules(), strict=True):
            part.training = original.training
        return
    for child, original in zip(copied.children(), module.children(), strict=True):
        _keep_frozen_modes(child, original)


def twin(
    module: nn.Module,
    scale: float = 1.0,
    unscaled: Collection[str] = (),
    stand_ins: Mapping[int, nn.Module] = MappingProxyType({}),
) -> nn.Module:
    """A copy of the module that shares its parameters, or has them and its buffers at some scale.

    What a forward pass writes to is its own: buffers, and embeddings that normalise themselves. `unscaled` are the
    names of tensors that stay as they are, `stand_ins` layers for others, by their identity.
    """

    stay = {id(tensor) for name, tensor in tensors_of(module).items() if name in unscaled} if unscaled else set()

    def copied(tensor: Tensor) -> Tensor:
        is_scaled = tensor.is_floating_point() and scale != 1.0 and id(tensor) not in stay
        return tensor.detach() * scale if is_scaled else tensor.detach().clone()

    parts = list(_outside(module, stand_ins))
    normalised = [part for part in parts if getattr(part, "max_norm", None) is not None]
    written = {id(parameter) for part in normalised for parameter in part.parameters()}
    buffers = [buffer for part in parts for buffer in part.buffers(recurse=False)]
    memo: dict[int, Any] = {id(buffer): copied(buffer) for buffer in buffers}
    memo |= stochastic_depth.stand_ins(parts) | dict(stand_ins)
    for p in (parameter for part in parts for parameter in part.parameters(recurse=False)):
        is_shared = (scale == 1.0 or id(p) in stay) and id(p) not in written
        memo[id(p)] = p if is_shared else nn.Parameter(copied(p), p.requires_grad)
    return copy.deepcopy(module, memo)


def _outside(module: nn.Module, stand_ins: Mapping[int, nn.Module]) -> Iterator[nn.Module]:
    """Yield the parts of a module, but for layers that others stand in for, and their parts."""
    if id(module) not in stand_ins:
        yield module
        for child in module.children():
            yield from _outside(child, stand_ins)


def tensors_of(module: nn.Module) -> Parameters:
    return dict(module.named_parameters()) | dict(module.named_buffers())


@dataclass(frozen=True)
class Seen:
    """Facts about a module that a few rows show."""

    sites: tuple[Site, ...]
    drops: tuple[bool, ...]  # for every call of dropout in a forward pass, whether training drops anything there
    attends: tuple[bool, ...]  # the same for every call of attention
    outputs: int
    numbers_per_row: int
    moved: set[str]  # floating-point buffers that a training pass changes
    last_functions: frozenset[Any]
    answers: Tensor  # (rows, outputs)


class _Pass(NamedTuple):
    """A forward pass: what it returned, the calls that matter, and how many numbers all of them returned."""

    answers: Any
    calls: list[Call]
    numbers: int
    last_function: Any

    @classmethod
    def of(cls, module: nn.Module, x: Tensor) -> _Pass:
        with Tracer({F.linear: linear}, keeps=_matters) as tracer:
            answers = module(x)
        last = last_function(tracer.last, answers) if isinstance(answers, Tensor) else None
        return cls(answers, tracer.calls, tracer.numbers, last)


def _matters(call: Call) -> bool:
    """Return True for calls that drop units, or draw; those of others would keep all activations."""
    return call.function in _DROPPING or call.name in _DRAWS or call.name in _RECURRENT


def probe(module: nn.Module, x: Tensor) -> Seen:
    """Run a copy of the module on a few rows, in prediction and in training."""
    rows, copied = x.clone(), twin(module)
    before = dict(module.named_buffers())
    with torch.no_grad(), streams.torch_seeded(0, "probe"):
        state = torch.get_rng_state()
        outputs = _Pass.of(copied.eval(), rows).answers
        predicting = _Pass.of(copied, rows)
        folded = _folded(copied, rows, predicting.calls)
        trained = _Pass.of(in_mode(copied, module, training=True), rows)  # last: it may move buffers
        drew = not torch.equal(state, torch.get_rng_state())
    if not torch.equal(rows, x):
        raise ValueError("the model changes its input in place; let it work on a copy")
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != len(x):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"the model must return a tensor of shape (rows, outputs); it returned {shape}")
    if drew or not torch.allclose(outputs, predicting.answers, equal_nan=True):
        raise ValueError(_why_random(trained.calls, len(x)))
    in_prediction, sites = (_sites(each.calls, len(x), folded) for each in (predicting, trained))
    attends = [_drops(call) for call in trained.calls if call.function is ATTENTION]
    shapes = [[site.shape for call, site, _ in each if call in DROPOUT] for each in (in_prediction, sites)]
    if shapes[0] != shapes[1] or len(attends) != sum(call.function is ATTENTION for call in predicting.calls):
        raise ValueError(
            "the model calls dropout in training mode only (`if self.training: ...`). Call it always, as nn.Dropout "
            "does: then its masks can also be drawn in prediction"
        )
    changed = {name for name, buffer in copied.named_buffers() if not torch.equal(buffer, before[name])}
    for name in changed:
        if not before[name].is_floating_point() and not name.endswith("num_batches_tracked"):
            raise ValueError(f"the model counts in its buffer {name!r}, which members trained together cannot")
    within = [Attention(*c.args, **c.kwargs).mask_shape for c in trained.calls if c.function is ATTENTION]
    flat = outputs.reshape(len(x), -1)
    return Seen(
        tuple(site for _, site, drops in sites if drops),
        tuple(drops for function, _, drops in sites if function in DROPOUT),
        tuple(attends),
        flat.shape[1],
        -(-trained.numbers // len(x)) + sum(map(math.prod, within)),
        {name for name in changed if before[name].is_floating_point()},
        frozenset((predicting.last_function, trained.last_function)),
        flat,
    )


def _drops(call: Call) -> bool:
    """Return True if a call of attention drops units."""
    return Attention(*call.args, **call.kwargs).dropout_p > 0


def _folded(module: nn.Module, x: Tensor, calls: Sequence[Call]) -> list[bool]:
    """Return, for each call of dropout, True if a dimension was folded into the rows, behind them.

    It is so if the last rows first make the last blocks of its input first.
    """
    inputs = [dropout_arguments(*call.args, **call.kwargs)[0] for call in calls if call.function in DROPOUT]
    if not any(_blocks(each, len(x)) for each in inputs):
        return [False] * len(inputs)
    again = _Pass.of(module, x.flip(0)).calls
    flipped = [dropout_arguments(*call.args, **call.kwargs)[0] for call in again if call.function in DROPOUT]
    return [
        bool(count := _blocks(one, len(x))) and agree(other, one.unflatten(0, (-1, count)).flip(0).flatten(0, 1))
        for one, other in zip(inputs, flipped, strict=True)
    ]


def _blocks(x: Tensor, rows: int) -> int:
    """Return how many parts of each row stand below one another in x; 0 if it has no such parts."""
    is_possible = x.ndim > 1 and len(x) > rows and len(x) % rows == 0 and x[0].numel() > 1
    return len(x) // rows if is_possible else 0


def _sites(calls: Sequence[Call], rows: int, folded: Sequence[bool]) -> list[tuple[Any, Site, bool]]:
    """Every call of dropout, or of attention that drops units: the function, and whether it is to drop anything."""
    sites = []
    is_folded = iter(folded)
    for call in calls:
        blocks = 0
        if call.function is ATTENTION and _drops(call):
            attention = Attention(*call.args, **call.kwargs)
            x, rate, drops = attention.query, attention.dropout_p, True
        elif call.function in DROPOUT:
            x, rate, drops = dropout_arguments(*call.args, **call.kwargs)
            blocks = _blocks(x, rows) if next(is_folded, False) and call.function in ELEMENT_DROPOUT else 0
        else:
            continue
        if x.ndim < 2 or (x.shape[0] != rows and not blocks):
            raise ValueError(
                f"dropout on a tensor of shape {tuple(x.shape)}: its first dimension must be the rows of the "
                f"batch (here {rows}), or some parts of each row after another, so that every row can have its own mask"
            )
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate must lie in [0, 1); the model has one of {rate}")
        if call.function is ATTENTION:
            shape = attention.mask_shape
        else:
            shape = x.shape[1:] if call.function in ELEMENT_DROPOUT else (x.shape[1], *(1 for _ in x.shape[2:]))
            shape = (blocks, *shape) if blocks else shape
        unit_by_unit = x.ndim == 2 and x.stride(0) < x.stride(1)
        sites.append((call.function, Site(float(rate), tuple(shape), unit_by_unit), drops))
    return sites


def _why_random(calls: Sequence[Call], rows: int) -> str:
    """Return the reason why random numbers of a forward cannot be repeated, if its calls show it."""
    for call in calls:
        if call.function is not F.multi_head_attention_forward:
            continue
        rate = call.kwargs.get("dropout_p", call.args[_RATE] if len(call.args) > _RATE else 0.0)
        if rate > 0:
            return (
                f"the model's attention drops units inside {call.name} (dropout_p={rate:g}) and returns its weights, "
                "where masks can be neither given nor repeated. Call it with need_weights=False, or set its dropout to "
                "zero: nn.MultiheadAttention(..., dropout=0.0)"
            )
    for call in calls:
        if call.name in _RECURRENT:
            return (
                f"the model's {call.name} layers drop units between them, where masks can be neither given nor "
                f"repeated. Set their dropout to zero, nn.{call.name.upper()}(..., dropout=0.0), and put nn.Dropout "
                "between single layers"
            )
    drawn = next((call for call in calls if call.name in _DRAWS), None)
    by = "" if drawn is None else f", by {drawn.name}"
    hint = ""
    if drawn is not None and isinstance(drawn.result, Tensor) and drawn.result.numel() == rows:
        hint = (
            ", one for each row, as stochastic depth does: set its rate to zero (drop_connect_rate=0.0 in "
            "efficientnet_pytorch), or use a layer for it like timm.layers.DropPath or "
            "torchvision.ops.StochasticDepth(p, 'row'), whose masks can be given"
        )
    return (
        f"the model's forward draws its own random numbers{by}{hint}. Only the randomness of nn.Dropout, "
        "nn.Dropout2d and their kin can be named and repeated"
    )


def batch_norm_momenta(module: nn.Module) -> dict[str, float]:
    momenta: dict[str, float] = {}
    for name, part in module.named_modules():
        if not part.training or not getattr(part, "track_running_stats", False):
            continue
        if getattr(part, "running_mean", None) is None:
            continue
        if not part.momentum:
            why = "counts its own batches" if part.momentum is None else "never learns its statistics"
            raise ValueError(f"{name}: normalisation with momentum={part.momentum} {why}; give it a number above zero")
        prefix = f"{name}." if name else ""
        momenta |= {f"{prefix}{buffer}": float(part.momentum) for buffer in ("running_mean", "running_var")}
    return momenta
