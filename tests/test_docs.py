"""The documentation: every block of Python runs, every page is in the site, every public name in its reference."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wherefrom as wf
from wherefrom.predictive.one_shot import rules

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
API = sorted(DOCS.glob("api/*.md"))  # a page of the reference for each room
GALLERY = sorted(DOCS.glob("gallery/*.md"))  # written by tools/gallery.py, and run by tests/test_gallery.py
BESIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]  # pages that are not in the site
RUN_ELSEWHERE = {"own_loop.md": "own_loop/test_own_loop_page.py"}  # by a test of its own

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block of code."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def prose(page: Path) -> str:
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def without_prompts(page: Path) -> list[str]:
    return [text for language, text in blocks(page) if language == "python" and ">>> " not in text]


# ---------------------------------------------------------------------- code


@pytest.fixture
def names(problem, tmp_path, monkeypatch) -> dict[str, object]:
    """What the blocks without prompts speak of: a posterior of a small network, a run of a table, a place to be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rules, "RULES", dict(rules.RULES))
    x, y = problem
    training = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.01, batch_size=30), epochs=4)
    over = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank=2))]
    known = {
        "wf": wf,
        "nn": nn,
        "F": F,
        "torch": torch,
        "np": np,
        "x": x[:30],
        "y": y[:30],
        "training": training,
        "over": over,
    }
    return known | {"posterior": wf.marginalise(training, (x, y), over)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in [*PAGES, *BESIDE] if without_prompts(page)], ids=lambda page: page.name
)
def test_blocks_without_prompts_run(page, names, monkeypatch):
    """Those with prompts are doctests, which pytest finds by itself."""
    if page.name in RUN_ELSEWHERE:
        assert page.name in (ROOT / "tests" / RUN_ELSEWHERE[page.name]).read_text(encoding="utf-8")
        return
    if page.name == "one_shot.md":
        pytest.importorskip("onnxscript", reason="the file for programs without Python needs wherefrom[onnx]")
    if page.name == "table.md":
        _fit_a_table()
    for text in without_prompts(page):
        exec(compile(text, str(page), "exec", dont_inherit=True), names)


def _fit_a_table() -> None:
    """The folder `run` and the file `new.csv` of the page, made by the command that it shows."""
    random = np.random.default_rng(0)
    size = random.normal(size=80)
    lines = [f"{value:.3f},{10 * value + noise:.3f}" for value, noise in zip(size, random.normal(size=80), strict=True)]
    Path("train.csv").write_text("\n".join(["size,price", *lines]) + "\n", encoding="utf-8")
    Path("new.csv").write_text("size\n0.5\n1.5\n", encoding="utf-8")
    settings = ["--epochs", "3", "--lr", "0.01", "--dropout", "0", "--quiet"]
    command = [sys.executable, "-m", "wherefrom", "fit", "train.csv", "--target", "price", "--out", "run", *settings]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: page.name)
def test_blocks_say_what_they_are(page):
    """Python is called python, so that it is run; all else is what a shell takes, or gives."""
    for language, text in blocks(page):
        assert language in ("", "python")
        if language == "":
            assert ">>> " not in text
            assert "import " not in text


def test_a_doctest_leaves_a_line_empty_before_its_fence():
    """Otherwise the fence would be taken for a part of the answer."""
    for page in [*PAGES, *BESIDE]:
        for _, text in blocks(page):
            if ">>> " in text:
                assert text.endswith("\n\n"), f"{page.name}: {text[-80:]!r}"


# ---------------------------------------------------------------------- pages


def navigation() -> list[str]:
    """All pages that mkdocs.yml leads to."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return re.findall(r"[\w./-]+\.md$", settings[settings.index("\nnav:") : settings.index("\ntheme:")], re.MULTILINE)


def test_every_page_is_in_the_navigation_once():
    our_pages = [page for page in navigation() if page != "changes.md" and "results/" not in page]
    assert sorted(our_pages) == sorted(page.relative_to(DOCS).as_posix() for page in [*PAGES, *API, *GALLERY])


def test_all_results_are_in_the_navigation():
    paths = [*(ROOT / "results").glob("*/*.md"), *(ROOT / "benchmarks" / "results").glob("*.md")]
    pages = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    assert sorted(page for page in navigation() if "results/" in page) == pages


def anchors(page: Path) -> set[str]:
    """As headings become them in Markdown: words in small letters, joined by hyphens."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *API, *GALLERY, *BESIDE], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in API)


