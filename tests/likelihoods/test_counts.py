"""Counts: the negative binomial against scipy, the losses against definitions, and the slot from table to report."""

import csv

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from typer.testing import CliRunner

import oracle
import wherefrom as wf
from wherefrom.cli import app
from wherefrom.likelihoods.counts import CountPrediction
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.negative_binomials import probability_below
from wherefrom.report.content import content
from wherefrom.training.cohort import Examples
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.losses import NegativeBinomialNLL, PoissonNLL, together
from wherefrom.training.negative_binomial import PredictedDispersionNLL, ZeroInflatedNLL, log_probability

MEANS = torch.tensor([1e-6, 0.3, 2.0, 17.5, 400.0, 3e4], dtype=torch.float64)
DISPERSIONS = torch.tensor([0.0, 1e-4, 0.05, 1.0, 8.0], dtype=torch.float64)


def distribution(mean: float, a: float):
    return stats.poisson(mean) if a == 0 else stats.nbinom(1 / a, 1 / (1 + a * mean))


def mixture_of(means: np.ndarray, **others) -> Mixture:
    """Means (members, samples, rows), in units of one."""
    axes = (CrossedAxis("theta0", len(means), False),)
    samples = means.shape[1]
    plan = Plan(samples, vary_theta=samples > 1, vary_mask=False)
    return Mixture(torch.as_tensor(means, dtype=torch.float64).unsqueeze(-1), plan, axes, **others)


def predicted(means: np.ndarray, a: float, **others) -> CountPrediction:
    mixture = mixture_of(means, **others)
    noise = mixture.answers + a * mixture.answers.square()
    whole = Mixture(mixture.answers, mixture.plan, mixture.axes, noise=noise, weights=mixture.weights)
    one = torch.ones(1, dtype=torch.float64)
    return CountPrediction(whole, a * one, one)


# ---------------------------------------------------------------------- the distribution


