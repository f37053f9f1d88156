"""The commands on a user's own table, as a newcomer runs them: two commands to predictions, and errors in one line."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from made_table import made, without, write
from wherefrom.cli import app
from wherefrom.tables.model import Model
from wherefrom.tables.outside import weight
from wherefrom.tables.reading import read

pytestmark = pytest.mark.slow

QUICK = ["--draws", "3", "--epochs", "8", "--samples", "8"]


def wherefrom(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of quantities, one of classes, and new rows for both."""
    folder = tmp_path_factory.mktemp("commands")
    write(folder / "train.csv", made(300))
    write(folder / "new.csv", made(40, 1))
    write(folder / "kinds.csv", made(300, classes=True))
    for name, target in (("train", "y"), ("kinds", "kind")):
        done = wherefrom("fit", folder / f"{name}.csv", "--target", target, "--out", folder / name, *QUICK)
        assert done.exit_code == 0, done.output
    return folder


def test_two_commands_from_a_table_to_predictions(place, tmp_path):
    said = wherefrom("fit", place / "train.csv", "--target", "y", "--out", tmp_path / "run", *QUICK)
    assert said.exit_code == 0, said.output
    assert "coverage of the 95% interval" in said.output
    assert f"Next: wherefrom predict {tmp_path / 'run'} new.csv" in said.output
    out = tmp_path / "predictions.csv"
    said = wherefrom("predict", tmp_path / "run", place / "new.csv", "--out", out, "--digits", "10")
    assert said.exit_code == 0, said.output
    assert "40 rows predicted into" in said.output
    assert "RMSE" in said.output  # y is there
    found = rows_of(out)
    assert len(found) == 40
    assert list(found[0]) == [
        *("id", "mean", "median", "std", "lower", "upper"),
        *("share_initial_weights", "share_rows", "share_gaps", "share_together"),
        *("share_unexplained", "share_outside"),  # without share_stopping, since t did not help
        *("measure_next", "expected_fall", "outside", "distance", "why"),
    ]
    for row in found:
        assert float(row["lower"]) < float(row["mean"]) < float(row["upper"])
        assert sum(float(row[name]) for name in row if name.startswith("share_")) == pytest.approx(1, abs=1e-6)
        assert row["outside"] in ("true", "false")


