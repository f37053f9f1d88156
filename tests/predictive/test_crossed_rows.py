"""Rows that are draws of one row become one more axis of the members, whose samples they share."""

import pytest
import torch

from wherefrom.predictive.components import CrossedAxis, hoeffding
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.sources import sources

DRAWN = CrossedAxis("gaps", 4, is_finite=True, shares_samples=True)
MEMBERS = CrossedAxis("theta0", 3, is_finite=False)
PLAN = Plan(5, vary_theta=True, vary_mask=False)


def test_answers_are_those_of_each_draw():
    answers = torch.randn(3, 5, 8, 2, generator=torch.Generator().manual_seed(0))
    spread = answers.square()
    within = {"t": answers.mean(1)}
    mixture = Mixture(answers, PLAN, (MEMBERS,), spread=spread, within=lambda: within)
    crossed = mixture.crossed_with(DRAWN)
    assert crossed.answers.shape == (12, 5, 2, 2)
    assert crossed.axes == (MEMBERS, DRAWN)
    for member in range(3):
        for draw in range(4):
            for row in range(2):
                at = member * 4 + draw, row * 4 + draw
                torch.testing.assert_close(crossed.answers[at[0], :, row], answers[member, :, at[1]])
                torch.testing.assert_close(crossed.spread[at[0], :, row], spread[member, :, at[1]])
                torch.testing.assert_close(crossed.within()["t"][at[0], row], within["t"][member, at[1]])
    torch.testing.assert_close(crossed.mean, answers.double().mean((0, 1)).unflatten(0, (2, 4)).mean(1))


def test_weights_are_shared_by_the_draws():
    answers = torch.randn(3, 5, 4, 1, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    crossed = Mixture(answers, PLAN, (MEMBERS,), weights=weights).crossed_with(DRAWN)
    torch.testing.assert_close(crossed.weights, weights.repeat_interleave(4) / 4)
    by_hand = (weights[:, None] * answers.double().mean((1, 3))).sum(0).mean()
    assert float(crossed.mean) == pytest.approx(float(by_hand))


def test_samples_that_draws_share_are_not_averaged_out():
    """f = a_m + b_g + c_mk: the components are 4, 1 and 9, by the mean over many rows."""
    random = torch.Generator().manual_seed(0)
    rows, samples = 4000, 5

    def drawn(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    # All values of b, so that its variance has the divisor 4.
    b = torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    f = 2 * drawn(3, 1, rows, 1) + b + 3 * drawn(3, samples, rows, 1)  # (members, samples, rows, draws)
    split = sources(Mixture(f.flatten(2)[..., None], PLAN, (MEMBERS,)).crossed_with(DRAWN))
    found = {name: part.mean() for name, part in split.variance.items()}
    error = {name: 5 * part.std() / rows**0.5 + 1e-9 for name, part in split.variance.items()}
    for name, truth in {"theta0": 4.0, "gaps": 1.0, "theta0 x gaps": 0.0, "t": 9.0}.items():
        assert abs(float(found[name]) - truth) < error[name], name
    apart = hoeffding(f.mean(1).movedim(-1, 1)[..., None], (MEMBERS, DRAWN), torch.tensor(9.0 / samples))
    torch.testing.assert_close(apart["gaps"][:, 0], split.variance["gaps"], rtol=1e-6, atol=1e-3)


def test_a_factor_stretches_what_networks_say_and_not_what_is_drawn_of_the_inputs():
    answers = torch.randn(3, 1, 3 * DRAWN.draws, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    answers += 3 * torch.arange(3 * DRAWN.draws, dtype=torch.float64).reshape(1, 1, -1, 1)
    crossed = Mixture(answers, PLAN, (MEMBERS,), noise=torch.ones(1, dtype=torch.float64)).crossed_with(DRAWN)
    stretched = crossed.stretched(torch.tensor([0.25], dtype=torch.float64))
    torch.testing.assert_close(stretched.mean, crossed.mean)
    draws = answers.reshape(3, 3, DRAWN.draws)
    for row in range(3):
        means, within = draws[:, row].mean(0), draws[:, row].var(0, correction=0).mean()
        assert float(stretched.variance[row]) == pytest.approx(float(means.var(correction=0) + 0.25 * (within + 1)))
