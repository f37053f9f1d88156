"""What the site needs beyond the pages as they lie in docs/: pages from elsewhere in the repository, and prompts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def on_files(files: Any, config: Any) -> Any:
    """Add results with their pictures and numbers, the changes, and the scripts of the gallery to the site."""
    from mkdocs.structure.files import File

    elsewhere = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "results").glob("*/*.*"))}
    measured = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    elsewhere |= {path.relative_to(ROOT).as_posix(): path for path in measured}
    elsewhere |= {f"notebooks/{path.name}": path for path in sorted((ROOT / "notebooks").glob("*.py"))}
    for uri, path in {**elsewhere, "changes.md": ROOT / "CHANGELOG.md"}.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return with_prompts(with_own_links(markdown, page.file.src_uri))


def with_own_links(markdown: str, page: str) -> str:
    """Links to the results as they are in the site; a folder of them is known by its first table.

    >>> with_own_links("[a](../results/uci/short.md) and [b](../results/uci)", "uci.md")
    '[a](results/uci/short.md) and [b](results/uci/main.md)'
    """
    if page.startswith("gallery/"):
        return markdown.replace("](../../notebooks/", "](../notebooks/")
    if "/" in page:
        return markdown.replace("](../../docs/", "](../../")
    if page == "changes.md":  # lies beside docs/
        return markdown.replace("](docs/", "](")
    markdown = markdown.replace("](../results/uci)", "](results/uci/main.md)").replace("](../results/", "](results/")
    return markdown.replace("](../benchmarks/", "](benchmarks/")


def with_prompts(markdown: str) -> str:
    """Blocks of Python with prompts are what they are, so that answers do not look like code."""
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)
