"""Running statistics follow every sample: what goes wrong without, that nothing is estimated twice, and torch's own."""

import copy
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.laws import SWAG, TRADI
from wherefrom.posterior import Posterior, predicting
from wherefrom.posterior.groups import groups
from wherefrom.predictive import batch_norm, monte_carlo
from wherefrom.predictive.batch_norm import Statistics
from wherefrom.training.data import Scaler
from wherefrom.training.network import Network
from wherefrom.training.workers import on_threads


@dataclass(frozen=True, eq=False)
class Box:
    """A law of the user's own: uniform about a mean, in parameters and statistics alike."""

    mean: torch.Tensor
    width: torch.Tensor

    @property
    def variance(self):
        return self.width.square() / 3

    @property
    def is_random(self):
        return bool(self.width.any())

    def sample(self, count, generator):
        return self.mean + self.width * (2 * torch.rand(count, len(self.mean), generator=generator) - 1)

    def tensors(self):
        return {"mean": self.mean, "width": self.width}


class Carrying(Box):
    carries_statistics = True


@dataclass(frozen=True)
class Boxes:
    """Boxes as wide as a share of the weights."""

    every: ClassVar[str] = "epoch"
    fewest: ClassVar[int] = 1
    kind: type = Box
    share: float = 0.2

    def collector(self, theta, iterations):
        return None

    def finish(self, member):
        theta = member.theta[: member.size]
        return self.kind(theta, self.share * theta.abs())


LAWS = [SWAG(5), SWAG(5, deviations="bfloat16"), TRADI(), Boxes()]


def deep(rate: float = 0.0) -> nn.Module:
    hidden = [nn.Linear(4, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()]
    more = [part for _ in range(3) for part in (nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU())]
    return nn.Sequential(*hidden, *more, nn.Dropout(rate), nn.Linear(16, 1))


def dropping() -> nn.Module:
    return deep(0.1)


@pytest.fixture
def trained(problem) -> Posterior:
    over = [wf.InitialCondition(2), wf.Iterations(SWAG(5), start=0.0), wf.Dropout()]
    return wf.marginalise(training(dropping, epochs=8), problem, over)


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """How many samples each pass over the training rows was for."""
    found, estimated = [], batch_norm._estimated

    def counted(network, thetas, rows):
        found.append(len(thetas))
        return estimated(network, thetas, rows)

    monkeypatch.setattr(batch_norm, "_estimated", counted)
    return found


# ---------------------------------------------------------------------- what goes wrong without


def test_without_it_samples_are_wrong(monkeypatch):
    """With statistics that were sampled like weights, errors nearly double, or running variances are negative."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(1400, 4))
    y = 3.0 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * generator.normal(size=1400) + 10.0
    known, (x_new, y_new) = (x[:900], y[:900]), (x[900:], y[900:])

    def error(prediction: wf.Prediction, posterior: Posterior) -> float:
        """Of a single sample, root mean square."""
        answers = prediction.answers.double() * posterior.scaler.y_std + posterior.scaler.y_mean
        return float((answers - torch.from_numpy(y_new).unsqueeze(-1)).square().mean().sqrt())

    for algorithm, is_nan in (
        (wf.Algorithm("adam", lr=0.03, batch_size=50), False),
        (wf.Algorithm("sgd", lr=0.1, batch_size=50), True),
    ):
        posterior = wf.marginalise(
            training(deep, algorithm=algorithm, epochs=12), known, [wf.Iterations(SWAG(10), start=0.0)]
        )
        fresh = posterior.predict(x_new, samples=50)
        with monkeypatch.context() as patch:
            patch.setattr(predicting, "refreshing", lambda posterior, group: None)
            stale = posterior.predict(x_new, samples=50)
        assert error(fresh, posterior) < 0.6
        if is_nan:
            assert math.isnan(float(stale.answers.sum()))
        else:
            assert error(stale, posterior) > 1.5 * error(fresh, posterior)
            assert stale.nll(y_new) > fresh.nll(y_new) + 0.2


# ---------------------------------------------------------------------- torch's own


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("rows_at_once", [30, 90])
def test_it_is_what_torch_does_for_each_sampled_network(law, rows_at_once, problem, monkeypatch):
    monkeypatch.setattr(batch_norm, "_FEWEST_ROWS", rows_at_once)
    monkeypatch.setattr(batch_norm, "_CALL_NUMBERS", 1)
    posterior = wf.marginalise(training(deep, epochs=8), problem, [wf.Iterations(law)])
    rows = batch_norm.TrainingRows(
        posterior.rows.x, posterior.scaler, posterior.dtype, posterior.device, None, posterior.seed
    )
    batches = list(rows.batches(rows_at_once))
    assert [len(batch) for batch in batches] == [rows_at_once] * (90 // rows_at_once)
    standardised = posterior.scaler.x(torch.from_numpy(problem[0]), torch.float32)
    assert torch.equal(torch.cat(batches).sort(0).values, standardised.sort(0).values)
    answers = posterior.predict(problem[0], samples=4).answers[0]
    thetas = monte_carlo.Thetas(groups(posterior)[0].thetas[0], posterior.seed).get(np.arange(4))
    for theta, own in zip(thetas, answers, strict=True):
        module = deep()
        module.load_state_dict(posterior.network.layout.views(theta), strict=False)
        torch.optim.swa_utils.update_bn(batches, module)
        torch.testing.assert_close(own, module.eval()(standardised).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("law", [Boxes(Carrying), Boxes(Box, share=0.0), wf.Snapshots(keep=3)], ids=str)
def test_a_law_that_carries_its_statistics_keeps_them(law, problem, passes):
    """As one that is not random does: the networks are run as their samples are."""
    posterior = wf.marginalise(training(deep, epochs=8), problem, [wf.Iterations(law)])
    answers = posterior.predict(problem[0], samples=4).answers[0]
    assert passes == []
    thetas = monte_carlo.Thetas(groups(posterior)[0].thetas[0], posterior.seed).get(np.arange(4))
    for theta, expected in zip(thetas, answers, strict=True):
        module = deep()
        module.load_state_dict(posterior.network.layout.views(theta), strict=False)
        inputs = posterior.scaler.x(torch.from_numpy(problem[0]), torch.float32)
        torch.testing.assert_close(expected, module.eval()(inputs).detach(), rtol=1e-4, atol=1e-4)


def test_units_are_dropped_as_in_training():
    """Dropout ahead of batch normalisation is part of what is normalised: torch's update_bn has it on, too."""
    x = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))

    def model():
        return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 8), nn.BatchNorm1d(8))

    torch.manual_seed(0)
    network = Network(model().eval(), x[:4])
    module = model()
    theta = network.theta(module)
    none = torch.zeros(1, dtype=torch.float64)
    rows = batch_norm.TrainingRows(x, Scaler(none, none + 1, none, none + 1), x.dtype, x.device, None, seed=0)
    (found,) = batch_norm._estimated(network, [theta], rows)
    (without,) = batch_norm._estimated(network.with_dropout_rate(0.0), [theta], rows)
    torch.manual_seed(1)
    torch.optim.swa_utils.update_bn(list(x.split(500)), module)
    variance = module[4].running_var
    error = math.sqrt(2 * 2 / 4000 / 8)  # of the mean over 8 units of a ratio of two variances, each of 4,000 rows
    assert abs(float((found[8:] / variance).mean()) - 1) < 3 * error
    assert float((without[8:] / variance).mean()) < 1 - 10 * error


