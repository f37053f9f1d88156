"""The algorithm as a value: its settings, what is refused, what is shown, changed, compared and stored."""

import math

import pytest
import torch
from torch.distributions import Uniform

import wherefrom as wf
from conftest import mlp
from reloaded import reloaded
from wherefrom.posterior.point import SETTINGS
from wherefrom.training import schedules
from wherefrom.training.optimisers import OPTIMISERS

ADAM = wf.Algorithm("adam", lr=0.01, batch_size=100)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_defaults_are_torchs(name):
    settings = wf.Algorithm(name, lr=0.1, batch_size=10).settings
    assert settings == {"lr": 0.1} | OPTIMISERS[name].defaults
    assert all(type(value) is float for value in settings.values())
    kind = {n.lower(): getattr(torch.optim, n) for n in dir(torch.optim)}.get(name)
    if kind is not None:
        theirs = dict(kind([torch.nn.Parameter(torch.zeros(2))], lr=0.1).defaults)
        if "betas" in theirs:
            theirs["beta1"], theirs["beta2"] = theirs.pop("betas")
        assert settings == {setting: theirs[setting] for setting in settings}


def test_what_can_be_drawn():
    common = {"lr", "batch_size", "clip", "replacement", "drop_last", "schedule"}
    assert set(SETTINGS) == common | {name for optimiser in OPTIMISERS.values() for name in optimiser.defaults}
    assert len(set(SETTINGS)) == len(SETTINGS)


VALUES = [
    (dict(lr=-1), "lr must not be negative; it is -1"),
    (dict(lr=math.nan), "lr must be a finite number; it is nan"),
    (dict(lr=math.inf), "lr must be a finite number"),
    (dict(batch_size=0), "batch_size must be a whole number of rows, at least 1; it is 0"),
    (dict(batch_size=1.5), "batch_size must be a whole number of rows"),
    (dict(batch_size="many"), "batch_size must be a whole number of rows"),
    (
        dict(momentum=0.9),
        "adam has no setting 'momentum'; it has lr, batch_size, clip, replacement, drop_last, schedule, weight_decay",
    ),
    (dict(beta1=1.0), r"beta1 must lie in \[0, 1\); it is 1.0"),
    (dict(betas=(0.9, -0.1)), r"beta2 must lie in \[0, 1\); it is -0.1"),
    (dict(betas=(0.9, 0.99), beta1=0.5), "give either betas, or beta1 and beta2"),
    (dict(betas=0.9), "betas must be two numbers, not 0.9"),
    (dict(eps=-1e-8), "eps must not be negative"),
    (dict(weight_decay=math.inf), "weight_decay must be a finite number"),
    (dict(amsgrad=0.5), "amsgrad must be True or False; it is 0.5"),
    (dict(clip=0), "clip, the largest norm of the gradient, must be above zero; it is 0"),
    (dict(clip=-1.0), "clip, the largest norm of the gradient, must be above zero"),
    (dict(clip=math.nan), "clip, the largest norm of the gradient, must be above zero"),
]


@pytest.mark.parametrize(("given", "reason"), VALUES)
def test_values_are_checked(given, reason):
    with pytest.raises(ValueError, match=reason):
        wf.Algorithm("adam", **{"lr": 0.1, "batch_size": 10} | given)
    with pytest.raises(ValueError, match=reason):
        ADAM.but(**given)


OTHERS = [
    ("sgd", dict(nesterov=True), "nesterov needs a momentum above zero"),
    ("sgd", dict(nesterov=True, momentum=0.9, dampening=0.1), "and no dampening"),
    ("sgd", dict(momentum=-0.1), "momentum must not be negative"),
    ("rmsprop", dict(alpha=1.0), r"alpha must lie in \[0, 1\)"),
    ("adadelta", dict(rho=1.1), r"rho must lie in \[0, 1\]"),
    ("adagrad", dict(lr_decay=-1), "lr_decay must not be negative"),
    ("nadam", dict(momentum_decay=-1), "momentum_decay must not be negative"),
    ("gradient descent", {}, "unknown algorithm 'gradient descent'; there are sgd, adam, .*sghmc, and every class"),
]


@pytest.mark.parametrize(("name", "given", "reason"), OTHERS)
def test_values_of_other_optimisers_are_checked(name, given, reason):
    with pytest.raises(ValueError, match=reason):
        wf.Algorithm(name, lr=0.1, batch_size=10, **given)


def test_values_that_are_no_numbers():
    for given in (dict(lr="0.1"), dict(lr=None), dict(eps=object())):
        with pytest.raises(TypeError, match=f"{next(iter(given))} must be a number, not .*wf.Hyperparameters"):
            wf.Algorithm("adam", **{"lr": 0.1, "batch_size": 10} | given)
    with pytest.raises(TypeError, match="replacement must be True or False, not 'yes'"):
        wf.Algorithm("adam", lr=0.1, batch_size=10, replacement="yes")


SHOWN = [
    (ADAM, "Algorithm('adam', lr=0.01, batch_size=100)"),
    (ADAM.but(clip=1, replacement=True), "Algorithm('adam', lr=0.01, batch_size=100, clip=1, replacement=True)"),
    (
        wf.Algorithm("SGD", lr=0.1, batch_size=1, momentum=0.9, nesterov=True, schedule=schedules.Ramp(0.2)),
        "Algorithm('sgd', lr=0.1, batch_size=1, momentum=0.9, nesterov=1, "
        "schedule=Ramp(final=0.2, start=0.5, end=0.9))",
    ),
    (
        wf.Algorithm(torch.optim.Rprop, lr=0.1, batch_size=1, etas=(0.4, 1.1)),
        "Algorithm(torch.optim.Rprop, lr=0.1, batch_size=1, etas=(0.4, 1.1))",
    ),
]


