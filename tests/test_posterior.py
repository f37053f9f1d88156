"""The posterior as a labelled mixture: parts of it, more of it, and what it says of its members."""

import itertools
import pickle

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import mlp, training
from wherefrom.posterior.trainings import _InitialConditions
from wherefrom.training.network import Network
from wherefrom.variables import Design

ON_BOTH_ENGINES = True

OVER = [*wf.recipes.multi_swag(4, rank=3), wf.Dropout()]


@pytest.fixture
def posterior(problem) -> wf.Posterior:
    return wf.marginalise(training(), problem, OVER, seed=2)


@pytest.mark.parametrize("names", [n for k in range(4) for n in itertools.combinations(("theta0", "t", "F"), k)])
def test_every_subset_equals_training_it_alone(posterior, problem, names, engine):
    """One run serves every combination: each part predicts as if only its variables had been marginalised."""
    alone = {"theta0": OVER[0], "t": OVER[1], "F": OVER[2]}
    separate = wf.marginalise(training(), problem, [alone[name] for name in names], seed=2)
    part = posterior.marginalising(*names)
    assert part.design.names == separate.design.names
    ours, theirs = (each.predict(problem[0], samples=8).answers for each in (part, separate))
    assert part.engines == separate.engines == (engine,)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.0 if engine == "native" else 1e-5)


def test_joint_variables_answer_to_each_of_their_names(posterior):
    for name in ("theta0", "order", "theta0+order"):
        assert len(posterior.marginalising(name)) == 4


def test_unknown_variables_are_named(posterior):
    with pytest.raises(ValueError, match="does not marginalise 'h'; it has theta0\\+order, t, F"):
        posterior.marginalising("h")
    swag = posterior.marginalising("t")
    with pytest.raises(ValueError, match="does not marginalise 'F'"):
        swag.marginalising("F")


def test_select_takes_members(posterior, problem):
    few = posterior.select(theta0=[1, 3])
    assert few.members()["theta0+order"] == [1, 3]
    whole = posterior.predict(problem[0], samples=4).answers
    assert torch.equal(few.predict(problem[0], samples=4).answers, whole[[1, 3]])
    assert len(posterior.select(theta0=2)) == 1


@pytest.mark.parametrize(
    ("draws", "message"),
    [([4], "has the draws 0, 1, 2, 3; there is no 4"), ([], "at least one"), ([1, 1], "each draw once")],
)
def test_select_refuses_what_is_not_there(posterior, draws, message):
    with pytest.raises(ValueError, match=message):
        posterior.select(theta0=draws)


def test_select_takes_numbers_of_any_kind(posterior):
    for draws in (np.array([1, 3]), torch.tensor([1, 3]), (3, 1), range(1, 4, 2)):
        assert posterior.select(theta0=draws).draws("theta0") == [1, 3]
    with pytest.raises(ValueError, match=r"there is no \[1\]"):
        posterior.select(theta0=[[1]])


def test_parts_of_parts_keep_their_numbers(posterior, problem):
    few = posterior.select(theta0=[1, 3])
    assert few.draws("theta0") == [1, 3]
    whole = posterior.predict(problem[0], samples=4).answers
    assert torch.equal(few.select(theta0=3).predict(problem[0], samples=4).answers[0], whole[3])
    first = few.marginalising("t", "F").predict(problem[0], samples=4).answers
    assert torch.equal(first[0], whole[1])
    with pytest.raises(ValueError, match="there is no 0"):
        few.select(theta0=0)


def test_a_variable_stands_at_the_first_draw_that_did_not_diverge(problem):
    over = [wf.Hyperparameters(points=[dict(lr=1e12), dict(lr=0.01)]), wf.Iterations(wf.SWAG(rank=2))]
    wild = training(algorithm=wf.Algorithm("sgd", lr=0.01, batch_size=25))
    kept = wf.marginalise(wild, problem, over, on_divergence="keep")
    assert kept.draws("h") == [1]
    assert kept.marginalising("t").predict(problem[0]).std.min() > 0


def test_extend_equals_having_asked_at_first(problem):
    over = [wf.InitialCondition(2), wf.Hyperparameters(2, lr=torch.distributions.Uniform(0.01, 0.03))]
    grown = wf.marginalise(training(), problem, over).extend(h=1).extend(theta0=2)
    asked = wf.marginalise(
        training(),
        problem,
        [wf.InitialCondition(4), wf.Hyperparameters(3, lr=torch.distributions.Uniform(0.01, 0.03))],
    )
    assert [c.run.labels for c in grown.mixture] == [c.run.labels for c in asked.mixture]
    assert torch.equal(grown.predict(problem[0]).answers, asked.predict(problem[0]).answers)


