"""Laplace's law: exact posteriors of linear models, dense curvature by autograd, refitted models, and laplace-torch."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.laws import Gaussian, Law, Rotated, delta
from wherefrom.laws.gauss_newton import STRUCTURES
from wherefrom.laws.laplace import Evidence, left_out_scores

DATA = np.random.default_rng(1)
X = DATA.normal(size=(40, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.5 * DATA.normal(size=40) + 4.0
CLASSES = (X[:, 0] + 0.5 * DATA.normal(size=40) > 0).astype(int) + (X[:, 1] > 0.5)
WEIGHTS = DATA.uniform(0.2, 3.0, size=40)
NOISE, PRIOR = 0.4, 2.0


@dataclass(frozen=True)
class Catching:
    """Keeps the finished member for a test, and the last iterate for a law."""

    every: ClassVar[str] = "epoch"
    fewest: ClassVar[int] = 1
    seen: list = field(default_factory=list)

    def collector(self, theta, iterations):
        return None

    def finish(self, member) -> Law:
        self.seen.append(member)
        return delta(member.theta[: member.size])


def caught(model, data, likelihood=None, epochs=20, standardise=True):
    """A trained member in double precision, as `finish` sees it."""
    catching = Catching()
    setup = training(model, likelihood=likelihood or wf.Regression(), epochs=epochs, standardise=standardise)
    wf.marginalise(setup, data, [wf.Iterations(catching)], compute=wf.Compute(dtype=torch.float64))
    (member,) = catching.seen
    return member


def small(outputs=1):
    return lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs))


def covariance(law) -> torch.Tensor:
    """All of it, from its image of the identity."""
    return law.image(torch.eye(len(law.mean), dtype=law.mean.dtype))


# ---------------------------------------------------------------------- exact posteriors


def posterior_of_a_line(posterior, noise, prior, weights=None):
    """Covariance of the weights and the bias of a linear regression with a Gaussian prior, for one output."""
    x = posterior.scaler.x(torch.as_tensor(X), torch.float64)
    design = F.pad(x, (0, 1), value=1.0)
    w = torch.ones(len(x)).double() if weights is None else torch.as_tensor(weights / weights.mean())
    precision = design.T @ (w[:, None] * design) / noise**2 + prior * torch.eye(4, dtype=torch.float64)
    return torch.linalg.inv(precision)


@pytest.mark.parametrize("structure", ["full", "kron", "last_layer", "diagonal"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_a_linear_model_has_its_exact_posterior(structure, weights):
    """One layer is the last layer, and its Kronecker product is exact for one output."""
    law = wf.Laplace(structure, PRIOR, NOISE)
    data = (X, Y) if weights is None else (X, Y, weights)
    posterior = wf.marginalise(training(lambda: nn.Linear(3, 1)), data, [wf.InitialCondition(2), wf.Iterations(law)])
    expected = posterior_of_a_line(posterior, NOISE, PRIOR, weights)
    if structure == "diagonal":
        expected = torch.diag(1 / torch.linalg.inv(expected).diagonal())
    for one, member in zip(posterior.laws(), posterior.mixture, strict=True):
        torch.testing.assert_close(covariance(one).double(), expected, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(one.variance.double(), expected.diagonal(), rtol=1e-4, atol=0)
        assert torch.equal(one.mean, member.trained.last)


def test_two_outputs_of_a_linear_model_are_independent():
    law = wf.Laplace("kron", PRIOR, NOISE)
    posterior = wf.marginalise(training(lambda: nn.Linear(3, 2)), (X, np.stack([Y, 2 * Y**2], 1)), [wf.Iterations(law)])
    one = posterior_of_a_line(posterior, NOISE, PRIOR)
    expected = torch.zeros(8, 8, dtype=torch.float64)
    for output in range(2):
        place = [3 * output, 3 * output + 1, 3 * output + 2, 6 + output]
        expected[np.ix_(place, place)] = one
    torch.testing.assert_close(covariance(posterior.laws()[0]).double(), expected, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------- dense curvature


def dense(member) -> torch.Tensor:
    """H as a sum over rows of J^T L J, by plain autograd."""
    total = torch.zeros(len(member.parameters), len(member.parameters), dtype=torch.float64)
    for x, y, weights in member.batches(1):
        slope = torch.autograd.functional.jacobian(lambda theta, x=x: member.outputs(theta, x)[0], member.parameters)
        outputs = member.outputs(member.parameters, x).detach()
        second = torch.autograd.functional.hessian(
            lambda f, y=y: y.shape[-1] * member.loss(f.unsqueeze(0), y, None), outputs[0]
        )
        total += slope.T @ second @ slope * (1.0 if weights is None else float(weights))
    return total


CASES = {
    "regression": lambda: caught(small(), (X, Y)),
    "two outputs": lambda: caught(small(2), (X, np.stack([Y, Y**2], 1))),
    "weighted": lambda: caught(small(), (X, Y, WEIGHTS)),
    "classes": lambda: caught(small(3), (X, CLASSES), wf.Classification()),
    "smoothed classes": lambda: caught(small(3), (X, CLASSES), wf.Classification(label_smoothing=0.1)),
}


def rebuilt(curvature, member) -> torch.Tensor:
    """H from its eigenvalues and rotations."""
    law = curvature.law(member, curvature.values.sqrt())
    return covariance(law)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_curvature_is_that_of_plain_autograd(make):
    member = make()
    expected = dense(member)
    close = {"rtol": 1e-6, "atol": 1e-8 * float(expected.abs().max())}
    torch.testing.assert_close(rebuilt(STRUCTURES["full"](member), member), expected, **close)
    torch.testing.assert_close(STRUCTURES["diagonal"](member).values, expected.diagonal(), **close)
    last = STRUCTURES["last_layer"](member)
    assert torch.equal(last.varies, torch.arange(len(expected)) >= 20)
    block = torch.zeros_like(expected)
    block[20:, 20:] = expected[20:, 20:]
    torch.testing.assert_close(rebuilt(last, member), block, **close)


def kronecker(member) -> torch.Tensor:
    """Kronecker's factors of a network of two linear layers, by a plain loop over rows."""
    w1, b1, w2, b2 = (t.detach() for t in member.network.layout.views(member.parameters).values())
    weights = torch.cat([torch.ones(len(x)) if w is None else w for x, _, w in member.batches(7)]).double()
    inputs, slopes = [torch.zeros(4, 4).double(), torch.zeros(6, 6).double()], [0.0, 0.0]
    for number, (x, y, _) in enumerate(member.batches(1)):
        hidden = torch.tanh(w1 @ x[0] + b1)
        outputs = (w2 @ hidden + b2).detach()
        second = torch.autograd.functional.hessian(
            lambda f, y=y: y.shape[-1] * member.loss(f.unsqueeze(0), y, None), outputs
        )
        back = w2 * (1 - hidden**2)  # d outputs / d first layer
        for k, a in enumerate((x[0], hidden)):
            a = F.pad(a, (0, 1), value=1.0)
            inputs[k] += weights[number] * torch.outer(a, a) / weights.sum()
        slopes[0] = slopes[0] + weights[number] * back.T @ second @ back
        slopes[1] = slopes[1] + weights[number] * second
    expected = torch.zeros(len(member.parameters), len(member.parameters), dtype=torch.float64)
    for start, w, a, g in ((0, w1, inputs[0], slopes[0]), (w1.numel() + len(b1), w2, inputs[1], slopes[1])):
        rows, columns = w.shape
        place = [
            start + i * columns + j if j < columns else start + w.numel() + i
            for i in range(rows)
            for j in range(columns + 1)
        ]
        expected[np.ix_(place, place)] = torch.kron(g.contiguous(), a)
    return expected


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_kronecker_factors_are_those_of_a_plain_loop(make):
    member = make()
    expected = kronecker(member)
    torch.testing.assert_close(
        rebuilt(STRUCTURES["kron"](member), member), expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max())
    )


