"""Run the notebooks and write the pages of the gallery: code, what it printed, and its pictures.

    python tools/gallery.py                   all of them (some minutes)
    python tools/gallery.py hospital_stay     one of them

A notebook is a Python script in notebooks/, in the percent format that editors and Jupytext open as a notebook. It is
readable in git, and runs without Jupyter. `# quick: ...` is what the line below it is in a quick run, by which the
tests run all notebooks; pages do not show it. docs/gallery/ has the pages, each from one real run.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS, PAGES = ROOT / "notebooks", ROOT / "docs" / "gallery"
QUICK = re.compile(r"^# quick: (.*)\n(.*)$", re.MULTILINE)  # a line for quick runs, and the line that it stands for


@dataclass(frozen=True)
class Cell:
    """A part of a notebook: text in Markdown, or code."""

    is_code: bool
    text: str
    title: str = ""  # of code: what its picture shows, for those who cannot see it


@dataclass(frozen=True)
class Output:
    """The words that a cell of code printed or returned, and its figure if it drew one."""

    words: str
    figure: Any = None


def cells(script: str) -> list[Cell]:
    """Split a script into its cells.

    >>> cells("# %% [markdown]\\n# Text.\\n\\n# %% A point\\na = 1\\n")
    [Cell(is_code=False, text='Text.', title=''), Cell(is_code=True, text='a = 1', title='A point')]
    """
    parts = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)[1:]
    each = []
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        is_code = "[markdown]" not in kind
        words = text if is_code else re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        each.append(Cell(is_code, words.strip(), kind.strip() if is_code else ""))
    return each


def run(cell: str, names: dict[str, Any], is_quick: bool = False) -> Output:
    """Run the code of a cell, and return what it printed, and the value of its last line."""
    tree = ast.parse(QUICK.sub(r"\1", cell) if is_quick else cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "notebook", "exec", dont_inherit=True), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
    if hasattr(value, "get_figure"):
        return Output(printed.getvalue().rstrip(), value.get_figure())
    shown = "" if value is None else repr(value)
    return Output("\n".join(filter(None, (printed.getvalue().rstrip(), shown))))


def page(name: str, script: str, pictures: Path) -> str:
    """Run a notebook in an empty folder, save its pictures, and return its page in Markdown."""
    names: dict[str, Any] = {"__name__": "notebook"}
    parts, drawn = [], 0
    for cell in cells(script):
        if not cell.is_code:
            parts.append(cell.text)
            continue
        output = run(cell.text, names)
        parts.append(f"```python\n{shown(cell.text)}\n```")
        if output.words:
            parts.append(f"```\n{output.words}\n```")
        if output.figure is not None:
            drawn += 1
            picture = pictures / f"gallery-{name}-{drawn}.png"
            output.figure.savefig(picture, dpi=90)
            parts.append(f"![{cell.title}](../images/{picture.name})")
    path = f"notebooks/{name}.py"
    source = f"*Written by a run of [{path}](../../{path}), which editors open as a notebook.*"
    head, *others = parts
    title, _, rest = head.partition("\n")
    return "\n\n".join([title, source, rest.strip(), *others]) + "\n"


def shown(code: str) -> str:
    """Return code without its lines for quick runs.

    >>> shown("# quick: EPOCHS = 4\\nEPOCHS = 200")
    'EPOCHS = 200'
    """
    return QUICK.sub(r"\2", code)


def main() -> None:
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.py")):
        script = (NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = page(name, script, ROOT / "docs" / "images")
        PAGES.mkdir(exist_ok=True)
        (PAGES / f"{name}.md").write_text(text, encoding="utf-8")
        pyplot.close("all")
        print(f"docs/gallery/{name}.md")


if __name__ == "__main__":
    main()
