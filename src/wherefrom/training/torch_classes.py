"""Any class of torch.optim's kind as an optimiser: one object for each member.

The members' gradients are still computed together. Each object sees its member's parameters tensor by tensor, in their
real shapes, as views of its row of theta: what it writes, it writes there, and optimisers that look at whole matrices
(Adafactor, Muon) are right.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from wherefrom.files.codec import name_of, stored
from wherefrom.files.stand_in import Code, StandIn
from wherefrom.training import streams
from wherefrom.training.network import Layout
from wherefrom.training.rules import Array

_CLASS = Code(
    "{name} is code, which is not stored, so a loaded posterior cannot train with it: give the class to "
    "wf.load(..., optimisers=[...])",
    "optimisers",
)


@stored("TorchOptimiser", code={"kind": _CLASS}, without=["fixed"])  # which the algorithm has, too
@dataclass(frozen=True)
class TorchOptimiser:
    """A class, by the name that is stored and shown, and those of its arguments that all members share."""

    name: str
    kind: type[torch.optim.Optimizer] | StandIn | None  # None stands for whatever was used elsewhere
    fixed: dict[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, kind: type[torch.optim.Optimizer], fixed: Mapping[str, Any]) -> TorchOptimiser:
        closure = inspect.signature(kind.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise ValueError(
                f"{name_of(kind)} computes the loss several times in one step (it needs a closure), which members that "
                "are trained together cannot: choose an optimiser that takes a gradient"
            )
        return cls(name_of(kind), kind, dict(fixed))

    def takes(self, name: str) -> bool:
        """Return True if the class has such an argument, or is not known."""
        if not is_class(self.kind):
            return True
        parameters = list(inspect.signature(self.kind).parameters.values())[1:]
        return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)

    def check_names(self, given: Iterable[str]) -> None:
        """Raise unless the class takes all of these arguments, and needs no others."""
        if not is_class(self.kind):
            return
        parameters = list(inspect.signature(self.kind).parameters.values())[1:]  # the first are the network's
        named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        names = [p.name for p in named]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            for name in given:
                if name not in names:
                    others = ", ".join(k for k in names if k != "lr")
                    raise ValueError(f"{self.name} has no setting {name!r}; it has lr, batch_size, clip, {others}")
        if missing := [p.name for p in named if p.default is p.empty and p.name not in given]:
            raise ValueError(f"{self.name} needs {', '.join(missing)}")

    def make(self, parameters: list[nn.Parameter], settings: Mapping[str, float]) -> torch.optim.Optimizer:
        """Return one member's optimiser."""
        for value in (self.kind, *self.fixed.values()):
            if isinstance(value, StandIn):
                value.refuse()
        numbers: dict[str, Any] = {name: value for name, value in settings.items() if name != "clip"}
        kind: Any = self.kind
        try:
            optimiser: torch.optim.Optimizer = kind(parameters, **numbers, **self.fixed)
            return optimiser
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.name} cannot be used here: {error}") from error

    def __repr__(self) -> str:
        return self.name


class OneByOne:
    """The rule that steps every member by an object of its class.

    The state of such an object is what its `state_dict()` holds, as everywhere in torch. Random numbers that a step
    draws from torch's generators (Langevin dynamics), the CPU's or a device's, come from the member's stream, so they
    are the same in any group.
    """

    state: ClassVar[tuple[str, ...]] = ()  # beside `member_state`

    def __init__(
        self,
        optimiser: TorchOptimiser,
        layout: Layout,
        weights: Tensor,
        settings: Sequence[Mapping[str, float]],
        orders: Sequence[int],
    ) -> None:
        self.shapes, self.sizes = layout.shapes[: layout.trained], layout.sizes[: layout.trained]
        self.weights = self._views(weights)
        self.parameters = [[nn.Parameter(view) for view in views] for views in self.weights]
        self.optimisers = [optimiser.make(each, s) for each, s in zip(self.parameters, settings, strict=True)]
        self.keys = np.array([streams.key(order, "step") for order in orders], dtype=np.uint64)[:, None]
        self.lr = [each["lr"] for each in settings]
        self.outside = [_outside(one) for one in self.optimisers]
        self.gradient = torch.empty(0)
        self.gradients: list[list[Tensor]] = []

    def plan(self, lr: Array, count: Array) -> Iterable[Sequence[Any]]:
        seeds = streams.numbers(
            self.keys, streams.address(count.astype(np.int64), np.zeros(1, np.uint64))
        ) >> np.uint64(1)
        return zip(lr.T.tolist(), seeds.T.tolist(), strict=True)

    def step(self, gradient: Tensor, lr: list[float], seeds: list[int]) -> None:
        if gradient is not self.gradient:  # that of a batch of another size is elsewhere
            self.gradient, self.gradients = gradient, self._views(gradient)
        if lr != self.lr:
            self.lr = lr
            for optimiser, rate in zip(self.optimisers, lr, strict=True):
                for group in optimiser.param_groups:
                    group["lr"] = rate
        with streams.torch_seeded(0, "step"):
            for member, optimiser in enumerate(self.optimisers):
                streams.seed_all(seeds[member])
                for parameter, slope in zip(self.parameters[member], self.gradients[member], strict=True):
                    parameter.grad = slope
                optimiser.step()
                for parameter, view in zip(self.parameters[member], self.weights[member], strict=True):
                    if parameter.data_ptr() != view.data_ptr():  # it was given new memory, instead of new numbers
                        parameter.data = view.copy_(parameter.data)

    def member_state(self, member: int) -> dict[str, Any]:
        """Return the state of one member's object, and the last learning rate that it was given."""
        optimiser = self.optimisers[member]
        for name, value in _outside(optimiser).items():
            if value != self.outside[member].get(name):
                raise ValueError(
                    f"{type(optimiser).__name__}.{name} changes, but is no part of its state_dict(): add it there and "
                    "in load_state_dict()"
                )
        return {"lr": self.lr[member], **optimiser.state_dict()}

    def restore_member(self, member: int, state: Mapping[str, Any]) -> None:
        self.lr[member] = state["lr"]
        self.optimisers[member].load_state_dict({name: value for name, value in state.items() if name != "lr"})

    def _views(self, rows: Tensor) -> list[list[Tensor]]:
        """Return every member's tensors, in their shapes."""
        return [
            [piece.view(shape) for piece, shape in zip(row.split(self.sizes), self.shapes, strict=True)] for row in rows
        ]


def _outside(optimiser: torch.optim.Optimizer) -> dict[str, float]:
    """Return public numbers that torch's state_dict() leaves out."""
    if type(optimiser).state_dict is not torch.optim.Optimizer.state_dict:
        return {}
    return {k: v for k, v in vars(optimiser).items() if isinstance(v, bool | int | float) and not k.startswith("_")}


def is_class(value: object) -> TypeGuard[type[torch.optim.Optimizer]]:
    return isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
