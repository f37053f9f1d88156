"""posterior.one_shot: against closed forms, against many samples, and as a Prediction like any other."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import mlp, training
from wherefrom.posterior.groups import groups, inputs
from wherefrom.predictive import batch_norm
from wherefrom.predictive.one_shot import Moments, NoRuleError, check, member, propagate
from wherefrom.reproduce.uci.study import exact_dropout

NEW = np.random.default_rng(11).normal(size=(40, 4))


def posterior(problem, over, model=None, **changes) -> wf.Posterior:
    return wf.marginalise(training(model, **{"epochs": 30} | changes), problem, over, seed=2, progress=False)


@pytest.fixture(scope="module")
def whole(request):
    """Three members, SWAG and dropout."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(90, 4))
    y = 3.0 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * generator.normal(size=90) + 10.0
    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(10)), wf.Dropout()]
    return posterior((x, y), over)


def relative_errors(found: wf.Posterior, samples: int, **how) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each member's mean, in standard deviations, and standard deviation."""
    one, many = found.one_shot(NEW, **how), found.predict(NEW, samples)
    answers = many.answers.double()
    std = answers.std(1)
    return (one.answers[:, 0] - answers.mean(1)) / std, one.mixture.spread[:, 0].double().sqrt() / std - 1


# ---------------------------------------------------------------------- numbers


def test_dropout_alone_is_exact(whole):
    part = whole.marginalising("F")
    exact = exact_dropout(part, NEW)
    found = part.one_shot(NEW)
    torch.testing.assert_close(found.mean, exact.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.variance, exact.variance, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("rank", [0, 10])
def test_swag_within_two_percent_of_many_samples(problem, rank):
    """One hidden layer: the diagonal alone is exact but for Gaussian products, shared deviations nearly so."""
    found = posterior(problem, [wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank))])
    mean, std = relative_errors(found, 10_000)
    noise = 1 / math.sqrt(10_000)
    assert float(mean.abs().median()) < 0.01 + noise
    assert float(std.abs().median()) < 0.01 + noise / math.sqrt(2)


def test_dropping_the_correlations_is_worse(whole):
    part = whole.marginalising("theta0", "t")
    _, shared = relative_errors(part, 4000)
    _, diagonal = relative_errors(part, 4000, covariance="diagonal")
    assert float(diagonal.abs().median()) > 3 * float(shared.abs().median())


def test_fewer_shared_deviations_lose_little_and_only_variance(whole):
    swag = whole.marginalising("theta0", "t")
    everything = swag.one_shot(NEW)
    lost = [(1 - swag.one_shot(NEW, rank=rank).mixture.spread / everything.mixture.spread) for rank in (1, 2, 4, 8)]
    assert all(float(part.mean()) > 0 for part in lost)
    assert all(float(more.mean()) > float(less.mean()) for more, less in itertools.pairwise(lost))
    assert float(lost[-1].mean()) < 0.05
    assert torch.equal(swag.one_shot(NEW, rank=10).mixture.spread, everything.mixture.spread)  # all of them
    assert torch.equal(swag.one_shot(NEW, rank=99).mixture.spread, everything.mixture.spread)


def test_the_kept_deviations_do_not_depend_on_the_rows(whole):
    together = whole.one_shot(NEW, rank=2)
    alone = whole.one_shot(NEW[3:4], rank=2)
    assert torch.allclose(alone.std, together.std[3:4], rtol=1e-4)


def test_the_kept_deviations_are_the_best_of_their_number(whole):
    """No other one direction leaves more of the answers' variance, on the rows by which they were chosen."""
    (group,) = groups(whole.marginalising("theta0", "t"))
    sampled = group.thetas[0]
    job = propagate.Passes(group.network, [sampled], torch.empty(0, 4), None, "low_rank", None)
    rows = torch.randn(propagate._PROBES, 4, generator=torch.Generator().manual_seed(0))
    law, network = sampled.law, group.network.private("test")
    theta = member.tensors_of(network, False, law.mean, law.diagonal, law.factor)
    graph = member.graph_of(network, law.mean)
    out = graph.run(Moments(rows), theta, member.drops_of(graph, network, False))
    moved = (out.factors / out.total_variance.sqrt()).flatten(1)
    best = job._effects(sampled, law)[:, 0]
    others = torch.randn(500, len(law.factor), generator=torch.Generator().manual_seed(1))
    others = torch.cat([others / others.norm(dim=1, keepdim=True), torch.eye(len(law.factor))])
    assert float((best @ moved).square().sum()) >= float((others @ moved).square().sum(1).max())


