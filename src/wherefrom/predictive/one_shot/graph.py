"""The user's module as a list of layers and functions, run on Moments instead of tensors.

The module is called on a few rows, and what it calls is kept: its layers if they have rules, and torch functions
everywhere else. It is called on two numbers of rows, so that a number which follows the rows (`x.view(len(x), -1)`) is
told from one that does not.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from wherefrom.predictive.one_shot.moments import Moments, added
from wherefrom.predictive.one_shot.rules import RULES, rule_for
from wherefrom.training.attention import ATTENTION, Attention, opened
from wherefrom.training.network import making_tensors_on
from wherefrom.training.tracing import DROPOUT, LOOKS_AT_NUMBERS, Call, Tracer, tensors_in

_DROPOUT_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_TRANSFORMERS = (
    *(nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerEncoderLayer),
    *(nn.TransformerDecoder, nn.TransformerDecoderLayer),
)
_MANY_HEADS: Any = F.multi_head_attention_forward
_ROWS = (5, 7)  # with which the module is called
_INSTEAD = (
    "Give it a rule with @wf.one_shot.rule(...), or use predict(x, samples=...), which samples and takes any network"
)
_RECURRENT = (
    "has the same weights at every step, which one-shot would take as independent: standard deviations came out 10 to "
    '98% off. Use predict(x, method="linearised"), which was 1 to 7% off, or predict(x, samples=...)'
)
_OTHER_ROWS = f"{{}} does something else for other numbers of rows, which one-shot cannot follow. {_INSTEAD}"


class NoRuleError(ValueError):
    """A layer or function of the network has no one-shot rule."""


@dataclass(frozen=True)
class _Value:
    """The rows (number 0), or what an earlier step made."""

    number: int
    is_uncertain: bool


@dataclass(frozen=True)
class _Named:
    """A tensor of the network."""

    name: str


@dataclass(frozen=True)
class _OfRows:
    """A whole number that follows the number of rows: slope * rows + offset."""

    slope: int
    offset: int


@dataclass(frozen=True, eq=False)
class _Step:
    """A call with its tensors by number or name; `makes` has the numbers of its results."""

    function: Any  # or the layer itself
    layer: str | None
    args: Any
    kwargs: Any
    makes: tuple[int, ...]
    is_uncertain: bool  # whether it depends on the rows or on theta
    where: str  # its name and place, for messages


class Graph:
    """A module's forward pass, traced once: every step is a layer or a function that a rule speaks of."""

    def __init__(self, module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> None:
        """Call the module with these tensors as its own on rows like those of x; the module itself stays as it is."""
        try:
            traces = [_traced(module, tensors, x[torch.arange(rows) % len(x)]) for rows in _ROWS]
        except Exception as error:  # the user's code can raise anything
            raise NoRuleError(
                f"one-shot prediction cannot follow the network's forward pass ({type(error).__name__}: {error}). "
                "Use predict(x, samples=...), which takes any network"
            ) from error
        self.layers = dict(module.named_modules(remove_duplicate=False))
        self.shared = _other_names(module)
        self.steps, self.output = self._read(*traces)
        for step in self.steps:
            _check(step)
        dropping = [step for step in self.steps if step.function in DROPOUT or step.function is ATTENTION]
        self.are_attention = tuple(step.function is ATTENTION for step in dropping)  # of calls that can drop units

    def _read(self, first: _Traced, second: _Traced) -> tuple[list[_Step], int]:
        """The steps of a forward pass with one number of rows and with another, and the number of the output.

        An operation in place makes a new number for the tensor that it returns: whoever looks at it later sees that.
        """
        steps: list[_Step] = []
        ids = _ids(first), _ids(second)
        count = 0
        for call, other in zip_longest(first.calls, second.calls):
            where = self._named(call, len(steps) + 1) if call and other else "the network"
            if call is None or other is None or _kind(call) != _kind(other):
                raise NoRuleError(_OTHER_ROWS.format(where))
            _check_followed(call)
            made, made_there = tensors_in(call.result), tensors_in(other.result)
            if not made:  # shapes and the like
                continue
            if len(made) != len(made_there):
                raise NoRuleError(_OTHER_ROWS.format(where))
            args, kwargs = _joined((call.args, call.kwargs), (other.args, other.kwargs), ids, where)
            is_uncertain = call.layer is not None or any(
                isinstance(leaf, _Named) or (isinstance(leaf, _Value) and leaf.is_uncertain)
                for leaf in _leaves((args, kwargs))
            )
            makes = tuple(range(count + 1, count + 1 + len(made)))
            count += len(made)
            function = call.function if call.layer is None else self.layers[call.layer]
            steps.append(_Step(function, call.layer, args, kwargs, makes, is_uncertain, where))
            for by_id, tensors in zip(ids, (made, made_there), strict=True):
                by_id.update((id(t), _Value(n, is_uncertain)) for t, n in zip(tensors, makes, strict=True))
        output = ids[0].get(id(first.outputs))
        if not isinstance(output, _Value):
            raise NoRuleError(f"the network does not return what one of its layers or functions made. {_INSTEAD}")
        return steps, output.number

    def _named(self, call: Call, number: int) -> str:
        where = f"node {number} of the network's graph"
        if call.layer is not None:
            return f"the layer {call.layer!r}, {self.layers[call.layer]} ({where})"
        return f"the function {call.name!r} ({where})"

    def run(
        self, x: Moments, tensors: Mapping[str, Moments], dropout: Sequence[Drop], jointly: bool = False
    ) -> Moments:
        """The network's output, if wanted with the covariance of a last linear layer's outputs.

        `dropout` speaks of every call of dropout and of attention, also of those that drop nothing.
        """
        drops = iter(dropout)
        tensors = {**tensors, **{name: tensors[own] for name, own in self.shared.items() if own in tensors}}
        values: dict[int, Any] = {0: x}
        for step in self.steps:
            args, kwargs = _filled((step.args, step.kwargs), values, tensors, x.mean.shape[0])
            try:
                with making_tensors_on(x.mean.device):
                    result = self._result(step, args, kwargs, tensors, drops)
            except NoRuleError:
                raise
            except ValueError as error:
                raise NoRuleError(f"{step.where}: {error}. {_INSTEAD}") from error
            values |= zip(step.makes, result if isinstance(result, tuple | list) else [result], strict=True)
        if next(drops, None) is not None:
            raise NoRuleError(f"a layer with its own rule holds dropout, which the rule hides. {_INSTEAD}")
        return self._jointly(values, tensors) if jointly else values[self.output]

    def _result(self, step: _Step, args: Any, kwargs: Any, tensors: Any, drops: Iterator[Drop]) -> Any:
        if step.function in DROPOUT:
            return dropped(args[0] if args else kwargs["input"], next(drops))
        if step.function is ATTENTION:
            called = Attention(*args, **kwargs)._replace(dropout_p=next(drops, Drop(0.0)).rate)
            return RULES[ATTENTION](**called._asdict())
        if step.layer is not None:
            layer_rule = rule_for(step.function)
            assert layer_rule is not None
            args = [Moments(value) if isinstance(value, Tensor) else value for value in args]
            return layer_rule(_Layer(step.function, step.layer, tensors), *args, **kwargs)
        return (RULES[step.function] if step.is_uncertain else step.function)(*args, **kwargs)

    def _jointly(self, values: Mapping[int, Any], tensors: Mapping[str, Moments]) -> Moments:
        """The outputs with their covariance, where the last layer is linear: what varies in its inputs, all outputs
        have in common.

            Cov(out_k, out_l) = sum_i W_ki W_li Var(in_i)        for k != l
        """
        out, last = values[self.output], next((step for step in self.steps if self.output in step.makes), None)
        if last is None or type(last.function) is not nn.Linear or last.layer is None or out.covariance is not None:
            return out
        given = _filled(last.args, values, tensors, 0)[0]
        if given.variance is None or given.mean.ndim != 2:
            return out
        weight = _Layer(last.function, last.layer, tensors).weight.mean
        shared = (weight * given.variance.unsqueeze(1)) @ weight.t()  # (rows, outputs, outputs)
        own = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        covariance = shared * (1 - own) + out.variance.unsqueeze(-1) * own
        return Moments(out.mean, out.variance, out.factors, covariance)


def _check(step: _Step) -> None:
    """Raise, before anything is computed, if there is no rule."""
    if step.layer is None:
        has_rule = step.function in RULES or step.function in DROPOUT or not step.is_uncertain
    else:
        if step.function._forward_hooks or step.function._forward_pre_hooks:
            raise NoRuleError(f"{step.where} has a hook, which one-shot cannot follow. {_INSTEAD}")
        has_rule = rule_for(step.function) is not None
        if not has_rule and isinstance(step.function, nn.RNNBase | nn.RNNCellBase):
            raise NoRuleError(f"{step.where} {_RECURRENT}")
    if not has_rule:
        raise NoRuleError(f"{step.where} has no one-shot rule. {_INSTEAD}")


def _check_followed(call: Call) -> None:
    """Raise if something happens that the steps do not show."""
    looks = call.function in LOOKS_AT_NUMBERS
    if looks or (call.result is None and tensors_in((call.args, call.kwargs))):
        raise NoRuleError(
            f"one-shot prediction cannot follow the network's forward pass: it "
            f"{'looks at its numbers' if looks else 'writes into a tensor'} ({call.name}). "
            "Use predict(x, samples=...), which takes any network"
        )


def _kind(call: Call) -> Any:
    return call.function if call.layer is None else call.layer


class Drop(NamedTuple):
    """A call of dropout: its rate and, where whole channels share their masks, where these have their factors."""

    rate: float
    first: int | None = None
    total: int = 0


def dropped(x: Moments, drop: Drop) -> Moments:
    """Times a mask of mean 1 and variance q = rate / (1 - rate): the exact moments of each entry.

    Masks are independent from entry to entry; those of whole channels are shared factors, sqrt(q) times the mean on
    their own channel, where there are places for them, and otherwise taken as independent, too.
    """
    if not drop.rate:
        return x
    q = drop.rate / (1 - drop.rate)
    if drop.first is not None:
        own = torch.diag_embed(x.mean.movedim(1, -1)).movedim(-1, 0).movedim(-1, 2) * math.sqrt(q)
        before = own.new_zeros(drop.first, *x.mean.shape)
        after = own.new_zeros(drop.total - drop.first - len(own), *x.mean.shape)
        factors = added(x.factors, torch.cat([before, own, after]))
        return Moments(x.mean, added(x.variance, x.total_variance * q), factors)
    grown = x.second_moment * q
    covariance = None if x.covariance is None else x.covariance + torch.diag_embed(grown)
    return Moments(x.mean, added(x.variance, grown), x.factors, covariance)


def _other_names(module: nn.Module) -> dict[str, str]:
    """Tensors that have several names, by all but the first: name -> first name."""
    first: dict[int, str] = {}
    found = {}
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in tensors:
        if first.setdefault(id(tensor), name) != name:
            found[name] = first[id(tensor)]
    return found


class _Layer:
    """A module as its rule sees it: parameters and buffers are Moments, all else is its own."""

    def __init__(self, module: nn.Module, name: str, tensors: Mapping[str, Moments]) -> None:
        self.module, self._prefix, self._tensors = module, f"{name}." if name else "", tensors

    def __getattr__(self, name: str) -> Any:
        known = self._tensors.get(self._prefix + name)
        if known is not None:
            return known
        value = getattr(self.module, name)
        if isinstance(value, Tensor):  # computed from others, as by a parametrisation
            raise NoRuleError(f"the tensor {self._prefix + name!r} is not a parameter. {_INSTEAD}")
        return value


_Ids = tuple[dict[int, _Named | _Value], dict[int, _Named | _Value]]  # of either trace


class _Traced(NamedTuple):
    """A forward pass: its calls, and the tensors that went in and came out."""

    x: Tensor
    tensors: dict[str, Tensor]
    calls: list[Call]
    outputs: Any


def _traced(module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> _Traced:
    """The calls of a copy of the module, whose layers count as one call each where they have rules or are torch's."""
    tensors = {name: tensor.view_as(tensor) for name, tensor in tensors.items()}
    watched = copy.deepcopy(module, {id(p): p for p in (*module.parameters(), *module.buffers())})

    def open_heads(*args: Any, **kwargs: Any) -> Any:
        """Show what nn.MultiheadAttention calls; its weights are not returned."""
        with tracer:
            return opened(args, kwargs if len(args) > 15 else kwargs | {"need_weights": False})

    tracer = Tracer({_MANY_HEADS: open_heads})

    def watch(name: str, part: nn.Module) -> None:
        if _is_leaf(part):
            tracer.watch(name, part)
            return
        for child, inner in part.named_children():
            watch(f"{name}.{child}" if name else child, inner)

    watch("", watched)
    with making_tensors_on(x.device), torch.no_grad(), tracer:
        outputs = functional_call(watched, tensors, (x,))
    return _Traced(x, tensors, [call for call in tracer.calls if call.function is not _MANY_HEADS], outputs)


def _is_leaf(module: nn.Module) -> bool:
    """True if a rule speaks of the module, or it is one of torch's own; dropout is followed as a function.

    Transformers of torch are made of such modules and of functions.
    """
    is_torch = type(module).__module__.startswith(("torch.nn", "torch.ao.nn"))
    inner = (nn.Sequential, *_DROPOUT_LAYERS, *_TRANSFORMERS)
    return rule_for(module) is not None or (is_torch and not isinstance(module, inner))


def _ids(trace: _Traced) -> dict[int, _Named | _Value]:
    """The tensors that went in, by identity."""
    named: dict[int, _Named | _Value] = {id(tensor): _Named(name) for name, tensor in trace.tensors.items()}
    return named | {id(trace.x): _Value(0, is_uncertain=True)}


def _joined(a: Any, b: Any, ids: _Ids, where: str) -> Any:
    """The arguments of a call with one number of rows and with another, as one: tensors by number or name."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        there, other = ids[0].get(id(a)), ids[1].get(id(b))
        if there is not None and there == other:
            return there
        if there is None and other is None and a.shape == b.shape and torch.equal(a, b):
            return a  # a constant
    elif isinstance(a, tuple | list) and type(a) is type(b) and len(a) == len(b):
        parts = [_joined(one, two, ids, where) for one, two in zip(a, b, strict=True)]
        return parts if isinstance(a, list) else tuple(parts)
    elif isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {name: _joined(a[name], b[name], ids, where) for name in a}
    elif isinstance(a, slice) and isinstance(b, slice):
        ends = ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
        return slice(*(_joined(one, two, ids, where) for one, two in ends))
    elif type(a) is int and type(b) is int and a != b:
        slope, rest = divmod(b - a, _ROWS[1] - _ROWS[0])
        if not rest:
            return _OfRows(slope, a - slope * _ROWS[0])
    elif a is b or (type(a) is type(b) and bool(a == b)):
        return a
    raise NoRuleError(_OTHER_ROWS.format(where))


def _filled(tree: Any, values: Mapping[int, Any], tensors: Mapping[str, Moments], rows: int) -> Any:
    """The arguments of a step, with the values that they stand for."""
    kind = type(tree)
    if kind is _Value:
        return values[tree.number]
    if kind is _Named:
        return tensors[tree.name]
    if kind is _OfRows:
        return tree.slope * rows + tree.offset
    if kind is dict:
        return {name: _filled(part, values, tensors, rows) for name, part in tree.items()}
    if kind is slice:
        return slice(*(_filled(part, values, tensors, rows) for part in (tree.start, tree.stop, tree.step)))
    return kind(_filled(part, values, tensors, rows) for part in tree) if kind in (tuple, list) else tree


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, tuple | list | dict):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(part)
    elif isinstance(tree, slice):
        yield from (tree.start, tree.stop, tree.step)
    else:
        yield tree
