"""Advice, against simulations of a function whose variance components are known."""

import math
import re

import numpy as np
import pytest
import torch

import made_predictions
import wherefrom as wf
from conftest import mlp, training
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.advice import advice
from wherefrom.predictive.components import Answers, CrossedAxis
from wherefrom.predictive.monte_carlo import Plan

pytestmark = pytest.mark.slow

ROWS = 6
STD = {"a": 1.0, "b": 0.5, "ab": 0.7, "t": 1.5}
NOISE = 0.8


def drawn(a: int, b: int, samples: int, generator: np.random.Generator, repeats: int = 1) -> torch.Tensor:
    """f = A + B + AB + t, the same law at every row.  # (repeats, a * b, samples, rows, 1)"""
    parts = {"a": (a, 1, 1), "b": (1, b, 1), "ab": (a, b, 1), "t": (a, b, samples)}
    total = sum(STD[name] * generator.normal(size=(repeats, *shape, ROWS)) for name, shape in parts.items())
    return torch.from_numpy(total).reshape(repeats, a * b, samples, ROWS, 1)


def prediction(answers: torch.Tensor, a: int, b: int, finite: str = "", noise: float | None = NOISE) -> Prediction:
    axes = tuple(CrossedAxis(name, draws, name == finite) for name, draws in (("theta0", a), ("h", b)))
    one = torch.ones(1, dtype=torch.float64)
    noises = None if noise is None else one * noise
    plan = Plan(answers.shape[1], vary_theta=True, vary_mask=False)
    return made_predictions.quantity(answers, noises, 0 * one, one, True, plan, axes, None)


def option(found, variable: str, budget: int):
    (own,) = [each for each in found.options if each.variable == variable and each.budget == budget]
    return own


def test_the_error_of_the_mean_is_that_of_a_simulation():
    """Averaged over many predictions of 4 x 3 draws, what is said of 8 x 3 and 4 x 5 is what these really have."""
    generator = np.random.default_rng(0)
    whole = sum(std**2 for std in STD.values()) + NOISE
    ratios = {"now": [], "theta0": [], "h": [], "samples": []}
    for answers in drawn(4, 3, 5, generator, repeats=200):
        found = advice(prediction(answers, 4, 3).advice_subject(), budget=12)
        assert found.costs == {"theta0": 3, "h": 4}
        assert (option(found, "theta0", 12).draws, option(found, "h", 12).draws) == (4, 3)
        every = {"now": found.now, **{each.variable: each for each in found.options}}
        for name, own in every.items():
            ratios[name].append(own.mean_error**2)
    sizes = {"now": (4, 3, 5), "theta0": (8, 3, 5), "h": (4, 6, 5), "samples": (4, 3, 50)}
    for name, size in sizes.items():
        means = drawn(*size, generator, repeats=2000).mean((1, 2)).flatten()  # ROWS independent functions each
        true = float(means.square().mean()) / whole
        true_error = true * math.sqrt(2 / len(means))
        said, said_error = np.mean(ratios[name]), np.std(ratios[name]) / math.sqrt(200)
        # A ratio of estimates is biased a little, by the error of what it is divided by.
        assert abs(said - true) < 4 * math.hypot(true_error, said_error) + 0.03 * true, name


def test_standard_errors_are_of_the_right_size():
    """What the jackknife says of one prediction is how much the statement differs between predictions."""
    generator = np.random.default_rng(1)
    found = [
        advice(prediction(each, 8, 6).advice_subject(), budget=8) for each in drawn(8, 6, 4, generator, repeats=100)
    ]
    spread = np.std([each.now.mean_error for each in found], ddof=1)
    said = np.mean([each.now.mean_error_se for each in found])
    assert abs(said / spread - 1) < 3 / math.sqrt(2 * 100)  # by which a spread of 100 is known


@pytest.mark.parametrize("variable", ["theta0", "h"])
def test_the_error_of_the_variance_falls_as_in_a_simulation(variable):
    generator = np.random.default_rng(2)
    now, then = (5, 4), (15, 4) if variable == "theta0" else (5, 12)
    cost = 10 * 4 if variable == "theta0" else 8 * 5

    def total(answers, size) -> float:
        return sum(float(part.mean()) for part in Answers.of(prediction(answers, *size).mixture).components().values())

    spreads = [
        np.std([total(each, size) for each in drawn(*size, 4, generator, repeats=150)], ddof=1) for size in (now, then)
    ]
    said = [
        advice(prediction(each, *now).advice_subject(), budget=cost) for each in drawn(*now, 4, generator, repeats=30)
    ]
    ratios = [option(each, variable, cost).variance_error / each.now.variance_error for each in said]
    # A ratio of spreads of 150 is known to 8%, and what is said of it varies as well.
    error = math.hypot(1 / math.sqrt(150), np.std(ratios) / np.mean(ratios) / math.sqrt(len(ratios)))
    assert abs(np.mean(ratios) / (spreads[1] / spreads[0]) - 1) < 3 * error
    own = option(said[0], variable, cost)
    draws = 5 if variable == "theta0" else 4
    assert own.own_error / own.own_error_now == pytest.approx(math.sqrt((draws - 1) / (3 * draws - 1)))


