"""The paper's first table on two of its real data sets: 20 folds, 5 members, 400 epochs, within 1.5 printed deviations.

The whole study is `wherefrom reproduce uci`; this is the part of it that guards the framework.
"""

import numpy as np
import pytest
from torch import nn

import wherefrom as wf
from conftest import read_uci

# NLL as printed: mean and standard deviation over the folds.
PRINTED = {
    "boston": {
        ("t",): (5.958, 1.962),
        ("theta0",): (5.681, 2.039),
        ("F", "t"): (4.096, 0.730),
        ("F", "theta0"): (4.015, 1.287),
        ("t", "theta0"): (3.511, 0.816),
        ("F", "t", "theta0"): (2.998, 0.593),
    },
    "yacht": {
        ("t",): (0.733, 0.183),
        ("theta0",): (1.414, 2.311),
        ("F", "t"): (0.763, 0.106),
        ("F", "theta0"): (0.525, 0.198),
        ("t", "theta0"): (0.634, 0.147),
        ("F", "t", "theta0"): (0.741, 0.133),
    },
}


def folds(rows: int, count: int = 20) -> list[tuple[np.ndarray, np.ndarray]]:
    """The published splits: training and test rows."""
    generator = np.random.RandomState(1)
    orders = [generator.choice(rows, rows, replace=False) for _ in range(count)]
    cut = round(rows * 9 / 10)
    return [(order[:cut], order[cut:]) for order in orders]


@pytest.mark.real_data
@pytest.mark.parametrize("name", PRINTED)
def test_nll_as_printed(name):
    x, y = read_uci(name)

    def network() -> nn.Module:
        made = nn.Sequential(nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Dropout(0.01), nn.Linear(50, 1))
        wf.glorot_uniform(made)
        return made

    training = wf.Training(network, wf.Algorithm("adam", lr=0.01, batch_size=100), epochs=400)
    splits = folds(len(y))
    over = [*wf.recipes.multi_swag(5), wf.Dropout()]
    posteriors = wf.marginalise_folds(training, (x, y), [train for train, _ in splits], over)
    for names, (mean, deviation) in PRINTED[name].items():
        scores = [
            posterior.marginalising(*names).predict(x[test], samples=100).nll(y[test])
            for posterior, (_, test) in zip(posteriors, splits, strict=True)
        ]
        assert abs(np.mean(scores) - mean) < 1.5 * deviation, (names, np.mean(scores), mean)