def described(name: str) -> object:
    """What the reference calls by its whole name."""
    home, _, last = name.rpartition(".")
    module = importlib.import_module(home)
    return getattr(module, last) if hasattr(module, last) else importlib.import_module(name)


def test_every_public_name_is_in_the_reference_once():
    """Those of a first week by their short names, the others by their modules."""
    names = re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)
    assert {name for name in names if name.count(".") == 1} == {f"wherefrom.{name}" for name in wf.__all__}
    every = {name: getattr(wf, name) for name in wf._HOMES if name != "augmentation"}
    assert sorted(map(id, map(described, names))) == sorted(map(id, every.values()))


def test_members_in_the_reference_exist():
    for name, listed in re.findall(
        r"^::: ([\w.]+)\n    options:\n      members:((?:.*\n?)(?: {8}- .*\n)*)", REFERENCE, re.M
    ):
        for member in re.findall(r"\w+", listed):
            if member != "false":
                assert hasattr(described(name), member), f"{name}.{member}"


# ---------------------------------------------------------------------- what pages claim


def test_neighbours_name_tests_that_exist():
    text = (DOCS / "neighbours.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)`(?:, `(\w+)`)?", text)
    assert named
    for path, test in named:
        assert f"def {test}" in (ROOT / path).read_text(encoding="utf-8")


NAMES = {"M": "M", "t": "t", "θ₀": "theta0"}


def scores(name: str) -> dict[tuple[str, str, str], float]:
    """Means over folds, by set, combination and metric."""
    with (ROOT / "results" / "uci" / name).open(encoding="utf-8") as file:
        found = defaultdict(list)
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            found[row["set"], row["combination"], row["metric"]].append(float(row["value"]))
    return {key: mean(values) for key, values in found.items()}


def test_the_table_of_choosing_is_that_of_the_results():
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| ([Mtθ₀ +]+) \| (.+) \|$", page, re.MULTILINE)
    combinations = ["+".join(NAMES[part] for part in written.split(" + ")) for written, _ in table]
    assert len(combinations) == 7
    shown = [cells.split(" | ") for _, cells in table]
    for file, first in (("main.csv", 0), ("main-fit.csv", 3)):
        found = scores(file)
        sets = {key[0] for key in found}
        best = [min(combinations, key=lambda c: found[name, c, "nll"]) for name in sets]
        for combination, cells in zip(combinations, shown, strict=True):
            nll, coverage = (mean(found[name, combination, metric] for name in sets) for metric in ("nll", "coverage"))
            expected = [f"{nll:.2f}", str(best.count(combination)), f"{coverage:.0%}"]
            assert cells[first : first + 3] == expected, combination


def test_what_choosing_says_of_fitted_noise():
    found = scores("main-fit.csv")
    sets = {key[0] for key in found}

    def better(a: str, b: str) -> int:
        return sum(found[name, a, "nll"] < found[name, b, "nll"] for name in sets)

    assert better("M+theta0", "M") == 9
    assert better("t+theta0", "theta0") == 5
    combinations = {key[1] for key in found}
    means = [mean(found[name, c, "nll"] for name in sets - {"naval"}) for c in combinations]
    assert round(max(means) - min(means), 2) == 0.11
    difference = {name: found[name, "t+theta0", "nll"] - found[name, "theta0", "nll"] for name in sets}
    assert max(difference, key=lambda name: difference[name]) == "naval"


