"""Linearised prediction against dense linear algebra, J Cov J^T, also where running statistics move with weights."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import jacrev

import wherefrom as wf
from conftest import training

GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(50, 3))
Y = np.column_stack([X @ [1.0, -2.0, 0.5], np.abs(X[:, 0])]) + 0.3 * GENERATOR.normal(size=(50, 2))
CLASSES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
LAWS = {
    "swag": wf.SWAG(rank=4),
    "swag in halves": wf.SWAG(rank=4, deviations="bfloat16"),
    "swag's diagonal": wf.SWAG(diagonal_only=True),
    "snapshots": wf.Snapshots(keep=4),
    "tradi": wf.TRADI(),
    "laplace": wf.Laplace("diagonal", 5.0, 0.4),
    "laplace, kron": wf.Laplace("kron", 5.0, 0.4),
    "laplace, full": wf.Laplace("full", 5.0, 0.4),
}


def plain():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def normalised():
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))


@pytest.mark.parametrize("name", LAWS)
def test_every_law_with_several_members_and_outputs(name):
    over = [wf.InitialCondition(2), wf.Iterations(LAWS[name])]
    posterior = wf.marginalise(training(plain, epochs=16), (X, Y), over, compute=wf.Compute(dtype=torch.float64))
    prediction = posterior.predict(X[:7], method="linearised")
    network, x = posterior.network, posterior.scaler.x(torch.as_tensor(X[:7]), torch.float64)

    def outputs(theta):
        return network.call(network.layout.views(theta), x, (), False)

    means, variances = [], []
    for law in posterior.laws():
        covariance = law.image(torch.eye(len(law.mean), dtype=law.mean.dtype))
        torch.testing.assert_close(covariance.diagonal(), law.variance, rtol=1e-2, atol=1e-12)
        slopes = jacrev(outputs)(law.mean)
        means.append(outputs(law.mean))
        variances.append((slopes @ covariance @ slopes.mT).diagonal(dim1=-2, dim2=-1))
    mean, variance = torch.stack(means), torch.stack(variances)
    scale = posterior.scaler.y_std
    expected = (variance.mean(0) + mean.var(0, correction=0)) * scale**2
    torch.testing.assert_close(torch.as_tensor(prediction.variance), expected, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(torch.as_tensor(prediction.mean), mean.mean(0) * scale + posterior.scaler.y_mean)


def test_statistics_of_batch_norm_move_with_swags_deviations():
    """J is that of the network whose statistics are functions of its weights, spelled out on the training rows."""
    double = wf.Compute(dtype=torch.float64)
    posterior = wf.marginalise(
        training(normalised, epochs=16), (X, Y), [wf.Iterations(wf.SWAG(rank=4))], compute=double
    )
    (law,) = posterior.laws()
    network = posterior.network
    train, x = (posterior.scaler.x(torch.as_tensor(rows), torch.float64) for rows in (X, X[:7]))

    def outputs(theta, seen_by):
        """The network with the statistics that its first layer has with the weights `seen_by`."""
        tensors, other = network.layout.views(theta), network.layout.views(seen_by)
        hidden = train @ other["0.weight"].T + other["0.bias"]
        h = x @ tensors["0.weight"].T + tensors["0.bias"] - hidden.mean(0)
        h = h / (hidden.var(0) + 1e-5).sqrt() * tensors["1.weight"] + tensors["1.bias"]
        return torch.tanh(h) @ tensors["3.weight"].T + tensors["3.bias"]

    shared = jacrev(lambda theta: outputs(theta, theta))(law.mean) @ law.factor.T
    alone = jacrev(lambda theta: outputs(theta, law.mean))(law.mean).square() @ law.diagonal
    expected = (shared.square().sum(-1) + alone) * posterior.scaler.y_std**2
    found = torch.as_tensor(posterior.predict(X[:7], method="linearised").variance)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=1e-6)


def test_classes_of_a_dense_covariance():
    """Probabilities are those of samples of the linear model's logits."""
    setup = training(lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)), likelihood=wf.Classification())
    posterior = wf.marginalise(setup, (X, CLASSES), [wf.Iterations(wf.SWAG(rank=4))])
    (law,) = posterior.laws()
    network, x = posterior.network, posterior.scaler.x(torch.as_tensor(X[:7]), torch.float32)
    slopes = jacrev(lambda theta: network.call(network.layout.views(theta), x, (), False))(law.mean)
    moved = law.sample(20_000, torch.Generator().manual_seed(0)) - law.mean
    logits = network.call(network.layout.views(law.mean), x, (), False) + torch.einsum("nkp,sp->snk", slopes, moved)
    probabilities = torch.softmax(logits, -1).double()
    found = torch.as_tensor(posterior.predict(X[:7], method="linearised").probabilities)
    error = probabilities.std(0) / 20_000**0.5
    assert ((found - probabilities.mean(0)).abs() <= 5 * error + 0.005).all()


def test_what_it_does_not_know_is_refused():
    over = [wf.Iterations(wf.SWAG(rank=4)), wf.Dropout()]
    posterior = wf.marginalise(training(wf.MLP([5], dropout=0.1), epochs=8), (X, Y), over)
    with pytest.raises(ValueError, match="dropout is marginalised, too"):
        posterior.predict(X, method="linearised")


def test_auto_takes_the_first_way_that_is_good_enough():
    """A last layer alone is linear: a Rotated law, which one-shot does not follow, is linearised."""
    over = [wf.Iterations(wf.Laplace("last_layer", 5.0, 0.4))]
    posterior = wf.marginalise(training(plain, epochs=16), (X, Y), over)
    assert posterior.predict(X, method="auto").method == "linearised"
    check = posterior.check_one_shot(X, method="linearised")
    assert check.is_within(0.05)
    assert str(check).startswith("linearised against 1000 samples a member")
    crooked = wf.marginalise(training(plain, epochs=16), (X, Y), [wf.Iterations(wf.Laplace("kron", 0.01, 3.0))])
    assert crooked.predict(X, method="auto").method == "monte_carlo"