IMAGES = DATA.normal(size=(12, 1, 5, 5))


def test_a_convolution_is_a_matrix_at_each_position():
    """Expanded Kronecker factors (Eschenhagen et al., 2023): the mean over positions, and the sum."""

    def model():
        return nn.Sequential(
            nn.Conv2d(1, 3, 2, stride=2, padding=1, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(27, 1)
        )

    member = caught(model, (IMAGES, IMAGES.mean((1, 2, 3))), standardise=False)
    found = STRUCTURES["kron"](member)
    tensors = {name: t.detach() for name, t in member.network.layout.views(member.parameters).items()}
    inputs, slopes, positions = torch.zeros(4, 4).double(), torch.zeros(3, 3).double(), 0
    for x, _, _ in member.batches(1):
        padded = F.pad(x[0, 0], (1, 1, 1, 1))
        patches = [padded[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].flatten() for i in range(3) for j in range(3)]
        for place, patch in enumerate(patches):
            inputs += torch.outer(patch, patch)
            s = tensors["0.weight"].flatten(1) @ patch
            slope = tensors["3.weight"].reshape(3, 9)[:, place] * (1 - torch.tanh(s) ** 2)
            slopes += 2 * torch.outer(slope, slope)  # the loss is (f - y)^2
            positions += 1
    expected = torch.kron(slopes, inputs / positions)
    torch.testing.assert_close(rebuilt(found, member)[:12, :12], expected, rtol=1e-6, atol=1e-10)


def test_what_is_no_matrix_keeps_its_diagonal_and_rows_may_come_one_by_one():
    def normalised():
        return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 1))

    member = caught(normalised, (X, Y))
    expected = dense(member)
    found = rebuilt(STRUCTURES["kron"](member), member)
    names, place = [], 0
    for name, shape in zip(member.network.layout.names, member.network.layout.shapes, strict=True):
        names += [name] * shape.numel()
        place += shape.numel()
    norm = [k for k, name in enumerate(names) if name.startswith("1.")]
    torch.testing.assert_close(found[np.ix_(norm, norm)], torch.diag(expected.diagonal()[norm]))
    member.network.stackable = False
    torch.testing.assert_close(STRUCTURES["diagonal"](member).values, expected.diagonal())


