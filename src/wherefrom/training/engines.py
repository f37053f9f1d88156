"""Which engine trains what: torch for every network and device, the native kernel for plain MLPs on a CPU.

Families that fit themselves have an engine that lets them do so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal, get_args

import torch

from wherefrom.training import native
from wherefrom.training.cohort import Cohort, Engine
from wherefrom.training.data_parallel import Share
from wherefrom.training.fitted import FittingEngine
from wherefrom.training.native.plain import PlainMLP
from wherefrom.training.torch_engine import TorchEngine

Choice = Literal["auto", "fastest", "torch", "native"]

# Roughly what one member alone takes with torch on one core of a server, for each step and each multiplication in it.
_STEP, _MULTIPLICATION = 3e-4, 4e-10
_WORTH_COMPILING = 0.5  # seconds


def engine_for(
    cohort: Cohort, device: torch.device, choice: Choice, announce: Callable[[str], None], share: Share | None = None
) -> Engine:
    """Choose an engine for a cohort; `announce` hears of a compilation.

    share: the part of this process where several train one member; then it is torch's (default None).

    "auto" takes the native engine where it can train the cohort, if what one member costs is worth a compilation. That
    looks neither at how many members there are nor at what happens to be compiled: a member is the same alone and among
    others, today and tomorrow. "fastest" takes it wherever it can.
    """
    if cohort.fit is not None:
        return FittingEngine(cohort, device)
    if choice not in get_args(Choice):
        raise ValueError(f"engine must be one of {', '.join(map(repr, get_args(Choice)))}, not {choice!r}")
    if choice == "torch" or share is not None:
        return TorchEngine(cohort, device, share)
    try:
        mlp = native.examine(cohort, device)
    except native.Obstacle as reason:
        if choice == "native":
            raise ValueError(f"the native engine cannot train this: {reason}. Use engine='auto' or 'torch'") from None
        return TorchEngine(cohort, device)
    if choice == "auto" and torch_seconds(cohort, mlp) < _WORTH_COMPILING:
        return TorchEngine(cohort, device)
    try:
        from wherefrom.training.native.engine import NativeEngine

        engine = NativeEngine(cohort, mlp, announce)
        engine.rehearse()
    except ValueError:  # the data's fault
        raise
    except Exception as error:  # a numba that does not go with its neighbours, or another gradient than torch's
        if choice == "native":
            raise
        warnings.warn(f"going on with torch, since the native engine cannot be used: {error}", stacklevel=2)
        return TorchEngine(cohort, device)
    return engine


def torch_seconds(cohort: Cohort, mlp: PlainMLP) -> float:
    """Estimate what the training of one member would take with torch."""
    multiplications = cohort.batch_size * mlp.multiplications
    return cohort.epochs * cohort.steps_per_epoch * (_STEP + multiplications * _MULTIPLICATION)
