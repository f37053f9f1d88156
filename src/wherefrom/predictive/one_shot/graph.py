"""The user's module as a graph of layers and functions, run on Moments instead of tensors."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from wherefrom.predictive.one_shot import heads, layers
from wherefrom.predictive.one_shot.moments import Moments, added
from wherefrom.predictive.one_shot.rules import RULES, rule_for
from wherefrom.training.network import CHANNEL_DROPOUT, ELEMENT_DROPOUT

DROPOUT_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
DROPOUT_FUNCTIONS = (*ELEMENT_DROPOUT, *CHANNEL_DROPOUT)
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
            raise ValueError(
                "one-shot prediction follows the network's forward pass by torch.fx, which cannot trace this one "
                f"({type(error).__name__}: {error}). Use predict(x, samples=...), which takes any network"
            ) from error
        self.layers = dict(module.named_modules())
        for node in self.nodes:
            self._check(node)

    def run(self, x: Moments, tensors: Mapping[str, Moments], dropout: Sequence[float]) -> Moments:
        """The network's output; `dropout` holds the rate of every call of dropout, zero where nothing is dropped."""
        rates = iter(dropout)
        if self.is_one_layer:
            found = rule_for(self.module)
            return dropped(x, next(rates)) if found is None else found(_Layer(self.module, "", tensors), x)
        known: dict[fx.Node, Any] = {}
        for node in self.nodes:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            try:
                known[node] = self._value(node, args, dict(kwargs), x, tensors, rates)
            except NoRuleError:
                raise
            except ValueError as error:
                raise ValueError(f"{self._place(node)}: {error}. {_INSTEAD}") from error
        return known[self.nodes[-1]]

    def _value(self, node: fx.Node, args: Any, kwargs: Any, x: Moments, tensors: Any, rates: Any) -> Any:
        if node.op == "placeholder":
            return x
        if node.op == "output":
            return args[0]
        if node.op == "get_attr":
            return tensors[str(node.target)] if node.target in tensors else _attribute(self.module, str(node.target))
        if self._is_dropout(node):
            return dropped(args[0], next(rates))
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
            has_rule = rule_for(self.layers[str(node.target)]) is not None
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


def dropped(x: Moments, rate: float) -> Moments:
    """Times a mask of mean 1 and variance rate / (1 - rate), independent from entry to entry: exact moments."""
    if not rate:
        return x
    grown = x.second_moment * (rate / (1 - rate))
    covariance = None if x.covariance is None else x.covariance + torch.diag_embed(grown)
    return Moments(x.mean, added(x.variance, grown), x.factors, covariance)


class _Layer:
    """A module as its rule sees it: parameters and buffers are Moments, all else is its own."""

    def __init__(self, module: nn.Module, prefix: str, tensors: Mapping[str, Moments]) -> None:
        self.module, self._prefix, self._tensors = module, prefix, tensors

    def __getattr__(self, name: str) -> Any:
        known = self._tensors.get(self._prefix + name)
        return getattr(self.module, name) if known is None else known


class _Tracer(fx.Tracer):
    """Goes into the user's own modules, and stops at those of torch."""

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
