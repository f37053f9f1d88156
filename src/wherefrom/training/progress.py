"""A progress bar for people: on a terminal only, unless asked for, or whatever the caller shows instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Show = bool | None | Callable[[int], None]


@contextmanager
def progress_bar(what: str, total: int | None, show: Show) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with what has been done since; `show=None` shows the bar on a terminal.

    A function in place of `show` is called itself, and nothing is shown.
    """
    if callable(show):
        yield show
        return
    with shown_progress(what, total, show) as shown:
        if shown is None:
            yield lambda done: None
            return
        bar, task = shown
        yield lambda done: bar.advance(task, done)


@contextmanager
def shown_progress(
    what: str, total: int | None, show: bool | None, percent: bool = False
) -> Iterator[tuple[Any, Any] | None]:
    """Yield rich's own progress and its one task, or nothing where none is to be shown; None: the end is not known."""
    if not (sys.stderr.isatty() if show is None else show):
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn() if percent else progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True, force_terminal=not sys.stderr.isatty() or None)  # if it was asked for, show it
    with progress.Progress(*columns, console=console, transient=True) as bar:
        yield bar, bar.add_task(what, total=total)
