"""HTML for notebooks, and frames of pandas or polars.

The HTML takes the notebook's own colours, so that it can be read on a light and on a dark background.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Literal

Library = Literal["pandas", "polars"]

_MOST_ROWS = 10  # of a table that is shown
_LINE = "1px solid rgba(128, 128, 128, 0.35)"
_BAR = "#3b82c4"  # has a contrast of 3 to 1 with white and with black


def frame_of(columns: Mapping[str, Any], library: Library | None = None) -> Any:
    """Return columns as a frame.

    columns: name -> values, all of the same length.
    library: "pandas" or "polars" (default: pandas if it is installed, else polars).
    """
    if library not in (None, "pandas", "polars"):
        raise ValueError(f'library must be "pandas" or "polars", not {library!r}')
    there = [name for name in ("pandas", "polars") if importlib.util.find_spec(name) is not None]
    chosen: str = library or (there[0] if there else "pandas")
    if chosen not in there:
        raise ImportError(f"a frame needs {chosen}: pip install {chosen}")
    return importlib.import_module(chosen).DataFrame(dict(columns))


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], is_number: Sequence[bool], shares: Sequence[float] = ()
) -> str:
    """Return a table in HTML, its first rows if there are many.

    rows: the cells in words.
    is_number: for each column, whether it is aligned to the right.
    shares: of each row, between 0 and 1, to be drawn as a bar in a last column (default: none).
    """
    sides = ["right" if number else "left" for number in is_number]
    cell = f"padding: 2px 10px; border: none; border-bottom: {_LINE}; text-align: "
    head = "".join(
        f'<th scope="col" style="{cell}{side}">{escape(name)}</th>' for name, side in zip(columns, sides, strict=True)
    )
    head += f'<th scope="col" style="{cell}left"></th>' * bool(shares)
    lines = []
    for number, row in enumerate(rows[:_MOST_ROWS]):
        line = "".join(f'<td style="{cell}{side}">{escape(each)}</td>' for each, side in zip(row, sides, strict=True))
        if shares:
            width = round(120 * min(max(shares[number], 0.0), 1.0))
            bar = f'<div style="width: {width}px; height: 10px; background: {_BAR}"></div>'
            line += f'<td style="{cell}left; min-width: 120px">{bar}</td>'
        lines.append(f"<tr>{line}</tr>")
    more = f"<div>... and {len(rows) - _MOST_ROWS:,} more rows</div>" if len(rows) > _MOST_ROWS else ""
    return (
        '<table style="border-collapse: collapse; font-variant-numeric: tabular-nums">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"
    )


def card(title: str, *parts: str, facts: Mapping[str, str] | None = None) -> str:
    """Return a title, facts by name, and further parts, as one block of HTML.

    parts: HTML, one below the other.
    facts: name -> what it is, in words.
    """
    named = "".join(f"<div><b>{escape(name)}</b>: {escape(each)}</div>" for name, each in (facts or {}).items())
    shown = "".join(f'<div style="margin-top: 6px">{part}</div>' for part in parts if part)
    return (
        f'<div style="border: {_LINE}; border-radius: 6px; padding: 8px 12px; max-width: 60em; overflow-x: auto">'
        f'<div style="font-weight: bold; margin-bottom: 4px">{escape(title)}</div>{named}{shown}</div>'
    )


def paragraphs(text: str) -> str:
    """Return lines of text as HTML."""
    return "".join(f"<div>{escape(line)}</div>" for line in text.splitlines())
