"""Interruptions: Ctrl-C (SIGINT) and SIGTERM stop trainings between two epochs, so that what is done can be kept.

A signal arrives at any instruction, most often in the middle of an epoch, where a state is of no use. While trainings
can be kept, a signal therefore only sets a flag; engines look at it, write down the last finished epoch and stop. A
second signal stops at once: what was written before stays.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_requested = threading.Event()  # signals belong to the process, and so does this


class Interrupted(KeyboardInterrupt):
    """Training was interrupted; the message says what was kept and how to go on."""


def is_requested() -> bool:
    """Return True if trainings of this process shall stop."""
    return _requested.is_set()


def request() -> None:
    """Ask the trainings of this process to stop as soon as nothing is lost by it."""
    _requested.set()


def stop_if_requested() -> None:
    """Raise if trainings shall stop. To be called where nothing would be lost."""
    if _requested.is_set():
        raise Interrupted("training was interrupted")


@contextmanager
def heard(then: Callable[[], str], announce: Callable[[str], None]) -> Iterator[None]:
    """Hear signals as requests to stop, and raise one error at the end that says what to do.

    then: what is in the error: what was kept, and how to go on.
    announce: hears at once that the signal was received.

    Signals are delivered to the main thread alone; in other threads nothing changes. A handler of the user's own is
    called after training has stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise Interrupted("stopped at once, on the second signal")
        received.append(number)
        request()
        with suppress(RuntimeError):  # the signal came while the same stream was written to
            announce("stopping after this epoch; interrupt again to stop at once, with what was written before")

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):  # None: installed by another language, and cannot be restored
            signal.signal(number, note)
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
    finally:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
        _requested.clear()
    if received and (error is None or isinstance(error, Interrupted)):
        _call_users_handler(before[signal.Signals(received[0])], received[0])
        raise Interrupted(then()) from None
    if error is not None:
        raise error


def _call_users_handler(handler: Any, number: int) -> None:
    """Pass the signal on, after training has stopped, to a handler that the user had installed."""
    if callable(handler) and handler is not signal.default_int_handler:
        handler(number, sys._getframe())