def test_values_that_were_gone_through_add_nothing():
    generator = np.random.default_rng(3)
    answers = drawn(6, 3, 20, generator)[0]
    found = advice(prediction(answers, 6, 3, finite="h").advice_subject(), budget=6)
    parts = {name: part.variance for name, part in prediction(answers, 6, 3, "h").sources().overall.items()}
    expected = (parts["theta0"] / 6 + parts["t"] / (18 * 20)) / sum(parts.values())
    assert found.now.mean_error == pytest.approx(math.sqrt(expected))
    assert found.gone_through == ("h",)
    assert "h: all values were used" in found.recommendation
    assert {each.variable for each in found.options} == {"theta0", "samples"}


def test_blocks_of_thetas_and_masks():
    """Of t, F and t x F in blocks of four, the mean holds a half, a half and a quarter of a block's."""
    generator = np.random.default_rng(4)
    groups, members = 5, 3
    shapes = ((members, 1, 1, 1), (members, groups, 2, 1), (members, groups, 1, 2), (members, groups, 2, 2))
    parts = [std * generator.normal(size=(*shape, ROWS)) for std, shape in zip((1, 2, 3, 1), shapes, strict=True)]
    answers = torch.from_numpy(sum(parts)).reshape(members, 4 * groups, ROWS, 1)
    one = torch.ones(1, dtype=torch.float64)
    axes, plan = (CrossedAxis("theta0", members, False),), Plan(4 * groups, True, True)
    sampled = made_predictions.quantity(answers, None, 0 * one, one, True, plan, axes, None)
    overall = {name: part.variance for name, part in sampled.sources().overall.items()}
    carried = (0.5 * overall["t"] + 0.5 * overall["F"] + 0.25 * overall["t x F"]) / (groups * members)
    expected = (overall["theta0"] / members + carried) / sum(overall.values())
    assert advice(sampled.advice_subject()).now.mean_error == pytest.approx(math.sqrt(max(0.0, expected)))


def test_outputs_are_told_in_their_own_units():
    answers = drawn(5, 3, 6, np.random.default_rng(5))[0]
    single = prediction(answers, 5, 3)
    one = torch.ones(2, dtype=torch.float64)
    unit = torch.tensor([1.0, 1000.0], dtype=torch.float64)
    double = made_predictions.quantity(
        answers.expand(-1, -1, -1, 2), NOISE * one, 0 * one, unit, False, single.mixture.plan, single.mixture.axes, None
    )
    assert advice(double.advice_subject()).now.mean_error == pytest.approx(
        advice(single.advice_subject()).now.mean_error
    )


def test_of_classes_the_indicators_are_what_varies():
    logits = 2 * drawn(5, 3, 6, np.random.default_rng(6))[0]
    logits = torch.cat([logits, torch.zeros_like(logits)], -1)
    axes = (CrossedAxis("theta0", 5, False), CrossedAxis("h", 3, False))
    found = made_predictions.classes(torch.log_softmax(logits, -1), ("no", "yes"), Plan(6, True, False), axes, None)
    said = advice(found.advice_subject())
    p = found.probabilities
    overall = found.sources().overall
    parts = [overall[name].variance for name in ("theta0", "h", "theta0 x h", "t")]
    variance = parts[0] / 5 + parts[1] / 3 + parts[2] / 15 + parts[3] / 90
    assert said.now.mean_error == pytest.approx(math.sqrt(variance / float((p * (1 - p)).sum(1).mean())))
    assert said.subject.of == "probabilities"
    assert 0 < said.noise_share < 1


# ---------------------------------------------------------------------- in words


def stretched(std: dict[str, float], monkeypatch) -> None:
    monkeypatch.setitem(globals(), "STD", std)


