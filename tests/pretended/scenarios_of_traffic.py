"""Copies and synchronisations of training on the pretended device: none within a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import wherefrom as wf
from pretended import device
from wherefrom.reproduce.cifar10.vgg import VGG16
from wherefrom.training import streams
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.probing import Site

DEVICE = torch.device(device.FIRST)
QUICK = {"progress": False, "engine": "torch"}
TRAFFIC = ("H2D", "D2H", "SYNC", "implicit")  # how the names of such counts begin

X = np.random.default_rng(0).normal(size=(160, 8))
Y = X[:, 0] + np.sin(3 * X[:, 1])
IMAGES, CLASSES = torch.rand(24, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3


def mlp(rate: float) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Dropout(rate), nn.Linear(12, 1))


def of_table(rows: int, rate: float = 0.05, device: str | torch.device = DEVICE, optimiser="adam", **options):
    algorithm = wf.Algorithm(optimiser, lr=0.01, batch_size=20)
    training = wf.Training(lambda: mlp(rate), algorithm, epochs=3, likelihood=wf.Regression(noise=1.0))
    data = X[:rows], Y[:rows]
    return wf.marginalise(training, data, [wf.InitialCondition(3)], device=device, **QUICK, **options)


def of_images(rows: int, device: str | torch.device = DEVICE, augment=None, epochs: int = 2, **options):
    algorithm = wf.Algorithm("sgd", lr=0.05, momentum=0.9, weight_decay=5e-4, batch_size=8)
    augment = wf.augment.CropAndFlip(4) if augment is None else augment
    settings = {"likelihood": wf.Classification(), "standardise": False, "augment": augment}
    training = wf.Training(lambda: VGG16(3, width=1 / 16, batch_norm=True), algorithm, epochs=epochs, **settings)
    return wf.marginalise(training, (IMAGES[:rows], CLASSES[:rows]), [], device=device, **QUICK, **options)


def traffic(native, train, *given, **options) -> Counter:
    """Return the copies between host and device, and how often one waits for the other, by kind."""
    native.reset()
    train(*given, **options)
    return Counter({name: count for name, count in native.counts().items() if name.startswith(TRAFFIC)})


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_no_step_of_mlps_copies_or_waits(native, rate, optimiser):
    """Twice as many steps in each epoch make not one copy more."""
    few, many = (traffic(native, of_table, rows, rate, optimiser=optimiser) for rows in (80, 160))
    assert few == many


def test_no_step_of_a_convolutional_network_copies_or_waits(native):
    few, many = (traffic(native, of_images, rows, autocast=torch.bfloat16) for rows in (16, 24))
    assert few == many


def test_an_epoch_asks_the_device_once_for_its_losses(native):
    """The host also reads, once an epoch, whether what augmentations made is finite."""
    few, many = (traffic(native, of_images, 16, epochs=epochs) for epochs in (2, 4))
    assert many - few == {"D2H": 2, "SYNC aten::_local_scalar_dense": 2}


# ---------------------------------------------------------------------- the same numbers as on the CPU

SITES = {
    "row by row": Site(0.05, (11,)),
    "unit by unit": Site(0.05, (11,), unit_by_unit=True),
    "channels": Site(0.3, (5, 1, 1)),
    "weights": Site(0.2, (4, 3), weight="weight"),
}


@pytest.mark.parametrize("rates", [[0.05] * 4, [0.3] * 4, [0.0, 0.01, 0.5, 0.09]], ids=["sparse", "dense", "mixed"])
@pytest.mark.parametrize("site", SITES.values(), ids=list(SITES))
def test_masks_have_equal_bits(site, rates):
    keys = np.array([streams.key(0, "masks", k) for k in range(4)], dtype=np.uint64)
    theirs, ours = (
        TrainingMasks(site, rates, keys, 9, device, torch.float32) for device in (torch.device("cpu"), DEVICE)
    )
    for step in [*range(40), 200, 5000]:
        assert torch.equal(ours.drop(step).cpu(), theirs.drop(step))
        ours.restore()
        theirs.restore()


@dataclass(frozen=True)
class Brighter:
    """An augmentation that draws first: every image times a number of its own."""

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        return self.apply(batch, self.draw(batch.shape, generator).to(batch.device))

    def draw(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return 1 + 0.1 * torch.rand(shape[0], 1, 1, 1, generator=generator)

    def apply(self, batch: Tensor, drawn: Tensor) -> Tensor:
        return batch * drawn


def darker(batch: Tensor, generator: torch.Generator) -> Tensor:
    """An augmentation that draws when it is called."""
    return batch * (1 - 0.1 * torch.rand(len(batch), 1, 1, 1, generator=generator)).to(batch.device)


@pytest.mark.parametrize(
    "augment",
    [wf.augment.Compose([wf.augment.CropAndFlip(2), Brighter()]), wf.augment.Compose([Brighter(), darker])],
    ids=["drawn ahead", "drawn in the step"],
)
def test_augmented_training_is_that_of_the_cpu(native, augment):
    ours, expected = (of_images(20, device, augment) for device in (DEVICE, "cpu"))
    torch.testing.assert_close(
        ours.predict(IMAGES[:4]).probabilities, expected.predict(IMAGES[:4]).probabilities, rtol=0, atol=1e-4
    )


def test_only_what_is_drawn_first_is_drawn_ahead(native):
    few, many = (traffic(native, of_images, rows, augment=Brighter()) for rows in (16, 24))
    assert few == many
    few, many = (traffic(native, of_images, rows, augment=darker) for rows in (16, 24))
    assert (many - few)["H2D"] == 2  # a step more in each of two epochs


def test_an_augmentation_that_is_not_finite_is_named_at_the_end_of_the_epoch():
    with pytest.raises(ValueError, match=r"missing or infinite values at step 0"):
        of_images(16, augment=lambda batch, generator: batch / 0)


# ---------------------------------------------------------------------- rows that do not fit on the device


def test_rows_that_do_not_fit_are_sent_ahead(native, monkeypatch):
    expected = of_table(150, device="cpu").predict(X[:5]).mean
    monkeypatch.setattr(torch.get_device_module(DEVICE), "mem_get_info", lambda device=0: (2**10, 2**34))
    native.reset()
    torch.testing.assert_close(of_table(150).predict(X[:5]).mean, expected, rtol=1e-4, atol=1e-5)
    assert native.counts()["H2D ahead"] >= 3 * 8  # steps
    few, many = (traffic(native, of_table, rows) for rows in (80, 160))
    assert many - few == {
        "H2D ahead": 3 * 3 * 4
    }  # members, epochs, and steps more in each: nobody waits for their rows


class Streamed(torch.utils.data.Dataset):
    """Images that are drawn at random."""

    def __len__(self):
        return 24

    def __getitem__(self, number):
        return IMAGES[number] + 0.1 * torch.randn(3, 32, 32), int(CLASSES[number])


def test_streamed_rows_are_sent_ahead(native):
    algorithm = wf.Algorithm("sgd", lr=0.05, batch_size=8)
    training = wf.Training(lambda: VGG16(3, width=1 / 16), algorithm, 1, wf.Classification(), standardise=False)
    native.reset()
    ours, expected = (wf.marginalise(training, Streamed(), [], device=device, **QUICK) for device in (DEVICE, "cpu"))
    assert native.counts()["H2D ahead"] == 3 * 2 + 1  # steps, for x and y, and the numbers of the optimiser
    torch.testing.assert_close(
        ours.predict(IMAGES[:4]).probabilities, expected.predict(IMAGES[:4]).probabilities, rtol=0, atol=1e-4
    )
