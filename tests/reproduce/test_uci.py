"""The UCI study: its set-ups, exact dropout, files that go on, tables beside the printed ones, and the command."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import wherefrom as wf
from wherefrom.cli import app
from wherefrom.reproduce import datasets
from wherefrom.reproduce.uci import beyond, printed, results, setups, study, tables
from wherefrom.reproduce.uci.setups import ALL_THREE, SETUPS, SUBSETS

pytestmark = pytest.mark.slow

BESIDE = Path(__file__).resolve().parents[3] / "shared"
PAPER, PEERS = BESIDE / "paper" / "intrinsic-uncertainties.tex", BESIDE / "PEERS.md"


# ---------------------------------------------------------------------- the paper


def test_printed_tables_are_whole():
    found = printed.tables()
    assert {key: len(cells) for key, cells in found.items()} == {
        ("main", "nll"): 63,
        ("short", "rmse"): 63,
        ("short", "nll"): 63,
        ("tuned", "rmse"): 45,
        ("tuned", "nll"): 45,
    }
    for (table, _), cells in found.items():
        assert set(cells) == set(itertools.product(SETUPS[table].combinations, datasets.NAMES))
    vague = [place for place, cell in found["short", "nll"].items() if cell.std is None]
    assert vague == [(("M",), name) for name in ("concrete", "energy", "protein", "wine")]


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here to compare the transcription with")
def test_printed_tables_are_the_papers():
    text = PAPER.read_text(encoding="utf-8")
    files = {
        ("main", "nll"): "NLL_400",
        ("short", "rmse"): "RMSE_40",
        ("short", "nll"): "NLL_40",
        ("tuned", "rmse"): "RMSE_hyp",
        ("tuned", "nll"): "NLL_hyp",
    }
    for key, file in files.items():
        body = text.split(f"{{results_{file}.csv}}\n")[1].split("\\end{filecontents*}")[0].strip()
        lines = body.splitlines()[1:]
        cells = printed.tables()[key]
        for line, names in zip(lines, SETUPS[key[0]].combinations, strict=True):
            first, *others = line.split(",")
            symbols = {"M": r"$\MM_\theta$", "t": "$t$", "theta0": r"$\theta_0$", "alpha": r"$\alpha$"}
            assert first == " + ".join(symbols[name] for name in names)
            for name, cell in zip(datasets.NAMES, others, strict=True):
                there = cells[names, name]
                if there.is_vague:
                    assert float("1e" + re.search(r"\\sim10\^{(\d)}", cell)[1]) == there.mean
                else:
                    mean, std = re.search(r"(-?[\d.]+) \\pm ([\d.]+)", cell).groups()
                    assert (float(mean), float(std)) == (there.mean, there.std)
    rates = dict(re.findall(r"^(\w+)[\w ]*,.*,\s*(0\.\d+)$", text, re.MULTILINE))
    assert {name: float(rates[name]) for name in datasets.NAMES} == setups.TUNED_RATES


def test_distances_are_in_printed_deviations():
    assert printed.Printed(2.0, 0.5).distance(3.0) == 2.0
    vague, flat = printed.Printed(100.0, None), printed.Printed(0.003, 0.0)
    assert vague.distance(3.0) is flat.distance(0.003) is None
    assert vague.is_vague
    assert not flat.is_vague
    assert flat.is_rounded(0.00349)
    assert not flat.is_rounded(0.00351)


@pytest.mark.skipif(not PEERS.exists(), reason="the list of published figures is not here to compare with")
def test_published_figures_are_as_listed():
    lines = {line.split(" | ")[0].strip("| "): line for line in PEERS.read_text(encoding="utf-8").splitlines()}
    for name, methods in printed.published().items():
        listed = [cell.strip().split()[0] for cell in lines[name].strip("|\n ").split("|")[1:]]
        assert listed == [methods[method] for method in beyond._PUBLISHED]


def test_published_figures_cover_all_sets():
    assert set(printed.published()) == set(datasets.NAMES)
    for methods in printed.published().values():
        figures = [float(methods[method]) for method in beyond._PUBLISHED]
        assert figures[-1] <= min(figures[:-1])


# ---------------------------------------------------------------------- set-ups


@pytest.mark.parametrize("name", SETUPS)
def test_the_network_and_training_are_the_papers(name):
    setup = SETUPS[name]
    assert setup.epochs == {"main": 400, "short": 40, "tuned": 40}[name]
    for of, hidden in (("boston", 50), ("protein", 100)):
        training = setup.training(of, 7)
        first, _, dropout, last = training.model()
        assert first.weight.shape == (hidden, 7)
        assert last.weight.shape == (1, hidden)
        assert dropout.p == 0.01
        assert torch.count_nonzero(first.bias) == 0
        assert first.weight.abs().max() <= math.sqrt(6 / (7 + hidden))
        assert training.likelihood == wf.Regression()
        assert (training.algorithm.name, training.algorithm.batch_size) == ("adam", 100)
    rates = {"main": 0.01, "short": 0.1, "tuned": 0.099}
    assert setup.training("protein", 7).algorithm.settings["lr"] == rates[name]


def test_one_training_serves_all_subsets_but_a_drawn_rate_has_its_own():
    ((over, served),) = SETUPS["main"].marginalisations("boston")
    assert tuple(served) == SUBSETS
    assert len(over) == 3
    (_, fixed), (drawn, with_alpha) = SETUPS["tuned"].marginalisations("boston")
    assert fixed == [("t",), ("theta0",), ("t", "theta0")]
    assert with_alpha == [("theta0", "alpha"), ("t", "theta0", "alpha")]
    (rate,) = [variable for variable in drawn[0].variables if variable.slot == "h"]
    rates = [rate.choices(0, draw)["lr"] for draw in range(2000)]
    assert np.mean(rates) == pytest.approx(0.05, abs=4 * 0.0005 / math.sqrt(2000))
    assert np.std(rates) == pytest.approx(0.0005, abs=4 * 0.0005 / math.sqrt(2 * 2000))


def test_names_of_files_tell_what_differs():
    assert SETUPS["short"].name == "short"
    assert SETUPS["short"].but(start=0.2).name == "short-start-0.2"
    assert SETUPS["tuned"].but(start=0.2, dropout=0.0).name == "tuned-start-0.2-dropout-0"
    assert SETUPS["main"].but(noise="fit", epochs=20).name == "main-fit-epochs-20"
    assert SETUPS["main"].but(start=None) == SETUPS["main"]


# ---------------------------------------------------------------------- one set


@pytest.fixture(scope="module")
def small():
    """A set-up, data and splits of a few seconds."""
    random = np.random.default_rng(3)
    x = random.normal(size=(120, 5))
    y = 20 + 4 * x[:, 0] - 2 * np.abs(x[:, 1]) + random.normal(size=120)
    return SETUPS["main"].but(epochs=8, members=3, samples=40), (x, y), datasets.splits(120, 3)


@pytest.fixture(scope="module")
def trained(small):
    setup, data, splits = small
    return study.train(setup, "boston", data, splits, seed=5, engine="torch", progress=False)


@pytest.fixture(scope="module")
def scores(small, trained):
    setup, data, splits = small
    return study.score(setup, "boston", data, splits, trained)


def value(scores, fold, combination, metric):
    (found,) = [one.value for one in scores if (one.fold, one.combination, one.metric) == (fold, combination, metric)]
    return found


def test_every_fold_and_combination_is_scored(scores):
    labels = ["+".join(names) for names in SUBSETS]
    for metric in ("nll", "rmse", "crps", "coverage"):
        found = [(one.fold, one.combination) for one in scores if one.metric == metric]
        assert sorted(found) == sorted(itertools.product(range(3), [*labels, study.SAMPLED_M]))


def test_scores_are_those_of_single_posteriors(small, trained, scores):
    """Fold k, trained alone from seed + k, and scored by the public interface."""
    setup, (x, y), splits = small
    train, test = splits[2]
    ((over, _),) = setup.marginalisations("boston")
    alone = wf.marginalise(setup.training("boston", 5), (x[train], y[train]), over, seed=7, progress=False)
    for names in SUBSETS[1:]:
        prediction = alone.marginalising(*(setups.OURS[name] for name in names)).predict(x[test], 40)
        label = "+".join(names)
        assert value(scores, 2, label, "nll") == pytest.approx(prediction.nll(y[test]), rel=2e-3)
        assert value(scores, 2, label, "rmse") == pytest.approx(prediction.rmse(y[test]), rel=1e-4)
    shares = [one.value for one in scores if one.fold == 2 and one.metric.startswith("share of ")]
    assert len(shares) == 4
    assert sum(shares) == pytest.approx(1)


def test_exact_dropout_is_the_mean_over_all_masks(small, trained):
    """Enumerated for a network of six units: all 64 masks with their probabilities."""
    _, (x, y), _ = small
    training = wf.Training(
        lambda: setups.network(5, 6, 1, 0.3), wf.Algorithm("adam", lr=0.05, batch_size=30), epochs=15
    )
    posterior = wf.marginalise(training, (x, y), [wf.Dropout()], seed=1, dtype=torch.float64, progress=False)
    prediction = study.exact_dropout(posterior, x[:20])
    theta = posterior.network.layout.views(posterior.laws()[0].mean)
    inputs = posterior.scaler.x(torch.as_tensor(x[:20]), torch.float64)
    hidden = torch.relu(inputs @ theta["0.weight"].T + theta["0.bias"])
    mean = square = torch.zeros(20, dtype=torch.float64)
    for mask in itertools.product([0, 1], repeat=6):
        probability = math.prod(0.7 if kept else 0.3 for kept in mask)
        answer = (hidden * torch.tensor(mask) / 0.7 @ theta["3.weight"].T + theta["3.bias"]).squeeze(1)
        answer = answer * posterior.scaler.y_std + posterior.scaler.y_mean
        mean, square = mean + probability * answer, square + probability * answer**2
    torch.testing.assert_close(prediction.mean, mean)
    torch.testing.assert_close(prediction.variance, square - mean**2)


def test_samples_of_dropout_tend_to_its_exact_moments(small, trained):
    _, (x, _), splits = small
    part = trained[0][1][0].marginalising("F")
    test = x[splits[0][1]]
    exact, sampled = study.exact_dropout(part, test), part.predict(test, samples=20_000)
    error = exact.std / math.sqrt(20_000)
    assert ((sampled.mean - exact.mean).abs() < 5 * error).all()
    # A rare event's kurtosis is 1 / rate at most, so the variance's relative error is sqrt(100 / 20,000) or less.
    torch.testing.assert_close(sampled.variance, exact.variance, rtol=5 * math.sqrt(100 / 20_000), atol=0)


def test_rows_without_variance_are_counted_not_scored(small, trained):
    """Few samples at so small a rate often agree: such rows have no density, and must not have a score."""
    _, (x, y), splits = small
    test = splits[0][1]
    part = trained[0][1][0].marginalising("F")
    setup, *_ = small
    for samples in (1, 3):
        few = setup.but(samples=samples)
        found = {(which, metric): v for which, metric, v in study._scored(part, ("M",), x[test], y[test], few)}
        empty = int((part.predict(x[test], samples=samples).variance == 0).sum())
        assert 0 < found[study.SAMPLED_M, "zero-variance rows"] == empty
        assert math.isfinite(found[study.SAMPLED_M, "nll"]) == (empty < len(test))
    assert empty < len(test)
    assert found["M", "zero-variance rows"] == 0
    assert math.isfinite(found["M", "nll"])


@pytest.mark.parametrize("noise", ["fit", "predicted"])
def test_noise_is_scored_by_its_mixture_too(small, noise):
    setup, data, splits = small
    noisy = setup.but(noise=noise)
    posteriors = study.train(noisy, "boston", data, splits[:1], engine="torch", progress=False)
    scores = study.score(noisy, "boston", data, splits[:1], posteriors)
    for names in SUBSETS:
        assert math.isfinite(value(scores, 0, "+".join(names), "mixture nll"))
        assert 0 <= value(scores, 0, "+".join(names), "mixture coverage") <= 1
    assert value(scores, 0, "+".join(ALL_THREE), "share of noise") > 0


# ---------------------------------------------------------------------- files


def some_results(**settings) -> results.Results:
    found = results.Results("main", {"epochs": 4} | settings)
    rows = [
        study.Score(name, fold, "+".join(names), metric, (fold + 1) * (len(names) + 0.5) / 3)
        for name in ("yacht", "boston")
        for fold in range(3)
        for names in SUBSETS
        for metric in ("nll", "rmse", "crps", "coverage")
    ]
    for name in ("yacht", "boston"):
        own = [one for one in rows if one.set == name]
        found.add(name, own, dict(RECORD))
    return found


RECORD = {
    "command": "wherefrom reproduce uci",
    "versions": "wherefrom 0",
    "engine": "torch",
    "folds": 3,
    "training_cpu_seconds": 1.0,
    "cpu_seconds": 2.0,
    "wall_seconds": 2.0,
    "peak_memory_mb": 100,
}


def test_files_come_back_as_they_were(tmp_path):
    before = some_results()
    before.write(tmp_path / "new" / "main.csv")
    after = results.read(tmp_path / "new" / "main.csv")
    assert after.settings == before.settings
    assert after.records == before.records
    assert after.sets == ["boston", "yacht"]
    assert [one[:4] for one in after.scores] == [one[:4] for one in before.scores]
    np.testing.assert_allclose([one.value for one in after.scores], [one.value for one in before.scores], rtol=1e-7)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["main.csv"]


def test_a_run_with_other_settings_leaves_the_file_alone(tmp_path):
    path = tmp_path / "main-epochs-6-folds-2.csv"
    some_results().write(path)
    assert results.go_on(path, {"epochs": 4}).sets == ["boston", "yacht"]
    with pytest.raises(ValueError, match=r"epochs 4 instead of 400.*--fresh"):
        results.go_on(path, {"epochs": 400})
    assert results.read(path).settings == {"epochs": 4}
    assert results.go_on(path, {"epochs": 4}, again=["yacht"]).sets == ["boston"]
    with pytest.raises(ValueError, match=r"has boston, yacht by the torch engine, not by native"):
        results.go_on(path, {"epochs": 4}, engine="native")
    assert results.go_on(path, {"epochs": 400}, again=["yacht"]).sets == []
    assert not path.exists()
    assert results.read(path.with_suffix(".csv.old")).sets == ["boston", "yacht"]


@pytest.mark.parametrize(
    "damage", [lambda t: t[: len(t) // 2], lambda t: "nonsense", lambda t: t.replace("# boston", "# x")]
)
def test_a_damaged_file_is_said_to_be_one(tmp_path, damage):
    path = tmp_path / "main-epochs-6-folds-2.csv"
    some_results().write(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=r"csv is not a.* file of scores.*--fresh"):
        results.read(path)


def test_deviation_is_of_a_sample():
    assert results.mean_and_std([1.0, 2.0, 3.0]) == (2.0, 1.0)
    mean, std = results.mean_and_std([5.0])
    assert mean == 5
    assert math.isnan(std)


# ---------------------------------------------------------------------- tables


def test_bold_is_as_in_the_paper():
    """From the printed figures themselves: the best, and those whose mean is within its deviation."""
    found = results.Results("main", {}, {"boston": dict(RECORD)})
    for names, name in printed.tables()["main", "nll"]:
        cell = printed.tables()["main", "nll"][names, name]
        if name == "boston":  # two folds with the printed mean and deviation
            step = cell.std / math.sqrt(2)
            found.scores += [
                study.Score(name, k, "+".join(names), "nll", cell.mean + s * step) for k, s in ((0, 1), (1, -1))
            ]
    text = tables.means_table(found, "nll", SUBSETS)
    bold = [line.split(" | ")[0].strip("| ") for line in text.splitlines() if "**" in line]
    assert bold == ["t + θ₀", "M + t + θ₀"]
    assert "***2.998 ± 0.593***" in text
    (sentence, strict, best, order) = tables.summary(found, "nll", printed.tables()["main", "nll"])
    assert sentence.startswith("7 of 7 cells lie within one printed standard deviation, 7 within two")
    assert "0 of 7 lie beyond two" in strict
    assert best == "The best combination is the same on 1 of 1 sets."
    assert "(1 of 1 sets), they do so here on 1." in order


def test_summary_names_what_is_far_off():
    found = some_results()
    sentences = tables.summary(found, "nll", printed.tables()["main", "nll"])
    ours = tables.moments(found, "nll")["M", "boston"][0]
    distance = (ours - 13.134) / 3.835
    assert abs(distance) > 2
    further = next(sentence for sentence in sentences if sentence.startswith("Further off"))
    assert f"boston M ({distance:+.1f})".replace("-", "−") in further


def test_the_stricter_measure_counts_standard_errors_of_the_difference():
    """Two folds of ours around a mean that is three standard errors of the difference from the printed one."""
    cell = printed.tables()["main", "nll"][("t",), "boston"]
    apart = 3 * math.sqrt(2 * cell.std**2 / 2)
    found = results.Results("main", {}, {"boston": dict(RECORD)})
    step = cell.std / math.sqrt(2)
    found.scores += [study.Score("boston", k, "t", "nll", cell.mean + apart + s * step) for k, s in ((0, 1), (1, -1))]
    assert tables._in_errors(found, "nll", ("t",), "boston", cell) == pytest.approx(3)


def test_paired_differences_are_fold_by_fold():
    mean, error = beyond.paired_difference([1.0, 2.0, 4.0, 4.0], [2.0, 4.0, 5.0, 6.0])
    assert mean == -1.5
    assert error == pytest.approx(np.std([1, 2, 1, 2], ddof=1) / 2)


# ---------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Small ones for two of the sets, in the layout of a data folder, and what is known of them."""
    random = np.random.default_rng(0)
    root, changed = tmp_path_factory.mktemp("data"), dict(datasets.SETS)
    for name, features in (("boston", 3), ("yacht", 2)):
        x = random.normal(size=(60, features))
        y = x[:, 0] + 0.1 * random.normal(size=60)
        table = np.column_stack([x, y]).round(6)
        folder = root / "uci" / name
        folder.mkdir(parents=True)
        np.savetxt(folder / "data.csv.gz", table, delimiter=",", header="some,names", comments="")
        y = table[:, -1]
        drift = float((y * np.linspace(-1, 1, 60)).mean())
        moments = (float(y.mean()), float(y.std()), drift)
        changed[name] = datasets.DataSet(name, 60, features, *moments, datasets.SETS[name].source)
    return root, changed