def test_members_are_mixed_by_the_law_of_total_variance(whole):
    found = whole.one_shot(NEW)
    parts = [whole.select(theta0=draw).one_shot(NEW) for draw in range(3)]
    means = torch.stack([part.mean for part in parts])
    variances = torch.stack([part.variance for part in parts])
    torch.testing.assert_close(found.mean, means.mean(0))
    torch.testing.assert_close(found.variance, variances.mean(0) + means.var(0, correction=0))


@pytest.mark.parametrize("x_std", [0.5, [0.1, 0.2, 0.0, 3.0]])
def test_noise_of_the_inputs_through_a_linear_model(problem, x_std):
    """Var = sum of (slope times the input's deviation)^2, in the user's units."""
    found = posterior(problem, [], lambda: nn.Linear(4, 1))
    said = found.one_shot(NEW, x_std=x_std)
    (theta,) = found.sample(1)
    slope = theta["weight"].double()[0] * found.scaler.y_std / found.scaler.x_std
    variance = (slope * torch.as_tensor(x_std).double()).square().sum()
    torch.testing.assert_close(said.variance, variance.expand(40), rtol=1e-5, atol=1e-8)
    assert said.sources().overall["inputs"].share == pytest.approx(1)


def test_snapshots_are_their_points_and_one_network_is_certain(problem):
    many = posterior(problem, [wf.InitialCondition(2), wf.Iterations(wf.Snapshots(5))])
    said = many.one_shot(NEW)
    assert said.answers.shape[:2] == (2, 5)
    assert torch.count_nonzero(said.mixture.spread) == 0
    points = torch.stack([law.tensors()["points"] for law in many.laws()])
    alone = torch.stack(
        [
            many.network.call(many.network.layout.views(theta), inputs(many, NEW), (), False)
            for theta in points.flatten(0, 1)
        ]
    )
    torch.testing.assert_close(said.answers.flatten(0, 1), alone.detach(), rtol=1e-5, atol=1e-5)
    one = many.select(theta0=0).marginalising().one_shot(NEW)
    assert torch.count_nonzero(one.variance) == 0
    torch.testing.assert_close(one.mean, many.select(theta0=0).marginalising().predict(NEW).mean)


def test_rows_and_members_do_not_depend_on_how_many_are_done_at_once(whole, monkeypatch):
    before = whole.one_shot(NEW)
    monkeypatch.setattr(propagate, "_CALL_NUMBERS", 2000)
    after = whole.one_shot(NEW)
    torch.testing.assert_close(after.answers, before.answers, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(after.mixture.spread, before.mixture.spread, rtol=1e-4, atol=1e-7)


# ---------------------------------------------------------------------- a Prediction like any other


def test_scores_and_intervals(whole):
    y = 3.0 * NEW[:, 0] - np.abs(NEW[:, 1]) + 10.0
    one, many = whole.one_shot(NEW), whole.predict(NEW, 4000)
    assert one.method == "one_shot"
    assert many.method == "monte_carlo"
    assert "one-shot with low_rank covariance" in repr(one)
    for said in (one, many):
        low, high = said.interval(0.9)
        assert (low < high).all()
    assert one.nll(y) == pytest.approx(many.nll(y), rel=0.05)
    assert one.crps(y, "mixture") == pytest.approx(many.crps(y, "mixture"), rel=0.05)
    assert one.coverage(y, 0.9) == pytest.approx(many.coverage(y, 0.9), abs=0.1)
    assert math.isfinite(one.nll(y, "mixture"))  # three Gaussians have a density, thousands of points have none
    apart = (one.quantile(0.1, "mixture") - many.quantile(0.1, "mixture")).abs() / many.std
    assert float(apart.median()) < 0.2  # one dropped unit of twelve is no Gaussian


def test_sources_are_those_of_many_samples(whole):
    one, many = whole.one_shot(NEW).sources(), whole.predict(NEW, 2000).sources()
    assert one.names == many.names == ("theta0", "t", "F", "t x F")
    for name, part in many.overall.items():
        found = one.overall[name]
        assert found.variance == pytest.approx(part.variance, abs=4 * part.variance_error + 0.05 * part.variance)
    total = sum(one[name] for name in one.names)
    torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("noise", [0.7, "fit", "predicted"])
def test_noise_is_part_of_it(problem, noise):
    model = mlp(outputs=2 if noise == "predicted" else 1)
    over = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(5)), wf.Dropout()]
    found = posterior(problem, over, model, likelihood=wf.Regression(noise=noise))
    one, many = found.one_shot(NEW), found.predict(NEW, 4000)
    torch.testing.assert_close(
        one.noise_variance, many.noise_variance, rtol=0.25 if noise == "predicted" else 0, atol=0
    )
    torch.testing.assert_close(one.std, many.std, rtol=0.1, atol=0)
    assert one.sources().names[-1] == "noise"
    assert one.sources().overall["noise"].share == pytest.approx(many.sources().overall["noise"].share, abs=0.03)


