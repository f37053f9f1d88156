"""The page's examples of other libraries run as they are written; its others are doctests."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "own_loop.md"


def example(heading: str) -> str:
    """The code under a heading."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.search(r"```python\n(.*?)```", section[1], re.DOTALL)[1]


@pytest.mark.parametrize(
    ("heading", "packages"), [("Lightning", ["lightning"]), ("Hugging Face", ["transformers", "accelerate"])]
)
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*number of training batches")
def test_the_example_runs(heading, packages, capsys, tmp_path, monkeypatch):
    for package in packages:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    exec(compile(example(heading), str(PAGE), "exec"), {"__name__": "example"})
    shown = capsys.readouterr().out
    assert re.search(r"^theta0 +\d", shown, re.MULTILINE)
    assert re.search(r"^t +\d", shown, re.MULTILINE)
