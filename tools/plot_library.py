"""Make the report's plot library: Observable Plot and the parts of d3 that it needs, as one file without requests.

    python tools/plot_library.py            writes src/wherefrom/report/assets/library/plot.js and its licences
    python tools/plot_library.py --check    builds it again, and fails if the files differ

tools/plot/ says what goes into it: versions in package.json, hashes of all packages in package-lock.json, and the names
that the report uses in library.js. Needs node and npm. After a change of package.json, write a new lock there by
`npm install --package-lock-only --omit-lockfile-registry-resolved`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "tools" / "plot"
OUT = ROOT / "src" / "wherefrom" / "report" / "assets" / "library"
_PACKAGE = re.compile(r"(?:.*/)?node_modules/((?:@[^/]+/)?[^/]+)/")
_BUNDLE = ("--bundle", "--minify", "--format=iife", "--global-name=Plot", "--target=es2020", "--legal-comments=none")


def build(folder: Path) -> dict[str, str]:
    """Return the text of each file, by its name; packages go into the folder."""
    for path in RECIPE.iterdir():
        shutil.copy(path, folder)
    npm, npx = shutil.which("npm"), shutil.which("npx")
    if npm is None or npx is None:
        sys.exit("node and npm are not installed: install them (apt install npm), then run this again")
    subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder, check=True)
    command = [npx, "esbuild", "library.js", *_BUNDLE, "--metafile=meta.json", "--outfile=plot.js", "--log-level=error"]
    subprocess.run(command, cwd=folder, check=True)
    (output,) = json.loads((folder / "meta.json").read_text())["outputs"].values()
    inputs = [name for name, about in output["inputs"].items() if about["bytesInOutput"]]
    packages = sorted({match[1] for match in map(_PACKAGE.match, inputs) if match})
    licences = notices(folder, packages)
    # A report is a copy, too, and the licences ask for their notice in all copies.
    return {"plot.js": f"/*\n{licences}*/\n{(folder / 'plot.js').read_text()}", "LICENCES.txt": licences}


def notices(folder: Path, packages: list[str]) -> str:
    """Return the licences of packages; a text that several share stands there once, below their copyrights."""
    by_text: dict[str, list[str]] = {}
    for package in packages:
        home = folder / "node_modules" / package
        (path,) = [each for each in home.iterdir() if each.name.upper().startswith("LICENSE")]
        copyrights, text = split(path.read_text())
        version = json.loads((home / "package.json").read_text())["version"]
        by_text.setdefault(text, []).append(f"{package} {version}: {copyrights}")
    return "\n".join("\n".join(names) + f"\n\n{text}\n" for text, names in by_text.items())


def split(licence: str) -> tuple[str, str]:
    """Return the copyright lines of a licence, and the rest of it with its lines joined.

    >>> split("Copyright 2010-2021 A\\n\\nPermission to use\\nthis software.\\n")
    ('Copyright 2010-2021 A', 'Permission to use this software.')
    """
    lines = [line.strip() for line in licence.strip().splitlines()]
    copyrights = [line for line in lines if line.startswith("Copyright")]
    others = "\n".join(line for line in lines if line not in copyrights)
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", others.strip())]
    return "; ".join(copyrights), "\n\n".join(each for each in paragraphs if each)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the report's plot library from its npm packages.")
    parser.add_argument("--check", action="store_true", help="fail if the files in the project differ")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        files = build(Path(folder))
    for name, text in files.items():
        if check and (OUT / name).read_text(encoding="utf-8") != text:
            sys.exit(f"{OUT / name} is not what tools/plot makes: run python tools/plot_library.py")
        if not check:
            OUT.mkdir(exist_ok=True)
            (OUT / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
