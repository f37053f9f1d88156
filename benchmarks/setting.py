"""On what something was measured."""

from __future__ import annotations

import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wherefrom.training.workers import available_cores


def setting(*packages: str, rounds: int) -> str:
    """The day, the machine, the packages and the rounds, as a list in Markdown."""
    lines = [
        date.today().isoformat(),
        machine(),
        ", ".join(map(_version, packages)),
        f"medians of {rounds} interleaved rounds",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def machine() -> str:
    """Return the processor's name and the number of cores."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {available_cores()} cores"
