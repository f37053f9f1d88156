"""Kinds of targets: the report takes one that it has never seen, and none of its own code asks which it is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

import wherefrom as wf
from browser import NO_CHROMIUM, Browser, chromium
from conftest import training
from wherefrom.likelihoods import views
from wherefrom.likelihoods.views import quantity
from wherefrom.likelihoods.views.quantity import Quantity
from wherefrom.predictive.panels import Words
from wherefrom.report import page
from wherefrom.report.content import content

REPORT = Path(page.__file__).parent


@dataclass(frozen=True, eq=False)
class Visits:
    """A kind with scores, words, fields and panels of its own; its figures are those of a quantity."""

    quantity: Quantity
    name: str = "visits"

    def __getattr__(self, name):
        return getattr(self.quantity, name)

    @property
    def words(self) -> Words:
        scores = {"nll": self.quantity.words.scores["nll"]}
        shorter = replace(scores["nll"], name="Deviance", short="Dev")
        return replace(self.quantity.words, scores=scores | {"deviance": shorter}, main_score="deviance")

    def scores(self):
        (nll,) = (score for name, score in self.quantity.scores().items() if name == "nll")
        return {"nll": nll, "deviance": nll}

    def shown(self, listed, before):
        counts = torch.arange(len(listed)) % 4
        bars = {"type": "histogram", "title": "Visits", "caption": "How many rows have how many visits."}
        bars |= {"x": {"label": "visits", "domain": [0, 1], "ticks": []}}
        bars |= {
            "y": {"label": "rows"},
            "stacks": [[4, 3, 2, 1]],
            "tips": [{"title": str(k), "lines": []} for k in range(4)],
        }
        shown = self.quantity.shown(listed, before)
        return shown | {
            "headline": {"score": "deviance", "say": ["is the mean deviance."]},
            "table": ["nll", "deviance"],
            "points": shown["points"] | {"visits": counts.tolist()},
            "fields": shown["fields"]
            | {"visits": {"name": "visits", "head": "Visits", "as": "label", "labels": list("abcd")}},
            "rows": shown["rows"] | {"columns": ["visits", "std"], "search": ["visits"]},
            "truth": {
                "lead": "Counts.",
                "panels": [bars, {"type": "note", "title": "Nothing else", "caption": "So far."}],
            },
            "calibration": {"lead": "None.", "panels": []},
        }


@pytest.fixture(scope="module")
def document():
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 4))
    y = x[:, 0] + 0.1 * random.normal(size=120)
    posterior = wf.marginalise(
        training(likelihood=wf.Regression(noise="fit")), (x[:60], y[:60]), over=[wf.InitialCondition(2)], progress=False
    )
    outputs = quantity.outputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantity, "outputs", lambda *given: [Visits(output) for output in outputs(*given)])
        return content(posterior, x[60:], y[60:], samples=4)


def test_a_kind_that_is_new_has_its_words_and_panels(document):
    assert document["glossary"]["deviance"][0] == "Deviance"
    assert "rmse" not in document["glossary"]
    (view,) = document["views"]
    assert view["name"] == "visits"
    assert set(view["combinations"]["rows"][0]["scores"]) == {"nll", "deviance"}
    assert view["truth"]["panels"][0]["title"] == "Visits"


def test_a_kind_that_is_new_is_drawn(document, tmp_path):
    if chromium() is None:
        pytest.skip(NO_CHROMIUM)
    with Browser() as browser:
        opened = browser.open(page.write(tmp_path / "page.html", document))
        text = opened.evaluate("document.body.innerText")
        assert opened.complaints == []
        assert "is the mean deviance." in text
        assert "Nothing else" in text
        assert "Dev" in opened.evaluate("document.querySelector('.combinations thead').textContent")
        assert opened.evaluate("document.querySelectorAll('#trust .column rect').length") == 4
        assert opened.evaluate("document.querySelector('.rows tbody tr').cells[1].textContent") in "abcd"


def test_kinds_import_nothing_of_the_report():
    """They belong to the likelihoods, which know no report."""
    for path in Path(views.__file__).parent.glob("[a-z]*.py"):
        modules = [
            node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        assert not [module for module in modules if module.startswith("wherefrom.report")], path


def test_the_report_does_not_ask_for_the_kind():
    asks = re.compile(r"ClassPrediction|is_classes|given\.classes|\bClassification\b|kind ===")
    sources = [*REPORT.glob("*.py"), *REPORT.joinpath("assets").rglob("*.js")]
    assert [path.name for path in sources if asks.search(path.read_text())] == []


def test_the_script_has_all_its_modules_in_one_scope():
    modules = [path.name for path in resources.files("wherefrom.report").joinpath("assets", "script").iterdir()]
    assert sorted(modules) == sorted(f"{name}.js" for name in page._SCRIPT)
    script = page._script()
    assert script.startswith(page._asset("library/plot.js"))
    our_script = script.removeprefix(page._asset("library/plot.js"))
    assert not re.search(r"^\s*(import|export)\b", our_script, re.M)
    names = re.findall(r"^(?:async )?(?:const|let|function) (\w+)", our_script, re.M)
    assert [name for name, times in Counter(names).items() if times > 1] == []


@pytest.mark.parametrize("name", page._SCRIPT)
def test_modules_of_the_script_import_what_there_is(name):
    text = page._asset(f"script/{name}.js")
    for names, other in re.findall(r'^import \{ (.*) \} from "\./(\w+)\.js";$', text, re.M):
        assert page._SCRIPT.index(other) < page._SCRIPT.index(name)
        exported = re.findall(r"^export (?:const|let|function) (\w+)", page._asset(f"script/{other}.js"), re.M)
        assert set(names.split(", ")) <= set(exported)
    assert len(re.findall(r"^import", text, re.M)) == len(re.findall(r"^import \{ .* \} from", text, re.M))
