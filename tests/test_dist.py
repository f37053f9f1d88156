"""The wheel holds the package and nothing else, and works where nothing but the wheel was installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

_BUILD = [sys.executable, "-m", "hatchling", "build", "-d"]
_INSTALL = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Wheel and source distribution, as `make dist` builds them."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([*_BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bin_folder(wheel, tmp_path_factory):
    """Commands of a fresh environment with the wheel in it.

    Other packages are borrowed from the environment of the tests, so that nothing is downloaded. Paths in a .pth file
    bring no .pth files of those folders with them, and so no editable install of this source tree.
    """
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, *_INSTALL, str(wheel)], check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text("\n".join(path for path in sys.path if "-packages" in path) + "\n")
    return folder / "bin"


@pytest.fixture
def run(bin_folder, tmp_path):
    """Run a command of the fresh environment in an empty folder, and return what it printed."""

    def run(*command: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(bin_folder / command[0]), *command[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_wheel_holds_the_package_and_its_licence_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        (about,) = (Parser().parsestr(archive.read(name).decode()) for name in archive.namelist() if "METADATA" in name)
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    source = ROOT / "src" / "wherefrom"
    expected = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sorted(names) == sorted(path.relative_to(ROOT / "src").as_posix() for path in expected)
    assert {Path(name).suffix for name in names} <= {".py", ".pyi", ".typed", ".html", ".css", ".js", ".csv", ".txt"}
    assert [name for name in names if name.endswith(".txt")] == ["wherefrom/report/assets/library/LICENCES.txt"]
    assert wheel.stat().st_size < 5_000_000
    assert {"all", "table", "plot", "sklearn", "serve", "demo"} <= set(about.get_all("Provides-Extra"))


def test_the_source_distribution_holds_what_builds_the_wheel(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/wherefrom/__init__.py"} <= names
    assert not [name for name in names if name.startswith(("tests", "results", "benchmarks", "docs"))]


def test_twine_finds_nothing_to_complain_about(dist):
    pytest.importorskip("twine", reason="twine is not installed here; make dist runs it")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_demo_fit_predict_and_report_run_from_the_wheel(run, bin_folder, tmp_path):
    where = run("python", "-c", "import wherefrom; print(wherefrom.__file__)")
    assert Path(where.strip()).is_relative_to(bin_folder.parent)

    assert "wherefrom fit" in run("wherefrom", "demo", "--quick", "--quiet")
    table = tmp_path / "wherefrom-demo"
    quick = ("--families", "network", "--epochs", "10", "--draws", "2")
    run("wherefrom", "fit", str(table / "train.csv"), "--target", "mpg", "--out", "run", *quick)
    run("wherefrom", "predict", "run", str(table / "new.csv"), "--out", "predictions.csv")
    header, *rows = (tmp_path / "predictions.csv").read_text().splitlines()
    assert header.startswith("car,mean,median,std,lower,upper,share_")
    assert len(rows) == len((table / "new.csv").read_text().splitlines()) - 1
    run("wherefrom", "report", "run")
    assert "</html>" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
