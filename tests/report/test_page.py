"""The report: its numbers are the library's own, the page is safe and whole, and it works in a browser."""

from __future__ import annotations

import base64
import inspect
import json
import math
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import wherefrom as wf
from browser import Page
from conftest import mlp, training
from wherefrom.likelihoods.views.classes import Classes
from wherefrom.likelihoods.views.quantity import Quantity
from wherefrom.predictive.class_scores import auroc
from wherefrom.report import words
from wherefrom.report.content import content
from wherefrom.report.page import embedded, render, report, write

NASTY = "</script><b>&amp;'\"{{SCRIPT}}"


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[wf.Posterior, np.ndarray, np.ndarray]]:
    """Small posteriors of every kind, and rows that they were not trained on."""
    torch.set_num_threads(1)
    random = np.random.default_rng(3)
    x = random.normal(size=(180, 4))
    y = 3 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * random.normal(size=180)
    pairs = np.stack([y, 1000 + 50 * x[:, 2] + random.normal(size=180)], 1)
    labels = np.array(["one", "two", "three"])[np.digitize(y, [-1, 1])]
    noisy, open_choices = (
        wf.Regression(noise="fit"),
        [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=3)), wf.Dropout()],
    )

    def trained(target: np.ndarray, over: list, **settings: object) -> tuple[wf.Posterior, np.ndarray, np.ndarray]:
        posterior = wf.marginalise(training(**settings), (x[:110], target[:110]), over=over, progress=False)
        return posterior, x[110:], target[110:]

    return {
        "quantity": trained(y, open_choices, likelihood=noisy),
        "pair": trained(pairs, [wf.InitialCondition(3), wf.BatchOrder(2)], model=mlp(outputs=2), likelihood=noisy),
        "classes": trained(labels, open_choices, model=mlp(outputs=3), likelihood=wf.Classification()),
        "rare": trained(
            np.where(y > 3, "ill", "well"), open_choices, model=mlp(outputs=2), likelihood=wf.Classification()
        ),
        "alone": trained(y, []),
        "one class network": trained(labels, [], model=mlp(outputs=3), likelihood=wf.Classification()),
    }


@pytest.fixture(scope="module")
def documents(made) -> dict[str, dict]:
    more = {
        "quantity": {"unit": "mmHg", "columns": [NASTY, "b", "c", "d"], "title": NASTY, "notes": [NASTY]},
        "classes": {"outside": np.arange(70) % 7 == 0},
        "alone": {"outside": np.linspace(0, 1, 70)},
    }
    return {name: content(*given, samples=20, **more.get(name, {})) for name, given in made.items()}


def panel(view: dict, section: str, title: str) -> dict:
    (found,) = [one for one in view[section]["panels"] if one.get("title") == title]
    return found


# ---------------------------------------------------------------------- numbers


def test_scores_and_calibration_are_those_of_the_prediction(made, documents):
    posterior, x, y = made["quantity"]
    prediction, (view,) = posterior.predict(x, 20), documents["quantity"]["views"]
    expected = {"nll": prediction.nll(y), "rmse": prediction.rmse(y), "crps": prediction.crps(y)}
    explained = 1 - prediction.rmse(y) ** 2 / np.var(y)
    assert view["scores"] == pytest.approx({**expected, "coverage": prediction.coverage(y, 0.95), "r2": explained})
    levels = panel(view, "calibration", "Coverage by level")
    assert levels["ys"] == pytest.approx([prediction.coverage(y, level) for level in levels["xs"]], abs=1e-4)
    assert sum(panel(view, "calibration", "Where the truth falls")["stacks"][0]) == len(y)
    low, high = prediction.interval(0.95)
    assert view["points"]["is_missed"] == [int(not a <= b <= c) for a, b, c in zip(low, y, high, strict=True)]
    off = (torch.from_numpy(y) - prediction.mean) / prediction.std
    assert view["points"]["off"] == pytest.approx(off.tolist(), rel=1e-2)
    assert view["points"]["is_off"] == (off.abs() > 1.96).int().tolist()
    assert view["points"]["variance"] == pytest.approx(prediction.variance.tolist(), rel=1e-4)
    assert view["points"]["mean"] == pytest.approx(prediction.mean.tolist(), rel=1e-4)
    assert view["points"]["low"] == pytest.approx(low.tolist(), rel=1e-4)
    assert view["points"]["high"] == pytest.approx(high.tolist(), rel=1e-4)


def test_sources_are_those_of_the_prediction(made, documents):
    posterior, x, _ = made["quantity"]
    sources, found = posterior.predict(x, 20).sources(), documents["quantity"]["views"][0]["sources"]
    assert [part["name"] for part in found["overall"]] == list(sources.names)
    for part in found["overall"]:
        assert part["share"] == pytest.approx(sources.overall[part["name"]].share)
        assert part["amount"] == pytest.approx(sources.overall[part["name"]].variance)
        assert found["shares"][part["name"]] == pytest.approx(sources[part["name"]].tolist(), abs=1e-4)


def test_every_combination_is_scored_as_its_own_posterior(made, documents):
    posterior, x, y = made["quantity"]
    table = documents["quantity"]["views"][0]["combinations"]
    assert len(table["rows"]) == 2**3
    for row in table["rows"]:
        part = posterior.marginalising(*row["on"])
        assert row["scores"]["nll"] == pytest.approx(part.predict(x, 20).nll(y))
        assert row["members"] == len(part)
        assert row["seconds"] == pytest.approx(sum(c.trained.seconds for c in part.mixture))
    assert [row["is_all"] for row in table["rows"]] == [False] * 7 + [True]


