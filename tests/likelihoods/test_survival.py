"""Times that may be censored, against scipy's distributions and quadratures, and on synthetic truth."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch import nn

import wherefrom as wf
from conftest import mlp
from wherefrom.likelihoods import survival_prediction
from wherefrom.likelihoods.censored import as_censored
from wherefrom.likelihoods.survival import _exponential_integral, _squares
from wherefrom.predictive import row_scores
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.training.data import Scaler
from wherefrom.training.survival import LAWS, LOSSES, same_for_all

LOCATION, SCALE = 1.5, 0.8
MEMBERS, SAMPLES, ROWS = 3, 2, 4
RANDOM = np.random.default_rng(2)
MIDDLE = RANDOM.normal(size=(MEMBERS, SAMPLES, ROWS))
WIDTH = 0.5 + RANDOM.uniform(size=(MEMBERS, SAMPLES, ROWS))
TIMES = np.array([0.7, 3.0, 20.0, 6.0])
Y = np.stack([TIMES, [1, 0, 1, 0], [0.0, 1.0, 2.5, 0.0]], 1)


def scipys(law: str, m: float, s: float):
    """The distribution of T = exp(LOCATION + SCALE (m + s W))."""
    middle, width = math.exp(LOCATION + SCALE * m), SCALE * s
    if law == "weibull":
        return stats.weibull_min(1 / width, scale=middle)
    return stats.lognorm(width, scale=middle) if law == "lognormal" else stats.fisk(1 / width, scale=middle)


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def predicted(law: str, middle=MIDDLE, width=WIDTH, share: float = 0.6, **mixture) -> wf.SurvivalPrediction:
    moments = LAWS[law]
    width = tensor(width)
    answers = (tensor(middle) + moments.mean * width)[..., None]
    made = Mixture(
        answers,
        Plan(answers.shape[1], vary_theta=answers.shape[1] > 1, vary_mask=False),
        mixture.pop("axes", (CrossedAxis("theta0", len(answers), False),)),
        noise=(moments.variance * width.square())[..., None],
        **mixture,
    )
    return wf.SurvivalPrediction(made, tensor([LOCATION]), tensor([SCALE]), law, share)


@pytest.fixture(params=LAWS)
def law(request) -> str:
    return request.param


def parts(law: str, row: int) -> list:
    return [scipys(law, MIDDLE[i, k, row], WIDTH[i, k, row]) for i in range(MEMBERS) for k in range(SAMPLES)]


def mixed(law: str, row: int, function: str, *about) -> float:
    return float(np.mean([getattr(part, function)(*about) for part in parts(law, row)]))


# ---------------------------------------------------------------------- laws


def test_moments_and_quantiles_of_the_laws(law):
    of_w = {"weibull": stats.gumbel_l, "lognormal": stats.norm, "loglogistic": stats.logistic}[law]
    assert LAWS[law].mean == pytest.approx(of_w.mean(), abs=1e-12)
    assert LAWS[law].variance == pytest.approx(of_w.var(), rel=1e-12)
    z, p = np.linspace(-30, 3.0, 200), np.linspace(0.001, 0.999, 50)
    np.testing.assert_allclose(-LAWS[law].cumulative(tensor(z)), of_w.logsf(z), rtol=1e-10)
    np.testing.assert_allclose(LAWS[law].log_density(tensor(z)), of_w.logpdf(z), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(LAWS[law].quantile(tensor(p)), of_w.ppf(p), rtol=1e-10, atol=1e-12)


def test_the_loss_is_the_likelihood_of_what_was_seen(law):
    """Less what does not depend on the outputs: log t of events."""
    outputs = tensor([[0.3, -0.4], [1.0, 0.2], [-0.5, 0.7], [0.1, 0.0]])
    y = tensor(np.stack([np.log(Y[:, 0]), Y[:, 1], np.log(np.maximum(Y[:, 2], 1e-300))], 1))
    total = 0.0
    for (m, v), (time, event, entry) in zip(outputs.tolist(), Y, strict=True):
        part = scipys(law, (m - LOCATION) / SCALE, math.exp(v / 2) / SCALE)
        seen = part.logpdf(time) + math.log(time) if event else part.logsf(time)
        total -= seen - part.logsf(entry)
    assert float(LOSSES[law]()(outputs, y)) == pytest.approx(total / 4, rel=1e-10)
    one = LOSSES[law]((0.6,))(outputs[:, :1], y)
    both = torch.cat([outputs[:, :1], torch.full_like(outputs[:, :1], 2 * math.log(0.6))], 1)
    assert float(one) == pytest.approx(float(LOSSES[law]()(both, y)), rel=1e-12)


def test_one_distribution_for_all_rows_is_the_most_likely_one(law):
    random = np.random.default_rng(0)
    time = np.exp(2 + 0.7 * random.normal(size=300))
    cut = random.exponential(15, size=300)
    entry = random.uniform(0, 1.5, size=300)
    seen = np.minimum(time, cut) > entry
    y = as_censored(np.stack([np.minimum(time, cut), time <= cut, entry], 1)[seen]).encoded
    weights = tensor(random.integers(1, 3, size=len(y)))
    units = same_for_all(LAWS[law], y, weights)

    def cost(at: np.ndarray) -> float:
        middle, width = at
        part = scipys(law, (middle - LOCATION) / SCALE, math.exp(width) / SCALE)
        logs = np.where(y[:, 1] > 0, part.logpdf(y[:, 0].exp()), part.logsf(y[:, 0].exp())) - part.logsf(y[:, 2].exp())
        return -float((weights.numpy() * logs).sum())

    best = optimize.minimize(cost, [1.5, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-10})
    assert units.location == pytest.approx(best.x[0], abs=1e-6)
    assert math.log(units.scale) == pytest.approx(best.x[1], abs=1e-6)


def test_times_that_are_all_the_same_have_a_scale():
    y = as_censored(np.tile([[3.0, 1.0]], (5, 1))).encoded
    assert same_for_all(LAWS["weibull"], y).scale == 1.0


def test_integrals_of_squares(law):
    """Closed forms, against scipy's quadrature of F^2 and S^2."""
    of_w = {"weibull": stats.gumbel_l, "lognormal": stats.norm, "loglogistic": stats.logistic}[law]
    z = np.array([-4.0, -1.0, 0.0, 0.7, 2.0])
    below, above = _squares(LAWS[law], tensor(z))
    for k, at in enumerate(z):
        assert float(below[k]) == pytest.approx(integrate.quad(lambda v: of_w.cdf(v) ** 2, -60, at)[0], abs=1e-9)
        assert float(above[k]) == pytest.approx(integrate.quad(lambda v: of_w.sf(v) ** 2, at, 60)[0], abs=1e-9)


