"""Attention that drops units: the same as attention written out by hand with nn.functional.dropout, mask for mask."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wherefrom as wf
from conftest import training
from wherefrom.training.attention import ATTENTION, Attention
from wherefrom.training.network import Network

WIDTH, HEADS, STEPS = 4, 2, 3
OVER = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank=2)), wf.Dropout()]


class ByHand(nn.Module):
    """Attention between the copies of a row that a first layer makes, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, STEPS * WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.3, batch_first=True)
        self.last = nn.Sequential(nn.Dropout(0.1), nn.Linear(WIDTH, 1))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value.  # each (rows, heads, steps, width of a head)"""
        each = F.linear(x, self.attend.in_proj_weight, self.attend.in_proj_bias).unflatten(-1, (3, HEADS, -1))
        query, key, value = each.permute(2, 0, 3, 1, 4)
        return query, key, value

    def attended(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x)
        weights = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), -1)
        out = F.dropout(weights, 0.3, self.training) @ value
        return self.attend.out_proj(out.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attended(torch.tanh(self.first(x)).unflatten(1, (STEPS, WIDTH))).mean(1))


class ByFunction(ByHand):
    def attended(self, x: Tensor) -> Tensor:
        rate = 0.3 if self.training else 0.0
        out = F.scaled_dot_product_attention(*self.heads(x), dropout_p=rate)
        return self.attend.out_proj(out.transpose(1, 2).flatten(2))


class ByLayer(ByHand):
    def attended(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x, need_weights=False)[0]


class ByFolding(ByHand):
    """With the heads folded into the rows, as FT-Transformer's authors do."""

    def attended(self, x: Tensor) -> Tensor:
        query, key, value = (part.flatten(0, 1) for part in self.heads(x))
        weights = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), -1)
        out = (F.dropout(weights, 0.3, self.training) @ value).unflatten(0, (-1, HEADS))
        return self.attend.out_proj(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("model", [ByFunction, ByLayer, ByFolding])
def test_masks_are_those_of_attention_by_hand(model, problem):
    ours, expected = (wf.marginalise(training(each), problem, OVER) for each in (model, ByHand))
    sites = [[(site.rate, site.shape) for site in each.network.sites] for each in (ours, expected)]
    assert sites[0] == sites[1] == [(0.3, (HEADS, STEPS, STEPS)), (0.1, (WIDTH,))]
    for x in (problem[0], problem[0][:1]):
        prediction, by_hand = ours.predict(x, samples=8), expected.predict(x, samples=8)
        torch.testing.assert_close(prediction.answers, by_hand.answers, rtol=1e-4, atol=1e-5)
    without, by_hand = (each.marginalising("theta0").predict(problem[0]) for each in (ours, expected))
    torch.testing.assert_close(without.answers, by_hand.answers, rtol=1e-4, atol=1e-5)


def test_training_differs_from_training_without_dropout(problem):
    """So that the masks were not left out on both sides."""

    class Whole(ByLayer):
        def __init__(self) -> None:
            super().__init__()
            self.attend.dropout = 0.0

    one, other = (wf.marginalise(training(each), problem, []).predict(problem[0]).mean for each in (ByLayer, Whole))
    assert float((one - other).abs().max()) > 1e-3


def test_members_alone_and_together(problem):
    three = wf.marginalise(training(ByLayer), problem, [wf.InitialCondition(3)])
    two = wf.marginalise(training(ByLayer), problem, [wf.InitialCondition(2)])
    torch.testing.assert_close(three.predict(problem[0]).answers[:2], two.predict(problem[0]).answers)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.tensor([[True, False, True, True]] * 3)},
        {"attn_mask": torch.linspace(-1, 1, 12).reshape(3, 4)},
        {"enable_gqa": True},
    ],
    ids=str,
)
def test_without_a_zero_in_the_mask_it_is_torchs(settings):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(5, 4, 3, 2, generator=generator)
    heads = 2 if "enable_gqa" in settings else 4
    key, value = (torch.randn(5, heads, 4, 2, generator=generator) for _ in range(2))
    attention = Attention(query, key, value, **settings)
    expected = ATTENTION(query, key, value, **settings)
    torch.testing.assert_close(attention.masked(torch.ones(attention.mask_shape)), expected)
    torch.testing.assert_close(attention._replace(dropout_p=0.5).without_dropout(), expected)