def test_several_outputs(problem):
    x, y = problem
    found = posterior((x, np.column_stack([y, -2 * y])), [wf.Iterations(wf.SWAG(5))], mlp(outputs=2))
    one, many = found.one_shot(NEW), found.predict(NEW, 4000)
    assert one.mean.shape == (40, 2)
    torch.testing.assert_close(one.std, many.std, rtol=0.1, atol=0)


def test_whole_numbers_as_inputs():
    x = np.random.default_rng(0).integers(0, 7, size=(60, 3))
    model = lambda: nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 1))  # noqa: E731
    found = posterior((x, x.sum(1) + 10.0), [wf.Iterations(wf.SWAG(4))], model)
    new = x[[len(set(row)) == 3 for row in x]]  # a vector that is used twice in a row is not independent of itself
    one, many = found.one_shot(new), found.predict(new, 4000)
    torch.testing.assert_close(one.std, many.std, rtol=0.1, atol=0)
    assert float(((one.mean - many.mean) / many.std).abs().max()) < 0.2


def test_a_loaded_posterior_says_the_same(whole, tmp_path):
    whole.save(tmp_path)
    again = wf.load(tmp_path, model=whole.training.model)
    assert torch.equal(again.one_shot(NEW).mean, whole.one_shot(NEW).mean)
    assert torch.equal(again.one_shot(NEW).variance, whole.one_shot(NEW).variance)


@pytest.mark.slow
def test_convolutions_with_batch_norm_and_pooling():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, 6, 6, generator=generator)
    y = 5 * x.mean((1, 2, 3)) + 1

    def model():
        return nn.Sequential(
            *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.1)),
            *(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1)),
        )

    found = posterior((x, y), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(5)), wf.Dropout()], model)
    one, many = found.one_shot(x[:10]), found.predict(x[:10], 1000)
    assert float(((one.mean - many.mean) / many.std).abs().max()) < 0.6
    assert 0.4 < float((one.std / many.std).median()) < 1.6


# ---------------------------------------------------------------------- the check, and the choice


def test_the_check_finds_what_is_wrong_and_what_is_right(whole):
    part = whole.marginalising("t")
    good = part.check_one_shot(NEW, samples=2000)
    poor = part.check_one_shot(NEW, samples=2000, covariance="diagonal")
    assert good.std_error < 0.05
    assert poor.std_error > 0.1 > good.std_error
    assert good.std_error_se < 0.02
    assert poor.bias_of_std > 0.1
    assert good.is_within(0.05)
    assert not poor.is_within(0.05)
    assert "low_rank) against 2000 samples a member on 40 rows" in str(good)


def test_the_check_takes_the_samples_noise_out(whole):
    """With few samples the raw difference is mostly theirs; what is reported is not."""
    part = whole.marginalising("F")  # exact, but for float32
    found = [part.check_one_shot(NEW, samples=300, seed=seed) for seed in range(8)]
    raw = 1 / math.sqrt(300)
    assert np.mean([check.mean_error for check in found]) < 0.7 * raw
    assert all(0.2 * raw < check.mean_error_se < 3 * raw for check in found)