@pytest.mark.parametrize("a", DISPERSIONS.tolist())
@pytest.mark.parametrize("mean", MEANS.tolist())
def test_probabilities_are_scipys(mean, a):
    known = distribution(mean, a)
    counts = torch.unique(torch.as_tensor(known.ppf(np.linspace(0.001, 0.9999, 40))).round())
    arguments = torch.tensor(mean, dtype=torch.float64), torch.tensor(a, dtype=torch.float64)
    np.testing.assert_allclose(log_probability(counts, *arguments), known.logpmf(counts), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(probability_below(counts, *arguments), known.cdf(counts), rtol=1e-7, atol=1e-9)
    assert float(probability_below(torch.tensor(-1.0), *arguments)) == 0


def test_a_mixture_by_hand():
    means, weights = np.array([[[3.0, 40.0]], [[5.0, 10.0]], [[90.0, 1.0]]]), torch.tensor([0.5, 0.5, 0.0])
    found = predicted(means, 0.4, weights=weights.double())
    y = np.array([4.0, 22.0])
    each = [distribution(m, 0.4) for m in (3.0, 5.0)], [distribution(m, 0.4) for m in (40.0, 10.0)]
    for row, pair in enumerate(each):
        assert float(found.mean[row]) == pytest.approx(np.mean([d.mean() for d in pair]))
        between = np.var([d.mean() for d in pair])
        assert float(found.variance[row]) == pytest.approx(between + np.mean([d.var() for d in pair]))
        assert float(found.cdf(y)[row]) == pytest.approx(np.mean([d.cdf(y[row]) for d in pair]))
        assert float(found.nll(y, by_row=True)[row]) == pytest.approx(-np.log(np.mean([d.pmf(y[row]) for d in pair])))
        for p in (0.025, 0.5, 0.9):
            k = float(found.quantile(p)[row])
            assert np.mean([d.cdf(k) for d in pair]) >= p > np.mean([d.cdf(k - 1) for d in pair])
        counts = np.arange(2000)
        below = np.mean([d.cdf(counts) for d in pair], axis=0)
        expected = np.square(below - (counts >= y[row])).sum()
        assert float(found.crps(y, by_row=True)[row]) == pytest.approx(expected, rel=1e-6)
    sure = found.member_log_densities(y)
    assert float(sure[1, 1]) == pytest.approx(distribution(10.0, 0.4).logpmf(22))


def test_crps_of_large_counts_is_that_of_samples():
    found, y = predicted(np.full((1, 1, 1), 30_000.0), 0.3), np.array([12_345.0])
    samples = found.sample(40_000, seed=3)[:, 0]
    distances = (samples - y[0]).abs()
    apart = (samples[:20_000] - samples[20_000:]).abs()
    expected = float(distances.mean() - 0.5 * apart.mean())
    error = float((distances.var() / len(distances) + apart.var() / (4 * len(apart))).sqrt())
    assert found.crps(y) == pytest.approx(expected, abs=4 * error)


WIDTHS = [0.0, 0.5, 5.0, 50.0]
MEMBERS = [[0.01], [10.0], [2000.0], [1e5], [3.0, 5000.0], [0.01, 1e5], [2.0, 3.0, 700.0], [0.9e4, 1e4, 1.1e4]]


@pytest.mark.parametrize("a", WIDTHS)
@pytest.mark.parametrize("means", MEMBERS)
def test_quantiles_are_the_least_counts_with_their_probability(means, a):
    found, parts = predicted(np.array(means).reshape(-1, 1, 1), a), [distribution(mean, a) for mean in means]
    for p in (1e-13, 1e-6, 0.025, 0.1, 0.5, 0.9, 0.999999, 1 - 1e-15):
        k = float(found.quantile(p))
        assert k == round(k) >= 0
        below, there = (np.mean([part.cdf(count) for part in parts]) for count in (k - 1, k))
        assert below - 1e-9 < p <= there + 1e-9
        if 1e-6 <= p <= 0.999999:
            assert k == 0 or float(found.cdf([k - 1])) < p + 1e-11
            assert float(found.cdf([k])) > p - 1e-11


def test_quantiles_of_several_columns_with_weights():
    """Each cell by itself, whatever stands beside it, and however many are tabulated at once."""
    generator = np.random.default_rng(4)
    means = np.exp(generator.uniform(-3, 9, size=(5, 2, 30, 2)))
    a, weights = np.array([0.02, 7.0]), np.array([0.1, 0.4, 0.0, 0.3, 0.2])
    plan, one = Plan(2, vary_theta=True, vary_mask=False), torch.ones(2, dtype=torch.float64)
    mixture = Mixture(torch.as_tensor(means), plan, (), weights=torch.as_tensor(weights))
    found = CountPrediction(mixture, torch.as_tensor(a), one, is_flat=False)
    share = np.repeat(weights, 2)[:, None, None] / 2
    flat = means.reshape(10, 30, 2)

    def cdf(k):
        return (share * stats.nbinom(1 / a, 1 / (1 + a * flat)).cdf(k)).sum(0)

    for p in (0.05, 0.5, 0.99):
        k = found.quantile(p).numpy()
        assert (cdf(k - 1) < p + 1e-11).all()  # between separate members it can be all but equal
        assert (cdf(k) > p - 1e-11).all()
        some = found.of_rows(slice(3, 7))
        np.testing.assert_array_equal(some.quantile(p), k[3:7])


def brute_crps(parts, weights, y: float, last: int) -> float:
    counts = np.arange(last)
    below = sum(weight * part.cdf(counts) for part, weight in zip(parts, weights, strict=True))
    return float(np.square(below - (counts >= y)).sum())


@pytest.mark.parametrize("a", WIDTHS)
@pytest.mark.parametrize("means", [*MEMBERS[:3], *MEMBERS[4:7], [1.5, 1.5]])
def test_crps_is_the_sum_over_all_counts(means, a):
    parts = [distribution(mean, a) for mean in means]
    last = int(min(max(part.isf(1e-11) for part in parts), 3e6)) + 10
    weights = torch.arange(1, len(means) + 1, dtype=torch.float64) / sum(range(1, len(means) + 1))
    found = predicted(np.array(means).reshape(-1, 1, 1), a, weights=weights)
    for y in (0.0, round(means[0]), round(3 * means[-1])):
        if max(part.sf(last) for part in parts) < 1e-10:
            expected = brute_crps(parts, weights.tolist(), y, max(last, int(y) + 1))
            assert found.crps([y]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("a", WIDTHS)
def test_one_component_scores_as_two_that_agree(a):
    """The integral for one component against the table of counts for several."""
    means = np.array([0.01, 0.7, 30.0, 900.0, 2e4, 1e5])
    y = np.round(np.array([0.0, 4.0, 11.0, 900.0, 0.0, 2e5]))
    once, twice = predicted(means.reshape(1, 1, -1), a), predicted(np.stack([means, means])[:, None], a)
    torch.testing.assert_close(once.crps(y, by_row=True), twice.crps(y, by_row=True), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("a", [1e-12, 1e-9, 1e-8, 1e-6, 1e-5])
def test_small_dispersions_are_next_to_the_poisson(a):
    """P(k) = Poisson(k) (1 + a ((k - mu)^2 - k) / 2) + O(a^2), and the sum of it."""
    for mean in (0.3, 5.0, 40.0):
        known, counts = stats.poisson(mean), np.arange(60.0)
        ratio = 1 + a * ((counts - mean) ** 2 - counts) / 2
        arguments = torch.as_tensor(counts), torch.tensor(mean).double(), torch.tensor(a).double()
        room = 1e-9 + 1e7 * a * a
        np.testing.assert_allclose(log_probability(*arguments), known.logpmf(counts) + np.log(ratio), atol=room)
        np.testing.assert_allclose(probability_below(*arguments), (known.pmf(counts) * ratio).cumsum(), atol=room)


def test_scores_of_many_networks_are_those_of_each():
    generator = torch.Generator().manual_seed(2)
    y = torch.poisson(torch.full((80, 2), 6.0, dtype=torch.float64), generator=generator)
    scaler = Scaler(torch.zeros(1), torch.ones(1), torch.zeros(2).double(), torch.tensor([6.0, 3.0]).double())
    for likelihood, size in ((wf.Counts(0.0), 2), (wf.Counts("predicted"), 4)):
        outputs = 0.5 * torch.randn(3, 80, size, generator=generator)
        nll, crps, _ = likelihood.member_scores(outputs, y, scaler)
        for k, each in enumerate(outputs):
            mixture = Mixture(each[None, None], Plan(1, vary_theta=False, vary_mask=False), ())
            says = likelihood.dispersion == "predicted"
            fitted = None if says else likelihood.fit_noise(mixture, y, scaler, None)
            chosen = likelihood if says else wf.Counts("fit")
            alone = chosen.predictive(mixture, Schema((), (), True, 2, (), False, ""), scaler, fitted)
            torch.testing.assert_close(nll[k], alone.nll(y, by_row=True), rtol=2e-3, atol=1e-3)
            torch.testing.assert_close(crps[k], alone.crps(y, by_row=True), rtol=2e-3, atol=1e-3)
            assert float(nll[k].mean()) == pytest.approx(alone.nll(y), rel=1e-5)


def test_samples_have_the_moments_that_are_said():
    found = predicted(np.array([[[2.0, 50.0]], [[8.0, 50.0]]]), 0.2)
    samples = found.sample(20_000, seed=1)
    error = found.std / np.sqrt(20_000)
    assert ((samples.mean(0) - found.mean).abs() < 4 * error).all()
    fourth = (samples - found.mean).pow(4).mean(0)
    assert ((samples.var(0) - found.variance).abs() < 4 * ((fourth - found.variance**2) / 20_000).sqrt()).all()


# ---------------------------------------------------------------------- losses


def gradients(loss, outputs, y):
    outputs = outputs.clone().requires_grad_()
    value = loss(outputs, y)
    return float(value.detach()), torch.autograd.grad(value, outputs)[0]


def test_losses_are_negative_log_likelihoods_up_to_a_constant():
    """In units of the mean s, gradients are those of the log-likelihood divided by s; of predicted ones, its own."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(30, 1, generator=generator, dtype=torch.float64)
    s, y = 7.0, torch.poisson(7.0 * torch.rand(30, 1, generator=generator, dtype=torch.float64), generator=generator)
    logs = torch.randn(30, 1, generator=generator, dtype=torch.float64)

    def nll(outputs, a):
        return -log_probability(y, s * outputs[:, :1].exp(), a).mean()

    zero = torch.zeros((), dtype=torch.float64)
    for loss, a in ((PoissonNLL(), zero), (NegativeBinomialNLL((1 / (0.4 * s),)), zero + 0.4)):
        ours = gradients(loss, f, y / s)[1]
        theirs = gradients(lambda outputs, _, a=a: nll(outputs, a), f, y)[1]
        torch.testing.assert_close(ours, theirs / s)
    both = torch.cat([f, logs], 1)
    ours = gradients(PredictedDispersionNLL((s,)), both, y / s)
    theirs = gradients(lambda outputs, _: nll(outputs, outputs[:, 1:].exp()), both, y)
    assert ours[0] == pytest.approx(theirs[0])
    torch.testing.assert_close(ours[1], theirs[1])


@pytest.mark.parametrize("scale", [0.3, 7.0, 200.0])
def test_single_precision_is_enough_to_learn_a_dispersion(scale):
    """Losses and gradients are those of double precision, from next to none to one that is far too large."""
    logs = torch.arange(-24.0, 13.0, 0.5)
    generator = torch.Generator().manual_seed(0)
    for f in (-2.0, 0.0, 1.5):
        mean = torch.full((len(logs), 1), scale * np.exp(f))
        y = torch.poisson(mean, generator=generator)
        outputs = torch.stack([torch.full_like(logs, f), logs], 1)
        for each, count in zip(outputs, y, strict=True):
            single = gradients(PredictedDispersionNLL((scale,)), each[None], count[None] / scale)
            double = gradients(PredictedDispersionNLL((scale,)), each[None].double(), count[None].double() / scale)
            room = 2e-6 * (2 + float(mean[0] + count))
            assert single[0] == pytest.approx(double[0], rel=1e-5, abs=room)
            torch.testing.assert_close(single[1].double(), double[1], rtol=1e-4, atol=room)
            a = np.exp(np.clip(float(each[1]), -20, 20))
            if a > 1e-5:
                assert double[0] == pytest.approx(
                    -stats.nbinom(1 / a, 1 / (1 + a * scale * np.exp(f))).logpmf(float(count)), abs=1e-5
                )


def test_the_loss_of_a_small_dispersion_is_nearly_the_poissons():
    f, y = torch.linspace(-1, 1, 9).unsqueeze(1), torch.arange(9.0).unsqueeze(1) / 4
    small, poisson = gradients(NegativeBinomialNLL((1e6,)), f, y), gradients(PoissonNLL(), f, y)
    assert small[0] == pytest.approx(poisson[0], abs=1e-5)
    torch.testing.assert_close(small[1], poisson[1], rtol=1e-4, atol=1e-6)


def test_members_with_their_own_numbers_train_together():
    losses = [NegativeBinomialNLL((0.5,)), NegativeBinomialNLL((2.0,))]
    outputs, y = torch.randn(2, 10, 1), torch.rand(2, 10, 1)
    joint = together(losses, outputs)(outputs, y)
    torch.testing.assert_close(joint, torch.stack([loss(o, t) for loss, o, t in zip(losses, outputs, y, strict=True)]))


@pytest.mark.parametrize("loss", [PoissonNLL(), NegativeBinomialNLL((0.7,)), PredictedDispersionNLL((3.0,))])
def test_a_cohort_trains_as_a_loop_by_hand(loss):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(90, 3, generator=generator)
    y = torch.poisson((0.5 * x[:, :1]).exp() * 3, generator=generator) / 3
    outputs = 2 if isinstance(loss, PredictedDispersionNLL) else 1

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, outputs))

    algorithm = wf.Algorithm("sgd", lr=0.05, batch_size=25, momentum=0.9)
    cohort = oracle.cohort_of(model, Examples(x, y), algorithm, 3, 9, loss)
    for member, trained in zip(cohort.members, oracle.train(cohort, "torch"), strict=True):
        torch.testing.assert_close(trained.last, oracle.trained_alone(model, cohort, member), rtol=0, atol=1e-5)


# ---------------------------------------------------------------------- through the library


def visits(rows: int, seed: int, a: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 2))
    mean = 6.0 * np.exp(0.6 * x[:, 0] - 0.4 * x[:, 1])
    return x, generator.poisson(mean * generator.gamma(1 / a, a, rows)).astype(float), mean


def fitted(likelihood=None, over=None, **how) -> wf.Posterior:
    x, y, _ = visits(1500, 0)
    training = wf.Training(
        wf.MLP(16), wf.Algorithm("adam", lr=0.01, batch_size=100), epochs=40, likelihood=likelihood or wf.Counts()
    )
    return wf.marginalise(training, (x, y), over or wf.recipes.multi_swag(3), seed=0, **how)


@pytest.fixture(scope="module")
def posterior() -> wf.Posterior:
    return fitted()


@pytest.mark.slow
def test_the_mean_and_the_dispersion_are_learnt(posterior):
    x, y, mean = visits(2000, 1)
    found = posterior.predict(x, 30)
    assert float(np.median(np.abs(found.mean.numpy() / mean - 1))) < 0.12
    assert float(posterior.fitted_noise) == pytest.approx(0.5, abs=0.2)  # by 150 rows
    best = -stats.nbinom(2.0, 2.0 / (2.0 + mean)).logpmf(y).mean()
    assert found.nll(y) < best + 0.03
    poisson = -stats.poisson(mean).logpmf(y).mean()
    assert found.nll(y) < poisson - 0.3
    for level in (0.5, 0.95):
        assert found.coverage(y, level) > level - 4 * np.sqrt(level * (1 - level) / 2000)  # counts are coarse
    assert set(found.sources().names) == {"theta0+order", "t", "noise"}
    assert found.sources().overall["noise"].share > 0.8


def randomised_pit(prediction, y: np.ndarray) -> np.ndarray:
    """Draw between P(Y < y) and P(Y <= y), row by row: uniform, if y has the predicted distribution."""
    upper = prediction.cdf(y).numpy()
    lower = np.where(y > 0, prediction.cdf(np.maximum(y - 1, 0)).numpy(), 0.0)
    return lower + (upper - lower) * np.random.default_rng(11).uniform(size=len(y))


@pytest.mark.parametrize("dispersion", ["fit", "predicted"])
def test_the_pit_of_counts_is_uniform(dispersion):
    """Kolmogorov and Smirnov's test at a level of 1%, which a Poisson around the true means does not pass."""
    x, y, mean = visits(1000, 1)
    prediction = fitted(wf.Counts(dispersion, held_out=0.3)).predict(x, 30)
    assert stats.kstest(randomised_pit(prediction, y), "uniform").pvalue > 0.01
    true_means = Mixture(torch.from_numpy(mean).reshape(1, 1, -1, 1), Plan(1, False, False), ())
    poisson = CountPrediction(true_means, torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    assert stats.kstest(randomised_pit(poisson, y), "uniform").pvalue < 1e-6


@pytest.mark.parametrize("dispersion", [0.0, 0.5, "predicted"])
def test_dispersion_given_or_predicted(dispersion):
    found = fitted(wf.Counts(dispersion))
    x, y, mean = visits(2000, 1)
    prediction = found.predict(x, 30)
    assert float(np.median(np.abs(prediction.mean.numpy() / mean - 1))) < 0.15
    if dispersion:
        assert prediction.nll(y) < -stats.nbinom(2.0, 2.0 / (2.0 + mean)).logpmf(y).mean() + 0.06
    else:
        assert prediction.coverage(y, 0.95) < 0.85  # the Poisson is too sure


def test_one_shot_is_near_many_samples(posterior):
    x, y, _ = visits(200, 2)
    moments, sampled = posterior.one_shot(x), posterior.predict(x, 2000)
    torch.testing.assert_close(moments.mean, sampled.mean, rtol=0.02, atol=0)
    torch.testing.assert_close(moments.std, sampled.std, rtol=0.03, atol=0)
    assert moments.nll(y) == pytest.approx(sampled.nll(y), abs=0.01)
    means, a = moments._components()
    inside, between = (means + a * means.square()).mean(0), means.var(0, correction=0)
    torch.testing.assert_close((inside + between)[:, 0], moments.variance)  # of the distribution itself
    ours, theirs = moments.sources().overall, sampled.sources().overall
    assert ours["t"].share == pytest.approx(theirs["t"].share, abs=0.03)


def test_calibration_weights_parts_and_advice(posterior):
    x, y, _ = visits(600, 3)
    conformal = posterior.calibrated("conformal", (x, y), 20)
    new_x, new_y, _ = visits(3000, 4)
    coverage = conformal.predict(new_x, 20).coverage(new_y, 0.9)
    assert abs(coverage - 0.9) < 4 * np.sqrt(0.09 / 600 + 0.09 / 3000)
    with pytest.raises(ValueError, match='counts have no variance to scale: calibrate by "conformal"'):
        posterior.calibrated("variance", (x, y))
    assert len(posterior.weighted("stacking", (x, y), samples=20)) <= 3
    assert len(posterior.marginalising("t").predict(x[:5], 4)) == 5
    assert posterior.advise(x[:50]).table().rows
    assert set(posterior.check_calibration((x, y), 20).columns) == {"score", "before", "after"}


def test_files_give_the_same_predictions(posterior, tmp_path):
    x, _, _ = visits(20, 5)
    posterior.save(tmp_path / "run")
    again = wf.load(tmp_path / "run", model=wf.MLP(16))
    assert again.training.likelihood == wf.Counts()
    assert torch.equal(again.predict(x, 8).variance, posterior.predict(x, 8).variance)


def test_several_columns_of_counts():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2))
    y = generator.poisson(np.exp(x + np.array([0.0, 3.0]))).astype(float)
    for dispersion in ("fit", "predicted", 0.2):
        training = wf.Training(wf.MLP(8), wf.Algorithm("adam", lr=0.02, batch_size=50), 10, wf.Counts(dispersion))
        found = wf.marginalise(training, (x, y), [wf.InitialCondition(2)]).predict(x, 2)
        assert found.mean.shape == (300, 2)
        assert np.corrcoef(found.mean[:, 1].log().numpy(), x[:, 1])[0, 1] > 0.8
        assert np.isfinite(found.nll(y))


@pytest.mark.parametrize(
    ("y", "words"), [([1.0, -2.0, 3.0], "y is -2 in row 1"), ([0.0, 1.5, 2.0], "y is 1.5 in row 1, which is no count")]
)
def test_what_is_no_count_is_named(y, words):
    training = wf.Training(wf.MLP(4), wf.Algorithm("adam", lr=0.01, batch_size=3), 1, wf.Counts(0.0))
    with pytest.raises(ValueError, match=words):
        wf.marginalise(training, (np.zeros((3, 2)), np.array(y)), [])


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), "some", True])
def test_dispersions_that_there_cannot_be(wrong):
    with pytest.raises((ValueError, TypeError), match="dispersion"):
        wf.Counts(wrong)