class Encoder(nn.Module):
    """torch's own layer, as it comes: dropout of 0.1 in four places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, STEPS * WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, dim_feedforward=8, batch_first=True)
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(self.first(x).unflatten(1, (STEPS, WIDTH))).mean(1))


@pytest.mark.slow
def test_the_encoder_layer_of_torch(problem):
    posterior = wf.marginalise(training(Encoder, epochs=20), problem, OVER)
    assert [site.shape for site in posterior.network.sites] == [(2, 3, 3), (3, 4), (3, 8), (3, 4)]
    prediction = posterior.predict(problem[0], samples=16)
    assert prediction.rmse(problem[1]) < problem[1].std()
    again = wf.marginalise(training(Encoder, epochs=20), problem, OVER).predict(problem[0], samples=16)
    assert torch.equal(prediction.answers, again.answers)
    assert posterior.one_shot(problem[0]).std.min() > 0


def test_files_and_rates(problem, tmp_path):
    over = [wf.InitialCondition(2), wf.Dropout(rate=0.4)]
    posterior = wf.marginalise(training(ByLayer), problem, over)
    assert posterior.network.rates == (0.4, 0.4)
    posterior.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run", ByLayer)
    assert torch.equal(loaded.predict(problem[0], 8).answers, posterior.predict(problem[0], 8).answers)


TRANSFORMERS = {
    "Bert": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_with_their_own_dropout(name):
    """By torch's attention, their default, and by their own that drops with nn.functional.dropout: the same masks."""
    transformers = pytest.importorskip("transformers", reason="pip install 'wherefrom[huggingface]'")

    class Text(nn.Module):
        def __init__(self, **how: str) -> None:
            super().__init__()
            config = getattr(transformers, f"{name}Config")(vocab_size=50, num_labels=1, **TRANSFORMERS[name], **how)
            self.model = getattr(transformers, f"{name}ForSequenceClassification")(config)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits

    words = np.random.default_rng(0).integers(1, 50, size=(40, 7))
    is_word = np.ones((40, 7), dtype=np.int64)
    is_word[::3, 5:] = 0
    x, y = {"input_ids": words, "attention_mask": is_word}, (words > 25).mean(1)
    ours = wf.marginalise(training(Text, epochs=4), (x, y), OVER)
    expected = wf.marginalise(training(lambda: Text(attn_implementation="eager"), epochs=4), (x, y), OVER)
    assert [site.shape for site in ours.network.sites] == [site.shape for site in expected.network.sites]
    assert sum(ours.network.attends) == 2
    assert not any(expected.network.attends)
    prediction, other = (each.predict(x, samples=8).answers for each in (ours, expected))
    assert float(prediction.std(1).min()) > 0
    torch.testing.assert_close(prediction, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", [ByFunction, ByLayer, ByFolding])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_members_train_as_one_program(model, rate, problem, monkeypatch):
    """Torch's own attention has no rule for several members on a CPU: it is written out for them."""

    def made() -> nn.Module:
        network = model()
        network.attend.dropout = rate
        return network

    setup = training(made, algorithm=wf.Algorithm("sgd", lr=0.05, batch_size=30))  # no step where a slope is zero
    together = wf.marginalise(setup, problem, [wf.InitialCondition(3)])
    assert together.network.stackable
    monkeypatch.setattr(Network, "largest_group", lambda *_: 1)
    alone = wf.marginalise(setup, problem, [wf.InitialCondition(3)])
    for one, other in zip(together.mixture, alone.mixture, strict=True):
        torch.testing.assert_close(one.trained.last, other.trained.last, rtol=0, atol=1e-5)


class TimesFirst(ByHand):
    """With the steps before the rows, of which there are as many as probe rows, twice."""

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(torch.tanh(self.first(x)).unflatten(1, (STEPS, WIDTH)).repeat(1, 8, 1).transpose(0, 1), 0.1)
        return self.last(h.mean(0))


def test_rows_must_come_first(problem):
    with pytest.raises(ValueError, match="its first dimension must be the rows"):
        wf.marginalise(training(TimesFirst), problem, [])