@pytest.fixture
def root(stand_ins, monkeypatch):
    monkeypatch.setattr(datasets, "SETS", stand_ins[1])
    return stand_ins[0]


def ask(root, out, *more):
    basics = ["--sets", "boston,yacht", "--folds", "2", "--epochs", "6", "--engine", "torch"]
    return CliRunner().invoke(app, ["reproduce", "uci", "--data", str(root), "--out", str(out), *basics, *more])


@pytest.fixture(scope="module")
def finished(stand_ins, tmp_path_factory):
    """A run of the first table: its folder, and what the command said."""
    return _run(stand_ins, tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def finished_beyond(stand_ins, tmp_path_factory):
    return _run(stand_ins, tmp_path_factory.mktemp("beyond"), "--beyond")


def _run(stand_ins, out, *more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "SETS", stand_ins[1])
        answer = ask(stand_ins[0], out, *more)
    assert answer.exit_code == 0, answer.output
    return out, answer.output


def test_the_command_writes_scores_tables_and_a_picture(finished):
    out, said = finished
    with (out / "main-epochs-6-folds-2.csv").open(encoding="utf-8") as file:
        head = [line for line in file if line.startswith("#")]
    record = json.loads(head[1].removeprefix("# boston: "))
    assert record["command"] == (
        "wherefrom reproduce uci --setup main --sets boston,yacht --folds 2 --epochs 6 --seed 0 --engine torch"
    )
    assert "torch" in record["versions"]
    assert json.loads(head[0].removeprefix("# setup: "))["seed"] == 0
    lines = (line for line in (out / "main-epochs-6-folds-2.csv").read_text().splitlines() if not line.startswith("#"))
    rows = list(csv.DictReader(lines))
    keys = [(row["set"], row["fold"], row["combination"], row["metric"]) for row in rows]
    assert len(set(keys)) == len(keys)
    nlls = [row for row in rows if row["metric"] == "nll" and row["combination"] != study.SAMPLED_M]
    assert len(nlls) == 2 * 2 * 7
    page = (out / "main-epochs-6-folds-2.md").read_text()
    assert "| M + t + θ₀ |" in page
    assert "/ 13.134 (" in page
    assert (out / "main-epochs-6-folds-2.png").read_bytes().startswith(b"\x89PNG")
    assert "cells lie within one printed standard deviation" in said
    assert "s of CPU time" in said


def test_an_interrupted_run_goes_on(root, finished, tmp_path, monkeypatch):
    whole = study.train
    trained = []

    def counted(setup, name, *others):
        if name == "yacht" and len(trained) == 1:
            trained.append("stopped")
            raise KeyboardInterrupt
        trained.append(name)
        return whole(setup, name, *others)

    monkeypatch.setattr(study, "train", counted)
    interrupted, (straight, _) = tmp_path / "out", finished
    stopped = ask(root, interrupted)
    assert stopped.exit_code != 0
    assert "interrupted: the finished sets are in" in stopped.output
    assert results.read(interrupted / "main-epochs-6-folds-2.csv").sets == ["boston"]
    again = ask(root, interrupted)
    assert again.exit_code == 0, again.output
    assert trained == ["boston", "stopped", "yacht"]
    first, second = (results.read(folder / "main-epochs-6-folds-2.csv").scores for folder in (interrupted, straight))
    assert first == second
    assert ask(root, interrupted).exit_code == 0
    assert trained == ["boston", "stopped", "yacht"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--setup", "best"], "there is no set-up 'best'; there are main, short, tuned"),
        (["--sets", "boston,iris"], "there is no set 'iris'"),
        (["--folds", "0"], "--folds must be at least 1"),
        (["--dropout", "0"], "marginalises M"),
        (["--data", "/nowhere/at/all"], "does not exist"),
        (["--epochs", "1"], "1 epochs leave SWAG 1"),
        (["--start", "1.5"], "--start is a fraction"),
        (["--dropout", "1.5"], "--dropout is a rate"),
        (["--engine", "jax"], "--engine must be native or torch"),
        (["--sets", " , "], "--sets names no set"),
        (["--method", "magic"], "--method must be monte_carlo or one_shot"),
    ],
)
def test_errors_are_one_line(root, tmp_path, options, words):
    answer = ask(root, tmp_path / "out", *options)
    assert answer.exit_code == 2
    assert words in answer.output
    assert answer.output.startswith("wherefrom: ")
    assert answer.output.count("\n") == 1


