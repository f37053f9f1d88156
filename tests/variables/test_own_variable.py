"""A variable of the user's own: all that the library's can, in a slot of theirs or under a name of its own."""

import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import mlp, training
from wherefrom.variables import Design, Drawn


@dataclass(frozen=True)
class Rate(Drawn):
    """A learning rate of some power of ten, under a name of its own."""

    slot: ClassVar[str] = "rate"
    draws: int | None = None
    powers: tuple[float, float] = (-3.0, -1.5)

    def choices(self, seed, draw):
        return {"lr": 10 ** self.generator(seed, draw).uniform(*self.powers)}  # one of numpy's numbers


@dataclass(frozen=True)
class Setting(Drawn):
    """One setting, each of its values once, under its own name."""

    is_finite: ClassVar[bool] = True
    slot: str
    values: tuple[float, ...]
    weights: tuple[float, ...] | None = None

    @property
    def draws(self):
        return len(self.values)

    def choices(self, seed, draw):
        return {self.slot: self.values[draw]}


@dataclass(frozen=True)
class Scaled(Drawn):
    """Initial weights of a random scale, in the place of InitialCondition."""

    slot: ClassVar[str] = "theta0"
    draws: int | None = None

    def choices(self, seed, draw):
        scale = self.generator(seed, draw).uniform(0.5, 1.5)

        def init(network: nn.Module) -> None:
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter.mul_(scale)

        return {"init": init}


def answers(posterior: wf.Posterior, x) -> torch.Tensor:
    return posterior.predict(x, samples=3).answers


def test_it_is_crossed_with_others_and_named_after_them(problem):
    posterior = wf.marginalise(training(), problem, [Rate(3), wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))])
    assert posterior.design.names == ("theta0", "rate", "t")
    assert [component.run.labels for component in posterior.mixture][-1] == {"theta0": 1, "rate": 2}
    rates = posterior.members()["lr"]
    assert rates[:3] == rates[3:]
    assert len(set(rates)) == 3
    sources = posterior.predict(problem[0], samples=20).sources()
    assert {"theta0", "rate", "theta0 x rate", "t"} <= set(sources.names)
    assert posterior.marginalising("rate").design.names == ("rate",)
    assert posterior.select(rate=[0, 2]).draws("rate") == [0, 2]
    assert posterior.draws("rate") == [0, 1, 2]


def test_the_order_of_over_is_irrelevant(problem):
    over = [Rate(2), Setting("weight_decay", (0.0, 0.1)), wf.BatchOrder(2), wf.InitialCondition(2)]
    a, b = (wf.marginalise(training(), problem, each) for each in (over, over[::-1]))
    assert a.design.names == b.design.names == ("theta0", "order", "rate", "weight_decay")
    assert torch.equal(answers(a, problem[0]), answers(b, problem[0]))


def test_it_leaves_the_draws_of_others_as_they_are(problem):
    small = [Rate(2), wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))]
    before = wf.marginalise(training(), problem, small)
    after = wf.marginalise(training(), problem, [*small, Setting("weight_decay", (0.0, 0.1))])
    assert torch.equal(answers(before, problem[0]), answers(after.select(weight_decay=0), problem[0]))


def test_samples_of_its_draws_are_of_their_own(problem):
    """Members that differ in nothing but a draw of it have streams of their own, as those of the library's slots."""
    same = Setting("weight_decay", (0.0, 0.0))
    found = wf.marginalise(training(), problem, [same, wf.Iterations(wf.SWAG(3))])
    assert torch.equal(found.laws()[0].mean, found.laws()[1].mean)
    own = answers(found, problem[0])
    assert not torch.equal(own[0], own[1])


def test_more_draws_are_those_that_had_been_asked_for(problem):
    few = wf.marginalise(training(), problem, [Rate(2), wf.InitialCondition(2)])
    many = wf.marginalise(training(), problem, [Rate(4), wf.InitialCondition(2)])
    assert torch.equal(answers(few.extend(rate=2), problem[0]), answers(many, problem[0]))


def test_it_is_drawn_jointly(problem):
    with pytest.raises(ValueError, match="the same variable twice"):
        wf.Jointly(Rate(), wf.InitialCondition(), Scaled(), draws=3)
    found = wf.marginalise(training(), problem, [wf.Jointly(Rate(), wf.InitialCondition(), draws=3)])
    assert found.design.names == ("theta0+rate",)
    assert len(set(found.members()["lr"])) == 3
    assert len(found.extend(rate=1)) == 4


def test_it_takes_the_place_of_one_of_the_librarys(problem):
    """Initial weights that are scaled are not those that the factory makes, but follow from them."""
    plain, scaled = (
        wf.marginalise(training(epochs=1, algorithm=wf.Algorithm("sgd", lr=0.0, batch_size=90)), problem, [each])
        for each in (wf.InitialCondition(3), Scaled(3))
    )
    ratios = [b.trained.last / a.trained.last for a, b in zip(plain.mixture, scaled.mixture, strict=True)]
    for draw, ratio in enumerate(ratios):
        scale = Scaled().generator(0, draw).uniform(0.5, 1.5)
        torch.testing.assert_close(ratio, torch.full_like(ratio, scale))


