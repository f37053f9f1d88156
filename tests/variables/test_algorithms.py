"""gamma and h: algorithms as a variable, and every setting as one."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Uniform

import wherefrom as wf
from conftest import training

NEW = np.random.default_rng(3).normal(size=(7, 4))
SGD = wf.Algorithm("sgd", lr=0.02, batch_size=25, momentum=0.8)
ADAM = wf.Algorithm("adam", lr=0.01, batch_size=30)


def test_algorithms_are_trained_as_if_each_were_alone(problem):
    found = wf.marginalise(training(epochs=5), problem, [wf.Algorithms([SGD, ADAM])], seed=2, progress=False)
    assert found.design.names == ("gamma",)
    for place, algorithm in enumerate((SGD, ADAM)):
        alone = wf.marginalise(training(algorithm=algorithm, epochs=5), problem, [], seed=2, progress=False)
        assert found.mixture[place].algorithm == algorithm
        assert torch.allclose(found.mixture[place].trained.last, alone.mixture[0].trained.last, rtol=1e-3, atol=1e-5)
    assert [row[1] for row in found.members().rows] == ["sgd", "adam"]


def test_algorithms_are_mixed_by_weight(problem):
    over = [wf.Algorithms([SGD, ADAM], weights=[1, 4]), wf.InitialCondition(2)]
    found = wf.marginalise(training(epochs=5), problem, over, seed=2, progress=False)
    parts = [found.select(gamma=place).predict(NEW).mean for place in range(2)]
    assert torch.allclose(found.predict(NEW).mean, 0.2 * parts[0] + 0.8 * parts[1])
    assert found.predict(NEW).sources().names == ("theta0", "gamma", "theta0 x gamma")


def test_each_algorithm_draws_its_own_settings(problem, tmp_path):
    spaces = [
        wf.Algorithm("sgd", lr=wf.LogUniform(0.001, 0.05), batch_size=[10, 30], momentum={0.5: 1, 0.9: 3}),
        wf.Algorithm("rmsprop", lr=Uniform(0.001, 0.01), batch_size=25),
    ]
    over = [wf.Algorithms(spaces, weights=[3, 1], draws=6)]
    found = wf.marginalise(training(epochs=3), problem, over, seed=2, progress=False)
    assert found.predict(NEW).sources().names == ("gamma+h",)
    drawn = [component.algorithm for component in found.mixture]
    for algorithm in drawn:
        if algorithm.name == "sgd":
            assert 0.001 <= algorithm.settings["lr"] <= 0.05
            assert algorithm.batch_size in (10, 30)
            assert algorithm.settings["momentum"] in (0.5, 0.9)
        else:
            assert 0.001 <= algorithm.settings["lr"] <= 0.01
            assert algorithm.batch_size == 25
    more = wf.marginalise(
        training(epochs=3), problem, [wf.Algorithms(spaces, weights=[3, 1], draws=8)], seed=2, progress=False
    )
    assert [component.algorithm for component in more.mixture][:6] == drawn
    found.save(tmp_path)
    again = wf.load(tmp_path, model=training().model, data=problem)
    grown = again.extend(gamma=2)
    assert [component.algorithm for component in grown.mixture] == [component.algorithm for component in more.mixture]


def test_algorithms_are_drawn_by_their_weights():
    algorithms = wf.Algorithms([SGD, ADAM], weights=[1, 9], draws=2)
    drawn = [algorithms.choices(5, draw)["algorithm"].name for draw in range(1000)]
    assert abs(drawn.count("adam") / 1000 - 0.9) < 4 * (0.09 / 1000) ** 0.5


def test_settings_beside_algorithms_go_to_those_that_have_them(problem):
    over = [wf.Algorithms([SGD, ADAM]), wf.Hyperparameters(momentum=[0.1, 0.2])]
    found = wf.marginalise(training(epochs=2), problem, over, progress=False)
    assert [c.algorithm.settings.get("momentum") for c in found.mixture] == [0.1, 0.2, None, None]


def test_what_algorithms_cannot_be(problem):
    with pytest.raises(ValueError, match="at least two"):
        wf.Algorithms([SGD])
    spaces = [SGD, wf.Algorithm("adam", lr=Uniform(0.1, 0.2), batch_size=10)]
    with pytest.raises(ValueError, match="say how many draws"):
        wf.marginalise(training(), problem, [wf.Algorithms(spaces)])
    with pytest.raises(ValueError, match="asks for 7 draws but Jointly for 5"):
        wf.Jointly(wf.InitialCondition(), wf.Algorithms(spaces, draws=7), draws=5)
    with pytest.raises(ValueError, match="none of Algorithms"):
        wf.marginalise(training(), problem, [wf.Algorithms([SGD, ADAM]), wf.Hyperparameters(lrr=[0.1, 0.2])])
    for name in ("family", "algorithm", "init", "share"):
        with pytest.raises(ValueError, match="has a separate variable"):
            wf.Hyperparameters(**{name: [0.1, 0.2]})
    with pytest.raises(TypeError, match="fixed schedule"):
        wf.Hyperparameters(2, schedule=wf.schedules.Cosine())
    weighted = wf.Hyperparameters(points=[{"lr": 0.1}, {"lr": 0.2}], weights=[9, 1])
    with pytest.raises(ValueError, match="all equally likely: leave out the weights"):
        wf.Jointly(wf.InitialCondition(), weighted, draws=2)
    with pytest.raises(TypeError, match=r"list of wf\.Algorithm"):
        wf.Algorithms(["sgd", "adam"])
    spaces = wf.Algorithms([SGD, wf.Algorithm("adam", lr=Uniform(0.1, 0.2), batch_size=10)], draws=3)
    with pytest.raises(ValueError, match="draw their own settings"):
        wf.marginalise(training(), problem, [spaces, wf.Hyperparameters(lr=[0.1, 0.2])])
    for unknown in ("momentum", "learning_rate"):
        with pytest.raises(ValueError, match=f"has no setting '{unknown}'"):
            wf.marginalise(training(), problem, [wf.Hyperparameters(**{unknown: [0.1, 0.2]})])


# ---------------------------------------------------------------------- every setting


def test_every_setting_can_be_drawn_within_one_cohort(problem):
    over = [
        wf.Hyperparameters(
            5,
            lr=wf.LogUniform(0.001, 0.03),
            weight_decay=Uniform(0, 0.01),
            beta1=Uniform(0.8, 0.95),
            eps=wf.LogUniform(1e-9, 1e-6),
            clip=[0.5, 1.0],
            dropout=Uniform(0.05, 0.3),
            schedule=[wf.schedules.Cosine(), wf.schedules.Linear(final=0.2)],
            schedule__final=[0.0, 0.1],
            replacement=[False, True],
        )
    ]
    found = wf.marginalise(training(epochs=4), problem, over, seed=3, progress=False)
    table = found.members()
    assert len({row[table.columns.index("lr")] for row in table.rows}) == 5
    for place in range(5):
        component = found.mixture[place]
        alone = wf.marginalise(
            training(algorithm=component.algorithm, epochs=4),
            problem,
            [wf.Hyperparameters(points=[{"dropout": component.run.choices["dropout"]}] * 2)],
            seed=3,
            progress=False,
        )
        assert torch.allclose(component.trained.last, alone.mixture[0].trained.last, rtol=1e-3, atol=1e-5)


def test_a_setting_can_depend_on_another(problem):
    momentum = lambda h: Uniform(0.5, 0.9) if h["lr"] < 0.02 else None  # noqa: E731
    over = [wf.Hyperparameters(8, lr=Uniform(0.001, 0.04), momentum=momentum)]
    found = wf.marginalise(training(algorithm=SGD, epochs=2), problem, over, seed=1, progress=False)
    for component in found.mixture:
        settings = component.algorithm.settings
        assert (0.5 <= settings["momentum"] <= 0.9) == ("momentum" in component.run.choices) or settings[
            "momentum"
        ] == 0.8
        assert ("momentum" in component.run.choices) == (settings["lr"] < 0.02)


def test_lists_can_be_weighted():
    weighted = wf.Hyperparameters(2, lr={0.1: 1, 0.2: 9})
    drawn = [weighted.choices(0, draw)["lr"] for draw in range(1000)]
    assert abs(drawn.count(0.2) / 1000 - 0.9) < 4 * (0.09 / 1000) ** 0.5
    grid = wf.Hyperparameters(lr={0.1: 1, 0.2: 3}, batch_size=[10, 20])
    assert grid.weights == (0.125, 0.125, 0.375, 0.375)
    assert wf.Hyperparameters(lr=[0.1, 0.2]).weights is None
    assert wf.Hyperparameters(points=[{"lr": 0.1}, {"lr": 0.2}], weights=[1, 3]).weights == (0.25, 0.75)


def test_a_weighted_grid_mixes_by_weight(problem):
    found = wf.marginalise(
        training(epochs=4), problem, [wf.Hyperparameters(lr={0.001: 1, 0.02: 3})], seed=1, progress=False
    )
    parts = [found.select(h=place).predict(NEW).mean for place in range(2)]
    assert torch.allclose(found.predict(NEW).mean, 0.25 * parts[0] + 0.75 * parts[1])


def test_log_uniform():
    with pytest.raises(ValueError, match="0 < low < high"):
        wf.LogUniform(0.1, 0.01)
    torch.manual_seed(0)
    drawn = wf.LogUniform(1e-4, 1e-1).sample((4000,))
    assert drawn.min() >= 1e-4
    assert drawn.max() <= 0.1
    logs = drawn.log10()
    assert abs(float(logs.mean()) + 2.5) < 4 * float(logs.std()) / 4000**0.5


def test_drawn_settings_come_back_from_a_file(problem, tmp_path):
    over = [
        wf.Hyperparameters(
            2, lr=wf.LogUniform(0.001, 0.03), schedule=[wf.schedules.Cosine()], clip={1.0: 1, math.inf: 2}
        )
    ]
    found = wf.marginalise(training(epochs=2), problem, over, seed=3, progress=False)
    found.save(tmp_path)
    again = wf.load(tmp_path, model=training().model, data=problem)
    assert [c.algorithm for c in again.mixture] == [c.algorithm for c in found.mixture]
    assert again.members().rows == found.members().rows
    more = wf.marginalise(training(epochs=2), problem, [replaced(over[0], 4)], seed=3, progress=False)
    grown = again.extend(h=2)
    assert [c.algorithm for c in grown.mixture] == [c.algorithm for c in more.mixture]


def replaced(variable: wf.Hyperparameters, draws: int) -> wf.Hyperparameters:
    return wf.Hyperparameters(draws, **variable.settings)


def test_lists_drawn_jointly_are_drawn_again_after_a_reload(problem, tmp_path):
    found = wf.marginalise(
        training(epochs=2), problem, wf.recipes.hyper_ensemble(3, lr=[0.001, 0.01, 0.02, 0.03]), seed=3, progress=False
    )
    found.save(tmp_path)
    again = wf.load(tmp_path, model=training().model, data=problem).extend(theta0=2)
    direct = found.extend(theta0=2)
    assert [c.algorithm for c in again.mixture] == [c.algorithm for c in direct.mixture]


def test_drawn_algorithms_show_their_settings(problem, tmp_path):
    spaces = [wf.Algorithm("sgd", lr=Uniform(0.001, 0.01), batch_size=[10, 20]), ADAM]
    joint = wf.Jointly(wf.InitialCondition(), wf.Algorithms(spaces), draws=4)
    found = wf.marginalise(training(epochs=2), problem, [joint], seed=3, progress=False)
    assert found.design.names == ("theta0+gamma+h",)
    table = found.members()
    assert table.columns[1:4] == ("algorithm", "lr", "batch_size")
    assert [row[2] for row in table.rows] == [c.algorithm.settings["lr"] for c in found.mixture]
    found.save(tmp_path)
    assert wf.load(tmp_path, model=training().model).members().rows == table.rows


def test_numbers_of_numpy_are_taken_as_pythons(problem, tmp_path):
    over = [wf.Hyperparameters(2, batch_size={np.int64(10): 1, np.int64(20): 1})]
    wf.marginalise(training(epochs=2), problem, over, progress=False).save(tmp_path)


@pytest.mark.parametrize("how", [{"draws": 3, "epochs": [5, 10]}, {"points": [{"epochs": 5}, {"epochs": 10}]}])
def test_epochs_are_no_setting_of_the_algorithm(how):
    with pytest.raises(ValueError, match="epochs are not a setting of the algorithm"):
        wf.Hyperparameters(**how)
