"""Install what the Makefile needs into the environment of the Python that runs this.

    python tools/set_up.py               all of it, for development
    python tools/set_up.py demo          what this extra needs, and no more

1. Packages of requirements.lock, whose files must have the hashes in it. A file with another hash ends it here.
   If the lock's versions cannot be had (another Python, or an index that lacks them), versions are taken by the ranges
   of pyproject.toml instead, and it says so. `make LOCKED=no` does that from the start.
2. torch by constraints.txt. Its hash is not checked, see tools/lock.py.
3. The project itself, and any package that the lock does not have; those are named at the end.
4. The native kernels, compiled for this machine, so that the first training does not wait for it. Without a result,
   the first training compiles.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from lock import BUILD, entries, name_of

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
ALL = "dev"
_PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def install(*arguments: str) -> None:
    subprocess.run([*_PIP, *arguments], cwd=ROOT, check=True)


def named(extras: str) -> list[str]:
    """Return the names of the packages that the project and some of its extras ask for, without torch.

    >>> {"numpy", "numba", "mlxtend"} <= set(named("demo")), "ruff" in named("demo")
    (True, False)
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    todo, asked = list(project["dependencies"]), []
    todo += [f"wherefrom[{extras}]"]
    while todo:
        name, of_ours = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", todo.pop()).groups()
        if name == "wherefrom":
            todo += [each for extra in of_ours.split(",") for each in project["optional-dependencies"][extra]]
        elif name != "torch":
            asked.append(name)
    return sorted(set(asked))


def needed(extras: str, folder: Path) -> set[str]:
    """Return the names of all packages that some extras need, and what these need, as pip resolves the lock's versions.

    pip refuses to check hashes of packages that only a constraint pins, so it resolves them first, without hashes.
    """
    pins, report = folder / "pins.txt", folder / "report.json"
    pins.write_text("\n".join(each.splitlines()[0].rstrip(" \\") for each in entries(LOCK.read_text())))
    command = [*_PIP, "--dry-run", "--ignore-installed", "--report", str(report), "-c", str(pins)]
    subprocess.run([*command, *named(extras), *BUILD], cwd=ROOT, capture_output=True, text=True, check=True)
    names = (each["metadata"]["name"] for each in json.loads(report.read_text(encoding="utf-8"))["install"])
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def install_lock(extras: str = ALL) -> bool:
    """Install the lock's packages that some extras need; False if they cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = LOCK
        try:
            if extras != ALL:
                names, chosen = needed(extras, Path(folder)), Path(folder) / "needed.txt"
                chosen.write_text("\n".join(each for each in entries(LOCK.read_text()) if name_of(each) in names))
            command = [*_PIP, "--require-hashes", "--no-deps", "-r", str(chosen)]
            subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        except subprocess.CalledProcessError as error:
            failed = error.stderr
        else:
            return True
    if "DO NOT MATCH THE HASHES" in failed:
        sys.exit(f"{failed}\na package is not what {LOCK.name} says: if your index builds its own, use LOCKED=no")
    last = [line for line in failed.splitlines() if line.startswith("ERROR")][-1:]
    print(f"the versions of {LOCK.name} cannot be had here ({' '.join(last)}): taken by range, and not checked")
    return False


def not_in_lock() -> list[str]:
    """Return the packages that are installed, but not with the version of the lock."""
    locked = set(re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(), re.MULTILINE))
    there = {(re.sub(r"[-_.]+", "-", each.name).lower(), each.version) for each in metadata.distributions()}
    return sorted(f"{name} {version}" for name, version in there - locked if name not in ("pip", "wherefrom"))


def main() -> None:
    extras = next((word for word in sys.argv[1:] if not word.startswith("-")), ALL)
    is_locked = "--unlocked" not in sys.argv and install_lock(extras)
    install("-c", "constraints.txt", "torch")
    install("-c", "constraints.txt", *["--no-build-isolation"] * is_locked, "-e", f".[{extras}]")
    if is_locked and (others := not_in_lock()):
        print(f"not checked by {LOCK.name}: {', '.join(others)}")
    subprocess.run([sys.executable, "-m", "wherefrom", "compile"], check=False)


if __name__ == "__main__":
    main()
