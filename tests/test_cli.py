"""The command: the demo as a newcomer runs it, and errors in one line."""

import re

import pytest
from typer.testing import CliRunner

from wherefrom.cli import app
from wherefrom.report import demo

pytestmark = pytest.mark.slow


@pytest.fixture
def quick_demo(monkeypatch, tmp_path):
    """The demo with fewer epochs."""
    whole = demo.run
    monkeypatch.setattr(demo, "run", lambda out, seed, progress: whole(out, seed, progress, epochs=20))
    return lambda *options: CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "pictures"), *options])


def test_demo_tells_its_story(quick_demo, tmp_path):
    result = quick_demo("--quiet")
    assert result.exit_code == 0, result.output
    text = result.output
    assert "442 people" in text
    subsets = re.findall(r"^(nothing|theta0|t|F|theta0, t|theta0, F|t, F|theta0, t, F)\b.* \d+%$", text, re.MULTILINE)
    assert len(subsets) == 8
    shares = re.findall(r"^  [█▓▒░·]\s+(\S.*?)\s{2,}([\d.]+)%\s+±", text, re.MULTILINE)
    assert [name for name, _ in shares] == ["theta0+order", "t", "F", "t x F", "noise"]
    assert sum(float(share) for _, share in shares) == pytest.approx(100, abs=0.5)
    assert "five people most in doubt" in text
    assert (tmp_path / "pictures" / "diabetes.png").stat().st_size > 20_000
    assert "report.html" in text.replace("\n", "")  # a long path is wrapped
    page = (tmp_path / "pictures" / "report.html").read_text(encoding="utf-8")
    assert "<title>Diabetes: how far the disease goes within a year</title>" in page
    for name, people in (("train.csv", 342), ("new.csv", 100)):
        table = (tmp_path / "pictures" / name).read_text().splitlines()
        assert table[0] == "person,age,sex,bmi,bp,s1,s2,s3,s4,s5,s6,progression"
        assert len(table) == 1 + people
    assert "wherefrom fit" in text


def test_bars_add_up_and_show_small_shares():
    cells = demo.bar_cells({"a": 0.9, "b": 0.007, "c": 0.0001, "d": 0.0929})
    assert sum(cells.values()) == 60
    assert cells["b"] == 1
    assert cells["c"] == 0


def test_the_same_seed_tells_the_same_story(quick_demo):
    first, second, other = (
        re.sub(r"in [\d.]+ s", "", quick_demo("--quiet", "--seed", seed).output) for seed in ("1", "1", "2")
    )
    assert first == second
    assert first != other


def test_errors_are_one_line(monkeypatch):
    def broken(*_, **__):
        raise ValueError("column 'age' is not a number")

    monkeypatch.setattr(demo, "run", broken)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 2
    assert result.output == "wherefrom: column 'age' is not a number\n"


def test_missing_matplotlib_is_said_in_words(monkeypatch, quick_demo):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    result = quick_demo("--quiet")
    assert result.exit_code == 0
    assert "pip install 'wherefrom[plot]'" in " ".join(result.output.split())
