"""The CIFAR-10 study at its smallest: what is drawn, that it goes on where it stopped, and what its scores are."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import wherefrom as wf
from wherefrom.cli import app
from wherefrom.reproduce.cifar10 import command, study
from wherefrom.reproduce.cifar10.data import made
from wherefrom.reproduce.cifar10.presets import AUGMENTED, COMBINATIONS, FITTED, PLAIN, PRESETS, kinds_of
from wherefrom.reproduce.cifar10.scores import BAND, ensembles, jackknife_error, scored
from wherefrom.reproduce.cifar10.study import TEST, Answers, Exam, Kept
from wherefrom.variables import Design

pytestmark = pytest.mark.slow

OPTIONS = ["reproduce", "cifar10", "--preset", "smoke", "--quiet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """One run by the command: its folder, what it kept, and what it said."""
    torch.set_num_threads(1)
    out, runs = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("cifar10") / "runs"
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(out), "--runs", str(runs)])
    assert result.exit_code == 0, result.output
    return out, runs, result.output


# ---------------------------------------------------------------------- what is trained


def test_the_presets_are_the_papers_study():
    paper = PRESETS["paper"]
    assert (paper.width, paper.epochs, paper.members, paper.batch_size) == (1.0, 300, 10, 128)
    assert paper.train_images is None
    algorithm = paper.training(AUGMENTED).algorithm
    assert (algorithm.settings["lr"], algorithm.settings["momentum"]) == (0.05, 0.9)
    assert len(COMBINATIONS) == len(set(COMBINATIONS)) == 6
    assert kinds_of("fixed") == [(), ("M",), ("t",), ("M", "t")]
    assert kinds_of("drawn") == [(), ("M", "t")]


def _maddox_rate(epoch: float, start: int) -> float:
    """The learning rate as the code of the SWAG paper computes it, with its `swa_start`."""
    t = epoch / start
    if t <= 0.5:
        return 0.05
    return 0.05 * (1.0 - (1.0 - 0.2) * (t - 0.5) / 0.4) if t <= 0.9 else 0.01


def test_the_rate_falls_before_swag_starts_and_is_constant_while_it_collects():
    paper = PRESETS["paper"]
    assert paper.first_collected == 161
    epochs = np.arange(300)
    ours = 0.05 * paper.training(AUGMENTED).algorithm.schedule(epochs / 300)
    np.testing.assert_allclose(ours, [_maddox_rate(epoch, 161) for epoch in epochs], atol=1e-12)
    printed = paper.but(schedule="printed").training(AUGMENTED).algorithm.schedule
    rates = 0.05 * printed(np.array([0.0, 0.4999, 0.7, 0.9, 1.0]))
    np.testing.assert_allclose(rates, [0.05, 0.05, 0.03, 0.01, 0.01], rtol=1e-3)


def test_swag_collects_twice_an_epoch_where_the_preset_says_so():
    cpu = PRESETS["cpu"]
    (iterations,) = (v for v in cpu.over("fixed", 10, 10_000) if isinstance(v, wf.Iterations))
    collection = iterations.collection(cpu.epochs, 79)
    assert collection.iterations == 2 * (cpu.epochs - cpu.first_collected)
    assert collection.steps[0] > cpu.first_collected * 79


def test_regimes_can_be_picked_and_changed():
    cpu = PRESETS["cpu"]
    assert cpu.regimes == (AUGMENTED, FITTED)
    assert cpu.but(augment=False).regimes == (FITTED,)
    (one,) = cpu.but(augment=True, dropout=0.2).regimes
    assert (one.augment, one.dropout) == (True, 0.2)
    assert cpu.training(FITTED).augment is None
    assert cpu.training(AUGMENTED).augment is not None
    rates = {m.p for m in cpu.model(FITTED)().modules() if isinstance(m, torch.nn.Dropout)}
    assert rates == {FITTED.dropout}


def test_the_two_learning_rates_are_drawn_independently_and_uniformly():
    runs = Design.of(PRESETS["paper"].over("drawn", 4000, 50_000)).runs(seed=0)
    upper = np.array([run.choices["lr"] for run in runs])
    lower = upper * np.array([run.choices["schedule__final"] for run in runs])
    for rates, low, high in ((upper, 0.04, 0.06), (lower, 0.008, 0.012)):
        assert low <= rates.min()
        assert rates.max() <= high
        places = np.sort((rates - low) / (high - low))
        assert np.abs(places - np.linspace(0, 1, len(places))).max() < 1.63 / np.sqrt(len(places))  # Kolmogorov, 1%
    assert abs(np.corrcoef(upper, lower)[0, 1]) < 3 / np.sqrt(len(upper))
    assert abs(np.corrcoef((upper - 0.05) ** 2, (lower - 0.01) ** 2)[0, 1]) < 3 / np.sqrt(len(upper))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"preset": "gpu"}, "there are paper, cpu, smoke"),
        ({"dtype": "float16"}, "float32 or float64"),
        ({"epochs": 2}, "2 epochs leave SWAG 1"),
        ({"members": 1}, "at least 2 members"),
        ({"width": 0.0}, "above zero"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"start": 1.0}, "from 0 to below 1"),
        ({"schedule": "cosine"}, '"swag" or "printed"'),
        ({"dropout": 0.0}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_asked_for(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        command.Request(**wrong)


def test_the_command_says_what_changes_numbers():
    request = command.Request(preset="paper", members=3, batch_norm=True, device="cuda", autocast=False, seed=4)
    assert request.command == (
        "wherefrom reproduce cifar10 --preset paper --members 3 --seed 4 --device cuda --batch-norm --no-autocast"
    )
    assert command.Request().machine.autocast is None
    one = command.Request(augment=False, dropout=0.2, start=0.75, schedule="printed")
    assert one.command == (
        "wherefrom reproduce cifar10 --preset cpu --start 0.75 --schedule printed --dropout 0.2 --seed 0 --no-augment"
    )


# ---------------------------------------------------------------------- the command


def test_a_run_writes_its_files(finished):
    out, _, text = finished
    assert {path.name for path in out.iterdir()} >= {"scores.csv", "summary.json", "table.md"}
    summary = json.loads((out / "summary.json").read_text())
    assert summary["command"] == "wherefrom reproduce cifar10 --preset smoke --seed 0"
    assert summary["cpu_seconds"]["training"] > 0
    assert list(summary["regimes"]) == ["augmented", "fitted"]
    for regime in summary["regimes"].values():
        assert summary["preset"]["members"] == len(regime["networks"]["drawn"]) == PRESETS["smoke"].members
        rates = [one["lr"] for one in regime["networks"]["drawn"]]
        assert len(set(rates)) == len(rates)
        last = np.mean([one["last loss"] for one in regime["networks"]["fixed"]])
        assert regime["training_loss"]["fixed"]["end"] == pytest.approx(last, abs=1e-4)
    page = (out / "table.md").read_text()
    for head in ("### All 2 networks", "#### NLL", "#### Δ NLL", "#### AUROC", "static, disagreement", "(made by the"):
        assert page.count(head) >= 1
    assert page.count("Mean training loss") == 2
    assert "θ₀ + α + M + t" in text


def test_the_pictures_are_drawn(finished):
    pytest.importorskip("matplotlib")
    out, _, _ = finished
    assert (out / "figure.png").stat().st_size > 20_000
    assert (out / "shift.png").stat().st_size > 20_000


def test_every_combination_size_and_severity_has_its_scores(finished):
    out, _, _ = finished
    with (out / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    labels = {"+".join(names) for names in COMBINATIONS}
    for metric in ("nll", "accuracy", "over-confidence", "brier", "ece"):
        scores = [r for r in rows if r["metric"] == metric and r["images"] == TEST]
        there = {(r["regime"], r["combination"], r["members"]) for r in scores}
        assert there == {(regime, x, str(k)) for regime in ("augmented", "fitted") for x in labels for k in (1, 2)}
        assert all((r["image_error"] == "") == (metric == "ece") for r in scores)
    for metric in ("nll", "ece", "auroc"):
        images = {r["images"] for r in rows if r["metric"] == metric} - {TEST}
        assert images >= {f"{name} {k}" for name in ("noise", "blur", "contrast", "brightness") for k in range(1, 6)}
    assert {r["metric"] for r in rows if r["images"] == "static"} == {"auroc", "auroc by disagreement", "entropy"}
    assert all(np.isfinite(float(r["value"])) for r in rows)


def test_a_finished_run_is_not_done_again(finished, tmp_path, monkeypatch):
    out, runs, _ = finished

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was there already")

    monkeypatch.setattr(study.wf.Posterior, "predict", never)
    monkeypatch.setattr(study.wf.Posterior, "extend", never)
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(tmp_path), "--runs", str(runs)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "scores.csv").read_text() == (out / "scores.csv").read_text()
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (out, tmp_path)]
    costs = [[regime["costs"] for regime in summary["regimes"].values()] for summary in summaries]
    assert costs[0] == costs[1]


def test_other_settings_do_not_mix_with_what_is_kept(finished, tmp_path):
    _, runs, _ = finished
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(tmp_path), "--runs", str(runs), "--epochs", "5"])
    assert result.exit_code == 2
    assert "epochs 4 instead of 5" in result.output


def test_members_trained_after_an_interruption_are_the_same(tmp_path, monkeypatch):
    preset = PRESETS["smoke"].but(members=3)
    machine, images = command.Request(preset="smoke").machine, made(128, 0)
    monkeypatch.setattr(study, "available_cores", lambda: 2)
    whole = study.train(preset, FITTED, "drawn", images, 0, machine, Kept(None, {}))
    study.train(preset.but(members=2), FITTED, "drawn", images, 0, machine, Kept(tmp_path, {}))
    later = study.train(preset, FITTED, "drawn", images, 0, machine, Kept(tmp_path, {}))
    assert len(later) == len(whole) == 3
    for one, other in zip(whole.mixture, later.mixture, strict=True):
        assert one.run.choices == other.run.choices
        torch.testing.assert_close(one.trained.last, other.trained.last, rtol=1e-4, atol=1e-5)
    fewer = study.train(preset.but(members=2), FITTED, "drawn", images, 0, machine, Kept(tmp_path, {}))
    assert len(fewer) == 2


def test_fixed_and_drawn_rates_share_their_initial_weights_and_batches():
    first, second = (Design.of(PRESETS["cpu"].over(rates, 5, 10_000)).runs(seed=0) for rates in ("fixed", "drawn"))
    for one, other in zip(first, second, strict=True):
        assert (one.slots["theta0"], one.slots["order"]) == (other.slots["theta0"], other.slots["order"])


def test_without_matplotlib_there_are_tables(finished, tmp_path, monkeypatch):
    _, runs, _ = finished
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find(name, *rest)
    )
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(tmp_path), "--runs", str(runs)])
    assert result.exit_code == 0, result.output
    assert "pip install 'wherefrom[plot]'" in result.output
    assert (tmp_path / "table.md").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "--out must name a folder" in result.output


# ---------------------------------------------------------------------- scores


@pytest.fixture
def exam() -> Exam:
    test = made(40, 0)
    return Exam.of(test, test.some(10), {"static": torch.rand(12, 3, 32, 32)}, seed=0)


@pytest.fixture
def answers(exam: Exam) -> dict:
    """Made-up answers of four members, all combinations apart."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for names in COMBINATIONS:
        logits = torch.randn(4, 5, len(exam.x), 10, generator=generator, dtype=torch.float64)
        each = logits.softmax(-1)
        found[names] = Answers(each.mean(1), torch.special.entr(each).sum(-1).mean(1))
    return found