def test_rows_that_stand_in_order_are_mixed():
    """Sorted rows in batches as they come would have next to no variance within a batch."""
    x = torch.linspace(-1, 1, 3000, dtype=torch.float64).reshape(-1, 1).repeat(1, 4)
    y = x[:, 0] + 0.1
    make = lambda: nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 1))  # noqa: E731
    posterior = wf.marginalise(training(make, epochs=4), (x, y), [wf.Iterations(SWAG(2), start=0.0)])
    found = posterior.sample(1)[0]
    assert float(found["0.running_var"].mean()) == pytest.approx(1, abs=0.02)
    assert float(found["0.running_mean"].abs().max()) < 1e-5


# ---------------------------------------------------------------------- remembered


def test_nothing_is_estimated_twice(trained, problem, passes):
    """Once for each theta: then other rows, t alone, fewer members and single samples ask for no pass."""
    x = problem[0]
    first = trained.predict(x, samples=20)
    assert sum(passes) == 2 * 10  # two members, ten thetas each, crossed with masks
    passes.clear()
    assert torch.equal(trained.predict(x, samples=20).answers, first.answers)
    torch.testing.assert_close(trained.predict(x[:7], samples=20).answers, first.answers[:, :, :7])
    trained.marginalising("t", "F").predict(x, samples=20)
    trained.marginalising("theta0", "t").predict(x, samples=10)
    trained.select(theta0=1).predict(x, samples=20)
    trained.sample(6)
    assert sum(passes) == 0
    trained.marginalising("theta0", "t").predict(x, samples=13)
    assert sum(passes) == 2 * 3  # the new ones
    trained.predict(x, samples=20, seed=1)
    assert sum(passes) == 2 * 3 + 2 * 10
    trained.one_shot(x)
    trained.one_shot(x[:3])
    assert sum(passes) == 2 * 3 + 2 * 10 + 2 + 2 * 2 * 5  # the laws' means, and either end of five deviations


