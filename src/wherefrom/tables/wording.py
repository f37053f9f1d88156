"""Options as the user writes them: `group="id"` for `wf.fit`, `--group id` for the command.

Messages name options by `option`. It words them for the door that was used: Python, unless the command says that it
speaks (`speaking`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

Language = Literal["fit", "command"]

_LANGUAGE: ContextVar[Language] = ContextVar("language", default="fit")
_LISTS = ("number", "text", "date", "drop", "missing", "keep")  # options that may be repeated
_OF_FILES = {"separator": "sep", "decimal": "decimal", "encoding": "encoding"}  # what pandas calls them


@contextmanager
def speaking(language: Language) -> Iterator[None]:
    """Word the options for this language within the block."""
    token = _LANGUAGE.set(language)
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def language() -> Language:
    """Return the language that options are worded in."""
    return _LANGUAGE.get()


def option(name: str, value: Any = None) -> str:
    """Return an option, and its value if one is given, as the user writes it.

    The format of a file is not an option of `wf.fit`: there, a frame is read with it first.

    >>> option("held_out"), option("group", "patient id"), option("text", "zip"), option("decimal", ",")
    ('held_out=', "group='patient id'", "text=['zip']", "pandas.read_csv(..., decimal=',')")
    >>> with speaking("command"):
    ...     option("held_out"), option("group", "patient id"), option("text", "zip"), option("overwrite", True)
    ('--held-out', "--group 'patient id'", '--text zip', '--overwrite')
    """
    if language() == "command":
        flag = f"--{name.replace('_', '-')}"
        return flag if value is None or value is True else f"{flag} {quoted(str(value))}"
    if name in _OF_FILES:
        return f"pandas.read_csv(..., {_OF_FILES[name]}={'...' if value is None else repr(value)})"
    if value is None:
        return f"{name}="
    return f"{name}={[value]!r}" if name in _LISTS else f"{name}={value!r}"


def quoted(text: str) -> str:
    """Return a text as a shell takes it for one word."""
    return text if re.fullmatch(r"[\w.,=-]+", text) else f"'{text}'"
