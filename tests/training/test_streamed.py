"""Datasets: read once where they are small and still, else batch by batch, repeatably for every member."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import oracle
import wherefrom as wf
from wherefrom.training import streamed, streams
from wherefrom.training.cohort import Examples
from wherefrom.training.data import as_inputs, as_rows
from wherefrom.training.streamed import Streamed
from wherefrom.training.torch_engine import Batches

IMAGES = torch.randn(24, 2, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = (IMAGES.mean((1, 2, 3)) > 0).long()
CLASSES = wf.Classification()


class Items(Dataset):
    """Images with their labels, with something done to each."""

    def __init__(self, transform=lambda image: image, labels=LABELS, images=IMAGES) -> None:
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        return self.transform(self.images[index]), self.labels[index]


NOISES = {
    "torch": lambda image: image + 0.1 * torch.randn(image.shape),
    "numpy": lambda image: image + 0.1 * np.random.normal(),  # noqa: NPY002
    "python": lambda image: image.flip(-1) if random.random() < 0.5 else image,
}


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )


def training(**changes) -> wf.Training:
    algorithm = wf.Algorithm("sgd", lr=0.05, batch_size=8, momentum=0.9)
    return wf.Training(cnn, algorithm, changes.pop("epochs", 3), CLASSES, **changes)


def last(posterior: wf.Posterior) -> list[torch.Tensor]:
    return [component.trained.last for component in posterior.mixture]


def test_a_still_dataset_is_read_into_memory():
    rows = as_rows(Items(), CLASSES)
    assert isinstance(rows.x, torch.Tensor)
    assert torch.equal(rows.x, IMAGES)
    assert torch.equal(rows.y[:, 0].long(), LABELS)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_one_that_draws_is_streamed_and_read_alike_on_one_stream(noise):
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    x = as_rows(Items(noise), CLASSES).x
    assert isinstance(x, Streamed)
    assert (len(x), x.shape, x.ndim, x.dtype, x.is_floating_point()) == (24, IMAGES.shape, 4, torch.float32, True)
    some = x[torch.tensor([3, 1, 4])]
    assert torch.equal(some.read(7, 2), some.read(7, 2))
    assert not torch.equal(some.read(7, 2), some.read(7, 3))
    assert not torch.equal(some.read(7, 2), some.read(8, 2))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert all(np.array_equal(a, b) for a, b in zip(states[2], np.random.get_state(), strict=True))  # noqa: NPY002


def test_a_large_one_is_streamed(monkeypatch):
    monkeypatch.setattr(streamed, "_MOST_BYTES", IMAGES.nbytes - 1)
    x = as_rows(Items(), CLASSES).x
    assert isinstance(x, Streamed)
    assert torch.equal(x.read(), IMAGES)
    assert torch.equal(x[2:20:3][torch.tensor([4, 0])].read(), IMAGES[2:20:3][torch.tensor([4, 0])])
    assert x.to(torch.float64).read().dtype == torch.float64
    assert all(np.array_equal(a, b) for a, b in zip(x.numpy(), IMAGES.numpy(), strict=True))
    monkeypatch.setattr(streamed, "_MOST_BYTES", IMAGES.nbytes)
    assert isinstance(as_rows(Items(), CLASSES).x, torch.Tensor)


def test_training_on_a_stream_equals_training_in_memory(monkeypatch):
    over = wf.recipes.multi_swag(3)
    known = wf.marginalise(training(epochs=6), (IMAGES, LABELS), over, seed=2)
    monkeypatch.setattr(streamed, "_MOST_BYTES", 0)
    found = wf.marginalise(training(epochs=6), Items(), over, seed=2)
    assert isinstance(found.rows.x, Streamed)
    for a, b in zip(last(known), last(found), strict=True):
        assert torch.equal(a, b)
    answers = [posterior.predict(IMAGES, 8).probabilities for posterior in (known, found)]  # batch norm reads the rows
    torch.testing.assert_close(answers[0], answers[1])


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_a_member_sees_the_same_draws_alone_and_among_others(noise):
    many = wf.marginalise(training(epochs=1), Items(noise), wf.recipes.deep_ensemble(3), seed=1)
    again = wf.marginalise(training(epochs=1), Items(noise), wf.recipes.deep_ensemble(3), seed=1, workers=2)
    few = wf.marginalise(training(epochs=1), Items(noise), wf.recipes.deep_ensemble(2), seed=1)
    for k in range(3):
        assert torch.equal(last(many)[k], last(again)[k])
    for k in range(2):  # batch normalisation rounds differently in other groups
        torch.testing.assert_close(last(many)[k], last(few)[k], rtol=0, atol=1e-5)


def test_batches_are_read_by_the_members_stream_and_the_step():
    rows = as_rows(Items(NOISES["torch"]), CLASSES)
    of = oracle.cohort_of(
        cnn,
        Examples(IMAGES, rows.y.float()),
        wf.Algorithm("sgd", lr=0.1, batch_size=10),
        2,
        augmentation=[streams.key(0, "augmentation", i) for i in range(2)],
    )
    of = replace(of, tables=(Examples(rows.x, rows.y.float()),), augment=lambda batch, _: -batch)
    batches = Batches(of, of.members, oracle.CPU)
    for epoch in range(2):
        batches.shuffle(epoch)
        for index in range(3):
            x, y = batches.get(index)
            for k, member in enumerate(of.members):
                chosen = batches.order[k, 10 * index : 10 * index + 10]
                expected = -rows.x[chosen].read(member.augmentation, 3 * epoch + index)
                assert torch.equal(x[k], expected)
                assert torch.equal(y[k], rows.y[chosen].float())


def test_folds_resampling_and_data_given_again(tmp_path):
    data = Items(NOISES["torch"])
    folds = wf.marginalise_folds(training(epochs=1), data, [range(16), range(8, 24)], [wf.Resample(2)])
    assert [len(fold.rows) for fold in folds] == [16, 16]
    folds[0].save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run", cnn, data=Subset(data, range(16)))
    new = torch.randn(5, 2, 6, 6)
    assert torch.equal(loaded.predict(new).probabilities, folds[0].predict(new).probabilities)
    with pytest.raises(ValueError, match="not the data that the posterior was trained on"):
        wf.load(tmp_path / "run", cnn, data=Subset(data, range(8, 24)))


def test_prediction_on_a_dataset():
    posterior = wf.marginalise(training(epochs=1), Items(), wf.recipes.deep_ensemble(2))
    expected = posterior.predict(IMAGES).probabilities
    assert torch.equal(posterior.predict(Items()).probabilities, expected)
    assert torch.equal(posterior.predict(Subset(Items(), range(24))).probabilities, expected)

    class Bare(Items):
        def __getitem__(self, index: int):
            return self.images[index]

    assert torch.equal(posterior.predict(Bare()).probabilities, expected)


def test_bytes_are_pixels():
    pixels = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    assert torch.equal(as_inputs(pixels), pixels.float() / 255)
    assert torch.equal(as_rows(Items(labels=LABELS[:6], images=pixels), CLASSES).x, pixels.float() / 255)
    assert as_inputs(pixels[:, 0]).dtype == torch.uint8  # a table of indices, for all we know


def test_a_third_part_is_the_weight():
    weights = torch.arange(1.0, 25.0)
    still = as_rows(TensorDataset(IMAGES, LABELS, weights), CLASSES)
    assert torch.equal(still.weights, weights.double())

    class Weighted(Items):
        def __getitem__(self, index: int):
            return *super().__getitem__(index), weights[index]

    assert torch.equal(as_rows(Weighted(NOISES["torch"]), CLASSES).weights, weights.double())


def test_words_are_labels():
    words = ["dog" if label else "cat" for label in LABELS]
    assert as_rows(Items(labels=words), CLASSES).classes == ("cat", "dog")


def drawing_elsewhere():
    own = torch.Generator().manual_seed(0)
    return Items(lambda image: image + torch.randn(image.shape, generator=own))


WRONG = {
    "its own generator": (drawing_elsewhere(), ValueError, "from its own generator"),
    "no rows": (Items(images=IMAGES[:0]), ValueError, "no rows"),
    "no targets": (TensorDataset(IMAGES), ValueError, r"must be \(x, y\) or .* the first one is a tuple of 1"),
    "words": (Items(lambda image: "image"), ValueError, "not numbers"),
    "not alike": (
        Items(lambda image: image if image[0, 0, 0] > -1 else image[:, 1:]),
        ValueError,
        "the first has inputs .* of float32, number",
    ),
    "missing": (
        Items(lambda image: torch.where(image > 2, torch.nan, image) + 0.1 * torch.rand(1)),
        ValueError,
        "missing or infinite values in row",
    ),
}


@pytest.mark.parametrize(("data", "error", "match"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_trained_on_is_named(data, error, match):
    with pytest.raises(error, match=match):
        as_rows(data, CLASSES)


def test_what_can_only_be_iterated_is_named():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(TypeError, match="Stream can only be iterated over"):
        as_rows(Stream(), CLASSES)


def test_a_streamed_table_is_not_standardised():
    table = torch.randn(40, 3)
    data = Items(NOISES["torch"], labels=table.sum(1), images=table)
    plain = wf.Training(lambda: nn.Linear(3, 1), wf.Algorithm("sgd", lr=0.05, batch_size=8), 2)
    with pytest.raises(ValueError, match="cannot be standardised column by column"):
        wf.marginalise(plain, data, [])
    with pytest.raises(ValueError, match="these are streamed"):
        wf.marginalise(replace(plain, standardise=False), data, [], engine="native")
    posterior = wf.marginalise(replace(plain, standardise=False), data, [])
    assert torch.isfinite(posterior.predict(table).mean).all()


# ---------------------------------------------------------------------- what is drawn, and what must not be


BASE = torch.zeros(64, 1, 6, 6).index_fill_(2, torch.arange(2), 1.0)


class Told(Dataset):
    """Items by a function of their number."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return self.item(i)