def test_the_exponential_integral():
    from scipy.special import exp1

    x = np.logspace(-8, 2, 500)
    np.testing.assert_allclose(_exponential_integral(tensor(x)), exp1(x), rtol=1e-12)


# ---------------------------------------------------------------------- the mixture


def test_curves_are_the_mean_of_scipys(law):
    prediction, times = predicted(law), [0.0, 0.5, 4.0, 30.0]
    survival, hazard = prediction.survival(times), prediction.hazard(times[1:])
    for row in range(ROWS):
        expected = [mixed(law, row, "sf", time) for time in times]
        np.testing.assert_allclose(survival[row], expected, rtol=1e-10, atol=1e-14)
        rates = [mixed(law, row, "pdf", time) / mixed(law, row, "sf", time) for time in times[1:]]
        np.testing.assert_allclose(hazard[row], rates, rtol=1e-9)
    torch.testing.assert_close(prediction.cdf(times), 1 - survival)


def test_likelihood_of_events_censored_and_late_rows(law):
    nll = predicted(law).nll(Y, by_row=True)
    for row, (time, event, entry) in enumerate(Y):
        seen = mixed(law, row, "pdf", time) if event else mixed(law, row, "sf", time)
        assert float(nll[row]) == pytest.approx(-math.log(seen / mixed(law, row, "sf", entry)), rel=1e-10)
    assert predicted(law).nll(Y) == pytest.approx(float(nll.mean()))


