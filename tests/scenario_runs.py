"""Scenarios that pytest runs in another process, since they would take the process of other tests with them.

They are in files that pytest does not collect by itself. A test file beside them lists their names, has them run once,
and fails for each that failed or did not run.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def names(paths: Sequence[Path]) -> list[str]:
    """Return the names of all test functions in these files."""
    return [
        node.name
        for path in paths
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def run(paths: Sequence[Path], report: Path, seconds: float, options: Sequence[str] = ()) -> dict[str, str]:
    """Return every scenario that ran, with what went wrong in it, if anything.

    report: a file that pytest writes.
    seconds: after which the process is ended.
    options: further ones of pytest.
    """
    lines = [str(TESTS), *(str(path.parent) for path in paths), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, lines)), "OMP_NUM_THREADS": "1"}
    always = ["-p", "no:cacheprovider", "-o", "addopts=", "-q", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *always, *options, *map(str, paths)]
    end = _end(command, environment, seconds)
    if not report.exists():
        pytest.fail(f"the process with the scenarios ended early: {end}")
    outcomes: dict[str, str] = {}
    for case in xml.parse(report).iter("testcase"):
        name = case.attrib["name"].partition("[")[0]
        wrong = [part.text or "" for part in case if part.tag in ("failure", "error", "skipped")]
        outcomes[name] = "\n".join([outcomes.get(name, ""), *wrong]).strip()
    return outcomes


def _end(command: Sequence[str], environment: dict[str, str], seconds: float) -> str:
    """Run a command with all its children, and return how it ended and what it wrote."""
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with subprocess.Popen(command, env=environment, cwd=TESTS.parent, start_new_session=True, **pipes) as process:
        try:
            written, _ = process.communicate(timeout=seconds)
            return f"exit code {process.returncode}\n{written}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"not finished after {seconds:g} s\n{process.communicate()[0]}"
        except BaseException:  # somebody stops the tests
            os.killpg(process.pid, signal.SIGKILL)
            raise
