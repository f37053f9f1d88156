"""Positive quantities: the distribution against scipy, log y's place in training, zeros, and the slot up to tables."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import special, stats
from typer.testing import CliRunner

import wherefrom as wf
from conftest import mlp, training
from wherefrom.cli import app
from wherefrom.likelihoods.positive import _through_sigmoid
from wherefrom.likelihoods.positive_prediction import PositivePrediction
from wherefrom.predictive.background import Background
from wherefrom.predictive.calibration import fitted
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.conformal import Conformal, CrossConformal
from wherefrom.predictive.fit import Fit
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.training.data import Scaler

RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(240, 4))
LOGS = 1.0 + 0.6 * X[:, 0] - 0.3 * X[:, 1] + 0.5 * RANDOM.normal(size=240)
Y = np.exp(LOGS)
OVER = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3))]


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def mixture(answers, noise=None, **others) -> Mixture:
    """Answers (members, samples, rows)."""
    answers = tensor(answers).unsqueeze(-1)
    plan = Plan(answers.shape[1], vary_theta=answers.shape[1] > 1, vary_mask=False)
    noise = None if noise is None else tensor([noise])
    return Mixture(answers, plan, (CrossedAxis("theta0", len(answers), False),), noise=noise, **others)


def predicted(answers, noise=0.3, location=0.5, scale=0.8, **others) -> PositivePrediction:
    return PositivePrediction(mixture(answers, noise), tensor([location]), tensor([scale]), **others)


ANSWERS = np.array([[[0.2, -1.0], [0.5, 0.3]], [[-0.1, 0.8], [0.0, 1.1]]])  # members, samples, rows


# ---------------------------------------------------------------------- the distribution


def test_the_default_is_the_log_normal_with_the_moments_of_log_y():
    prediction = predicted(ANSWERS)
    flat = ANSWERS.reshape(4, 2)
    mean, std = 0.5 + 0.8 * flat.mean(0), 0.8 * np.sqrt(flat.var(0) + 0.3)
    known = [stats.lognorm(s, scale=math.exp(m)) for m, s in zip(mean, std, strict=True)]
    y = np.array([1.3, 0.4])
    close = dict(rtol=1e-10, atol=0)
    densities = tensor([each.logpdf(value) for each, value in zip(known, y, strict=True)])
    torch.testing.assert_close(prediction.log_density(y)[:, 0], densities, **close)
    below = tensor([each.cdf(value) for each, value in zip(known, y, strict=True)])
    torch.testing.assert_close(prediction.cdf(y), below, **close)
    for level in (0.5, 0.95):
        for found, expected in zip(
            prediction.interval(level, "paper"), np.transpose([each.interval(level) for each in known]), strict=True
        ):
            torch.testing.assert_close(found, tensor(expected), **close)
    torch.testing.assert_close(prediction.median, tensor([each.median() for each in known]), **close)
    torch.testing.assert_close(prediction.mean, tensor([each.mean() for each in known]), rtol=1e-5, atol=0)  # the end
    torch.testing.assert_close(prediction.std, tensor([each.std() for each in known]), rtol=1e-3, atol=0)


def test_the_mixture_is_of_log_normals():
    prediction, y = predicted(ANSWERS), np.array([1.3, 0.4])
    parts = [stats.lognorm(0.8 * math.sqrt(0.3), scale=np.exp(0.5 + 0.8 * each)) for each in ANSWERS.reshape(4, 2)]
    density = tensor(np.log(np.mean([part.pdf(y) for part in parts], 0)))
    torch.testing.assert_close(prediction.log_density(y, "mixture")[:, 0], density, rtol=1e-10, atol=0)
    below = tensor(np.mean([part.cdf(y) for part in parts], 0))
    torch.testing.assert_close(prediction.cdf(y, "mixture"), below, rtol=1e-10, atol=0)
    at = prediction.quantile(0.3, "mixture")
    torch.testing.assert_close(prediction.cdf(at, "mixture"), torch.full_like(at, 0.3), rtol=0, atol=1e-10)
    by_member = [np.log(np.mean([parts[2 * k + j].pdf(y) for j in range(2)], 0)) for k in range(2)]
    torch.testing.assert_close(prediction.member_log_densities(y), tensor(np.array(by_member)), rtol=1e-10, atol=0)


def test_draws_have_the_moments():
    prediction = predicted(ANSWERS)
    for reading in (None, "mixture"):
        drawn = prediction.sample(100_000, reading=reading).log()
        mean = prediction.location + prediction.scale * prediction.mixture.mean[:, 0]
        std = prediction.scale * prediction.mixture.variance[:, 0].sqrt()
        assert float(((drawn.mean(0) - mean) / std).abs().max()) < 4 / math.sqrt(100_000)
        torch.testing.assert_close(drawn.std(0), std, rtol=0.01, atol=0)


def test_one_shot_pushes_moments_through_the_exponential():
    """Gaussian answers with a spread are one log-normal each, whose variance of the logarithm holds both."""
    whole = mixture(ANSWERS[:, :1], 0.3, spread=torch.full((2, 1, 2, 1), 0.2, dtype=torch.float64))
    one = PositivePrediction(whole, tensor([0.5]), tensor([0.8]))
    y = np.array([1.3, 0.4])
    parts = [stats.lognorm(0.8 * math.sqrt(0.5), scale=np.exp(0.5 + 0.8 * each)) for each in ANSWERS[:, 0]]
    density = tensor(np.log(np.mean([part.pdf(y) for part in parts], 0)))
    torch.testing.assert_close(one.log_density(y, "mixture")[:, 0], density, rtol=1e-10, atol=0)


def test_no_odd_row_drives_the_mean():
    """However far answers are, and however they differ: nothing is beyond 6 deviations of the training rows' log y."""
    prediction = predicted(np.array([[[15.0, 0.0, -20.0]], [[-15.0, 20.0, -20.0]]]), noise=0.3, location=0.0, scale=1.0)
    assert float(prediction.mean.max()) <= math.exp(6)
    assert float(prediction.std.max()) <= math.exp(6)
    assert float(prediction.mean.min()) >= math.exp(-6)
    assert bool((prediction.std > 0).all())
    assert bool(prediction.crps(np.array([1.0, 2.0, 3.0]), by_row=True).isfinite().all())