def test_members_by_themselves(law):
    logs = predicted(law).member_log_densities(Y)
    for member in range(MEMBERS):
        for row, (time, event, entry) in enumerate(Y):
            own = [scipys(law, MIDDLE[member, k, row], WIDTH[member, k, row]) for k in range(SAMPLES)]
            seen = np.mean([each.pdf(time) if event else each.sf(time) for each in own])
            expected = math.log(seen / np.mean([each.sf(entry) for each in own]))
            assert float(logs[member, row]) == pytest.approx(expected, rel=1e-10)
    assert predicted(law).member_log_densities(Y, by_output=True).shape == (MEMBERS, ROWS, 1)


def test_weights_of_members(law):
    """To weigh a member twice as much is to have it twice; to weigh it nothing is to leave it out."""
    weighted = predicted(law, weights=tensor([2 / 3, 1 / 3, 0.0]), axes=())
    twice = [0, 0, 1]
    copies = predicted(law, MIDDLE[twice], WIDTH[twice], axes=())
    torch.testing.assert_close(weighted.nll(Y, by_row=True), copies.nll(Y, by_row=True))
    torch.testing.assert_close(weighted.median, copies.median)
    torch.testing.assert_close(weighted.mean, copies.mean)
    low, high = weighted.survival_interval([3.0], 0.5)
    assert (low <= high).all()


def test_quantiles_are_where_the_curve_says(law):
    prediction = predicted(law)
    for probability in (0.01, 0.5, 0.9):
        times = prediction.quantile(probability)
        for row in range(ROWS):
            assert mixed(law, row, "cdf", float(times[row])) == pytest.approx(probability, abs=1e-10)
    low, high = prediction.interval(0.8, "mixture")
    torch.testing.assert_close(low, prediction.quantile(0.1))
    torch.testing.assert_close(high, prediction.quantile(0.9))


def test_moments_of_log_time(law):
    prediction = predicted(law)
    for row in range(ROWS):
        logs = [part.expect(np.log) for part in parts(law, row)]
        squares = [part.expect(lambda t: np.log(t) ** 2) for part in parts(law, row)]
        assert float(prediction.mean[row]) == pytest.approx(np.mean(logs), abs=1e-6)
        assert float(prediction.variance[row]) == pytest.approx(np.mean(squares) - np.mean(logs) ** 2, rel=1e-5)


def test_restricted_means(law):
    found = predicted(law).restricted_mean(8.0)
    for row in range(ROWS):
        expected = integrate.quad(lambda t: mixed(law, row, "sf", t), 0, 8.0, epsabs=1e-10)[0]  # noqa: B023
        assert float(found[row]) == pytest.approx(expected, rel=1e-6)


def test_crps_of_log_time(law):
    found = predicted(law).crps(Y, by_row=True)
    for row, (time, event, _) in enumerate(Y):

        def below(log, row=row):
            return mixed(law, row, "cdf", math.exp(log)) ** 2

        def above(log, row=row):
            return mixed(law, row, "sf", math.exp(log)) ** 2

        expected = integrate.quad(below, -40, math.log(time), limit=200)[0]
        expected += integrate.quad(above, math.log(time), 15, limit=200)[0] if event else 0.0
        assert float(found[row]) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_samples_have_the_distribution(law):
    """Kolmogorov and Smirnov, at a fixed seed."""
    drawn = predicted(law).sample(4000, seed=1)
    assert drawn.shape == (4000, ROWS)
    for row in range(ROWS):
        cdf = np.vectorize(lambda t, row=row: mixed(law, row, "cdf", t))
        assert stats.kstest(drawn[::20, row].numpy(), cdf).pvalue > 0.01
    torch.testing.assert_close(drawn.log().mean(0), predicted(law).mean, atol=0.1, rtol=0)


def test_bands_are_quantiles_of_the_answers(law):
    low, high = predicted(law).survival_interval([4.0], 0.6)
    for row in range(ROWS):
        curves = [part.sf(4.0) for part in parts(law, row)]
        np.testing.assert_allclose([low[row, 0], high[row, 0]], np.quantile(curves, [0.2, 0.8]), rtol=1e-10)


