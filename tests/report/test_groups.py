"""Whether groups are calibrated, and whether a run is better than no model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wherefrom.predictive import panels


def test_chance_is_that_of_the_binomial():
    binom = pytest.importorskip("scipy.stats").binom
    for hits, count, expected in ((90, 100, 0.95), (100, 100, 0.95), (3, 10, 0.5), (1900, 2000, 0.95)):
        tails = binom.cdf(hits, count, expected), binom.sf(hits - 1, count, expected)
        assert panels.chance(hits, count, expected) == pytest.approx(min(1, 2 * min(tails)))
    assert panels.chance(10, 10, 1.0) == 1
    assert panels.chance(9, 10, 1.0) == 0


def test_calibrated_groups_are_rarely_called_off():
    random = np.random.default_rng(0)
    hits = random.binomial(100, 0.95, size=(1000, 5))
    called = [any(panels.group_word(int(hit), 100, 0.95, 5) != "about right" for hit in row) for row in hits]
    assert np.mean(called) < 0.06
    assert panels.group_word(80, 100, 0.95, 5) == "too sure"
    assert panels.group_word(1000, 1000, 0.95, 5) == "too careful"
    assert panels.group_word(93_500, 100_000, 0.95, 5) == "about right"  # by more than chance, but nobody need act


def test_no_model_is_beaten_or_not():
    y = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    away = (y - y.mean()).square()
    assert panels.gain(0.1 * away, away)["word"] == "better"
    assert panels.gain(3 * away, away)["word"] == "worse"
    assert panels.gain(away, away)["word"] == "unknown"
    assert panels.gain(away[:1], 2 * away[:1])["word"] == "unknown"
