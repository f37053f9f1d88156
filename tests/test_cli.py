"""The command: the demo as a newcomer runs it, and errors in one line."""

import importlib.util
import re

import pytest
from typer.testing import CliRunner

from wherefrom.cli import _SECTIONS, app
from wherefrom.report import demo
from wherefrom.training.native import is_compiled

pytestmark = pytest.mark.slow


@pytest.fixture
def quick_demo(tmp_path):
    """The demo with fewer networks and epochs."""
    command = ["demo", "--quick", "--quiet", "--out", str(tmp_path / "cars")]
    return lambda *options: CliRunner().invoke(app, [*command, *options])


def test_demo_tells_its_story(quick_demo, tmp_path):
    result = quick_demo()
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "392 cars of 1970 to 1982" in text
    assert "Of the 58 cars of 1981 and 1982, only 3 are in training." in text
    assert re.search(r"The model: 20 networks\. For 74 held-out cars .* the truth for \d+ of them; 70 ± 2", text)
    assert re.search(r"cause a doubt of ± [\d.]+ mpg; for usual cars it is ± [\d.]+", text)
    assert re.search(r"marked as unusual: displacement \d{4} \(training 68 to 455\)", text)
    combinations = result.output.partition("treated as uncertain")[2]
    for words in ("nothing", "initial weights", "choice of training rows", "all of them"):
        assert re.search(rf"^{words}\b.*  \d+%$", combinations, re.MULTILINE)
    folder = tmp_path / "cars"
    assert (folder / "cars.png").stat().st_size > 20_000
    assert "</html>" in (folder / "report.html").read_text(encoding="utf-8")
    for name, cars in (("train.csv", 257), ("new.csv", 135)):
        lines = (folder / name).read_text().splitlines()
        assert lines[0] == "car,cylinders,displacement,horsepower,weight,acceleration,year,origin,mpg"
        assert len(lines) == 1 + cars
    assert sum(line.split(",")[6] == "" for line in lines) == 3  # years of new cars
    assert "wherefrom fit" in text


def test_causes_of_the_demo_are_those_that_were_put_in(tmp_path):
    """Columns of its table: usual, hardly seen, with gaps, wrong unit; shares of each add up to 100%."""
    done = CliRunner().invoke(app, ["demo", "--quick", "--quiet", "--out", str(tmp_path)])
    printed = done.output[done.output.index("2. ") : done.output.index("3. ")]
    lines = re.findall(r"^(\w[\w ,()]+?)\s{2,}([\d.%]+(?:\s+[\d.%]+){3})$", printed, re.MULTILINE)
    table = {name: [float(cell.rstrip("%")) for cell in cells.split()] for name, cells in lines}
    assert table["number of cars"] == [74, 55, 5, 1]
    gaps, outside = table["values missing in the row"], table["row unlike those of training"]
    assert gaps[2] > 10
    assert gaps[0] == gaps[1] == gaps[3] == 0
    assert outside[3] > 90
    assert max(outside[:3]) < 1
    doubt = table["doubt (standard deviation), mpg"]
    assert doubt[0] < doubt[1] < doubt[3]
    for shares in zip(*(table[words] for words in demo.WORDS.values() if words in table), strict=True):
        assert sum(shares) == pytest.approx(100, abs=3)  # seven numbers, each rounded to a percent


def test_the_demo_splits_the_cars_as_it_says():
    cars = demo.Cars.drawn(0)
    for row, names in enumerate(demo.HIDDEN):
        assert [name for name, values in cars.new.items() if values[row] is None] == sorted(
            names, key=list(cars.new).index
        )
    assert not set(cars.train["car"]) & set(cars.new["car"])
    assert (cars.train["year"] >= demo.LATE).sum() == demo.LATE_TO_TRAIN_ON
    (row,) = (cars.kind == demo.OTHER_UNIT).nonzero()[0]
    assert cars.new["displacement"][row] == pytest.approx(16.387 * cars.complete["displacement"][row], abs=0.5)


@pytest.mark.parametrize(("is_watched", "display", "opened"), [(True, ":0", 1), (True, "", 0), (False, ":0", 0)])
def test_the_report_is_opened_where_somebody_can_see_it(monkeypatch, is_watched, display, opened):
    monkeypatch.setattr(demo.sys, "platform", "linux")
    monkeypatch.setattr(demo.sys, "stdout", type("Watched", (), {"isatty": lambda self: is_watched})())
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert demo.has_display() is bool(opened)


def test_the_same_seed_tells_the_same_story(quick_demo):
    first, second, other = (quick_demo("--seed", seed).output for seed in ("1", "1", "2"))
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
    result = quick_demo()
    assert result.exit_code == 0
    assert "pip install 'wherefrom[plot]'" in " ".join(result.output.split())


def test_kernels_are_compiled_ahead():
    done = CliRunner().invoke(app, ["compile"])
    assert done.exit_code == 0, done.output
    assert "kernels ready" in done.output
    assert is_compiled()


def test_without_a_compiler_there_is_nothing_to_compile(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "numba" else find(name, *rest))
    done = CliRunner().invoke(app, ["compile"])
    assert done.exit_code == 2
    assert "pip install 'wherefrom[fast]'" in done.output


def test_help_lists_each_option_of_fit_once_under_its_heading():
    lines = CliRunner().invoke(app, ["fit", "--help"]).output.splitlines()
    heading, listed = "", {}
    for line in lines:
        if re.match(r"\S.*:$", line):
            heading = line[:-1]
        if found := re.match(r"  --([a-z-]+)", line):
            name = found[1].replace("-", "_")
            assert name not in listed
            listed[name] = heading
    assert {name: heading for heading, names in _SECTIONS.items() for name in names}.items() <= listed.items()
    assert {name for name, heading in listed.items() if heading == "Options"} == {
        *("target", "out", "predict", "quiet", "json", "help"),
    }
