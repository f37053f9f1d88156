"""One small run of a table, fitted once for all tests that only look at it."""

import numpy as np
import pytest

from made_table import QUICK, made, write
from wherefrom.tables.fitting import Request, fit
from wherefrom.tables.reading import read


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="session")
def quantities(folder):
    """A table of quantities, and its run."""
    path = write(folder / "quantities.csv", made(400))
    return path, fit(read(path), Request("y", **QUICK), lambda line: None, False)


@pytest.fixture(scope="session")
def kinds(folder):
    """A table of three classes, and its run."""
    path = write(folder / "kinds.csv", made(400, classes=True))
    return path, fit(read(path), Request("kind", **QUICK), lambda line: None, False)


@pytest.fixture
def random():
    return np.random.default_rng(0)