def test_coverage_of_censored_rows_is_what_they_say_by_themselves(law):
    prediction = predicted(law)
    low, high = prediction.interval(0.7)
    expected = []
    for row, (time, event, entry) in enumerate(Y):
        ends = [mixed(law, row, "cdf", float(end)) for end in (low[row], high[row])]  # probabilities, also after entry
        earlier = 1 - mixed(law, row, "sf", time) / mixed(law, row, "sf", entry)
        beyond = max(0.0, ends[1] - max(ends[0], earlier)) / (1 - earlier)
        expected.append(float(ends[0] <= earlier <= ends[1]) if event else beyond)
    assert prediction.coverage(Y, 0.7) == pytest.approx(np.mean(expected), rel=1e-8)
    least, most = prediction.probabilities(Y)
    late = 2
    entered = mixed(law, late, "sf", Y[late, 2])
    assert float(least[late]) == pytest.approx(1 - mixed(law, late, "sf", Y[late, 0]) / entered, rel=1e-9)
    assert most.tolist()[1] == 1.0


def test_times_after_a_late_entry_are_covered_as_often_as_intervals_say():
    """The right law, in rows that are only there because their time is after their entry."""
    random, count = np.random.default_rng(0), 4000
    x = random.normal(size=count)
    time = np.exp(1 + 0.5 * x + 0.5 * random.logistic(size=count))
    entry = random.uniform(2, 12, size=count)
    kept = time > entry
    y = np.stack([time, np.ones(count), entry], 1)[kept]
    training = wf.Training(
        wf.MLP(()), wf.Algorithm("adam", lr=0.03, batch_size=64), 40, wf.Survival("fit", law="loglogistic")
    )
    prediction = wf.marginalise(training, (x[kept, None], y), [wf.InitialCondition(2)]).predict(x[kept, None])
    for level in (0.8, 0.95):
        error = math.sqrt(level * (1 - level) / kept.sum())
        assert prediction.coverage(y, level) == pytest.approx(level, abs=3 * error)
    assert prediction.brier(y, [1.0, 9.0])[0] == pytest.approx(0.0, abs=1e-12)  # all were there by then


def test_few_events_are_said_and_not_scored():
    """Of 40 rows, 3 had the event by 2, none by 0.5 and 9 at all; tables have neither concordance nor a Brier score."""
    rows = 40
    time = np.linspace(1.0, 9.0, rows)
    event = (np.arange(rows) % 4 == 0) & (np.arange(rows) > 0)
    answers = np.linspace(0, 1, 2 * rows).reshape(2, 1, rows)
    prediction, y = predicted("weibull", answers, np.full_like(answers, 0.5)), np.stack([time, event], 1)
    early = int((event & (time <= 3)).sum())
    with pytest.warns(UserWarning, match=rf"only {early} of these 40 rows had the event by 3: a Brier score of so few"):
        prediction.brier(y, [2.0, 3.0])
    with pytest.warns(UserWarning, match="only 9 of these 40 rows had the event at all: a concordance"):
        prediction.concordance(y)
    with pytest.raises(ValueError, match=r"none of these 40 rows had the event by 0\.5: there is nothing to score"):
        prediction.integrated_brier(y, [0.2, 0.5])
    for count in (9, 10):
        event[1] = count == 10
        columns = prediction.row_scores(prediction.columns(0.95)[0], np.stack([time, event], 1))
        summary = prediction.summary({name: torch.as_tensor(values) for name, values in columns.items()})
        assert (summary.scores["concordance"].value is None) == (count == 9)
        assert (summary.scores["ibs"].value is None) == (count == 9)
        assert summary.scores["nll"].value is not None


# ---------------------------------------------------------------------- sources