@pytest.mark.parametrize("zeros", [False, True])
def test_values_that_are_drawn_for_a_row_have_a_log_normal_each(zeros):
    """One log-normal for draws that are far apart would have a mean beyond all of them."""
    gaps = CrossedAxis("gaps", 2, True, shares_samples=True)
    answers = np.array([[[-2.0, 2.0, 0.1, 0.2]], [[-2.2, 2.1, 0.0, 0.3]]])  # two rows, two draws each
    there = np.array([[[0.5, 0.9, 0.7, 0.8]], [[0.6, 0.8, 0.7, 0.6]]]) if zeros else np.ones((2, 1, 4))
    presence = mixture(there).crossed_with(gaps) if zeros else None
    prediction = PositivePrediction(mixture(answers, 0.1).crossed_with(gaps), tensor([0.5]), tensor([1.5]), presence)
    logs, shares = 0.5 + 1.5 * answers[:, 0].mean(0), there[:, 0].mean(0)
    variances = 1.5**2 * (answers[:, 0].var(0) + 0.1)
    first = shares * np.exp(logs + variances / 2)
    second = shares * np.exp(2 * logs + 2 * variances)
    mean, square = (each.reshape(2, 2).mean(1) for each in (first, second))
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-5)  # y counts as if it ended at 6 deviations
    np.testing.assert_allclose(prediction.variance, square - mean**2, rtol=1e-4)
    assert float(prediction.mean[0]) < first[1]


# ---------------------------------------------------------------------- training


def test_networks_see_log_y():
    weights = tensor([1.0, 2.0, 0.5])
    y = tensor([[1.0], [math.e], [math.exp(4.0)]])
    mean, std = wf.Positive().units(y, weights)
    expected = np.average([0.0, 1.0, 4.0], weights=weights)
    assert float(mean) == pytest.approx(expected)
    scaler = Scaler(torch.zeros(1), torch.ones(1), mean, std, logs=True)
    torch.testing.assert_close(scaler.y(y, torch.float64), (y.log() - mean) / std)
    zeros = wf.Positive(zeros=True).units(torch.cat([y, torch.zeros(2, 1).double()]), None)
    torch.testing.assert_close(zeros, wf.Positive().units(y, None))