@pytest.mark.parametrize(
    ("std", "noise", "samples", "best", "said"),
    [
        ({"a": 2.0, "b": 0.1, "ab": 0.1, "t": 0.1}, 0.1, 50, "theta0", r"Spend on theta0: posterior\.extend\(theta0="),
        ({"a": 0.1, "b": 2.0, "ab": 0.1, "t": 0.1}, 0.1, 50, "h", r"Spend on h: posterior\.extend\(h="),
        ({"a": 0.01, "b": 0.01, "ab": 0.01, "t": 5.0}, 0.1, 2, "samples", "Draw more samples"),
        ({"a": 0.2, "b": 0.2, "ab": 0.1, "t": 0.1}, 50.0, 50, None, "No further training is needed"),
    ],
    ids=["theta0", "h", "samples", "noise"],
)
def test_what_is_said(std, noise, samples, best, said, monkeypatch):
    stretched(std, monkeypatch)
    monkeypatch.setitem(globals(), "ROWS", 60)  # more of them, so that chance does not decide
    answers = drawn(5, 4, samples, np.random.default_rng(7))[0]
    found = advice(
        prediction(answers, 5, 4, noise=noise).advice_subject(), budget=(1, 5, 10), marginalised=("theta0", "h", "t")
    )
    assert found.best == best
    assert re.search(said, str(found))
    assert "D (add wf.Resample(5))" in str(found)
    assert "theta0 by" not in str(found)
    assert ("is noise, which no further draw removes" in str(found)) == (noise == 50.0)


def test_variables_that_cannot_be_told_apart_are_named(monkeypatch):
    stretched({"a": 1.0, "b": 1.0, "ab": 0.5, "t": 0.1}, monkeypatch)
    answers = drawn(4, 4, 20, np.random.default_rng(8))[0]
    found = advice(prediction(answers, 4, 4).advice_subject(), budget=8)
    assert {found.best, *found.tied} == {"theta0", "h"}
    assert "might do as well" in str(found)


def test_a_budget_that_buys_nothing_says_what_a_draw_costs():
    answers = drawn(5, 4, 20, np.random.default_rng(9))[0]
    found = advice(prediction(answers, 5, 4).advice_subject(), budget=2)
    assert found.best is None
    assert "The budget buys no further draw" in str(found)
    assert "theta0 4, h 5" in str(found)
    assert [row["buys"] for row in found.table()][1] == "none"


def test_two_draws_show_no_error():
    found = advice(prediction(drawn(2, 4, 20, np.random.default_rng(9))[0], 2, 4).advice_subject())
    assert math.isnan(found.now.variance_error)
    assert math.isnan(found.now.mean_error_se)
    assert "With two draws of theta0, a variance has no error estimate" in str(found)


@pytest.mark.parametrize("budget", [0, (), (1, -2), "five", 2.5])
def test_a_budget_is_a_number_of_trainings(budget):
    with pytest.raises(ValueError, match="budget is a number of trainings"):
        advice(prediction(drawn(3, 3, 4, np.random.default_rng(0))[0], 3, 3).advice_subject(), budget)


# ---------------------------------------------------------------------- of a posterior


@pytest.mark.parametrize("kind", ["quantities", "classes"])
def test_a_posterior_advises(kind, problem, tmp_path):
    x, y = problem
    y, likelihood, outputs = (y, wf.Regression(noise="fit"), 1) if kind == "quantities" else (y > 10, None, 2)
    own = training(mlp(outputs=outputs), likelihood=likelihood or wf.Classification())
    over = [wf.InitialCondition(3), wf.BatchOrder(3), wf.Iterations(wf.SWAG(rank=2)), wf.Dropout()]
    posterior = wf.marginalise(own, (x, y), over, progress=False)
    found = posterior.advise(budget=(3, 6), samples=20)
    assert {each.variable for each in found.options} == {"theta0", "order", "samples"}
    assert found.untried == ("h", "D")
    assert "BatchOrder" not in str(found)
    if kind == "quantities":
        better = posterior.calibrated("variance").advise(budget=(3, 6), samples=20)
        assert better.now.mean_error == pytest.approx(found.now.mean_error)
    posterior.save(tmp_path)
    with pytest.raises(ValueError, match=r"as advise\(x\)"):
        wf.load(tmp_path, model=own.model).advise()
    with pytest.raises(ValueError, match="ask for advice before you weight them"):
        posterior.weighted([1, 2, 3, 4, 5, 6, 7, 8, 9]).advise(x, samples=20)
    one_shot = advice(posterior.one_shot(x).advice_subject(), 3)
    assert "samples" not in {each.variable for each in one_shot.options}


def test_nothing_random_has_nothing_to_advise(problem):
    posterior = wf.marginalise(training(), problem, [], progress=False)
    with pytest.raises(ValueError, match="add one to `over` first"):
        posterior.advise()
