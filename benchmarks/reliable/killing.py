"""A writer in a forked child that dies, or fails, at its n-th file operation.

Operations are seen by an audit hook (open, rename, remove, mkdir, rmdir, flock) and by wrappers of os.write and
os.fsync, which Python does not announce. A write can also die in its middle.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

How = Literal["die", "die half-way", "fail"]
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "fcntl.flock")
_DIED = 77


def operations(write: Callable[[], None], root: Path, how: How = "die") -> int:
    """Return how many file operations a writer does below a folder; of "die half-way", how many writes."""
    read, write_end = os.pipe()

    def counted() -> None:
        counter = _watch(root, 0, how)
        write()
        os.write(write_end, f"{counter[0]}".encode())

    code = in_child(counted)
    os.close(write_end)
    with os.fdopen(read) as answer:
        count = int(answer.read() or -1)
    if code or count < 0:
        raise RuntimeError(f"the writer failed by itself, with code {code}")
    return count


def interrupted(write: Callable[[], None], root: Path, number: int, how: How) -> int:
    """Run a writer that dies or fails at an operation, counted from 1; return the exit code of its process."""

    def dying() -> None:
        _watch(root, number, how)
        write()

    return in_child(dying)


def in_child(work: Callable[[], None], *, is_quiet: bool = False) -> int:
    """Run something in a forked process, and return its exit code: 2 if the disk was full, 3 for other OSErrors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process with threads: none computes
        process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    try:
        if is_quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        code = 0
    except OSError as error:
        code = 2 if error.errno == errno.ENOSPC else 3
        if code == 3:
            traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # whatever happens, the child never goes on as its parent would


def _watch(root: Path, number: int = 0, how: How = "die") -> list[int]:
    """Count operations below a folder from now on; at the given one, die or fail."""
    counter, is_silent = [0], [False]
    prefix = os.fspath(root)

    def reached() -> bool:
        counter[0] += 1
        return counter[0] == number or (how == "fail" and 0 < number <= counter[0])

    def stop() -> None:
        if how == "fail":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os._exit(_DIED)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _EVENTS or is_silent[0] or how == "die half-way":
            return
        is_silent[0] = True
        try:
            subject = arguments[0]
            if isinstance(subject, int):
                path = _path_of(subject)
            else:
                path = os.path.abspath(os.fsdecode(subject)) if isinstance(subject, str | bytes | Path) else ""
            is_write = event != "open" or bool(int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))  # type: ignore[call-overload]
            is_ours = path.startswith(prefix) and (is_write or how != "fail")
        finally:
            is_silent[0] = False
        if is_ours and not (how == "fail" and event in ("os.remove", "os.rmdir", "fcntl.flock")) and reached():
            stop()

    os_write, os_fsync = os.write, os.fsync

    def write(descriptor: int, data: bytes | memoryview) -> int:
        if _path_of(descriptor).startswith(prefix) and reached():
            if how != "die":
                os_write(descriptor, memoryview(data)[: len(data) // 2])
            stop()
        return os_write(descriptor, data)

    def fsync(descriptor: int) -> None:
        if how != "die half-way" and _path_of(descriptor).startswith(prefix) and reached():
            stop()
        os_fsync(descriptor)

    os.write, os.fsync = write, fsync  # type: ignore[assignment]
    sys.addaudithook(hook)
    return counter


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