@pytest.mark.parametrize(("algorithm", "text"), SHOWN)
def test_what_was_given_is_shown(algorithm, text):
    assert repr(algorithm) == text


def test_changes():
    changed = ADAM.but(lr=0.1, batch_size=5, betas=(0.5, 0.6), clip=2.0, replacement=True, schedule=schedules.Cosine())
    assert (changed.settings["beta1"], changed.settings["beta2"], changed.settings["clip"]) == (0.5, 0.6, 2.0)
    assert (changed.settings["lr"], changed.batch_size, changed.replacement) == (0.1, 5, True)
    assert changed.but(schedule__final=0.1).schedule == schedules.Cosine(0.1)
    assert changed.but(schedule=schedules.Warmup(), schedule__then__final=0.3).schedule.then == schedules.Cosine(0.3)
    back = changed.but(lr=0.01, batch_size=100, betas=(0.9, 0.999), clip=math.inf, replacement=False, schedule=None)
    assert back == ADAM
    assert "clip" not in back.settings
    with pytest.raises(ValueError, match="there is no schedule of which schedule__final could be changed"):
        ADAM.but(schedule__final=0.1)
    with pytest.raises(ValueError, match="has no field 'slope'"):
        changed.but(schedule__slope=0.1)


def test_values_are_found_by_the_names_that_change_them():
    algorithm = ADAM.but(schedule=schedules.Warmup(0.2), replacement=True)
    names = ("lr", "batch_size", "clip", "replacement", "eps", "schedule__share", "schedule__then__final", "momentum")
    assert [algorithm.get(name) for name in names] == [0.01, 100, math.inf, True, 1e-8, 0.2, 0.0, None]
    assert [algorithm.has(name) for name in names] == [True] * 7 + [False]
    assert ADAM.but(clip=3.0).get("clip") == 3.0
    assert not ADAM.has("schedule__share")
    for name in SETTINGS:
        assert algorithm.has(name) == (algorithm.get(name) is not None)


def test_equality_and_hash():
    again = wf.Algorithm("Adam", lr=0.01, batch_size=100, betas=(0.9, 0.999), clip=math.inf)
    assert again == ADAM
    assert hash(again) == hash(ADAM)
    for change in (
        dict(lr=0.02),
        dict(batch_size=10),
        dict(clip=1.0),
        dict(replacement=True),
        dict(schedule=schedules.Cosine()),
    ):
        assert ADAM.but(**change) != ADAM
    assert ADAM.but(schedule=schedules.Cosine()) == ADAM.but(schedule=schedules.Cosine(final=0.0))
    assert wf.Algorithm(torch.optim.Adam, lr=0.01, batch_size=100) != ADAM


STORED = [
    *(wf.Algorithm(name, lr=0.1, batch_size=10) for name in OPTIMISERS),
    ADAM.but(clip=1.0, replacement=True, schedule=schedules.Warmup(0.1, schedules.Step((0.2, 0.3)))),
]


@pytest.mark.parametrize("algorithm", STORED, ids=repr)
def test_it_comes_back_from_a_file(algorithm):
    assert reloaded(algorithm) == algorithm


# ---------------------------------------------------------------------- settings that are yet to be drawn


def test_random_settings_wait_to_be_drawn():
    rate = Uniform(0.01, 0.1)
    algorithm = wf.Algorithm("sgd", lr=rate, batch_size=[10, 20], momentum=0.9, clip=lambda drawn: 10 * drawn["lr"])
    assert list(algorithm.random) == ["lr", "clip", "batch_size"]
    assert algorithm.random["lr"] is rate
    assert algorithm.settings["momentum"] == 0.9
    assert repr(algorithm).startswith("Algorithm('sgd', lr=Uniform(low: ")
    drawn = algorithm.but(lr=0.05, batch_size=20, clip=0.5)
    assert drawn.random == {}
    assert drawn == wf.Algorithm("sgd", lr=0.05, batch_size=20, momentum=0.9, clip=0.5)
    own = wf.Algorithm(torch.optim.Rprop, lr=rate, batch_size=[5, 10], etas=[0.4, 1.1])
    assert own.random == {"lr": rate, "batch_size": [5, 10]}
    assert own.structure.fixed == {"etas": [0.4, 1.1]}
    wf.Algorithm("sgd", lr=0.1, batch_size=5, momentum=[0.5, 0.9], nesterov=True)
    with pytest.raises(ValueError, match="lr must not be negative"):
        algorithm.but(lr=-0.1)
    again = reloaded(algorithm)
    assert (again.random["batch_size"], float(again.random["lr"].low)) == ([10, 20], pytest.approx(0.01))
    with pytest.raises(ValueError, match="cannot be stored in a file"):
        again.random["clip"]({"lr": 0.1})
    with pytest.raises(ValueError, match=r"this algorithm's lr, clip, batch_size is yet to be drawn.*Hyperparameters"):
        wf.Training(model=mlp(), algorithm=algorithm, epochs=1)


def test_a_training_needs_an_algorithm():
    with pytest.raises(TypeError, match=r"algorithm must be wf.Algorithm\(...\), not 'adam'"):
        wf.Training(model=mlp(), algorithm="adam", epochs=1)
