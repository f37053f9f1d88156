"""Shared by all tests: one thread for torch, small problems, and the real data where it is there."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from browser import NO_AXE, NO_CHROMIUM, Browser, chromium
from made_table import QUICK, made, write
from wherefrom.training import engines


@pytest.fixture(autouse=True)
def _one_torch_thread():
    torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter):
    """Say loudly which part of the page's tests did not run."""
    skipped = [str(each.longrepr) for each in terminalreporter.stats.get("skipped", [])]
    for reason in (NO_CHROMIUM, NO_AXE):
        if count := sum(reason in each for each in skipped):
            terminalreporter.write_line(f"{count} TESTS OF THE REPORT DID NOT RUN: {reason}", red=True, bold=True)


def pytest_generate_tests(metafunc):
    """Modules that set ON_BOTH_ENGINES run every test twice: all by torch, and natively wherever that can be."""
    if getattr(metafunc.module, "ON_BOTH_ENGINES", False):
        metafunc.fixturenames.insert(0, "engine")  # before other fixtures, which may train
        metafunc.parametrize("engine", ["torch", "native"], indirect=True)


# Runs of small tables are made quickly, and `fit` warns: that another model is better, or that there are few rows.
OF_QUICK_RUNS = (
    "ignore:the target's own distribution for every row would be better here",
    "ignore:a linear model would be better here",
    "ignore:boosted trees would be better here",
    "ignore:.* rows can tell little",
    "ignore:by its NLL this is",
    "ignore:.*intervals contain",
    "ignore:answers are right",
)


def pytest_collection_modifyitems(items):
    """Let tests of tables pass over the warnings about quick runs."""
    tables = Path(__file__).parent / "tables"
    for item in items:
        if tables in item.path.parents:
            for warning in OF_QUICK_RUNS:
                item.add_marker(pytest.mark.filterwarnings(warning), append=False)


@pytest.fixture
def engine(request, monkeypatch) -> str:
    """Makes "auto" choose this engine, the native one for every network that it can train."""
    if request.param == "native":
        pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")
    monkeypatch.setattr(engines, "_WORTH_COMPILING", 0.0 if request.param == "native" else math.inf)
    return request.param


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray]:
    """A small regression problem with a known shape and some noise."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(90, 4))
    y = 3.0 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * generator.normal(size=90) + 10.0
    return x, y


def mlp(inputs: int = 4, hidden: int = 12, outputs: int = 1, rate: float = 0.1) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(rate), nn.Linear(hidden, outputs))


def training(model: Callable[[], nn.Module] | None = None, **changes) -> wf.Training:
    """A short training of a small network, with some of it changed."""
    settings = {
        "model": model or mlp(),
        "algorithm": wf.Algorithm("adam", lr=0.02, batch_size=25),
        "epochs": 6,
    }
    return wf.Training(**settings | changes)


def assert_same_members(one: wf.Posterior, other: wf.Posterior) -> None:
    """Assert that two trainings left the same bits."""
    assert len(one) == len(other)
    for a, b in zip(one.mixture, other.mixture, strict=True):
        assert a.run.labels == b.run.labels
        assert torch.equal(a.trained.last, b.trained.last)
        np.testing.assert_array_equal(a.trained.losses, b.trained.losses)
        assert (a.trained.law is None) == (b.trained.law is None)
        if a.trained.law is not None:
            tensors = b.trained.law.tensors()
            assert all(torch.equal(value, tensors[name]) for name, value in a.trained.law.tensors().items())


def data_root() -> Path | None:
    """Where the UCI sets lie, in the layout uci/<set>/data.csv.gz."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("WHEREFROM_DATA", beside))
    return root if (root / "uci").is_dir() else None


def read_uci(name: str) -> tuple[np.ndarray, np.ndarray]:
    root = data_root()
    if root is None:
        pytest.skip("the UCI data is not here: set WHEREFROM_DATA to a folder that holds uci/<set>/data.csv.gz")
    table = np.loadtxt(root / "uci" / name / "data.csv.gz", delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


# ---------------------------------------------------------------------- small runs of a table, fitted once for all


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="session")
def quantities(folder):
    """A table of quantities, and its run."""
    return _fitted(write(folder / "quantities.csv", made(400)), "y")


@pytest.fixture(scope="session")
def kinds(folder):
    """A table of three classes, and its run."""
    return _fitted(write(folder / "kinds.csv", made(400, classes=True)), "kind")


def _fitted(path: Path, target: str):
    from wherefrom.tables.fitting import learn
    from wherefrom.tables.options import Request
    from wherefrom.tables.reading import read

    return path, learn(read(path), Request(target, **QUICK), lambda line: None, False)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def browser():
    """A headless browser for pages, or the reason why there is none."""
    if chromium() is None:
        pytest.skip(NO_CHROMIUM)
    with Browser() as started:
        yield started
