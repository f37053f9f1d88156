"""Convolutional networks: a cohort of tiny ones against a loop written by hand, however grouped and laid out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import oracle
import wherefrom as wf
from wherefrom.reproduce.cifar10.vgg import VGG16
from wherefrom.training import network as networks
from wherefrom.training import program, streams
from wherefrom.training.augmentation import CropAndFlip, augmented
from wherefrom.training.cohort import Cohort, Examples, Trainee, orders
from wherefrom.training.data import as_rows
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.losses import CrossEntropy
from wherefrom.training.network import Network, channels_last
from wherefrom.training.streamed import Streamed
from wherefrom.training.torch_engine import TorchEngine

pytestmark = pytest.mark.slow

IMAGES = torch.randn(22, 2, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = (IMAGES[:, 0].mean((1, 2)) > 0).long() + (IMAGES[:, 1].mean((1, 2)) > 0).long()
EPOCHS = 3  # of three steps, the last of them short


def cnn(batch_norm: bool = True):
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            *([nn.BatchNorm2d(4)] if batch_norm else []),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3),
            *([nn.BatchNorm2d(6)] if batch_norm else []),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(6, 3),
        )

    return make


class Noisy(Dataset):
    """Images to which every look adds noise."""

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int):
        return IMAGES[index] + 0.1 * torch.randn(IMAGES.shape[1:]), LABELS[index]


def cohort_of(model=None, dtype=torch.float64, members: int = 3, **changes) -> Cohort:
    examples = Examples(IMAGES.to(dtype), LABELS.to(dtype).unsqueeze(1))
    keys = [streams.key(0, "augmentation", k) for k in range(members)]
    algorithm = wf.Algorithm("sgd", lr=0.05, batch_size=8, momentum=0.9, weight_decay=0.01)
    found = oracle.cohort_of(
        model or cnn(), examples, algorithm, members, EPOCHS, loss=CrossEntropy(), augmentation=keys
    )
    return replace(found, **changes)


def by_hand(model, cohort: Cohort, member: Trainee) -> torch.Tensor:
    """A member's training as anybody would write it, one image set, one module, torch.optim."""
    x, y, _ = cohort.tables[0]
    module = model().to(y.dtype).train()
    with torch.no_grad():
        own = dict(module.named_parameters()) | dict(module.named_buffers())
        for name, tensor in cohort.network.layout.views(member.theta0).items():
            own[name].copy_(tensor)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    key = np.array([streams.key(member.masks, "site", 0)], dtype=np.uint64)
    masks = TrainingMasks(cohort.network.sites[0], [0.3], key, cohort.batch_size, oracle.CPU, y.dtype)
    step = 0
    for epoch in range(cohort.epochs):
        order = orders(np.array([member.order], dtype=np.uint64), np.array([False]), epoch, len(y))[0]
        for batch in torch.from_numpy(order).split(cohort.batch_size):
            images = x[batch].read(member.augmentation, step) if isinstance(x, Streamed) else x[batch]
            if cohort.augment is not None:
                images = augmented(cohort.augment, images, member.augmentation, step)
            optimiser.zero_grad()
            with oracle.given_masks([masks.drop(step)[0, : len(batch)].clone()]):
                nn.functional.cross_entropy(module(images), y[batch, 0].long()).backward()
            optimiser.step()
            masks.restore()
            step += 1
    return cohort.network.theta(module)


def trained(cohort: Cohort, monkeypatch, group: int) -> list[torch.Tensor]:
    monkeypatch.setattr(Network, "largest_group", lambda *_: group)
    engine = TorchEngine(cohort, oracle.CPU)
    places = engine.groups(1)
    return [t.last for own in places for t in engine.train(cohort.members[own.start : own.stop], lambda _: None)]


CASES = {
    "plain": {},
    "augmented": {"augment": CropAndFlip(1)},
    "streamed": {"streamed": True},
    "streamed and augmented": {"streamed": True, "augment": CropAndFlip(2)},
}