def test_combinations_that_cannot_be_scored_are_told(made, tmp_path):
    posterior, x, y = made["quantity"]
    posterior.save(tmp_path)
    loaded = wf.load(tmp_path, model=mlp())  # without the rows on which parts of it would fit their noise
    table = content(loaded, x, y, samples=8)["views"][0]["combinations"]
    assert len(table["rows"]) == 1
    assert table["left_out"] == 7
    assert "not fitted" in table["why"]


def test_of_very_many_variables_only_some_subsets_are_tried():
    from wherefrom.report.content import _subsets

    assert len(_subsets("abc")) == 8
    assert len(_subsets("abcdefgh")) == 1 + 8 + 8 + 1


def test_outputs_have_views_of_their_own(made, documents):
    posterior, x, y = made["pair"]
    prediction, views = posterior.predict(x, 20), documents["pair"]["views"]
    assert [view["name"] for view in views] == ["y 0", "y 1"]
    assert sum(view["scores"]["nll"] for view in views) == pytest.approx(prediction.nll(y))
    for j, view in enumerate(views):
        error = prediction.mean[:, j] - torch.from_numpy(y[:, j])
        assert view["scores"]["rmse"] == pytest.approx(float(error.square().mean().sqrt()))
        for part in view["sources"]["overall"]:
            assert part["share"] == pytest.approx(prediction.sources().overall_of(j)[part["name"]].share)


def test_scores_of_classes_are_those_of_the_prediction(made, documents):
    posterior, x, y = made["classes"]
    prediction, (view,) = posterior.predict(x, 20), documents["classes"]["views"]
    expected = {"nll": prediction.nll(y), "accuracy": prediction.accuracy(y), "brier": prediction.brier(y)}
    ranks = [
        auroc(1 - prediction.probabilities[y == c, k], 1 - prediction.probabilities[y != c, k])
        for k, c in enumerate(prediction.classes)
    ]
    assert view["scores"] == pytest.approx({**expected, "ece": prediction.ece(y), "auc": np.mean(ranks)})
    mistakes = panel(view, "truth", "Mistakes")["counts"]
    assert sum(map(sum, mistakes)) == len(y)
    assert sum(line[k] for k, line in enumerate(mistakes)) == round(prediction.accuracy(y) * len(y))
    bins, shown = prediction.reliability(y, bins=10), panel(view, "calibration", "Is confidence justified?")
    kept = bins.count > 0
    assert shown["xs"] == pytest.approx(bins.confidence[kept].tolist(), abs=1e-4)
    assert shown["ys"] == pytest.approx(bins.accuracy[kept].tolist(), abs=1e-4)
    assert shown["sizes"] == pytest.approx((bins.count[kept] / bins.count.sum()).tolist(), abs=1e-3)
    wrong, right = panel(view, "calibration", "How confident it is")["stacks"]
    assert (sum(wrong), sum(right)) == (len(y) - sum(right), round(prediction.accuracy(y) * len(y)))
    assert view["points"]["doubt"] == pytest.approx((prediction.entropy / np.log(3)).tolist(), rel=1e-4)
    assert view["points"]["is_wrong"] == [int(a != b) for a, b in zip(prediction.predicted, y, strict=True)]


def test_doubt_about_classes_is_overlap_and_disagreement_by_its_sources(made, documents):
    posterior, x, _ = made["classes"]
    prediction, found = posterior.predict(x, 20), documents["classes"]["views"][0]["sources"]
    overlap = float(prediction.expected_entropy.mean())
    entropy = overlap + float(prediction.mutual_information.mean())
    shares = {part["name"]: part["share"] for part in found["overall"]}
    assert shares["overlap"] == pytest.approx(overlap / entropy)
    assert sum(shares.values()) == pytest.approx(1)
    of_disagreement = prediction.sources(of="mutual_information").overall
    for name, part in of_disagreement.items():
        assert shares[name] == pytest.approx(part.share * (1 - overlap / entropy))
    np.testing.assert_allclose(np.sum([*found["shares"].values()], axis=0), 1, atol=1e-3)


def test_one_network_without_noise_has_no_density_and_no_sources(documents):
    (view,) = documents["alone"]["views"]
    assert view["scores"]["nll"] is None
    assert view["sources"] == {"overall": [], "shares": {}, "problem": None}
    assert "Leave a choice open" in view["advice"]["lead"]
    assert set(view["points"]["off"]) == {None}
    assert set(view["points"]["is_off"]) == {0}
    (view,) = documents["one class network"]["views"]
    assert {part["name"]: part["share"] for part in view["sources"]["overall"]} == pytest.approx({"overlap": 1.0})


