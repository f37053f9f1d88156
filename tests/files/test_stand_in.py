"""Code that files do not hold: what stands for it says what is missing and how to give it again."""

import copy
import pickle
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

import wherefrom as wf
from reloaded import reloaded
from wherefrom.files.stand_in import Code, NotStoredError, StandIn, own_class
from wherefrom.laws import Points
from wherefrom.training import augmentation, schedules
from wherefrom.training.cohort import Trained
from wherefrom.variables import Axis, Drawn


def falling(progress):
    return 1 - progress


class Spectral(torch.optim.SGD):
    pass


@dataclass(frozen=True)
class Latest:
    every: ClassVar[str] = "epoch"
    fewest: ClassVar[int] = 2
    factor: torch.Tensor | float = 1.0

    def collector(self, theta, iterations):
        return None


class Box(Points):
    pass


@dataclass(frozen=True)
class Rate(Drawn):
    slot: ClassVar[str] = "rate"
    draws: int | None = None

    def choices(self, seed, draw):
        return {"lr": 0.1}


def build() -> nn.Module:
    return nn.Linear(3, 1)


HYPER = wf.Hyperparameters(2, lr=[0.1, 0.2], clip=falling)
ADAM = wf.Algorithm("adam", lr=0.01, batch_size=10)

# What was written, the stand-in in it, what calls the code, and the words of the error.
CASES = {
    "a schedule": (ADAM.but(schedule=falling), lambda own: own.schedule, lambda own: own(0.5), "those of wf.schedules"),
    "a part of one": (
        schedules.Warmup(0.1, falling),
        lambda own: own.then,
        lambda own: schedules.factors(schedules.Warmup(0.1, own), [0.1, 0.5]),
        "those of wf.schedules",
    ),
    "an augmentation": (
        augmentation.Compose([falling]),
        lambda own: own.steps[0],
        lambda own: own(torch.zeros(1), None),
        r"the augmentation falling is code.*wf\.load\(augment=\.\.\.\)",
    ),
    "an init": (
        wf.InitialCondition(2, init=falling),
        lambda own: own.init,
        lambda own: own(build()),
        "in the model factory",
    ),
    "a model": (wf.Training(build, ADAM, 1), lambda own: own.model, lambda own: own(), "give the model factory"),
    "families": (
        wf.Families({"a": build, "b": wf.MLP()}),
        lambda own: own.factories["a"],
        lambda own: own(),
        "give the model factory build",
    ),
    "a space": (HYPER, lambda own: own.settings["clip"], lambda own: own({}), "a loaded posterior cannot draw from it"),
    "an optimiser": (
        wf.Algorithm(Spectral, lr=0.1, batch_size=1),
        lambda own: own.structure.kind,
        lambda own: own([]),
        r"Spectral is code.* wf\.load\(\.\.\., optimisers=",
    ),
    "its argument": (
        wf.Algorithm(torch.optim.SGD, lr=0.1, batch_size=1, foreach=falling),
        lambda own: own.structure.fixed["foreach"],
        lambda own: own(),
        "cannot be stored in a file",
    ),
    "a law of trajectories": (
        wf.Iterations(Latest(torch.ones(2))),
        lambda own: own.law,
        lambda own: own.collector(torch.zeros(1, 1), 3),
        r"Latest is a class of your own.*laws=\[Latest\]\)",
    ),
    "a law": (
        Trained(torch.zeros(2), Box(torch.zeros(1, 2)), [0.0], None, 0.0, "torch"),
        lambda own: own.law,
        lambda own: own.sample(3, None),
        r"Box is a class of your own.*laws=\[Box\]\)",
    ),
    "a variable": (
        Axis("rate", (Rate(3),), 3),
        lambda own: own.variables[0],
        lambda own: own.choices(0, 1),
        r"Rate is a class of your own.*variables=\[Rate\]\)",
    ),
}
GIVEN = {"laws": [Latest, Box], "variables": [Rate], "optimisers": [Spectral]}


@pytest.mark.parametrize(("value", "part", "call", "words"), CASES.values(), ids=CASES)
def test_what_is_missing_is_said_when_it_is_needed(value, part, call, words):
    for again in (reloaded(value), reloaded(reloaded(value))):
        stand_in = part(again)
        assert isinstance(stand_in, StandIn)
        assert repr(again) == repr(value)
        with pytest.raises(NotStoredError, match=words):
            call(stand_in)
        for twin in (copy.deepcopy(stand_in), pickle.loads(pickle.dumps(stand_in))):
            assert twin == stand_in


@pytest.mark.parametrize("name", ["an optimiser", "a law of trajectories", "a law", "a variable"])
def test_a_class_that_is_given_again_takes_its_place(name):
    value, part, *_ = CASES[name]
    for again in (reloaded(value, **GIVEN), reloaded(reloaded(value), **GIVEN)):
        assert type(part(again)) is type(part(value))
    assert isinstance(part(reloaded(value, **{key: [dict] for key in GIVEN})), StandIn)


def test_it_has_what_is_known_of_a_variable_and_nothing_else():
    variable = reloaded(Axis("rate", (Rate(3),), 3)).variables[0]
    assert (variable.slot, variable.is_finite, variable.weights) == ("rate", False, None)
    with pytest.raises(AttributeError, match="has no attribute 'names'"):
        _ = variable.names


def test_a_law_says_it_of_its_properties_too():
    law = reloaded(wf.Iterations(Latest())).law
    for name in ("every", "fewest"):
        with pytest.raises(NotStoredError, match="Latest is a class of your own"):
            getattr(law, name)


def test_what_a_class_is_made_of_must_be_storable_to_be_made_again():
    value = wf.Iterations(Latest(factor=object()))
    with pytest.raises(NotStoredError, match=r"Latest\(factor=<object.*cannot be made again from a file"):
        _ = reloaded(value, laws=[Latest]).law.fewest


def test_a_class_that_has_changed_is_named():
    other = dataclass(type("Latest", (), {"__annotations__": {"width": float}}))
    with pytest.raises(ValueError, match=r"law: Latest is not the class that was saved: .*factor"):
        reloaded(wf.Iterations(Latest()), laws=[other])


def test_sentences_name_the_code():
    assert Code("{name}, {it}").explained("module.Own", "Own(3)") == "Own, Own(3)"
    assert "laws=[Own])" in own_class("laws").explained("Own", "Own(3)")
