"""The scenarios on a cluster, in another process: Ray ends a program that loses the daemon of its node."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import scenario_runs

SCENARIOS = [Path(__file__).with_name("cluster_scenarios.py")]
SECONDS = 1200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 60)]


@pytest.fixture(scope="module")
def failures(tmp_path_factory) -> dict[str, str]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("the cluster needs Ray: pip install 'wherefrom[ray]'")
    return scenario_runs.run(SCENARIOS, tmp_path_factory.mktemp("cluster") / "report.xml", SECONDS)


@pytest.mark.parametrize("name", scenario_runs.names(SCENARIOS))
def test_scenario(name, failures):
    assert name in failures, "it did not run"
    assert not failures[name], failures[name]
