"""Training steps as CUDA graphs: all kernels of a step are captured once, and then launched together.

A small network's kernels take less time than it takes to launch them one by one. A graph launches them at once, on the
memory that they had when they were captured. So a step that is captured has fixed memory, reads nothing back, and takes
what differs from step to step (the rows, the masks, the learning rates) from memory that is written before.

While one is captured, nothing else may run on the device, so where threads train side by side no step is captured. The
first steps run as they are, on their own stream, as torch asks for. The captured step is compared with the
plain one, and given up with a warning if it cannot be captured or gives other numbers. This is tested on a pretended
device, not yet run on hardware. WHEREFROM_GRAPHS=0 in the environment turns it off.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from wherefrom.training.precision import agree

_WARM_UP = 3  # plain steps before a capture; the recorded program checks itself in the second
_FEWEST_STEPS = 100  # that are worth a capture, for which the host and the device wait

Step = Callable[[Sequence[Any]], None]  # of the optimiser's numbers for it: tensors, or None


class _Running:
    """The number of trainings in this process."""

    count = 0


_running, _lock = _Running(), threading.Lock()


@contextmanager
def running() -> Iterator[None]:
    """Count a training for as long as it runs."""
    with _lock:
        _running.count += 1
    try:
        yield
    finally:
        with _lock:
            _running.count -= 1


def captured(step: Step, device: torch.device, steps: int, state: Sequence[Tensor], tolerance: float) -> Step:
    """Return a training step that becomes a graph, if the device supports graphs and there are enough steps.

    state: all tensors that a step changes and later steps read.
    tolerance: how far the graph may be off, relative to the largest number of each of them.
    """
    module: Any = torch.get_device_module(device)
    if not hasattr(module, "CUDAGraph") or steps < _FEWEST_STEPS or os.environ.get("WHEREFROM_GRAPHS") == "0":
        return step
    return _Captured(step, module, device, state, tolerance)


class _Captured:
    """A step that is plain at first, and then a graph."""

    def __init__(
        self, step: Step, module: Any, device: torch.device, state: Sequence[Tensor], tolerance: float
    ) -> None:
        self.step, self.module, self.device, self.state, self.tolerance = step, module, device, state, tolerance
        self.graph: Any = None
        self.planned: list[Any] = []  # memory of the optimiser's numbers
        self.plain_steps, self.is_given_up = 0, False
        with module.device(device):
            self.stream = module.Stream()  # of the first steps and of the capture

    def __call__(self, planned: Sequence[Any]) -> None:
        if self.is_given_up:
            self.step(planned)
            return
        if not self.planned:
            self.planned = [each.clone() if isinstance(each, Tensor) else each for each in planned]
        for kept, new in zip(self.planned, planned, strict=True):
            if isinstance(kept, Tensor):
                kept.copy_(new)
        if self.graph is not None:
            self.graph.replay()
        elif self.plain_steps < _WARM_UP:
            self.plain_steps += 1
            self._step_beside()
        else:
            self._capture_if_alone()

    def _step_beside(self) -> None:
        """Take a plain step on another stream, whose memory a capture can then use."""
        with self.module.device(self.device):
            self.stream.wait_stream(self.module.current_stream())
            with self.module.stream(self.stream):
                self.step(self.planned)
            self.module.current_stream().wait_stream(self.stream)

    def _capture_if_alone(self) -> None:
        with _lock:  # no training begins meanwhile
            if _running.count == 1:
                self._capture()
                return
        self._step_beside()

    def _capture(self) -> None:
        """Take a step, plainly and by a new graph; keep the graph if both agree."""
        before = [tensor.clone() for tensor in self.state]
        self.step(self.planned)
        expected = [tensor.clone() for tensor in self.state]
        self._restore(before)
        why = "gives other numbers than the step itself"
        try:
            with self.module.device(self.device):
                graph = self.module.CUDAGraph()
                with self.module.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                    self.step(self.planned)
                graph.replay()
            if all(agree(ours, theirs, self.tolerance) for ours, theirs in zip(self.state, expected, strict=True)):
                self.graph = graph
                return
        except RuntimeError as error:
            why = f"could not be captured ({error})"
        self._restore(expected)
        self.is_given_up = True
        warnings.warn(
            f"the graph of a training step {why}. Its kernels are launched one by one instead, which is slower",
            stacklevel=4,
        )

    def _restore(self, state: Sequence[Tensor]) -> None:
        for tensor, numbers in zip(self.state, state, strict=True):
            tensor.copy_(numbers)