def test_sources_split_the_variance_of_being_without_the_event():
    """One sample a member: S (1 - S) without bias is the members' variance (n - 1) and the mean of S_k (1 - S_k)."""
    prediction = predicted("weibull", MIDDLE[:, :1], WIDTH[:, :1])
    curves = np.array(
        [[scipys("weibull", MIDDLE[i, 0, r], WIDTH[i, 0, r]).sf(4.0) for r in range(4)] for i in range(3)]
    )
    split = prediction.sources(at=4.0)
    np.testing.assert_allclose(split.variance["theta0"], curves.var(0, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(split.variance["noise"], (curves * (1 - curves)).mean(0), rtol=1e-9)
    torch.testing.assert_close(split["theta0"] + split["noise"], torch.ones(ROWS, dtype=torch.float64))
    default = prediction.sources()
    at_horizon = prediction.sources(at=prediction.horizon)
    torch.testing.assert_close(default["noise"], at_horizon["noise"])
    assert prediction.row_doubt.shape == (ROWS,)


def test_sources_are_right_on_average_for_few_draws():
    """Two initial conditions and three samples: the mean of 4,000 estimates, to four standard errors of it."""
    random = np.random.default_rng(0)
    many, at = 4000, 4.0
    start, sample = 0.6 * random.normal(size=(2, 1, many)), 0.5 * random.normal(size=(2, 3, many))
    split = predicted("lognormal", start + sample, np.full((2, 3, many), 0.7)).sources(at=at)
    grid = np.polynomial.hermite_e.hermegauss(60)
    weights = np.outer(grid[1], grid[1]) / (2 * np.pi)
    each = np.vectorize(lambda a, b: scipys("lognormal", 0.6 * a + 0.5 * b, 0.7).sf(at))(*np.meshgrid(*[grid[0]] * 2))
    of_start = (weights.sum(0) * ((weights * each).sum(0) / weights.sum(0)) ** 2).sum() - (weights * each).sum() ** 2
    whole = (weights * each**2).sum() - (weights * each).sum() ** 2
    expected = {"theta0": of_start, "t": whole - of_start, "noise": (weights * each * (1 - each)).sum()}
    for name, value in expected.items():
        estimates = split.variance[name].numpy()
        assert estimates.mean() == pytest.approx(value, abs=4 * estimates.std() / math.sqrt(many))


def test_the_horizon_is_within_the_follow_up():
    """By the law of all rows, half as many have had the event by then as have it among the training rows."""
    for law, share in (("weibull", 0.3), ("lognormal", 1.0)):
        horizon = predicted(law, share=share).horizon
        assert scipys(law, 0.0, 1.0).cdf(horizon) == pytest.approx(share / 2, rel=1e-9)
    assert predicted("weibull", share=0.0).horizon == pytest.approx(float(predicted("weibull").median.median()))


# ---------------------------------------------------------------------- one-shot


def test_one_shot_adds_the_spread_of_the_location(law):
    """Against scipy's quadrature over a normal location; of the log-normal law it is exact."""
    spread = tensor([[[0.3], [0.5], [0.1], [0.0]]])[None]
    one = predicted(law, MIDDLE[:1, :1], WIDTH[:1, :1], spread=spread[0][None].reshape(1, 1, ROWS, 1), axes=())
    one = replace(one, mixture=replace(one.mixture, within=lambda: {"t": one.mixture.spread[:, 0]}))
    survival = one.survival([3.0, 9.0])
    for row in range(ROWS):
        width = math.sqrt(float(spread.flatten()[row]))
        for k, time in enumerate((3.0, 9.0)):

            def curve(m, row=row, time=time, width=width):
                return scipys(law, MIDDLE[0, 0, row] + width * m, WIDTH[0, 0, row]).sf(time) * stats.norm.pdf(m)

            assert float(survival[row, k]) == pytest.approx(integrate.quad(curve, -9, 9)[0], abs=1e-7)
    split = one.sources(at=3.0)
    torch.testing.assert_close(sum(split.values()), torch.ones(ROWS, dtype=torch.float64))
    curves = [
        scipys(law, MIDDLE[0, 0, 0] + math.sqrt(0.3) * m, WIDTH[0, 0, 0]).sf(3.0) for m in np.linspace(-8, 8, 4001)
    ]
    weights = stats.norm.pdf(np.linspace(-8, 8, 4001)) * 16 / 4000
    variance = (weights * np.square(curves)).sum() - (weights * np.array(curves)).sum() ** 2
    assert float(split.variance["t"][0]) == pytest.approx(variance, rel=1e-5)


# ---------------------------------------------------------------------- calibration


def test_a_factor_of_the_variance_stretches_log_time(law):
    prediction = predicted(law)
    log_factor = tensor([0.4])
    expected = prediction.stretched(log_factor.exp()).nll(Y, by_row=True)
    torch.testing.assert_close(prediction.stretched_nll(Y)(log_factor)[:, 0], expected)
    torch.testing.assert_close(prediction.stretched(log_factor.exp()).mean, prediction.mean)
    torch.testing.assert_close(
        prediction.stretched(log_factor.exp()).variance, 1.0 * log_factor.exp() * prediction.variance
    )


# ---------------------------------------------------------------------- y


@pytest.mark.parametrize(
    "y",
    [
        [[2.0, 1], [3.0, 0]],
        (np.array([2.0, 3.0]), np.array([True, False])),
        {"time": [2.0, 3.0], "event": [True, False]},
        np.array([(True, 2.0), (False, 3.0)], dtype=[("cens", "?"), ("months", "<f8")]),
        np.array([(1, 2.0), (0, 3.0)], dtype=[("event", "i4"), ("time", "<f8")]),
        torch.tensor([[2.0, 1], [3.0, 0]]),
    ],
    ids=["list", "two arrays", "dictionary", "structured", "named", "tensor"],
)
def test_y_as_people_have_it(y):
    time, event, entry = as_censored(y)
    assert time.tolist() == [2.0, 3.0]
    assert event.tolist() == [True, False]
    assert entry.tolist() == [0.0, 0.0]


def test_y_as_a_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"days": [2.0, 3.0], "died": [True, False], "since": [0.5, 0.0]})
    encoded = wf.Survival().encode(frame)
    assert encoded.names == ("days",)
    assert as_censored(frame).entry.tolist() == [0.5, 0.0]
    swapped = frame.rename(columns={"days": "event", "died": "time"})[["event", "time"]]
    assert as_censored(swapped[["time", "event"]].assign(event=[1, 0], time=[4.0, 5.0])).time.tolist() == [4.0, 5.0]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([[0.0, 1], [3.0, 0]], "time of y is 0 in row 0 .*not above zero"),
        ([[1.0, 1], [3.0, 2]], "event of y is 2 in row 1"),
        ([[1.0, 1], [math.nan, 0]], "time of y is nan in row 1"),
        ([[1.0, 1, 1.0], [3.0, 0, 0.0]], "entry of y is 1 in row 0 .*not before the time"),
        ([[1.0, 1, -1.0], [3.0, 0, 0.0]], "entry of y is -1 in row 0"),
        ([1.0, 2.0], r"y has the shape \(2,\): give y as columns"),
        ({"time": [1.0], "died": [1]}, "y has the columns"),
        ({"time": [1.0, 2.0], "event": [1]}, "2 times, but 1 events"),
        ({"time": ["a"], "event": [1]}, "not a number"),
        (np.array([(1.0, 2.0)], dtype=[("a", "<f8"), ("b", "<f8")]), "one of true and false"),
    ],
)
def test_a_wrong_y_is_named(y, words):
    with pytest.raises(ValueError, match=words):
        as_censored(y)


