"""Rows that are moved out are flagged and answered as by one who does not know: on made tables, and on real ones."""

import numpy as np
import pytest
from typer.testing import CliRunner

import wherefrom as wf
from conftest import data_root
from far_rows import RANGES, inputs, left_out, moved, real_tables
from wherefrom.cli import app
from wherefrom.report import page
from wherefrom.tables.columns import TableEncoder
from wherefrom.tables.outside import Surroundings
from wherefrom.tables.raw import RawTable

ROOT = data_root()  # now: the tests themselves forget WHEREFROM_DATA
NEEDED = {1: 0.9, 3: 0.99, 10: 1.0, 100: 1.0}  # share of the rows moved out by so many ranges that must be flagged
MOST_ALARMS = 0.02
QUICK = {"draws": 2, "epochs": 4, "samples": 8, "hidden": 16}
ROUNDING = 1e-6

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.fixture
def root():
    if ROOT is None or not (ROOT / "tables").is_dir():
        pytest.skip("the tables are not here: set WHEREFROM_DATA to a folder that holds uci/ and tables/")
    return ROOT


def wards(rows=300, seed=0):
    """A stay in hospital by ward, age, haemoglobin, a long-tailed laboratory value, and the date of admission."""
    random = np.random.default_rng(seed)
    ward = random.choice(["A", "B", "C"], size=rows)
    age, haemoglobin = random.uniform(18, 95, size=rows), random.normal(13, 1.8, size=rows).round(1)
    lab, day = random.lognormal(1, 1, size=rows), random.integers(0, 900, size=rows)
    mean = np.exp(0.01 * age - 0.1 * (haemoglobin - 13) + 0.4 * (ward == "C") + 0.05 * np.log(lab))
    return {
        "ward": ward,
        "age": age,
        "haemoglobin": haemoglobin,
        "lab": lab,
        "admitted": np.datetime64("2020-01-01") + day.astype("timedelta64[D]"),
        "stay": random.gamma(3, mean / 3),
        "visits": random.poisson(mean).astype(float),
        "outcome": np.where(random.random(rows) < 0.15 * mean, "bad", "good"),
    }


TASKS = {"stay": ("visits", "outcome"), "visits": ("stay", "outcome"), "outcome": ("stay", "visits")}


@pytest.fixture(scope="module", params=TASKS)
def model(request):
    task = "counts" if request.param == "visits" else None
    return wf.fit(wards(), request.param, drop=TASKS[request.param], task=task, **QUICK)


def table_of(model, cells=None) -> RawTable:
    cells = wards(8, 1) if cells is None else cells
    return model.as_table({name: cells[name] for name in cells if name in model.encoder.names})


def check(model, table, rows, target_range=None):
    """Flags, widths and means of rows that are moved out, from the end of the range on."""
    far = moved(table, model.encoder, rows)
    looked = model.look(far.table)
    answers = {name: values.reshape(far.shape) for name, values in looked.predicted.answers.items()}
    flagged = looked.outside.reshape(far.shape).mean(axis=(0, 1, 3))
    for step, ranges in enumerate(RANGES):
        assert ranges == 0 or flagged[step] >= NEEDED[ranges], ranges
    assert np.isfinite(looked.distance).all()
    assert sum(answers[f"share {name}"] for name in looked.sources) == pytest.approx(1)
    if "entropy" in answers:
        assert (np.diff(answers["entropy"], axis=2) > -ROUNDING).all()
        return answers
    size = answers["std"].mean()
    for values in (answers["upper"], -answers["lower"], answers["std"]):
        assert (np.diff(values, axis=2) > -ROUNDING * size).all()
    outside = answers["lower"][:, :, 1:], answers["upper"][:, :, 1:]
    assert (outside[0] < outside[1]).all()
    if target_range is not None:
        assert (answers["mean"][:, :, 2:] >= target_range[0]).all()
        assert (answers["mean"][:, :, 2:] <= target_range[1]).all()
    return answers


def test_made_rows_that_are_moved_out(model):
    training, target = wards(), model.target.name
    ends = None if target == "outcome" else (training[target].min(), training[target].max())
    answers = check(model, table_of(model), np.arange(8), ends)
    assert (answers["share outside"][:, :, 2:] > 0.9).all()
    far = {name: values[:, :, -1] for name, values in answers.items()}
    if target == "outcome":
        # As sure as the shares of the classes are, and no surer than networks that doubt more.
        share = (training["outcome"] == "good").mean()
        assert (far["p good"] > 0.49).all()
        assert (far["p good"] < share + 0.03).all()
    else:
        assert far["mean"] == pytest.approx(training[target].mean(), rel=0.1)
        assert (far["std"] > 0.95 * training[target].std()).all()


def test_what_is_wrong_with_a_row_is_said(model):
    training, cells = wards(), wards(4, 1)
    cells["haemoglobin"] = np.array([126.0, 13.0, 13.0, 13.0])
    cells["admitted"][1] = np.datetime64("2200-01-01")
    cells["ward"] = np.array(["A", "A", "X", "B"])
    found = model.predict({name: cells[name] for name in model.encoder.names})
    low, high = training["haemoglobin"].min(), training["haemoglobin"].max()
    assert found["why"][0].startswith("haemoglobin 126 (training ")
    ends = [float(word) for word in found["why"][0].removesuffix(")").split("training ")[1].split(" to ")]
    assert ends == pytest.approx([low, high], rel=1e-3)  # all rows train
    assert found["why"][1].startswith("admitted 2200-01-01 (training 2020-01-")
    assert found["why"][2] == "ward=X was never seen"
    assert found["why"][3] == ""
    assert found["outside"].tolist() == [True, True, True, False]
    assert np.isfinite(found["distance"]).all()
    assert found["share_outside"][0] > 0.99
    assert found["share_outside"][3] == 0


