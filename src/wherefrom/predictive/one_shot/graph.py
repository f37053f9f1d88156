"""The user's module as a graph of layers and functions, run on Moments instead of tensors."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from wherefrom.predictive.one_shot import heads, layers
from wherefrom.predictive.one_shot.moments import Moments, added
from wherefrom.predictive.one_shot.rules import RULES, rule_for
from wherefrom.training.network import CHANNEL_DROPOUT, ELEMENT_DROPOUT

DROPOUT_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
DROPOUT_FUNCTIONS = (*ELEMENT_DROPOUT, *CHANNEL_DROPOUT)
_IN_PLACE_OPERATORS = (operator.iadd, operator.isub, operator.imul, operator.itruediv)
_ABOUT_SHAPE = {"size", "dim", "ndimension", "numel"}
_INSTEAD = (
    "Give it a rule with @wf.one_shot.rule(...), or use predict(x, samples=...), which samples and takes any network"
)

_ = (heads, layers)  # their rules are registered when they are imported


class NoRuleError(ValueError):
    """A layer or function of the network has no one-shot rule."""


class Graph:
    """A module's forward pass, traced once: every node is a layer or a function that a rule speaks of."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.is_one_layer = rule_for(module) is not None or isinstance(module, DROPOUT_LAYERS)
        try:
            self.nodes = [] if self.is_one_layer else list(_Tracer().trace(module).nodes)
        except Exception as error:  # tracing runs the user's code: it can raise anything
            raise NoRuleError(
                "one-shot prediction follows the network's forward pass by torch.fx, which cannot trace this one "
                f"({type(error).__name__}: {error}). Use predict(x, samples=...), which takes any network"
            ) from error
        self.layers = dict(module.named_modules(remove_duplicate=False))
        self.shared = _other_names(module)
        for node in self.nodes:
            self._check(node)

    def run(
        self, x: Moments, tensors: Mapping[str, Moments], dropout: Sequence[Drop], jointly: bool = False
    ) -> Moments:
        """The network's output, if wanted with the covariance of a last linear layer's outputs.

        `dropout` speaks of every call of dropout, also of those that drop nothing.
        """
        drops = iter(dropout)
        tensors = {**tensors, **{name: tensors[own] for name, own in self.shared.items() if own in tensors}}
        if self.is_one_layer:
            found = rule_for(self.module)
            return dropped(x, next(drops)) if found is None else found(_Layer(self.module, "", tensors), x)
        known: dict[fx.Node, Any] = {}
        for node in self.nodes:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            try:
                known[node] = self._value(node, args, dict(kwargs), x, tensors, drops)
            except NoRuleError:
                raise
            except ValueError as error:
                raise NoRuleError(f"{self._place(node)}: {error}. {_INSTEAD}") from error
            if self._is_in_place(node):  # whoever looks at the argument later sees the new one
                known[node.all_input_nodes[0]] = known[node]
        if next(drops, None) is not None:
            raise NoRuleError(f"a layer with a rule of its own holds dropout, which the rule hides. {_INSTEAD}")
        return self._jointly(known, tensors) if jointly else known[self.nodes[-1]]

    def _jointly(self, known: Mapping[fx.Node, Any], tensors: Mapping[str, Moments]) -> Moments:
        """The outputs with their covariance, where the last layer is linear: what varies in its inputs, all outputs
        have in common.

            Cov(out_k, out_l) = sum_i W_ki W_li Var(in_i)        for k != l
        """
        out, last = known[self.nodes[-1]], self.nodes[-1].args[0]
        if not isinstance(last, fx.Node) or last.op != "call_module" or out.covariance is not None:
            return out
        given = known.get(last.all_input_nodes[0])
        is_linear = type(self.layers[str(last.target)]) is nn.Linear
        if not is_linear or given is None or given.variance is None or given.mean.ndim != 2:
            return out
        weight = _Layer(self.layers[str(last.target)], f"{last.target}.", tensors).weight.mean
        shared = (weight * given.variance.unsqueeze(1)) @ weight.t()  # (rows, outputs, outputs)
        own = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        covariance = shared * (1 - own) + out.variance.unsqueeze(-1) * own
        return Moments(out.mean, out.variance, out.factors, covariance)

    def _is_in_place(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return bool(getattr(self.layers[str(node.target)], "inplace", False))
        name = getattr(node.target, "__name__", str(node.target))
        is_marked = name.endswith("_") and not name.endswith("__")
        return node.op in ("call_function", "call_method") and (
            is_marked or bool(node.kwargs.get("inplace")) or node.target in _IN_PLACE_OPERATORS
        )

    def _value(self, node: fx.Node, args: Any, kwargs: Any, x: Moments, tensors: Any, drops: Any) -> Any:
        if node.op == "placeholder":
            return x if node is self.nodes[0] else None  # others stand at their defaults, which tracing has seen
        if node.op == "output":
            return args[0]
        if node.op == "get_attr":
            return tensors[str(node.target)] if node.target in tensors else _attribute(self.module, str(node.target))
        if self._is_dropout(node):
            return dropped(args[0], next(drops))
        if node.op == "call_module":
            layer = _Layer(self.layers[str(node.target)], f"{node.target}.", tensors)
            found = rule_for(layer.module)
            assert found is not None
            return found(layer, *args, **kwargs)
        target: Any = node.target
        if not any(isinstance(leaf, Moments) for leaf in _leaves((args, kwargs))):  # shapes and plain numbers
            return (
                getattr(args[0], target)(*args[1:], **kwargs) if node.op == "call_method" else target(*args, **kwargs)
            )
        if node.target in _ABOUT_SHAPE:
            return getattr(args[0].mean, str(node.target))(*args[1:], **kwargs)
        if node.target is builtins.getattr:
            return getattr(args[0].mean, args[1])
        function = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
        return RULES[function](*args, **kwargs)

    def _check(self, node: fx.Node) -> None:
        """That there is a rule, before anything is computed."""
        if self._is_dropout(node) or node.op not in ("call_module", "call_function", "call_method"):
            return
        if node.op == "call_module":
            layer = self.layers[str(node.target)]
            if layer._forward_hooks or layer._forward_pre_hooks:
                raise NoRuleError(f"{self._place(node)} has a hook, which one-shot cannot follow. {_INSTEAD}")
            has_rule = rule_for(layer) is not None
        else:
            target = getattr(torch.Tensor, str(node.target), None) if node.op == "call_method" else node.target
            of_shapes = node.target in _ABOUT_SHAPE or target is builtins.getattr
            has_rule = target in RULES or of_shapes or not any(map(_is_tensor, node.all_input_nodes))
        if not has_rule:
            raise NoRuleError(f"{self._place(node)} has no one-shot rule. {_INSTEAD}")

    def _is_dropout(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return isinstance(self.layers[str(node.target)], DROPOUT_LAYERS)
        return node.op == "call_function" and node.target in DROPOUT_FUNCTIONS

    def _place(self, node: fx.Node) -> str:
        """A node by its name and place, for messages."""
        where = f"node {self.nodes.index(node)} of the network's graph"
        if node.op == "call_module":
            return f"the layer {node.target!r}, {self.layers[str(node.target)]} ({where})"
        name = getattr(node.target, "__name__", str(node.target))
        return f"the function {name!r} ({where})"


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

    def __init__(self, module: nn.Module, prefix: str, tensors: Mapping[str, Moments]) -> None:
        self.module, self._prefix, self._tensors = module, prefix, tensors

    def __getattr__(self, name: str) -> Any:
        known = self._tensors.get(self._prefix + name)
        if known is not None:
            return known
        value = getattr(self.module, name)
        if isinstance(value, Tensor):  # computed from others, as by a parametrisation
            raise NoRuleError(f"the tensor {self._prefix + name!r} is not a parameter of its own. {_INSTEAD}")
        return value


class _Tracer(fx.Tracer):
    """Goes into the user's own modules, and stops at those of torch."""

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """The network is called with x alone: other arguments stand at their defaults."""
        function, args = super().create_args_for_root(root_fn, is_module, concrete_args)
        return function, list(args)[:2]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return rule_for(m) is not None or super().is_leaf_module(m, module_qualified_name)


def _leaves(values: Any) -> list[Any]:
    if not isinstance(values, (tuple, list, dict)):
        return [values]
    return [leaf for value in (values.values() if isinstance(values, dict) else values) for leaf in _leaves(value)]


def _is_tensor(node: fx.Node) -> bool:
    """Whether a node can stand for numbers with moments, and not for a shape."""
    if node.op == "call_method":
        return node.target not in _ABOUT_SHAPE
    if node.op == "call_function" and node.target is builtins.getattr:
        return False
    if node.op == "call_function" and node.all_input_nodes:
        return any(_is_tensor(parent) for parent in node.all_input_nodes)
    return True


def _attribute(module: nn.Module, path: str) -> Tensor:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