def test_wrong_settings_are_named():
    for settings, words in (
        (dict(law="gamma"), "law must be one of"),
        (dict(noise=-1.0), "above zero"),
        (dict(noise="much"), "noise must be None"),
    ):
        with pytest.raises(ValueError, match=words):
            wf.Survival(**settings)
    with pytest.raises(ValueError, match="no row has the event"):
        wf.Survival().units(as_censored([[1.0, 0], [2.0, 0]]).encoded, None)
    prediction = predicted("weibull")
    with pytest.raises(ValueError, match="y has 1 rows, but the prediction is for 4"):
        prediction.nll(Y[:1])
    with pytest.raises(ValueError, match="times are finite numbers"):
        prediction.survival([-1.0])
    with pytest.raises(ValueError, match="times must increase"):
        prediction.brier(Y, [2.0, 1.0])
    with pytest.raises(ValueError, match="the error of a censored time is not known"):
        prediction.rmse(Y)
    with pytest.raises(ValueError, match="a censored row it is not known"):
        prediction.conformal_scores(Y)
    with pytest.raises(ValueError, match="kind must be"):
        prediction.concordance(Y, kind="somers")


def test_encoded_times_come_back():
    encoded = as_censored(Y).encoded
    again = as_censored(torch.cat([encoded[:, :1].exp(), encoded[:, 1:2], encoded[:, 2:].exp()], 1))
    torch.testing.assert_close(again.time, as_censored(Y).time)
    torch.testing.assert_close(again.encoded, encoded)


