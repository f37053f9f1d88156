"""Work in a process of its own, forked from one that has imported torch and this library and done nothing with them.

    alone(exec, "import sys; assert 'sympy' not in sys.modules", {})

A new interpreter would begin with two seconds of imports.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

SECONDS = 600

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["numba", "wherefrom.posterior.marginalise", "wherefrom.recipes"])


def start(function: Callable[..., Any], *arguments: Any) -> Future:
    """What a function will return, or raise."""
    pool = ProcessPoolExecutor(1, _PROCESSES)
    future = pool.submit(function, *arguments)
    pool.shutdown(wait=False)
    return future


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or raises."""
    return start(function, *arguments).result(SECONDS)
