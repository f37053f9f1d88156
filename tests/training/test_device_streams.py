"""Random streams by int64 operations: the bits of the unsigned ones. The CPU's tensors stand for a device's."""

import numpy as np
import pytest
import torch

from wherefrom.training import device_streams, dropout, streams
from wherefrom.training.cohort import orders

CPU = torch.device("cpu")
KEYS = np.array([streams.key(0, "stream", k) for k in range(6)], dtype=np.uint64)


def test_numbers_have_equal_bits():
    counters = streams.address(77, np.arange(1, 500, dtype=np.uint64))
    ours = device_streams.numbers(
        device_streams.as_keys(KEYS, CPU)[:, None], torch.from_numpy(counters.view(np.int64))[None, :]
    )
    assert np.array_equal(ours.numpy().view(np.uint64), streams.numbers(KEYS[:, None], counters[None, :]))


@pytest.mark.parametrize("rows", [1, 2, 7, 100, 4097])
@pytest.mark.parametrize("replacement", [[False] * 6, [True] * 6, [True, False] * 3], ids=["none", "all", "some"])
def test_orders_are_equal(rows, replacement):
    ours = device_streams.orders(device_streams.as_keys(KEYS, CPU), np.array(replacement), 3, rows)
    assert np.array_equal(ours.numpy(), orders(KEYS, np.array(replacement), 3, rows))


@pytest.mark.parametrize("units", [1, 2, 51])
def test_the_same_units_survive(units):
    limits = dropout.thresholds(np.linspace(0.1, 0.9, 6))
    ours = device_streams.surviving(
        device_streams.as_keys(KEYS, CPU), device_streams.as_keys(limits, CPU), 10, units, 12, 3
    )
    for k, step in enumerate(range(12, 15)):
        assert np.array_equal(ours[k].numpy(), dropout.surviving(KEYS, limits, 10, units, step))


def test_the_same_cells_are_dropped():
    cumulative = [dropout.poisson_cumulative(mean) for mean in (0.0, 0.3, 5.0, 5.0, 40.0, 90.0)]
    tables = device_streams.tables_of_counts(cumulative, CPU)
    cells, counts = device_streams.dropped_cells(device_streams.as_keys(KEYS, CPU), tables, 900, 12, 50)
    member = torch.arange(6)[:, None] * 900
    expected = dropout.dropped_cells(KEYS, cumulative, 900, 12, 50)
    assert sum(map(len, expected)) > 1000
    for ours, some, theirs in zip(cells + member, counts, expected, strict=True):
        assert ours[some].tolist() == theirs.tolist()
