"""What is done to the rows of a batch: each image moved and mirrored as said, and the same whoever trains beside."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from conftest import training
from wherefrom.training import streams
from wherefrom.training.augmentation import Compose, CropAndFlip, augmented
from wherefrom.training.cohort import Examples
from wherefrom.training.torch_engine import Batches

IMAGES = torch.randn(6, 2, 5, 4, generator=torch.Generator().manual_seed(1))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moves(image: torch.Tensor, padding: int, flip: bool) -> list[torch.Tensor]:
    """Everything that an image can become, with loops."""
    padded = nn.functional.pad(image, (padding,) * 4)
    size = 2 * padding + 1
    found = [padded[:, i:, j:][:, : image.shape[1], : image.shape[2]] for i in range(size) for j in range(size)]
    return found + [one.flip(-1) for one in found] if flip else found


@pytest.mark.parametrize(("padding", "flip"), [(1, True), (2, False), (0, True)])
def test_each_row_is_one_of_the_moves(padding, flip):
    seen = set()
    for seed in range(20):
        result = CropAndFlip(padding, flip)(IMAGES, generator(seed))
        for image, moved in zip(IMAGES, result, strict=True):
            fits = [k for k, one in enumerate(moves(image, padding, flip)) if torch.equal(one, moved)]
            assert len(fits) == 1
            seen.add(fits[0])
    assert len(seen) == (2 * padding + 1) ** 2 * (1 + flip)


def test_pixels_of_any_type_and_layout():
    whole = (IMAGES * 10).to(torch.uint8)
    assert CropAndFlip(1)(whole, generator()).dtype == torch.uint8
    last = IMAGES.to(memory_format=torch.channels_last)
    assert torch.equal(CropAndFlip(1)(last, generator()), CropAndFlip(1)(IMAGES, generator()))


def test_they_are_values():
    assert CropAndFlip(2) == CropAndFlip(2, True)
    assert repr(CropAndFlip(2)) == "CropAndFlip(padding=2, flip=True)"
    both = wf.augment.Compose([CropAndFlip(1), CropAndFlip(0)])
    assert both == Compose((CropAndFlip(1), CropAndFlip(0)))
    chain = generator()
    expected = CropAndFlip(0)(CropAndFlip(1)(IMAGES, chain), chain)
    assert torch.equal(both(IMAGES, generator()), expected)
    with pytest.raises(ValueError, match="whole number of pixels"):
        CropAndFlip(-1)
    with pytest.raises(ValueError, match=r"takes rows of \(channels, height, width\), not \(5, 4\)"):
        CropAndFlip()(IMAGES[:, 0], generator())


def cohort(members: int = 3, epochs: int = 2, **each):
    def model() -> nn.Module:
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 1))

    x = torch.randn(20, 2, 5, 4, generator=generator(2))
    found = oracle.cohort_of(
        model,
        Examples(x, x.mean((1, 2, 3)).unsqueeze(1)),
        wf.Algorithm("sgd", lr=0.05, batch_size=8),
        members,
        epochs,
        augmentation=[streams.key(0, "augmentation", i) for i in range(members)],
        **each,
    )
    return replace(found, augment=CropAndFlip(1))


def test_a_batch_is_augmented_by_the_members_stream_and_the_step():
    of = cohort()
    batches, plain = Batches(of, of.members, oracle.CPU), Batches(replace(of, augment=None), of.members, oracle.CPU)
    for epoch in range(2):
        batches.shuffle(epoch)
        plain.shuffle(epoch)
        for index in range(3):
            x, y = batches.get(index)
            before, same_y = plain.get(index)
            assert torch.equal(y, same_y)
            for own, bare, member in zip(x, before, of.members, strict=True):
                assert torch.equal(own, augmented(of.augment, bare, member.augmentation, 3 * epoch + index))
                assert not torch.equal(own, bare)


def test_members_with_one_stream_see_the_same():
    of = cohort()
    twins = (of.members[0], replace(of.members[1], order=of.members[0].order, augmentation=of.members[0].augmentation))
    batches = Batches(of, twins, oracle.CPU)
    batches.shuffle(0)
    x, _ = batches.get(1)
    assert torch.equal(x[0], x[1])


def test_a_member_is_the_same_alone_and_among_others():
    images = torch.randn(24, 2, 5, 4, generator=generator(3))
    data = images, images.mean((1, 2, 3))
    short = training(lambda: nn.Sequential(nn.Flatten(), nn.Linear(40, 1)), augment=CropAndFlip(1))
    many = wf.marginalise(short, data, wf.recipes.deep_ensemble(3), seed=5)
    few = wf.marginalise(short, data, wf.recipes.deep_ensemble(2), seed=5)
    plain = wf.marginalise(replace(short, augment=None), data, wf.recipes.deep_ensemble(2), seed=5)
    first, alone, bare = (p.mixture[0].trained.last for p in (many, few, plain))
    assert torch.equal(first, alone)
    assert not torch.allclose(first, bare)


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (
            lambda batch, _: batch[:, :, 1:],
            ValueError,
            r"was given \(6, 2, 5, 4\) of float32, and returned \(6, 2, 4, 4\)",
        ),
        (lambda batch, _: batch.double(), ValueError, "of float64"),
        (lambda batch, _: batch / 0, ValueError, "missing or infinite values at step 7"),
        (lambda batch, _: batch.numpy(), TypeError, "must return a tensor; it returned ndarray"),
    ],
)
def test_what_no_training_could_take_is_named(wrong, error, match):
    with pytest.raises(error, match=match):
        augmented(wrong, IMAGES, 0, 7)


def test_large_numbers_are_no_error():
    augmented(lambda batch, _: batch.clamp(min=1) * 1e38, IMAGES, 0, 0)


def test_the_native_engine_leaves_it_to_torch(problem):
    pytest.importorskip("numba")

    def noisy(batch, source):
        return batch + 0.1 * torch.randn(batch.shape, generator=source)

    with pytest.raises(ValueError, match="cannot train this: it does not augment"):
        wf.marginalise(training(augment=noisy), problem, [], engine="native")
    posterior = wf.marginalise(training(augment=noisy, epochs=1), problem, [])
    assert posterior.mixture[0].trained.engine == "torch"
