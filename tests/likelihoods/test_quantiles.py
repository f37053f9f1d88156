"""Quantiles: the pinball loss and its order by definition, scores by hand, conformal coverage, tables."""

import numpy as np
import pytest
import torch
from scipy import stats

import wherefrom as wf
from wherefrom.likelihoods.quantiles import QuantilePrediction
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.training.losses import Pinball, ordered_quantiles

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def test_quantiles_cannot_cross_and_outputs_of_zero_are_a_normal_distribution():
    likelihood = wf.Quantiles(LEVELS)
    units = torch.tensor(likelihood.gap_units, dtype=torch.float64)
    outputs = 5 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    quantiles = ordered_quantiles(outputs, units)
    assert (quantiles.diff(dim=1) > 0).all()
    np.testing.assert_allclose(quantiles[:, 2], outputs[:, 0], atol=1e-12)
    normal = ordered_quantiles(torch.zeros(1, 5, dtype=torch.float64), units)
    np.testing.assert_allclose(normal[0], stats.norm.ppf(LEVELS), atol=1e-10)


def test_the_pinball_loss_is_its_definition():
    likelihood = wf.Quantiles(LEVELS)
    loss = Pinball(likelihood.levels, likelihood.gap_units)
    outputs = torch.randn(30, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    y = torch.randn(30, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    q = ordered_quantiles(outputs, torch.tensor(likelihood.gap_units, dtype=torch.float64)).detach().numpy()
    p, error = np.array(LEVELS), y.numpy() - q
    expected = np.where(error > 0, p * error, (p - 1) * error).mean()
    assert float(loss(outputs.detach(), y)) == pytest.approx(expected, abs=1e-12)
    assert torch.autograd.gradcheck(lambda f: loss(f, y), (outputs,))


def test_the_loss_is_least_at_the_quantiles_of_y():
    """One network without inputs learns the sample's quantiles."""
    random = np.random.default_rng(0)
    y = random.gamma(2.0, size=4000)
    x = np.zeros((4000, 1))
    how = wf.Training(wf.MLP([]), wf.Algorithm("adam", lr=0.02, batch_size=400), 60, wf.Quantiles(LEVELS))
    prediction = wf.marginalise(how, (x, y), []).predict(x[:1])
    inside = [(y <= float(q)).mean() for q in prediction.quantiles[0]]
    np.testing.assert_allclose(inside, LEVELS, atol=0.02)


# ---------------------------------------------------------------------- the prediction


def predicted(answers: np.ndarray, levels=LEVELS) -> QuantilePrediction:
    """Answers (members, rows, levels)."""
    axes = (CrossedAxis("theta0", len(answers), False),)
    mixture = Mixture(torch.as_tensor(answers)[:, None], Plan(1, vary_theta=False, vary_mask=False), axes)
    one = torch.ones(len(levels), dtype=torch.float64)
    return QuantilePrediction(mixture, levels, 10 * one, 2 * one)


ANSWERS = np.array([[[-2.0, -1, 0, 1, 2], [-1, 0, 1, 2, 4]], [[-1.0, -0.5, 0, 0.5, 1], [-3, -1, 1, 2, 2.5]]])


def test_quantiles_and_intervals_by_hand():
    prediction = predicted(ANSWERS)
    mean = 10 + 2 * ANSWERS.mean(0)
    np.testing.assert_allclose(prediction.quantiles, mean)
    np.testing.assert_allclose(prediction.quantile(0.25), mean[:, 1])
    np.testing.assert_allclose(prediction.quantile(0.15), (mean[:, 0] + mean[:, 1]) / 2)
    np.testing.assert_allclose(prediction.median, mean[:, 2])
    low, high = prediction.interval(0.9)
    np.testing.assert_allclose(torch.stack([low, high], 1), mean[:, [0, 4]])
    np.testing.assert_allclose(prediction.variance, 4 * ANSWERS.var(0))
    with pytest.raises(ValueError, match=r"trained from 0.05 to 0.95, and are not known beyond: train wf.Quantiles"):
        prediction.quantile(0.01)
    with pytest.raises(ValueError, match=r"between the quantiles 0.1 and 0.9, .* there are intervals of 0.9, 0.5"):
        prediction.interval(0.8)
    with pytest.raises(ValueError, match="no density, and no NLL"):
        prediction.nll([1.0, 2.0])


def test_probabilities_are_linear_between_quantiles_and_end_at_the_levels():
    prediction = predicted(ANSWERS)
    for p in (0.05, 0.1, 0.25, 0.4, 0.5, 0.62, 0.95):  # the inverse of quantile
        np.testing.assert_allclose(prediction.cdf(prediction.quantile(p)), p, atol=1e-12)
    quantiles = prediction.quantiles.numpy()
    for y in (quantiles[:, 0] + 0.1, quantiles[:, 3] - 0.2):
        expected = [np.interp(value, of_row, LEVELS) for value, of_row in zip(y, quantiles, strict=True)]
        np.testing.assert_allclose(prediction.cdf(y), expected, atol=1e-12)
    np.testing.assert_allclose(prediction.cdf(quantiles[:, 0] - [1e-9, 100.0]), 0.05)
    np.testing.assert_allclose(prediction.cdf(quantiles[:, -1] + [1e-9, 100.0]), 0.95)
    np.testing.assert_allclose(predicted(np.zeros((1, 2, 1)), (0.3,)).cdf([9.0, 11.0]), 0.3)


def test_quantiles_that_coincide_have_the_higher_level():
    prediction = predicted(np.array([[[0.0, 0, 0, 1, 1]]]))
    np.testing.assert_allclose([float(prediction.cdf([y])) for y in (9.9, 10.0, 11.0, 12.0)], [0.05, 0.5, 0.625, 0.95])


def test_scores_by_hand():
    prediction, y = predicted(ANSWERS), np.array([9.0, 20.0])
    error, p = y[:, None] - (10 + 2 * ANSWERS.mean(0)), np.array(LEVELS)
    pinball = np.maximum(p * error, (p - 1) * error)
    assert prediction.pinball(y) == pytest.approx(pinball.mean())
    np.testing.assert_allclose(prediction.pinball(y, by_level=True), pinball.mean(0))
    weights = np.array([0.15, 0.225, 0.25, 0.225, 0.15])
    np.testing.assert_allclose(prediction.crps(y, by_row=True), 2 * pinball @ weights)
    assert prediction.coverage(y, 0.9) == 0.5


def test_many_levels_give_the_crps_of_the_distribution():
    levels = tuple(((np.arange(400) + 0.5) / 400).tolist())
    prediction = predicted(stats.norm.ppf(levels)[None, None], levels)
    z = 0.7
    expected = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    assert prediction.crps([10 + 2 * z]) == pytest.approx(2 * expected, rel=1e-3)


def test_sources_of_each_quantile_add_up():
    prediction = predicted(ANSWERS)
    by_level, whole = prediction.sources(), prediction.sources(by_level=False)
    assert by_level["theta0"].shape == (2, 5)
    assert whole["theta0"].shape == (2,)
    for level in range(5):
        assert by_level.overall_of(level)["theta0"].share in (0.0, 1.0)


# ---------------------------------------------------------------------- training


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, size=(count, 2))
    return x, x[:, 0] + (0.3 + 0.5 * (x[:, 1] > 0)) * random.gamma(2.0, size=count)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_each_quantile_holds_its_share_of_new_rows(engine):
    x, y = rows(3000)
    how = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.01, batch_size=100), 20, wf.Quantiles(LEVELS))
    posterior = wf.marginalise(how, (x[:1500], y[:1500]), [wf.InitialCondition(2)], engine=engine)
    prediction = posterior.predict(x[1500:])
    reach = 4 * np.sqrt(np.array(LEVELS) * (1 - np.array(LEVELS)) / 1500) + 0.015
    assert (np.abs(prediction.below(y[1500:]).numpy() - LEVELS) < reach).all()


