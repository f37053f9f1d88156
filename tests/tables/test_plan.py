"""The words of the command line, as variables of training."""

import pytest

import wherefrom as wf
from wherefrom import recipes
from wherefrom.tables.plan import Settings, collecting, training_for, variables, with_draws
from wherefrom.tables.target import Target
from wherefrom.variables import Design

QUANTITY = Target("y", "regression")


def names(over):
    return Design.of(over).names


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("theta0=5,t=swag,F=dropout", ("theta0", "t", "F")),
        (" theta0 = 2 , order=3", ("theta0", "order")),
        ("theta0+order=4", ("theta0+order",)),
        ("h=3,D=2", ("h", "D")),
        ("theta0+h+order=3,t=tradi", ("theta0+h+order", "t")),
        ("t=snapshots:5,F=dropout:0.2", ("t", "F")),
    ],
)
def test_over_names_the_choices(written, expected):
    assert names(variables(written, None, None, lr=0.01)) == expected


@pytest.mark.parametrize("written", ["theta0", "theta0=swag", "t=5", "t=adam", "F=5", "x=2", "theta0=-1"])
def test_what_over_does_not_know_is_answered_by_what_it_does(written):
    with pytest.raises(ValueError, match=r"over= does not know .*theta0=5, order=5"):
        variables(written, None, None, lr=0.01)


def test_one_draw_is_no_doubt():
    with pytest.raises(ValueError, match=r"one draw holds no doubt"):
        variables("theta0=1", None, None, lr=0.01)


def test_every_recipe_can_be_named():
    for name in recipes.BY_NAME:
        is_drawn, _ = recipes.parameters(name)
        over = variables(None, name, 3 if is_drawn else None, lr=0.01)
        assert Design.of(over).size == (3 if is_drawn else 1)
    assert names(variables(None, None, None, lr=0.01)) == ("theta0+order", "t")
    assert names(variables(None, "multi-swag", 2, lr=0.01)) == ("theta0+order", "t")
    with pytest.raises(ValueError, match=r"there is no recipe 'magic'; there are one_network"):
        variables(None, "magic", None, lr=0.01)
    with pytest.raises(ValueError, match=r"leave draws= out"):
        variables(None, "swag", 3, lr=0.01)
    with pytest.raises(ValueError, match=r"over='theta0=2' says all"):
        variables("theta0=2", "swag", None, lr=0.01)


def test_noise_is_a_word_or_a_number():
    words = ("fit", "predicted", "none", "0.5", "auto")
    made = [training_for(500, QUANTITY, Settings(noise=word)).likelihood.noise for word in words]
    assert made == ["fit", "predicted", None, 0.5, "fit"]
    with pytest.raises(ValueError, match=r"noise= is auto, fit, predicted, none"):
        Settings(noise="loud")


@pytest.mark.parametrize("rows", [20, 90, 500, 5_000, 50_000, 5_000_000])
def test_a_training_suits_the_rows(rows):
    training = training_for(rows, QUANTITY, Settings())
    assert 1 <= training.algorithm.batch_size <= 256
    assert 2 <= round(rows * training.likelihood.held_out) <= 1000
    assert training.algorithm.batch_size <= rows // 4


def test_what_the_user_says_is_done():
    training = training_for(500, QUANTITY, Settings((7, 6), 0.0, 0.1, 11, "predicted"))
    assert training.model == wf.MLP([7, 6])
    assert training.algorithm.batch_size == 11
    assert training.likelihood.noise == "predicted"
    classes = training_for(500, Target("y", "classification", ("a", "b")), Settings())
    assert classes.likelihood.classes == ("a", "b")


def test_short_trainings_are_collected_more_than_once_an_epoch():
    over = collecting(variables(None, None, None, lr=0.01), epochs=10, steps_per_epoch=100)
    assert over[-1].every == 20
    assert over[-1].collection(10, 100).iterations == 25
    assert collecting(over, 10, 100) == over
    long = collecting(variables(None, None, None, lr=0.01), epochs=100, steps_per_epoch=3)
    assert long[-1].every is None


def test_the_number_of_draws_can_be_changed_where_there_is_one():
    for written in ("theta0=2", "theta0+order=2,t=swag", "h=2", "D=2,F=dropout"):
        assert Design.of(with_draws(variables(written, None, None, lr=0.01), 6)).size == 6
    assert with_draws(variables("theta0=2,order=2", None, None, lr=0.01), 6) is None
    assert with_draws(variables(None, "swag", None, lr=0.01), 6) is None
