"""The identity of a training: digests of all that it depends on, by which checkpoints know their members.

How long it is, and which of its iterations make a law, is left out: see `checkpoints` and `continuing`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from wherefrom.files.digests import digest
from wherefrom.training.cohort import Cohort, Examples, Trainee
from wherefrom.training.torch_classes import TorchOptimiser

_ROWS_AT_ONCE = 4096  # that are read for a digest
_MOMENTS = 1000  # at which a schedule is asked


def of_table(table: Examples) -> str:
    """Digest of all rows, a few at a time. Streamed inputs provide their own fingerprint."""
    if hasattr(table.x, "fingerprint"):
        return digest(len(table.y), table.x.fingerprint(), *(part for part in table[1:] if part is not None))
    starts = range(0, len(table.y), _ROWS_AT_ONCE)
    each = (digest(*(part[a : a + _ROWS_AT_ONCE] for part in table if part is not None)) for a in starts)
    return digest(len(table.y), *each)


def of_cohort(cohort: Cohort, engine: str) -> str:
    """Digest of all that the members of a cohort share, but for the length of their training."""
    network, optimiser = cohort.network, cohort.optimiser
    fixed = (
        {name: _written(value) for name, value in optimiser.fixed.items()}
        if isinstance(optimiser, TorchOptimiser)
        else {}
    )
    return digest(
        engine,
        _nameless(network.description),
        network.layout,
        network.sites,
        network.drops,
        network.attends,
        *(part for name, tensor in network.in_common.items() for part in (name, tensor)),
        optimiser,
        fixed,
        cohort.batch_size,
        cohort.steps_per_epoch,
        _nameless(repr(cohort.augment)),
        cohort.autocast,
        repr(cohort.fit),
    )


def of_member(cohort: Cohort, member: Trainee) -> tuple[Any, ...]:
    """Return a member's settings and streams; a schedule is known by its factors at some moments."""
    moments = np.unique(np.linspace(0, cohort.epochs * cohort.steps_per_epoch - 1, _MOMENTS).astype(np.int64))
    factors = [cohort.factors(member, int(moment), 1)[0] for moment in moments] if member.schedule else []
    return (
        sorted(member.settings.items()),
        *(member.order, member.masks, member.augmentation, member.replacement),
        cohort.rates(member),
        cohort.loss_of(member),
        list(map(float, factors)),
    )


def _written(value: Any) -> str:
    return _nameless(getattr(value, "__qualname__", None) or repr(value))


def _nameless(text: str) -> str:
    """Text without the addresses of objects, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
