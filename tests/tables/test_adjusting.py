"""Regressions of missing columns on known ones, against least squares and against leaving each donor out."""

import numpy as np
import pytest

from wherefrom.tables.adjusting import adjusted_near, slopes


def donors(seed=0, rows=3, count=40, known=3, missing=2):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, count, known))
    y = x @ random.normal(size=(known, missing)) + 0.3 * random.normal(size=(rows, count, missing))
    return x, y, random.normal(size=(rows, known))


def weighted_fit(x, y, weights):
    """Intercept and slopes by least squares."""
    root = np.sqrt(weights)[:, None]
    return np.linalg.lstsq(root * np.column_stack([np.ones(len(x)), x]), root * y, rcond=None)[0]


def test_slopes_are_those_of_least_squares():
    x, y, _ = donors(rows=1, count=500)
    x, y = x[0] - x[0].mean(axis=0), y[0] - y[0].mean(axis=0)
    found = slopes(x.T @ x / len(x), x.T @ y / len(x))
    np.testing.assert_allclose(found, np.linalg.lstsq(x, y, rcond=None)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("count", [20, 40])
def test_donors_give_the_prediction_for_the_row_and_the_residual_without_themselves(count):
    x, y, row = donors()
    weights = np.exp(-2 * np.arange(count) / count)
    given = adjusted_near(x, y, row, count)
    for k in range(len(row)):
        every = weighted_fit(x[k, :count], y[k, :count], weights)
        predicted = every[0] + row[k] @ every[1:]
        for donor in (0, 3, count - 1):
            others = np.arange(count) != donor
            without = weighted_fit(x[k, :count][others], y[k, :count][others], weights[others])
            residual = y[k, donor] - without[0] - x[k, donor] @ without[1:]
            np.testing.assert_allclose(given[k, donor], predicted + residual, atol=0.02)
        if count < x.shape[1]:  # a donor that had no part in the fit
            residual = y[k, count] - every[0] - x[k, count] @ every[1:]
            np.testing.assert_allclose(given[k, count], predicted + residual, atol=0.02)


def test_columns_that_are_always_the_same_change_nothing():
    x, y, row = donors()
    x[:] = 1.0
    given = adjusted_near(x, np.ones_like(y), row, 20)
    np.testing.assert_allclose(given, 1.0)
