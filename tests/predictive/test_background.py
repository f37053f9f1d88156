"""The target's own distribution, mixed into predictions: against scipy, sums over counts, and draws of the mixture."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from made_predictions import classes, quantity
from wherefrom.likelihoods.counts import CountPrediction
from wherefrom.predictive import background
from wherefrom.predictive.background import OUTSIDE, Background
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan

MEMBERS, SAMPLES, ROWS = 3, 4, 6
PLAN = Plan(SAMPLES, vary_theta=True, vary_mask=False)
AXES = (CrossedAxis("theta0", MEMBERS, False),)
WEIGHTS = torch.tensor([0.0, 0.1, 0.5, 0.9, 0.999, 1.0], dtype=torch.float64)
LOCATION, SCALE = 3.0, 2.0
Y = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=400))[:, None]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of_numbers(points, noise, stretch=1.0):
    return Background(points[None], noise[None], torch.full((points.shape[-1],), stretch, dtype=torch.float64))


def quantities(weights=WEIGHTS, outputs=1, stretch=1.0, **others):
    """Gaussians around answers, and a background that is wider than some of them and narrower than others."""
    answers = 0.5 * random(MEMBERS, SAMPLES, ROWS, outputs) + 2 * random(1, 1, ROWS, outputs, seed=1)
    noise = random(ROWS, outputs, seed=2).exp().expand(MEMBERS, SAMPLES, -1, -1)
    location, scale = (torch.full((outputs,), each, dtype=torch.float64) for each in (LOCATION, SCALE))
    networks = quantity(answers, noise, location, scale, outputs == 1, PLAN, AXES, None, **others)
    points, around = background.of_quantities((Y.expand(-1, outputs) - LOCATION) / SCALE)
    return networks, networks.blended(of_numbers(points, around, stretch).at(weights))


def components(prediction):
    """Means, standard deviations and weights of all Gaussians, in the user's units.  # (components, rows) each"""
    mixture, blend = prediction.mixture, prediction.blend
    points, around = blend.components(mixture.mean, mixture.variance)
    means = torch.cat([mixture.answers.flatten(0, 1), points])[..., 0]
    variances = torch.cat([mixture.noise.flatten(0, 1), around.expand_as(points)])[..., 0]
    networks = MEMBERS * SAMPLES
    weight = blend.weight[:, 0]
    weights = torch.cat([((1 - weight) / networks).repeat(networks, 1), (weight / len(points)).repeat(len(points), 1)])
    return LOCATION + SCALE * means.numpy(), SCALE * variances.sqrt().numpy(), weights.numpy()


# ---------------------------------------------------------------------- quantities


def test_the_points_have_the_mean_and_the_variance_of_y():
    points, noise = background.of_quantities(Y)
    torch.testing.assert_close(points.mean(0), Y.mean(0))
    torch.testing.assert_close(points.var(0, correction=0) + noise, Y.var(0, correction=0))
    assert float(points.max()) < 1.3 * float(Y.max())
    everything_the_same = background.of_quantities(torch.ones(30, 1, dtype=torch.float64))
    assert all(bool(each.isfinite().all()) for each in everything_the_same)


def test_moments_are_those_of_all_components():
    _, prediction = quantities()
    means, stds, weights = components(prediction)
    mean = (weights * means).sum(0)
    variance = (weights * (stds**2 + (means - mean) ** 2)).sum(0)
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-9)


