"""The common part of the callbacks: a recorder that is begun with a training, and updated at the right moments.

These are the iterations that `wf.Iterations(law, start, every)` collects. The library whose trainer calls is imported
when a callback is made, and not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from wherefrom.laws import TrajectoryLaw
from wherefrom.own_loop.recorder import Recorder
from wherefrom.training.cohort import Collection
from wherefrom.variables import Iterations


class Recording:
    """A callback without its library: instances also derive from the class that its trainer expects."""

    _library: ClassVar[Callable[[], type]]  # returns that class, or says what to install

    def __new__(cls, *args: Any, **settings: Any) -> Recording:
        callback: Recording = object.__new__(_derived(cls, cls._library()))
        return callback

    def __init__(
        self,
        law: TrajectoryLaw | Recorder | None = None,
        start: float = 0.5,
        every: int | Literal["epoch"] | None = None,
        *,
        device: str | torch.device | None = None,
    ) -> None:
        if start == "auto":
            raise ValueError('start="auto" looks at a whole training first: here, give a fraction of the epochs')
        self._given = law if isinstance(law, Recorder) else None
        how = law.how if isinstance(law, Recorder) else law
        self._iterations = None if how is None else Iterations(how, start, every)
        self._device, self._recorder = device, self._given
        self._collection: Collection | None = None  # counted in epochs, or in steps

    def __reduce__(self) -> Any:  # some trainers send their callbacks to other processes
        return _remade, (type(self).__mro__[1],), vars(self)

    @property
    def recorder(self) -> Recorder:
        """The recorder, from the beginning of training on."""
        if self._recorder is None:
            raise ValueError("no training has begun yet, so nothing was recorded")
        return self._recorder

    def _begin(self, model: nn.Module, steps: float, steps_per_epoch: float, epochs: float) -> None:
        """Begin a training of these steps and epochs (infinite: not known).

        What cannot be recorded is told now, before it takes its time.
        """
        self._collection = self._collected(steps, steps_per_epoch, epochs)
        if self._given is not None:
            self._recorder, self._given = self._given, None
        else:
            how = None if self._iterations is None else self._iterations.law
            expected = None if self._collection is None else self._collection.iterations
            self._recorder = Recorder(how, expected=expected, device=self._device)
        self._recorder.check(model)

    @property
    def _by_epoch(self) -> bool:
        if self._iterations is None:
            return False
        every = self._iterations.every
        return (self._iterations.law.every if every is None else every) == "epoch"

    def _collected(self, steps: float, steps_per_epoch: float, epochs: float) -> Collection | None:
        if self._iterations is None:
            return None
        start_is_epochs = isinstance(self._iterations.start, int)
        needed = (epochs,) if self._by_epoch else (steps, steps_per_epoch) if start_is_epochs else (steps,)
        if not all(map(math.isfinite, needed)):
            raise ValueError(
                "it is not known how long this training takes, and so not when to begin: set its number of epochs or "
                "steps, and give its data a length"
            )
        if self._by_epoch:
            return self._iterations.collection(int(epochs), 1)
        if start_is_epochs or steps == epochs * steps_per_epoch:
            begun = math.ceil(steps / steps_per_epoch)
            whole = self._iterations.collection(begun, int(steps_per_epoch))
            return replace(whole, steps=tuple(step for step in whole.steps if step <= steps))
        return self._iterations.collection(int(steps), 1)  # it ends within an epoch: by the steps, then

    def _epoch_ended(self, model: nn.Module, epochs: int) -> None:
        """Update the recorder after an epoch, if it is to be collected."""
        if self._by_epoch and self._collection is not None and self._collection.includes(epochs):
            self.recorder.update(model)

    def _step_ended(self, model: nn.Module, steps: int) -> None:
        """Update the recorder after a step, if it is to be collected."""
        if not self._by_epoch and self._collection is not None and self._collection.includes(steps):
            self.recorder.update(model)

    def _end(self, model: nn.Module) -> None:
        (self.recorder.update if self._iterations is None else self.recorder.finish)(model)


_classes: dict[tuple[type, type], type] = {}


def _derived(cls: type, base: type) -> type:
    """The class that is both; for the same two, always the same one."""
    if issubclass(cls, base):
        return cls
    if (cls, base) not in _classes:
        _classes[cls, base] = type(cls.__name__, (cls, base), {"__doc__": cls.__doc__})
    return _classes[cls, base]


def _remade(cls: type[Recording]) -> Recording:
    return cls.__new__(cls)
