"""Weights of the lowest CRPS: a fine grid of weights, scored by sampling, as the oracle."""

from __future__ import annotations

import numpy as np
import torch

from wherefrom.predictive.weights import crps_stacking


def test_no_other_weights_have_a_lower_crps():
    random = np.random.default_rng(0)
    y = random.normal(size=40)
    means = np.stack([y + random.normal(size=40), 0.5 * y, y + 2 + random.normal(size=40)])
    variances, rows = random.uniform(0.3, 2.0, size=(3, 40)), random.uniform(0.2, 2.0, size=40)
    weights = crps_stacking(means, variances, y, rows).numpy()

    noise = random.normal(size=(2, 3, 40, 4000))
    first, second = means[..., None] + np.sqrt(variances)[..., None] * noise
    to_truth = np.abs(first - y[:, None]).mean(-1) @ rows / rows.sum()
    apart = np.array([[np.abs(a - b).mean(-1) @ rows / rows.sum() for b in second] for a in first])
    apart = (apart + apart.T) / 2

    def score(w: np.ndarray) -> float:
        return float(w @ to_truth - w @ apart @ w / 2)

    grid = [np.array([i, j, 40 - i - j]) / 40 for i in range(41) for j in range(41 - i)]
    assert score(weights) < min(map(score, grid)) + 0.003  # the error of 4,000 samples, over 40 rows
    assert weights.sum() == 1 or abs(weights.sum() - 1) < 1e-12
    assert (weights >= 0).all()


def test_one_member_and_equal_members():
    y = torch.zeros(5)
    assert crps_stacking(torch.ones(1, 5), torch.ones(1, 5), y).tolist() == [1.0]
    assert abs(float(crps_stacking(torch.ones(2, 5), torch.ones(2, 5), y).sum()) - 1) < 1e-12