def test_the_law_of_total_variance_holds_for_draws():
    networks, prediction = quantities()
    means, stds, weights = components(prediction)
    generator, count = np.random.default_rng(5), 200_000
    for row in range(ROWS):
        which = generator.choice(len(means), count, p=weights[:, row] / weights[:, row].sum())
        draws = generator.normal(means[which, row], stds[which, row])
        squares = (draws - draws.mean()) ** 2
        assert abs(draws.mean() - float(prediction.mean[row])) < 4 * draws.std() / np.sqrt(count)
        assert abs(squares.mean() - float(prediction.variance[row])) < 4 * squares.std() / np.sqrt(count)
    split = prediction.sources()
    torch.testing.assert_close(sum(split.values()), torch.ones(ROWS, dtype=torch.float64))
    # The networks' part is (1 - w) of their variance; shares of sources are of unbiased components.
    expected = prediction.variance - (1 - WEIGHTS) * networks.variance
    torch.testing.assert_close(split.variance[OUTSIDE], expected)
    alone = networks.sources()
    for name in alone.names:
        torch.testing.assert_close(split.variance[name], (1 - WEIGHTS) * alone.variance[name])
    overall = split.overall
    assert sum(part.share for part in overall.values()) == pytest.approx(1)
    assert overall[OUTSIDE].variance == pytest.approx(float(expected.mean()))


def test_densities_and_quantiles_are_those_of_the_mixture():
    _, prediction = quantities()
    means, stds, weights = components(prediction)
    y = LOCATION + SCALE * random(ROWS, seed=4).numpy()
    cdf = (weights * stats.norm.cdf(y, means, stds)).sum(0)
    density = (weights * stats.norm.pdf(y, means, stds)).sum(0)
    np.testing.assert_allclose(prediction.cdf(y, "mixture"), cdf, rtol=1e-9)
    np.testing.assert_allclose(prediction.nll(y, "mixture", by_row=True), -np.log(density), rtol=1e-9)
    for probability in (0.02, 0.4, 0.97):
        quantile = prediction.quantile(probability, "mixture").numpy()
        np.testing.assert_allclose((weights * stats.norm.cdf(quantile, means, stds)).sum(0), probability, rtol=1e-7)
    gaussian = stats.norm(prediction.mean, prediction.std)
    np.testing.assert_allclose(prediction.quantile(0.3, "paper"), gaussian.ppf(0.3), rtol=1e-9)
    np.testing.assert_allclose(prediction.nll(y, by_row=True), -gaussian.logpdf(y), rtol=1e-9)


def test_a_row_inside_has_the_quantiles_of_its_networks():
    networks, prediction = quantities()
    weight = prediction.blend.weight.clone()
    weight[::3] = 0.0
    some = replace(prediction, blend=replace(prediction.blend, weight=weight))
    for probability in (0.02, 0.5):
        quantile = some.quantile(probability, "mixture")
        torch.testing.assert_close(quantile[::3], networks.quantile(probability, "mixture")[::3], rtol=0, atol=0)
        torch.testing.assert_close(
            quantile[1::3], prediction.quantile(probability, "mixture")[1::3], rtol=1e-12, atol=0
        )


def test_the_crps_is_that_of_the_mixture():
    _, prediction = quantities()
    means, stds, weights = components(prediction)
    y = LOCATION + SCALE * random(ROWS, seed=4).numpy()
    grid = np.linspace(-40, 40, 200_001)
    for row in range(ROWS):
        below = sum(
            w * stats.norm.cdf(grid, m, s) for w, m, s in zip(weights[:, row], means[:, row], stds[:, row], strict=True)
        )
        integral = ((below - (grid >= y[row])) ** 2).sum() * (grid[1] - grid[0])
        assert float(prediction.crps(y, "mixture", by_row=True)[row]) == pytest.approx(integral, abs=1e-3)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("reading", ["gaussian", "mixture"])
def test_doubt_and_intervals_only_grow(reading, outputs):
    steps = torch.linspace(0, 1, 21, dtype=torch.float64)
    each = [quantities(step.expand(ROWS), outputs)[1] for step in steps]
    low, high = (torch.stack(ends) for ends in zip(*(one.interval(0.9, reading) for one in each), strict=True))
    assert (low.diff(dim=0) <= 1e-12).all()
    assert (high.diff(dim=0) >= -1e-12).all()
    assert (torch.stack([one.variance for one in each]).diff(dim=0) >= -1e-12).all()
    networks = quantities(steps[:1].expand(ROWS), outputs)[0]
    torch.testing.assert_close(torch.stack(networks.interval(0.9, reading)), torch.stack([low[0], high[0]]))
    assert (low[0] < high[0]).all()


