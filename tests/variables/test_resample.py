"""D: the rows as a variable."""

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.training import torch_engine
from wherefrom.variables import Resample

NEW = np.random.default_rng(3).normal(size=(7, 4))


def test_the_bootstrap_takes_as_many_rows_again():
    rows = Resample.rows(1000, None, 0, 3)
    assert len(rows) == 1000
    share = len(set(rows.tolist())) / 1000  # 1 - 1/e of them, in expectation
    assert abs(share - (1 - np.exp(-1))) < 4 * (0.0968 / 1000) ** 0.5
    assert torch.equal(rows, Resample.rows(1000, None, 0, 3))
    assert not torch.equal(rows, Resample.rows(1000, None, 0, 4))
    assert not torch.equal(rows, Resample.rows(1000, None, 1, 3))


def test_a_share_takes_each_row_at_most_once():
    rows = Resample.rows(1000, 0.3, 0, 0).tolist()
    assert len(rows) == len(set(rows)) == 300


def test_members_are_trained_on_their_draws(problem):
    """With the scales of all rows: as if the drawn rows, standardised by hand, had been the data."""
    found = wf.marginalise(training(epochs=4), problem, [wf.Resample(3)], seed=5, progress=False)
    scaler = found.scaler
    x, y = scaler.x(found.rows.x, torch.float32), scaler.y(found.rows.y, torch.float32)
    for draw in range(3):
        rows = Resample.rows(len(y), None, 5, draw)
        alone = wf.marginalise(training(epochs=4, standardise=False), (x[rows], y[rows]), [], seed=5, progress=False)
        assert torch.allclose(found.mixture[draw].trained.last, alone.mixture[0].trained.last, rtol=1e-3, atol=1e-5)


def test_it_finds_the_variance_of_an_estimate():
    """Of a mean, learnt as a bias: the variance of y over the number of rows."""

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.mean + 0 * x[:, :1]

    random = np.random.default_rng(0)
    x, y = random.normal(size=(400, 1)), random.normal(size=400) * 3 + 1
    algorithm = wf.Algorithm("sgd", lr=0.2, batch_size=400)
    draws = 300
    found = wf.marginalise(
        wf.Training(Mean, algorithm, epochs=60, standardise=False), (x, y), [wf.Resample(draws)], progress=False
    )
    variance = float(found.predict(x[:1]).sources().overall["D"].variance)
    expected = y.var() / 400
    assert abs(variance / expected - 1) < 4 * (2 / (draws - 1)) ** 0.5


def test_it_has_its_share_beside_others(problem, tmp_path):
    over = [wf.Resample(2), wf.InitialCondition(2), wf.Iterations(wf.SWAG(2))]
    found = wf.marginalise(training(epochs=4), problem, over, seed=5, progress=False)
    assert found.predict(NEW).sources().names == ("theta0", "D", "theta0 x D", "t")
    joint = wf.marginalise(
        training(epochs=2), problem, [wf.Jointly(wf.InitialCondition(), wf.Resample(), draws=3)], progress=False
    )
    assert joint.predict(NEW).sources().names == ("theta0+D",)
    found.save(tmp_path)
    again = wf.load(tmp_path, model=training().model, data=problem).extend(D=1)
    direct = wf.marginalise(training(epochs=4), problem, [wf.Resample(3), *over[1:]], seed=5, progress=False)
    assert torch.allclose(again.predict(NEW).mean, direct.predict(NEW).mean, rtol=1e-4)


def test_subsampling_trains_on_fewer_rows(problem):
    found = wf.marginalise(training(epochs=2), problem, [wf.Resample(2, share=0.5)], progress=False)
    assert len(found) == 2
    with pytest.raises(ValueError, match="between 0 and 1"):
        wf.Resample(2, share=1.5)


@pytest.mark.parametrize("variable", [wf.Resample(3), wf.Resample(3, share=0.6), wf.Folds(3)])
def test_draws_that_share_a_table_are_those_of_copies(problem, monkeypatch, variable):
    x, y = problem
    data = (x, y, np.linspace(0.5, 1.5, len(y)))  # with weights of the rows
    lasts = []
    for copied in (2**22, 0):
        monkeypatch.setattr(torch_engine, "_COPIED_NUMBERS", copied)
        posterior = wf.marginalise(training(epochs=2), data, [variable], seed=5, progress=False, engine="torch")
        lasts.append(torch.stack([member.trained.last for member in posterior.mixture]))
    assert torch.equal(*lasts)
