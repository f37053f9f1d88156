"""The report of a table in a browser: raw values, logarithmic axes, narrow screens, paper, and access by axe-core.

axe-core is larger than the report, and no part of the project: `make axe` fetches it, or WHEREFROM_AXE names its file.
"""

from __future__ import annotations

import base64
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import wherefrom as wf
from browser import NO_AXE, Page
from made_table import made, without
from wherefrom.report import page as pages

ROOT = Path(__file__).parents[2]
AXE = Path(os.environ.get("WHEREFROM_AXE", ROOT / "tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"))
SERIOUS = ("serious", "critical")
QUICK = {"draws": 2, "epochs": 40, "samples": 8, "noise": "fit", "workers": 1}
pytestmark = pytest.mark.slow


def table(classes: bool = False) -> dict:
    """Numbers with gaps, text, truth values, dates and long names; the quantity has a long tail, and some zeros."""
    cells = without(made(240, 1, classes), "shop")
    cells["a_column_with_a_rather_long_name_of_its_own"] = cells.pop("x7")
    if not classes:
        y = np.array(cells["y"], dtype=float)
        cells["y"] = [f"{value:.5g}" for value in np.exp(y - np.median(y)) * (np.arange(240) % 12 > 0)]
    cells["id"] = [f"patient-{2026000 + k}-ward-{k % 7}" for k in range(240)]
    return cells


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> dict[str, dict]:
    """The documents of a quantity and of classes, by the folds, and of another table."""
    made_documents = {}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows, and neighbours that are better
        kept: list[dict] = []
        patch.setattr(pages, "write", lambda path, document: kept.append(document) or path)
        for name, target in (("quantity", "y"), ("classes", "kind")):
            cells = table(name == "classes")
            how = {key: value for key, value in QUICK.items() if key != "noise" or name == "quantity"}
            model = wf.fit(cells, target, families="network", **how)
            model.report(tmp_path_factory.mktemp("unused") / "report.html")
            made_documents[name] = kept.pop()
            if name == "quantity":
                older = [cell if cell == "NA" else f"{float(cell) + 60:g}" for cell in cells["age"]]
                model.report(tmp_path_factory.mktemp("unused") / "report.html", cells | {"age": older})
                made_documents["new rows"] = kept.pop()
    return made_documents


@pytest.fixture(scope="module")
def written(documents, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: pages.write(folder / f"{name}.html", document) for name, document in documents.items()}


# ---------------------------------------------------------------------- the document


def test_cells_are_as_they_were_written(documents):
    cells, document = table(), documents["quantity"]
    shown = shown_columns(document)
    assert set(shown) == set(cells) - {"id", "customer", "y"}
    order = [cells["id"].index(name) for name in document["rows"]["names"]]
    for name in ("colour", "region", "day"):
        assert shown[name]["cells"] == [cells[name][row] for row in order], name
    assert shown["member"]["cells"] == [cells["member"][row] for row in order]
    for name in ("income", "age", "x6", "visits"):
        for text, cell in zip(shown[name]["cells"], (cells[name][row] for row in order), strict=True):
            if cell in ("", "NA"):
                assert text == ""
            else:
                assert float(text) == pytest.approx(float(cell), rel=1e-5)
    codes = re.compile(r"colour=|\(missing\)|\(season|=red")
    assert not codes.search(pages.embedded(document["data"]))