def test_conformal_intervals_hold_the_truth_whatever_is_wrong():
    """Networks that learnt nothing: coverage over calibration sets is at least the level, and not much above it."""
    x, y = rows(2600)
    how = wf.Training(wf.MLP([3]), wf.Algorithm("adam", lr=1e-6, batch_size=100), 1, wf.Quantiles(LEVELS))
    posterior = wf.marginalise(how, (x[:100], y[:100] - 3), [])
    assert posterior.predict(x[1600:]).coverage(y[1600:], 0.9) < 0.8
    calibrated = posterior.calibrated("conformal", (x[100:1600], y[100:1600])).predict(x[1600:])
    assert calibrated.coverage(y[1600:], 0.9) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 1000))
    # by hand: the ceil((n + 1) level)-th smallest of what intervals fall short by
    own = posterior.predict(x[100:1600])
    low, high = (each.numpy() for each in own.interval(0.9))
    short = np.sort(np.maximum(low - y[100:1600], y[100:1600] - high))[int(np.ceil(1501 * 0.9)) - 1]
    before, after = posterior.predict(x[1600:]).interval(0.9), calibrated.interval(0.9)
    np.testing.assert_allclose(after[0], before[0] - short, atol=1e-9)
    np.testing.assert_allclose(after[1], before[1] + short, atol=1e-9)


def test_conformal_intervals_by_folds(tmp_path):
    x, y = rows(900)
    how = wf.Training(wf.MLP([10]), wf.Algorithm("adam", lr=0.01, batch_size=50), 12, wf.Quantiles([0.1, 0.5, 0.9]))
    posterior = wf.marginalise(how, (x[:400], y[:400]), [wf.Folds(5)])
    calibrated = posterior.calibrated("conformal")
    prediction = calibrated.predict(x[400:])
    assert prediction.coverage(y[400:], 0.8) == pytest.approx(0.8, abs=0.07)
    calibrated.save(tmp_path)
    again = wf.load(tmp_path).predict(x[400:])
    assert torch.equal(again.interval(0.8)[0], prediction.interval(0.8)[0])


def test_levels_that_cannot_be():
    assert wf.Quantiles([0.9, 0.1]).levels == (0.1, 0.9)
    for wrong in ([], [0.0, 0.5], [0.5, 0.5], [1.0]):
        with pytest.raises(ValueError, match="levels lie between 0 and 1, each named once"):
            wf.Quantiles(wrong)
    with pytest.raises(TypeError, match="levels are numbers between 0 and 1"):
        wf.Quantiles(0.5)
    with pytest.raises(ValueError, match="y has 2 columns; quantiles are of one"):
        wf.Quantiles().encode(np.zeros((4, 2)))


def test_tables(tmp_path):
    x, y = rows(160)
    table = {"a": x[:, 0], "b": x[:, 1], "cost": y}
    model = wf.fit(table, "cost", task="quantiles", over="theta0=2", epochs=8)
    found = model.predict({"a": [0.0], "b": [0.5]})
    assert list(found)[:3] == ["q 0.025", "q 0.05", "q 0.1"]
    assert found["lower"][0] < found["q 0.5"][0] < found["upper"][0]
    model.save(tmp_path / "run")
    assert wf.load(tmp_path / "run").predict({"a": [0.0], "b": [0.5]})["lower"] == found["lower"]
