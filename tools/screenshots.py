"""Make the pictures of the report, the site and the server's page in docs/images: wide, dark, on a phone, printed.

    make screenshots        needs Chromium, and pdftoppm (poppler-utils) for the printed page
    python tools/screenshots.py site        those of the site alone; `report` and `server` make the others

The report is a real one: scikit-learn's diabetes data (442 people, ten measurements), as `wf.fit` learns it by default.
So that there is something to measure next, one cell in six of `bmi` and of `blood_pressure` is left empty.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes

import wherefrom as wf
from wherefrom.files import atomic

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser, Page  # noqa: E402

NAMES = ("age", "sex", "bmi", "blood_pressure", "cholesterol", "ldl", "hdl", "cholesterol_by_hdl", "log_triglycerides")
_LARGEST = 200_000  # bytes of a picture


def table() -> dict[str, list[str]]:
    """Return the cells of the table, as a CSV file would have them."""
    data = load_diabetes(scaled=False)
    random = np.random.default_rng(0)
    cells = {
        name: [f"{value:g}" for value in column] for name, column in zip((*NAMES, "glucose"), data.data.T, strict=True)
    }
    cells["sex"] = [f"sex {cell}" for cell in cells["sex"]]
    for name in ("bmi", "blood_pressure"):
        for row in np.flatnonzero(random.random(len(data.target)) < 1 / 6):
            cells[name][row] = ""
    return cells | {"progression": [f"{value:g}" for value in data.target]}


def keep(page: Page, name: str) -> None:
    """Write what the window shows."""
    path = IMAGES / name
    page.screenshot(path, whole=False)
    report_size(path)


def report_size(path: Path) -> None:
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes")
    if size > _LARGEST:
        sys.exit(f"{path} is larger than {_LARGEST:,} bytes: make the window smaller")


def of_report(browser: Browser) -> None:
    """Fit the table, write its report, and draw it."""
    with tempfile.TemporaryDirectory() as folder:
        cells = table()
        source, path = Path(folder) / "diabetes.csv", Path(folder) / "report.html"
        atomic.write_csv(source, list(cells), zip(*cells.values(), strict=True))
        wf.fit(source, "progression", workers=1).report(path)
        keep(browser.open(path, 1280, 940), "report.png")
        keep(browser.open(path, 390, 844), "report_phone.png")
        dark = browser.open(path, 1280, 1000, dark=True)
        dark.click("document.querySelector('.rows tbody .open')")
        dark.evaluate("document.getElementById('rows').scrollIntoView({behavior: 'instant'})")
        keep(dark, "report_dark.png")
        if shutil.which("pdftoppm") is None:
            sys.exit("pdftoppm is not installed, so that the printed page was not drawn: apt install poppler-utils")
        wide = browser.open(path, 1280)
        pdf = Path(folder) / "report.pdf"
        printed = wide.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        pdf.write_bytes(base64.b64decode(printed["data"]))
        command = ["pdftoppm", "-png", "-r", "75", "-f", "1", "-l", "1", "-singlefile", str(pdf)]
        subprocess.run([*command, str(IMAGES / "report_print")], check=True)
        report_size(IMAGES / "report_print.png")


def of_site(browser: Browser) -> None:
    """Build the site, and draw its first page wide and on a phone, and another one in dark colours."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
        shown = (("index", 1280, 900, "wide"), ("index", 390, 844, "phone"), ("sources", 1280, 900, "dark"))
        for name, width, height, kind in shown:
            page = browser.open(Path(folder) / f"{name}.html", width, height, dark=kind == "dark")
            page.wait_for("document.querySelector('[data-md-component=palette] label:not([hidden])') !== null")
            keep(page, f"site-{kind}.png")


def of_server(browser: Browser) -> None:
    """Draw the page that `wherefrom serve` has for people."""
    from wherefrom.serving import Limits, page

    cells = {name: column for name, column in table().items() if name in ("age", "sex", "bmi", "progression")}
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "diabetes.csv", Path(folder) / "docs.html"
        atomic.write_csv(source, list(cells), zip(*cells.values(), strict=True))
        model = wf.fit(source, "progression", draws=2, epochs=10, noise="fit", workers=1)  # no prediction is shown
        path.write_text(page(model, Limits(), False), encoding="utf-8")
        keep(browser.open(path, 900, 760), "server.png")


def main() -> None:
    torch.set_num_threads(1)
    with Browser() as browser:
        for name in sys.argv[1:] or ("report", "site", "server"):
            {"report": of_report, "site": of_site, "server": of_server}[name](browser)


if __name__ == "__main__":
    main()
