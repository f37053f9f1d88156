"""The notebooks: each runs in its quick form, and its page in the gallery has its code. The pictures of pages."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import page_pictures  # noqa: E402
from gallery import NOTEBOOKS, PAGES, QUICK, cells, run, shown  # noqa: E402

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run(name, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="notebooks draw: pip install 'wherefrom[plot]'")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    names, drawn = {"__name__": "notebook"}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as that so few epochs are too few
        for cell in cells((NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")):
            if cell.is_code:
                drawn += run(cell.text, names, is_quick=True).figure is not None
    pyplot.close("all")
    assert drawn >= 1


@pytest.mark.parametrize("name", NAMES)
def test_pages_have_the_code_of_their_notebooks(name):
    script = cells((NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8"))
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    assert code == [shown(cell.text) for cell in script if cell.is_code], "run tools/gallery.py"
    assert all(cell.text.partition("\n")[2].strip() in page for cell in script if not cell.is_code)
    assert "quick:" not in page
    pictures = re.findall(r"!\[(.*)\]\(\.\./images/([\w-]+\.png)\)", page)
    assert [title for title, _ in pictures] == [cell.title for cell in script if cell.title]
    for _, picture in pictures:
        assert (ROOT / "docs" / "images" / picture).stat().st_size < 150_000


def test_there_are_quick_forms_of_all():
    assert len(NAMES) == 5
    for name in NAMES:
        assert QUICK.search((NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8"))


DOCS = ROOT / "docs"
PICTURE = re.compile(r"!\[(.*?)\]\((\S+)\)")


def test_every_picture_of_a_page_is_small_and_described():
    for page in [*DOCS.glob("*.md"), ROOT / "README.md"]:
        for words, path in PICTURE.findall(page.read_text(encoding="utf-8")):
            assert len(words.split()) >= 4, f"{page.name}: {path}"
            assert (page.parent / path).stat().st_size < 250_000, path


def test_every_page_with_a_drawing_shows_it():
    """And no drawing is left behind that no page shows."""
    assert {path.stem for path in (DOCS / "images").glob("page-*.png")} == {
        f"page-{name}" for name in page_pictures.PICTURES
    }
    for name in page_pictures.PICTURES:
        assert f"(images/page-{name}.png)" in (DOCS / f"{name}.md").read_text(encoding="utf-8")
        assert (DOCS / "images" / f"page-{name}.png").stat().st_size < 60_000


@pytest.mark.parametrize("name", page_pictures.WITHOUT_EXAMPLES)
def test_drawings_without_training(name, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'wherefrom[plot]'")
    page_pictures.PICTURES[name]({}).savefig(tmp_path / "drawn.png", dpi=90)
    assert (tmp_path / "drawn.png").stat().st_size > 5_000