def test_the_exam_knows_its_parts(exam):
    assert len(exam.parts) == 1 + 4 * 5 + 1
    assert len(exam.x) == 40 + 20 * 10 + 12
    assert [part.stop - part.start for part in exam.parts.values()] == [40] + [10] * 20 + [12]
    assert "static" not in exam.labels


def test_ensembles_are_all_there_are_or_many():
    assert len(ensembles(10, 5)) == 252
    many = ensembles(20, 10)
    assert len(many) == 300
    assert all(len(set(one)) == 10 for one in many)
    assert many == ensembles(20, 10)


def test_scores_by_hand(exam, answers):
    found = scored(answers, exam)
    names = ("t", "theta0")
    p, y = answers[names].of(exam.parts[TEST]).probabilities, exam.labels[TEST]
    pairs = [(p[[i, j]].mean(0)[range(40), y]).log().neg().mean() for i in range(4) for j in range(i)]
    score = found.get(names, "nll", members=2)
    assert score.value == pytest.approx(float(np.mean(pairs)))
    np.testing.assert_allclose((score.low, score.high), np.quantile(pairs, BAND))
    last = found.get(names, "accuracy")
    assert last.low == last.high == last.value == pytest.approx(float((p.mean(0).argmax(1) == y).double().mean()))


def test_auroc_is_of_entropy_and_of_disagreement(exam, answers):
    found = scored(answers, exam)
    own = answers["theta0",]
    entropy = torch.special.entr(own.probabilities.mean(0)).sum(-1)
    for metric, doubt in (("auroc", entropy), ("auroc by disagreement", entropy - own.entropies.mean(0))):
        inside, outside = doubt[exam.parts[TEST]], doubt[exam.parts["static"]]
        expected = (outside[:, None] > inside).double().mean()
        assert found.get(("theta0",), metric, "static").value == pytest.approx(float(expected))