def test_all_its_values_with_their_weights(problem):
    found = wf.marginalise(training(), problem, [Setting("lr", (0.01, 0.02, 0.04), (0.5, 0.25, 0.25))])
    assert found.weights == (0.5, 0.25, 0.25)
    with pytest.raises(ValueError, match="already goes through all of its points"):
        found.extend(lr=1)


@pytest.mark.parametrize(
    "over", [[Rate(2)], [Setting("weight_decay", (0.0, 0.3), (0.9, 0.1))]], ids=["drawn", "finite"]
)
def test_files_hold_it_with_its_class_and_without(over, problem, tmp_path):
    x = problem[0]
    posterior = wf.marginalise(training(), problem, [*over, wf.InitialCondition(2)], seed=3)
    posterior.save(tmp_path / "first")
    whole = wf.load(tmp_path / "first", mlp(), data=problem, variables=[Rate, Setting])
    assert whole.design == posterior.design
    bare = wf.load(tmp_path / "first", mlp(), data=problem)
    bare.save(tmp_path / "again")
    for again in (whole, bare, wf.load(tmp_path / "again", mlp(), data=problem, variables=[Rate, Setting])):
        assert repr(again.design) == repr(posterior.design)
        assert again.weights == posterior.weights
        assert str(again.members()) == str(posterior.members())
        assert str(again.predict(x).sources()) == str(posterior.predict(x).sources())
        part, expected = (each.marginalising(over[0].slot) for each in (again, posterior))
        assert torch.equal(answers(part, x), answers(expected, x))
    name = type(over[0]).__name__
    with pytest.raises(ValueError, match=rf"{name} is a class of your own.*variables=\[{name}\]"):
        bare.extend(theta0=1)
    assert torch.equal(answers(whole.extend(theta0=1), x), answers(posterior.extend(theta0=1), x))


def test_an_estimator_with_it_can_be_pickled(problem):
    pytest.importorskip("sklearn")
    x, y = problem
    found = wf.WherefromRegressor([Rate(2)], epochs=4, random_state=0).fit(x, y)
    again = pickle.loads(pickle.dumps(found))
    assert again.posterior_.design.axes == found.posterior_.design.axes
    assert np.array_equal(again.predict(x), found.predict(x))


def own(chosen: object = None, **parts: object) -> Drawn:
    """A variable with these parts."""
    parts = {"slot": "own", "draws": 2} | parts
    there = {name: value for name, value in parts.items() if value is not None}
    made: Drawn = type("Own", (Drawn,), there | {"choices": lambda self, seed, draw: chosen})()
    return made


REFUSED = [
    ([own(slot="a+b")], "the slot of Own is 'a\\+b'"),
    ([own(slot="a x b")], "the slot of Own is 'a x b'"),
    ([own(slot="noise")], "the slot of Own is 'noise'.* none of t, M, noise"),
    ([own(slot=None)], "the slot of Own is None: it is one of F, theta0, gamma, h, order, D"),
    ([own(draws=None)], "give it a field `draws"),
    ([own(draws=1)], "one draw holds no doubt"),
    ([own(is_finite=True, weights=(1.0,))], "1 weights for 2 values"),
    ([own()], "returns a dictionary"),
    ([own({"lr": 0.1}), wf.Hyperparameters(lr=[0.1, 0.2])], "lr is chosen by Own and by another variable"),
    ([own({"init": print})], "Own redraws own, but init belongs to the slot theta0"),
    ([own({"share": 0.5}, slot="h")], "Own redraws h, but share belongs to the slot D"),
    ([own({"family": "wide"}, slot="F")], "give them to wf.Families"),
    ([own({"lr": 0.1}, slot="theta0"), wf.InitialCondition(2)], "theta0 is marginalised twice"),
]


@pytest.mark.parametrize(("over", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_makes_no_sense_is_refused_in_words(over, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Design.of(over).runs(0)


@pytest.mark.parametrize("slot", ["overlap", "entropy", "samples", "members", "others", "noise", "M"])
def test_names_that_mean_something_else_are_refused(slot):
    with pytest.raises(ValueError, match=f"the slot of Setting is '{slot}'"):
        Design.of([Setting(slot, (0.1, 0.2))])


@dataclass(frozen=True)
class Widths(Drawn):
    """In the place of the family."""

    slot: ClassVar[str] = "F"
    draws: int | None = None

    def choices(self, seed, draw):
        return {"lr": 0.01 * (draw + 1)}


def test_beside_a_variable_of_the_family_dropout_is_called_M():
    assert Design.of([Widths(3), wf.Dropout()]).names == ("F", "M")
    assert Design.of([wf.Dropout()]).names == ("F",)
