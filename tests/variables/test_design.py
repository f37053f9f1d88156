"""Designs: crossed and joint variables as labelled runs, and what may not be asked for."""

import pytest
import torch
from torch.distributions import LogNormal, MultivariateNormal, Uniform

import wherefrom as wf
from conftest import training
from wherefrom.variables import Design


def labels(*over) -> list[dict[str, int]]:
    return [run.labels for run in Design.of(over).runs(seed=0)]


def test_variables_are_crossed():
    runs = labels(wf.InitialCondition(2), wf.BatchOrder(3))
    assert len(runs) == 6
    assert runs[0] == {"theta0": 0, "order": 0}
    assert runs[-1] == {"theta0": 1, "order": 2}


def test_joint_variables_share_their_draw():
    runs = Design.of([wf.Jointly(wf.BatchOrder(), wf.InitialCondition(), draws=3)]).runs(seed=0)
    assert [run.labels for run in runs] == [{"theta0+order": k} for k in range(3)]
    assert runs[2].slots == {"F": 0, "theta0": 2, "gamma": 0, "h": 0, "order": 2, "D": 0}


def test_order_of_over_is_irrelevant(problem):
    over = [
        wf.InitialCondition(2),
        wf.Hyperparameters(2, lr=Uniform(0.01, 0.02)),
        wf.Iterations(wf.SWAG(3)),
        wf.Dropout(),
    ]
    a, b = (wf.marginalise(training(), problem, o, seed=1).predict(problem[0]) for o in (over, over[::-1]))
    assert torch.equal(a.answers, b.answers)


def test_recipes_may_stand_among_variables():
    assert Design.of([wf.recipes.multi_swag(3), wf.Dropout()]).names == ("theta0+order", "t", "F")


def test_a_variable_redraws_its_own_slot_and_nothing_else(problem):
    """Adding a variable keeps the others' draws: members at its draw 0 are the members there were, samples included."""
    small = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(3)), wf.Dropout()]
    before = wf.marginalise(training(), problem, small)
    after = wf.marginalise(training(), problem, [*small, wf.BatchOrder(2)])
    part = after.select(order=0)
    assert torch.equal(before.predict(problem[0]).answers, part.predict(problem[0]).answers)


def test_drawn_settings_keep_their_streams():
    one = wf.Hyperparameters(4, lr=LogNormal(-4.0, 1.0))
    two = wf.Hyperparameters(9, lr=LogNormal(-4.0, 1.0), weight_decay=Uniform(0.0, 1.0))
    for draw in range(4):
        assert one.choices(5, draw)["lr"] == two.choices(5, draw)["lr"]
    assert one.choices(5, 0) != one.choices(6, 0)


def test_draws_from_lists_take_every_value_and_are_random():
    variable = wf.Hyperparameters(200, batch_size=[10, 20, 30])
    drawn = [variable.choices(0, draw)["batch_size"] for draw in range(200)]
    assert all(40 < drawn.count(size) < 95 for size in (10, 20, 30))  # 66.7 +- 4 standard errors


def test_lists_within_jointly_are_drawn_from():
    (over,) = wf.recipes.hyper_ensemble(40, lr=[0.01, 0.1, 1.0])
    drawn = [run.choices["lr"] for run in Design.of([over]).runs(0)]
    assert len(drawn) == 40
    assert set(drawn) == {0.01, 0.1, 1.0}


def test_lists_without_draws_are_gone_through():
    design = Design.of([wf.Hyperparameters(lr=[0.1, 0.2], batch_size=[5, 6])])
    assert design.axes[0].is_finite
    assert [run.choices for run in design.runs(0)] == [
        {"lr": lr, "batch_size": size} for lr in (0.1, 0.2) for size in (5, 6)
    ]


