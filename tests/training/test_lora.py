"""Low-rank adapters over one frozen backbone: what is trained is a member's, all else is shared."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wherefrom as wf
from conftest import training

WIDTH, RANK = 64, 2
OVER = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=2), start=0), wf.Dropout()]


def pretrained() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())


BACKBONE = pretrained()


class Adapted(nn.Module):
    """A layer as peft makes it: frozen weights, and a product of two small matrices beside them."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)
        self.drop = nn.Dropout(0.1)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(self.drop(x)))


def by_hand() -> nn.Module:
    first, tanh, second, _ = BACKBONE
    return nn.Sequential(first.requires_grad_(False), tanh, Adapted(second), tanh, nn.Linear(WIDTH, 1))


def by_peft() -> nn.Module:
    """With the real package, where it is installed."""
    peft = pytest.importorskip("peft")
    sharing = copy.deepcopy(BACKBONE, {id(p): p for p in BACKBONE.parameters()})
    config = peft.LoraConfig(r=RANK, lora_alpha=RANK, lora_dropout=0.1, target_modules=["2"])
    return nn.Sequential(peft.get_peft_model(sharing, config), nn.Linear(WIDTH, 1))


# torch.fx cannot follow the forward of peft's model, which branches on its inputs.
WARNED = pytest.mark.filterwarnings("ignore:the frozen part of the model runs in every step")


@pytest.mark.parametrize("model", [by_hand, pytest.param(by_peft, marks=WARNED)])
def test_adapters_are_trained_and_the_backbone_is_shared(model, problem, tmp_path):
    before = {name: tensor.clone() for name, tensor in BACKBONE.state_dict().items()}
    posterior = wf.marginalise(training(model, epochs=4), problem, OVER)
    network = posterior.network
    frozen = sum(tensor.numel() for tensor in BACKBONE.parameters())
    assert sum(tensor.numel() for tensor in network.shared.values()) == frozen
    assert network.layout.size == 2 * WIDTH * RANK + WIDTH + 1
    assert [site.rate for site in network.sites] == [0.1]
    assert {law.mean.shape for law in posterior.laws()} == {(network.layout.size,)}
    first, second = (member.trained.last for member in posterior.mixture[:2])
    assert float((first - second).abs().max()) > 0.01  # drawn anew, and trained
    assert all(torch.equal(tensor, before[name]) for name, tensor in BACKBONE.state_dict().items())
    posterior.save(tmp_path / "run")
    size = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*.safetensors"))
    numbers = frozen + 3 * (3 + 2) * network.layout.size + 3 * len(problem[0])  # mean, variance, two deviations, last
    assert size < 4.4 * numbers + 30_000, "the backbone is in files more than once"
    loaded = wf.load(tmp_path / "run", model=model)
    assert torch.equal(loaded.predict(problem[0], samples=6).mean, posterior.predict(problem[0], samples=6).mean)
    assert posterior.predict(problem[0], samples=6).sources().names == ("theta0", "t", "F", "t x F")


def test_training_equals_a_plain_loop(problem):
    """With the weights of the adapters merged into the backbone's, and no dropout: theta0 alone."""
    x, y = (torch.as_tensor(part, dtype=torch.float32) for part in problem)

    def without_dropout() -> nn.Module:
        made = by_hand()
        made[2].drop.p = 0.0
        return made

    point = wf.Training(without_dropout, wf.Algorithm("sgd", lr=0.05, batch_size=len(x)), 3, standardise=False)
    posterior = wf.marginalise(point, (x, y), [wf.InitialCondition(2)])
    assert posterior.network.stackable
    for member, trained in enumerate(posterior.mixture):
        network = without_dropout()
        start = wf.marginalise(
            wf.Training(without_dropout, wf.Algorithm("sgd", lr=0.0, batch_size=len(x)), 1, standardise=False),
            (x, y),
            [wf.InitialCondition(2)],
        ).mixture[member]
        network.load_state_dict(posterior.network.layout.views(start.trained.last), strict=False)
        optimiser = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.05)
        for _ in range(3):
            optimiser.zero_grad()
            F.mse_loss(network(x).flatten(), y.flatten()).backward()
            optimiser.step()
        torch.testing.assert_close(trained.trained.last, posterior.network.theta(network), rtol=0, atol=1e-5)
