"""Laws that finish with the trained member: a Laplace posterior of a linear regression against its closed form."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.laws import Finished, Gaussian, Points
from wherefrom.training import checkpoints
from wherefrom.variables import Resample

ON_BOTH_ENGINES = True
NOISE, PRIOR = 0.3, 2.0
DATA = np.random.default_rng(1)
X = DATA.normal(size=(70, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.5 * DATA.normal(size=70) + 4.0
WEIGHTS = DATA.uniform(0.2, 3.0, size=70)


@dataclass(frozen=True)
class Laplace:
    """One step of Gauss and Newton from the last iterate, and the inverse of the curvature there.

    `diagonal` keeps the diagonal of the curvature only.
    """

    every: ClassVar[str] = "epoch"
    fewest: ClassVar[int] = 1
    noise: float = NOISE
    prior: float = PRIOR
    diagonal: bool = False

    def collector(self, theta, iterations):
        return None

    def finish(self, member: Finished) -> Gaussian:
        theta = member.parameters
        precision, slope = self.prior * torch.eye(len(theta)), self.prior * theta
        for x, y, weights in member.batches(32):
            jacobian = torch.func.jacrev(lambda t, x=x: member.outputs(t, x)[:, 0])(theta)
            weighted = jacobian if weights is None else jacobian * weights[:, None]
            precision += weighted.T @ jacobian / self.noise

            def loss(t, x=x, y=y, weights=weights):  # -log p(y | x, theta): the squared error is its mean, doubled
                return len(x) * member.loss(member.outputs(t, x), y, weights) / (2 * self.noise)

            slope = slope + torch.func.grad(loss)(theta)
        mean = theta - torch.linalg.solve(precision, slope)
        if self.diagonal:
            return Gaussian(mean, 1 / precision.diagonal(), mean.new_zeros(0, len(mean)))
        return Gaussian(mean, torch.zeros_like(mean), torch.linalg.cholesky(torch.linalg.inv(precision)).T)


def linear() -> nn.Module:
    return nn.Linear(3, 1)


def setup(**changes) -> wf.Training:
    return training(linear, algorithm=wf.Algorithm("sgd", lr=0.05, batch_size=20), epochs=4, **changes)


def closed_form(posterior: wf.Posterior, x, y, weights=None) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of p(theta | rows) under N(0, 1 / prior), for weights with a mean of one."""
    x = posterior.scaler.x(torch.as_tensor(x), torch.float64)
    y = posterior.scaler.y(torch.as_tensor(y)[:, None], torch.float64)
    design = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
    w = torch.ones(len(x), 1).double() if weights is None else torch.as_tensor(weights / weights.mean())[:, None]
    precision = design.T @ (w * design) / NOISE + PRIOR * torch.eye(4, dtype=torch.float64)
    return torch.linalg.solve(precision, design.T @ (w * y) / NOISE)[:, 0], torch.linalg.inv(precision)


def assert_is(law: Gaussian, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    covariance = torch.diag(law.diagonal) + law.factor.T @ law.factor
    torch.testing.assert_close(law.mean.double(), expected[0], rtol=0, atol=2e-5)
    torch.testing.assert_close(covariance.double(), expected[1], rtol=1e-4, atol=1e-7)


def test_it_is_the_closed_form_and_predicts_with_it(engine, tmp_path):
    over = [wf.InitialCondition(3), wf.Iterations(Laplace())]
    posterior = wf.marginalise(setup(), (X, Y), over)
    assert posterior.engines == (engine,)
    mean, covariance = closed_form(posterior, X, Y)
    for law in posterior.laws():
        assert_is(law, (mean, covariance))
    # f(x) = theta^T (x, 1) is Gaussian, and one pass of moments through a linear network is exact.
    design = torch.cat([posterior.scaler.x(torch.as_tensor(X), torch.float64), torch.ones(70, 1).double()], dim=1)
    scale = posterior.scaler.y_std[0]
    spread = ((design @ covariance) * design).sum(1).sqrt() * scale
    prediction = posterior.one_shot(X)
    assert np.allclose(prediction.std, spread, rtol=1e-3)
    assert np.allclose(prediction.mean, design @ mean * scale + posterior.scaler.y_mean[0], atol=1e-3)
    assert np.allclose(posterior.predict(X, samples=4000).std, spread, rtol=0.1)
    posterior.save(tmp_path)
    again = wf.load(tmp_path, model=linear, data=(X, Y), laws=[Laplace])
    assert torch.equal(again.predict(X).answers, posterior.predict(X).answers)
    grown = again.extend(theta0=2)
    assert len(grown) == 5
    for law in grown.laws():
        assert_is(law, (mean, covariance))


def test_with_folds_resampled_and_weighted_rows(engine):
    folds = [np.arange(50), np.arange(20, 70)]
    over = [wf.Resample(2), wf.Iterations(Laplace())]
    for number, posterior in enumerate(wf.marginalise(setup(), (X, Y, WEIGHTS), over, folds=folds)):
        for draw, law in enumerate(posterior.laws()):
            rows = folds[number][Resample.rows(50, None, number, draw).numpy()]
            assert_is(law, closed_form(posterior, X[rows], Y[rows], WEIGHTS[rows]))


def test_a_diagonal_one_and_batch_norm(engine):
    """The size of a law is that of parameters and buffers; the buffers are theta's."""

    def normalised() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 1))

    @dataclass(frozen=True)
    class WithBuffers(Laplace):
        def finish(self, member):
            law, buffers = Laplace.finish(self, member), member.theta[len(member.parameters) : member.size]
            assert member.size == len(member.parameters) + 6
            nothing = torch.zeros_like(buffers)
            return Gaussian(
                torch.cat([law.mean, buffers]), torch.cat([law.diagonal, nothing]), law.mean.new_zeros(0, member.size)
            )

    posterior = wf.marginalise(
        training(normalised, epochs=3), (X, Y), [wf.InitialCondition(2), wf.Iterations(WithBuffers(diagonal=True))]
    )
    for component, law in zip(posterior.mixture, posterior.laws(), strict=True):
        x = posterior.scaler.x(torch.as_tensor(X), torch.float32)
        mean, variance = component.trained.last[4:7], component.trained.last[7:]
        design = torch.cat([(x - mean) / (variance + 1e-5).sqrt(), torch.ones(70, 1)], dim=1)
        precision = PRIOR + design.square().sum(0) / NOISE
        torch.testing.assert_close(law.diagonal[:4], 1 / precision, rtol=1e-4, atol=0)
        assert torch.equal(law.mean[4:], component.trained.last[4:])
    assert posterior.predict(X, samples=5).std.min() > 0


