"""The user's line, which warnings name, however many functions of this package lie between."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def users_stacklevel() -> int:
    """Return the `stacklevel` by which a warning names the nearest caller outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
