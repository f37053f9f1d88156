"""Which engine trains what: torch for every network and device, the native kernel for plain MLPs on a CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal, get_args

import torch

from wherefrom.training import native
from wherefrom.training.cohort import Cohort, Engine
from wherefrom.training.native.plain import recognise
from wherefrom.training.torch_engine import TorchEngine

Choice = Literal["auto", "torch", "native"]

# Roughly what torch takes on one core of a server: to issue a step of a group, and for each member a step and a
# multiplication. Only the order of magnitude matters.
_STEP, _MEMBER_STEP, _MULTIPLICATION = 3e-4, 2e-6, 4e-10
_WORTH_COMPILING = 2.0  # seconds of torch's time


def engines_for(
    cohorts: list[Cohort], device: torch.device, choice: Choice, announce: Callable[[str], None]
) -> list[Engine]:
    """An engine for each cohort; `announce` hears of a compilation.

    "auto" takes the native engine for the cohorts that it can train, if together they are worth a compilation. That
    depends on the work alone, and not on what happens to be compiled: the same call gives the same numbers tomorrow.
    """
    if choice not in get_args(Choice):
        raise ValueError(f"engine must be one of {', '.join(map(repr, get_args(Choice)))}, not {choice!r}")
    obstacles = [native.obstacle(cohort, device) if choice != "torch" else "" for cohort in cohorts]
    able = [cohort for cohort, obstacle in zip(cohorts, obstacles, strict=True) if obstacle is None]
    if choice == "native" and len(able) < len(cohorts):
        reason = next(obstacle for obstacle in obstacles if obstacle is not None)
        raise ValueError(f"the native engine cannot train this: {reason}. Use engine='auto' or 'torch'")
    if choice == "auto" and sum(map(torch_seconds, able)) < _WORTH_COMPILING:
        able = []
    chosen = {id(cohort) for cohort in able}
    return [
        _native(cohort, device, choice, announce) if id(cohort) in chosen else TorchEngine(cohort, device)
        for cohort in cohorts
    ]


def _native(cohort: Cohort, device: torch.device, choice: Choice, announce: Callable[[str], None]) -> Engine:
    from wherefrom.training.native.engine import NativeEngine, RehearsalError

    engine = NativeEngine(cohort, announce)
    try:
        engine.rehearse()
    except RehearsalError as error:
        if choice == "native":
            raise
        warnings.warn(f"{error}. Going on with torch", stacklevel=2)
        return TorchEngine(cohort, device)
    return engine


def torch_seconds(cohort: Cohort) -> float:
    """What a plain MLP's cohort would take with torch, roughly."""
    multiplications = cohort.batch_size * recognise(cohort.network, cohort.tables[0].x).multiplications
    groups = len(TorchEngine(cohort, torch.device("cpu")).groups(1))
    each_step = groups * _STEP + len(cohort.members) * (_MEMBER_STEP + multiplications * _MULTIPLICATION)
    return cohort.epochs * cohort.steps_per_epoch * each_step
