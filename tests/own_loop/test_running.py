"""A trajectory of unknown length leaves the law that it would leave if its length had been known."""

import pytest
import torch

from wherefrom.laws import SWAG, TRADI, Iterates, Points, Snapshots
from wherefrom.own_loop.running import Following, Running, may_ask_for, watch

SIZE = 7
LAWS = {
    "swag": SWAG(rank=4),
    "swag of rank 0": SWAG(rank=0),
    "swag, diagonal": SWAG(diagonal_only=True),
    "snapshots": Snapshots(keep=5),
    "tradi": TRADI(),
}


def walk(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(0)


def by_engine(law, trajectory):
    """The law as an engine has it made, which knows the number of iterates."""
    collector = law.collector(trajectory[:1], len(trajectory))
    for theta in trajectory:
        collector.collect(theta.unsqueeze(0))
    return collector.laws()[0]


def watched(law, trajectory):
    watcher = watch(law, trajectory[0], expected=len(trajectory))
    for theta in trajectory:
        watcher.collect(theta)
    return watcher


@pytest.mark.parametrize("count", [3, 4, 5, 9, 10, 20, 40])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_it_is_the_engines_law(law, count):
    """Snapshots too, below twice as many as are kept, and wherever the strides divide the number."""
    trajectory = walk(count)
    expected, found = by_engine(law, trajectory), watched(law, trajectory).law()
    assert type(found) is type(expected)
    for name, tensor in expected.tensors().items():
        torch.testing.assert_close(found.tensors()[name], tensor, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_asking_for_the_law_changes_nothing(law):
    trajectory = walk(17)
    watcher = watch(law, trajectory[0], expected=17)
    for k, theta in enumerate(trajectory):
        watcher.collect(theta)
        if k >= law.fewest:
            early = {name: tensor.clone() for name, tensor in watcher.law().tensors().items()}
            again = watcher.law().tensors()
            assert all(torch.equal(again[name], tensor) for name, tensor in early.items())
    for name, tensor in by_engine(law, trajectory).tensors().items():
        if not isinstance(law, Snapshots):
            torch.testing.assert_close(watcher.law().tensors()[name], tensor, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("keep", [2, 3, 5, 20])
def test_snapshots_are_near_where_they_should_be(keep):
    """For every number of iterates: as many as asked for, all different, the last among them, and none far off."""
    law = Snapshots(keep)
    watcher = Running(law, torch.zeros(1))
    for count in range(1, 40 * keep):
        watcher.collect(torch.tensor([float(count - 1)]))
        assert len(watcher.kept) <= 2 * keep
        if count < 2:
            continue
        found = watcher.law()
        assert isinstance(found, Points)
        numbers = found.points.flatten().tolist()
        wanted = [k for k, point in enumerate(law.collector(torch.zeros(1, 1), count).points_of) if point >= 0]
        assert len(set(numbers)) == len(numbers) == min(keep, count)
        assert numbers[-1] == count - 1
        assert max(abs(a - b) for a, b in zip(numbers, wanted, strict=True)) <= count / keep / 2


def test_swag_keeps_no_more_than_its_rank():
    watcher = watched(SWAG(rank=4), walk(30))
    assert sorted(watcher.kept) == [26, 27, 28, 29]
    assert not watched(SWAG(diagonal_only=True), walk(30)).kept


def test_iterates_are_copied():
    theta = torch.zeros(3)
    watcher = Running(SWAG(rank=2), theta)
    for k in range(3):
        theta.fill_(float(k))
        watcher.collect(theta)
    assert [float(kept[0]) for kept in watcher.kept.values()] == [1.0, 2.0]


def test_tradi_must_know_how_many_to_expect():
    with pytest.raises(ValueError, match=r"has to know how many updates .*expected=1000"):
        watch(TRADI(), torch.zeros(2), expected=None)
    assert isinstance(watch(TRADI(), torch.zeros(2), expected=10), Following)


class Latest:
    """A law of somebody's own: the last iterate and the one before."""

    every, fewest = "epoch", 2

    def collector(self, theta, iterations):
        points_of = [k - iterations + 2 if k >= iterations - 2 else -1 for k in range(iterations)]
        return Iterates(theta, points_of, moments=False, make=lambda seen: [Points(points) for points in seen.points])


def test_a_law_of_ones_own_brings_a_rule():
    with pytest.raises(TypeError, match="register"):
        watch(Latest(), torch.zeros(2), expected=5)
    may_ask_for.register(Latest, lambda law, number, count: number >= count - 2)
    trajectory = walk(9)
    found = watched(Latest(), trajectory).law()
    assert torch.equal(found.points, trajectory[-2:])
