"""Agreement of two computations of the same numbers, by the precision of their products.

Rounding errors are a part of the largest numbers that were added up, not of each result: what comes out near zero has
no correct digits. So tolerances are relative to the largest answer.

    float32, float64 on a CPU     1e-3     another processor, or another order of additions
    float32 on other devices      1e-2     TF32, which CUDA uses for convolutions by default, keeps 11 of 24 bits
    bfloat16 (autocast)           3e-2     8 bits
"""

from __future__ import annotations

import contextlib
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from wherefrom.cache import user_cache
from wherefrom.files.atomic import write_text
from wherefrom.files.digests import digest

_MOST_SECONDS = 120  # of a trial
_KILLED = 2**31  # from this exit code on, Windows has ended a process; elsewhere it is below zero


def tolerance(device: torch.device, dtype: torch.dtype) -> float:
    """Return how far two computations on a device may be apart, relative to the largest answer.

    >>> tolerance(torch.device("cpu"), torch.float32), tolerance(torch.device("cuda"), torch.float32)
    (0.001, 0.01)
    """
    if dtype == torch.bfloat16:
        return 3e-2
    return 1e-2 if device.type != "cpu" and dtype != torch.float64 else 1e-3


# The products of a network that is trained by bfloat16, of sizes for which torch takes its fastest routines.
_TRIAL = """
import torch
from torch import nn

network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16 * 36, 64))
for images in (torch.rand(32, 3, 8, 8), torch.rand(32, 3, 8, 8).contiguous(memory_format=torch.channels_last)):
    with torch.autocast("cpu", torch.bfloat16):
        loss = network(images).float().square().mean()
    loss.backward()
"""


def check_autocast(autocast: torch.dtype | None, device: torch.device | None = None) -> None:
    """Raise unless the type is one that autocast takes, and the device, if any is given, can multiply by it."""
    if autocast not in (None, torch.bfloat16):
        raise ValueError(f"autocast must be None or torch.bfloat16, whose range is that of float32, not {autocast}")
    if autocast is not None and device is not None and device.type == "cpu" and not bfloat16_works():
        raise ValueError(
            "torch's products by bfloat16 crash on this processor (a child process that tried some was killed): leave "
            "autocast out, or take another device, or another version of torch"
        )


def check_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Raise unless a device has numbers of this type."""
    if dtype == torch.float64 and device.type == "mps":
        raise ValueError("MPS has no float64: take dtype=torch.float32, the default, or another device")


@cache
def bfloat16_works() -> bool:
    """Return False if torch's products by bfloat16 crash on this CPU, as with an illegal instruction.

    A child process tries them. What it showed is kept in the user's cache folder, for this processor and this torch.
    """
    verdict = user_cache() / f"bfloat16-{digest(torch.__version__.encode(), _processor().encode())}"
    with contextlib.suppress(OSError):
        if (text := verdict.read_text()) in ("works", "crashes"):
            return text == "works"
    try:
        child = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, timeout=_MOST_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):  # nothing was seen to crash
        return True
    works = 0 <= child.returncode < _KILLED
    with contextlib.suppress(OSError):
        verdict.parent.mkdir(parents=True, exist_ok=True)
        write_text(verdict, "works" if works else "crashes")
    return works


def _processor() -> str:
    """Return a description of the processor: a home folder may be shared by machines that differ."""
    lines: set[str] = set()
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        lines = {line for line in text.splitlines() if line.startswith(("model name", "flags", "Features"))}
    return "\n".join([platform.machine(), platform.processor(), *sorted(lines)])


def agree(answers: Tensor, expected: Tensor, relative: float = 1e-3) -> bool:
    """Return True if answers are those that were expected up to rounding, infinities and missing values included.

    >>> agree(torch.tensor([100.0, 1e-3]), torch.tensor([100.01, -1e-3]))
    True
    >>> agree(torch.ones(2), torch.tensor([1.0, 1.1]))
    False
    """
    if answers.shape != expected.shape:
        return False
    largest = float(torch.nan_to_num(expected.detach(), 0.0, 0.0, 0.0).abs().max()) if expected.numel() else 0.0
    return torch.allclose(answers, expected, rtol=0, atol=relative * largest + 1e-7, equal_nan=True)
