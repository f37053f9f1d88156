"""Write requirements.lock: every package that the Makefile installs, with its version and the hashes of its files.

    make lock        after a change of the dependencies in pyproject.toml, or to take newer versions

One file is for Linux and macOS, and for Python 3.11 and later. torch is not in it, nor the CUDA libraries and triton
that its default build for Linux asks for: builds of the same version for processors and for graphics cards are
different files, and which is right depends on the machine. constraints.txt has torch's version.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
WITH_TORCH = ("torch", "triton", "nvidia-", "cuda-")  # names, or how they begin
BUILD = ("hatchling", "editables")  # the project itself is built without isolation, by these
HEADER = """# Made by `make lock`. pip checks the hashes: pip install --require-hashes --no-deps -r requirements.lock
# Without torch, see tools/lock.py.
"""


def entries(text: str) -> list[str]:
    """Return the lock's entries: a package with its version and marker, and its hashes.

    >>> entries("# made\\na==1 \\\\\\n    --hash=sha256:0\\nb==2 ; x\\n")
    ['a==1 \\\\\\n    --hash=sha256:0', 'b==2 ; x']
    """
    return [each.rstrip() for each in re.findall(r"^[\w.-]+==.*(?:\n    .*)*", text, re.MULTILINE)]


def name_of(entry: str) -> str:
    """Return the name of an entry's package."""
    return entry.partition("==")[0]


def is_with_torch(name: str) -> bool:
    """True for torch, and for what comes with one of its builds alone.

    >>> is_with_torch("torch"), is_with_torch("nvidia-cublas"), is_with_torch("torchmetrics")
    (True, True, False)
    """
    return any(name.startswith(each) if each.endswith("-") else name == each for each in WITH_TORCH)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        build, out = Path(folder) / "build.in", Path(folder) / "lock"
        build.write_text("\n".join(BUILD))
        command = ["uv", "pip", "compile", "pyproject.toml", str(build), "--extra", "dev", "--universal", "-q"]
        command += ["--python-version", "3.11", "--generate-hashes", "-c", "constraints.txt", "--upgrade"]
        command += ["--no-annotate", "--no-header", "-o", str(out)]
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)
        kept = [each for each in entries(out.read_text()) if not is_with_torch(name_of(each))]
    LOCK.write_text(HEADER + "\n".join(kept) + "\n")
    print(f"{len(kept)} packages in {LOCK.name}")


if __name__ == "__main__":
    main()