def test_a_rare_class_has_alerts_and_a_decision_curve(made, documents):
    posterior, x, y = made["rare"]
    (view,) = documents["rare"]["views"]
    risk, is_ill = posterior.predict(x, 20).probabilities[:, 0].numpy(), y == "ill"
    assert 0 < is_ill.mean() < 0.2
    curve = panel(view, "truth", "Is it worth acting on?")
    for k in (0, 20, 49):
        odds = curve["xs"][k] / (1 - curve["xs"][k])
        alerted = risk >= curve["xs"][k]
        benefit = (alerted & is_ill).mean() - odds * (alerted & ~is_ill).mean()
        assert curve["ys"][k] == pytest.approx(max(-0.25 * is_ill.mean(), benefit), abs=1e-4)
        of_all = is_ill.mean() - odds * (~is_ill).mean()
        assert curve["best"][k] == pytest.approx(max(-0.25 * is_ill.mean(), of_all), abs=1e-4)
    alerts = panel(view, "truth", "Alerts for ill")
    assert alerts["items"][0]["threshold"] == 0.01
    assert view["rows"]["sort"] == "risk"
    assert view["points"]["risk"] == pytest.approx(risk.tolist(), abs=1e-4)
    assert view["baseline"]["scores"]["average_precision"] == pytest.approx(is_ill.mean())
    (three,) = documents["classes"]["views"]
    assert three["rows"]["sort"] == "doubt"
    assert "average_precision" not in three["scores"]


def test_a_calibrated_run_is_compared_with_what_it_was_before(made):
    posterior, x, y = made["quantity"]
    calibrated = posterior.calibrated("variance", (x[:30], y[:30]))
    (view,) = content(calibrated, x[30:], y[30:], samples=20)["views"]
    assert view["before"]["scores"]["nll"] == pytest.approx(posterior.predict(x[30:], 20).nll(y[30:]))
    assert view["scores"]["nll"] == pytest.approx(calibrated.predict(x[30:], 20).nll(y[30:]))
    posterior, x, y = made["pair"]
    conformal = posterior.calibrated("conformal", (x[:40], y[:40]))
    for j, view in enumerate(content(conformal, x[40:], y[40:], samples=20)["views"]):
        low, _ = conformal.predict(x[40:], 20).interval(0.95)
        assert view["points"]["low"] == pytest.approx(low[:, j].tolist(), rel=1e-4)
    few = posterior.calibrated("conformal", (x[:5], y[:5]))  # too few for an interval of 95%
    assert content(few, x[40:], y[40:], samples=20)["views"][0]["scores"]["coverage"] is not None


def test_many_rows_are_thinned_and_scored_all_the_same(made):
    posterior, *_ = made["quantity"]
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 4))
    y = 3 * x[:, 0]
    document = content(posterior, x, y, samples=4)
    prediction = posterior.predict(x, 4)
    names, drawn = document["rows"]["names"], document["rows"]["drawn"]
    assert document["rows"]["count"] == 4000
    assert len(drawn) < len(names) <= 1000
    assert str(int(prediction.std.argmax())) in names
    assert document["views"][0]["scores"]["rmse"] == pytest.approx(prediction.rmse(y))
    assert len(render(document)) < 1_500_000


def test_rows_that_were_trained_on_are_told(made):
    posterior, x, y = made["alone"]
    again = posterior.rows
    assert any("too good" in note for note in content(posterior, again.x, again.y.flatten())["cautions"])
    mixed = np.concatenate([again.x.numpy()[:30], x]), np.concatenate([again.y.flatten().numpy()[:30], y])
    assert any("30% of these rows were trained on" in note for note in content(posterior, *mixed)["cautions"])
    assert not content(posterior, x, y)["cautions"]


def test_rows_that_were_trained_on_are_told_with_those_that_were_held_out(made):
    posterior = made["quantity"][0]
    random = np.random.default_rng(3)  # as it was trained
    x = random.normal(size=(180, 4))
    y = 3 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * random.normal(size=180)
    forgetful = replace(posterior, fold=replace(posterior.fold, rows=None))  # as after wf.load
    assert any("too good" in note for note in content(forgetful, x[:110], y[:110], samples=5)["cautions"])


def test_names_are_taken_from_frames_and_checked(made):
    pandas = pytest.importorskip("pandas")
    posterior, x, y = made["quantity"]
    people = [f"person {k}" for k in range(len(x))]
    frame = pandas.DataFrame(x, columns=list("abcd"), index=people)
    document = content(posterior, frame, pandas.Series(y, index=people, name="pressure"), samples=4)
    assert document["rows"]["names"] == people
    assert [column["name"] for column in document["data"]["columns"]] == list("abcd")
    with pytest.raises(ValueError, match="3 names for 4 columns"):
        content(posterior, x, y, columns="abc", samples=4)
    with pytest.raises(ValueError, match="2 names for 70 rows"):
        content(posterior, x, y, rows="ab", samples=4)
    with pytest.raises(ValueError, match="one flag or score for each of 70 rows"):
        content(posterior, x, y, outside=[True], samples=4)


def voice(kind: type = Quantity, noise: str | None = "fit", **settings: object) -> words.Voice:
    """How a page speaks of y: of a quantity with this noise, or of classes."""
    plain = SimpleNamespace(
        conformal=None, read_as="a Gaussian", doubt_of="{name}", noise_of="Regression", widened_by="variance"
    )
    output = Quantity(plain, None, "y", noise=noise) if kind is Quantity else kind(None, None, "y")
    return words.Voice(words=output.words, **settings)


def view_of(shares: dict[str, float], error: float = 0.01, word: str = "about right") -> dict:
    overall = [
        {"name": name, "share": share, "share_error": error, "is_noise": name in ("noise", "overlap")}
        for name, share in shares.items()
    ]
    verdict = {"word": word, "say": "The 95% intervals contain 80% of the truth", "observed": 0.8, "expected": 0.95}
    baseline = {"scores": {"rmse": 2.0131}, "gain": {"word": "better"}}
    return {
        "sources": {"overall": overall, "problem": None},
        "verdict": verdict,
        "combinations": {"rows": []},
        "scores": {"rmse": 2.0118},
        "baseline": baseline,
        "groups": [],
    }


