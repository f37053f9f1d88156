"""Compiling: when it is due, where its result is kept, and what happens when it cannot be kept.

Compiling the training takes about half a minute, loading what was compiled a fraction of one. The folder's name says
which sources, which numba and which processor it was made for, so a new version never meets an old result, and machines
may share a home. Of several processes on a machine one compiles, and the others wait for it and load the result.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba.core import event
from numba.core.caching import NullCache

from wherefrom.cache import user_cache
from wherefrom.files.digests import digest
from wherefrom.training import streams
from wherefrom.training.native import jit

_one_at_a_time = threading.Lock()


def folder(kernel: Any) -> Path:
    """Return the folder of this version of a kernel for this processor."""
    kernel_file = Path(kernel.py_func.__code__.co_filename)
    sources = (*sorted(Path(__file__).parent.glob("*.py")), Path(streams.__file__), kernel_file)
    processor = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    versions = numba.__version__, sys.version, jit.CHECKED
    return user_cache() / f"native-{digest(*(source.read_bytes() for source in sources), *processor, *versions)}"


def ready(kernel: Any, arguments: tuple[Any, ...], announce: Callable[[str], None]) -> None:
    """Have a kernel compiled for these arguments."""
    if numba.config.DISABLE_JIT:
        raise RuntimeError("numba's compiler is switched off by NUMBA_DISABLE_JIT; use engine='torch'")
    signature = tuple(numba.typeof(argument) for argument in arguments)
    with _one_at_a_time:
        if signature in kernel.overloads:
            return
        path = folder(kernel)
        kept = _keep(kernel, path)
        message = "compiling once for this machine, which takes about half a minute"
        if not kept:
            message = (
                "compiling, which takes about half a minute. The result cannot be kept: let WHEREFROM_CACHE name a "
                f"folder that can be written, which {path} is not"
            )
        with _alone_on_this_machine(path), _when_compiling(lambda: announce(message)):
            try:
                kernel.compile(signature)
            except Exception:  # a damaged cache can raise anything; a real error comes again
                shutil.rmtree(path, ignore_errors=True)
                _keep(kernel, path)
                kernel.compile(signature)


@contextmanager
def _alone_on_this_machine(path: Path) -> Iterator[None]:
    """Wait while another process compiles into the same folder: what it has compiled need only be loaded."""
    try:
        import fcntl

        lock = (path / "lock").open("a")
    except (ImportError, OSError):  # no such locks, or no such folder: each compiles for itself
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed, also by the process's death
        yield


@contextmanager
def _when_compiling(tell: Callable[[], None]) -> Iterator[None]:
    """Tell once if numba compiles, rather than load what it has kept."""

    class Listener(event.Listener):
        announced = False

        def on_start(self, _: Any) -> None:
            if not self.announced:
                self.announced = True
                tell()

        def on_end(self, _: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


def _keep(kernel: Any, path: Path) -> bool:
    """Let numba keep a kernel in that folder, if it can be written to; it would look for another one otherwise."""
    before = numba.config.CACHE_DIR
    try:
        path.mkdir(parents=True, exist_ok=True)
        numba.config.CACHE_DIR = str(path)
        kernel.enable_caching()
        kept = kernel.stats.cache_path is not None and Path(kernel.stats.cache_path).is_relative_to(path)
    except (OSError, RuntimeError):
        kept = False
    finally:
        numba.config.CACHE_DIR = before
    if not kept:
        kernel._cache = NullCache()
    return kept