@pytest.mark.parametrize("noise", [None, 0.5, "fit", "predicted"])
def test_it_is_the_regression_of_log_y(noise):
    """The same networks, the same noise; densities differ by the logarithm's slope."""
    outputs = wf.Positive(noise).outputs(1)
    both = [
        wf.marginalise(training(mlp(outputs=outputs), likelihood=likelihood), (X[:180], y[:180]), OVER)
        for likelihood, y in ((wf.Positive(noise), Y), (wf.Regression(noise), LOGS))
    ]
    ours, logs = (each.predict(X[180:], samples=20) for each in both)
    torch.testing.assert_close(ours.answers, logs.answers)
    torch.testing.assert_close(ours.log_density(Y[180:]), logs.log_density(LOGS[180:]) - tensor(LOGS[180:, None]))
    torch.testing.assert_close(ours.quantile(0.9), logs.quantile(0.9, "paper").exp())
    for end, of_logs in zip(ours.interval(0.9), logs.interval(0.9), strict=True):
        torch.testing.assert_close(end, of_logs.exp())
    for name, share in ours.sources().items():
        torch.testing.assert_close(share, logs.sources()[name])


def test_several_columns_and_weights():
    y = np.column_stack([Y, 10 * Y**2])
    how = training(mlp(outputs=2), likelihood=wf.Positive(held_out=0.2))
    weights = RANDOM.random(180)
    posterior = wf.marginalise(how, (X[:180], y[:180], weights), OVER)
    prediction = posterior.predict(X[180:], samples=10)
    assert prediction.mean.shape == (60, 2)
    one = prediction.of_output(1)
    torch.testing.assert_close(one.crps(y[180:, 1], by_row=True), prediction.of_output(1).crps(y[180:, 1], by_row=True))
    joint = prediction.nll(y[180:], by_row=True)
    alone = sum(prediction.of_output(j).nll(y[180:, j], by_row=True) for j in range(2))
    torch.testing.assert_close(joint, alone)


def test_what_it_is_given_is_checked():
    with pytest.raises(ValueError, match=r"y is 0 in row 2, which is not positive: wf.Positive\(zeros=True\)"):
        wf.Positive().encode([1.0, 2.0, 0.0])
    with pytest.raises(ValueError, match=r"y is -3 in row 1, which is not positive or 0: wf.Regression\(\)"):
        wf.Positive(zeros=True).encode([1.0, -3.0])
    with pytest.raises(ValueError, match='noise must be None, a number, "fit" or "predicted"'):
        wf.Positive("much")
    with pytest.raises(TypeError, match="zeros is True or False"):
        wf.Positive(zeros=1)
    with pytest.raises(ValueError, match="0 in row 0"):
        predicted(ANSWERS).nll([0.0, 1.0])


# ---------------------------------------------------------------------- calibrated on synthetic truth


def test_the_truth_falls_evenly():
    """Log-normal stays, with defaults: the PIT of new rows is uniform, and the ridge is no better by 0.02."""
    random = np.random.default_rng(5)
    x = random.normal(size=(3000, 3))
    y = np.exp(1.0 + x @ np.array([0.5, -0.3, 0.2]) + 0.7 * random.normal(size=3000))
    how = wf.Training(wf.MLP([20]), wf.Algorithm("adam", lr=0.003, batch_size=50), 15, wf.Positive())
    prediction = wf.marginalise(how, (x[:1000], y[:1000]), OVER).predict(x[1000:], samples=20)
    truth = y[1000:]
    assert stats.kstest(prediction.cdf(truth).numpy(), "uniform").pvalue > 0.01
    assert 0.93 < prediction.coverage(truth) < 0.97
    slopes, *_ = np.linalg.lstsq(np.column_stack([np.ones(1000), x[:1000]]), np.log(y[:1000]), rcond=None)
    away = np.log(y) - np.column_stack([np.ones(3000), x]) @ slopes
    ridge = -stats.norm(0, away[:1000].std()).logpdf(away[1000:]).mean() + np.log(truth).mean()
    assert prediction.nll(truth) < ridge + 0.02


