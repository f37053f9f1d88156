"""Training masks: exactly Bernoulli, independent, and addressed by (stream, step) alone."""

import math

import numpy as np
import pytest
import torch

from wherefrom.training import streams
from wherefrom.training.dropout import TrainingMasks, dropped_cells, poisson_cumulative
from wherefrom.training.probing import Site

CPU = torch.device("cpu")


def keys(count: int) -> np.ndarray:
    return np.array([streams.key(0, "masks", k) for k in range(count)], dtype=np.uint64)


@pytest.mark.parametrize("mean", [0.0, 0.3, 50.0, 3000.0])
def test_cumulative_is_the_poisson_distribution(mean: float):
    cumulative = poisson_cumulative(mean)
    k = np.arange(len(cumulative))
    density = np.diff(cumulative, prepend=0.0)
    assert cumulative[-1] == pytest.approx(1, abs=1e-9)
    assert (k * density).sum() == pytest.approx(mean, abs=1e-6)
    assert (k * k * density).sum() - mean**2 == pytest.approx(mean, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_rate_and_independence(rate: float):
    """The dropped fraction, and the fraction of neighbouring cells dropped together, within 4 standard errors."""
    masks = TrainingMasks(Site(rate, (40,)), [rate] * 20, keys(20), 25, CPU, torch.float32)
    steps = 50
    seen = []
    for step in range(steps):
        seen.append((masks.drop(step) == 0).double())
        masks.restore()
    dropped = torch.stack(seen)  # (steps, members, rows, cells)
    n = dropped.numel()
    assert dropped.mean() == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / n))
    for a, b in (
        (dropped[..., 1:], dropped[..., :-1]),  # neighbouring cells
        (dropped[:, :, 1:], dropped[:, :, :-1]),  # neighbouring rows
        (dropped[1:], dropped[:-1]),  # following steps
        (dropped[:, 1:], dropped[:, :-1]),  # other members
    ):
        both = rate**2
        assert (a * b).mean() == pytest.approx(both, abs=5 * math.sqrt(both * (1 - both) / a.numel()) + 1e-12)


def test_survivors_are_scaled_and_restored():
    for rate in (0.2, 0.0625):
        masks = TrainingMasks(Site(rate, (50,)), [rate] * 3, keys(3), 8, CPU, torch.float32)
        mask = masks.drop(1)
        assert mask.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])
        masks.restore()
    assert (mask == mask.max()).all()  # from mask to mask, only what was dropped is put back


def test_members_can_have_rates_of_their_own():
    """Each member's masks are what it would have among members of its own rate."""
    rates = [0.05, 0.5, 0.02, 0.1]
    mixed = TrainingMasks(Site(0.3, (11,)), rates, keys(4), 8, CPU, torch.float32)
    alike = [TrainingMasks(Site(0.3, (11,)), [rate] * 4, keys(4), 8, CPU, torch.float32) for rate in rates]
    for step in range(30):
        mask = mixed.drop(step)
        for k, one in enumerate(alike):
            assert torch.equal(mask[k], one.drop(step)[k])
            one.restore()
        mixed.restore()


def test_a_members_mask_depends_on_its_own_stream_and_step_only():
    cumulative = poisson_cumulative(30.0)
    several = dropped_cells(keys(5), [cumulative] * 5, 300, first_step=10, steps=4)
    alone = dropped_cells(keys(5)[3:4], [cumulative], 300, first_step=12, steps=1)
    third = several[2][(several[2] >= 900) & (several[2] < 1200)] - 900
    assert np.array_equal(third, alone[0])


def test_blocks_of_planned_steps_change_nothing(monkeypatch):
    from wherefrom.training import dropout

    def seen() -> list[torch.Tensor]:
        masks = TrainingMasks(Site(0.05, (10,)), [0.05] * 3, keys(3), 8, CPU, torch.float32)
        return [(masks.drop(step).clone(), masks.restore())[0] for step in range(150)]

    few = seen()
    monkeypatch.setattr(dropout, "_PLANNED_CELLS", 1)
    assert all(map(torch.equal, few, seen()))


def test_rate_zero_drops_nothing():
    masks = TrainingMasks(Site(0.0, (10,)), [0.0] * 3, keys(3), 8, CPU, torch.float32)
    assert (masks.drop(2) == 1).all()
