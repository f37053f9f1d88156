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
from wherefrom.likelihoods.counts import (
    CountPrediction,
    NegativeBinomialNLL,
    PoissonNLL,
    PredictedDispersionNLL,
    _log_probability,
    _probability_below,
)
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.training.cohort import Examples
from wherefrom.training.losses import together

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
    np.testing.assert_allclose(_log_probability(counts, *arguments), known.logpmf(counts), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(_probability_below(counts, *arguments), known.cdf(counts), rtol=1e-7, atol=1e-9)
    assert float(_probability_below(torch.tensor(-1.0), *arguments)) == 0


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
        return -_log_probability(y, s * outputs[:, :1].exp(), a).mean()

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
    with pytest.raises(ValueError, match='reading must be "mixture" or "conformal", not \'gaussian\''):
        found.interval(0.9, "gaussian")
    with pytest.raises(ValueError, match="there is no conformal interval"):
        found.interval(0.9, "conformal")
    with pytest.raises(ValueError, match=r"y is 1\.5 in row 1, which is no count"):
        found.nll([1.0, 1.5])
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but the prediction is for 2 rows and 1 column"):
        found.crps([1.0, 2.0, 3.0])
    assert repr(found) == "CountPrediction(2 rows, 1 column, 1 member x 1 sample)"
