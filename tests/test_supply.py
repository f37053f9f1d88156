"""The lock has every package that pyproject.toml asks for, with hashes, and the page of licences lists them."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from packaging.requirements import Requirement  # noqa: E402

from audit import main as audit  # noqa: E402
from lock import BUILD, LOCK, entries, is_with_torch, name_of  # noqa: E402
from plot_library import OUT as LIBRARY  # noqa: E402
from plot_library import build  # noqa: E402
from set_up import install_lock, named, not_in_lock  # noqa: E402


@pytest.fixture(scope="module")
def locked():
    """Versions by name: several, where they depend on Python's."""
    versions = {}
    for entry in entries(LOCK.read_text()):
        name, version = re.match(r"([\w.-]+)==([^\s;]+)", entry).groups()
        versions.setdefault(name, []).append(version)
    return versions


def asked():
    """Return what the Makefile installs: the dependencies of the package, and of `dev` with all extras it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, todo, done = project["optional-dependencies"], ["dev"], set()
    requirements = [Requirement(each) for each in project["dependencies"]]
    while todo:
        extra = todo.pop()
        done.add(extra)
        for each in map(Requirement, extras[extra]):
            if each.name == "wherefrom":
                todo += each.extras - done
            else:
                requirements.append(each)
    return requirements


def test_every_dependency_is_locked_to_a_version_that_is_asked_for(locked):
    for requirement in asked():
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if not is_with_torch(name):
            assert locked.get(name), f"{name} is not in requirements.lock: make lock"
            assert all(requirement.specifier.contains(version) for version in locked[name]), f"{name}: make lock"
    assert set(BUILD) <= set(locked)


def test_every_entry_has_hashes_and_torch_is_none_of_them():
    each = entries(LOCK.read_text())
    assert len(each) > 80
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in each)
    assert not any(is_with_torch(name_of(entry)) for entry in each)
    assert "://" not in LOCK.read_text()  # any index will do


def test_licences_of_all_packages_are_listed(locked):
    page = (ROOT / "docs" / "licences.md").read_text()
    listed = set(re.findall(r"^\| ([\w.-]+) \| [\d.]", page, re.MULTILINE))
    elsewhere = set(re.findall(r"[\w.-]+(?=[,.])", page.partition("Not installed")[2]))
    assert {*locked, "torch"} <= listed | elsewhere
    assert len(listed) > 0.9 * len(locked)
    assert "not stated" not in page


def test_packages_beside_the_lock_are_named(locked):
    others = {each.split()[0] for each in not_in_lock()}
    assert "torch" in others
    assert "pip" not in others


def test_an_audit_without_an_answer_is_none(monkeypatch, capsys):
    monkeypatch.setattr("audit.subprocess.run", lambda *_, **__: type("Done", (), {"stdout": "", "stderr": "offline"}))
    assert audit() == 0
    assert capsys.readouterr().out == "not audited: nobody answers\n"


def test_an_audit_counts_what_it_could_ask(monkeypatch, capsys):
    answer = '{"dependencies": [{"name": "a", "skip_reason": "unknown"}, {"name": "b", "version": "1", "vulns": []}'
    bad = ', {"name": "c", "version": "2", "vulns": [{"id": "CVE-1"}]}'
    nobody = '{"dependencies": [{"name": "a", "skip_reason": "unknown"}]}'
    monkeypatch.setattr("audit.subprocess.run", lambda *_, **__: type("Done", (), {"stdout": nobody}))
    assert audit() == 0
    for more, code in (("", 0), (bad, 1)):
        done = type("Done", (), {"stdout": f"{answer}{more}]}}"})
        monkeypatch.setattr("audit.subprocess.run", lambda *_, done=done, **__: done)
        assert audit() == code
    assert capsys.readouterr().out.splitlines() == [
        "not audited: the index could not be asked about any of 1 packages",
        "1 of 2 packages audited, 0 with known vulnerabilities",
        "c 2: CVE-1",
        "2 of 3 packages audited, 1 with known vulnerabilities",
    ]


def test_the_demo_asks_for_what_it_needs_and_no_more(locked, monkeypatch):
    asked = named("demo")
    assert {"numpy", "numba", "matplotlib", "mlxtend", "polars"} <= set(asked)
    assert not {"torch", "wherefrom", "ruff", "pytest", "ray", "lightning", "transformers"} & set(asked)
    assert set(asked) <= set(locked)
    commands, installed = [], []

    def pip(command, **_):
        commands.append(command)
        if "--report" in command:
            report = [{"metadata": {"name": name}} for name in ("Numpy", "rich", "markdown_it.py")]
            Path(command[command.index("--report") + 1]).write_text(json.dumps({"install": report}))
        else:
            installed.append(Path(command[command.index("-r") + 1]).read_text())

    monkeypatch.setattr("set_up.subprocess.run", pip)
    assert install_lock("demo")
    resolved, checked = commands
    assert {"--dry-run", *asked, *BUILD} <= set(resolved)
    assert "--require-hashes" not in resolved
    assert {"--require-hashes", "--no-deps"} <= set(checked)
    each = entries(installed[0])  # what pip said, with its version and hashes, and no more
    assert {name_of(entry) for entry in each} == {"numpy", "rich", "markdown-it-py"}
    assert all("--hash=sha256:" in entry for entry in each)


@pytest.mark.parametrize(
    ("code", "error", "outcome"),
    [(0, "", True), (1, "ERROR: No matching distribution found for a==1", False), (1, "DO NOT MATCH THE HASHES", None)],
)
def test_a_wrong_hash_ends_it_and_a_missing_version_is_told(monkeypatch, capsys, code, error, outcome):
    def pip(command, **_):
        if code:
            raise subprocess.CalledProcessError(code, command, stderr=error)

    monkeypatch.setattr("set_up.subprocess.run", pip)
    if outcome is None:
        with pytest.raises(SystemExit, match=r"not what requirements.lock says: .* use LOCKED=no"):
            install_lock()
        return
    assert install_lock() is outcome
    assert ("taken by range, and not checked" in capsys.readouterr().out) is not outcome


# ---------------------------------------------------------------------- the report's plot library


@pytest.mark.parametrize("name", ["plot", "axe"])
def test_every_npm_package_is_locked_by_a_hash(name):
    folder = ROOT / "tools" / name
    about, lock = (json.loads((folder / file).read_text()) for file in ("package.json", "package-lock.json"))
    packages = {path: each for path, each in lock["packages"].items() if path}
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())
    for package, version in (about.get("dependencies", {}) | about["devDependencies"]).items():
        assert packages[f"node_modules/{package}"]["version"] == version
    assert "://" not in (folder / "package-lock.json").read_text()  # any registry will do


def test_the_plot_library_carries_its_licences_and_its_versions():
    licences, library = ((LIBRARY / name).read_text(encoding="utf-8") for name in ("LICENCES.txt", "plot.js"))
    assert library.startswith(f"/*\n{licences}*/\n")
    lock = json.loads((ROOT / "tools" / "plot" / "package-lock.json").read_text())["packages"]
    named = re.findall(r"^(\S+) (\d[\d.]*): Copyright", licences, re.M)
    assert {"@observablehq/plot", "d3-array", "d3-scale"} <= {name for name, _ in named}
    assert all(lock[f"node_modules/{name}"]["version"] == version for name, version in named)
    assert "</script" not in library


@pytest.mark.slow
def test_the_plot_library_is_what_its_recipe_makes(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("no npm here, so that the plot library was not built again: apt install npm")
    try:
        files = build(tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm cannot fetch the packages here, so that the plot library was not built again: {error}")
    assert files == {name: (LIBRARY / name).read_text(encoding="utf-8") for name in files}


@pytest.mark.slow
def test_the_wheel_has_the_report_with_its_library(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assets = ROOT / "src" / "wherefrom" / "report" / "assets"
    for path in (each for each in assets.rglob("*") if each.is_file()):
        assert f"wherefrom/report/assets/{path.relative_to(assets)}" in names
