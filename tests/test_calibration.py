"""Calibration: known miscalibration is found, coverage is what is promised, and nothing keeps a wrong one."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import made_predictions
import wherefrom as wf
from conftest import mlp, training
from made_predictions import changed
from wherefrom.likelihoods.classification import ClassPrediction
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive.calibration import Conformal, Fit, Temperature, VarianceScale, fitted
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.monte_carlo import Plan

WEIGHTS = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quantities(rows=400, outputs=1, noise=0.3, seed=0, weights=None, one_shot=False) -> Prediction:
    """Four members with six samples each, or one moment, in units of their own."""
    samples = 1 if one_shot else 6
    answers = normal(1, 1, rows, outputs, seed=seed) + 0.4 * normal(4, samples, rows, outputs, seed=seed + 1)
    spread = 0.05 + 0.1 * normal(4, 1, rows, outputs, seed=seed + 2).square() if one_shot else None
    unit = [torch.full((outputs,), value, dtype=torch.float64) for value in (10.0, 3.0)]
    variance = torch.linspace(noise, 2 * noise, outputs, dtype=torch.float64) if noise else None
    return made_predictions.quantity(
        answers,
        variance,
        *unit,
        outputs == 1,
        Plan.of(samples, vary_theta=samples > 1, vary_mask=False),
        (CrossedAxis("theta0", 4, False),),
        None,
        weights=weights,
        spread=spread,
        within=None if spread is None else lambda: {"t": spread.mean(1)},
    )


def truth(prediction: Prediction, factor, seed=9) -> torch.Tensor:
    """What the Gaussian reading would draw if its variance were so many times as large."""
    root = torch.as_tensor(factor, dtype=torch.float64).sqrt()
    return prediction.mean + root * prediction.std * normal(*prediction.mean.shape, seed=seed)


def classes(rows=1000, sure=1.0, seed=0, weights=None, samples=3) -> ClassPrediction:
    logits = 1.5 * normal(1, 1, rows, 3, seed=seed) + 0.3 * normal(4, samples, rows, 3, seed=seed + 1)
    plan = Plan.of(samples, vary_theta=samples > 1, vary_mask=False)
    logs = torch.log_softmax(sure * logits, -1)
    return made_predictions.classes(
        logs, ("a", "b", "c"), plan, (CrossedAxis("theta0", 4, False),), None, weights=weights
    )


def labels(prediction: ClassPrediction, seed=3) -> list[str]:
    drawn = torch.multinomial(prediction.probabilities, 1, generator=torch.Generator().manual_seed(seed)).flatten()
    return [prediction.classes[int(k)] for k in drawn]


# ---------------------------------------------------------------------- the variance


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("one_shot", [False, True], ids=["sampled", "one-shot"])
def test_the_factor_of_the_variance_is_found(weights, one_shot):
    prediction = quantities(2000, 2, weights=weights, one_shot=one_shot)
    y = truth(prediction, [0.5, 3.0])
    found = fitted("variance", prediction, y, Fit(2000))
    for factor, error, known in zip(found.factor, found.standard_error, (0.5, 3.0), strict=True):
        assert error == pytest.approx(known * math.sqrt(2 / 2000), rel=0.15)
        assert abs(factor - known) < 3 * error
    assert found.factor == pytest.approx((((y - prediction.mean) / prediction.std) ** 2).mean(0).tolist())
    after = found.applied(prediction)
    assert found.fit.before == pytest.approx(prediction.nll(y))
    assert found.fit.after == pytest.approx(after.nll(y))
    fresh = truth(prediction, [0.5, 3.0], seed=77)
    assert after.nll(fresh) < prediction.nll(fresh) - 0.2


@pytest.mark.parametrize("one_shot", [False, True], ids=["sampled", "one-shot"])
def test_a_stretched_prediction_is_the_same_but_wider(one_shot):
    prediction = quantities(50, 2, weights=WEIGHTS, one_shot=one_shot)
    factor = torch.tensor([0.25, 4.0], dtype=torch.float64)
    wider = prediction.stretched(factor)
    torch.testing.assert_close(wider.mean, prediction.mean, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(wider.variance, factor * prediction.variance)
    torch.testing.assert_close(wider.noise_variance, factor * prediction.noise_variance)
    for reading in ("gaussian", "mixture"):
        gap = prediction.quantile(0.9, reading) - prediction.mean
        torch.testing.assert_close(wider.quantile(0.9, reading) - wider.mean, factor.sqrt() * gap)
    for name, shares in prediction.sources().items():
        torch.testing.assert_close(wider.sources()[name], shares)


def test_the_factor_of_the_mixture_is_the_most_likely_one():
    prediction = quantities(300, 2)
    y = truth(prediction, [0.6, 2.0])
    found = fitted("variance", prediction, y, Fit(300, reading="mixture"))
    best = found.applied(prediction).nll(y, "mixture")
    assert found.fit.after == pytest.approx(best)
    for step in (0.98, 1.02):
        other = prediction.stretched(step * torch.tensor(found.factor, dtype=torch.float64))
        assert other.nll(y, "mixture") > best


def test_variance_that_is_not_there_cannot_be_scaled():
    sure = quantities(20, noise=None)
    points = made_predictions.quantity(
        sure.answers[:1, :1], None, sure.location, sure.scale, True, Plan(1, False, False), (), None
    )
    with pytest.raises(ValueError, match="variance is zero at 20 of 20 rows"):
        fitted("variance", points, truth(sure, 1.0), Fit(20))
    with pytest.raises(ValueError, match="predicted exactly"):
        fitted("variance", sure, sure.mean, Fit(20))


# ---------------------------------------------------------------------- the temperature


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_the_temperature_is_found(weights):
    right, sure = classes(3000, weights=weights), classes(3000, sure=2.5, weights=weights)
    y = labels(right)
    found = fitted("temperature", sure, y, Fit(3000))
    assert abs(found.value - 2.5) < 3 * found.standard_error
    assert found.standard_error < 0.15
    torch.testing.assert_close(sure.tempered(2.5).probabilities, right.probabilities)
    fresh = labels(right, seed=4)
    assert found.applied(sure).nll(fresh) < sure.nll(fresh) - 0.05


def test_few_rows_that_are_all_right_do_not_make_anybody_certain():
    prediction = classes(30, sure=5)
    y = [prediction.classes[place] for place in prediction.probabilities.argmax(1).tolist()]
    found = fitted("temperature", prediction, y, Fit(30))
    assert prediction.tempered(found.value / 5).nll(y) < found.fit.after  # the rows alone would have it lower
    assert found.value > 0.4
    assert found.standard_error > 0.2
    many = classes(3000, sure=0.5)
    y = labels(classes(3000))
    assert fitted("temperature", many, y, Fit(3000)).value == pytest.approx(0.5, rel=0.1)


def most_probable(prediction, y, share):
    """The logarithm of the temperature, on a fine grid."""
    grid, count = np.linspace(-1, 2, 3001), len(y)
    by_row = [prediction.tempered(math.exp(one)).nll(y, by_row=True) for one in grid]
    cost = [count * float((share * nll).sum()) + one**2 / 2 for one, nll in zip(grid, by_row, strict=True)]
    return grid[np.argmin(cost)]


def test_the_most_probable_temperature_is_that_of_a_fine_grid():
    prediction, y = classes(40, sure=2.0), labels(classes(40))
    found = fitted("temperature", prediction, y, Fit(40))
    assert math.log(found.value) == pytest.approx(most_probable(prediction, y, 1 / 40), abs=2e-3)


def test_a_temperature_is_never_worse_than_none():
    for seed in range(8):
        prediction = classes(12, seed=seed)
        y = labels(prediction, seed)
        found = fitted("temperature", prediction, y, Fit(12))
        assert found.fit.after <= found.fit.before
        assert found.applied(prediction).nll(y) == pytest.approx(found.fit.after)


@pytest.mark.parametrize(("temperature", "off"), [(0.6, 0.01), (1.0, 1e-6), (1.7, 0.015)])
def test_a_one_shot_prediction_is_tempered_as_its_logits_would_be(temperature, off):
    """Against many draws of normal logits."""
    centres, deviations = 2 * normal(3, 40, 3), 0.3 + normal(3, 40, 3, seed=1).abs()
    logits = centres[:, None] + deviations[:, None] * normal(3, 4000, 40, 3, seed=2)
    axes, names = (CrossedAxis("theta0", 3, False),), ("a", "b", "c")
    many = made_predictions.classes(torch.log_softmax(logits, -1), names, Plan(4000, True, False), axes, None)
    own = many.answers
    spread = own.var(1, keepdim=True)
    few = made_predictions.classes(
        own.mean(1, keepdim=True).log(),
        names,
        Plan(1, False, False),
        axes,
        None,
        spread=spread,
        within=lambda: {"t": spread[:, 0]},
    )
    new, expected = few.tempered(temperature), many.tempered(temperature)
    assert float((new.probabilities - expected.probabilities).abs().max()) < 2.5 * off
    assert float((new.probabilities - expected.probabilities).square().mean().sqrt()) < off
    found, known = new.mixture.spread[:, 0], expected.answers.var(1)
    assert float((found - known).abs().mean() / known.mean()) < 10 * off + 1e-6
    torch.testing.assert_close(new.mixture.within()["t"], found)


# ---------------------------------------------------------------------- conformal


@pytest.mark.parametrize("level", [0.8, 0.9], ids=["two tails", "one score"])
def test_intervals_hold_as_often_as_the_beta_distribution_says(level):
    """Over many draws of rows, of a model that is wrong: too sure, biased, with tails that no Gaussian has."""
    rows, new = 59, 40
    place = math.ceil((rows + 1) * level)
    expected = place / (rows + 1)
    spread = math.sqrt(expected * (1 - expected) / (rows + 2))
    covered = []
    for seed in range(200):
        prediction = quantities(rows + new, seed=10 * seed, noise=0.05)
        tails = normal(rows + new, seed=10 * seed + 5) / normal(rows + new, seed=10 * seed + 6).abs().sqrt()
        y = prediction.mean + 1.0 + 2 * prediction.std * tails
        seen, unseen = (_only(prediction, part) for part in (slice(rows), slice(rows, None)))
        found = fitted("conformal", seen, y[:rows], Fit(rows)).applied(unseen)
        covered.append(found.coverage(y[rows:], level))
    error = math.sqrt((spread**2 + expected * (1 - expected) / new) / 200)
    assert abs(np.mean(covered) - expected) < 3 * error


def _only(prediction: Prediction, rows: slice) -> Prediction:

    return changed(prediction, answers=prediction.answers[:, :, rows])


def _without_signs(conformal: Conformal) -> Conformal:
    """As it was fitted before scores had signs."""
    return dataclasses.replace(conformal, scores=conformal.scores.abs().sort(0).values, is_signed=False)


def test_as_much_of_a_skewed_truth_lies_below_as_above():
    """Of two outputs, one skewed upwards and one downwards; each tail is Beta(25, 976), of which 40,000 rows tell."""
    rows, new, times = 1000, 2000, 20
    tails = {True: torch.zeros(2, 2, dtype=torch.float64), False: torch.zeros(2, 2, dtype=torch.float64)}
    for seed in range(times):
        prediction = quantities(rows + new, 2, seed=10 * seed)
        uniform = torch.rand(rows + new, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        skew = (-uniform.log() - 1) * torch.tensor([1.0, -1.0], dtype=torch.float64)
        y = prediction.mean + prediction.std * skew
        found = fitted("conformal", _only(prediction, slice(rows)), y[:rows], Fit(rows))
        for is_signed, conformal in ((True, found), (False, _without_signs(found))):
            low, high = conformal.applied(_only(prediction, slice(rows, None))).interval(0.95)
            for side, beyond in enumerate((y[rows:] < low, y[rows:] > high)):
                tails[is_signed][side] += beyond.double().mean(0) / times
    expected = 25 / (rows + 1)
    error = math.sqrt(expected * (1 - expected) * (1 / (rows + 2) + 1 / new) / times)
    assert ((tails[True] - expected).abs() < 4 * error).all(), tails
    assert ((tails[False] - expected).abs() > 8 * error).all(), tails


def test_few_rows_make_intervals_that_reach_as_far_on_both_sides():
    prediction = quantities(50, 2)
    y = prediction.mean + prediction.std * (normal(50, 2, seed=8).square() - 0.5)
    z = (y - prediction.location) / prediction.scale
    q = ((z - prediction.mixture.mean).abs() / prediction.mixture.variance.sqrt()).sort(0).values
    found = fitted("conformal", prediction, y, Fit(50)).applied(prediction)
    for level, place in ((0.9, 46), (0.95, 49)):
        for end, sign in zip(found.interval(level), (-1, 1), strict=True):
            reach = sign * q[place - 1] * prediction.mixture.variance.sqrt()
            assert torch.equal(end, prediction.location + prediction.scale * (prediction.mixture.mean + reach))


def test_two_tails_need_five_rows_each():
    scores = normal(199, 2, seed=2).square().sort(0).values - 1
    low, high = Conformal(scores, Fit(199), is_signed=True).reach(0.95)
    assert torch.equal(low, scores[4])
    assert torch.equal(high, scores[-5])
    few = Conformal(scores[:-1], Fit(198), is_signed=True)
    low, high = few.reach(0.95)
    assert torch.equal(high, scores[:-1].abs().sort(0).values[189])
    assert torch.equal(high, few.threshold(0.95))
    assert torch.equal(low, -high)
    for level in (0.001, 0.5, 0.9, 0.949, 0.95, 0.951, 0.99):
        low, high = Conformal(scores, Fit(199), is_signed=True).reach(level)
        assert (low <= high).all()


def test_two_tails_end_at_the_least_that_y_can_be():
    prediction = changed(quantities(300), least=9.0)
    y = (prediction.mean + prediction.std * (normal(300, seed=6).square() - 3)).clamp_min(9.0)
    found = fitted("conformal", prediction, y, Fit(300)).applied(prediction)
    free_low, free_high = changed(found, least=None).interval(0.9)
    low, high = found.interval(0.9)
    assert (free_low < 9).any()
    assert (free_high < 9).any()
    is_above = free_low > 9 + 0.05 * found.std  # what is all but at the least is at it
    assert torch.equal(low[is_above], free_low[is_above])
    assert set(low[~is_above].tolist()) == {9.0}
    above = prediction.mixture.mean.flatten() * prediction.scale + prediction.location >= 9
    assert torch.equal(high[above], free_high[above].clamp_min(9))
    assert (high[~above] >= free_high[~above]).all()
    assert (low < high).all()


def test_an_output_by_itself_has_the_same_two_tails():
    prediction = quantities(300, 2)
    y = prediction.mean + prediction.std * (normal(300, 2, seed=6).square() - 1)
    found = fitted("conformal", prediction, y, Fit(300)).applied(prediction)
    low, high = found.interval(0.95)
    assert not torch.allclose(low + high, 2 * prediction.mean, rtol=0.01)
    for j in range(2):
        alone = found.of_output(j).interval(0.95)
        torch.testing.assert_close(alone[0], low[:, j])
        torch.testing.assert_close(alone[1], high[:, j])


def test_sets_of_classes_hold_as_often_as_the_beta_distribution_says():
    rows, new, level = 49, 50, 0.9
    expected = math.ceil((rows + 1) * level) / (rows + 1)
    covered = []
    for seed in range(200):
        right = classes(rows + new, seed=10 * seed)
        wrong = right.tempered(0.3).log_probabilities.roll(1, -1)  # sure of another class
        y = labels(right, seed)

        def told(part, logs=wrong, right=right):
            return made_predictions.classes(
                logs[:, :, part], right.classes, right.mixture.plan, right.mixture.axes, None
            )

        found = fitted("conformal", told(slice(rows)), y[:rows], Fit(rows)).applied(told(slice(rows, None)))
        covered.append(found.coverage(y[rows:], level))
    error = math.sqrt(expected * (1 - expected) * (1 / (rows + 2) + 1 / new) / 200)
    assert abs(np.mean(covered) - expected) < 3 * error


def test_the_interval_is_the_conformal_one_unless_another_is_named():
    prediction = quantities(99, 2)
    y = truth(prediction, [4.0, 1.0])
    found = fitted("conformal", prediction, y, Fit(99)).applied(prediction)
    scores = ((y - prediction.mean) / prediction.std).sort(0).values
    low, high = found.interval(0.9)
    torch.testing.assert_close(high, prediction.mean + scores[94] * prediction.std)
    torch.testing.assert_close(low, prediction.mean + scores[4] * prediction.std)
    assert found.coverage(y, 0.9) == pytest.approx(91 / 99, abs=2.1 / 99)  # the rows at the ends, to rounding
    q = scores.abs().sort(0).values[94]
    low, high = found.interval(0.95)
    torch.testing.assert_close(high, prediction.mean + q * prediction.std)
    torch.testing.assert_close(low, prediction.mean - q * prediction.std)
    for reading in ("gaussian", "mixture"):
        for own, plain in zip(found.interval(0.9, reading), prediction.interval(0.9, reading), strict=True):
            torch.testing.assert_close(own, plain)
    torch.testing.assert_close(found.quantile(0.9), prediction.quantile(0.9))
    assert found.nll(y) == prediction.nll(y)
    assert "conformal intervals" in repr(found)
    with pytest.raises(ValueError, match="there is no conformal interval"):
        prediction.interval(0.9, "conformal")


def test_a_level_needs_rows():
    conformal = Conformal(torch.arange(1.0, 10.0, dtype=torch.float64)[:, None], Fit(9))
    assert conformal.threshold(0.9).tolist() == [9.0]
    with pytest.raises(ValueError, match=r"95% needs at least 19 rows .* there were 9: only infinite intervals"):
        conformal.threshold(0.95)
    with pytest.raises(ValueError, match=r"only sets of all classes would be safe.* ask for 90% at most"):
        dataclasses.replace(conformal, all_there_is="sets of all classes").threshold(0.95)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (2.00412, 1.99887, "NLL 2.0041 -> 1.9989; lower is better"),
        (5.4776, 5.4571, "NLL 5.478 -> 5.457; lower is better"),
        (1234.6, 1200.2, "NLL 1235 -> 1200; lower is better"),
        (0.05661, 0.02834, "NLL 0.057 -> 0.028; lower is better"),
        (2.0000004, 2.0, "NLL 2, as before"),
        (math.inf, 0.5, "NLL inf -> 0.500; lower is better"),
    ],
)
def test_digits_show_what_changed(before, after, told):
    text = str(VarianceScale((1.0,), (0.1,), Fit(40, before=before, after=after)))
    assert text.endswith(f"by 40 rows ({told})")


def test_what_is_said_of_it_can_be_read():
    scale = VarianceScale((0.81, 144.0), (0.118, math.nan), Fit(1200))
    assert str(scale) == "variance times 0.81 ± 0.12, 144, so intervals 0.90, 12 times as wide, by 1,200 rows"
    assert "divided by 0.26 ± 0.11, so probabilities more extreme" in str(Temperature(0.2583, 0.114, Fit(43)))
    assert str(Temperature(1.0, 0.1, Fit(43, before=0.2, after=0.2))) == (
        "logits left as they are, which is best for 43 rows"
    )
    scores = torch.arange(33.0, dtype=torch.float64)[:, None]
    for what in ("intervals", "sets of classes"):
        conformal = Conformal(scores, Fit(33), what)
        assert str(conformal) == f"conformal {what}, by 33 rows (enough for levels up to 97%)"
        conformal.threshold(0.97)
        with pytest.raises(ValueError, match="at most"):
            conformal.threshold(0.971)


def test_where_nothing_varies_errors_are_absolute():
    points = made_predictions.quantity(
        normal(1, 1, 99, 1), None, torch.zeros(1), 2 * torch.ones(1), True, Plan(1, False, False), (), None
    )
    y = points.mean + 2 * normal(99, seed=4)
    found = fitted("conformal", points, y, Fit(99)).applied(points)
    low, high = found.interval(0.5)
    errors = (y - points.mean).sort().values
    torch.testing.assert_close(low, points.mean + errors[24])
    torch.testing.assert_close(high, points.mean + errors[74])


def test_sets_by_probability_are_the_smallest_that_reach_the_level():
    p = torch.tensor([[0.5, 0.3, 0.2], [0.05, 0.9, 0.05], [0.2, 0.2, 0.6]], dtype=torch.float64)
    found = made_predictions.classes(p.log()[None, None], ("a", "b", "c"), Plan(1, False, False), (), None)
    assert found.sets(0.75).tolist() == [[True, True, False], [False, True, False], [True, False, True]]
    assert found.set_size(0.75).tolist() == [2, 1, 2]
    assert found.coverage(["c", "b", "c"], 0.75) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no conformal sets"):
        found.sets(0.9, "conformal")
    with pytest.raises(ValueError, match="between 0 and 1"):
        found.sets(95)


# ---------------------------------------------------------------------- posteriors

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(260, 4))
Y = 3.0 * X[:, 0] - np.abs(X[:, 1]) + 0.8 * RANDOM.normal(size=260)
TRAIN, HELD, NEW = (slice(0, 100), slice(100, 180), slice(180, 260))
OVER = (wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=3)))


@pytest.fixture(scope="module")
def posterior():
    own = training(mlp(), epochs=15, likelihood=wf.Regression(noise=0.2))
    return wf.marginalise(own, (X[TRAIN], Y[TRAIN]), OVER, progress=False)


@pytest.fixture(scope="module")
def of_classes():
    own = training(mlp(outputs=3), epochs=30, likelihood=wf.Classification())
    return wf.marginalise(own, (X[TRAIN], KINDS[TRAIN]), OVER, progress=False)


KINDS = np.array(["low", "mid", "top"])[np.digitize(Y, [-2.0, 1.0])]
ROWS, FRESH = (X[HELD], Y[HELD]), (X[NEW], Y[NEW])


def test_before_and_after(posterior):
    better = posterior.calibrated("variance", ROWS).calibrated("conformal", ROWS)
    plain, own = posterior.predict(X[NEW]), better.predict(X[NEW])
    assert better.calibration[0].factor[0] > 1.5
    assert own.nll(Y[NEW]) < plain.nll(Y[NEW])
    assert abs(own.coverage(Y[NEW], 0.8) - 0.8) < abs(plain.coverage(Y[NEW], 0.8) - 0.8)
    torch.testing.assert_close(own.mean, plain.mean)
    table = better.check_calibration(FRESH, levels=(0.8,))
    assert table["before"][0] == pytest.approx(plain.nll(Y[NEW]))
    assert table["after"][0] == pytest.approx(own.nll(Y[NEW]))
    assert table["score"][2] == "coverage of 80%"
    assert "variance times" in str(better.calibration[0])


def test_one_shot_is_calibrated_too(posterior):
    better = posterior.calibrated("variance", ROWS)
    (scale,) = better.calibration
    torch.testing.assert_close(
        better.one_shot(X[NEW]).variance, scale.factor[0] * posterior.one_shot(X[NEW]).variance, rtol=1e-5, atol=0
    )
    own = posterior.calibrated("variance", ROWS, method="one_shot").calibration[0]
    assert own.factor[0] == pytest.approx(scale.factor[0], rel=0.2)
    assert own.fit.method == "one_shot"


def test_classes_are_calibrated(of_classes):
    better = of_classes.calibrated("temperature", (X[HELD], KINDS[HELD]))
    both = better.calibrated("conformal", (X[HELD], KINDS[HELD]))
    assert better.predict(X[HELD]).nll(KINDS[HELD]) <= of_classes.predict(X[HELD]).nll(KINDS[HELD])
    found = both.predict(X[NEW])
    assert found.sets(0.8).shape == (80, 3)
    assert 0.65 < found.coverage(KINDS[NEW], 0.8) < 0.95
    assert both.one_shot(X[NEW]).set_size(0.8).shape == (80,)
    assert [row["score"] for row in both.check_calibration((X[NEW], KINDS[NEW]))][:3] == ["NLL", "Brier score", "ECE"]


@pytest.mark.parametrize("kind", ["quantities", "classes"])
def test_files_hold_it(kind, posterior, of_classes, tmp_path):
    if kind == "quantities":
        better = posterior.calibrated("variance", ROWS).calibrated("conformal", ROWS)
    else:
        better = of_classes.calibrated("temperature", (X[HELD], KINDS[HELD]))
        better = better.calibrated("conformal", (X[HELD], KINDS[HELD]))
    better.save(tmp_path)
    again = wf.load(tmp_path, model=better.training.model)
    assert again.calibration[0] == better.calibration[0]
    assert torch.equal(again.calibration[1].scores, better.calibration[1].scores)
    assert str(again.calibration[1]) == str(better.calibration[1])
    assert ("sets of classes" in str(again.calibration[1])) == (kind == "classes")
    old, new = better.predict(X[NEW]), again.predict(X[NEW])
    if kind == "quantities":
        for level in (0.8, 0.9):  # two tails, and one score
            assert all(torch.equal(a, b) for a, b in zip(old.interval(level), new.interval(level), strict=True))
        assert torch.equal(old.samples, new.samples)
        assert torch.equal(better.one_shot(X[NEW]).variance, again.one_shot(X[NEW]).variance)
    else:
        assert torch.equal(old.sets(0.9), new.sets(0.9))
        assert torch.equal(old.probabilities, new.probabilities)
    with pytest.warns(UserWarning, match="dropped .*not at hand.*: calibrate again"):
        assert again.select(theta0=[0, 1]).calibration == ()


def test_scores_without_signs_are_read(posterior, tmp_path):
    better = posterior.calibrated("conformal", ROWS)
    (own,) = better.calibration
    before = _without_signs(own)
    dataclasses.replace(better, fitted=dataclasses.replace(better.fitted, calibration=(before,))).save(tmp_path)
    again = wf.load(tmp_path, model=better.training.model)
    assert not again.calibration[0].is_signed
    assert torch.equal(again.calibration[0].scores, before.scores)
    prediction = again.predict(X[NEW])
    low, high = prediction.interval(0.8)
    torch.testing.assert_close(low + high, 2 * prediction.mean)
    torch.testing.assert_close(high, prediction.mean + own.threshold(0.8) * prediction.std)
    two_tails, _ = better.predict(X[NEW]).interval(0.8)
    assert not torch.allclose(two_tails, low, rtol=0.01)


def test_what_changes_the_members_fits_it_anew(posterior):
    better = posterior.calibrated("variance", ROWS).calibrated("conformal", ROWS)
    parts = [
        better.marginalising("t"),
        better.select(theta0=[0, 2]),
        better.weighted([1, 2, 0]),
        better.weighted("stacking", ROWS),
        better.extend(theta0=1, progress=False),
    ]
    alone = [
        posterior.marginalising("t"),
        posterior.select(theta0=[0, 2]),
        posterior.weighted([1, 2, 0]),
        posterior.weighted("stacking", ROWS),
        posterior.extend(theta0=1, progress=False),
    ]
    for part, plain in zip(parts, alone, strict=True):
        expected = plain.calibrated("variance", ROWS).calibrated("conformal", ROWS)
        assert part.calibration[0].factor == expected.calibration[0].factor
        assert torch.equal(part.calibration[1].scores, expected.calibration[1].scores)
        assert part.calibration[0].factor != better.calibration[0].factor
        assert part.uncalibrated.calibration == ()


def test_a_part_that_cannot_be_calibrated_says_so():
    own = training(mlp(), epochs=6)  # without noise
    better = wf.marginalise(own, (X[TRAIN], Y[TRAIN]), OVER, progress=False).calibrated("variance", ROWS)
    with pytest.warns(UserWarning, match="variance is zero"):
        assert better.marginalising().calibration == ()


def test_rows_that_were_held_out_serve_again(tmp_path):
    own = training(mlp(), epochs=8, likelihood=wf.Regression(noise="fit", held_out=0.3))
    found = wf.marginalise(own, (X[TRAIN], Y[TRAIN]), OVER, progress=False)
    better = found.calibrated("variance")
    assert better.calibration[0].fit.rows == 30
    assert better.fitted_noise.equal(found.fitted_noise)
    part = better.select(theta0=[0, 1])
    assert part.fitted_noise.equal(found.select(theta0=[0, 1]).fitted_noise)
    assert part.calibration[0].factor != better.calibration[0].factor
    anew = better.fit_noise(ROWS)
    assert anew.fitted_noise.equal(found.fit_noise(ROWS).fitted_noise)
    assert anew.calibration[0].factor != better.calibration[0].factor
    better.save(tmp_path)
    again = wf.load(tmp_path, model=own.model, data=(X[TRAIN], Y[TRAIN]))
    assert again.select(theta0=[0, 1]).calibration[0].factor == part.calibration[0].factor


def test_what_is_refused(posterior, of_classes):
    with pytest.raises(ValueError, match='one of "variance", "shape", "temperature", "conformal", not by \'luck\''):
        posterior.calibrated("luck", ROWS)
    with pytest.raises(ValueError, match="classes have no variance"):
        of_classes.calibrated("variance", (X[HELD], KINDS[HELD]))
    with pytest.raises(ValueError, match="quantities have no logits"):
        posterior.calibrated("temperature", ROWS)
    with pytest.raises(ValueError, match=r'calibrated\("variance", \(x, y\)\) needs rows that were not trained on'):
        posterior.calibrated("variance")
    for rows in (slice(0, 100), slice(0, 150), slice(20, 40)):  # those trained on, with others, and some of them
        with pytest.raises(ValueError, match="were trained on: give others"):
            posterior.calibrated("variance", (X[rows], Y[rows]))
    with pytest.raises(ValueError, match="calibrate by variance first, and by conformal last"):
        posterior.calibrated("conformal", ROWS).calibrated("variance", ROWS)
    with pytest.raises(ValueError, match="at least 2 rows to calibrate, and there are only 1"):
        posterior.calibrated("variance", (X[100:101], Y[100:101]))
    twice = posterior.calibrated("variance", ROWS).calibrated("variance", FRESH)
    assert len(twice.calibration) == 1
    assert twice.calibration[0] == posterior.calibrated("variance", FRESH).calibration[0]
    with pytest.raises(ValueError, match="above zero"):
        VarianceScale((0.0,), (0.1,), Fit(3))
    with pytest.raises(ValueError, match="above zero"):
        Temperature(-1.0, 0.1, Fit(3))


def test_rows_that_were_trained_on_are_known_again(tmp_path):
    own = training(mlp(), epochs=2, likelihood=wf.Regression(noise="fit"))
    fresh = wf.marginalise(own, (X[TRAIN], Y[TRAIN]), [wf.InitialCondition(2)], progress=False)
    fresh.save(tmp_path)
    loaded = wf.load(tmp_path, mlp())
    for posterior in (fresh, loaded):  # all of them, with those that were held out
        for rows in ((X[TRAIN], Y[TRAIN]), (X[TRAIN], Y[TRAIN], np.full(100, 2.0))):
            with pytest.raises(ValueError, match="were trained on: give others"):
                posterior.calibrated("variance", rows)
        assert posterior.calibrated("variance", ROWS).calibration
    for rows in ((np.float32(X[TRAIN]), Y[TRAIN]), (X[:60], np.float32(Y[:60])), (X[20:110], Y[20:110])):
        with pytest.raises(ValueError, match=r"of these rows were trained on|the members were trained on"):
            fresh.calibrated("variance", rows)
    with pytest.warns(UserWarning, match="% of these rows were trained on"):
        fresh.calibrated("variance", (X[80:180], Y[80:180]))
    assert loaded.calibrated("variance", (X[:3], Y[:3])).calibration  # too few to tell


def test_rows_that_are_the_same_by_chance_are_not_refused():
    x = np.random.default_rng(0).integers(0, 2, size=(400, 4)).astype(float)
    kinds = np.where(x[:, 0] > x[:, 1], "a", "b")
    own = training(mlp(outputs=2), epochs=2, likelihood=wf.Classification())
    posterior = wf.marginalise(own, (x[:200], kinds[:200]), [wf.InitialCondition(2)], progress=False)
    assert posterior.calibrated("temperature", (x[200:], kinds[200:])).calibration
    with pytest.raises(ValueError, match="were trained on: give others"):
        posterior.calibrated("temperature", (x[:200], kinds[:200]))


@pytest.mark.parametrize("reading", ["gaussian", "mixture"])
def test_the_factor_of_the_variance_counts_rows_by_their_weights(reading):
    prediction, times = quantities(60, 2), torch.arange(60) % 3 + 1
    y = truth(prediction, [0.5, 3.0])
    weighted = fitted("variance", prediction, y, Fit(60, reading=reading), 0.1 * times)
    answers = prediction.answers.repeat_interleave(times, 2)
    repeated = fitted(
        "variance",
        changed(prediction, answers=answers),
        y.repeat_interleave(times, 0),
        Fit(120, reading=reading),
    )
    assert weighted.factor == pytest.approx(repeated.factor)
    assert (weighted.fit.before, weighted.fit.after) == pytest.approx((repeated.fit.before, repeated.fit.after))
    assert weighted.factor != pytest.approx(fitted("variance", prediction, y, Fit(60, reading=reading)).factor)


def test_the_temperature_counts_rows_by_their_weights():
    prediction, times = classes(60, sure=2.5), torch.arange(60) % 3 + 1
    y = labels(classes(60))
    weighted = fitted("temperature", prediction, y, Fit(60), 0.1 * times)
    assert math.log(weighted.value) == pytest.approx(most_probable(prediction, y, times / times.sum()), abs=2e-3)
    assert weighted.value != pytest.approx(fitted("temperature", prediction, y, Fit(60)).value)


def test_weights_of_rows_reach_the_calibration(posterior):
    weights = np.where(np.arange(80) < 40, 1.0, 0.0)
    half = (X[HELD][:40], Y[HELD][:40])
    for by in ("variance", "conformal"):
        found, left = (posterior.calibrated(by, rows) for rows in ((*ROWS, weights), half))
        assert found.calibration[0].fit.rows == 40
        torch.testing.assert_close(found.predict(X[NEW]).interval(0.8), left.predict(X[NEW]).interval(0.8))
    plain, sloped = (posterior.calibrated("variance", rows) for rows in (ROWS, (*ROWS, np.linspace(0.1, 1, 80))))
    assert plain.calibration[0].factor != pytest.approx(sloped.calibration[0].factor)
    plain, sloped = (posterior.calibrated("conformal", rows) for rows in (ROWS, (*ROWS, np.linspace(0.1, 1, 80))))
    assert torch.equal(plain.calibration[0].scores, sloped.calibration[0].scores)