def test_predicted_noise_has_fishers_information():
    """Of N(m, exp(v)): exp(-v) about m and one half about v, whatever y is."""
    member = caught(small(2), (X, Y), wf.Regression(noise="predicted"))
    total = torch.zeros(len(member.parameters), len(member.parameters), dtype=torch.float64)
    for x, _, _ in member.batches(1):
        slope = torch.autograd.functional.jacobian(lambda theta, x=x: member.outputs(theta, x)[0], member.parameters)
        v = member.outputs(member.parameters, x)[0, 1].detach()
        total += slope.T @ torch.diag(torch.stack([torch.exp(-v), torch.full_like(v, 0.5)])) @ slope
    torch.testing.assert_close(rebuilt(STRUCTURES["full"](member), member), total, rtol=1e-6, atol=1e-8)


# ---------------------------------------------------------------------- the prior


def line_at_its_mode(noise, prior):
    """A linear model whose weights are the mode under the prior, as `finish` sees it, and its design and targets."""
    member = caught(lambda: nn.Linear(3, 1), (X, Y), epochs=1)
    x, y, _ = next(member.batches(100))
    design = F.pad(x, (0, 1), value=1.0)
    precision = design.T @ design / noise + prior * torch.eye(4).double()
    member.parameters.copy_(torch.linalg.solve(precision, design.T @ y / noise)[:, 0])
    return member, design, y[:, 0]


def test_the_marginal_likelihood_is_that_of_a_linear_model():
    noise, prior = torch.tensor(0.3).double(), torch.tensor(1.7).double()
    member, design, y = line_at_its_mode(noise, prior)
    found = Evidence.of(member, STRUCTURES["full"](member)).log(prior, noise)
    marginal = noise * torch.eye(len(y)).double() + design @ design.T / prior
    expected = torch.distributions.MultivariateNormal(torch.zeros_like(y), marginal).log_prob(y)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
@pytest.mark.parametrize("structure", ["full", "kron", "diagonal", "last_layer"])
def test_the_chosen_prior_and_noise_are_the_best_of_a_grid(make, structure):
    member = make()
    evidence = Evidence.of(member, STRUCTURES[structure](member))
    best = evidence.log(*(torch.tensor(part).double() for part in evidence.best(None, None)))
    for precision in np.logspace(-4, 4, 33):
        for noise in np.logspace(-4, 2, 25) if evidence.has_noise else [1.0]:
            assert evidence.log(torch.tensor(precision), torch.tensor(noise)) <= best + 1e-6