def test_a_single_answer_does_not_disagree(exam):
    one = torch.randn(1, len(exam.x), 10, dtype=torch.float64).softmax(-1)
    alone = Answers(one, torch.special.entr(one).sum(-1))
    found = scored(dict.fromkeys(COMBINATIONS, alone), exam)
    assert found.get(("theta0",), "auroc by disagreement", "static").value == 0.5


def test_severities_are_means_over_corruptions(exam, answers):
    found = scored(answers, exam)
    each = [found.get(("theta0",), "ece", f"{name} 4").value for name in ("noise", "blur", "contrast", "brightness")]
    assert found.at_severity(("theta0",), "ece", 4) == pytest.approx(np.mean(each))
    assert found.at_severity(("theta0",), "nll", 0) == found.get(("theta0",), "nll").value
    assert found.at_severity(("theta0",), "auroc", 0) == 0.5


def test_differences_are_paired(exam, answers):
    found = scored(answers, exam)
    assert found.difference(("theta0",), "nll")[3:] == (0.0, 0.0, 0.0)
    names, y = ("M", "theta0"), exam.labels[TEST]
    for size in (1, 2, 3, 4):
        apart = found.difference(names, "nll", size)
        expected = found.get(names, "nll", members=size).value - found.get(("theta0",), "nll", members=size).value
        assert apart.value == pytest.approx(expected)
    each = [answers[own].of(exam.parts[TEST]).probabilities.mean(0)[range(40), y].log().neg() for own in (names, PLAIN)]
    by_image = (each[0] - each[1]).numpy()
    assert found.difference(names, "nll").image_error == pytest.approx(by_image.std(ddof=1) / np.sqrt(40))


def test_errors_over_members_are_those_of_a_mean_for_single_networks(exam, answers):
    found = scored(answers, exam)
    p, y = answers[PLAIN].of(exam.parts[TEST]).probabilities, exam.labels[TEST]
    each = p[:, range(40), y].log().neg().mean(1).numpy()
    assert found.get(PLAIN, "nll", members=1).member_error == pytest.approx(each.std(ddof=1) / 2)
    without = [p[[j for j in range(4) if j != k]].mean(0)[range(40), y].log().neg().mean() for k in range(4)]
    assert found.get(PLAIN, "nll").member_error == pytest.approx(jackknife_error(np.array(without)))
