"""Student's t for any number of degrees of freedom, against scipy."""

import numpy as np
import pytest
import torch
from scipy import stats

from wherefrom.predictive import student

DEGREES = np.array([1, 1.1, 1.5, 2, 2.7, 4, 7.3, 20, 100, 1e4, 1e7, 1e12])


@pytest.mark.parametrize("probability", [0.005, 0.025, 0.1, 0.4, 0.5, 0.50001, 0.9, 0.975, 0.995])
def test_quantiles(probability):
    found = student.quantile(probability, torch.from_numpy(DEGREES)).numpy()
    np.testing.assert_allclose(found, stats.t.ppf(probability, DEGREES), rtol=1e-8, atol=1e-12)


def test_many_quantiles_are_those_of_each():
    probabilities, degrees = np.linspace(0.001, 0.999, 150).tolist(), torch.from_numpy(DEGREES)
    together = student.quantiles(probabilities, degrees)
    assert len(together) == len(probabilities)
    for probability, found in list(zip(probabilities, together, strict=True))[::30]:
        np.testing.assert_allclose(found, student.quantile(probability, degrees), rtol=1e-12)
    shape = student.StudentT(torch.tensor([2.5, 9.0], dtype=torch.float64))
    for probability, found in zip((0.01, 0.5, 0.8), shape.quantiles((0.01, 0.5, 0.8)), strict=True):
        assert torch.equal(found, shape.quantile(probability))


@pytest.mark.parametrize("degrees", DEGREES)
def test_probabilities(degrees):
    t = np.linspace(-30, 30, 61)
    found = student.cdf(torch.from_numpy(t), torch.tensor(degrees)).numpy()
    np.testing.assert_allclose(found, stats.t.cdf(t, degrees), atol=1e-8)
