"""The compilation: told of, kept, shared, survived; and the whole contract with every index checked.

Each case is a process of its own, since a process compiles once. The training's kernel takes long to compile, and so
what holds for every kernel is seen on that of one-shot prediction, which takes a second.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")

import wherefrom as wf
from conftest import training

ROOT = Path(__file__).resolve().parents[3]
TRAIN = """
import sys, torch
sys.path.insert(0, "tests")
import wherefrom as wf
from conftest import mlp, training
x = torch.linspace(-1, 1, 60).reshape(15, 4)
posterior = wf.marginalise(training(), (x, x[:, 0]), wf.recipes.multi_swag(2), engine="native")
print(posterior.mixture[1].trained.last.double().sum().item())
"""
PUSH = """
import os, sys, time
from pathlib import Path
import numpy as np
from wherefrom.predictive.one_shot import kernel
from wherefrom.training.native import compiling

def announce(message):
    print(message, file=sys.stderr)
    for meeting in map(Path, sys.argv[1:]):  # nobody goes on before both compile
        (meeting / str(os.getpid())).touch()
        until = time.monotonic() + 300
        while len(list(meeting.iterdir())) < 2:
            assert time.monotonic() < until, "the other one does not compile"
            time.sleep(0.01)

given = [np.linspace(1, 2, 6, dtype=np.float32).reshape(shape) for shape in ((1, 6), (1, 6), (1, 1, 6))]
places = [np.zeros_like(part) for part in given]
arguments = (*given, np.float32(0.1), *places, *np.empty((2, kernel.BLOCK), np.float32))
compiling.ready(kernel.push, arguments, announce)
kernel.push(*arguments)
assert all(part.all() for part in places)
print(*(part.astype(float).sum() for part in places))
"""
MESSAGE = "compiling once for this machine"


def start(cache: Path, *arguments: str, **variables: str) -> subprocess.Popen:
    environment = os.environ | {"WHEREFROM_CACHE": str(cache), **variables}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, **pipes)


def finished(process: subprocess.Popen) -> tuple[str, str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


def files(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------- any kernel


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> tuple[Path, list[tuple[str, str]]]:
    """A cache that two processes filled at the same time, and what they said."""
    cache, meeting = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("meeting")
    both = [start(cache, "-c", PUSH, str(meeting)) for _ in range(2)]
    return cache, [finished(process) for process in both]


def test_two_processes_compile_at_once(shared):
    cache, ((first, told), (second, told_too)) = shared
    assert first == second
    assert MESSAGE in told
    assert MESSAGE in told_too
    before = files(cache)
    assert finished(start(cache, "-c", PUSH)) == (first, "")
    assert files(cache) == before


def test_a_damaged_cache_is_made_anew(shared):
    cache, ((first, _), _) = shared
    kept = [*cache.rglob("*.nbc"), *cache.rglob("*.nbi")]
    assert len(kept) == 2
    for file in kept:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    out, err = finished(start(cache, "-c", PUSH))
    assert out == first
    assert MESSAGE in err
    assert finished(start(cache, "-c", PUSH)) == (first, "")  # and is kept again


def test_a_cache_that_cannot_be_written_does_no_harm(shared, tmp_path):
    _, ((first, _), _) = shared
    (tmp_path / "file").write_text("not a folder")
    out, err = finished(start(tmp_path / "file", "-c", PUSH))
    assert out == first
    assert "compiling, which takes some ten seconds. The result cannot be kept" in err


# ---------------------------------------------------------------------- the training's, with others' vectors


def with_lanes(lanes: int) -> str:
    """The training with the vectors of another processor, which this one has as well."""
    return f"""
import llvmlite.binding
features = llvmlite.binding.get_host_cpu_features()
features["avx512f"] = False
features["avx"] = {lanes} == 8
llvmlite.binding.get_host_cpu_features = lambda: features
from wherefrom.training.native import jit
assert jit.LANES == {lanes}
{TRAIN}"""


@pytest.fixture(scope="module", params=[4, 8])
def compiled(request, tmp_path_factory) -> tuple[int, Path, str, str]:
    """The number of lanes, the cache that a process filled, and what it said."""
    cache = tmp_path_factory.mktemp("cache")
    return request.param, cache, *finished(start(cache, "-c", with_lanes(request.param)))


def test_processors_with_narrower_vectors(compiled):
    """They train the same, and compiling is told of."""
    _, _, out, err = compiled
    x = torch.linspace(-1, 1, 60).reshape(15, 4)
    posterior = wf.marginalise(training(), (x, x[:, 0]), wf.recipes.multi_swag(2), engine="native")
    assert float(out) == pytest.approx(posterior.mixture[1].trained.last.double().sum().item(), abs=1e-4)
    assert MESSAGE in err


@pytest.mark.parametrize("compiled", [8], indirect=True)
def test_the_next_process_compiles_nothing(compiled):
    lanes, cache, first, _ = compiled
    before = files(cache)
    out, err = finished(start(cache, "-c", with_lanes(lanes)))
    assert out == first
    assert MESSAGE not in err
    assert files(cache) == before


@pytest.mark.parametrize("compiled", [8], indirect=True)
def test_torchs_default_precision_compiles_nothing_new(compiled):
    lanes, cache, _, _ = compiled
    before = files(cache)
    double = with_lanes(lanes).replace("x = torch", "torch.set_default_dtype(torch.float64)\nx = torch")
    assert MESSAGE not in finished(start(cache, "-c", double))[1]
    assert files(cache) == before


# ---------------------------------------------------------------------- with every index checked


@pytest.fixture(scope="module")
def checked_cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("checked")


def test_nothing_is_out_of_bounds(checked_cache):
    """Every model, loss, batch size and law of the engines' contract, with numba's checks on every index."""
    options = ["-q", "-p", "no:cacheprovider", "--no-header", "-k", "native and not bits", "--doctest-glob="]
    out, _ = finished(
        start(
            checked_cache,
            *("-m", "pytest", *options, "tests/training/test_engines.py", "tests/training/native/test_kernel.py"),
            WHEREFROM_NATIVE_CHECKED="1",
        )
    )
    passed = re.search(r"(\d+) passed", out)
    assert passed is not None
    assert int(passed[1]) > 150


def test_the_checks_do_check(checked_cache):
    """A table that is one row too short is found out in the debug mode."""
    short = TRAIN.replace(
        "posterior =",
        """
from wherefrom.training.native.packing import Packing
real = Packing.tables
Packing.tables = lambda *a: (t := real(*a))._replace(x=t.x[:-16])
posterior =""",
    )
    process = start(checked_cache, "-c", short, WHEREFROM_NATIVE_CHECKED="1")
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "IndexError" in err
