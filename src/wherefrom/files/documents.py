"""JSON from files that nobody vouches for: what has no place in a document of ours is refused while it is parsed."""

from __future__ import annotations

import json
import math
from typing import Any

_MOST_DEPTH = 64
_MOST_NUMBER = 2**64


def parsed(text: bytes | str) -> dict[str, Any]:
    """Return a JSON object: no name twice, finite numbers of ordinary size, not too deep.

    >>> parsed('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parsed('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the name 'a' is there twice
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    _check_values(document)
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)[:80]!r} is there twice")
    return result


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


def _check_values(document: Any) -> None:
    level: list[Any] = [document]
    for _ in range(_MOST_DEPTH):
        inner: list[Any] = []
        for each in level:
            for value in each.values() if isinstance(each, dict) else each:
                kind = type(value)
                if kind is dict or kind is list:
                    inner.append(value)
                elif kind is float:
                    if not math.isfinite(value):
                        raise ValueError("it holds a number that is too large")
                elif kind is int and not -_MOST_NUMBER <= value <= _MOST_NUMBER:
                    raise ValueError("it holds a whole number that is too large")
        if not inner:
            return
        level = inner
    raise ValueError(f"it is nested more than {_MOST_DEPTH} deep")
