"""A progress bar for people: on a terminal only, unless asked for, or whatever the caller shows instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = bool | None | Callable[[int], None]


@contextmanager
def progress_bar(what: str, total: int, show: Show) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with what has been done since; `show=None` shows the bar on a terminal.

    A function in place of `show` is called itself, and nothing is shown.
    """
    if callable(show):
        yield show
        return
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, force_terminal=not sys.stderr.isatty() or None)  # if it was asked for, show it
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