def test_what_is_remembered_changes_no_bit(trained, problem):
    """However many samples were asked for together, and in whichever order."""
    x = problem[0]
    anew = lambda: copy.copy(replace(trained, statistics=Statistics()))  # noqa: E731
    expected = anew().predict(x, samples=24).answers
    assert torch.equal(trained.predict(x, samples=24).answers, expected)
    other = anew()
    other.predict(x[:2], samples=8)
    other.marginalising("t").predict(x[:40], samples=3)
    assert torch.equal(other.predict(x, samples=24).answers, expected)
    forgetful = replace(trained, statistics=Statistics(most_bytes=2000))
    assert torch.equal(forgetful.predict(x, samples=24).answers, expected)
    assert forgetful.statistics.bytes <= 2000


def test_it_is_another_for_other_rows(trained, problem, passes, tmp_path):
    x = problem[0]
    own = trained.predict(x, samples=8).answers
    trained.save(tmp_path)
    again = wf.load(tmp_path, dropping, data=problem)
    passes.clear()
    assert torch.equal(again.predict(x, samples=8).answers, own)
    assert sum(passes) == 8
    moved = replace(trained, fold=replace(trained.fold, rows=replace(trained.rows, x=2 * trained.rows.x)))
    assert not torch.equal(moved.predict(x, samples=8).answers, own)
    assert torch.equal(trained.predict(x, samples=8).answers, own)


def test_folds_and_families_do_not_share(problem):
    """The same weights in another network, or on other rows, have other statistics."""
    wide = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))  # noqa: E731
    other = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))  # noqa: E731
    over = [wf.Families({"relu": wide, "tanh": other}), wf.Iterations(SWAG(2))]
    both = wf.marginalise(training(epochs=6), problem, over)
    answers = both.predict(problem[0], samples=4).answers
    for place, name in enumerate(("relu", "tanh")):
        alone = replace(both.select(F=name), statistics=Statistics())
        assert torch.equal(alone.predict(problem[0], samples=4).answers[0], answers[place])


def test_the_oldest_are_forgotten():
    known = Statistics(most_bytes=40)
    number = known.number("rows", "network")
    assert known.number("rows", "network") == number
    assert known.number("rows", "other") != number
    for name in (b"a", b"b"):
        known.keep((number, name), torch.ones(5))
    assert known.find((number, b"a")) is not None  # it is used again
    known.keep((number, b"c"), torch.ones(5))
    assert known.find((number, b"b")) is None
    assert known.find((number, b"a")) is not None
    assert known.bytes == 40
    known.keep((number, b"d"), torch.ones(100))
    assert known.bytes == 0
    assert copy.deepcopy(known).most_bytes == 40


def test_threads_share_it(trained, problem):
    x = problem[0]
    expected = replace(trained, statistics=Statistics()).predict(x, samples=16).answers
    forgetful = replace(trained, statistics=Statistics(most_bytes=4000))
    for posterior in (trained, forgetful):
        found = on_threads(lambda _, p=posterior: p.predict(x, samples=16).answers, range(6), 3)
        assert all(torch.equal(answers, expected) for answers in found)


# ---------------------------------------------------------------------- augmentation


def shifted(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return batch + 3 + torch.randn(batch.shape, generator=generator)


def test_statistics_are_those_of_augmented_rows(problem, tmp_path):
    """As in training: by a stream of their own, the same in every prediction."""
    make = lambda: nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 1))  # noqa: E731
    posterior = wf.marginalise(training(make, augment=shifted), problem, [wf.Iterations(SWAG(2))])
    found = posterior.sample(2)
    for one in found:
        assert float(one["0.running_mean"].mean()) == pytest.approx(3, abs=0.3)
        assert float(one["0.running_var"].mean()) == pytest.approx(2, abs=0.5)
    again = replace(posterior, statistics=Statistics()).sample(2)
    assert all(torch.equal(one[name], other[name]) for one, other in zip(found, again, strict=True) for name in one)
    posterior.save(tmp_path)
    with pytest.raises(ValueError, match=r"augment"):
        wf.load(tmp_path, make, data=problem).sample(1)
    loaded = wf.load(tmp_path, make, data=problem, augment=shifted).sample(2)
    assert all(torch.equal(one[name], other[name]) for one, other in zip(found, loaded, strict=True) for name in one)


def test_a_known_augmentation_is_stored(tmp_path):
    x = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    make = lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 1))  # noqa: E731
    data = (x, x.mean((1, 2, 3)))
    augment = wf.augment.CropAndFlip(padding=1)
    posterior = wf.marginalise(training(make, augment=augment), data, [wf.Iterations(SWAG(2))])
    posterior.save(tmp_path)
    again = wf.load(tmp_path, make, data=data)
    assert again.training.augment == augment
    assert torch.equal(again.predict(x, samples=3).answers, posterior.predict(x, samples=3).answers)
