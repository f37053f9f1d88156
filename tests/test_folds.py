"""D as folds: every row trains, and every row is judged by the members that did not see it."""

import math

import numpy as np
import pytest
import torch

import wherefrom as wf
from wherefrom.posterior.fold import dealt_out

OVER = [wf.Folds(4), wf.InitialCondition(2)]


def _table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    return x, x[:, 0] + np.sin(2 * x[:, 1]) + 0.3 * (random.gamma(2, 1, size=rows) - 2)


def _training(**about):
    return wf.Training(wf.MLP((8,)), wf.Algorithm("adam", lr=0.01, batch_size=16), 10, **about)


@pytest.fixture(scope="module")
def posterior():
    return wf.marginalise(_training(likelihood=wf.Regression(noise="fit")), _table(120), OVER, seed=3)


def test_each_draw_trains_on_the_rows_of_the_other_parts(posterior):
    x, y = _table(120)
    parts = posterior.fold.parts
    assert parts.bincount().tolist() == [30] * 4
    for draw in range(4):
        kept = (parts != draw).numpy()
        alone = wf.marginalise(
            wf.Training(wf.MLP((8,)), posterior.training.algorithm, 10, standardise=False),
            ((x[kept] - x.mean(0)) / x.std(0), (y[kept] - y.mean()) / y.std()),
            [wf.InitialCondition(2)],
            seed=3,
        )
        for member, other in zip(posterior.select(D=draw).mixture, alone.mixture, strict=True):
            torch.testing.assert_close(member.trained.last, other.trained.last, rtol=2e-3, atol=2e-4)


def test_a_row_is_predicted_by_the_members_that_did_not_see_it(posterior):
    x, _ = _table(120)
    by_hand = np.empty(120)
    for draw in range(4):
        rows = np.flatnonzero(posterior.fold.parts.numpy() == draw)
        members = [m for m in posterior.mixture if m.run.slots["D"] == draw]
        part = posterior.select(D=draw)
        assert [m.trained.last is n.trained.last for m, n in zip(members, part.mixture, strict=True)] == [True, True]
        by_hand[rows] = part.predict(x[rows]).mean.numpy()
    prediction = posterior.out_of_fold()
    np.testing.assert_allclose(prediction.mean.numpy(), by_hand, rtol=1e-5, atol=1e-6)
    assert prediction.answers.shape == (2, 1, 120, 1)


def test_the_noise_is_that_of_left_out_rows_and_none_is_held_out(posterior):
    _, y = _table(120)
    assert len(posterior.rows) == 120
    answers = posterior.out_of_fold().answers[:, 0, :, 0].double()
    squares = (answers - (torch.from_numpy(y) - y.mean()) / y.std()).square()
    grid = torch.linspace(-6, 2, 20_001, dtype=torch.float64).exp()
    costs = [float(-(torch.logsumexp(-0.5 * squares / s, 0) - 0.5 * s.log()).sum()) for s in grid[::20]]
    assert float(posterior.fitted_noise) == pytest.approx(float(grid[::20][int(np.argmin(costs))]), rel=0.02)


