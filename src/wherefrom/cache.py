"""Where wherefrom keeps what can be made, or fetched, again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """The user's folder for what can be made again; WHEREFROM_CACHE names another."""
    if chosen := os.environ.get("WHEREFROM_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "wherefrom"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "wherefrom"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wherefrom"
