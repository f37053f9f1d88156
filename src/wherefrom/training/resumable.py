"""The state that a training needs to go on as if it had never stopped.

Order, masks and augmentation are addressed by step, and what the optimiser takes at each step is planned from the
settings. So the state is what moves: theta, the optimiser's averages, what the collector has gathered, and the losses.
Rules and collectors name theirs in `state`: attributes that are tensors with a row for each member, or numbers that all
members share. Members can be written, and taken up again, in other company.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from wherefrom.laws import Collector
from wherefrom.training.rules import Rule
from wherefrom.training.torch_classes import OneByOne

State = dict[str, Any]  # of one member: tensors, and what JSON can hold


class Keeping(Protocol):
    """Writes a training to a file while it runs."""

    def begin(self, training: Resumable) -> list[int]: ...  # brings it to where it was: epochs done, by member

    def reached(self) -> None: ...  # called whenever `training.epochs` has changed

    def between_steps(self) -> None: ...  # called within an epoch: raises if nothing is lost by stopping there


class NotKept:
    """Writes nothing."""

    def begin(self, training: Resumable) -> list[int]:
        return training.epochs

    def reached(self) -> None:
        pass

    def between_steps(self) -> None:
        pass


NOT_KEPT = NotKept()


class Resumable:
    """A group of members while they train: live tensors with a row for each member, the rule, and the collector."""

    def __init__(
        self, rows: Mapping[str, Tensor], rule: Rule | None = None, collector: Collector | None = None
    ) -> None:
        self.rows, self.rule = dict(rows), rule
        parts: dict[str, Any] = {"rule": rule, "collector": collector}
        self.parts = {name: part for name, part in parts.items() if part is not None}
        self.epochs = [0] * len(self.rows["theta"])  # done

    def check(self) -> None:
        """Raise if a collector does not name its state."""
        for part in self.parts.values():
            if not hasattr(part, "state"):
                raise ValueError(
                    f"{type(part).__name__} does not name what it gathers, so it cannot be written to a checkpoint: "
                    'give the class an attribute such as state = ("mean", "count"), the names of its tensors and '
                    "numbers that change, or leave checkpoints out"
                )

    def state(self, member: int) -> State:
        """Return one member's state, not copied."""
        state: State = {name: tensor[member] for name, tensor in self.rows.items()}
        for part_name, part in self.parts.items():
            for name in part.state:
                value = getattr(part, name)
                if isinstance(value, Tensor) and value.shape[:1] == (len(self.epochs),):
                    state[f"{part_name}.{name}"] = value[member]
                elif isinstance(value, bool | int | float | tuple):
                    state[f"{part_name}.{name}"] = value
                elif value is not None and not (isinstance(value, Tensor) and not value.numel()):
                    raise ValueError(
                        f"{type(part).__name__}.{name} is neither a tensor with a row for each member, nor a number"
                    )
        if isinstance(self.rule, OneByOne):
            state["optimiser"] = self.rule.member_state(member)
        return state

    def restore(self, member: int, state: State, epochs: int) -> None:
        for name, tensor in self.rows.items():
            tensor[member].copy_(state[name])
        for part_name, part in self.parts.items():
            for name in part.state:
                if (value := state.get(f"{part_name}.{name}")) is None:
                    continue
                if isinstance(value, Tensor) and getattr(part, name) is None:  # it is made by the first iterate
                    shape, device = (len(self.epochs), *value.shape), self.rows["theta"].device
                    setattr(part, name, torch.zeros(shape, dtype=value.dtype, device=device))
                if isinstance(value, Tensor):
                    getattr(part, name)[member].copy_(value)
                else:
                    setattr(part, name, value)
        if isinstance(self.rule, OneByOne):
            self.rule.restore_member(member, state["optimiser"])
        self.epochs[member] = epochs