def measured(section: str) -> dict[str, dict[str, str]]:
    """Return a table of the comparison on real tables: by table, the cell of each contender."""
    page = (ROOT / "benchmarks" / "results" / "tables.md").read_text(encoding="utf-8")
    lines = [line for line in page.partition(f"\n## {section}\n")[2].partition("\n## ")[0].splitlines() if "|" in line]
    head, _, *rows = ([cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines)
    return {cells[0]: dict(zip(head, cells, strict=True)) for cells in rows}


CONTENDERS = {
    "Wherefrom, `wf.fit`": "this library, `wf.fit`",
    "CatBoost": "CatBoost",
    "LightGBM": "LightGBM",
    "NGBoost": "NGBoost",
    "Gaussian process": "Gaussian process",
    "5 networks (deep ensemble)": "5-network deep ensemble",
}


def lowest(section: str) -> list[str]:
    """Return the contender with the lowest score on each table."""
    return [
        min(CONTENDERS, key=lambda name: float(cells.get(CONTENDERS[name]) or "inf"))
        for cells in measured(section).values()
    ]


def test_the_comparison_of_the_readme_is_that_of_the_results():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    coverage = measured("Coverage of the 95% interval, in percent: all rows (± standard error), worst fifth")
    seconds = measured("CPU seconds of one fold: fit, predict")
    nll, crps = lowest("Quantities: NLL"), lowest("Quantities: CRPS")
    assert f"{len(nll)} real tables with a quantity" in text
    assert f"{lowest('Classes: Brier score').count('Wherefrom, `wf.fit`')}. [All figures" in text
    for name, column in CONTENDERS.items():
        holds = sum(93 <= float(re.match(r"[\d.]+", cells[column])[0]) <= 97 for cells in coverage.values())
        fits = median(float(seconds[table][column].partition(",")[0]) for table in coverage)
        row = f"| {name} | {nll.count(name)} | {crps.count(name)} | {holds} | {fits:.1f} |"
        assert row in text, row


# ---------------------------------------------------------------------- what builds the site


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, DOCS / ".site" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_pages_are_changed_for_the_site():
    hooks = module("hooks")
    assert hooks.with_own_links("[a](../results/uci/short.md)", "uci.md") == "[a](results/uci/short.md)"
    assert hooks.with_own_links("[c](docs/a.md)", "changes.md") == "[c](a.md)"
    assert hooks.with_own_links("[m](../benchmarks/results/a.md)", "uci.md") == "[m](benchmarks/results/a.md)"
    growth = hooks.with_own_links("![g](../../docs/images/g.png)", "benchmarks/results/growth.md")
    assert growth == "![g](../../images/g.png)"
    assert hooks.with_own_links("[n](../../notebooks/a.py)", "gallery/a.md") == "[n](../notebooks/a.py)"
    assert hooks.with_own_links("[b](../results/uci)", "uci.md") == "[b](results/uci/main.md)"
    assert hooks.with_prompts("```python\n>>> 1\n1\n\n```\n\n```python\nx = 1\n```") == (
        "```pycon\n>>> 1\n1\n\n```\n\n```python\nx = 1\n```"
    )


def test_every_parameter_of_the_reference_is_listed():
    pytest.importorskip("griffe", reason="the site is built with wherefrom[docs]")
    listed = module("parameters").listed
    parameters = {"count": "`int`", "seed": "`int`, default `0`", "init": ""}
    text = "Draw.\n\ncount: how many\n    samples.\nelsewhere: no parameter.\n\n>>> 1\n1"
    expected = "- **count** (`int`): how many samples.\n- **seed** (`int`, default `0`)\n- **init**\n\n"
    assert listed(text, parameters) == f"Draw.\n\n{expected}elsewhere: no parameter.\n\n>>> 1\n1"
    assert listed("Draw.\n\n>>> 1\n1", parameters).index("**seed**") < listed("Draw.\n\n>>> 1\n1", parameters).index(
        ">>>"
    )
    assert listed("Draw.", {}) == "Draw."


def test_examples_of_docstrings_are_blocks_of_code():
    pytest.importorskip("griffe", reason="the site is built with wherefrom[docs]")
    fenced = module("doctests").fenced
    assert fenced("One.\n\n>>> 1\n1\n\nTwo.") == "One.\n\n```pycon\n>>> 1\n1\n```\n\nTwo.\n"
    assert fenced("    >>> 1\n    1") == "```pycon\n>>> 1\n1\n```\n"
    assert fenced("No example.") == "No example.\n"