def test_intervals_are_those_of_cv_plus(posterior):
    x, y = _table(1000, seed=1)
    many = wf.marginalise(_training(likelihood=wf.Regression(noise="fit")), (x, y), OVER, seed=3)
    many = many.calibrated("conformal")
    fresh, _ = _table(40, seed=2)
    low, high = many.predict(fresh).interval(0.9)
    values = []
    for draw in range(4):
        part = many.uncalibrated.select(D=draw)
        part = wf.Posterior(**{**vars(part), "fitted": many.uncalibrated.fitted})  # with the noise of all
        rows = np.flatnonzero(many.fold.parts.numpy() == draw)
        seen, new = part.predict(x[rows]), part.predict(fresh)
        scores = (torch.from_numpy(y[rows]) - seen.mean) / seen.std
        values.append(new.mean[None] + scores[:, None] * new.std[None])
    ordered = torch.cat(values).sort(0).values
    place = math.floor(1001 * 0.05)
    torch.testing.assert_close(low, ordered[place - 1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(high, ordered[1000 - place], rtol=1e-6, atol=1e-6)


def test_few_rows_give_one_reach_for_both_sides(posterior):
    calibrated = posterior.calibrated("conformal")
    fresh, _ = _table(30, seed=2)
    low, high = calibrated.predict(fresh).interval(0.95)
    conformal = calibrated.calibration[-1]
    both = []
    for draw, mixture in enumerate(calibrated.predict(fresh).mixture.along("D")):
        scores = conformal.scores[conformal.parts == draw].abs()
        both.append(mixture.mean[:, 0] + scores * mixture.variance[:, 0].sqrt())
    place = math.floor(121 * 0.05 + 1e-9)
    expected = torch.cat(both).sort(0, descending=True).values[place - 1]
    prediction = calibrated.predict(fresh)
    torch.testing.assert_close(high, prediction.location + prediction.scale * expected)
    assert bool((low < high).all())


def test_left_out_rows_are_judged_by_the_other_parts(posterior):
    """No row's own score may decide whether its interval holds it."""
    _, y = _table(120)
    calibrated = posterior.calibrated("conformal")
    prediction = calibrated.out_of_fold()
    conformal = calibrated.calibration[-1]
    scores = prediction.deviation(torch.from_numpy(y))[:, 0]
    covered = []
    for row in range(120):
        others = conformal.scores[conformal.parts != conformal.parts[row], 0].abs().sort().values
        covered.append(float(scores[row].abs()) <= float(others[math.ceil(91 * 0.9 - 1e-9) - 1]))
    low, high = prediction.interval(0.9)
    truth = torch.from_numpy(y)
    assert ((truth >= low) & (truth <= high)).tolist() == covered
    some = prediction.of_rows(torch.arange(50, 120))
    torch.testing.assert_close(some.interval(0.9)[0], low[50:])


def test_coverage_of_fresh_rows(posterior):
    """Over 10 tables of 300 rows; the error of the mean is that of 10 calibrations and 20,000 rows."""
    covered = []
    for seed in range(10):
        made = wf.marginalise(
            _training(likelihood=wf.Regression(noise="fit")), _table(300, seed=10 + seed), OVER, seed=seed
        ).calibrated("conformal")
        x, y = _table(2000, seed=100 + seed)
        covered.append(made.predict(x).coverage(y, 0.9))
    error = math.sqrt(0.9 * 0.1 / 300 / 10 + 0.9 * 0.1 / 20_000)
    assert 0.9 - 3 * error < np.mean(covered) < 0.9 + 3 * error + 0.02  # the whole is better than one draw


def test_sets_of_classes_by_folds():
    x, y = _table(400)
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    made = wf.marginalise(_training(likelihood=wf.Classification()), (x, labels), OVER, seed=0).calibrated("conformal")
    fresh, _ = _table(25, seed=5)
    prediction, conformal = made.predict(fresh), made.calibration[-1]
    below = torch.zeros(25, 3)
    for draw, mixture in enumerate(prediction.mixture.along("D")):
        scores = conformal.scores[conformal.parts == draw, 0]
        below += (scores[None, None] < (1 - mixture.mean)[..., None]).sum(-1)
    assert prediction.sets(0.9).equal(below < math.ceil(401 * 0.9 - 1e-9))
    assert abs(made.out_of_fold().coverage(labels, 0.9) - 0.9) < 3 * math.sqrt(0.09 / 400) + 1 / 300


def test_counts_by_folds():
    x, _ = _table(300)
    y = np.random.default_rng(1).poisson(np.exp(0.5 * x[:, 0]))
    made = wf.marginalise(_training(likelihood=wf.Counts()), (x, y), OVER, seed=0).calibrated("conformal")
    low, high = made.predict(x[:20]).interval(0.9)
    assert bool((low == low.round()).all() and (low <= high).all())
    assert made.out_of_fold().coverage(y, 0.9) >= 0.9 - 3 * math.sqrt(0.09 / 300)


def test_groups_stay_together_and_parts_are_of_like_size():
    random = np.random.default_rng(0)
    groups = random.integers(0, 40, size=500)
    y = random.normal(size=500)
    parts = dealt_out(y, groups, 5, seed=0)
    assert all(len(set(parts[groups == group])) == 1 for group in range(40))
    sizes = np.bincount(parts)
    assert sizes.max() - sizes.min() <= np.bincount(groups).max()
    alone = dealt_out(y, None, 5, seed=0)
    means = [y[alone == part].mean() for part in range(5)]
    assert np.ptp(means) < 0.1  # dealt along y; at random it would be 0.1 from part to part


def test_parts_of_the_posterior_are_judged_by_what_they_did_not_see(posterior):
    _x, y = _table(120)
    part = posterior.marginalising("theta0")  # stands at the first draw of D
    unseen = part.held_out
    np.testing.assert_array_equal(unseen.y[:, 0].numpy(), y[posterior.fold.parts.numpy() == 0])
    two = posterior.select(D=[1, 3]).held_out
    assert sorted(set(two.left_out_by.tolist())) == [1, 3]
    assert len(two) == 60


def test_weights_are_the_same_in_every_draw(posterior):
    weighted = posterior.weighted([0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4])
    assert len(weighted) == 8
    stacked = posterior.weighted("stacking")
    by_draw = {
        draw: [w for w, m in zip(stacked.weights, stacked.mixture, strict=True) if m.run.slots["D"] == draw]
        for draw in range(4)
    }
    assert all(each == pytest.approx(by_draw[0]) for each in by_draw.values())


def test_save_and_load(posterior, tmp_path):
    calibrated = posterior.calibrated("variance").calibrated("conformal")
    calibrated.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run")
    x, y = _table(120)
    for one, other in zip(calibrated.predict(x).interval(0.9), loaded.predict(x).interval(0.9), strict=True):
        torch.testing.assert_close(one, other)
    again = loaded.with_data((x, y)).out_of_fold()
    torch.testing.assert_close(again.mean, calibrated.out_of_fold().mean)
    with pytest.raises(ValueError, match="needs D as folds"):
        loaded.out_of_fold()


def test_one_shot_out_of_fold():
    made = wf.marginalise(
        _training(likelihood=wf.Regression(noise="fit")), _table(120), [wf.Folds(3), wf.Iterations(wf.SWAG(3))], seed=0
    )
    x, _ = _table(120)
    prediction = made.out_of_fold(method="one_shot")
    for draw in range(3):
        rows = np.flatnonzero(made.fold.parts.numpy() == draw)
        part = made.select(D=draw).predict(x[rows], method="one_shot")
        np.testing.assert_allclose(prediction.mean[rows].numpy(), part.mean.numpy(), rtol=1e-5, atol=1e-6)
        share = prediction.of_rows(torch.from_numpy(rows)).sources()
        assert share.names == part.sources().names


def test_extend_adds_members_to_every_fold_but_no_folds(posterior):
    with pytest.raises(ValueError, match="no more to draw"):
        posterior.extend(D=1)
    longer = posterior.extend(theta0=1)
    assert len(longer) == 12
    assert longer.out_of_fold().answers.shape[0] == 3


def test_too_few_rows():
    with pytest.raises(ValueError, match="3 rows cannot be cut into 4 folds"):
        wf.marginalise(_training(), _table(3), OVER)