@pytest.mark.slow
def test_a_table_of_counts_from_fit_to_report(tmp_path):
    x, y, _ = visits(400, 6)
    path = tmp_path / "visits.csv"
    with path.open("w") as file:
        table = csv.writer(file)
        table.writerow(["age", "dose", "visits"])
        table.writerows([[f"{a:.4f}", f"{b:.4f}", int(n)] for (a, b), n in zip(x, y, strict=True)])
    run, out = tmp_path / "run", tmp_path / "out.csv"
    options = ["--target", "visits", "--task", "counts", "--epochs", "8", "--samples", "8", "--draws", "2", "--quiet"]

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        return result.output

    call("fit", str(path), "--out", str(run), *options)
    call("predict", str(run), str(path), "--out", str(out), "--quiet")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 400
    assert all(float(row["lower"]) == round(float(row["lower"])) >= 0 for row in rows)
    covered = np.mean([float(row["lower"]) <= n <= float(row["upper"]) for row, n in zip(rows, y, strict=True)])
    assert covered > 0.85
    call("sources", str(run), str(path), "--quiet")
    call("report", str(run), "--out", str(tmp_path / "report.html"), "--quiet")
    assert "visits" in (tmp_path / "report.html").read_text()


def test_what_cannot_be_asked_of_a_prediction():
    found = predicted(np.array([[[3.0, 40.0]]]), 0.4)
    with pytest.raises(ValueError, match='"mixture", "paper" or "conformal", not \'gaussian\''):
        found.interval(0.9, "gaussian")
    with pytest.raises(ValueError, match="there is no conformal interval"):
        found.interval(0.9, "conformal")
    with pytest.raises(ValueError, match=r"y is 1\.5 in row 1, which is no count"):
        found.nll([1.0, 1.5])
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but the prediction is for 2 rows and 1 column"):
        found.crps([1.0, 2.0, 3.0])
    assert repr(found) == "CountPrediction(2 rows, 1 column, 1 member x 1 sample)"