def test_one_command_from_a_table_to_predictions(place, tmp_path):
    new = tmp_path / "new.more.csv"
    new.write_bytes((place / "new.csv").read_bytes())
    how = ["fit", place / "train.csv", "--target", "y", "--out", tmp_path / "run", *QUICK, "--predict"]
    said = wherefrom(*how, new)
    assert said.exit_code == 0, said.output
    assert f"40 rows predicted into {tmp_path / 'new_predictions.csv'}" in said.output
    wherefrom("predict", tmp_path / "run", new, "--out", tmp_path / "again.csv")
    assert (tmp_path / "new_predictions.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    for words, wrong in ((["nowhere.csv"], "nowhere.csv is not a file"), ([new, "--json"], "--json prints one")):
        said = wherefrom(*how, *words, "--overwrite")
        assert said.exit_code == 2
        assert said.output.startswith(f"wherefrom: {wrong}")


def test_the_engine_is_the_one_that_is_named(place, tmp_path):
    for engine in ("torch", "native"):
        out = tmp_path / engine
        said = wherefrom("fit", place / "train.csv", "--target", "y", "--out", out, "--engine", engine, *QUICK)
        assert said.exit_code == 0, said.output
        assert Model.load(out).posterior.engines == (engine,)


def test_predictions_are_the_posteriors_own(place, tmp_path):
    wherefrom(
        *("predict", place / "train", place / "new.csv", "--out", tmp_path / "p.csv", "--keep", "shop"),
        *("--level", "0.8", "--digits", "10"),
    )
    found = rows_of(tmp_path / "p.csv")
    assert [row["shop"] for row in found] == made(40, 1)["shop"]
    assert [row["id"] for row in found] == [str(k) for k in range(40)]
    run = Model.load(place / "train")
    x = run.encoder.encode(read(place / "new.csv"))
    complete = np.flatnonzero(~x.has_gaps)
    distance, _ = run.around.look(x.take(complete))
    prediction = run.posterior.predict(x.take(complete), 8).blended(run.background.at(weight(distance)))
    low, high = prediction.interval(0.8)
    for name, own in (
        ("mean", prediction.mean),
        ("median", prediction.median),
        ("std", prediction.std),
        ("lower", low),
        ("upper", high),
    ):
        np.testing.assert_allclose([float(found[row][name]) for row in complete], own, rtol=1e-6)
    assert all(found[row]["measure_next"] == "" for row in complete)


def test_the_target_need_not_be_there_and_other_columns_are_named(place, tmp_path):
    cells = without(made(40, 1), "y", "id") | {"mood": ["fine"] * 40}
    path = write(tmp_path / "bare.csv", cells)
    said = wherefrom("predict", place / "train", path, "--out", tmp_path / "p.csv")
    assert said.exit_code == 0, said.output
    assert "does not know, and ignores: 'mood'" in said.output
    assert "RMSE" not in said.output
    wherefrom("predict", place / "train", place / "new.csv", "--out", tmp_path / "q.csv")
    assert rows_of(tmp_path / "p.csv") == [without(row, "id") for row in rows_of(tmp_path / "q.csv")]


def test_strange_rows_are_flagged(place, tmp_path):
    cells = without(made(40, 1), "y")
    cells["colour"][0], cells["x0"][1] = "ultraviolet", "1000"
    write(tmp_path / "strange.csv", cells)
    said = wherefrom("predict", place / "train", tmp_path / "strange.csv", "--out", tmp_path / "p.csv")
    assert "column 'colour' has levels that training never saw, in 1 row: 'ultraviolet'" in said.output
    found = rows_of(tmp_path / "p.csv")
    assert (found[0]["outside"], found[0]["why"]) == ("true", "colour=ultraviolet was never seen")
    assert float(found[0]["distance"]) == 1.5
    assert found[1]["outside"] == "true"
    assert re.fullmatch(r"x0 1000 \(training -[\d.]+ to [\d.]+\)", found[1]["why"])
    assert float(found[1]["share_outside"]) > 0.99
    assert {float(row["share_outside"]) for row in found[2:] if row["outside"] == "false"} == {0.0}
    widths = [float(row["upper"]) - float(row["lower"]) for row in found]
    assert widths[1] == max(widths)


def test_classes(place, tmp_path):
    command = ("predict", place / "kinds", place / "kinds.csv", "--out", tmp_path / "p.csv", "--digits", "10")
    said = wherefrom(*command)
    assert said.exit_code == 0, said.output
    assert "accuracy" in said.output
    looked = Model.load(place / "kinds").look(place / "kinds.csv")
    doubt = looked.read(lambda each: {"overlap": each.expected_entropy, "disagreement": each.mutual_information})
    overlap, disagreement = (np.asarray(doubt[name]) for name in ("overlap", "disagreement"))
    predicted = rows_of(tmp_path / "p.csv")
    for name, expected in (("disagreement", disagreement), ("share_overlap", overlap / (overlap + disagreement))):
        np.testing.assert_allclose([float(row[name]) for row in predicted], expected, rtol=1e-6)
    for row in predicted:
        probabilities = {name[2:]: float(row[name]) for name in row if name.startswith("p_")}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
        assert max(probabilities, key=lambda name: probabilities[name]) == row["predicted"]
        assert sum(float(row[name]) for name in row if name.startswith("share_")) == pytest.approx(1, abs=1e-6)
    said = wherefrom("sources", place / "kinds", place / "kinds.csv", "--rows", "3", "--keep", "shop")
    assert "overlap" in said.output
    assert "classes that overlap" in said.output
    assert said.output.count("shop ") >= 3


def test_standard_output_has_nothing_but_predictions(place):
    command = [sys.executable, "-m", "wherefrom", "predict", str(place / "train"), "-"]
    done = subprocess.run(command, input=(place / "new.csv").read_bytes(), capture_output=True, check=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 41
    assert lines[0].startswith("id,mean,median,std,lower,upper,")
    assert "40 rows predicted" in done.stderr.decode()


def test_parquet_in_and_out(place, tmp_path):
    polars = pytest.importorskip("polars")
    polars.read_csv(place / "new.csv", null_values=["NA", ""]).write_parquet(tmp_path / "new.parquet")
    for name in ("new.csv", "new.parquet"):
        source = place / name if name == "new.csv" else tmp_path / name
        said = wherefrom("predict", place / "train", source, "--out", tmp_path / f"from-{name}.parquet")
        assert said.exit_code == 0, said.output
    one, two = (polars.read_parquet(tmp_path / f"from-{name}.parquet") for name in ("new.csv", "new.parquet"))
    np.testing.assert_allclose(one["mean"].to_numpy(), two["mean"].to_numpy(), rtol=1e-6)
    assert one["outside"].dtype == polars.Boolean


def test_json_is_for_programs(place, tmp_path):
    fitted = wherefrom("fit", place / "train.csv", "--target", "y", "--out", tmp_path / "run", *QUICK, "--json")
    document = json.loads(fitted.stdout)
    assert document["task"] == "regression"
    assert document["members"] == 30  # three in each of ten folds
    assert set(document["dropped"]) == {"id", "customer"}
    assert document["scores"]["rows"] == document["rows"]["all"]
    predicted = json.loads(wherefrom("predict", place / "train", place / "new.csv", "--json", "--quiet").stdout)
    assert len(predicted["predictions"]) == predicted["rows"] == 40
    found = json.loads(wherefrom("sources", place / "train", place / "new.csv", "--json", "--quiet").stdout)
    assert sum(part["share"] for part in found["overall"].values()) == pytest.approx(1)
    of_model = [part["model_share"] for part in found["overall"].values() if part["model_share"] is not None]
    assert sum(of_model) == pytest.approx(1)
    assert found["overall"]["noise"]["model_share"] is None


def test_fit_and_report_say_what_to_do(place, tmp_path):
    fitted = wherefrom("fit", place / "train.csv", "--target", "y", "--out", tmp_path / "run", *QUICK)
    assert "What to do next:\n\n1. " in fitted.output
    assert "measure y" not in fitted.output.lower()
    reported = wherefrom("report", tmp_path / "run")
    assert "What to do next:\n\n1. " in reported.output
    document = json.loads(wherefrom("report", tmp_path / "run", "--json", "--quiet").stdout)
    assert 1 <= len(document["advice"]) <= 3
    assert [f"{number}. {item['lead']}. {item['say']}" for number, item in enumerate(document["advice"], 1)] == [
        line for line in reported.output.splitlines() if line[:2] in ("1.", "2.", "3.")
    ]
    assert set(document["importance"]["x0"]) == {"nll", "mae"}
    assert {"larger", "smaller", "ratio", "error", "predicted"} == set(next(iter(document["unexplained"].values())))


def test_quiet_says_nothing(place, tmp_path):
    said = wherefrom("predict", place / "train", place / "new.csv", "--out", tmp_path / "p.csv", "--quiet")
    assert said.output == ""
    said = wherefrom("fit", place / "train.csv", "--target", "y", "--out", tmp_path / "run", *QUICK, "--quiet")
    assert said.output == ""


def test_sources_say_whose_doubt_it_is(place, tmp_path):
    said = wherefrom("sources", place / "train", place / "new.csv", "--rows", "3", "--out", tmp_path / "s.csv")
    assert said.exit_code == 0, said.output
    assert "theta0+order" in said.output
    assert "not explained by your columns" in said.output
    assert "the model's own doubt" in said.output
    assert "The 3 rows with the largest doubt" in said.output
    assert len(rows_of(tmp_path / "s.csv")) == 40


@pytest.mark.parametrize("name", ["train", "kinds"])
def test_report_is_a_page(place, name, tmp_path):
    said = wherefrom("report", place / name)
    assert said.exit_code == 0, said.output
    page = (place / name / "report.html").read_text()
    assert "<html" in page
    said = wherefrom("report", place / name, place / f"{name}.csv", "--out", tmp_path / "other.html")
    assert said.exit_code == 0, said.output
    assert (tmp_path / "other.html").exists()


def test_a_report_needs_rows(place, tmp_path):
    run = tmp_path / "run"
    wherefrom("fit", place / "train.csv", "--target", "y", "--out", run, *QUICK, "--no-data")
    said = wherefrom("report", run)
    assert said.exit_code == 2
    assert "was made with --no-data: name a file" in said.output
    assert wherefrom("report", run, place / "new.csv").exit_code == 0


def broken(tmp_path, **changes):
    cells = made(60)
    for name, (row, value) in changes.items():
        cells[name][row] = value
    return write(tmp_path / "broken.csv", cells)


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({"age": (4, "old")}, (), "broken.csv, column 'age', row 6: 'old' is no number; correct it, or use --missing"),
        ({"y": (9, "high")}, (), "broken.csv, column 'y', row 11: 'high' is no number"),
        ({"x1": (0, "inf")}, (), "column 'x1', row 2: infinite"),
        ({}, ("--target", "z"), "has no column 'z'"),
        ({}, ("--over", "theta0"), "--over does not know 'theta0'"),
        ({}, ("--recipe", "magic"), "there is no recipe 'magic'"),
        ({}, ("--noise", "loud"), "--noise is auto, fit, predicted, none"),
        ({}, ("--budget", "soon"), "--budget is a time"),
        ({}, ("--epochs", "many"), "--epochs is auto, or a number"),
        ({}, ("--hidden", "wide"), "--hidden is the units of each layer"),
        ({}, ("--least", "low"), "--least is auto, none, or a number, not 'low'"),
        ({}, ("--lr", "0"), "--lr is a positive number"),
        ({}, ("--dropout", "1"), "--dropout is a share of units"),
        ({}, ("--calibrate", "temperature"), "--calibrate temperature is not for quantities"),
        ({}, ("--text", "nothing"), "has no column 'nothing'"),
        ({}, ("--speed", "1"), "No such option: --speed"),
        ({}, ("--workers", "0"), "workers must be at least 1"),
        ({}, ("--engine", "jax"), "engine must be one of 'auto', 'fastest', 'torch', 'native'"),
        ({}, ("--device", "moon"), "the device 'moon' is not there"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(tmp_path, changes, words, message):
    command = ["fit", broken(tmp_path, **changes), "--target", "y", "--out", tmp_path / "run", *words]
    said = wherefrom(*command)
    assert said.exit_code == 2
    assert said.stderr.count("\n") == 1
    assert said.stderr.startswith("wherefrom: ")
    assert message in said.stderr
    assert not (tmp_path / "run").exists()


def test_sources_are_shown_however_quiet(place):
    said = wherefrom("sources", place / "train", place / "new.csv", "--rows", "2", "--quiet")
    assert "not explained by your columns" in said.stdout
    found = json.loads(wherefrom("sources", place / "train", place / "new.csv", "--rows", "2", "--json").stdout)
    for row in found["rows"]:
        assert isinstance(row["mean"], float)
        assert 0 <= row["share_unexplained"] <= 1
        assert isinstance(row["why"], str)


def test_notes_are_in_the_document_too(place, tmp_path):
    path = write(tmp_path / "more.csv", made(20, 1) | {"mood": ["fine"] * 20})
    found = json.loads(wherefrom("predict", place / "train", path, "--out", tmp_path / "p.csv", "--json").stdout)
    assert any("'mood'" in note for note in found["notes"])
    assert any("20 rows can tell little" in note for note in found["notes"])


def test_dates_may_be_written_in_another_way_that_cannot_be_mistaken(tmp_path):
    cells = made(120)
    cells["day"] = [f"{day[8:]}.{day[5:7]}.{day[:4]}" for day in cells["day"]]
    fitted = wherefrom("fit", write(tmp_path / "t.csv", cells), "--target", "y", "--out", tmp_path / "run", *QUICK)
    assert fitted.exit_code == 0, fitted.output
    new, iso = made(10, 1), made(10, 1)
    new["day"] = [f"{day[8:]}.{day[5:7]}.{day[:4]}" for day in new["day"]]
    for name, rows in (("new", new), ("iso", iso)):
        said = wherefrom(
            "predict", tmp_path / "run", write(tmp_path / f"{name}.csv", rows), "--out", tmp_path / f"p-{name}.csv"
        )
        assert said.exit_code == 0, said.output
    assert rows_of(tmp_path / "p-new.csv") == rows_of(tmp_path / "p-iso.csv")


def test_a_large_report_says_how_many_rows_it_is_of(place, tmp_path, monkeypatch):
    from wherefrom.tables import reporting

    monkeypatch.setattr(reporting, "_REPORT_NUMBERS", 0)  # then it is 200 rows
    write(tmp_path / "many.csv", made(250, 3))
    said = wherefrom("report", place / "train", tmp_path / "many.csv", "--out", tmp_path / "r.html")
    assert "Of 250 rows, 200 at random are scored here" in said.output
    assert "Of 250 rows, 200 at random are scored here" in (tmp_path / "r.html").read_text()


def test_labels_may_hold_a_bar(tmp_path):
    cells = made(300, classes=True)
    cells["kind"] = [{"low": "a|b"}.get(kind, kind) for kind in cells["kind"]]
    table = write(tmp_path / "bars.csv", cells)
    command = (
        "fit",
        table,
        "--target",
        "kind",
        "--out",
        tmp_path / "run",
        "--calibrate",
        "conformal",
        "--json",
        *QUICK,
    )
    found = json.loads(wherefrom(*command).stdout)["scores"]
    assert found["coverage of the 95% set"] > 0.8


def test_errors_of_prediction(place, tmp_path):
    other_dates = write(tmp_path / "dates.csv", made(1, 1) | {"day": ["31/12/2020"]})
    elsewhere = tmp_path / "p.json"
    cells = made(1, 1)
    other_name = write(tmp_path / "name.csv", without(cells, "age") | {"Age": cells["age"]})
    for command, message in (
        (("predict", tmp_path / "none", place / "new.csv"), "does not exist: make one, as wherefrom fit"),
        (("predict", place / "train", tmp_path / "none.csv"), "there is no file"),
        (("predict", place / "train"), "Missing argument"),
        (("predict", place / "train", place / "new.csv", "--out", tmp_path / "a" / "b.csv"), "there is no folder"),
        (("predict", place / "train", place / "new.csv", "--level", "95"), "--level lies between 0 and 1"),
        (("predict", place / "train", place / "new.csv", "--keep", "nam"), "has no column 'nam'"),
        (("fit", place / "train.csv", "--target", "y", "--out", place / "train"), "holds a run already"),
        (("predict", place / "train", other_dates), "row 2: '31/12/2020' is no date written as 2026-01-31"),
        (
            ("predict", place / "train", place / "new.csv", "--out", elsewhere),
            "its ending says neither CSV nor Parquet",
        ),
        (("predict", place / "train", other_name), "lacks the column 'age', which the run was trained with: is 'Age'"),
    ):
        said = wherefrom(*command)
        assert said.exit_code == 2, command
        assert said.stderr.splitlines()[-1].startswith("wherefrom: ")
        assert message in said.stderr
    path = write(tmp_path / "less.csv", without(made(10), "age", "y"))
    assert "less.csv lacks the column 'age'" in wherefrom("predict", place / "train", path).stderr


def test_what_is_ours_keeps_its_traceback(monkeypatch, place):
    from wherefrom.tables import streaming

    def bug(*_, **__):
        raise KeyError("ours")

    monkeypatch.setattr(streaming, "look", bug)
    said = wherefrom("predict", place / "train", place / "new.csv")
    assert said.exit_code == 1
    assert isinstance(said.exception, KeyError)


def test_words_for_missing_are_remembered(tmp_path):
    cells = made(120)
    cells["age"] = ["unknown" if k % 9 == 0 else cell for k, cell in enumerate(cells["age"])]
    path = write(tmp_path / "train.csv", cells)
    said = wherefrom("fit", path, "--target", "y", "--out", tmp_path / "run", *QUICK, "--missing", "unknown")
    assert said.exit_code == 0, said.output
    assert wherefrom("predict", tmp_path / "run", path, "--out", tmp_path / "p.csv").exit_code == 0


def with_decimal_commas(path, rows, seed=0):
    cells = without(made(rows, seed), "id", "customer", "colour")
    lines = [";".join(cells), *(";".join(row).replace(".", ",") for row in zip(*cells.values(), strict=True))]
    path.write_text("\n".join(lines))
    return path


def test_the_decimal_sign_is_remembered(tmp_path):
    path = with_decimal_commas(tmp_path / "train.csv", 120)
    said = wherefrom("fit", path, "--target", "y", "--out", tmp_path / "run", *QUICK)
    assert said.exit_code == 0, said.output
    assert "has a decimal comma" in said.output
    assert Model.load(tmp_path / "run").about["decimal"] == ","
    new = with_decimal_commas(tmp_path / "new.csv", 1, 1)
    head, row = new.read_text().splitlines()
    cells = dict(zip(head.split(";"), row.split(";"), strict=True)) | {"x0": "1,234", "x1": "2"}
    new.write_text(f"{head}\n{';'.join(cells[name] for name in head.split(';'))}")  # "1,234" is not in doubt here
    said = wherefrom("predict", tmp_path / "run", new, "--out", tmp_path / "p.csv")
    assert said.exit_code == 0, said.output


def test_no_cell_is_a_formula(place, tmp_path):
    """Text of the table that a spreadsheet would run, in a kept column and in its name."""
    cells = made(40, 1)
    cells["=1+1"] = ["=cmd()", "+x", "@SUM(A1)", "-5", "-5x", "plain"] + [""] * 34
    write(tmp_path / "new.csv", cells)
    said = wherefrom("predict", place / "train", tmp_path / "new.csv", "--keep", "=1+1", "--out", tmp_path / "out.csv")
    assert said.exit_code == 0, said.output
    written = [row["'=1+1"] for row in rows_of(tmp_path / "out.csv")]
    assert written[:6] == ["'=cmd()", "'+x", "'@SUM(A1)", "-5", "'-5x", "plain"]


@pytest.mark.parametrize("name", ["mean", "outside", "distance", "why"])
def test_a_kept_column_is_never_overwritten(place, tmp_path, name):
    path = write(tmp_path / "new.csv", made(5, 1) | {name: ["mine"] * 5})
    said = wherefrom("predict", place / "train", path, "--keep", name, "--out", tmp_path / "p.csv")
    assert said.exit_code == 2
    assert f"--keep {name}: predictions have a column of that name" in said.stderr


def test_a_stray_word_in_the_target_does_not_stop_a_prediction(place, tmp_path):
    cells = made(10, 1)
    cells["y"][3] = "later"
    said = wherefrom("predict", place / "train", write(tmp_path / "new.csv", cells), "--out", tmp_path / "p.csv")
    assert said.exit_code == 0, said.output
    assert "not scored" in said.output
    assert "'later' is no number" in said.output
    assert "RMSE" not in said.output
    assert len(rows_of(tmp_path / "p.csv")) == 10


def test_prediction_advises_what_it_can_do(place, tmp_path):
    cells = made(10, 1)
    cells["x0"][3] = "later"
    path = write(tmp_path / "new.csv", cells)
    said = wherefrom("predict", place / "train", path)
    assert said.exit_code == 2
    assert said.stderr.strip().endswith("correct it, or use --missing later if it means missing")
    for command in ("predict", "sources"):
        said = wherefrom(command, place / "train", place / "new.csv", "--samples", "0")
        assert said.exit_code == 2
        assert "--samples is at least 4, not 0" in said.stderr


def test_conformal_sets_are_written(place, tmp_path):
    command = ("fit", place / "kinds.csv", "--target", "kind", "--out", tmp_path / "run", "--calibrate", "conformal")
    said = wherefrom(*command, *QUICK, "--level", "0.9")
    assert said.exit_code == 0, said.output
    assert "coverage of the 90% set" in said.output
    said = wherefrom("predict", tmp_path / "run", place / "kinds.csv", "--out", tmp_path / "p.csv")
    assert all(set(row["set"].split("|")) <= {"low", "mid", "high", ""} for row in rows_of(tmp_path / "p.csv"))


def test_answers_have_four_digits_unless_more_are_asked_for(place, tmp_path):
    exact = Model.load(place / "train").look(place / "new.csv").columns()["mean"]
    for digits in (None, 2, 9):
        more = () if digits is None else ("--digits", digits)
        wherefrom("predict", place / "train", place / "new.csv", "--out", tmp_path / "p.csv", *more)
        cells = [row["mean"] for row in rows_of(tmp_path / "p.csv")]
        assert max(len(cell.replace(".", "").replace("-", "").lstrip("0")) for cell in cells) == (digits or 4)
        np.testing.assert_allclose([float(cell) for cell in cells], exact, rtol=0.6 * 10 ** (1 - (digits or 4)))
    said = wherefrom("predict", place / "train", place / "new.csv", "--digits", "0")
    assert said.exit_code == 2
    assert "--digits is a number of significant digits, from 1 to 17, not 0" in said.stderr


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """A run of an outcome that one row in ten has, and its table."""
    folder = tmp_path_factory.mktemp("rare")
    cells = made(500)
    y = np.array(cells.pop("y"), dtype=float)
    cells["ill"] = np.where(y > np.quantile(y, 0.9), "yes", "no").tolist()
    path = write(folder / "ill.csv", cells)
    said = wherefrom("fit", path, "--target", "ill", "--out", folder / "run", *QUICK)
    assert said.exit_code == 0, said.output
    return folder, path, said.output


def test_a_rare_outcome_is_scored_by_what_acting_on_it_would_do(rare, tmp_path):
    metrics = pytest.importorskip("sklearn.metrics")
    folder, path, said = rare
    assert "The event is 'yes', the rarer class" in said
    assert "average precision" in said
    out = tmp_path / "p.csv"
    found = json.loads(wherefrom("predict", folder / "run", path, "--out", out, "--json", "--digits", "12").stdout)
    rows = rows_of(out)
    risk = np.array([float(row["p_yes"]) for row in rows])
    is_ill = np.array(made_cells(path)["ill"]) == "yes"
    expected = metrics.average_precision_score(is_ill, risk)
    assert found["scores"]["average precision"] == pytest.approx(expected, rel=1e-6)
    assert found["baselines"]["average precision"] == found["scores"]["prevalence"] == pytest.approx(0.1)
    event = found["event"]
    assert event["label"] == "yes"
    at = next(each for each in event["alerts"] if each["threshold"] == 0.1)
    alerted = risk >= 0.1
    assert at["sensitivity"] == pytest.approx((alerted & is_ill).sum() / is_ill.sum())
    assert at["precision"] == pytest.approx((alerted & is_ill).sum() / alerted.sum())
    assert len(event["curve"]) == 50


def made_cells(path):
    rows = rows_of(path)
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_rows_are_listed_by_their_risk_or_by_the_doubt_that_choices_cause(rare, tmp_path):
    folder, path, _ = rare
    said = wherefrom("predict", folder / "run", path, "--out", tmp_path / "p.csv")
    rows = rows_of(tmp_path / "p.csv")
    assert "The 10 rows at the highest risk of 'yes':" in said.output
    listed = said.output.split("highest risk")[1].split("\n\n")[1].splitlines()[1:]
    highest = sorted(range(len(rows)), key=lambda row: -float(rows[row]["p_yes"]))[:10]
    assert {int(line.split()[0]) for line in listed} == {row + 2 for row in highest}
    found = json.loads(wherefrom("sources", folder / "run", path, "--rows", "20", "--json").stdout)
    told = [row["disagreement"] for row in found["rows"]]
    assert told == sorted(told, reverse=True)
    assert max(told) == pytest.approx(max(float(row["disagreement"]) for row in rows), rel=1e-3)


def test_the_event_of_the_run_is_that_of_every_prediction(rare, tmp_path):
    """Also of a file in which it is the more frequent class."""
    folder, path, _ = rare
    cells = made_cells(path)
    kept = [row for row, label in enumerate(cells["ill"]) if label == "yes"] + [0, 1, 2]
    some = write(tmp_path / "ill.csv", {name: [values[row] for row in kept] for name, values in cells.items()})
    found = json.loads(wherefrom("predict", folder / "run", some, "--out", tmp_path / "p.csv", "--json").stdout)
    assert found["event"]["label"] == "yes"
    assert found["event"]["prevalence"] > 0.5


def test_the_page_of_a_rare_outcome_has_a_decision_curve(rare):
    folder, _, _ = rare
    said = wherefrom("report", folder / "run")
    assert said.exit_code == 0, said.output
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "Is it worth acting on?" in page
    assert "The rows at the highest risk of yes" in page
