"""Draw docs/images/readme.png: the picture that the first lines of Python in the README make.

    python tools/readme_picture.py

The data comes with scikit-learn. The lines are taken from the README, so that the picture is theirs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "readme.png"


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
    figure.savefig(PICTURE, dpi=90)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