def test_advice_follows_the_largest_source():
    def lead(shares: dict[str, float], **settings: bool) -> str:
        return words.advice(view_of(shares), voice(**settings))["lead"]

    assert lead({"theta0": 0.1, "noise": 0.9}) == "Look for what else explains y"
    assert lead({"D": 0.8, "noise": 0.2}) == "Collect more rows"
    assert "Drop less" in lead({"F": 0.8, "noise": 0.2})
    assert "architecture" in lead({"F": 0.8, "noise": 0.2}, has_families=True)
    near = words.advice(view_of({"t": 0.5, "theta0": 0.48}, 0.05), voice())
    assert any("Which of the two is larger is unclear" in text for text in near["say"])
    unsure = words.advice(view_of({"t": 0.9, "theta0": 0.1}, 0.3), voice())
    assert any("few draws" in text for text in unsure["say"])


PYTHON = re.compile(r"posterior\.|wf\.|over=|noise=|samples=|\(data\)|, data\)")


def all_advice(**settings: object) -> list[str]:
    """Whatever the rules can say of a source, and of a run that is too sure, or groups of it."""
    found = [*words.advice(view_of({}), voice(**settings))["say"]]
    group = {"name": "one", "observed": 0.5, "expected": 0.9, "word": "too sure", "say": "half are right"}
    for source in ("noise", "overlap", "theta0", "order", "theta0+order", "t", "h", "gamma", "D", "M", "F", "t x F"):
        for word, kind in (("too sure", Quantity), ("too careful", Quantity), ("too sure", Classes)):
            view = view_of({source: 0.8, "t": 0.2}, 0.3, word) | {"groups": [group]}
            told = words.advice(view, voice(kind, **settings))
            found += [told["lead"], *told["say"]]
    return found


def test_to_those_who_use_the_command_no_advice_speaks_python():
    options = set(re.findall(r"--[a-z-]+", " ".join(all_advice(speaks="command"))))
    text = " ".join(all_advice(speaks="command") + all_advice(speaks="command", noise=None))
    assert not PYTHON.search(text)
    assert not re.search(r"[{}]", text)
    assert {"--draws", "--over", "--recipe", "--epochs", "--calibrate", "--noise"} <= options
    assert PYTHON.search(" ".join(all_advice()))
    assert "--" not in " ".join(all_advice())
    with pytest.raises(ValueError, match='"python", "command" or "fit"'):
        words.Voice(speaks="german")


def test_to_those_who_use_fit_advice_names_its_arguments():
    text = " ".join(all_advice(speaks="fit") + all_advice(speaks="fit", noise=None))
    assert not re.search(r"--|[{}]|posterior|wf\.", text)
    arguments = set(inspect.signature(wf.fit).parameters)
    named = set(re.findall(r"\b([a-z_]+)=", " ".join(fit for _, _, fit in words._HOW.values())))
    assert {"draws", "over", "recipe", "epochs", "calibrate", "noise"} <= named <= arguments


def test_every_option_that_is_named_is_one_of_the_command():
    from typer.main import get_command

    from wherefrom.cli import app

    known = {name for option in get_command(app).commands["fit"].params for name in option.opts}
    named = set(re.findall(r"--[a-z-]+", " ".join(command for _, command, _ in words._HOW.values())))
    assert named
    assert named <= known
    from wherefrom.tables.plan import variables

    assert variables(",".join(words._TRY.values()), None, None, lr=0.01)


def test_what_was_not_tried_is_named_as_by_advise():
    from wherefrom.predictive import advice

    assert set(words._TRY) == set(advice.TRY)


def test_a_calibrated_run_is_not_told_to_be_calibrated():
    view = view_of({"noise": 1.0}, word="too sure")
    (_, text) = words.advice(view, voice(speaks="command", is_calibrated=True))["say"]
    assert "calibrated already" in text
    assert "--held-out" in text
    assert "--calibrate" not in text


@pytest.mark.parametrize("kind", ["quantity", "pair", "classes"])
def test_what_further_training_would_buy_is_said_for_either(made, documents, kind):
    posterior, x, y = made[kind]
    by_command = content(posterior, x, y, samples=20, speaks="command")
    assert by_command["further"]["rows"] == documents[kind]["further"]["rows"]
    for document, command in ((documents[kind], False), (by_command, True)):
        text = " ".join([*document["further"]["say"], *document["views"][0]["advice"]["say"]])
        assert not re.search(r"\bnats\b|theta0\b(?!=)", text if command else text.replace("theta0=", ""))
        assert bool(PYTHON.search(text)) != command
        assert ("--over" in text) == command