# ---------------------------------------------------------------------- exposure


def observed(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x with the years in its last column, counts, and their means."""
    random = np.random.default_rng(5)
    age, years = random.normal(size=rows), random.gamma(2.0, size=rows)
    mean = years * np.exp(0.4 * age - 0.2)
    return np.stack([age, years], 1), random.poisson(mean).astype(float), mean


@pytest.mark.parametrize("dispersion", [0.0, "fit", "predicted"])
def test_means_are_proportional_to_the_exposure(dispersion, tmp_path):
    x, y, mean = observed(900)
    likelihood = wf.Counts(dispersion, exposure=-1)
    how = wf.Training(wf.MLP([10]), wf.Algorithm("adam", lr=0.01, batch_size=90), 20, likelihood)
    posterior = wf.marginalise(how, (x[:600], y[:600]), [wf.InitialCondition(3)])
    prediction = posterior.predict(x[600:])
    twice = x[600:] * [1.0, 2.0]
    torch.testing.assert_close(posterior.predict(twice).mean, 2 * prediction.mean, rtol=1e-5, atol=0)
    known = stats.poisson(mean[600:])
    assert prediction.nll(y[600:]) == pytest.approx(-known.logpmf(y[600:]).mean(), abs=0.06)
    assert stats.kstest(randomised_pit(prediction, y[600:]), "uniform").pvalue > 0.01
    posterior.save(tmp_path)
    assert torch.equal(wf.load(tmp_path).predict(x[600:]).mean, prediction.mean)


def test_a_report_has_rates_per_unit_of_exposure():
    x, y, _ = observed(200)
    how = wf.Training(wf.MLP([5]), wf.Algorithm("adam", lr=0.01, batch_size=50), 5, wf.Counts(0.0, exposure=1))
    posterior = wf.marginalise(how, (x[:100], y[:100]), [wf.InitialCondition(2)])
    (view,) = content(posterior, x[100:], y[100:])["views"]
    prediction = posterior.predict(x[100:])
    low, high = prediction.interval(0.95)
    for name, counts in (("rate", prediction.mean), ("rate_low", low), ("rate_high", high)):
        np.testing.assert_allclose(view["points"][name], counts.numpy() / x[100:, 1], rtol=2e-4)
    assert view["rows"]["columns"][-1] == "rate"
    assert view["rows"]["detail"][-1] == "rate_interval"
    assert view["fields"]["rate"]["name"] == "per unit of column 1"


@pytest.mark.parametrize("zeros", [None, "inflated"])
@pytest.mark.parametrize("dispersion", ["predicted", 0.5])
def test_engines_agree_about_counts_whose_networks_say_more(dispersion, zeros):
    """An exposure that is added to some outputs alone is left to torch, with words."""
    pytest.importorskip("numba", reason="the native engine needs numba: pip install 'wherefrom[fast]'")
    random = np.random.default_rng(4)
    x = np.column_stack([random.normal(size=(240, 2)), random.uniform(0.5, 2.0, 240)])
    y = random.poisson(x[:, 2] * np.exp(1 + 0.5 * x[:, 0])).astype(float)

    def trained(engine, **settings):
        likelihood = wf.Counts(dispersion, zeros=zeros, **settings)
        how = wf.Training(wf.MLP([10]), wf.Algorithm("sgd", lr=0.01, batch_size=40), 6, likelihood)
        return wf.marginalise(how, (x, y), [wf.InitialCondition(2), wf.Resample(2)], engine=engine)

    ours, torchs = trained("native"), trained("torch")
    assert (ours.engines, torchs.engines) == (("native",), ("torch",))
    for a, b in zip(ours.mixture, torchs.mixture, strict=True):
        torch.testing.assert_close(a.trained.last, b.trained.last, rtol=0, atol=1e-5)
    if dispersion == "predicted" or zeros:
        with pytest.raises(ValueError, match=r"it adds a column to some of its outputs alone\. Use engine='auto'"):
            trained("native", exposure=2)
        assert trained("fastest", exposure=2).engines == ("torch",)


@pytest.mark.parametrize("dispersion", [(), (0.4,)])
def test_members_with_means_of_their_own_train_together(dispersion):
    outputs = torch.randn(2, 9, 3 - len(dispersion), generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0.0, 1.0, 4.0]).repeat(3)[:, None] / 2
    losses = [ZeroInflatedNLL((scale,), dispersion) for scale in (2.0, 6.0)]
    expected = torch.stack([loss(part, y) for loss, part in zip(losses, outputs, strict=True)])
    torch.testing.assert_close(together(losses, outputs)(outputs, y.expand(2, -1, -1)), expected)


def test_an_exposure_that_cannot_be(tmp_path):
    x, y, _ = observed(60)
    how = wf.Training(wf.MLP([5]), wf.Algorithm("adam", lr=0.01, batch_size=30), 2, wf.Counts(0, exposure=1))
    posterior = wf.marginalise(how, (x, y), [])
    none = x.copy()
    none[7, 1] = 0
    with pytest.raises(ValueError, match="the exposure, column 1 of x, must be above zero; it is 0 in row 7"):
        posterior.predict(none)
    with pytest.raises(ValueError, match="in row 7"):
        wf.marginalise(how, (none, y), [])
    for odd in (1e15, 1e-9):
        none[7, 1] = odd
        for call in (lambda: posterior.predict(none), lambda: wf.marginalise(how, (none, y), [])):
            with pytest.raises(
                ValueError, match=r"is 1e[+-]\d+ in row 7, more than a factor of 1,000,000 away from the"
            ):
                call()
    with pytest.raises(TypeError, match="a column of x, by its name or its number"):
        wf.Counts(exposure=x[:, 1])
    trees = wf.Families({"network": wf.MLP([5]), "trees": wf.Trees()})
    with pytest.raises(ValueError, match="fits itself, and cannot take an exposure"):
        wf.marginalise(how, (x, y), [trees])


def test_tables_have_a_column_of_exposure(tmp_path):
    x, y, _ = observed(160)
    table = {"age": x[:, 0], "years": x[:, 1], "visits": y.astype(int)}
    model = wf.fit(table, "visits", task="counts", exposure="years", over="theta0=2", epochs=20)
    rows = {"age": [0.1, 0.1], "years": [2.0, 500.0]}
    predicted = model.predict(rows)
    assert predicted["mean"][1] == pytest.approx(250 * predicted["mean"][0], rel=1e-5)
    assert not any(predicted["outside"])
    for rate, count in (("rate", "mean"), ("rate_lower", "lower"), ("rate_upper", "upper")):
        np.testing.assert_allclose(predicted[rate], predicted[count] / [2.0, 500.0])
    with pytest.raises(
        ValueError, match=r"column 'years', row 1: the exposure is 1e\+12, more than a factor of 1,000,000"
    ):
        model.predict({"age": [0.1, 0.2], "years": [2.0, 1e12]})
    model.save(tmp_path / "run")
    assert wf.load(tmp_path / "run").predict(rows)["mean"].tolist() == predicted["mean"].tolist()
    with pytest.raises(ValueError, match="column 'years', row 1: the exposure is missing, and must be a number"):
        model.predict({"age": [0.1, 0.2], "years": [2.0, None]})
    with pytest.raises(ValueError, match="exposure= is not for quantities"):
        wf.fit(table, "visits", task="regression", exposure="years", epochs=2)


# ---------------------------------------------------------------------- inflated zeros


def inflated_pmf(counts: np.ndarray, mean: float, a: float, never: float) -> np.ndarray:
    return never * (counts == 0) + (1 - never) * distribution(mean, a).pmf(counts)


def inflated(means: np.ndarray, a: float, never: np.ndarray) -> CountPrediction:
    """Means of the rows that are counted, and probabilities of not being one, (members, rows) each."""
    mixture = mixture_of(((1 - never) * means)[:, None])
    zeros = torch.as_tensor(never, dtype=torch.float64)[:, None, :, None]
    mean = mixture.answers / (1 - zeros)
    noise = (1 - zeros) * (mean + (a + zeros) * mean.square())
    whole = Mixture(mixture.answers, mixture.plan, mixture.axes, noise=noise)
    one = torch.ones(1, dtype=torch.float64)
    return CountPrediction(whole, a * one, one, never=zeros)


@pytest.mark.parametrize("a", [0.0, 0.5])
@pytest.mark.parametrize("mean", [0.7, 60.0, 3000.0])  # the table begins at 0, beyond it, and has panels
def test_inflated_zeros_are_sums_over_counts(mean, a):
    means, never = np.array([[mean, 2.0], [1.3 * mean, 5.0]]), np.array([[0.3, 0.1], [0.5, 0.6]])
    found, y = inflated(means, a, never), np.array([round(0.8 * mean), 0.0])
    counts = np.arange(0, 60_000)
    for row in range(2):
        pmf = np.mean([inflated_pmf(counts, means[m, row], a, never[m, row]) for m in range(2)], axis=0)
        cdf = np.cumsum(pmf)
        expected = (pmf * counts).sum()
        assert float(found.mean[row]) == pytest.approx(expected, rel=1e-9)
        assert float(found.variance[row]) == pytest.approx((pmf * counts**2).sum() - expected**2, rel=1e-8)
        assert float(found.nll(y, by_row=True)[row]) == pytest.approx(-np.log(pmf[int(y[row])]), rel=1e-10)
        assert float(found.cdf(y)[row]) == pytest.approx(cdf[int(y[row])], abs=1e-10)
        crps = ((cdf - (counts >= y[row])) ** 2).sum()
        assert float(found.crps(y, by_row=True)[row]) == pytest.approx(crps, rel=1e-5)
        for p in (0.05, 0.3, 0.45, 0.7, 0.975):
            assert float(found.quantile(p)[row]) == np.argmax(cdf >= p)
    drawn = found.sample(20_000, seed=3)
    share = np.mean([inflated_pmf(np.zeros(1), means[m, 1], a, never[m, 1])[0] for m in range(2)])
    assert abs(float((drawn[:, 1] == 0).double().mean()) - share) < 4 * np.sqrt(share * (1 - share) / 20_000)


def test_one_inflated_component_has_a_closed_form():
    found = inflated(np.array([[4.0]]), 0.3, np.array([[0.4]]))
    counts = np.arange(2000)
    cdf = np.cumsum(inflated_pmf(counts, 4.0, 0.3, 0.4))
    assert found.crps([3.0]) == pytest.approx(((cdf - (counts >= 3)) ** 2).sum(), rel=1e-6)


@pytest.mark.parametrize("predicts", [False, True])
def test_the_inflated_loss_is_its_definition(predicts):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(30, 3 if predicts else 2, generator=generator, dtype=torch.float64, requires_grad=True)
    count = torch.poisson(torch.full((30, 1), 2.0), generator=generator).double()
    loss = ZeroInflatedNLL((2.5,), (0.4,))
    f, z = outputs.detach()[:, 0].numpy(), outputs.detach()[:, -1].numpy()
    a = np.exp(outputs.detach()[:, 1].numpy()) if predicts else np.full(30, 0.4)
    never = 1 / (1 + np.exp(-z))
    p = [inflated_pmf(count[i].numpy(), 2.5 * np.exp(f[i]), a[i], never[i])[0] for i in range(30)]
    assert float(loss(outputs.detach(), count / 2.5)) == pytest.approx(-np.log(p).mean(), abs=1e-10)
    assert torch.autograd.gradcheck(lambda each: loss(each, count / 2.5), (outputs,))


@pytest.mark.parametrize("dispersion", [0.0, "fit", "predicted"])
def test_inflated_zeros_are_learnt(dispersion, tmp_path):
    """Fishers: 40% do not fish, more of them where x is low; NLL near the truth's, and PIT uniform."""
    random = np.random.default_rng(7)
    x = random.normal(size=(2500, 2))
    never, mean = 1 / (1 + np.exp(0.4 + x[:, 0])), np.exp(1.5 + 0.4 * x[:, 1])
    y = np.where(random.uniform(size=2500) < never, 0, random.poisson(mean)).astype(float)
    likelihood = wf.Counts(dispersion, zeros="inflated")
    how = wf.Training(wf.MLP([15]), wf.Algorithm("adam", lr=0.01, batch_size=100), 20, likelihood)
    posterior = wf.marginalise(how, (x[:1500], y[:1500]), [wf.InitialCondition(2)])
    prediction, truth = posterior.predict(x[1500:]), y[1500:]
    known = never[1500:] * (truth == 0) + (1 - never[1500:]) * stats.poisson.pmf(truth, mean[1500:])
    assert prediction.nll(truth) == pytest.approx(-np.log(known).mean(), abs=0.06)
    assert stats.kstest(randomised_pit(prediction, truth), "uniform").pvalue > 0.01
    with pytest.raises(ValueError, match="has no one-shot prediction"):
        posterior.one_shot(x[:5])
    scores = likelihood.member_scores(torch.zeros(2, 4, likelihood.outputs(1)), torch.ones(4, 1), posterior.scaler)
    assert bool(scores.crps.isfinite().all())
    posterior.save(tmp_path)
    assert torch.equal(wf.load(tmp_path).predict(x[1500:]).mean, prediction.mean)