@pytest.mark.parametrize("batch_norm", [True, False], ids=["batch norm", "no batch norm"])
@pytest.mark.parametrize("group", [3, 1], ids=["together", "alone"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_equals_a_loop_written_by_hand(case, group, batch_norm, monkeypatch):
    model = cnn(batch_norm)
    cohort = cohort_of(model, augment=case.get("augment"))
    if case.get("streamed"):
        rows = as_rows(Noisy(), wf.Classification())
        cohort = replace(cohort, tables=(Examples(rows.x, rows.y),))
        assert isinstance(rows.x, Streamed)
    for member, found in zip(cohort.members, trained(cohort, monkeypatch, group), strict=True):
        torch.testing.assert_close(found, by_hand(model, cohort, member), rtol=0, atol=1e-9)


@pytest.mark.parametrize("group", [3, 1], ids=["together", "alone"])
def test_single_precision_to_rounding(group, monkeypatch):
    cohort = cohort_of(dtype=torch.float32)
    for member, found in zip(cohort.members, trained(cohort, monkeypatch, group), strict=True):
        torch.testing.assert_close(found, by_hand(cnn(), cohort, member), rtol=0, atol=1e-5)


def test_the_order_of_memory_changes_nothing_but_rounding(monkeypatch):
    cohort = cohort_of(dtype=torch.float32)
    assert cohort.network.convolves
    last = trained(cohort, monkeypatch, 1)
    cohort.network.convolves = False
    for a, b in zip(last, trained(cohort, monkeypatch, 1), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_theta_keeps_its_order():
    """Weights in files and samples are in torch's usual order, whatever convolutions prefer."""
    module = cnn()()
    found = Network(module, IMAGES[:4].float())
    for name, tensor in found.layout.views(found.theta(module)).items():
        assert tensor.is_contiguous()
        assert torch.equal(tensor, module.state_dict()[name])


def test_one_channel_lies_last_too():
    image = channels_last(torch.randn(3, 1, 5, 5))
    assert image.stride() == (25, 1, 5, 1)
    assert nn.Conv2d(1, 4, 3)(image).is_contiguous(memory_format=torch.channels_last)
    assert channels_last(image) is image


class Viewing(nn.Module):
    """As it is often written: `view`, which means any order of memory and takes only one."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Conv2d(2, 3, 3), nn.Linear(108, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.features(x)
        return self.head(h.view(h.size(0), -1))


class Asking(Viewing):
    """Does something else when images lie in another order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.features(x)
        return self.head(h.reshape(len(h), -1)) * (1 if h.is_contiguous() else 2)


def test_view_takes_any_order_and_who_asks_gets_the_usual_one():
    x = IMAGES[:4].float()
    viewing, asking = Viewing(), Asking()
    found = Network(viewing, x)
    assert found.convolves
    torch.testing.assert_close(found.call(found.layout.views(found.theta(viewing)), x, (), False), viewing(x))
    found = Network(asking, x)
    assert not found.convolves
    torch.testing.assert_close(found.call(found.layout.views(found.theta(asking)), x, (), False), asking(x))


def test_small_networks_train_together_and_large_ones_alone():
    assert Network(cnn()(), IMAGES[:4].float()).largest_group(32) >= 8
    assert Network(VGG16(width=0.125, batch_norm=True), torch.rand(4, 3, 32, 32)).largest_group(128) == 1


def test_large_results_of_convolutions_are_not_copied_and_not_kept(monkeypatch):
    monkeypatch.setattr(program, "_LARGE", 64)
    x, weight = IMAGES[:6].float(), torch.randn(5, 2, 3, 3)

    def step(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        own = weight.detach().requires_grad_()
        with torch.enable_grad():
            h = torch.relu(torch.conv2d(x, own)).flatten(2)
            loss = (torch.conv2d(h.unflatten(2, (6, 6))[:, :2, 1:], own).square() * h.sum()).mean()
            (slope,) = torch.autograd.grad(loss, [own])
        return loss.detach(), slope

    replay = program.record(step, (x, weight))
    assert "aten::convolution" in replay.operations
    for _ in range(3):
        x.mul_(0.9)
        weight.add_(0.01)
        assert all(map(torch.equal, replay(), step(x, weight)))
    slots = [slot for operation, *_ in replay._calls for slot in getattr(operation, "makes", ())]
    assert slots
    assert all(slot.tensor is None for slot in slots)


@pytest.mark.parametrize("group", [3, 1], ids=["together", "alone"])
def test_half_the_bits(group, monkeypatch):
    usual, half = cohort_of(dtype=torch.float32), cohort_of(dtype=torch.float32, autocast=torch.bfloat16)
    monkeypatch.setattr(Network, "largest_group", lambda *_: group)
    found, again, known = (
        [
            one
            for k in range(0, 3, group)
            for one in TorchEngine(c, oracle.CPU).train(c.members[k : k + group], lambda _: None)
        ]
        for c in (half, half, usual)
    )
    for a, b, c in zip(found, again, known, strict=True):
        assert a.last.dtype == torch.float32
        assert torch.equal(a.last, b.last)
        assert np.isfinite(a.losses).all()
        assert 0 < float((a.last - c.last).abs().max()) < 0.05
        np.testing.assert_allclose(a.losses, c.losses, rtol=0.02)


def test_prediction_takes_images_in_turns(monkeypatch):
    module = cnn()().eval()
    x = torch.randn(50, 2, 8, 8)
    found = Network(module, x[:4])
    theta = torch.stack([found.theta(module), 0.5 * found.theta(module)])
    whole = found.answers(theta, x, []).clone()
    torch.testing.assert_close(whole[0], module(x).detach())
    asked = []
    real = Network.call_each
    monkeypatch.setattr(networks, "_FEWEST_ROWS", 4)
    monkeypatch.setattr(networks, "_CALL_NUMBERS", 2 * 12 * found.numbers_per_row)
    monkeypatch.setattr(Network, "call_each", lambda self, p, x, m: asked.append(len(x)) or real(self, p, x, m))
    for rows in (50, 13, 12, 1):
        in_turns = found.private("turns").answers(theta, x[:rows], [])
        torch.testing.assert_close(in_turns, whole[:, :rows])
    assert max(asked) <= 12


# ---------------------------------------------------------------------- layers that work in place


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.end = nn.Linear(48, 2)

    def forward(self, x):
        h = torch.relu_(self.first(x))
        h = self.second(h)
        h += x
        return self.end(torch.tanh_(h).flatten(1))


def in_place_twice():
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)),
    )


@pytest.mark.parametrize("model", [in_place_twice, Residual], ids=["twice", "residual"])
def test_members_with_layers_in_place_are_the_same_together_and_alone(model):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(24, 3, 4, 4, generator=generator), torch.arange(24) % 2
    own = wf.Training(model, wf.Algorithm("sgd", lr=0.05, batch_size=8), 2, wf.Classification(), standardise=False)
    posterior = wf.marginalise(own, (x, y), [wf.InitialCondition(3)], progress=False)
    for k, component in enumerate(posterior.mixture):
        with streams.torch_seeded(0, "theta0", k):
            network = model()
        optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
        key = np.array([streams.key(0, "order", 0)], dtype=np.uint64)
        for epoch in range(2):
            for rows in torch.from_numpy(streams.permutations(key, epoch, 24)[0].copy()).split(8):
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
                optimiser.step()
        expected = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
        torch.testing.assert_close(component.trained.last, expected, rtol=0, atol=1e-6)


def test_a_loaded_convolutional_network_runs_as_it_did(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(24, 1, 6, 6, generator=generator), torch.arange(24) % 2

    def model():
        return nn.Sequential(
            *(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
        )

    own = wf.Training(model, wf.Algorithm("sgd", lr=0.05, batch_size=8), 2, wf.Classification(), standardise=False)
    posterior = wf.marginalise(own, (x, y), [wf.InitialCondition(3)], progress=False)
    posterior.save(tmp_path)
    loaded = wf.load(tmp_path, model, data=(x, y))
    assert (loaded.network.convolves, loaded.network.stackable) == (
        posterior.network.convolves,
        posterior.network.stackable,
    )
    assert torch.equal(loaded.predict(x).probabilities, posterior.predict(x).probabilities)
    grown, expected = loaded.extend(theta0=1, progress=False), posterior.extend(theta0=1, progress=False)
    assert torch.equal(grown.predict(x).probabilities, expected.predict(x).probabilities)