# ---------------------------------------------------------------------- synthetic truth


COUNT = 1500


def synthetic(law: str, seed: int = 0):
    """Log times that are linear in x, with a scale of 0.5; a third is censored, and some rows enter late."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(COUNT, 2))
    w = LAWS[law].quantile(tensor(random.uniform(size=COUNT))).numpy()
    time = np.exp(3 + x[:, 0] - 0.5 * x[:, 1] + 0.5 * w)
    cut = np.exp(3.7 + 1.2 * random.normal(size=COUNT))
    entry = np.where(random.uniform(size=COUNT) < 0.3, random.uniform(0, 5, size=COUNT), 0.0)
    y = np.stack([np.minimum(time, cut), time <= cut, entry], 1)
    kept = y[:, 0] > entry
    return x[kept], y[kept], time[kept]


def linear() -> nn.Module:
    return nn.Linear(2, 1)


@pytest.mark.slow
def test_parameters_are_recovered_and_predictions_calibrated(law):
    """A linear network finds the slopes; D-calibration of new rows, and the PIT of their true times, are uniform."""
    x, y, time = synthetic(law)
    half = len(y) // 2
    how = wf.Training(linear, wf.Algorithm("adam", lr=0.02, batch_size=100), 150, wf.Survival(0.5, law=law))
    posterior = wf.marginalise(how, (x[:half], y[:half]), [wf.InitialCondition(2)])
    prediction = posterior.predict(x[half:])
    slopes = np.linalg.lstsq(np.c_[np.ones(len(x) - half), x[half:]], prediction.mean.numpy(), rcond=None)[0]
    np.testing.assert_allclose(slopes, [3 + 0.5 * LAWS[law].mean, 1, -0.5], atol=0.12)
    assert prediction.d_calibration(y[half:]).p_value > 0.01
    whole = y[half:, 2] == 0  # those that entered late were chosen by their times
    true = np.stack([time[half:][whole], np.ones(whole.sum())], 1)
    least, _ = prediction.of_rows(torch.from_numpy(np.flatnonzero(whole))).probabilities(true)
    assert stats.kstest(least.numpy(), "uniform").pvalue > 0.01
    assert prediction.coverage(y[half:], 0.9) == pytest.approx(0.9, abs=0.03)


@pytest.mark.slow
def test_the_scale_is_fitted_and_predicted(law):
    x, y, _ = synthetic(law, seed=1)
    for noise in ("fit", "predicted"):
        likelihood = wf.Survival(noise, held_out=0.3, law=law)
        how = wf.Training(wf.MLP([]), wf.Algorithm("adam", lr=0.02, batch_size=100), 150, likelihood)
        posterior = wf.marginalise(how, (x, y), [wf.InitialCondition(2)])
        scale = (posterior.predict(x).noise_variance / LAWS[law].variance).sqrt()
        assert float(scale.median()) == pytest.approx(0.5, abs=0.05)


def test_units_make_the_law_of_all_rows_standard():
    _, y, _ = synthetic("weibull")
    likelihood = wf.Survival(law="weibull")
    encoded = likelihood.encode(y).y
    mean, std = likelihood.units(encoded, None)
    scaler = Scaler(torch.zeros(1), torch.ones(1), mean, std)
    units = same_for_all(LAWS["weibull"], scaler.y(encoded, torch.float64))
    assert units.location == pytest.approx(0.0, abs=1e-8)
    assert units.scale == pytest.approx(1.0, abs=1e-8)
    torch.testing.assert_close(scaler.y(encoded, torch.float64)[:, 1] > 0, encoded[:, 1] > 0)
    assert 2 * float(mean[1]) == pytest.approx(y[:, 1].mean())


def test_the_background_goes_on_where_kaplan_and_meier_end():
    y = np.array([[1.0, 1], [2.0, 1], [3.0, 0], [4.0, 0], [2.5, 1], [4.0, 0]])
    likelihood = wf.Survival()
    encoded = likelihood.encode(y).y
    scaler = Scaler(torch.zeros(1), torch.ones(1), *likelihood.units(encoded, None))
    points, noise = likelihood.background(encoded, scaler, 1)
    assert points.shape == (50, 1)
    assert bool(points.isfinite().all())
    assert (points.diff(dim=0) >= 0).all()
    assert float(noise) > 0


def test_files_hold_the_law(tmp_path):
    x, y, _ = synthetic("lognormal")
    how = wf.Training(
        mlp(inputs=2, outputs=2),
        wf.Algorithm("adam", lr=0.02, batch_size=200),
        3,
        wf.Survival("predicted", law="lognormal"),
    )
    posterior = wf.marginalise(how, (x, y), [wf.InitialCondition(2)])
    posterior.save(tmp_path)
    again = wf.load(tmp_path, mlp(inputs=2, outputs=2))
    assert again.training.likelihood == how.likelihood
    assert torch.equal(again.predict(x).median, posterior.predict(x).median)
    assert torch.equal(again.predict(x).sources()["noise"], posterior.predict(x).sources()["noise"])


@pytest.mark.slow
def test_onnx_gives_moments_of_log_time(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    x, y, _ = synthetic("weibull")
    for noise in ("fit", "predicted"):
        model = mlp(inputs=2, outputs=2 if noise == "predicted" else 1)
        how = wf.Training(model, wf.Algorithm("adam", lr=0.02, batch_size=200), 6, wf.Survival(noise))
        posterior = wf.marginalise(how, (x, y), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(2))])
        posterior.export_onnx(tmp_path / f"{noise}.onnx")  # which compares mean and std with one_shot
        session = onnxruntime.InferenceSession(tmp_path / f"{noise}.onnx")
        mean, _ = session.run(None, {"x": x[:5].astype(np.float32)})
        np.testing.assert_allclose(mean, posterior.one_shot(x[:5]).mean, rtol=1e-4)


def test_derivatives_are_autograds(law):
    """Those that trees are boosted by; where a second one is small or negative, it is a little instead."""
    generator = torch.Generator().manual_seed(0)
    y = as_censored(Y).encoded.repeat(10, 1)
    for width in (1, 2):
        outputs = torch.randn(len(y), width, generator=generator, dtype=torch.float64).requires_grad_()
        loss = LOSSES[law]((0.8,))
        (slope,) = torch.autograd.grad(loss(outputs, y) * len(y), outputs, create_graph=True)
        second = [torch.autograd.grad(slope[:, k].sum(), outputs, retain_graph=True)[0][:, k] for k in range(width)]
        found = loss.derivatives(outputs.detach(), y)
        torch.testing.assert_close(found[0], slope.detach())
        torch.testing.assert_close(found[1], torch.stack(second, 1).clamp_min(0.01))


# ---------------------------------------------------------------------- scores and the report


def test_the_error_of_coverage_is_that_of_rows_with_the_event():
    """Censored rows count by the model's own probability, so that they alone would leave no error at all."""
    covered = torch.tensor([1.0, 1.0, 0.97, 0.97, 0.98, 0.96])
    had = torch.tensor([True, True, False, False, False, False])
    score = survival_prediction._coverage(covered.double(), had)
    low, high = row_scores.wilson(1.0, 2)
    assert score.value == pytest.approx(float(covered.mean()))
    assert score.interval == pytest.approx(((2 * low + 3.88) / 6, (2 * high + 3.88) / 6))
    assert survival_prediction._coverage(covered.double(), torch.zeros(6, dtype=torch.bool)).error is None
    many = torch.cat([torch.ones(80), torch.zeros(20), torch.full((100,), 0.9)]).double()
    score = survival_prediction._coverage(many, torch.arange(200) < 100)
    assert score.interval is None
    assert score.error == pytest.approx(0.5 * np.sqrt(0.8 * 0.2 / 100))