@dataclass(frozen=True)
class Around:
    """Random points around the mean of what SWAG collected: a law in two steps."""

    every: ClassVar[str] = "epoch"
    fewest: ClassVar[int] = 2
    spread: float = 0.1

    def collector(self, theta, iterations):
        return wf.SWAG(rank=0).collector(theta, iterations)

    def finish(self, member):
        assert member.settings["lr"] == 0.02
        assert member.rates == (0.1,)
        assert member.network.layout.views(member.theta)["0.weight"].shape == (12, 4)
        noise = torch.randn(5, member.size, generator=member.generator)
        return Points(member.collected.mean + self.spread * noise)


def test_it_sees_what_was_collected_and_has_random_numbers(engine, problem):
    over = [wf.Jointly(wf.InitialCondition(), wf.BatchOrder(), draws=3), wf.Iterations(Around())]
    found = wf.marginalise(training(), problem, over)
    swag = wf.marginalise(training(), problem, [over[0], wf.Iterations(wf.SWAG(rank=0))])
    noise = []
    for law, collected in zip(found.laws(), swag.laws(), strict=True):
        noise.append((law.points - collected.mean) / 0.1)
        assert 0.8 < float(noise[-1].std()) < 1.2
    assert not torch.allclose(noise[0], noise[1], atol=0.1)  # each member has its own
    more = wf.marginalise(training(), problem, [wf.Jointly(*over[0].variables, draws=4), over[1]])
    for law, again in zip(found.laws(), more.laws(), strict=False):
        torch.testing.assert_close(law.points, again.points, rtol=0, atol=1e-5)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("law", [Laplace(), Around()], ids=["laplace", "around"])
def test_interrupted_and_resumed(engine, law, problem, tmp_path, monkeypatch):
    if engine == "native":
        from wherefrom.training.native import engine as native_engine

        monkeypatch.setattr(native_engine, "_CALL_SECONDS", 0.0)
    wide = lambda: nn.Linear(4, 1)  # noqa: E731
    point = training(wide if isinstance(law, Laplace) else None)
    over, left = [wf.InitialCondition(2), wf.Iterations(law)], [8]

    def report(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            raise Interrupted

    expected = wf.marginalise(point, problem, over)
    with pytest.raises(Interrupted):
        wf.marginalise(point, problem, over, checkpoints=tmp_path, progress=report, workers=1)
    begun, begin = [], checkpoints.Keeping.begin
    monkeypatch.setattr(
        checkpoints.Keeping, "begin", lambda self, training: begun.append(begin(self, training)) or begun[-1]
    )
    for _ in range(2):  # resumed, and then read
        posterior = wf.marginalise(point, problem, over, checkpoints=tmp_path, workers=1)  # one group: it begins once
        for one, other in zip(posterior.laws(), expected.laws(), strict=True):
            assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())
    assert len(begun) == 1
    assert max(begun[0]) > 0


def test_one_that_diverged_is_not_finished(engine, problem):
    over = [wf.Hyperparameters(lr=[0.01, 1e30]), wf.Iterations(Laplace())]
    setup = training(lambda: nn.Linear(4, 1), algorithm=wf.Algorithm("sgd", lr=0.1, batch_size=25))
    posterior = wf.marginalise(setup, problem, over, on_divergence="keep")
    assert len(posterior) == 1
    assert posterior.laws()[0].mean.isfinite().all()


def test_what_cannot_finish_is_named(engine, problem):
    class Short(Laplace):
        def finish(self, member):
            return Points(member.theta[None, :2])

    class Nothing:
        every, fewest = "epoch", 1

        def collector(self, theta, iterations):
            return None

    with pytest.raises(ValueError, match=r"a law whose mean has the shape \(4,\).*Points with a mean of shape \(2,\)"):
        wf.marginalise(setup(), (X, Y), [wf.Iterations(Short())])
    with pytest.raises(TypeError, match="neither a collector nor a method finish"):
        wf.marginalise(setup(), (X, Y), [wf.Iterations(Nothing())])
    with pytest.raises(ValueError, match="needs the rows and the loss to finish"):
        wf.Recorder(Laplace())