def test_at_a_weight_of_one_it_holds_both_intervals():
    networks, prediction = quantities(torch.ones(ROWS, dtype=torch.float64))
    low, high = prediction.interval(0.9)
    own_low, own_high = networks.interval(0.9)
    ends = [
        LOCATION + SCALE * float(prediction.blend.background.quantile(probability)[0, 0])
        for probability in (0.05, 0.95)
    ]
    assert (low <= torch.minimum(own_low, torch.tensor(ends[0]))).all()
    assert (high >= torch.maximum(own_high, torch.tensor(ends[1])) - 1e-9).all()
    torch.testing.assert_close(prediction.mean, torch.full((ROWS,), float(Y.mean()), dtype=torch.float64))


def test_a_background_is_at_least_as_wide_as_it_is_stretched_to_be():
    _, plain = quantities(torch.ones(ROWS, dtype=torch.float64))
    _, stretched = quantities(torch.ones(ROWS, dtype=torch.float64), stretch=9.0)
    least = 9.0 * float(Y.var(correction=0))
    torch.testing.assert_close(stretched.variance, plain.variance.clamp_min(least))
    rows = 2000
    answers = random(1, 1, rows, 1, seed=7)
    noise = random(1, 1, rows, 1, seed=8).exp() * 3
    one = torch.ones(1, dtype=torch.float64)
    single = Plan(1, vary_theta=False, vary_mask=False)
    wide = quantity(answers, noise, 0 * one, one, True, single, (), None)
    points, around = background.of_quantities(random(500, 1, seed=9))
    factor = wide.needed_stretch(of_numbers(points, around), 0.95)
    final = wide.blended(of_numbers(points, around, float(factor)).at(torch.ones(rows)))
    own = wide.interval(0.95)
    narrowest = float(factor.sqrt()) * float(
        torch.diff(torch.tensor([_quantile(points, around, p) for p in (0.025, 0.975)]))
    )
    assert float((own[1] - own[0] <= narrowest).double().mean()) >= 0.99
    assert float((wide.variance <= final.variance).double().mean()) == 1
    assert float(factor) > 1


def _quantile(points, around, probability):
    return float(of_numbers(points, around).quantile(probability)[0, 0])


def test_parts_of_a_prediction_keep_their_background():
    _, prediction = quantities(outputs=2)
    for j in range(2):
        torch.testing.assert_close(prediction.of_output(j).variance, prediction.variance[:, j])
        torch.testing.assert_close(prediction.of_output(j).interval(0.9)[1], prediction.interval(0.9)[1][:, j])
    some = prediction.of_rows(torch.tensor([1, 4]))
    torch.testing.assert_close(some.std, prediction.std[[1, 4]])


def test_rows_of_a_large_group_have_its_distribution():
    points, noise = zip(*(background.of_quantities(Y + shift) for shift in (0.0, 50.0)), strict=True)
    groups = Background(torch.stack(points), torch.stack(noise), torch.ones(1, dtype=torch.float64), ("B",))
    blend = groups.at(torch.ones(3), ["B", "A", ""])
    torch.testing.assert_close(blend.mean[:, 0], Y.mean() + torch.tensor([50.0, 0.0, 0.0], dtype=torch.float64))


def test_an_interval_below_the_least_value_still_has_a_width():
    """Where the mean is below, its upper end is that of the Gaussian without what is below the least value."""
    z = torch.tensor([-1.0, 0.0, 0.5, 1.5, 4.0, 9.0, 25.0, 60.0], dtype=torch.float64)
    std = 1.7
    one = torch.ones(1, dtype=torch.float64)
    answers = (-std * z)[None, None, :, None]
    single = Plan(1, vary_theta=False, vary_mask=False)
    prediction = quantity(answers, torch.tensor([std**2]).double(), 0 * one, one, True, single, (), None, least=0.0)
    low, high = (end.numpy() for end in prediction.interval(0.95))
    assert (low < high).all()
    for row, each in enumerate(z.tolist()):
        if each < 0:
            assert high[row] == pytest.approx(std * (-each + stats.norm.ppf(0.975)))
        else:
            above = np.log(0.05) + stats.norm.logsf(each)
            assert stats.norm.logsf(high[row] / std + each) == pytest.approx(above, rel=1e-6, abs=5e-3)