def test_extend_keeps_fitted_noise_right(problem):
    noisy = training(likelihood=wf.Regression(noise="fit", held_out=0.2))
    grown = wf.marginalise(noisy, problem, wf.recipes.deep_ensemble(2)).extend(theta0=2)
    asked = wf.marginalise(noisy, problem, wf.recipes.deep_ensemble(4))
    assert torch.equal(grown.fitted_noise, asked.fitted_noise)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.extend(), "name one variable"),
        (lambda p: p.extend(theta0=0), "at least 1"),
        (lambda p: p.extend(h=2), "does not marginalise 'h'"),
        (lambda p: p.extend(t=2), "predict with more samples"),
        (lambda p: p.marginalising("t").extend(theta0=2), "a part of a posterior cannot be extended"),
    ],
)
def test_extend_refuses(posterior, call, message):
    with pytest.raises(ValueError, match=message):
        call(posterior)


def test_points_are_all_there_are(problem):
    posterior = wf.marginalise(training(), problem, [wf.Hyperparameters(lr=[0.01, 0.02])])
    with pytest.raises(ValueError, match="no more to draw"):
        posterior.extend(h=1)


def test_members_table(problem):
    posterior = wf.marginalise(
        training(), problem, [wf.InitialCondition(2), wf.Hyperparameters(points=[dict(lr=0.01), dict(lr=0.02)])]
    )
    table = posterior.members()
    assert table.columns == ("theta0", "h", "lr", "first loss", "last loss", "cpu seconds", "engine")
    assert table["lr"] == [0.01, 0.02, 0.01, 0.02]
    assert all(last < first for first, last in zip(table["first loss"], table["last loss"], strict=True))
    assert "theta0  h      lr" in str(table)
    assert len(table.to_pandas()) == 4


def test_seeds_give_other_members(problem):
    a, b = (wf.marginalise(training(), problem, wf.recipes.deep_ensemble(2), seed=s) for s in (0, 1))
    assert not torch.equal(a.mixture[0].trained.last, b.mixture[0].trained.last)


def test_without_batch_order_all_members_see_the_same_order(problem):
    """Two trainings that are the same by construction stay the same."""

    def still() -> torch.nn.Module:
        network = mlp()()
        for parameter in network.parameters():
            torch.nn.init.constant_(parameter, 0.1)
        return network

    same_rates = [wf.Hyperparameters(points=[dict(lr=0.02), dict(lr=0.02)])]
    posterior = wf.marginalise(training(still), problem, same_rates)
    assert torch.equal(*(c.trained.last for c in posterior.mixture))
    ordered = wf.marginalise(training(still), problem, [wf.BatchOrder(2)])
    assert not torch.equal(*(c.trained.last for c in ordered.mixture))


def test_init_is_applied(problem):
    over = [wf.InitialCondition(2, init=lambda n: [torch.nn.init.uniform_(p, 5.0, 6.0) for p in n.parameters()])]
    still = training(algorithm=wf.Algorithm("sgd", lr=0.0, batch_size=25))
    with pytest.warns(UserWarning, match="2 of 2 members end with a training loss far above") as told:
        posterior = wf.marginalise(still, problem, over)
    assert [each.filename for each in told] == [__file__]
    assert (
        5.0 <= float(posterior.mixture[1].trained.last.min()) <= float(posterior.mixture[1].trained.last.max()) <= 6.0
    )


def test_the_same_weights_for_every_draw_are_refused(problem):
    def seeded() -> torch.nn.Module:
        torch.manual_seed(0)
        return mlp()()

    with pytest.raises(ValueError, match="draws 0 and 1 of theta0 are the same"):
        wf.marginalise(training(seeded), problem, wf.recipes.deep_ensemble(2))


def test_draws_of_theta0_are_compared_by_digest(problem, monkeypatch):
    """Hardly any two of a hundred draws are compared number by number, and equal ones are still found."""
    compared, equal = [], torch.equal
    monkeypatch.setattr(torch, "equal", lambda a, b: (compared.append(a.shape), equal(a, b))[1])
    initial = _InitialConditions(mlp(), Network(mlp()(), torch.randn(4, 4)), torch.float32)
    runs = Design.of([wf.InitialCondition(100)]).runs(0)
    compared.clear()
    draws = [initial.get(0, run) for run in runs]
    assert len(compared) < 10
    initial.factory = lambda: torch.nn.utils.vector_to_parameters(draws[40], (m := mlp()()).parameters()) or m
    more = Design.of([wf.InitialCondition(101)]).runs(0)[100]
    with pytest.raises(ValueError, match="draws 40 and 100 of theta0 are the same"):
        initial.get(0, more)


