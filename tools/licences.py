"""Write docs/licences.md: every package of requirements.lock, and torch, with its licence as it states it itself.

make licences    after `make lock`; the packages have to be installed
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
sys.path.insert(0, str(ROOT / "tools"))

from lock import LOCK, entries, name_of  # noqa: E402

_HEAD = """# Licences

Wherefrom is under the Apache licence 2.0. It contains code of others in one file: the report's plot library, Observable
Plot with the parts of d3 that it needs (ISC, MIT and Apache-2.0; the texts are in LICENCES.txt of
`src/wherefrom/report/assets/library`, and in every report). This is what `make` installs to use and to test all of it,
with the licences that the packages state themselves (`make licences` writes this page). The package itself needs torch,
numpy, typer and rich; all others come with extras (`pyproject.toml` says which).

| package | version | licence |
|---|---|---|
"""
_SHORT = {  # of classifiers, and of long texts by how they begin
    "MIT License": "MIT",
    "BSD License": "BSD",
    "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def licence_of(about: metadata.PackageMetadata) -> str:
    """Return the licence: its SPDX expression, or else its classifiers, or else the first line of what is said."""
    if expression := about.get("License-Expression"):
        return expression
    classifiers = [each for each in about.get_all("Classifier") or () if each.startswith("License ::")]
    last = [each.split(" :: ")[-1] for each in classifiers]
    if named := [_SHORT.get(each, each) for each in last if each != "OSI Approved"]:
        return ", ".join(named)
    stated = (about.get("License") or "").strip().splitlines()
    return stated[0].strip() if stated else "not stated"


def installed() -> dict[str, metadata.PackageMetadata]:
    """Return what packages say of themselves, by their names."""
    return {re.sub(r"[-_.]+", "-", each.name).lower(): each.metadata for each in metadata.distributions()}


def main() -> None:
    here = installed()
    names = sorted({"torch", *(name_of(each) for each in entries(LOCK.read_text()))})
    lines = [
        f"| {name} | {here[name]['Version'].partition('+')[0]} | {licence_of(here[name])} |"
        for name in names
        if name in here
    ]
    absent = [name for name in names if name not in here]
    foot = f"\nNot installed on the machine that wrote this page: {', '.join(absent)}.\n" if absent else ""
    PAGE.write_text(_HEAD + "\n".join(lines) + "\n" + foot, encoding="utf-8")
    print(f"{len(lines)} packages in {PAGE.relative_to(ROOT)}; not here: {', '.join(absent) or 'none'}")


if __name__ == "__main__":
    main()
