"""Examples in docstrings as blocks of code: Markdown would take their prompts for quotations."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Everything from a prompt to the next empty line, between fences.

    >>> fenced("Twice.\\n\\n>>> 2 * 2\\n4\\n")
    'Twice.\\n\\n```pycon\\n>>> 2 * 2\\n4\\n```\\n'
    """
    found: list[str] = []
    margin: str | None = None
    for line in [*text.splitlines(), ""]:
        if margin is None and line.lstrip().startswith(">>> "):
            margin = line[: len(line) - len(line.lstrip())]
            found.append("```pycon")
        elif margin is not None and not line.strip():
            found.append("```")
            margin = None
        found.append(line if margin is None else line.removeprefix(margin))
    return "\n".join(found)
