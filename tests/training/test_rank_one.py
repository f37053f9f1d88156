"""Ensembles that share their weights: each sub-network against one with its own weights, written out."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oracle
import wherefrom as wf
from conftest import mlp, training
from wherefrom.training.cohort import Examples

DATA = np.random.default_rng(3)
IMAGES = DATA.normal(size=(30, 2, 5, 5))


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))


def written_out(tensors, k: int, x: torch.Tensor) -> torch.Tensor:
    """Sub-network k of two layers, with weights of its own."""
    layers = []
    for name in ("inner.0", "inner.2"):
        weight, r, s, b = (tensors[f"{name}.{part}"] for part in ("weight", "inputs", "outputs", "bias"))
        layers.append((weight * torch.outer(s[k], r[k]), b[k]))
    hidden = torch.tanh(F.linear(x, *layers[0]))
    return F.linear(hidden, *layers[1])


@pytest.mark.parametrize("spread", [0.5, None], ids=["normal", "signs"])
@pytest.mark.parametrize("networks", [2, 4, 8])
def test_a_sample_is_one_of_the_networks_written_out(networks, spread, problem):
    model = wf.rank_one(two_layers, networks, spread)
    posterior = wf.marginalise(training(model), problem, [wf.InitialCondition(2), wf.Dropout()])
    answers = posterior.predict(problem[0], samples=100).answers  # (members, samples, rows, 1)
    x = posterior.scaler.x(torch.as_tensor(problem[0]), torch.float32)
    for member, own in zip(posterior.mixture, answers, strict=True):
        tensors = posterior.networks[""].layout.views(member.trained.last.cpu())
        each = torch.stack([written_out(tensors, k, x) for k in range(networks)])  # (networks, rows, 1)
        distance = (own.reshape(100, 1, -1) - each.squeeze(-1)).abs().amax(2)  # (samples, networks)
        assert float(distance.min(1).values.max()) < 1e-4
        counts = torch.bincount(distance.argmin(1), minlength=networks)
        expected = 100 / networks
        assert ((counts - expected).abs() < 5 * (expected * (1 - 1 / networks)) ** 0.5).all()


@pytest.mark.slow
def test_training_is_that_of_a_plain_loop():
    """Rows of a batch have sub-networks of their own, and dropout of the model goes on beside them."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 4, generator=generator).double()
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=25)
    model = wf.rank_one(mlp(rate=0.2), 4)
    cohort = oracle.cohort_of(model, Examples(x, x[:, :1] - x[:, 1:2].abs()), algorithm, 3, 8)
    assert [site.shape for site in cohort.network.sites] == [(2,), (12,)]
    for member, result in zip(cohort.members, oracle.train(cohort, "torch"), strict=True):
        expected = oracle.trained_alone(model, cohort, member)
        assert (expected - member.theta0).abs().max() > 0.05
        torch.testing.assert_close(result.last, expected, rtol=0, atol=1e-10)


def test_a_convolution_shares_its_weights_too():
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), nn.Tanh(), nn.Flatten(), nn.Linear(36, 1)
        )

    torch.manual_seed(0)
    network, x = wf.rank_one(model, 2)().double(), torch.from_numpy(IMAGES)
    convolution, last = network.inner[0], network.inner[3]
    each = []
    for k in range(2):
        factors = convolution.outputs[k].reshape(4, 1, 1, 1) * convolution.inputs[k].repeat_interleave(2).reshape(
            4, 1, 1, 1
        )
        hidden = F.conv2d(x, convolution.weight * factors, convolution.bias[k], stride=2, padding=1, groups=2)
        weight = last.weight * torch.outer(last.outputs[k], last.inputs[k])
        each.append(F.linear(torch.tanh(hidden).flatten(1), weight, last.bias[k]))
    for coin, expected in ((2.0, each[0]), (0.0, each[1])):
        with oracle.given_masks([torch.full((30, 1), coin).double()]):
            torch.testing.assert_close(network(x), expected)


def test_without_a_choice_the_mean_of_the_factors_answers(problem):
    torch.manual_seed(0)
    network = wf.rank_one(two_layers, 4)().eval()
    x = torch.randn(5, 4)
    tensors = {name: t.detach() for name, t in network.named_parameters()}
    mean = {name: t.mean(0, keepdim=True) if not name.endswith("weight") else t for name, t in tensors.items()}
    torch.testing.assert_close(network(x), written_out(mean, 0, x))


def test_it_has_few_weights_sizes_from_the_data_and_a_file(problem, tmp_path):
    model = wf.rank_one(wf.MLP([20, 20]), networks=4)
    assert model.size(4, 1) == 4 * 20 + 20 * 20 + 20 + 4 * (4 + 20 + 20 + 20 + 20 + 1) + 4 * 41
    posterior = wf.marginalise(training(model), problem, [wf.InitialCondition(2), wf.Dropout()])
    assert posterior.networks[""].layout.size == model.size(4, 1)
    posterior.save(tmp_path)
    again = wf.load(tmp_path)
    assert torch.equal(again.predict(problem[0]).answers, posterior.predict(problem[0]).answers)
    assert posterior.predict(problem[0]).sources().names == ("theta0", "F")


def test_sequences_and_layers_that_stand_twice():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.again = self.layer

        def forward(self, x):
            return self.again(torch.tanh(self.layer(x))).mean(1)

    torch.manual_seed(0)
    network, x = wf.rank_one(Twice, 2)(), torch.randn(6, 4, 3)
    assert network.inner.layer is network.inner.again
    with oracle.given_masks([torch.full((6, 1), 2.0)]):
        found = network(x)
    layer = network.inner.layer
    weight, bias = layer.weight * torch.outer(layer.outputs[0], layer.inputs[0]), layer.bias[0]
    torch.testing.assert_close(found, F.linear(torch.tanh(F.linear(x, weight, bias)), weight, bias).mean(1))


def test_what_cannot_share_is_refused():
    for networks in (0, 1, 3, 6, True):
        with pytest.raises(ValueError, match="power of two"):
            wf.rank_one(two_layers, networks)
    with pytest.raises(ValueError, match="spread must be"):
        wf.rank_one(two_layers, spread=-1.0)
    with pytest.raises(ValueError, match="fits itself"):
        wf.rank_one(wf.Trees())
    with pytest.raises(ValueError, match=r"neither nn\.Linear nor nn\.Conv2d"):
        wf.rank_one(nn.Tanh)()
    with pytest.raises(ValueError, match="pads with zeros"):
        wf.rank_one(lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"))()

    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x):
            return self.layer(x.reshape(-1, 2)).reshape(len(x), -1)

    with pytest.raises(ValueError, match="rows of the batch as the first dimension"):
        wf.rank_one(Folded)()(torch.randn(5, 4))