REFUSED = [
    (lambda: wf.InitialCondition(1), "one draw holds no doubt"),
    (lambda: wf.BatchOrder(1), "one draw holds no doubt"),
    (lambda: Design.of([wf.InitialCondition()]), "say how many draws"),
    (lambda: Design.of([wf.InitialCondition(2), wf.InitialCondition(3)]), "theta0 is marginalised twice"),
    (
        lambda: Design.of([wf.Jointly(wf.InitialCondition(), wf.BatchOrder(), draws=2), wf.BatchOrder(2)]),
        "order .*twice",
    ),
    (lambda: Design.of([wf.Dropout(), wf.Dropout()]), "F is marginalised twice"),
    (lambda: Design.of([3]), "not a variable"),
    (lambda: Design.of(wf.InitialCondition(5)), r"over=\[InitialCondition"),
    (lambda: Design.of([wf.SWAG()]), r"a law stands in wf.Iterations\(SWAG"),
    (lambda: Design.of([wf.Dropout]), r"call it, as Dropout\(...\)"),
    (lambda: Design.of(wf.recipes.deep_ensemble), r"call it, as deep_ensemble"),
    (lambda: wf.InitialCondition(2.5), "must be whole"),
    (lambda: wf.Training(lambda: None, wf.Algorithm("adam", lr=1, batch_size=1), 10.0), "epochs must be a whole"),
    (lambda: wf.Training(lambda: None, wf.Algorithm("adam", lr=1, batch_size=1), 1, "fit"), "likelihood must be"),
    (lambda: wf.Regression(noise=[0.1, 0.2]), "one number"),
    (lambda: wf.Jointly(wf.InitialCondition(), draws=3), "at least two"),
    (lambda: wf.Jointly(wf.InitialCondition(), wf.Dropout(), draws=3), "put it beside Jointly"),
    (lambda: wf.Jointly(wf.InitialCondition(), wf.BatchOrder(4), draws=3), "leave the inner number out"),
    (lambda: wf.Hyperparameters(3), "give either settings"),
    (lambda: wf.Hyperparameters(3, lr=0.1), "a fixed value belongs into"),
    (lambda: wf.Hyperparameters(3, lr=MultivariateNormal(torch.zeros(2), torch.eye(2))), "single number"),
    (lambda: wf.Hyperparameters(3, points=[dict(lr=1), dict(lr=2)]), "leave draws out"),
    (lambda: wf.Iterations(wf.SWAG), "such as wf.SWAG"),
    (lambda: wf.Iterations(wf.SWAG(), start=1.0), "fraction of the epochs"),
    (lambda: wf.Iterations(wf.SWAG(), every=0), "every must be"),
    (lambda: wf.Iterations(wf.SWAG()).collection(2, 5), "needs at least 2"),
    (lambda: wf.Dropout(1.5), "between 0 and 1"),
    (lambda: wf.Algorithm("adamm", lr=1, batch_size=1), "there are sgd, adam, adamw"),
    (lambda: wf.Algorithm("adam", lr=1, batch_size=1, momentum=0.9), "adam has no setting 'momentum'"),
    (lambda: wf.Algorithm("adam", lr=-1, batch_size=1), "lr must not be negative"),
    (lambda: wf.Algorithm("adam", lr=1, batch_size=0), "batch_size must be"),
    (lambda: wf.Algorithm("sgd", lr=1, batch_size=1, nesterov=True), "nesterov needs a momentum"),
    (lambda: wf.Regression(noise="some"), "noise must be"),
    (lambda: wf.Regression(noise=-1.0), "must be positive"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_makes_no_sense_is_refused_in_words(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_settings_that_cannot_be_used_name_the_draw(problem):
    with pytest.raises(ValueError, match="drawn for h 1 cannot be used: lr must not be negative"):
        wf.marginalise(training(), problem, [wf.Hyperparameters(points=[dict(lr=0.1), dict(lr=-0.1)])])


def test_iterations_are_collected_from_the_start_on_once_an_epoch():
    collection = wf.Iterations(wf.SWAG(), start=0.5).collection(epochs=10, steps_per_epoch=3)
    assert [s for s in range(1, 31) if collection.includes(s)] == [18, 21, 24, 27, 30]
    assert collection.iterations == 5
    every_second = wf.Iterations(wf.SWAG(), start=0.8, every=2).collection(epochs=10, steps_per_epoch=3)
    assert [s for s in range(1, 31) if every_second.includes(s)] == [26, 28, 30]


def test_dropout_needs_dropout(problem):
    from torch import nn

    with pytest.raises(ValueError, match=r"has no nn\.Dropout"):
        wf.marginalise(training(lambda: nn.Linear(4, 1)), problem, [wf.Dropout()])
