"""The compilation: told of, kept, shared, survived; and the whole contract with every index checked.

Each case is a process of its own, since a process compiles once.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")

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
MESSAGE = "compiling once for this machine"


def start(cache: Path, *arguments: str, **variables: str) -> subprocess.Popen:
    environment = os.environ | {"WHEREFROM_CACHE": str(cache), **variables}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, **pipes)


def finished(process: subprocess.Popen) -> tuple[str, str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> tuple[Path, list[tuple[str, str]]]:
    """A cache that two processes filled at the same time, and what they said."""
    cache = tmp_path_factory.mktemp("cache")
    both = [start(cache, "-c", TRAIN) for _ in range(2)]
    return cache, [finished(process) for process in both]


def test_two_processes_compile_at_once(compiled):
    _, ((first, told), (second, told_too)) = compiled
    assert first == second
    assert MESSAGE in told
    assert MESSAGE in told_too


def test_the_next_process_compiles_nothing(compiled):
    cache, ((first, _), _) = compiled
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    out, err = finished(start(cache, "-c", TRAIN))
    assert out == first
    assert MESSAGE not in err
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()} == before


def test_torchs_default_precision_compiles_nothing_new(compiled):
    cache, _ = compiled
    double = TRAIN.replace("x = torch", "torch.set_default_dtype(torch.float64)\nx = torch")
    assert MESSAGE not in finished(start(cache, "-c", double))[1]


def test_a_damaged_cache_is_made_anew(compiled):
    cache, ((first, _), _) = compiled
    for kept in [*cache.rglob("*.nbc"), *cache.rglob("*.nbi")]:
        kept.write_bytes(kept.read_bytes()[: kept.stat().st_size // 2])
    out, err = finished(start(cache, "-c", TRAIN))
    assert out == first
    assert MESSAGE in err
    assert MESSAGE not in finished(start(cache, "-c", TRAIN))[1]  # and is kept again


def test_a_cache_that_cannot_be_written_does_no_harm(compiled, tmp_path):
    _, ((first, _), _) = compiled
    (tmp_path / "file").write_text("not a folder")
    out, err = finished(start(tmp_path / "file", "-c", TRAIN))
    assert out == first
    assert "compiling, which takes some ten seconds. The result cannot be kept" in err


@pytest.mark.parametrize("lanes", [4, 8])
def test_processors_with_narrower_vectors(lanes, compiled, tmp_path):
    """The same training with the vectors of other processors, which this one has as well."""
    _, ((first, _), _) = compiled
    fewer = f"""
import llvmlite.binding
features = llvmlite.binding.get_host_cpu_features()
features["avx512f"] = False
features["avx"] = {lanes} == 8
llvmlite.binding.get_host_cpu_features = lambda: features
from wherefrom.training.native import jit
assert jit.LANES == {lanes}
"""
    out, _ = finished(start(tmp_path, "-c", fewer + TRAIN))
    assert float(out) == pytest.approx(float(first), abs=1e-4)


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
