"""ReLU's moments as one operation, where numba is installed (`wherefrom[fast]`), on the CPU in single precision.

As torch operations they are some twenty passes over memory and more for every factor, most of one-shot's time. The
operation is one that vmap and recorded programs can handle.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor

from wherefrom.predictive.one_shot.moments import Moments

_is_off: ContextVar[bool] = ContextVar("spelled out", default=False)

_one_at_a_time = threading.Lock()

_SIGNATURE = "Tensor mean, Tensor variance, Tensor factors, float below"
_PLACES = "Tensor(a!) new_mean, Tensor(b!) new_variance, Tensor(c!) new_factors"


@contextmanager
def spelled_out() -> Iterator[None]:
    """Use torch's own operations meanwhile, for those who have to translate them."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def covers(x: Moments) -> bool:
    mean = x.mean
    fits = mean.device.type == "cpu" and mean.dtype == torch.float32 and x.covariance is None and not x.is_certain
    return fits and not _is_off.get() and _operation_of_all() is not None


def relu(x: Moments) -> Moments:
    return leaky_relu(x, 0.0)


def leaky_relu(x: Moments, negative_slope: float = 0.01) -> Moments:
    shape = x.mean.shape
    variance = torch.zeros_like(x.mean) if x.variance is None else x.variance
    factors = x.mean.new_zeros(0, *shape) if x.factors is None else x.factors
    operation = _operation_of_all()
    given = (part.flatten(start).unsqueeze(0) for part, start in ((x.mean, 0), (variance, 0), (factors, 1)))
    mean, variance, factors = operation(*given, negative_slope)
    pushed = None if x.factors is None else factors.reshape(x.factors.shape)
    return Moments(mean.reshape(shape), variance.reshape(shape), pushed)


def _operation_of_all() -> Any:
    """Threads that come at once wait for the first."""
    with _one_at_a_time:
        return _operation()


@cache
def _operation() -> Any:
    """torch's operation of this name, compiled; none without numba."""
    try:
        import numba
    except ImportError:  # not there, or not going with its neighbours
        return None
    import numpy as np

    if numba.config.DISABLE_JIT:
        return None
    import wherefrom.predictive.one_shot.kernel as kernel
    from wherefrom.training.native import compiling

    def push(mean: Tensor, variance: Tensor, factors: Tensor, below: float, *places: Tensor) -> None:
        arrays = (tensor.contiguous().numpy() for tensor in (mean, variance, factors))
        scratch = np.empty((2, kernel.BLOCK), np.float32)
        kernel.push(*arrays, np.float32(below), *(place.numpy() for place in places), *scratch)

    arrays = tuple(np.zeros(shape, np.float32) for shape in ((1, 1), (1, 1), (1, 1, 1)))
    compiling.ready(kernel.push, (*arrays, np.float32(0), *arrays, *np.zeros((2, 1), np.float32)), lambda _: None)

    def to_new_places(mean: Tensor, variance: Tensor, factors: Tensor, below: float) -> tuple[Tensor, ...]:
        places = tuple(map(_like, (mean, variance, factors)))
        push(mean, variance, factors, below, *places)
        return places

    def to_places(
        mean: Tensor,
        variance: Tensor,
        factors: Tensor,
        below: float,
        *,
        new_mean: Tensor,
        new_variance: Tensor,
        new_factors: Tensor,
    ) -> tuple[Tensor, ...]:
        push(mean, variance, factors, below, new_mean, new_variance, new_factors)
        return new_mean, new_variance, new_factors

    def of_many(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Under vmap: more members."""
        *tensors, below = given
        wide = [
            part.unsqueeze(0).expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)
            for part, dim in zip(tensors, dims, strict=False)
        ]
        done = operation(*(part.flatten(0, 1) for part in wide), below)
        return tuple(new.unflatten(0, part.shape[:2]) for new, part in zip(done, wide, strict=True)), (0, 0, 0)

    library = _library()
    library.define(f"push_relu({_SIGNATURE}) -> (Tensor, Tensor, Tensor)")
    library.define(f"push_relu.out({_SIGNATURE}, *, {_PLACES}) -> (Tensor(a!), Tensor(b!), Tensor(c!))")
    library.impl("push_relu", to_new_places, "CPU")
    library.impl("push_relu.out", to_places, "CPU")
    torch.library.register_vmap("wherefrom::push_relu", of_many, lib=library)
    operation = torch.ops.wherefrom.push_relu
    return operation


@cache
def _library() -> torch.library.Library:
    return torch.library.Library("wherefrom", "DEF")


def _like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)
