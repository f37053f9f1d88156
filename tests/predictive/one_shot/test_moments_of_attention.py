"""Attention on moments: against samples, as its docstring has it, and against torch's own answers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oracle
from wherefrom.predictive.one_shot import Moments
from wherefrom.predictive.one_shot.graph import Drop

ROWS, HEADS, STEPS, WIDTH = 3, 2, 5, 8


class Attend(nn.Module):
    """Attention of queries, keys and values side by side."""

    def __init__(self, **settings):
        super().__init__()
        self.settings = settings

    def forward(self, x):
        return F.scaled_dot_product_attention(*x.chunk(3, -1), **self.settings)


def uncertain(scale, rank):
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, HEADS, STEPS, 3 * WIDTH)
    mean = torch.randn(shape, generator=generator, dtype=torch.float64)
    variance = (scale * torch.rand(shape, generator=generator, dtype=torch.float64)) ** 2
    factors = scale * torch.randn(rank, *shape, generator=generator, dtype=torch.float64) / 2 if rank else None
    return Moments(mean, variance, factors)


@pytest.mark.parametrize(("scale", "rank", "scores_std", "error"), [(0.4, 0, 0.3, 0.03), (0.5, 3, 0.7, 0.13)])
def test_its_error_is_what_it_states(scale, rank, scores_std, error):
    x, samples = uncertain(scale, rank), 4000
    generator = torch.Generator().manual_seed(1)
    drawn = x.mean + x.variance.sqrt() * torch.randn(samples, *x.mean.shape, generator=generator, dtype=torch.float64)
    if rank:
        z = torch.randn(samples, rank, generator=generator, dtype=torch.float64)
        drawn = drawn + torch.einsum("kr,r...->k...", z, x.factors)
    query, key, _ = drawn.chunk(3, -1)
    assert float((query @ key.mT / WIDTH**0.5).std(0).mean()) == pytest.approx(scores_std, abs=0.1)
    answers, found = Attend()(drawn), oracle.pushed(Attend(), x, {}, [])
    std = answers.std(0)
    relative = found.total_variance.sqrt() / std - 1
    noise = 1 / math.sqrt(2 * samples)
    assert float(relative.square().mean().sqrt()) < error + noise
    assert float(((found.mean - answers.mean(0)) / std).square().mean().sqrt()) < error + 2 * noise


def test_dropped_weights_have_the_moments_of_their_masks():
    x, rate = uncertain(0.0, 0), 0.2
    found = oracle.pushed(Attend(), Moments(x.mean), {}, [Drop(rate)])
    query, key, value = x.mean.chunk(3, -1)
    weights = torch.softmax(query @ key.mT / WIDTH**0.5, -1)
    torch.testing.assert_close(found.mean, weights @ value)
    torch.testing.assert_close(found.variance, rate / (1 - rate) * (weights.square() @ value.square()))


@pytest.mark.parametrize(
    "settings",
    [
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.rand(STEPS, STEPS, generator=torch.Generator().manual_seed(2)) > 0.3},
        {"attn_mask": torch.linspace(-1, 1, STEPS, dtype=torch.float64).expand(STEPS, STEPS)},
    ],
    ids=["causal", "scale", "mask", "bias"],
)
def test_settings_give_torchs_answers(settings):
    if settings.get("attn_mask") is not None and settings["attn_mask"].dtype == torch.bool:
        settings["attn_mask"].fill_diagonal_(True)  # each query sees a key
    module, x = Attend(**settings), Moments(uncertain(0.0, 0).mean)
    torch.testing.assert_close(oracle.pushed(module, x, {}, []).mean, module(x.mean))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        return self.heads(x, x, x)[0]


@pytest.mark.parametrize(
    "module",
    [
        Heads(),
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        ),
    ],
    ids=["heads", "encoder"],
)
def test_torchs_modules_are_followed(module):
    """The means are the module's own where nothing is uncertain, and uncertain weights move the outputs."""
    module = module.double().eval()
    x = torch.randn(ROWS, STEPS, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    tensors = {name: Moments(parameter.detach()) for name, parameter in module.named_parameters()}
    graph = oracle.graph(module, Moments(x), tensors)
    nothing = [Drop(0.0) for _ in graph.are_attention]
    certain = graph.run(Moments(x), tensors, nothing)
    torch.testing.assert_close(certain.mean, module(x))
    assert certain.is_certain
    name = next(iter(tensors))
    tensors[name] = Moments(tensors[name].mean, torch.full_like(tensors[name].mean, 1e-4))
    assert float(graph.run(Moments(x), tensors, nothing).total_variance.min()) > 0
