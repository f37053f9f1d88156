"""Weights of a mixture: stacking against grids and its own optimality conditions, greedy choice against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from wherefrom.predictive import weights
from wherefrom.predictive.weights import greedy, normalised, stacking


def mean_log(log_densities, chosen) -> float:
    """The mean log density of a mixture."""
    logs = torch.as_tensor(np.asarray(log_densities), dtype=torch.float64)
    chosen = torch.as_tensor(chosen, dtype=torch.float64)
    return float(torch.logsumexp(logs + chosen.log()[:, None], 0).mean())


def gains(log_densities, chosen) -> torch.Tensor:
    """The derivatives of the mean log density by each weight: at most 1 at the best weights, 1 where they are not 0."""
    logs = torch.as_tensor(np.asarray(log_densities), dtype=torch.float64)
    mixture = torch.logsumexp(logs + chosen.log()[:, None], 0)
    return (logs - mixture).exp().mean(1)


def of_gaussians(members: int, rows: int, seed: int) -> np.ndarray:
    """Members of different means and widths, at rows from a mixture of two."""
    random = np.random.default_rng(seed)
    y = random.normal(size=rows) + 3 * (random.random(rows) < 0.4)
    mean, width = 2 * random.normal(size=(members, 1)), np.exp(0.5 * random.normal(size=(members, 1)))
    return -0.5 * ((y - mean) / width) ** 2 - np.log(width)


HARD = {
    "similar": lambda g: -g.gamma(2.0, size=(1, 300)) + 1e-3 * g.normal(size=(25, 300)),
    "different": lambda g: 30 * g.normal(size=(12, 200)),
    "far apart": lambda g: -(10 ** g.uniform(0, 5, size=(12, 200))),
    "heavy tails": lambda g: 10 * g.standard_cauchy(size=(20, 100)),
    "impossible": lambda g: np.where(g.random((15, 80)) < 0.4, -np.inf, g.normal(size=(15, 80))),
    "more members than rows": lambda g: g.normal(size=(60, 5)),
    "one row": lambda g: g.normal(size=(4, 1)),
    "one member": lambda g: g.normal(size=(1, 9)),
    "the same twice": lambda g: np.repeat(g.normal(size=(6, 50)), 2, axis=0),
    "all the same": lambda g: np.repeat(g.normal(size=(1, 50)), 8, axis=0),
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("seed", range(5))
def test_stacking_meets_the_conditions_of_the_best(case, seed):
    """Gains of at most 1, and of 1 where there is weight: no weights are better by more than what the gains leave."""
    logs = HARD[case](np.random.default_rng(seed))
    found = stacking(logs)
    assert found.shape == (len(logs),)
    assert found.dtype == torch.float64
    assert float(found.sum()) == pytest.approx(1, abs=1e-12)
    assert bool((found >= 0).all())
    gain = gains(logs, found)
    assert float(gain.max()) <= 1 + 1.01e-8
    heavy = found > 1e-3
    torch.testing.assert_close(gain[heavy], torch.ones_like(gain[heavy]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_stacking_is_the_best_of_a_grid(seed):
    """Of three members: all weights that are multiples of 1/200."""
    logs = of_gaussians(3, 150, seed)
    steps = 200
    grid = [(i / steps, j / steps, (steps - i - j) / steps) for i in range(steps + 1) for j in range(steps + 1 - i)]
    best = grid[int(np.log(np.array(grid) @ np.exp(logs)).mean(1).argmax())]
    found = stacking(logs)
    # A grid's best lies within a step or two of the summit, which is flat: look at the height as well.
    assert 0 <= mean_log(logs, found) - mean_log(logs, best) < 1e-4
    assert np.abs(found.numpy() - best).max() < 0.05


def test_stacking_of_two_has_a_closed_form():
    """n rows that only the first allows and m that both do, twice as likely to the second: n/w = m/(2 - w)."""
    n, m = 30, 50
    logs = np.stack([np.zeros(n + m), np.r_[np.full(n, -np.inf), np.full(m, math.log(2))]])
    share = 2 * n / (n + m)
    assert stacking(logs).tolist() == pytest.approx([share, 1 - share], abs=1e-6)


def test_members_that_are_there_twice_share_the_weight_of_one():
    logs = of_gaussians(4, 300, seed=5)
    once, twice = stacking(logs), stacking(np.concatenate([logs, logs[:2]]))
    together = twice[:4] + torch.cat([twice[4:], torch.zeros(2)])
    torch.testing.assert_close(together, once, rtol=0, atol=1e-4)
    assert mean_log(np.concatenate([logs, logs[:2]]), twice) == pytest.approx(mean_log(logs, once), abs=1e-8)


def test_members_that_do_not_help_weigh_exactly_nothing():
    logs = of_gaussians(20, 300, seed=6)
    worse = np.concatenate([logs, logs - 0.1])
    found = stacking(worse)
    assert found[20:].tolist() == [0.0] * 20
    torch.testing.assert_close(found[:20], stacking(logs), rtol=0, atol=1e-5)


def test_a_hopeless_member_and_an_impossible_row_change_nothing():
    logs = of_gaussians(4, 100, seed=7)
    expected = stacking(logs)
    never = np.full((1, 100), -np.inf)
    assert torch.equal(stacking(np.concatenate([logs, never]))[:4] > 0, expected > 0)
    torch.testing.assert_close(stacking(np.concatenate([logs, never]))[:4], expected, rtol=0, atol=1e-6)
    rows = np.concatenate([logs, np.full((4, 1), -np.inf), np.full((4, 1), np.nan)], axis=1)
    assert torch.equal(stacking(rows), expected)
    assert torch.equal(stacking(logs + 5000 * np.arange(100)), stacking(logs + 5000 * np.arange(100)))
    torch.testing.assert_close(stacking(logs - 1e4), expected, rtol=0, atol=1e-6)


def test_a_rare_row_keeps_the_only_member_that_allows_it():
    """One row in ten thousand: its weight cannot fall to zero, and is about 1/rows."""
    logs = np.zeros((2, 10_000))
    logs[1, 1:] = -1.0
    logs[0, 0] = -np.inf
    found = stacking(logs)
    assert float(gains(logs, found).max()) <= 1 + 1.01e-8
    assert 0.5e-4 < float(found[1]) < 2e-4


def test_the_order_of_the_members_does_not_matter():
    logs = of_gaussians(7, 200, seed=8)
    order = np.random.default_rng(0).permutation(7)
    torch.testing.assert_close(stacking(logs)[order], stacking(logs[order]), rtol=0, atol=1e-5)


def test_an_unfinished_search_says_so():
    with pytest.warns(UserWarning, match="after 1 steps, other weights could still raise"):
        stacking(of_gaussians(5, 100, seed=9), most=1)


def brute_force(logs: np.ndarray, size: int, distinct: int | None) -> tuple[list[int], float]:
    """What greedy choice means, written out: the picks, and the mean log density of their mixture."""
    picks: list[int] = []
    score = -math.inf
    while len(picks) < size:
        allowed = [m for m in range(len(logs)) if distinct is None or len({*picks, m}) <= distinct]
        scores = [float(np.log(np.exp(logs[[*picks, m]]).mean(0)).mean()) for m in allowed]
        best = int(np.argmax(scores))
        if scores[best] <= score + 1e-10:
            break
        picks.append(allowed[best])
        score = scores[best]
    return picks, score


@pytest.mark.parametrize(("size", "distinct"), [(1, None), (2, None), (6, None), (25, None), (25, 2), (25, 1), (3, 3)])
@pytest.mark.parametrize("seed", range(6))
def test_greedy_choice_is_the_brute_force_one(size, distinct, seed):
    logs = of_gaussians(6, 40, seed)
    picks, score = brute_force(logs, size, distinct)
    found = greedy(logs, size, distinct=distinct)
    assert found.tolist() == pytest.approx((np.bincount(picks, minlength=6) / len(picks)).tolist())
    assert mean_log(logs, found) == pytest.approx(score)
    assert int((found > 0).sum()) <= (distinct or size)


def test_greedy_choice_of_two_is_the_best_pair_with_the_best():
    logs = of_gaussians(8, 60, seed=11)
    best = int(logs.mean(1).argmax())
    pairs = {m: mean_log(logs[[best, m]], [0.5, 0.5]) for m in range(8)}
    found = greedy(logs, 2)
    assert mean_log(logs, found) == pytest.approx(max(pairs.values()))


def test_greedy_choice_never_beats_stacking_and_comes_near_with_many_picks():
    logs = of_gaussians(10, 200, seed=12)
    highest = mean_log(logs, stacking(logs))
    scores = [mean_log(logs, greedy(logs, size)) for size in (1, 2, 5, 20)]
    assert scores == sorted(scores)
    assert scores[0] == pytest.approx(float(logs.mean(1).max()))
    assert scores[-1] <= highest + 1e-8
    assert highest - scores[-1] < 0.2 * (highest - scores[0])  # equal steps cannot reach it


def test_of_equals_greedy_choice_takes_the_first():
    logs = np.repeat(of_gaussians(3, 50, seed=13), 2, axis=0)
    found = greedy(logs, 10)
    assert found[1::2].tolist() == [0.0] * 3
    assert torch.equal(found, greedy(logs, 10))
    assert greedy(np.zeros((4, 5)), 7).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_greedy_choice_prefers_members_that_rule_out_fewer_rows():
    logs = np.array([[5.0, 5.0, -np.inf], [-3.0, -3.0, -3.0], [4.0, -np.inf, -np.inf]])
    assert int(greedy(logs, 1).argmax()) == 1
    far = np.array([[0.0, 0.0, -2000.0], [0.0, -800.0, 0.0], [-np.inf, 0.0, 0.0]])
    assert int(greedy(far, 1).argmax()) == 1


def test_weights_that_are_given_add_up_to_one():
    assert normalised([3, 1, 0], 3).tolist() == [0.75, 0.25, 0.0]
    assert normalised(np.ones(4), 4).tolist() == [0.25] * 4
    for wrong, message in (
        ([1, 2], "one weight for each of the 3 members"),
        ([[1, 2, 3]], "one weight for each"),
        ([1, -1, 1], "numbers from zero on"),
        ([1, math.nan, 1], "numbers from zero on"),
        ([1, math.inf, 1], "numbers from zero on"),
        ([0, 0, 0], "not all of them zero"),
    ):
        with pytest.raises(ValueError, match=message):
            normalised(wrong, 3)


@pytest.mark.parametrize("choose", [stacking, lambda logs: greedy(logs, 3)])
@pytest.mark.parametrize(
    ("logs", "message"),
    [
        (np.zeros(3), "a table of members by rows"),
        (np.zeros((0, 3)), "a table of members by rows"),
        (np.zeros((3, 0)), "a table of members by rows"),
        ([[0.0, math.inf], [0.0, 0.0]], "density is infinite"),
        ([[-math.inf, math.nan], [-math.inf, -math.inf]], "no member gives any"),
    ],
)
def test_tables_without_an_answer_are_refused(choose, logs, message):
    with pytest.raises(ValueError, match=message):
        choose(logs)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 2.5}, {"size": 3, "distinct": 0}])
def test_greedy_choice_wants_whole_numbers(wrong):
    with pytest.raises(ValueError, match="must be a whole number"):
        greedy(np.zeros((2, 2)), **wrong)


def test_the_quadratic_is_least_where_all_supports_were_tried():
    """min y'ay/2 - b'y over y >= 0: the best of the solutions on every subset that are not negative."""
    random = np.random.default_rng(14)
    for _ in range(30):
        root = torch.from_numpy(random.normal(size=(5, 7)))
        a, b = root @ root.T, torch.from_numpy(random.normal(size=5))
        lowest = 0.0
        for size in range(1, 6):
            for support in itertools.combinations(range(5), size):
                own = list(support)
                y = torch.linalg.solve(a[own][:, own], b[own])
                if bool((y >= 0).all()):
                    lowest = min(lowest, float(-0.5 * b[own] @ y))
        for free in (b > 0, b < 9, b > 9):
            y = weights._least_quadratic(a, b, free)
            assert float(0.5 * y @ a @ y - b @ y) == pytest.approx(lowest, abs=1e-10)