def test_other_settings_are_other_files(root, finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    assert ask(root, tmp_path, "--epochs", "5", "--seed", "3").exit_code == 0
    names = {path.name for path in tmp_path.glob("*.csv")}
    assert names == {"main-epochs-6-folds-2.csv", "main-epochs-5-folds-2-seed-3.csv"}


def test_what_cannot_be_compared_says_so(finished):
    out, said = finished
    for text in (said, (out / "main-epochs-6-folds-2.md").read_text()):
        assert "6 epochs instead of the paper's 400: not comparable" in text
        assert "Only the first 2 of the published folds: a sketch." in text
        assert "M the sub-networks that dropout leaves" in text


def test_beyond_the_paper(finished_beyond):
    out, said = finished_beyond
    names = [f"{name}-epochs-6-folds-2" for name in ("main-fit", "main-predicted", "main", "recommended")]
    assert {path.stem for path in out.glob("*.csv")} == set(names)
    page = (out / "main-epochs-6-folds-2-beyond.md").read_text()
    for words in ("| boston | 2.41 |", "| yacht | 1.18 |", "θ₀ | t | M | t x M | noise |", "CRPS", "Coverage of 95%"):
        assert words in page
    assert said.count("engine torch") == 4  # the cost of each of the four
    noisy = results.read(out / "main-fit-epochs-6-folds-2.csv")
    mean, error = beyond.paired_difference(
        *(noisy.by_fold("mixture nll")[label, "yacht"] for label in ("M+t+theta0", "t"))
    )
    assert f"{tables.number(mean, 'nll', 'yacht')} ± {tables.number(error, 'nll', 'yacht')}" in page


def test_beyond_with_other_combinations_and_sets(root, finished_beyond, tmp_path):
    """The tuned set-up has no M, and the recipe's file may hold more sets than were asked for."""
    shutil.copytree(finished_beyond[0], tmp_path, dirs_exist_ok=True)
    answer = ask(root, tmp_path, "--setup", "tuned", "--sets", "yacht", "--beyond")
    assert answer.exit_code == 0, answer.output
    page = (tmp_path / "tuned-epochs-6-folds-2-beyond.md").read_text()
    assert "| | θ₀+α | t |" in page
    assert "| yacht | 1.18 |" in page
    assert "| boston | 2.41 |" not in page


def test_what_goes_wrong_goes_wrong_before_training(root, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "train", lambda *_: pytest.fail("it trained"))
    (tmp_path / "file").write_text("")
    answer = ask(root, tmp_path / "file")
    assert answer.exit_code == 2
    assert "--out must name a folder that can be written to" in answer.output
    some = results.Results("recommended-epochs-6-folds-2", {"other": 1}, {"boston": dict(RECORD)})
    some.scores = [study.Score("boston", fold, "recommended", "nll", 1.0) for fold in range(3)]
    some.write(tmp_path / "out" / "recommended-epochs-6-folds-2.csv")
    answer = ask(root, tmp_path / "out", "--beyond")
    assert answer.exit_code == 2
    assert "recommended-epochs-6-folds-2.csv was made with other settings" in answer.output


def test_fresh_keeps_what_was_not_asked_for(root, finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    before = results.read(tmp_path / "main-epochs-6-folds-2.csv")
    answer = ask(root, tmp_path, "--sets", "yacht, yacht,", "--fresh")
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("main-epochs-6: yacht") == 1
    after = results.read(tmp_path / "main-epochs-6-folds-2.csv")
    assert after.scores == before.scores
    assert after.records["boston"] == before.records["boston"]


def test_a_picture_is_not_needed(root, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else found(name, *a))
    answer = ask(root, tmp_path)
    assert answer.exit_code == 0, answer.output
    assert "pip install 'wherefrom[plot]'" in answer.output
    assert (tmp_path / "main-epochs-6-folds-2.md").exists()


def test_pages_say_what_is_better():
    """From made-up scores: marks against the published figures, percentages, and paired differences either way."""

    def made(label, values, **others):
        found = results.Results(label, {}, {"boston": dict(RECORD)})
        for name, shift in values.items():
            for metric in ("nll", "mixture nll", "crps"):
                found.scores += [study.Score("boston", k, name, metric, 2.3 + shift + k / 1000) for k in range(3)]
            for metric in ("coverage", "mixture coverage"):
                found.scores += [study.Score("boston", k, name, metric, 0.941) for k in range(3)]
            found.scores += [study.Score("boston", k, name, "rmse", 3.0) for k in range(3)]
        return found

    singles = {"+".join(names): 0.1 * place for place, names in enumerate(SUBSETS)}
    by_noise = {
        "none": made("main", singles),
        "fit": made("main-fit", singles | {"M+t+theta0": 0.08}),
        "predicted": made("main-predicted", singles | {"M+t+theta0": 0.2}),
    }
    text = beyond.page(by_noise, made("recommended", {"recommended": 0.0}), SUBSETS)
    (line,) = [line for line in text.splitlines() if line.startswith("| boston | 2.41 |")]
    assert "| **2.381 ± 0.001** | 2.501 ± 0.001 | ***2.301 ± 0.001*** |" in line
    assert "| M | 94.1 |" in text
    assert "| M | **0.600 ± 0.000** |" in text  # worse with all of them, where there is no noise
    assert "| M + θ₀ | **−0.320 ± 0.000** |" in text  # better, where it is fitted


def test_one_shot_beside_monte_carlo(root, finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    answer = ask(root, tmp_path, "--method", "one_shot")
    assert answer.exit_code == 0, answer.output
    one, many = (results.read(tmp_path / f"main{kind}-epochs-6-folds-2.csv") for kind in ("-one-shot", ""))
    assert "method" not in many.settings
    assert not any(score.combination == study.SAMPLED_M for score in one.scores)
    for metric, error in (("rmse", 0.02), ("crps", 0.05)):
        ours, sampled = tables.moments(one, metric), tables.moments(many, metric)
        for names in SUBSETS:
            label = "+".join(names)
            assert ours[label, "boston"][0] == pytest.approx(sampled[label, "boston"][0], rel=error)
    page = (tmp_path / "main-one-shot-epochs-6-folds-2.md").read_text()
    mean = tables.number(tables.moments(one, "nll")["t", "yacht"][0], "nll", "yacht")
    beside = tables.number(tables.moments(many, "nll")["t", "yacht"][0], "nll", "yacht")
    assert f"{mean} / {beside}" in page.split("One-shot / Monte Carlo:")[1]