def linear(classes: int = 2):
    def model():
        return nn.Sequential(nn.Flatten(), nn.Linear(36, classes))

    return wf.Training(
        model, wf.Algorithm("sgd", lr=0.1, batch_size=16), 2, wf.Classification(classes), standardise=False
    )


def test_targets_that_are_drawn_with_the_inputs_are_refused():
    def rotated(i):
        turns = int(torch.randint(4, ()))
        return BASE[i].rot90(turns, (-2, -1)), turns

    with pytest.raises(ValueError, match="does not always have the same target"):
        wf.marginalise(linear(4), Told(rotated), [wf.InitialCondition(2)], progress=False)


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), np.random.rand, random.random])
def test_what_is_seldom_changed_is_streamed_too(draw):
    def seldom(i):
        return (torch.zeros_like(BASE[i]) if draw() < 1e-9 else BASE[i]), i % 2

    assert isinstance(streamed.of_dataset(Told(seldom))[0], streamed.Streamed)
    assert isinstance(streamed.of_dataset(Told(lambda i: (BASE[i], i % 2)))[0], torch.Tensor)


def test_another_dataset_that_draws_is_not_taken_for_the_one_trained_on(tmp_path):
    def noisy(scale):
        return Told(lambda i: (BASE[i] + scale * torch.rand(1, 6, 6), i % 2))

    posterior = wf.marginalise(linear(), noisy(1.0), [wf.InitialCondition(2)], progress=False)
    posterior.save(tmp_path)
    wf.load(tmp_path, linear().model, data=noisy(1.0))
    with pytest.raises(ValueError, match="not the data that the posterior was trained on"):
        wf.load(tmp_path, linear().model, data=noisy(100.0))
