"""Memory that trainings take, estimated before they begin, so that a limit is kept rather than hit.

    a member while it trains   theta0, theta, its gradient, two averages of the optimiser, what the law collects, and
                               the activations of a batch, forwards and backwards
    a member afterwards        theta0, the last iterate and its law

What torch, Python and the compiled kernel take themselves, some hundred megabytes, is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wherefrom.training.cohort import Cohort, parts

_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_WHILE_TRAINING = 5  # numbers for each weight: theta0, theta, gradient, and two averages
_OF_ACTIVATIONS = 3  # numbers for each activation: forwards, backwards, and what is kept in between


def as_bytes(written: int | float | str) -> int:
    """Return a size in bytes.

    >>> as_bytes("1.5 GB"), as_bytes(2_000_000)
    (1500000000, 2000000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(kB|MB|GB|TB|)", str(written).strip())
    if isinstance(written, bool) or match is None or float(match[1]) <= 0:
        raise ValueError(f'memory_limit is a number of bytes, or text such as "8 GB", not {written!r}')
    return int(float(match[1]) * _UNITS[match[2]])


def in_words(size: float) -> str:
    """Return a size as people read it.

    >>> in_words(1_234_567_890), in_words(999)
    ('1.2 GB', '999 B')
    """
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.{1 if size < 10 * _UNITS[unit] else 0}f} {unit}"
    return f"{size:.0f} B"


@dataclass(frozen=True)
class Need:
    """The bytes that the members of a cohort take."""

    training: int  # one member, while it trains
    trained: int  # one member, afterwards
    rows: int  # of all tables, once as they are and once as the engine holds them
    shared: int  # by all members: frozen parameters
    members: int

    @classmethod
    def of(cls, cohort: Cohort) -> Need:
        """Estimate what a cohort takes."""
        layout, itemsize = cohort.network.layout, cohort.members[0].theta0.element_size()
        collected = _collected(cohort)
        weights = layout.size * itemsize
        activations = _OF_ACTIVATIONS * cohort.network.numbers_per_row * cohort.batch_size * itemsize
        tables = [part for table in cohort.tables for part in table if isinstance(part, Tensor)]
        return cls(
            int((_WHILE_TRAINING + collected) * weights + activations),
            int((2 + collected) * weights),
            2 * sum(part.numel() * part.element_size() for part in tables),
            sum(tensor.nbytes for tensor in cohort.network.shared.values()),
            len(cohort.members),
        )


def _collected(cohort: Cohort) -> float:
    """Return how many numbers the law collects for each weight."""
    if cohort.collection is None:
        return 0.0
    few = 8  # weights of a small network, by which the collector is measured
    collector = cohort.collection.collector(torch.zeros(1, few))
    tensors = [each for each in vars(collector).values() if isinstance(each, Tensor)] if collector is not None else []
    return sum(each.numel() for each in tensors) / few


def most_together(needs: Sequence[Need], limit: int, width: int) -> tuple[list[int], int]:
    """Return how many members of each cohort may train as one group, and how many groups at once.

    limit: bytes in all. width: groups that would be trained at once if there were no limit.
    """
    standing = sum(need.rows + need.shared + need.trained * need.members for need in needs)
    largest = max(need.training for need in needs)
    if standing + largest > limit:
        members = sum(need.members for need in needs)
        raise ValueError(
            f"memory_limit is {in_words(limit)}, but one member takes about {in_words(largest)} while it trains, and "
            f"the rows and what {members} members leave {in_words(standing)}: raise memory_limit, or take fewer "
            "draws, a smaller network or batch size, or a law that collects less, such as wf.SWAG(rank=5)"
        )
    at_once = min(width, (limit - standing) // largest)
    room = (limit - standing) // at_once
    return [max(1, room // need.training) for need in needs], at_once


def most_on_device(need: Need, free: int) -> int:
    """Return how many members may train as one group on a device with so much free memory, half of which is left."""
    return max(1, (free // 2 - need.rows // 2) // need.training)


def cut(groups: Sequence[range], most: int) -> list[range]:
    """Return groups of members, up to a size.

    >>> cut([range(0, 5), range(5, 7)], 2)
    [range(0, 1), range(1, 3), range(3, 5), range(5, 7)]
    """
    each = ((group, part) for group in groups for part in parts(len(group), -(-len(group) // most)))
    return [range(group.start + part.start, group.start + part.stop) for group, part in each]
