"""The scenarios on the pretended device, all in one other process: torch keeps such a device until a process ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import scenario_runs
from pretended import device

pytestmark = pytest.mark.slow  # building the device takes about a minute, once

SCENARIOS = sorted(Path(__file__).parent.glob("scenarios*.py"))
SECONDS = 900


@pytest.fixture(scope="module")
def failures(tmp_path_factory) -> dict[str, str]:
    if reason := device.missing():
        pytest.skip(reason)
    report = tmp_path_factory.mktemp("pretended") / "report.xml"
    return scenario_runs.run(SCENARIOS, report, SECONDS, ["-p", "pretended.plugin"])


@pytest.mark.parametrize("name", scenario_runs.names(SCENARIOS))
def test_scenario(name, failures):
    assert name in failures, "it did not run"
    assert not failures[name], failures[name]
