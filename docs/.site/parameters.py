"""Every parameter of a function or a class as a line of a list: its name, its type, its default, and what it means.

Docstrings here have a line `name: meaning` for a parameter, or `one, two: meaning` for several, which Markdown would
join into one paragraph. Parameters that have no such line are listed with their type and default.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

LINE = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*): (?P<meaning>.*)$")


# Classes that functions return, and nobody constructs: what their constructor takes is of no use to readers.
RESULTS = ("Posterior", "Model", "Sources", "Advice", "VarianceScale", "Temperature", "Conformal")


class Parameters(griffe.Extension):
    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        _list(func, list(func.parameters))

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.name not in RESULTS and not cls.name.endswith(("Prediction", "Error")):
            _list(cls, _fields(cls))


def _list(obj: griffe.Object, parameters: list[griffe.Parameter]) -> None:
    if obj.docstring is not None:
        shown = {each.name: _described(each) for each in parameters if each.name not in ("self", "cls")}
        obj.docstring.value = listed(obj.docstring.value, shown)


def _fields(cls: griffe.Class) -> list[griffe.Parameter]:
    """Return the parameters of a class: those of its `__init__`, or its fields if it is a dataclass."""
    if "__init__" in cls.members:
        return list(cls.members["__init__"].parameters)
    if not any("dataclass" in str(each.value) for each in cls.decorators):
        return []
    fields: dict[str, griffe.Parameter] = {}
    for owner in (*reversed(_bases(cls)), cls):
        for name, each in owner.members.items():
            is_private = name.startswith("_") or name.endswith("_")
            if each.is_attribute and not is_private and each.annotation and "ClassVar" not in str(each.annotation):
                fields[name] = griffe.Parameter(name, annotation=each.annotation, default=_default(each.value))
    return list(fields.values())


def _bases(cls: griffe.Class) -> list[griffe.Class]:
    """Return the classes of the same module that a class inherits from, the nearest first."""
    names = [str(base) for base in cls.bases]
    near = [cls.parent.members[name] for name in names if cls.parent is not None and name in cls.parent.members]
    return [each for base in near if base.is_class for each in (base, *_bases(base))]


def _default(value: Any) -> Any:
    """Return the default of a field; of `field(default=...)`, what is in the brackets."""
    match = re.match(r"field\(default=([^,)]+)", str(value)) if value is not None else None
    return match[1] if match else value


def _described(parameter: griffe.Parameter) -> str:
    """Return the type and the default of a parameter, in words."""
    kind = f"`{parameter.annotation}`" if parameter.annotation is not None else ""
    has_default = parameter.default is not None and "variadic" not in str(parameter.kind or "")
    default = f"default `{parameter.default}`" if has_default else ""
    return ", ".join(filter(None, (kind, default)))


def listed(text: str, parameters: dict[str, str]) -> str:
    """Return a docstring with a list of all parameters, in their order, with what its lines say about them.

    parameters: name -> its type and default.

    >>> print(listed("Draw.\\n\\ncount: how many\\n    samples.\\n\\nMore.", {"count": "`int`", "seed": "default `0`"}))
    Draw.
    <BLANKLINE>
    - **count** (`int`): how many samples.
    - **seed** (default `0`)
    <BLANKLINE>
    More.
    """
    if not parameters:
        return text
    lines, items, first = text.splitlines(), {}, None
    kept: list[str] = []
    position = 0
    while position < len(lines):
        match = LINE.match(lines[position])
        names = [name.lstrip("*") for name in match["names"].split(", ")] if match else []
        if match is None or not set(names) <= set(parameters):
            kept.append(lines[position])
            position += 1
            continue
        meaning = [match["meaning"]]
        while position + 1 < len(lines) and lines[position + 1].startswith("    "):
            position += 1
            meaning.append(lines[position].strip())
        first = len(kept) if first is None else first
        items |= dict.fromkeys(names, " ".join(meaning))
        position += 1
    if first is None:  # before the examples, or at the end
        starts = (">>> ", "```pycon")  # of an example, as it is, or fenced by then
        first = next((i for i, line in enumerate(kept) if line.lstrip().startswith(starts)), len(kept))
    shown = [
        f"- **{name}**{f' ({about})' if about else ''}{f': {items[name]}' if name in items else ''}"
        for name, about in parameters.items()
    ]
    return "\n".join([*kept[:first], "", *shown, "", *kept[first:]]).strip().replace("\n\n\n", "\n\n")
