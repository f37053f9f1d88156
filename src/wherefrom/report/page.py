"""A report as one HTML file, which opens from disk and asks for nothing from anywhere.

    report(posterior, (x, y), "report.html")

`render` puts a document of plain values, with the style and the script that draw it, into one page. The page's own
security policy forbids every request, and no other script than this one runs in it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.files import atomic

if TYPE_CHECKING:
    from wherefrom.posterior import Posterior

_SCRIPT = ("dom", "format", "plot", "table", "sources", "panels", "sections", "main")  # each uses those before it


def report(posterior: Posterior, data: Any, path: str | Path, **about: Any) -> Path:
    """Write what a posterior says of labelled rows that it was not trained on, as a page, and return where it is.

    `data` is (x, y), or a map-style torch Dataset; `about` is what `content` takes: samples, title, subtitle, target,
    columns, rows, unit, outside, edge, before, notes, speaks, blend, predict, sources, cautions, advice, sections,
    measure.
    """
    from wherefrom.report.content import content
    from wherefrom.training.data import as_rows

    if isinstance(data, tuple | list) and len(data) == 2:
        x, y = data
    else:
        rows = as_rows(data, posterior.training.likelihood, posterior.schema.classes)
        x, y = rows.x, rows.truth
    return write(path, content(posterior, x, y, **about))


def write(path: str | Path, document: dict[str, Any]) -> Path:
    """The document as a page on disk: whole, or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, render(document))
    return path


def render(document: dict[str, Any]) -> str:
    """The document as the text of a page.

    >>> page = render({"title": "</script><b>"})
    >>> "<title>&lt;/script&gt;&lt;b&gt;</title>" in page, "</script><b>" in page
    (True, False)
    """
    script = _script()
    parts = {
        "TITLE": html.escape(str(document.get("title", "Wherefrom"))),
        "DIGEST": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "STYLE": _asset("style.css"),
        "SCRIPT": script,
        "DOCUMENT": embedded(document),
    }
    first, *others = _asset("page.html").split("{{")
    # Every part once, and never inside another: what is put in is not looked at again.
    return first + "".join(parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in others))


def embedded(document: dict[str, Any]) -> str:
    """JSON that no HTML parser can take for anything else.

    >>> embedded({"name": "</script><b>&"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e\\\\u0026"}'
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _script() -> str:
    """Return the plot library and all modules as one script: a file that opens from disk cannot import others."""
    modules = (_asset(f"script/{name}.js") for name in _SCRIPT)
    joined = "\n".join(re.sub(r"^import .*\n|^export ", "", module, flags=re.M) for module in modules)
    return f'{_asset("library/plot.js")}"use strict";\n(() => {{\n{joined}}})();\n'


def _asset(name: str) -> str:
    return resources.files("wherefrom.report").joinpath("assets", name).read_text(encoding="utf-8")
