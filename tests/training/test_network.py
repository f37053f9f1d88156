"""Modules as functions: where they drop units, what is refused, and equality with the module itself."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.training.network import Network

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class Sites(nn.Module):
    """Dropout in every form: a layer, a function, and whole channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 2)
        self.channels = nn.Conv1d(1, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.dropout2d(self.channels(x.unsqueeze(1)).unsqueeze(-1), 0.3, self.training).mean((1, 3))
        h = F.dropout(self.first(h), p=0.2, training=self.training)
        return self.second(F.dropout(h, 0.1, self.training))


def test_sites_are_found_in_order():
    sites = Network(Sites(), X).sites
    assert [(s.rate, s.shape) for s in sites] == [(0.3, (3, 1, 1)), (0.2, (8,)), (0.1, (8,))]


def test_call_equals_the_module():
    module = Sites().eval()
    network = Network(module, X)
    out = network.call(network.layout.views(network.theta(module)), X, (), False)
    torch.testing.assert_close(out, module(X))


def test_many_members_equal_each():
    modules = [Sites() for _ in range(3)]
    network = Network(modules[0], X)
    theta = torch.stack([network.theta(m) for m in modules])
    out = network.call_each(network.layout.views(theta), X, ())
    for k, module in enumerate(modules):
        torch.testing.assert_close(out[k], module.eval()(X))


def test_masks_multiply():
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    network = Network(module, X)
    mask = (torch.arange(8.0) % 2) * 2
    out = network.call(network.layout.views(network.theta(module)), X, [mask], False)
    torch.testing.assert_close(out, module[2](module[0](X) * mask))


def test_tied_weights_stay_tied(problem):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))

    module = Tied()
    network = Network(module, X[:, :4])
    assert network.layout.names == ("a.weight", "a.bias", "b.bias", "head.weight", "head.bias")
    theta = torch.stack([network.theta(module)] * 2)
    out = network.call_each(network.layout.views(theta), X[:, :4], ())
    torch.testing.assert_close(out[1], module(X[:, :4]).detach())
    posterior = wf.marginalise(training(Tied), problem, wf.recipes.deep_ensemble(2))
    assert posterior.predict(problem[0]).rmse(problem[1]) < problem[1].std()


def test_a_flat_output_is_one_column(problem):
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).squeeze(-1)

    posterior = wf.marginalise(training(Flat), problem, wf.recipes.deep_ensemble(2))
    assert posterior.predict(problem[0]).mean.shape == (90,)


class OwnNoise(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x))


