"""A column whose logarithm is added to outputs: what networks see of it, and that both engines agree."""

import numpy as np
import pytest
import torch
from torch import nn

import oracle
import wherefrom as wf
from conftest import mlp
from wherefrom.training.cohort import Examples
from wherefrom.training.losses import PoissonNLL
from wherefrom.training.offset import Offset, WithOffset, column_number

X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_outputs_are_those_of_the_rest_plus_the_logarithm():
    inner = nn.Linear(3, 2)
    without = X.clone()
    without[:, 1] = 0.0
    both, first = (WithOffset(inner, Offset(1, outputs), 2) for outputs in ((0, 1), (0,)))
    torch.testing.assert_close(both(X), inner(without) + X[:, 1:2].log())
    expected = inner(without) + torch.stack([X[:, 1].log(), torch.zeros(2)], 1)
    torch.testing.assert_close(first(X), expected)


def test_columns_have_names_or_numbers():
    assert column_number("b", ("a", "b"), 2, "exposure") == 1
    assert column_number(-1, (), 4, "exposure") == 3
    with pytest.raises(ValueError, match=r"exposure is 'c', and x has no such column; there are 'a', 'b'"):
        column_number("c", ("a", "b"), 2, "exposure")
    with pytest.raises(ValueError, match="x is an array, so give the number"):
        column_number("c", (), 2, "exposure")
    with pytest.raises(ValueError, match="exposure is column 2, but x has 2 columns"):
        column_number(2, (), 2, "exposure")


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_training_is_that_of_the_module_by_hand(engine):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 4, generator=generator)
    x[:, 2] = x[:, 2].exp()
    y = torch.poisson(x[:, 2:3] * (0.5 * x[:, :1]).exp(), generator=generator)
    model = Offset(2, (0,)).around(mlp(hidden=20), 1)
    algorithm = wf.Algorithm("sgd", lr=0.02, batch_size=25, momentum=0.9)
    cohort = oracle.cohort_of(model, Examples(x, y, None), algorithm, members=2, epochs=9, loss=PoissonNLL())
    for member, trained in zip(cohort.members, oracle.train(cohort, engine), strict=True):
        assert trained.engine == engine
        expected = oracle.trained_alone(model, cohort, member)
        assert (expected - member.theta0).abs().max() > 0.01
        torch.testing.assert_close(trained.last, expected, rtol=0, atol=1e-5)


def test_one_shot_adds_it_exactly():
    """Moments of a linear network with certain inputs: the logarithm moves the mean, and nothing else."""
    generator = np.random.default_rng(0)
    x = np.stack([generator.normal(size=200), generator.uniform(0.1, 9, size=200)], 1)
    y = generator.poisson(x[:, 1] * np.exp(0.3 * x[:, 0])).astype(float)
    how = wf.Training(wf.MLP([]), wf.Algorithm("adam", lr=0.01, batch_size=50), 8, wf.Counts(0, exposure=1))
    posterior = wf.marginalise(how, (x, y), [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))])
    more = x.copy()
    more[:, 1] *= 5
    once, five = posterior.one_shot(x[:9]), posterior.one_shot(more[:9])
    torch.testing.assert_close(five.mean, 5 * once.mean, rtol=1e-5, atol=0)
    torch.testing.assert_close(five.mixture.spread, 25 * once.mixture.spread, rtol=1e-4, atol=0)
    with pytest.raises(ValueError, match="leave x_std out"):
        posterior.one_shot(x[:9], x_std=0.1)