def test_what_is_given_stays():
    member = CASES["regression"]()
    evidence = Evidence.of(member, STRUCTURES["diagonal"](member))
    assert evidence.best(3.0, None)[0] == pytest.approx(3.0)
    assert evidence.best(None, 0.2)[1] == pytest.approx(0.2)
    assert evidence.best(3.0, 0.2) == pytest.approx((3.0, 0.2))


def test_rows_left_out_are_predicted_as_by_models_without_them():
    """A linear model is refitted without each row in turn, wherever its weights stood."""
    member = caught(lambda: nn.Linear(3, 1), (X, Y), epochs=2)
    x, y, _ = next(member.batches(100))
    design, y = F.pad(x, (0, 1), value=1.0), y[:, 0]
    settings = [(0.3, 0.2), (2.0, 0.5), (50.0, 0.1)]
    expected = []
    for prior, noise in settings:
        total = 0.0
        for k in range(len(y)):
            others = torch.arange(len(y)) != k
            precision = design[others].T @ design[others] / noise + prior * torch.eye(4).double()
            mean = torch.linalg.solve(precision, design[others].T @ y[others] / noise)
            variance = noise + design[k] @ torch.linalg.inv(precision) @ design[k]
            total += float(torch.distributions.Normal(design[k] @ mean, variance.sqrt()).log_prob(y[k]))
        expected.append(total)
    curvature = STRUCTURES["full"](member)
    found = left_out_scores(member, curvature, Evidence.of(member, curvature), settings)
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=1e-6, atol=1e-5)


@pytest.mark.slow
def test_classes_left_out_are_predicted_about_as_by_models_without_them():
    """A logistic model at its mode is refitted by Newton's method without each row; leaving it out is one step."""
    member = caught(lambda: nn.Linear(3, 3), (X, CLASSES), wf.Classification(), epochs=300)
    x, y, _ = next(member.batches(100))
    prior, samples = 5.0, torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)).double()

    def objective(theta, rows):
        loss = len(rows) * member.loss(member.outputs(theta, x[rows]), y[rows], None)
        return loss + prior * theta.square().sum() / 2

    def mode(theta, rows):
        for _ in range(10):
            slope = torch.func.grad(objective)(theta, rows)
            hessian = torch.func.jacrev(torch.func.grad(objective))(theta, rows)
            theta = theta - torch.linalg.solve(hessian, slope)
        return theta, hessian

    member.parameters.copy_(mode(torch.zeros_like(member.parameters), torch.arange(len(y)))[0])
    total = 0.0
    for k in range(len(y)):
        theta, hessian = mode(member.parameters, torch.tensor([n for n in range(len(y)) if n != k]))
        jacobian = torch.func.jacrev(lambda t, k=k: member.outputs(t, x[k : k + 1])[0])(theta)
        spread = jacobian @ torch.linalg.inv(hessian) @ jacobian.T
        values, vectors = torch.linalg.eigh(spread)
        logits = member.outputs(theta, x[k : k + 1])[0] + samples * values.clamp_min(0).sqrt() @ vectors.T
        total += math.log(float(torch.softmax(logits, -1)[:, int(y[k])].mean()))
    curvature = STRUCTURES["full"](member)
    found = left_out_scores(member, curvature, Evidence.of(member, curvature), [(prior, 1.0)])
    assert float(found[0]) == pytest.approx(total, rel=0.02)


def test_cross_validation_is_by_all_weights_or_by_the_last_layers():
    """The best of a grid by the scores of rows left out, which "kron" and "diagonal" take from the last layer."""
    member = CASES["regression"]()
    grid = [10 ** (k / 4) for k in range(-16, 17)]
    for structure in STRUCTURES:
        judged = STRUCTURES["full" if structure == "full" else "last_layer"](member)
        evidence = Evidence.of(member, judged)
        residual = np.mean(
            [float(member.loss(member.outputs(member.parameters, x), y, None)) for x, y, _ in member.batches(1)]
        )
        settings = [(precision, residual) for precision in grid]
        precision, noise = settings[int(left_out_scores(member, judged, evidence, settings).argmax())]
        assert grid[0] < precision < grid[-1]
        found = wf.Laplace(structure, "cv").finish(member)
        expected = wf.Laplace(structure, precision, noise**0.5).finish(member)
        torch.testing.assert_close(found.variance, expected.variance)


