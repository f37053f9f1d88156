"""The threads of numpy's and scikit-learn's libraries: on a busy machine, they wait for each other in loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra and trees on one core, where threadpoolctl is installed; decorates functions, too.

    A fit of a table with many missing values took 9 CPU seconds so on a busy machine, and 22 with two threads.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(1):
        yield