def test_columns_say_what_is_usual_and_what_moved(documents):
    about = {each["name"]: each for each in documents["quantity"]["data"]["columns"]}
    assert re.fullmatch(r"\w+ \d+%, \w+ \d+%, \w+ \d+%, 1 other", about["colour"]["usual"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d to 20\d\d-\d\d-\d\d", about["day"]["usual"])
    assert about["age"]["moved"] is None  # the rows of training
    ages = [float(cell) for cell in table()["age"] if cell != "NA"]
    assert about["age"]["usual"].startswith(f"{np.median(ages):g} (")
    assert about["age"]["missing"] == pytest.approx(1 - len(ages) / 240)
    moved = {each["name"]: each["moved"] for each in documents["new rows"]["data"]["columns"]}
    spread = (np.quantile(ages, 0.75) - np.quantile(ages, 0.25)) / 1.349
    assert moved["age"] == pytest.approx(60 / spread, rel=1e-6)
    assert moved["x0"] == pytest.approx(0, abs=1e-6)


def test_rows_say_what_to_measure(documents):
    document = documents["quantity"]
    shown = shown_columns(document)
    worth = [(row, each) for row, each in enumerate(document["rows"]["measure"]) if each]
    assert worth
    for row, (name, fall) in worth:
        assert shown[name]["cells"][row] == ""
        assert 0.01 <= fall < 1


# ---------------------------------------------------------------------- the page


def test_a_row_opens_with_its_values(browser, written, documents):
    page = browser.open(written["quantity"])
    page.evaluate(
        "(() => { const s = document.querySelector('#rows select');"
        " s.value = [...s.options].find(o => o.text === 'Measure next').value;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    page.click("document.querySelector('.rows tbody .open')")
    name = page.evaluate("document.querySelector('.rows tbody .open').textContent")
    row = documents["quantity"]["rows"]["names"].index(name)
    best = max(each[1] for each in documents["quantity"]["rows"]["measure"] if each)
    column, fall = documents["quantity"]["rows"]["measure"][row]
    assert fall == best
    detail = page.evaluate("document.querySelector('.rows tr.detail').innerText")
    assert f"Measure {column} next" in detail
    facts = page.evaluate(
        "[...document.querySelectorAll('.rows tr.detail .values div')]"
        ".map(e => [...e.children].map(c => c.textContent))"
    )
    cells = {column: values["cells"][row] for column, values in shown_columns(documents["quantity"]).items()}
    assert dict(facts) == {name: cell or "missing" for name, cell in cells.items()}


def test_a_long_tail_has_logarithmic_axes(browser, written, documents):
    (view,) = documents["quantity"]["views"]
    scatter = view["truth"]["panels"][0]
    assert scatter["x"]["log_from"] == scatter["y"]["log_from"] > 0
    assert " to " in view["headline"]["big"]
    page = browser.open(written["quantity"])
    labels = "document.querySelector('#trust .picture [aria-label=\"x-axis tick label\"]').children"
    first, *others = page.evaluate(f"[...{labels}].map(e => e.textContent)")
    assert first == f"≤ {scatter['x']['log_from']:g}"  # zeros stand there
    values = [float(text.replace(",", "")) for text in others]
    middle = "(e => e.getBoundingClientRect().x + e.getBoundingClientRect().width / 2)"
    places = page.evaluate(f"[...{labels}].map({middle})")[1:]
    steps = np.diff(places) / np.diff(np.log(values))
    np.testing.assert_allclose(steps, steps[0], rtol=0.03)


BEYOND_THE_SCREEN = """[...document.querySelectorAll('table, td, th, .card, .picture text, li, dd')].filter(e => {
    const b = e.getBoundingClientRect();
    const isSeen = b.width && e.checkVisibility() && !e.closest('.unseen, .scroll, thead');
    return isSeen && (b.right > innerWidth + 1 || b.left < -1);
}).map(e => e.outerHTML.slice(0, 120))"""
SPILLING = """[...document.querySelectorAll('.card, td, .facts div')].filter(e => e.checkVisibility()
    && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'table-cell')
    .map(e => e.outerHTML.slice(0, 120))"""
OVERLAPPING = """[...document.querySelectorAll('.picture')].flatMap(p => {
    const texts = [...p.querySelectorAll('text')].filter(e => e.textContent);
    const boxes = texts.map(e => [e.textContent, e.getBoundingClientRect()]);
    const across = (a, b) => a.left < b.right - 1 && b.left < a.right - 1;
    const overlap = (a, b) => across(a, b) && a.top < b.bottom - 3 && b.top < a.bottom - 3;
    return boxes.flatMap(([s, a], i) => boxes.slice(i + 1).filter(([, b]) => overlap(a, b))
        .map(([t]) => `${p.getAttribute('aria-label')}: ${s} | ${t}`));
})"""
BROKEN_NAMES = """[...document.querySelectorAll('.rows .open')]
    .filter(e => e.checkVisibility() && e.getBoundingClientRect().height > 40).map(e => e.textContent)"""


@pytest.mark.parametrize("kind", ["quantity", "classes", "new rows"])
@pytest.mark.parametrize("width", [390, 700, 900, 1280])
def test_nothing_is_cut_or_overlaps(browser, written, kind, width):
    page = browser.open(written[kind], width)
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for fault in (BEYOND_THE_SCREEN, SPILLING, OVERLAPPING, BROKEN_NAMES):
        assert page.evaluate(fault) == []
    assert page.complaints == []


def test_tables_can_be_sorted_on_a_phone(browser, written):
    """By buttons with the columns' names, which can be seen and touched."""
    page = browser.open(written["quantity"], 390)
    unfold(page)
    columns = "[...document.querySelectorAll('.stacks')].find(e => e.caption.textContent === 'Columns')"
    names = f"[...{columns}.querySelectorAll('tbody td:first-child b')].map(e => e.textContent)"
    button = f"[...{columns}.querySelectorAll('thead button')].find(e => e.textContent === 'Column')"
    in_order = f"{names}.sort((a, b) => a.localeCompare(b, 'en', {{numeric: true}}))"
    assert page.evaluate(names) != page.evaluate(in_order)
    assert page.evaluate(f"{button}.getBoundingClientRect().height") >= 24
    page.click(button)
    assert page.evaluate(names) == page.evaluate(in_order)
    page.click(button)
    assert page.evaluate(names) == page.evaluate(f"{in_order}.reverse()")


@pytest.mark.parametrize("kind", ["quantity", "classes", "new rows"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_has_no_serious_finding(browser, written, kind, width, dark):
    if not AXE.exists():
        pytest.skip(
            "AXE-CORE IS NOT HERE, so that access was not checked: make axe, or set WHEREFROM_AXE to axe.min.js"
        )
    page = browser.open(written[kind], width, dark=dark)
    unfold(page)
    page.click("document.querySelector('.rows tbody .open')")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate(
        "axe.run(document).then(r => r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html.slice(0, 200))]))"
    )
    assert [each for each in violations if each[0] in SERIOUS] == []


def test_axe_finds_what_is_wrong(browser, written):
    """The check itself works: grey on grey is a serious finding."""
    if not AXE.exists():
        pytest.skip(
            "AXE-CORE IS NOT HERE, so that access was not checked: make axe, or set WHEREFROM_AXE to axe.min.js"
        )
    page = browser.open(written["quantity"])
    page.evaluate("document.querySelector('h1').style.color = '#dddddd'")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run(document).then(r => r.violations.map(v => [v.impact, v.id]))")
    assert ["serious", "color-contrast"] in violations


@pytest.mark.parametrize("kind", ["quantity", "classes", "new rows"])
def test_it_prints_on_six_pages_at_most(browser, written, kind):
    page = browser.open(written[kind], 1280)
    pdf = base64.b64decode(page.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
    assert page.complaints == []


def test_a_page_is_small(written):
    assert all(path.stat().st_size < 1_500_000 for path in written.values())


def shown_columns(document: dict) -> dict[str, dict]:
    """Return the listed cells by column."""
    return dict(zip([each["name"] for each in document["data"]["columns"]], document["data"]["values"], strict=True))


def load_axe(page: Page) -> None:
    if not AXE.exists():
        pytest.skip(NO_AXE)
    page.evaluate(AXE.read_text(encoding="utf-8"))


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    page.wait_for("[...document.querySelectorAll('#technical .plot')].every(e => e.querySelector('.picture'))")
