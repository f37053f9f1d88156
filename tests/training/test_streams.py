"""Streams: permutations and numbers that depend on their name alone, and are as uniform as they claim."""

import numpy as np
import pytest
import torch

from wherefrom.training import streams


def keys(*draws: int) -> np.ndarray:
    return np.array([streams.key(0, "order", draw) for draw in draws], dtype=np.uint64)


def test_number_is_splitmix64():
    """Against the published generator, seeded with 1234567: its first outputs."""
    seed = np.array([1234567], dtype=np.uint64)
    first = streams.numbers(seed, np.arange(1, 4, dtype=np.uint64))
    assert first.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 1000])
def test_permutations_are_permutations(size: int):
    for row in streams.permutations(keys(0, 1, 2), epoch=5, size=size):
        assert sorted(row.tolist()) == list(range(size))


def test_a_permutation_does_not_depend_on_the_others_computed_with_it():
    alone = streams.permutations(keys(7), epoch=3, size=50)
    among = streams.permutations(keys(1, 7, 9), epoch=3, size=50)
    assert np.array_equal(alone[0], among[1])


def test_permutations_are_uniform():
    """All 24 orders of four rows are equally likely: chi-square with 23 degrees of freedom, 1 in 10,000."""
    orders = streams.permutations(keys(*range(24_000)), epoch=0, size=4)
    counts = np.unique(orders @ [64, 16, 4, 1], return_counts=True)[1]
    assert len(counts) == 24
    assert ((counts - 1000) ** 2 / 1000).sum() < 58.6


def test_epochs_differ():
    a, b = (streams.permutations(keys(0), epoch, 200) for epoch in (0, 1))
    assert not np.array_equal(a, b)


def test_torch_seeded_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with streams.torch_seeded(0, "theta0", 4):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with streams.torch_seeded(0, "theta0", 4):
        assert torch.equal(torch.rand(3), inside)
