"""Stochastic depth: the layers of timm, torchvision and transformers are dropout of whole rows, mask for mask."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wherefrom as wf
from conftest import training
from wherefrom.training.stochastic_depth import RowDropout, stand_ins

RATE = 0.3
OVER = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank=2)), wf.Dropout()]


class Timms(nn.Module):
    """The layer of timm."""

    def __init__(self, drop_prob: float, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if self.scale_by_keep:
            kept.div_(keep)
        return x * kept


class Torchvisions(nn.Module):
    """The layer of torchvision."""

    def __init__(self, p: float, mode: str = "row") -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        rows = x.shape[0] if self.mode == "row" else 1
        kept = torch.empty((rows,) + (1,) * (x.ndim - 1), dtype=x.dtype).bernoulli_(1.0 - self.p)
        return x * kept.div_(1.0 - self.p)


class Transformers(nn.Module):
    """The layer of transformers."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, hidden_states: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return hidden_states
        keep = 1 - self.drop_prob
        random = torch.rand((hidden_states.shape[0],) + (1,) * (hidden_states.ndim - 1), dtype=hidden_states.dtype)
        return hidden_states.div(keep) * torch.floor(random + keep)


class ByHand(nn.Module):
    """One number for each row, dropped by torch's own dropout."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return x * F.dropout(x.new_ones((x.shape[0],) + (1,) * (x.ndim - 1)), self.rate, self.training)


class Residual(nn.Module):
    """Two branches, of sequences and of single vectors."""

    def __init__(self, layer: type[nn.Module], **settings: object) -> None:
        super().__init__()
        self.first, self.mixing, self.branch = nn.Linear(4, 12), nn.Linear(3, 3), nn.Linear(12, 12)
        self.drops = nn.ModuleList(layer(RATE, **settings) for _ in range(2))
        self.last = nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x)).unflatten(1, (4, 3))
        h = (h + self.drops[0](torch.relu(self.mixing(h)))).flatten(1)
        return self.last(h + self.drops[1](torch.relu(self.branch(h))))


@pytest.mark.parametrize("layer", [Timms, Torchvisions, Transformers])
def test_masks_are_those_of_dropout_by_hand(layer, problem):
    ours, expected = (wf.marginalise(training(lambda k=k: Residual(k)), problem, OVER) for k in (layer, ByHand))
    assert [(site.rate, site.cells) for site in ours.network.sites] == [(RATE, 1)] * 2
    for x in (problem[0], problem[0][:1]):
        prediction, by_hand = ours.predict(x, samples=8), expected.predict(x, samples=8)
        torch.testing.assert_close(prediction.answers, by_hand.answers, rtol=1e-4, atol=1e-5)
    assert "F" in prediction.sources().names
    without, by_hand = (each.marginalising("theta0").predict(problem[0]) for each in (ours, expected))
    torch.testing.assert_close(without.answers, by_hand.answers, rtol=1e-4, atol=1e-5)


def test_training_differs_from_training_without_it(problem):
    """So that the masks were not left out on both sides."""
    with_it = wf.marginalise(training(lambda: Residual(Timms)), problem, []).predict(problem[0]).mean
    without = wf.marginalise(training(lambda: Residual(lambda _: nn.Identity())), problem, []).predict(problem[0]).mean
    assert float((with_it - without).abs().max()) > 1e-3


def test_the_users_module_stays_as_it_is(problem):
    module = Residual(Timms)
    wf.marginalise(training(lambda: module), problem, [])
    assert all(type(layer) is Timms for layer in module.drops)


def test_files_and_members_alone(problem, tmp_path):
    three = wf.marginalise(training(lambda: Residual(Timms)), problem, [wf.InitialCondition(3), wf.Dropout()])
    two = wf.marginalise(training(lambda: Residual(Timms)), problem, [wf.InitialCondition(2), wf.Dropout()])
    answers = three.predict(problem[0], samples=4).answers
    torch.testing.assert_close(answers[:2], two.predict(problem[0], samples=4).answers)
    three.save(tmp_path)
    loaded = wf.load(tmp_path, lambda: Residual(Timms))
    assert torch.equal(loaded.predict(problem[0], samples=4).answers, answers)


def test_one_shot_follows_the_mask_of_a_row(problem):
    """The units of a row share their mask: as independent ones, the standard deviation would be far too small."""
    posterior = wf.marginalise(training(lambda: Residual(Timms)), problem, [wf.Dropout()])
    x = problem[0][:20]
    sampled, ours = posterior.predict(x, samples=4000), posterior.one_shot(x)
    scale = sampled.std.mean()
    assert float((ours.mean - sampled.mean).abs().max()) < 0.05 * scale
    assert float((ours.std / sampled.std - 1).abs().median()) < 0.05


@pytest.mark.parametrize("is_training", [False, True])
def test_a_frozen_part_drops_as_its_mode_says(is_training, problem):
    def heads(layer):
        torch.manual_seed(0)
        body = Residual(layer).requires_grad_(False).train(is_training)
        return wf.marginalise(training(lambda: nn.Sequential(body, nn.Linear(1, 1))), problem, [wf.InitialCondition(2)])

    ours, by_hand = heads(Timms), heads(ByHand)
    assert len(ours.network.sites) == 2 * is_training
    torch.testing.assert_close(ours.predict(problem[0]).answers, by_hand.predict(problem[0]).answers)


@pytest.mark.parametrize(
    "make", [lambda: Residual(Timms, scale_by_keep=False), lambda: Residual(Torchvisions, mode="batch")]
)
def test_other_ways_to_drop_are_refused(make, problem):
    with pytest.raises(ValueError, match="draws its own random numbers, by bernoulli_"):
        wf.marginalise(training(make), problem, [])


def test_only_layers_that_drop_rows_are_known():
    layers = [Timms(0.2), Timms(0.0), Timms(0.2, False), Torchvisions(0.1, "batch"), nn.Dropout(0.1), RowDropout(0.1)]
    assert list(stand_ins(layers)) == [id(layers[0])]


def test_the_real_layers():
    """timm's and transformers' own, where they are installed."""
    layers = []
    try:
        from timm.layers import DropPath

        layers.append(DropPath(0.1))
    except ImportError:
        pass
    try:
        from transformers.models.swin.modeling_swin import SwinDropPath

        layers.append(SwinDropPath(0.1))
    except ImportError:
        pass
    if not layers:
        pytest.skip("neither timm nor transformers is installed")
    assert list(stand_ins(layers)) == [id(layer) for layer in layers]
