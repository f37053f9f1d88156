"""Missing values are drawn as their conditional distribution says, for any pattern of gaps, and within limits."""

from dataclasses import replace

import numpy as np
import pytest

from reloaded import reloaded
from wherefrom.tables.cells import Cells
from wherefrom.tables.gaps import Donors, Rule
from wherefrom.tables.measuring import explained

COVARIANCE = np.array([[1.0, 0.7, 0.4, 0.0], [0.7, 1.0, 0.5, 0.0], [0.4, 0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
QUANTITIES = (0, 0, 0, 0)


def gaussian(rows, seed=0):
    return np.random.default_rng(seed).multivariate_normal(np.zeros(4), COVARIANCE, rows)


def masked(values, columns, levels=QUANTITIES):
    values = values.copy()
    values[:, columns] = np.nan
    return Cells.unlimited(values, levels)


def conditional(values, missing):
    """Mean of the missing columns given the others, and their covariance: the closed form."""
    seen = [k for k in range(4) if k not in missing]
    towards = np.linalg.solve(COVARIANCE[np.ix_(seen, seen)], COVARIANCE[np.ix_(seen, missing)])
    left = COVARIANCE[np.ix_(missing, missing)] - COVARIANCE[np.ix_(missing, seen)] @ towards
    return values[:, seen] @ towards, left


@pytest.fixture(scope="module")
def donors():
    return Donors.of(Cells.unlimited(gaussian(4000), QUANTITIES), 0)


@pytest.mark.parametrize("missing", [[0], [3], [0, 1], [1, 3], [0, 1, 2]])
def test_draws_have_the_conditional_mean_and_covariance(donors, missing):
    new = gaussian(400, 1)
    drawn = donors.draws(masked(new, missing))[:, :, missing]
    mean, covariance = conditional(new, missing)
    inside = np.abs(new).max(axis=1) < 2.5  # donors do not reach beyond
    spread = np.sqrt(np.diag(covariance))
    apart = (drawn.mean(axis=1) - mean)[inside] / spread
    # The mean of 20 draws is off by 1 / sqrt(20) = 0.22 where they are independent.
    assert (np.sqrt((apart**2).mean(axis=0)) < 0.4).all()
    assert (np.abs(apart.mean(axis=0)) < 5 * 0.3 / np.sqrt(inside.sum())).all()
    within = np.mean([np.cov(row, rowvar=False).reshape(len(missing), -1) for row in drawn[inside]], axis=0)
    np.testing.assert_allclose(within / np.outer(spread, spread), covariance / np.outer(spread, spread), atol=0.15)
    rank = (drawn < new[:, None, missing]).mean(axis=1)[inside]  # uniform, if the truth is one more draw
    np.testing.assert_allclose(rank.mean(axis=0), 0.5, atol=5 * 0.29 / np.sqrt(inside.sum()))
    np.testing.assert_allclose(rank.std(axis=0), np.sqrt(1 / 12), rtol=0.15)


def test_what_is_known_stays_and_a_row_is_the_same_alone_and_among_others(donors):
    new = gaussian(60, 2)
    random = np.random.default_rng(3)
    cells = Cells.unlimited(np.where(random.random(new.shape) < 0.4, np.nan, new), QUANTITIES)
    drawn = donors.draws(cells)
    assert not np.isnan(drawn).any()
    there = ~cells.gaps
    np.testing.assert_array_equal(drawn[:, 7][there], new[there])
    for row in range(0, 60, 7):
        np.testing.assert_array_equal(donors.draws(cells.take(slice(row, row + 1)))[0], drawn[row])
    order = random.permutation(60)
    np.testing.assert_array_equal(donors.draws(cells.take(order)), drawn[order])
    gaps = cells.gaps.any(axis=1)
    assert (replace(donors, seed=donors.seed + 1).draws(cells)[gaps] != drawn[gaps]).any()


def test_a_row_of_which_nothing_is_known_has_the_columns_distribution(donors):
    cells = Cells.unlimited(np.full((300, 4), np.nan), QUANTITIES)
    cells.low[:, 0] = -np.linspace(5, 9, 300)  # limits beyond all rows: other streams, and nothing else
    drawn = donors.draws(cells).reshape(-1, 4)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=0.1)
    np.testing.assert_allclose(np.cov(drawn, rowvar=False), COVARIANCE, atol=0.15)


def test_levels_of_text_are_drawn_by_their_probabilities():
    random = np.random.default_rng(0)
    x = random.normal(size=4000)
    probability = 1 / (1 + np.exp(-2 * x))
    level = np.where(random.random(4000) < probability, 2.0, np.where(random.random(4000) < 0.5, 0.0, 1.0))
    donors = Donors.of(Cells.unlimited(np.stack([x, level], axis=1), (0, 3)), 0)
    at = np.linspace(-1.5, 1.5, 200)
    drawn = donors.draws(Cells.unlimited(np.stack([at, np.full(200, np.nan)], axis=1), (0, 3)))[:, :, 1]
    share = (drawn == 2).mean(axis=1)
    np.testing.assert_allclose(
        share.reshape(4, 50).mean(1), (1 / (1 + np.exp(-2 * at))).reshape(4, 50).mean(1), atol=0.1
    )
    given = donors.draws(Cells.unlimited(np.array([[np.nan, 2.0], [np.nan, 0.0]]), (0, 3)), 200)[:, :, 0].mean(axis=1)
    truth = [x[level == code].mean() for code in (2, 0)]
    np.testing.assert_allclose(given, truth, atol=0.35)


def test_columns_that_nearly_determine_each_other_are_drawn_finely():
    """The nearest of 1,000 donors is off by far more than the noise: the regression near the row is chosen."""
    random, noise = np.random.default_rng(0), 1e-3

    def rows(count):
        x = random.uniform(-1, 1, (count, 2))
        return np.column_stack([x, np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + noise * random.normal(size=count)])

    donors = Donors.of(Cells.unlimited(rows(1000), (0, 0, 0)), 0)
    assert donors.with_rules.rules[2].adjustment == "near"
    new = rows(300)
    inside = np.abs(new[:, :2]).max(axis=1) < 0.9
    drawn = donors.draws(masked(new, [2], (0, 0, 0)))[inside, :, 2]
    truth, plain = new[inside, 2], replace(donors, rules=(Rule(2.0, "none"),) * 3)
    coarse = plain.draws(masked(new, [2], (0, 0, 0)))[inside, :, 2]
    error, of_donors = (np.sqrt(np.mean((each.mean(axis=1) - truth) ** 2)) for each in (drawn, coarse))
    assert error < of_donors / 3
    within = drawn.var(axis=1).mean()
    assert 0.5 < within / error**2 < 4.0  # about as wide as they are off


def test_a_column_has_a_rule_of_its_own():
    """A column that nothing tells about needs many donors, one that another column tells about needs few."""
    random = np.random.default_rng(0)
    x = random.integers(0, 2, 2000) * 1.0
    values = np.column_stack([random.normal(size=2000), 10 * x + random.normal(size=2000), x])
    rules = Donors.of(Cells.unlimited(values, (0, 0, 0)), 0).with_rules.rules
    assert rules[0].decay >= 16
    assert rules[2].decay < rules[0].decay


def test_values_that_repeat_are_drawn_from_themselves():
    random = np.random.default_rng(0)
    x = random.normal(size=800)
    values = np.column_stack([x, np.round(2 * x + 0.3 * random.normal(size=800))])
    donors = replace(Donors.of(Cells.unlimited(values, (0, 0)), 0), rules=(Rule(8.0, "near"),) * 2)
    drawn = donors.draws(masked(values[:50], [1], (0, 0)))[:, :, 1]
    assert np.isin(drawn, values[:, 1]).all()


# ---------------------------------------------------------------------- limits


def test_limits_are_kept_and_donors_within_them_are_preferred(donors):
    new = gaussian(200, 4)
    cells = masked(new, [0])
    cells.high[:, 0] = -1.0
    drawn = donors.draws(cells)[:, :, 0]
    assert (drawn <= -1.0).all()
    # x0 given x1 is N(0.7 x1, 0.51): the mean of what lies below -1, by simulation.
    random = np.random.default_rng(0)
    mean, covariance = conditional(new, [0])
    for low, high in ((-1.5, -0.5), (-0.5, 0.5)):
        rows = (mean[:, 0] > low) & (mean[:, 0] < high)
        all_draws = mean[rows] + np.sqrt(covariance[0, 0]) * random.normal(size=(rows.sum(), 4000))
        assert drawn[rows].mean() == pytest.approx(all_draws[all_draws < -1].mean(), abs=0.15)


def test_limits_that_no_donor_keeps():
    values = np.random.default_rng(0).uniform(0.6, 3.0, (500, 2))
    donors = Donors.of(Cells.unlimited(values, (0, 0)), 0)
    cells = Cells.unlimited(np.array([[np.nan, 1.0]] * 200), (0, 0))
    cells.values[:, 1] = np.linspace(0.6, 3, 200)
    cells.low[:, 0], cells.high[:, 0] = 0.0, 0.6
    drawn = donors.draws(cells)[:, :, 0]
    assert drawn.min() >= 0
    assert drawn.max() <= 0.6
    assert drawn.mean() == pytest.approx(0.3, abs=0.02)  # evenly
    assert drawn.std() == pytest.approx(0.6 / np.sqrt(12), rel=0.1)
    cells.low[:, 0], cells.high[:, 0] = 10.0, np.inf  # as far beyond as the column is wide
    drawn = donors.draws(cells)[:, :, 0]
    assert drawn.min() >= 10
    assert drawn.max() <= 10 + values[:, 0].std()


def test_training_rows_below_a_limit_are_drawn_below_it():
    values = gaussian(800)
    cells = Cells.unlimited(values.copy(), QUANTITIES)
    below = values[:, 0] < -0.5
    cells.values[below, 0] = np.nan
    cells.high[below, 0] = -0.5
    donors = Donors.of(cells, 0)
    assert (donors.values[below, 0] <= -0.5).all()
    np.testing.assert_array_equal(donors.is_measured[:, 0], ~below)
    np.testing.assert_array_equal(donors.values[~below], values[~below])


# ---------------------------------------------------------------------- gaps of training rows


def test_gaps_of_training_rows_keep_the_correlations():
    values = gaussian(2500)
    random = np.random.default_rng(1)
    gaps = random.random(values.shape) < 0.2
    donors = Donors.of(Cells.unlimited(np.where(gaps, np.nan, values), QUANTITIES), 0)
    np.testing.assert_array_equal(donors.values[~gaps], values[~gaps])
    np.testing.assert_allclose(np.corrcoef(donors.values, rowvar=False), COVARIANCE, atol=0.07)
    assert len(np.unique(donors.values[gaps[:, 0], 0])) > 100


def test_made_up_donors_are_nobody_and_go_together_alike():
    random = np.random.default_rng(0)
    values = gaussian(2000)
    level = np.where(values[:, 0] + random.normal(size=2000) > 0, 3.0, np.where(random.random(2000) < 0.3, 0.0, 1.0))
    flag = (values[:, 1] > 0) * 1.0
    rows = np.column_stack([np.exp(values), level, flag])
    donors = Donors.of(Cells.unlimited(rows, (0, 0, 0, 0, 4, 0)), 0)
    made_up = donors.made_up()
    assert not set(made_up.values[:, 0].tolist()) & set(rows[:, 0].tolist())
    assert set(np.unique(made_up.values[:, 4])) == {0.0, 1.0, 3.0}
    assert set(np.unique(made_up.values[:, 5])) == {0.0, 1.0}
    for column in (0, 3):
        ratio = np.quantile(made_up.values[:, column], [0.1, 0.5, 0.9]) / np.quantile(rows[:, column], [0.1, 0.5, 0.9])
        np.testing.assert_allclose(ratio, 1.0, atol=0.2)
    of_rows, of_made_up = (np.corrcoef(np.log(each[:, :4]), rowvar=False) for each in (rows, made_up.values))
    np.testing.assert_allclose(of_made_up, of_rows, atol=0.1)
    high = made_up.values[:, 0] > 1
    assert (made_up.values[high, 4] == 3).mean() > (made_up.values[~high, 4] == 3).mean() + 0.2


def test_made_up_donors_keep_what_is_no_correlation():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, 2000)
    values = np.column_stack([x, x**2 + 0.02 * random.normal(size=2000)])
    made_up = Donors.of(Cells.unlimited(values, (0, 0)), 0).made_up().values
    assert len(made_up) == 1000
    assert not np.isin(made_up, values).any()
    left = made_up[:, 1] - made_up[:, 0] ** 2
    assert left.std() == pytest.approx(0.02, rel=0.2)
    assert made_up[:, 1].var() == pytest.approx(values[:, 1].var(), rel=0.2)


def test_donors_are_stored(donors):
    again = reloaded(donors)
    new = masked(gaussian(20, 5), [0, 2])
    np.testing.assert_array_equal(again.draws(new), donors.draws(new))


@pytest.mark.parametrize("rows", [2, 5, 30])
def test_few_rows_are_enough(rows):
    donors = Donors.of(Cells.unlimited(gaussian(rows), QUANTITIES), 0)
    drawn = donors.draws(masked(gaussian(3, 1), [1, 2]))[:, :, [1, 2]]
    assert (drawn >= donors.values[:, [1, 2]].min(axis=0)).all()
    assert (drawn <= donors.values[:, [1, 2]].max(axis=0)).all()


def test_many_columns_and_a_column_that_is_always_the_same():
    random = np.random.default_rng(0)
    values = np.column_stack([random.normal(size=(150, 90)), np.ones(150)])
    values[:, 89] = values[:, 0] + 0.1 * random.normal(size=150)
    donors = Donors.of(Cells.unlimited(values, (0,) * 91), 0)
    cells = Cells.unlimited(np.where(np.arange(91) >= 89, np.nan, values[:20] + 1e-6), (0,) * 91)
    drawn = donors.draws(cells)
    assert np.abs(drawn[:, :, 89].mean(1) - values[:20, 0]).mean() < 0.3
    assert (drawn[:, :, 90] == 1).all()


# ---------------------------------------------------------------------- what to measure next


def test_the_only_gap_explains_everything():
    gaps = np.array([[True, False], [False, True]])
    answers, drawn = np.random.default_rng(0).normal(size=(2, 20, 1)), np.zeros((2, 20, 2))
    np.testing.assert_array_equal(explained(answers, drawn, gaps, (0, 0)), gaps * 1.0)


def test_two_correlated_gaps_explain_what_the_closed_form_says():
    """Of y = x0 + 2 x1, with correlation r: Var(E[y | x0]) = (1 + 2 r)^2, of Var(y) = 1 + 4 r + 4."""
    random, correlation, rows = np.random.default_rng(0), 0.6, 4000
    x0 = random.normal(size=(rows, 20))
    x1 = correlation * x0 + np.sqrt(1 - correlation**2) * random.normal(size=(rows, 20))
    y = x0 + 2 * x1
    gaps = np.tile([True, True, False], (rows, 1))
    drawn = np.stack([x0, x1, np.zeros_like(x0)], axis=2)
    shares = explained(y[:, :, None], drawn, gaps, (0, 0, 0))
    whole = 1 + 4 * correlation + 4
    weights = y.var(axis=1) / y.var(axis=1).mean()  # a row's fall is its share of its own variance
    error = 4 * shares.std(axis=0) / np.sqrt(rows)
    by_row = (shares * weights[:, None]).mean(axis=0)
    assert by_row[0] == pytest.approx((1 + 2 * correlation) ** 2 / whole, abs=error[0] + 0.01)
    assert by_row[1] == pytest.approx((2 + correlation) ** 2 / whole, abs=error[1] + 0.01)
    assert by_row[2] == 0
    noise = explained(random.normal(size=(rows, 20, 1)), drawn, gaps, (0, 0, 0))[:, :2].mean()
    assert noise < 0.06  # nothing is explained; negative estimates count as none


def test_levels_of_text_explain_their_part():
    random, rows = np.random.default_rng(0), 2000
    level, x = random.integers(3, size=(rows, 20)).astype(float), random.normal(size=(rows, 20))
    y = np.array([0.0, 0.0, 2.0])[level.astype(int)] + x
    shares = explained(y[:, :, None], np.stack([level, x], axis=2), np.ones((rows, 2), dtype=bool), (3, 0))
    weights = y.var(axis=1) / y.var(axis=1).mean()
    by_row = (shares * weights[:, None]).mean(axis=0)
    of_level = 4 * (1 / 3) * (2 / 3)
    np.testing.assert_allclose(by_row, [of_level / (1 + of_level), 1 / (1 + of_level)], atol=0.03)