@pytest.mark.parametrize("by", ["variance", "shape", "conformal"])
def test_calibrations_are_on_the_log_scale(by):
    how = training(likelihood=wf.Positive(0.1))
    posterior = wf.marginalise(how, (X[:100], Y[:100]), OVER)
    better = posterior.calibrated(by, (X[100:], Y[100:]))
    before, after = (each.predict(X[100:]) for each in (posterior, better))
    assert after.coverage(Y[100:]) > before.coverage(Y[100:]) + 0.1 or by == "shape"
    low, high = after.interval(0.9)
    assert bool((low > 0).all() and (low < high).all())
    if by != "conformal":
        fit = better.calibration[0].fit
        assert fit.before == pytest.approx(before.nll(Y[100:]))
        assert fit.after < fit.before
    if by == "variance":
        assert after.nll(Y[100:]) == pytest.approx(fit.after)


# ---------------------------------------------------------------------- zeros


@pytest.fixture(scope="module")
def with_zeros():
    random = np.random.default_rng(7)
    x = random.normal(size=(3000, 3))
    p = 1 / (1 + np.exp(-(0.8 + 1.2 * x[:, 0])))
    y = np.where(random.random(3000) < p, np.exp(2.0 + 0.5 * x[:, 1] + 0.6 * random.normal(size=3000)), 0.0)
    how = wf.Training(
        wf.MLP([20]), wf.Algorithm("adam", lr=0.005, batch_size=50), 20, wf.Positive(held_out=0.3, zeros=True)
    )
    return wf.marginalise(how, (x[:1500], y[:1500]), OVER), x[1500:], y[1500:], p[1500:]


def test_zeros_have_their_probability(with_zeros):
    posterior, x, y, p = with_zeros
    prediction = posterior.predict(x, samples=20)
    assert float((prediction.zero_probability - tensor(1 - p)).abs().mean()) < 0.05
    there = y > 0
    best = -np.log(1 - p[~there]).sum()
    best -= (np.log(p[there]) + stats.lognorm(0.6, scale=np.exp(2.0 + 0.5 * x[there, 1])).logpdf(y[there])).sum()
    assert prediction.nll(y) < best / len(y) + 0.03
    assert 0.93 < prediction.coverage(y) < 0.97
    above = (prediction.cdf(y) - prediction.zero_probability) / (1 - prediction.zero_probability)
    assert stats.kstest(above[there].numpy(), "uniform").pvalue > 0.01
    at_zero = prediction.zero_probability.numpy() * np.random.default_rng(1).uniform(size=len(y))
    pit = np.where(there, prediction.cdf(y).numpy(), at_zero)  # randomised, since zeros have a probability
    assert stats.kstest(pit, "uniform").pvalue > 0.01


def test_the_report_speaks_of_medians_factors_and_zeros(with_zeros):
    posterior, x, y, _ = with_zeros
    prediction = posterior.predict(x[:60], samples=20)
    view = prediction.views(y[:60], ["stay"], "fit", "days")[0]
    listed = torch.arange(59, -1, -2)
    shown = view.shown(listed, None)
    points, truth = shown["points"], y[:60][listed]
    np.testing.assert_allclose(points["median"], prediction.median[listed], rtol=1e-4)
    np.testing.assert_allclose(points["factor"], prediction.logs.std[listed].exp(), rtol=1e-4)
    np.testing.assert_allclose(points["zero"], prediction.zero_probability[listed], rtol=1e-4)
    assert [off is None for off in points["off"]] == (truth == 0).tolist()
    logs = np.log(truth[truth > 0])
    expected = (logs - prediction.logs.mean[listed].numpy()[truth > 0]) / prediction.logs.std[listed].numpy()[truth > 0]
    np.testing.assert_allclose([off for off in points["off"] if off is not None], expected, rtol=0.01, atol=1e-3)
    baseline, nll = view.baseline(), prediction.nll(y[:60], by_row=True)
    assert view.words.main_score == "nll"
    assert baseline["gain"]["mean"] == pytest.approx(baseline["scores"]["nll"] - float(nll.mean()))
    low, high = (float(end) for end in shown["headline"]["big"].split(" to "))
    assert low < float(prediction.median.median()) < high