def test_further_training_is_told_by_its_largest_gain(made):
    """The numbers are those of posterior.advise, whichever it recommends."""
    posterior, x, _ = made["pair"]
    found = posterior.advise(x, samples=1)
    best, now = "theta0", replace(found.now, mean_error=0.3)
    bought = [each for each in found.options if each.variable == best and each.draws][-1]
    found = replace(found, best=best, tied=("order",), now=now)
    draws = found.draws[best] + bought.draws
    text = words.further(found, voice(speaks="command"), 20)[0]
    assert f"--draws {draws}, or theta0={draws} in --over" in text
    assert f"{bought.trainings} further networks" in text
    assert "order of the batches might do as well" in text
    assert f"posterior.extend(theta0={bought.draws})" in words.further(found, voice(), 20)[0]
    wide = replace(found, now=replace(now, mean_error=0.01, variance_error=0.4))
    text = words.further(wide, voice(), 20)[0]
    assert "would move by about 1% of its standard deviation. More would mainly help to estimate how wide" in text
    assert f"from 40% to {100 * bought.variance_error:.2g}%" in text
    assert "--samples 200" in words.further(replace(found, best="samples"), voice(speaks="command"), 20)[0]
    enough = replace(found, best=None, now=replace(now, mean_error=0.004, variance_error=0.0))
    assert (
        "not needed: with very many of them, a typical prediction would move by about 0.4%"
        in words.further(enough, voice(), 20)[0]
    )


def test_every_score_has_its_error_and_one_of_no_model(made, documents):
    posterior, x, y = made["quantity"]
    prediction, (view,) = posterior.predict(x, 20), documents["quantity"]["views"]
    assert view["errors"]["nll"]["error"] == pytest.approx(float(prediction.nll(y, by_row=True).std()) / len(y) ** 0.5)
    assert all(sure["error"] is not None for sure in view["errors"].values())
    assert view["baseline"]["scores"]["rmse"] == pytest.approx(np.std(y))
    assert view["baseline"]["gain"]["word"] == "better"
    for row in view["combinations"]["rows"]:
        assert set(row["errors"]) == set(row["scores"])
    (view,) = documents["classes"]["views"]
    shares = np.unique(made["classes"][2], return_counts=True)[1] / 70
    assert view["baseline"]["scores"]["nll"] == pytest.approx(-(shares * np.log(shares)).sum())
    assert view["baseline"]["scores"]["accuracy"] == pytest.approx(shares.max())
    assert view["baseline"]["gain"]["word"] == "better"


def test_a_model_that_is_no_better_than_none_is_told_so(made):
    posterior, x, y = made["quantity"]
    (view,) = content(posterior, x, np.random.default_rng(0).permutation(y), samples=4, target="dose")["views"]
    assert view["baseline"]["gain"]["word"] == "worse"
    assert view["advice"]["lead"] == "First make it better than no model"
    assert "worse than always predicting the mean dose (RMSE" in view["advice"]["say"][0]
    posterior, x, y = made["classes"]
    (view,) = content(posterior, x, np.random.default_rng(0).permutation(y), samples=4)["views"]
    assert "class frequencies (NLL" in view["advice"]["say"][0]
    unknown = view_of({"noise": 1.0}) | {"baseline": {"scores": {"rmse": 2.0131}, "gain": {"word": "unknown"}}}
    assert "(RMSE 2.012 against 2.013; lower is better)" in words.advice(unknown, voice())["say"][0]


def test_few_rows_are_told_to_tell_little(made):
    posterior, x, y = made["classes"]
    assert not any("not reliable" in text for text in content(posterior, x[:30], y[:30], samples=4)["cautions"])
    document = content(posterior, x[:4], y[:4], samples=4)
    assert any("Only 4 rows are scored here, which is not reliable" in text for text in document["cautions"])
    low, high = document["views"][0]["errors"]["accuracy"]["interval"]
    assert high - low > 0.4


def test_groups_that_are_off_are_found_and_told(made):
    posterior, x, y = made["quantity"]
    random = np.random.default_rng(1)
    x = random.normal(size=(1500, 4))
    prediction = posterior.predict(x, 4)
    mean, (low, high) = prediction.mean.numpy(), (end.numpy() for end in prediction.interval(0.95))
    # The interval's half width is one standard deviation of y where the mean is high, and ten elsewhere.
    wide = (high - low) / 2 * np.where(mean > np.quantile(mean, 0.8), 1.0, 0.1)
    y = mean + wide * random.normal(size=1500)
    document = content(posterior, x, y, samples=4, target="dose", speaks="command")
    groups = document["views"][0]["groups"]
    assert [group["count"] for group in groups] == [300] * 5
    assert groups[-1]["word"] == "too sure"
    is_high = mean > np.quantile(mean, 0.8)
    assert groups[-1]["observed"] == ((y >= low) & (y <= high))[is_high].mean()
    one_sigma = math.erf(math.sqrt(0.5))
    assert abs(groups[-1]["observed"] - one_sigma) < 4 * math.sqrt(one_sigma * (1 - one_sigma) / 300)
    assert {group["observed"] for group in groups[:-1]} == {1.0}
    (text,) = [text for text in document["views"][0]["advice"]["say"] if "Where dose is predicted to be" in text]
    assert "--noise predicted" in text
    view = document["views"][0]
    already = words.advice(view, voice(noise="predicted", target="dose", speaks="command"))["say"]
    assert not any("--noise predicted" in text for text in already)
    assert content(posterior, x[:40], y[:40], samples=4)["views"][0]["groups"] == []