def test_the_noise_is_that_of_the_residuals_unless_it_is_chosen_too():
    member = CASES["regression"]()
    x, y, _ = next(member.batches(100))
    residual = float((member.outputs(member.parameters, x) - y).square().mean().detach().sqrt())
    evidence = Evidence.of(member, STRUCTURES["full"](member))
    found = [wf.Laplace("full", 2.0, noise).finish(member).variance for noise in (None, "marglik")]
    for variance, noise in zip(found, (residual, evidence.best(2.0, None)[1] ** 0.5), strict=True):
        torch.testing.assert_close(variance, wf.Laplace("full", 2.0, noise).finish(member).variance)
    assert not torch.allclose(*found)


@pytest.mark.parametrize("prior", ["marglik", "cv"])
def test_a_prior_is_chosen_for_each_member(prior):
    over = [wf.InitialCondition(2), wf.Iterations(wf.Laplace("diagonal", prior))]
    one, other = wf.marginalise(training(small()), (X, Y), over).laws()
    assert one.variance.isfinite().all()
    assert not torch.allclose(one.variance, other.variance)


# ---------------------------------------------------------------------- prediction


def test_linearised_prediction_is_the_images_of_the_covariance():
    over = [wf.InitialCondition(2), wf.Iterations(wf.Laplace("kron", PRIOR, NOISE))]
    posterior = wf.marginalise(training(small(2)), (X, np.stack([Y, Y**2], 1)), over)
    prediction = posterior.predict(X, method="linearised")
    assert prediction.method == "linearised"
    assert "2 members, linearised" in repr(prediction)
    x = posterior.scaler.x(torch.as_tensor(X), torch.float32)
    network = posterior.networks[""]
    means, variances = [], []
    for law in posterior.laws():

        def outputs(theta, x):
            return network.call(network.layout.views(theta), x, (), False)

        means.append(outputs(law.mean, x))
        slopes = torch.stack([torch.func.jacrev(lambda t, row=row: outputs(t, row[None])[0])(law.mean) for row in x])
        variances.append((slopes @ covariance(law) @ slopes.mT).diagonal(dim1=-2, dim2=-1))
    mean, variance = torch.stack(means).double(), torch.stack(variances).double()
    scale, shift = posterior.scaler.y_std, posterior.scaler.y_mean
    torch.testing.assert_close(torch.as_tensor(prediction.mean), mean.mean(0) * scale + shift, rtol=1e-4, atol=1e-4)
    total = (variance.mean(0) + mean.var(0, correction=0)) * scale**2
    torch.testing.assert_close(torch.as_tensor(prediction.variance), total, rtol=1e-3, atol=1e-4)
    sources = prediction.sources()
    assert sources.names == ("theta0", "t")


def test_linearised_and_sampled_agree_where_the_network_is_linear_in_what_varies():
    """The last layer alone: means and deviations of 20,000 samples, within five standard errors."""
    law, count = wf.Iterations(wf.Laplace("last_layer", PRIOR, NOISE)), 20_000
    posterior = wf.marginalise(training(small()), (X, Y), [law])
    exact, sampled = posterior.predict(X, method="linearised"), posterior.predict(X, samples=count)
    error = exact.std / count**0.5
    assert (abs(exact.mean - sampled.mean) <= 5 * error + 1e-5).all()
    assert (abs(exact.std - sampled.std) <= 5 * error / 2**0.5 + 1e-5).all()


def test_noise_is_fitted_for_the_linear_expansion():
    """It makes held-out rows most likely under Gaussians with the linearised moments, not under samples."""
    posterior = wf.marginalise(
        training(small(), likelihood=wf.Regression(noise="fit")),
        (X, Y),
        [wf.Iterations(wf.Laplace("kron", prior_precision=1e-3))],
    )
    random = np.random.default_rng(2)
    x = random.normal(size=(300, 3))
    y = x @ [1.0, -2.0, 0.5] + 4.0 + 2 * random.normal(size=300)
    fitted = posterior.fit_noise((x, y), samples=2000)
    moments = fitted.predict(x, method="linearised").mixture
    mean, spread = (each[0, 0, :, 0].double() for each in (moments.answers, moments.spread))
    truth = posterior.scaler.y(torch.as_tensor(y)[:, None], torch.float64)[:, 0]
    noises = torch.logspace(-3, 1, 4000, dtype=torch.float64)
    variance = spread + noises[:, None]
    best = noises[(-0.5 * (variance.log() + (truth - mean).square() / variance)).mean(1).argmax()]
    assert float(fitted.fitted_noise) == pytest.approx(float(best), rel=0.02)


