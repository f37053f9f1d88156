"""The compilation: told of, kept, shared, survived; and the whole contract with every index checked.

Each case is a process of its own, since a process compiles once. The training's kernel takes long to compile, and so
what holds for every kernel is seen on that of one-shot prediction, which takes a second.
"""

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")

import wherefrom as wf
from apart import SECONDS, alone, start
from conftest import training

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
MESSAGE = "compiling once for this machine"


def files(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------- any kernel


def push(cache: Path) -> tuple[list[float], list[str]]:
    """Have the one-shot kernel compiled, and call it: its sums, and what was told."""
    os.environ["WHEREFROM_CACHE"] = str(cache)
    from wherefrom.predictive.one_shot import kernel
    from wherefrom.training.native import compiling

    messages: list[str] = []
    given = [np.linspace(1, 2, 6, dtype=np.float32).reshape(shape) for shape in ((1, 6), (1, 6), (1, 1, 6))]
    places = [np.zeros_like(part) for part in given]
    arguments = (*given, np.float32(0.1), *places, *np.empty((2, kernel.BLOCK), np.float32))
    compiling.ready(kernel.push, arguments, messages.append)
    kernel.push(*arguments)
    assert all(part.all() for part in places)
    return [float(part.sum()) for part in places], messages


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> tuple[Path, list[tuple[list[float], list[str]]]]:
    """A cache that two processes wanted to fill at the same time, and what they said."""
    cache = tmp_path_factory.mktemp("cache")
    both = [start(push, cache) for _ in range(2)]
    return cache, [process.result(SECONDS) for process in both]


def test_of_two_processes_one_compiles_and_the_other_loads(shared):
    cache, ((first, messages), (second, more_messages)) = shared
    assert first == second
    (message,) = messages + more_messages
    assert MESSAGE in message
    before = files(cache)
    assert alone(push, cache) == (first, [])
    assert files(cache) == before


def test_a_damaged_cache_is_made_anew(shared):
    cache, ((first, _), _) = shared
    kept = [*cache.rglob("*.nbc"), *cache.rglob("*.nbi")]
    assert len(kept) == 2
    for file in kept:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    again, (told,) = alone(push, cache)
    assert again == first
    assert MESSAGE in told
    assert alone(push, cache) == (first, [])  # and is kept again


def test_a_cache_that_cannot_be_written_does_no_harm(shared, tmp_path):
    _, ((first, _), _) = shared
    (tmp_path / "file").write_text("not a folder")
    again, (told,) = alone(push, tmp_path / "file")
    assert again == first
    assert "compiling, which takes about half a minute. The result cannot be kept" in told


# ---------------------------------------------------------------------- the training's, with others' vectors


def trained() -> float:
    x = torch.linspace(-1, 1, 60).reshape(15, 4)
    posterior = wf.marginalise(training(), (x, x[:, 0]), wf.recipes.multi_swag(2), engine="native")
    return posterior.mixture[1].trained.last.double().sum().item()


def train(cache: Path, lanes: int, precision: torch.dtype = torch.float32) -> tuple[float, str]:
    """With the vectors of another processor, which this one has as well, and what was said of it."""
    import llvmlite.binding

    features = llvmlite.binding.get_host_cpu_features()
    features["avx512f"] = False
    features["avx"] = lanes == 8
    llvmlite.binding.get_host_cpu_features = lambda: features
    from wherefrom.training.native import jit

    assert lanes == jit.LANES
    os.environ["WHEREFROM_CACHE"] = str(cache)
    torch.set_default_dtype(precision)
    with redirect_stderr(io.StringIO()) as said:
        return trained(), said.getvalue()


@pytest.fixture(scope="module", params=[4, 8])
def compiled(request, tmp_path_factory) -> tuple[int, Path, float, str]:
    """The number of lanes, the cache that a process filled, and what it found and said."""
    cache = tmp_path_factory.mktemp("cache")
    return request.param, cache, *alone(train, cache, request.param)


def test_processors_with_narrower_vectors(compiled):
    """They train the same, and compiling is told of."""
    _, _, found, said = compiled
    assert found == pytest.approx(trained(), abs=1e-4)
    assert MESSAGE in said


@pytest.mark.parametrize("compiled", [8], indirect=True)
def test_the_next_process_compiles_nothing(compiled):
    lanes, cache, first, _ = compiled
    before = files(cache)
    again, said = alone(train, cache, lanes)
    assert again == first
    assert MESSAGE not in said
    assert files(cache) == before


@pytest.mark.parametrize("compiled", [8], indirect=True)
def test_torchs_default_precision_compiles_nothing_new(compiled):
    lanes, cache, _, _ = compiled
    before = files(cache)
    assert MESSAGE not in alone(train, cache, lanes, torch.float64)[1]
    assert files(cache) == before


# ---------------------------------------------------------------------- with every index checked


@pytest.fixture(scope="module")
def checked_cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("checked")


def test_nothing_is_out_of_bounds(checked_cache):
    """Every model, loss, batch size and law of the engines' contract, with numba's checks on every index."""
    options = ["-q", "-p", "no:cacheprovider", "--no-header", "-k", "native and not groups", "--doctest-glob="]
    tests = ["tests/training/test_engines.py", "tests/training/native/test_kernel.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        # What is done with an index is the same however well it is compiled.
        env=os.environ | {"WHEREFROM_CACHE": str(checked_cache), "WHEREFROM_NATIVE_CHECKED": "1", "NUMBA_OPT": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 150


def train_on_a_short_table(cache: Path) -> None:
    os.environ |= {"WHEREFROM_CACHE": str(cache), "WHEREFROM_NATIVE_CHECKED": "1"}
    from wherefrom.training.native.packing import Packing

    real = Packing.tables
    Packing.tables = lambda *a: (t := real(*a))._replace(x=t.x[:-16])
    trained()


def test_the_checks_do_check(checked_cache):
    """A table that is one row too short is found out in the debug mode."""
    with pytest.raises(IndexError):
        alone(train_on_a_short_table, checked_cache)