def test_groups_of_classes_are_those_that_are_answered(made, documents):
    posterior, x, y = made["classes"]
    prediction, (view,) = posterior.predict(x, 20), documents["classes"]["views"]
    for group in view["groups"]:
        own = prediction.predicted == group["name"]
        assert group["count"] == own.sum()
        assert group["observed"] == pytest.approx((y[own] == group["name"]).mean())
        assert group["expected"] == pytest.approx(float(prediction.confidence[torch.from_numpy(own)].mean()))
    off = {"name": "two", "count": 50, "observed": 0.5, "expected": 0.9, "word": "too sure"}
    off["say"] = Classes(prediction, y, "y")._about_group(off)
    text = words.advice(view | {"groups": [off]}, voice(Classes))["say"]
    assert any("Of 50 answers 'two', 50% are right, and 90% should be: too sure there" in one for one in text)


def test_rows_beyond_the_edge_are_counted_and_listed(made):
    posterior, *_ = made["quantity"]
    x = np.random.default_rng(0).normal(size=(4000, 4))
    far = np.linspace(0, 0.9, 4000)
    far[[7, 1234, 3333]] = 1.5, 2.0, 1e6
    document = content(posterior, x, 3 * x[:, 0], samples=4, outside=far, edge=1.0)
    assert document["outside"]["edge"] == 1.0
    assert document["views"][0]["outside"]["far"] == 3
    assert any("3 rows are outside" in text for text in document["views"][0]["advice"]["say"])
    assert {"7", "1234", "3333"} <= set(document["rows"]["names"])
    assert content(posterior, x[:50], x[:50, 0], samples=4, outside=far[:50])["outside"]["edge"] is None
    with pytest.raises(ValueError, match="give these scores, too"):
        content(posterior, x[:50], x[:50, 0], samples=4, edge=1.0)


def test_all_words_of_the_scores_are_explained(documents):
    for kind, document in documents.items():
        for view in document["views"]:
            assert set(view["scores"]) <= set(document["glossary"])
            assert set(view["scores"]) <= set(document["scores"])
        text = " ".join(" ".join(entry) for entry in document["glossary"].values())
        assert "{" not in text
        for word in (
            "NLL",
            "Share",
            "Outside, distance",
            *(("AUC", "ECE", "Brier", "Overlap") * ("class" in kind)),
        ):
            assert word in text


def test_the_target_has_its_own_name(made):
    posterior, x, y = made["quantity"]
    document = content(posterior, x, y, samples=4, target="length of stay")
    (view,) = document["views"]
    assert view["name"] == "length of stay"
    assert view["sources"]["overall"][-1]["meaning"] == "not explained by the inputs"
    assert document["data"]["targets"][0]["name"] == "length of stay"
    assert not re.search(r"\by\b", " ".join([view["advice"]["lead"], *view["advice"]["say"]]))
    posterior, x, y = made["classes"]
    assert content(posterior, x, y, samples=4, target="outcome")["views"][0]["name"] == "outcome"
    posterior, x, y = made["pair"]
    with pytest.raises(ValueError, match="target names one output, and there are 2"):
        content(posterior, x, y, samples=4, target="outcome")


# ---------------------------------------------------------------------- the page


def test_pages_hold_their_document_and_nothing_from_elsewhere(documents):
    for document in documents.values():
        page = render(document)
        held = re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.S)
        assert json.loads(held.group(1)) == document
        # Names of formats, and the address of a licence: the page's policy lets nothing be fetched.
        assert {url.split("/")[2] for url in re.findall(r"https?://[^\"'\s)]*", page)} == {
            "www.w3.org",
            "www.apache.org",
        }
        assert "default-src 'none'" in page
        assert not re.search(r"<link[^>]*href=\"(?!data:)|<(script|img|iframe)[^>]*src=|@import|url\((?!#|\"#)", page)
        assert page.count("<script") == 2 == page.count("</script>")


def test_names_cannot_leave_the_document():
    page = render({"title": NASTY, "name": NASTY})
    assert "<b>" not in page.split("<body>")[0] + embedded({"name": NASTY})
    assert json.loads(embedded({"name": NASTY + "\u2028"})) == {"name": NASTY + "\u2028"}
    with pytest.raises(ValueError, match="JSON compliant"):
        embedded({"name": float("nan")})


def test_a_page_is_written_whole(made, tmp_path):
    posterior, x, y = made["quantity"]
    path = report(posterior, (x, y), tmp_path / "new" / "report.html", samples=4, title="Pressure")
    assert "<title>Pressure</title>" in path.read_text()
    with pytest.raises(ValueError, match="JSON compliant"):
        write(path, {"bad": float("inf")})
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
    rows = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    assert report(posterior, rows, path, samples=4) == path


