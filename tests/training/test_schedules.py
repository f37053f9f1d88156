"""Schedules by their formulas and at their edges; functions of anybody's; what comes back from a file."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import oracle
import wherefrom as wf
from conftest import mlp
from reloaded import reloaded
from wherefrom.files.stand_in import NotStoredError, StandIn
from wherefrom.training import schedules
from wherefrom.training.cohort import Examples
from wherefrom.training.schedules import (
    Constant,
    ConstantFrom,
    Cosine,
    Cyclical,
    Linear,
    Ramp,
    Step,
    Warmup,
    changed,
    factors,
)

ON_BOTH_ENGINES = True
PROGRESS = np.arange(100) / 100


def at(schedule, *moments: float) -> list[float]:
    return factors(schedule, np.array(moments)).tolist()


def test_formulas():
    assert at(Constant(), 0, 0.99) == [1, 1]
    assert at(Step((0.5, 0.75), 0.1), 0, 0.499, 0.5, 0.75, 0.9) == pytest.approx([1, 1, 0.1, 0.01, 0.01])
    assert at(Step(0.3, 0.5), 0.2, 0.3) == [1, 0.5]
    assert at(Linear(0.2), 0, 0.5) == pytest.approx([1, 0.6])
    assert at(Cosine(0.2), 0, 0.5, 1) == pytest.approx([1, 0.6, 0.2])
    assert at(Cosine(), 1 / 3) == pytest.approx([0.75])
    assert at(Cyclical(3, 0.1), 0, 1 / 6, 1 / 3, 0.5, 2 / 3) == pytest.approx([1, 0.55, 1, 0.55, 1])
    assert at(Warmup(0.2, Linear(), initial=0.5), 0, 0.1, 0.2, 0.6) == pytest.approx([0.5, 0.75, 1, 0.5])
    assert at(ConstantFrom(0.5, 0.3, Cosine()), 0, 0.25, 0.4999999, 0.5, 0.9) == pytest.approx([1, 0.5, 0, 0.3, 0.3])
    assert at(ConstantFrom(0.0, 0.3), 0, 0.5) == [0.3, 0.3]
    assert at(Warmup(0.0, Linear()), 0, 0.5) == [1, 0.5]
    assert at(Warmup(1.0), 0, 0.5) == [0, 0.5]


def test_the_papers_schedule_for_cifar():
    """alpha_u until half of the epochs, the continuous line until 90% of them, then alpha_l."""
    upper, lower, epochs = 0.05, 0.01, 300
    epoch = np.arange(epochs)
    line = upper + (lower - upper) * (epoch - 0.5 * epochs) / (0.4 * epochs)
    expected = np.where(epoch < 0.5 * epochs, upper, np.where(epoch > 0.9 * epochs, lower, line))
    np.testing.assert_allclose(upper * Ramp(final=lower / upper)(epoch / epochs), expected)
    assert np.abs(np.diff(expected)).max() < 0.001, "it is continuous"
    assert at(Ramp(0.1, start=0.5, end=0.5), 0.49, 0.5) == [1, 0.1]


@pytest.mark.parametrize("schedule", [kind() for kind in schedules.SCHEDULES.values()], ids=repr)
def test_every_schedule_is_a_value(schedule):
    """One number at a time or all together, compared by what it is, and the same from a file."""
    whole = factors(schedule, PROGRESS)
    assert whole.shape == PROGRESS.shape
    np.testing.assert_allclose(whole, [float(schedule(p)) for p in PROGRESS], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(whole, np.concatenate([factors(schedule, p) for p in np.split(PROGRESS, [1, 2, 40])]))
    assert schedule == type(schedule)()
    assert hash(schedule) == hash(type(schedule)())
    again = reloaded(schedule)
    assert again == schedule
    assert type(again) is type(schedule)
    for field in dataclasses.fields(schedule):
        assert wf.Algorithm("sgd", lr=1, batch_size=1, schedule=schedule).has(f"schedule__{field.name}")


def test_nested_schedules_come_back():
    nested = Warmup(0.05, ConstantFrom(0.6, 0.2, before=Step((0.1, 0.2), 0.5)))
    assert reloaded(nested) == nested


FUNCTIONS = {
    "of arrays": (lambda p: 1 - p, 1 - PROGRESS),
    "of one number": (lambda p: 1.0 if p < 0.5 else 0.1, np.where(PROGRESS < 0.5, 1.0, 0.1)),
    "of math": (lambda p: math.cos(p), np.cos(PROGRESS)),
    "of python": (lambda p: max(0.2, 1 - p), np.maximum(0.2, 1 - PROGRESS)),
    "a constant": (lambda p: 0.5, np.full(100, 0.5)),
    "whole numbers": (lambda p: 1, np.ones(100)),
    "a list": (lambda p: [1 - one for one in p], 1 - PROGRESS),
    "torch": (lambda p: torch.as_tensor(p) / 2, PROGRESS / 2),
    "single precision": (lambda p: np.float32(1) - np.asarray(p, dtype=np.float32), 1 - PROGRESS),
}


@pytest.mark.parametrize(("function", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_any_function_is_a_schedule(function, expected):
    np.testing.assert_allclose(factors(function, PROGRESS), expected, rtol=0, atol=1e-6)
    for k in (0, 50, 99):  # one step alone is the same
        np.testing.assert_allclose(factors(function, PROGRESS[k : k + 1]), expected[k : k + 1], rtol=0, atol=1e-6)
    wf.Algorithm("sgd", lr=0.1, batch_size=1, schedule=function)


WRONG = [
    (lambda p: 1 - 2 * p, "finite and not negative; at progress 0.52 it gives -0.04"),
    (lambda p: np.log(1 - p) * 0 + math.nan, "at progress 0 it gives nan"),
    (lambda p: p[:3], r"for 50 moments of progress it returned an array of shape \(3,\)"),
    (lambda p: np.stack([p, p]), r"array of shape \(2, 50\)"),
    (lambda p: "fast", "gives no factor of the learning rate"),
    (lambda p: None, "it gives nan|gives no factor"),
    (lambda epoch, step: 1.0, "gives no factor of the learning rate: .*missing 1 required"),
]


@pytest.mark.parametrize(("function", "reason"), WRONG)
def test_functions_that_are_none_are_refused(function, reason):
    with pytest.raises(ValueError, match=reason):
        wf.Algorithm("sgd", lr=0.1, batch_size=1, schedule=function)


def test_what_is_no_function_at_all():
    with pytest.raises(TypeError, match=r"did you mean Cosine\(\)"):
        wf.Algorithm("sgd", lr=0.1, batch_size=1, schedule=Cosine)
    with pytest.raises(TypeError, match="schedule must be a function of progress"):
        wf.Algorithm("sgd", lr=0.1, batch_size=1, schedule="cosine")
    with pytest.raises(TypeError, match=r"then must be a schedule such as Cosine\(\)"):
        Warmup(then=Cosine)


FIELDS = [
    (lambda: Cosine(final=-0.1), "Cosine: final must be finite and not negative; it is -0.1"),
    (lambda: Linear(final=math.nan), "Linear: final must be finite"),
    (lambda: Step(at=(0.5, 1.5)), "Step: at must lie between 0 and 1; it is 1.5"),
    (lambda: Warmup(share=2), "Warmup: share must lie between 0 and 1"),
    (lambda: Cyclical(cycles=0), "Cyclical: cycles must be a whole number, at least 1"),
    (lambda: Cyclical(cycles=1.5), "Cyclical: cycles must be a whole number"),
    (lambda: Cyclical(low=2.0), "Cyclical: low must lie between 0 and 1"),
    (lambda: Ramp(start=0.9, end=0.5), "start must not come after end"),
    (lambda: ConstantFrom(start=-1), "ConstantFrom: start must lie between 0 and 1"),
]


@pytest.mark.parametrize(("make", "reason"), FIELDS)
def test_fields_are_checked(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


def test_fields_that_are_no_numbers():
    with pytest.raises(TypeError, match="Cosine: final must be a number, not 'low'"):
        Cosine(final="low")


def test_fields_can_be_replaced():
    schedule = Warmup(0.1, Cosine(0.2))
    assert changed(schedule, "share", 0.3) == Warmup(0.3, Cosine(0.2))
    assert changed(schedule, "then__final", 0.5) == Warmup(0.1, Cosine(0.5))
    assert changed(schedule, "then", Linear()) == Warmup(0.1, Linear())
    assert schedules.get(schedule, "then__final") == 0.2
    assert schedules.get(schedule, "then__slope") is None
    with pytest.raises(ValueError, match=r"the schedule Cosine\(final=0.2\) has no field 'end'; it has final"):
        changed(schedule, "then__end", 0.5)
    with pytest.raises(ValueError, match="there is nothing in it to change"):
        changed(lambda p: p, "final", 0.5)
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        changed(schedule, "share", 3)


def test_a_function_of_somebodys_is_not_stored():
    def falling(p):
        return 1 - p

    for own in (falling, Warmup(0.1, falling)):
        again = reloaded(own, schedules.NOT_STORED)
        assert repr(again) == repr(own)
        algorithm = wf.Algorithm("sgd", lr=0.1, batch_size=20, schedule=again)  # it can be shown
        assert algorithm.but(lr=0.2).schedule == again
        with pytest.raises(NotStoredError, match=r"falling.* is code, which is not stored"):
            factors(again, PROGRESS)


def test_subclasses_are_somebodys_own():
    class Cosine(schedules.Cosine):
        pass

    assert isinstance(reloaded(Cosine(), schedules.NOT_STORED), StandIn)


def test_each_member_follows_its_own(engine):
    """In training, against a loop by hand: the learning rate of every step."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(90, 4, generator=generator)
    examples = Examples(x, torch.tanh(x[:, :1]))
    own = [Warmup(0.2, Cosine(0.1)), Cyclical(3, 0.1), None, Ramp(0.1), ConstantFrom(0.5, 0.2), Step(0.5)]
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=25)
    cohort = oracle.cohort_of(mlp(), examples, algorithm, len(own), 9, schedule=own)
    results = oracle.train(cohort, engine)
    for member, result in zip(cohort.members, results, strict=True):
        torch.testing.assert_close(result.last, oracle.trained_alone(mlp(), cohort, member), rtol=0, atol=1e-5)
    by_function = oracle.cohort_of(
        mlp(), examples, algorithm, len(own), 9, schedule=[lambda p: 1.0 if p < 0.5 else 0.1] * len(own)
    )
    assert torch.equal(oracle.train(by_function, engine)[5].last, results[5].last)