def test_networks_see_no_number_beyond_training(model):
    table = table_of(model)
    far = moved(table, model.encoder, np.arange(3), (0, 7))
    values = model.encoder.encode(far.table).values.reshape(*far.shape, -1)
    np.testing.assert_array_equal(values[:, :, 0], values[:, :, 1])


def test_a_reloaded_model_answers_the_same(model, tmp_path):
    model.save(tmp_path / "run")
    far = moved(table_of(model), model.encoder, np.arange(3))
    before, after = model.look(far.table), wf.load(tmp_path / "run").look(far.table)
    np.testing.assert_array_equal(before.distance, after.distance)
    assert list(before.why) == list(after.why)
    for name, values in before.predicted.answers.items():
        np.testing.assert_array_equal(values, after.predicted.answers[name])


def test_sources_over_all_rows_have_a_line_for_it(model):
    far = moved(table_of(model), model.encoder, np.arange(3), (0, 100))
    overall = model.look(far.table).overall()
    assert sum(part.share for part in overall.values()) == pytest.approx(1)
    assert overall["outside"].share > 0.3
    rows = model.sources({name: wards(50)[name] for name in model.encoder.names}, samples=8)
    assert "outside" in str(rows)


def test_the_command_line_says_so(model, tmp_path):
    model.save(tmp_path / "run")
    cells = wards(3, 1)
    cells["haemoglobin"][0] = 126
    names = model.encoder.names
    lines = [",".join(names), *(",".join(str(cells[name][row]) for name in names) for row in range(3))]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    said = CliRunner().invoke(app, ["sources", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--rows", "3"])
    assert said.exit_code == 0, said.output
    assert "row unlike those of training" in said.output
    assert "haemoglobin 126 (training " in said.output


def test_a_report_on_rows_outside_mixes_them_as_predictions_do(model, monkeypatch, tmp_path):
    documents = []
    monkeypatch.setattr(page, "write", lambda path, document: documents.append(document) or path)
    cells = wards(60, 2)
    cells["haemoglobin"][:5] = 126
    rows = {name: cells[name] for name in (*model.encoder.names, model.target.name)}
    model.report(tmp_path / "report.html", rows)
    overall = {part["name"]: part["share"] for part in documents[0]["views"][0]["sources"]["overall"]}
    assert overall["outside"] == pytest.approx(model.sources(rows).overall["outside"].share, abs=0.02)
    assert overall["outside"] > 0.05
    model.report(tmp_path / "report.html")  # on the rows that it kept, all of which may be inside
    assert len(documents) == 2


def test_a_large_group_answers_for_itself():
    random = np.random.default_rng(0)
    ward = np.repeat([f"W{k:02d}" for k in range(12)], [300, *[10] * 11])
    x = random.normal(size=len(ward))
    y = x + np.where(ward == "W00", 40.0, 0.0) + random.normal(size=len(ward))
    model = wf.fit({"ward": ward, "x": x, "y": y}, "y", group="ward", seed=3, **QUICK)
    if not model.background.groups:
        pytest.skip("the large group is held out")
    found = model.predict({"ward": ["W00", "W03", "new"], "x": [1e3, 1e3, 1e3]})
    assert found["mean"][0] == pytest.approx(y[ward == "W00"].mean(), abs=1.0)
    every_row = model.posterior.scaler.y_mean.item() + model.posterior.scaler.y_std.item() * float(
        model.background.mean[0]
    )
    assert found["mean"][1] == found["mean"][2] == pytest.approx(every_row, abs=1e-3)
    assert every_row < 38


# ---------------------------------------------------------------------- real tables


def test_every_column_of_every_table_is_judged_by_its_tail(root):
    """At least 90, 99, 100 and 100% of rows are flagged at 1, 3, 10 and 100 ranges; of rows left out, at most 2%."""
    flagged, alarms, shares = [], [], []
    for name, case, table in real_tables(root, most=800):
        names = inputs(table, case)
        encoder = TableEncoder.of(table, names, {}, np.arange(len(table)))
        encoded = encoder.encode(table)
        far = moved(table, encoder, np.random.default_rng(0).permutation(len(table))[:5])
        distance, _ = Surroundings.of(encoder, encoded).look(encoder.encode(far.table))
        flagged.append((distance > 1).reshape(far.shape).mean(axis=3).reshape(-1, len(RANGES)))
        outside = left_out(table, case) > 1
        chance = 3 * np.sqrt(MOST_ALARMS * (1 - MOST_ALARMS) / len(table))
        assert outside.mean() <= MOST_ALARMS + chance, name
        alarms.append(outside)
        shares.append(outside.mean())
    flagged = np.concatenate(flagged)
    for step, ranges in enumerate(RANGES):
        assert ranges == 0 or flagged[:, step].mean() >= NEEDED[ranges], ranges
    assert np.concatenate(alarms).mean() < 0.5 * MOST_ALARMS
    assert np.mean(shares) < 0.5 * MOST_ALARMS


@pytest.mark.parametrize("name", ["yacht", "mgus2", "pbcseq", "doctor_visits", "penguins", "hmda"])
def test_answers_of_real_rows_only_widen(name, root):
    ((_, case, table),) = real_tables(root, most=400, only=name)
    kept = {column: table.columns[column] for column in (*inputs(table, case), case.target, case.group) if column}
    table = RawTable(table.source, kept, table.rows, table.decimal)
    model = wf.fit(table, case.target, task=case.task, group=case.group, **QUICK)
    check(model, table, np.arange(4))