def test_colours_stand_out_from_their_background():
    css = resources.files("wherefrom.report").joinpath("assets", "style.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in css.split('[data-theme="dark"]')[:2])
    for theme in (light, dark):
        for ground in ("bg", "panel"):
            for text in ("ink", "soft", "accent", "good", "bad"):
                assert contrast(theme[text], theme[ground]) >= 4.5, text
            for part in ("c0", "c1", "c2", "c3", "c4", "c5", "noise"):
                assert contrast(theme[part], theme[ground]) >= 3, part


def contrast(one: str, other: str) -> float:
    """By WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def written(documents, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write(folder / f"{name}.html", document) for name, document in documents.items()}


KINDS = ["quantity", "pair", "classes", "rare", "alone", "one class network"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_it_opens_without_complaint_and_fits(browser, written, kind, width, dark):
    page = browser.open(written[kind], width, dark=dark)
    links = page.evaluate("[...document.querySelectorAll('nav a')].map(e => e.textContent)")
    assert links == ["Summary", "Rows", "How far to trust it", "Technical"]
    assert page.evaluate("[...document.querySelectorAll('main > section')].map(e => e.id)") == [
        "summary",
        "rows",
        "trust",
    ]
    assert page.evaluate("document.getElementById('technical').open") is False
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    spilling = "[...document.querySelectorAll('.card')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(spilling) == 0
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert page.complaints == []
    assert {url.split(":")[0] for url in page.requests} <= {"file", "data"}


def test_names_are_shown_as_they_are(browser, written):
    page = browser.open(written["quantity"])
    assert page.evaluate("document.querySelector('h1').textContent") == NASTY
    assert page.evaluate("document.querySelector('.note').textContent") == NASTY
    assert page.evaluate("document.title") == NASTY


def column(page: Page, place: int) -> list[float]:
    texts = page.evaluate(f"[...document.querySelectorAll('.rows tbody tr')].map(r => r.cells[{place}].textContent)")
    return [float(text.replace("−", "-").replace(",", "")) for text in texts]


def test_a_click_sorts_and_so_does_a_key(browser, written):
    page = browser.open(written["quantity"])
    assert (found := column(page, 4)) == sorted(found, reverse=True)  # by doubt at first
    head = "document.querySelectorAll('.rows th button')[1]"
    page.click(head)
    largest = column(page, 1)
    assert largest == sorted(largest, reverse=True)
    page.evaluate(f"{head}.focus()")
    page.press("Enter")
    smallest = column(page, 1)
    assert smallest == sorted(smallest)
    assert smallest[0] < largest[-1]
    assert page.evaluate(f"{head}.parentElement.getAttribute('aria-sort')") == "ascending"
    assert page.evaluate("document.querySelectorAll('.rows th[aria-sort]').length") == 1


def test_rows_sort_by_the_share_of_a_source_and_open(browser, written, documents):
    page = browser.open(written["quantity"])
    page.evaluate(
        "(() => { const s = document.querySelector('#rows select');"
        " s.value = [...s.options].find(o => o.text === 'share of moment training stops').value;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    first = page.evaluate("document.querySelector('.rows tbody .open').textContent")
    shares = documents["quantity"]["views"][0]["sources"]["shares"]["t"]
    assert first == str(int(np.argmax(shares)))
    page.click("document.querySelector('.rows tbody .open')")
    text = page.evaluate("document.querySelector('.rows tr.detail').textContent")
    assert "off by" in text
    assert NASTY in text
    row = int(np.argmax(shares))
    cells = documents["quantity"]["data"]["values"]
    values = page.evaluate("[...document.querySelectorAll('.rows tr.detail .values dd')].map(e => e.textContent)")
    assert sorted(values) == sorted(column["cells"][row] for column in cells)


def test_a_hover_shows_values(browser, written, documents):
    page = browser.open(written["quantity"])
    page.hover("document.querySelector('#trust .picture .hits circle')")
    text = page.evaluate("document.getElementById('tip').textContent")
    assert page.evaluate("document.getElementById('tip').hidden") is False
    assert re.search(r"Row \d+truth.*prediction.*95% interval.*± std", text)
    page.hover("document.querySelector('.hero .bar span:last-child')")
    noise = documents["quantity"]["views"][0]["sources"]["overall"][-1]
    assert f"share{100 * noise['share']:.1f}%" in page.evaluate("document.getElementById('tip').textContent")


def test_plots_can_be_read_with_the_keyboard(browser, written):
    page = browser.open(written["classes"])
    assert page.evaluate("document.querySelectorAll('#technical .picture').length") == 0  # drawn when it is opened
    page.click("document.querySelector('nav a[href=\"#technical\"]')")
    page.wait_for("document.querySelectorAll('#technical .picture').length > 3")
    for section in ("trust", "calibration", "learning", "doubt"):
        page.evaluate(f"document.querySelector('#{section} .plot svg[tabindex]').focus()")
        page.press("ArrowRight")
        page.press("ArrowRight")
        assert page.evaluate("document.getElementById('tip').hidden") is False, section
        assert page.evaluate("document.getElementById('live').textContent"), section
        page.press("Escape")
        assert page.evaluate("document.getElementById('tip').hidden") is True
    assert page.complaints == []


def test_outputs_and_colours_can_be_chosen(browser, written, documents):
    page = browser.open(written["pair"])
    page.evaluate(
        "(() => { const s = document.getElementById('output'); s.value = 1; s.dispatchEvent(new Event('change')); })()"
    )
    rmse = documents["pair"]["views"][1]["scores"]["rmse"]
    assert f"{rmse:.3g}"[:3] in page.evaluate("document.querySelector('.hero').textContent")
    shown = []
    for _ in range(3):
        page.click("document.getElementById('theme')")
        shown.append(page.evaluate("document.documentElement.dataset.theme"))
    assert shown == ["light", "dark", "light"]
    assert page.complaints == []


def open_technical(page: Page) -> None:
    """Unfold it, and wait for its plots, which move what is below them."""
    page.click("document.querySelector('#technical > summary')")
    page.wait_for("[...document.querySelectorAll('#technical .plot')].every(e => e.querySelector('.picture'))")


def text_of(page: Page, selector: str) -> str:
    return page.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")


@pytest.mark.parametrize("kind", ["quantity", "classes", "pair"])
def test_the_first_screen_is_in_plain_words(browser, made, tmp_path, kind):
    posterior, x, y = made[kind]
    named = {} if kind == "pair" else {"target": "length of stay"}
    path = report(posterior, (x, y), tmp_path / "page.html", samples=20, speaks="command", **named)
    page = browser.open(path)
    text = text_of(page, "header") + text_of(page, ".hero")
    assert "initial weights" in text
    assert not re.search(r"\bnats\b|posterior\.|wf\.", text)
    if kind != "pair":
        assert "length of stay" in text
        assert not re.search(r"\by\b", text)
    page.hover("[...document.querySelectorAll('.hero .term')].find(e => e.textContent.includes('NLL'))")
    assert "Negative log-likelihood" in text_of(page, "#tip")
    open_technical(page)
    assert page.evaluate("document.getElementById('glossary').open") is False
    page.click("document.querySelector('#glossary summary')")
    assert "Negative log-likelihood" in text_of(page, "#glossary")
    assert page.complaints == []


def test_scores_are_shown_with_their_errors_and_no_model(browser, written, documents):
    page = browser.open(written["quantity"])
    rmse, sure = (documents["quantity"]["views"][0][part]["rmse"] for part in ("scores", "errors"))
    line = page.evaluate(
        "[...document.querySelectorAll('.hero .scores tr')].find(r => r.innerText.includes('RMSE')).innerText"
    )
    value, error, without = map(float, re.search(r"([\d.]+) ± ([\d.]+)\s+([\d.]+)", line).groups())
    assert value == pytest.approx(rmse, abs=0.01)
    assert error == pytest.approx(sure["error"], rel=0.1)
    assert without == pytest.approx(documents["quantity"]["views"][0]["baseline"]["scores"]["rmse"], abs=0.01)
    open_technical(page)
    page.hover("document.querySelector('.combinations tbody td:nth-child(2) span')")
    assert "±" in text_of(page, "#tip")


def test_numbers_that_differ_are_shown_to_differ(browser, made, tmp_path):
    posterior, x, y = made["quantity"]
    document = content(posterior.calibrated("variance", (x[:30], y[:30])), x[30:], y[30:], samples=20)
    (view,) = document["views"]
    view["before"]["scores"]["nll"] = view["scores"]["nll"] + 1e-4
    view["before"]["errors"]["nll"]["error"] = view["errors"]["nll"]["error"] = 0.3
    page = browser.open(write(tmp_path / "page.html", document))
    line = page.evaluate(
        "[...document.querySelectorAll('#calibration .scores tr')].find(r => r.textContent.includes('NLL')).textContent"
    )
    now, before = re.findall(r"([\d.]+) ± [\d.]{4}", line)
    assert now != before


def test_outside_is_said_of_rows_alone(browser, written):
    page = browser.open(written["quantity"])
    plots = "[...document.querySelectorAll('#trust .card:has(.plot)')].map(e => e.innerText).join()"
    assert "outside" not in page.evaluate(plots)
    assert "misses it" in page.evaluate(plots)


LONG = "patient-2024-ward-7-admission-of-a-very-long-identifier-that-has-no-spaces-"


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_keep_their_names_and_can_be_found(browser, made, tmp_path, width):
    posterior, x, y = made["quantity"]
    names = [f"{LONG}{k:03d}" for k in range(len(x))]
    far = np.where(np.arange(70) == 17, 1e6, 0.1)
    path = report(posterior, (x, y), tmp_path / "page.html", samples=4, rows=names, outside=far, edge=1.0)
    page = browser.open(path, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "1 row of 70 is outside" in text_of(page, "#trust")
    open_technical(page)
    page.wait_for("document.querySelectorAll('#calibration .picture .misses path').length >= 1")
    find = "document.querySelector('#rows input[type=search]')"
    page.evaluate(f"{find}.value = 'SPACES-01'; {find}.dispatchEvent(new Event('input'))")
    shown = page.evaluate("[...document.querySelectorAll('.rows tbody .open')].map(e => e.textContent)")
    assert sorted(shown) == names[10:20]
    assert page.evaluate("[...document.querySelectorAll('.rows .mark')].map(e => e.closest('tr').innerText)")[
        0
    ].startswith(names[17])
    if width > 920:
        page.click("document.querySelectorAll('.rows th button')[0]")
        found = page.evaluate("[...document.querySelectorAll('.rows tbody .open')].map(e => e.textContent)")
        assert found == names[10:20]
    page.evaluate(f"{find}.value = 'nobody'; {find}.dispatchEvent(new Event('input'))")
    assert "No row" in text_of(page, "#rows .more-rows")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["quantity", "classes", "rare"])
def test_on_paper_it_has_six_pages_at_most_and_is_light(browser, written, kind):
    page = browser.open(written[kind], 720, dark=True)
    page.evaluate(
        "addEventListener('beforeprint', () => { window.widths = [...document.querySelectorAll('#trust .picture')]"
        ".map(e => e.width.baseVal.value); })"
    )
    pdf = base64.b64decode(page.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
    assert set(page.evaluate("window.widths")) <= {330, 680}  # drawn for paper
    assert page.evaluate("document.getElementById('technical').open") is False
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--c2').trim()") == "#0e5a4a"
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    wide = "[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > innerWidth).length"
    assert page.evaluate(wide) == 0
    assert page.evaluate("document.querySelector('nav').checkVisibility()") is False