def test_auto_uses_it_where_it_is_good_and_says_so(whole):
    assert whole.predict(NEW, method="auto", tolerance=0.1).method == "one_shot"
    assert whole.predict(NEW, method="auto", tolerance=1e-6).method == "monte_carlo"
    assert whole.predict(NEW, method="one_shot").method == "one_shot"


def test_auto_checks_once(whole, monkeypatch):
    part = whole.marginalising("theta0", "t")
    checked = []
    monkeypatch.setattr(check, "compare", lambda *both, whole=check.compare: checked.append(1) or whole(*both))
    assert [part.predict(NEW, method="auto", tolerance=0.1).method for _ in range(3)] == ["one_shot"] * 3
    assert len(checked) == 1


def test_the_check_takes_some_of_many_rows(whole):
    assert whole.check_one_shot(np.tile(NEW, (20, 1)), samples=50).rows == 200
    assert whole.check_one_shot(NEW, samples=50, rows=10).rows == 10


def test_unknown_methods_are_refused(whole):
    with pytest.raises(ValueError, match="method must be"):
        whole.predict(NEW, method="magic")


def test_a_network_without_a_rule_is_sampled(problem):
    def model():
        return nn.Sequential(nn.Linear(4, 6), nn.Softshrink(), nn.Linear(6, 1))

    found = posterior(problem, [wf.Iterations(wf.SWAG(5))], model)
    with pytest.raises(NoRuleError, match=r"the layer '1', Softshrink\(0.5\).*wf\.one_shot\.rule"):
        found.one_shot(NEW)
    assert found.predict(NEW, method="auto").method == "monte_carlo"


def test_a_rule_of_the_users_own(problem):
    class Softsign(nn.Module):
        def forward(self, x):
            return x / (1 + x.abs())

    def model():
        return nn.Sequential(nn.Linear(4, 6), Softsign(), nn.Linear(6, 1))

    found = posterior(problem, [wf.Iterations(wf.SWAG(5))], model)
    with pytest.raises(ValueError, match="no one-shot rule"):
        found.one_shot(NEW)

    @wf.one_shot.rule(Softsign)
    def softsign(layer, x):
        return wf.one_shot.elementwise(x, torch.nn.functional.softsign)

    _, std = relative_errors(found, 4000)
    assert float(std.abs().median()) < 0.05


def test_bad_wishes(whole, problem):
    with pytest.raises(ValueError, match="covariance must be one of"):
        whole.one_shot(NEW, covariance="half")
    for shape in ([1.0, 2.0], [1.0]):
        with pytest.raises(ValueError, match="x_std has shape"):
            whole.one_shot(NEW, x_std=shape)
    with pytest.raises(ValueError, match="must not be negative"):
        whole.one_shot(NEW, x_std=-1.0)
    for wish in ({"rank": 0}, {"rank": 2, "covariance": "diagonal"}):
        with pytest.raises(ValueError, match="rank says how many"):
            whole.one_shot(NEW, **wish)
    x = np.random.default_rng(0).normal(size=(60, 600))
    wide = posterior((x, x[:, 0]), [wf.Iterations(wf.SWAG(2))], mlp(600), epochs=4)
    with pytest.raises(ValueError, match="up to 512 units"):
        wide.one_shot(np.zeros((2, 600)), covariance="full")


def test_running_statistics_move_with_shared_deviations(problem, monkeypatch):
    """Against samples, each of which has statistics of its own; with those of the mean the answers vary too much."""

    def model():
        hidden = [part for a, b in ((4, 12), (12, 12)) for part in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(12, 1))

    known = posterior(problem, [wf.Iterations(wf.SWAG(5))], model)
    moving = known.check_one_shot(problem[0], samples=2000)
    monkeypatch.setattr(
        propagate, "moved_statistics", lambda *given: batch_norm.moved_statistics(*given[:4], refresh=None)
    )
    fixed = known.check_one_shot(problem[0], samples=2000)
    assert moving.std_error < 0.15
    assert fixed.std_error > 3 * moving.std_error
    assert fixed.bias_of_std > 0
    alone = posterior(problem, [wf.Iterations(wf.SWAG(diagonal_only=True))], model)
    with pytest.raises(NoRuleError, match="running statistics anew for every sample"):
        alone.one_shot(problem[0])
