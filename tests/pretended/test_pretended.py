"""The scenarios on the pretended device, all in one other process: torch keeps such a device until a process ends."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from pretended import device

pytestmark = pytest.mark.slow  # building the device takes about a minute, once

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("scenarios*.py"))
NAMES = [
    node.name
    for path in SCENARIOS
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]
SECONDS = 900


@pytest.fixture(scope="module")
def failures(tmp_path_factory) -> dict[str, str]:
    """Return every scenario that ran, with what went wrong in it, if anything."""
    if reason := device.missing():
        pytest.skip(reason)
    report = tmp_path_factory.mktemp("pretended") / "report.xml"
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    options = ["-p", "pretended.plugin", "-p", "no:cacheprovider", "-o", "addopts=", "-q", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, *map(str, SCENARIOS)]
    process = subprocess.run(
        command, env=environment, cwd=HERE.parents[1], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if not report.exists():
        pytest.fail(f"the process with the pretended device ended early:\n{process.stdout}\n{process.stderr}")
    outcomes: dict[str, str] = {}
    for case in xml.parse(report).iter("testcase"):
        name = case.attrib["name"].partition("[")[0]
        wrong = [part.text or "" for part in case if part.tag in ("failure", "error", "skipped")]
        outcomes[name] = "\n".join([outcomes.get(name, ""), *wrong]).strip()
    return outcomes


@pytest.mark.parametrize("name", NAMES)
def test_scenario(name, failures):
    assert name in failures, "it did not run"
    assert not failures[name], failures[name]
