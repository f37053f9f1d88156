"""A law of the user's own: it can be saved, and loaded with its class or without it, and nothing runs by its name."""

import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import mlp, training
from rewritten import rewrite
from wherefrom.laws import Gaussian
from wherefrom.predictive.one_shot import NoRuleError


@dataclass(frozen=True)
class Latest:
    """A diagonal Gaussian around the last iterate, as wide as the last steps were, in powers that are given."""

    every: ClassVar[str] = "epoch"
    fewest: ClassVar[int] = 2
    widening: float = 1.0
    powers: tuple[float, ...] = (1.0, 2.0)

    def collector(self, theta, iterations):
        return LatestCollector(self.widening * sum(self.powers))


class Twice:
    """A factor that a file cannot hold."""

    def __mul__(self, other):
        return 2 * other

    def __repr__(self):
        return "twice"


class LatestCollector:
    kind: ClassVar[Any] = Gaussian
    state = ("last", "step")

    def __init__(self, factor):
        self.factor, self.last, self.step = factor, None, None

    def collect(self, theta):
        self.step, self.last = None if self.last is None else theta - self.last, theta.clone()

    def laws(self):
        none = self.last.new_zeros(0, self.last.shape[1])
        return [
            self.kind(mean, (self.factor * step).square(), none)
            for mean, step in zip(self.last, self.step, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Box:
    """Uniform between mean - width and mean + width in each weight: neither points nor a Gaussian."""

    mean: torch.Tensor
    width: torch.Tensor
    nothing: torch.Tensor

    @property
    def variance(self):
        return self.width.square() / 3

    @property
    def is_random(self):
        return True

    def sample(self, count, generator):
        return self.mean + self.width * (2 * torch.rand(count, len(self.mean), generator=generator) - 1)

    def tensors(self):
        return {"mean": self.mean, "width": self.width, "nothing": self.nothing}


class BoxCollector(LatestCollector):
    kind = Box


@dataclass(frozen=True)
class Boxes(Latest):
    def collector(self, theta, iterations):
        return BoxCollector(self.widening)


class Bent(Gaussian):
    """It samples in its own way, but calls itself Gaussian."""


class BentCollector(LatestCollector):
    kind = Bent


@dataclass(frozen=True)
class Bending(Latest):
    def collector(self, theta, iterations):
        return BentCollector(1.0)


def trained(problem, law) -> wf.Posterior:
    return wf.marginalise(training(), problem, [wf.InitialCondition(2), wf.Iterations(law)], seed=2)


def test_it_is_loaded_with_its_class_and_extended(problem, tmp_path):
    posterior = trained(problem, Latest(widening=2.0, powers=(0.5, 1.5)))
    posterior.save(tmp_path)
    again = wf.load(tmp_path, mlp(), data=problem, laws=[Boxes, Latest])
    assert again.design == posterior.design
    x = problem[0]
    for a, b in ((posterior, again), (posterior.extend(theta0=1), again.extend(theta0=1))):
        assert torch.equal(a.predict(x, samples=7).answers, b.predict(x, samples=7).answers)
        assert torch.equal(a.one_shot(x).variance, b.one_shot(x).variance)


def test_without_its_class_it_predicts_and_says_what_is_missing(problem, tmp_path):
    posterior, x = trained(problem, Latest(widening=2.0)), problem[0]
    for folder in (tmp_path / "first", tmp_path / "again"):
        posterior.save(folder)
        posterior = wf.load(folder, mlp(), data=problem)
        assert "Latest(widening=2.0, powers=(1.0, 2.0))" in repr(posterior.design)
        with pytest.raises(
            ValueError, match=r"Latest is a class of your own.*wf\.load\(folder, \.\.\., laws=\[Latest\]"
        ):
            posterior.extend(theta0=1)
    whole = wf.load(tmp_path / "again", mlp(), data=problem, laws=[Latest])
    assert torch.equal(whole.predict(x, samples=7).answers, posterior.predict(x, samples=7).answers)
    assert posterior.marginalising("t").predict(x).sources().names == ("t",)
    assert len(whole.extend(theta0=1)) == 3


def test_a_kind_of_its_own_needs_its_class(problem, tmp_path):
    posterior = trained(problem, Boxes())
    posterior.save(tmp_path)
    with pytest.raises(ValueError, match=r"Box is a class of your own.*laws=\[Box\]"):
        wf.load(tmp_path, mlp())
    again = wf.load(tmp_path, mlp(), laws=[Boxes, Box])
    assert isinstance(again.laws()[1], Box)
    assert torch.equal(again.predict(problem[0]).answers, posterior.predict(problem[0]).answers)


def test_one_shot_refuses_a_kind_that_it_cannot_follow(problem):
    """Rather than take its mean for all of it. Independent weights it does follow, by their variances."""
    posterior, x = trained(problem, Boxes()), problem[0]
    with pytest.raises(
        NoRuleError, match=r"laws that are Gaussian, or made of points, not Box: use predict\(x, samples"
    ):
        posterior.one_shot(x)
    assert bool((posterior.one_shot(x, covariance="diagonal").variance > 0).all())


def test_a_subclass_of_ours_is_not_taken_for_ours(problem, tmp_path):
    trained(problem, Bending()).save(tmp_path)
    with pytest.raises(ValueError, match=r"Bent is a class of your own"):
        wf.load(tmp_path, mlp())
    assert type(wf.load(tmp_path, mlp(), laws=[Bent]).laws()[0]) is Bent


def test_a_law_of_ours_is_not_taken_for_another_of_its_name(problem, tmp_path):
    """A class of the user's that is called SWAG is still the user's."""
    theirs = type("SWAG", (Latest,), {"__repr__": lambda self: "SWAG(own)"})
    trained(problem, theirs()).save(tmp_path)
    assert repr(wf.load(tmp_path, mlp()).design.iterations.law) == "SWAG(own)"
    assert type(wf.load(tmp_path, mlp(), laws=[theirs]).design.iterations.law) is theirs


def test_settings_that_a_file_cannot_hold(problem, tmp_path):
    posterior = trained(problem, Latest(widening=Twice()))
    posterior.save(tmp_path)
    again = wf.load(tmp_path, mlp(), data=problem, laws=[Latest])
    assert torch.equal(again.predict(problem[0]).answers, posterior.predict(problem[0]).answers)
    with pytest.raises(ValueError, match=r"Latest\(widening=twice.* cannot be made again from a file"):
        again.extend(theta0=1)


def test_settings_may_be_tensors(problem, tmp_path):
    posterior = trained(problem, Latest(widening=torch.tensor(2.0)))
    posterior.save(tmp_path)
    again = wf.load(tmp_path, mlp(), data=problem)  # without its class, the tensor is still kept
    again.save(tmp_path)
    again = wf.load(tmp_path, mlp(), data=problem, laws=[Latest])
    assert torch.equal(
        again.extend(theta0=1).predict(problem[0]).answers, posterior.extend(theta0=1).predict(problem[0]).answers
    )


def test_a_class_that_has_changed_is_named(problem, tmp_path):
    trained(problem, Latest()).save(tmp_path)

    def forgetting(about):
        about["posterior"]["design"]["iterations"]["law"]["settings"]["forgetting"] = 1
        return about

    rewrite(tmp_path, "posterior.json", forgetting)
    with pytest.raises(ValueError, match=r"Latest is not the class that was saved.*forgetting"):
        wf.load(tmp_path, mlp(), laws=[Latest])


def test_a_name_in_a_file_is_only_looked_for_among_those_given(problem, tmp_path):
    """A file that names a class of some module gets nothing imported, nor called."""
    trained(problem, Latest()).save(tmp_path)
    for name in ("os.system", "tests.laws.test_own_law.Latest", "Popen"):

        def named(about, name=name):
            about["posterior"]["design"]["iterations"]["law"]["name"] = name
            return about

        rewrite(tmp_path, "posterior.json", named)
        loaded = wf.load(tmp_path, mlp(), data=problem, laws=[Latest])
        with pytest.raises(ValueError, match="is a class of your own"):
            loaded.extend(theta0=1)


def test_classes_are_asked_for_not_objects(problem, tmp_path):
    trained(problem, Latest()).save(tmp_path)
    with pytest.raises(TypeError, match=r"laws=\[\.\.\.\]\) takes classes, not Latest\("):
        wf.load(tmp_path, mlp(), laws=[Latest()])


def test_an_estimator_with_it_can_be_pickled(problem):
    pytest.importorskip("sklearn")
    x, y = problem
    for law in (Latest(), Boxes()):
        found = wf.WherefromRegressor([wf.Iterations(law)], epochs=4, random_state=0).fit(x, y)
        again = pickle.loads(pickle.dumps(found))
        assert type(again.posterior_.design.iterations.law) is type(law)
        assert np.array_equal(again.predict(x), found.predict(x))


@pytest.mark.parametrize("law", [Boxes(), Bending()], ids=["box", "bent"])
def test_checkpoints_come_to_the_same_law_again(law, problem, tmp_path):
    over = [wf.InitialCondition(2), wf.Iterations(law)]
    expected = trained(problem, law)
    for _ in range(2):
        found = wf.marginalise(training(), problem, over, seed=2, checkpoints=tmp_path)
        for one, other in zip(found.laws(), expected.laws(), strict=True):
            assert type(one) is type(other)
            assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


class Stopped(Exception):
    pass


def stopping(epochs: int):
    """A progress function that stops once so many epochs of members are done."""
    left = [epochs]

    def report(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            raise Stopped

    return report


class FadingCollector:
    """Makes new tensors instead of writing into those it has, and has a number."""

    state = ("weight", "mean", "variance")

    def __init__(self, theta):
        self.weight, self.mean, self.variance = 0.0, torch.zeros_like(theta), torch.zeros_like(theta)

    def collect(self, theta):
        self.weight = 1 + 0.9 * self.weight
        new, change = 1 / self.weight, theta - self.mean
        self.mean, self.variance = self.mean + new * change, (1 - new) * (self.variance + new * change**2)

    def laws(self):
        none = self.mean.new_zeros(0, self.mean.shape[1])
        return [Gaussian(m, v, none) for m, v in zip(self.mean, self.variance, strict=True)]


@dataclass(frozen=True)
class Fading(Latest):
    def collector(self, theta, iterations):
        return FadingCollector(theta)


@pytest.mark.parametrize("law", [Latest(), Boxes(), Fading()], ids=["latest", "box", "fading"])
@pytest.mark.parametrize("stop", [2, 5])
def test_interrupted_it_goes_on_by_the_state_that_it_names(law, stop, problem, tmp_path):
    """Before and while it collects."""
    over = [wf.InitialCondition(2), wf.Iterations(law)]
    with pytest.raises(Stopped):
        wf.marginalise(training(), problem, over, seed=2, checkpoints=tmp_path, progress=stopping(2 * stop))
    found = wf.marginalise(training(), problem, over, seed=2, checkpoints=tmp_path)
    for one, other in zip(found.laws(), trained(problem, law).laws(), strict=True):
        assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


def test_checkpoints_say_what_a_collector_lacks(problem, tmp_path):
    class Silent(FadingCollector):
        @property
        def state(self):
            raise AttributeError

    class Odd(FadingCollector):
        state = (*FadingCollector.state, "names")
        names: ClassVar[list] = ["a", "list"]

    for collector, message in (
        (Silent, r'Silent does not name what it gathers.*state = \("mean", "count"\)'),
        (Odd, "Odd.names is neither a tensor with a row for each member, nor a number.*leave checkpoints out"),
    ):
        law = type("Law", (Latest,), {"collector": lambda self, theta, count, kind=collector: kind(theta)})()
        over = [wf.InitialCondition(2), wf.Iterations(law)]
        with pytest.raises(ValueError, match=message):
            wf.marginalise(training(), problem, over, checkpoints=wf.Checkpoints(tmp_path, seconds=0))
        assert len(wf.marginalise(training(), problem, over)) == 2


def test_recorders_keep_it(problem):
    x, y = (torch.as_tensor(part, dtype=torch.float32) for part in problem)
    members = []
    for seed in range(2):
        torch.manual_seed(seed)
        network = mlp()()
        recorder = wf.Recorder(Boxes(), expected=5)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
        for _ in range(5):
            optimiser.zero_grad()
            (network(x).flatten() - y.flatten()).square().mean().backward()
            optimiser.step()
            recorder.update(network)
        members.append(recorder)
    posterior = wf.Posterior.from_members(members, model=mlp(), x=x[:5])
    assert all(type(law) is Box for law in posterior.laws())
    assert posterior.predict(x[:5]).std.min() > 0