# ---------------------------------------------------------------------- counts


def counts(weights):
    means = (
        random(MEMBERS, SAMPLES, ROWS, 1).mul(0.4).exp() * torch.tensor([0.01, 0.2, 0.5, 1, 1.5, 2.5]).double()[:, None]
    )
    scale, a = torch.tensor([2.0], dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64)
    mixture = Mixture(means, PLAN, AXES, noise=means / scale + a * means.square())
    networks = CountPrediction(mixture, a, scale)
    y = torch.from_numpy(np.random.default_rng(1).negative_binomial(1, 0.25, size=(500, 1)).astype(float))
    points, noise = background.of_counts(y / scale, scale)
    return networks, networks.blended(of_numbers(points, noise).at(weights)), y


def test_counts_are_a_distribution_with_these_moments():
    _, prediction, _ = counts(WEIGHTS)
    each = torch.arange(3000, dtype=torch.float64)
    p = torch.stack([prediction.log_density(each[k].expand(ROWS))[:, 0].exp() for k in range(len(each))])
    torch.testing.assert_close(p.sum(0), torch.ones(ROWS, dtype=torch.float64), rtol=0, atol=1e-6)
    mean = (each[:, None] * p).sum(0)
    torch.testing.assert_close(prediction.mean, mean, rtol=1e-5, atol=0)
    torch.testing.assert_close(prediction.variance, ((each[:, None] - mean).square() * p).sum(0), rtol=1e-3, atol=0)
    below, truth = p.cumsum(0), torch.tensor([0.0, 1, 2, 3, 9, 30], dtype=torch.float64)
    torch.testing.assert_close(prediction.cdf(truth), below[truth.long(), torch.arange(ROWS)], rtol=1e-6, atol=1e-9)
    for probability in (0.05, 0.5, 0.96):
        assert torch.equal(prediction.quantile(probability), (below < probability).sum(0).double())
    crps = (below - (each[:, None] >= truth).double()).square().sum(0)
    torch.testing.assert_close(prediction.crps(truth, by_row=True), crps, rtol=1e-3, atol=1e-6)
    drawn = prediction.sample(20_000)
    assert ((drawn.mean(0) - prediction.mean).abs() < 5 * prediction.std / 20_000**0.5).all()


def test_the_background_of_counts_has_their_moments():
    _, prediction, y = counts(torch.ones(ROWS, dtype=torch.float64))
    torch.testing.assert_close(prediction.mean, y.mean().expand(ROWS))
    assert (prediction.variance >= y.var(correction=0) - 1e-9).all()


def test_doubt_about_counts_only_grows():
    each = [counts(step.expand(ROWS))[1] for step in torch.linspace(0, 1, 21, dtype=torch.float64)]
    low, high = (torch.stack(ends) for ends in zip(*(one.interval(0.9) for one in each), strict=True))
    assert (low.diff(dim=0) <= 0).all()
    assert (high.diff(dim=0) >= 0).all()
    assert torch.equal(low, low.round())
    assert (torch.stack([one.variance for one in each]).diff(dim=0) >= -1e-12).all()
    networks = counts(WEIGHTS)[0].interval(0.9)
    assert torch.equal(torch.stack(networks), torch.stack([low[0], high[0]]))


# ---------------------------------------------------------------------- classes

LABELS = ("a", "b", "c")
NUMBERS = torch.tensor([0] * 90 + [1] * 7 + [2] * 3)


