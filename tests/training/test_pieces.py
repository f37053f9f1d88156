"""Columns in pieces: what a network sees, and that trainings, files and one-shot go on with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.training.pieces import Knots, Pieces


def test_a_piece_rises_from_one_end_to_the_other():
    knots = Knots((1,), torch.tensor([[0.0, 1.0, 3.0, 3.0]]).double())
    x = torch.tensor([[9.0, -1.0], [9.0, 0.5], [9.0, 2.0], [9.0, 5.0]]).double()
    wanted = torch.tensor([[-0.5, -0.5, 0.0], [0.0, -0.5, 0.0], [0.5, 0.0, 0.0], [0.5, 0.5, 0.0]]).double()
    assert torch.equal(knots(x), wanted)  # the last interval is empty
    assert knots.inputs == 3


def test_ends_are_quantiles_and_a_frequent_value_takes_one_piece_at_most():
    random = np.random.default_rng(0)
    x = torch.from_numpy(np.c_[random.normal(size=4000), np.where(random.random(4000) < 0.9, 0, random.random(4000))])
    ends = Pieces(count=4).knots(x).ends
    torch.testing.assert_close(ends[0], x[:, 0].quantile(torch.linspace(0, 1, 5).double()), atol=0.02, rtol=0)
    assert int((ends[1] <= 0).sum()) == 1
    assert float(ends[1, -1]) == float(x[:, 1].max())
    assert Pieces().knots(torch.ones(5, 1)).ends.unique().tolist() == [1.0]  # a constant column


def test_the_pieces_are_linear_in_between():
    """Any function that bends only at the ends is linear in the pieces and the value."""
    random = np.random.default_rng(1)
    x = torch.from_numpy(random.uniform(-2, 2, size=(500, 1)))
    knots = Pieces(count=5).knots(x)
    bend = float(knots.ends[0, 2])
    y = (x[:, 0] - bend).clamp_min(0)
    inputs = torch.cat([x, knots(x), torch.ones_like(x)], 1)
    left = inputs @ torch.linalg.lstsq(inputs, y[:, None]).solution - y[:, None]
    assert float(left.abs().max()) < 1e-9


@pytest.fixture(scope="module")
def steps():
    random = np.random.default_rng(2)
    x = random.normal(size=(300, 3))
    return x, np.sign(x[:, 0]) + 0.1 * random.normal(size=300)


def trained(data, standardise, **how):
    training = wf.Training(
        wf.MLP(10), wf.Algorithm("adam", lr=0.01, batch_size=50), 40, wf.Regression(0.1), standardise=standardise
    )
    return wf.marginalise(training, data, wf.recipes.multi_swag(2), **how)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_networks_see_steps_sooner(steps, engine):
    if engine == "native":
        pytest.importorskip("numba")
    x, y = steps
    plain, pieces = (trained(steps, each, engine=engine).predict(x, samples=5).rmse(y) for each in (True, Pieces()))
    assert pieces < plain


def test_files_one_shot_and_members_have_the_same_inputs(steps, tmp_path):
    x, y = steps
    posterior = trained(steps, Pieces((0, 2), 4))
    assert posterior.scaler.input_shape((3,)) == (11,)
    posterior.save(tmp_path / "run")
    again = wf.load(tmp_path / "run", data=(x, y))
    assert torch.equal(again.predict(x, samples=4).mean, posterior.predict(x, samples=4).mean)
    by_samples = posterior.predict(x, samples=400)
    error = by_samples.std / 400**0.5
    assert float(((posterior.one_shot(x).mean - by_samples.mean) / error).abs().median()) < 3
    with pytest.raises(ValueError, match="in pieces"):
        posterior.one_shot(x, x_std=0.1)


def test_what_has_no_columns_has_no_pieces():
    x, y = torch.zeros(20, 1, 4, 4), np.arange(20.0)
    with pytest.raises(ValueError, match="pieces are of the columns of a table"):
        trained((x, y), Pieces())
    with pytest.raises(ValueError, match="pieces of column 7, but x has 3 columns"):
        trained((np.zeros((20, 3)), y), Pieces((7,)))
    with pytest.raises(ValueError, match="from 2 on"):
        Pieces(count=1)