@pytest.mark.parametrize(
    "change",
    [
        lambda posterior, data: posterior.extend(data, theta0=1, progress=False),
        lambda posterior, data: posterior.select(theta0=1),
        lambda posterior, data: posterior.marginalising("theta0"),
        lambda posterior, data: posterior.weighted([0.2, 0.8]),
    ],
    ids=["extend", "select", "marginalising", "weighted"],
)
def test_a_calibration_that_is_dropped_is_told_at_the_users_line(problem, change):
    x, y = problem
    over = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(rank=2))]
    how = training(wf.MLP([8]), likelihood=wf.Regression(noise=0.5))
    posterior = wf.marginalise(how, (x[:60], y[:60]), over)
    unpickled = pickle.loads(pickle.dumps(posterior.calibrated("variance", (x[60:], y[60:]))))
    with pytest.warns(UserWarning, match="the calibration by variance belongs to other members") as caught:
        change(unpickled, (x[:60], y[:60]))
    assert [each.filename for each in caught] == [__file__]


def test_glorot_uniform_has_its_bounds():
    network = mlp(hidden=400)()
    wf.glorot_uniform(network)
    bound = (6 / 404) ** 0.5
    assert float(network[0].weight.detach().abs().max()) == pytest.approx(bound, rel=0.01)
    assert float(network[0].bias.detach().abs().max()) == 0.0


def test_recipes_are_compositions(problem):
    for over, names in (
        (wf.recipes.one_network(), ()),
        (wf.recipes.deep_ensemble(2), ("theta0+order",)),
        (wf.recipes.swag(3), ("t",)),
        (wf.recipes.snapshots(3), ("t",)),
        (wf.recipes.mc_dropout(), ("F",)),
        (wf.recipes.hyper_ensemble(2, lr=[0.01, 0.02]), ("theta0+h+order",)),
        (wf.recipes.multi_swag(2, 3), ("theta0+order", "t")),
        (wf.recipes.everything(2, 3, lr=[0.01, 0.02]), ("theta0+h+order", "t", "F")),
    ):
        posterior = wf.marginalise(training(), problem, over)
        assert posterior.design.names == names
        assert np.isfinite(posterior.predict(problem[0], samples=4).rmse(problem[1]))


def test_repr_says_what_it_is(posterior, problem):
    assert repr(posterior) == "Posterior(4 members, marginalises theta0+order, t, F)"
    assert repr(posterior.predict(problem[0], samples=4)) == "Prediction(90 rows, 1 output, 4 members x 4 samples)"


def test_folds_may_be_masks(problem):
    mask = np.arange(90) < 60
    by_mask, by_number = (
        wf.marginalise_folds(training(), problem, [fold], [])[0].mixture[0].trained.last
        for fold in (mask, np.flatnonzero(mask))
    )
    assert torch.equal(by_mask, by_number)


@pytest.mark.parametrize(
    ("fold", "message"),
    [
        ((np.arange(60), np.arange(60, 90)), "not a pair"),
        ([], "no rows"),
        ([0, 0, 1], "twice"),
        ([0, 90], "outside of 0 to 89"),
        ([-1, 3], "outside"),
        ([True, False], "2 entries for 90 rows"),
        ([[0, 1]], "list of row numbers"),
    ],
)
def test_folds_that_are_none(problem, fold, message):
    with pytest.raises(ValueError, match=message):
        wf.marginalise_folds(training(), problem, [fold], [])


def test_no_folds(problem):
    with pytest.raises(ValueError, match="no folds"):
        wf.marginalise_folds(training(), problem, [], [])


def test_half_precision_is_refused(problem):
    with pytest.raises(ValueError, match="float32 or"):
        wf.marginalise(training(), problem, [], dtype=torch.float16)


def test_an_error_of_divergence_goes_through_a_pickle():
    error = pickle.loads(pickle.dumps(wf.DivergedError("theta0 1 diverged", [1, 2])))
    assert (str(error), error.posterior) == ("theta0 1 diverged", [1, 2])


@pytest.mark.parametrize("method", ["monte_carlo", "one_shot"])
def test_chunks_are_predicted_as_all_rows(posterior, problem, method, tmp_path):
    x = np.random.default_rng(0).normal(size=(5000, problem[0].shape[1])).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    whole = posterior.predict(x, samples=6, method=method)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    parts = list(posterior.predict_chunks(mapped, 6, method=method))
    assert [len(part.mean) for part in parts] == [4096, 904]
    mean, variance = (torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
    torch.testing.assert_close(mean, whole.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(variance, whole.variance, rtol=1e-4, atol=1e-6)
    other = list(posterior.predict_chunks(iter([x[:17], torch.from_numpy(x[17:])]), 6, method=method))
    exact = {"rtol": 0, "atol": 0} if method == "monte_carlo" else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(torch.cat([part.mean for part in other]), mean, **exact)