def of_classes(weights):
    logs = torch.log_softmax(random(MEMBERS, SAMPLES, ROWS, 3) + 2 * random(1, 1, ROWS, 3, seed=3), -1)
    networks = classes(logs, LABELS, PLAN, AXES, None)
    points, noise = background.of_classes(NUMBERS, 3)
    return networks, networks.blended(of_numbers(points, noise).at(weights))


def entropy(p):
    return torch.special.entr(p).sum(-1)


def test_probabilities_of_classes_are_mixed():
    networks, prediction = of_classes(WEIGHTS)
    shares = prediction.blend.shares(networks.probabilities)
    expected = (1 - WEIGHTS[:, None]) * networks.probabilities + WEIGHTS[:, None] * shares
    torch.testing.assert_close(prediction.probabilities, expected)
    torch.testing.assert_close(prediction.probabilities.sum(1), torch.ones(ROWS, dtype=torch.float64))
    truth = ["a", "b", "c", "a", "b", "c"]
    numbers = torch.tensor([0, 1, 2, 0, 1, 2])[:, None]
    torch.testing.assert_close(prediction.nll(truth, by_row=True), -expected.gather(1, numbers)[:, 0].log())
    within = (1 - WEIGHTS) * networks.expected_entropy + WEIGHTS * entropy(shares)
    torch.testing.assert_close(prediction.expected_entropy, within)
    torch.testing.assert_close(prediction.entropy, entropy(expected))
    answers = prediction.answers.flatten(0, 1).double()
    second = (1 - WEIGHTS[:, None]) * answers.square().mean(0) + WEIGHTS[:, None] * shares.square()
    torch.testing.assert_close(prediction.variance, second - expected.square())


def test_sources_of_classes_add_up():
    networks, prediction = of_classes(WEIGHTS)
    shown = (prediction.entropy - prediction.expected_entropy).clamp_min(0)
    for of, whole in (("entropy", "entropy"), ("variance", None), ("mutual_information", "mutual_information")):
        split = prediction.sources(of=of)
        is_split = (
            torch.ones(ROWS, dtype=torch.float64) if of == "entropy" else (WEIGHTS < 1).double()
        )  # else no two differ
        torch.testing.assert_close(sum(split.values()), is_split)
        if whole == "entropy":
            total = prediction.entropy + prediction.mutual_information - shown
            torch.testing.assert_close(sum(part.clamp_min(0) for part in split.variance.values()), total)
            rest = prediction.entropy - (1 - WEIGHTS) * networks.entropy
            torch.testing.assert_close(split.variance[OUTSIDE], rest)
            assert (rest > -1e-12).all()
    split = prediction.sources(by_class=True)
    torch.testing.assert_close(split.variance[OUTSIDE].sum(1), prediction.sources().variance[OUTSIDE])


def test_doubt_about_classes_only_grows():
    each = [of_classes(step.expand(ROWS))[1] for step in torch.linspace(0, 1, 41, dtype=torch.float64)]
    doubt = torch.stack([one.entropy for one in each])
    assert (doubt.diff(dim=0) > -1e-9).all()
    sets = torch.stack([one.sets(0.9) for one in each])
    assert (sets[0] <= sets).all()


def test_shares_are_flattened_no_more_than_needed():
    """Where the most frequent class is at least as likely as its share, they are as they are."""
    points, noise = background.of_classes(NUMBERS, 3)
    blend = of_numbers(points, noise).at(torch.ones(3))
    certain = torch.eye(3, dtype=torch.float64)
    shares = blend.shares(certain)
    torch.testing.assert_close(shares[0], points[0])
    torch.testing.assert_close(shares[2], torch.full((3,), 1 / 3, dtype=torch.float64))
    p = torch.tensor([[0.5, 0.3, 0.2]] * 3, dtype=torch.float64)
    flattened = blend.shares(p)
    cross = -(p * flattened.log()).sum(1)
    torch.testing.assert_close(cross, entropy(flattened), rtol=1e-6, atol=0)
