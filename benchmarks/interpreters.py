"""Contenders in interpreters of their own: virtual environments, tasks and results as lines of JSON, results in a file.

Environments share torch: one of them holds it, and a `.pth` file lets the others see it. pip takes it for installed, so
that a package which needs another version gets that one, in its own environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
SHARED = ("torch", "numpy", "pandas", "scipy", "scikit-learn")
QUIETLY = {"PYTHONWARNINGS": "ignore", "TQDM_DISABLE": "1"}
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class Store:
    """Results as lines of JSON, in the order in which they came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()

    def read(self) -> list[dict[str, Any]]:
        """Return all results; a last line that was cut off is left out."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def append(self, result: dict[str, Any]) -> None:
        """Add a result at the end."""
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    def forget(self, unwanted: Callable[[dict[str, Any]], bool]) -> None:
        """Remove all results of a kind."""
        kept = [result for result in self.read() if not unwanted(result)]
        self.path.write_text("".join(json.dumps(result) + "\n" for result in kept), encoding="utf-8")


class Runner:
    """A contender's interpreter; it is started with its first task.

    python: the interpreter.
    words: the module to run, and its arguments.
    path: folders to import from, beside this one.
    """

    def __init__(self, python: Path | str, words: Sequence[str], path: Sequence[Path] = ()) -> None:
        self._command = [str(python), "-m", *words]
        folders = os.pathsep.join(map(str, (Path(__file__).parent, *path)))
        self._environment = os.environ | ONE_THREAD | QUIETLY | {"PYTHONPATH": folders}
        self._process: subprocess.Popen[str] | None = None

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Send a task, and wait for its result."""
        if self._process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._process = subprocess.Popen(self._command, env=self._environment, **pipes)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EndedError(f"the interpreter of a contender ended: {' '.join(self._command)}")
        return json.loads(line)

    def close(self) -> None:
        """End the interpreter."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


class EndedError(SystemExit):
    """An interpreter ended before its result; a run that is not prepared for it ends, too, with this message."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that was made, or could not be.

    packages: what pip was asked for.
    error: the last line of pip's error; empty if it is there.
    other_torch: the last line of pip's error with this project's torch, if the packages need another one.
    """

    packages: tuple[str, ...]
    error: str = ""
    other_torch: str = ""


def make(folder: Path, packages: Sequence[str], shared: Path | None = None) -> Environment:
    """Make a virtual environment, unless there is one with these packages or pip failed at them before.

    shared: the environment whose packages this one sees, too.
    """
    note = folder / "made.json"
    if note.exists():
        state = json.loads(note.read_text(encoding="utf-8"))
        if state["packages"] == list(packages):
            return Environment(tuple(packages), state["error"], state["other_torch"])
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    if shared is not None:
        (site_packages(folder) / "shared.pth").write_text(f"{site_packages(shared).resolve()}\n", encoding="utf-8")
    error = _pip(folder, "-c", str(CONSTRAINTS), *packages)
    other_torch = ""
    if error and shared is not None and not _pip(folder, *packages):
        error, other_torch = "", error
    state = Environment(tuple(packages), error, other_torch)
    note.write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")
    return state


def python_of(folder: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    """Return the folder of a virtual environment's packages."""
    (path,) = (folder / "lib").glob("python*/site-packages")
    return path


def _pip(folder: Path, *words: str) -> str:
    """Install; return the last line of pip's error, or nothing."""
    command = [str(python_of(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    return (lines[-1] if lines else f"pip ended with {done.returncode}") if done.returncode else ""