def test_an_interval_that_begins_at_zero_misses_above_alone(with_zeros):
    posterior, x, _, _ = with_zeros
    prediction = posterior.predict(x[:200], samples=20)
    low, high = prediction.interval(0.9, "gaussian")
    zero = prediction.zero_probability
    is_zero = zero >= 0.05
    assert 0 < int(is_zero.sum()) < 200
    assert not low[is_zero].any()
    assert bool((low[~is_zero] > 0).all())
    torch.testing.assert_close(prediction.cdf(high)[is_zero], torch.maximum(zero, 1 - zero.clamp_max(0.1))[is_zero])
    wider_low, wider_high = prediction.interval(0.9, "few_members")
    assert torch.equal(wider_low == 0, low == 0)
    assert bool((wider_high >= high * (1 - 1e-9))[zero < 0.5].all())  # of a y above 0, more than its median


def test_conformal_intervals_with_zeros_hold_what_they_say(with_zeros):
    """Of a model that is far too sure, as of others; the rows that calibrate are held ceil((n + 1) level) times."""
    _, x, y, p = with_zeros
    logs, logits = tensor(2.0 + 0.5 * x[:, 1]), tensor(np.log(p / (1 - p)))
    presence = mixture(torch.sigmoid(0.5 * logits)[None, None], 0.2)
    sure = PositivePrediction(mixture(logs[None, None], 0.3**2), tensor([0.0]), tensor([1.0]), presence)
    some, others = slice(0, 499), slice(499, None)
    assert sure.of_rows(others).coverage(y[others]) < 0.9
    conformal = fitted("conformal", sure.of_rows(some), y[some], Fit(499))
    after = conformal.applied(sure)
    assert after.reading == "conformal"
    for level in (0.5, 0.9, 0.95):
        low, high = after.of_rows(some).interval(level)
        held = (tensor(y[some]) >= low - 1e-9) & (tensor(y[some]) <= high + 1e-9)
        assert int(held.sum()) == math.ceil(500 * level)
        error = math.sqrt(level * (1 - level) * (1 / 1001 + 1 / 500))
        assert abs(after.of_rows(others).coverage(y[others], level) - level) < 3.5 * error
    with pytest.raises(ValueError, match="there is no conformal interval"):
        sure.interval(0.9, "conformal")


