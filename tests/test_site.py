"""The site: every parameter explained, no serious fault of access, and nothing wider than a phone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from browser import NO_AXE, Page

ROOT = Path(__file__).parents[1]
AXE = Path(os.environ.get("WHEREFROM_AXE", ROOT / "tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"))
PAGES = ("index", "table", "calibration", "table_measured", "gallery/hospital_stay", "api/tables")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs", reason="the site is built with wherefrom[docs]")
    pytest.importorskip("mkdocstrings", reason="the site is built with wherefrom[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


def opened(browser, site: Path, name: str, width: int, dark: bool = False) -> Page:
    page = browser.open(site / f"{name}.html", width, dark=dark)
    if page.evaluate(
        "[...document.querySelectorAll('.md-typeset pre > code')].some(e => e.scrollWidth > e.clientWidth)"
    ):
        page.wait_for("document.querySelector('.md-typeset pre > code[tabindex]') !== null")
    return page


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
@pytest.mark.parametrize("name", PAGES)
def test_pages_have_no_serious_fault_of_access(browser, site, name, width, dark):
    if not AXE.exists():
        pytest.skip(NO_AXE)
    page = opened(browser, site, name, width, dark)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    faults = page.evaluate("axe.run(document).then(r => r.violations.map(v => [v.impact, v.id, v.nodes[0].html]))")
    assert [fault for fault in faults if fault[0] in ("serious", "critical")] == []


@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_a_phone(browser, site, name):
    assert opened(browser, site, name, 390).evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_parameter_of_the_reference_is_explained(site):
    """An item of a list of parameters is its name, its type and default in brackets, and a colon with its meaning."""
    part = re.compile(r'id="(wherefrom[\w.]+)"|<li>(?:<p>)?<strong>(\w+)</strong>(.*?)</li>', re.DOTALL)
    found, without = 0, []
    for page in sorted((site / "api").glob("*.html")):
        owner = ""
        for heading, name, about in part.findall(page.read_text(encoding="utf-8")):
            owner = heading or owner
            if name:
                found += 1
                words = re.sub(r"<[^>]+>", "", about).strip()
                without += [f"{owner}: {name}"] * (re.search(r"\)\s*: \S|^: \S", words) is None)
    assert found > 300
    assert without == []
