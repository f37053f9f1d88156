"""The device that is tested: a pretended accelerator, built and registered with torch as "pretend:0" and "pretend:1".

WHEREFROM_TEST_DEVICE=cuda in the environment names a real one instead.

Torch has room for one such backend in a process, and keeps it until the process ends. So only a process of its own
imports this module: `test_pretended.py` starts it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import torch

NAME = os.environ.get("WHEREFROM_TEST_DEVICE", "pretend")
IS_PRETENDED = NAME == "pretend"
FIRST, SECOND = f"{NAME}:0", f"{NAME}:1"

_SOURCE = Path(__file__).with_name("pretend.cpp")


def missing() -> str | None:
    """Return what the build needs and this machine does not have."""
    if shutil.which("g++") is None:
        return "the pretended device is built by g++, which is not installed"
    if _path_with_ninja() is None:
        return "the pretended device is built by ninja, which is not installed: pip install 'wherefrom[dev]'"
    return None


def _path_with_ninja() -> str | None:
    """Return a PATH on which ninja is: pip puts it beside this Python, in a folder that PATH may not have."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return path if shutil.which("ninja", path=path) else None


def register() -> types.ModuleType:
    """Build the backend, or take it from torch's cache of extensions, and return its counters and switches."""
    from torch.utils import cpp_extension

    os.environ["PATH"] = _path_with_ninja() or os.environ["PATH"]
    name = "pretend_" + hashlib.sha256(torch.__version__.encode() + _SOURCE.read_bytes()).hexdigest()[:12]
    native = cpp_extension.load(name, [str(_SOURCE)], extra_cflags=["-O0", "-w"])
    torch.utils.rename_privateuse1_backend("pretend")
    torch._register_device_module("pretend", _device_module(native))
    return native


def _device_module(native: types.ModuleType) -> types.ModuleType:
    """Return what `torch.pretend` is: the functions of torch.cuda that torch itself looks for."""

    def index(device: int | str | torch.device) -> int:
        return device if isinstance(device, int) else torch.device(device).index or 0

    def manual_seed_all(seed: int) -> None:
        for number in range(2):
            native.generator(number).manual_seed(seed)

    class Graph:
        """Stands for torch.cuda.CUDAGraph."""

        def replay(self) -> None:
            native.replay(self.tape)

    @contextlib.contextmanager
    def graph(captured: Graph, stream: Stream | None = None, capture_error_mode: str = "global") -> Iterator[None]:
        native.capture_begin()
        try:
            yield
        finally:
            captured.tape = native.capture_end()

    class Stream:
        """Stands for torch.cuda.Stream, in a process that does one thing after the other."""

        def wait_stream(self, other: Stream) -> None:
            assert isinstance(other, Stream)

    module = types.ModuleType("torch.pretend")
    contents = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 0,
        "_is_in_bad_fork": lambda: False,
        "default_generators": (native.generator(0), native.generator(1)),
        "manual_seed_all": manual_seed_all,
        "get_rng_state": lambda device=0: native.generator(index(device)).get_state(),
        "set_rng_state": lambda state, device=0: native.generator(index(device)).set_state(state),
        "synchronize": native.synchronise,
        "mem_get_info": lambda device=0: (2**33, 2**34),  # as if half were free
        "CUDAGraph": Graph,
        "graph": graph,
        "Stream": Stream,
        "stream": lambda stream: contextlib.nullcontext(stream),
        "current_stream": lambda device=0: Stream(),
        "device": lambda device: contextlib.nullcontext(device),
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
    }
    for name, value in contents.items():
        setattr(module, name, value)
    return module
