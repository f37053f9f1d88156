"""A lock that its holder's death releases: flock on a small file that says who holds it, and since when.

Nothing depends on the clock or on the age of files. The file is deleted by its holder; one that a killed process left
is free, and is taken over.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import getpass
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wherefrom.files.errors import BusyError

_PAUSE = 0.05  # seconds between two attempts
_MOST_BYTES = 4096  # of what a lock says
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_HELD: set[int] = set()  # descriptors of this process's locks


@contextmanager
def locked(lock: Path, target: str | Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock while the block runs.

    lock: the file of the lock; its folder must exist.
    target: what is locked, for the error.
    patience: seconds to wait for another holder (default 0).

    >>> import tempfile
    >>> lock = Path(tempfile.mkdtemp()) / ".lock"
    >>> with locked(lock, "run"), locked(lock, "run"):
    ...     pass
    Traceback (most recent call last):
    wherefrom.files.errors.BusyError: run is being written by process ... Wait until it ends, or name another place
    """
    descriptor = _acquired(lock, target, time.monotonic() + patience)
    _HELD.add(descriptor)
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(lock)  # while it is held: whoever opened it before sees that it is no longer there
        _HELD.discard(descriptor)
        with suppress(OSError):
            os.close(descriptor)


def _acquired(lock: Path, target: str | Path, deadline: float) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    while True:
        descriptor = os.open(lock, flags, 0o666)
        try:
            _take(descriptor, lock)
            if _is_still(descriptor, lock):
                _sign(descriptor)
                return descriptor
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if error.errno not in _BUSY:
                raise
            if time.monotonic() >= deadline:
                raise BusyError(
                    f"{target} is being written by {holder}. Wait until it ends, or name another place"
                ) from None
            time.sleep(_PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        else:
            os.close(descriptor)  # its holder deleted the file in between: the lock is another file now


def _take(descriptor: int, lock: Path) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        warnings.warn(
            f"{lock.parent} lies on a file system without locks: let only one process write there at a time",
            stacklevel=6,
        )


def _is_still(descriptor: int, lock: Path) -> bool:
    """Return True if the file that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(lock))
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Write who holds the lock. That is only for people: a disk that is full does not stop it."""
    about = {
        "process": os.getpid(),
        "user": _user(),
        "machine": platform.node(),
        "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(about).encode())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # containers run as users without a name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def _holder(descriptor: int) -> str:
    """Return who holds a lock, as its file says."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        about = json.loads(os.read(descriptor, _MOST_BYTES))
        process, user, machine, since = (str(about[name]) for name in ("process", "user", "machine", "since"))
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
    this = " (this one)" if (process, machine) == (str(os.getpid()), platform.node()) else ""
    return f"process {process}{this} of {user} on {machine} since {since}"


def _forget_in_child() -> None:
    """Close the locks that a forked child inherits, so that they end with their holder."""
    for descriptor in _HELD:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
