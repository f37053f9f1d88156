"""Studies that take hours: their command in one line, a bar, what an interrupted user reads, and what they ran on."""

from __future__ import annotations

import importlib.util
import json
import math
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import wherefrom
from wherefrom.training.progress import shown_progress


def command_line(study: str, options: Mapping[str, Any]) -> str:
    """Return the command of a study. Options that are None are left out; True and False are --name and --no-name.

    >>> command_line("uci", {"setup": "main", "folds": None, "beyond": True})
    'wherefrom reproduce uci --setup main --beyond'
    """
    words = ["wherefrom", "reproduce", study]
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def check_folder(folder: Path) -> None:
    """Make the folder of `--out`; raise now if its files could not be written in the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"--out must name a folder that can be written to, which {folder} is not: {error}") from error


def other_settings(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words which settings differ from those of a file; nothing if none do.

    >>> other_settings({"epochs": 40}, {"epochs": 400})
    'epochs 40 instead of 400'
    """
    now = json.loads(json.dumps(now))
    names = sorted(name for name in {*now, *stored} if now.get(name) != stored.get(name))
    return ", ".join(f"{name} {stored.get(name)} instead of {now.get(name)}" for name in names)


def can_draw() -> bool:
    """Return True if matplotlib is installed, else print what to install."""
    if importlib.util.find_spec("matplotlib") is not None:
        return True
    print("There is no picture without matplotlib: pip install 'wherefrom[plot]'")
    return False


# ---------------------------------------------------------------------- how far it is


class Bar:
    """One bar for a whole study, and lines above it. Without a terminal there are only the lines."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task = bar, task

    def say(self, what: str) -> None:
        if self._bar:
            self._bar.update(self._task, description=what)

    def done(self, work: int) -> None:
        if self._bar:
            self._bar.advance(self._task, work)

    def line(self, text: str) -> None:
        if self._bar:
            self._bar.console.print(text, highlight=False)
        else:
            print(text, flush=True)


@contextmanager
def bar(what: str, total: int, show: bool | None, percent: bool = False) -> Iterator[Bar]:
    """Yield a bar over so much work."""
    with shown_progress(what, total, show if total else False, percent) as shown:
        yield Bar(*shown) if shown else Bar()


@contextmanager
def going_on(then: Callable[[], str]) -> Iterator[None]:
    """Print how a run goes on when its user interrupts it."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted: {then()}", file=sys.stderr)
        raise


# ---------------------------------------------------------------------- what it ran on


def peak_memory() -> float:
    """Largest memory of this process so far, in MB, where the system says it."""
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def versions() -> str:
    """Return the versions of all that a number depends on."""
    names = [f"wherefrom {wherefrom.__version__}", f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    if importlib.util.find_spec("numba"):
        import numba

        names.append(f"numba {numba.__version__}")
    return ", ".join([*names, f"{platform.system()} {platform.machine()}"])
