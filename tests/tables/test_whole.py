"""Files of more rows than are kept in memory: some choose the settings and judge, and all others are trained on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.tables import whole
from wherefrom.tables.columns import TableEncoder
from wherefrom.tables.completing import Filled
from wherefrom.tables.options import Request
from wherefrom.tables.raw import Format
from wherefrom.tables.reading import read
from wherefrom.tables.splitting import split
from wherefrom.tables.target import Target
from wherefrom.training.mapped import MappedColumns, release

ROWS, SAMPLE, JUDGED = 700, 200, 30


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(whole, "MOST_ROWS", 300)
    monkeypatch.setattr(whole, "SAMPLE", SAMPLE)
    monkeypatch.setattr(whole, "CHUNK", 37)
    monkeypatch.setattr(whole, "_NOISE_ROWS", 20)


def write(path, gaps=False, copies=0, target=lambda x: x[:, 0]):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS - copies, 3)).round(5)
    x = np.concatenate([x, x[:copies]])
    y = target(x)
    lines = ["a,b,c,ward,y"]
    for k, (a, b, c) in enumerate(x):
        middle = "" if gaps and k % 4 == 1 else b
        lines.append(f"{a},{middle},{c},{'AB'[k % 2]},{'' if k == 5 else y[k]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def rest_of(path, seed=0, most=10**6):
    """All rows but those that judge, by the steps that fit takes; and what they are made of."""
    request = Request.of("y", most_rows=most, seed=seed)
    table, all_of_it = whole.rows_to_learn(path, Format(), request)
    target = Target.of(table, "y", None)
    y = target.values(table)
    table, y = table.take(~np.isnan(y)), y[~np.isnan(y)]
    encoder = TableEncoder.of(table, ["a", "b", "c", "ward"], {}, np.arange(len(table)))
    encoded, rows = encoder.encode(table), split(y, JUDGED / len(y), seed)
    filled = Filled.of(encoder, encoded.take(rows.train), y[rows.train], target, seed, 0)
    return all_of_it.without(table, encoder, encoded, filled, rows, True), target


def test_all_rows_but_those_that_judge_are_in_the_file(tmp_path):
    path = write(tmp_path / "data.csv")
    rest, target = rest_of(path)
    rows, noise = rest.rows(target, wf.Regression(noise="fit"))
    table = read(path)
    there = ~np.isin(table.rows, rest.apart) & ~np.isnan(target.values(table))
    expected = rest.encoder.encode(table.take(there))
    assert len(rest.apart) == JUDGED + 20
    assert len(rows) == ROWS - 1 - len(rest.apart)
    assert rows.x_names == tuple(expected.columns)
    np.testing.assert_array_equal(rows.x.numpy(), expected.values)
    np.testing.assert_array_equal(rows.y[:, 0].numpy(), target.values(table)[there])
    assert len(noise) == 20
    assert rest.rows(target, wf.Regression())[1] is None


def test_copies_of_rows_that_judge_are_left_out(tmp_path):
    rest, target = rest_of(write(tmp_path / "data.csv", copies=300))
    rows, _ = rest.rows(target, wf.Regression())
    table = read(tmp_path / "data.csv")
    judged = {tuple(row) for row in rest.encoder.encode(table.take(np.isin(table.rows, rest.apart))).values.tolist()}
    assert len(rows) < ROWS - 1 - len(rest.apart)
    assert not judged & {tuple(row) for row in rows.x.tolist()}


def test_missing_values_are_drawn_given_the_target(tmp_path):
    """b is y: a row that lacks it gets one near its target, which only donors that know the target can give."""
    rest, target = rest_of(write(tmp_path / "data.csv", gaps=True, target=lambda x: x[:, 1]))
    rows, _ = rest.rows(target, wf.Regression())
    b = rows.x[:, list(rows.x_names).index("b")]
    assert bool(torch.isfinite(rows.x).all())
    assert float((b - rows.y[:, 0]).abs().quantile(0.95)) < 0.5


def test_classes_that_were_not_drawn_are_left_out_with_a_warning(tmp_path):
    path = write(tmp_path / "data.csv", target=lambda x: np.where(x[:, 0] > 0, "up", "down"))
    rest, _ = rest_of(write(tmp_path / "other.csv"))
    target = Target.of(read(path), "y", None)
    one_class = replace(target, classes=("down", "other"))
    with pytest.warns(UserWarning, match=r"\d+ rows left out, with a 'y' that no row of the 200 has"):
        rows, _ = replace(rest, whole=replace(rest.whole, path=path)).rows(
            one_class, wf.Classification(("down", "other"))
        )
    assert rows.y.unique().tolist() == [0.0]


def test_so_many_as_are_asked_for_are_drawn(tmp_path):
    rest, target = rest_of(write(tmp_path / "data.csv"), most=500)
    rows, _ = rest.rows(target, wf.Regression())
    assert 500 - len(rest.apart) - 1 <= len(rows) <= 500


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_networks_are_those_of_rows_in_memory(engine):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(90, 3)) + 5, rng.normal(size=90)
    columns = MappedColumns(3)
    for start in range(0, 90, 40):
        columns.add(x[start : start + 40])
    mapped = columns.tensor()
    training = wf.Training(wf.MLP([4]), wf.Algorithm("adam", lr=0.01, batch_size=20), epochs=3)
    here, there = (wf.marginalise(training, (each, y), [wf.InitialCondition(2)], engine=engine) for each in (x, mapped))
    assert torch.equal(mapped, torch.from_numpy(x))  # pages that were released are read again
    for one, two in zip(here.mixture, there.mixture, strict=True):
        assert torch.equal(one.trained.last, two.trained.last)


def test_released_pages_and_other_tensors():
    columns = MappedColumns(2)
    columns.add(np.arange(6.0).reshape(3, 2))
    rows = columns.tensor()
    release(rows)
    assert rows.tolist() == [[0, 1], [2, 3], [4, 5]]
    release(torch.zeros(3))
    assert MappedColumns(2).tensor().shape == (0, 2)
    with pytest.raises(ValueError, match=r"shape \(1, 3\), and must have 2 columns"):
        MappedColumns(2).add(np.zeros((1, 3)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of a run whose quality does not matter
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_model_of_all_rows(tmp_path, task):
    kinds = {"regression": lambda x: x[:, 0], "classification": lambda x: np.where(x[:, 0] > 0, "up", "down")}
    path = write(tmp_path / "data.csv", gaps=True, target=kinds[task])
    model = wf.fit(path, "y", most_rows=10**6, draws=2, epochs=3, samples=4)
    counts = model.about["rows"]
    assert counts["train"] == ROWS - 1 - counts["calibrate"] - counts["test"] - 20  # one row has no target
    assert "trains on 700 rows from a file; settings, calibration and scores are by 200 of them" in model.notes
    assert model.scores.rows == counts["test"]
    model.save(tmp_path / "run")
    ours, theirs = model.predict(path), wf.load(tmp_path / "run").predict(path)
    assert list(ours) == list(theirs)
    for name, column in ours.items():
        np.testing.assert_array_equal(column, theirs[name])


def test_groups_are_read_into_memory(tmp_path):
    path = write(tmp_path / "data.csv")
    table, all_of_it = whole.rows_to_learn(path, Format(), Request.of("y", most_rows=10**6, group="ward"))
    assert (len(table), all_of_it) == (ROWS, None)
    table, all_of_it = whole.rows_to_learn(path, Format(), Request.of("y", most_rows=300))
    assert (len(table), all_of_it) == (300, None)