class StochasticDepth(nn.Linear):
    """As torchvision's and timm's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return out * out.new_empty(len(x), 1).bernoulli_(0.9) if self.training else out


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.LSTM(1, 2, num_layers=2, dropout=0.1, batch_first=True), nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.cells(x.unsqueeze(-1))[0][:, -1])


class HiddenNoise(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + x.new_empty(x.shape).normal_())


class OnlyInTraining(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(F.dropout(x, 0.1) if self.training else x)


class Scalar(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).sum()


class RemembersTooMuch(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "kept"):
            self.kept = self.weight * 2  # computed once from the first weights, and wrong for all others
        return F.linear(x, self.kept, self.bias)


class Attention(nn.Module):
    def __init__(self, rate: float, weights: bool = False) -> None:
        super().__init__()
        self.attend, self.head = nn.MultiheadAttention(4, 2, dropout=rate, batch_first=True), nn.Linear(4, 1)
        self.weights = weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.unsqueeze(1).expand(-1, 3, -1)
        return self.head(self.attend(x, x, x, need_weights=self.weights)[0].mean(1))


class WritesToItsInput(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.mul_(2))


def hooked() -> nn.Module:
    network = nn.Linear(4, 1)
    network.weight.register_hook(lambda slope: 2 * slope)
    return network


REFUSED = [
    (lambda: WritesToItsInput(4, 1), "changes its input in place"),
    (lambda: nn.LazyLinear(1), "lazy layers"),
    (hooked, "gradient hooks"),
    (
        lambda: Attention(0.5, weights=True),
        r"inside multi_head_attention_forward \(dropout_p=0.5\).*need_weights=False",
    ),
    (lambda: RemembersTooMuch(4, 1), "neither nn.Parameter nor registered buffers"),
    (lambda: OwnNoise(4, 1), "its own random numbers, by randn_like. Only"),
    (lambda: StochasticDepth(4, 1), "by bernoulli_, one for each row, as stochastic depth does: set its rate to zero"),
    (lambda: Recurrent(), r"lstm layers drop units between them, .*nn.LSTM\(..., dropout=0.0\)"),
    (lambda: HiddenNoise(4, 1), "draws its own random numbers"),
    (lambda: OnlyInTraining(4, 1), "training mode only"),
    (lambda: Scalar(4, 1), r"shape \(rows, outputs\)"),
    (lambda: nn.Sequential(nn.Linear(4, 1), nn.AlphaDropout(0.1)), "nn.Dropout, nn.Dropout2d and their kin"),
    (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 1)), "momentum=None"),
    (lambda: nn.Flatten(), "no parameters that require a gradient"),
    (lambda: nn.Linear(5, 1), r"cannot be run on rows of shape \(4,\)"),
    (lambda: nn.Linear(4, 3), "has 3 outputs, but .* needs 1"),
    (lambda: nn.Sequential(nn.Linear(4, 1), nn.Dropout(1.0)), "rate must lie"),
]


def test_attention_trains(problem):
    posterior = wf.marginalise(training(lambda: Attention(0.0)), problem, wf.recipes.deep_ensemble(2))
    assert posterior.predict(problem[0]).rmse(problem[1]) < 1.5 * problem[1].std()


def test_frozen_parameters_stay_as_they_are(problem):
    def half_frozen() -> nn.Module:
        network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        network[0].weight.requires_grad_(False)
        return network

    over = [wf.InitialCondition(2)]
    decaying = wf.Algorithm("adamw", lr=0.02, batch_size=25, weight_decay=0.5)
    posterior = wf.marginalise(training(half_frozen, algorithm=decaying), problem, over)
    untrained = training(half_frozen, algorithm=wf.Algorithm("sgd", lr=0.0, batch_size=25))
    start = wf.marginalise(untrained, problem, over)
    for trained, fresh in zip(posterior.mixture, start.mixture, strict=True):
        moved = posterior.network.layout.views(trained.trained.last - fresh.trained.last)
        assert float(moved["0.weight"].abs().max()) == 0.0
        assert float(moved["0.bias"].abs().max()) > 0.0


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_cannot_be_right_is_refused(model, message, problem):
    with pytest.raises(ValueError, match=message):
        wf.marginalise(training(model), problem, [])


def test_a_factory_that_makes_one_network_only_is_refused(problem):
    network = nn.Linear(4, 1)
    with pytest.raises(ValueError, match="the same network twice"):
        wf.marginalise(training(lambda: network), problem, wf.recipes.deep_ensemble(2))


def test_whole_numbers_for_a_linear_layer_are_explained(problem):
    with pytest.raises(ValueError, match="for measurements use floats"):
        wf.marginalise(training(lambda: nn.Linear(4, 1)), (problem[0].astype(int), problem[1]), [])


def test_a_device_that_is_not_there(problem):
    with pytest.raises(ValueError, match="'cuda:99' is not there"):
        wf.marginalise(training(), problem, [], device="cuda:99")


def test_a_network_instead_of_a_factory_is_refused():
    with pytest.raises(TypeError, match="function that returns a new network"):
        wf.Training(nn.Linear(1, 1), wf.Algorithm("adam", lr=0.1, batch_size=1), epochs=1)


class Remembering(nn.Module):
    """A network that leaves what it computed in itself, for others to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.seen = nn.Linear(4, 3), nn.Linear(3, 1), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = torch.tanh(self.first(x))
        return self.last(self.seen)


def test_a_network_may_leave_what_it_computed_in_itself(problem):
    posterior = wf.marginalise(training(Remembering), problem, [wf.InitialCondition(2)])
    assert posterior.network.stackable
    assert bool(posterior.predict(problem[0]).mean.isfinite().all())
