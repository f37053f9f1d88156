"""The committed results of the UCI study: whole, made with the set-ups of this version, and what the docs show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wherefrom.reproduce import datasets
from wherefrom.reproduce.uci import beyond, printed, recommended, tables
from wherefrom.reproduce.uci.results import read
from wherefrom.reproduce.uci.setups import SETUPS

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "results" / "uci"
RUN = {
    setup.name: setup
    for setup in (
        *SETUPS.values(),
        SETUPS["short"].but(start=0.2),
        SETUPS["tuned"].but(start=0.1, dropout=0.0),
        SETUPS["main"].but(noise="fit"),
        SETUPS["main"].but(noise="predicted"),
        SETUPS["main"].but(method="one_shot"),
    )
}


@pytest.mark.parametrize("name", [*RUN, recommended.NAME])
def test_every_set_and_fold_is_there(name):
    results = read(FOLDER / f"{name}.csv")
    settings = RUN[name].settings if name in RUN else recommended.Recipe().settings
    assert results.settings == json.loads(json.dumps(settings | {"folds": None, "seed": 0}))
    assert results.sets == sorted(datasets.NAMES)
    labels = ["+".join(names) for names in RUN[name].combinations] if name in RUN else [recommended.NAME]
    for metric in ("nll", "rmse", "crps", "coverage"):
        values = results.by_fold(metric)
        for label in labels:
            for of, chosen in datasets.SETS.items():
                assert len(values[label, of]) == chosen.folds


@pytest.mark.parametrize("name", [name for name, setup in RUN.items() if setup.noise is None])
def test_pages_are_made_from_the_scores(name):
    setup, results = RUN[name], read(FOLDER / f"{name}.csv")
    page = tables.markdown_page(results, setup.table, setup.combinations)
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page


def test_the_page_beyond_is_made_from_the_scores():
    by_noise = {
        kind: read(FOLDER / f"main{end}.csv")
        for kind, end in (("none", ""), ("fit", "-fit"), ("predicted", "-predicted"))
    }
    best = read(FOLDER / f"{recommended.NAME}.csv")
    page = beyond.page(by_noise, best, SETUPS["main"].combinations)
    assert (FOLDER / "main-beyond.md").read_text(encoding="utf-8") == page


def test_the_docs_show_these_tables():
    """Every table of the page with a column or a line for each set stands in one of the results' pages."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md"))
    blocks = (PROJECT / "docs" / "uci.md").read_text(encoding="utf-8").split("\n\n")
    shown = [block.strip() for block in blocks if block.startswith("|") and "boston" in block]
    assert len(shown) >= 8
    for block in shown:
        assert block in pages, block.splitlines()[0]


def test_the_first_table_is_reproduced():
    """At least 55 of its 63 cells within two printed deviations, and its order wherever the paper has it."""
    results = read(FOLDER / "main.csv")
    cells = printed.tables()["main", "nll"]
    ours = tables.moments(results, "nll")
    distances = [cell.distance(ours["+".join(names), name][0]) for (names, name), cell in cells.items()]
    assert len(distances) == 63
    assert sum(abs(distance) <= 2 for distance in distances) >= 55
    order = tables.summary(results, "nll", cells)[-1]
    assert "(6 of 9 sets), they do so here on 6." in order


def test_the_recommended_recipe_beats_the_deep_ensembles():
    best = tables.moments(read(FOLDER / f"{recommended.NAME}.csv"), "mixture nll")
    for name, methods in printed.published().items():
        assert best[recommended.NAME, name][0] < float(methods["deep ensemble (2017)"]), name
