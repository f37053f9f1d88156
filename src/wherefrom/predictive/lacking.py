"""Attributes that a prediction lacks: each says why, and what to use instead."""

from __future__ import annotations

from typing import Any, Self


class Lacking:
    """An attribute that other predictions have and this one cannot have; `hasattr` is False.

    why: the reason, and what to use instead.

    >>> class Colours:
    ...     median = Lacking("colours have no order: use probabilities")
    >>> Colours().median
    Traceback (most recent call last):
    AttributeError: Colours has no median: colours have no order: use probabilities
    """

    def __init__(self, why: str) -> None:
        self.why = why

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Self:
        if instance is None:
            return self
        raise AttributeError(f"{owner.__name__} has no {self.name}: {self.why}")