def test_linearised_classes_are_near_those_of_sampled_logits():
    posterior = wf.marginalise(
        training(small(3), likelihood=wf.Classification()), (X, CLASSES), [wf.Iterations(wf.Laplace("last_layer", 1.0))]
    )
    linearised, sampled = posterior.predict(X, method="linearised"), posterior.predict(X, samples=20_000)
    difference = torch.as_tensor(linearised.probabilities) - torch.as_tensor(sampled.probabilities)
    assert float(difference.abs().max()) < 0.03  # that of softmax's moments, predictive/one_shot/heads.py


@pytest.mark.parametrize("law", [wf.SWAG(rank=3), wf.Snapshots(keep=4), wf.TRADI()], ids=["swag", "snapshots", "tradi"])
def test_other_laws_are_linearised_too(law):
    posterior = wf.marginalise(training(small()), (X, Y), [wf.Iterations(law)])
    (one,) = posterior.laws()
    network, x = posterior.networks[""], posterior.scaler.x(torch.as_tensor(X[:1]), torch.float32)
    slope = torch.func.jacrev(lambda t: network.call(network.layout.views(t), x, (), False)[0])(one.mean)
    samples = one.sample(40_000, torch.Generator().manual_seed(0))
    moved = ((samples - one.mean) @ slope[0]).double() * float(posterior.scaler.y_std)
    found = float(posterior.predict(X[:1], method="linearised").variance[0])
    error = float((moved.pow(4).mean() - moved.square().mean() ** 2).sqrt()) / 200
    assert abs(found - float(moved.square().mean())) < 5 * error


def test_it_composes_with_theta0_and_dropout_and_is_stored(tmp_path):
    over = [wf.InitialCondition(2), wf.Iterations(wf.Laplace("kron")), wf.Dropout()]
    model = wf.MLP([6], dropout=0.1)
    posterior = wf.marginalise(training(model), (X, Y), over)
    prediction = posterior.predict(X, samples=20)
    assert prediction.sources().names == ("theta0", "t", "F", "t x F")
    assert all(isinstance(law, Rotated) for law in posterior.laws())
    posterior.save(tmp_path)
    again = wf.load(tmp_path, data=(X, Y))
    assert torch.equal(again.predict(X, samples=20).answers, prediction.answers)
    assert again.design == posterior.design
    grown = again.extend(theta0=1)
    assert len(grown) == 3
    assert isinstance(grown.laws()[2], Rotated)
    with pytest.raises(ValueError, match="dropout is marginalised, too"):
        posterior.predict(X, method="linearised")
    assert posterior.marginalising("theta0", "t").predict(X, method="linearised").std.min() > 0


def test_checkpoints_hold_it(tmp_path, monkeypatch):
    over = [wf.InitialCondition(2), wf.Iterations(wf.Laplace("kron", "cv"))]
    expected = wf.marginalise(training(small()), (X, Y), over, checkpoints=tmp_path)
    monkeypatch.setattr(wf.Laplace, "finish", None)  # nothing is to be finished again
    again = wf.marginalise(training(small()), (X, Y), over, checkpoints=tmp_path)
    for one, other in zip(again.laws(), expected.laws(), strict=True):
        assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


def test_statistics_of_batch_norm_are_part_of_the_mean():
    def normalised():
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))

    for structure in STRUCTURES:
        posterior = wf.marginalise(training(normalised), (X, Y), [wf.Iterations(wf.Laplace(structure, 10.0))])
        (law,) = posterior.laws()
        layout = posterior.networks[""].layout
        assert len(law.mean) == layout.varying_size > layout.trained_size
        assert float(law.variance[layout.trained_size :].max()) == 0.0
        assert posterior.predict(X, samples=3).std.min() > 0
        assert posterior.predict(X, method="linearised").std.min() > 0