def test_folds_calibrate_zeros_as_all_rows_say():
    """CV+: the ends are order statistics of the intervals that every row needed, by the members that left it out."""
    answers = np.array([[[0.2, -1.0, 0.4]], [[-0.1, 0.8, 0.0]], [[0.6, 0.1, -0.3]]])
    chances = np.array([[[0.9, 0.6, 0.985]], [[0.8, 0.75, 0.99]], [[0.95, 0.3, 0.98]]])
    axis = (CrossedAxis("D", 3, False),)
    logs, presence = (replace(mixture(each, 0.3), axes=axis) for each in (answers, chances))
    whole = PositivePrediction(logs, tensor([0.5]), tensor([0.8]), presence)
    scores = tensor(np.random.default_rng(1).random(60) ** 0.5)[:, None]
    parts = torch.arange(60) % 3
    conformal = CrossConformal(scores, parts, "D", Fit(60))
    by_draw = [
        replace(whole, mixture=logs.of_members([k]), presence=presence.of_members([k]))._networks for k in range(3)
    ]
    for level in (0.6, 0.8, 0.95):
        ends = [by_draw[k].interval(score) for score, k in zip(scores[:, 0], parts.tolist(), strict=True)]
        lows, highs = (torch.stack(side)[:, :, 0].sort(0).values for side in zip(*ends, strict=True))
        place = math.ceil(61 * level)
        low, high = conformal.applied(whole).interval(level)
        torch.testing.assert_close(low, lows[60 - place], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(high, highs[place - 1], rtol=1e-9, atol=1e-12)
    left_out = conformal.of_left_out(torch.tensor([0, 2, 1])).applied(whole)
    for row, draw in enumerate((0, 2, 1)):
        alone = Conformal(scores[parts != draw].sort(0).values, Fit(40)).applied(whole)
        for end, expected in zip(left_out.interval(0.8), alone.interval(0.8), strict=True):
            assert float(end[row]) == pytest.approx(float(expected[row]))


def test_sources_of_zeros_add_up(with_zeros):
    posterior, x, _, _ = with_zeros
    for method in ("monte_carlo", "one_shot"):
        prediction = posterior.predict(x[:50], samples=20, method=method)
        split = prediction.sources(of="y > 0")
        total = sum(split.values())
        torch.testing.assert_close(total, torch.ones_like(total))
        assert {"theta0", "noise"} <= set(split.names)
    with pytest.raises(ValueError, match="log y"):
        prediction.sources(of="zeros")
    with pytest.raises(ValueError, match="never 0"):
        predicted(ANSWERS).sources(of="y > 0")


def test_the_mean_of_a_sigmoid_is_that_of_draws():
    mean, variance = tensor([0.3, -2.0, 4.0]), tensor([0.0, 1.5, 3.0])
    found, spread = _through_sigmoid(mean, variance)
    for m, v, p, s in zip(mean, variance, found, spread, strict=True):
        if v == 0:
            assert float(p) == pytest.approx(float(torch.sigmoid(m)))
            continue
        normal = stats.norm(float(m), float(v) ** 0.5)
        expected = [normal.expect(lambda z, n=n: special.expit(z) ** n, epsabs=1e-12) for n in (1, 2)]
        assert float(p) == pytest.approx(float(expected[0]), abs=1e-8)
        assert float(s) == pytest.approx(float(expected[1] - expected[0] ** 2), abs=1e-8)


# ---------------------------------------------------------------------- rows outside


@pytest.mark.parametrize("zeros", [False, True])
def test_a_background_keeps_the_mean_of_the_training_rows(zeros):
    y = tensor(np.where(np.arange(240) % 5 == 0, 0.0, Y) if zeros else Y)[:, None]
    likelihood = wf.Positive(zeros=zeros)
    points, noise = likelihood.background(y, None, 1)
    known = Background(points[None], noise[None], torch.ones(1, dtype=torch.float64))
    presence = mixture(np.full((2, 2, 2), 0.7), 0.21) if zeros else None
    outside = predicted(ANSWERS, presence=presence).blended(known.at([1.0, 1.0]))
    torch.testing.assert_close(outside.mean, y.mean().expand(2))
    drawn = outside.sample(200_000)
    assert bool((drawn.mean(0) - y.mean()).abs().max() < 5 * float(drawn.std()) / math.sqrt(200_000))
    low, high = outside.interval(0.95)
    assert bool((low >= 0).all())
    held = (drawn >= low) & (drawn <= high)
    assert float(held.double().mean()) > 0.94
    if zeros:
        assert float(outside.zero_probability[0]) == pytest.approx(0.2, abs=0.02)


# ---------------------------------------------------------------------- tables


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_a_table_of_costs_from_the_command_line(tmp_path, zeros):
    cost = np.where(np.arange(240) % 4 == 0, 0.0, Y) if zeros else Y
    lines = ["a,b,ward,cost"]
    lines += [f"{x[0]:.3f},{x[1]:.3f},{'nw'[k % 2]},{y:.4f}" for k, (x, y) in enumerate(zip(X, cost, strict=True))]
    (tmp_path / "costs.csv").write_text("\n".join(lines))
    common = ["--epochs", "4", "--draws", "2", "--families", "network,trees"]
    fit = ["fit", str(tmp_path / "costs.csv"), "--target", "cost", "--task", "positive", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*fit, *common])
    assert done.exit_code == 0, done.output
    assert "cost: positive" in done.output
    ask = ["predict", str(tmp_path / "run"), str(tmp_path / "costs.csv"), "--out", str(tmp_path / "answers.csv")]
    done = CliRunner().invoke(app, ask)
    assert done.exit_code == 0, done.output
    header = (tmp_path / "answers.csv").read_text().splitlines()[0].split(",")
    assert {"mean", "median", "std", "lower", "upper"} <= set(header)
    assert ("zero" in header) == zeros
