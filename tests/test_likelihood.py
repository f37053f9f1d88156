"""The likelihood: its loss against torch's, and the most likely noise against closed form and a fine grid."""

import pytest
import torch
import torch.nn.functional as F

import wherefrom as wf
from wherefrom.likelihood import most_likely_noise

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS, Y = (torch.randn(30, columns, generator=GENERATOR, dtype=torch.float64) for columns in (4, 2))


def test_losses_are_torchs():
    torch.testing.assert_close(wf.Regression().loss(OUTPUTS[:, :2], Y), F.mse_loss(OUTPUTS[:, :2], Y))
    mean, log_variance = OUTPUTS.chunk(2, dim=1)
    expected = F.gaussian_nll_loss(mean, Y, log_variance.exp())
    torch.testing.assert_close(wf.Regression(noise="predicted").loss(OUTPUTS, Y), expected)


def test_noise_of_a_single_answer_is_the_mean_square():
    """With one answer the mixture is a Gaussian, whose most likely variance is known."""
    squares = (OUTPUTS[:, :2] - Y).square()
    torch.testing.assert_close(most_likely_noise(squares[None]), squares.mean(0), rtol=1e-4, atol=0)


def test_noise_of_a_mixture_is_the_best_of_a_fine_grid():
    answers = torch.randn(7, 30, 1, generator=GENERATOR, dtype=torch.float64)
    squares = (answers - Y[:, :1]).square()
    grid = torch.logspace(-4, 1, 4000, dtype=torch.float64)
    likelihood = torch.stack(
        [torch.distributions.Normal(0.0, s.sqrt()).log_prob(squares.sqrt()).logsumexp(0).sum() for s in grid]
    )
    assert float(most_likely_noise(squares)) == pytest.approx(float(grid[likelihood.argmax()]), rel=0.01)
