"""What a training must remember to go on as if it had never stopped.

Order, masks and augmentation are addressed by step, and what the optimiser takes at each step is planned from the
settings; so it is what moves: theta, the optimiser's averages, what the collector has gathered, and the losses. Nearly
all of it are tensors with a row for each member, and members can be written, and taken up again, in other company.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from wherefrom.laws import Collector
from wherefrom.training.rules import Group, Rule
from wherefrom.training.torch_classes import OneByOne

State = dict[str, Any]  # of one member: tensors, and what JSON can hold


class Keeping(Protocol):
    """Whoever writes a training down while it is on its way."""

    def begin(self, training: Resumable) -> list[int]: ...  # brings it to where it was: epochs done, by member

    def reached(self) -> None: ...  # called whenever `training.epochs` has changed


class NotKept:
    """Nobody does."""

    def begin(self, training: Resumable) -> list[int]:
        return training.epochs

    def reached(self) -> None:
        pass


NOT_KEPT = NotKept()


class Resumable:
    """A group of members on its way: its live tensors, by name and with a row for each member, and the rest."""

    def __init__(
        self, rows: Mapping[str, Tensor], rule: Rule | None = None, collector: Collector | None = None
    ) -> None:
        self.rows, self.rule, self.collector = dict(rows), rule, collector
        members = len(self.rows["theta"])
        if rule is not None and not isinstance(rule, OneByOne):
            self.rows |= {f"rule.{name}": tensor for name, tensor in averages(rule, self.rows["theta"]).items()}
        found = {} if collector is None else vars(collector)
        for name, value in found.items():
            if isinstance(value, Tensor) and value.shape[:1] == (members,):
                self.rows[f"collector.{name}"] = value
        self._fresh = numbers(collector)
        known = {*(name.removeprefix("collector.") for name in self.rows), *self._fresh}
        self._unknown = [
            name
            for name, value in found.items()
            if name not in known and not callable(value) and not (isinstance(value, Tensor) and not value.numel())
        ]
        self.epochs = [0] * members  # done

    def state(self, member: int) -> State:
        """A member's own part, not copied."""
        if self._unknown:
            raise ValueError(
                f"{type(self.collector).__name__} cannot be written while it gathers: its {self._unknown[0]} is "
                "neither a tensor with a row for each member, nor a number. Leave checkpoints out"
            )
        found: State = {name: tensor[member] for name, tensor in self.rows.items()}
        now = numbers(self.collector)
        found["numbers"] = {name: value for name, value in now.items() if value != self._fresh[name]}
        if isinstance(self.rule, OneByOne):
            found["optimiser"] = {"lr": self.rule.lr[member], **_optimiser_state(self.rule, member)}
        return found

    def restore(self, member: int, state: State, epochs: int) -> None:
        for name, tensor in self.rows.items():
            tensor[member].copy_(state[name])
        for name, value in state["numbers"].items():
            setattr(self.collector, name, value)
        if isinstance(self.rule, OneByOne):
            self.rule.lr[member] = state["optimiser"]["lr"]
            _restore_optimiser(self.rule, member, state["optimiser"])
        self.epochs[member] = epochs


def averages(rule: Any, theta: Tensor) -> dict[str, Tensor]:
    """What a rule keeps between steps: its tensors with a row for each member, those of its parts included."""
    found: dict[str, Tensor] = {}
    for name, value in vars(rule).items():
        if isinstance(value, Tensor) and value is not rule.__dict__.get("theta") and len(value) == len(theta):
            found[name] = value
        elif hasattr(value, "__dict__") and not isinstance(value, Tensor | Group) and not callable(value):
            found |= {f"{name}.{inner}": tensor for inner, tensor in averages(value, theta).items()}
    return found


def numbers(collector: Any) -> dict[str, Any]:
    """A collector's own numbers, which are the same for all members."""
    plain = (bool, int, float)
    return {
        name: value
        for name, value in (vars(collector) if collector is not None else {}).items()
        if isinstance(value, plain) or (isinstance(value, tuple) and all(isinstance(one, plain) for one in value))
    }


# ---------------------------------------------------------------------- objects of torch.optim's kind


def _optimiser_state(rule: OneByOne, member: int) -> State:
    """All that its object keeps: of each parameter, of the groups of parameters, and numbers of its own."""
    optimiser, parameters = rule.optimisers[member], rule.parameters[member]
    places: dict[Any, int] = {parameter: place for place, parameter in enumerate(parameters)}
    return {
        "state": [[places.get(key, key), own] for key, own in optimiser.state.items()],
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimiser.param_groups],
        "own": {k: v for k, v in vars(optimiser).items() if isinstance(v, bool | int | float | Tensor)},
    }


def _restore_optimiser(rule: OneByOne, member: int, state: State) -> None:
    optimiser, parameters = rule.optimisers[member], rule.parameters[member]
    device = parameters[0].device
    optimiser.state.clear()
    for key, own in state["state"]:
        optimiser.state[parameters[key] if isinstance(key, int) else key] = _placed(own, device)
    for group, own in zip(optimiser.param_groups, state["groups"], strict=True):
        group.update(_placed(own, device))
    vars(optimiser).update(_placed(state["own"], device))


def _placed(value: Any, device: torch.device) -> Any:
    """As it was, where numbers of the whole (a count of steps) stay in main memory."""
    return mapped(value, lambda tensor: tensor if tensor.ndim == 0 else tensor.to(device))


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Dictionaries, lists and tuples with every tensor in them changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(own, change) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mapped(own, change) for own in value)
    return value