def test_one_shot_follows_it_or_says_what_does():
    def trained(structure):
        return wf.marginalise(training(small()), (X, Y), [wf.Iterations(wf.Laplace(structure, 50.0, 0.3))])

    for structure in ("diagonal", "full"):
        posterior = trained(structure)
        assert isinstance(posterior.laws()[0], Gaussian)
        one_shot, sampled = posterior.one_shot(X), posterior.predict(X, samples=4000)
        np.testing.assert_allclose(one_shot.std, sampled.std, rtol=0.25)
    posterior = trained("kron")
    with pytest.raises(wf.one_shot.NoRuleError, match='structure="kron" or "last_layer": use predict'):
        posterior.one_shot(X)
    assert posterior.one_shot(X, covariance="diagonal").std.min() > 0
    assert posterior.predict(X, method="auto").method == "monte_carlo"


# ---------------------------------------------------------------------- refusals

REFUSED = [
    lambda: wf.Laplace("kfac"),
    lambda: wf.Laplace(prior_precision="best"),
    lambda: wf.Laplace(prior_precision=0.0),
    lambda: wf.Laplace(prior_precision=True),
    lambda: wf.Laplace(noise=-1.0),
]


@pytest.mark.parametrize("bad", REFUSED)
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        bad()


def test_what_cannot_be_approximated_is_named(monkeypatch):
    from wherefrom.laws import gauss_newton

    setup = training(wf.MLP([4]), likelihood=wf.Quantiles([0.1, 0.5, 0.9]))
    with pytest.raises(ValueError, match="Variational needs an algorithm that learns"):
        wf.marginalise(training(small()), (X, Y), [wf.Iterations(wf.Variational())])
    with pytest.raises(ValueError, match="Laplace needs a loss that is a log-likelihood"):
        wf.marginalise(setup, (X, Y), [wf.Iterations(wf.Laplace())])
    monkeypatch.setattr(gauss_newton, "_MOST_WHOLE", 10)
    with pytest.raises(
        ValueError, match='26 weights would have 676 numbers; 10 weights are the most: use structure="kron"'
    ):
        wf.marginalise(training(small()), (X, Y), [wf.Iterations(wf.Laplace("full"))])


# ---------------------------------------------------------------------- laplace-torch


@pytest.mark.parametrize("structure", ["diag", "kron", "full"])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_it_is_laplace_torchs_on_the_same_weights(structure, kind):
    """Runs where laplace-torch is installed; without biases, which it takes apart from their weights for "kron"."""
    laplace = pytest.importorskip("laplace")
    from laplace.curvature import CurvlinopsGGN

    outputs = 1 if kind == "regression" else 3
    bias = structure != "kron"

    def model():
        return nn.Sequential(nn.Linear(3, 5, bias=bias), nn.Tanh(), nn.Linear(5, outputs, bias=bias))

    likelihood = wf.Regression() if kind == "regression" else wf.Classification()
    member = caught(model, (X, Y if kind == "regression" else CLASSES), likelihood)
    x, y, _ = next(member.batches(100))
    network = model().double()
    network.load_state_dict(member.network.layout.views(member.parameters))
    targets = y if kind == "regression" else y[:, 0].long()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, targets), batch_size=100)
    theirs = laplace.Laplace(
        network,
        kind,
        "all",
        structure,
        prior_precision=PRIOR,
        sigma_noise=NOISE if outputs == 1 else 1.0,
        backend=CurvlinopsGGN,
    )
    theirs.fit(loader)
    name = {"diag": "diagonal"}.get(structure, structure)
    curvature = STRUCTURES[name](member)
    evidence = Evidence.of(member, curvature)
    law = curvature.law(member, evidence.scale(PRIOR, NOISE**2 if outputs == 1 else 1.0))
    precision = theirs.posterior_precision
    precision = (
        torch.diag(precision) if structure == "diag" else precision if structure == "full" else precision.to_matrix()
    )
    ours = torch.linalg.inv(covariance(law))
    single = 1e-6 * float(ours.abs().max())  # as precise as it keeps all of the curvature
    torch.testing.assert_close(ours, precision.double(), rtol=1e-5, atol=single)
    noise = torch.tensor(NOISE**2 if outputs == 1 else 1.0).double()
    expected = theirs.log_marginal_likelihood().double()
    torch.testing.assert_close(
        evidence.log(torch.tensor(PRIOR).double(), noise), expected.reshape(()), rtol=1e-5, atol=0
    )
